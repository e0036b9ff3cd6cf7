"""How the score depends on its settings, and on how much there is of the data: one setting at a time, the rest as scored.

Every row holds mu under the changed setting, and its change against the score of the same sequences. Where the same
sequences stay, bootstrap replicates are paired, so that the interval of the change is far narrower than the two of mu.
`length` keeps the first half, or quarter, of every sequence; `n` the first half, or quarter, of the sequences; `order` 0
shuffles time, after which no continuity is left: the null distribution.
"""

from collections.abc import Iterable

import numpy as np

from continuity.metric import Similarity, interval_of, shuffled

SHARES = (0.25, 0.5)


def settings(max_lag: int, min_separation: int) -> list[tuple[str, float]]:
    """The (parameter, value) pairs that are tried; the first is the score itself."""
    lags = [lag for lag in (max_lag // 2, 2 * max_lag) if 1 <= lag <= min_separation]
    far = [steps for steps in (min_separation // 2, 2 * min_separation) if steps >= max_lag]
    return [
        ("score", 1.0), *(("max_lag", float(lag)) for lag in lags), *(("min_separation", float(steps)) for steps in far),
        ("weights", 0.0), ("weights", 2.0), *(("length", share) for share in SHARES), *(("n", share) for share in SHARES),
        ("order", 0.0),
    ]  # fmt: skip


def sensitivity(batches: Iterable[list[np.ndarray]], sequences: int, max_lag: int, min_separation: int,
                max_separation: int | None, seed: int, **options) -> list[dict]:  # fmt: skip
    """A row a setting, of the first `sequences` of `batches` (lists of (L, d)): parameter, value, mu, low, high, change,
    change_low, change_high, n_sequences, status, reason.

    value is in steps for max_lag and min_separation (whose window of far lags keeps its shape), the power p of
    w_t ~ (T + 1 - t)^p for weights (the score's own are linear, p = 1, unless set), and a share for length and n.
    """
    tried = settings(max_lag, min_separation)
    base = {"max_lag": max_lag, "min_separation": min_separation, "max_separation": max_separation, "seed": seed} | options
    kept = _first(batches, sequences)
    whole = _score(kept, base, *tried[0])
    scores = [_score(kept, base | {"lift": whole.lift}, *setting) for setting in tried]
    mu, replicates = whole.result().mu, whole.replicates() if whole.n_sequences else np.zeros(0)
    return [_row(*setting, score, mu, replicates, len(kept)) for setting, score in zip(tried, scores, strict=True)]


def _first(batches: Iterable[list[np.ndarray]], count: int) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    for batch in batches:
        found += batch
        if len(found) >= count:
            break
    return found[:count]


def _score(kept: list[np.ndarray], base: dict, parameter: str, value: float) -> Similarity:
    options = dict(base)
    if parameter == "max_lag":
        weights = base.get("weights", "linear")
        options |= {"max_lag": int(value), "weights": weights if isinstance(weights, str) else "linear"}
    if parameter == "min_separation":
        width = None if base["max_separation"] is None else int(value * base["max_separation"] / base["min_separation"])
        options |= {"min_separation": int(value), "max_separation": width}
    if parameter == "weights":
        options["weights"] = np.arange(base["max_lag"], 0, -1.0) ** value
    if parameter == "length":
        kept = [sequence[: int(value * len(sequence))] for sequence in kept]
    if parameter == "n":
        kept = kept[: max(1, round(value * len(kept)))]
    if parameter == "order":
        kept = shuffled(kept, seed=base["seed"])
    score = Similarity(**options)
    return score.add(kept) if kept else score


def _row(parameter: str, value: float, score: Similarity, mu: float | None, replicates: np.ndarray, n: int) -> dict:
    """The row of a setting, against mu and the replicates of the score of all n sequences."""
    found = score.result()
    row = {"parameter": parameter, "value": value, "mu": found.mu, "low": found.low, "high": found.high,
           "n_sequences": found.n_sequences, "status": found.status, "reason": found.reason or None}  # fmt: skip
    if found.mu is None or mu is None:
        return row | {"change": None, "change_low": None, "change_high": None}
    # One sequence is resampled in blocks of its own length, fewer sequences are drawn otherwise: then nothing is paired.
    low, high = interval_of(score.replicates() - replicates) if score.n_sequences == n > 1 else (None, None)
    return row | {"change": found.mu - mu, "change_low": low, "change_high": high}
