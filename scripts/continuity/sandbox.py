"""One SELECT in a process that can do nothing else.

`question.ask` starts it, hands it the question as JSON and reads the answer, rendered or as an Arrow stream. The child
limits its own memory, copies the tables, then closes every door: DuckDB's external access and settings are locked, the
transaction is read-only, and only a single SELECT is run. A child that outlives its time is interrupted, then killed.
"""

import json
import os
import sys
import threading
import traceback

import duckdb
import pyarrow as pa

from continuity import catalog, tables
from continuity.question import REFUSED, slow

HEADROOM_MB = 2048
DOORS = (
    "SET enable_progress_bar = false",
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
    "SET temp_directory = ''",
    "SET enable_external_access = false",
)


def limit_memory(memory_mb: int) -> None:
    """Bound the address space of this process, where the system can: DuckDB's own limit does not see long strings."""
    try:
        import resource
    except ImportError:
        return
    limit = (memory_mb + HEADROOM_MB) << 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def close_doors(connection: duckdb.DuckDBPyConnection, memory_mb: int) -> None:
    """Take files, network, extensions, settings and writing away from a connection, for good."""
    connection.execute(f"SET memory_limit = '{int(memory_mb)}MB'")
    for door in DOORS:
        connection.execute(door)
    connection.execute("SET lock_configuration = true")
    connection.execute("BEGIN TRANSACTION READ ONLY")


def only_select(sql: str) -> str:
    """`sql` if it is exactly one SELECT; QueryError otherwise."""
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise catalog.QueryError(catalog.explain(error, {})) from None
    kinds = [statement.type.name for statement in statements]
    if kinds != ["SELECT"]:
        found = "nothing" if not kinds else " and ".join(kinds)
        raise catalog.QueryError(f"exactly one SELECT can be run, this is {found}; write one SELECT")
    return sql


def answer(connection: duckdb.DuckDBPyConnection, sql: str, seconds: float, result_mb: int) -> pa.Table:
    """Run the SELECT on a closed connection, stopping at `seconds` or at `result_mb` of answer."""
    timer = threading.Timer(seconds, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        reader = connection.sql(sql).to_arrow_reader(10_000)
        batches, size = [], 0
        for batch in reader:
            size += batch.nbytes
            if size > result_mb << 20:
                raise catalog.QueryError(f"the answer is larger than {result_mb} MB; aggregate more, or add a LIMIT")
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)
    finally:
        timer.cancel()


def _serve(question: dict) -> pa.Table:
    sql = only_select(question["sql"])
    with_tables = catalog.open_tables(question["tables_dir"])
    known = {name: [column for column, _ in columns] for name, _, columns in catalog.relations(with_tables)}
    close_doors(with_tables, question["memory_mb"])
    try:
        return answer(with_tables, sql, question["seconds"], question["result_mb"])
    except duckdb.InterruptException:
        raise catalog.QueryError(slow(question["seconds"])) from None
    except duckdb.Error as error:
        raise catalog.QueryError(catalog.explain(error, known, sql)) from None


def _give(table: pa.Table, format: str | None, out) -> None:
    if format is None:
        with pa.ipc.new_stream(out, table.schema) as stream:
            stream.write_table(table)
    else:
        out.write(catalog.render(table, format))
    out.flush()


def main() -> None:
    """The child: question on standard input, Arrow stream or one line of error back.

    Leaves without the interpreter's own clean-up, in which threads of DuckDB that still wait for Python abort the process.
    """
    question = json.load(sys.stdin)
    limit_memory(question["memory_mb"])
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        table = _serve(question)
        _give(table, question["format"], out)
        code = 0
    except (catalog.QueryError, tables.TableError, pa.ArrowInvalid) as error:
        print(str(error).splitlines()[0], file=sys.stderr, flush=True)
        code = REFUSED
    except BaseException:
        traceback.print_exc()
        code = 1
    os._exit(code)
