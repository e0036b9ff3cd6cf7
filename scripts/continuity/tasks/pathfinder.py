"""Pathfinder and Path-X of the Long Range Arena: are two discs the ends of one dashed contour? (Linsley et al. 2018).

Two chains of `contour` paddles are grown side by side from two seeds, then shorter distractor chains where there is room.
Discs mark both ends of the first chain (label 1), or its start and the second chain's end (label 0); the label is a fair
coin and the layout does not depend on it. A paddle starts length + 2 margin along the last one, in a direction drawn with
weight cos^2(min(continuity x turn, 90 degrees)) among those that leave room for it and for the start of the next. A blocked
one is drawn twice more, then both chains start again. Paddles keep more than margin pixels, along x or y, from their own
chain, and more than 2 margin from the other chain; distractors keep more than 2 margin from both chains. So jumps of
2 margin pixels lead from the first disc to the second if, and only if, the label is 1. (The published code keeps margin
throughout.) Image i of a split depends on (seed, split, i) alone.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from continuity.native import njit
from continuity.tasks.sequences import SPLITS, Sequences, Task, sizes

SIZES = {"train": 160_000, "validation": 20_000, "test": 20_000}
HEADINGS = 64  # directions that a paddle can have
TRIES = 3  # draws of a paddle before its pair of chains starts again
SEEDS = 30  # draws of a distractor's first paddle before it is left out
SCALE = 2  # fine pixels a pixel, along x and along y, for anti-aliasing
THINNEST = 0.5**0.5 / SCALE  # half a paddle's least width: narrower, a paddle would have holes on the fine grid
WORDS = 1 << 11
PATIENCE = 1 << 22  # random numbers an image may take before its setting is called impossible


@dataclass(frozen=True)
class Geometry:
    """The published construction at one image size; lengths in pixels.

    seed_distance: between the starts of the two chains; distractors: paddles of all distractor chains together.
    """

    padding: int
    seed_distance: float
    disc_radius: float
    length: float
    thickness: float
    margin: int
    continuity: float
    distractors: int
    contrast: float


GEOMETRY = {
    16: Geometry(1, 5, 1.5, 2, 0.5, 1, 1.0, 4, 1.5),
    32: Geometry(1, 7, 1.5, 2, 0.5, 1, 1.0, 20, 1.5),
    64: Geometry(1, 12, 2.5, 5, 1, 1, 1.8, 22, 0.8),
    128: Geometry(1, 20, 3, 5, 1.5, 2, 1.8, 35, 0.9),
    256: Geometry(22, 27, 5, 5, 2, 3, 1.8, 30, 1.0),
}
"""By image size; 16 is ours, for small studies, the others are published."""


def load(seed: int = 0, n: dict[str, int] | None = None, size: int = 32, contour: int = 14, distractors: int | None = None,
         name: str = "pathfinder", tell: Callable[[int], None] = lambda total: None) -> Task:  # fmt: skip
    """Images as sequences of size^2 pixels in [0, 1], row by row, one channel; label 1 where one contour joins the discs.

    n: images a split (default 160,000/20,000/20,000). contour: paddles of a chain; published are 6, 9 and 14.
    distractors: paddles of all distractor chains together, contour // 3 in each; as published at that size by default.
    tell: called after every image with the number of all images.
    Raises ValueError for a size without a geometry, and for chains for which there is no room.
    """
    _check(name, size, contour, distractors)
    n = SIZES if n is None else sizes(n)
    splits = {}
    for split in SPLITS:
        pixels, labels = generate(seed, split, 0, n[split], size, contour, distractors, lambda: tell(sum(n.values())))
        lengths = np.full(len(labels), size * size, dtype=np.int32)
        splits[split] = Sequences(pixels.reshape(-1, 1), lengths, labels)
    count = GEOMETRY[size].distractors if distractors is None else distractors
    source = (
        f"generated, Pathfinder of {size} x {size} pixels, contours of {contour} paddles, {count} in distractors, seed {seed}"
    )
    return Task(name, splits, source, "none (generated)", ("apart", "joined"), channels=("pixel",))


def load_pathx(seed: int = 0, n: dict[str, int] | None = None, size: int = 128, contour: int = 14,
               distractors: int | None = None, name: str = "pathx",
               tell: Callable[[int], None] = lambda total: None) -> Task:  # fmt: skip
    """Path-X: `load` at 128 x 128 pixels, 16,384 steps."""
    return load(seed, n, size, contour, distractors, name, tell)


def generate(seed: int, split: str, start: int, count: int, size: int = 32, contour: int = 14,
             distractors: int | None = None,
             tell: Callable[[], None] = lambda: None) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Images (count, size, size) float32 and labels (count,) int32 of images start ... start + count - 1 of a split.

    tell: called after every image.
    """
    _check("pathfinder", size, contour, distractors)
    images, labels = np.zeros((count, size, size), dtype=np.float32), np.zeros(count, dtype=np.int32)
    geometry = _numbers(GEOMETRY[size], contour, distractors)
    space = _Space(size, 2 * contour + geometry[1] * geometry[2])
    for i in range(count):
        labels[i] = _image(images[i], seed, split, start + i, geometry, space)
        tell()
    return images, labels


def _check(name: str, size: int, contour: int, distractors: int | None) -> None:
    if size not in GEOMETRY:
        raise ValueError(f"task {name}: size is {size}: choose one of {', '.join(map(str, GEOMETRY))}")
    if contour < 3:
        raise ValueError(f"task {name}: contour is {contour}: a chain has at least 3 paddles, or its discs would touch")
    if distractors is not None and distractors < 0:
        raise ValueError(f"task {name}: distractors is {distractors}: it cannot be below 0")


def _numbers(geometry: Geometry, contour: int, distractors: int | None) -> tuple:
    """What the compiled part needs: counts, lengths, and tables over headings."""
    g, angle = geometry, 2 * np.pi * np.arange(HEADINGS) / HEADINGS
    turn = np.minimum(angle, 2 * np.pi - angle)
    weight = np.cos(np.minimum(g.continuity * turn, np.pi / 2)) ** 2
    weight[weight < 1e-12] = 0.0
    half = max(g.thickness / 2, THINNEST)
    each = max(contour // 3, 1)
    chains = (g.distractors if distractors is None else distractors) // each
    lengths = (float(g.padding), g.seed_distance * 1.0, g.disc_radius * 1.0, g.length * 1.0, half, g.contrast)
    return contour, each, chains, g.margin, lengths, np.stack([np.cos(angle), np.sin(angle), weight])


class _Space:
    """Arrays that one image is made in, used again for the next.

    near[c] counts how often a pixel is within margin of chain c's own paddles (2: the distractors), far[c] how often it is
    within 2 margin of what belongs to others; paddles holds the tips x0, y0, x1, y1; ink and marks a bit a fine pixel.
    """

    def __init__(self, size: int, paddles: int):
        self.near, self.far = np.zeros((2, 3, size, size), dtype=np.int16)
        self.paddles = np.zeros((paddles, 4))
        self.ink, self.marks = np.zeros((2, size, size), dtype=np.uint8)
        self.work = np.zeros(HEADINGS + paddles)

    def arrays(self) -> tuple:
        return self.near, self.far, self.paddles, self.ink, self.marks, self.work


def _image(image: np.ndarray, seed: int, split: str, index: int, geometry: tuple, space: _Space) -> int:
    """Paint image `index` of a split; its label."""
    key = np.array([seed, (SPLITS.index(split) << 48) + index], dtype=np.uint64)
    stream = np.random.Generator(np.random.Philox(key=key, counter=np.array([0, 0, 0, 2 << 32], dtype=np.uint64)))
    drawn = stream.random(WORDS)
    while True:
        label = _draw(image, drawn, *space.arrays(), *geometry)
        if label >= 0:
            return label
        if len(drawn) >= PATIENCE:
            raise ValueError(
                f"task pathfinder: no room for two chains of {geometry[0]} paddles in {len(image)} x {len(image)} pixels"
            )
        drawn = np.concatenate([drawn, stream.random(3 * len(drawn))])


@njit
def _draw(image, drawn, near, far, paddles, ink, marks, work, contour, each, chains, margin, lengths, tables):
    """One image from the random numbers `drawn`: its label, or -1 where they do not suffice."""
    label = 1 if drawn[0] < 0.5 else 0
    cursor = _pair(drawn, 1, near, far, paddles, work, contour, margin, lengths, tables)
    if cursor < 0:
        return -1
    count = 2 * contour
    for k in range(count):
        _count(far[2], paddles[k], lengths[4], 2 * margin, 1)
    for _ in range(chains * SEEDS):
        if len(drawn) - cursor < 3 + each * (1 + TRIES):
            return -1
        if count + each <= len(paddles):
            cursor, grown = _distractor(
                drawn, cursor, near, far, paddles, work[:HEADINGS], count, each, margin, lengths, tables
            )
            count += each if grown else 0
    ink[:], marks[:] = 0, 0
    for k in range(count):
        _paint(ink, paddles[k, 0], paddles[k, 1], paddles[k, 2], paddles[k, 3], lengths[4])
    last = 2 * contour - 2 if label == 1 else 2 * contour - 1
    _paint(marks, paddles[0, 0], paddles[0, 1], paddles[0, 0], paddles[0, 1], lengths[2])
    _paint(marks, paddles[last, 2], paddles[last, 3], paddles[last, 2], paddles[last, 3], lengths[2])
    for j in range(len(image)):
        for i in range(len(image)):
            image[j, i] = max(min(lengths[5] * _share(ink[j, i]), 1.0), _share(marks[j, i]))
    return label


@njit
def _pair(drawn, cursor, near, far, paddles, work, contour, margin, lengths, tables):
    """Grow both chains, paddle k of chain c into row 2 k + c, and reserve the discs; the cursor after, or -1."""
    padding, distance, radius, size = lengths[0], lengths[1], lengths[2], near.shape[1]
    edge, rows = max(padding, radius), 2 * contour
    weights, headings = work[:HEADINGS], work[HEADINGS:]
    while True:
        if len(drawn) - cursor < 3 + rows * TRIES:
            return -1
        near[:], far[:] = 0, 0
        x, y = edge + drawn[cursor] * (size - 2 * edge), edge + drawn[cursor + 1] * (size - 2 * edge)
        around = int(drawn[cursor + 2] * HEADINGS)
        cursor += 3
        _reserve(far, 0, x, y, radius, 2 * margin)
        for row in range(rows):
            c, last = row % 2, row - 2 if row > 1 else -1
            if last >= 0:
                x, y = _beyond(paddles[last], lengths[3], margin)
            elif row == 1:
                x, y = x + distance * tables[0, around], y + distance * tables[1, around]
            heading = headings[max(last, 0)]
            cursor, headings[row] = _paddle(
                drawn, cursor, near, far, c, paddles, weights, row, last, x, y, heading, margin, lengths, tables
            )
            if headings[row] < 0:
                break
        if headings[row] >= 0 and _end_discs(far, paddles, rows - 2, radius, margin):
            return cursor


@njit
def _end_discs(far, paddles, row, radius, margin):
    """Reserve a disc at the end of both chains; False where another disc, or something of another chain, is in the way."""
    least = 2 * (radius + margin) + 1
    for c in range(2):
        x, y = paddles[row + c, 2], paddles[row + c, 3]
        if not _fits(x, y, radius, far.shape[1]) or _touches(far[c], x, y, radius):
            return False
        for other in range(2 - c):
            k, column = (0, 0) if other == 0 else (row + 1, 2)
            if max(abs(x - paddles[k, column]), abs(y - paddles[k, column + 1])) < least:
                return False
    for c in range(2):
        _reserve(far, c, paddles[row + c, 2], paddles[row + c, 3], radius, 2 * margin)
    return True


@njit
def _reserve(far, chain, x, y, radius, reach):
    """Keep the other chain and distractors away from a disc."""
    _spread(far[1 - chain], x, y, x, y, radius, reach, 1)
    _spread(far[2], x, y, x, y, radius, reach, 1)


@njit
def _distractor(drawn, cursor, near, far, paddles, weights, first, each, margin, lengths, tables):
    """Grow a chain of `each` paddles into rows first ...: (cursor after, whether there was room)."""
    padding, size, heading = lengths[0], near.shape[1], 0
    x = padding + drawn[cursor] * (size - 2 * padding)
    y = padding + drawn[cursor + 1] * (size - 2 * padding)
    cursor += 2
    for row in range(first, first + each):
        if row > first:
            x, y = _beyond(paddles[row - 1], lengths[3], margin)
        last = row - 1 if row > first else -1
        cursor, heading = _paddle(
            drawn, cursor, near, far, 2, paddles, weights, row, last, x, y, heading, margin, lengths, tables
        )
        if heading < 0:
            for done in range(first, row):
                _put(near, far, 2, paddles[done], lengths[4], margin, -1)
            return cursor, False
    return cursor, True


@njit
def _beyond(paddle, length, margin):
    """Where the paddle after this one starts."""
    step = (length + 2 * margin) / length
    return paddle[0] + step * (paddle[2] - paddle[0]), paddle[1] + step * (paddle[3] - paddle[1])


@njit
def _paddle(drawn, cursor, near, far, chain, paddles, weights, row, last, x, y, heading, margin, lengths, tables):
    """Put a paddle at (x, y) into `row`: (cursor after, its heading, or -1 where it is blocked).

    last: row of the paddle before it, which may be near; -1 for the first of a chain, which has any heading.
    """
    padding, length, half, size = lengths[0], lengths[3], lengths[4], near.shape[1]
    if not _inside(x, y, padding, size):
        return cursor, -1
    if last >= 0:
        _count(near[chain], paddles[last], half, margin, -1)
    total, found = 0.0, -1
    for h in range(HEADINGS):
        weights[h] = 1.0 if last < 0 else tables[2, int(h - heading)]
        if weights[h] > 0:
            for ahead in range(2):
                reach = length + ahead * 2 * margin
                tip_x, tip_y = x + reach * tables[0, h], y + reach * tables[1, h]
                j, i = int(tip_y), int(tip_x)
                if not _inside(tip_x, tip_y, padding, size) or near[chain, j, i] or far[chain, j, i]:
                    weights[h] = 0.0
        total += weights[h]
    for _ in range(TRIES if total > 0 else 0):
        left = drawn[cursor] * total
        cursor += 1
        h = 0
        while left >= weights[h] and h < HEADINGS - 1:
            left -= weights[h]
            h += 1
        tip_x, tip_y = x + length * tables[0, h], y + length * tables[1, h]
        if not _blocked(near[chain], far[chain], x, y, tip_x, tip_y, half):
            found = h
            paddles[row, 0], paddles[row, 1], paddles[row, 2], paddles[row, 3] = x, y, tip_x, tip_y
            _put(near, far, chain, paddles[row], half, margin, 1)
            break
    if last >= 0:
        _count(near[chain], paddles[last], half, margin, 1)
    return cursor, found


@njit
def _put(near, far, chain, paddle, half, margin, by):
    """Count a paddle, or uncount it with by = -1, for the two chains; a distractor for the distractors alone."""
    _count(near[chain], paddle, half, margin, by)
    if chain < 2:
        _count(far[1 - chain], paddle, half, 2 * margin, by)


@njit
def _count(counts, paddle, half, reach, by):
    _spread(counts, paddle[0], paddle[1], paddle[2], paddle[3], half, reach, by)


@njit
def _inside(x, y, padding, size):
    return padding <= x < size - padding and padding <= y < size - padding


@njit
def _fits(x, y, radius, size):
    return radius <= x <= size - radius and radius <= y <= size - radius


@njit
def _fine(j, i, x0, y0, x1, y1, half):
    """The fine pixels of pixel (j, i) within `half` of the line from (x0, y0) to (x1, y1), a bit each."""
    along_x, along_y = x1 - x0, y1 - y0
    squared = along_x * along_x + along_y * along_y
    bits = 0
    for k in range(SCALE * SCALE):
        x, y = i + (k % SCALE + 0.5) / SCALE - x0, j + (k // SCALE + 0.5) / SCALE - y0
        place = 0.0 if squared == 0.0 else min(max((x * along_x + y * along_y) / squared, 0.0), 1.0)
        off_x, off_y = x - place * along_x, y - place * along_y
        if off_x * off_x + off_y * off_y <= half * half:
            bits |= 1 << k
    return bits


@njit
def _box(a, b, half, size):
    """First pixel, and the one after the last, that a line from a to b can reach along one axis."""
    return max(int(min(a, b) - half), 0), min(int(max(a, b) + half) + 1, size)


@njit
def _blocked(near, far, x0, y0, x1, y1, half):
    """Whether a paddle would be near its own chain, or rather near what belongs to others."""
    left, right = _box(x0, x1, half, len(near))
    top, bottom = _box(y0, y1, half, len(near))
    for j in range(top, bottom):
        for i in range(left, right):
            if (near[j, i] or far[j, i]) and _fine(j, i, x0, y0, x1, y1, half):
                return True
    return False


@njit
def _touches(counts, x, y, radius):
    return _blocked(counts, counts, x, y, x, y, radius)


@njit
def _spread(counts, x0, y0, x1, y1, half, reach, by):
    """Add `by` to the pixels within `reach` of each pixel that the line of half width `half` covers."""
    size = len(counts)
    left, right = _box(x0, x1, half, size)
    top, bottom = _box(y0, y1, half, size)
    for j in range(top, bottom):
        for i in range(left, right):
            if _fine(j, i, x0, y0, x1, y1, half):
                for v in range(max(j - reach, 0), min(j + reach + 1, size)):
                    for u in range(max(i - reach, 0), min(i + reach + 1, size)):
                        counts[v, u] += by


@njit
def _paint(bits, x0, y0, x1, y1, half):
    left, right = _box(x0, x1, half, len(bits))
    top, bottom = _box(y0, y1, half, len(bits))
    for j in range(top, bottom):
        for i in range(left, right):
            bits[j, i] |= _fine(j, i, x0, y0, x1, y1, half)


@njit
def _share(bits):
    """Share of a pixel's fine pixels that are set."""
    count = 0
    for k in range(SCALE * SCALE):
        count += (bits >> k) & 1
    return count / (SCALE * SCALE)
