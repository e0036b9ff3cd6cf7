"""The page: whole, offline, escaped, its numbers those of the tables, and honest about what is not there."""

import base64
import csv
import html
import io
import json
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import synthetic
from continuity import alignment, catalog, claims, figures, report, tables
from continuity.cli import main
from scipy import stats

SETTINGS = {"study": "invented", "score": {"max_lag": 16}, "forecast": {"seeds": [0, 1, 2], "note": "<b>bold</b>"}}
ROOT = report.Path(__file__).parents[1]
VOID = {"meta", "link", "img", "br", "source", "hr", "input"}


def _study(folder, figures_too=("study", "benchmark", "diagnosis"), leave_out=(), seed=0):
    """An invented study with its derived tables and a few figures."""
    made = synthetic.write(folder, seed=seed, leave_out=leave_out)
    files = catalog.table_files(made)
    if "forecast" in files:
        tables.write("gap", catalog.aggregate("gap", files), made / "gap.parquet")
    if {"forecast", "mixtures"} <= set(files):
        rows = alignment.align(catalog.open_tables(made).sql("FROM advantage").to_arrow_table(), draws=200)
        tables.write("alignment", rows, made / "alignment.parquet")
    connection = catalog.open_tables(made)
    tables.write("claims", claims.evaluate(connection, *claims.read(ROOT / "config" / "claims.yaml"), "invented"),
                 made / "claims.parquet")  # fmt: skip
    (folder / "figures").mkdir()
    for name in figures_too:
        figures.draw(name, connection, folder / "figures" / name)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    _study(folder)
    return folder


@pytest.fixture(scope="module")
def page(folder):
    cfg = json.dumps(SETTINGS)
    report.render(folder / "tables", folder / "figures", SETTINGS, folder / "report.html", cfg, "c0de")
    return (folder / "report.html").read_text()


class Reader(HTMLParser):
    """Checks nesting and collects tags, attributes and table cells by caption."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.tables = [], [], {}
        self.rows, self.caption, self.cell = None, None, None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr" and self.rows is not None:
            self.rows.append([])
        if tag == "table":
            self.rows = []
        if tag in ("td", "caption"):
            self.cell = ""

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag == "caption":
            self.caption, self.cell = self.cell.strip(), None
        if tag == "td":
            self.rows[-1].append(self.cell.strip())
            self.cell = None
        if tag == "table":
            self.tables[self.caption], self.rows = [row for row in self.rows if row], None

    def handle_data(self, data):
        if self.cell is not None:
            self.cell += data


@pytest.fixture(scope="module")
def read(page):
    return Reader(page)


def _attributes(read, tag):
    return [attributes for name, attributes in read.tags if name == tag]


# ---------------------------------------------------------------- whole and offline


def test_the_page_is_well_formed_and_small(page, read):
    assert read.open == []
    assert len(page.encode()) < 5_000_000


def test_nothing_is_loaded_from_outside(page, read):
    for tag in ("img", "source", "script", "link"):
        for attributes in _attributes(read, tag):
            for name in ("src", "srcset", "href"):
                assert attributes.get(name, "data:").startswith("data:")
    assert "url(" not in page and "@import" not in page
    policy = next(a["content"] for a in _attributes(read, "meta") if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'")


def test_the_policy_lets_only_the_pages_own_script_run(page, read):
    import hashlib

    script = re.search(r"<script>(.*)</script>", page, re.S).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert len(_attributes(read, "script")) == 1


def test_identity_stands_in_the_first_four_kilobytes(page, read):
    named = {a["name"]: a["content"] for a in _attributes(read, "meta") if "name" in a}
    assert named["continuity-code"] == "c0de"
    assert json.loads(named["continuity-cfg"]) == SETTINGS
    assert "continuity-cfg" in page[:4096]


# ---------------------------------------------------------------- safe and accessible


def test_names_that_a_user_chose_are_text(page, read):
    assert synthetic.HOSTILE not in page
    assert html.escape(synthetic.HOSTILE, quote=False).split("(")[0] in page
    assert "<i>here</i>" not in page and "<b>bold</b>" not in page
    assert any(synthetic.HOSTILE in row for row in read.tables["Continuity of each task"])


def test_figures_have_alternative_texts_tables_captions_and_sections_names(read):
    images = _attributes(read, "img")
    assert len(images) == 3 and all(len(image["alt"]) > 30 for image in images)
    assert len(read.tables) == len(_attributes(read, "table")) and None not in read.tables
    identifiers = [a["id"] for _, a in read.tags if "id" in a]
    assert len(identifiers) == len(set(identifiers))
    assert {a["aria-labelledby"] for a in _attributes(read, "section")} <= set(identifiers)
    for tag in ("main", "header", "footer", "nav", "h1", "title"):
        assert len(_attributes(read, tag)) == 1
    assert _attributes(read, "html") == [{"lang": "en"}]


def test_every_link_within_the_page_leads_somewhere(read):
    identifiers = {a["id"] for _, a in read.tags if "id" in a} | {"study"}
    targets = {a["href"][1:] for a in _attributes(read, "a") if a["href"].startswith("#")}
    assert targets <= identifiers


def _contrast(one, other):
    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_text_contrast_meets_the_guideline_in_light_and_in_dark(page):
    for block in re.findall(r":root \{(.*?)\}", page, re.S)[:2]:
        colours = dict(re.findall(r"--([\w-]+): (#\w{6})", block))
        for text, ground in [("ink", "page"), ("soft", "page"), ("soft", "card"), ("link", "page"), ("yes", "yes-bg"),
                             ("no", "no-bg"), ("open", "open-bg")]:  # fmt: skip
            assert _contrast(colours[text], colours[ground]) >= 4.5, (text, ground)


# ---------------------------------------------------------------- its numbers are the tables'


def test_the_numbers_of_a_table_are_those_of_the_file(folder, read):
    rows = tables.read(folder / "tables" / "gap.parquet").to_pylist()
    shown = {(row[0], row[2]): row[3] for row in read.tables["Gap to the best architecture"]}
    assert len(shown) == len(rows)
    for row in rows:
        text = shown[report.spell(row["eta"]), row["model"]]
        if row["gap"] is None:
            assert text == "–"
        else:
            found = [float(number.replace("−", "-")) for number in re.findall(r"−?\d\.?\d*", text)]
            assert found == pytest.approx([row["gap"], row["low"], row["high"]], rel=0.006, abs=5e-4)


def test_downloads_hold_all_rows(folder, read):
    link = next(a for a in _attributes(read, "a") if a.get("download") == "forecast-gap-to-the-best-architecture.csv")
    content = base64.b64decode(link["href"].split(",", 1)[1]).decode()
    rows = list(csv.DictReader(io.StringIO(content)))
    expected = {(r["eta"], r["model"]): r["gap"] for r in tables.read(folder / "tables" / "gap.parquet").to_pylist()}
    assert {(float(r["eta"]), r["model"]): float(r["gap"]) if r["gap"] else None for r in rows} == expected


def test_verdicts_are_counted_from_the_claims(folder, page):
    rows = tables.read(folder / "tables" / "claims.parquet").to_pylist()
    for verdict in ("supported", "contradicted"):
        count = sum(row["verdict"] == verdict for row in rows)
        assert f'<li class="{verdict}"><strong>{count}</strong>' in page


def test_the_sql_of_the_page_gives_its_numbers(folder, page):
    sql = html.unescape(re.search(r"Gap to the best architecture”</summary><pre>(.*?)</pre>", page, re.S).group(1))
    assert len(catalog.query(sql, folder / "tables")) == 15


# ---------------------------------------------------------------- model continuity


@pytest.fixture(scope="module")
def ask(folder):
    """Rows of a query on the invented study."""
    connection = catalog.open_tables(folder / "tables")
    return lambda sql: connection.sql(sql).to_arrow_table().to_pylist()


def _content(name):
    return synthetic.rows()[name]


def _paired(rows, model, over, **where):
    """Geometric mean over draws of error(model) / error(over) and its t interval, by scipy."""
    errors = {name: {row["draw"]: row["rel_linf"] for row in rows if row["model"] == name
                     and all(row[key] == value for key, value in where.items())} for name in (model, over)}  # fmt: skip
    logs = np.log([errors[model][draw] / errors[over][draw] for draw in errors[over]])
    return np.exp([logs.mean(), *stats.t.interval(0.95, len(logs) - 1, logs.mean(), stats.sem(logs))])


def test_every_control_between_s4_and_s6_adds_its_factor(ask):
    rows = _content("convergence")
    at = {"method": "zoh", "scale": 32.0, "tau": 2.0**-6}
    found = {r["model"]: r for r in ask("FROM convergence_confound WHERE method = 'zoh' AND scale = 32 AND tau = 0.015625")}
    assert set(found) == set(synthetic.CONTROLS)
    for before, model in [("s4", "s4_matched"), ("s4_matched", "s6_fixed"), ("s6_fixed", "s6")]:
        row = found[model]
        assert [row["ratio"], row["low"], row["high"]] == pytest.approx(_paired(rows, model, "s4", **at))
        factor = [row["factor"], row["factor_low"], row["factor_high"]]
        assert factor == pytest.approx(_paired(rows, model, before, **at))
        assert factor[0] == pytest.approx(synthetic.CONTROLS[model] / synthetic.CONTROLS[before], rel=0.15)
    assert found["s4"]["ratio"] == 1 and found["s4"]["factor"] is None


def test_the_averaged_rule_gains_an_order(ask):
    """Errors c tau and c tau^2: order two, and 1 / tau less error at the finest step."""
    for row in ask("FROM convergence_averaged"):
        assert row["averaged_order"] == pytest.approx(2)
        assert row["low"] < row["gain"] < row["high"]
        assert row["gain"] == pytest.approx(2.0**10, rel=0.15)


def test_kappa_is_drift_over_hold_error(ask):
    rows = [row for row in _content("refinement") if row["drift"]]
    for found in ask("FROM refinement_kappa"):
        mine = [r for r in rows if all(r[key] == found[key] for key in ("system", "model", "method"))]
        kappa = np.exp(np.mean([math.log(r["drift"] / r["hold_error"]) for r in mine]))
        assert found["kappa"] == pytest.approx(kappa) == pytest.approx(synthetic.KAPPA[found["model"]], rel=0.1)
        assert found["low"] < kappa < found["high"] and found["n_seeds"] == 3
        assert found["exponent"] == pytest.approx(1, abs=0.1)


def test_the_rank_correlation_is_spearmans_with_ties_too(tmp_path):
    rng = np.random.default_rng(4)
    rows = [{"system": system, "model": "s6", "method": "zoh", "step_rule": "delta", "step_scale": scale, "amplitude": 1.0,
             "seed": seed, "drift": float(rng.integers(1, 5)), "hold_error": float(rng.integers(1, 4))}
            for system in ("dho", "vdp") for scale in (0.5, 1.0, 2.0, 4.0) for seed in (0, 1)]  # fmt: skip
    tables.write("refinement", rows, tmp_path / "refinement.parquet")
    (found,) = catalog.open_tables(tmp_path).sql("FROM refinement_law").to_arrow_table().to_pylist()
    runs = [[(r["drift"], r["hold_error"]) for r in rows if r["seed"] == seed] for seed in (0, 1)]
    assert found["rank_correlation"] == pytest.approx(np.mean([stats.spearmanr(run).statistic for run in runs]))
    assert (found["n_points"], found["n_systems"], found["n_seeds"]) == (8, 2, 2)
    assert -1 <= found["low"] <= found["rank_correlation"] <= found["high"] <= 1


def test_a_drift_that_never_changes_has_no_rank_correlation(tmp_path):
    rows = [row | {"drift": 0.1} for row in synthetic.refinement(np.random.default_rng(0)) if row["drift"]]
    tables.write("refinement", rows, tmp_path / "refinement.parquet")
    found = catalog.open_tables(tmp_path).sql("FROM refinement_law").to_arrow_table().to_pylist()
    assert {(row["rank_correlation"], row["n_seeds"]) for row in found} == {(None, 0)}


def test_one_seed_has_a_kappa_but_no_interval(tmp_path):
    rows = [row for row in synthetic.refinement(np.random.default_rng(0)) if row["seed"] == 0]
    tables.write("refinement", rows, tmp_path / "refinement.parquet")
    connection = catalog.open_tables(tmp_path)
    for view in ("refinement_kappa", "refinement_law"):
        assert {(r["low"], r["high"]) for r in connection.sql(f"FROM {view}").to_arrow_table().to_pylist()} == {(None, None)}


def test_the_page_names_the_place_where_a_selective_model_departs(ask, read):
    for row in ask("FROM diagnosis_where WHERE model = 's6'"):
        assert {key: row[key] for key in synthetic.DEPARTS} == synthetic.DEPARTS
        assert (row["own"], row["departure"], row["lipschitz_delta"]) == (0.5, 0.6, 5.0)
        assert row["times_median"] == pytest.approx(50)
    first = read.tables["The channel and part of the sequence that depart most"][0]
    assert first[1] == "s6" and first[4:8] == ["2", "3", "0.688", "0.5"]


def test_a_map_of_departure_has_one_cell_a_layer_and_part(ask):
    cells = ask("FROM diagnosis_map WHERE system = 'vdp' AND model = 's6' AND method = 'zoh'")
    assert len(cells) == 16
    worst = max(cells, key=lambda cell: cell["own_layer"])
    assert (worst["layer"], worst["position"]) == (2, synthetic.DEPARTS["position"])
    assert (worst["own_layer"], worst["departure_layer"], worst["lipschitz_delta"]) == pytest.approx((0.25, 0.3, 5.0))


def test_failures_are_told(page):
    assert "1 of the rows of forecast have no number (diverged: loss not finite at step 17)." in page
    assert "1 of the rows of score have no number (undefined: the input is constant)." in page


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0.0, "0"), (0.123456, "0.123"), (-1.5, "−1.5"), (1234567.0, "1.23e6"), (2e-5, "2.00e−5"), (12345.0, "12345"),
     (7, "7"), (True, "yes"), ("a", "a")],
)  # fmt: skip
def test_numbers_are_spelled_for_readers(value, shown):
    assert report.spell(value) == shown


# ---------------------------------------------------------------- what is not there is said in place


def test_an_empty_study_still_has_a_page(tmp_path):
    (tmp_path / "tables").mkdir()
    report.render(tmp_path / "tables", tmp_path / "figures", {"study": "empty"}, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "The claims table is not in the study" in page and page.count("This stage is not in the study") == len(
        report._specifications()
    )


def test_empty_tables_torn_tables_and_older_tables_are_said(tmp_path):
    made = tmp_path / "tables"
    tables.write("score", [], made / "score.parquet")
    (made / "forecast.parquet").write_bytes(b"torn")
    old = tables.rows_to_table("benchmark", synthetic.benchmark(np.random.default_rng(0))).drop_columns(["parameters"])
    tables.write_table(old, made / "benchmark.parquet")
    report.render(made, tmp_path, {"study": "old"}, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "its table score has no rows" in page
    assert "Table forecast is left out" in page
    assert "Table benchmark was made by an older version: column parameters missing, shown as empty." in page
    assert "Test accuracy" in page and "The figure has not been drawn." in page


def test_two_studies_stand_side_by_side(folder, tmp_path):
    _study(tmp_path / "other", figures_too=(), leave_out=("refinement",), seed=1)
    out = tmp_path / "report.html"
    report.render(folder / "tables", folder / "figures", SETTINGS, out, against=("other <2>", tmp_path / "other"))
    page = out.read_text()
    read = Reader(page)
    assert "In other &lt;2&gt;" in page and "other <2>" not in page
    assert page.count('<div class="pair two">') == len(report._specifications())
    assert page.count("This stage is not in the study (no table refinement).") == 1
    assert read.open == []


def test_verdicts_estimates_and_intervals_of_both_studies_stand_side_by_side(tmp_path):
    row = {"stage": "score", "statement": "s", "source": "A", "published": "1", "sql": "SELECT 1", "p_value": None}
    verdicts = {
        "one": [("agreed", "supported", 0.111, "r"), ("turned", "supported", 0.222, "r"), ("first", "supported", 0.333, "r"),
                ("second", "inconclusive", None, "not run: x")],
        "two": [("agreed", "supported", 0.444, "r"), ("turned", "contradicted", 0.555, "r"), ("first", "inconclusive", None, "not run: x"),
                ("second", "supported", 0.666, "r")],
    }  # fmt: skip
    for study, rows in verdicts.items():
        full = [row | {"claim": claim, "number": i, "verdict": verdict, "estimate": x, "low": x and x - 0.1, "high": x and x + 0.1,
                       "reason": reason, "scale": f"size of {study}"} for i, (claim, verdict, x, reason) in enumerate(rows)]  # fmt: skip
        tables.write("claims", full, tmp_path / study / "tables" / "claims.parquet")
    report.render(tmp_path / "one/tables", tmp_path, {"study": "one"}, tmp_path / "r.html", against=("two", tmp_path / "two"))
    page = (tmp_path / "r.html").read_text()
    read = Reader(page)
    cells = read.tables["What this study measured, claim by claim"]
    assert [(c[1], c[3]) for c in cells] == [
        ("0.111 0.0110 to 0.211", "✓ supported 0.444 0.344 to 0.544size of two"),
        ("0.222 0.122 to 0.322", "✕ contradicted 0.555 0.455 to 0.655size of two"),
        ("0.333 0.233 to 0.433", "? inconclusive –size of two"),
    ]
    assert "Both studies measure 2 claims and decide 1 of them alike; one alone measures 1, two alone 1." in page
    changed = re.search(r'<ul class="different".*?</ul>', page, re.S).group()
    assert changed.count("<li>") == 1 and "turned" in changed and "0.455 to 0.655" in changed


# ---------------------------------------------------------------- the command


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Two small studies, and a working directory beside them."""
    for name, seed in (("one", 0), ("two", 1)):
        _study(tmp_path / "results" / name, figures_too=(), seed=seed)
    tables.write_stamp(tmp_path / "results/one/report.html", json.dumps({"study": "one", "score": {"max_lag": 12}}), "c0de")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CONTINUITY_RESULTS", raising=False)
    return tmp_path / "results"


def _refused(capsys, *command):
    with pytest.raises(SystemExit) as left:
        main(["report", *command])
    assert left.value.code == 2
    return capsys.readouterr().err.strip()


def test_the_command_writes_one_study_beside_another_here(results, capsys):
    main(["report", "--study", "one", "--against", "two"])
    assert capsys.readouterr().out.startswith("report-one-against-two.html: ")
    page = (results.parent / "report-one-against-two.html").read_text()
    assert "Study <strong>one</strong> beside study <strong>two</strong>" in page and "Both studies measure" in page
    assert "max_lag: 12" in page, "the settings that the study's own page was made with"
    assert not (results / "one/report.html").exists()


def test_the_command_writes_one_study_to_a_file_of_choice(results, capsys):
    main(["report", "--study", "two", "--output", "mine/page.html"])
    page = (results.parent / "mine/page.html").read_text()
    assert "<title>Continuity study: two</title>" in page and "beside study" not in page


def test_what_the_command_cannot_do_is_one_line(results, capsys):
    assert _refused(capsys, "--study", "one", "--against", "tow") == f"no study 'tow' in {results}; did you mean 'two'?"
    assert "that is the same study" in _refused(capsys, "--study", "one", "--against", "one")
    assert "choose another --output" in _refused(capsys, "--study", "one", "--output", "results/one/report.html")
    (results.parent / "file").write_text("")
    assert "\n" not in _refused(capsys, "--study", "one", "--output", "file/page.html")
    assert sorted(path.name for path in results.parent.iterdir()) == ["file", "results"]


# ---------------------------------------------------------------- Snakemake's own report


def test_snakemakes_own_report_holds_the_page_and_every_figure_with_caption_and_category(study):
    done = study.study("--report", "own.html")
    assert done.returncode == 0, done.stderr
    text = (study.folder / "own.html").read_text()
    drawn = {path.stem for path in (study.folder / "results/tiny/figures").glob("*.png")}
    captioned = set(re.findall(r"Figure of stage <strong>(\w+)</strong> in study <strong>tiny</strong>", text))
    assert captioned == drawn >= {"study", "score", "forecast"}
    assert '"Figures"' in text and '"Verdicts"' in text and "The page of study <strong>tiny</strong>" in text
