"""A user's own sequences: a table, an array, a sound or an image, or a folder of such files, one sequence a file.

long   a row is a step; a `sequence` column says of which sequence, a `time` column in which order
wide   a row is a sequence; the value columns are its steps, one channel
array  .npy of shape (L,), (n, L) or (n, L, d)
sound  .wav, a sample a step; image: grey pixels, row by row
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from continuity.tasks.files import IMAGES, SOUNDS, SUFFIXES, InputProblem, Problems, read_file
from continuity.tasks.sequences import SPLITS, Sequences, Task, sizes

LAYOUTS = ("auto", "long", "wide")
TIME_NAMES = ("time", "timestamp", "date", "datetime", "t", "step")
SEQUENCE_NAMES = ("sequence", "series", "id", "group", "unique_id", "item_id", "sequence_id", "series_id")
SENTINELS = (-999.0, -9999.0, -99999.0)
SPLIT_NAMES = {"train": "train", "validation": "validation", "val": "validation", "valid": "validation", "test": "test"}
FRACTIONS = {"train": 0.7, "validation": 0.15, "test": 0.15}
WIDE = 8  # value columns, all named by a number at the end, from which a table without roles is taken as wide
FOLDER = "folder"  # label="folder": the class is the name of the subfolder
NAME = "name"  # label="name", where there is no such column: the class is the file's name up to the first "_"

__all__ = ["InputProblem", "load"]


@dataclass
class _Series:
    """One sequence as read: where it lies, its values (L, d), label and split."""

    where: str
    values: np.ndarray
    label: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class _Roles:
    sequence: str | None
    time: str | None
    values: tuple[str, ...]
    label: str | None
    split: str | None
    layout: str


def load(path: str | Path, seed: int = 0, name: str | None = None, *, sequence: str | None = None, time: str | None = None,
         values: list[str] | None = None, label: str | None = None, split: str | None = None, layout: str = "auto",
         n: dict[str, int] | None = None, min_length: int = 2, sentinels: Iterable[float] = SENTINELS,
         licence: str = "unknown") -> Task:  # fmt: skip
    """The task of a file or folder. Columns not named are guessed; `notes` of the task say what was.

    sequence, time, label, split: columns; values: columns of numbers (default: all others that hold numbers). label may
    also be a .npy of n labels beside an array, "folder", or "name" for sounds and images ("3_anna_7.wav" is a 3).
    Without a split column, sequences are divided 70/15/15 from the seed. n: at most so many sequences a split, drawn from
    the seed. sentinels: numbers that mean "missing".
    Raises InputProblem, one line a problem with file, place and remedy; nothing is repaired silently.
    """
    path, problems, notes = Path(path), Problems(), []
    if layout not in LAYOUTS:
        raise InputProblem([f"{path}: layout is {layout!r}: choose one of {', '.join(LAYOUTS)}"])
    wanted = {"sequence": sequence, "time": time, "values": values, "label": label, "split": split, "layout": layout}
    series, channels = [], None
    for file in _files(path, problems):
        content = read_file(file, problems)
        if isinstance(content, np.ndarray):
            media = file.suffix.lower() in SOUNDS + IMAGES
            found, names = _array(content, file, None if media else label, problems)
        elif content is not None:
            found, names = _tabular(content, file, wanted, tuple(sentinels), problems, notes)
        else:
            continue
        if channels is not None and names != channels:
            problems.add(file, f"channels {', '.join(names)} differ from {', '.join(channels)} of the first file")
        channels = names if channels is None else channels
        if path.is_dir() and len(found) == 1:
            found[0].where = str(file)
            named = {FOLDER: file.parent.name, NAME: file.stem.split("_")[0]}
            found[0].label = named[label] if label == FOLDER or found[0].label is None and label == NAME else found[0].label
        series += found
    problems.stop()
    _check(series, label is not None, min_length, path, problems)
    problems.stop()
    classes = _classes(series) if label else ()
    splits = _split(series, classes, n, seed, path)
    return Task(name or path.stem, splits, str(path), licence, classes, None, channels, tuple(dict.fromkeys(notes)))


def _files(path: Path, problems: Problems) -> list[Path]:
    if not path.exists():
        problems.add(path, "no such file or folder: correct the path")
        return []
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
    if not files:
        problems.add(path, f"the folder holds no file of kind {', '.join(SUFFIXES)}")
    return files


def _array(content: np.ndarray, file: Path, label: str | None, problems: Problems) -> tuple[list[_Series], tuple]:
    if content.dtype.kind not in "biuf" or content.ndim not in (1, 2, 3) or not content.size:
        problems.add(file, f"shape {content.shape} of {content.dtype}: save numbers as (L,), (n, L) or (n, L, d)")
        return [], ()
    stack = content.astype(np.float64)
    stack = stack[None, :, None] if stack.ndim == 1 else stack[..., None] if stack.ndim == 2 else stack
    bad = ~np.isfinite(stack).all(axis=(1, 2))
    if bad.any():
        problems.add(file, f"sequence {int(bad.argmax())}: not finite, as are {int(bad.sum())} in all: fill or drop them")
    found = [_Series(f"{file}, sequence {i}", values) for i, values in enumerate(stack)]
    if label is not None and label != FOLDER:
        labels = read_file(Path(label) if Path(label).is_absolute() else file.parent / label, problems)
        if not isinstance(labels, np.ndarray) or labels.shape != (len(found),):
            problems.add(file, f"label must be a .npy of {len(found)} labels, one a sequence")
            return found, ()
        for one, value in zip(found, labels.tolist(), strict=True):
            one.label = str(value)
    return found, tuple(f"channel_{i}" for i in range(stack.shape[-1]))


def _tabular(table: pa.Table, file: Path, wanted: dict, sentinels: tuple, problems: Problems, notes: list):
    roles = _roles(table, file, wanted, problems, notes)
    if roles is None:
        return [], ()
    columns = np.stack([_numbers(table, name, file, sentinels, problems) for name in roles.values], axis=1)
    labels = _texts(table, None if roles.label == FOLDER else roles.label)
    splits = _texts(table, roles.split)
    place = _place(file)
    if roles.layout == "wide":
        found = [_Series(f"{file}, {place(i)}", row[:, None], labels[i], splits[i]) for i, row in enumerate(columns)]
        return found, ("value",)
    found = []
    for key, rows in _groups(table, roles, file, problems):
        where = f"{file}, {place(rows[0])}" + (f", sequence {key}" if roles.sequence else "")
        one = _Series(where, columns[rows])
        for column, texts in (("label", labels), ("split", splits)):
            different = {texts[i] for i in rows}
            if len(different) > 1:
                problems.add(where, f"{column} changes within the sequence ({_some(different)}): give it one")
            setattr(one, column, texts[rows[0]])
        found.append(one)
    _steps(table, roles, found, file, problems, notes)
    return found, roles.values


def _roles(table: pa.Table, file: Path, wanted: dict, problems: Problems, notes: list) -> _Roles | None:
    """Which column is what: as named, else guessed from the usual names."""
    names = table.column_names
    named = [wanted[role] for role in ("sequence", "time", "label", "split") if wanted[role] not in (None, FOLDER)]
    missing = [name for name in [*named, *(wanted["values"] or [])] if name not in names]
    for name in missing:
        problems.add(file, f"no column {name!r}: the file has {_some(names)}")
    if missing or not table.num_rows:
        if not table.num_rows:
            problems.add(file, "has a header but no rows: fill it or leave it out")
        return None
    guess = {"sequence": _guess(names, SEQUENCE_NAMES, named), "time": _guess(names, TIME_NAMES, named)}
    for role in guess:
        if wanted[role] is None and guess[role] is not None and guess[role] not in (wanted["values"] or []):
            notes.append(f"column {guess[role]} taken as {role}")
        else:
            guess[role] = wanted[role]
    taken = {*guess.values(), wanted["label"], wanted["split"]}
    values = wanted["values"]
    if values is None:
        values = [name for name in names if name not in taken and _holds_numbers(table[name])]
        left = [name for name in names if name not in taken and name not in values]
        notes += [f"column {name} ignored: it holds no numbers" for name in left]
    if not values:
        problems.add(file, f"no column of numbers among {_some(names)}: name the value columns")
        return None
    layout = wanted["layout"]
    if layout == "auto":
        wide = not (guess["sequence"] or guess["time"]) and len(values) >= WIDE and all(v[-1:].isdigit() for v in values)
        layout = "wide" if wide else "long"
        notes.append(f"taken as a {layout} table")
    return _Roles(guess["sequence"], guess["time"], tuple(values), wanted["label"], wanted["split"], layout)


def _guess(names: list[str], usual: tuple[str, ...], taken: list[str]) -> str | None:
    return next((name for name in names if name.lower() in usual and name not in taken), None)


def _numeric(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind)


def _holds_numbers(column: pa.ChunkedArray) -> bool:
    """Numbers, or text of which at least half the cells are: then the rest is a mistake to be told."""
    if _numeric(column.type):
        return True
    if not pa.types.is_string(column.type):
        return False
    cells = [cell for cell in column.to_pylist() if cell is not None]
    return bool(cells) and np.isfinite([_number(cell) for cell in cells]).mean() >= 0.5


def _place(file: Path):
    """Row number -> where it is, as the user's editor shows it: a text file's header is line 1."""
    return (lambda row: f"row {row}") if file.suffix.lower() == ".parquet" else (lambda row: f"line {row + 2}")


def _numbers(table: pa.Table, name: str, file: Path, sentinels: tuple, problems: Problems) -> np.ndarray:
    """A column as float64, with a problem for each kind of value that is no measurement."""
    column, place = table[name].combine_chunks(), _place(file)
    if _numeric(column.type):
        numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    else:
        numbers = np.array([_number(cell) for cell in column.to_pylist()])
        text = np.array([cell is not None for cell in column.to_pylist()]) & np.isnan(numbers)
        if text.any():
            first = int(text.argmax())
            problems.add(file, f"column {name}, {place(first)}: {column[first].as_py()!r} is no number "
                               f"({int(text.sum())} such): correct or leave out the column")  # fmt: skip
            return numbers
    broken = ~np.isfinite(numbers)
    if broken.any():
        first = place(int(broken.argmax()))
        problems.add(file, f"column {name}, {first}: missing or not finite ({int(broken.sum())} such): fill or drop the rows")
    for sentinel in sentinels:
        marks = numbers == sentinel
        rest = numbers[np.isfinite(numbers) & ~marks]
        if marks.any() and len(rest) and rest.min() - sentinel > np.ptp(rest):
            problems.add(file, f"column {name}, {place(int(marks.argmax()))}: {sentinel:g} looks like a mark for missing "
                               f"({int(marks.sum())} such): fill or drop the rows")  # fmt: skip
    return numbers


def _number(cell) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return np.nan


def _texts(table: pa.Table, name: str | None) -> list[str | None]:
    if name is None:
        return [None] * table.num_rows
    return [None if cell is None or cell == "" else str(cell) for cell in table[name].to_pylist()]


def _groups(table: pa.Table, roles: _Roles, file: Path, problems: Problems) -> list[tuple[str, np.ndarray]]:
    """Rows of every sequence, in the order of the file; sequences in the order they first appear."""
    if roles.sequence is None:
        return [("", np.arange(table.num_rows))]
    keys = _texts(table, roles.sequence)
    if None in keys:
        where = _place(file)(keys.index(None))
        problems.add(file, f"column {roles.sequence}, {where}: empty ({keys.count(None)} such): name the sequence")
    rows: dict[str, list[int]] = {}
    for i, key in enumerate(keys):
        if key is not None:
            rows.setdefault(key, []).append(i)
    return [(key, np.array(found)) for key, found in rows.items()]


def _steps(table: pa.Table, roles: _Roles, found: list[_Series], file: Path, problems: Problems, notes: list) -> None:
    """Stamps must rise within each sequence; uneven steps are noted."""
    if roles.time is None:
        return
    place, stamps = _place(file), _stamps(table[roles.time].combine_chunks())
    if stamps is None and not any(map(_dated, table[roles.time].to_pylist())) and f"column {roles.time} taken as time" in notes:
        notes.append(f"column {roles.time} holds neither numbers nor ISO dates: steps are taken in the order of the file")
        return
    if stamps is None:
        problems.add(file, f"column {roles.time} holds neither numbers nor ISO dates: write 2024-01-31 12:00:00")
        return
    if np.isnan(stamps).any():
        problems.add(file, f"column {roles.time}, {place(int(np.isnan(stamps).argmax()))}: no stamp: fill or drop the row")
        return
    uneven = 0
    for key, rows in _groups(table, roles, file, Problems()):
        step = np.diff(stamps[rows])
        name = f" in sequence {key}" if roles.sequence else ""
        if (step == 0).any():
            at = place(int(rows[(step == 0).argmax() + 1]))
            problems.add(file, f"column {roles.time}, {at}: same stamp as the step before{name}: merge or drop the copy")
        if (step < 0).any():
            at = place(int(rows[(step < 0).argmax() + 1]))
            problems.add(file, f"column {roles.time}, {at}: earlier than the step before{name}: sort by time")
        uneven += len(step) > 0 and np.ptp(step) > 1e-6 * abs(step).max()
    if uneven:
        notes.append(f"{file}: {uneven} of {len(found)} sequences have uneven time steps, taken as even")


def _dated(cell) -> bool:
    """Whether a cell of text is a number or an ISO date."""
    try:
        return np.isfinite(_number(cell)) or bool(datetime.fromisoformat(str(cell)))
    except ValueError:
        return False


def _stamps(column: pa.Array) -> np.ndarray | None:
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.cast(pa.timestamp("us")) if pa.types.is_date(kind) else column
        column = column.cast(pa.int64() if column.type.bit_width == 64 else pa.int32())
    elif not _numeric(kind):
        return None
    return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def _check(series: list[_Series], labelled: bool, min_length: int, path: Path, problems: Problems) -> None:
    for one in series:
        if len(one.values) < min_length:
            problems.add(one.where, f"{len(one.values)} steps, at least {min_length} needed: drop it or join its parts")
        elif np.isfinite(one.values).all() and (np.ptp(one.values, axis=0) <= 1e-7 * np.abs(one.values).max(0)).all():
            problems.add(one.where, "constant: drop the sequence")
        if labelled and one.label is None:
            problems.add(one.where, "no label: give one or drop the sequence")
        if one.split is not None and one.split.lower() not in SPLIT_NAMES:
            problems.add(one.where, f"split {one.split!r}: write train, validation or test")
    if series and len({one.values.shape[1] for one in series}) == 1:
        still = np.all([np.ptp(one.values, axis=0) == 0 for one in series if len(one.values)], axis=0)
        if np.any(still) and not np.all(still):
            problems.add(path, f"value column {int(np.argmax(still)) + 1} never changes in any sequence: leave it out")
    if labelled and len({one.label for one in series} - {None}) == 1:
        problems.add(path, f"every sequence has the label {series[0].label}: at least two classes are needed")


def _classes(series: list[_Series]) -> tuple[str, ...]:
    """Labels in order: as numbers where all are whole numbers."""
    names = {one.label for one in series}
    whole = all(name.lstrip("-").isdigit() for name in names)
    return tuple(sorted(names, key=int)) if whole else tuple(sorted(names))


def _split(series: list[_Series], classes: tuple, n: dict | None, seed: int, path: Path) -> dict[str, Sequences]:
    rng = np.random.default_rng([seed, 13])
    rows = {split: [] for split in SPLITS}
    if any(one.split is not None for one in series):
        for i, one in enumerate(series):
            rows[SPLIT_NAMES[(one.split or "train").lower()]].append(i)
    else:
        order = rng.permutation(len(series))
        few = len(series) < len(SPLITS)
        held = 0 if few else max(1, round(FRACTIONS["test"] * len(series)))
        rows["test"], rows["validation"], rows["train"] = order[:held], order[held : 2 * held], order[2 * held :]
    limit = {split: len(found) for split, found in rows.items()} if n is None else sizes(n)
    splits = {}
    for split, found in rows.items():
        chosen = sorted(rng.permutation(found)[: limit[split]].astype(int).tolist())
        splits[split] = _join([series[i] for i in chosen], classes, series[0].values.shape[1])
    return splits


def _join(series: list[_Series], classes: tuple, d: int) -> Sequences:
    values = np.concatenate([one.values for one in series]) if series else np.zeros((0, d))
    lengths = np.array([len(one.values) for one in series], dtype=np.int32)
    labels = np.array([classes.index(one.label) for one in series], dtype=np.int32) if classes else None
    return Sequences(values.astype(np.float32), lengths, labels)


def _some(names: Iterable) -> str:
    names = [str(name) for name in names]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
