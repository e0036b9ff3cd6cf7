"""What a study will take before anything runs: jobs, runs, device hours, memory, disk, and its longest chain. Needs no torch.

A run's time is its cost on a reference core (`costs`) times what runs of its kind took over theirs in earlier studies of the
results folder: of the same rule and kind, else of the rule, else of all; without any the shipped constants stand alone. The
range around it is the wider, the farther that is from the run.
"""

import heapq
import json
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pyarrow.parquet as pq

from continuity import config as configuration
from continuity import costs, record
from continuity.costs import Cost
from continuity.graph import needs
from continuity.sizes import Sizes
from continuity.study import COMPACTED, RULES, TIMED, Job, Study

RULE_OF = {table: rule for table, rule in COMPACTED.items() if rule in TIMED}
RANGES = {"kind": 1.5, "rule": 2.5, "all": 4.0, "shipped": 4.0, "assumed": 10.0}
"""By how far a time is known, the factor that it may be off either way."""
WORDS = {
    "kind": "earlier runs of the same kind",
    "rule": "earlier runs of this rule with another model",
    "all": "earlier runs of other rules",
    "shipped": "shipped constants of another machine",
    "assumed": "extrapolated to a GPU that was never measured",
}

SAFETY = 1.5
"""Memory that a job asks for, over its estimate."""
LEAST_MB, LEAST_MINUTES = 1000, 15


@dataclass(frozen=True)
class Speed:
    """Seconds over the reference's, and how that is known (a key of RANGES)."""

    ratio: float
    known: str


@dataclass
class Speeds:
    """What earlier runs on a kind of device took against the reference, by rule and kind."""

    device: str
    measured: dict = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0]))
    studies: list = field(default_factory=list)

    def add(self, rule: str, kind: str, seconds: float, expected: float) -> None:
        for place in ((rule, kind), (rule,), ()):
            total = self.measured[place]
            total[0] += seconds
            total[1] += expected

    def of(self, rule: str, kind: str) -> Speed:
        """The speed of the nearest runs. On a GPU, runs of other rules tell nothing: most of those ran on a core."""
        places = {"kind": (rule, kind), "rule": (rule,)} | ({"all": ()} if self.device == "cpu" else {})
        for known, place in places.items():
            seconds, expected = self.measured.get(place, (0.0, 0.0))
            if expected > 0 and seconds > 0:
                return Speed(seconds / expected, known)
        return Speed(1.0, "shipped" if self.device == "cpu" else "assumed")


def speeds(results: Path | str, device: str) -> Speeds:
    """The speeds of all finished studies in a results folder, on `device` (cpu or cuda)."""
    found = Speeds(device)
    for path in sorted(Path(results).glob("*/tables/runs.parquet")):
        kept = record.read(path.parents[1])
        if kept is None:
            continue
        try:
            lines = pq.read_table(path, columns=["table", "seconds", "device", "cfg"], partitioning=None).to_pylist()
        except (OSError, ValueError):
            continue
        sizes = Sizes(configuration.overlay(configuration.read(configuration.DEFAULT), kept["config"]))
        counted = [_learn(found, line, sizes) for line in lines]
        found.studies += [path.parents[1].name] if any(counted) else []
    return found


def _learn(found: Speeds, line: dict, sizes: Sizes) -> bool:
    """Add a line of a runs table; one of another device or version tells nothing."""
    rule = RULE_OF.get(line["table"])
    if rule is None or not line["seconds"] or (line["device"] or "").partition(":")[0] != found.device:
        return False
    try:
        cfg = json.loads(line["cfg"])
        found.add(rule, costs.kind(rule, cfg), line["seconds"], costs.cost(rule, cfg, sizes).seconds(found.device))
    except (KeyError, ValueError, TypeError, StopIteration):
        return False
    return True


@dataclass(frozen=True)
class Estimate:
    """One job: its runs, its seconds with the factor either way, its device, memory and what it leaves on disk."""

    job: Job
    runs: int
    seconds: float
    factor: float
    known: str
    device: str
    memory: float
    device_memory: float
    disk: dict

    @property
    def slowest(self) -> float:
        return self.seconds * self.factor


class Planner:
    """Estimates of the jobs of a study. `device`: where its training runs, cpu or cuda; `known`: speeds by device."""

    def __init__(self, study: Study, device: str, known: dict[str, Speeds]):
        self.study, self.device, self.speeds, self.sizes = study, device, known, Sizes(study.config)
        self._asked: dict = {}

    def estimate(self, job: Job) -> Estimate:
        """What one job takes."""
        cfg = RULES[job.rule].slice(self.study, job.wildcards)
        device = self.device if costs.trains(cfg) else "cpu"
        cells = costs.runs(job.rule, cfg)
        prices = [costs.cost(job.rule, cell, self.sizes) for cell in cells]
        timed = [self.speeds[device].of(job.rule, costs.kind(job.rule, cell)) for cell in cells]
        if job.rule not in TIMED:
            timed = [Speed(1.0, "shipped")] * len(cells)
        seconds = costs.constants()["jobs"]["start"]
        seconds += sum(price.seconds(device) * speed.ratio for price, speed in zip(prices, timed, strict=True))
        known = max((speed.known for speed in timed), key=RANGES.get)
        factor = RANGES[known] if all(price.known for price in prices) else max(10.0, RANGES[known])
        return Estimate(job, len(cells) if job.rule in TIMED else 0, seconds, factor, known, device,
                        *_memory(prices, device, "device" in cfg), self._disk(job, cfg, prices))  # fmt: skip

    def memory_mb(self, rule: str, keys: dict, attempt: int) -> int:
        """MB to ask for: the estimate with a margin, at most `resources.memory_mb` at first, doubled with each retry."""
        asked = math.ceil(SAFETY * self._of(rule, keys).memory / 1e8) * 100
        return min(self.study.config["resources"]["memory_mb"], max(LEAST_MB, asked)) * 2 ** (attempt - 1)

    def minutes(self, rule: str, keys: dict, attempt: int) -> int:
        """Minutes to ask for: the slow end of the estimate, at most `resources.minutes` at first, doubled with each retry."""
        asked = math.ceil(self._of(rule, keys).slowest / 60)
        return min(self.study.config["resources"]["minutes"], max(LEAST_MINUTES, asked)) * 2 ** (attempt - 1)

    def _of(self, rule: str, keys: dict) -> Estimate:
        output = RULES[rule].output.format(**keys)
        if output not in self._asked:
            self._asked[output] = self.estimate(Job(rule, keys, output))
        return self._asked[output]

    def _disk(self, job: Job, cfg: dict, prices: list[Cost]) -> dict:
        """Bytes that a job leaves in data/ and tables/, and of its largest checkpoint while it runs."""
        price, found = costs.constants()["bytes"], {"data": 0.0, "tables": 0.0, "checkpoints": 0.0}
        if job.rule == "systems_simulate":
            channels = 1 if cfg["system"] == "ou" else 2
            found["data"] = price["value"] * sum(cfg["n"].values()) * cfg["length"] * channels
        elif job.rule == "tasks_make":
            amount = self.sizes.task(cfg["task"]["name"])
            found["data"] = price["task_value"] * amount.total * amount.length * amount.channels
        elif job.rule == "latents_encode":
            amount = self.sizes.task(cfg["task"])
            raw = amount.vocabulary * 0.1 or amount.channels
            width = raw if cfg["encoder"] == "raw" else costs.embedded(self.study.config["benchmark"]["network"])
            # An embedding repeats its few vectors and packs well; states do not.
            packed = price["value" if "@" in cfg["encoder"] else "embedded"]
            found["data"] = packed * min(cfg["sequences"], amount.n["test"]) * amount.length * width
        if job.rule in TIMED:
            found["tables"] = price["run"] * (len(prices) + 1)
            found["checkpoints"] = max(cost.checkpoint for cost in prices)
        if job.rule == "benchmark_run":
            found["data"] = prices[0].checkpoint / 4
            found["tables"] += sum(cost.checkpoint for cost in prices) / 4
        return found

    @cached_property
    def jobs(self) -> list[Estimate]:
        return [self.estimate(job) for rule in RULES for job in self.study.jobs(rule)]


def _memory(prices: list[Cost], device: str, torch: bool) -> tuple[float, float]:
    """Largest bytes of memory on the host and on a GPU; on a core everything is on the host."""
    process = costs.constants()["bytes"]["process" if torch else "light"]
    host, own = max(price.host_bytes for price in prices), max(price.device_bytes for price in prices)
    return (process + host, own) if device == "cuda" else (process + host + own, 0.0)


# ---------------------------------------------------------------- the whole


@dataclass
class Plan:
    """The estimates of a study's jobs and what follows from them."""

    study: Study
    device: str
    jobs: list[Estimate]
    speeds: dict[str, Speeds]

    @cached_property
    def chain(self) -> list[Estimate]:
        """The longest chain of jobs, each waiting for the one before it."""
        best: dict = {}
        for name in self._order:
            before = max((best[above] for above in self._above[name]), key=lambda found: found[0], default=(0.0, ()))
            best[name] = (before[0] + self._named[name].seconds, (*before[1], name))
        return [self._named[name] for name in max(best.values(), key=lambda found: found[0])[1]]

    @property
    def chain_seconds(self) -> float:
        return sum(estimate.seconds for estimate in self.chain)

    def wall(self, slots: int) -> float:
        """Seconds from start to end where `slots` jobs run at a time, those with the longest chain behind them first."""
        behind = self._behind
        waiting = {name: len(self._above[name]) for name in self._order}
        ready = [(-behind[name], name) for name in self._order if not waiting[name]]
        heapq.heapify(ready)
        running, now = [], 0.0
        while ready or running:
            while ready and len(running) < slots:
                name = heapq.heappop(ready)[1]
                heapq.heappush(running, (now + self._named[name].seconds, name))
            now, done = heapq.heappop(running)
            for name in self._below[done]:
                waiting[name] -= 1
                if not waiting[name]:
                    heapq.heappush(ready, (-behind[name], name))
        return now

    def hours(self, device: str) -> tuple[float, float, float]:
        """Device hours of all jobs on `device`: expected, and with every factor one way and the other."""
        return total(estimate for estimate in self.jobs if estimate.device == device)

    @cached_property
    def _named(self) -> dict:
        return {(estimate.job.rule, estimate.job.output): estimate for estimate in self.jobs}

    @cached_property
    def _above(self) -> dict:
        return {name: needs(self.study, estimate.job) for name, estimate in self._named.items()}

    @cached_property
    def _below(self) -> dict:
        found = {name: [] for name in self._named}
        for name, above in self._above.items():
            for other in above:
                found[other].append(name)
        return found

    @cached_property
    def _order(self) -> list:
        """Every job after those that it waits for."""
        waiting = {name: len(above) for name, above in self._above.items()}
        found = [name for name, count in waiting.items() if not count]
        for done in found:
            for name in self._below[done]:
                waiting[name] -= 1
                if not waiting[name]:
                    found.append(name)
        return found

    @cached_property
    def _behind(self) -> dict:
        found: dict = {}
        for name in reversed(self._order):
            found[name] = self._named[name].seconds + max((found[below] for below in self._below[name]), default=0.0)
        return found


def total(estimates: Iterable[Estimate]) -> tuple[float, float, float]:
    """Hours of jobs: expected, least and most."""
    estimates = list(estimates)
    expected = sum(one.seconds for one in estimates)
    least = sum(one.seconds / one.factor for one in estimates)
    return expected / 3600, least / 3600, sum(one.slowest for one in estimates) / 3600


def device_of(setting: str) -> str:
    """Where `resources.device` will train: `auto` is a GPU where this machine has one."""
    return "cuda" if setting == "cuda" or setting == "auto" and Path("/proc/driver/nvidia/version").exists() else "cpu"


def planner_of(study: Study, device: str, results: Path | str | None = None) -> Planner:
    """A planner that has learned from the studies in `results`, by default the folder of the study's own."""
    return Planner(study, device, {name: speeds(results or study.config["results"], name) for name in {"cpu", device}})


def plan(study: Study, device: str | None = None, results: Path | str | None = None) -> Plan:
    """The plan of a study; `device` and `results` (a folder of earlier studies) in place of the configuration's."""
    planner = planner_of(study, device or device_of(study.config["resources"]["device"]), results)
    return Plan(study, planner.device, planner.jobs, planner.speeds)
