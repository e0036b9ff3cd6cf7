"""The `continuity` command: query a study, watch it, clean it, lay two side by side; probe a model.

Exit 0 on success; 2 with one line a problem on bad input, and then nothing is written.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from continuity import commands_plan, commands_probe, commands_score, commands_study
from continuity.places import find_results, find_study
from continuity.problems import Problem
from continuity.question import ask


def _query(arguments: argparse.Namespace) -> None:
    results = Path(arguments.results) if arguments.results else find_results()
    study = find_study(results, arguments.study)
    if arguments.study is None:
        print(f"study: {study}", file=sys.stderr)
    if arguments.sql:
        answer = ask(arguments.sql, study / "tables", arguments.format)
    else:
        from continuity import catalog

        for table, columns in catalog.missing_columns(study / "tables").items():
            print(f"table {table} was made by an older version: {', '.join(columns)} missing", file=sys.stderr)
        answer = catalog.render(catalog.describe(study / "tables"), arguments.format)
    sys.stdout.buffer.write(answer)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="continuity", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    query = commands.add_parser("query", help="answer one SELECT over the result tables; without SQL, list them")
    query.add_argument("sql", nargs="?", help="one SELECT, such as: SELECT * FROM score")
    query.add_argument("--study", help="name of a study; default: the newest")
    query.add_argument("--results", help="results folder; default: CONTINUITY_RESULTS, or the nearest one above")
    query.add_argument("--format", choices=("table", "csv", "json", "parquet"), default="table")
    query.set_defaults(work=_query)
    commands_plan.register(commands)
    commands_probe.register(commands)
    commands_score.register(commands)
    commands_study.register(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    try:
        arguments.work(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except (Problem, ValueError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"{error.filename or arguments.command}: {error.strerror or error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
