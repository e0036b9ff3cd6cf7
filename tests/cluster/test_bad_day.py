"""The tiny study on a cluster on which everything goes wrong, and on one quiet machine: the same tables, byte for byte.

One training job is cancelled, then runs out of time, then loses its node; others run out of memory; accounting and controller are
restarted while jobs run.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from conftest import OnSlurm
from waiting import wait_for

TIMED = {"runs", "curriculum_times", "time_to_target"}
"""Tables made of wall times."""
VICTIM = "tables/curriculum/task=listops/model=s4d"
STUDY = "results/tiny"
CONFIG = "day.yaml"


def configure(folder: Path) -> None:
    """The tiny study with one curriculum run that is long enough to be stopped in."""
    settings = yaml.safe_load((folder / "config/tiny.yaml").read_text())
    settings["curriculum"] |= {"plans": [{"name": "plain", "strides": [1]}], "seeds": [0]}
    settings["curriculum"]["training"]["epochs"] = 150
    (folder / CONFIG).write_text(yaml.safe_dump(settings))


class Victim:
    """The curriculum job as its folder shows it: the process at work, and the epochs that it has behind it."""

    def __init__(self, home: OnSlurm):
        self.root = home.folder / STUDY

    @property
    def mark(self) -> dict:
        """What the job says of itself; read again where it is just being written."""
        path = self.root / ".state" / VICTIM / "rows.parquet.json"
        while path.exists():
            with suppress(ValueError):
                return json.loads(path.read_text())
        return {}

    @property
    def epochs(self) -> int:
        curves = list((self.root / VICTIM).rglob("curve.csv"))
        return len(curves[0].read_text().splitlines()) - 1 if curves else 0

    @property
    def checkpoints(self) -> list[Path]:
        return list((self.root / VICTIM).rglob("checkpoint-*.pt"))

    def freeze(self) -> int:
        """Stop its process in the middle of an epoch that no earlier attempt has reached; its id."""
        before, old = self.epochs, self.mark.get("pid")
        wait_for(lambda: self.mark.get("state") == "running" and self.mark["pid"] != old, "the victim's next attempt")
        wait_for(lambda: self.epochs > before, "an epoch of the victim")
        os.kill(self.mark["pid"], signal.SIGSTOP)
        return self.mark["pid"]

    def wakes(self, pid: int) -> None:
        """Slurm wakes what it stops; a process that it has stopped already is gone."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def job_of(cluster, rule: str, states: str = "RUNNING") -> str:
    """The id of a job of `rule` that is in one of `states`, awaited."""
    return wait_for(lambda: next((job for job, name in cluster.jobs(states).items() if rule in name), ""), f"a job of {rule}")


def cancelled(cluster, victim) -> list:
    """The victim is cancelled by hand while accounting is away."""
    pid = victim.freeze()
    cluster.down("slurmdbd")
    cluster.ask("scancel", job_of(cluster, "curriculum_run"))
    victim.wakes(pid)
    wait_for(lambda: victim.mark["state"] != "running", "the end of a cancelled job")
    kept = [victim.mark["state"], victim.checkpoints]
    cluster.up("slurmdbd")
    return kept


def out_of_time(cluster, victim) -> list:
    """The victim's time is up, and the controller crashes and comes back."""
    pid = victim.freeze()
    cluster.down("slurmctld", kill=True)
    cluster.up("slurmctld")
    job = job_of(cluster, "curriculum_run")
    cluster.ask("scontrol", "update", f"JobId={job}", "EndTime=now+1")
    wait_for(lambda: job not in cluster.jobs("RUNNING"), "the end of its time")
    victim.wakes(pid)
    wait_for(lambda: victim.mark["state"] != "running", "the end of a job whose time is up")
    return [victim.mark["state"], victim.checkpoints]


def node_lost(cluster, victim) -> list:
    """The node of the victim is lost and comes back; Slurm ends what is left of the job there and starts it a second time."""
    pid = victim.freeze()
    job = job_of(cluster, "curriculum_run")
    cluster.down("slurmd", kill=True)
    wait_for(lambda: job not in cluster.jobs("RUNNING"), "the loss of the node")
    cluster.up("slurmd")
    wait_for(lambda: victim.mark["pid"] != pid, "the second start of the job", seconds=420)
    return [victim.mark["state"], victim.checkpoints]


@pytest.fixture(scope="module")
def day(cluster, tmp_path_factory):
    """(the folder of the quiet machine, that of the cluster, exit code there, what each injury left of its victim)."""
    quiet = OnSlurm(tmp_path_factory.mktemp("quiet") / "a study")
    home = OnSlurm(tmp_path_factory.mktemp("cluster") / "project", refinement_run={"mem_mb": "120 if attempt == 1 else 2000"})
    for folder in (quiet.folder, home.folder):
        configure(folder)
    command = [sys.executable, "scripts/study.py", "--config", CONFIG, "--cores", "1"]
    with open(quiet.folder / "quiet.txt", "w") as out:
        local = subprocess.Popen(command, cwd=quiet.folder, stdout=out, stderr=out)
    run, victim = home.start(config=CONFIG), Victim(home)
    try:
        left = {injury.__name__: injury(cluster, victim) for injury in (cancelled, out_of_time, node_lost)}
        code = run.wait()
        assert local.wait() == 0, (quiet.folder / "quiet.txt").read_text()
    finally:
        for process in (run, local):
            process.send_signal(signal.SIGINT)
            process.wait()
    return quiet, home, code, left


def test_the_study_ends_well_whatever_happened_to_its_jobs(day):
    _, home, code, _ = day
    assert code == 0, home.said()


@pytest.mark.parametrize("injury", ["cancelled", "out_of_time"])
def test_a_job_that_is_told_to_stop_saves_and_leaves(day, injury):
    state, checkpoints = day[3][injury]
    assert state == "stopped" and len(checkpoints) == 1


def test_every_injury_happened(day, cluster):
    lines = cluster.ask("sacct", "-X", "-n", "-P", "-D", "-o", "Comment,State").splitlines()
    ends = {(line.split("|")[0].removeprefix("rule_").split("_wildcards")[0], line.split("|")[1].split()[0]) for line in lines}
    for end in ("CANCELLED", "TIMEOUT", "NODE_FAIL", "COMPLETED"):
        assert ("curriculum_run", end) in ends, ends
    assert {("refinement_run", "FAILED"), ("refinement_run", "OUT_OF_MEMORY")} & ends, ends


def test_jobs_that_train_have_one_gpu_each_and_others_none(day, cluster):
    lines = cluster.ask("sacct", "-X", "-n", "-P", "-o", "Comment,ReqTRES").splitlines()
    asked = {line.split("|")[0].removeprefix("rule_").split("_wildcards")[0]: line.split("|")[1] for line in lines}
    for rule in ("benchmark_run", "refinement_run", "curriculum_run", "stability_run"):
        assert "gres/gpu=1" in asked[rule], asked
    assert not any("gpu" in asked[rule] for rule in ("tasks_make", "convergence_run", "dissipation_run")), asked


def test_tables_equal_those_of_a_quiet_machine_byte_for_byte(day):
    quiet, home, _, _ = day
    tables = {path.name for path in (quiet.folder / STUDY / "tables").glob("*.parquet")}
    assert len(tables) > len(TIMED) + 10
    for name in sorted(tables - {f"{table}.parquet" for table in TIMED}):
        here, there = ((folder / STUDY / "tables" / name).read_bytes() for folder in (quiet.folder, home.folder))
        assert here == there, name


def test_a_second_run_has_nothing_to_do(day):
    _, home, _, _ = day
    again = home.start(config=CONFIG, log="again.txt")
    assert again.wait() == 0 and "Nothing to be done" in home.said("again.txt")
