"""Student's t intervals without scipy."""

import math
from functools import lru_cache

import numpy as np

NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)


@lru_cache
def t_quantile(probability, freedom):
    """Quantile of Student's t with `freedom` degrees of freedom, for probability in (.5, 1), to 1e-9."""
    low, high = 0.0, 1.0
    while _t_upper(high, freedom) > 1 - probability:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_upper(middle, freedom) > 1 - probability else (low, middle)
    return (low + high) / 2


def mean_interval(values, level=0.95):
    """Mean of the finite values and its t interval: (mean, low, high); the ends are NaN below two values."""
    values = np.asarray(values, float)
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return (float(values[0]) if len(values) else math.nan), math.nan, math.nan
    half = t_quantile((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return float(values.mean()), float(values.mean() - half), float(values.mean() + half)


def _t_upper(t, freedom):
    """P(T > t) by quadrature: with t = sqrt(freedom) tan(a) the density becomes cos(a)^(freedom − 1)."""
    def integral(start):
        half = (math.pi / 2 - start) / 2
        return half * float(WEIGHTS @ np.cos(start + half * (NODES + 1)) ** (freedom - 1))

    return integral(math.atan(t / math.sqrt(freedom))) / (2 * integral(0.0))
