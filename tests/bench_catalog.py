"""Questions to a study, in ratios of one run: against the bare start of what answers them, and with and without run folders."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from continuity import catalog, tables

ROWS = 100_000
FOLDERS = 10_000
REPEATS = 5
SQL = "SELECT model, avg(rmse) AS rmse FROM forecast GROUP BY ALL ORDER BY ALL"


def seconds(work) -> float:
    """Median over REPEATS."""
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def run(*command: str) -> None:
    subprocess.run([sys.executable, *command], check=True, capture_output=True)


def study(folder: Path) -> Path:
    """A study of one forecast table of ROWS rows."""
    errors = np.random.default_rng(0).lognormal(size=ROWS)
    rows = [
        {"system": "vdp", "eta": (i % 20) / 20, "construction": "balanced", "model": f"m{i % 25}", "readout": "last", "horizon": 16,
         "seed": i, "rmse": float(error)}
        for i, error in enumerate(errors)
    ]  # fmt: skip
    tables.write("forecast", rows, folder / "big/tables/forecast.parquet")
    return folder / "big/tables"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = study(Path(folder))
        command = ("-m", "continuity.cli", "query", SQL, "--results", folder)
        asked = seconds(lambda: run(*command))
        bare = seconds(lambda: run("-c", "import duckdb, pyarrow.parquet"))
        print(
            f"query over {ROWS:,} rows, whole command, over importing DuckDB and pyarrow: {asked / bare:.1f} x ({asked:.2f} s)"
        )
        few = seconds(lambda: catalog.connect("big", folder).close())
        for i in range(FOLDERS):
            place = made / "forecast" / f"model=m{i % 25}" / f"seed={i}"
            place.mkdir(parents=True)
            (place / "run.parquet").write_bytes(b"x")
        many = seconds(lambda: catalog.connect("big", folder).close())
        print(f"opening a study with {FOLDERS:,} run folders over none: {many / few:.2f} x ({many:.2f} s)")


if __name__ == "__main__":
    main()
