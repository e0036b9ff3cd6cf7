"""Recurrences of a matrix-valued state, one compiled loop on a CPU where numba is installed, `chunked` forms elsewhere.

    R_i = diag(a_i) S_(i-1),  x_i = w_i v_i - e_i R_i^T k_i,  S_i = R_i + k_i x_i^T,  o_i = R_i^T q_i + (q_i . k_i)(x_i + r_i v_i)

covers linear attention (a = w = 1, e = r = 0), decays a head or a channel, the delta rule (e > 0) and Mamba-3's two taps (r).
Shapes as in `chunked`. Backward recomputes states from one kept every CHUNK steps.
"""

import numpy as np
import torch

from continuity import native
from continuity.layers import chunked
from continuity.native import njit, over_batch

CHUNK = 16
_FAST = {"reassoc", "contract", "nsz"}


def compiled(q) -> bool:
    return native.HAVE_NUMBA and q.device.type == "cpu"


def decayed_attention(q, k, v, log_decay=None, weight=None, own=None):
    """`chunked.decayed_attention`, by the compiled loop where there is one."""
    if not compiled(q):
        return chunked.decayed_attention(q, k, v, log_decay, weight, own)
    ones = v.new_ones(v.shape[:3])
    decay = ones if log_decay is None else torch.exp(log_decay)
    zeros = torch.zeros_like(ones)
    rest = zeros if own is None else own - weight
    return _MatrixScan.apply(q, k, v, decay.unsqueeze(-1), zeros, ones if weight is None else weight, rest)


def delta_rule(q, k, v, erase, write, log_decay=None):
    """`chunked.delta_rule`, by the compiled loop where there is one."""
    if not compiled(q):
        return chunked.delta_rule(q, k, v, erase, write, log_decay)
    decay = torch.ones_like(erase) if log_decay is None else torch.exp(log_decay)
    # S_i = a (I - e k k^T) S_(i-1): the erased part is read from the decayed state
    return _MatrixScan.apply(q, k, v, decay.unsqueeze(-1), erase, write, torch.zeros_like(erase))


def channel_decayed_attention(q, k, v, log_decay):
    """`chunked.channel_decayed_attention`, by the compiled loop where there is one."""
    if not compiled(q):
        return chunked.channel_decayed_attention(q, k, v, log_decay)
    ones = v.new_ones(v.shape[:3])
    zeros = torch.zeros_like(ones)
    return _MatrixScan.apply(q, k, v, torch.exp(log_decay), zeros, ones, zeros)


@njit(fastmath=_FAST)
def _advance(S, q, k, v, a, e, w, r, x, recalled, out):
    """One step, in place: S (K, V) becomes the next state; x, recalled = R^T k and out (V,) are written."""
    zero = S.dtype.type(0)
    for c in range(v.shape[0]):
        recalled[c] = zero
        out[c] = zero
    overlap = zero
    for i in range(k.shape[0]):
        ai, ki, qi, Si = a[i % a.shape[0]], k[i], q[i], S[i]
        overlap += ki * qi
        for c in range(v.shape[0]):
            Si[c] *= ai
            recalled[c] += ki * Si[c]
            out[c] += qi * Si[c]
    for c in range(v.shape[0]):
        x[c] = w * v[c] - e * recalled[c]
        out[c] += overlap * (x[c] + r * v[c])
    for i in range(k.shape[0]):
        ki, Si = k[i], S[i]
        for c in range(v.shape[0]):
            Si[c] += ki * x[c]


@njit(fastmath=_FAST)
def _forward(first, last, q, k, v, a, e, w, r, kept, out):
    S = np.empty((k.shape[3], v.shape[3]), v.dtype)
    x, recalled = np.empty(v.shape[3], v.dtype), np.empty(v.shape[3], v.dtype)
    for b in range(first, last):
        for h in range(v.shape[1]):
            hq, hk = h % q.shape[1], h % k.shape[1]
            S[:] = v.dtype.type(0)
            for t in range(v.shape[2]):
                if t % CHUNK == 0:
                    kept[b, h, t // CHUNK] = S
                _advance(S, q[b, hq, t], k[b, hk, t], v[b, h, t], a[b, h, t], e[b, h, t], w[b, h, t], r[b, h, t],
                         x, recalled, out[b, h, t])


@njit(fastmath=_FAST)
def _retreat(G, S, q, k, v, a, e, w, r, x, recalled, do, dq, dk, dv, da, scalars, dx):
    """Gradients of one step. S (K, V) is the state before it; G is dL/dS_i on entry, dL/dS_(i-1) on exit."""
    zero = S.dtype.type(0)
    overlap, through = zero, zero
    for c in range(v.shape[0]):
        dx[c] = zero
        through += (x[c] + r * v[c]) * do[c]
    for i in range(k.shape[0]):
        ki, Gi = k[i], G[i]
        overlap += ki * q[i]
        for c in range(v.shape[0]):
            dx[c] += ki * Gi[c]
    de, dw, dr = zero, zero, zero
    for c in range(v.shape[0]):
        dx[c] += overlap * do[c]
        de -= dx[c] * recalled[c]
        dw += dx[c] * v[c]
        dr += overlap * do[c] * v[c]
        dv[c] += w * dx[c] + overlap * r * do[c]
    scalars[0], scalars[1], scalars[2] = de, dw, dr
    for i in range(k.shape[0]):
        ai, ki, qi, Si, Gi = a[i % a.shape[0]], k[i], q[i], S[i], G[i]
        sum_k, sum_q, sum_a = zero, zero, zero
        for c in range(v.shape[0]):
            erased = e * dx[c]
            g = Gi[c]
            R = ai * Si[c]
            sum_k += g * x[c] - R * erased
            sum_q += R * do[c]
            g += qi * do[c] - ki * erased
            sum_a += g * Si[c]
            Gi[c] = ai * g
        dk[i] += sum_k + qi * through
        dq[i] += sum_q + ki * through
        da[i % a.shape[0]] += sum_a


@njit(fastmath=_FAST)
def _backward(first, last, q, k, v, a, e, w, r, kept, do, dq, dk, dv, da, de, dw, dr):
    K, V, length = k.shape[3], v.shape[3], v.shape[2]
    before, G = np.empty((CHUNK, K, V), v.dtype), np.empty((K, V), v.dtype)
    x, recalled = np.empty((CHUNK, V), v.dtype), np.empty((CHUNK, V), v.dtype)
    S, dx, spill, scalars = np.empty((K, V), v.dtype), np.empty(V, v.dtype), np.empty(V, v.dtype), np.empty(3, v.dtype)
    for b in range(first, last):
        for h in range(v.shape[1]):
            hq, hk = h % q.shape[1], h % k.shape[1]
            G[:] = v.dtype.type(0)
            for chunk in range(kept.shape[2] - 1, -1, -1):
                start, stop = chunk * CHUNK, min(length, (chunk + 1) * CHUNK)
                S[:] = kept[b, h, chunk]
                for t in range(start, stop):
                    before[t - start] = S
                    _advance(S, q[b, hq, t], k[b, hk, t], v[b, h, t], a[b, h, t], e[b, h, t], w[b, h, t], r[b, h, t],
                             x[t - start], recalled[t - start], spill)
                for t in range(stop - 1, start - 1, -1):
                    _retreat(G, before[t - start], q[b, hq, t], k[b, hk, t], v[b, h, t], a[b, h, t], e[b, h, t],
                             w[b, h, t], r[b, h, t], x[t - start], recalled[t - start], do[b, h, t], dq[b, hq, t],
                             dk[b, hk, t], dv[b, h, t], da[b, h, t], scalars, dx)
                    de[b, h, t], dw[b, h, t], dr[b, h, t] = scalars[0], scalars[1], scalars[2]


class _MatrixScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *inputs):
        inputs = tuple(x.contiguous() for x in inputs)
        k, v = inputs[1], inputs[2]
        batch, n_heads, length, width = v.shape
        kept = v.new_empty(batch, n_heads, -(-length // CHUNK), k.shape[3], width)
        out = torch.empty_like(v)
        over_batch(_forward, batch, torch.get_num_threads(), *(x.detach().numpy() for x in (*inputs, kept, out)))
        ctx.save_for_backward(*inputs, kept)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, do):
        *inputs, kept = ctx.saved_tensors
        grads = [torch.zeros_like(x) for x in inputs]
        arrays = [x.detach().numpy() for x in (*inputs, kept, do.contiguous(), *grads)]
        over_batch(_backward, do.shape[0], torch.get_num_threads(), *arrays)
        return tuple(grads)
