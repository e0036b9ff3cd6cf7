"""Training: the schedule, resume to the same bits, divergence with a reason, metrics that do not depend on the batch."""

import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import torch
from continuity import training
from continuity.network import SequenceModel
from continuity.problems import Problem
from continuity.training import Budget, Data, Trainer
from torch.nn.functional import cross_entropy, mse_loss

BUDGET = Budget(epochs=3, batch=8, lr=0.01, layer_lr=0.005, weight_decay=0.01, warmup=0.1, clip=1.0)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def sets(n=20, length=12, ragged=False):
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(n, length, 2, generator=generator)
    lengths = torch.randint(3, length + 1, (n,), generator=generator) if ragged else None
    return Data(x, x[:, :3].mean((1, 2))[:, None], lengths)


def network(dropout=0.2, seed=3):
    training.seed_everything(seed)
    return SequenceModel("s4d", d_input=2, d_model=8, n_layers=2, d_output=1, dropout=dropout)


def fit(model, checkpoint=None, tell=lambda: None, budget=BUDGET, seed=3):
    return Trainer(model, sets(), sets(12), budget, seed, mse_loss, training.rmse, checkpoint, tell=tell).fit()


def same(one, two):
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


def test_one_seed_gives_one_network_bit_for_bit():
    one, two, other = network(), network(), network()
    fit(one), fit(two), fit(other, seed=4)
    assert same(one, two) and not same(one, other)


def test_data_moves_to_the_device_where_it_fits_twice_over():
    data, size = sets(ragged=True), 20 * (12 * 2 + 1) * 4
    assert data.near("meta", 2 * size).x.device.type == "meta" and data.near("meta", 2 * size).lengths is data.lengths
    assert data.near("meta", 2 * size - 1) is data


class Elsewhere(Data):
    """Data that say they lie on a device that is not the model's."""

    device = property(lambda self: "cpu:elsewhere")


@pytest.mark.parametrize("ragged", [False, True])
def test_data_that_do_not_fit_on_the_device_train_to_the_same_weights(ragged, monkeypatch):
    threads, take = set(), Data.take
    monkeypatch.setattr(Elsewhere, "take", lambda *given: (threads.add(threading.current_thread()), take(*given))[1])
    whole, fed = network(), network()
    for model, kind in ((whole, Data), (fed, Elsewhere)):
        data = kind(**vars(sets(ragged=ragged)))
        Trainer(model, data, sets(12), BUDGET, 3, mse_loss, training.rmse).fit()
    assert same(whole, fed)
    assert threads and threading.main_thread() not in threads and not any(thread.is_alive() for thread in threads)


def test_batches_are_made_ready_ahead_in_order_and_no_further():
    begun, ready = [], threading.Event()

    def load(item):
        begun.append(item)
        if len(begun) == 4:
            ready.set()
        return -item

    found = training.ahead(load, range(10), 3)
    assert next(found) == 0 and ready.wait(10)
    assert begun == [0, 1, 2, 3]
    assert list(found) == [-item for item in range(1, 10)] and begun == list(range(10))
    assert list(training.ahead(load, [], 3)) == []


def test_what_a_batch_made_ahead_raises_reaches_the_caller_and_ends_the_thread():
    def load(item):
        if item == 2:
            raise Stopped
        return threading.current_thread()

    found = training.ahead(load, range(5))
    thread = next(found)
    next(found)
    with pytest.raises(Stopped):
        next(found)
    assert not thread.is_alive()


class Stopped(Exception):
    pass


@pytest.mark.parametrize("stop_after", [1, 2])
def test_a_run_stopped_between_epochs_ends_in_the_same_weights(tmp_path, stop_after, monkeypatch):
    plain = network()
    whole = fit(plain)
    monkeypatch.setattr(training, "SAVE_EVERY", -1.0)
    path, told = tmp_path / "checkpoint.pt", []

    def tell():
        told.append(1)
        if len(told) == stop_after:
            raise Stopped

    with pytest.raises(Stopped):
        fit(network(), path, tell)
    assert path.exists()
    resumed = network(seed=99)
    again = fit(resumed, path)
    assert same(plain, resumed)
    assert again == whole


def test_a_run_stopped_inside_an_epoch_ends_in_the_same_weights(tmp_path, monkeypatch):
    plain = network()
    fit(plain)
    monkeypatch.setattr(training, "SAVE_EVERY", -1.0)
    path, update, count = tmp_path / "checkpoint.pt", Trainer._update, []

    def stopping(self, batch):
        count.append(1)
        if len(count) == 6:
            raise Stopped
        return update(self, batch)

    monkeypatch.setattr(Trainer, "_update", stopping)
    with pytest.raises(Stopped):
        fit(network(), path)
    monkeypatch.setattr(Trainer, "_update", update)
    resumed = network(seed=99)
    fit(resumed, path)
    assert same(plain, resumed)


SCRIPT = textwrap.dedent(
    """
    import sys, time, torch
    sys.path.insert(0, {tests!r})
    from pathlib import Path
    from test_training import BUDGET, fit, network
    from continuity import training
    from dataclasses import replace
    torch.set_num_threads(1)
    training.SAVE_EVERY = -1.0
    if {slow!r}:
        update = training.Trainer._update
        training.Trainer._update = lambda self, batch: (time.sleep(0.05), print(self.step, flush=True), update(self, batch))[2]
    model = network()
    fit(model, Path({checkpoint!r}), budget=replace(BUDGET, epochs=6))
    torch.save(model.state_dict(), {out!r})
    """
)


def script(tmp_path, slow, out):
    return SCRIPT.format(
        tests=os.path.dirname(__file__), slow=slow, checkpoint=str(tmp_path / "checkpoint.pt"), out=str(tmp_path / out)
    )


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_continues_to_identical_weights(tmp_path, how):
    process = subprocess.Popen([sys.executable, "-c", script(tmp_path, True, "none.pt")], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if int(line) == 7:
            process.send_signal(how)
            break
    code = process.wait()
    assert code == (-signal.SIGKILL if how == signal.SIGKILL else 143)
    assert not (tmp_path / "none.pt").exists() and (tmp_path / "checkpoint.pt").exists()
    subprocess.run([sys.executable, "-c", script(tmp_path, False, "resumed.pt")], check=True)
    (tmp_path / "checkpoint.pt").unlink()
    subprocess.run([sys.executable, "-c", script(tmp_path, False, "plain.pt")], check=True)
    resumed, plain = (torch.load(tmp_path / name, weights_only=True) for name in ("resumed.pt", "plain.pt"))
    assert all(torch.equal(plain[name], resumed[name]) for name in plain)


def test_the_best_validation_weights_are_kept():
    model, data = network(), sets()
    outcome = fit(model)
    assert outcome.best == min(line["validation"] for line in outcome.history)
    assert training.rmse(model, sets(12), batch=8) == pytest.approx(outcome.best, abs=1e-7)
    assert len(data) == 20


def test_the_learning_rate_warms_up_then_falls_as_a_cosine():
    factors = [training.rate(step, 100, 0.1) for step in range(100)]
    assert factors[:10] == pytest.approx([(k + 1) / 11 for k in range(10)])
    assert factors[10] == 1.0 and factors[55] == pytest.approx(0.5) and factors[99] < 1e-3
    assert all(a >= b for a, b in zip(factors[10:], factors[11:], strict=False))


def test_every_epoch_sees_every_sequence_once_in_an_order_of_its_own():
    first, second = training.order(50, 1, 0), training.order(50, 1, 1)
    assert sorted(first.tolist()) == list(range(50)) and not torch.equal(first, second)
    assert torch.equal(first, training.order(50, 1, 0))


def test_a_loss_that_is_not_finite_stops_the_run_and_says_where():
    model = network()
    data = sets()
    data.x[3, 2, 0] = math.inf
    outcome = Trainer(model, data, sets(12), BUDGET, 3, mse_loss, training.rmse).fit()
    assert outcome.status == "diverged"
    assert all(word in outcome.reason for word in ("step", "learning rate", "gradient norm"))


@pytest.mark.parametrize("ragged", [False, True])
def test_test_metrics_do_not_depend_on_the_batch(ragged):
    model, data = network(), sets(21, ragged=ragged)
    errors = [training.rmse(model, data, batch=batch) for batch in (1, 4, 21)]
    assert max(errors) - min(errors) < 1e-6


def test_accuracy_falls_to_chance_when_labels_are_permuted():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 10, 2, generator=generator)
    y = (x.sum((1, 2)) > 0).long()
    budget = Budget(epochs=8, batch=32, lr=0.01, layer_lr=0.01, weight_decay=0.0, warmup=0.1, clip=1.0)

    def accuracy(labels):
        training.seed_everything(0)
        model = SequenceModel("s4d", d_input=2, d_model=8, n_layers=1, d_output=2)
        train, test = Data(x[:200], labels[:200]), Data(x[200:], labels[200:])
        Trainer(model, train, train, budget, 0, cross_entropy, training.error_rate).fit()
        return 1 - training.error_rate(model, test)

    assert accuracy(y) > 0.85
    permuted = y[torch.randperm(400, generator=generator)]
    # 200 test labels at chance: a standard deviation of .035.
    assert abs(accuracy(permuted) - 0.5) < 0.15


def test_asking_for_a_gpu_where_there_is_none_is_an_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert training.device_of("auto") == "cpu"
    with pytest.raises(Problem, match="no GPU"):
        training.device_of("cuda")


def test_saved_weights_have_the_same_bytes_whatever_their_name(tmp_path):
    state = {"a": torch.arange(5.0), "n": 3}
    training.save(state, tmp_path / "one.pt")
    time.sleep(0.01)
    training.save(state, tmp_path / "another.pt")
    assert (tmp_path / "one.pt").read_bytes() == (tmp_path / "another.pt").read_bytes()
