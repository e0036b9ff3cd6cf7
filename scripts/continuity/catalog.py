"""The result tables of a study as a DuckDB database: connect, describe, query, export.

`connect` loads the compacted tables into memory and adds the views of sql/views, one a file, with comments on every
column. `query` answers one SELECT in a process of its own that can reach neither files nor network (`sandbox`).
"""

import csv
import functools
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from continuity import student, tables
from continuity.places import QueryError, find_results, find_study, hint
from continuity.question import TOO_LARGE, ask

SQL = resources.files("continuity") / "sql"
FORMATS = ("table", "csv", "json", "parquet")
BASELINES = ("persistence", "ridge", "mlp")
DEGREES = 1000
TYPES = {"text": "VARCHAR", "int": "BIGINT", "float": "DOUBLE", "bool": "BOOLEAN"}
AIDS = {
    "t_quantiles": (
        "one number of degrees of freedom",
        {"df": ("", "degrees of freedom"), "t": ("", "97.5 % quantile of Student's distribution")},
    ),
    "baselines": ("one baseline of the forecast", {"model": ("", "a model of the forecast that is no architecture")}),
}


# ---------------------------------------------------------------- loading


def table_files(tables_dir: Path | str) -> dict[str, Path]:
    """The compacted files of the declared tables that exist, by table name."""
    folder = Path(tables_dir)
    return {name: folder / f"{name}.parquet" for name in tables.TABLES if (folder / f"{name}.parquet").is_file()}


def _today(name: str, pattern: str, have: Iterable[str]) -> str:
    """SQL that reads the table file of a path pattern with today's columns: NULL where an older version did not write one."""
    columns = [
        f"CAST({_quote(column.name)} AS {TYPES[column.type]}) AS {_quote(column.name)}"
        if column.name in have
        else f"NULL::{TYPES[column.type]} AS {_quote(column.name)}"
        for column in tables.TABLES[name].columns
    ]
    return f"SELECT {', '.join(columns)} FROM read_parquet({pattern}, hive_partitioning = false)"


def copy(connection: duckdb.DuckDBPyConnection, name: str, path: Path | str) -> None:
    """Copy one table file; TableError where it is missing, torn, or of other types."""
    pattern = _literal(re.sub(r"([*?[])", r"[\1]", str(path)))
    try:
        have = {name for (name,) in connection.execute(f"SELECT name FROM parquet_schema({pattern})").fetchall()}
        connection.execute(f"CREATE TABLE {_quote(name)} AS {_today(name, pattern, have)}")
    except duckdb.Error as error:
        tables.read(path)
        said = str(error).splitlines()[0]
        raise tables.TableError(f"{path}: not a {name} table ({said}); delete it and run the study again") from None


def missing_columns(files: Mapping[str, Path | str] | Path | str) -> dict[str, list[str]]:
    """Columns of today's schemas that the files of a study made by an older version lack, by table.

    files: table files by table name, or the folder they lie in. TableError where a file is torn.
    """
    files = files if isinstance(files, Mapping) else table_files(files)
    have = {name: set(tables.columns(path)) for name, path in files.items()}
    lacking = {name: [column for column in tables.TABLES[name].schema.names if column not in have[name]] for name in files}
    return {name: columns for name, columns in lacking.items() if columns}


def load(connection: duckdb.DuckDBPyConnection, files: Mapping[str, Path | str], baselines=BASELINES) -> None:
    """Copy the given table files into `connection`, with Student's quantiles and every view whose tables exist.

    baselines: models of the forecast that are no architectures; they compete for no first place.
    """
    for name, path in files.items():
        copy(connection, name, path)
    complete(connection, baselines)


def complete(connection: duckdb.DuckDBPyConnection, baselines=BASELINES) -> None:
    """Add Student's quantiles, the names of `baselines`, and every view whose tables are in the connection."""
    quantiles = ", ".join(f"({df}, {student.quantile_975(df)!r}e0)" for df in range(1, DEGREES + 1))
    connection.execute(f"CREATE TABLE t_quantiles AS SELECT df::BIGINT AS df, t FROM (VALUES {quantiles}) AS q(df, t)")
    names = ", ".join(map(_literal, baselines))
    connection.execute(f"CREATE TABLE baselines AS SELECT unnest([{names}]::VARCHAR[]) AS model")
    waiting = dict(view_files())
    while waiting:
        made = [name for name, sql in waiting.items() if _create_view(connection, name, sql)]
        if not made:
            break
        for name in made:
            del waiting[name]


def _create_view(connection: duckdb.DuckDBPyConnection, name: str, sql: str) -> bool:
    """False where a table that the view reads is not there."""
    try:
        connection.execute(f"CREATE VIEW {_quote(name)} AS {sql}")
    except duckdb.CatalogException:
        return False
    return True


def connect(study: str | None = None, results: Path | str | None = None) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection that holds the tables and views of a study in memory; the files are never written.

    study: its name, or None for the newest; results: the results folder, or None to look for it.
    Example: `connect("default").sql("SELECT * FROM score").df()`.
    Raises QueryError where there is no such study, tables.TableError where a file is torn.
    """
    folder = find_study(results or find_results(), study)
    connection = open_tables(folder / "tables")
    comment(connection)
    return connection


def open_files(files: Mapping[str, Path | str], baselines=BASELINES) -> duckdb.DuckDBPyConnection:
    """The given table files, by table name, and the views over them, in memory."""
    connection = empty()
    load(connection, files, baselines)
    return connection


def empty() -> duckdb.DuckDBPyConnection:
    """A database in memory that works on one thread: sums of floating point numbers are then the same in every run."""
    return duckdb.connect(":memory:", config={"threads": 1})


def open_tables(tables_dir: Path | str) -> duckdb.DuckDBPyConnection:
    """As `open_files`, for a folder of compacted tables."""
    return open_files(table_files(tables_dir))


def by_name(paths: Iterable[Path | str]) -> dict[str, Path]:
    """Paths of compacted tables by table name, in the order of the declared tables."""
    found = {Path(path).stem: Path(path) for path in paths}
    return {name: found[name] for name in tables.TABLES if name in found}


# ---------------------------------------------------------------- meaning


@functools.cache
def view_files() -> tuple[tuple[str, str], ...]:
    """Name and SQL of every view."""
    files = sorted((SQL / "views").iterdir(), key=lambda path: path.name)
    return tuple((path.name.removesuffix(".sql"), path.read_text("utf-8")) for path in files if path.name.endswith(".sql"))


def view_documentation(sql: str) -> tuple[str, dict[str, tuple[str, str]]]:
    """What one row of a view is, and (unit, meaning) by column, from the comment lines at its head.

    The first line says what a row is; a line `-- name [unit] meaning` documents a column that no table has.
    """
    head = [line[2:].strip() for line in sql.splitlines() if line.startswith("--")]
    columns = {}
    for line in head[1:]:
        if found := re.fullmatch(r"(\w+) \[(.*?)\] (.*)", line):
            columns[found[1]] = (found[2], found[3])
    return head[0] if head else "", columns


def documentation(name: str) -> tuple[str, dict[str, tuple[str, str]]]:
    """As `view_documentation`, for any table or view by its name."""
    if name in AIDS:
        return AIDS[name]
    if name in tables.TABLES:
        table = tables.TABLES[name]
        return table.row, {column.name: (column.unit, column.meaning) for column in table.columns}
    sql = dict(view_files()).get(name, "")
    row, own = view_documentation(sql)
    # A column that the view only passes on means what it means in the table that the view reads.
    order = sorted(tables.TABLES.values(), key=lambda table: re.search(rf"\b{table.name}\b", sql) is not None)
    inherited = {c.name: (c.unit, c.meaning) for table in order for c in table.columns}
    return row, inherited | own


def meanings(name: str) -> dict[str, tuple[str, str]]:
    """(unit, meaning) by column of a table or view; empty for an unknown name."""
    return documentation(name)[1] if name in {*tables.TABLES, *AIDS, *dict(view_files())} else {}


def comment(connection: duckdb.DuckDBPyConnection) -> None:
    """Write the meaning of every table, view and column into the database itself."""
    statements = []
    for name, kind, columns in relations(connection):
        row, documented = documentation(name)
        kind = "VIEW" if kind == "view" else "TABLE"
        statements.append(f"COMMENT ON {kind} {_quote(name)} IS {_literal(f'one row: {row}')}")
        for column, _ in columns:
            unit, meaning = documented.get(column, ("", ""))
            text = f"{meaning} [{unit}]" if unit else meaning
            statements.append(f"COMMENT ON COLUMN {_quote(name)}.{_quote(column)} IS {_literal(text)}")
    if statements:
        connection.execute(";\n".join(statements))


def relations(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """(name, table or view, [(column, type)]) of everything in the connection, tables first."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    rows = connection.execute(
        "SELECT c.table_name, CASE WHEN v.view_name IS NULL THEN 'table' ELSE 'view' END AS kind, column_name, data_type"
        " FROM duckdb_columns() c LEFT JOIN duckdb_views() v ON v.view_name = c.table_name AND NOT v.internal"
        " WHERE NOT c.internal ORDER BY kind, c.table_name, column_index"
    ).fetchall()
    for name, kind, column, type_ in rows:
        found.setdefault((name, kind), []).append((column, type_))
    return [(name, kind, columns) for (name, kind), columns in found.items()]


def describe(tables_dir: Path | str) -> pa.Table:
    """Every column of every table and view of a study: table, kind, rows, column, type, unit, meaning."""
    return describe_connection(open_tables(tables_dir))


def describe_connection(connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """As `describe`, for an open connection."""
    rows = []
    for name, kind, columns in relations(connection):
        count = connection.execute(f"SELECT count(*) FROM {_quote(name)}").fetchall()[0][0]
        _, documented = documentation(name)
        for column, type_ in columns:
            unit, meaning = documented.get(column, ("", ""))
            rows.append({"table": name, "kind": kind, "rows": count, "column": column, "type": type_.lower(),
                         "unit": unit, "meaning": meaning})  # fmt: skip
    names = ("table", "kind", "column", "type", "unit", "meaning")
    schema = pa.schema([pa.field(n, pa.string()) for n in names]).insert(2, pa.field("rows", pa.int64()))
    return pa.Table.from_pylist(rows, schema=schema)


# ---------------------------------------------------------------- asking


def query(sql: str, tables_dir: Path | str, seconds: float = 30.0, memory_mb: int = 1024, result_mb: int = 512) -> pa.Table:
    """Answer one SELECT over the tables and views of a study.

    Runs in a process of its own, with the tables copied into its memory, no access to files, network or extensions, a
    read-only transaction, `seconds` of time and `memory_mb` of memory; an answer over `result_mb` is refused.
    Raises QueryError, one line, for anything else than one SELECT, an unknown name (with the nearest), or a limit.
    """
    from continuity import sandbox

    sandbox.only_select(sql)
    answer = ask(sql, Path(tables_dir), None, seconds, memory_mb, result_mb)
    return pa.ipc.open_stream(answer).read_all()


def aggregate(name: str, files: Mapping[str, Path | str], baselines=BASELINES) -> pa.Table:
    """The answer of sql/`name`.sql over the given table files, in the schema of result table `name`."""
    connection = open_files(files, baselines)
    answer = connection.sql((SQL / f"{name}.sql").read_text(encoding="utf-8")).to_arrow_table()
    return tables.rows_to_table(name, answer.to_pylist())


def explain(error: duckdb.Error, known: dict[str, list[str]], sql: str = "") -> str:
    """One line for a DuckDB error; `known` holds the columns by table, from which the nearest name is suggested."""
    text = str(error)
    first = text.splitlines()[0] if text else type(error).__name__
    if found := re.search(r"Table with name (\S+) does not exist", text):
        return _unknown_table(found[1].strip("!"), known)
    words = set(re.findall(r"\w+", sql))
    columns = sorted({column for name, columns in known.items() if name in words for column in columns})
    if found := re.search(r'Referenced column "([^"]+)" not found', text) or re.search(
        r'does not have a column named "([^"]+)"', text
    ):
        return f"no column {found[1]!r} in the tables of this query{hint(found[1], columns)}"
    if isinstance(error, duckdb.PermissionException):
        return "files, network, extensions and settings are out of reach of a query; only tables and views can be read"
    if isinstance(error, duckdb.OutOfMemoryException):
        return TOO_LARGE
    if isinstance(error, duckdb.TransactionException):
        return "only reading is possible; write a SELECT"
    where = f" (near: {found[1].strip()})" if (found := re.search(r"LINE \d+: (.*)", text)) else ""
    return first.rstrip("!") + where


def _unknown_table(name: str, known: dict[str, list[str]]) -> str:
    if name in tables.TABLES:
        return f"table {name} is not in this study: its stage has not run"
    return f"no table or view {name!r}{hint(name, known)}"


# ---------------------------------------------------------------- giving


def _cell(value) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", str(value))


def _text(table: pa.Table) -> str:
    """Aligned columns: numbers right, text left; control characters of a value never reach the terminal."""
    numbers = [pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t) for t in table.schema.types]
    columns = [[_cell(value) for value in column.to_pylist()] for column in table.columns]
    widths = [max([len(name), *map(len, cells)]) for name, cells in zip(table.column_names, columns, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(cells, widths, numbers, strict=True)
        )
        return "  ".join(padded).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(table.column_names), rule, *map(line, zip(*columns, strict=True))]) + "\n"


def render(table: pa.Table, format: str = "table") -> bytes:
    """A table as bytes: `table` (aligned text), `csv`, `json` (a list of records) or `parquet`; NULL is empty or null."""
    if format not in FORMATS:
        raise QueryError(f"no format {format!r}{hint(format, FORMATS)}")
    if format == "parquet":
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="zstd")
        return sink.getvalue()
    if format == "json":
        return (json.dumps(table.to_pylist(), indent=1, ensure_ascii=False, default=str) + "\n").encode()
    if format == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(table.column_names)
        writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
        return out.getvalue().encode()
    return _text(table).encode()


def export(files: Mapping[str, Path | str] | Path | str, out: Path | str) -> None:
    """Write tables, views and comments to one DuckDB file that any client opens; atomically.

    files: table files by table name, or the folder they lie in.
    """
    with tables.atomic(out) as temporary:
        temporary.unlink()
        connection = duckdb.connect(str(temporary))
        load(connection, files if isinstance(files, Mapping) else table_files(files))
        comment(connection)
        connection.execute("CHECKPOINT")
        connection.close()


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
