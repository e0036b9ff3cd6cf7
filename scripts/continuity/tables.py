"""Result tables: one schema each, one atomic writer, one reader.

A result file holds typed parameter columns; nothing is parsed back from its path. Non-finite numbers become NULL and
their row's `status` says so. The identity of the run that wrote a file (`cfg`, `code`) lies in the file's own metadata.
"""

import contextlib
import errno
import math
import os
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from continuity.problems import Problem

TYPES = {"text": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
VERSION = "1"


class TableError(Problem):
    """A result file that is missing, torn or of another schema; the message names the file and the remedy."""


@dataclass(frozen=True)
class Column:
    """One column: its name, type (text, int, float, bool), unit ('' for none) and meaning."""

    name: str
    type: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class Table:
    """A result table: what one row is, its columns, and how many leading columns identify a row."""

    name: str
    row: str
    columns: tuple[Column, ...]
    keys: int

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(column.name, TYPES[column.type]) for column in self.columns])

    @property
    def key(self) -> list[str]:
        return [column.name for column in self.columns[: self.keys]]


def _declared() -> dict[str, Table]:
    """The tables of tables.toml; every one but claims, which has a reason of its own, ends in status and reason."""
    declared = tomllib.loads((Path(__file__).parent / "tables.toml").read_text(encoding="utf-8"))
    shared = declared.pop("shared")["columns"]
    tables = {}
    for name, entry in declared.items():
        named = {column[0] for column in entry["columns"]}
        columns = entry["columns"] + [column for column in shared if column[0] not in named]
        tables[name] = Table(name, entry["row"], tuple(Column(*column) for column in columns), entry["keys"])
    return tables


TABLES: dict[str, Table] = _declared()


def _clean(row: Mapping, table: Table) -> dict:
    """Non-finite numbers become None; a row that was ok says so."""
    unknown = set(row) - {column.name for column in table.columns}
    if unknown:
        raise KeyError(f"table {table.name} has no column {', '.join(sorted(unknown))}")
    clean = {"status": "ok"} | dict(row)
    bad = [name for name, value in clean.items() if isinstance(value, float) and not math.isfinite(value)]
    for name in bad:
        clean[name] = None
    if bad and clean["status"] == "ok":
        clean["status"] = "non_finite"
        clean["reason"] = clean.get("reason") or f"not finite: {', '.join(bad)}"
    return clean


def rows_to_table(name: str, rows: Iterable[Mapping]) -> pa.Table:
    """Rows (mappings; missing columns NULL) as a pyarrow table of result table `name`, in the order of its key."""
    table = TABLES[name]
    arrow = pa.Table.from_pylist([_clean(row, table) for row in rows], schema=table.schema)
    return arrow.sort_by([(key, "ascending") for key in table.key])


@contextlib.contextmanager
def atomic(path: Path | str) -> Iterator[Path]:
    """A temporary name beside `path`; on success it is synced and renamed to `path`, otherwise removed."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    temporary = Path(temporary)
    try:
        yield temporary
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_table(table: pa.Table, path: Path | str, metadata: Mapping[str, str] | None = None) -> None:
    """Write any pyarrow table to Parquet atomically, `metadata` joined to the schema's."""
    joined = dict(table.schema.metadata or {}) | {key.encode(): value.encode() for key, value in (metadata or {}).items()}
    with atomic(path) as temporary:
        pq.write_table(table.replace_schema_metadata(joined), temporary, compression="zstd")


def write(name: str, rows: Iterable[Mapping] | pa.Table, path: Path | str, metadata: Mapping[str, str] | None = None) -> None:
    """Write rows of result table `name`; a pyarrow table goes through the same cleaning and order."""
    rows = rows.to_pylist() if isinstance(rows, pa.Table) else rows
    write_table(rows_to_table(name, rows), path, {"table": name, "schema_version": VERSION} | dict(metadata or {}))


def read(path: Path | str) -> pa.Table:
    """Read one Parquet file; a missing or torn file is a TableError that names it."""
    return _opened(path, lambda: pq.read_table(path, partitioning=None))


def columns(path: Path | str) -> list[str]:
    """Names of the columns of one Parquet file, from its footer; TableError as `read`."""
    return _opened(path, lambda: pq.read_schema(path)).names


def _opened(path: Path | str, look: Callable):
    try:
        return look()
    except FileNotFoundError:
        raise TableError(f"{path}: missing; run the study to make it") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise TableError(f"{path}: unreadable ({str(error).splitlines()[0]}); delete it and run the study again") from None


def metadata(path: Path | str) -> dict[str, str]:
    """The metadata of a Parquet file; empty where the file is missing, torn or has none."""
    try:
        found = pq.read_schema(path).metadata or {}
    except (OSError, pa.ArrowInvalid):
        return {}
    return {key.decode(): value.decode() for key, value in found.items() if not key.startswith(b"ARROW")}


def compact(name: str, paths: Iterable[Path | str], out: Path | str, metadata: Mapping[str, str] | None = None) -> None:
    """Join the declared run files `paths` of result table `name` into one file, in the order of its key."""
    schema = TABLES[name].schema
    tables = [read(path) for path in paths]
    for path, table in zip(paths, tables, strict=True):
        if table.schema.remove_metadata() != schema:
            raise TableError(f"{path}: not a {name} table of this version; delete it and run the study again")
    joined = pa.concat_tables([table.replace_schema_metadata() for table in tables]) if tables else schema.empty_table()
    write(name, joined, out, metadata)


def write_stamp(path: Path | str, cfg: str, code: str) -> None:
    """The identity of an output that is not Parquet, in a small file beside it; written after the output."""
    with atomic(f"{path}.identity") as temporary:
        temporary.write_text(f"{cfg}\n{code}\n", encoding="utf-8")


def read_stamp(path: Path | str) -> tuple[str, str]:
    """The (cfg, code) beside an output that is not Parquet; empty where there is none."""
    try:
        cfg, code, _ = Path(f"{path}.identity").read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError):
        return "", ""
    return cfg, code


def explain(error: OSError, path: Path | str) -> str:
    """An operating-system error as one line with a remedy."""
    remedies = {
        errno.ENOSPC: "the disk is full; free space and run again, finished runs are kept",
        errno.EDQUOT: "the disk quota is used up; free space and run again, finished runs are kept",
        errno.EFBIG: "the file may not grow any further; raise the limit (`ulimit -f`) and run again, finished runs are kept",
        errno.EROFS: "the file system is read-only; set `results` to a folder that can be written",
        errno.EACCES: "no permission to write; set `results` to a folder that can be written",
    }
    return f"{error.filename or path}: {remedies.get(error.errno, error.strerror or str(error))}"
