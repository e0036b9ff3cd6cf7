"""Multinomial logistic regression: the classifier that every architecture must beat."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import cross_entropy

ALPHAS = tuple(10.0**k for k in range(4, -4, -1))


@dataclass(frozen=True)
class Logistic:
    """Scores x weights + intercept; weights (p, classes), intercept (classes,), alpha the penalty."""

    weights: np.ndarray
    intercept: np.ndarray
    alpha: float

    def scores(self, x: np.ndarray) -> np.ndarray:
        """(m, p) -> (m, classes), float64."""
        return np.asarray(x, dtype=np.float64) @ self.weights + self.intercept

    def predict(self, x: np.ndarray) -> np.ndarray:
        """The class of the highest score: (m,)."""
        return self.scores(x).argmax(1)


def logistic(x: np.ndarray, y: np.ndarray, classes: int, alpha: float, start: Logistic | None = None) -> Logistic:
    """Minimise the summed cross-entropy + alpha/2 |weights|^2: x (m, p), labels y (m,) in 0 … classes − 1.

    The intercept is not penalised. start: where to begin, such as the solution of a neighbouring alpha.
    Raises ValueError for arrays that do not match and an alpha that is not positive.
    """
    if x.ndim != 2 or y.shape != x.shape[:1] or not len(x):
        raise ValueError(f"logistic regression: x {x.shape} and y {y.shape} must be (m, p) and (m,) with m at least 1")
    if not alpha > 0:
        raise ValueError(f"logistic regression: alpha is {alpha}: it must be positive")
    inputs, labels = torch.from_numpy(np.asarray(x, np.float64)), torch.from_numpy(np.asarray(y, np.int64))
    weights = torch.zeros(x.shape[1], classes, dtype=torch.float64)
    intercept = torch.zeros(classes, dtype=torch.float64)
    if start is not None:
        weights.copy_(torch.from_numpy(start.weights))
        intercept.copy_(torch.from_numpy(start.intercept))
    weights.requires_grad_()
    intercept.requires_grad_()
    optimizer = torch.optim.LBFGS(
        [weights, intercept], max_iter=1000, history_size=20, tolerance_grad=1e-7, tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def objective():
        optimizer.zero_grad()
        loss = (
            cross_entropy(inputs @ weights + intercept, labels, reduction="sum") + alpha / 2 * weights.square().sum()
        ) / len(x)
        loss.backward()
        return loss

    optimizer.step(objective)
    return Logistic(weights.detach().numpy(), intercept.detach().numpy(), alpha)


def chosen(
    train: tuple[np.ndarray, np.ndarray], validation: tuple[np.ndarray, np.ndarray], classes: int,
    alphas: Sequence[float] = ALPHAS,
) -> Logistic:  # fmt: skip
    """The regression whose alpha has the least cross-entropy on the validation set.

    alphas fall, each regression starts from the one before it, and none follows once the loss has turned.
    """
    labels = torch.from_numpy(np.asarray(validation[1], np.int64))
    fits, losses = [], []
    for alpha in alphas:
        fits.append(logistic(*train, classes, alpha, fits[-1] if fits else None))
        losses.append(float(cross_entropy(torch.from_numpy(fits[-1].scores(validation[0])), labels)))
        if losses[-1] > 1.02 * min(losses):
            break
    return fits[int(np.argmin(losses))]
