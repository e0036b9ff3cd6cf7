"""A study killed again and again ends as if nothing had happened."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from continuity import config, locks, marks, tables
from continuity.study import RULES, Study
from project import Project

KILLS = 20
TARGETS = (
    "benchmark", "score", "forecast", "gap", "refinement", "diagnosis", "curriculum", "time_to_target", "stability", "robustness",
)  # fmt: skip
"""Tables of every stage that trains, and of what follows from it."""
TIMED = {"time_to_target"}
"""Tables that are made of wall times."""
SMALL = {
    "systems": {"list": [{"name": "vdp", "parameters": {"mu": [0.1, 5.0]}}]},
    "benchmark": {"models": ["s4d"], "baselines": ["majority"]},
    "latents": {"encoders": ["raw"]},
    "mixtures": {"etas": [0, 1]},
    "forecast": {"models": ["s4d"], "baselines": ["persistence"], "search": None, "crossed": None},
    "refinement": {"models": ["s4d"], "methods": ["zoh"], "step_rules": ["delta"]},
    "curriculum": {"seeds": [0], "plans": [{"name": "plain", "strides": [1]}, {"name": "coarse", "strides": [2, 1]}]},
    "stability": {
        "hosts": [
            {
                "name": "mamba",
                "host": "mamba",
                "options": {"patch": 7, "stride": 7, "d_model": 4, "layer_options": {"d_state": 2}},
            }
        ],
        "storages": [{"name": "none"}, {"name": "identity", "weights": [1]}],
        "seeds": [0],
    },
}
"""What the tiny study is reduced to: every stage that trains is there, with one job or two."""


def small(folder: Path) -> Project:
    """A project with the smallest study of all stages; its training saves five times a second instead of every 20 s."""
    project = Project(folder)
    tiny = config.read(folder / "config/tiny.yaml")
    (folder / "config/small.yaml").write_text(yaml.safe_dump(config.overlay(tiny, SMALL) | {"study": "small"}))
    training = folder / "scripts/continuity/training.py"
    text = training.read_text()
    assert "SAVE_EVERY = 20.0" in text
    training.write_text(text.replace("SAVE_EVERY = 20.0", "SAVE_EVERY = 0.2"))
    return project


class Started:
    """`make study` in a session of its own, so that it can be killed with or without its jobs."""

    def __init__(self, project: Project):
        self.project = project
        self.log = project.folder / "said.txt"
        command = [sys.executable, "scripts/study.py", "--config", "config/small.yaml", "--cores", "2", "--", *TARGETS]
        with open(self.log, "w") as said:
            self.process = subprocess.Popen(
                command, cwd=project.folder, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
            )

    def wait_for(self, finished: int) -> bool:
        """Wait until so many jobs have finished in all and one of this run is at work; False where the study ends before."""
        while self.process.poll() is None:
            if done(self.project) >= finished and any(self.owns(job) for job in at_work(self.project)):
                return True
            time.sleep(0.05)
        return False

    def owns(self, job: dict) -> bool:
        """Whether this run started the job; one that an earlier run started may come to work only now, from its imports."""
        with contextlib.suppress(ProcessLookupError):
            return os.getpgid(job["pid"]) == self.process.pid
        return False

    def kill(self, jobs: bool) -> None:
        """SIGKILL to Snakemake, with or without its jobs."""
        (os.killpg if jobs else os.kill)(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    """The tables of a study that nobody disturbed."""
    project = small(tmp_path_factory.mktemp("undisturbed"))
    started = Started(project)
    assert started.process.wait() == 0, started.log.read_text()
    return project


def root(project: Project) -> Path:
    return project.folder / "results/small"


def seen(project: Project) -> list[dict]:
    """What every job of a study last said of itself."""
    found = []
    for path in (root(project) / marks.FOLDER).glob("**/*.json"):
        with contextlib.suppress(ValueError):
            found.append(json.loads(path.read_text()) | {"path": path})
    return [mark for mark in found if "state" in mark]


def at_work(project: Project) -> list[dict]:
    """Jobs that run, by the locks on their marks, which the kernel keeps."""
    return [mark for mark in seen(project) if not locks.free(mark["path"])]


def done(project: Project) -> int:
    return sum(mark["state"] == "done" for mark in seen(project))


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory, truth):
    """The same study, killed at random moments that are spread over all of it: by turns with its jobs and without them."""
    project, chance = small(tmp_path_factory.mktemp("disturbed")), random.Random(9)
    moments = sorted(chance.randrange(round(0.8 * done(truth))) for _ in range(KILLS))
    orphaned = 0
    for number, moment in enumerate(moments):
        before = at_work(project)
        started = Started(project)
        assert started.wait_for(moment), f"ended before kill {number + 1}: {started.log.read_text()}"
        beside = at_work(project)
        for orphan in before:
            assert all((job["path"], job["started"]) != (orphan["path"], orphan["started"]) for job in beside), "an orphan"
        time.sleep(chance.uniform(0, 2))
        orphans = number % 2 == 0
        if orphans:
            started.wait_for(moment)  # jobs are short, and the one seen above may have ended since
        started.kill(jobs=not orphans)
        orphaned += orphans and bool(at_work(project))
    assert orphaned >= KILLS // 4, "jobs have outlived their run"
    last = Started(project)
    assert last.process.wait() == 0, last.log.read_text()
    return project


def test_twenty_kills_leave_every_table_as_it_was_without_them(truth, disturbed):
    for name in sorted(set(TARGETS) - TIMED):
        kept, made = ((root(project) / f"tables/{name}.parquet").read_bytes() for project in (truth, disturbed))
        assert kept == made, name


def test_what_times_are_made_of_has_the_same_rows(truth, disturbed):
    for name in sorted(TIMED):
        kept, made = (tables.read(root(project) / f"tables/{name}.parquet").to_pylist() for project in (truth, disturbed))
        keys = tables.TABLES[name].key
        assert [[row[key] for key in keys] for row in kept] == [[row[key] for key in keys] for row in made], name


def test_no_half_written_file_and_no_checkpoint_is_left(disturbed):
    left = [path for path in root(disturbed).glob("**/*") if path.name.startswith("checkpoint-")]
    assert not left
    for path in root(disturbed).glob("tables/**/*.parquet"):
        if not path.name.endswith(".part"):
            tables.read(path)


def test_after_twenty_kills_nothing_is_left_to_do(disturbed):
    dry = disturbed.snakemake("-n", *TARGETS, config="config/small.yaml")
    assert "Nothing to be done" in dry.stdout + dry.stderr


def test_a_lock_that_snakemake_left_behind_stops_nobody(disturbed):
    held = disturbed.folder / ".snakemake/locks"
    held.mkdir(parents=True, exist_ok=True)
    (held / "0.output.lock").write_text("results/small/tables/gap.parquet\n")
    (root(disturbed) / "tables/gap.parquet").unlink()
    started = Started(disturbed)
    assert started.process.wait() == 0, started.log.read_text()
    assert (root(disturbed) / "tables/gap.parquet").exists()


def test_every_stage_that_trains_takes_part(truth):
    study = Study(config.load(truth.folder / "config/small.yaml") | {"results": str(truth.folder / "results")})
    trained = {rule for rule in RULES for job in study.jobs(rule) if "training" in RULES[rule].slice(study, job.wildcards)}
    assert trained >= {"benchmark_run", "forecast_run", "refinement_run", "curriculum_run", "stability_run"}
    assert all(Path(study.path(job.output)).exists() for rule in trained for job in study.jobs(rule))
