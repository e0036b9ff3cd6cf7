"""The mean of a few values with its Student's t interval."""

import math

import numpy as np

from continuity.student import quantile_975


def mean_interval(values):
    """Mean of the finite values and its 95 % t interval: (mean, low, high); the ends are NaN below two values."""
    values = np.asarray(values, float)
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return (float(values[0]) if len(values) else math.nan), math.nan, math.nan
    half = quantile_975(len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return float(values.mean()), float(values.mean() - half), float(values.mean() + half)
