"""How many sequences of what length a configuration asks for, before any of them is made. Needs no torch."""

import csv
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from continuity.config import kind_of

SPLITS = ("train", "validation", "test")
TASKS = {
    "smnist": ((4000, 500, 500), 784),
    "listops": ((96_000, 2000, 2000), 2000),
    "pathfinder": ((160_000, 20_000, 20_000), 32**2),
    "pathx": ((160_000, 20_000, 20_000), 128**2),
    "text": ((22_500, 2500, 25_000), 4096),
    "retrieval": ((147_086, 18_090, 17_437), 8001),
    "image": ((45_000, 5000, 10_000), 1024),
    "speech": ((73_500, 15_750, 15_750), 16_000),
}
"""Sequences by split and steps of the longest, where a task's entry does not say."""
VOCABULARY = {"listops": 16, "text": 257, "retrieval": 258}
"""Symbols of the tasks that have any; their sequences differ in length."""
SERIES = {
    "vic_elec": (52_608, 2),
    "ETTh1": (17_420, 7),
    "ETTh2": (17_420, 7),
    "ETTm1": (69_680, 7),
    "ETTm2": (69_680, 7),
    "weather": (52_696, 21),
    "electricity": (26_304, 321),
    "traffic": (17_544, 862),
}
"""Rows and channels of known forecasting sets."""
MONTHS = (0.496, 0.165, 0.165)
"""12, 4 and 4 months of the 24 that the ETT sets have."""
SHARES = (0.7, 0.1, 0.2)
CHANNELS = {"ou": 1}
UNKNOWN = (1000, 1000)
"""Sequences and steps of a file whose size says nothing."""


@dataclass(frozen=True)
class Amount:
    """Sequences by split, steps of the longest, values a step; `known` unless guessed from the size of a file."""

    n: dict
    length: int
    channels: int = 1
    vocabulary: int = 0
    known: bool = True

    @property
    def total(self) -> int:
        return sum(self.n.values())


@dataclass
class Sizes:
    """The sizes of one configuration."""

    config: dict

    def task(self, name: str) -> Amount:
        """Sequences of a labelled task."""
        entry = next(task for task in self.config["tasks"]["list"] if task["name"] == name)
        kind = kind_of(entry)
        if kind not in TASKS:
            return self._file(entry)
        counts, length = TASKS[kind]
        n = dict(zip(SPLITS, counts, strict=True)) | entry.get("n", {})
        if "size" in entry:
            length = entry["size"] ** 2
        elif "length" in entry:
            length = entry["length"][-1] if isinstance(entry["length"], list) else entry["length"]
        return Amount(n, length, 1, VOCABULARY.get(kind, 0))

    def _file(self, entry: dict) -> Amount:
        """A user's file: its bytes tell how many values it holds, not how they are divided into sequences."""
        channels = max(1, len(entry.get("values", [])))
        try:
            path = Path(entry["path"])
            bytes_ = sum(found.stat().st_size for found in path.rglob("*")) if path.is_dir() else path.stat().st_size
            count, length = max(10, math.ceil(bytes_ / 8 / channels / UNKNOWN[1])), UNKNOWN[1]
        except (OSError, KeyError):
            count, length = UNKNOWN
        shares = dict(zip(SPLITS, (0.7, 0.15, 0.15), strict=True))
        return Amount({split: math.ceil(share * count) for split, share in shares.items()}, length, channels, 0, False)

    @cached_property
    def systems(self) -> Amount:
        """Trajectories of a dynamical system."""
        part = self.config["systems"]
        return Amount(part["n"], part["length"], 2)

    def series(self, entry: dict, input_length: int, horizon: int, strides: dict) -> Amount:
        """Windows of a forecasting set."""
        rows, channels, known = self._rows(entry)
        rows = rows // entry.get("every", 1)
        split = entry.get("split", "months" if entry["name"].startswith("ETT") else SHARES)
        shares = MONTHS if split == "months" else split
        starts = [max(1.0, rows * share - horizon - (0 if part else input_length)) for part, share in enumerate(shares)]
        n = {split: math.ceil(count / strides[split]) for split, count in zip(SPLITS, starts, strict=True)}
        return Amount(n, input_length, channels, 0, known)

    def _rows(self, entry: dict) -> tuple[int, int, bool]:
        """Rows and channels of a set, and whether that is known."""
        if entry["name"] in SERIES and "path" not in entry:
            rows, channels = SERIES[entry["name"]]
            return rows, len(entry.get("columns", ())) or channels, True
        try:
            path = Path(entry["path"])
            if path.suffix == ".parquet":
                import pyarrow.parquet as pq

                found = pq.read_metadata(path)
                return found.num_rows, len(entry.get("columns", ())) or max(1, found.num_columns - 1), True
            with open(path, newline="", encoding="utf-8", errors="replace") as file:
                header = next(csv.reader([file.readline()], delimiter="\t" if path.suffix == ".tsv" else ","))
                rows = sum(1 for _ in file)
            return rows, len(entry.get("columns", ())) or max(1, len(header) - 1), True
        except (OSError, KeyError, StopIteration):
            return 20_000, 7, False
