"""The frame of a stage's script: arguments, errors as one line each, progress, and outputs with identity."""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from continuity import locks, marks, tables
from continuity.problems import Problem
from continuity.runs import Ledger, digest, timed


class Job:
    """What a script was started with: settings `cfg`, `code`, input paths `inputs` and output paths `outputs`, by name."""

    def __init__(self, name: str, arguments: argparse.Namespace):
        self.name = name
        text = arguments.cfg
        self.cfg_text = Path(text[1:]).read_text(encoding="utf-8").strip() if text.startswith("@") else text
        self.cfg = json.loads(self.cfg_text)
        self.code = arguments.code
        self.inputs = dict(arguments.inputs)
        self.outputs = {item: getattr(arguments, item) for item in arguments.wanted}
        self.listed = arguments.files

    @property
    def identity(self) -> dict[str, str]:
        return {"cfg": self.cfg_text, "code": self.code}

    def once(self, table: str, work: Callable[[], tuple[list[dict], str]]) -> None:
        """A job that is one run: do it, and write the outputs `rows` and `runs`."""
        rows, line = timed(table, self.name, self.cfg_text, self.code, self._digest(), "cpu", work)
        tables.write("runs", [line], self.outputs["runs"], self.identity)
        self.write(table, rows)

    def runs(
        self, table: str, cells: list[tuple[dict, dict]], work: Callable, device: str = "cpu", units: int = 1,
        unit: str = "runs", beside: tuple[str, ...] = (), reads: Callable[[dict], list[str]] | None = None,
        finish: Callable[[list[dict]], list[dict]] = list,
    ) -> None:  # fmt: skip
        """A job of many runs: do or reuse each of `cells`, pairs (keys, settings), and write the outputs `rows` and `runs`.

        work(keys, checkpoint, tell) → (rows, backend) calls tell() after each of its `units`. reads(keys): the input files
        of one run, where it does not depend on all of the job's. finish(rows of all runs) → rows as they are written.
        """
        ledger = Ledger(Path(self.outputs["rows"]).parent, table, self.code, self._digest(), device, beside)
        progress = Progress(self.name, len(cells) * units, unit)
        for keys, settings in cells:
            before = progress.done
            inputs = digest(reads(keys)) if reads else None
            worked = ledger.run(keys, settings, lambda checkpoint, keys=keys: work(keys, checkpoint, progress.step), inputs)
            progress.step(before + units - progress.done, worked)
        tables.write("runs", ledger.sidecar, self.outputs["runs"], self.identity)
        self.write(table, finish(ledger.rows))

    def _digest(self) -> str:
        return digest([*self.inputs.values(), *self.listed])

    def write(self, table: str, rows, output: str = "rows") -> None:
        """Rows of result table `table` to the output of that name."""
        tables.write(table, rows, self.outputs[output], self.identity)


class Progress:
    """A bar on a terminal, elsewhere a line now and then; the estimate counts only units that were worked on."""

    def __init__(self, name: str, total: int, unit: str, every: float = 15.0):
        self.name, self.total, self.unit, self.every = name, total, unit, every
        self.done = self.worked = 0
        self.began = self.told = time.monotonic()

    def step(self, count: int = 1, worked: bool = True) -> None:
        """`count` more units are done, by work or because they were there already."""
        if count <= 0:
            return
        self.done += count
        self.worked += count * worked
        now = time.monotonic()
        if sys.stderr.isatty() or self.done == self.total or now - self.told > self.every:
            self.told = now
            self._tell(now - self.began)

    def _tell(self, spent: float) -> None:
        left = spent / max(self.worked, 1) * (self.total - self.done)
        estimate = f"{spent:.0f} s" if self.done == self.total else f"about {left:.0f} s left"
        line = f"{self.name}: {self.done} of {self.total} {self.unit}, {estimate}"
        if sys.stderr.isatty():
            filled = int(20 * self.done / max(self.total, 1))
            end = "\n" if self.done == self.total else ""
            sys.stderr.write(f"\r\033[K[{'#' * filled}{'.' * (20 - filled)}] {line}{end}")
            sys.stderr.flush()
        else:
            print(line, file=sys.stderr, flush=True)


def _named(text: str) -> tuple[str, str]:
    name, _, path = text.partition("=")
    if not path:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH")
    return name, path


def parser(description: str, outputs: tuple[str, ...], inputs: dict[str, str]) -> argparse.ArgumentParser:
    """The arguments that every stage's script takes."""
    wants = "; ".join(f"{name}: {meaning}" for name, meaning in inputs.items()) or "none"
    parse = argparse.ArgumentParser(description=description)
    parse.add_argument("--cfg", required=True, help="settings of the job as JSON, or @FILE (the rule's param `cfg`)")
    parse.add_argument("--code", default="by-hand", help="hash of the code (the rule's param `code`)")
    parse.add_argument("--inputs", nargs="*", type=_named, default=[], metavar="NAME=PATH", help=f"inputs ({wants})")
    parse.add_argument("--files", nargs="*", default=[], metavar="PATH", help="run files to join, where the stage joins any")
    for name in outputs:
        parse.add_argument(f"--{name}", required=True, metavar="PATH", help=f"output: {name}")
    return parse


def run(
    name: str,
    description: str,
    work: Callable[[Job], None],
    outputs: tuple[str, ...] = ("rows",),
    inputs: dict[str, str] | None = None,
    argv: list[str] | None = None,
) -> None:
    """Parse the command line and do `work`; a user's mistake ends in one line a problem and exit 2."""
    arguments = parser(description, outputs, inputs or {}).parse_args(argv)
    arguments.wanted = outputs
    # A user's own modules lie in the working directory.
    sys.path.append(str(Path.cwd()))
    try:
        missing = [
            f"{name}: input {item} is missing; give --inputs {item}=PATH"
            for item in inputs or {}
            if item not in dict(arguments.inputs)
        ]
        if missing:
            raise Problem(missing)
        job = Job(name, arguments)
        with at_work(job):
            work(job)
    except json.JSONDecodeError as error:
        _leave([f"{name}: --cfg is not JSON: {error}"])
    except Problem as error:
        _leave(error.problems)
    except OSError as error:
        _leave([f"{name}: {tables.explain(error, next(iter(job.outputs.values()), ''))}"])


def at_work(job: Job) -> contextlib.AbstractContextManager:
    """Mark the study as having a job at work, for as long as this process lives, and the job by its first output."""
    path = Path(next(iter(job.outputs.values())))
    for parent in path.parents:
        if (parent / locks.STUDY).exists():
            locks.hold(parent / locks.JOBS, shared=True)
            return marks.working(parent, path.relative_to(parent).as_posix())
    return contextlib.nullcontext()


def _leave(problems: list[str]) -> None:
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(2)
