"""Does the advantage of one architecture over another follow the continuity of the task?

Spearman's rank correlation of mu with the advantage log(rmse of B / rmse of A), over system x eta cells. The test
permutes mu within each system, so that a difference between systems is no evidence; the interval resamples etas within
each system and seeds within each cell.
"""

import itertools
import math

import numpy as np
import pyarrow as pa

EXACT_TO = 10_000
MIN_CELLS = 5


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1 along the last axis, ties sharing their mean rank; values (..., n)."""
    smaller = (values[..., None, :] < values[..., :, None]).sum(-1)
    equal = (values[..., None, :] == values[..., :, None]).sum(-1)
    return smaller + (equal + 1) / 2


def correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Pearson's correlation along the last axis; nan where one of the two is constant."""
    x = x - x.mean(-1, keepdims=True)
    y = y - y.mean(-1, keepdims=True)
    scale = np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    return np.divide((x * y).sum(-1), scale, out=np.full(np.shape(scale), np.nan), where=scale > 1e-12)


def spearman(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Spearman's rank correlation along the last axis."""
    return correlation(ranks(np.asarray(x)), ranks(np.asarray(y)))


def permutation_p(mu: np.ndarray, advantage: np.ndarray, group: np.ndarray, draws: int = 10_000, seed: int = 0) -> float:
    """Share of permutations of mu within each group whose |rho| reaches the observed one.

    mu, advantage, group: (n,). Exact over all permutations where those are at most 10,000; otherwise `draws` seeded
    ones, the observed order counted among them.
    """
    mu_rank, advantage_rank = ranks(mu), ranks(advantage)
    observed = abs(correlation(mu_rank, advantage_rank))
    members = [np.flatnonzero(group == name) for name in dict.fromkeys(group.tolist())]
    exact = math.prod(math.factorial(len(index)) for index in members) <= EXACT_TO
    permuted = _all_orders(mu_rank, members) if exact else _random_orders(mu_rank, members, draws, seed)
    reached = np.abs(correlation(permuted, advantage_rank[None])) >= observed - 1e-12
    return float(reached.mean()) if exact else float((1 + reached.sum()) / (1 + draws))


def _all_orders(values: np.ndarray, members: list[np.ndarray]) -> np.ndarray:
    rows = []
    for orders in itertools.product(*(itertools.permutations(index) for index in members)):
        row = np.array(values)
        for index, order in zip(members, orders, strict=True):
            row[index] = values[list(order)]
        rows.append(row)
    return np.array(rows)


def _random_orders(values: np.ndarray, members: list[np.ndarray], draws: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    permuted = np.tile(values, (draws, 1))
    for index in members:
        permuted[:, index] = generator.permuted(permuted[:, index], axis=1)
    return permuted


def interval(
    mu: np.ndarray, advantages: list[np.ndarray], group: np.ndarray, draws: int = 2_000, seed: int = 0
) -> tuple[float, float]:
    """95 % percentile bootstrap interval of rho: cells drawn within each group, seeds within each cell.

    mu, group: (n,); advantages: one array of seeds per cell.
    """
    generator = np.random.default_rng(seed)
    drawn = np.stack([seeds[generator.integers(len(seeds), size=(draws, len(seeds)))].mean(1) for seeds in advantages], 1)
    chosen = np.empty((draws, len(mu)), dtype=int)
    for name in dict.fromkeys(group.tolist()):
        index = np.flatnonzero(group == name)
        chosen[:, index] = index[generator.integers(len(index), size=(draws, len(index)))]
    rho = spearman(mu[chosen], np.take_along_axis(drawn, chosen, 1))
    low, high = np.nanquantile(rho, [0.025, 0.975])
    return float(low), float(high)


def align(
    advantages: pa.Table,
    construction: str | None = None,
    readout: str | None = None,
    horizon: int | None = None,
    draws: int = 10_000,
    seed: int = 0,
) -> list[dict]:
    """Rows of the alignment table, one a pair of architectures, from the rows of view `advantage`.

    construction, readout: None takes the first in the alphabet that is there (balanced before published, last before
    mean); horizon: None takes the longest one. A pair with fewer than five cells, or without any spread of mu or of the
    advantage, is a row with status undefined.
    """
    rows = advantages.to_pylist()
    construction = construction or min((row["construction"] for row in rows), default=None)
    readout = readout or min((row["readout"] for row in rows), default=None)
    rows = [row for row in rows if (row["construction"], row["readout"]) == (construction, readout)]
    horizon = horizon if horizon is not None else max((row["horizon"] for row in rows), default=None)
    cells: dict[str, dict[tuple, list]] = {}
    for row in rows:
        if row["horizon"] == horizon and row["mu"] is not None:
            cell = cells.setdefault(row["pair"], {}).setdefault((row["system"], row["eta"]), [row["mu"], []])
            cell[1].append(row["advantage"])
    return [_pair(pair, found, draws, seed) for pair, found in sorted(cells.items())]


def _pair(pair: str, cells: dict[tuple, list], draws: int, seed: int) -> dict:
    keys = sorted(cells)
    mu = np.array([cells[key][0] for key in keys])
    seeds = [np.array(cells[key][1]) for key in keys]
    group = np.array([system for system, _ in keys])
    row = {"pair": pair, "n_tasks": len(keys)}
    if len(keys) < MIN_CELLS:
        return row | {"status": "undefined", "reason": f"{len(keys)} cells, fewer than {MIN_CELLS}"}
    advantage = np.array([values.mean() for values in seeds])
    rho = float(spearman(mu, advantage))
    if math.isnan(rho):
        return row | {"status": "undefined", "reason": "mu or the advantage is the same in every cell"}
    low, high = interval(mu, seeds, group, seed=seed)
    p_value = permutation_p(mu, advantage, group, draws, seed)
    return row | {"rho": rho, "low": low, "high": high, "p_value": p_value}
