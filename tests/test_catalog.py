"""The catalogue: what it loads, how it aggregates, what a query may not do, and what it says when it refuses."""

import io
import json
import math
import os
import subprocess
import sys
from collections import defaultdict

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import synthetic
from continuity import catalog, cli, dictionary, sandbox, tables
from scipy import stats


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A results folder with one invented study, its derived gap table included."""
    results = tmp_path_factory.mktemp("results")
    made = synthetic.write(results / "invented")
    gap = catalog.aggregate("gap", catalog.table_files(made))
    tables.write("gap", gap, made / "gap.parquet", synthetic.IDENTITY)
    return made


@pytest.fixture(scope="module")
def connection(study):
    return catalog.open_tables(study)


# ---------------------------------------------------------------- loading


def test_every_view_can_be_made_and_every_column_has_a_meaning():
    described = catalog.describe_connection(dictionary.blank()).to_pylist()
    views = {row["table"] for row in described if row["kind"] == "view"}
    assert views == {name for name, _ in catalog.view_files()}
    assert [f"{row['table']}.{row['column']}" for row in described if not row["meaning"]] == []


def test_describe_counts_the_rows_of_the_files(study):
    counts = {row["table"]: row["rows"] for row in catalog.describe(study).to_pylist()}
    assert {name: counts[name] for name in ("score", "forecast")} == {
        name: pq.read_metadata(study / f"{name}.parquet").num_rows for name in ("score", "forecast")
    }


def test_views_over_a_missing_table_are_left_out(tmp_path):
    made = synthetic.write(tmp_path, leave_out=("mixtures",))
    names = {row["table"] for row in catalog.describe(made).to_pylist()}
    assert "advantage" not in names and "forecast_cell" in names


def test_a_study_of_an_older_version_has_its_new_columns_empty(tmp_path):
    made = synthetic.write(tmp_path)
    old = pq.read_table(made / "score.parquet").drop_columns(["null_mu"])
    pq.write_table(old, made / "score.parquet")
    assert catalog.missing_columns(made) == {"score": ["null_mu"]}
    assert catalog.open_tables(made).sql("SELECT count(null_mu), count(*) FROM score").fetchall() == [(0, len(old))]


def test_the_list_of_columns_says_what_an_older_version_did_not_write(tmp_path, capfd):
    made = synthetic.write(tmp_path / "old")
    pq.write_table(pq.read_table(made / "score.parquet").drop_columns(["null_mu"]), made / "score.parquet")
    cli.main(["query", "--study", "old", "--results", str(tmp_path)])
    assert capfd.readouterr().err == "table score was made by an older version: null_mu missing\n"


def test_a_torn_file_is_named(tmp_path):
    made = synthetic.write(tmp_path)
    (made / "score.parquet").write_bytes(b"PAR1 torn")
    with pytest.raises(catalog.QueryError, match="score.parquet: unreadable"):
        catalog.query("SELECT 1", made)


def test_a_file_of_another_kind_is_named(tmp_path):
    made = synthetic.write(tmp_path)
    pq.write_table(pa.table({"task": ["a"], "mu": ["much"]}), made / "score.parquet")
    with pytest.raises(catalog.QueryError, match="score.parquet: not a score table .*much"):
        catalog.query("SELECT 1", made)


def test_a_study_may_lie_in_a_folder_of_any_name(tmp_path):
    made = synthetic.write(tmp_path / "it's [a] study? *")
    synthetic.write(tmp_path / "it's a study")
    assert catalog.query("SELECT count(*) AS n FROM score", made).to_pylist() == [
        {"n": len(pq.read_table(made / "score.parquet"))}
    ]


def test_opening_a_study_looks_into_no_run_folder(tmp_path, monkeypatch):
    """However many runs there are, a study is opened by its joined tables alone."""
    made = synthetic.write(tmp_path / "results" / "invented")
    for i in range(200):
        (made / "forecast" / f"model=m{i}" / "seed=0").mkdir(parents=True)
    seen = []
    for name in ("scandir", "listdir"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda path=".", real=real: seen.append(str(path)) or real(path))
    with catalog.connect(results=tmp_path / "results") as connection:
        assert connection.sql("SELECT count(*) > 0 FROM forecast").fetchall() == [(True,)]
    assert seen and not [path for path in seen if "model=" in path]


def test_a_query_needs_no_pandas(study):
    """It is installed, and importing it would take as long as the whole query."""
    code = (
        "import io, os, sys; from continuity import sandbox\n"
        f"answer = sandbox._serve({{'sql': 'FROM score', 'tables_dir': {str(study)!r}, 'seconds': 9, 'memory_mb': 256, 'result_mb': 9}})\n"
        "for format in ('table', 'csv', 'json', None):\n    sandbox._give(answer, format, io.BytesIO())\n"
        "os._exit('pandas' in sys.modules or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_asking_side_reads_no_table_itself(study):
    code = (
        "import sys; from continuity import cli\n"
        f"cli.main(['query', 'SELECT 1 AS one', '--study', 'invented', '--results', {str(study.parents[1])!r}, '--format', 'csv'])\n"
        "sys.exit('duckdb' in sys.modules or 'pyarrow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "one\n1\n")


def test_connect_finds_the_newest_study_and_answers_as_a_data_frame(study, monkeypatch):
    monkeypatch.setenv("CONTINUITY_RESULTS", str(study.parents[1]))
    frame = catalog.connect().sql("SELECT * FROM score WHERE encoder = 'raw'").df()
    assert sorted(frame["task"]) == sorted(["smnist", "listops", synthetic.HOSTILE, "constant"])


def test_results_are_found_from_below_and_a_wrong_study_names_the_right_one(study, monkeypatch, tmp_path):
    monkeypatch.delenv("CONTINUITY_RESULTS", raising=False)
    deep = tmp_path / "results" / "invented" / "tables" / "deep"
    deep.mkdir(parents=True)
    assert catalog.find_results(deep) == tmp_path / "results"
    with pytest.raises(catalog.QueryError, match="did you mean 'invented'"):
        catalog.find_study(study.parents[1], "invneted")
    with pytest.raises(catalog.QueryError, match="holds no study"):
        catalog.find_study(tmp_path)


def test_the_page_of_all_columns_is_that_of_todays_tables():
    """Otherwise run: .venv/bin/python -m continuity.dictionary"""
    assert dictionary.PAGE.read_text(encoding="utf-8") == dictionary.page()


def test_the_page_of_all_columns_names_every_table_view_and_column():
    page = dictionary.page()
    for name, table in tables.TABLES.items():
        section = page[page.index(f"## {name} (table)") :].split("\n## ")[0]
        for column in table.columns:
            assert f"| `{column.name}` | {catalog.TYPES[column.type].lower()} | {column.unit}" in section
    assert all(f"## {name} (view)" in page for name, _ in catalog.view_files())


# ---------------------------------------------------------------- aggregates against independent computations


def _runs(study):
    rows = pq.read_table(study / "forecast.parquet").to_pylist()
    return [row for row in rows if row["model"] not in catalog.BASELINES]


def test_gap_is_the_cross_fitted_ratio_of_its_definition(study):
    errors = defaultdict(dict)
    for row in _runs(study):
        if row["eta"] == 0.5:
            errors[row["model"]][row["system"], row["seed"]] = math.log(row["rmse"])
    ratios = defaultdict(list)
    for system in synthetic.SYSTEMS:
        for seed in synthetic.SEEDS:
            others = [other for other in synthetic.SEEDS if other != seed]
            best = min(errors, key=lambda model: sum(errors[model][system, other] for other in others))
            for model, values in errors.items():
                ratios[model].append(values[system, seed] - errors[best][system, seed])
    rows = {row["model"]: row for row in pq.read_table(study / "gap.parquet").to_pylist() if row["eta"] == 0.5}
    assert {m: row["gap"] for m, row in rows.items()} == pytest.approx({m: math.expm1(np.mean(r)) for m, r in ratios.items()})
    assert sum(row["best_share"] for row in rows.values()) == pytest.approx(1)


def test_gap_interval_pools_the_residuals_of_model_and_seed(study):
    cells = defaultdict(dict)
    for row in _runs(study):
        if row["rmse"] is not None and not (row["model"] == "transformer" and row["eta"] == 0.25):
            cells[row["eta"], row["system"]][row["model"], row["seed"]] = math.log(row["rmse"])
    squares = df = 0
    for cell in cells.values():
        models = sorted({model for model, _ in cell})
        x = np.array([[cell[model, seed] for seed in synthetic.SEEDS] for model in models])
        residual = x - x.mean(1, keepdims=True) - x.mean(0, keepdims=True) + x.mean()
        squares, df = squares + (residual**2).sum(), df + (x.shape[0] - 1) * (x.shape[1] - 1)
    half = stats.t.ppf(0.975, df) * math.sqrt(2 * squares / df / 12)
    row = next(r for r in pq.read_table(study / "gap.parquet").to_pylist() if (r["model"], r["eta"]) == ("s4d", 0.0))
    assert math.log((1 + row["high"]) / (1 + row["low"])) == pytest.approx(2 * half, rel=1e-5)


def test_every_published_gap_column_has_one_zero_and_the_cross_fitted_form_is_not_biased_upward(tmp_path):
    rng = np.random.default_rng(7)
    cell = {"construction": "balanced", "readout": "last", "horizon": 16}
    rows = [
        cell | {"system": system, "eta": eta, "model": f"m{model}", "seed": seed, "rmse": math.exp(0.1 * rng.standard_normal())}
        for system in synthetic.SYSTEMS for eta in np.linspace(0, 1, 21) for model in range(12) for seed in range(3)
    ]  # fmt: skip
    tables.write("forecast", rows, tmp_path / "forecast.parquet")
    gaps = catalog.aggregate("gap", {"forecast": tmp_path / "forecast.parquet"}).to_pylist()
    published = defaultdict(list)
    for row in gaps:
        published[row["eta"]].append(row["gap_published"])
    assert all(column.count(0.0) == 1 for column in published.values())
    assert np.mean([row["gap_published"] for row in gaps]) > 0.03
    assert abs(np.mean([row["gap"] for row in gaps])) < 0.015


def test_a_diverged_run_leaves_its_model_without_a_gap_and_in_no_average(study, connection):
    row = next(r for r in pq.read_table(study / "gap.parquet").to_pylist() if (r["model"], r["eta"]) == ("transformer", 0.25))
    assert (row["gap"], row["best_share"], row["status"]) == (None, None, "incomplete")
    assert row["reason"] == "1 of 12 runs have no number"
    cell = "SELECT n_seeds, n_failed FROM forecast_cell WHERE model = 'transformer' AND eta = 0.25 AND system = 'ou'"
    assert connection.sql(cell).fetchall() == [(2, 1)]


def test_the_smallest_difference_that_is_found_is_found_in_four_of_five_repetitions(tmp_path):
    rng, spread, n_seeds = np.random.default_rng(11), 0.1, 3
    made = synthetic.write(tmp_path)
    for derived in ("gap", "alignment"):
        tables.write(derived, [], made / f"{derived}.parquet")
    cell = {"construction": "balanced", "readout": "last", "horizon": 16}
    rows = [
        cell | {"system": "vdp", "eta": eta, "model": model, "seed": seed, "rmse": math.exp(spread * rng.standard_normal())}
        for eta in np.linspace(0, 1, 201) for model in ("a", "b") for seed in range(n_seeds)
    ]  # fmt: skip
    tables.write("forecast", rows, made / "forecast.parquet")
    asked = "SELECT detectable, n_compared FROM power WHERE comparison LIKE 'error of two%'"
    [(detectable, n_compared)] = catalog.open_tables(made).sql(asked).fetchall()
    error = spread * math.sqrt(2 / n_seeds)
    assert n_compared == 402 and stats.norm.sf(1.96 - detectable / error) == pytest.approx(0.8, abs=0.03)


def test_an_accuracy_has_an_interval_over_test_sequences_and_over_seeds(tmp_path):
    cell = {"task": "smnist", "majority": 0.1, "n_test": 400}
    one = [cell | {"model": "one", "seed": 0, "accuracy": 0.7}, cell | {"model": "none", "seed": 0, "accuracy": 0.0}]
    several = [cell | {"model": "three", "seed": seed, "accuracy": 0.7 + 0.1 * (seed - 1)} for seed in range(3)]
    tables.write("benchmark", one + several, tmp_path / "benchmark.parquet")
    found = {
        row[0]: row[1:] for row in catalog.open_tables(tmp_path).sql("SELECT model, low, high FROM benchmark_cell").fetchall()
    }
    wilson = stats.binomtest(280, 400).proportion_ci(method="wilson")
    assert found["one"] == pytest.approx((wilson.low, wilson.high), abs=0.002)
    assert found["none"][0] == 0 and 0.005 < found["none"][1] < 0.02
    half = stats.t.ppf(0.975, 2) * math.sqrt(0.1**2 / 3 + 0.7 * 0.3 / 400)
    assert found["three"][1] - found["three"][0] == pytest.approx(2 * half, rel=0.01)
    tables.write("benchmark", [row | {"n_test": None} for row in one], tmp_path / "benchmark.parquet")
    assert catalog.open_tables(tmp_path).sql("SELECT DISTINCT low, high FROM benchmark_cell").fetchall() == [(None, None)]


def test_one_seed_leaves_the_gap_undefined(tmp_path):
    rows = [row for row in synthetic.forecast(np.random.default_rng(0), fail=False) if row["seed"] == 0]
    tables.write("forecast", rows, tmp_path / "forecast.parquet")
    gaps = catalog.aggregate("gap", {"forecast": tmp_path / "forecast.parquet"}).to_pylist()
    assert {(row["status"], row["gap"]) for row in gaps} == {("undefined", None)}
    assert min(row["gap_published"] for row in gaps) == 0


def test_orders_of_convergence_are_those_the_data_was_made_with(connection):
    orders = dict(connection.sql("SELECT method, avg(convergence_order) FROM convergence_order GROUP BY method").fetchall())
    assert orders == pytest.approx({"zoh": 1, "bilinear": 1, "averaged": 2})
    trained = connection.sql("SELECT avg(refinement_order) FROM refinement_order").fetchall()[0][0]
    assert trained == pytest.approx(1, abs=0.05)


def test_the_interval_of_a_convergence_error_is_students_over_draws(study, connection):
    rows = pq.read_table(study / "convergence.parquet").to_pylist()
    logs = [math.log(r["rel_linf"]) for r in rows
            if (r["model"], r["method"], r["scale"], r["tau"]) == ("s6", "zoh", 32.0, 0.25)]  # fmt: skip
    low, high = stats.t.interval(0.95, len(logs) - 1, np.mean(logs), stats.sem(logs))
    where = "model = 's6' AND method = 'zoh' AND scale = 32 AND tau = 0.25"
    found = connection.sql(f"SELECT ln(low), ln(high) FROM convergence_error WHERE {where}").fetchall()[0]
    assert found == pytest.approx((low, high), rel=1e-5)


def test_a_baseline_is_no_competitor_and_has_no_interval(study, connection):
    assert not {row["model"] for row in pq.read_table(study / "gap.parquet").to_pylist()} & set(catalog.BASELINES)
    assert connection.sql("SELECT count(low) FROM forecast_eta WHERE model IN (FROM baselines)").fetchall() == [(0,)]


# ---------------------------------------------------------------- the sandbox

ATTACKS = [
    "COPY score TO '{out}'",
    "EXPLAIN ANALYZE COPY score TO '{out}'",
    "COPY score TO '{out}' (FORMAT parquet, USE_TMP_FILE false)",
    "EXPORT DATABASE '{out}'",
    "ATTACH '{out}' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_blob('{secret}')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM '{secret}'",
    "SELECT * FROM 'https://example.org/x.parquet'",
    "SELECT * FROM read_parquet('https://example.org/x.parquet')",
    "SELECT * FROM sniff_csv('{secret}')",
    "SELECT * FROM query('COPY score TO ''{out}''')",
    "PRAGMA database_list",
    "SET enable_external_access = true",
    "RESET memory_limit",
    "CALL pragma_version()",
    "CREATE TABLE mine AS SELECT 1",
    "DROP TABLE score",
    "INSERT INTO score SELECT * FROM score",
    "WITH x AS (DELETE FROM score RETURNING *) SELECT * FROM x",
    "SELECT 1; SELECT 2",
    "",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_query_cannot_write_read_a_file_or_reach_the_network(study, tmp_path, attack):
    secret, out = tmp_path / "secret.csv", tmp_path / "out"
    secret.write_text("password\nhunter2\n")
    before = {path: path.stat().st_mtime_ns for path in study.iterdir()}
    with pytest.raises(catalog.QueryError) as refused:
        catalog.query(attack.format(secret=secret, out=out), study)
    assert "\n" not in str(refused.value) and "hunter2" not in str(refused.value)
    assert not out.exists()
    assert {path: path.stat().st_mtime_ns for path in study.iterdir()} == before


def test_the_child_itself_refuses_what_is_no_select():
    with pytest.raises(catalog.QueryError, match="exactly one SELECT can be run, this is COPY"):
        sandbox.only_select("COPY (SELECT 1) TO 'x'")


def test_a_closed_connection_stays_closed(study, tmp_path):
    connection = catalog.open_tables(study)
    sandbox.close_doors(connection, 256)
    for sql in (f"COPY score TO '{tmp_path / 'out'}'", "SET enable_external_access = true", "INSERT INTO score FROM score"):
        with pytest.raises(duckdb.Error):
            connection.execute(sql)
    assert not (tmp_path / "out").exists()


def test_a_query_sees_no_variable_of_python(study):
    score_of_python = pa.table({"x": [1]})
    with pytest.raises(catalog.QueryError, match="no table or view 'score_of_python'"):
        catalog.query("SELECT * FROM score_of_python", study)
    assert len(score_of_python) == 1


def test_time_memory_and_answer_are_limited(study):
    with pytest.raises(catalog.QueryError, match="longer than 1 s"):
        catalog.query("SELECT count(*) FROM range(1000000000000) WHERE hash(range) = 1", study, seconds=1)
    with pytest.raises(catalog.QueryError, match="more memory"):
        catalog.query("SELECT repeat('a', 1000000000) FROM range(50)", study, seconds=600)
    with pytest.raises(catalog.QueryError, match="larger than 1 MB"):
        catalog.query("SELECT * FROM range(10000000)", study, result_mb=1)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT * FROM forcast", "did you mean 'forecast'?"),
        ("SELECT mo FROM score", "did you mean 'mu'?"),
        ("SELECT * FROM claims", "table claims is not in this study: its stage has not run"),
        ("SELEC 1", "syntax error"),
    ],
)
def test_an_error_names_the_nearest_name(study, sql, said):
    with pytest.raises(catalog.QueryError) as refused:
        catalog.query(sql, study)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_a_query_answers_over_views_and_ctes(study):
    answer = catalog.query("WITH x AS (FROM score WHERE mu > 0.5) SELECT task, count(*) AS n FROM x GROUP BY ALL", study)
    assert answer.to_pylist() == [{"task": "smnist", "n": 4}]


# ---------------------------------------------------------------- formats and export


def test_every_format_gives_the_same_rows(study):
    answer = catalog.query("SELECT task, encoder, mu FROM score ORDER BY ALL", study)
    assert pq.read_table(io.BytesIO(catalog.render(answer, "parquet"))).to_pylist() == answer.to_pylist()
    assert json.loads(catalog.render(answer, "json")) == answer.to_pylist()
    lines = catalog.render(answer, "csv").decode().splitlines()
    assert lines[0] == "task,encoder,mu" and len(lines) == len(answer) + 1
    assert lines[1].startswith('"<script>alert(""task"")')
    assert len(catalog.render(answer, "table").decode().splitlines()) == len(answer) + 2


@pytest.mark.parametrize("format", catalog.FORMATS)
def test_the_command_gives_what_python_gives(study, capfdbinary, format):
    sql = "SELECT task, encoder, mu FROM score ORDER BY ALL"
    cli.main(["query", sql, "--study", "invented", "--results", str(study.parents[1]), "--format", format])
    assert capfdbinary.readouterr().out == catalog.render(catalog.query(sql, study), format)


def test_control_characters_of_a_name_do_not_reach_the_terminal():
    shown = catalog.render(pa.table({"task": ["\x1b[31mred\nline"]}), "table").decode()
    assert "\x1b" not in shown and len(shown.splitlines()) == 3


def test_an_unknown_format_names_the_nearest():
    with pytest.raises(catalog.QueryError, match="did you mean 'json'"):
        catalog.render(pa.table({"a": [1]}), "jsn")


def test_the_exported_database_opens_elsewhere_with_views_and_comments(study, tmp_path):
    catalog.export(study, tmp_path / "study.duckdb")
    other = duckdb.connect(str(tmp_path / "study.duckdb"), read_only=True)
    assert other.sql("SELECT count(*) FROM advantage").fetchall()[0][0] > 0
    comment = other.sql("SELECT comment FROM duckdb_columns() WHERE table_name = 'score' AND column_name = 'mu'").fetchall()
    assert comment[0][0].startswith("task continuity")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study.duckdb"]


def test_a_column_of_a_view_means_what_it_means_in_the_table_it_comes_from():
    assert catalog.documentation("convergence_error")[1]["scale"] == catalog.documentation("convergence")[1]["scale"]
    assert catalog.documentation("convergence_error")[1]["scale"] != catalog.documentation("claims")[1]["scale"]
