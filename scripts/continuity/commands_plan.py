"""The command `continuity plan`: what a configuration will take before anything runs."""

import argparse
import json
import os
from collections.abc import Sequence

from continuity.problems import Problem

SLOTS = (1, 2, 8, 64)
"""Jobs at a time of which the duration is told, where none is asked for."""

RANGE = ("expected", "least", "most")


def register(commands) -> None:
    """Add the command to an argparse subparsers object."""
    plan = commands.add_parser("plan", help="jobs, device hours, memory, disk of a study, before anything runs")
    plan.add_argument("config", metavar="CONFIG", help="a configuration, laid onto config/config.yaml")
    plan.add_argument("--json", action="store_true", help="print everything as JSON, job by job")
    plan.add_argument("--results", metavar="DIR", help="folder of earlier studies to learn speeds from; default: the CONFIG's")
    plan.add_argument("--device", choices=("cpu", "cuda"), help="where training runs; default: the CONFIG's resources.device")
    plan.add_argument("--slots", type=int, metavar="N", help="jobs at a time; default: several numbers")
    plan.set_defaults(work=_plan)


def _plan(arguments: argparse.Namespace) -> None:
    from continuity import config, planner
    from continuity.study import Study

    if arguments.slots is not None and arguments.slots < 1:
        raise Problem(f"--slots {arguments.slots}: give a number of jobs from 1")
    if arguments.results and not os.path.isdir(arguments.results):
        raise Problem(f"{arguments.results}: no such folder; --results names one that holds studies")
    study = Study(config.load(arguments.config))
    study.check()
    found = planner.plan(study, arguments.device, arguments.results)
    slots = (arguments.slots,) if arguments.slots else SLOTS
    print(json.dumps(as_json(found, slots), indent=1) if arguments.json else render(found, slots))


def by_rule(found) -> dict[str, list]:
    """The estimates of each rule that does work, in the study's order; those that join, judge and show together."""
    from continuity.planner import TIMED

    rules: dict[str, list] = {}
    for estimate in found.jobs:
        rule = estimate.job.rule
        rules.setdefault(rule if rule in TIMED or estimate.job.wildcards else "tables and page", []).append(estimate)
    return rules


def as_json(found, slots: Sequence[int]) -> dict:
    """A plan with every job; seconds with the factor that they may be off either way."""
    return {
        "study": found.study.config["study"],
        "device": found.device,
        "learned_from": {device: speeds.studies for device, speeds in found.speeds.items()},
        "hours": {device: dict(zip(RANGE, found.hours(device), strict=True)) for device in found.speeds},
        "chain_seconds": round(found.chain_seconds),
        "chain": [_named(estimate) for estimate in found.chain],
        "wall_seconds": {str(count): round(found.wall(count)) for count in slots},
        "disk_bytes": {where: round(sum(one.disk[where] for one in found.jobs)) for where in ("data", "tables")},
        "jobs": [
            {"rule": one.job.rule, "keys": one.job.wildcards, "runs": one.runs, "seconds": round(one.seconds, 1),
             "factor": one.factor, "known": one.known, "device": one.device, "memory_mb": round(one.memory / 1e6),
             "device_memory_mb": round(one.device_memory / 1e6), "disk_bytes": {k: round(v) for k, v in one.disk.items()}}
            for one in found.jobs
        ],
    }  # fmt: skip


def render(found, slots: Sequence[int]) -> str:
    """A plan in words: a line a rule, the whole, its longest chain, and where the numbers come from."""
    from continuity.planner import WORDS, total

    rules = by_rule(found)
    heads = ("memory", "GPU memory", "data", "tables")
    lines = [f"{'rule':<20}{'jobs':>6}{'runs':>7}  {'device':<6}{'hours':>26}" + "".join(f"{head:>12}" for head in heads)]
    for rule, jobs in rules.items():
        data, tables = (_bytes(sum(one.disk[where] for one in jobs)) for where in ("data", "tables"))
        gpu = _bytes(max(one.device_memory for one in jobs))
        device = "GPU" if any(one.device == "cuda" for one in jobs) else "core"
        lines.append(
            f"{rule:<20}{len(jobs):>6}{sum(one.runs for one in jobs) or '·':>7}  {device:<6}{_hours(total(jobs)):>26}"
            f"{_bytes(max(one.memory for one in jobs)):>12}{gpu:>12}{data:>12}{tables:>12}"
        )
    lines += ["", *_whole(found, slots), "", *_sources(found, rules, WORDS)]
    return "\n".join(lines)


def _whole(found, slots: Sequence[int]) -> list[str]:
    lines = [f"{len(found.jobs)} jobs, {sum(one.runs for one in found.jobs)} runs"]
    for device, word in (("cuda", "GPU"), ("cpu", "core")):
        if any(one.device == device for one in found.jobs):
            lines.append(f"{word} hours: {_hours(found.hours(device))}")
    lines.append("from start to end: " + ", ".join(f"{_time(found.wall(count))} with {count} at a time" for count in slots))
    lines.append(f"longest chain: {_time(found.chain_seconds)}: " + ", then ".join(_named(one) for one in found.chain[:-1]))
    sums = {where: sum(one.disk[where] for one in found.jobs) for where in ("data", "tables")}
    largest = max(found.jobs, key=lambda one: one.disk["checkpoints"])
    lines.append(
        f"disk: {_bytes(sums['data'])} of data, {_bytes(sums['tables'])} of tables and runs, and while a job runs at most "
        f"{_bytes(largest.disk['checkpoints'])} of checkpoint"
    )
    return lines


def _sources(found, rules: dict, words: dict) -> list[str]:
    """Where the times come from, and what they leave out."""
    by_source: dict[str, set] = {}
    for rule, jobs in rules.items():
        for one in jobs:
            by_source.setdefault(one.known, set()).add(rule)
    learned = sorted({name for speeds in found.speeds.values() for name in speeds.studies})
    lines = [f"speeds learned from: {', '.join(learned) or 'nothing, no earlier study is here'}"]
    lines += [f"  {words[known]}: {', '.join(sorted(by_source[known]))}" for known in words if known in by_source]
    if found.device == "cpu" and found.study.config["resources"]["device"] == "auto":
        lines.append("device auto: planned for cores, as no GPU is here; --device cuda plans for GPUs")
    return [*lines, "not counted: downloads, waiting in a queue, other work on the machine"]


def _named(estimate) -> str:
    return " ".join([estimate.job.rule, *estimate.job.wildcards.values()])


def _hours(found: tuple[float, float, float]) -> str:
    expected, least, most = (_two(hours) for hours in found)
    return f"{expected} ({least} to {most})"


def _two(number: float) -> str:
    """A number with two digits that mean something."""
    return f"{float(f'{number:.1e}'):,.0f}" if number >= 10 else f"{number:.1g}" if number < 1 else f"{number:.1f}"


def _time(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{_two(seconds / size)} {unit}"
    return f"{seconds:.0f} s"


def _bytes(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{_two(count / size)} {unit}"
    return "·"
