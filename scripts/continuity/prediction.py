"""Does mu alone tell which family of architectures wins on a task that was left out?

On the tasks that stay, the advantage of each family is fitted as a straight line in mu; the family with the highest line at
the left-out task's mu is predicted. The base rate predicts the family that won most of the tasks that stay, and sees no mu.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

FEWEST_TASKS = 4
FEWEST_SYSTEMS = 3

FORECAST = """
SELECT system AS held, system || ' ' || eta AS cell, model, ln(rmse) AS error, mu
FROM forecast_cell JOIN mixtures USING (system, eta, construction)
WHERE mu IS NOT NULL AND rmse IS NOT NULL AND n_failed = 0 AND model NOT IN (FROM baselines)
    AND (construction, readout, horizon) = (
        SELECT (construction, readout, horizon) FROM forecast_cell ORDER BY construction, readout, horizon DESC LIMIT 1
    )
ORDER BY held, eta, model
"""
"""Log error of each model in each system x eta cell of the primary setting, with its mu."""

BENCHMARK = """
SELECT task AS held, task AS cell, model, 1 - accuracy AS error, s.mu
FROM benchmark_cell JOIN (SELECT task, avg(mu) AS mu FROM score WHERE mu IS NOT NULL GROUP BY task) AS s USING (task)
WHERE accuracy IS NOT NULL AND n_failed = 0
ORDER BY task, model
"""
"""Error rate of each model on each labelled task, with the mean of its mu over encoders."""


@dataclass(frozen=True)
class Cells:
    """n cells: mu (n,), advantage (n, families) of each family's best model over the mean of families, held-out group (n,)."""

    mu: np.ndarray
    advantage: np.ndarray
    held: np.ndarray
    families: tuple[str, ...]

    @property
    def winner(self) -> np.ndarray:
        return self.advantage.argmax(1)


def cells(rows: Sequence[Mapping], families: Mapping[str, str]) -> Cells:
    """Cells of rows {held, cell, model, error, mu}; families: model → family, other models are left out.

    A cell in which a family has no number is left out.
    """
    names = tuple(sorted({families[row["model"]] for row in rows if row["model"] in families}))
    best: dict[str, dict] = {}
    for row in rows:
        if row["model"] in families:
            cell = best.setdefault(row["cell"], {"mu": row["mu"], "held": row["held"], "errors": {}})
            name = families[row["model"]]
            cell["errors"][name] = min(row["error"], cell["errors"].get(name, math.inf))
    whole = [cell for cell in best.values() if len(cell["errors"]) == len(names)]
    errors = np.array([[cell["errors"][name] for name in names] for cell in whole]).reshape(len(whole), len(names))
    advantage = errors.mean(1, keepdims=True) - errors if names else errors
    return Cells(np.array([cell["mu"] for cell in whole]), advantage, np.array([cell["held"] for cell in whole]), names)


def predicted(mu: np.ndarray, advantage: np.ndarray, held: np.ndarray) -> np.ndarray:
    """The family predicted for each cell from the cells outside its group: mu (…, n), advantage (n, F), held (n,) → (…, n).

    A constant mu leaves the lines flat: the family with the highest mean advantage is predicted.
    """
    found = np.empty(mu.shape, dtype=int)
    for name in dict.fromkeys(held.tolist()):
        out, stay = held == name, held != name
        x = mu[..., stay] - mu[..., stay].mean(-1, keepdims=True)
        y = advantage[stay] - advantage[stay].mean(0)
        spread = (x * x).sum(-1)[..., None]
        slope = np.divide(x @ y, spread, out=np.zeros(x.shape[:-1] + y.shape[1:]), where=spread > 1e-12)
        at = mu[..., out] - mu[..., stay].mean(-1, keepdims=True)
        found[..., out] = (advantage[stay].mean(0) + at[..., None] * slope[..., None, :]).argmax(-1)
    return found


def without_mu(winner: np.ndarray, held: np.ndarray, families: int) -> np.ndarray:
    """The family that won most cells outside each cell's group, of equal ones the first; (n,)."""
    found = np.empty(len(winner), dtype=int)
    for name in dict.fromkeys(held.tolist()):
        found[held == name] = np.bincount(winner[held != name], minlength=families).argmax()
    return found


def binomial_interval(hits: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's exact interval of a share of `hits` in `n`."""
    tail = (1 - level) / 2

    def at_least(k: int, p: float) -> float:
        return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))

    def solve(reached) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if reached(middle) else (middle, high)
        return (low + high) / 2

    low = 0.0 if hits == 0 else solve(lambda p: at_least(hits, p) >= tail)
    high = 1.0 if hits == n else solve(lambda p: 1 - at_least(hits + 1, p) <= tail)
    return low, high


def predict(
    setting: str, rows: Sequence[Mapping], families: Mapping[str, str], fewest: int, within: bool, draws: int, seed: int
) -> list[dict]:
    """Rows of the prediction table of one setting: one a group that is left out, and one for all together.

    fewest: groups below which nothing is predicted. within: the test permutes mu within a group, else over all cells.
    """
    found = cells(rows, families)
    groups = list(dict.fromkeys(found.held.tolist()))
    whole = {"setting": setting, "left_out": "each in turn", "n_cells": len(found.mu)}
    if len(groups) < fewest:
        return [whole | {"status": "undefined", "reason": f"{len(groups)} to leave out, fewer than {fewest}"}]
    if len(found.families) < 2:
        return [whole | {"status": "undefined", "reason": "one family of architectures: there is nothing to predict"}]
    guess = predicted(found.mu, found.advantage, found.held)
    base = without_mu(found.winner, found.held, len(found.families))
    shuffled = _shuffled(found, within, draws, seed)
    null = (predicted(shuffled, found.advantage, found.held) == found.winner).sum(1)
    hits = int((guess == found.winner).sum())
    p_value = (1 + int((null >= hits).sum())) / (1 + draws)
    return [
        whole | _summary(found, guess, base, np.ones(len(guess), bool)) | {"p_value": p_value},
        *({"setting": setting, "left_out": name} | _summary(found, guess, base, found.held == name) for name in groups),
    ]


def _summary(found: Cells, guess: np.ndarray, base: np.ndarray, chosen: np.ndarray) -> dict:
    index = np.arange(len(guess))
    best = found.advantage.max(1)
    hits, n = int((guess == found.winner)[chosen].sum()), int(chosen.sum())
    low, high = binomial_interval(hits, n)
    return {
        "n_cells": n,
        "hit_share": hits / n,
        "low": low,
        "high": high,
        "base_share": float((base == found.winner)[chosen].mean()),
        "regret": float((best - found.advantage[index, guess])[chosen].mean()),
        "base_regret": float((best - found.advantage[index, base])[chosen].mean()),
    }


def _shuffled(found: Cells, within: bool, draws: int, seed: int) -> np.ndarray:
    """mu in random orders, (draws, n): within each group, or over all."""
    generator = np.random.default_rng(seed)
    mu = np.tile(found.mu, (draws, 1))
    groups = [np.flatnonzero(found.held == name) for name in dict.fromkeys(found.held.tolist())]
    for index in groups if within else [np.arange(len(found.mu))]:
        mu[:, index] = generator.permuted(mu[:, index], axis=1)
    return mu
