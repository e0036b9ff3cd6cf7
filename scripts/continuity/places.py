"""Where studies lie: the results folder and the folders in it. Light, for commands that only look."""

import os
from collections.abc import Iterable
from pathlib import Path

from continuity.problems import Problem, nearest


class QueryError(Problem):
    """A question that cannot be answered; the message is one line and says what to do."""


def hint(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, or what there is."""
    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near else f"; there are: {', '.join(sorted(known)[:20])}"


def find_results(start: Path | str | None = None) -> Path:
    """The results folder: CONTINUITY_RESULTS, or the nearest folder `results` at or above `start` (default: here)."""
    if start is None and os.environ.get("CONTINUITY_RESULTS"):
        found = Path(os.environ["CONTINUITY_RESULTS"])
        if not found.is_dir():
            raise QueryError(f"CONTINUITY_RESULTS={found}: no such folder; unset it or name the results folder")
        return found
    start = Path(start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / "results").is_dir():
            return folder / "results"
    raise QueryError(f"no results folder at or above {start}; run `make study` there, or give --results FOLDER")


def changed(study: Path) -> float:
    """When the tables of a study last changed, in seconds since 1970; 0 where it has none."""
    return max((path.stat().st_mtime for path in (study / "tables").glob("*.parquet")), default=0.0)


def find_study(results: Path | str, study: str | None = None) -> Path:
    """The folder of `study` in `results`; None: the study whose tables changed last."""
    results = Path(results)
    if not results.is_dir():
        raise QueryError(f"{results}: no such folder; run `make study`, or give --results FOLDER")
    studies = {folder.name: folder for folder in sorted(results.iterdir()) if (folder / "tables").is_dir()}
    if not studies:
        raise QueryError(f"{results}: holds no study with tables; run `make study` first")
    if study is None:
        return max(studies.values(), key=changed)
    if study not in studies:
        raise QueryError(f"no study {study!r} in {results}{hint(study, studies)}")
    return studies[study]
