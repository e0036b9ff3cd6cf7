"""What mu alone predicts of a task that was left out: against scikit-learn and scipy, on truth and on noise."""

import itertools

import numpy as np
import pytest
import synthetic
from continuity import catalog, prediction
from continuity.families import FAMILIES, family
from continuity.layers import LAYERS
from scipy import stats
from sklearn.linear_model import LinearRegression

TWO = {"s4d": "time-invariant", "s6": "selective"}


def rows(slope, noise=0.0, seed=0, groups=("a", "b", "c", "d"), each=5):
    """Two models whose log errors cross where mu is 1/2, `slope` times as steeply as mu rises."""
    rng = np.random.default_rng(seed)
    return [
        {"held": held, "cell": f"{held} {k}", "model": model, "mu": k / (each - 1) + 0.01 * groups.index(held),
         "error": sign * slope * (k / (each - 1) - 0.6) + noise * rng.standard_normal()}
        for held in groups for k in range(each) for model, sign in (("s4d", -1), ("s6", 1))
    ]  # fmt: skip


def whole(found):
    return next(row for row in found if row["left_out"] == "each in turn")


def predict(content, fewest=3, within=True, draws=400, **options):
    return prediction.predict("forecast", content, TWO, fewest, within, draws, options.get("seed", 0))


def test_every_layer_has_a_family_and_a_users_model_is_one_of_its_own():
    assert set(FAMILIES) == set(LAYERS)
    assert family({"name": "mine", "factory": "m:f"}) == "mine" and family({"name": "x", "layer": "s5"}) == "time-invariant"


def test_lines_are_least_squares_fits_of_the_other_groups():
    rng = np.random.default_rng(0)
    mu, advantage, held = rng.random(15), rng.standard_normal((15, 3)), np.repeat(["a", "b", "c"], 5)
    expected = [
        LinearRegression().fit(mu[held != held[i], None], advantage[held != held[i]]).predict(mu[i : i + 1, None])[0].argmax()
        for i in range(15)
    ]
    assert prediction.predicted(mu, advantage, held).tolist() == expected
    assert prediction.predicted(mu[None], advantage, held).tolist() == [expected]


@pytest.mark.parametrize("hits, n", [(0, 4), (4, 4), (3, 4), (13, 20)])
def test_the_interval_is_clopper_and_pearsons(hits, n):
    expected = stats.binomtest(hits, n).proportion_ci(0.95, method="exact")
    assert prediction.binomial_interval(hits, n) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_a_winner_that_follows_mu_is_predicted_beyond_the_base_rate():
    found = whole(predict(rows(1.0, noise=0.01)))
    assert found["hit_share"] == 1 and found["base_share"] == 0.6 and found["p_value"] < 0.01
    assert found["regret"] == 0 < found["base_regret"] and found["n_cells"] == 20


def test_every_group_is_left_out_once():
    found = predict(rows(1.0))
    assert [row["left_out"] for row in found] == ["each in turn", "a", "b", "c", "d"]
    assert all(row["n_cells"] == 5 and "p_value" not in row for row in found[1:])


def test_noise_is_seldom_taken_for_a_law():
    p_values = [whole(predict(rows(0.0, noise=1.0, seed=seed), draws=200))["p_value"] for seed in range(40)]
    assert sum(p < 0.05 for p in p_values) <= 6


def test_a_family_competes_with_its_best_member_and_a_cell_without_a_family_is_left_out():
    errors = {"s4d": 0.5, "s4": 0.3, "s6": 0.4, "ridge": 0.0}
    content = [{"held": "a", "cell": "a 0", "mu": 0.5, "model": model, "error": error} for model, error in errors.items()]
    found = prediction.cells(content, TWO | {"s4": "time-invariant"})
    assert found.families == ("selective", "time-invariant") and found.winner.tolist() == [1]
    assert found.advantage[0] == pytest.approx([-0.05, 0.05])
    assert len(prediction.cells(content[:1] + [content[0] | {"cell": "b", "model": "s6"}], TWO).mu) == 0


def test_too_few_groups_or_one_family_is_said():
    (few,) = predict(rows(1.0, groups=("a", "b")), fewest=4)
    assert few["status"] == "undefined" and few["reason"] == "2 to leave out, fewer than 4"
    (one,) = predict([row for row in rows(1.0) if row["model"] == "s6"])
    assert one["status"] == "undefined" and "one family" in one["reason"]
    (none,) = predict([])
    assert none["status"] == "undefined"


def test_the_same_seed_gives_the_same_rows():
    assert predict(rows(0.3, noise=0.5), seed=4) == predict(rows(0.3, noise=0.5), seed=4)


def test_an_invented_study_is_predicted_as_it_was_made(tmp_path):
    connection = catalog.open_tables(synthetic.write(tmp_path))
    families = TWO | {"transformer": "softmax attention"}
    content = connection.sql(prediction.FORECAST).to_arrow_table().to_pylist()
    assert {row["held"] for row in content} == set(synthetic.SYSTEMS) and "ridge" not in {row["model"] for row in content}
    found = whole(prediction.predict("forecast", content, families, 3, True, 400, 0))
    assert found["hit_share"] > 0.8 > found["base_share"] and found["p_value"] < 0.01
    labelled = connection.sql(prediction.BENCHMARK).to_arrow_table().to_pylist()
    pairs = set(itertools.product(("listops", "smnist"), ("s4d", "s6")))
    assert {(row["held"], row["model"]) for row in labelled} == pairs
    assert all(0 < row["error"] < 1 and row["mu"] is not None for row in labelled)


def test_gap_alignment_and_prediction_keep_several_horizons_and_readouts_apart(tmp_path):
    """Two more settings in which everything is the other way round change nothing of the primary one."""
    from continuity import alignment, tables

    rng = np.random.default_rng(0)
    primary = synthetic.forecast(rng, fail=False)
    rest = [row | {"rmse": 1 / row["rmse"], "rmse_relative": 1 / row["rmse_relative"]} | other for row in primary
            for other in ({"horizon": 1}, {"readout": "mean"}, {"horizon": 1, "readout": "mean"})]  # fmt: skip
    found = []
    for name, content in (("one", primary), ("four", primary + rest)):
        folder = tmp_path / name
        tables.write("forecast", content, folder / "forecast.parquet")
        tables.write("mixtures", synthetic.mixtures(), folder / "mixtures.parquet")
        connection = catalog.open_tables(folder)
        gap = [row for row in catalog.aggregate("gap", catalog.table_files(folder)).to_pylist()
               if (row["readout"], row["horizon"]) == ("last", 16)]  # fmt: skip
        aligned = alignment.align(connection.sql("FROM advantage").to_arrow_table(), draws=100)
        guesses = connection.sql(prediction.FORECAST).to_arrow_table().to_pylist()
        found.append((gap, aligned, guesses))
    for one, four in zip(*found, strict=True):
        assert one == [pytest.approx(row) if isinstance(row, dict) else row for row in four] and one
