"""The `continuity` command: query a study, score data, probe a model.

Exit 0 on success; 2 with one line a problem on bad input, and then nothing is written.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from continuity import commands_probe
from continuity.problems import Problem


def _query(arguments: argparse.Namespace) -> None:
    from continuity import catalog

    results = Path(arguments.results) if arguments.results else catalog.find_results()
    study = catalog.find_study(results, arguments.study)
    if arguments.study is None:
        print(f"study: {study}", file=sys.stderr)
    if arguments.sql:
        found = catalog.query(arguments.sql, study / "tables")
    else:
        found = catalog.describe(study / "tables")
    sys.stdout.buffer.write(catalog.render(found, arguments.format))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="continuity", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    query = commands.add_parser("query", help="answer one SELECT over the result tables; without SQL, list them")
    query.add_argument("sql", nargs="?", help="one SELECT, such as: SELECT * FROM score")
    query.add_argument("--study", help="name of a study; default: the newest")
    query.add_argument("--results", help="results folder; default: CONTINUITY_RESULTS, or the nearest one above")
    query.add_argument("--format", choices=("table", "csv", "json", "parquet"), default="table")
    query.set_defaults(work=_query)
    commands_probe.register(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    try:
        arguments.work(arguments)
        sys.stdout.flush()
    except (Problem, ValueError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)


if __name__ == "__main__":
    main()
