"""Reading a user's file, with every failure as one line that names the file and the remedy."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

SUFFIXES = (".csv", ".tsv", ".parquet", ".npy")
SHOWN = 20  # problems that are spelt out


class InputProblem(ValueError):
    """Input that cannot be used; `problems` holds one line each: file, place, remedy."""

    def __init__(self, problems: Iterable[str]):
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


class Problems:
    """Problems found so far; `stop` raises them together."""

    def __init__(self):
        self.lines: list[str] = []

    def add(self, where: Path | str, text: str) -> None:
        self.lines.append(f"{where}: {text}")

    def stop(self) -> None:
        """Raise InputProblem where there is any."""
        more = len(self.lines) - SHOWN
        if self.lines:
            raise InputProblem(self.lines[:SHOWN] + ([f"and {more} more problems"] if more > 0 else []))


def read_file(file: Path, problems: Problems) -> pa.Table | np.ndarray | None:
    """The table or array of a file; None, and a problem, where it cannot be read."""
    readers = {".csv": _csv, ".tsv": _csv, ".parquet": _parquet, ".npy": _npy}
    reader = readers.get(file.suffix.lower())
    if reader is None:
        problems.add(file, f"{file.suffix or 'no suffix'} is no known kind: give {', '.join(SUFFIXES)} or a folder")
        return None
    try:
        if file.stat().st_size == 0:
            problems.add(file, "empty: fill it or leave it out")
            return None
        content = reader(file)
    except OSError as error:
        problems.add(file, f"cannot be read ({error.strerror or _line(error)}): check that it is whole and allowed")
    except UnicodeDecodeError:
        problems.add(file, "no UTF-8 text: save it as UTF-8")
    except (pa.ArrowException, ValueError, EOFError) as error:
        text = _line(error)
        remedy = "save it as UTF-8" if "UTF8" in text else "truncated or of another kind; export it again"
        problems.add(file, f"cannot be read as {file.suffix[1:]} ({text}): {remedy}")
    else:
        return content
    return None


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _csv(file: Path) -> pa.Table:
    with open(file, encoding="utf-8", newline="") as text:
        header = text.readline()
    delimiter = max(",;\t", key=header.count)
    read = csv.ReadOptions(use_threads=False)
    convert = csv.ConvertOptions(strings_can_be_null=True)
    return csv.read_csv(file, read, csv.ParseOptions(delimiter=delimiter), convert)


def _parquet(file: Path) -> pa.Table:
    return pq.read_table(file, partitioning=None)


def _npy(file: Path) -> np.ndarray:
    return np.load(file, allow_pickle=False)
