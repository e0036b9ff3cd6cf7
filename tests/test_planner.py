"""`continuity plan`: what a study will take, against what finished studies took and against what Snakemake would run."""

import json
import re
import subprocess
import sys
from collections import Counter

import pytest
from continuity import config, costs, planner, record, tables
from continuity.cli import main
from continuity.costs import Network
from continuity.layers import LAYERS
from continuity.network import SequenceModel
from continuity.refinement import methods_of
from continuity.sizes import Sizes
from continuity.study import COMPACTED, RULES, TIMED, Job, Study
from continuity.training import parameters
from project import ROOT

UNKNOWN = {name: planner.Speeds(name) for name in ("cpu", "cuda")}


def settings(name="tiny", **changes):
    return config.overlay(config.load(ROOT / f"config/{name}.yaml"), changes)


def planned(settings, device="cpu"):
    study = Study(settings)
    jobs = planner.Planner(study, device, UNKNOWN).jobs
    return planner.Plan(study, device, jobs, UNKNOWN)


def hours(plan, rule):
    return sum(one.seconds for one in plan.jobs if one.job.rule == rule) / 3600


# ---------------------------------------------------------------- against a finished study


@pytest.fixture(scope="module")
def finished(study):
    """The finished tiny study and its plan, learned from its own runs."""
    root = study.folder / "results"
    kept = config.overlay(config.read(config.DEFAULT), record.read(root / "tiny")["config"])
    return study, planner.plan(Study(kept), "cpu", root)


def test_the_plan_counts_the_runs_that_a_study_has(finished):
    study, plan = finished
    rows = tables.read(study.folder / "results/tiny/tables/runs.parquet").to_pylist()
    counted = Counter(row["table"] for row in rows)
    for table, rule in COMPACTED.items():
        if rule in TIMED and table in counted:
            assert sum(one.runs for one in plan.jobs if one.job.rule == rule) == counted[table], rule


def test_a_study_that_the_plan_learned_from_takes_what_it_took(finished):
    study, plan = finished
    took = sum(row["seconds"] for row in tables.read(study.folder / "results/tiny/tables/runs.parquet").to_pylist())
    timed = [one for one in plan.jobs if one.job.rule in TIMED]
    start = costs.constants()["jobs"]["start"] * len(timed)
    assert sum(one.seconds for one in timed) - start == pytest.approx(took, rel=0.05)
    assert {one.known for one in timed} == {"kind"}


def test_data_on_disk_is_about_what_was_planned_and_no_mixture_is_among_it(finished):
    study, plan = finished
    data = study.folder / "results/tiny/data"
    assert {path.name for path in data.iterdir()} == {"systems", "tasks", "encoders", "latents"}
    there = sum(path.stat().st_size for path in data.glob("**/*") if path.is_file())
    assert there / 4 < sum(one.disk["data"] for one in plan.jobs) < 4 * there


def test_waiting_jobs_are_those_that_snakemake_would_wait_for(finished):
    """Edges between rules, from Snakemake's own graph."""
    study, plan = finished
    done = study.snakemake("--rulegraph", "--forceall")
    names = dict(re.findall(r'(\d+)\[label = "(\w+)"', done.stdout))
    edges = {(names[one], names[other]) for one, other in re.findall(r"(\d+) -> (\d+)", done.stdout)}
    ours = {(above[0], one.job.rule) for one in plan.jobs for above in planner.needs(plan.study, one.job)}
    assert edges - ours == {(rule, "all") for rule in ("report", "catalog", "provenance")}
    assert ours <= edges


def test_a_torn_runs_table_teaches_nothing_and_stops_nothing(tmp_path):
    made = tmp_path / "one/tables/runs.parquet"
    made.parent.mkdir(parents=True)
    made.write_bytes(b"PAR1")
    record.keep(Study(settings(results=str(tmp_path), study="one")), "tiny.yaml", 1)
    assert planner.speeds(tmp_path, "cpu").studies == []


# ---------------------------------------------------------------- laws


def test_every_job_of_the_study_is_planned_once():
    for name in ("tiny", "paper"):
        plan = planned(settings(name))
        assert Counter(one.job.output for one in plan.jobs) == Counter(
            job.output for rule in RULES for job in plan.study.jobs(rule)
        )


@pytest.mark.parametrize(
    "rule, stage", [("benchmark_run", "benchmark"), ("refinement_run", "refinement"), ("curriculum_run", "curriculum")]
)
def test_twice_the_epochs_take_twice_the_hours(rule, stage):
    once = settings("paper")
    twice = settings("paper", **{stage: {"training": {"epochs": 2 * once[stage]["training"]["epochs"]}}})
    if stage == "curriculum":
        for found in (once, twice):
            found["curriculum"]["plans"] = [{"name": "plain", "strides": [1]}]
    assert hours(planned(twice), rule) == pytest.approx(2 * hours(planned(once), rule), rel=0.05)


def test_a_seed_more_takes_its_share():
    three, six = (planned(settings("config", refinement={"seeds": list(range(n))})) for n in (3, 6))
    start = 4 * costs.constants()["jobs"]["start"] / 3600
    assert hours(six, "refinement_run") - start == pytest.approx(2 * (hours(three, "refinement_run") - start))


def test_jobs_at_a_time_shorten_the_whole_down_to_its_longest_chain():
    plan = planned(settings("desk"))
    whole = sum(one.seconds for one in plan.jobs)
    walls = [plan.wall(count) for count in (1, 2, 4, 1000)]
    assert walls[0] == pytest.approx(whole) and walls[-1] == pytest.approx(plan.chain_seconds)
    assert walls == sorted(walls, reverse=True)
    assert all(
        wall >= max(whole / count, plan.chain_seconds) - 1e-6 for wall, count in zip(walls, (1, 2, 4, 1000), strict=True)
    )


def test_the_longest_chain_is_one():
    plan = planned(settings("desk"))
    for before, after in zip(plan.chain, plan.chain[1:], strict=False):
        assert (before.job.rule, before.job.output) in planner.needs(plan.study, after.job)


def test_only_training_is_planned_on_a_gpu():
    plan = planned(settings("paper"), "cuda")
    on_gpu = {one.job.rule for one in plan.jobs if one.device == "cuda"}
    assert on_gpu == {
        "benchmark_run",
        "forecast_run",
        "forecast_search_run",
        "crossed_run",
        "refinement_run",
        "curriculum_run",
        "stability_run",
    }
    fitted = [one for one in plan.jobs if one.job.wildcards.get("model") in ("persistence", "ridge")]
    fitted += [one for one in plan.jobs if one.job.wildcards.get("host") == "persistence"]
    assert fitted and all(one.device == "cpu" for one in fitted)
    assert {one.known for one in plan.jobs if one.device == "cuda"} == {"assumed"}


def test_runs_on_cores_say_nothing_of_a_gpu():
    known = planner.Speeds("cuda")
    known.add("forecast_run", "s4d", 30.0, 10.0)
    assert known.of("forecast_run", "s4d") == planner.Speed(3.0, "kind")
    assert known.of("forecast_run", "s6") == planner.Speed(3.0, "rule")
    assert known.of("refinement_run", "s6") == planner.Speed(1.0, "assumed")


# ---------------------------------------------------------------- against the networks themselves


@pytest.mark.parametrize("layer", LAYERS)
def test_a_network_has_about_as_many_parameters_as_planned(layer):
    sizes = {"d_model": 64, "n_layers": 4}
    real = SequenceModel(layer, d_input=4, d_output=4, **sizes)
    ends = 4 * 64 + 64 * 64 + 64 * 4
    assert Network.of({"name": "m", "layer": layer}, sizes).parameters() == pytest.approx(parameters(real) - ends, rel=0.2)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_width_that_follows_from_the_parameters_has_so_many(layer):
    net = Network.of({"name": "m", "layer": layer}, {"d_model": None, "parameters": 20_000, "n_layers": 2})
    assert net.parameters() == pytest.approx(20_000)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_is_planned_with_the_discretizations_that_it_has(layer):
    model, wanted = {"name": "m", "layer": layer}, ["zoh", "bilinear", "averaged"]
    assert costs.methods(model, wanted) == methods_of(model, wanted, 32)


def test_a_longer_sequence_costs_attention_more_than_its_share():
    linear, quadratic = (
        Network.of({"name": "m", "layer": layer}, {"d_model": 64, "n_layers": 2}) for layer in ("s4d", "transformer")
    )
    assert linear.pairs(4096) == 0 and quadratic.pairs(4096) == pytest.approx(4 * quadratic.pairs(1024))


# ---------------------------------------------------------------- sizes


def test_sizes_of_tasks_follow_their_entries():
    sizes = Sizes(settings("paper"))
    assert sizes.task("pathx").length == 16_384 and sizes.task("listops").length == 2000
    assert sizes.task("smnist").n == {"train": 4000, "validation": 500, "test": 500}
    small = Sizes(settings(tasks={"list": [{"name": "smnist", "size": 14}]}))
    assert small.task("smnist").length == 196


def test_a_users_file_is_planned_by_its_bytes_and_said_to_be_a_guess(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("x\n" * 40_000)
    entry = {"name": "mine", "path": str(file), "label": "y"}
    found = Sizes(settings(tasks={"list": [entry]})).task("mine")
    assert found.total * found.length * 8 == pytest.approx(file.stat().st_size, rel=0.3) and not found.known


def test_rows_of_a_users_series_are_counted(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("date,a,b\n" + "2020-01-01,1,2\n" * 500)
    found = Sizes(settings()).series({"name": "mine", "path": str(file)}, 24, 8, {"train": 1, "validation": 1, "test": 1})
    assert found.channels == 2 and found.n == {"train": 350 - 32, "validation": 50 - 8, "test": 100 - 8}


# ---------------------------------------------------------------- what jobs ask for


def test_a_job_asks_for_its_estimate_within_the_limits_and_for_more_at_each_attempt():
    study = Study(settings("paper"))
    keys = {"task": "pathx", "model": "s4d"}
    asked = [study.minutes("benchmark_run", keys, attempt) for attempt in (1, 2, 3)]
    assert asked == [1440, 2880, 5760], "the limit of the first attempt, then twice as much"
    small = {"task": "smnist", "encoder": "raw"}
    assert study.minutes("score_run", small) == planner.LEAST_MINUTES
    assert study.memory_mb("score_run", small, 3) == 4 * study.memory_mb("score_run", small)
    assert planner.LEAST_MB <= study.memory_mb("score_run", small) < study.memory_mb("benchmark_run", keys) <= 64_000


def test_what_a_job_asks_for_is_no_part_of_its_identity(study):
    with study.edit("config/config.yaml", "  memory_mb: 3000", "  memory_mb: 9000"):
        found = study.planned()
    assert found == {"report", "provenance", "all"}, "the page and the provenance show the settings"
    with study.edit("scripts/continuity/costs.toml", "start = 4.5", "start = 900.0"):
        assert study.planned() == set()


# ---------------------------------------------------------------- the command


def run(capsys, *arguments):
    main(["plan", *arguments])
    return capsys.readouterr().out


def test_the_command_tells_jobs_hours_memory_disk_and_chain(capsys, tmp_path):
    said = run(capsys, str(ROOT / "config/paper.yaml"), "--results", str(tmp_path), "--device", "cuda", "--slots", "16")
    total = len(planned(settings("paper")).jobs)
    assert f"{total} jobs" in said and "GPU hours:" in said and "core hours:" in said and "longest chain:" in said
    assert "with 16 at a time" in said and "disk:" in said and "never measured" in said and "no earlier study" in said


def test_the_same_as_json(capsys, tmp_path):
    found = json.loads(run(capsys, str(ROOT / "config/tiny.yaml"), "--results", str(tmp_path), "--json"))
    assert sum(job["runs"] for job in found["jobs"]) > len(found["jobs"]) > 50
    low, most = found["hours"]["cpu"]["least"], found["hours"]["cpu"]["most"]
    assert low < found["hours"]["cpu"]["expected"] < most
    assert found["wall_seconds"]["1"] >= found["wall_seconds"]["64"] >= found["chain_seconds"] - 1


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("nowhere.yaml",), "no such file"),
        ((str(ROOT / "config/tiny.yaml"), "--slots", "0"), "--slots 0"),
        ((str(ROOT / "config/tiny.yaml"), "--results", "nowhere"), "no such folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(capsys, arguments, words):
    with pytest.raises(SystemExit) as left:
        main(["plan", *arguments])
    said = capsys.readouterr()
    assert left.value.code == 2 and not said.out and words in said.err and len(said.err.strip().splitlines()) == 1


def test_each_problem_of_a_configuration_is_one_line(capsys, tmp_path):
    broken = tmp_path / "broken.yaml"
    broken.write_text("forecast: {epocs: 3}\nscore: {max_lag: '4'}\n")
    with pytest.raises(SystemExit) as left:
        main(["plan", str(broken)])
    assert left.value.code == 2 and len(capsys.readouterr().err.strip().splitlines()) == 2


def test_planning_imports_no_torch(tmp_path):
    code = (
        "import sys; from continuity.cli import main\n"
        f"main(['plan', {str(ROOT / 'config/paper.yaml')!r}, '--results', {str(tmp_path)!r}, '--json'])\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_job_by_its_keys_is_estimated_as_in_the_plan():
    plan = planned(settings("desk"))
    one = next(one for one in plan.jobs if one.job.rule == "refinement_run")
    assert planner.Planner(plan.study, "cpu", UNKNOWN).estimate(Job(*vars(one.job).values())) == one
