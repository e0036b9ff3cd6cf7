"""Lifts: maps of a step to the vector that the cosine of the task metric is taken of."""

from dataclasses import dataclass

import numpy as np

CHANNELS = ("auto", "raw", "fourier", "delay")
FEATURES = 64  # random frequencies; each gives a cosine and a sine
DELAYS = 8  # steps of a delay embedding
SAMPLE = 4096  # pairs of values that the bandwidth is measured on


@dataclass(frozen=True)
class Lift:
    """A map of every step to the vector that the cosine is taken of.

    "raw" changes nothing. "fourier" sends the standardised step z to (cos Fz, sin Fz), frequencies F (FEATURES, d)
    drawn once from a normal law of deviation 1/bandwidth: its cosine is a Gaussian kernel, the bandwidth the median
    distance of two steps (Rahimi and Recht 2007). "delay" stacks the DELAYS latest standardised steps.
    """

    kind: str
    mean: np.ndarray
    deviation: np.ndarray
    frequencies: np.ndarray

    @property
    def spent(self) -> int:
        """Steps by which a lifted sequence is shorter."""
        return DELAYS - 1 if self.kind == "delay" else 0

    def __call__(self, sequence: np.ndarray) -> np.ndarray:
        """(L, d) -> (L', d'), float64."""
        if self.kind == "raw":
            return sequence
        z = (sequence - self.mean) / self.deviation
        if self.kind == "delay":
            steps = len(z) - self.spent
            return np.concatenate([z[i : i + max(steps, 0)] for i in range(DELAYS)], axis=1)
        phase = z @ self.frequencies.T
        return np.concatenate([np.cos(phase), np.sin(phase)], axis=1)


def fit_lift(sequences: list[np.ndarray], channels: str = "auto", seed: int = 0) -> Lift:
    """The lift of a set of (L, d) sequences.

    "auto" is "fourier" for one channel, where a cosine sees only signs, and "raw" for more.
    Raises ValueError for an unknown `channels`.
    """
    if channels not in CHANNELS:
        raise ValueError(f"channels is {channels!r}: choose one of {', '.join(CHANNELS)}")
    d = sequences[0].shape[1] if sequences else 1
    kind = ("fourier" if d == 1 else "raw") if channels == "auto" else channels
    mean, deviation, frequencies = np.zeros(d), np.ones(d), np.zeros((FEATURES, d))
    if kind == "raw":
        return Lift(kind, mean, deviation, frequencies)
    steps = np.concatenate(sequences) if sequences else np.zeros((0, d))
    if len(steps):
        mean, deviation = steps.mean(0), steps.std(0)
        deviation = np.where(deviation > 1e-6 * np.abs(steps).max(0), deviation, np.inf)
    if kind == "fourier":
        rng = np.random.default_rng([seed, 1])
        z = (steps - mean) / deviation
        a, b = z[rng.integers(len(z), size=(2, SAMPLE))] if len(z) else np.zeros((2, 1, d))
        distance = np.linalg.norm(a - b, axis=1)
        apart = distance[distance > 0]
        bandwidth = np.median(apart) if len(apart) else 1.0
        frequencies = rng.standard_normal((FEATURES, d)) / bandwidth
    return Lift(kind, mean, deviation, frequencies)
