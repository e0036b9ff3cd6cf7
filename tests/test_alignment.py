"""Rank correlation of mu and advantage: against scipy, against full enumeration, and on noise."""

import itertools

import numpy as np
import pytest
import synthetic
from continuity import alignment, catalog
from scipy import stats


def _rows(effect, seed=0, noise=0.1, systems=synthetic.SYSTEMS, etas=synthetic.ETAS):
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    cell = {"construction": "balanced", "readout": "last", "horizon": 16, "pair": "a-b"}
    return pa.Table.from_pylist([
        cell | {"system": system, "eta": eta, "seed": s, "mu": eta + 0.01 * systems.index(system),
                "advantage": effect * eta + noise * rng.standard_normal()}
        for system in systems for eta in etas for s in range(3)
    ])  # fmt: skip


def test_ranks_and_spearman_are_scipys_with_ties():
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 5, (20, 12)), rng.integers(0, 5, (20, 12))
    assert alignment.ranks(x) == pytest.approx(stats.rankdata(x, axis=1))
    expected = [stats.spearmanr(a, b).statistic for a, b in zip(x, y, strict=True)]
    assert alignment.spearman(x, y) == pytest.approx(expected)


def test_few_cells_are_tested_over_all_permutations():
    group = np.array(["p", "p", "p", "q", "q", "q"])
    mu = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    advantage = np.array([1.0, 3.0, 2.0, 5.0, 4.0, 6.0])
    observed = abs(stats.spearmanr(mu, advantage).statistic)
    reached = [
        abs(stats.spearmanr([mu[i] for i in (*a, *b)], advantage).statistic) >= observed - 1e-12
        for a in itertools.permutations(range(3)) for b in itertools.permutations(range(3, 6))
    ]  # fmt: skip
    assert alignment.permutation_p(mu, advantage, group) == pytest.approx(np.mean(reached))


def test_a_difference_between_systems_is_no_evidence():
    group = np.repeat(["p", "q"], 5)
    mu = np.concatenate([np.full(5, 0.1), np.full(5, 0.9)])
    advantage = np.concatenate([np.arange(5.0), np.arange(5.0) + 100])
    assert alignment.spearman(mu, advantage) > 0.8
    assert alignment.permutation_p(mu, advantage, group) == 1.0


def test_an_advantage_that_follows_mu_is_found_and_noise_is_not():
    (found,) = alignment.align(_rows(effect=1.0))
    assert found["low"] > 0.5 and found["p_value"] < 0.001 and found["n_tasks"] == 20
    p_values = [alignment.align(_rows(0.0, seed=s), draws=500)[0]["p_value"] for s in range(20)]
    assert sum(p < 0.05 for p in p_values) <= 4


def test_the_same_seed_gives_the_same_rows():
    assert alignment.align(_rows(0.3), seed=4) == alignment.align(_rows(0.3), seed=4)


def test_too_few_cells_or_no_spread_is_said():
    (few,) = alignment.align(_rows(1.0, systems=("vdp",), etas=(0.0, 1.0)))
    assert (few["status"], few["reason"]) == ("undefined", "2 cells, fewer than 5")
    (flat,) = alignment.align(_rows(0.0, noise=0.0))
    assert flat["status"] == "undefined" and "same in every cell" in flat["reason"]


def test_an_invented_study_is_aligned_as_it_was_made(tmp_path):
    made = synthetic.write(tmp_path)
    advantages = catalog.open_tables(made).sql("FROM advantage").to_arrow_table()
    found = {row["pair"]: row for row in alignment.align(advantages)}
    alone = {"s4d-persistence", "s6-persistence", "transformer-persistence"}
    assert set(found) == {"s4d-s6", "s4d-transformer", "s6-transformer"} | alone
    assert found["s4d-s6"]["rho"] > 0.9 and found["s4d-persistence"]["rho"] > 0.9 > found["transformer-persistence"]["rho"]
