"""`continuity clean`: lists what a study no longer names, removes that and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import invented
import pytest
from continuity import clean, locks, marks, record
from continuity.cli import main
from continuity.study import Study

FEWER = {"forecast": {"models": ["s4d"]}, "convergence": {"models": ["s4"]}}


@pytest.fixture
def made(tmp_path):
    return invented.make(tmp_path / "results")


def named_by(study, **changes):
    """The same folder, judged by a configuration that names less."""
    fewer = Study(invented.settings(study.root.parent, **changes))
    return record.Record(fewer, "fewer.yaml", Path.cwd())


def everything(root):
    return {path.relative_to(root) for path in root.rglob("*") if path.is_file()}


def listed(kept):
    return {leftover.path.relative_to(kept.root).as_posix() for leftover in clean.find(kept)}


def test_a_finished_study_has_no_leftovers(made):
    assert clean.find(record.find("tiny", made.root.parent)) == []


def test_models_that_are_no_longer_named_leave_their_runs(made):
    kept = named_by(made, **FEWER)
    names = {"tables/forecast/model=s6", "tables/forecast_search/model=s6", "tables/convergence/model=s6"}
    assert listed(kept) == names
    assert all(leftover.bytes > 0 for leftover in clean.find(kept))


def test_a_task_that_is_no_longer_named_leaves_data_runs_logs_and_marks(made):
    other = {
        "tasks": {"list": [{"name": "smnist", "n": {"train": 4, "validation": 4, "test": 4}}]},
        "curriculum": {"tasks": ["smnist"]},
    }
    for path in ("data/tasks/listops.parquet", "data/encoders/task=listops/model=s4d.pt", "logs/tasks_make/listops.txt"):
        (made.root / path).parent.mkdir(parents=True, exist_ok=True)
        (made.root / path).write_text("x")
    mark = marks.path(made.root, "tables/tasks/task=listops/rows.parquet")
    mark.parent.mkdir(parents=True)
    mark.write_text("{}")
    found = listed(named_by(made, **other))
    assert {"tables/tasks/task=listops", "tables/score/task=listops", "tables/benchmark/task=listops"} <= found
    assert {"data/tasks/listops.parquet", "data/encoders/task=listops/model=s4d.pt", "logs/tasks_make/listops.txt"} <= found
    assert {"data/latents/task=listops/encoder=raw.parquet", mark.relative_to(made.root).as_posix()} <= found
    assert all("listops" in path for path in found)


def test_a_seed_that_a_finished_job_no_longer_names_goes_and_its_other_runs_stay(made):
    folder = made.root / "tables/forecast/model=s6/system=ou"
    invented.run(folder, {"seed": 7}, "code")
    kept = record.find("tiny", made.root.parent)
    assert listed(kept) == {"tables/forecast/model=s6/system=ou/seed=7"}
    clean.remove(kept)
    assert (folder / "seed=0/run.parquet").exists() and not (folder / "seed=7").exists()


def test_runs_of_a_job_that_is_still_to_be_done_are_kept(made):
    folder = made.root / "tables/forecast/model=s6/system=ou"
    invented.run(folder, {"seed": 7}, "code")
    (folder / "rows.parquet").unlink()
    assert listed(record.find("tiny", made.root.parent)) == set()


def test_a_run_to_go_on_from_keeps_its_newest_checkpoint_and_a_finished_one_none(made):
    going, done = (made.root / f"tables/forecast/model={model}/system=ou" for model in ("s6", "s4d"))
    (going / "rows.parquet").unlink()
    for folder in (going, done):
        for age, name in ((20, "old"), (10, "new")):
            path = folder / "seed=0" / f"checkpoint-{name}.pt"
            path.write_bytes(b"weights")
            os.utime(path, (1000 - age, 1000 - age))
    found = listed(record.find("tiny", made.root.parent))
    assert {Path(path).name for path in found if "s6" in path} == {"checkpoint-old.pt"}
    assert {Path(path).name for path in found if "s4d" in path} == {"checkpoint-old.pt", "checkpoint-new.pt"}


def test_a_run_at_several_rates_keeps_the_checkpoint_of_each(made):
    going = made.root / "tables/forecast/model=s6/system=ou"
    (going / "rows.parquet").unlink()
    for age, name in ((30, "old-0"), (25, "old-1"), (20, "new-0"), (10, "new-1")):
        path = going / "seed=0" / f"checkpoint-{name}.pt"
        path.write_bytes(b"weights")
        os.utime(path, (1000 - age, 1000 - age))
    found = listed(record.find("tiny", made.root.parent))
    assert {Path(path).name for path in found} == {"checkpoint-old-0.pt", "checkpoint-old-1.pt"}


def test_tables_that_no_stage_makes_and_parts_of_files_go(made):
    for path in ("tables/former.parquet", "tables/former/model=x/rows.parquet", "tables/.score.parquet.ab12.part", ".probe-17"):
        (made.root / path).parent.mkdir(parents=True, exist_ok=True)
        (made.root / path).write_text("x")
    found = listed(record.find("tiny", made.root.parent))
    assert found == {"tables/former.parquet", "tables/former", "tables/.score.parquet.ab12.part", ".probe-17"}


def test_removing_touches_nothing_else(made, tmp_path):
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / "mine.parquet").write_text("mine")
    (made.root / "tables/forecast/model=gone").symlink_to(outside)
    for path in ("notes.txt", "figures/mine.svg", "data/mine/raw.csv", "tables/gap/mine/rows.parquet"):
        (made.root / path).parent.mkdir(parents=True, exist_ok=True)
        (made.root / path).write_text("mine")
    before = everything(made.root)
    clean.remove(named_by(made, **FEWER))
    gone = before - everything(made.root)
    assert {path.parts[1] for path in gone} == {"forecast", "forecast_search", "convergence"}
    assert {path.parts[2] for path in gone} == {"model=s6"}
    assert (outside / "mine.parquet").read_text() == "mine" and not (made.root / "tables/forecast/model=gone").exists()


@pytest.mark.parametrize("lock", [locks.STUDY, locks.JOBS])
def test_a_study_at_work_is_left_alone(made, lock, capsys):
    code = f"from continuity import locks; import time; locks.hold({str(made.root / lock)!r}); print('held', flush=True); time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        before = everything(made.root)
        with pytest.raises(SystemExit) as left:
            main(["clean", "--remove", "--results", str(made.root.parent)])
        assert left.value.code == 2 and "a run of this study is going on" in capsys.readouterr().err
        assert everything(made.root) == before
    finally:
        other.kill()
        other.wait()


def test_the_command_lists_first_and_removes_on_request(made, capsys):
    (made.root / "tables/former.parquet").write_bytes(b"x" * 2500)
    command = ["clean", "--results", str(made.root.parent)]
    main(command)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "   2.5 kB  tables/former.parquet: a table that the study no longer makes"
    assert "1 leftover, 2.5 kB" in said[1] and "--remove" in said[1]
    assert (made.root / "tables/former.parquet").exists()
    done = subprocess.run([sys.executable, "-m", "continuity.cli", *command, "--remove"], capture_output=True, text=True)
    assert done.returncode == 0 and "removed 1 leftover" in done.stdout
    assert not (made.root / "tables/former.parquet").exists()


def test_every_output_that_snakemake_declares_is_kept(study, monkeypatch):
    """On the real tiny study: nothing to clean, and with fewer names in its configuration none of Snakemake's outputs."""
    monkeypatch.chdir(study.folder)
    assert clean.find(record.find("tiny", "results", "config/tiny.yaml")) == []
    tiny = (study.folder / "config/tiny.yaml").read_text()
    fewer = tiny.replace("  models: [s4d, s6]", "  models: [s4d]").replace("  models: [s4, s6]", "  models: [s4]")
    (study.folder / "config/fewer.yaml").write_text(fewer)
    done = study.snakemake("--summary", "--nolock", config="config/fewer.yaml")
    declared = {(study.folder / line.split("\t")[0]).resolve() for line in done.stdout.splitlines()[1:]}
    assert len(declared) > 40, done.stderr
    found = [leftover.path.resolve() for leftover in clean.find(record.find("tiny", "results", "config/fewer.yaml"))]
    assert {path.name for path in found} >= {"model=s6"}
    assert not [output for output in declared for path in found if output == path or path in output.parents]
