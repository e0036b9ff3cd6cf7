"""Recurrences of a matrix-valued state, one compiled loop on a CPU where numba is installed, `chunked` forms elsewhere.

    R_i = diag(a_i) S_(i-1),  x_i = w_i v_i - e_i R_i^T k_i,  S_i = R_i + k_i x_i^T,  o_i = R_i^T q_i + (q_i .
    k_i)(x_i + r_i v_i)

covers linear attention (a = w = 1, e = r = 0), decays a head or a channel, the delta rule (e > 0) and Mamba-3's two
taps (r). Shapes as in `chunked`. Backward recomputes states from x and one state kept every CHUNK steps.
"""

import numpy as np
import torch
import torch.nn.functional as F

from continuity import native
from continuity.layers import chunked
from continuity.layers.sum_scan import sum_scan
from continuity.native import njit, over_batch

CHUNK = 16
_FAST = {"reassoc", "contract", "nsz"}


def compiled(q) -> bool:
    return native.HAVE_NUMBA and q.device.type == "cpu"


def decayed_attention(q, k, v, log_decay=None, weight=None, own=None):
    """`chunked.decayed_attention`, by the compiled loop where there is one."""
    if not compiled(q):
        return chunked.decayed_attention(q, k, v, log_decay, weight, own)
    if log_decay is None and weight is None:
        return sum_scan(q, k, v)
    ones = v.new_ones(v.shape[:3])
    decay = ones if log_decay is None else torch.exp(log_decay)
    rest = torch.zeros_like(ones) if own is None else own - weight
    return _scan(q, k, v, decay.unsqueeze(-1), None, ones if weight is None else weight, rest)


def delta_rule(q, k, v, erase, write, log_decay=None):
    """`chunked.delta_rule`, by the compiled loop where there is one."""
    if not compiled(q):
        return chunked.delta_rule(q, k, v, erase, write, log_decay)
    decay = torch.ones_like(erase) if log_decay is None else torch.exp(log_decay)
    # S_i = a (I - e k k^T) S_(i-1): the erased part is read from the decayed state
    return _scan(q, k, v, decay.unsqueeze(-1), erase, write, torch.zeros_like(erase))


def channel_decayed_attention(q, k, v, log_decay):
    """`chunked.channel_decayed_attention`, by the compiled loop where there is one."""
    if not compiled(q):
        return chunked.channel_decayed_attention(q, k, v, log_decay)
    ones = v.new_ones(v.shape[:3])
    return _scan(q, k, v, torch.exp(log_decay), None, ones, torch.zeros_like(ones))


@njit(fastmath=_FAST)
def _read(S, q, k, v, a, e, w, r, x, recalled, out):
    """x, recalled = R^T k and out (V,) of one step from the state S (K, V) before it; four rows at a time, K % 4 = 0.

    e is None: nothing is erased, and recalled is left alone.
    """
    zero, m = S.dtype.type(0), 1 if a.shape[0] > 1 else 0
    overlap = zero
    for c in range(v.shape[0]):
        out[c] = zero
        if e is not None:
            recalled[c] = zero
    for i in range(0, k.shape[0], 4):
        overlap += k[i] * q[i] + k[i + 1] * q[i + 1] + k[i + 2] * q[i + 2] + k[i + 3] * q[i + 3]
        a0, a1, a2, a3 = a[m * i], a[m * (i + 1)], a[m * (i + 2)], a[m * (i + 3)]
        k0, k1, k2, k3 = a0 * k[i], a1 * k[i + 1], a2 * k[i + 2], a3 * k[i + 3]
        q0, q1, q2, q3 = a0 * q[i], a1 * q[i + 1], a2 * q[i + 2], a3 * q[i + 3]
        for c in range(v.shape[0]):
            s0, s1, s2, s3 = S[i, c], S[i + 1, c], S[i + 2, c], S[i + 3, c]
            out[c] += q0 * s0 + q1 * s1 + q2 * s2 + q3 * s3
            if e is not None:
                recalled[c] += k0 * s0 + k1 * s1 + k2 * s2 + k3 * s3
    for c in range(v.shape[0]):
        x[c] = w * v[c]
        if e is not None:
            x[c] -= e * recalled[c]
        out[c] += overlap * (x[c] + r * v[c])


@njit(fastmath=_FAST)
def _write(S, k, a, x, after):
    """The state after the step, a S + k x^T, into another array: loops that write what they read are not vectorised."""
    m = 1 if a.shape[0] > 1 else 0
    for i in range(k.shape[0]):
        ai, ki = a[m * i], k[i]
        for c in range(x.shape[0]):
            after[i, c] = ai * S[i, c] + ki * x[c]


@njit(fastmath=_FAST)
def _forward(first, last, q, k, v, a, e, w, r, kept, x, recalled, out):
    S, after = np.empty((k.shape[3], v.shape[3]), v.dtype), np.empty((k.shape[3], v.shape[3]), v.dtype)
    for b in range(first, last):
        for h in range(v.shape[1]):
            hq, hk = h % q.shape[1], h % k.shape[1]
            S[:] = v.dtype.type(0)
            for t in range(v.shape[2]):
                if t % CHUNK == 0:
                    kept[b, h, t // CHUNK] = S
                et = None if e is None else e[b, h, t]
                _read(
                    S,
                    q[b, hq, t],
                    k[b, hk, t],
                    v[b, h, t],
                    a[b, h, t],
                    et,
                    w[b, h, t],
                    r[b, h, t],
                    x[b, h, t],
                    recalled[b, h, t],
                    out[b, h, t],
                )
                _write(S, k[b, hk, t], a[b, h, t], x[b, h, t], after)
                S, after = after, S


@njit(fastmath=_FAST)
def _retreat(G, S, q, k, v, a, e, w, r, x, recalled, do, dq, dk, dv, da, scalars, dx):
    """Gradients of one step. S (K, V) is the state before it; G, which is dL/dS_i, becomes dL/dS_(i-1).

    e is None: nothing is erased; da is None: the decay needs no gradient.
    """
    zero, m = S.dtype.type(0), 1 if a.shape[0] > 1 else 0
    overlap, through = zero, zero
    for c in range(v.shape[0]):
        dx[c] = zero
        through += (x[c] + r * v[c]) * do[c]
    for i in range(0, k.shape[0], 4):
        k0, k1, k2, k3 = k[i], k[i + 1], k[i + 2], k[i + 3]
        overlap += k0 * q[i] + k1 * q[i + 1] + k2 * q[i + 2] + k3 * q[i + 3]
        for c in range(v.shape[0]):
            dx[c] += k0 * G[i, c] + k1 * G[i + 1, c] + k2 * G[i + 2, c] + k3 * G[i + 3, c]
    de, dw, dr = zero, zero, zero
    for c in range(v.shape[0]):
        dx[c] += overlap * do[c]
        if e is not None:
            de -= dx[c] * recalled[c]
        dw += dx[c] * v[c]
        dr += overlap * do[c] * v[c]
        dv[c] += w * dx[c] + overlap * r * do[c]
        if e is not None:
            dx[c] *= e
    scalars[0], scalars[1], scalars[2] = de, dw, dr
    for i in range(k.shape[0]):
        ai, ki, qi = a[m * i], k[i], q[i]
        sum_k, sum_q, sum_a = zero, zero, zero
        for c in range(v.shape[0]):
            g, R = G[i, c], ai * S[i, c]
            sum_k += g * x[c]
            sum_q += R * do[c]
            g += qi * do[c]
            if e is not None:
                sum_k -= R * dx[c]
                g -= ki * dx[c]
            if da is not None:
                sum_a += g * S[i, c]
            G[i, c] = ai * g
        dk[i] += sum_k + qi * through
        dq[i] += sum_q + ki * through
        if da is not None:
            da[m * i] += sum_a


@njit(fastmath=_FAST)
def _backward(first, last, q, k, v, a, e, w, r, kept, x, recalled, do, dq, dk, dv, da, de, dw, dr):
    K, V, length = k.shape[3], v.shape[3], v.shape[2]
    before, G = np.empty((CHUNK, K, V), v.dtype), np.empty((K, V), v.dtype)
    dx, scalars = np.empty(V, v.dtype), np.empty(3, v.dtype)
    for b in range(first, last):
        for h in range(v.shape[1]):
            hq, hk = h % q.shape[1], h % k.shape[1]
            G[:] = v.dtype.type(0)
            for chunk in range(kept.shape[2] - 1, -1, -1):
                start, stop = chunk * CHUNK, min(length, (chunk + 1) * CHUNK)
                before[0] = kept[b, h, chunk]
                for t in range(start, stop - 1):
                    _write(before[t - start], k[b, hk, t], a[b, h, t], x[b, h, t], before[t - start + 1])
                for t in range(stop - 1, start - 1, -1):
                    et = None if e is None else e[b, h, t]
                    dat = None if da is None else da[b, h, t]
                    _retreat(
                        G,
                        before[t - start],
                        q[b, hq, t],
                        k[b, hk, t],
                        v[b, h, t],
                        a[b, h, t],
                        et,
                        w[b, h, t],
                        r[b, h, t],
                        x[b, h, t],
                        recalled[b, h, t],
                        do[b, h, t],
                        dq[b, hq, t],
                        dk[b, hk, t],
                        dv[b, h, t],
                        dat,
                        scalars,
                        dx,
                    )
                    if de is not None:
                        de[b, h, t] = scalars[0]
                    dw[b, h, t], dr[b, h, t] = scalars[1], scalars[2]


@torch.compiler.disable
def _scan(q, k, v, a, e, w, r):
    """o of the module's head; a (B, H, L, K) or (B, H, L, 1), e None where nothing is erased. Keys are padded to a
    multiple of four channels.
    """
    more = -k.shape[-1] % 4
    if more:
        q, k = F.pad(q, (0, more)), F.pad(k, (0, more))
        a = a if a.shape[-1] == 1 else F.pad(a, (0, more))
    return _MatrixScan.apply(q, k, v, a, e, w, r)


def _numpy(tensors):
    return (None if t is None else t.detach().numpy() for t in tensors)


class _MatrixScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *inputs):
        inputs = tuple(x if x is None else x.contiguous() for x in inputs)
        k, v = inputs[1], inputs[2]
        batch, n_heads, length, width = v.shape
        kept = v.new_empty(batch, n_heads, -(-length // CHUNK), k.shape[3], width)
        x, recalled, out = (torch.empty_like(v) for _ in range(3))
        over_batch(_forward, batch, torch.get_num_threads(), *_numpy((*inputs, kept, x, recalled, out)))
        ctx.save_for_backward(*inputs, kept, x, recalled)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, do):
        *inputs, kept, x, recalled = ctx.saved_tensors
        wanted = [True] * 3 + list(ctx.needs_input_grad[3:5]) + [True] * 2
        grads = [torch.zeros_like(t) if want else None for t, want in zip(inputs, wanted, strict=True)]
        arrays = _numpy((*inputs, kept, x, recalled, do.contiguous(), *grads))
        over_batch(_backward, do.shape[0], torch.get_num_threads(), *arrays)
        return tuple(grads)
