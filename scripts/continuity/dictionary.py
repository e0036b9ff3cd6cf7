"""The data dictionary: every result table and view, column by column, as a page of Markdown.

`python -m continuity.dictionary` writes it to config/TABLES.md, from tables.toml and the heads of the views.
"""

import duckdb

from continuity import catalog, tables
from continuity.identity import ROOT

PAGE = ROOT / "config" / "TABLES.md"
HEAD = """\
# Data dictionary

Every table and view that `continuity query`, `study.duckdb` and `continuity.catalog.connect` show. Made from
`scripts/continuity/tables.toml` and the heads of `scripts/continuity/sql/views/*.sql` by
`.venv/bin/python -m continuity.dictionary`; not edited by hand.

Where a number is missing it is NULL, and `status` and `reason` say why; averages leave such rows out. Intervals (`low`, `high`)
are 95 %. A view is there where the tables that it reads are.
"""


def blank() -> duckdb.DuckDBPyConnection:
    """A database with every declared table, empty, and every view."""
    connection = catalog.empty()
    for table in tables.TABLES.values():
        columns = ", ".join(f'"{column.name}" {catalog.TYPES[column.type]}' for column in table.columns)
        connection.execute(f'CREATE TABLE "{table.name}" ({columns})')
    catalog.complete(connection)
    return connection


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(_relation(*found) for found in catalog.relations(blank()))])


def _relation(name: str, kind: str, columns: list[tuple[str, str]]) -> str:
    row, documented = catalog.documentation(name)
    key = f" Key: {', '.join(f'`{column}`' for column in tables.TABLES[name].key)}." if name in tables.TABLES else ""
    lines = [f"## {name} ({kind})\n", f"One row: {row}.{key}\n", "| column | type | unit | meaning |", "|---|---|---|---|"]
    for column, type_ in columns:
        unit, meaning = documented.get(column, ("", ""))
        lines.append(f"| `{column}` | {type_.lower()} | {_cell(unit)} | {_cell(meaning)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
