"""How the score depends on its settings: what must not matter does not, what must matter does, and the table says so."""

import math

import numpy as np
import pytest
from continuity.metric import task_continuity
from continuity.sensitivity import sensitivity, settings

BASE = {"max_lag": 8, "min_separation": 32, "max_separation": 96, "seed": 0, "bootstrap": 300}


def walks(n, length, d=8, rho=0.9, seed=0):
    """Stationary first-order autoregressions, as a list of (L, d)."""
    noise = np.random.default_rng(seed).standard_normal((n, length, d))
    out = noise.copy()
    for t in range(1, length):
        out[:, t] = rho * out[:, t - 1] + math.sqrt(1 - rho**2) * noise[:, t]
    return list(out)


def table(sequences, count=1000, **options):
    rows = sensitivity([sequences[:7], sequences[7:]], count, **(BASE | options))
    return {(row["parameter"], row["value"]): row for row in rows}


@pytest.fixture(scope="module")
def stationary():
    return walks(40, 600)


@pytest.fixture(scope="module")
def found(stationary):
    return table(stationary)


def test_there_is_a_row_for_every_setting_and_the_first_is_the_score(stationary, found):
    assert list(found) == settings(8, 32) and next(iter(found)) == ("score", 1.0)
    score = task_continuity(stationary, **BASE)
    row = found["score", 1.0]
    assert (row["mu"], row["low"], row["high"]) == pytest.approx((score.mu, score.low, score.high))
    assert row["change"] == row["change_low"] == row["change_high"] == 0 and row["n_sequences"] == 40


@pytest.mark.parametrize("setting", [("length", 0.5), ("length", 0.25), ("n", 0.5), ("n", 0.25), ("min_separation", 64.0)])
def test_on_stationary_data_length_count_and_separation_leave_mu_within_its_interval(found, setting):
    row = found[setting]
    assert row["low"] <= found["score", 1.0]["mu"] <= row["high"]
    if setting[0] != "n":
        assert row["change_low"] < 0 < row["change_high"]
        assert row["change_low"] <= row["change"] <= row["change_high"]


def test_where_length_matters_the_table_shows_it():
    # The second half of every sequence jumps about: the halves differ, and the interval of the change excludes 0.
    smooth = walks(40, 300)
    rough = walks(40, 300, rho=0.2, seed=1)
    row = table([np.concatenate(pair) for pair in zip(smooth, rough, strict=True)])["length", 0.5]
    assert row["change_low"] > 0.05 and row["change"] == pytest.approx(row["mu"] - (row["mu"] - row["change"]))
    half = task_continuity(smooth, **BASE)
    assert row["mu"] == pytest.approx(half.mu, abs=1e-12)


def test_weights_and_lags_move_mu_along_the_curve(stationary, found):
    mu_t = task_continuity(stationary, **BASE).mu_t
    assert found["weights", 0.0]["mu"] == pytest.approx(mu_t.mean())
    squares = np.arange(8, 0, -1.0) ** 2
    assert found["weights", 2.0]["mu"] == pytest.approx((mu_t * squares).sum() / squares.sum())
    assert found["max_lag", 4.0]["change_low"] > 0 > found["max_lag", 16.0]["change_high"]


def test_shuffled_time_has_no_continuity_and_the_paired_interval_is_narrow(found):
    null = found["order", 0.0]
    assert null["low"] < 0.003 and abs(null["mu"]) < 0.01
    half = found["length", 0.5]
    assert (
        half["change_high"] - half["change_low"]
        < half["high"] - half["low"] + found["score", 1.0]["high"] - found["score", 1.0]["low"]
    )


def test_only_the_sequences_asked_for_are_read(stationary):
    def batches():
        yield stationary[:10]
        yield stationary[10:20]
        raise AssertionError("read on")

    rows = sensitivity(batches(), 12, **BASE)
    assert rows[0]["n_sequences"] == 12 and {row["n_sequences"] for row in rows if row["parameter"] == "n"} == {3, 6}


def test_what_has_no_score_says_why():
    rows = sensitivity([walks(3, 15)], 10, **BASE)
    assert all(row["mu"] is None and row["change"] is None and row["reason"] for row in rows)
    short = table(walks(5, 100))
    assert short["score", 1.0]["status"] == "ok" and short["length", 0.25]["status"] == "undefined"
    assert sensitivity([], 10, **BASE)[0]["reason"] == "there is no sequence"
