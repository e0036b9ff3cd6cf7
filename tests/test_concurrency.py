"""Queries while jobs write: a reader sees one whole table, the old or the new."""

import json
import os
import subprocess
import sys

from continuity import catalog, tables

WRITER = """
import itertools, os, sys
from continuity import tables

for version in itertools.count():
    rows = [{"system": f"s{row}", "eta": 0.0, "construction": "balanced", "mu": float(version)} for row in range(400)]
    tables.write("mixtures", rows, sys.argv[1])
    if version == 1:
        print("writing", flush=True)
    if os.getppid() != int(sys.argv[2]):
        break
"""
SQL = "SELECT count(*) AS n, min(mu) AS least, max(mu) AS most FROM mixtures"


def writer(path):
    """A process that replaces a table again and again."""
    command = [sys.executable, "-c", WRITER, str(path), str(os.getpid())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "writing\n"
    return process


def ask(folder):
    command = [sys.executable, "-m", "continuity.cli", "query", SQL, "--results", str(folder), "--format", "json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_users_read_whole_tables_while_a_job_replaces_them(tmp_path):
    process = writer(tmp_path / "study/tables/mixtures.parquet")
    try:
        for _ in range(3):
            for reader in [ask(tmp_path), ask(tmp_path)]:
                said, complaints = reader.communicate()
                assert reader.returncode == 0, complaints
                (row,) = json.loads(said)
                assert row["n"] == 400 and row["least"] == row["most"], "rows of one writing"
    finally:
        process.kill()
        process.wait()


def test_a_connection_keeps_what_it_loaded(tmp_path):
    path = tmp_path / "study/tables/mixtures.parquet"
    process = writer(path)
    try:
        with catalog.connect("study", tmp_path) as connection:
            first, second = (connection.sql(SQL).fetchall() for _ in range(2))
        seen = {tables.read(path)["mu"][0].as_py() for _ in range(50)}
    finally:
        process.kill()
        process.wait()
    assert first == second and len(seen) > 1


def test_a_reader_holds_no_writer_up(tmp_path):
    """A table can be replaced while a query of it is being answered."""
    path = tmp_path / "study/tables/mixtures.parquet"
    row = {"system": "vdp", "eta": 0.0, "construction": "balanced"}
    tables.write("mixtures", [row | {"mu": 1.0}], path)
    with catalog.connect("study", tmp_path) as connection:
        tables.write("mixtures", [row | {"mu": 2.0}], path)
        assert connection.sql("SELECT mu FROM mixtures").fetchall() == [(1.0,)]
    assert tables.read(path)["mu"].to_pylist() == [2.0]
