"""Forecasters with and without a dissipative memory: paired runs, memory measured against eigvalsh, perturbed input."""

import importlib.util
import json
from dataclasses import replace
from weakref import WeakMethod

import numpy as np
import pytest
import torch
from continuity import catalog, stage, tables, training
from continuity.dissipation import lmi_block
from continuity.layers.s6 import OBSERVERS, S6
from continuity.problems import Problem
from continuity.regularizer import DissipationRegularizer
from continuity.series import Series, windows
from continuity.stability import (
    ForecastTrainer,
    Memory,
    Plan,
    Variant,
    assess,
    fit,
    per_window,
    perturbed,
    row,
    traits,
)
from continuity.study import SCRIPTS
from continuity.training import Budget
from continuity.variants import variants
from scipy import stats

BUDGET = Budget(epochs=3, batch=8, lr=0.01, layer_lr=0.01, weight_decay=0.0, warmup=0.1, clip=1.0)
PENALTY = {"supply": "unit", "output": "post", "feedthrough": True, "exponent": 1, "channels": "mean", "blocks": None}
MAMBA = {"patch": 8, "stride": 8, "d_model": 6, "layer_options": {"d_state": 4}}
SST = {"long_patch": 12, "long_stride": 6, "short_patch": 8, "short_stride": 4, "d_model": 4, "d_ff": 8, "n_heads": 2,
       "e_layers": 1, "dropout": 0.2, "local_window": 3, "layer_options": {"d_state": 4}}  # fmt: skip
OPTIONS = {"mamba": MAMBA, "sst": SST, "dlinear": {"kernel": 5}, "persistence": {}}
PENALISED = [Variant("identity", 1.0), Variant("diagonal", 1.0)]
ALL = [Variant(), *PENALISED, Variant("certified")]


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def data():
    """Two noisy sines, cut into windows of 48 steps and 12 to forecast."""
    t = np.arange(700)[:, None]
    noise = np.random.default_rng(0).standard_normal((700, 2))
    values = np.sin(t / np.array([4.0, 7.0])) + 0.3 * noise
    series = Series("waves", values, ("a", "b"), 3600.0, (490, 560, 700), "made here")
    return windows(series, 48, 12, {"train": 7, "validation": 3, "test": 3})


def plan(name="mamba", budget=BUDGET, beta=0.0, batch=128, penalty=PENALTY, **options):
    host = {"name": name, "host": name, "options": OPTIONS[name] | options}
    return Plan(host, budget, penalty, beta, batch=batch)


def run(data, variant=Variant(), name="mamba", seed=0, checkpoint=None, tell=lambda: None, **options):  # noqa: B008
    keys = {"dataset": "waves", "horizon": 12, "seed": seed}
    return fit(data, plan(name, **options), variant, keys, checkpoint, tell)


def weights(host):
    return {name: value.clone() for name, value in host.state_dict().items() if not name.startswith("penalty")}


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def trained(data):
    """One trained mamba host a variant, all of seed 0."""
    return {variant.storage: run(data, variant) for variant in ALL}


@pytest.mark.parametrize("name", ["mamba", "sst"])
@pytest.mark.parametrize("layer", ["mamba", "s6"])
def test_all_storages_of_a_seed_start_from_the_same_weights(data, name, layer):
    def start(variant):
        training.seed_everything(3)
        return weights(plan(name, layer=layer).build(data, variant))

    plain, *others = map(start, ALL)
    for found in others:
        assert all(torch.equal(found[key], value) for key, value in plain.items())


@pytest.mark.parametrize("variant", [*PENALISED, Variant("certified")])
@pytest.mark.parametrize("name", ["mamba", "sst"])
def test_all_storages_of_a_seed_see_the_same_batches_and_dropout(data, name, variant, monkeypatch):
    def batches(variant):
        seen, forward = [], ForecastTrainer._forward
        with monkeypatch.context() as patch:
            patch.setattr(ForecastTrainer, "_forward", lambda self, x, lengths: (seen.append(x), forward(self, x, lengths))[1])
            run(data, variant, name)
        return torch.cat(seen), torch.get_rng_state()

    (plain, state), (other, other_state) = batches(Variant()), batches(variant)
    assert torch.equal(plain, other) and torch.equal(state, other_state)


def test_a_penalty_of_weight_0_leaves_the_training_as_it_is_bit_for_bit(data, trained):
    training.seed_everything(0)
    made = plan()
    host = made.build(data, Variant())
    host.penalty = DissipationRegularizer(host, 0.0, "identity")
    ForecastTrainer(host, data, made, Variant(), 0).fit()
    assert same(weights(host), weights(trained["none"].host))


@pytest.mark.parametrize("storage", ["identity", "diagonal"])
def test_a_penalty_lowers_the_violation_and_hardly_moves_the_error(trained, storage):
    free, held = row(trained["none"], 30), row(trained[storage], 30)
    assert held["violation"] < 0.5 * free["violation"]
    assert held["mse"] == pytest.approx(free["mse"], rel=0.1)
    assert held["violation_d_off"] > held["violation"]


def test_the_storage_is_learned_with_mean_1_and_measured(trained):
    (q,) = trained["diagonal"].host.penalty.storages()
    assert q.mean().item() == pytest.approx(1) and q.std() > 1e-3 and (q > 0).all()
    found = Memory(trained["diagonal"])
    assert torch.allclose(found.own.storages()[0].float(), q)
    assert torch.equal(found.identity.storages()[0], torch.ones_like(q, dtype=torch.float64))


def test_a_certified_host_violates_nothing_on_any_token(trained):
    found = row(trained["certified"], 30)
    assert found["violation_max"] <= 1e-9 and found["violating_share"] == 0
    assert "violation_d_off" not in found and found["mse"] < 1


def test_the_measured_violation_is_the_mean_eigenvalue_of_the_dense_blocks(data, trained):
    memory, seen = Memory(trained["none"]), []
    (layer,) = (module for module in memory.host.modules() if isinstance(module, S6))

    class Watch:
        def note(self, layer, u, delta, B, C, *_):
            seen.append((delta, B, C))

    watch = Watch()
    OBSERVERS[layer].append(WeakMethod(watch.note))
    test = data["test"].first(5)
    found = assess(memory.host, test, trained["none"].plan, taken=memory.quick)
    (delta, B, C), A, N = seen[0], layer.A(), 4
    a, b = torch.exp(delta[..., None] * A), delta[..., None] * B[:, :, None]
    dense = {sign: lmi_block(a, b, C[:, :, None].expand_as(b), sign * layer.D, torch.ones(N).double()) for sign in (0, 1)}
    top = {sign: torch.linalg.eigvalsh(block)[..., -1].clamp_min(0) for sign, block in dense.items()}
    assert found["violation"] == pytest.approx(top[1].mean().item(), abs=1e-9)
    assert found["violation_max"] == pytest.approx(top[1].max().item(), abs=1e-9)
    assert memory.full()["violation_d_off"] == pytest.approx(top[0].mean().item(), abs=1e-9)
    by_window = top[1].view(5, 2, *top[1].shape[1:]).mean((1, 2, 3))
    assert torch.allclose(per_window(memory.own, 5), by_window, atol=1e-9)


@pytest.mark.parametrize("name", ["mamba", "sst"])
def test_errors_do_not_depend_on_the_batch(data, name):
    fitted = run(data, name=name)
    test = data["test"]
    x, y, _ = test.take(torch.arange(len(test)))
    with torch.no_grad():
        error = (fitted.host.eval()(x) - y).double().numpy()
    for batch in (1, 7, len(test)):
        found = assess(fitted.host, test, plan(name, batch=batch))
        assert found["mse"] == pytest.approx((error**2).mean(), rel=1e-5)
        assert found["mae"] == pytest.approx(np.abs(error).mean(), rel=1e-5)


def test_training_beats_persistence(data, trained):
    assert row(trained["none"], 5)["mse"] < 0.8 * row(run(data, name="persistence"), 5)["mse"]


class Stopped(Exception):
    pass


@pytest.mark.parametrize("variant", [Variant("diagonal", 1.0, 0.001), Variant("identity", 0.5, 0.0, 0.3)])
def test_a_stopped_run_goes_on_to_the_same_weights_and_storage(data, tmp_path, monkeypatch, variant):
    penalty = PENALTY | {"blocks": 50}
    whole = run(data, variant, "sst", penalty=penalty)
    monkeypatch.setattr(training, "SAVE_EVERY", -1.0)
    path, update, count = tmp_path / "checkpoint.pt", ForecastTrainer._update, []

    def stopping(self, batch):
        count.append(1)
        if len(count) == 13:
            raise Stopped
        return update(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(ForecastTrainer, "_update", stopping)
        with pytest.raises(Stopped):
            run(data, variant, "sst", checkpoint=path, penalty=penalty)
    again = run(data, variant, "sst", checkpoint=path, penalty=penalty)
    assert same(whole.host.state_dict(), again.host.state_dict())
    assert vars(whole.outcome) == vars(again.outcome)


def test_the_router_is_reported_with_its_correlation_with_the_violation(data):
    fitted = run(data, name="sst")
    found, memory, test = row(fitted, 20), Memory(fitted), data["test"].first(20)
    x, *_ = test.take(torch.arange(20))
    with torch.no_grad():
        memory.host.eval()(x.double())
    weight, violation = memory.host.router[:, 0].numpy(), per_window(memory.own, 20).numpy()
    assert found["router_mean"] == pytest.approx(weight.mean(), abs=1e-9)
    assert found["router_sd"] == pytest.approx(weight.std(), abs=1e-9)
    assert found["router_correlation"] == pytest.approx(np.corrcoef(weight, violation)[0, 1], abs=1e-6)


def test_the_routers_penalty_moves_the_router_away_from_mamba_and_nothing_else_directly(data):
    free, held = row(run(data, name="sst"), 20), row(run(data, Variant(router_weight=30.0), "sst"), 20)
    assert held["router_mean"] < free["router_mean"] - 0.05
    made = plan("sst")
    training.seed_everything(0)
    host = made.build(data, Variant(router_weight=1.0))
    x, *_ = data["train"].take(torch.arange(4))
    host(x)
    assert not per_window(host.penalty, 4).requires_grad


def test_the_released_schedule_is_followed_whatever_the_warm_up(data, monkeypatch):
    def rates(**budget):
        seen, update = {}, ForecastTrainer._update

        def note(self, batch):
            loss = update(self, batch)
            seen.setdefault(self.step // self.steps_per_epoch, self.optimizer.param_groups[-1]["lr"])
            assert self.optimizer.param_groups[-1]["betas"] == (0.95, 0.999)
            return loss

        with monkeypatch.context() as patch:
            patch.setattr(ForecastTrainer, "_update", note)
            run(data, name="sst", as_released=["schedule"], budget=replace(BUDGET, **budget))
        return list(seen.values())

    wanted = [0.01 * factor for factor in (0.04, 1, 1, 1, 0.9)]
    assert rates(epochs=5, warmup=0.1) == rates(epochs=5, warmup=0.7) == pytest.approx(wanted)


@pytest.mark.parametrize(("name", "places"), [("mamba", 2), ("dlinear", 1), ("persistence", 1)])
def test_robustness_has_a_row_for_each_kind_level_and_place(data, name, places):
    rows = perturbed(run(data, name=name), ["gaussian", "masking"], [0.2, 0.8], ["before", "after"], 10, 4)
    cells = {(row["perturbation"], row["level"], row["where"]) for row in rows}
    assert len(cells) == len(rows) == 1 + 4 * places
    assert ("none", 0.0, "before") in cells
    assert all((row.get("violation") is not None) == (name == "mamba") for row in rows)


def test_robustness_of_nothing_is_the_clean_error_and_noise_raises_it(data, trained):
    fitted = trained["none"]
    rows = perturbed(fitted, ["gaussian", "burst"], [0.01, 2.0], ["before", "after"], 12, 4)
    clean = assess(Memory(fitted).host, data["test"].first(12), fitted.plan)
    by_cell = {(row["perturbation"], row["level"], row["where"]): row["mse"] for row in rows}
    assert by_cell["none", 0.0, "before"] == clean["mse"]
    for kind in ("gaussian", "burst"):
        for where in ("before", "after"):
            assert by_cell[kind, 0.01, where] == pytest.approx(clean["mse"], rel=0.05)
            assert by_cell[kind, 2.0, where] > clean["mse"] * 1.2


def test_robustness_repeats_to_the_bit_and_does_not_depend_on_the_batch(data, trained):
    fitted = trained["identity"]
    first = perturbed(fitted, ["impulses", "gain_drift"], [0.5], ["before", "after"], 12, 4)
    assert first == perturbed(fitted, ["impulses", "gain_drift"], [0.5], ["before", "after"], 12, 4)
    small = replace(fitted, plan=plan(batch=5))
    again = perturbed(small, ["impulses", "gain_drift"], [0.5], ["before", "after"], 12, 4)
    for one, other in zip(first, again, strict=True):
        assert one["mse"] == pytest.approx(other["mse"], rel=1e-9)
        assert one["violation"] == pytest.approx(other["violation"], rel=1e-6, abs=1e-12)


def test_a_scaled_input_before_normalisation_changes_nothing_and_after_it_does(data, trained):
    fitted, test = trained["none"], data["test"].first(8)
    double = {"before": lambda x, index: 2 * x}, {"after": lambda x, index: 2 * x}
    clean = assess(fitted.host, test, fitted.plan)
    x, y, _ = test.take(torch.arange(8))
    with torch.no_grad():
        wanted = ((2 * fitted.host.eval()(x) - y) ** 2).mean().item()
    assert assess(fitted.host, test, fitted.plan, **double[0])["mse"] == pytest.approx(wanted, rel=1e-3)
    assert assess(fitted.host, test, fitted.plan, **double[1])["mse"] != pytest.approx(clean["mse"], rel=1e-3)


def test_a_diverged_run_has_a_reason_and_no_numbers(data):
    fitted = run(data, budget=replace(BUDGET, lr=1e30, clip=1e30))
    found = row(fitted, 5)
    assert found["status"] == "diverged" and "learning rate" in found["reason"] and "mse" not in found
    rows = perturbed(fitted, ["gaussian"], [0.5], ["before", "after"], 5, 0)
    assert len(rows) == 3 and all(one["status"] == "diverged" and "mse" not in one for one in rows)


def test_variants_are_every_combination_of_weight_and_beta():
    entries = [{"name": "none"}, {"name": "diagonal", "weights": [0.1, 1], "betas": [0, 0.01]}, {"name": "certified"}]
    found = variants(entries)
    assert [(v.storage, v.weight, v.beta) for v in found] == [
        ("none", 0.0, 0.0), ("diagonal", 0.1, 0), ("diagonal", 0.1, 0.01), ("diagonal", 1, 0), ("diagonal", 1, 0.01),
        ("certified", 0.0, 0.0),
    ]  # fmt: skip
    assert [v.router_weight for v in variants([{"name": "none"}], [0, 0.5])] == [0, 0.5]


def test_a_host_without_a_memory_suits_no_penalty(data):
    found = traits(plan("dlinear").build(data, Variant()))
    assert found.trained and not found.suits(PENALISED[0]) and found.suits(Variant())
    assert not traits(plan().build(data, Variant())).suits(Variant(router_weight=1.0))
    assert traits(plan("sst").build(data, Variant())).suits(Variant(router_weight=1.0))
    assert not traits(plan("persistence").build(data, Variant())).trained


@pytest.mark.parametrize(
    ("act", "wanted"),
    [
        (lambda data: variants([{"name": "diag", "weights": [1]}]), "stability.storages: diag: choose one of none, identity"),
        (lambda data: variants([{"name": "identity"}]), "stability.storages: identity: needs `weights` above 0"),
        (lambda data: plan("dlinear").build(data, PENALISED[0]), "host dlinear|dlinear: the model holds no selective layer"),
        (lambda data: plan(layer="s4d").build(data, Variant("certified")), "layer s4d has no certified form"),
        (lambda data: plan().build(data, Variant(router_weight=1.0)), "host mamba has no router"),
        (lambda data: plan(patch=80).build(data, Variant()), "stability.hosts: mamba: patch 80 is longer"),
        (lambda data: perturbed(run(data), ["gauss"], [1], ["before"], 3, 0), "stability.robustness: unknown perturbation"),
    ],
)
def test_a_mistake_of_the_config_is_one_line(data, act, wanted):
    with pytest.raises(Problem, match=wanted) as caught:
        act(data)
    assert len(caught.value.problems) == 1 and "\n" not in str(caught.value)


CFG = {
    "input_length": 48, "horizons": [12], "strides": {"train": 7, "validation": 3, "test": 3}, "seeds": [0, 1],
    "storages": [{"name": "none"}, {"name": "identity", "weights": [1.0]}], "router_weights": [0], "penalty": PENALTY,
    "measure": {"beta": 0, "windows": 8}, "training": vars(BUDGET) | {"epochs": 1}, "device": "cpu",
    "robustness": {"kinds": ["gaussian"], "levels": [0.5], "where": ["before", "after"], "count": 5, "seed": 0},
}  # fmt: skip
HOST = {"name": "mamba", "host": "mamba", "options": MAMBA}


@pytest.fixture(scope="module")
def waves(tmp_path_factory, data):
    """The set as a file."""
    path, values = tmp_path_factory.mktemp("set") / "waves.csv", data["train"].values.numpy()
    hours = np.datetime64("2020-01-01T00", "h") + np.arange(len(values))
    path.write_text("date,a,b\n" + "\n".join(f"{hour}:00:00,{a},{b}" for hour, (a, b) in zip(hours, values, strict=True)))
    return path


def job(cfg, out, path):
    """Run the stage's script in this process: the paths of its outputs."""
    outputs = {name: out / f"{name}.parquet" for name in ("rows", "runs", "robustness")}
    spec = importlib.util.spec_from_file_location("stability_script", SCRIPTS / "stability.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    named = [part for name, output in outputs.items() for part in (f"--{name}", str(output))]
    argv = ["--cfg", json.dumps(CFG | cfg), "--files", str(path), *named]
    stage.run("stability", "", script.work, tuple(outputs), argv=argv)
    return outputs


@pytest.fixture(scope="module")
def written(waves, tmp_path_factory):
    """The tables of three small jobs, by (host, table)."""
    found = {}
    hosts = (HOST, {"name": "persistence", "host": "persistence"},
             {"name": "sst", "host": "sst", "options": SST, "storages": [{"name": "none"}], "router_weights": [0, 1]})  # fmt: skip
    for host in hosts:
        cfg = {"host": host, "dataset": {"name": "waves", "path": str(waves), "training": {"epochs": 2}}}
        outputs = job(cfg, tmp_path_factory.mktemp(host["name"]), waves)
        found |= {(host["name"], name): path for name, path in outputs.items()}
    return found


def test_a_job_writes_a_row_a_run_with_what_its_host_and_set_change(written):
    rows = {host: tables.read(written[host, "rows"]).to_pylist() for host in ("mamba", "persistence", "sst")}
    assert [(r["storage"], r["weight"], r["seed"], r["epochs"]) for r in rows["mamba"]] == [
        ("identity", 1.0, 0, 2), ("identity", 1.0, 1, 2), ("none", 0.0, 0, 2), ("none", 0.0, 1, 2)
    ]  # fmt: skip
    assert [(r["storage"], r["seed"], r["parameters"], r["violation"]) for r in rows["persistence"]] == [("none", 0, 0, None)]
    assert [(r["router_weight"], r["seed"]) for r in rows["sst"]] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert all(r["status"] == "ok" and r["mse"] > 0 for group in rows.values() for r in group)
    assert tables.read(written["mamba", "robustness"]).num_rows == 4 * 3
    assert tables.read(written["persistence", "robustness"]).num_rows == 2
    assert tables.read(written["mamba", "runs"]).num_rows == 4


def test_the_views_pair_runs_by_seed(written, tmp_path):
    files = {}
    for name, part in (("stability", "rows"), ("robustness", "robustness")):
        files[name] = tmp_path / f"{name}.parquet"
        tables.compact(name, [path for (_, table), path in written.items() if table == part], files[name])
    connection = catalog.open_files(files)
    rows = connection.sql("FROM stability").to_arrow_table().to_pylist()
    mse = {(r["host"], r["storage"], r["router_weight"], r["seed"]): r["mse"] for r in rows}
    logs = [np.log(mse["mamba", "identity", 0, seed] / mse["mamba", "none", 0, seed]) for seed in (0, 1)]
    change = connection.sql("SELECT mse_change FROM stability_change ORDER BY seed").fetchall()
    assert [one for (one,) in change] == pytest.approx(logs, abs=1e-12)
    (equal,) = connection.sql("FROM stability_equivalence").to_arrow_table().to_pylist()
    half = 6.314 * np.std(logs, ddof=1) / np.sqrt(2)
    assert (np.log(equal["low"]), np.log(equal["high"])) == pytest.approx(
        (np.mean(logs) - half, np.mean(logs) + half), abs=1e-9
    )
    inside = max(abs(np.mean(logs) - half), abs(np.mean(logs) + half)) <= np.log(1.01)
    assert (equal["verdict"] == "equivalent") == inside and (equal["reason"] is None) == inside and equal["n_seeds"] == 2
    relative = connection.sql("SELECT mse_relative FROM stability_cell WHERE host = 'persistence'").fetchall()
    assert relative == [(pytest.approx(1),)]
    assert connection.sql("SELECT count(*) FROM stability_router").fetchall() == [(2,)]
    assert connection.sql("SELECT count(*) FROM robustness_change").fetchall() == [(2 * 3,)]
    assert connection.sql("SELECT bool_and(mse_rise > -1) FROM robustness_cell").fetchall() == [(True,)]
    assert connection.sql("SELECT bool_or(NOT dominated) FROM stability_pareto").fetchall() == [(True,)]


@pytest.mark.parametrize(
    ("ratios", "verdict", "reason", "needed"),
    [
        ([1.001, 0.999, 1.0, 1.002], "equivalent", None, 2),
        ([1.05, 1.06, 1.055, 1.05], "different", "the error changes by more than 1 %", 3),
        ([1.02, 0.995, 1.02, 1.02], "undecided", "the mean change exceeds 1 %, but its interval reaches within", 7),
        ([1.01, 0.99, 1.008, 0.994], "undecided", "pairs differ by 1.00 % sd: too few seeds", 5),
        ([1.2, 1 / 1.2, 1.1, 1 / 1.1], "undecided", "pairs differ by 16.80 % sd: too few seeds", None),
        ([1.001], "undecided", "one seed has no interval", None),
    ],
)
def test_equivalence_within_a_hundredth_takes_two_one_sided_tests(tmp_path, ratios, verdict, reason, needed):
    keys = {"dataset": "waves", "horizon": 12, "host": "mamba", "beta": 0.0, "router_weight": 0.0}
    rows = [keys | {"seed": seed, "storage": "none", "weight": 0.0, "mse": 0.2} for seed in range(len(ratios))]
    rows += [row | {"storage": "identity", "weight": 1.0, "mse": 0.2 * ratio} for row, ratio in zip(rows, ratios, strict=True)]
    tables.write("stability", rows, tmp_path / "stability.parquet")
    connection = catalog.open_files({"stability": tmp_path / "stability.parquet"})
    (found,) = connection.sql("FROM stability_equivalence").to_arrow_table().to_pylist()
    logs, n = np.log(ratios), len(ratios)
    if n > 1:
        quantiles = stats.t.ppf(0.95, np.arange(1, 10))
        half = quantiles[n - 2] * logs.std(ddof=1) / np.sqrt(n)
        assert np.log(found["high"]) == pytest.approx(logs.mean() + half, abs=1e-4)
        enough = quantiles * logs.std(ddof=1) / np.sqrt(np.arange(2, 11)) <= np.log(1.01)
        assert needed == (int(np.argmax(enough)) + 2 if enough.any() else None)
    assert (found["verdict"], found["reason"], found["needed"]) == (verdict, reason, needed)


def test_a_finished_job_works_on_what_a_new_seed_adds_only(waves, tmp_path):
    cfg = {"host": HOST, "dataset": {"name": "waves", "path": str(waves)}}
    job(cfg | {"seeds": [0]}, tmp_path, waves)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("run.parquet")}
    outputs = job(cfg, tmp_path, waves)
    assert len(list(tmp_path.rglob("run.parquet"))) == 4 and all(path.stat().st_mtime_ns == was for path, was in kept.items())
    assert tables.read(outputs["rows"]).num_rows == 4


def test_a_set_that_cannot_be_used_ends_in_a_line_a_problem_and_writes_nothing(waves, tmp_path, capsys):
    lines = waves.read_text().splitlines()
    broken = tmp_path / "broken.csv"
    broken.write_text("\n".join([*lines[:50], lines[20], lines[51].split(",")[0] + ",-9999,1", *lines[52:]]))
    with pytest.raises(SystemExit) as left:
        job({"host": HOST, "dataset": {"name": "waves", "path": str(broken)}}, tmp_path / "out", broken)
    problems = capsys.readouterr().err.splitlines()
    assert left.value.code == 2 and len(problems) == 3
    assert all(line.startswith(f"stability.datasets: {broken}: ") for line in problems)
    assert not (tmp_path / "out").exists()
