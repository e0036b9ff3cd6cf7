"""The study from one end to the other on the tiny configuration, and what a user's mistakes end in."""

import json
import re
import subprocess
import sys

import duckdb
import pytest
from continuity import catalog, config, tables
from continuity.study import COMPACTED, DERIVED, RULES, Study
from project import ROOT, Project

STAGES = (
    "systems",
    "tasks",
    "latents",
    "score",
    "mixtures",
    "forecast",
    "forecast_search",
    "crossed",
    "prediction",
    "convergence",
    "refinement",
    "benchmark",
    "curriculum",
    "time_to_target",
    "dissipation",
    "stability",
    "robustness",
    "provenance",
    "report",
)

BESIDE = {"similarity", "score_sensitivity", "diagnosis", "curriculum_times", "robustness"}
"""Tables that the runs of another table write too."""


def table(study, name):
    return tables.read(study.folder / f"results/tiny/tables/{name}.parquet").to_pylist()


def test_every_declared_table_is_made_and_keyed(study):
    for name in (*COMPACTED, *DERIVED, "runs"):
        rows = table(study, name)
        assert rows, name
        keys = [tuple(row[key] for key in tables.TABLES[name].key) for row in rows]
        if name != "runs":
            assert len(set(keys)) == len(keys), f"{name}: rows share a key"


def test_the_forecast_table_holds_the_whole_grid(study):
    rows = table(study, "forecast")
    cells = {(row["system"], row["eta"], row["model"], row["seed"]) for row in rows}
    trained = {(s, e, m, k) for s in ("vdp", "ou") for e in (0.0, 1.0) for m in ("s4d", "s6", "mlp") for k in (0, 1)}
    fitted = {(s, e, m, 0) for s in ("vdp", "ou") for e in (0.0, 1.0) for m in ("persistence", "ridge")}
    assert cells == trained | fitted
    assert all(row["rmse_relative"] == pytest.approx(1.0) for row in rows if row["model"] == "persistence")
    assert all((row["code_accuracy"] is None) == (row["eta"] != 0) for row in rows)


def test_every_network_is_trained_at_its_own_chosen_rate_and_of_one_size(study):
    chosen = {row["model"]: row["lr"] for row in table(study, "forecast_search") if row["chosen"]}
    assert set(chosen) == {"s4d", "s6", "mlp"}
    for row in [*table(study, "forecast"), *table(study, "crossed")]:
        assert row["lr"] == chosen.get(row["model"])
        assert row["model"] not in chosen or abs(row["parameters"] / 1500 - 1) <= 0.05


def test_the_crossed_table_holds_every_pair_of_different_etas(study):
    cells = {(row["system"], row["eta"], row["eta_target"], row["model"], row["seed"]) for row in table(study, "crossed")}
    pairs = ((0.0, 1.0), (1.0, 0.0))
    assert cells == {("vdp", *pair, *run) for pair in pairs for run in (("s4d", 0), ("s4d", 1), ("ridge", 0))}


def test_every_file_says_what_made_it(study):
    for path in (study.folder / "results/tiny/tables").glob("**/rows.parquet"):
        found = tables.metadata(path)
        assert json.loads(found["cfg"]) is not None and re.fullmatch("[0-9a-f]{16}", found["code"]), path


def test_every_run_has_a_line_of_time_and_place(study):
    runs = table(study, "runs")
    assert {row["table"] for row in runs} == set(COMPACTED) - BESIDE
    assert all(row["seconds"] >= 0 and row["host"] and row["backend"] and row["started"] for row in runs)
    assert len([row for row in runs if row["table"] == "forecast"]) == len(table(study, "forecast"))


def test_the_page_and_the_database_open(study):
    page = (study.folder / "results/tiny/report.html").read_text()
    assert "</html>" in page and "http://" not in re.sub(r"http://www\.w3\.org", "", page)
    with duckdb.connect(str(study.folder / "results/tiny/study.duckdb"), read_only=True) as database:
        assert database.sql("SELECT count(*) FROM score").fetchall() == [(len(table(study, "score")),)]


def test_the_readme_query_answers(study):
    done = subprocess.run(
        [sys.executable, "-m", "continuity.cli", "query", "SELECT * FROM score", "--format", "json"],
        cwd=study.folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {row["encoder"] for row in json.loads(done.stdout)} == {"raw", "random", "s4d", "s6"}


@pytest.mark.parametrize("sql", ["SELECT muu FROM score", "SELEC 1", "DROP TABLE score"])
def test_a_bad_query_is_one_line_and_exit_2(study, sql):
    done = subprocess.run(
        [sys.executable, "-m", "continuity.cli", "query", sql, "--study", "tiny"],
        cwd=study.folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1 and not done.stdout


def test_verdicts_are_the_same_byte_for_byte_when_judged_again(study):
    path = study.folder / "results/tiny/tables/claims.parquet"
    before = path.read_bytes()
    for _ in range(3):
        done = study.snakemake("--forcerun", "claims", "--until", "claims")
        assert done.returncode == 0, done.stderr
        assert path.read_bytes() == before


def test_python_can_ask_too(study):
    with catalog.connect("tiny", study.folder / "results") as connection:
        assert len(connection.sql("FROM forecast").df()) == len(table(study, "forecast"))


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_is_a_target(study, stage):
    done = study.snakemake("-n", stage)
    assert done.returncode == 0, done.stderr


def test_rules_and_study_name_the_same_jobs(study):
    done = study.snakemake("--list-rules")
    listed = {line.strip() for line in done.stdout.splitlines() if re.fullmatch(r"[a-z_]+", line.strip())}
    assert set(RULES) <= listed


@pytest.mark.parametrize("launch", ["study", "snakemake"])
def test_a_broken_configuration_ends_before_anything_runs(study, launch):
    (study.folder / "broken.yaml").write_text("study: broken\nforecast: {epocs: 3}\nscore: {max_lag: '4'}\n")
    done = getattr(study, launch)(config="broken.yaml")
    lines = [line for line in done.stderr.splitlines() if line.startswith(("forecast", "score"))]
    assert done.returncode == 2 and len(lines) == 2 and "Traceback" not in done.stderr
    assert not (study.folder / "results/broken").exists()


def test_a_results_folder_that_refuses_writing_is_one_line(study):
    (study.folder / "blocked.yaml").write_text("results: Snakefile\nstudy: blocked\n")
    done = study.study("systems", config="blocked.yaml")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert any(line.startswith("Snakefile") for line in done.stderr.splitlines())


def test_a_missing_task_file_is_found_at_planning(study):
    (study.folder / "missing.yaml").write_text(
        "study: missing\ntasks: {list: [{name: mine, path: nowhere.csv, label: class}]}\ncurriculum: {tasks: null}\n"
    )
    done = study.study("-n", config="missing.yaml")
    assert done.returncode == 2 and "tasks.list: mine: nowhere.csv: no such file" in done.stderr


def test_two_runs_of_one_study_never_run_side_by_side(study):
    code = (
        "from continuity import locks; import time; locks.hold('results/tiny/.lock'); print('held', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", code], cwd=study.folder, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        done = study.study()
        assert done.returncode == 2 and "another run of this study is going on" in done.stderr
        assert study.planned() == set(), "a dry run only looks"
    finally:
        other.kill()
        other.wait()
    assert study.study().returncode == 0


USER = """
import torch

class Leak(torch.nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.mix = torch.nn.Linear(d_model, d_model)

    def forward(self, u):
        return torch.cumsum(self.mix(u), 1) / u.shape[1]


def make(d_model):
    return Leak(d_model)
"""


def test_a_users_model_enters_by_configuration_and_its_file_is_its_identity(study):
    (study.folder / "mine.py").write_text(USER)
    tiny = (study.folder / "config/tiny.yaml").read_text()
    models = (
        "models:\n  - {name: s4d, layer: s4d, options: {d_state: 16}}\n  - {name: s6, layer: s6, options: {d_state: 8}}\n"
        "  - {name: leak, factory: 'mine:make'}\n"
    )
    (study.folder / "mine.yaml").write_text(
        tiny.replace("  models: [s4d, s6]\n  horizons", "  models: [s4d, leak]\n  horizons") + models
    )
    target = "results/tiny/tables/forecast/model=leak/system=ou/rows.parquet"
    done = study.study(target, config="mine.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = tables.read(study.folder / target).to_pylist()
    assert {row["model"] for row in rows} == {"leak"} and all(row["status"] == "ok" for row in rows)
    with study.edit("mine.py", "/ u.shape[1]", "/ (1 + u.shape[1])"):
        again = study.study("-n", target, config="mine.yaml")
        assert "forecast_run" in again.stdout + again.stderr
    again = study.study("-n", target, config="mine.yaml")
    assert "Nothing to be done" in again.stdout + again.stderr


def test_a_script_that_fails_fails_its_job_though_its_log_is_piped(tmp_path):
    broken = Project(tmp_path)
    with broken.edit(
        "scripts/dissipation.py", "def work(job: stage.Job) -> None:\n", "def work(job: stage.Job) -> None:\n    1 / 0\n"
    ):
        done = broken.study("dissipation")
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "Error in rule dissipation_run" in said and "MissingOutputException" not in said


def test_paper_scale_dry_runs_to_its_whole_list(study):
    done = study.study("-n", "--quiet", "rules", config="config/paper.yaml")
    assert done.returncode == 0, done.stderr
    paper = Study(config.load(ROOT / "config/paper.yaml"))
    total = int(re.search(r"^total\s+(\d+)", done.stdout + done.stderr, flags=re.M)[1])
    assert total == sum(len(paper.jobs(rule)) for rule in RULES) + 1
