"""Ragged sequences in memory and as Parquet, one row a sequence."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from continuity import tables

SPLITS = ("train", "validation", "test")
BATCH_VALUES = 1 << 20  # values that one record batch holds, so that memory does not grow with the file


@dataclass(frozen=True)
class Sequences:
    """n sequences end to end: values (sum of lengths, d) float32, or tokens (sum of lengths,) of an integer type.

    lengths (n,) int32; labels (n,) int32, or None where there are none.
    """

    values: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray | None = None

    def __post_init__(self):
        if self.lengths.sum() != len(self.values):
            raise ValueError(f"lengths sum to {self.lengths.sum()}, but there are {len(self.values)} steps")
        if self.labels is not None and len(self.labels) != len(self.lengths):
            raise ValueError(f"{len(self.labels)} labels for {len(self.lengths)} sequences")

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def tokens(self) -> bool:
        """Whether a step is a symbol rather than a vector."""
        return self.values.ndim == 1

    @property
    def offsets(self) -> np.ndarray:
        """Where each sequence begins, and where the last one ends: (n + 1,)."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])

    def __getitem__(self, i: int) -> np.ndarray:
        """Sequence i: (L_i, d), or (L_i,) tokens."""
        start = int(self.lengths[:i].sum(dtype=np.int64))
        return self.values[start : start + int(self.lengths[i])]

    def take(self, rows) -> "Sequences":
        """The sequences of those rows, in that order."""
        rows, offsets = np.asarray(rows, dtype=np.int64), self.offsets
        parts = [self.values[offsets[i] : offsets[i + 1]] for i in rows]
        values = np.concatenate(parts) if parts else self.values[:0]
        return Sequences(values, self.lengths[rows], None if self.labels is None else self.labels[rows])

    def padded(self, length: int | None = None) -> np.ndarray:
        """Dense (n, L, d), or (n, L) tokens, zeros beyond each length; L is the longest, or `length`, which cuts."""
        length = int(self.lengths.max(initial=0)) if length is None else length
        dense = np.zeros((len(self), length, *self.values.shape[1:]), dtype=self.values.dtype)
        for row, start, stop in zip(dense, self.offsets, self.offsets[1:], strict=False):
            kept = min(length, stop - start)
            row[:kept] = self.values[start : start + kept]
        return dense


@dataclass(frozen=True)
class Task:
    """A task: splits (train, validation, test) of sequences, of `channels`, or of symbols of `vocab` (0 is padding).

    classes: names of the labels, in their order; empty where there are none. notes: what was guessed or seen on reading.
    """

    name: str
    splits: dict[str, Sequences]
    source: str
    licence: str
    classes: tuple[str, ...] = ()
    vocab: tuple[str, ...] | None = None
    channels: tuple[str, ...] | None = None
    notes: tuple[str, ...] = field(default=())

    def summary(self) -> list[dict]:
        """One row a split, columns of the result table `tasks`."""
        shared = {"task": self.name, "classes": len(self.classes), "source": self.source, "licence": self.licence}
        return [
            {
                "split": split,
                "n": len(sequences),
                "length_min": int(sequences.lengths.min()) if len(sequences) else None,
                "length_mean": float(sequences.lengths.mean()) if len(sequences) else None,
                "length_max": int(sequences.lengths.max()) if len(sequences) else None,
            }
            | shared
            for split, sequences in self.splits.items()
        ]


def sizes(n, splits=SPLITS) -> dict[str, int]:
    """Sequences a split, from a mapping; splits it does not name are empty. Raises ValueError for others or below 0."""
    unknown = sorted(set(n) - set(splits))
    if unknown:
        raise ValueError(f"n: there is no split {', '.join(unknown)}: name {', '.join(splits)}")
    if any(count < 0 for count in n.values()):
        raise ValueError(f"n is {dict(n)}: no split can have fewer than 0 sequences")
    return {split: n.get(split, 0) for split in splits}


def divide(train: list, test: list, n: dict[str, int] | None, seed: int, held: float = 0.1) -> dict[str, list]:
    """Items by split: validation is a share `held` of the training items, drawn from the seed; n: at most so many a split."""
    rng = np.random.default_rng([seed, 19])
    order = rng.permutation(len(train))
    count = round(held * len(train))
    rows = {"train": order[count:], "validation": order[:count], "test": rng.permutation(len(test))}
    limit = {split: len(found) for split, found in rows.items()} if n is None else sizes(n)
    kept = {split: sorted(found[: limit[split]].tolist()) for split, found in rows.items()}
    return {split: [(test if split == "test" else train)[i] for i in found] for split, found in kept.items()}


def permuted(task: Task, block: int, seed: int) -> Task:
    """The task with blocks of so many steps in another order, the same for all sequences: as much to learn, less continuity.

    Raises ValueError where sequences differ in length, for then no one order fits all, and where they are one block.
    """
    lengths = sorted({int(length) for part in task.splits.values() for length in part.lengths})
    if len(lengths) != 1:
        found = f"from {lengths[0]} to {lengths[-1]}" if lengths else "none"
        raise ValueError(f"task {task.name}: permute asks for sequences of one length; theirs are {found}")
    if block >= lengths[0]:
        raise ValueError(f"task {task.name}: permute is {block}: it must be below the length of the sequences, {lengths[0]}")
    blocks = np.split(np.arange(lengths[0]), range(block, lengths[0], block))
    order = np.concatenate([blocks[i] for i in np.random.default_rng([seed, 23]).permutation(len(blocks))])
    splits = {}
    for split, part in task.splits.items():
        steps = part.values.reshape(len(part), lengths[0], *part.values.shape[1:])
        splits[split] = replace(part, values=steps[:, order].reshape(part.values.shape))
    return replace(task, splits=splits, source=f"{task.source}, blocks of {block} in the order of seed {seed}")


def _schema(task: Task, dtype: np.dtype) -> pa.Schema:
    about = {key: getattr(task, key) for key in ("name", "source", "licence", "classes", "vocab", "channels", "notes")}
    column = "values" if task.vocab is None else "tokens"
    fields = [
        pa.field("split", pa.string()),
        pa.field("index", pa.int32()),
        pa.field("label", pa.int32()),
        pa.field("length", pa.int32()),
        pa.field(column, pa.list_(pa.from_numpy_dtype(dtype))),
    ]
    return pa.schema(fields, metadata={"task": json.dumps(about)})


def write(task: Task, path: Path | str, metadata: dict[str, str] | None = None) -> None:
    """Write a task atomically: columns split, index, label, length, and values (length x d, flat) or tokens.

    Names, channels and symbols go into the file's metadata, joined by `metadata`.
    """
    dtype = next(iter(task.splits.values())).values.dtype
    schema = _schema(task, dtype)
    schema = schema.with_metadata(schema.metadata | {k.encode(): v.encode() for k, v in (metadata or {}).items()})
    with tables.atomic(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for split, sequences in task.splits.items():
            for first, part in _parts(sequences):
                writer.write_batch(_record_batch(split, first, part, schema))


def _parts(sequences: Sequences) -> Iterator[tuple[int, Sequences]]:
    width = max(1, int(np.prod(sequences.values.shape[1:])))
    block = (sequences.offsets[1:] * width) // BATCH_VALUES
    edges = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), len(sequences)]
    for first, last in zip(edges, edges[1:], strict=False):
        if last > first:
            yield first, sequences.take(np.arange(first, last))


def _record_batch(split: str, first: int, part: Sequences, schema: pa.Schema) -> pa.RecordBatch:
    n, width = len(part), max(1, int(np.prod(part.values.shape[1:])))
    flat = pa.array(np.ascontiguousarray(part.values).reshape(-1))
    offsets = pa.array((part.offsets * width).astype(np.int32))
    columns = [
        pa.array([split] * n, pa.string()),
        pa.array(np.arange(first, first + n, dtype=np.int32)),
        pa.nulls(n, pa.int32()) if part.labels is None else pa.array(part.labels.astype(np.int32)),
        pa.array(part.lengths.astype(np.int32)),
        pa.ListArray.from_arrays(offsets, flat),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def batches(path: Path | str, split: str | None = None, rows: int = 256) -> Iterator[tuple[str, Sequences]]:
    """(split, sequences) of at most `rows` sequences each, in the order of the file, without reading it whole.

    Raises TableError where the file is missing, torn, or no task.
    """
    try:
        with pq.ParquetFile(path) as file:
            _, width, column = _about(file.schema_arrow, path)
            for batch in file.iter_batches(batch_size=rows):
                names = batch["split"].to_numpy(zero_copy_only=False)
                for name in dict.fromkeys(names.tolist()):
                    if split in (None, name):
                        yield name, _sequences(batch.filter(pa.array(names == name)), column, width)
    except FileNotFoundError:
        raise tables.TableError(f"{path}: missing; run the study to make it") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise tables.TableError(f"{path}: unreadable ({str(error).splitlines()[0]}); delete it and run again") from None


def _about(schema: pa.Schema, path) -> tuple[dict, int, str]:
    if b"task" not in (schema.metadata or {}):
        raise tables.TableError(f"{path}: holds no task; delete it and run the study again")
    about = json.loads(schema.metadata[b"task"])
    return about, (0 if about["vocab"] is not None else len(about["channels"])), "tokens" if about["vocab"] else "values"


def _sequences(batch: pa.RecordBatch, column: str, width: int) -> Sequences:
    flat = batch[column].flatten().to_numpy(zero_copy_only=False)
    labels = batch["label"]
    found = None if labels.null_count else labels.to_numpy(zero_copy_only=False).astype(np.int32)
    return Sequences(flat.reshape(-1, width) if width else flat, batch["length"].to_numpy(), found)


def read(path: Path | str, split: str | None = None, limit: int | None = None) -> Task:
    """The task that `write` wrote: whole, or the first `limit` sequences of one split, the rest left unread.

    Raises TableError as `batches` does.
    """
    parts: dict[str, list[Sequences]] = {}
    for name, part in batches(path, split):
        parts.setdefault(name, []).append(part)
        if limit is not None and sum(map(len, parts[name])) >= limit:
            break
    schema = pq.read_schema(path)
    about, width, column = _about(schema, path)
    dtype = np.dtype(schema.field(column).type.value_type.to_pandas_dtype())
    empty = Sequences(np.zeros((0, width) if width else 0, dtype), np.zeros(0, np.int32))
    splits = {split: _join(parts[split]) if split in parts else empty for split in dict.fromkeys([*SPLITS, *parts])}
    if limit is not None:
        splits = {name: part.take(range(min(limit, len(part)))) for name, part in splits.items()}
    named = {key: None if about[key] is None else tuple(about[key]) for key in ("classes", "vocab", "channels", "notes")}
    return Task(about["name"], splits, about["source"], about["licence"], **named)


def _join(parts: list[Sequences]) -> Sequences:
    labels = None if any(part.labels is None for part in parts) else np.concatenate([part.labels for part in parts])
    return Sequences(np.concatenate([p.values for p in parts]), np.concatenate([p.lengths for p in parts]), labels)
