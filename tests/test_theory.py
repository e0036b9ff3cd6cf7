"""Every theorem where its hypothesis holds, and a system outside each."""

import numpy as np
import pytest
import torch
from continuity import theory
from scipy.linalg import solve_discrete_are

KEYS = {"theorem", "setting", "system", "seed", "hypothesis", "bound", "measured", "margin", "holds", "status", "reason"}


@pytest.fixture(scope="module")
def rows():
    torch.set_num_threads(1)
    return theory.run(systems=12, state=4, length=150, beta=0.5, seed=3)


def test_every_proved_bound_holds_where_its_hypothesis_does(rows):
    proved = [row for row in rows if row["hypothesis"] and not row["setting"].startswith("slower than")]
    assert len({row["setting"] for row in proved}) == 9
    assert all(row["holds"] for row in proved)
    assert {row["theorem"] for row in rows} == set(theory.THEOREMS)


def test_every_counterexample_breaks_hypothesis_and_conclusion(rows):
    broken = [row for row in rows if row["setting"].startswith("counterexample")]
    assert {row["theorem"] for row in broken} == set(theory.THEOREMS)
    assert not any(row["hypothesis"] or row["holds"] for row in broken)


def test_bounds_are_of_the_size_of_what_they_bound(rows):
    rate = [row["bound"] / row["measured"] for row in rows if (row["theorem"], row["setting"]) == ("forgetting", "strict")]
    assert 1e-3 < min(rate) and max(rate) < 1
    reach = [row["measured"] for row in rows if row["setting"] == "every schedule"]
    assert 1e-3 < min(reach) and max(reach) < 1


def test_margins_are_distances_inside_the_bound(rows):
    for row in rows:
        assert set(row) == KEYS and row["margin"] in (row["bound"] - row["measured"], row["measured"] - row["bound"])


def test_the_same_seed_gives_the_same_rows_and_more_systems_keep_the_first(rows):
    again = theory.run(systems=3, state=4, length=150, beta=0.5, seed=3)
    assert again == [row for row in rows if row["system"] < 3]
    assert theory.run(systems=1, state=4, length=150, beta=0.5, seed=4)[0]["measured"] != again[0]["measured"]


def test_the_available_storage_solves_scipys_riccati_equation():
    rng = np.random.default_rng(0)
    a, b, c = theory._token(rng, 3)
    A, B, C, D = np.diag(a), b[:, None], (c * a)[None], 5.0
    ours, _ = theory._available(A, B, C, D, 4000)
    theirs = -solve_discrete_are(A, B, np.zeros((3, 3)), np.array([[2 * D]]), s=C.T)
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_hippo_keeps_half_its_energy_longer_depending_on_what_random_means(rows):
    longer = {}
    for row in rows:
        if row["setting"].startswith("slower than"):
            longer.setdefault(row["setting"], []).append(row["holds"])
    assert all(longer["slower than a random matrix of the same logarithmic norm"])
    assert 0 < sum(longer["slower than a random matrix of the same spectral abscissa"]) < 12


def test_the_half_life_of_pure_decay_is_its_logarithm():
    times = np.geomspace(1e-4, 100, 400)
    energy = theory._energy(-2.0 * np.eye(3), times)
    assert theory._half_life(energy, times) == pytest.approx(np.log(2) / 4, rel=1e-3)


@pytest.mark.parametrize("bad", [{"systems": 0}, {"state": 1}, {"length": 5}, {"beta": 0.0}, {"beta": 1.5}])
def test_bad_sizes_are_one_clear_line(bad):
    with pytest.raises(ValueError) as caught:
        theory.run(**bad)
    assert "\n" not in str(caught.value)
