"""Chunkwise forms of matrix-valued recurrences: dense products inside a chunk, one state a chunk between them.

All use q, k (B, H, L, K), v (B, H, L, V), a state S (B, H, K, V) that starts at zero, and outputs o_i = S_i^T q_i.
Decays enter as logs g <= 0, and only differences of their sums that are themselves <= 0 are exponentiated, so nothing
is divided by a small product. A head dimension of 1 in q or k is shared by all heads.
"""

import torch
import torch.nn.functional as F

CHUNK = 64
DELTA_CHUNK = 32
CHANNEL_CHUNK = 16


def decayed_attention(q, k, v, log_decay=None, weight=None, own=None, chunk=CHUNK):
    """S_i = e^(g_i) S_(i-1) + k_i v_i^T with one decay a head; g (B, H, L) or None for no decay.

    With `weight` and `own` (B, H, L): sample j counts `own`_j at its own step and `weight`_j, decayed, at every later
    one.
    """
    length = q.shape[2]
    q, k, v = (split(x, chunk) for x in (q, k, v))  # (B, H, n, c, .)
    scores = q @ k.transpose(-1, -2)  # (B, H, n, c, c)
    sums = None
    if log_decay is not None:
        sums = split(log_decay.unsqueeze(-1), chunk).squeeze(-1).cumsum(-1)  # (B, H, n, c)
        gaps = sums.unsqueeze(-1) - sums.unsqueeze(-2)
        scores = scores * torch.exp(gaps.masked_fill(later(chunk, q.device), -torch.inf))
    else:
        scores = scores.masked_fill(later(chunk, q.device), 0)
    values = v
    if weight is not None:
        weight, own = (split(x.unsqueeze(-1), chunk) for x in (weight, own))
        diagonal = torch.eye(chunk, dtype=torch.bool, device=q.device)
        scores = torch.where(diagonal, scores * own.transpose(-1, -2), scores * weight.transpose(-1, -2))
        values = v * weight
    inside = scores @ v
    to_end = k if sums is None else k * torch.exp(sums[..., -1:] - sums).unsqueeze(-1)
    added = to_end.transpose(-1, -2) @ values  # (B, H, n, K, V)
    kept = None if sums is None else torch.exp(sums[..., -1])
    before = chain(added, kept)
    from_start = q if sums is None else q * torch.exp(sums).unsqueeze(-1)
    return join(inside + from_start @ before, length)


def delta_rule(q, k, v, erase, write, log_decay=None, chunk=DELTA_CHUNK):
    """S_i = e^(g_i) (I - e_i k_i k_i^T) S_(i-1) + w_i k_i v_i^T; erase e, write w and g (B, H, L).

    Inside a chunk S_i = e^(G_i) S_0 + sum_(j<=i) e^(G_i - G_j) k_j x_j^T, where x solves one unit lower-triangular
    system.
    """
    length = q.shape[2]
    q, k, v = (split(x, chunk) for x in (q, k, v))
    erase, write = (split(x.unsqueeze(-1), chunk) for x in (erase, write))  # (B, H, n, c, 1)
    if log_decay is None:
        sums = torch.zeros_like(erase[..., 0])
    else:
        sums = split(log_decay.unsqueeze(-1), chunk).squeeze(-1).cumsum(-1)
    gaps = sums.unsqueeze(-1) - sums.unsqueeze(-2)
    decay = torch.exp(gaps.masked_fill(later(chunk, q.device), -torch.inf))
    system = (erase * (k @ k.transpose(-1, -2)) * decay).tril(-1)
    right = torch.cat([write * v, erase * torch.exp(sums).unsqueeze(-1) * k], -1)
    solved = torch.linalg.solve_triangular(
        system + torch.eye(chunk, dtype=q.dtype, device=q.device), right, upper=False, unitriangular=True
    )
    fresh, old = solved.split([v.shape[-1], k.shape[-1]], -1)  # x = fresh - old S_0
    to_end = (k * torch.exp(sums[..., -1:] - sums).unsqueeze(-1)).transpose(-1, -2)
    scores = (q @ k.transpose(-1, -2)) * decay
    reach = q * torch.exp(sums).unsqueeze(-1) - scores @ old
    step = torch.exp(sums[..., -1])[..., None, None] * torch.eye(k.shape[-1], dtype=q.dtype, device=q.device) - to_end @ old
    state = q.new_zeros(q.shape[0], v.shape[1], k.shape[-1], v.shape[-1])
    before = []
    for move, add in zip(step.unbind(2), (to_end @ fresh).unbind(2), strict=True):
        before.append(state)
        state = move @ state + add
    return join(scores @ fresh + reach @ torch.stack(before, 2), length)


def channel_decayed_attention(q, k, v, log_decay, chunk=CHANNEL_CHUNK):
    """S_i = diag(e^(g_i)) S_(i-1) + k_i v_i^T with a decay for every channel of the key: g (B, H, L, K)."""
    length = q.shape[2]
    q, k, v, g = (split(x, chunk) for x in (q, k, v, log_decay))
    sums = g.cumsum(-2)  # (B, H, n, c, K)
    gaps = sums.unsqueeze(-2) - sums.unsqueeze(-3)  # (B, H, n, c, c, K)
    decay = torch.exp(gaps.masked_fill(later(chunk, q.device).unsqueeze(-1), -torch.inf))
    scores = torch.einsum("...id,...jd,...ijd->...ij", q, k, decay)
    added = (k * torch.exp(sums[..., -1:, :] - sums)).transpose(-1, -2) @ v
    before = chain(added, torch.exp(sums[..., -1, :]))
    return join(scores @ v + (q * torch.exp(sums)) @ before, length)


def split(x, chunk):
    """(B, H, L, d) -> (B, H, n, chunk, d), zeros appended."""
    x = F.pad(x, (0, 0, 0, -x.shape[2] % chunk))
    return x.unflatten(2, (-1, chunk))


def join(x, length):
    """(B, H, n, chunk, d) -> (B, H, length, d)."""
    return x.flatten(2, 3)[:, :, :length]


def later(chunk, device):
    """(chunk, chunk), True where the key lies after the query."""
    return torch.ones(chunk, chunk, dtype=torch.bool, device=device).triu(1)


def chain(added, kept):
    """States before each chunk, from what each adds (B, H, n, K, V) and keeps (B, H, n), (B, H, n, K) or None."""
    if kept is None:
        return torch.cat([torch.zeros_like(added[:, :, :1]), added[:, :, :-1].cumsum(2)], 2)
    kept = kept[..., None, None] if kept.ndim == 3 else kept.unsqueeze(-1)
    state, before = torch.zeros_like(added[:, :, 0]), []
    for factor, add in zip(kept.unbind(2), added.unbind(2), strict=True):
        before.append(state)
        state = factor * state + add
    return torch.stack(before, 2)
