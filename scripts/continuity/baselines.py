"""Forecasts that every architecture must beat: no change, and a linear map of the last steps."""

from dataclasses import dataclass

import numpy as np

ALPHAS = tuple(10.0**k for k in range(-4, 7))


def persistence(targets: np.ndarray) -> np.ndarray:
    """The increment that "no change" predicts: zeros of the targets' shape."""
    return np.zeros_like(targets)


def last_steps(inputs: np.ndarray, steps: int) -> np.ndarray:
    """The last `steps` of the inputs (m, L, d), flattened: (m, steps d). Raises ValueError where L is shorter."""
    if not 1 <= steps <= inputs.shape[1]:
        raise ValueError(f"ridge on the last {steps} steps needs between 1 and the {inputs.shape[1]} steps of the context")
    return inputs[:, -steps:].reshape(len(inputs), -1)


@dataclass(frozen=True)
class Ridge:
    """y = x coefficients + intercept; coefficients (p, q), intercept (q,), alpha the penalty."""

    coefficients: np.ndarray
    intercept: np.ndarray
    alpha: float

    def predict(self, x: np.ndarray) -> np.ndarray:
        """(m, p) -> (m, q), float64."""
        return np.asarray(x, dtype=np.float64) @ self.coefficients + self.intercept


def ridge(x: np.ndarray, y: np.ndarray, validation_x: np.ndarray | None = None, validation_y: np.ndarray | None = None,
          alphas: tuple[float, ...] = ALPHAS) -> Ridge:  # fmt: skip
    """Minimise |y - x b - c|^2 + alpha |b|^2 over b (p, q) and c (q,): x (m, p), y (m, q), c not penalised.

    alpha is the one of `alphas` with the least squared error on the validation set (m', p), (m', q), which only a
    single alpha can do without. One singular value decomposition serves all of them.
    Raises ValueError for arrays that do not match, no rows, or a negative alpha.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or not len(x):
        raise ValueError(f"ridge: x {x.shape} and y {y.shape} must be (m, p) and (m, q) with m at least 1")
    if not alphas or min(alphas) < 0:
        raise ValueError(f"ridge: alphas {alphas} must be one or more numbers, none negative")
    if len(alphas) > 1 and (validation_x is None or validation_y is None):
        raise ValueError("ridge: choosing among several alphas needs a validation set")
    centre_x, centre_y = x.mean(0), y.mean(0)
    u, s, vt = np.linalg.svd(x - centre_x, full_matrices=False)
    projected = u.T @ (y - centre_y)
    s = np.where(s > s.max(initial=0) * max(x.shape) * np.finfo(float).eps, s, 0)

    def fit(alpha: float) -> Ridge:
        gain = np.divide(s, s * s + alpha, out=np.zeros_like(s), where=s > 0)
        coefficients = vt.T @ (gain[:, None] * projected)
        return Ridge(coefficients, centre_y - centre_x @ coefficients, alpha)

    if len(alphas) == 1:
        return fit(alphas[0])
    fits = [fit(alpha) for alpha in alphas]
    return min(fits, key=lambda found: float(((found.predict(validation_x) - validation_y) ** 2).mean()))
