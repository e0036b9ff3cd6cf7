"""Latents: what an encoder gives for every sequence alone, whatever the batch, streamed through a file in little memory."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from continuity import latents, tables, tasks
from continuity.network import SequenceModel
from continuity.tasks.sequences import Sequences, Task


def ragged(tokens, n=9):
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 40, n).astype(np.int32)
    total = int(lengths.sum())
    values = rng.integers(1, 5, total).astype(np.int8) if tokens else rng.standard_normal((total, 2)).astype(np.float32)
    vocab, channels = (tuple("_abcd"), None) if tokens else (None, ("x", "y"))
    return Task("mine", {"test": Sequences(values, lengths)}, "", "", vocab=vocab, channels=channels)


def network(tokens, layer="s4d"):
    torch.manual_seed(0)
    ends = {"vocab": 5} if tokens else {"d_input": 2}
    return SequenceModel(layer, d_model=6, n_layers=3, d_output=2, layer_options={"d_state": 4}, dropout=0.5, **ends)


@pytest.mark.parametrize("tokens", [True, False])
def test_raw_latents_are_the_values_or_one_hot_symbols(tokens):
    part = ragged(tokens).splits["test"]
    for i, found in enumerate(latents.raw(ragged(tokens))(part)):
        np.testing.assert_array_equal(found.argmax(1) if tokens else found, part[i])
        assert found.sum() == len(part[i]) if tokens else found.shape == part[i].shape


@pytest.mark.parametrize("layer", ["s4d", "s6"])
@pytest.mark.parametrize("tokens", [True, False])
def test_states_after_a_layer_are_those_of_the_sequence_alone(tokens, layer):
    part, model = ragged(tokens).splits["test"], network(tokens, layer)
    found = {depth: latents.states(model, depth)(part) for depth in (1, 2, 3)}
    model.eval()
    dense = torch.from_numpy(part.padded())
    lengths = torch.from_numpy(part.lengths.astype(np.int64))
    with torch.no_grad():
        stack, _ = model.states(dense.long() if tokens else dense, lengths)
        h = model.encode(dense.long() if tokens else dense, lengths)
        first = model.blocks[0](h, 1.0, lengths)
    for i, length in enumerate(part.lengths):
        np.testing.assert_allclose(found[3][i], stack[i, :length], atol=1e-5)
        np.testing.assert_allclose(found[1][i], first[i, :length], atol=1e-5)
    assert not np.allclose(found[1][0], found[2][0], atol=1e-3)


def test_a_layer_that_is_not_there_is_refused():
    for depth in (0, 4):
        with pytest.raises(ValueError, match=f"no layer {depth}: the model has 3"):
            latents.states(network(False), depth)


@pytest.mark.parametrize("rows", [1, 4, 100])
def test_latents_survive_their_file_in_batches_of_any_size(tmp_path, rows):
    task = ragged(False)
    latents.write(task, "test", 7, latents.embedding(network(False)), tmp_path / "z.parquet", {"code": "1"}, rows)
    expected = latents.embedding(network(False))(task.splits["test"])[:7]
    read = [one for batch in latents.read(tmp_path / "z.parquet", rows=3) for one in batch]
    assert len(read) == 7 and tables.metadata(tmp_path / "z.parquet")["task"] == "mine"
    for one, other in zip(read, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_only_the_sequences_asked_for_are_read_from_a_task(tmp_path):
    part = ragged(False, 30).splits["test"]
    task = Task("mine", {"train": part, "test": part.take(range(20))}, "", "", channels=("x", "y"))
    tasks.write(task, tmp_path / "mine.parquet")
    few = tasks.read(tmp_path / "mine.parquet", "test", 7)
    assert [len(found) for found in few.splits.values()] == [0, 0, 7] and few.channels == ("x", "y")
    np.testing.assert_array_equal(few.splits["test"].values, part.take(range(7)).values)


def test_a_torn_or_foreign_file_is_named(tmp_path):
    latents.write(ragged(False), "test", 7, latents.raw(ragged(False)), tmp_path / "z.parquet", {})
    (tmp_path / "torn.parquet").write_bytes((tmp_path / "z.parquet").read_bytes()[:-30])
    for name in ("torn.parquet", "absent.parquet"):
        with pytest.raises(tables.TableError, match=name):
            list(latents.read(tmp_path / name))


def test_memory_does_not_grow_with_the_number_of_sequences(tmp_path):
    code = """
import resource, sys
import numpy as np
from continuity import latents
from continuity.metric import task_continuity_stream
from continuity.tasks.sequences import Sequences, Task
n = int(sys.argv[1])
part = Sequences(np.zeros(n * 1024, np.int8), np.full(n, 1024, np.int32))
part.values[:] = np.random.default_rng(0).integers(1, 16, len(part.values), dtype=np.int8)
task = Task("t", {"test": part}, "", "", vocab=tuple("abcdefghijklmnop"))
latents.write(task, "test", n, latents.raw(task), sys.argv[2], {})
found = task_continuity_stream(((batch, None) for batch in latents.read(sys.argv[2])), bootstrap=100)
assert found.n_sequences == n
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    peaks = []
    for n in (64, 1024):
        command = [sys.executable, "-c", code, str(n), str(tmp_path / f"{n}.parquet")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        peaks.append(int(done.stdout) / 1024)
    assert peaks[1] < peaks[0] + 60, f"{peaks} MB; the latents of the larger file are 64 MB, in float64 128 MB"
