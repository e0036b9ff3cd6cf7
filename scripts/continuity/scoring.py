"""Continuity of somebody's own data: read, scored, placed among known tasks, with what a study's tables say for it.

Tables, arrays, sounds and images are read by `tasks.user`, Parquet files with a sequence a row here; every other file is a
sequence of bytes. Several channels are standardised, so that the cosine sees none of their units; one is lifted; symbols
are one-hot.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from continuity.metric import Continuity, Similarity, shuffled
from continuity.tasks import archive, user
from continuity.tasks.files import SUFFIXES, TABLES, InputProblem

PIECE = 4096  # bytes of text that make one sequence, as in the Long Range Arena
PUBLISHED = {"listops": 0.08, "retrieval": 0.15, "text": 0.18, "pathfinder": 0.32, "pathx": 0.36, "image": 0.54}
"""Published scores, of latents of trained encoders (arXiv 2605.08539)."""
STRIDES = (1, 2, 4, 8, 16)
TOLERANCE = 0.1  # change of the output, in its standard deviations, that a stride may make
KAPPA = 1.0  # of a model where no study says better: change of the output over that of the input
NULL_SEQUENCES = 200
PACKED = (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".zst")
HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Found:
    """Sequences that were read: `values` of (L, d) floats, or (L,) symbols below `symbols` where that is not 0."""

    kind: str
    values: list[np.ndarray]
    symbols: int
    channels: tuple[str, ...]
    notes: tuple[str, ...]


def read(data: str, limit: int = 2000, **roles) -> Found:
    """The sequences of a file, a folder or a hub data set, at most `limit` of them, evenly chosen.

    roles: `sequence`, `time`, `values`, `layout` of `tasks.user.load`. Raises InputProblem, a line a problem.
    """
    path, notes = Path(data), ()
    if not path.exists() and HUB.fullmatch(data):
        path, notes = _from_hub(data)
    if path.is_file() and path.suffix.lower() in PACKED:
        return _unpacked(path, limit, roles)
    if path.is_file() and path.suffix.lower() not in SUFFIXES:
        return _text([path], limit)
    if path.is_dir() and not any(file.suffix.lower() in SUFFIXES for file in path.rglob("*")):
        texts = sorted(file for file in path.rglob("*") if file.is_file())
        if texts:
            return _text(texts, limit)
    nested = _nested(path, roles.get("values"), limit)
    if nested is not None:
        return replace(nested, notes=notes + nested.notes)
    task = user.load(path, **roles)
    parts = [part[i] for part in task.splits.values() for i in range(len(part))]
    values = [parts[i] for i in _evenly(len(parts), limit)]
    notes += task.notes + _chosen(len(parts), limit, "sequences")
    return Found(_kind(path), values, 0, task.channels, notes)


def _unpacked(path: Path, limit: int, roles: dict) -> Found:
    """The sequences in a .zip or .tar, as those of a folder."""
    if path.suffix.lower() not in (".zip", ".tar", ".tgz") and not path.name.lower().endswith(".tar.gz"):
        raise InputProblem([f"{path}: is compressed: unpack it first"])
    with archive.opened(path) as folder:
        found = read(str(folder), limit, **roles)
    return replace(found, notes=(f"unpacked from {path.name}", *found.notes))


def _from_hub(data: str) -> tuple[Path, tuple[str, ...]]:
    """One table of a hub data set, its test part where it names one, and what was taken."""
    from continuity.tasks import fetch

    revision = fetch.revision_of(data)
    files = fetch.hub_files(data, revision)
    tables = sorted((file for file in files if file.endswith(TABLES)), key=lambda file: ("test" not in file, file))
    if not tables:
        raise InputProblem([f"{data}: the hub has no {', '.join(TABLES)} there: download it, and give the folder"])
    note = f"{tables[0]} of the hub's {data} at {revision}"
    return fetch.fetch_hub(data, revision, tables[0], files[tables[0]]), (note,)


def _nested(path: Path, columns: list[str] | None, limit: int) -> Found | None:
    """A Parquet file whose rows are sequences: lists of numbers, images, or texts; None for any other file."""
    if path.suffix.lower() != ".parquet" or not path.is_file():
        return None
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException):  # told by the reader of tables
        return None
    named = [field for field in schema if field.name in (columns or schema.names)]
    numbers = (pa.types.is_integer, pa.types.is_floating)
    lists = [field.name for field in named if pa.types.is_list(field.type) and any(of(field.type.value_type) for of in numbers)]
    images = [f.name for f in named if pa.types.is_struct(f.type) and f.type.get_field_index("bytes") >= 0]
    texts = [f.name for f in named if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
    plain = [f.name for f in named if any(of(f.type) for of in numbers) and f.name not in ("label", "index", "length")]
    column = next(iter(lists or images or (texts if not plain else [])), None)
    if column is None:
        return None
    rows = [row for row in pq.read_table(path, columns=[column], partitioning=None)[column].to_pylist() if row]
    if not rows:
        raise InputProblem([f"{path}: column {column} is empty in every row: name another with --values"])
    kept = [rows[i] for i in _evenly(len(rows), limit)]
    notes = (f"column {column}: a sequence a row", *_chosen(len(rows), limit, "rows"))
    if column in texts:
        values = [np.frombuffer(text.encode()[:PIECE], np.uint8) for text in kept]
        return Found("parquet of texts", values, 256, (), (*notes, f"texts cut at {PIECE} bytes"))
    values = [_row(path, column, row) for row in kept]
    return Found("parquet of images" if column in images else "parquet of lists", values, 0, (column,), notes)


def _row(path: Path, column: str, row) -> np.ndarray:
    """A cell of a Parquet file as (L, 1)."""
    from continuity.tasks.image import grey

    try:
        values = grey(row["bytes"]) if isinstance(row, dict) else np.array(row, dtype=np.float32)[:, None]
    except (OSError, TypeError, ValueError) as error:
        raise InputProblem(
            [f"{path}, column {column}: a cell cannot be read ({error}): correct or leave out the row"]
        ) from None
    if not np.isfinite(values).all():
        raise InputProblem([f"{path}, column {column}: a cell holds what is missing or not finite: fill or drop the row"])
    return values


def _kind(path: Path) -> str:
    first = next(file for file in [path, *sorted(path.rglob("*"))] if file.suffix.lower() in SUFFIXES)
    return ("folder of " if path.is_dir() else "") + first.suffix[1:].lower()


def _evenly(n: int, limit: int) -> np.ndarray:
    return np.arange(n) if n <= limit else np.linspace(0, n - 1, limit).round().astype(int)


def _chosen(n: int, limit: int, what: str) -> tuple[str, ...]:
    return (f"{limit} of {n} {what}, evenly chosen",) if n > limit else ()


def _text(files: list[Path], limit: int) -> Found:
    """Bytes in pieces of PIECE; a file's shorter end counts where it is the only one."""
    try:
        pieces = [-(-size // PIECE) if size <= PIECE else size // PIECE for size in (file.stat().st_size for file in files)]
        ends = np.cumsum(pieces)
        if not ends[-1]:
            raise InputProblem([f"{files[0]}: empty: fill it or leave it out"])
        values = []
        for i in _evenly(int(ends[-1]), limit):
            k = int(np.searchsorted(ends, i, side="right"))
            with open(files[k], "rb") as text:
                text.seek(PIECE * int(i - ends[k] + pieces[k]))
                values.append(np.frombuffer(text.read(PIECE), np.uint8))
    except OSError as error:
        raise InputProblem(
            [f"{error.filename or files[0]}: cannot be read ({error.strerror}): check that it is allowed"]
        ) from None
    kind = "bytes" if len(files) == 1 else "folder of bytes"
    notes = (f"read as bytes, in pieces of {PIECE}", *_chosen(int(ends[-1]), limit, "pieces"))
    if all((one == one[0]).all() for one in values):
        raise InputProblem([f"{files[0]}: holds one byte, over and over: nothing can be scored"])
    return Found(kind, values, 256, (), notes)


def latents(found: Found, standardise: bool = True) -> Iterator[np.ndarray]:
    """The points whose cosines are taken, sequence by sequence: (L, d)."""
    if found.symbols:
        seen = np.unique(np.concatenate([np.unique(one) for one in found.values]))
        place = np.zeros(found.symbols, dtype=np.int64)
        place[seen] = np.arange(len(seen))
        one_hot = np.eye(len(seen), dtype=np.float32)
        yield from (one_hot[place[one]] for one in found.values)
        return
    if found.values[0].shape[1] == 1 or not standardise:
        yield from found.values
        return
    steps = sum(len(one) for one in found.values)
    mean = sum(one.sum(0, dtype=np.float64) for one in found.values) / steps
    deviation = np.sqrt(sum(((one - mean) ** 2).sum(0) for one in found.values) / steps)
    yield from ((one - mean) / np.where(deviation > 0, deviation, 1) for one in found.values)


def measure(found: Found, channels: str = "auto", **options) -> tuple[Continuity, Continuity]:
    """The score, and the score after shuffling time in at most NULL_SEQUENCES of the sequences.

    channels and options are those of `metric.task_continuity`; "raw" takes the values as they are, "auto" standardises.
    """

    def scored(sequences) -> Continuity:
        score = Similarity(channels=channels, **options)
        if not found.symbols and (found.values[0].shape[1] == 1 or channels in ("fourier", "delay")):
            return score.add(list(sequences)).result()
        for sequence in sequences:
            score.add([sequence])
        return score.result()

    points = latents(found, channels != "raw")
    seed = options.get("seed", 0)
    chosen = set(_evenly(len(found.values), NULL_SEQUENCES).tolist())
    few = (shuffled([one], seed=seed + i)[0] for i, one in enumerate(latents(found, channels != "raw")) if i in chosen)
    return scored(points), scored(few)


@dataclass(frozen=True)
class Study:
    """What the tables of a study say for one score; empty where they lack it."""

    name: str
    scores: list[dict]
    favoured: list[dict]
    alignment: list[dict]
    kappa: list[dict]


NEAREST = """
WITH cell AS (SELECT eta, construction, avg(mu) AS mu FROM mixtures WHERE mu IS NOT NULL GROUP BY ALL),
near AS (FROM cell ORDER BY abs(mu - ({mu})), eta LIMIT 1)
SELECT near.mu, eta, readout, horizon, model, gap, low, high, best_share
FROM gap JOIN near USING (eta, construction) WHERE gap IS NOT NULL ORDER BY readout, horizon, gap, model
"""
QUESTIONS = {
    "scores": "SELECT task, encoder, mu, low, high FROM score WHERE mu IS NOT NULL ORDER BY mu, task, encoder",
    "favoured": NEAREST,
    "alignment": "SELECT pair, rho, low, high, n_tasks FROM alignment WHERE rho IS NOT NULL ORDER BY pair",
    "kappa": """SELECT model, exp(avg(ln(kappa))) AS kappa, min(low) AS low, max(high) AS high
                FROM refinement_kappa WHERE step_rule = 'delta' AND kappa > 0 GROUP BY model ORDER BY kappa""",
}


def ask_study(mu: float, study: Path) -> Study:
    """What the study in the folder `study` says of a task of that score."""
    from continuity import catalog
    from continuity.places import QueryError

    answers = {}
    for name, sql in QUESTIONS.items():
        try:
            answers[name] = catalog.query(sql.format(mu=float(mu)), study / "tables").to_pylist()
        except QueryError:  # a study without that stage
            answers[name] = []
    return Study(study.name, **answers)


def schedule(score: Continuity, kappa: float = KAPPA, tolerance: float = TOLERANCE) -> dict:
    """Strides for coarse-to-fine training: the longest r with kappa delta(r) <= tolerance, then halved down to 1.

    delta(r) = 2 sqrt((1 - beta) mean over lags t < r of (1 - mu_t)) is the relative error of holding a step for r steps;
    a model turns it into a change kappa delta(r) of its output.
    """
    from continuity.curriculum import hold_error_of

    lags = int(np.isfinite(score.mu_t).cumprod().sum())
    strides = [stride for stride in STRIDES if stride <= lags + 1]
    alike = np.minimum(score.mu_t, 1).tolist()
    delta = {stride: float(hold_error_of(alike, min(score.beta, 1), stride)) for stride in strides}
    longest = max(stride for stride in strides if kappa * delta[stride] <= tolerance)
    plan = [stride for stride in reversed(strides) if stride <= longest]
    return {"kappa": kappa, "tolerance": tolerance, "delta": delta, "longest": longest, "plan": plan}
