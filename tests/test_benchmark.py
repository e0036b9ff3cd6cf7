"""Labelled tasks: the linear baselines against scikit-learn, chance without information, and what no accuracy depends on."""

import math

import numpy as np
import pytest
import torch
from continuity import benchmark, curves
from continuity.logistic import chosen, logistic
from continuity.tasks.sequences import Sequences, Task
from continuity.training import Budget, at_rate, error_rate, load
from sklearn.linear_model import LogisticRegression

BUDGET = Budget(epochs=6, batch=16, lr=0.02, layer_lr=0.01, weight_decay=0.0, warmup=0.1, clip=1.0)
NETWORK = {"d_model": 8, "n_layers": 1, "dropout": 0.0, "readout": "mean"}
S4D = {"name": "s4d", "layer": "s4d", "options": {"d_state": 4}}


def waves(seed, n, permuted=False, ragged=False):
    """Two classes of waves, one twice as fast; their labels permuted where asked."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 2
    lengths = rng.integers(24, 33, n) if ragged else np.full(n, 32)
    parts = [
        np.sin(0.3 * (1 + label) * np.arange(k) + 0.2 * rng.standard_normal()) for label, k in zip(labels, lengths, strict=True)
    ]
    labels = rng.permutation(labels) if permuted else labels
    return Sequences(np.concatenate(parts)[:, None].astype(np.float32), lengths.astype(np.int32), labels.astype(np.int32))


def task(**options):
    splits = {
        name: waves(seed, n, **options) for seed, (name, n) in enumerate((("train", 128), ("validation", 64), ("test", 200)))
    }
    return Task("waves", splits, "made", "none", ("slow", "fast"), channels=("x",))


def clouds(seed, m=90, p=6, classes=3, noise=1.5):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, m)
    centres = np.random.default_rng(9).standard_normal((classes, p))
    return centres[y] + noise * rng.standard_normal((m, p)), y


@pytest.mark.parametrize("alpha", [0.01, 1.0, 50.0])
def test_logistic_regression_is_scikit_learns(alpha):
    x, y = clouds(0)
    ours, reference = logistic(x, y, 3, alpha), LogisticRegression(C=1 / alpha, tol=1e-10, max_iter=5000).fit(x, y)
    np.testing.assert_allclose(ours.weights.T, reference.coef_, atol=1e-4)
    scores = ours.scores(x)
    chances = np.exp(scores - scores.max(1, keepdims=True))
    np.testing.assert_allclose(chances / chances.sum(1, keepdims=True), reference.predict_proba(x), atol=1e-5)


def test_the_penalty_is_the_best_of_its_grid_on_the_validation_set():
    (x, y), (vx, vy) = clouds(0, m=24, p=20, noise=2.5), clouds(1, m=300, p=20, noise=2.5)
    alphas = (1000.0, 100.0, 10.0, 1.0, 0.1)
    losses = []
    for alpha in alphas:
        chances = LogisticRegression(C=1 / alpha, tol=1e-10, max_iter=5000).fit(x, y).predict_proba(vx)
        losses.append(-np.log(chances[np.arange(len(vy)), vy]).mean())
    assert chosen((x, y), (vx, vy), 3, alphas).alpha == alphas[int(np.argmin(losses))]
    assert np.argmin(losses) not in (0, len(alphas) - 1)


@pytest.mark.parametrize("alpha, y", [(0.0, np.zeros(3)), (1.0, np.zeros(4))])
def test_a_bad_argument_is_named(alpha, y):
    with pytest.raises(ValueError, match="logistic regression"):
        logistic(np.ones((3, 2)), y, 2, alpha)


def test_what_an_order_blind_baseline_sees_is_the_mean_or_the_share_of_each_symbol():
    values = Sequences(np.array([[1.0, 5], [3, 7], [4, 4]], np.float32), np.array([2, 1], np.int32), np.zeros(2, np.int32))
    assert benchmark.pooled(values, None).tolist() == [[2, 6], [4, 4]]
    tokens = Sequences(np.array([1, 2, 2, 1, 0], np.int64), np.array([4, 1], np.int32), np.zeros(2, np.int32))
    symbols = Task("t", {}, "", "", ("a",), vocab=("pad", "x", "y"))
    assert benchmark.pooled(tokens, symbols).tolist() == [[0, 0.5, 0.5], [1, 0, 0]]


def test_a_linear_map_of_all_values_tells_waves_apart_and_one_of_their_mean_cannot():
    rows = {name: benchmark.baseline(task(), name) for name in ("majority", "linear_pooled", "linear_flat")}
    assert rows["linear_flat"]["accuracy"] > 0.95 and rows["linear_flat"]["parameters"] == 2 * 33
    assert rows["majority"]["accuracy"] == rows["majority"]["majority"] == 0.5
    assert {row["n_test"] for row in rows.values()} == {len(task().splits["test"])}


def test_sequences_of_several_lengths_have_no_flat_baseline():
    row = benchmark.baseline(task(ragged=True), "linear_flat")
    assert row["status"] == "undefined" and "one length" in row["reason"] and "accuracy" not in row


def test_a_network_tells_waves_apart_and_permuted_labels_bring_it_to_chance():
    torch.set_num_threads(1)
    learned = benchmark.train(task(), S4D, NETWORK, [BUDGET], 0)[0]["accuracy"]
    chance = benchmark.train(task(permuted=True), S4D, NETWORK, [BUDGET], 0)[0]["accuracy"]
    assert learned > 0.9 and abs(chance - 0.5) < 3 * (0.25 / 200) ** 0.5


def test_the_linear_baseline_falls_to_chance_with_permuted_labels():
    assert abs(benchmark.baseline(task(permuted=True), "linear_flat")["accuracy"] - 0.5) < 3 * (0.25 / 200) ** 0.5


def test_one_seed_gives_one_row():
    short = Budget(**vars(BUDGET) | {"epochs": 1})
    assert benchmark.train(task(), S4D, NETWORK, [short], 3)[0] == benchmark.train(task(), S4D, NETWORK, [short], 3)[0]


def test_of_several_rates_the_one_that_is_best_on_validation_data_stays(tmp_path):
    torch.set_num_threads(1)
    budgets = [Budget(**at_rate(vars(BUDGET) | {"epochs": 2}, rate)) for rate in (1e-6, BUDGET.lr, 1e-7)]
    alone = [
        benchmark.train(task(), S4D, NETWORK, [budget], 0, weights=tmp_path / f"{k}")[0] for k, budget in enumerate(budgets)
    ]
    best = max(range(3), key=lambda k: alone[k]["accuracy_validation"])
    row, _ = benchmark.train(
        task(), S4D, NETWORK, budgets, 0, checkpoint=tmp_path / "checkpoint-x.pt", weights=tmp_path / "all"
    )
    assert best == 1 and row == alone[1] and row["lr"] == BUDGET.lr
    kept, expected = load(tmp_path / "all"), load(tmp_path / "1")
    assert all(torch.equal(kept[name], expected[name]) for name in expected)
    assert len((tmp_path / curves.FILE).read_text().splitlines()) == 3  # of the one that stays


def test_rates_that_diverge_are_passed_over_and_of_equal_ones_the_smaller_stays():
    short = vars(BUDGET) | {"epochs": 1}
    wild = Budget(**short | {"lr": math.inf, "layer_lr": math.inf})
    same = [Budget(**at_rate(short, rate)) for rate in (1e-12, 1e-13)]
    row = benchmark.train(task(), S4D, NETWORK, [wild, *same], 0)[0]
    assert row["status"] == "ok" and row["lr"] == 1e-13
    assert benchmark.train(task(), S4D, NETWORK, [wild], 0)[0]["status"] == "diverged"


def test_the_batch_of_the_evaluation_changes_no_accuracy_though_lengths_differ():
    from continuity.models import build_model

    part = task(ragged=True)
    torch.manual_seed(0)
    network = build_model(S4D, NETWORK, **benchmark.ends(part))
    rates = {error_rate(network, benchmark.data(part.splits["test"]), batch=batch) for batch in (1, 7, 200)}
    assert max(rates) - min(rates) <= 1e-6


def test_a_network_of_a_given_size_says_its_width():
    row = benchmark.train(
        task(), S4D, NETWORK | {"d_model": None, "parameters": 2000}, [Budget(**vars(BUDGET) | {"epochs": 1})], 0
    )[0]
    assert abs(row["parameters"] / 2000 - 1) <= 0.05 and row["d_model"] > 8
