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

from continuity.philox import normals, uniforms
from continuity.runge_kutta import BURN, backend_of, rk4_compiled, rk4_plain

INTERNAL_STEP = 0.01 / 8  # time units: the integrator's step, and the finest step a path can be seen at
HALVINGS = BURN.bit_length() - 1  # levels of the bridge: ou is drawn every BURN internal steps, then halved as asked
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
        backend = backend_of(backend)
        run = rk4_compiled if backend == "numba" else rk4_plain
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
    """Burn-in of every path, in coarse steps of BURN internal ones, so that it is the same path at any step."""
    if burn_in < 0 or window < 0:
        raise ValueError(f"burn_in {burn_in} and window {window} are times: neither may be negative")
    coarse = internal_step * BURN
    return np.round((burn_in + window * uniform) / coarse).astype(np.int64)


def _ou(drawn: dict, seed: int, index: np.ndarray, length: int, stride: int, internal_step: float, skipped: np.ndarray):
    """States (n, length): drawn every BURN internal steps, then halved until the grid has the sampling times."""
    theta, sigma = drawn["theta"][:, None], drawn["sigma"][:, None]
    if (theta <= 0).any() or (sigma < 0).any():
        raise ValueError("ou needs theta above 0 and sigma at least 0")
    levels = next(j for j in range(HALVINGS + 1) if stride % 2 ** (HALVINGS - j) == 0)
    h = internal_step * BURN
    spacing = 2 ** (HALVINGS - levels)
    points = int(skipped.max(initial=0)) + -(-(length - 1) * stride // BURN) + 1
    variance = sigma**2 / (2 * theta)
    noise = normals(seed, index, 0, points)
    noise[:, 1:] *= np.sqrt(-variance * np.expm1(-2 * theta * h))
    noise[:, 0] = np.where(np.isnan(drawn["x0"]), np.sqrt(variance[:, 0]) * noise[:, 0], drawn["x0"])
    decay, steps = np.exp(-theta * h)[:, 0], np.ascontiguousarray(noise.T)
    for k in range(1, points):
        steps[k] += decay * steps[k - 1]
    path = np.ascontiguousarray(steps.T)
    for level in range(1, levels + 1):
        h /= 2
        middle = (path[:, :-1] + path[:, 1:]) / (2 * np.cosh(theta * h))
        middle += np.sqrt(variance * np.tanh(theta * h)) * normals(seed, index, level, path.shape[1] - 1)
        finer = np.empty((len(path), 2 * path.shape[1] - 1))
        finer[:, 0::2], finer[:, 1::2] = path, middle
        path = finer
    times = (skipped * 2**levels)[:, None] + np.arange(length) * (stride // spacing)
    return np.take_along_axis(path, times, axis=1)


def _coefficients(system: str, p: dict) -> np.ndarray:
    """(n, 6) of the oscillators: a, b, c, e, g, w of `runge_kutta`."""
    zero = np.zeros_like(p["x0"])
    if system == "vdp":
        terms = p["mu"], zero - 1, -p["mu"], zero, zero, zero
    elif system == "dho":
        terms = -2 * p["zeta"] * p["omega"], -(p["omega"] ** 2), zero, zero, zero, zero
    else:
        terms = -p["damping"], -p["alpha"], zero, -p["beta"], p["gamma"], p["omega"]
    return np.stack(terms, axis=1)
