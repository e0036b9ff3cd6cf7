"""`continuity status`: what is done, what runs, what failed and why, and how long the rest takes; while jobs write, too."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import invented
import pytest
from continuity import config as configuration
from continuity import curves, marks, record, status
from continuity.cli import main
from continuity.study import COMPACTED, DERIVED, RULES, Study

JOB = "tables/forecast/model=s6/system=ou/rows.parquet"
LOG = "logs/forecast_run/s6_ou.txt"


@pytest.fixture
def made(tmp_path):
    return invented.make(tmp_path / "results")


def look(made):
    return status.look(record.find("tiny", made.root.parent))


def by_name(found):
    return {job.name: job for job in found.jobs}


def start(made, body: str):
    """A job of the study as a process of its own, its output as the rule would write it."""
    (made.root / ".lock").touch()
    (made.root / JOB).unlink(missing_ok=True)
    log = made.root / LOG
    log.parent.mkdir(parents=True, exist_ok=True)
    code = (
        "import sys, time\nfrom continuity import stage\nfrom continuity.problems import Problem\n"
        f"def work(job):\n    {body}\n"
        f"stage.run('forecast', '', work, argv=['--cfg', '{{}}', '--rows', {str(made.root / JOB)!r}])\n"
    )
    with open(log, "w") as file:
        return subprocess.Popen([sys.executable, "-c", code], stdout=file, stderr=subprocess.STDOUT)


def wait_for(condition, seconds: float = 60.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
    return found


# ---------------------------------------------------------------- done, stale, missing


def test_before_anything_is_started_every_job_is_missing_and_no_time_is_known(tmp_path):
    study = Study(invented.settings(tmp_path / "results"))
    found = status.look(record.Record(study, "tiny.yaml", Path.cwd()))
    assert {job.state for job in found.jobs} == {"missing"} and not found.busy
    assert found.unknown == len(found.jobs) == sum(len(study.jobs(rule)) for rule in RULES)
    assert not (tmp_path / "results").exists()


def test_every_rule_belongs_to_a_stage():
    stages = {status.stage_of(rule) for rule in RULES}
    assert stages <= {*configuration.load(), *DERIVED, *COMPACTED, "report"}, (
        "named as its section of the configuration or table"
    )


def test_a_finished_study_is_complete(made):
    found = look(made)
    assert found.open == [] and found.seconds_left == 0
    assert found.counts()["forecast"]["done"] == len(made.jobs("forecast_run")) + 1


def test_another_setting_makes_its_jobs_stale_and_what_is_joined_from_them(made):
    other = Study(invented.settings(made.root.parent, forecast={"context": 31}))
    found = status.look(record.Record(other, "other.yaml", Path.cwd()))
    stale = {job.rule for job in found.open if job.state == "stale"}
    last = {"runs", "claims", "figures", "catalog", "provenance", "report"}
    assert stale == {f"{name}{run}" for name in ("forecast", "forecast_search", "crossed") for run in ("", "_run")} | last
    models = {job.keys["model"] for job in found.open if job.rule == "forecast_run"}
    assert models == {"s4d", "s6", "persistence", "ridge", "mlp"}


@pytest.mark.parametrize("content", [None, b"", b"PAR1 torn"])
def test_a_missing_or_torn_output_is_to_be_done_again(made, content):
    path = made.root / JOB
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    job = by_name(look(made))["forecast_run model=s6 system=ou"]
    assert job.state == ("missing" if content is None else "stale")


def test_time_left_is_the_mean_of_finished_jobs_over_the_jobs_at_a_time(made):
    for model in ("s4d", "s6"):
        for system in ("vdp", "ou"):
            (made.root / f"tables/forecast/model={model}/system={system}/rows.parquet").unlink()
    found = look(made)
    runs = [job for job in found.open if job.rule == "forecast_run"]
    assert [job.seconds_left for job in runs] == [invented.SECONDS] * 4
    assert found.seconds_left == pytest.approx(4 * invented.SECONDS / 2), "two jobs at a time"
    assert {job.rule for job in found.open if job.seconds_left is None} == {"forecast", *status.LAST}


# ---------------------------------------------------------------- at work, failed


def test_a_job_at_work_is_seen_with_its_progress_and_a_killed_one_is_told_from_it(made):
    body = "print('forecast: 3 of 30 epochs, about 27 s left', flush=True); time.sleep(120)"
    process = start(made, body)
    try:
        job = wait_for(lambda: next((job for job in look(made).jobs if job.progress), None))
        assert (job.name, job.state, job.progress, job.seconds_left) == (
            "forecast_run model=s6 system=ou",
            "running",
            "3 of 30 epochs",
            27.0,
        )
        assert look(made).busy
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    found = look(made)
    job = by_name(found)["forecast_run model=s6 system=ou"]
    assert (job.state, job.reason[:22]) == ("failed", "killed without a word:") and not found.busy


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "raise Problem(['a.csv: row 3: not a number', 'a.csv: row 9: twice'])",
            "a.csv: row 3: not a number; a.csv: row 9: twice",
        ),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_failed_job_tells_its_reason_and_its_log(made, capsys, body, reason):
    start(made, body).wait()
    job = by_name(look(made))["forecast_run model=s6 system=ou"]
    assert (job.state, job.reason, job.log) == ("failed", reason, str(made.root / LOG))
    main(["status", "--results", str(made.root.parent)])
    said = capsys.readouterr().out
    assert f"  forecast_run model=s6 system=ou: {reason}\n" in said and LOG in said


def test_a_job_that_could_not_begin_tells_the_last_line_of_its_log(made):
    (made.root / JOB).unlink()
    (made.root / LOG).parent.mkdir(parents=True)
    (made.root / LOG).write_text("Traceback\nModuleNotFoundError: No module named 'torch'\n")
    job = by_name(look(made))["forecast_run model=s6 system=ou"]
    assert (job.state, job.reason) == ("failed", "ModuleNotFoundError: No module named 'torch'")


def test_a_job_asked_to_stop_has_not_failed(made):
    start(made, "sys.exit(143)").wait()
    assert by_name(look(made))["forecast_run model=s6 system=ou"].state == "missing"
    assert marks.read(made.root, JOB)["state"] == "stopped"


def test_a_job_that_ended_well_leaves_its_seconds(made):
    start(made, "job.write('forecast', [])").wait()
    mark = marks.read(made.root, JOB)
    assert mark["state"] == "done" and mark["seconds"] >= 0


def test_a_folder_that_refuses_marks_does_not_stop_the_work(tmp_path, capsys):
    (tmp_path / marks.FOLDER).write_text("a file where the folder should be")
    with marks.working(tmp_path, "tables/a.parquet"):
        done = True
    assert done and "will not know of this job" in capsys.readouterr().err
    assert marks.read(tmp_path, "tables/a.parquet") == {}


# ---------------------------------------------------------------- training curves


HISTORY = [{"epoch": 1, "loss": 0.9, "validation": 0.8}, {"epoch": 2, "loss": 0.5, "validation": 0.6}]


def test_curves_become_tensorboard_events(made, tmp_path, capsys):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    curves.write(made.root / Path(JOB).parent / "eta=0" / "seed=1" / "checkpoint-ab.pt", HISTORY)
    main(["status", "--tensorboard", str(tmp_path / "events"), "--results", str(made.root.parent)])
    assert capsys.readouterr().out.strip() == f"{tmp_path}/events: 1 runs"
    events = EventAccumulator(str(tmp_path / "events/forecast_run/s6/ou/eta=0/seed=1")).Reload()
    found = [(event.step, pytest.approx(event.value, rel=1e-6)) for event in events.Scalars("loss")]
    assert found == [(1, 0.9), (2, 0.5)]


def test_curves_can_be_read_while_they_grow(made, capsys):
    folder = made.root / JOB
    checkpoint = folder.parent / "eta=0" / "seed=1" / "checkpoint-ab.pt"
    process = start(made, "time.sleep(120)")
    try:
        wait_for(lambda: look(made).busy)
        for epochs in (1, 2):
            curves.write(checkpoint, HISTORY[:epochs])
            job = by_name(look(made))["forecast_run model=s6 system=ou"]
            assert job.epoch.startswith(f"eta=0 seed=1: epoch {epochs}, loss 0.{9 if epochs == 1 else 5}")
        main(["status", "--curves", "--results", str(made.root.parent)])
        assert capsys.readouterr().out.splitlines() == [
            "job,run,epoch,loss,validation",
            "forecast_run s6 ou,eta=0 seed=1,1,0.9,0.8",
            "forecast_run s6 ou,eta=0 seed=1,2,0.5,0.6",
        ]
    finally:
        process.kill()
        process.wait()


def test_a_curve_with_a_new_column_keeps_all_its_epochs(tmp_path):
    curves.write(tmp_path / "checkpoint-ab.pt", [*HISTORY, {"epoch": 3, "loss": 0.4, "validation": 0.5, "accuracy": 0.7}])
    lines = curves.read(tmp_path / curves.FILE)
    assert [line["epoch"] for line in lines] == ["1", "2", "3"] and [line["accuracy"] for line in lines] == ["", "", "0.7"]
    curves.write(None, HISTORY)
    assert curves.read(tmp_path / "nowhere" / curves.FILE) == []


# ---------------------------------------------------------------- which study


def test_the_study_is_judged_by_what_it_was_started_with(made):
    kept = record.find(None, made.root.parent)
    assert (kept.source, kept.cores, kept.folder) == ("mine.yaml", 2, Path.cwd())
    assert kept.study.config == made.config


def test_a_users_module_is_found_from_any_folder(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    (home / "mine.py").write_text("def make(d_model):\n    return None\n")
    monkeypatch.chdir(home)
    models = [{"name": "leak", "factory": "mine:make"}, {"name": "s4d", "layer": "s4d"}, {"name": "s6", "layer": "s6"}]
    made = invented.make(tmp_path / "results", models=models, forecast={"models": ["leak", "s4d"]})
    monkeypatch.chdir(tmp_path)
    assert look(made).open == [] and Path.cwd() == tmp_path


def test_a_study_that_does_not_say_how_it_was_started_asks_for_its_configuration(made, capsys):
    (made.root / record.FILE).unlink()
    made.root.rename(made.root.with_name("nameless"))
    with pytest.raises(SystemExit) as left:
        main(["status", "--results", str(made.root.parent)])
    assert left.value.code == 2
    assert capsys.readouterr().err.strip().endswith("does not say what it was started with; give --config FILE")


def test_a_study_of_an_older_version_is_judged_with_todays_further_sections(made):
    path = made.root / record.FILE
    kept = json.loads(path.read_text())
    del kept["config"]["refinement"]
    path.write_text(json.dumps(kept))
    found = look(made)
    assert found.counts()["refinement"]["done"] == 0 and found.counts()["forecast"]["stale"] == 0


def test_a_key_that_is_no_more_is_named(made):
    path = made.root / record.FILE
    path.write_text(path.read_text().replace('"max_lag"', '"longest_lag"'))
    with pytest.raises(record.configuration.ConfigError) as refused:
        record.find("tiny", made.root.parent)
    assert "score.longest_lag: unknown key" in str(refused.value) and "--config FILE" in str(refused.value)


def test_where_nothing_was_started_the_default_study_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CONTINUITY_RESULTS", raising=False)
    main(["status"])
    told = capsys.readouterr()
    assert "nothing was started here" in told.err and told.out.startswith("study default in results/default")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- the command


def test_json_holds_the_same(made, capsys):
    (made.root / JOB).unlink()
    main(["status", "--results", str(made.root.parent), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said["study"] == "tiny" and said["stages"]["forecast"]["missing"] == 1 and not said["busy"]
    assert [job["keys"] for job in said["jobs"] if job["rule"] == "forecast_run"] == [{"model": "s6", "system": "ou"}]


def test_looking_imports_no_torch(made):
    code = f"import sys; from continuity.cli import main; main(['status', '--results', {str(made.root.parent)!r}]); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("study tiny"), done.stderr


def test_a_real_study_is_complete_and_a_dry_run_records_nothing(study):
    environment = os.environ | {"PYTHONPATH": str(study.folder / "scripts")}
    done = subprocess.run([sys.executable, "-m", "continuity.cli", "status", "--study", "tiny"], cwd=study.folder, env=environment,
                          capture_output=True, text=True)  # fmt: skip
    assert "\ncomplete\n" in done.stdout, done.stdout + done.stderr
    found = record.read(study.folder / "results/tiny")
    assert found["source"] == "config/tiny.yaml" and found["cores"] == 2
    mark = marks.read(study.folder / "results/tiny", "tables/score/task=listops/encoder=raw/rows.parquet")
    assert mark["state"] == "done" and mark["seconds"] > 0
    (study.folder / "looked.yaml").write_text("study: looked\n")
    assert study.study("-n", config="looked.yaml").returncode == 0
    assert not (study.folder / "results/looked").exists()
