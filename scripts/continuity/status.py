"""What a study has done, what it is doing, what failed and why, and how long the rest takes; reads while jobs write.

A job is done when its output was made by today's settings and code; stale when by others. A table joined from runs is done
only once they all are. Seconds come from the runs' sidecars and the jobs' marks, the rest of a running job from its log.
"""

import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from continuity import curves, locks, marks, tables
from continuity.record import Record
from continuity.study import COMPACTED, RULES, TIMED, Job, Study, stamp

STATES = ("done", "running", "stale", "missing", "failed")
LAST = ("runs", "claims", "figures", "catalog", "provenance", "report")
"""Rules that read every result table; the page's stage."""
PROGRESS = re.compile(r"^\S+: (\d+ of \d+ [^,]+), about (\d+) s left$", re.M)
TAIL = 4096


@dataclass(frozen=True)
class JobStatus:
    """One job: its rule, stage and wildcards, its state, its log, and where known a reason, progress, last epoch, time left."""

    rule: str
    stage: str
    keys: dict
    state: str
    log: str
    reason: str = ""
    progress: str = ""
    epoch: str = ""
    seconds_left: float | None = None

    @property
    def name(self) -> str:
        return " ".join([self.rule, *(f"{key}={value}" for key, value in self.keys.items())])


@dataclass(frozen=True)
class Status:
    """A study: whether somebody works on it, all of its jobs, and seconds to its end on the processors it was given."""

    record: Record
    busy: bool
    jobs: list[JobStatus]

    @property
    def open(self) -> list[JobStatus]:
        return [job for job in self.jobs if job.state != "done"]

    @property
    def seconds_left(self) -> float:
        """Of the jobs whose time is known: their sum over the jobs at a time, or the longest of them."""
        known = [job.seconds_left for job in self.open if job.seconds_left is not None]
        at_a_time = self.record.cores or max(1, sum(job.state == "running" for job in self.jobs))
        return max([sum(known) / at_a_time, *known])

    @property
    def unknown(self) -> int:
        """Jobs left of whose kind none has ended yet, so that their time is not known."""
        return sum(job.seconds_left is None for job in self.open)

    def counts(self) -> dict[str, Counter]:
        """Jobs by state, stage by stage."""
        found: dict[str, Counter] = {}
        for job in self.jobs:
            found.setdefault(job.stage, Counter())[job.state] += 1
        return found


def stage_of(rule: str) -> str:
    """The stage that a rule belongs to: a working rule's name without its verb; the last rules are the page's."""
    working = COMPACTED.get(rule, rule)
    works = RULES[working].over or working in TIMED
    return "report" if rule in LAST else working.rsplit("_", 1)[0] if works else working


def look(record: Record) -> Status:
    """The state of every job of a study, none of its files changed."""
    with record.here():
        study = record.study
        found = {(rule, job.output): _state(study, rule, job) for rule in RULES for job in study.jobs(rule)}
        _follow(found)
        jobs = []
        for rule in sorted(RULES, key=lambda rule: rule in LAST):
            took = _took(study, rule)
            jobs += [_described(study, rule, job, found[rule, job.output], took) for job in study.jobs(rule)]
        busy = not all(locks.free(study.root / lock) for lock in (locks.STUDY, locks.JOBS))
    return Status(record, busy, jobs)


def _state(study: Study, rule: str, job: Job) -> str:
    mark = marks.read(study.root, job.output)
    if mark.get("state") == "running":
        return "running"
    path = Path(study.path(job.output))
    if path.exists() and stamp(path) == (study.cfg(rule, job.wildcards), study.code(rule, job.wildcards)):
        return "done"
    if mark.get("state") in ("failed", "killed") or not (mark or path.exists() or not _last_line(study, rule, job)):
        return "failed"
    return "stale" if path.exists() else "missing"


def _last_line(study: Study, rule: str, job: Job) -> str:
    """What a job that left neither output nor mark said last: it ended before it could begin."""
    lines = _tail(study.log(rule).format(**job.wildcards)).strip().splitlines()
    return lines[-1] if lines else ""


def _follow(found: dict[tuple[str, str], str]) -> None:
    """What is joined from runs that will be made again will be made again too."""
    for rule, output in found:
        above = [COMPACTED[rule]] if rule in COMPACTED else [other for other in RULES if other != rule] if rule in LAST else []
        waits = any(found[key] != "done" for key in found if key[0] in above and key[0] not in LAST)
        if waits and found[rule, output] == "done":
            found[rule, output] = "stale"


def _took(study: Study, rule: str) -> float | None:
    """Mean seconds of the jobs of a rule that have ended, by whichever settings and code; None where none has or none tells."""
    seconds = [value for job in study.jobs(rule) if (value := _seconds(study, rule, job)) is not None]
    return sum(seconds) / len(seconds) if seconds else None


def _seconds(study: Study, rule: str, job: Job) -> float | None:
    if rule in TIMED:
        try:
            return sum(filter(None, tables.read(Path(study.path(job.output)).parent / "runs.parquet")["seconds"].to_pylist()))
        except (tables.TableError, KeyError):
            return None
    return marks.read(study.root, job.output).get("seconds")


def _described(study: Study, rule: str, job: Job, state: str, took: float | None) -> JobStatus:
    log = str(Path(study.log(rule).format(**job.wildcards)).absolute())
    shown = {"rule": rule, "stage": stage_of(rule), "keys": job.wildcards, "state": state, "log": log}
    if state == "done":
        return JobStatus(**shown)
    mark = marks.read(study.root, job.output)
    if state != "running":
        reason = (mark.get("reason") or _last_line(study, rule, job)) if state == "failed" else ""
        return JobStatus(**shown, reason=reason, seconds_left=took)
    progress, left = _progress(log)
    if left is None and took is not None:
        left = max(0.0, took - (time.time() - mark.get("started", time.time())))
    return JobStatus(**shown, progress=progress, epoch=_epoch(study, job), seconds_left=left)


def _epoch(study: Study, job: Job) -> str:
    """The run of a job that trained last, and what its last epoch came to."""
    *_, (run, lines) = [("", []), *curves.below(Path(study.path(job.output)).parent)]
    return f"{run}: {', '.join(f'{name} {value[:8]}' for name, value in lines[-1].items())}" if lines else ""


def steps(record: Record) -> list[dict]:
    """The curves of all training runs of a study, a row an epoch: job, run, epoch, loss, validation and what else was noted."""
    jobs = [job for rule in TIMED for job in record.study.jobs(rule)]
    return [
        {"job": " ".join([job.rule, *job.wildcards.values()]), "run": run} | line
        for job in jobs
        for run, lines in curves.below((record.root / job.output).parent)
        for line in lines
    ]


def _progress(log: str) -> tuple[str, float | None]:
    """The last line of progress in a log, and the seconds that it expects; empty and None where there is none."""
    said = PROGRESS.findall(_tail(log))
    return (said[-1][0], float(said[-1][1])) if said else ("", None)


def _tail(log: str) -> str:
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
