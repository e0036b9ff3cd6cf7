"""A query put to a process of its own (`sandbox`) that can do nothing but answer it. Light: the asking side reads no table."""

import json
import subprocess
import sys
from pathlib import Path

from continuity.places import QueryError

GRACE_SECONDS = 20.0
REFUSED = 3
"""Exit code of a child that says in one line why it does not answer."""
TOO_LARGE = "the query needs more memory than it is given; aggregate more, or add a LIMIT"


def ask(
    sql: str, tables_dir: Path, format: str | None = None, seconds: float = 30.0, memory_mb: int = 1024, result_mb: int = 512
) -> bytes:
    """The answer as bytes of `format` (`catalog.FORMATS`), or as an Arrow stream (None); a refusal is a QueryError.

    seconds, memory_mb, result_mb: limits on time, memory and the size of the answer.
    """
    asked = {"sql": sql, "tables_dir": str(tables_dir), "format": format, "seconds": seconds, "memory_mb": memory_mb,
             "result_mb": result_mb}  # fmt: skip
    command = [sys.executable, "-P", "-c", "from continuity import sandbox; sandbox.main()"]
    try:
        done = subprocess.run(command, input=json.dumps(asked).encode(), capture_output=True, timeout=seconds + GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        raise QueryError(slow(seconds)) from None
    if done.returncode == 0:
        return done.stdout
    if done.returncode == REFUSED:
        raise QueryError(done.stderr.decode().strip())
    said = done.stderr.decode(errors="replace").strip().splitlines()
    if done.returncode < 0 or (said and said[-1].startswith("MemoryError")):
        raise QueryError(TOO_LARGE)
    raise QueryError(f"the query's process failed: {said[-1] if said else done.returncode}")


def slow(seconds: float) -> str:
    """What is said of a query that takes too long."""
    return f"the query took longer than {seconds:g} s; aggregate less, or read study.duckdb in a client of your own"
