"""Scan of a diagonal, complex, time-invariant system: h_k = a h_(k-1) + x_k with h_(-1) = 0.

Complex numbers are held in planes: x (B, L, 2P) holds P real parts, then P imaginary parts, which a compiled loop and
a real matrix product both like better than pairs.
"""

import numpy as np
import torch

from continuity import native
from continuity.native import njit, over_batch
from continuity.uncompiled import uncompiled


@uncompiled
def lti_scan(log_a, x):
    """h (B, L, 2P) in planes, from log a (P,) complex and x (B, L, 2P) in planes, real floating point.

    A compiled loop on the CPU where numba is installed; else log2(L) doublings in torch.
    """
    a = torch.exp(log_a)
    if native.HAVE_NUMBA and x.device.type == "cpu":
        return _LtiScan.apply(a.real, a.imag, x)
    return scan_by_doubling(log_a, x)


def scan_by_doubling(log_a, x):
    """The same scan by h <- h + a^s (h, s steps later) for s = 1, 2, 4, …; no division, nothing overflows for |a| <= 1."""
    real, imag = x.chunk(2, -1)
    h = torch.complex(real, imag)
    shift = 1
    while shift < x.shape[1]:
        moved = torch.exp(shift * log_a) * h[:, :-shift]
        h = torch.cat([h[:, :shift], h[:, shift:] + moved], 1)
        shift *= 2
    return torch.cat([h.real, h.imag], -1)


@njit(fastmath={"contract", "nsz"})
def _forward(first, last, ar, ai, x, h):
    p = ar.shape[0]
    for b in range(first, last):
        h[b, 0] = x[b, 0]
        for t in range(1, x.shape[1]):
            for n in range(p):
                h[b, t, n] = x[b, t, n] + ar[n] * h[b, t - 1, n] - ai[n] * h[b, t - 1, p + n]
            for n in range(p):
                h[b, t, p + n] = x[b, t, p + n] + ar[n] * h[b, t - 1, p + n] + ai[n] * h[b, t - 1, n]


@njit(fastmath={"contract", "nsz"})
def _backward(first, last, ar, ai, h, g, dar, dai):
    """g (B, L, 2P) holds dL/dh on entry and dL/dx on exit."""
    p = ar.shape[0]
    for b in range(first, last):
        for t in range(h.shape[1] - 2, -1, -1):
            for n in range(p):
                g[b, t, n] += ar[n] * g[b, t + 1, n] + ai[n] * g[b, t + 1, p + n]
            for n in range(p):
                g[b, t, p + n] += ar[n] * g[b, t + 1, p + n] - ai[n] * g[b, t + 1, n]
            for n in range(p):
                dar[b, n] += g[b, t + 1, n] * h[b, t, n] + g[b, t + 1, p + n] * h[b, t, p + n]
            for n in range(p):
                dai[b, n] += g[b, t + 1, p + n] * h[b, t, n] - g[b, t + 1, n] * h[b, t, p + n]


class _LtiScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, ar, ai, x):
        ar, ai, x = ar.contiguous(), ai.contiguous(), x.contiguous()
        h = torch.empty_like(x)
        over_batch(_forward, x.shape[0], torch.get_num_threads(), *(t.detach().numpy() for t in (ar, ai, x, h)))
        ctx.save_for_backward(ar, ai, h)
        return h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dh):
        ar, ai, h = ctx.saved_tensors
        g = dh.clone(memory_format=torch.contiguous_format)
        dar, dai = (np.zeros((h.shape[0], ar.shape[0]), ar.numpy().dtype) for _ in range(2))
        over_batch(_backward, h.shape[0], torch.get_num_threads(), ar.numpy(), ai.numpy(), h.numpy(), g.numpy(), dar, dai)
        return torch.from_numpy(dar.sum(0)), torch.from_numpy(dai.sum(0)), g
