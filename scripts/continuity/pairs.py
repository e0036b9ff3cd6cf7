"""Sums of u_k . u_{k+t} over the pairs of one sequence of unit vectors, without visiting every pair.

Every function takes unit (L, d) and `starts`: only pairs that begin at the first `starts` steps count (None: at any), so
that a long sequence can be summed piece by piece.
"""

import numpy as np

from continuity.native import HAVE_NUMBA, njit

FFT_LAG = 64  # above this lag one FFT is cheaper than that many shifted products


def unit_vectors(latents: np.ndarray) -> np.ndarray:
    """Steps (L, d) scaled to length 1; a zero step stays zero."""
    norm = np.sqrt(np.einsum("kd,kd->k", latents, latents))
    return latents * np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0)[:, None]


def lag_sums(unit: np.ndarray, max_lag: int, starts: int | None = None) -> np.ndarray:
    """Sum over k of u_k . u_{k+t} for t = 0 ... max_lag: (max_lag + 1,). Zero from t = L on."""
    length, d = unit.shape
    starts = length if starts is None else starts
    lags = min(max_lag + 1, length)
    sums = np.zeros(max_lag + 1)
    if max_lag > FFT_LAG:
        size = 1 << (max(length, starts + lags) - 1).bit_length()
        whole = np.fft.rfft(unit, n=size, axis=0)
        if starts == length:
            power = np.einsum("fc,fc->f", whole.view(np.float64), whole.view(np.float64))
        else:
            power = (np.fft.rfft(unit[:starts], n=size, axis=0).conj() * whole).sum(1)
        sums[:lags] = np.fft.irfft(power, n=size)[:lags]
    else:
        flat = np.ascontiguousarray(unit).ravel()
        for lag in range(lags):
            pairs = min(starts, length - lag) * d
            sums[lag] = flat[:pairs] @ flat[lag * d : lag * d + pairs]
    return sums


def far_sum(unit: np.ndarray, first: int, last: int, starts: int | None = None) -> float:
    """Sum of u_k . u_{k+t} over k and first <= t <= last, in O(L d) by a prefix sum."""
    length, d = unit.shape
    starts = length if starts is None else starts
    prefix = np.zeros((length + 1, d))
    np.cumsum(unit, axis=0, out=prefix[1:])

    def against(shift: int) -> float:
        """Sum over k of u_k . prefix[min(k + shift, L)]."""
        pairs = min(starts, length - shift)
        within = unit[:pairs].ravel() @ prefix[shift : shift + pairs].ravel()
        return within + (prefix[starts] - prefix[pairs]) @ prefix[length]

    return against(min(last + 1, length)) - against(min(first, length))


def pair_sums(unit: np.ndarray, max_lag: int, first: int, last: int, starts: int) -> np.ndarray:
    """`lag_sums` and, behind them, `far_sum`: (max_lag + 2,), compiled where numba is installed."""
    if not HAVE_NUMBA or max_lag > FFT_LAG:
        return np.append(lag_sums(unit, max_lag, starts), far_sum(unit, first, last, starts))
    sums = np.zeros(max_lag + 2)
    _fused(unit, max_lag, first, last, starts, sums)
    return sums


def pair_counts(length: int, max_lag: int, first: int, last: int, starts: int) -> np.ndarray:
    """Number of pairs behind each of the `pair_sums`: (max_lag + 2,)."""
    near = np.minimum(length - np.arange(max_lag + 1), starts)
    remaining = length - 1 - np.arange(starts)
    far = np.maximum(np.minimum(remaining, last) - first + 1, 0).sum()
    return np.maximum(np.append(near, far), 0).astype(np.float64)


@njit(fastmath={"contract", "reassoc"})
def _fused(unit, max_lag, first, last, starts, sums):
    """One pass over the sequence, the window of far steps sliding along."""
    length, d = unit.shape
    window = np.zeros(d)
    for j in range(first, min(last + 1, length)):
        for c in range(d):
            window[c] += unit[j, c]
    for k in range(starts):
        for lag in range(min(max_lag + 1, length - k)):
            total = 0.0
            for c in range(d):
                total += unit[k, c] * unit[k + lag, c]
            sums[lag] += total
        if k + first < length:
            total = 0.0
            for c in range(d):
                total += unit[k, c] * window[c]
            sums[max_lag + 1] += total
            for c in range(d):
                window[c] -= unit[k + first, c]
            if k + last + 1 < length:
                for c in range(d):
                    window[c] += unit[k + last + 1, c]
