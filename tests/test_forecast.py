"""Forecasts of mixtures: baselines, the search for a learning rate, crossed mixtures, and what no run may depend on."""

import json
import math
import runpy

import numpy as np
import pytest
import torch
from continuity import forecast, search, stage, systems, tables, trajectories
from continuity.forecast import Cell, Plan
from continuity.training import Budget, predict, rmse
from project import ROOT
from sklearn.linear_model import Ridge as Reference

BUDGET = {"epochs": 3, "batch": 16, "lr": 0.02, "layer_lr": 0.01, "weight_decay": 0.0, "warmup": 0.1, "clip": 1.0}
NETWORK = {"d_model": None, "parameters": 1500, "n_layers": 1, "dropout": 0.0}
S6 = {"name": "s6", "layer": "s6", "options": {"d_state": 4}}
S4D = {"name": "s4d", "layer": "s4d", "options": {"d_state": 8}}
ORDER_BLIND = {"name": "blind", "layer": "transformer", "options": {"n_heads": 1, "as_released": True}}


@pytest.fixture(scope="module")
def paths():
    torch.set_num_threads(1)
    n = {"train": 24, "validation": 12, "test": 12}
    return {split: systems.simulate("vdp", n[split], 70, 0.05, 37 + k) for k, split in enumerate(n)}


@pytest.fixture(scope="module")
def states(paths):
    return {split: found.states for split, found in paths.items()}


def plan(model=S6, **budget):
    return Plan(model, NETWORK, Budget(**BUDGET | budget), "cpu")


def test_the_ridge_row_is_scikit_learns(states):
    cell = Cell(states, 0.5, "balanced", 37, 16, 8)
    row = forecast.baseline(cell, "ridge")
    errors = {}
    for alpha in (10.0**k for k in range(-4, 7)):
        flat = {split: cut.inputs[:, -8:].reshape(len(cut.inputs), -1).astype(float) for split, cut in cell.windows.items()}
        fitted = Reference(alpha).fit(flat["train"], cell.windows["train"].targets)
        chosen = ((fitted.predict(flat["validation"]) - cell.windows["validation"].targets) ** 2).mean()
        errors[chosen] = np.sqrt(((fitted.predict(flat["test"]) - cell.windows["test"].targets) ** 2).mean())
    assert row["rmse"] == pytest.approx(errors[min(errors)], abs=1e-6)


@pytest.mark.parametrize("model", [S6, {"name": "mlp"}])
def test_one_seed_gives_one_row_and_another_seed_another(states, model):
    cell = Cell(states, 0.5, "balanced", 37, 16, 8)
    first, again, other = (forecast.train(cell, plan(model), "last", seed)[0] for seed in (0, 0, 1))
    assert first == again and first["rmse"] != other["rmse"]
    assert first["status"] == "ok" and abs(first["parameters"] / 1500 - 1) <= 0.05 and first["lr"] == 0.02
    assert first["rmse"] < first["rmse_untrained"]


@pytest.mark.parametrize("model", [S4D, S6, ORDER_BLIND, {"name": "mlp"}])
def test_the_batch_of_the_evaluation_changes_no_error(states, model):
    cell = Cell(states, 0.5, "balanced", 37, 16, 8)
    torch.manual_seed(0)
    network, _ = plan(model).build(16, "last")
    errors = [rmse(network, cell.data("test"), batch=batch) for batch in (1, 7, 1000)]
    assert max(errors) - min(errors) <= 1e-6


def trained_and_shuffled(states, model, readout):
    """(trained network, test data, the same with the steps of every window in another order)"""
    cell = Cell(states, 1.0, "balanced", 37, 16, 8)
    torch.manual_seed(0)
    network, _ = plan(model).build(16, readout)
    forecast.fit(cell, plan(model), network, 0, None)
    data = cell.data("test")
    return network, data, forecast.Data(data.x[:, torch.randperm(16)], data.y)


def test_permuting_time_leaves_an_order_blind_model_unchanged(states):
    network, data, shuffled = trained_and_shuffled(states, ORDER_BLIND, "mean")
    assert float((predict(network, data) - predict(network, shuffled)).abs().max()) < 1e-5


@pytest.mark.parametrize("model", [S4D, S6])
def test_permuting_time_hurts_what_sees_order(states, model):
    network, data, shuffled = trained_and_shuffled(states, model, "last")
    assert rmse(network, shuffled) > 1.05 * rmse(network, data)


def test_crossed_input_and_target_are_two_views_of_the_same_windows(states):
    plain, both = Cell(states, 0.0, "balanced", 37, 16, 8), Cell(states, 0.0, "balanced", 37, 16, 8, eta_target=1.0)
    target = Cell(states, 1.0, "balanced", 37, 16, 8)
    for split in ("train", "validation", "test"):
        np.testing.assert_array_equal(both.windows[split].inputs, plain.windows[split].inputs)
        np.testing.assert_array_equal(both.windows[split].targets, target.windows[split].targets)
        np.testing.assert_array_equal(both.windows[split].last, target.windows[split].last)
    perfect = both.errors(both.windows["test"].targets)
    assert perfect["rmse"] == 0 and "code_accuracy" not in perfect
    codes = Cell(states, 1.0, "balanced", 37, 16, 8, eta_target=0.0)
    assert codes.errors(codes.windows["test"].targets)["code_accuracy"] == 1.0


def test_a_trial_is_judged_on_validation_data_alone(states):
    cell = Cell(states, 0.5, "balanced", 37, 16, 8)
    expected, _ = search.trial(cell, plan(), "last", 0)
    del cell.windows["test"]
    assert search.trial(cell, plan(), "last", 0)[0] == expected and expected["validation"] > 0


def trial(lr, validation, eta=0.0, **more):
    return {"model": "a", "lr": lr, "system": "vdp", "eta": eta, "validation": validation} | more


def test_the_rate_with_the_least_geometric_mean_is_chosen():
    rows = search.choose([trial(0.1, 0.5), trial(0.1, 0.8, 1.0), trial(0.01, 0.6), trial(0.01, 0.6, 1.0)])
    assert [row["chosen"] for row in rows] == [False, False, True, True]
    assert rows[0]["mean"] == pytest.approx(math.sqrt(0.4)) and rows[2]["mean"] == pytest.approx(0.6)


def test_a_rate_that_diverged_once_is_not_chosen_and_of_equal_ones_the_smaller_is():
    rows = search.choose([trial(0.1, 0.1), trial(0.1, None, 1.0, status="diverged"), trial(0.02, 0.9), trial(0.01, 0.9)])
    assert [row["chosen"] for row in rows] == [False, False, False, True] and rows[0]["mean"] is None
    assert [row["chosen"] for row in search.choose([trial(0.1, None), trial(0.01, None)])] == [False, True]


def test_training_takes_the_chosen_rate_and_keeps_the_ratio_of_the_layers_own(tmp_path):
    file = tmp_path / "rows.parquet"
    tables.write("forecast_search", search.choose([trial(0.1, 0.5), trial(0.004, 0.4)]), file)
    assert search.searched(BUDGET, []) == BUDGET
    found = search.searched(BUDGET, [file])
    assert found == BUDGET | {"lr": 0.004, "layer_lr": pytest.approx(0.002)}


def started(script, folder, cfg, **inputs):
    """Run a stage's script in this process; the start of each of its runs, by its words."""
    named = [f"{name}={path}" for name, path in inputs.items() if name != "files"]
    argv = ["--cfg", json.dumps(cfg), "--rows", str(folder / "rows.parquet"), "--runs", str(folder / "runs.parquet")]
    argv += ["--files", *map(str, inputs.get("files", []))] + (["--inputs", *named] if named else [])
    work = runpy.run_path(str(ROOT / "scripts" / f"{script}.py"))["work"]
    stage.run(script, "Test.", work, ("rows", "runs"), {}, argv)
    return {row["run"]: row["started"] + row["key"] for row in tables.read(folder / "runs.parquet").to_pylist()}


def test_another_rate_tries_that_rate_alone_and_the_same_choice_trains_nothing_again(paths, tmp_path):
    file = tmp_path / "vdp.parquet"
    trajectories.write(paths, file)
    sizes = {
        "model": {"name": "mlp"},
        "network": NETWORK,
        "training": BUDGET,
        "device": "cpu",
        "context": 16,
        "mixture_seed": 37,
    }
    asked = sizes | {"rates": [0.02, 0.0001], "systems": ["vdp"], "etas": [0.5], "seed": 0}
    asked |= {"construction": "balanced", "horizon": 8, "readout": "last"}
    trials = started("forecast_search", tmp_path / "search", asked, files=[file])
    cells = sizes | {"system": "vdp", "etas": [0.5], "constructions": ["balanced"], "horizons": [8], "readouts": ["last"]}
    search_file = tmp_path / "search" / "rows.parquet"
    runs = started("forecast", tmp_path / "runs", cells | {"seeds": [0]}, states=file, files=[search_file])
    assert {row["lr"] for row in tables.read(tmp_path / "runs/rows.parquet").to_pylist()} == {0.02}
    more = started("forecast_search", tmp_path / "search", asked | {"rates": [0.02, 0.0001, 0.00001]}, files=[file])
    assert trials.items() < more.items() and len(more) == 3
    again = started("forecast", tmp_path / "runs", cells | {"seeds": [0, 1]}, states=file, files=[search_file])
    assert runs.items() < again.items() and len(again) == 2
