"""What a study was last started with: its configuration, where and how, kept in its folder for the commands that ask later."""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from continuity import config as configuration
from continuity import locks, tables
from continuity.places import QueryError, changed, find_results, find_study
from continuity.study import Study

FILE = "config.json"


@dataclass(frozen=True)
class Record:
    """A study with where its configuration comes from, the folder it was started in, and its jobs at a time (0: unknown).

    Its paths hold within `here()`, as they were spelled when it was started; `root` holds everywhere.
    """

    study: Study
    source: str
    folder: Path
    cores: int = 0

    @property
    def root(self) -> Path:
        return self.folder / self.study.root

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """Work in the folder that the study was started in, where a user's own modules lie."""
        with contextlib.chdir(self.folder):
            yield


def keep(study: Study, source: Path | str, cores: int) -> None:
    """Write the record of a study that is about to start; not where another run holds it or its folder refuses."""
    kept = {"source": str(source), "folder": os.getcwd(), "cores": cores, "config": study.config}
    with contextlib.suppress(OSError):
        if locks.free(study.root / locks.STUDY):
            with tables.atomic(study.root / FILE) as temporary:
                temporary.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def find(name: str | None = None, results: Path | str | None = None, config: Path | str | None = None) -> Record:
    """The study of configuration `config`; else the study `name` (None: the newest) in `results` (None: looked for).

    Raises a Problem, one line, where there is no such study or it does not say what it was started with.
    """
    if config is not None:
        loaded = configuration.load(config)
        return Record(Study(loaded | {"results": str(results or loaded["results"])}), str(config), Path.cwd())
    results = Path(results) if results else find_results()
    root = _root(results.resolve(), name)
    kept = read(root) or _guess(root)
    settings = configuration.overlay(configuration.read(configuration.DEFAULT), kept["config"]) | {"study": root.name}
    folder = Path(kept["folder"])
    if (folder / settings["results"] / root.name).resolve() != root:
        # The results were moved or copied since.
        folder, settings["results"] = Path.cwd(), str(root.parent)
    try:
        return Record(Study(settings), kept["source"], folder, kept["cores"])
    except configuration.ConfigError as error:
        lines = [f"{kept['source']}: {problem}" for problem in error.problems]
        raise configuration.ConfigError([*lines, "an older version made this study; give --config FILE"]) from None


def _root(results: Path, name: str | None) -> Path:
    """The folder of a study, which need not have tables yet; the newest is the one that was started or changed last."""
    began = {path.parent: path.stat().st_mtime for path in results.glob(f"*/{FILE}")}
    if name is not None:
        return results / name if results / name in began else find_study(results, name)
    try:
        newest = find_study(results)
        began[newest] = max(began.get(newest, 0.0), changed(newest))
    except QueryError:
        if not began:
            raise
    return max(began, key=lambda root: began[root])


def read(root: Path) -> dict | None:
    """What the folder of a study keeps: source, folder, cores, config; None where it keeps nothing."""
    try:
        kept = json.loads((root / FILE).read_text(encoding="utf-8"))
        return {"source": kept["source"], "folder": kept["folder"], "cores": int(kept["cores"]), "config": dict(kept["config"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _guess(root: Path) -> dict:
    """A configuration of the project whose `study` is that folder's name: for studies that Snakemake alone has run."""
    for path in sorted(configuration.DEFAULT.parent.glob("*.yaml")):
        with contextlib.suppress(configuration.ConfigError):
            found = configuration.read(path)
            if found.get("study") == root.name and "$schema" not in found:
                return {"source": str(path), "folder": str(root.parents[1]), "cores": 0, "config": found}
    raise configuration.ConfigError(f"{root}: does not say what it was started with; give --config FILE")
