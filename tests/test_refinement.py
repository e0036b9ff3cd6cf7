"""Refinement: the same trajectories at every step, drifts that are known, and trained networks that converge when told the step."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from continuity import config, tables
from continuity.layers import LAYERS
from continuity.refinement import Fitted, Plan, Regression, Samples, diagnosis, evaluate, fit, methods_of, refine
from continuity.study import SCRIPTS, Study
from continuity.training import Budget, Data, Outcome
from torch import nn

SCALES = [0.125, 0.25, 0.5, 1, 2]
RANGES = {
    "vdp": {"mu": [0.2, 2.0]},
    "dho": {"omega": [0.5, 2.0]},
    "duffing": {"gamma": [0.2, 0.4]},
    "ou": {"theta": [0.5, 2.0]},
}
COUNTS = {"train": 96, "validation": 16, "test": 24}
BUDGET = Budget(epochs=40, batch=16, lr=0.01, layer_lr=0.005, weight_decay=0.0, warmup=0.1, clip=1.0)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def problem(system="dho", length=64, n=COUNTS):
    return Regression(system, RANGES[system], 0.08, length, n, seed=5)


def plan(layer, scales=SCALES, rules=("delta", "none"), d_model=8, **options):
    model = {"name": layer, "layer": layer, "options": options}
    network = {"d_model": d_model, "n_layers": 1, "dropout": 0.0}
    return Plan(model, network, BUDGET, scales, [1], list(rules))


def untrained(layer, method="none", outcome=None, **options):
    samples = Samples(problem(n={"train": 8, "validation": 4, "test": 8}))
    torch.manual_seed(0)
    made = plan(layer, [0.25, 0.5, 1, 2], **options)
    return Fitted(samples, made, method, 0, made.build(samples, method), outcome or Outcome())


@pytest.mark.parametrize("system", RANGES)
def test_a_coarse_input_is_every_rth_sample_of_the_fine_one(system):
    samples = Samples(problem(system))
    fine, train = samples.data("test", 0.125), samples.data("test", 1)
    for scale in SCALES:
        coarse, r = samples.data("test", scale), round(scale / 0.125)
        assert torch.equal(coarse.x, fine.x[:, ::r])
        assert torch.equal(coarse.y, train.y)
        assert coarse.x.shape[1] == 64 / scale


def test_inputs_and_labels_are_standardised_by_the_training_split():
    data = Samples(problem()).data("train")
    for values, axes in ((data.x, (0, 1)), (data.y, 0)):
        assert values.mean(axes).abs().max() < 1e-5
        assert (values.std(axes, correction=0) - 1).abs().max() < 1e-5


def test_a_problem_without_a_varied_parameter_is_refused():
    fixed = Regression("dho", {"omega": 1.0, "zeta": 0.1}, 0.08, 32, COUNTS, 5)
    with pytest.raises(ValueError, match="nothing to regress"):
        Samples(fixed)


# ---------------------------------------------------------------- drifts known in closed form


class LeftSum(nn.Module):
    """∫ x dt by left-held samples; its error at step h is h/2 (x(0) − x(T)) + O(h²)."""

    def forward(self, x, lengths=None, step_scale=1.0):
        return x.sum(1) * step_scale


class Constant(nn.Module):
    def forward(self, x, lengths=None, step_scale=1.0):
        return torch.full((len(x), 1), 3.0)


def waves(scale, n=64, length=64):
    """cos(w t + p) with 8 to 24 samples a radian at scale 1, and labels."""
    rng = np.random.default_rng(0)
    w, p = rng.uniform(1 / 24, 1 / 8, (n, 1)), rng.uniform(0, 2 * np.pi, (n, 1))
    time = np.arange(round(length / scale)) * scale
    ends = np.cos(p) - np.cos(w * length + p)
    x = torch.from_numpy(np.cos(w * time + p)[..., None]).float()
    return Data(x, torch.zeros(n, 1)), ends, (np.sin(w * length + p) - np.sin(p)) / w, w


def test_the_drift_of_a_left_held_integral_is_half_a_step_of_the_change_of_its_input():
    tests = {float(scale): waves(scale)[0] for scale in SCALES}
    _, ends, integral, _ = waves(1)
    rows = evaluate(LeftSum(), tests)
    for row in rows[:-1]:
        scale = row["step_scale"]
        known = np.sqrt(np.mean((scale / 2 * ends) ** 2))
        assert row["drift"] == pytest.approx(known / integral.std(), rel=0.02)
        assert row["drift_relative"] == pytest.approx(known / row["rmse"], rel=0.02)
    drift = [row["drift"] for row in rows[:-1]]
    assert np.log2(np.divide(drift[1:], drift[:-1])) == pytest.approx(1, abs=0.03)


def test_a_sum_that_is_not_told_the_step_doubles_at_every_halving():
    tests = {float(scale): waves(scale)[0] for scale in SCALES}
    drift = [row["drift"] for row in evaluate(LeftSum(), tests, "none")[:-1]]
    assert np.log2(np.divide(drift[1:], drift[:-1])) == pytest.approx(-1, abs=0.03)


def test_hold_error_of_a_wave_is_its_change_over_a_step():
    tests = {float(scale): waves(scale, length=2048)[0] for scale in (0.5, 1, 2)}
    w = waves(1)[3]
    for row in evaluate(LeftSum(), tests)[:-1]:
        known = np.sqrt(np.mean(2 * np.sin(w * row["step_scale"] / 2) ** 2))
        assert row["hold_error"] == pytest.approx(known, rel=0.02)


def test_the_coarsest_step_has_no_drift_and_a_batch_does_not_matter():
    tests = {float(scale): waves(scale)[0] for scale in SCALES}
    rows = evaluate(LeftSum(), tests)
    assert "drift" not in rows[-1] and "hold_error" not in rows[-1]
    small = evaluate(LeftSum(), tests, batch=1)
    assert [row["drift"] for row in small[:-1]] == pytest.approx([row["drift"] for row in rows[:-1]], rel=1e-5)


def test_a_constant_predictor_has_no_drift():
    rows = evaluate(Constant(), {float(scale): waves(scale)[0] for scale in SCALES})
    assert {row["status"] for row in rows} == {"undefined"}
    assert not any("drift" in row for row in rows)
    assert [row["rmse"] for row in rows] == pytest.approx([3.0] * len(SCALES))


# ---------------------------------------------------------------- trained networks


@pytest.fixture(scope="module")
def trained():
    samples = Samples(problem())
    return {
        layer: fit(samples, plan(layer, **options), "zoh", 0)
        for layer, options in (("s4d", {"d_state": 8}), ("s6", {"d_state": 4}))
    }


@pytest.mark.parametrize("layer", ["s4d", "s6"])
def test_a_trained_network_converges_when_told_the_step_and_not_otherwise(trained, layer):
    rows = refine(trained[layer])
    drift = {rule: [row["drift"] for row in rows if row["step_rule"] == rule and "drift" in row] for rule in ("delta", "none")}
    orders = {rule: np.log2(np.divide(found[1:], found[:-1])) for rule, found in drift.items()}
    assert orders["delta"].min() > 0.8 and orders["delta"].max() < 1.2
    assert orders["none"][0] < 0.5
    assert drift["delta"][0] < 0.1 * drift["none"][0]


@pytest.mark.parametrize("layer", ["s4d", "s6"])
def test_drift_is_one_constant_times_the_hold_error(trained, layer):
    rows = [row for row in refine(trained[layer]) if row["step_rule"] == "delta" and "drift" in row]
    kappa = np.array([row["drift"] / row["hold_error"] for row in rows])
    assert kappa.max() / kappa.min() < 1.25


@pytest.mark.parametrize("layer", ["s4d", "s6"])
def test_zoh_and_bilinear_become_one_as_the_step_falls(trained, layer):
    rows = [row for row in refine(trained[layer]) if row["step_rule"] == "delta"]
    switched = [row["switched"] for row in rows]
    assert all(fine < 0.7 * coarse for fine, coarse in zip(switched[:-1], switched[1:], strict=True))


def test_a_second_training_repeats_the_first(trained):
    again = fit(trained["s4d"].samples, trained["s4d"].plan, "zoh", 0)
    assert refine(again) == refine(trained["s4d"])


def test_training_that_failed_leaves_one_row_with_its_reason():
    rows = refine(untrained("s4d", "zoh", Outcome(status="diverged", reason="step 3: loss nan")))
    assert [(row["status"], row["reason"]) for row in rows] == [("diverged", "step 3: loss nan")]
    assert diagnosis(untrained("s4d", "zoh", Outcome(status="diverged"))) == []


# ---------------------------------------------------------------- every layer, rule and method


@pytest.mark.parametrize("layer", list(LAYERS))
def test_every_step_rule_is_the_trained_network_at_the_training_step(layer):
    method = "zoh" if layer in ("s4", "s4d", "s5", "s6", "mamba") else "none"
    fitted = untrained(layer, method, rules=("delta", "semigroup", "none"), d_model=16)
    x = fitted.samples.data("test", 1).x
    with torch.no_grad():
        wanted = fitted.model.eval()(x)
        rules = {rule: fitted.with_rule(rule) for rule in fitted.plan.step_rules}
        for model in filter(None, rules.values()):
            assert torch.allclose(model.eval()(x), wanted, rtol=1e-4, atol=1e-5)
    assert [rule for rule, model in rules.items() if model is None] == (["semigroup"] if layer == "transformer" else [])


@pytest.mark.parametrize("layer", list(LAYERS))
def test_every_layer_can_be_refined(layer):
    method = "zoh" if layer in ("s4", "s4d", "s5", "s6", "mamba") else "none"
    rows = refine(untrained(layer, method, d_model=16))
    table = tables.rows_to_table("refinement", rows).to_pylist()
    assert len(table) == 2 * 4 and {row["status"] for row in table} == {"ok"}
    assert all(row["drift"] > 0 for row in table if row["step_scale"] < 2)
    assert all((row["switched"] is None) == (method == "none" or row["step_rule"] == "none") for row in table)


def test_a_model_is_trained_with_the_methods_that_its_layer_has():
    def methods(layer, wanted, **options):
        return methods_of({"name": layer, "layer": layer, "options": options}, wanted, 8)

    assert methods("s4d", ["zoh", "euler", "averaged"]) == ["zoh", "averaged"]
    assert methods("s6", ["zoh", "euler"]) == ["zoh", "euler"]
    assert methods("transformer", ["zoh"]) == ["none"]
    assert methods("mamba", ["zoh", "bilinear"], discretization="euler") == ["euler"]
    with pytest.raises(ValueError, match="unknown discretization 'euler' for s4d"):
        methods("s4d", ["euler"])


# ---------------------------------------------------------------- the stage


def run_stage(folder, cfg):
    outputs = {name: folder / "tables" / name / "rows.parquet" for name in ("rows", "runs", "diagnosis")}
    flags = [part for name, path in outputs.items() for part in (f"--{name}", str(path))]
    command = [sys.executable, str(SCRIPTS / "refinement.py"), "--cfg", json.dumps(cfg), *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    return done, {name: tables.read(path).to_pylist() for name, path in outputs.items() if path.exists()}


def test_the_stage_keeps_finished_runs_and_diagnoses_the_first_seed(tmp_path):
    study = Study(config.load(config.ROOT / "config" / "tiny.yaml"))
    cfg = json.loads(study.cfg("refinement_run", {"system": "dho", "model": "s6"})) | {"methods": ["zoh"], "seeds": [0]}
    done, first = run_stage(tmp_path, cfg)
    assert done.returncode == 0, done.stderr
    assert {row["seed"] for row in first["diagnosis"]} == {0} and len(first["diagnosis"]) > 100
    done, second = run_stage(tmp_path, cfg | {"seeds": [0, 1]})
    assert done.returncode == 0, done.stderr
    assert second["diagnosis"] == first["diagnosis"]
    assert [row for row in second["rows"] if row["seed"] == 0] == first["rows"]
    started = {row["run"]: row["started"] for row in second["runs"]}
    assert started["method=zoh seed=0"] == first["runs"][0]["started"]
    assert len(started) == 2


def test_a_method_that_no_layer_has_is_one_line(tmp_path):
    study = Study(config.load(config.ROOT / "config" / "tiny.yaml"))
    cfg = json.loads(study.cfg("refinement_run", {"system": "dho", "model": "s4d"})) | {"methods": ["euler"]}
    done, found = run_stage(tmp_path, cfg)
    assert done.returncode == 2 and not found
    assert done.stderr.strip().splitlines()[-1].startswith("refinement.methods: s4d: unknown discretization 'euler'")
