"""The curve of a training run, epoch by epoch, in a small file beside its checkpoint: a table that can be read as it grows."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from continuity import tables

FILE = "curve.csv"


def write(checkpoint: Path | None, history: Sequence[dict]) -> None:
    """Write what a run has come to so far, a line an epoch, beside its checkpoint; nothing where it keeps no checkpoint.

    history: what `Trainer` notes of each epoch: epoch, loss, validation, and what else it measures. The file is written whole
    each time, so that a run that was stopped and goes on has no epoch twice.
    """
    if checkpoint is None or not history:
        return
    names = list(dict.fromkeys(name for line in history for name in line))
    with tables.atomic(checkpoint.with_name(FILE)) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(history)


def read(path: Path) -> list[dict]:
    """The lines of a curve as text, oldest first; empty where there is none."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except OSError:
        return []


def below(folder: Path) -> Iterator[tuple[str, list[dict]]]:
    """(run, lines) of every run in a job's folder that has a curve, the one that grew last at the end."""
    for path in sorted(folder.rglob(FILE), key=lambda path: path.stat().st_mtime):
        yield path.parent.relative_to(folder).as_posix().replace("/", " "), read(path)
