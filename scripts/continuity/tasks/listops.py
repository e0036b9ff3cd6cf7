"""ListOps of the Long Range Arena: nested MIN, MAX, MED and SUM-MOD-10 of digits, to be worked out (Nangia and Bowman 2018).

A node above depth 10 is an operator with probability 1/4, else a digit; operators are equally likely and take 2 to 10
arguments; a tree is kept if its length, digits and two brackets an operator, lies strictly between the bounds.
Sequence i of a split depends on (seed, split, i) alone: its own Philox stream draws trees until one is kept.
"""

import numpy as np

from continuity.native import HAVE_NUMBA, njit
from continuity.tasks.sequences import SPLITS, Sequences, Task, sizes

VOCAB = ("<pad>", *"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]")
DIGIT, OPERATOR, CLOSE = 1, 11, 15  # first token of each kind
SIZES = {"train": 96_000, "validation": 2_000, "test": 2_000}
WORDS = 8192  # random words drawn at a time; a node takes one
PATIENCE = 2000  # such draws without a tree that is kept, before the bounds are called impossible


def load(seed: int = 0, n: dict[str, int] | None = None, length: tuple[int, int] = (500, 2000), max_depth: int = 10,
         max_args: int = 10, name: str = "listops") -> Task:  # fmt: skip
    """Token sequences with brackets kept, labels 0 ... 9.

    n: sequences a split (default 96,000/2,000/2,000); length: both bounds excluded. Shorter bounds make another, easier
    task, whose sequences may repeat; at the published ones repeats are out of reach.
    Raises ValueError for bounds that no tree can meet.
    """
    _check(length, max_depth, max_args)
    n = SIZES if n is None else sizes(n)
    splits = {split: generate(seed, split, 0, n[split], length, max_depth, max_args) for split in SPLITS}
    source = f"generated, Long Range Arena grammar, {length[0]} < length < {length[1]}, seed {seed}"
    return Task(name, splits, source, "none (generated)", tuple("0123456789"), VOCAB)


def generate(seed: int, split: str, start: int, count: int, length: tuple[int, int] = (500, 2000),
             max_depth: int = 10, max_args: int = 10) -> Sequences:  # fmt: skip
    """Sequences start ... start + count - 1 of a split: any shard, made anywhere, equals that part of the whole."""
    made = [_sample(seed, split, start + i, length, max_depth, max_args) for i in range(count)]
    tokens = [found for found, _ in made]
    values = np.concatenate(tokens) if tokens else np.zeros(0, np.int8)
    labels = np.array([label for _, label in made], dtype=np.int32)
    return Sequences(values, np.array([len(found) for found in tokens], dtype=np.int32), labels)


def _check(length, max_depth: int, max_args: int) -> None:
    low, high = length
    if max_depth < 1 or max_args < 2:
        raise ValueError(f"task listops: max_depth {max_depth} must be at least 1 and max_args {max_args} at least 2")
    if high - low < 2 or high <= 1:
        raise ValueError(f"task listops: no length lies strictly between {low} and {high}")


def _sample(seed: int, split: str, index: int, length, max_depth: int, max_args: int) -> tuple[np.ndarray, int]:
    key = np.array([seed, (SPLITS.index(split) << 48) + index], dtype=np.uint64)
    stream = np.random.Philox(key=key, counter=np.array([0, 0, 0, 1 << 32], dtype=np.uint64))
    tokens = np.zeros(length[1] + 1, dtype=np.int8)
    work = np.zeros((max_depth + 1) * (max_args + 3), dtype=np.int64)
    words = np.zeros(0, dtype=np.int64)
    for _ in range(PATIENCE):
        fresh = (stream.random_raw(WORDS) >> np.uint64(2)).astype(np.int64)
        words = np.concatenate([words, fresh])
        given = (words, tokens, work) if HAVE_NUMBA else (words.tolist(), tokens, work.tolist())
        used, found, label = _search(*given, length[0], length[1], max_depth, max_args)
        if found:
            return tokens[:found].copy(), label
        words = words[used:]
    raise ValueError(f"task listops: no tree between {length[0]} and {length[1]} tokens within depth {max_depth}")


@njit
def _search(words, tokens, work, low, high, max_depth, max_args):
    """Trees from `words` until one is kept: (0, its length, its value), or (words used up by whole trees, 0, 0)."""
    cursor = 0
    while True:
        used, found, label = _tree(words, cursor, tokens, work, high, max_depth, max_args)
        if used < 0:
            return cursor, 0, 0
        if low < found < high:
            return 0, found, label
        cursor = used


@njit
def _tree(words, cursor, tokens, work, high, max_depth, max_args):
    """One tree, left to right: (word after it, its length, its value); length 0 if too long, word -1 if out of words.

    work holds a row for every open operator: operator, arguments to come, arguments seen, and their values.
    """
    row = max_args + 3
    emitted, opened = 0, 0
    while True:
        if cursor == len(words):
            return -1, 0, 0
        word = words[cursor]
        cursor += 1
        if emitted + opened >= high:
            return cursor, 0, 0
        if opened + 1 < max_depth and word % 4 == 0:
            operator = (word // 4) % 4
            opened += 1
            work[opened * row] = operator
            work[opened * row + 1] = 2 + (word // 16) % (max_args - 1)
            work[opened * row + 2] = 0
            tokens[emitted] = OPERATOR + operator
            emitted += 1
            continue
        value = (word // 4) % 10
        tokens[emitted] = DIGIT + value
        emitted += 1
        while opened > 0:
            at = opened * row
            work[at + 3 + work[at + 2]] = value
            work[at + 2] += 1
            if work[at + 2] < work[at + 1]:
                break
            value = _apply(work[at], work, at + 3, work[at + 2])
            if emitted >= high:
                return cursor, 0, 0
            tokens[emitted] = CLOSE
            emitted += 1
            opened -= 1
        if opened == 0:
            return cursor, emitted, value


@njit
def _apply(operator, work, first, count):
    """Value of an operator (0 MIN, 1 MAX, 2 MED, 3 SM) over work[first : first + count], which gets sorted."""
    for i in range(first + 1, first + count):
        for j in range(i, first, -1):
            if work[j] < work[j - 1]:
                work[j], work[j - 1] = work[j - 1], work[j]
    if operator == 0:
        return work[first]
    if operator == 1:
        return work[first + count - 1]
    if operator == 2:
        return (work[first + (count - 1) // 2] + work[first + count // 2]) // 2
    total = 0
    for i in range(first, first + count):
        total += work[i]
    return total % 10
