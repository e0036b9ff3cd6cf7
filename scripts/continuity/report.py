"""One self-contained page: verdicts first, then a section a stage with its question, figure, tables, method and settings.

The page holds everything it shows (figures, tables, styles and the script that sorts them), reads nothing from outside,
and escapes every name that a user chose. A stage that is not in the study is said to be absent in its place.
"""

import base64
import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import duckdb
import pyarrow as pa

from continuity import catalog, figures, tables

ASSETS = resources.files("continuity") / "assets"
MOST_ROWS = 400
STORY = "Three panels: continuity of tasks, error of models under refinement, advantage against continuity."
VERDICTS = ("contradicted", "supported", "inconclusive")
UNMEASURED = ("not run", "not measured", "no interval")
DARK = f"""<style>@media (prefers-color-scheme: dark) {{
[style*="fill: {figures.INK}"] {{ fill: #e6e9ec !important }} [style*="stroke: {figures.INK}"] {{ stroke: #e6e9ec !important }}
}}</style>"""


@dataclass
class Source:
    """A study as the page reads it: its name, its tables in a connection, and the folder of its figures."""

    name: str
    connection: duckdb.DuckDBPyConnection
    figures: Path
    problems: tuple[str, ...]
    present: frozenset[str]


def open_source(name: str, files: Mapping[str, Path | str], figures_dir: Path | str) -> Source:
    """A study from its table files; files that cannot be read are left out and named, so that the rest is still shown."""
    connection, problems, present = catalog.empty(), [], set()
    for table, path in files.items():
        try:
            lacking = catalog.missing_columns({table: path}).get(table, [])
            catalog.copy(connection, table, path)
        except tables.TableError as error:
            problems.append(f"Table {table} is left out: {error}.")
            continue
        present.add(table)
        if lacking:
            columns = f"column{'s' * (len(lacking) > 1)} {', '.join(lacking)}"
            problems.append(f"Table {table} was made by an older version: {columns} missing, shown as empty.")
    catalog.complete(connection)
    return Source(name, connection, Path(figures_dir), tuple(problems), frozenset(present))


def render(
    files: Mapping[str, Path | str] | Path | str,
    figures_dir: Path | str,
    settings: dict,
    out: Path | str,
    cfg: str = "",
    code: str = "",
    against: tuple[str, Path | str] | None = None,
) -> None:
    """Write the page to `out`, atomically.

    files: table files by table name, or the folder they lie in; figures_dir: folder of what `figures.draw` wrote;
    settings: the study's configuration; cfg, code: identity, written into the head; against: name and folder of a second
    study (with its tables/ and figures/) to show beside this one.
    """
    files = files if isinstance(files, Mapping) else catalog.table_files(files)
    sources = [open_source(str(settings.get("study", "study")), files, figures_dir)]
    if against:
        name, folder = against
        sources.append(open_source(name, catalog.table_files(Path(folder) / "tables"), Path(folder) / "figures"))
    with tables.atomic(out) as temporary:
        temporary.write_text(page(sources, settings, cfg, code), encoding="utf-8")


def page(sources: list[Source], settings: dict, cfg: str, code: str) -> str:
    """The HTML of one study, or of a second one beside it."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_asset("report.html"))
    script = _asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rows = _claims(sources)
    return template.render(
        study=sources[0].name,
        against=sources[1].name if len(sources) > 1 else None,
        cfg=_attribute(cfg),
        code=code,
        css=_asset("report.css"),
        js=script,
        script_hash=f"sha256-{digest}",
        warnings=[problem for source in sources for problem in source.problems],
        claims=_grouped(rows),
        compared=_compared(rows),
        story=_figure(sources[0], "study", STORY),
        sections=[_section(spec, sources, settings, rows) for spec in _specifications()],
        made=_made(sources[0], settings),
    )  # fmt: skip


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _attribute(text: str):
    """Text for an attribute in single quotes: JSON stays a third as long as with every double quote escaped."""
    from markupsafe import Markup

    return Markup(html.escape(text, quote=False).replace("'", "&#39;"))


def _specifications() -> list[dict]:
    import yaml

    return yaml.safe_load(_asset("sections.yaml"))


# ---------------------------------------------------------------- numbers


def spell(value, fixed: bool = False) -> str:
    """A value as the page shows it: three significant digits (with zeros at the end if `fixed`), NULL a dash.

    Numbers between .001 and a million have no exponent.
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return str(value)
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        shown = f"{value:.0f}" if abs(value) >= 1000 else f"{value:{'#' if fixed and value else ''}.3g}".rstrip(".")
        return shown.replace("-", "−")
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa}e{int(exponent)}".replace("-", "−")


def _interval(low, high) -> str:
    return "" if low is None or high is None else f"{spell(low, True)} to {spell(high, True)}"


def _uri(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


# ---------------------------------------------------------------- claims


def _claims(sources: list[Source]) -> list[dict]:
    """The claims of the first study, each with the second study's beside it."""
    found = []
    for source in sources:
        rows = source.connection.sql("FROM claims").to_arrow_table().to_pylist() if "claims" in source.present else []
        found.append({row["claim"]: row | _measured(row) for row in rows})
    others = found[1] if len(found) > 1 else {}
    return [row | {"other": others.get(name)} for name, row in found[0].items()]


def _measured(row: dict) -> dict:
    degenerate = row["low"] == row["high"]
    return {
        "measured": spell(row["estimate"], not degenerate),
        "interval": "" if degenerate else _interval(row["low"], row["high"]),
        "sort": "" if row["estimate"] is None else repr(row["estimate"]),
        "verdict": row["verdict"] if row["verdict"] in VERDICTS else "inconclusive",
    }


def _is_measured(row: dict) -> bool:
    return not str(row["reason"]).startswith(UNMEASURED)


def _compared(rows: list[dict]) -> dict:
    """How the verdicts of two studies agree: claims that both measure, those decided otherwise, and those that one measures."""
    both = [row for row in rows if row["other"] and _is_measured(row) and _is_measured(row["other"])]
    return {
        "both": len(both),
        "different": [row for row in both if row["verdict"] != row["other"]["verdict"]],
        "first": sum(_is_measured(row) for row in rows) - len(both),
        "second": sum(bool(row["other"]) and _is_measured(row["other"]) for row in rows) - len(both),
    }


def _grouped(rows: list[dict]) -> dict:
    rows = sorted(rows, key=lambda row: row["number"] or 0)
    unmeasured = [row for row in rows if not _is_measured(row)]
    decided = [row for row in rows if _is_measured(row)]
    return {"all": rows, "decided": decided, "unmeasured": unmeasured, "counts": Counter(row["verdict"] for row in decided)}


# ---------------------------------------------------------------- sections


def _section(spec: dict, sources: list[Source], settings: dict, claims: list[dict]) -> dict:
    verdicts = Counter(row["verdict"] for row in _grouped(claims)["decided"] if row["stage"] == spec["name"])
    shown = {name: settings[name] for name in spec["settings"] if name in settings}
    return spec | {
        "variants": [_variant(spec, source) for source in sources],
        "verdicts": {verdict: verdicts[verdict] for verdict in VERDICTS if verdicts[verdict]},
        "settings": _yaml(shown) if shown else "",
    }


def _variant(spec: dict, source: Source) -> dict:
    variant = {"study": source.name, "absent": "", "figure": None, "problems": [], "tables": []}
    missing = [name for name in spec["needs"] if name not in source.present]
    if missing:
        return variant | {"absent": f"This stage is not in the study (no table {', '.join(missing)})."}
    rows = source.connection.execute(f"SELECT count(*) FROM {spec['needs'][0]}").fetchall()[0][0]
    if not rows:
        return variant | {"absent": f"This stage is in the study, but its table {spec['needs'][0]} has no rows."}
    variant["figure"] = _figure(source, spec["name"], spec["alt"])
    for table in spec["tables"]:
        if set(table.get("needs", ())) <= source.present:
            try:
                variant["tables"].append(_grid(source.connection, spec["name"], table))
            except duckdb.Error as error:
                variant["problems"].append(f"{table['title']}: cannot be computed ({str(error).splitlines()[0]}).")
    return variant | {"problems": variant["problems"] + _failures(spec["needs"], source)}


def _failures(names: list[str], source: Source) -> list[str]:
    """One sentence for every kind of failure in the tables of a section."""
    found = []
    for name in names:
        sql = f"SELECT status, reason, count(*) FROM {name} WHERE status <> 'ok' GROUP BY ALL ORDER BY ALL"
        for status, reason, count in source.connection.execute(sql).fetchall():
            found.append(f"{count} of the rows of {name} have no number ({status}{': ' + reason if reason else ''}).")
    return found


def _grid(connection: duckdb.DuckDBPyConnection, section: str, spec: dict) -> dict:
    """One table of the page, from its SQL."""
    sql = spec["sql"].strip()
    answer = connection.sql(sql).to_arrow_table()
    return _shown(answer, section, spec, sql, _documented(sql, answer))


def _shown(answer: pa.Table, section: str, spec: dict, sql: str, documented: dict) -> dict:
    """One table of the page: its cells, and all of its rows for download."""
    value = spec.get("value")
    names = [name for name in answer.column_names if not (value and name in ("low", "high"))]
    names = [name for name in names if name not in ("status", "reason") or any(answer[name].to_pylist())]
    if "status" in names and set(answer["status"].to_pylist()) == {"ok"}:
        names = [name for name in names if name not in ("status", "reason")]
    rows = answer.slice(0, MOST_ROWS).to_pylist()
    numbers = {name for name in names if _is_number(answer.schema.field(name).type)}
    return {
        "title": spec["title"],
        "columns": [_column(name, documented, name in numbers, name == value) for name in names],
        "rows": [[_cell(row, name, name in numbers, name == value) for name in names] for row in rows],
        "sql": " ".join(sql.split()),
        "csv": _uri(catalog.render(answer, "csv"), "text/csv"),
        "parquet": _uri(catalog.render(answer, "parquet"), "application/vnd.apache.parquet"),
        "file": re.sub(r"\W+", "-", f"{section} {spec['title']}".lower()).strip("-"),
        "shown": len(rows),
        "total": len(answer),
    }


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)


def _documented(sql: str, answer: pa.Table) -> dict[str, tuple[str, str]]:
    """(unit, meaning) by column, from the tables and views that the SQL names, the first one winning."""
    documented: dict[str, tuple[str, str]] = {}
    for name in re.findall(r"\bFROM (\w+)", sql):
        for column, meaning in catalog.meanings(name).items():
            documented.setdefault(column, meaning)
    return {name: documented.get(name, ("", "")) for name in answer.column_names}


def _column(name: str, documented: dict, number: bool, with_interval: bool) -> dict:
    unit, meaning = documented[name]
    label = name.replace("_", " ") + (" and 95 % interval" if with_interval else "")
    return {"label": label, "unit": unit, "meaning": meaning, "number": number}


def _cell(row: dict, name: str, number: bool, with_interval: bool) -> dict:
    value = row[name]
    interval = _interval(row.get("low"), row.get("high")) if with_interval else ""
    text = spell(value, with_interval) if value is not None or number else ""
    return {"text": text, "interval": interval, "number": number, "sort": "" if value is None else repr(value)}


# ---------------------------------------------------------------- figures and settings


def _figure(source: Source, name: str, alt: str) -> dict | None:
    """A drawn figure as data, for wide and for narrow screens; None where it has not been drawn."""
    wide, narrow = (source.figures / f"{name}{ending}" for ending in (".svg", ".narrow.svg"))
    if not wide.is_file():
        return None
    text = wide.read_text(encoding="utf-8")
    size = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', text)
    width, height = (round(float(part) * 4 / 3) for part in size.groups()) if size else (960, 360)
    small = narrow.read_text(encoding="utf-8") if narrow.is_file() else text
    return {"name": name, "alt": alt, "wide": _svg(text), "narrow": _svg(small), "width": width, "height": height}


def _svg(text: str) -> str:
    """An SVG as data that follows the reader's light or dark setting."""
    body = text[text.index("<svg") :]
    return _uri(body.replace(">", f">{DARK}", 1).encode(), "image/svg+xml")


def _yaml(settings: dict) -> str:
    import yaml

    return yaml.safe_dump(json.loads(json.dumps(settings, default=str)), sort_keys=False, width=100, allow_unicode=True)


def _made(source: Source, settings: dict) -> dict:
    """Machines, versions and times of the runs, and all settings."""
    columns = catalog.describe_connection(source.connection)
    none = {name: ("", "") for name in columns.column_names}
    made = {
        "machines": {},
        "tables": [],
        "settings": _yaml(settings),
        "dictionary": _shown(columns, "made", {"title": "Every column, its unit and meaning"}, "", none),
    }
    if "runs" not in source.present:
        return made
    for column in ("host", "device", "backend", "threads", "versions"):
        rows = source.connection.execute(f"SELECT DISTINCT {column} FROM runs WHERE {column} IS NOT NULL ORDER BY 1").fetchall()
        made["machines"][column] = [spell(value) for (value,) in rows]
    span = source.connection.execute("SELECT min(started), max(started) FROM runs").fetchall()[0]
    made["machines"]["first and last run started (UTC)"] = [spell(value) for value in span]
    cost = {"title": "What the runs took", "sql": "FROM cost ORDER BY seconds DESC"}
    return made | {"tables": [_grid(source.connection, "made", cost)]}
