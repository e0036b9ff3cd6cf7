"""Compiled loop of S_i = S_(i-1) + k_i v_i^T, o_i = S_i^T q_i: without decay no state need be kept or divided out.

Backward sums forward again for dL/dq, and from the end for dL/dk and dL/dv. Shapes as in `chunked`, one head in q and k for
each in v.
"""

import numpy as np
import torch

from continuity.native import njit, over_batch
from continuity.uncompiled import uncompiled

_FAST = {"reassoc", "contract", "nsz"}


@njit(fastmath=_FAST)
def _add_and_dot(S, k, v, x, out):
    """S += k v^T, out = S x."""
    for i in range(k.shape[0]):
        ki, total = k[i], v.dtype.type(0)
        for c in range(v.shape[0]):
            s = S[i, c] + ki * v[c]
            S[i, c] = s
            total += s * x[c]
        out[i] = total


@njit(fastmath=_FAST)
def _add_and_dot_twice(S, k, v, x, out, y, across):
    """S += k v^T, out = S x, across += S^T y."""
    for i in range(k.shape[0]):
        ki, yi, total = k[i], y[i], v.dtype.type(0)
        for c in range(v.shape[0]):
            s = S[i, c] + ki * v[c]
            S[i, c] = s
            total += s * x[c]
            across[c] += s * yi
        out[i] = total


@njit(fastmath=_FAST)
def _forward(first, last, q, k, v, out):
    S = np.empty((v.shape[3], k.shape[3]), v.dtype)  # transposed, so that reading it is a dot product a row
    for b in range(first, last):
        for h in range(v.shape[1]):
            S[:] = v.dtype.type(0)
            for t in range(v.shape[2]):
                _add_and_dot(S, v[b, h, t], k[b, h, t], q[b, h, t], out[b, h, t])


@njit(fastmath=_FAST)
def _backward(first, last, q, k, v, do, dq, dk, dv):
    S = np.empty((k.shape[3], v.shape[3]), v.dtype)
    for b in range(first, last):
        for h in range(v.shape[1]):
            S[:] = v.dtype.type(0)
            for t in range(v.shape[2]):
                _add_and_dot(S, k[b, h, t], v[b, h, t], do[b, h, t], dq[b, h, t])
            S[:] = v.dtype.type(0)
            for t in range(v.shape[2] - 1, -1, -1):
                _add_and_dot_twice(S, q[b, h, t], do[b, h, t], v[b, h, t], dk[b, h, t], k[b, h, t], dv[b, h, t])


class _SumScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        q, k, v = (x.contiguous() for x in (q, k, v))
        out = torch.empty_like(v)
        over_batch(_forward, v.shape[0], torch.get_num_threads(), *(x.detach().numpy() for x in (q, k, v, out)))
        ctx.save_for_backward(q, k, v)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, do):
        q, k, v = ctx.saved_tensors
        grads = torch.empty_like(q), torch.empty_like(k), torch.zeros_like(v)
        arrays = [x.detach().numpy() for x in (q, k, v, do.contiguous(), *grads)]
        over_batch(_backward, v.shape[0], torch.get_num_threads(), *arrays)
        return grads


@uncompiled
def sum_scan(q, k, v):
    """o (B, H, L, V) of the module's head."""
    shape = (*v.shape[:2], -1, -1)
    return _SumScan.apply(q.expand(shape), k.expand(shape), v)
