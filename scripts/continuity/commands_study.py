"""Commands about a whole study: `continuity status`, `report` and `clean`."""

import argparse
import csv
import json
import os
import sys
from pathlib import Path

from continuity.places import QueryError, find_results, find_study
from continuity.problems import Problem

MOST = 20
"""Jobs of one kind that status lists."""


def register(commands) -> None:
    """Add the commands to an argparse subparsers object."""
    status = commands.add_parser("status", help="what a study has done, what runs now, what failed and why, and time left")
    _of_a_study(status)
    status.add_argument("--json", action="store_true", help="print everything as JSON")
    status.add_argument("--curves", action="store_true", help="print the training curves so far as CSV, a row an epoch")
    status.add_argument("--tensorboard", metavar="FOLDER", help="write the training curves so far as TensorBoard events")
    status.set_defaults(work=_status)
    clean = commands.add_parser("clean", help="list what a study no longer names: dead runs, checkpoints, tables")
    _of_a_study(clean)
    clean.add_argument("--remove", action="store_true", help="remove what is listed")
    clean.set_defaults(work=_clean)
    report = commands.add_parser("report", help="write the page of a study, with another study beside it")
    report.add_argument("--study", help="name of a study; default: the newest")
    report.add_argument("--against", metavar="STUDY", help="a second study, shown beside the first, verdict by verdict")
    report.add_argument("--results", help="results folder; default: CONTINUITY_RESULTS, or the nearest one above")
    report.add_argument("--output", metavar="FILE", help="default: report-STUDY.html or report-STUDY-against-STUDY.html, here")
    report.set_defaults(work=_report)


def _of_a_study(command: argparse.ArgumentParser) -> None:
    command.add_argument("--study", help="name of a study; default: the newest")
    command.add_argument("--results", help="results folder; default: CONTINUITY_RESULTS, or the nearest one above")
    command.add_argument("--config", metavar="FILE", help="configuration to judge by; default: what the study was started with")


def _status(arguments: argparse.Namespace) -> None:
    from continuity import status

    kept = _record(arguments)
    if arguments.curves:
        rows = status.steps(kept)
        names = dict.fromkeys(name for row in rows for name in row) or ("job", "run", "epoch", "loss", "validation")
        writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return
    if arguments.tensorboard:
        print(f"{arguments.tensorboard}: {_events(status.steps(kept), Path(arguments.tensorboard))} runs")
        return
    found = status.look(kept)
    print(json.dumps(_plain(found), indent=1) if arguments.json else render_status(found))


def _events(rows: list[dict], folder: Path) -> int:
    """Write the curves as TensorBoard events, a subfolder of `folder` a run, and return the number of runs."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise Problem("--tensorboard needs the package tensorboard: .venv/bin/pip install tensorboard") from None
    runs = {}
    for row in rows:
        runs.setdefault((row["job"], row["run"]), []).append(row)
    for (job, run), lines in runs.items():
        with SummaryWriter(str(folder.joinpath(*job.split(), *run.split()))) as writer:
            for line in lines:
                for name in line.keys() - {"job", "run", "epoch"}:
                    if line[name] not in (None, ""):
                        writer.add_scalar(name, float(line[name]), int(line["epoch"]))
    return len(runs)


def _record(arguments: argparse.Namespace):
    """The study that is asked for; where nothing was started yet, the default configuration's."""
    from continuity import config, record

    try:
        return record.find(arguments.study, arguments.results, arguments.config)
    except QueryError:
        if arguments.study or arguments.results or not config.DEFAULT.is_file():
            raise
        print(f"nothing was started here; this is what {_near(config.DEFAULT)} names", file=sys.stderr)
        return record.find(config=config.DEFAULT)


def _clean(arguments: argparse.Namespace) -> None:
    from continuity import clean, record

    kept = record.find(arguments.study, arguments.results, arguments.config)
    found = clean.remove(kept) if arguments.remove else clean.find(kept)
    root = kept.root
    for leftover in found:
        print(f"{_bytes(leftover.bytes):>9}  {leftover.path.relative_to(root)}: {leftover.what}")
    total = f"{len(found)} leftover{'s' * (len(found) != 1)}, {_bytes(sum(leftover.bytes for leftover in found))}"
    if not found:
        print(f"{_near(root)}: nothing that the study does not name (by {kept.source})")
    elif arguments.remove:
        print(f"{_near(root)}: removed {total}")
    else:
        print(f"{_near(root)}: {total} (by {kept.source}); --remove removes them")


def _report(arguments: argparse.Namespace) -> None:
    from continuity import report, tables

    results = Path(arguments.results) if arguments.results else find_results()
    study = find_study(results, arguments.study)
    other = find_study(results, arguments.against) if arguments.against else None
    if other == study:
        raise Problem(f"--against {arguments.against}: that is the same study; name another")
    name = f"report-{study.name}-against-{other.name}.html" if other else f"report-{study.name}.html"
    out = Path(arguments.output or name)
    if out.resolve() in {folder.resolve() / "report.html" for folder in filter(None, (study, other))}:
        raise Problem(f"{out}: is the page that `make study` keeps; choose another --output")
    settings = settings_of(study)
    try:
        report.render(study / "tables", study / "figures", settings, out, json.dumps(settings), "by-hand",
                      (other.name, other) if other else None)  # fmt: skip
    except OSError as error:
        raise Problem(tables.explain(error, out)) from None
    print(f"{out}: {_bytes(out.stat().st_size)}")


def settings_of(study: Path) -> dict:
    """The settings that the page of a study was made with, or that it was started with; else its name."""
    from continuity import record, tables

    try:
        return dict(json.loads(tables.read_stamp(study / "report.html")[0]))
    except ValueError:
        started = record.read(study)
        return ({} if started is None else started["config"]) | {"study": study.name}


def _bytes(count: int) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _plain(found) -> dict:
    """A status as JSON: the study, its stages, and every job that is not done."""
    record = found.record
    return {
        "study": record.study.config["study"],
        "root": str(record.root),
        "config": record.source,
        "busy": found.busy,
        "seconds_left": round(found.seconds_left, 1),
        "jobs_of_unknown_length": found.unknown,
        "stages": {stage: dict(counts) for stage, counts in found.counts().items()},
        "jobs": [vars(job) for job in found.open],
    }


def render_status(found) -> str:
    """A status in words: one line on the whole, a line a stage, then what runs and what failed."""
    from continuity.status import STATES

    lines = [f"study {found.record.root.name} in {_near(found.record.root)}, from {found.record.source}", _summary(found), ""]
    lines.append(f"{'stage':<14}{'jobs':>7}" + "".join(f"{state:>9}" for state in STATES))
    for stage, counts in found.counts().items():
        cells = "".join(f"{counts[state] or '·':>9}" for state in STATES)
        lines.append(f"{stage:<14}{sum(counts.values()):>7}{cells}")
    for state in ("running", "failed"):
        jobs = [job for job in found.open if job.state == state]
        lines += ["", state] if jobs else []
        for job in jobs[:MOST]:
            lines += _told(job)
        lines += [f"  and {len(jobs) - MOST} more; --json lists all"] if len(jobs) > MOST else []
    return "\n".join(lines)


def _summary(found) -> str:
    jobs = len(found.open)
    if not jobs:
        return "complete" + (", and yet somebody works on it" if found.busy else "")
    left = f"about {_spell(found.seconds_left)} left"
    if found.unknown == jobs:
        left = "time left unknown: no job of its kind has ended"
    elif found.unknown:
        left += f", not counting {found.unknown} of kinds that have not ended yet"
    return f"{'working now' if found.busy else 'nobody works on it'}; {jobs} of {len(found.jobs)} jobs to do, {left}"


def _told(job) -> list[str]:
    left = "" if job.seconds_left is None else f"about {_spell(job.seconds_left)} left"
    said = job.reason or ", ".join(filter(None, [job.progress, left])) or "at work"
    lines = [f"  {job.name}: {said}", *([f"    {job.epoch}"] if job.epoch else [])]
    return [*lines, *([f"    log: {_near(job.log)}"] if job.state == "failed" else [])]


def _spell(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _near(path: Path | str) -> str:
    """A path as seen from here, where that is shorter."""
    path = str(path)
    return min(path, os.path.relpath(path), key=len)
