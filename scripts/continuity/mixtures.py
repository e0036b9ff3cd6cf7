"""Observations of a trajectory between discrete (eta = 0) and continuous (eta = 1), 16 channels.

A state z is shown twice: as a point c = z W of a fixed plane, which moves smoothly, and as one of a few codes d, which
jumps. eta sets the share of each. Bins, centres and norms come from a calibration set, never from a series' future.

published   eta c + (1 - eta) d with d an orthonormal code of one of 16 bins (Yu, Lyu and Erichson, arXiv 2605.08539)
balanced    sqrt(eta) c' + sqrt(1 - eta) d', both centred with unit mean norm; d' the code of a walk on 17 symbols,
            e_k = (e_{k-1} + s_k + 1) mod 17 over the bins s_k, codes the corners of a regular simplex: the same
            information as the bins, and a change at every step
"""

from dataclasses import dataclass

import numpy as np

CHANNELS = 16
BINS = 16
CONSTRUCTIONS = ("published", "balanced")


@dataclass(frozen=True)
class Calibration:
    """What observations are made with: bin edges [low, high] (d,), W (d, 16), and the codes of both constructions.

    `centre` (16,) and `norm` are the mean of c over the calibration states and the mean norm of c less it.
    codes: published (16, 16), orthonormal rows; balanced (17, 16), unit rows with inner products -1/16.
    """

    low: np.ndarray
    high: np.ndarray
    projection: np.ndarray
    centre: np.ndarray
    norm: float
    published: np.ndarray
    balanced: np.ndarray
    seed: int

    def codes(self, construction: str) -> np.ndarray:
        """The codes of a construction: (symbols, 16)."""
        return self.published if construction == "published" else self.balanced


def calibrate(states: np.ndarray, seed: int = 37) -> Calibration:
    """Statistics of states (n, L, d), d = 1 or 2: give it the training split. W and the codes depend on the seed alone.

    Raises ValueError for another shape and for states that are constant or not finite.
    """
    states = _states(states)
    flat = states.reshape(-1, states.shape[-1])
    if not np.isfinite(flat).all():
        raise ValueError("states hold a value that is not finite: drop the diverged trajectories")
    low, high = flat.min(0), flat.max(0)
    if not (high > low).all():
        raise ValueError("states are constant in one channel: there is nothing to observe")
    projection = np.random.default_rng(seed + 101).standard_normal((flat.shape[1], CHANNELS))
    projection /= np.linalg.norm(projection, axis=0)
    continuous = flat @ projection
    centre = continuous.mean(0)
    norm = float(np.linalg.norm(continuous - centre, axis=1).mean())
    rng = np.random.default_rng(seed + 202)
    return Calibration(low, high, projection, centre, norm, _rotation(rng), _simplex() @ _rotation(rng), seed)


def symbols(states: np.ndarray, calibration: Calibration, as_released: bool = False) -> np.ndarray:
    """The bin of every state, 0 ... 15: 4 x 4 over two channels, 16 over one; (n, L, d) -> (n, L).

    States beyond the calibrated range fall into the outermost bins. as_released takes the range of each trajectory, all
    its future included, as the released code does.
    """
    states = _states(states)
    d = states.shape[-1]
    low, high = (states.min(1, keepdims=True), states.max(1, keepdims=True)) if as_released else (
        calibration.low, calibration.high)  # fmt: skip
    width = np.where(high > low, high - low, 1.0)
    bins = BINS if d == 1 else 4
    index = np.clip((states - low) / width * bins, 0, bins - 1).astype(np.int64)
    return index[..., 0] if d == 1 else index[..., 0] * bins + index[..., 1]


def observe(states: np.ndarray, eta: float, seed: int = 37, construction: str = "balanced",
            calibration: Calibration | None = None, as_released: bool = False) -> np.ndarray:  # fmt: skip
    """Observations (n, L, 16) of states (n, L, d) at eta in [0, 1]; eta = 1 is continuous, eta = 0 discrete.

    Without a calibration the states calibrate themselves. as_released (published only): see `symbols`.
    Raises ValueError for eta outside [0, 1], an unknown construction, or a calibration of another seed.
    """
    if not 0 <= eta <= 1:
        raise ValueError(f"eta is {eta}: it must lie between 0 (discrete) and 1 (continuous)")
    if construction not in CONSTRUCTIONS:
        raise ValueError(f"construction is {construction!r}: choose one of {', '.join(CONSTRUCTIONS)}")
    calibration = calibrate(states, seed) if calibration is None else calibration
    if calibration.seed != seed:
        raise ValueError(f"the calibration was made with seed {calibration.seed}, the observation asks for {seed}")
    states = _states(states)
    continuous = states @ calibration.projection
    bins = symbols(states, calibration, as_released)
    if construction == "published":
        return eta * continuous + (1 - eta) * calibration.published[bins]
    walk = np.cumsum(bins + 1, axis=1) % len(calibration.balanced)
    continuous = (continuous - calibration.centre) / calibration.norm
    return np.sqrt(eta) * continuous + np.sqrt(1 - eta) * calibration.balanced[walk]


def _states(states: np.ndarray) -> np.ndarray:
    states = np.asarray(states, dtype=np.float64)
    if states.ndim != 3 or states.shape[-1] not in (1, 2):
        raise ValueError(f"states have shape {states.shape}: give (n, L, 1) or (n, L, 2)")
    return states


def _rotation(rng: np.random.Generator) -> np.ndarray:
    """A random orthogonal matrix (16, 16), uniformly distributed."""
    q, r = np.linalg.qr(rng.standard_normal((CHANNELS, CHANNELS)))
    return q * np.sign(np.diag(r))


def _simplex() -> np.ndarray:
    """Corners of a regular simplex with 17 corners in 16 dimensions: (17, 16), centred, unit norm."""
    corners = np.eye(CHANNELS + 1) - 1 / (CHANNELS + 1)
    basis = np.linalg.svd(corners)[2][:CHANNELS]
    corners = corners @ basis.T
    return corners / np.linalg.norm(corners, axis=1, keepdims=True)


@dataclass(frozen=True)
class Windows:
    """A forecasting set: inputs (m, context, 16) and targets (m, 16) = (target - last) / scale.

    `last` (m, 16) is the last input step, scale (16,) the deviation of the training increments target - last.
    """

    inputs: np.ndarray
    targets: np.ndarray
    last: np.ndarray
    scale: np.ndarray

    def observation(self, predicted: np.ndarray) -> np.ndarray:
        """The observation that a predicted normalised increment (m, 16) stands for."""
        return self.last + predicted * self.scale


def windows(observations: np.ndarray, context: int, horizon: int, targets: np.ndarray | None = None,
            scale: np.ndarray | None = None, every: int | None = None) -> Windows:  # fmt: skip
    """Inputs of `context` steps and the increment from their last step to the one `horizon` steps later.

    observations (n, L, 16); windows start at 0, every, 2 every ... (every=None: one window a trajectory, at 0).
    targets: another observation of the same states, to cross the input's eta with the target's.
    scale: that of the training windows; None measures it here. A channel that never moves gets scale 1.
    Raises ValueError where a trajectory is shorter than context + horizon.
    """
    n, length, _ = observations.shape
    targets = observations if targets is None else targets
    if targets.shape[:2] != (n, length):
        raise ValueError(f"targets have shape {targets.shape}, observations {observations.shape}: they must match")
    if context < 1 or horizon < 1 or context + horizon > length:
        raise ValueError(f"context {context} + horizon {horizon} must fit into {length} steps, both at least 1")
    starts = [0] if every is None else range(0, length - context - horizon + 1, every)
    inputs = np.concatenate([observations[:, s : s + context] for s in starts])
    last = np.concatenate([targets[:, s + context - 1] for s in starts])
    goal = np.concatenate([targets[:, s + context - 1 + horizon] for s in starts])
    increment = goal - last
    if scale is None:
        deviation = increment.std(0)
        scale = np.where(deviation > 1e-12, deviation, 1.0)
    return Windows(inputs, increment / scale, last, scale)


def nearest_code(observation: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Index of the code nearest to every observation: (m, 16) -> (m,)."""
    return (observation @ codes.T - 0.5 * (codes**2).sum(1)).argmax(-1)


def nearest_code_accuracy(predicted: np.ndarray, actual: np.ndarray, codes: np.ndarray) -> float:
    """Share of observations (m, 16) whose nearest code is that of the actual one: the score of the discrete end."""
    return float((nearest_code(predicted, codes) == nearest_code(actual, codes)).mean())
