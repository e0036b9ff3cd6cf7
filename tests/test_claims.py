"""Claims: rules, intervals and Holm's correction on known numbers, and every claim of config/claims.yaml on a study."""

import json
import math
import re
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import synthetic
from continuity import alignment, catalog, claims, tables
from scipy import stats

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"


@pytest.fixture(scope="module")
def entries():
    return claims.read(ROOT / "config" / "claims.yaml")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    made = synthetic.write(tmp_path_factory.mktemp("study"))
    tables.write("gap", catalog.aggregate("gap", catalog.table_files(made)), made / "gap.parquet")
    rows = alignment.align(catalog.open_tables(made).sql("FROM advantage").to_arrow_table())
    tables.write("alignment", rows, made / "alignment.parquet")
    return made


@pytest.fixture(scope="module")
def judged(study, entries):
    rows = claims.evaluate(catalog.open_tables(study), *entries, "invented")
    return {row["claim"]: row for row in rows}


def _entry(**changes):
    return {"claim": "c", "statement": "s", "source": "A", "published": "1", "stage": "score", "tables": [],
            "rule": {"above": 0}} | changes  # fmt: skip


def _one(connection, **changes):
    return claims.evaluate(connection, [_entry(**changes)], {}, "study")[0]


# ---------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("rule", "low", "high", "verdict"),
    [
        ({"above": 0}, 0.1, 0.2, "supported"),
        ({"above": 0}, -0.1, 0.2, "inconclusive"),
        ({"above": 0}, -0.2, -0.1, "contradicted"),
        ({"below": 1}, 0.5, 0.9, "supported"),
        ({"below": 1}, 1.1, 1.2, "contradicted"),
        ({"within": [-1, 1]}, -0.5, 0.5, "supported"),
        ({"within": [-1, 1]}, 0.5, 1.5, "inconclusive"),
        ({"within": [-1, 1]}, 1.5, 2.0, "contradicted"),
        ({"within": 0.4, "margin": 0.1}, 0.35, 0.45, "supported"),
    ],
)
def test_a_verdict_follows_the_whole_interval(rule, low, high, verdict):
    assert claims.Rule.parse(rule).judge(low, high) == verdict


def test_a_rule_of_another_kind_is_refused():
    with pytest.raises(claims.ClaimError, match="above, below or within"):
        claims.Rule.parse({"near": 1})


def test_the_p_value_agrees_with_the_interval():
    """An interval that just touches the limit has p = .05, normal and Student's."""
    rule = claims.Rule.parse({"above": 0})
    assert rule.p_value(1.0, 0.0, 2.0) == pytest.approx(0.05)
    assert rule.p_value(1.0, 0.0, 2.0, df=4) == pytest.approx(0.05)


@pytest.mark.parametrize("n, rho", [(5, 0.9), (6, 31 / 35), (7, 6 / 7), (7, -6 / 7)])
def test_a_rank_correlation_over_few_tasks_is_about_as_sure_as_its_exact_permutation_test(n, rho):
    half = 1.96 * (1.06 / (n - 3)) ** 0.5
    row = {"estimate": rho, "low": math.tanh(math.atanh(rho) - half), "high": math.tanh(math.atanh(rho) + half)}
    ranks = np.array(list(permutations(range(n))))
    every = 1 - 6 * ((ranks - np.arange(n)) ** 2).sum(1) / (n * (n * n - 1))
    exact = (np.abs(every) >= abs(rho) - 1e-9).mean()
    assert 0.5 * exact < claims._judge(claims.Rule.parse({"above": 0}), row, {"fisher": True}).p < exact


def test_holm_is_the_textbook_step_down():
    results = [claims.Result("supported", "r", 1, 1, 1, p) for p in (0.01, 0.04, 0.03, 0.005)]
    corrected = claims.correct(results)
    assert [r.p for r in corrected] == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert [r.verdict for r in corrected] == ["supported", "inconclusive", "inconclusive", "supported"]


def test_a_sample_gets_students_interval(study):
    connection = catalog.open_tables(study)
    values = [0.2, 0.5, 0.1, 0.4]
    row = _one(connection, sample="SELECT unnest([0.2, 0.5, 0.1, 0.4]) AS x")
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (row["estimate"], row["low"], row["high"]) == pytest.approx((0.3, low, high), rel=1e-5)
    assert row["p_value"] == pytest.approx(stats.ttest_1samp(values, 0).pvalue, rel=1e-4)


def test_a_sample_of_logarithms_is_shown_as_a_ratio(study):
    row = _one(catalog.open_tables(study), sample="SELECT ln(unnest([2.0, 2.2, 1.8])) AS x", log=True, rule={"above": 1})
    assert row["estimate"] == pytest.approx(math.exp(np.mean(np.log([2.0, 2.2, 1.8]))))
    assert row["verdict"] == "supported"


# ---------------------------------------------------------------- what goes wrong is a row


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sql": "SELECT nonsense FROM score"}, "not measured: Binder Error"),
        ({"sql": "SELEC"}, "not measured: Parser Error"),
        ({"sql": "SELECT mu AS estimate, low, high FROM score WHERE task = 'none'", "absent": "no task none"}, "no task none"),
        ({"sql": "SELECT 1.0 AS estimate, NULL AS low, NULL AS high"}, "no interval: too few runs"),
        ({"sql": "SELECT 'nan'::DOUBLE AS estimate"}, "not measured"),
        ({"sql": "SELECT 1.0 AS estimate, 0.5 AS low, 1.5 AS high", "rule": {"near": 1}}, "a rule is above, below or within"),
        ({"sql": "SELECT 1.0 AS estimate, 0.5 AS low, 1.5 AS high", "rule": {"above": "much"}}, "a rule holds numbers"),
        ({"sql": "SELECT 'much' AS estimate, 0.5 AS low, 1.5 AS high"}, "not measured"),
        ({"sql": "SELECT 1.0 AS estimate, 0.5 AS low, 1.5 AS high", "fit": "SELECT broken"}, "not measured: Binder Error"),
        ({"sql": "SELECT 1", "tables": ["router"]}, "not run: this study has no table router"),
        ({"sample": "SELECT 1.0 AS x"}, "too few for an interval"),
    ],
)
def test_a_broken_or_unmeasured_claim_is_inconclusive_with_its_reason(study, changes, said):
    row = _one(catalog.open_tables(study), **changes)
    assert row["verdict"] == "inconclusive" and said in row["reason"] and "\n" not in row["reason"]


def test_a_broken_claim_does_not_stop_the_others(study):
    broken, good = _entry(claim="a", sql="SELEC"), _entry(claim="b", sql="SELECT 2.0 AS estimate, 1.9 AS low, 2.1 AS high")
    rows = claims.evaluate(catalog.open_tables(study), [broken, good], {}, "study")
    assert [row["verdict"] for row in rows] == ["inconclusive", "supported"]


def test_an_unknown_key_and_a_double_name_are_refused(tmp_path):
    (tmp_path / "c.yaml").write_text("claims: [{claim: a, sqll: SELECT 1}]")
    with pytest.raises(claims.ClaimError, match="unknown key sqll"):
        claims.read(tmp_path / "c.yaml")
    entry = json.dumps(_entry(sql="SELECT 1"))
    (tmp_path / "c.yaml").write_text(f"claims: [{entry}, {entry}]")
    with pytest.raises(claims.ClaimError, match="claim c stands there twice"):
        claims.read(tmp_path / "c.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("claims: [{claim: a, sql: SELECT 1}]", "claim 'a': stage, statement, source, published, tables, rule missing"),
        ("claims: [{claim: '{x}', each: [{y: 1}], sql: SELECT 1}]", "not a file of claims: 'x'"),
        ("claims: [a", "not a file of claims: "),
        ("- a", "not a file of claims: "),
    ],
)
def test_a_file_that_holds_no_claims_is_one_line(tmp_path, text, said):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(claims.ClaimError) as refused:
        claims.read(tmp_path / "c.yaml")
    assert said in str(refused.value) and str(refused.value).startswith(str(tmp_path)) and "\n" not in str(refused.value)


# ---------------------------------------------------------------- the claims of the papers


def test_every_claim_runs_and_none_is_broken(judged, entries):
    assert list(judged) == [entry["claim"] for entry in entries[0]]
    assert [row["reason"] for row in judged.values() if "Error" in row["reason"]] == []


def test_verdicts_on_the_invented_study_are_the_ones_it_was_made_for(judged):
    expected = {
        "order of S4, zoh": "supported",
        "order of S6, bilinear": "supported",
        "S6 loses convergence": "contradicted",
        "S6 and amplitude": "supported",
        "S6 less continuous than S4": "supported",
        "S4 error within its bound": "supported",
        "every error within its bound": "supported",
        "S6 over S4 is a constant": "supported",
        "half-sample law": "supported",
        "averaged rule, order of S4": "supported",
        "averaged rule, order of S6": "supported",
        "averaged rule, error of S4": "supported",
        "averaged rule, error of S6": "supported",
        "drift of S4 is proportional to the hold error": "supported",
        "drift of S6 is proportional to the hold error": "supported",
        "drift of S4 follows the hold error": "supported",
        "drift of S6 follows the hold error": "supported",
        "trained S6 diverges": "contradicted",
        "trained S6 drifts more": "supported",
        "S4 against S6 at the discrete end": "supported",
        "S4 against S6 at the continuous end": "supported",
        "S4's advantage grows with eta": "supported",
        "mu predicts the winner": "supported",
        "encoders agree": "supported",
        "gap of S4 at eta 1": "inconclusive",
        "gap of Mamba-3 at eta 0": "inconclusive",
        "time to 95 % of plain, against the cheapest plain run": "supported",
        "final accuracy on sequential MNIST": "inconclusive",
        "S6 drops at stage changes": "supported",
        "kappa predicts the drift of a refinement": "supported",
        "violation falls": "supported",
        "share of violating blocks falls too": "supported",
        "clean error unchanged": "inconclusive",
        "clean error equivalent": "supported",
        "diagonal storage is better": "supported",
        "certified layers are dissipative": "supported",
        "under perturbation, violation": "contradicted",
        "router is neutral": "inconclusive",
        "theorem: irreversible forgetting": "supported",
        "HiPPO forgets slowly, against a random matrix of the same logarithmic norm": "supported",
        "HiPPO forgets slowly, against a random matrix of the same spectral abscissa": "inconclusive",
    }
    assert {name: judged[name]["verdict"] for name in expected} == expected


def _changed(study, entries, sql):
    connection = catalog.open_tables(study)
    connection.execute(sql)
    return {row["claim"]: row for row in claims.evaluate(connection, *entries, "changed")}


def test_a_diverging_s6_would_be_found_out(study, entries):
    """With the error of S6 the same at every step, its ratio to S4 grows, and its law fails."""
    rows = _changed(study, entries, "UPDATE convergence SET rel_linf = 4, abs_linf = 4 * scale WHERE model = 's6'")
    assert rows["S6 loses convergence"]["verdict"] == "supported"
    assert rows["S6 over S4 is a constant"]["verdict"] == "contradicted"
    assert rows["S6 over S4 is a constant"]["estimate"] == pytest.approx(4)
    assert rows["half-sample law"]["verdict"] == "contradicted"
    assert rows["half-sample law"]["estimate"] == pytest.approx(3 / 4)
    assert rows["averaged rule, order of S6"]["verdict"] == "contradicted"
    assert rows["averaged rule, order of S4"]["verdict"] == "supported"


def test_a_drift_that_does_not_follow_the_step_has_no_kappa(study, entries):
    rows = _changed(study, entries, "UPDATE refinement SET drift = 0.05 + 0.001 * (1 + seed) / step_scale WHERE model = 's6'")
    for name in ("drift of S6 is proportional to the hold error", "drift of S6 follows the hold error"):
        assert rows[name]["verdict"] == "contradicted"
    assert rows["drift of S4 follows the hold error"]["verdict"] == "supported"


def test_a_published_gap_is_shown_but_not_judged_on_another_construction(judged, study, entries):
    row = judged["gap of S4 at eta 1"]
    assert row["estimate"] == 0 and row["low"] < 0 < row["high"]
    assert row["reason"].startswith("not decided: measured on the balanced construction")
    connection = catalog.open_tables(study)
    connection.execute("INSERT INTO gap SELECT * REPLACE ('published' AS construction) FROM gap")
    rows = {row["claim"]: row["verdict"] for row in claims.evaluate(connection, *entries, "both")}
    assert rows["gap of S4 at eta 1"] == "supported" and rows["gap of S6 at eta 0.25"] == "contradicted"


def test_architectures_worse_than_persistence_decide_nothing(study, entries):
    connection = catalog.open_tables(study)
    connection.execute("UPDATE forecast SET rmse_relative = 10 * rmse_relative")
    rows = {row["claim"]: row for row in claims.evaluate(connection, *entries, "weak")}
    row = rows["S4 against S6 at the continuous end"]
    assert row["verdict"] == "inconclusive" and "do not beat persistence" in row["reason"]


def test_a_claim_of_a_stage_that_has_not_run_says_so(study, entries):
    rows = _changed(study, entries, "DROP TABLE stability CASCADE")
    assert rows["violation falls"]["reason"] == "not run: this study has no table stability"


def test_the_scale_stands_beside_every_verdict(judged):
    assert judged["gap of S4 at eta 1"]["scale"] == "invented: 4 systems, 5 etas, 3 seeds, 5000 parameters at most"
    assert all(row["scale"].startswith("invented") for row in judged.values())


def test_an_empty_study_judges_nothing(entries):
    rows = claims.evaluate(catalog.open_files({}), *entries, "empty")
    assert {row["verdict"] for row in rows} == {"inconclusive"}
    assert all(row["reason"].startswith("not run") for row in rows)


def test_a_penalty_that_does_nothing_and_a_certificate_that_leaks_would_be_found_out(study, entries):
    rows = _changed(study, entries, "UPDATE stability SET violation = 0.036 + 0.0001 * seed, violation_max = 0.1")
    assert rows["violation falls"]["verdict"] == "contradicted"
    assert rows["certified layers are dissipative"]["verdict"] == "contradicted"


def test_a_theorem_that_a_system_breaks_would_be_found_out(study, entries):
    rows = _changed(study, entries, "UPDATE dissipation SET holds = false WHERE theorem = 'storage' AND system = 3")
    assert rows["theorem: minimal storage"]["verdict"] == "contradicted"
    assert rows["theorem: exponential forgetting"]["verdict"] == "supported"


def test_a_published_time_is_measured_where_its_task_and_target_are_there(study, entries):
    rows = _changed(study, entries, "INSERT INTO time_to_target SELECT * REPLACE ('image' AS task, '0.85 as published' AS target, "
                    "0.85 AS target_accuracy) FROM time_to_target")  # fmt: skip
    assert rows["time to 85 on Image"]["verdict"] == "supported" and rows["time to 85 on Image"]["estimate"] == 0.6
    assert rows["time to 40 on Image"]["reason"].startswith("not measured")


def _numbers(text):
    return {float(number) for number in re.findall(r"(?<![\w.])\d*\.?\d+", text)}


def test_every_published_figure_stands_in_the_table_of_facts(entries):
    """Where the facts are at hand; the eta table is checked in full against its published columns in any case."""
    gaps = {e["claim"]: e["published"] for e in entries[0] if e["claim"].startswith("gap of ")}
    assert len(gaps) == 30
    for eta in ("0", "0.25", "0.5", "0.75", "1"):
        assert [float(v) for name, v in gaps.items() if name.endswith(f"at eta {eta}")].count(0.0) == 1
    if SHARED.exists():
        known = set().union(*(_numbers((SHARED / name).read_text(encoding="utf-8")) for name in ("FACTS.md", "METHODS.md")))
        missing = {e["claim"]: n for e in entries[0] for n in _numbers(str(e["published"])) - known}
        assert missing == {}


def test_own_claims_take_no_power_from_published_ones():
    weak = claims.Result("supported", "r", 1.0, 0.5, 1.5, 0.03)
    results = claims._by_family([weak] * 3, ["A: somewhere", claims.OWN, claims.OWN])
    assert [result.verdict for result in results] == ["supported", "inconclusive", "inconclusive"]
    assert results[0].p == 0.03 and results[1].p == 0.06
