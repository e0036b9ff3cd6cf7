"""What lies in a study's folder that the study no longer names: listed with sizes, removed on request.

Only what has the shape of a result is looked at: run folders of result tables, their checkpoints, outputs with a name in
their path, logs and marks. Anything else, and every output that the study declares, is left alone.
"""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from continuity import locks, marks, tables
from continuity.problems import Problem
from continuity.record import Record
from continuity.study import COMPACTED, RULES, Study, stamp

PARTS = re.compile(r"\..*\.part|\.probe-\d+")
"""Names of files that an interrupted write leaves."""


@dataclass(frozen=True)
class Leftover:
    """A file or folder that can go: its path, what it is, and its bytes."""

    path: Path
    what: str
    bytes: int


def find(record: Record) -> list[Leftover]:
    """Everything that can go, in the order of its path; a Problem where the study is at work."""
    _refuse_while_at_work(record.root)
    with record.here():
        found = {path.absolute(): what for path, what in _leftovers(record.study)}
    outermost = [path for path in found if not any(parent in found for parent in path.parents)]
    return [Leftover(path, found[path], _size(path)) for path in sorted(outermost)]


def remove(record: Record) -> list[Leftover]:
    """Remove what `find` lists, with the study locked meanwhile, and return it."""
    root = record.root.resolve()
    found = find(record)
    if found and not locks.hold(root / locks.STUDY):
        raise Problem(f"{root}: a run of this study has just begun; wait for it or stop it")
    for leftover in found:
        if not leftover.path.parent.resolve().is_relative_to(root):
            raise Problem(f"{leftover.path}: lies outside {root}; nothing outside a study is removed")
        if leftover.path.is_dir() and not leftover.path.is_symlink():
            shutil.rmtree(leftover.path)
        else:
            leftover.path.unlink(missing_ok=True)
    return found


def _refuse_while_at_work(root: Path) -> None:
    if not all(locks.free(root / lock) for lock in (locks.STUDY, locks.JOBS)):
        raise Problem(f"{root}: a run of this study is going on; wait for it or stop it")


def _leftovers(study: Study) -> Iterator[tuple[Path, str]]:
    yield from _run_folders(study)
    yield from _tables(study)
    yield from _named(study)
    for path in _files(study.root):
        if PARTS.fullmatch(path.name):
            yield path, "left by an interrupted write"
        elif path.name.endswith(".identity") and not path.with_name(path.name.removesuffix(".identity")).exists():
            yield path, "identity of a file that is gone"


def _files(folder: Path) -> Iterator[Path]:
    """Every file below `folder`, links to folders not followed."""
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names)


# ---------------------------------------------------------------- result tables


def _run_folders(study: Study) -> Iterator[tuple[Path, str]]:
    """Folders of jobs that are no longer named, and within named ones, runs and checkpoints that are not."""
    base = study.root / "tables"
    kept = {Path(path).parent for table in COMPACTED for path in study.run_files(table)}
    kept |= {Path(path).parent for rule in RULES for path in study.outputs(rule)} - {base}
    above = {parent for folder in kept for parent in folder.parents}
    # A table that has a schema but is joined from no runs: whoever writes it knows what lies in its folder.
    waiting = [folder for folder in _folders(base) if folder.name in COMPACTED or folder.name not in tables.TABLES]
    while waiting:
        folder = waiting.pop()
        if folder in above:
            waiting += _folders(folder)
        elif folder not in kept:
            yield folder, "runs that the study no longer names"
    for rule in dict.fromkeys(COMPACTED.values()):
        for job in study.jobs(rule):
            path = Path(study.path(job.output))
            done = path.exists() and stamp(path) == (study.cfg(rule, job.wildcards), study.code(rule, job.wildcards))
            yield from _finished(path.parent) if done else _unfinished(path.parent)


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []


def _finished(folder: Path) -> Iterator[tuple[Path, str]]:
    """In the folder of a finished job: runs that its list of runs does not hold, and all checkpoints."""
    try:
        lines = tables.read(folder / "runs.parquet").to_pylist()
    except tables.TableError:
        return
    named = {(line["cfg"], line["code"]) for line in lines}
    for path in sorted(folder.glob("*/**/run.parquet")):
        found = tables.metadata(path)
        if (found.get("cfg"), found.get("code")) not in named:
            yield path.parent, "a run that its job no longer names"
    for path in folder.glob("*/**/checkpoint-*.pt"):
        yield path, "checkpoint of a finished run"


def _unfinished(folder: Path) -> Iterator[tuple[Path, str]]:
    """In the folder of a job that is still to be done: all checkpoints of a run but the newest, which it may go on from.

    A run that trains at several rates has one for each: checkpoint-IDENTITY-NUMBER.pt.
    """
    places = {path.parent for path in folder.glob("*/**/checkpoint-*.pt")}
    for place in places:
        by_age = sorted(place.glob("checkpoint-*.pt"), key=lambda path: path.stat().st_mtime)
        kept = _identity_of(by_age[-1])
        yield from ((path, "checkpoint of a run with other settings or code") for path in by_age if _identity_of(path) != kept)


def _identity_of(checkpoint: Path) -> str:
    return checkpoint.stem.split("-")[1]


def _tables(study: Study) -> Iterator[tuple[Path, str]]:
    """Joined tables that no rule makes any more."""
    declared = {Path(study.output(rule)) for rule in RULES}
    for path in (study.root / "tables").glob("*.parquet"):
        if path not in declared:
            yield path, "a table that the study no longer makes"


# ---------------------------------------------------------------- outputs with a name in their path


def _named(study: Study) -> Iterator[tuple[Path, str]]:
    """Data, trained encoders, logs and marks that have the shape of an output with a name that the study no longer has."""
    shapes = [(study.sequences, "tasks_make"), (study.weights, "benchmark_run")]
    shapes += [(study.path(entry.output), rule) for rule, entry in RULES.items() if entry.output.startswith("data/")]
    shapes += [(study.log(rule), rule) for rule in RULES]
    shapes += [(str(marks.path(study.root, entry.output)), rule) for rule, entry in RULES.items()]
    for pattern, rule in shapes:
        declared = {Path(pattern.format(**job.wildcards)) for job in study.jobs(rule)}
        shape = re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(pattern)))
        for path in _files(_fixed(pattern)):
            if shape.fullmatch(str(path)) and path not in declared:
                yield path, "of a name that the study no longer has"


def _fixed(pattern: str) -> Path:
    """The deepest folder of a pattern without a wildcard in its path."""
    parts = Path(pattern).parts[:-1]
    first = next((i for i, part in enumerate(parts) if "{" in part), len(parts))
    return Path(*parts[:first])


def _size(path: Path) -> int:
    if path.is_symlink() or path.is_file():
        return path.lstat().st_size
    return sum(inner.lstat().st_size for inner in _files(path))
