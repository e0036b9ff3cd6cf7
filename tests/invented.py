"""A study's folder whose every output carries the right identity and nothing else: made in a second, for commands that look."""

from pathlib import Path

from continuity import config, record, tables
from continuity.identity import canonical
from continuity.study import RULES, TIMED, Study
from project import ROOT

TINY = ROOT / "config" / "tiny.yaml"
SECONDS = 4.0


def settings(results: Path, **changes) -> dict:
    """The tiny study's configuration, its results in `results`, with sections changed."""
    return config.overlay(config.load(TINY), {"results": str(results)} | changes)


def make(results: Path, cores: int = 2, **changes) -> Study:
    """A study all of whose jobs are done; each job of many runs holds one run that took SECONDS."""
    study = Study(settings(results, **changes))
    record.keep(study, "mine.yaml", cores)
    for rule in RULES:
        for job in study.jobs(rule):
            finish(study, job)
    return study


def finish(study: Study, job) -> None:
    """Write the output of a job as done by today's settings and code, beside it its one run."""
    cfg, code = study.cfg(job.rule, job.wildcards), study.code(job.rule, job.wildcards)
    path, stamp = Path(study.path(job.output)), {"cfg": cfg, "code": code}
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix != ".parquet":
        path.write_text("made")
        tables.write_stamp(path, cfg, code)
        return
    tables.write("score", [], path, stamp)
    if job.rule in TIMED:
        tables.write("runs", [run(path.parent, {"seed": 0}, code)], path.parent / "runs.parquet", stamp)


def run(folder: Path, keys: dict, code: str) -> dict:
    """A finished run in a folder of its own, and its line of the runs table."""
    name = "_".join(f"{key}={value}" for key, value in keys.items())
    line = {"table": "score", "key": name, "run": name, "seconds": SECONDS, "cfg": canonical(keys), "code": code}
    stamp = {"cfg": line["cfg"], "code": code}
    tables.write("runs", [line], folder / name / "times.parquet", stamp)
    tables.write("score", [], folder / name / "run.parquet", stamp)
    return line
