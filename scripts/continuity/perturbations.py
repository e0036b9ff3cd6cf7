"""Perturbations of a forecaster's input, drawn from (seed, index of the window) alone.

All are on one scale: an input of unit variance is changed by `level`, root mean square. Gaussian noise, impulses, bursts
and gain drift are drawn once for all levels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

IMPULSES = 0.02
"""Share of entries that an impulse hits."""
BURST = 0.1
"""Share of the window that a burst lasts."""


@dataclass(frozen=True)
class Perturbation:
    """draw(generator, L, C) -> (L, C) · apply(x, drawn, level) -> x, all (B, L, C) · most: largest level."""

    draw: Callable[[np.random.Generator, int, int], np.ndarray]
    apply: Callable[[Tensor, Tensor, float], Tensor]
    most: float = math.inf


def _impulses(generator, length, channels):
    sign = np.where(generator.random((length, channels)) < 0.5, -1.0, 1.0)
    return np.where(generator.random((length, channels)) < IMPULSES, sign / math.sqrt(IMPULSES), 0.0)


def _burst(generator, length, channels):
    steps = max(1, round(BURST * length))
    first = generator.integers(0, length - steps + 1)
    noise = np.zeros((length, channels))
    noise[first : first + steps] = generator.standard_normal((steps, channels)) * math.sqrt(length / steps)
    return noise


def _drift(generator, length, channels):
    sign = np.where(generator.random(channels) < 0.5, -1.0, 1.0)
    ramp = np.arange(1, length + 1) / length
    return sign * (ramp / math.sqrt((ramp**2).mean()))[:, None]


def _add(x, drawn, level):
    return x + level * drawn


PERTURBATIONS = {
    "gaussian": Perturbation(lambda generator, *shape: generator.standard_normal(shape), _add),
    "impulses": Perturbation(_impulses, _add),
    "burst": Perturbation(_burst, _add),
    "masking": Perturbation(lambda generator, *shape: generator.random(shape), lambda x, u, level: x * (u >= level**2), 1.0),
    "gain_drift": Perturbation(_drift, lambda x, ramp, level: x * (1 + level * ramp)),
}
"""gaussian: independent noise · impulses: a fiftieth of the entries jumps by ± level √50 · burst: noise of sd level √10 in
one tenth of the window · masking: entries are set to 0, the mean, with probability level² · gain_drift: a channel's gain
moves linearly from 1, up or down."""


def check(kind: str, level: float) -> None:
    """ValueError for an unknown kind or a level outside its range."""
    if kind not in PERTURBATIONS:
        raise ValueError(f"unknown perturbation {kind!r}: choose one of {', '.join(PERTURBATIONS)}")
    if not 0 < level <= PERTURBATIONS[kind].most:
        raise ValueError(f"perturbation {kind}: level {level} must be above 0 and at most {PERTURBATIONS[kind].most}")


def draw(kind: str, seed: int, index: Tensor, length: int, channels: int) -> Tensor:
    """What `kind` draws for the windows `index` (B,): (B, length, channels), float32."""
    place = list(PERTURBATIONS).index(kind)
    found = np.empty((len(index), length, channels), np.float32)
    for row, i in zip(found, index.tolist(), strict=True):
        generator = np.random.Generator(np.random.Philox(key=[seed, i], counter=[0, 0, 0, place]))
        row[:] = PERTURBATIONS[kind].draw(generator, length, channels)
    return torch.from_numpy(found)
