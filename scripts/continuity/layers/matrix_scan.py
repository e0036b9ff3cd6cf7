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
from continuity.uncompiled import uncompiled

CHUNK = 16
_FAST = {"reassoc", "contract", "nsz"}
_U = np.uintp


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
    decay = None if log_decay is None else torch.exp(log_decay).unsqueeze(-1)
    # S_i = a (I - e k k^T) S_(i-1): the erased part is read from the decayed state
    return _scan(q, k, v, decay, erase, write, torch.zeros_like(erase))


def channel_decayed_attention(q, k, v, log_decay):
    """`chunked.channel_decayed_attention`, by the compiled loop where there is one."""
    if not compiled(q):
        return chunked.channel_decayed_attention(q, k, v, log_decay)
    ones = v.new_ones(v.shape[:3])
    return _scan(q, k, v, torch.exp(log_decay), None, ones, torch.zeros_like(ones))


@njit(fastmath=_FAST)
def _read(states, j, b, h, t, hq, hk, q, k, v, a, e, w, r, x, recalled, out):
    """x, recalled = R^T k and out of step t from the state before it, states[j] (K, V); four rows at a time, K % 4 = 0.

    The arrays are whole, because a view made at each step would be counted in and out, and indices are unsigned, because
    signed ones are tested for counting from the end: either costs as much as the arithmetic.
    a is None: nothing decays; e is None: nothing is erased, and recalled is left alone.
    """
    b, h, t, hq, hk, j = _U(b), _U(h), _U(t), _U(hq), _U(hk), _U(j)
    K, V, zero = _U(states.shape[1]), _U(states.shape[2]), states.dtype.type(0)
    overlap = zero
    for c in range(V):
        out[b, h, t, c] = zero
        if e is not None:
            recalled[b, h, t, c] = zero
    for i in range(_U(0), K, _U(4)):
        i1, i2, i3 = i + _U(1), i + _U(2), i + _U(3)
        k0, k1, k2, k3 = k[b, hk, t, i], k[b, hk, t, i1], k[b, hk, t, i2], k[b, hk, t, i3]
        q0, q1, q2, q3 = q[b, hq, t, i], q[b, hq, t, i1], q[b, hq, t, i2], q[b, hq, t, i3]
        overlap += k0 * q0 + k1 * q1 + k2 * q2 + k3 * q3
        if a is not None:
            m = _U(a.shape[3] > 1)
            a0, a1, a2, a3 = a[b, h, t, m * i], a[b, h, t, m * i1], a[b, h, t, m * i2], a[b, h, t, m * i3]
            k0, k1, k2, k3 = a0 * k0, a1 * k1, a2 * k2, a3 * k3
            q0, q1, q2, q3 = a0 * q0, a1 * q1, a2 * q2, a3 * q3
        for c in range(V):
            s0, s1, s2, s3 = states[j, i, c], states[j, i1, c], states[j, i2, c], states[j, i3, c]
            out[b, h, t, c] += q0 * s0 + q1 * s1 + q2 * s2 + q3 * s3
            if e is not None:
                recalled[b, h, t, c] += k0 * s0 + k1 * s1 + k2 * s2 + k3 * s3
    for c in range(V):
        found = w[b, h, t] * v[b, h, t, c]
        if e is not None:
            found -= e[b, h, t] * recalled[b, h, t, c]
        x[b, h, t, c] = found
        out[b, h, t, c] += overlap * (found + r[b, h, t] * v[b, h, t, c])


@njit(fastmath=_FAST)
def _write(states, j, into, b, h, t, hk, k, a, x):
    """states[into] = a S + k x^T, the state after step t, of S = states[j]; in place the loop would not be vectorised."""
    b, h, t, hk, j, into = _U(b), _U(h), _U(t), _U(hk), _U(j), _U(into)
    one = states.dtype.type(1)
    for i in range(_U(states.shape[1])):
        ai, ki = one if a is None else a[b, h, t, _U(a.shape[3] > 1) * i], k[b, hk, t, i]
        for c in range(_U(states.shape[2])):
            states[into, i, c] = ai * states[j, i, c] + ki * x[b, h, t, c]


@njit(fastmath=_FAST)
def _forward(first, last, q, k, v, a, e, w, r, kept, x, recalled, out):
    states = np.empty((2, k.shape[3], v.shape[3]), v.dtype)  # at even and at odd steps
    for b in range(first, last):
        for h in range(v.shape[1]):
            hq, hk = h % q.shape[1], h % k.shape[1]
            states[0] = v.dtype.type(0)
            for t in range(v.shape[2]):
                if t % CHUNK == 0:
                    kept[b, h, t // CHUNK] = states[t % 2]
                _read(states, t % 2, b, h, t, hq, hk, q, k, v, a, e, w, r, x, recalled, out)
                _write(states, t % 2, 1 - t % 2, b, h, t, hk, k, a, x)


@njit(fastmath=_FAST)
def _retreat(G, before, j, b, h, t, hq, hk, q, k, v, a, e, w, r, x, recalled, do, dq, dk, dv, da, de, dw, dr, dx):
    """Gradients of step t. before[j] (K, V) is the state before it; G, which is dL/dS_t, becomes dL/dS_(t-1).

    a is None: nothing decays; e is None: nothing is erased; da is None: the decay needs no gradient.
    """
    b, h, t, hq, hk, j = _U(b), _U(h), _U(t), _U(hq), _U(hk), _U(j)
    K, V, zero, one = _U(G.shape[0]), _U(G.shape[1]), G.dtype.type(0), G.dtype.type(1)
    overlap, through = zero, zero
    for c in range(V):
        dx[c] = zero
        through += (x[b, h, t, c] + r[b, h, t] * v[b, h, t, c]) * do[b, h, t, c]
    for i in range(_U(0), K, _U(4)):
        i1, i2, i3 = i + _U(1), i + _U(2), i + _U(3)
        k0, k1, k2, k3 = k[b, hk, t, i], k[b, hk, t, i1], k[b, hk, t, i2], k[b, hk, t, i3]
        overlap += k0 * q[b, hq, t, i] + k1 * q[b, hq, t, i1] + k2 * q[b, hq, t, i2] + k3 * q[b, hq, t, i3]
        for c in range(V):
            dx[c] += k0 * G[i, c] + k1 * G[i1, c] + k2 * G[i2, c] + k3 * G[i3, c]
    sum_e, sum_w, sum_r = zero, zero, zero
    for c in range(V):
        own = overlap * do[b, h, t, c]
        d = dx[c] + own
        sum_w += d * v[b, h, t, c]
        sum_r += own * v[b, h, t, c]
        dv[b, h, t, c] += w[b, h, t] * d + r[b, h, t] * own
        if e is not None:
            sum_e -= d * recalled[b, h, t, c]
            d *= e[b, h, t]
        dx[c] = d
    if e is not None:
        de[b, h, t] = sum_e
    dw[b, h, t], dr[b, h, t] = sum_w, sum_r
    for i in range(K):
        ai, ki, qi = one if a is None else a[b, h, t, _U(a.shape[3] > 1) * i], k[b, hk, t, i], q[b, hq, t, i]
        sum_k, sum_q, sum_a = zero, zero, zero
        for c in range(V):
            g, R = G[i, c], ai * before[j, i, c]
            sum_k += g * x[b, h, t, c]
            sum_q += R * do[b, h, t, c]
            g += qi * do[b, h, t, c]
            if e is not None:
                sum_k -= R * dx[c]
                g -= ki * dx[c]
            if da is not None:
                sum_a += g * before[j, i, c]
            G[i, c] = ai * g
        dk[b, hk, t, i] += sum_k + qi * through
        dq[b, hq, t, i] += sum_q + ki * through
        if da is not None:
            da[b, h, t, _U(da.shape[3] > 1) * i] += sum_a


@njit(fastmath=_FAST)
def _backward(first, last, q, k, v, a, e, w, r, kept, x, recalled, do, dq, dk, dv, da, de, dw, dr):
    K, V, length = k.shape[3], v.shape[3], v.shape[2]
    before, G, dx = np.empty((CHUNK, K, V), v.dtype), np.empty((K, V), v.dtype), np.empty(V, v.dtype)
    for b in range(first, last):
        for h in range(v.shape[1]):
            hq, hk = h % q.shape[1], h % k.shape[1]
            G[:] = v.dtype.type(0)
            for chunk in range(kept.shape[2] - 1, -1, -1):
                start, stop = chunk * CHUNK, min(length, (chunk + 1) * CHUNK)
                before[0] = kept[b, h, chunk]
                for t in range(start, stop - 1):
                    _write(before, t - start, t - start + 1, b, h, t, hk, k, a, x)
                for t in range(stop - 1, start - 1, -1):
                    _retreat(
                        G, before, t - start, b, h, t, hq, hk,
                        q, k, v, a, e, w, r, x, recalled, do, dq, dk, dv, da, de, dw, dr, dx,
                    )  # fmt: skip


@uncompiled
def _scan(q, k, v, a, e, w, r):
    """o of the module's head; a (B, H, L, K), (B, H, L, 1) or None where nothing decays, e None where nothing is erased.

    Keys are padded to a multiple of four channels.
    """
    more = -k.shape[-1] % 4
    if more:
        q, k = F.pad(q, (0, more)), F.pad(k, (0, more))
        a = a if a is None or a.shape[-1] == 1 else F.pad(a, (0, more))
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
