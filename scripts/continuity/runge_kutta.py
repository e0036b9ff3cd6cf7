"""Fourth-order Runge-Kutta for many cubic oscillators at once: x' = v, v' = a v + b x + c x^2 v + e x^3 + g cos(w t).

Both forms take coefficients (n, 6) in the order a, b, c, e, g, w; start (n, 2); `skipped` (n,) steps of BURN h each to go
before sampling; and return states (n, length, 2), `stride` steps of h apart.
"""

import numpy as np

from continuity.native import HAVE_NUMBA, njit, over_batch

BURN = 8  # steps of h that one step of the burn-in is long, whatever the sampling step
LANES = 16  # trajectories that one compiled inner loop advances side by side


def backend_of(backend: str) -> str:
    """The backend that "auto" stands for here, or the one asked for. Raises ValueError where it cannot be had."""
    if backend not in ("auto", "numba", "numpy"):
        raise ValueError(f"backend is {backend!r}: choose auto, numba or numpy")
    if backend == "numba" and not HAVE_NUMBA:
        raise ValueError("backend numba: numba is not installed; use auto or numpy")
    return backend if backend != "auto" else ("numba" if HAVE_NUMBA else "numpy")


def rk4_plain(coefficients, start, skipped, length, stride, h, threads) -> np.ndarray:
    """All paths at once, one numpy expression a stage: (n, length, 2)."""
    a, b, c, e, g, w = coefficients.T
    x, v = start.T.copy()
    states = np.empty((len(x), length, 2))

    def slope(x, v, t):
        return v, a * v + b * x + c * x * x * v + e * x * x * x + g * np.cos(w * t)

    def advance(x, v, t, h):
        k1x, k1v = slope(x, v, t)
        k2x, k2v = slope(x + h / 2 * k1x, v + h / 2 * k1v, t + h / 2)
        k3x, k3v = slope(x + h / 2 * k2x, v + h / 2 * k2v, t + h / 2)
        k4x, k4v = slope(x + h * k3x, v + h * k3v, t + h)
        return x + h / 6 * (k1x + 2 * k2x + 2 * k3x + k4x), v + h / 6 * (k1v + 2 * k2v + 2 * k3v + k4v)

    coarse = h * BURN
    for k in range(skipped.max(initial=0)):
        nx, nv = advance(x, v, k * coarse, coarse)
        x, v = np.where(k < skipped, nx, x), np.where(k < skipped, nv, v)
    t0 = skipped * coarse
    for k in range(length):
        states[:, k, 0], states[:, k, 1] = x, v
        if k < length - 1:
            for j in range(stride):
                x, v = advance(x, v, t0 + (k * stride + j) * h, h)
    return states


def rk4_compiled(coefficients, start, skipped, length, stride, h, threads) -> np.ndarray:
    """The same by compiled loops over LANES paths at a time, shared among threads."""
    n = len(start)
    states = np.empty((n, length, 2))
    lanes = -(-n // LANES)
    over_batch(_rk4_lanes, lanes, threads, coefficients, start, skipped, stride, h, states)
    return states


@njit
def _rk4_lanes(first, last, coefficients, start, skipped, stride, h, states):
    """Blocks first ... last - 1 of LANES paths; `start` is overwritten by the state after the burn-in.

    The block's numbers lie in one flat array, LANES a quantity, so that the compiler sees that lanes are independent:
    x, v, cos(w t), sin(w t), a, b, c, e, g, w, cos(w h/2), sin(w h/2).
    """
    n, length = states.shape[0], states.shape[1]
    q = np.zeros(12 * LANES)
    coarse = h * BURN
    for block in range(first, last):
        base = block * LANES
        width = min(LANES, n - base)
        q[:] = 0.0
        longest = 0
        for lane in range(width):
            q[lane], q[LANES + lane], q[2 * LANES + lane] = start[base + lane, 0], start[base + lane, 1], 1.0
            for j in range(6):
                q[(4 + j) * LANES + lane] = coefficients[base + lane, j]
            longest = max(longest, skipped[base + lane])
        _turn(q, coarse)
        for k in range(longest + 1):
            for lane in range(width):
                if k == skipped[base + lane]:
                    start[base + lane, 0], start[base + lane, 1] = q[lane], q[LANES + lane]
            _rk4_step(q, coarse)
        _turn(q, h)
        for lane in range(width):
            angle = q[9 * LANES + lane] * skipped[base + lane] * coarse
            q[lane], q[LANES + lane] = start[base + lane, 0], start[base + lane, 1]
            q[2 * LANES + lane], q[3 * LANES + lane] = np.cos(angle), np.sin(angle)
        for k in range(length):
            for lane in range(width):
                states[base + lane, k, 0], states[base + lane, k, 1] = q[lane], q[LANES + lane]
            for _ in range(stride if k < length - 1 else 0):
                _rk4_step(q, h)


@njit
def _turn(q, h):
    for lane in range(LANES):
        q[10 * LANES + lane] = np.cos(q[9 * LANES + lane] * h / 2)
        q[11 * LANES + lane] = np.sin(q[9 * LANES + lane] * h / 2)


@njit(fastmath={"contract"})
def _rk4_step(q, h):
    """One step of every lane; cos(w t) advances by two rotations of w h/2, exact up to rounding."""
    half, sixth = h / 2, h / 6
    for lane in range(LANES):
        x, v, cosine, sine = q[lane], q[LANES + lane], q[2 * LANES + lane], q[3 * LANES + lane]
        a, b, c = q[4 * LANES + lane], q[5 * LANES + lane], q[6 * LANES + lane]
        e, g = q[7 * LANES + lane], q[8 * LANES + lane]
        turn_cosine, turn_sine = q[10 * LANES + lane], q[11 * LANES + lane]
        half_cosine = cosine * turn_cosine - sine * turn_sine
        half_sine = sine * turn_cosine + cosine * turn_sine
        end_cosine = half_cosine * turn_cosine - half_sine * turn_sine
        end_sine = half_sine * turn_cosine + half_cosine * turn_sine
        k1 = (a + c * x * x) * v + (b + e * x * x) * x + g * cosine
        x2, v2 = x + half * v, v + half * k1
        k2 = (a + c * x2 * x2) * v2 + (b + e * x2 * x2) * x2 + g * half_cosine
        x3, v3 = x + half * v2, v + half * k2
        k3 = (a + c * x3 * x3) * v3 + (b + e * x3 * x3) * x3 + g * half_cosine
        x4, v4 = x + h * v3, v + h * k3
        k4 = (a + c * x4 * x4) * v4 + (b + e * x4 * x4) * x4 + g * end_cosine
        q[lane] = x + sixth * (v + 2 * (v2 + v3) + v4)
        q[LANES + lane] = v + sixth * (k1 + 2 * (k2 + k3) + k4)
        q[2 * LANES + lane] = end_cosine
        q[3 * LANES + lane] = end_sine
