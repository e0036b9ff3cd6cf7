"""Four dynamical systems, sampled at any step of the same trajectories.

    vdp      x'' = mu (1 - x^2) x' - x                                   Van der Pol
    dho      x'' = -2 zeta omega x' - omega^2 x                          damped harmonic oscillator
    duffing  x'' = -damping x' - alpha x - beta x^3 + gamma cos(omega t) forced Duffing
    ou       dX  = -theta X dt + sigma dW                                Ornstein-Uhlenbeck

Trajectory i of a seed depends on (seed, i) alone, not on how many are made, and its state at a time depends on that
time alone, not on the sampling step: a finer step shows the same path at more times. The oscillators follow
fourth-order Runge-Kutta on an internal grid; ou its exact transition law, and its exact bridge between times.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from continuity.native import HAVE_NUMBA, njit, over_batch

INTERNAL_STEP = 0.01 / 8  # time units: the integrator's step, and the finest step a path can be seen at
HALVINGS = 3  # levels of the bridge: ou is drawn every 2^3 internal steps, then halved as far as asked
LANES = 16  # trajectories that one compiled inner loop advances side by side
GRID = 1e-9  # relative tolerance for "a multiple of"


@dataclass(frozen=True)
class System:
    """Names and default values of a system: a number is fixed, a pair is the range of a uniform draw.

    `parameters` enter the equation; `initial` are the state at time 0 ("stationary": drawn from the invariant law);
    burn_in and window are in time units: sampling starts at burn_in plus a uniform draw from [0, window].
    """

    name: str
    parameters: Mapping[str, float | tuple[float, float]]
    initial: Mapping[str, float | tuple[float, float] | str]
    channels: tuple[str, ...]
    burn_in: float = 0.0
    window: float = 0.0


SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (
        System("vdp", {"mu": (0.1, 5.0)}, {"x0": (-2.0, 2.0), "v0": (-2.0, 2.0)}, ("x", "v")),
        System("dho", {"omega": (0.5, 3.0), "zeta": (0.02, 0.4)}, {"x0": (-2.0, 2.0), "v0": (-2.0, 2.0)}, ("x", "v")),
        System(
            "duffing",
            {"gamma": (0.2, 0.4), "damping": 0.2, "alpha": -1.0, "beta": 1.0, "omega": 1.2},
            {"x0": (-1.0, 1.0), "v0": (-1.0, 1.0)},
            ("x", "v"),
            burn_in=50.0,
            window=10.0,
        ),
        System("ou", {"theta": (0.2, 2.0), "sigma": (0.1, 1.0)}, {"x0": "stationary"}, ("x",)),
    )
}


@dataclass(frozen=True)
class Trajectories:
    """n sampled paths: states (n, L, d) float64 at times 0, step, 2 step ... after the burn-in.

    parameters (n, p) with their names; `varied` are the names that were drawn from a range, in the same order.
    backend is "numba" or "numpy".
    """

    states: np.ndarray
    parameters: np.ndarray
    parameter_names: tuple[str, ...]
    varied: tuple[str, ...]
    channel_names: tuple[str, ...]
    step: float
    backend: str

    @property
    def labels(self) -> np.ndarray:
        """The varied parameters (n, v)."""
        return self.parameters[:, [self.parameter_names.index(name) for name in self.varied]]


def simulate(system: str, n: int, length: int, step: float = 0.01, seed: int = 0, *, start_index: int = 0,
             internal_step: float = INTERNAL_STEP, burn_in: float | None = None, window: float | None = None,
             threads: int = 1, backend: str = "auto", **values) -> Trajectories:  # fmt: skip
    """Paths start_index ... start_index + n - 1 of a seed, `length` states each, `step` time units apart.

    **values replace the system's parameters and initial state (see SYSTEMS): a number or a (low, high) pair each.
    step must be a multiple of internal_step. backend: "auto", "numba" or "numpy"; they agree to rounding.
    Raises ValueError for an unknown system, name, range or step.
    """
    spec = _spec(system)
    stride = _stride(step, internal_step)
    if n < 0 or length < 1 or start_index < 0:
        raise ValueError(f"n {n}, length {length}, start_index {start_index}: none may be negative, length at least 1")
    unknown = sorted(set(values) - set(spec.parameters) - set(spec.initial))
    if unknown:
        known = ", ".join([*spec.parameters, *spec.initial])
        raise ValueError(f"system {system} has no parameter {', '.join(unknown)}: it has {known}")
    if seed < 0:
        raise ValueError(f"seed is {seed}: it must not be negative")
    index = np.arange(start_index, start_index + n, dtype=np.uint64)
    uniform = uniforms(seed, index, len(spec.parameters) + len(spec.initial) + 1)
    given = {**spec.parameters, **spec.initial} | values
    drawn = {name: _draw(name, given[name], uniform[:, i]) for i, name in enumerate(given)}
    burn = spec.burn_in if burn_in is None else burn_in
    spread = spec.window if window is None else window
    skipped = _skip(burn, spread, uniform[:, -1], internal_step)
    if system == "ou":
        states, backend = _ou(drawn, seed, index, length, stride, internal_step, skipped), "numpy"
        states = states[..., None]
    else:
        backend = _backend(backend)
        run = _rk4_compiled if backend == "numba" else _rk4_plain
        start = np.stack([drawn["x0"], drawn["v0"]], axis=1)
        states = run(_coefficients(system, drawn), start, skipped, length, stride, internal_step, threads)
    names = tuple(spec.parameters)
    parameters = np.stack([drawn[name] for name in names], axis=1)
    varied = tuple(name for name in names if np.ndim(given[name]))
    return Trajectories(states, parameters, names, varied, spec.channels, step, backend)


def _spec(system: str) -> System:
    if system not in SYSTEMS:
        raise ValueError(f"there is no system {system!r}: choose one of {', '.join(SYSTEMS)}")
    return SYSTEMS[system]


def _stride(step: float, internal_step: float) -> int:
    if not (step > 0 and internal_step > 0):
        raise ValueError(f"step {step} and internal_step {internal_step} must be positive")
    stride = max(1, round(step / internal_step))
    if abs(stride * internal_step - step) > GRID * step:
        nearest = stride * internal_step
        raise ValueError(f"step {step} is no multiple of internal_step {internal_step:g}: the nearest is {nearest:g}")
    return stride


def _draw(name: str, value, uniform: np.ndarray) -> np.ndarray:
    if isinstance(value, str):
        if value != "stationary" or name != "x0":
            raise ValueError(f"{name} is {value!r}: give a number or a (low, high) pair")
        return np.full(len(uniform), np.nan)
    bounds = np.asarray(value, dtype=np.float64)
    if bounds.shape not in ((), (2,)) or not np.isfinite(bounds).all() or (bounds.ndim and bounds[0] > bounds[1]):
        raise ValueError(f"{name} is {value!r}: give a number or a (low, high) pair")
    return np.full(len(uniform), float(bounds)) if bounds.ndim == 0 else bounds[0] + np.diff(bounds) * uniform


def _skip(burn_in: float, window: float, uniform: np.ndarray, internal_step: float) -> np.ndarray:
    """Burn-in of every path, in coarse steps of 2^HALVINGS internal ones, so that it is the same path at any step."""
    if burn_in < 0 or window < 0:
        raise ValueError(f"burn_in {burn_in} and window {window} are times: neither may be negative")
    coarse = internal_step * 2**HALVINGS
    return np.round((burn_in + window * uniform) / coarse).astype(np.int64)


# Random numbers by counter: Philox 4x64 of Salmon et al. 2011, the generator of numpy.random.Philox

_M0, _M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_W0, _W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def _multiply(a: np.uint64, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """High and low word of the 128-bit product."""
    a_high, a_low, b_high, b_low = a >> _HALF, a & _LOW, b >> _HALF, b & _LOW
    cross = a_high * b_low + (a_low * b_low >> _HALF)
    other = a_low * b_high + (cross & _LOW)
    return a_high * b_high + (cross >> _HALF) + (other >> _HALF), a * b


def philox(counter: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Ten rounds of Philox 4x64: counter (..., 4) and key (..., 2) of uint64 -> (..., 4) uint64."""
    c0, c1, c2, c3 = np.moveaxis(np.asarray(counter, dtype=np.uint64), -1, 0)
    k0, k1 = np.moveaxis(np.asarray(key, dtype=np.uint64), -1, 0)
    with np.errstate(over="ignore"):
        for _ in range(10):
            high0, low0 = _multiply(_M0, c0)
            high1, low1 = _multiply(_M1, c2)
            c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
            k0, k1 = k0 + _W0, k1 + _W1
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), axis=-1)


def uniforms(seed: int, index: np.ndarray, count: int) -> np.ndarray:
    """`count` numbers in [0, 1) for every index, from (seed, index) alone: (n,) -> (n, count)."""
    key = np.stack(np.broadcast_arrays(np.uint64(seed), np.asarray(index, dtype=np.uint64)), axis=-1)
    blocks = -(-count // 4)
    counter = np.zeros((blocks, 4), dtype=np.uint64)
    counter[:, 0] = np.arange(blocks)
    words = philox(counter[None], key[:, None]).reshape(len(key), 4 * blocks)[:, :count]
    return (words >> np.uint64(11)) * 2.0**-53


def _normals(seed: int, index: np.ndarray, level: int, count: int) -> np.ndarray:
    """Standard normals (n, count) of a bridge level; a larger count keeps the earlier ones."""
    out = np.empty((len(index), count))
    for row, i in zip(out, index, strict=True):
        np.random.Generator(np.random.Philox(key=[seed, i], counter=[0, 0, 0, level + 1])).standard_normal(out=row)
    return out


# Ornstein-Uhlenbeck


def _ou(drawn: dict, seed: int, index: np.ndarray, length: int, stride: int, internal_step: float, skipped: np.ndarray):
    """States (n, length): drawn every 2^HALVINGS internal steps, then halved until the grid has the sampling times."""
    theta, sigma = drawn["theta"][:, None], drawn["sigma"][:, None]
    if (theta <= 0).any() or (sigma < 0).any():
        raise ValueError("ou needs theta above 0 and sigma at least 0")
    levels = next(j for j in range(HALVINGS + 1) if stride % 2 ** (HALVINGS - j) == 0)
    h = internal_step * 2**HALVINGS
    spacing = 2 ** (HALVINGS - levels)
    points = int(skipped.max(initial=0)) + -(-(length - 1) * stride // 2**HALVINGS) + 1
    variance = sigma**2 / (2 * theta)
    noise = _normals(seed, index, 0, points)
    noise[:, 1:] *= np.sqrt(-variance * np.expm1(-2 * theta * h))
    noise[:, 0] = np.where(np.isnan(drawn["x0"]), np.sqrt(variance[:, 0]) * noise[:, 0], drawn["x0"])
    decay, steps = np.exp(-theta * h)[:, 0], np.ascontiguousarray(noise.T)
    for k in range(1, points):
        steps[k] += decay * steps[k - 1]
    path = np.ascontiguousarray(steps.T)
    for level in range(1, levels + 1):
        h /= 2
        middle = (path[:, :-1] + path[:, 1:]) / (2 * np.cosh(theta * h))
        middle += np.sqrt(variance * np.tanh(theta * h)) * _normals(seed, index, level, path.shape[1] - 1)
        finer = np.empty((len(path), 2 * path.shape[1] - 1))
        finer[:, 0::2], finer[:, 1::2] = path, middle
        path = finer
    times = (skipped * 2**levels)[:, None] + np.arange(length) * (stride // spacing)
    return np.take_along_axis(path, times, axis=1)


# The oscillators: x' = v,  v' = a v + b x + c x^2 v + e x^3 + g cos(w t)


def _coefficients(system: str, p: dict) -> np.ndarray:
    """(n, 6): a, b, c, e, g, w."""
    zero = np.zeros_like(p["x0"])
    if system == "vdp":
        terms = p["mu"], zero - 1, -p["mu"], zero, zero, zero
    elif system == "dho":
        terms = -2 * p["zeta"] * p["omega"], -(p["omega"] ** 2), zero, zero, zero, zero
    else:
        terms = -p["damping"], -p["alpha"], zero, -p["beta"], p["gamma"], p["omega"]
    return np.stack(terms, axis=1)


def _backend(backend: str) -> str:
    if backend not in ("auto", "numba", "numpy"):
        raise ValueError(f"backend is {backend!r}: choose auto, numba or numpy")
    if backend == "numba" and not HAVE_NUMBA:
        raise ValueError("backend numba: numba is not installed; use auto or numpy")
    return backend if backend != "auto" else ("numba" if HAVE_NUMBA else "numpy")


def _rk4_plain(coefficients, start, skipped, length, stride, h, threads) -> np.ndarray:
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

    coarse = h * 2**HALVINGS
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


def _rk4_compiled(coefficients, start, skipped, length, stride, h, threads) -> np.ndarray:
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
    coarse = h * 2**HALVINGS
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
