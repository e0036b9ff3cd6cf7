"""Continuity of a task: are neighbouring steps of its sequences alike beyond what far-apart steps are?

    K(u, v)  = (1 + cos(u, v)) / 2                        K = 1/2 where u or v is zero
    s_t      = mean of K(u_k, u_{k+t}) over all sequences and positions k
    beta     = mean of K(u_k, u_{k+t}) over all pairs with min_separation < t <= max_separation
    mu_t     = (s_t - beta) / (s_0 - beta),   t = 1 ... max_lag
    mu       = sum over t of w_t mu_t,        the weights w sum to 1

After Yu, Lyu and Erichson (arXiv 2605.08539). s_0 is measured, because a zero vector is not like itself, and beta
uses a window of lags fixed in steps, because a mean over all far pairs depends on the length of the sequences.
Nothing is sampled: every pair of every sequence counts, in float64, through shifted products and prefix sums (`pairs`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from continuity.lift import CHANNELS, Lift, fit_lift
from continuity.pairs import pair_counts, pair_sums, unit_vectors

WEIGHTS = ("linear", "uniform")
GROUPS = 16384  # rows that an accumulator keeps; above it neighbouring samples share a row
PIECE = 1 << 16  # steps of a long sequence that are summed at a time
RUNS = 4096  # runs of steps that the blocks of a single sequence are made of
CONSTANT = 1e-9  # self similarity less far similarity below which a set is constant


@dataclass(frozen=True)
class Continuity:
    """The score of one set of sequences. mu, low, high and beta are None where they are undefined; `reason` says why.

    mu_t, similarity and n_pairs are (max_lag,), for lags 1 ... max_lag, with NaN where there is no pair. low and high
    bound a 95 % bootstrap interval over `interval`: "samples", or "blocks" of time where there is one sequence.
    `denominator` is s_0 - beta. `kernel` is "cosine", "sign" (one raw channel), "fourier" or "delay".
    """

    mu: float | None
    low: float | None
    high: float | None
    mu_t: np.ndarray
    similarity: np.ndarray
    beta: float | None
    n_pairs: np.ndarray
    denominator: float | None
    status: str
    reason: str
    n_sequences: int
    kernel: str
    interval: str


@dataclass(frozen=True)
class _Plan:
    max_lag: int
    first: int
    last: int | None
    weights: np.ndarray

    @property
    def width(self) -> int:
        """Sums in a row: lags 0 ... max_lag and the far one; as many counts follow."""
        return self.max_lag + 2

    def rows(self, sequence: np.ndarray, lift: Lift, size: int) -> Iterator[np.ndarray]:
        """Sums and counts of the pairs that begin in each run of `size` steps: (2 width,), the sums first."""
        steps = len(sequence) - lift.spent
        last = max(steps - 1, 0) if self.last is None else self.last
        for start in range(0, steps, size):
            starts = min(size, steps - start)
            unit = unit_vectors(lift(sequence[start : start + starts + last + lift.spent]))
            options = (self.max_lag, self.first, last, starts)
            yield np.concatenate([pair_sums(unit, *options), pair_counts(len(unit), *options)])

    def sample(self, sequence: np.ndarray, lift: Lift) -> np.ndarray:
        """Sums and counts of one sequence, in pieces of PIECE steps where the far window is bounded."""
        size = max(len(sequence), 1) if self.last is None else PIECE
        return sum(self.rows(sequence, lift, size), np.zeros(2 * self.width))

    def read(self, totals: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """similarity (..., T), beta (...), mu_t (..., T) and mu (...) of totals (..., 2 (T + 2)), NaN if undefined."""
        sums, counts = np.split(totals, 2, axis=-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            kernel = np.where(counts > 0, (1 + sums / counts) / 2, np.nan)
            beta = kernel[..., -1]
            denominator = kernel[..., 0] - beta
            denominator = np.where(denominator > CONSTANT, denominator, np.nan)
            similarity = kernel[..., 1:-1]
            mu_t = (similarity - beta[..., None]) / denominator[..., None]
        return similarity, beta, mu_t, mu_t @ self.weights


def _plan(max_lag: int, min_separation: int, max_separation: int | None, weights) -> _Plan:
    if max_lag < 1:
        raise ValueError(f"max_lag is {max_lag}: it must be at least 1")
    if min_separation < max_lag:
        raise ValueError(f"min_separation {min_separation} is below max_lag {max_lag}: far pairs would be near ones")
    if max_separation is not None and max_separation <= min_separation:
        raise ValueError(f"max_separation {max_separation} must exceed min_separation {min_separation}, or be None")
    if isinstance(weights, str):
        if weights not in WEIGHTS:
            raise ValueError(f"weights is {weights!r}: choose one of {', '.join(WEIGHTS)}, or give {max_lag} numbers")
        w = np.ones(max_lag) if weights == "uniform" else np.arange(max_lag, 0, -1.0)
    else:
        w = np.asarray(weights, dtype=np.float64)
        if w.shape != (max_lag,) or not np.isfinite(w).all() or (w < 0).any() or w.sum() <= 0:
            raise ValueError(f"weights must be max_lag = {max_lag} numbers, none negative and not all zero")
    return _Plan(max_lag, min_separation + 1, max_separation, w / w.sum())


class Similarity:
    """Accumulates sequences, batch by batch, into a score; memory does not grow with the number of sequences.

    Options are those of `task_continuity`. A lift is fitted on the first batch unless one is given (`fit_lift`).
    At most GROUPS rows are kept for the bootstrap: beyond, 2, 4, 8 ... neighbouring samples share a row, which leaves
    mu unchanged and resamples groups of samples in place of samples.
    """

    def __init__(self, max_lag=16, min_separation=128, max_separation=384, weights="linear", bootstrap=1000, seed=0,
                 channels="auto", lift: Lift | None = None):  # fmt: skip
        self.plan = _plan(max_lag, min_separation, max_separation, weights)
        if channels not in CHANNELS:
            raise ValueError(f"channels is {channels!r}: choose one of {', '.join(CHANNELS)}")
        self.bootstrap, self.seed, self.channels, self.lift = bootstrap, seed, channels, lift
        self.n_sequences, self.d = 0, None
        self._rows = np.zeros((GROUPS, 2 * self.plan.width))
        self._filled, self._group = 0, 1
        self._pending: list[np.ndarray] = []
        self._only: np.ndarray | None = None

    def add(self, latents, lengths=None) -> "Similarity":
        """Count a batch of latents (n, L, d), (n, L) for one channel, or a list of (L_i, d); returns itself.

        What lies at and beyond `lengths` (n,) is ignored. Raises ValueError for other shapes and for NaN or infinity.
        """
        if self.lift is None and len(latents):
            self.lift = _fit(latents, lengths, self.channels, self.seed)
        for sequence in _sequences(latents, lengths, self.n_sequences):
            self.d = sequence.shape[1] if self.d is None else self.d
            if sequence.shape[1] != self.d:
                raise ValueError(f"sequence {self.n_sequences} has {sequence.shape[1]} channels, the first {self.d}")
            self._only = sequence if self.n_sequences == 0 else None
            self.n_sequences += 1
            self._append(self.plan.sample(sequence, self.lift))
        return self

    def _append(self, row: np.ndarray) -> None:
        self._pending.append(row)
        if len(self._pending) < self._group:
            return
        self._rows[self._filled] = np.sum(self._pending, axis=0)
        self._filled, self._pending = self._filled + 1, []
        if self._filled == GROUPS:
            self._filled, self._group = GROUPS // 2, 2 * self._group
            self._rows[: self._filled] = self._rows[0::2] + self._rows[1::2]

    def result(self) -> Continuity:
        """The score of everything added so far."""
        totals = self._kept().sum(0)
        similarity, beta, mu_t, mu = self.plan.read(totals)
        counts = totals[self.plan.width :]
        reason = self._undefined(totals)
        self_similarity = (1 + totals[0] / counts[0]) / 2 if counts[0] else np.nan
        found = Continuity(
            mu=None, low=None, high=None, mu_t=np.full(self.plan.max_lag, np.nan), similarity=similarity,
            beta=float(beta) if counts[-1] else None, n_pairs=counts[1:-1].astype(np.int64),
            denominator=float(self_similarity - beta) if counts[-1] else None, status="undefined", reason=reason,
            n_sequences=self.n_sequences, kernel=self._kernel(), interval="samples",
        )  # fmt: skip
        if reason:
            return found
        low, high = interval_of(self.replicates())
        interval = "samples" if self._only is None else "blocks"
        return replace(found, mu=float(mu), low=low, high=high, mu_t=mu_t, status="ok", interval=interval)

    def replicates(self) -> np.ndarray:
        """mu of every bootstrap replicate (bootstrap,), NaN where undefined.

        Two accumulators of one seed draw the same samples where they hold equally many: their replicates are paired.
        """
        return self.plan.read(self._samples(self._kept()) if self._only is None else self._blocks())[3]

    def _kept(self) -> np.ndarray:
        rows = self._rows[: self._filled]
        return np.concatenate([rows, np.sum(self._pending, axis=0)[None]]) if self._pending else rows

    def _kernel(self) -> str:
        kind = self.lift.kind if self.lift else "raw"
        return ("sign" if self.d == 1 else "cosine") if kind == "raw" else kind

    def _undefined(self, totals: np.ndarray) -> str:
        counts, plan = totals[self.plan.width :], self.plan
        if not self.n_sequences:
            return "there is no sequence"
        if not counts[-1]:
            return f"every sequence is shorter than min_separation + 2 = {plan.first + 1} steps: lower min_separation"
        kernel = (1 + totals[: plan.width] / np.maximum(counts, 1)) / 2
        if not kernel[0] - kernel[-1] > CONSTANT:
            return "a step is no more like itself than like far steps: the sequences are constant (or zero)"
        return ""

    def _samples(self, rows: np.ndarray) -> np.ndarray:
        rng = np.random.default_rng([self.seed, 2])
        n, totals = len(rows), np.empty((self.bootstrap, rows.shape[1]))
        for b in range(self.bootstrap):
            totals[b] = np.bincount(rng.integers(n, size=n), minlength=n) @ rows
        return totals

    def _blocks(self) -> np.ndarray:
        """Totals of series put together from blocks of the only one, drawn with replacement (Kuensch 1989)."""
        length = len(self._only) - self.lift.spent
        run = max(4, -(-length // (RUNS if self.plan.last is not None else 128)))
        rows = np.stack(list(self.plan.rows(self._only, self.lift, run)))
        size = min(-(-max(4 * self.plan.max_lag, round(2 * length**0.5)) // run), len(rows))
        block = np.lib.stride_tricks.sliding_window_view(rows, size, axis=0).sum(-1)
        rng = np.random.default_rng([self.seed, 2])
        starts = rng.integers(len(block), size=(self.bootstrap, -(-len(rows) // size)))
        return np.array([block[drawn].sum(0) for drawn in starts]).reshape(self.bootstrap, rows.shape[1])


def interval_of(mu: np.ndarray) -> tuple[float | None, float | None]:
    """The 95 % percentile interval of bootstrap replicates; None where none is finite."""
    mu = mu[np.isfinite(mu)]
    if not len(mu):
        return None, None
    low, high = np.quantile(mu, [0.025, 0.975])
    return float(low), float(high)


def _sequences(latents, lengths, offset: int = 0) -> Iterator[np.ndarray]:
    """The real part of every sequence as float64 (L_i, d)."""
    if isinstance(latents, list | tuple):
        arrays = [np.asarray(a) for a in latents]
    else:
        arrays = np.asarray(latents)
        if arrays.ndim not in (2, 3):
            raise ValueError(f"latents have shape {arrays.shape}: give (n, L, d), (n, L), or a list of (L, d)")
    if lengths is not None:
        lengths = np.asarray(lengths)
        longest = max((len(a) for a in arrays), default=0)
        if lengths.shape != (len(arrays),) or (len(lengths) and not 0 <= lengths.min() <= lengths.max() <= longest):
            raise ValueError(f"lengths must be {len(arrays)} numbers from 0 to {longest}, one a sequence")
        arrays = [a[: int(m)] for a, m in zip(arrays, lengths, strict=True)]
    for i, array in enumerate(arrays):
        sequence = np.asarray(array, dtype=np.float64)
        sequence = sequence[:, None] if sequence.ndim == 1 else sequence
        if sequence.ndim != 2:
            raise ValueError(f"sequence {offset + i} has shape {sequence.shape}: give (L, d)")
        bad = ~np.isfinite(sequence).all(axis=1)
        if bad.any():
            raise ValueError(f"sequence {offset + i}, step {int(bad.argmax())}: not a finite number; fill or drop it")
        yield sequence


def task_continuity(latents, lengths=None, max_lag=16, min_separation=128, max_separation=384, weights="linear",
                    bootstrap=1000, seed=0, channels="auto") -> Continuity:  # fmt: skip
    """Score sequences of latents (n, L, d), or a list of (L_i, d); only the first `lengths` (n,) steps of each count.

    max_lag, min_separation and max_separation are in steps; max_separation=None pools all far pairs, as published.
    weights: "linear" (w_t proportional to max_lag + 1 - t), "uniform", or max_lag numbers; they are normalised.
    bootstrap: replicates of the interval. channels: "auto", "raw", "fourier" or "delay" (see `Lift`).
    Sequences with no far pair count towards the near similarities only. Raises ValueError for bad arguments.
    """
    score = Similarity(max_lag, min_separation, max_separation, weights, bootstrap, seed, channels)
    return score.add(latents, lengths).result()


def task_continuity_stream(batches: Iterable, **options) -> Continuity:
    """`task_continuity` of an iterable of (latents, lengths) batches, in memory that does not grow with their number.

    One channel: the lift is that of the first batch.
    """
    score = Similarity(**options)
    for latents, lengths in batches:
        score.add(latents, lengths)
    return score.result()


def _fit(latents, lengths, channels: str, seed: int) -> Lift:
    """`fit_lift`, reading no further than the first sequence where the cosine is taken of the raw steps."""
    sequences = _sequences(latents, lengths)
    first = next(sequences)
    raw = channels == "raw" or (channels == "auto" and first.shape[1] > 1)
    return fit_lift([first] if raw else [first, *sequences], channels, seed)


def shuffled(latents, lengths=None, seed=0) -> np.ndarray | list[np.ndarray]:
    """Every sequence with its real steps in an order of its own, drawn uniformly: the null law of the score.

    Same shape as `latents`; steps at and beyond `lengths` stay where they are.
    """
    rng = np.random.default_rng([seed, 3])
    out = [np.array(a) for a in latents]
    for i, sequence in enumerate(out):
        length = len(sequence) if lengths is None else int(lengths[i])
        sequence[:length] = sequence[rng.permutation(length)]
    return out if isinstance(latents, list | tuple) else np.stack(out) if out else np.array(latents)
