"""Result tables: schemas, atomic files, and numbers that are missing with a reason."""

import errno
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from continuity import tables

ROW = {"task": "a", "encoder": "raw", "mu": 0.5, "low": 0.4, "high": 0.6, "max_lag": 16, "n_sequences": 3}


def test_every_table_has_a_key_a_status_and_described_columns():
    for name, table in tables.TABLES.items():
        names = [column.name for column in table.columns]
        assert len(set(names)) == len(names), name
        assert {"status", "reason"} <= set(names)
        assert 0 < table.keys < len(names)
        assert all(column.meaning for column in table.columns)


def test_a_written_table_reads_back_with_its_types(tmp_path):
    tables.write("score", [ROW], tmp_path / "score.parquet", {"cfg": "{}", "code": "abc"})
    found = tables.read(tmp_path / "score.parquet")
    assert found.schema.remove_metadata() == tables.TABLES["score"].schema
    assert found.to_pylist()[0]["mu"] == 0.5 and found.to_pylist()[0]["status"] == "ok"
    assert tables.metadata(tmp_path / "score.parquet")["code"] == "abc"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_becomes_null_with_a_status(tmp_path, value):
    row = tables.rows_to_table("score", [ROW | {"mu": value}]).to_pylist()[0]
    assert row["mu"] is None and row["status"] == "non_finite" and "mu" in row["reason"]


def test_a_failed_run_keeps_its_own_status():
    row = tables.rows_to_table("score", [ROW | {"mu": math.nan, "status": "undefined", "reason": "constant"}]).to_pylist()[0]
    assert (row["status"], row["reason"]) == ("undefined", "constant")


def test_an_unknown_column_is_refused():
    with pytest.raises(KeyError, match="score has no column muu"):
        tables.rows_to_table("score", [ROW | {"muu": 1.0}])


def test_equal_rows_in_another_order_give_equal_bytes(tmp_path):
    rows = [ROW | {"task": name} for name in "cab"]
    tables.write("score", rows, tmp_path / "one.parquet")
    tables.write("score", rows[::-1], tmp_path / "two.parquet")
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "score.parquet"
    tables.write("score", [ROW], path)
    before = path.read_bytes()
    with pytest.raises(OSError, match="full"), tables.atomic(path) as temporary:
        temporary.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "full")
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["score.parquet"]


def test_whole_numbers_stay_whole_when_joined_with_fractions(tmp_path):
    """Files are joined under one schema, so 3.5 beside an old 4 stays 3.5."""
    tables.write("score", [ROW | {"mu": 1}], tmp_path / "a.parquet")
    tables.write("score", [ROW | {"task": "b", "mu": 0.25}], tmp_path / "b.parquet")
    tables.compact("score", [tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "all.parquet")
    assert tables.read(tmp_path / "all.parquet")["mu"].to_pylist() == [1.0, 0.25]


def test_only_declared_files_are_joined(tmp_path):
    tables.write("score", [ROW], tmp_path / "a.parquet")
    tables.write("score", [ROW | {"task": "stray"}], tmp_path / "stray.parquet")
    tables.compact("score", [tmp_path / "a.parquet"], tmp_path / "all.parquet")
    assert tables.read(tmp_path / "all.parquet")["task"].to_pylist() == ["a"]


@pytest.mark.parametrize("content", [None, b"", b"PAR1 torn"])
def test_a_missing_or_torn_file_is_named_in_one_line(tmp_path, content):
    path = tmp_path / "score.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(tables.TableError) as error:
        tables.read(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_table_of_another_schema_is_named(tmp_path):
    path = tmp_path / "old.parquet"
    pq.write_table(pa.table({"task": ["a"]}), path)
    with pytest.raises(tables.TableError, match="old.parquet: not a score table"):
        tables.compact("score", [path], tmp_path / "all.parquet")


def test_an_output_that_is_not_parquet_carries_its_identity_beside_it(tmp_path):
    assert tables.read_stamp(tmp_path / "report.html") == ("", "")
    tables.write_stamp(tmp_path / "report.html", '{"a":1}', "abc")
    assert tables.read_stamp(tmp_path / "report.html") == ('{"a":1}', "abc")


@pytest.mark.parametrize(
    "number, words", [(errno.ENOSPC, "disk is full"), (errno.EROFS, "read-only"), (errno.EACCES, "permission")]
)
def test_a_system_error_says_its_remedy(number, words):
    line = tables.explain(OSError(number, "x", "results/a"), "results")
    assert line.startswith("results/a: ") and words in line and "\n" not in line
