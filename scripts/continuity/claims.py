"""Published claims, each measured by a query and judged by a rule: supported, contradicted or inconclusive.

An interval that lies wholly on the claim's side supports it, one wholly on the other side contradicts it. Holm's
correction over all claims that rest on a sample then withdraws verdicts that so many tests would give by chance.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

from continuity import student
from continuity.problems import Problem

OWN = "this project"
LEVEL = 0.05
SHOWN = ("claim", "stage", "statement", "source", "published")
NEEDED = (*SHOWN, "tables", "rule")
KEYS = {*SHOWN, "tables", "rule", "sql", "sample", "log", "fisher", "exact", "absent", "fit"}
SAMPLE = """
WITH sample AS ({sample}), n AS (SELECT avg(x) AS mean, stddev_samp(x) AS spread, count(x) AS n FROM sample)
SELECT {back}(mean) AS estimate, {back}(mean - t * spread / sqrt(n)) AS low, {back}(mean + t * spread / sqrt(n)) AS high,
    CASE WHEN n < 2 THEN format('{{}} of them, too few for an interval', n) ELSE format('{{}} pairs or runs', n) END AS note,
    n - 1 AS df
FROM n LEFT JOIN t_quantiles ON df = least(n - 1, 1000)
"""


class ClaimError(Problem):
    """A file of claims that cannot be used; the message names the claim and the key."""


@dataclass(frozen=True)
class Rule:
    """The values a claim allows: between low and high, ends included; above or below one end, the end not included."""

    low: float
    high: float

    @classmethod
    def parse(cls, entry: dict) -> "Rule":
        """{above: v}, {below: v}, {within: [a, b]} or {within: v, margin: m}."""
        values = dict(entry)
        margin = float(values.pop("margin", 0.0))
        if len(values) != 1 or not set(values) <= {"above", "below", "within"}:
            raise ClaimError(f"a rule is above, below or within, not {entry}")
        (kind, value), *_ = values.items()
        try:
            if kind == "above":
                return cls(float(value), math.inf)
            if kind == "below":
                return cls(-math.inf, float(value))
            low, high = value if isinstance(value, list) else (value, value)
            return cls(float(low) - margin, float(high) + margin)
        except (TypeError, ValueError):
            raise ClaimError(f"a rule holds numbers, not {entry}") from None

    @property
    def words(self) -> str:
        if self.high == math.inf:
            return f"above {self.low:g}"
        if self.low == -math.inf:
            return f"below {self.high:g}"
        return f"between {self.low:g} and {self.high:g}"

    def judge(self, low: float, high: float) -> str:
        """The verdict of an interval alone."""
        one_sided = math.inf in (-self.low, self.high)
        if (low > self.low and high < self.high) or (not one_sided and low >= self.low and high <= self.high):
            return "supported"
        return "contradicted" if high < self.low or low > self.high else "inconclusive"

    @property
    def logged(self) -> "Rule":
        """The same rule for the logarithm of a positive value."""
        return Rule(*(-math.inf if end <= 0 else math.log(end) if math.isfinite(end) else end
                      for end in (self.low, self.high)))  # fmt: skip

    @property
    def fisher(self) -> "Rule":
        """The same rule for Fisher's z of a correlation."""
        return Rule(*(math.atanh(end) if abs(end) < 1 else math.copysign(math.inf, end) for end in (self.low, self.high)))

    def p_value(self, estimate: float, low: float, high: float, df: int | None = None) -> float:
        """Two-sided p of the verdict nearest to the estimate: of lying inside, or of lying outside, the allowed values.

        low, high: the 95 % interval, Student's with `df` degrees of freedom, or normal.
        """
        error = (high - low) / 2 / (student.quantile_975(df) if df else student.NORMAL_975)
        if error <= 0:
            return 0.0
        tails = [_tail((estimate - end) / error, df) for end in (self.low, self.high) if math.isfinite(end)]
        return max(tails) if self.low <= estimate <= self.high else min(tails)


def _tail(z: float, df: int | None) -> float:
    return student.two_sided(z, df) if df else math.erfc(abs(z) / math.sqrt(2))


@dataclass(frozen=True)
class Result:
    """What one claim came to before the correction for many tests."""

    verdict: str
    reason: str
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None


def read(path: Path | str) -> tuple[list[dict], dict[str, str]]:
    """The claims of a YAML file, one entry each with `each` expanded, and the queries that say a stage's scale."""
    import yaml

    try:
        loaded = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        entries = [claim for entry in loaded["claims"] for claim in _expand(entry)]
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise ClaimError(f"{path}: not a file of claims: {' '.join(str(error).split())}") from None
    for entry in entries:
        if unknown := set(entry) - KEYS:
            raise ClaimError(f"{path}: claim {entry.get('claim')!r}: unknown key {', '.join(sorted(unknown))}")
        if missing := [key for key in NEEDED if key not in entry]:
            raise ClaimError(f"{path}: claim {entry.get('claim')!r}: {', '.join(missing)} missing")
        if ("sql" in entry) == ("sample" in entry):
            raise ClaimError(f"{path}: claim {entry['claim']!r}: give either sql or sample")
    names = [entry["claim"] for entry in entries]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ClaimError(f"{path}: claim {', '.join(sorted(twice))} stands there twice")
    return entries, loaded.get("scales", {})


def _expand(entry: dict) -> list[dict]:
    each = entry.get("each")
    if each is None:
        return [entry]
    template = {key: value for key, value in entry.items() if key != "each"}
    return [_filled({key: values[key] for key in values if key in KEYS} | template, values) for values in each]


def _filled(value, values: dict):
    if isinstance(value, str):
        return value.format(**values)
    if isinstance(value, list):
        return [_filled(item, values) for item in value]
    if isinstance(value, dict):
        return {_filled(key, values): _filled(item, values) for key, item in value.items()}
    return value


def question(entry: dict) -> str:
    """The SQL that measures a claim, as it is run."""
    if "sql" in entry:
        return entry["sql"]
    return SAMPLE.format(sample=entry["sample"].strip(), back="exp" if entry.get("log") else "")


def evaluate(connection: duckdb.DuckDBPyConnection, entries: list[dict], scales: dict[str, str], study: str) -> list[dict]:
    """Rows of the claims table: every entry measured on `connection` and judged; nothing that fails stops the others."""
    present = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    results = _by_family([_measure(connection, entry, present) for entry in entries], [entry["source"] for entry in entries])
    sizes = {stage: _scale(connection, sql) for stage, sql in scales.items()}
    return [
        {"number": number}
        | {key: str(entry[key]).strip() for key in SHOWN}
        | {"estimate": result.estimate, "low": result.low, "high": result.high, "p_value": result.p}
        | {"verdict": result.verdict, "reason": result.reason, "sql": " ".join(question(entry).split())}
        | {"scale": ": ".join(filter(None, [study, sizes.get(entry["stage"])]))}
        for number, (entry, result) in enumerate(zip(entries, results, strict=True), 1)
    ]


def _scale(connection: duckdb.DuckDBPyConnection, sql: str) -> str | None:
    try:
        rows = connection.execute(sql).fetchall()
    except duckdb.Error:
        return None
    return str(rows[0][0]) if rows and rows[0][0] is not None else None


def _measure(connection: duckdb.DuckDBPyConnection, entry: dict, present: set[str]) -> Result:
    if missing := [name for name in entry["tables"] if name not in present]:
        return Result("inconclusive", f"not run: this study has no table {', '.join(missing)}")
    try:
        answer = connection.execute(question(entry))
        names = [column[0] for column in answer.description]
        rows = answer.fetchall()
        found = dict(zip(names, rows[0], strict=True)) if rows else {}
        return _fitting(connection, entry, _judge(Rule.parse(entry["rule"]), found, entry))
    except (duckdb.Error, ClaimError, TypeError, ValueError) as error:
        return Result("inconclusive", f"not measured: {str(error).splitlines()[0]}")


def _fitting(connection: duckdb.DuckDBPyConnection, entry: dict, result: Result) -> Result:
    """A result whose design can decide the claim; otherwise its numbers without a verdict, and why."""
    if "fit" not in entry or result.low is None:
        return result
    unfit = connection.execute(entry["fit"]).fetchall()
    if not unfit or unfit[0][0] is None:
        return result
    return replace(result, verdict="inconclusive", reason=f"not decided: {unfit[0][0]}", p=None)


def _judge(rule: Rule, found: dict, entry: dict) -> Result:
    estimate, note = found.get("estimate"), found.get("note")
    if estimate is None or not math.isfinite(estimate):
        reason = note or entry.get("absent", "the tables hold no rows that measure it")
        return Result("inconclusive", f"not measured: {reason}")
    estimate = float(estimate)
    exact = bool(entry.get("exact"))
    low, high = (found.get("low"), found.get("high"))
    if low is None or high is None:
        if not exact:
            return Result("inconclusive", f"no interval: {note or 'too few runs'}", estimate)
        low = high = estimate
    low, high = float(low), float(high)
    verdict = rule.judge(low, high)
    p = None if exact else found.get("p")
    if p is None and not exact:
        scale = rule, estimate, low, high
        if entry.get("log") and min(estimate, low, high) > 0:
            scale = rule.logged, *map(math.log, (estimate, low, high))
        elif entry.get("fisher") and max(abs(low), abs(high)) < 1:
            ends = math.atanh(low), math.atanh(high)
            scale = rule.fisher, sum(ends) / 2, *ends
        p = scale[0].p_value(*scale[1:], found.get("df"))
    return Result(verdict, _reason(verdict, rule, low, high, note), estimate, low, high, p)


def _reason(verdict: str, rule: Rule, low: float, high: float, note: str | None) -> str:
    where = {"supported": "lies", "contradicted": "does not lie", "inconclusive": "lies only partly"}[verdict]
    measured = f"{low:.3g}" if low == high else f"the interval {low:.3g} to {high:.3g}"
    return f"{measured} {where} {rule.words}" + (f" ({note})" if note else "")


def _by_family(results: list[Result], sources: list[str]) -> list[Result]:
    """Published claims are corrected among themselves, and so are this project's own."""
    corrected = list(results)
    for own in (True, False):
        family = [i for i, source in enumerate(sources) if (source.strip() == OWN) == own]
        for i, result in zip(family, correct([results[i] for i in family]), strict=True):
            corrected[i] = result
    return corrected


def correct(results: list[Result]) -> list[Result]:
    """Holm's step-down correction: a verdict stays only while (number of tests left) x p is below .05."""
    tested = sorted((i for i, result in enumerate(results) if result.p is not None), key=lambda i: results[i].p)
    corrected = list(results)
    adjusted = 0.0
    for rank, i in enumerate(tested):
        adjusted = min(1.0, max(adjusted, (len(tested) - rank) * results[i].p))
        if results[i].verdict == "inconclusive":
            continue
        shown = "p < .0001" if adjusted < 1e-4 else f"p = {adjusted:.2g}"
        said = f"{results[i].reason}; {shown} after Holm over {len(tested)} tests"
        keep = adjusted < LEVEL
        corrected[i] = replace(results[i], p=adjusted, reason=said, verdict=results[i].verdict if keep else "inconclusive")
    return corrected
