"""Student's t distribution for whole degrees of freedom, without scipy (Abramowitz and Stegun 26.7.3, 26.7.4, 26.7.5)."""

import functools
import math

NORMAL_975 = 1.959963984540054
EXACT_TO = 30


def two_sided(t: float, df: int) -> float:
    """P(|T| >= |t|) for a T with `df` degrees of freedom (a finite trigonometric series).

    Raises ValueError where df is not a whole number of at least 1.
    """
    if df < 1 or df != int(df):
        raise ValueError(f"df must be a whole number of at least 1, got {df}")
    theta = math.atan(abs(t) / math.sqrt(df))
    sine, cosine = math.sin(theta), math.cos(theta)
    if df == 1:
        return 1 - 2 * theta / math.pi
    odd = int(df) % 2
    term = total = cosine if odd else 1.0
    for k in range(2 + odd, int(df) - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    inside = 2 / math.pi * (theta + sine * total) if odd else sine * total
    return max(0.0, 1 - inside)


@functools.cache
def quantile_975(df: int) -> float:
    """The t that 2.5 % of the distribution exceed: bisection up to 30 degrees of freedom, then Cornish-Fisher (1e-6)."""
    if df > EXACT_TO:
        x, n = NORMAL_975, float(df)
        return (
            x
            + (x**3 + x) / (4 * n)
            + (5 * x**5 + 16 * x**3 + 3 * x) / (96 * n**2)
            + (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / (384 * n**3)
        )
    low, high = 1.0, 13.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, df) > 0.05 else (low, middle)
    return (low + high) / 2
