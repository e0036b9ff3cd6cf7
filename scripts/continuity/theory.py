"""Dissipation theory on random systems: every theorem where its hypothesis holds, and where it is broken on purpose.

Systems are h_k = A_k h_{k-1} + B_k u_k, y_k = C_k h_k + D_k u_k with gates that jump from step to step, storage
V = h^T P h / 2 and the one-step block of `continuity.dissipation` (Zubic & Scaramuzza, arXiv 2505.11602; the bounds
below are derived for the discrete block). Each row has a bound, what was measured, and the margin by which the
measured value lies inside the bound, negative outside.

| theorem | bound |
|---|---|
| forgetting | without input sqrt V falls by at least -log(1 - 2 beta / p_max) / 2 a step |
| storage | Riccati's available storage is what inputs can extract, the least storage, and exists exactly when passive |
| irreversible | P_{k-1} v = 0 implies P_k A_k v = 0 and C_k A_k v = 0; rank P_k does not grow while A_k is invertible |
| input to state | norm(h_k) <= sqrt(p_max / p_min) r^(k/2) norm(h_0) + G sup norm(u), for every schedule |
| landscape | under HiPPO-LegS the energy falls at least as e^-t, and more slowly than under random matrices |
"""

import numpy as np
import torch

from continuity.dissipation import lmi_block
from continuity.layers import hippo

TOLERANCE = 1e-9
KERNEL = 1e-6
GATES = 8
PHASES = 40
SETTLE = 300


def run(systems=20, state=4, length=200, beta=0.5, seed=0) -> list[dict]:
    """Rows of table `dissipation`: theorem, setting, system, seed, hypothesis, bound, measured, margin, holds.

    systems: random draws of each setting; state: N; length: steps; beta: rate, as a share of the largest that every gate
    of a draw can meet. Raises ValueError for sizes below 1, 2 and 10 and a rate outside 0 … 1.
    """
    if systems < 1 or state < 2 or length < 10:
        raise ValueError(f"systems, state and length must be at least 1, 2 and 10, got {systems}, {state} and {length}")
    if not 0 < beta < 1:
        raise ValueError(f"beta is a share of the largest feasible rate, between 0 and 1, got {beta}")
    rows = []
    for theorem, function in THEOREMS.items():
        for system in range(systems):
            rng = np.random.default_rng((seed, system, list(THEOREMS).index(theorem)))
            for setting, *found in function(rng, state, length, beta):
                rows.append(_row(theorem, setting, system, seed, *found))
    return rows


def _row(theorem, setting, system, seed, hypothesis, bound, measured, upper=True):
    margin = float(bound - measured if upper else measured - bound)
    return {
        "theorem": theorem, "setting": setting, "system": system, "seed": seed, "hypothesis": bool(hypothesis),
        "bound": float(bound), "measured": float(measured), "margin": margin, "holds": margin >= -TOLERANCE, "status": "ok",
        "reason": None,
    }  # fmt: skip


# Theorems: each yields (setting, whether the hypothesis holds, bound, measured[, whether the bound is an upper one])


def forgetting(rng, n, length, share):
    """Dense gates that contract one storage, the same without loss, and gates that are stable but share no storage."""
    p = np.exp(rng.normal(size=n))
    turns = np.array([np.linalg.qr(rng.normal(size=(n, n)))[0] for _ in range(GATES)])
    gates = turns * rng.uniform(0.95, 0.99, size=(GATES, 1, 1))
    gates = gates / np.sqrt(p)[:, None] * np.sqrt(p)  # P^-1/2 U P^1/2
    beta = share * min(np.linalg.eigvalsh(np.diag(p) - g.T @ np.diag(p) @ g)[0] for g in gates) / 2
    rate = -np.log1p(-2 * beta / p.max()) / 2
    schedule = rng.integers(GATES, size=length)
    start = rng.normal(size=n)
    yield "strict", _dissipative(gates, p, beta), rate, _rate(gates[schedule], p, start), False
    lossless = turns / np.sqrt(p)[:, None] * np.sqrt(p)
    yield (
        "counterexample: lossless gates",
        _dissipative(lossless, p, beta),
        rate,
        _rate(lossless[schedule], p, start),
        False,
    )
    pair = _switching_pair(n)
    alternating = pair[np.arange(length) % 2]
    storage = _lyapunov(pair[0])
    yield (
        "counterexample: stable gates without a common storage",
        all(_block_top(g, storage, storage, 0 * start, 0 * start, 1.0, 0.0) <= TOLERANCE for g in pair),
        rate, _rate(alternating, np.ones(n), start), False,
    )  # fmt: skip


def storage(rng, n, length, share):
    """One gate held at a sampled token: available storage, and feed-through just above and below passivity."""
    a, b, c = _token(rng, n)
    A, B, C = np.diag(a), b[:, None], (c * a)[None]
    least = -_smallest_response(a, b, c, 0.0)
    D = least + 0.1 * abs(least) + 0.01
    found, _ = _available(A, B, C, D + c @ b, 4000)
    horizon = min(length, 60)
    part, _ = _available(A, B, C, D + c @ b, horizon)
    h = rng.normal(size=n)
    direct = _extracted(A, B, C, D + c @ b, h, horizon)
    yield "most energy an input extracts", True, 1e-6, abs(direct / (h @ part @ h / 2) - 1)
    q, passive = _diagonal_storage(rng, a, b, c)
    other, _ = _available(A, B, C, passive + c @ b, 4000)
    yield "least of all storages", _block_top(A, q, q, b, c, passive, 0.0) <= TOLERANCE, -TOLERANCE, _lowest(q - other), False
    for setting, factor in (("passive by 1 %", 0.01), ("counterexample: 1 % short of passive", -0.01)):
        D = least + factor * abs(least)
        response = _smallest_response(a, b, c, D)
        _, room = _available(A, B, C, D + c @ b, 4000)
        yield setting, response >= 0, 0.0, room, False


def irreversible(rng, n, length, share):
    """Gates whose outputs drop modes one by one, in mixed coordinates, with the least time-varying storage."""
    q = np.exp(rng.normal(size=n) / 2)
    mixing = np.linalg.qr(rng.normal(size=(n, n)))[0] @ np.diag(np.exp(rng.normal(size=n) / 3))
    gates = [(rng.uniform(0.6, 0.95, n), rng.normal(size=n) / 4, rng.normal(size=n)) for _ in range(PHASES)]
    silent = np.arange(PHASES)[:, None] >= np.concatenate([[PHASES], PHASES // 2 * rng.permutation(n - 1) // n + 4])
    beta = share * min((q * (1 - a**2)).min() for a, _, _ in gates) / 2
    steps = [_mixed(mixing, q, *gate, off, 0.0) for gate, off in zip(gates, silent, strict=True)]
    stored = _least_storages(steps, 0.0)
    tops, growth, leak = _along(steps, stored)
    dissipative = max(tops) <= TOLERANCE
    yield "rank", dissipative, 0, growth
    yield "kernel", dissipative, KERNEL, leak
    plain = [_mixed(np.eye(n), q, *gate, off, beta) for gate, off in zip(gates, silent, strict=True)]
    strict = _least_storages(plain, beta)
    yield "a rate on |h|^2 leaves no kernel", True, 2 * beta, min(_lowest(P) for P in strict), False
    full, lost = np.eye(n), np.diag(np.arange(n) > 0).astype(float)
    A, b, c, _ = plain[0]
    reset = [(0 * A, b, c, b @ b + abs(c @ b) + 1)]
    tops, growth, _ = _along(reset, [lost, full])
    yield "counterexample: a reset", max(tops) <= TOLERANCE and _rank(reset[0][0] ** 2) == n, 0, growth
    again = [(np.roll(np.eye(n), 1, axis=1) / 2, b, np.ones(n), b @ b + abs(b.sum()) + 1)]
    tops, _, leak = _along(again, [lost, full])
    yield "counterexample: a silent direction that speaks again", max(tops) <= TOLERANCE, KERNEL, leak


def input_to_state(rng, n, length, share):
    """Gates certified by one diagonal storage, under constant, random, blockwise and worst-case schedules."""
    tokens = [_token(rng, n) for _ in range(GATES)]
    q = np.exp(rng.normal(size=n) / 2)
    beta = share * min((q * (1 - a**2)).min() for a, _, _ in tokens) / 2
    through = np.array([_certified(q, *token, beta) for token in tokens])
    a, b, c = (np.array(x) for x in zip(*tokens, strict=True))
    certified = all(
        _block_top(np.diag(a[i]), np.diag(q), np.diag(q), b[i], c[i], through[i], beta) <= TOLERANCE for i in range(GATES)
    )
    output = np.sqrt(((c * a) ** 2).sum(1)).max()
    ahead = np.abs(through + (c * b).sum(1)).max()
    gain = np.sqrt(2 * q.max() / (beta * q.min()) * (output**2 / (2 * beta) + ahead))
    decay = 1 - beta / q.max()
    start = 3 * rng.normal(size=n)
    bound = np.sqrt(q.max() / q.min()) * decay ** (np.arange(1, length + 1) / 2) * np.linalg.norm(start) + gain
    maps = np.array([np.diag(x) for x in a])
    yield "every schedule", certified, 1.0, (_reach(rng, maps, b, q, start, length) / bound).max()
    pair = _switching_pair(n)
    norms = _reach(rng, pair, np.ones((2, n)), q, start, length)
    tops = [_block_top(g, np.diag(q), np.diag(q), np.ones(n), np.zeros(n), 1e9, beta) for g in pair]
    yield "counterexample: stable gates without a common storage", max(tops) <= TOLERANCE, 1.0, (norms / bound).max()


def landscape(rng, n, length, share):
    """Half-life of the energy of a random state: HiPPO-LegS over random matrices, as a logarithm of the ratio."""
    legs = hippo.legs(n)[0].numpy()
    times = np.geomspace(1e-4, 100, 400)
    energy = _energy(legs, times)
    early = times[times < 5]
    yield "HiPPO-LegS falls at its proved rate", True, 1.0, (_worst(legs, early) * np.exp(early)).max()
    draw = rng.normal(size=(n, n)) * np.linalg.norm(legs) / n
    shifted = draw - (np.linalg.eigvalsh((draw + draw.T) / 2)[-1] + 0.5) * np.eye(n)
    abscissa = draw - (np.linalg.eigvals(draw).real.max() + 1) * np.eye(n)
    others = {
        "slower than a random matrix of the same logarithmic norm": shifted,
        "slower than a random matrix of the same spectral abscissa": abscissa,
        "slower than real modes as fast as its own": -np.diag(np.exp(rng.uniform(0, np.log(n), size=n))),
    }
    for setting, matrix in others.items():
        yield setting, True, 0.0, np.log(_half_life(energy, times) / _half_life(_energy(matrix, times), times)), False
    growing = draw - (np.linalg.eigvalsh((draw + draw.T) / 2)[-1] - 0.5) * np.eye(n)
    yield "counterexample: logarithmic norm above -1/2", False, 1.0, (_worst(growing, early) * np.exp(early)).max()


THEOREMS = {
    "forgetting": forgetting,
    "storage": storage,
    "irreversible": irreversible,
    "input to state": input_to_state,
    "landscape": landscape,
}


# Random gates and storages


def _token(rng, n):
    """(a, b, c) of a diagonal selective system at one sampled token: a = exp(delta A), A = -(1 … n)."""
    delta = np.exp(rng.uniform(np.log(0.05), np.log(0.5)))
    A = -np.arange(1.0, n + 1)
    return np.exp(delta * A), np.expm1(delta * A) / A * rng.normal(size=n), rng.normal(size=n)


def _switching_pair(n):
    """Two gates of spectral radius 0.9 whose product's is above 1."""
    upper = 0.9 * np.eye(n)
    upper[0, 1] = 1.5
    return np.array([upper, upper.T])


def _lyapunov(A):
    """P = sum (A^T)^k A^k, a storage of one stable gate."""
    P, power = np.eye(len(A)), A
    for _ in range(2000):
        P, power = P + power.T @ power, power @ A
    return P


def _certified(q, a, b, c, beta):
    """The least feed-through for which diag(q) is a storage of rate beta (`layers.certified`)."""
    needed = q * b**2 - 2 * c * b + a**2 * (q * b - c) ** 2 / (q * (1 - a**2) - 2 * beta)
    return max(0.0, needed.sum() / 2)


def _diagonal_storage(rng, a, b, c):
    q = np.exp(rng.normal(size=len(a)))
    return np.diag(q), _certified(q, a, b, c, 0.0) + 1e-3


# Blocks and storages


def _block_top(A, before, after, b, c, d, beta):
    """Largest eigenvalue of the block of one step from storage `before` to storage `after`."""
    if before.ndim == 1:
        before, after = np.diag(before), np.diag(after)
    block = lmi_block(*(torch.as_tensor(x, dtype=torch.float64) for x in (A, b, c, d, after)), beta, dense=True).numpy()
    n = len(b)
    block[:n, :n] += after - before
    return np.linalg.eigvalsh(block)[-1]


def _dissipative(gates, p, beta):
    n = len(p)
    return all(_block_top(g, p, p, np.zeros(n), np.zeros(n), 1.0, beta) <= TOLERANCE for g in gates)


def _smallest_response(a, b, c, d):
    """min over the circle of Re (d + c (1 - a/z)^-1 b), the transfer function of the post-update output."""
    z = np.exp(1j * np.linspace(0, np.pi, 20001))[:, None]
    return d + (c * b / (1 - a / z)).sum(1).real.min()


def _previous(A, B, C, D, P, rate=0.0):
    """(P before one step, room): the least storage whose block with P after the step is not positive.

    C and D are those of y = C h_{k-1} + D u_k, and room is D + D^T - B^T P B, negative where there is no such storage.
    """
    room = (2 * D - B.T @ P @ B).item()
    X = A.T @ P @ B - C.T
    return A.T @ P @ A + 2 * rate * np.eye(len(A)) + X @ X.T / room, room


def _available(A, B, C, D, steps):
    """(available storage over `steps` steps, smallest room on the way), stopped where it breaks down or settles."""
    P, least = np.zeros_like(A), np.inf
    for _ in range(steps):
        new, room = _previous(A, B, C, D, P)
        least = min(least, room)
        if room <= 0:
            break
        if abs(new - P).max() <= 1e-15 * abs(new).max():
            return new, least
        P = new
    return P, least


def _extracted(A, B, C, D, h, steps):
    """max over u of -sum u_k y_k from state h, by one linear solve over all steps."""
    free, markov, power = [], [D], np.eye(len(A))
    for _ in range(steps):
        free.append((C @ power @ h).item())
        markov.append((C @ power @ B).item())
        power = A @ power
    lags = np.subtract.outer(np.arange(steps), np.arange(steps))
    toeplitz = np.where(lags >= 0, np.array(markov)[np.maximum(lags, 0)], 0.0)
    free = np.array(free)
    return free @ np.linalg.solve(toeplitz + toeplitz.T, free) / 2


def _mixed(mixing, q, a, b, c, silent, beta):
    """(A, b, c, d) of a token in other coordinates, some outputs silent, certified by diag(q) in its own."""
    c = np.where(silent, 0.0, c)
    back = np.linalg.inv(mixing)
    return mixing @ np.diag(a) @ back, mixing @ b, c @ back, _certified(q, a, b, c, beta) + 0.1


def _least_storages(steps, rate):
    """P_0 … P_K backwards from a long constant end."""
    stored = [np.zeros_like(steps[0][0])]
    for A, b, c, d in reversed([*steps, *steps[-1:] * SETTLE]):
        stored.append(_previous(A, b[:, None], (c @ A)[None], d + c @ b, stored[-1], rate)[0])
    return stored[::-1][: len(steps) + 1]


def _along(steps, stored):
    """Tops of the blocks, largest growth of the rank, and the largest |P_k A_k v|, |C_k A_k v| over unit v in ker P_{k-1}."""
    tops, growth, leak = [], -len(stored[0]), 0.0
    for (A, b, c, d), before, after in zip(steps, stored[:-1], stored[1:], strict=True):
        tops.append(_block_top(A, before, after, b, c, d, 0.0))
        growth = max(growth, _rank(after) - _rank(before))
        values, vectors = np.linalg.eigh(before)
        kernel = A @ vectors[:, values <= TOLERANCE * max(values[-1], 1)]
        if kernel.size:
            leak = max(leak, abs(after @ kernel).max(), abs(c @ kernel).max())
    return tops, growth, leak


def _rank(P):
    values = np.linalg.eigvalsh(P)
    return int((values > TOLERANCE * max(values[-1], 1)).sum())


def _lowest(P):
    return np.linalg.eigvalsh(P)[0]


# Trajectories


def _rate(gates, p, h):
    """-log(V_K / V_0) / (2 K) of a schedule without input, the least over K."""
    stored = [p @ h**2]
    for gate in gates:
        h = gate @ h
        stored.append(p @ h**2)
    return (-np.log(np.array(stored[1:]) / stored[0]) / 2 / np.arange(1, len(stored))).min()


def _reach(rng, maps, b, q, start, length):
    """Largest norm of the state at each step over schedules, with inputs of size 1."""
    count = len(maps)
    fixed = np.tile(np.arange(count)[:, None], (1, length))
    blocks = np.repeat(rng.integers(count, size=(16, length)), 7, axis=1)[:, :length]
    alternating = np.tile(np.arange(length) % 2, (1, 1))
    schedules = np.concatenate([fixed, rng.integers(count, size=(16, length)), blocks, alternating])
    signs = rng.choice([-1.0, 1.0], size=schedules.shape)
    h, worst = np.tile(start, (len(schedules), 1)), start
    reached = []
    for k in range(length):
        gate = schedules[:, k]
        h = (maps[gate] @ h[:, :, None])[:, :, 0] + b[gate] * signs[:, k : k + 1]
        ends = np.concatenate([maps @ worst + b, maps @ worst - b])
        worst = ends[np.argmax((q * ends**2).sum(1))]
        reached.append(max(np.linalg.norm(h, axis=1).max(), np.linalg.norm(worst)))
    return np.array(reached)


def _energy(A, times):
    """Mean of norm(e^{At} h)^2 over unit states h."""
    flows = torch.linalg.matrix_exp(torch.as_tensor(times)[:, None, None] * torch.as_tensor(A))
    return (flows.square().sum((1, 2)) / len(A)).numpy()


def _worst(A, times):
    """Largest norm(e^{At} h)^2 over unit states h."""
    flows = torch.linalg.matrix_exp(torch.as_tensor(times)[:, None, None] * torch.as_tensor(A))
    return torch.linalg.matrix_norm(flows, 2).square().numpy()


def _half_life(energy, times):
    """The last time at which the energy is one half, between the grid's times in logarithms."""
    last = np.nonzero(energy > 0.5)[0][-1]
    if last == len(times) - 1:
        return times[-1]
    high, low = np.log(energy[last : last + 2])
    return times[last] * (times[last + 1] / times[last]) ** ((high - np.log(0.5)) / (high - low))
