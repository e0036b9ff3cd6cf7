"""What a study asks Slurm before it starts: whether it takes the jobs, and whether an earlier run left any in its queue."""

import getpass
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from continuity.problems import Problem

FIELDS = "%i|%t|%j|%k|%Z"
"""Of squeue: id, state, name, comment (the rule), working directory."""
LIMITS = {"mem_mb": "--mem", "runtime": "--time"}
"""Resources of which the largest decides whether jobs fit, and sbatch's options for them."""


def label(name: str) -> str:
    """What the jobs of study `name` are called in the queue, before a `_` and the id of the run."""
    return "continuity-" + re.sub("[^A-Za-z0-9_-]", "-", name)[:36]


def present() -> None:
    """Raise a Problem unless Slurm's commands are here."""
    absent = [name for name in ("sbatch", "squeue", "scancel") if not shutil.which(name)]
    if absent:
        where = "start the study on a login node of the cluster, or without its profile"
        raise Problem(f"executor slurm: no {', '.join(absent)} on the PATH; {where}")


def check(jobs: Iterable[Mapping]) -> dict[str | None, float]:
    """Minutes that each partition allows a job (`longest`); a Problem where Slurm would refuse jobs with these resources.

    One line an account, partition and GPU or none.
    """
    problems, limits = [], longest()
    for kind, needs in _kinds(jobs).items():
        account, partition, gpu = kind
        options = {"--account": account, "--partition": partition, "--gpus": gpu} | needs
        options = [f"{name}={value}" for name, value in options.items() if value]
        asked = f"Slurm refuses jobs that ask for {' '.join(options)}"
        said, failed = _run("sbatch", "--test-only", *options, "--wrap=true")
        if failed:
            why = re.sub("^(sbatch: error: |allocation failure: )+", "", (said.splitlines() or ["no reason"])[-1])
            problems.append(f"{asked}: {why}; config/README.md, Clusters, says which keys are yours")
        elif needs["--time"] > (most := limits.get(partition, math.inf)):
            problems.append(f"{asked}: the partition allows {most} minutes; set resources.minutes to at most that")
    if problems:
        raise Problem(problems)
    return limits


def _kinds(jobs: Iterable[Mapping]) -> dict[tuple, dict]:
    """The largest needs of the jobs of each account, partition and number of GPUs."""
    found = {}
    for job in jobs:
        kind = job.get("slurm_account"), job.get("slurm_partition"), job.get("gpu")
        needs = found.setdefault(kind, dict.fromkeys(LIMITS.values(), 0))
        for name, option in LIMITS.items():
            needs[option] = max(needs[option], job.get(name) or 0)
    return found


def longest() -> dict[str | None, float]:
    """Minutes that each partition allows a job, None being the default partition; none where Slurm does not say."""
    said, failed = _run("sinfo", "-h", "-o", "%P|%l")
    found = {}
    for line in [] if failed else said.splitlines():
        name, _, limit = line.partition("|")
        found[name.rstrip("*")] = minutes(limit)
        if name.endswith("*"):
            found[None] = minutes(limit)
    return found


def minutes(limit: str) -> float:
    """A time limit as Slurm writes it (days-hours:minutes:seconds) in minutes; infinite where it is no time."""
    if not re.fullmatch(r"(\d+-)?(\d+:)*\d+", limit):
        return math.inf
    days, _, clock = limit.rpartition("-")
    seconds = 0
    for part in clock.split(":"):
        seconds = 60 * seconds + int(part)
    return 1440 * int(days or 0) + seconds // 60


def settle(name: str, needed: bool, pause: float = 10.0) -> None:
    """Cancel the jobs of study `name` of this folder that wait in Slurm's queue, and wait for those that run; say which.

    Does nothing where there is no Slurm. Raises a Problem where the queue does not answer although it is `needed`.
    """
    if not shutil.which("squeue"):
        return
    seconds = 60 if needed else 10
    try:
        waiting, running = _left(name, seconds)
        if waiting:
            print(f"cancelling jobs of an earlier run that wait in the queue: {_listed(waiting)}", file=sys.stderr)
            _ask("scancel", *waiting)
        if running:
            stop = f"`scancel {' '.join(running)}` ends them, and they go on from there"
            print(f"waiting for jobs of an earlier run that still run: {_listed(running)}; {stop}", file=sys.stderr)
        while any(_left(name, seconds)):
            time.sleep(pause)
    except Problem:
        if needed:
            raise


def _left(name: str, seconds: float) -> tuple[dict[str, str], dict[str, str]]:
    """Jobs that wait and jobs that run, each with its rule by its id."""
    waiting, running = {}, {}
    for line in _ask("squeue", "-h", "-u", getpass.getuser(), "-o", FIELDS, seconds=seconds).splitlines():
        job, state, job_name, rule, folder = line.split("|", 4)
        if job_name.rpartition("_")[0] == label(name) and os.path.realpath(folder) == os.path.realpath(Path.cwd()):
            (waiting if state == "PD" else running)[job] = rule
    return waiting, running


def _listed(jobs: dict[str, str]) -> str:
    return ", ".join(f"{job} ({rule})" for job, rule in jobs.items())


def _ask(*command: str, seconds: float = 60) -> str:
    said, failed = _run(*command, seconds=seconds)
    if failed:
        why = said.splitlines()[-1] if said else "no answer"
        raise Problem(f"{why}; jobs of an earlier run may still be queued: start again once Slurm answers")
    return said


def _run(*command: str, seconds: float = 60) -> tuple[str, bool]:
    """What a command prints (on failure its complaint), and whether it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error), True
    return (done.stderr.strip() if done.returncode else done.stdout), done.returncode != 0
