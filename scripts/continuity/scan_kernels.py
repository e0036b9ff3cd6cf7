"""Compiled loops of the selective scan, and the autograd function around them.

With z = delta A every rule is h <- a(z) h + g(z) x, x = B s (s = delta u); for `averaged` x is B s of two
neighbouring samples. The exponential is a polynomial after reduction to |r| <= ln(2)/2, which vectorises where libm's
does not. Channels are the inner loop, so a state (N, D) lies contiguous. Backward recomputes states from a checkpoint
every CHUNK steps.
"""

import math
from collections import namedtuple

import numpy as np
import torch
from numba import types
from numba.extending import overload

from continuity.native import njit, over_batch
from continuity.scan import driven
from continuity.uncompiled import uncompiled

CHUNK = 32
_FAST = {"reassoc", "contract", "nsz"}

# A rule is known by its type, so that every rule gets loops of its own; `taps` = 2 adds the previous sample to the input.
Exact = namedtuple("Exact", "taps")
Bilinear = namedtuple("Bilinear", "taps")
Euler = namedtuple("Euler", "taps")
KERNEL_RULES = {"zoh": Exact(1), "bilinear": Bilinear(1), "euler": Euler(1), "averaged": Exact(2)}


def exp_parts(z):
    """(e^z, phi1(z), phi1'(z)) inside compiled loops; NaN stays NaN, e^z saturates at the ends of its range."""
    raise NotImplementedError("exp_parts exists in compiled code only")


def slopes(rule, z):
    """(a, g, da/dz, dg/dz) of one state inside compiled loops."""
    raise NotImplementedError("slopes exists in compiled code only")


def _horner(real, degree):
    """Constants 1/2!, 1/3!, … of (phi1(r) - 1)/r."""
    return tuple(real(1 / math.factorial(k + 2)) for k in range(degree + 1))


@overload(exp_parts, jit_options={"fastmath": _FAST})
def _exp_parts(z):
    return _single() if z == types.float32 else _double()


def _single():
    one, half, log2e = np.float32(1), np.float32(0.5), np.float32(1 / math.log(2))
    low, high, ln2_high, ln2_low = np.float32(-87), np.float32(88), np.float32(0.693359375), np.float32(-2.12194440e-4)
    c0, c1, c2, c3, c4, c5 = _horner(np.float32, 5)

    def parts(z):
        c = low if z < low else z
        c = high if c > high else c
        k = np.floor(c * log2e + half)
        r = (c - k * ln2_high) - k * ln2_low
        p2 = c0 + r * (c1 + r * (c2 + r * (c3 + r * (c4 + r * c5))))
        p1 = one + r * p2
        e = (one + r * p1) * np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)
        inverse = one / (one if k == 0 else z)
        gain = p1 if k == 0 else (e - one) * inverse
        return e, gain, gain - (p2 if k == 0 else (gain - one) * inverse)

    return parts


def _double():
    c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12 = _horner(float, 12)
    log2e, ln2_high, ln2_low = 1 / math.log(2), 0.6931471803691238, 1.9082149292705877e-10

    def parts(z):
        c = -708.0 if z < -708.0 else z
        c = 709.0 if c > 709.0 else c
        k = np.floor(c * log2e + 0.5)
        r = (c - k * ln2_high) - k * ln2_low
        p2 = c6 + r * (c7 + r * (c8 + r * (c9 + r * (c10 + r * (c11 + r * c12)))))
        p2 = c0 + r * (c1 + r * (c2 + r * (c3 + r * (c4 + r * (c5 + r * p2)))))
        p1 = 1.0 + r * p2
        e = (1.0 + r * p1) * np.int64((np.int64(k) + np.int64(1023)) << np.int64(52)).view(np.float64)
        inverse = 1.0 / (1.0 if k == 0 else z)
        gain = p1 if k == 0 else (e - 1.0) * inverse
        return e, gain, gain - (p2 if k == 0 else (gain - 1.0) * inverse)

    return parts


@overload(slopes, jit_options={"fastmath": _FAST})
def _slopes(rule, z):
    real = np.float32 if z == types.float32 else np.float64
    zero, one, half = real(0), real(1), real(0.5)
    if rule.instance_class is Bilinear:

        def bilinear(rule, z):
            g = one / (one - half * z)
            return (one + half * z) * g, g, g * g, half * g * g

        return bilinear
    if rule.instance_class is Euler:

        def euler(rule, z):
            a, _, _ = exp_parts(z)
            return a, one, a, zero

        return euler

    def exact(rule, z):
        a, g, g_slope = exp_parts(z)
        return a, g, a, g_slope

    return exact


@njit
def _taps(taps, t):
    """Weight of sample t, weight and index of the earlier sample that enters step t."""
    if taps == 1:
        return 1, 0, t
    return (1, 1, t - 1) if t > 0 else (0, 0, t)


@njit(fastmath=_FAST)
def _advance(rule, h, step, A, B, Bp, s, sp):
    """One step of the state h (N, D), in place, on the input B s + Bp sp."""
    for n in range(A.shape[0]):
        bn, bp, hn, An = B[n], Bp[n], h[n], A[n]
        for d in range(A.shape[1]):
            a, g, _, _ = slopes(rule, step[d] * An[d])
            hn[d] = a * hn[d] + g * (bn * s[d] + bp * sp[d])


@njit(fastmath=_FAST)
def _read(h, C, y):
    """y += C h for one step."""
    for n in range(h.shape[0]):
        cn, hn = C[n], h[n]
        for d in range(h.shape[1]):
            y[d] += cn * hn[d]


@njit(fastmath=_FAST)
def _forward(first, last, rule, step, s, A, B, C, h, kept, y):
    for b in range(first, last):
        for t in range(step.shape[1]):
            if t % CHUNK == 0:
                kept[b, t // CHUNK] = h[b]
            w, wp, p = _taps(rule.taps, t)
            _advance(rule, h[b], step[b, t], A, B[b, t] * A.dtype.type(w), B[b, p] * A.dtype.type(wp), s[b, t], s[b, p])
            _read(h[b], C[b, t], y[b, t])


@njit(fastmath=_FAST)
def _retreat(rule, G, h, step, A, B, Bp, C, s, sp, dy, out):
    """Gradients of one step. G (N, D) holds dL/dh_k without this step's output on entry and dL/dh_(k-1) on exit."""
    dstep, ds, dsp, dA, dB, dBp, dC = out
    for n in range(A.shape[0]):
        bn, bp, cn, hn, An, Gn, dAn = B[n], Bp[n], C[n], h[n], A[n], G[n], dA[n]
        sum_b, sum_p, sum_c = A.dtype.type(0), A.dtype.type(0), A.dtype.type(0)
        for d in range(A.shape[1]):
            a, g, a_slope, g_slope = slopes(rule, step[d] * An[d])
            x = bn * s[d] + bp * sp[d]
            grad = Gn[d] + cn * dy[d]
            sum_c += dy[d] * (a * hn[d] + g * x)
            dx = grad * g
            sum_b += dx * s[d]
            sum_p += dx * sp[d]
            ds[d] += dx * bn
            dsp[d] += dx * bp
            dz = grad * (a_slope * hn[d] + g_slope * x)
            dstep[d] += dz * An[d]
            dAn[d] += dz * step[d]
            Gn[d] = grad * a
        dB[n] += sum_b
        dBp[n] += sum_p
        dC[n] += sum_c


@njit(fastmath=_FAST)
def _backward(first, last, rule, step, s, A, B, C, kept, dy, G, dstep, ds, dA, dB, dC):
    length = step.shape[1]
    before = np.empty((CHUNK,) + A.shape, A.dtype)
    spill_s, spill_B = np.zeros(A.shape[1], A.dtype), np.zeros(A.shape[0], A.dtype)
    for b in range(first, last):
        for chunk in range(kept.shape[1] - 1, -1, -1):
            start, stop = chunk * CHUNK, min(length, (chunk + 1) * CHUNK)
            before[0] = kept[b, chunk]
            for t in range(start, stop - 1):
                w, wp, p = _taps(rule.taps, t)
                before[t - start + 1] = before[t - start]
                _advance(
                    rule,
                    before[t - start + 1],
                    step[b, t],
                    A,
                    B[b, t] * A.dtype.type(w),
                    B[b, p] * A.dtype.type(wp),
                    s[b, t],
                    s[b, p],
                )
            for t in range(stop - 1, start - 1, -1):
                w, wp, p = _taps(rule.taps, t)
                here_s, here_B = (ds[b, t], dB[b, t]) if w == 1 else (spill_s, spill_B)
                prev_s, prev_B = (ds[b, p], dB[b, p]) if wp == 1 else (spill_s, spill_B)
                out = (dstep[b, t], here_s, prev_s, dA[b], here_B, prev_B, dC[b, t])
                _retreat(
                    rule,
                    G[b],
                    before[t - start],
                    step[b, t],
                    A,
                    B[b, t] * A.dtype.type(w),
                    B[b, p] * A.dtype.type(wp),
                    C[b, t],
                    s[b, t],
                    s[b, p],
                    dy[b, t],
                    out,
                )


def _arrays(*tensors):
    return tuple(t.detach().contiguous().numpy() for t in tensors)


class _Scan(torch.autograd.Function):
    """(step, s, A^T (N, D), B, C, h0 (B, N, D)) -> (y, last state); keeps one state in CHUNK for backward."""

    @staticmethod
    def forward(ctx, step, s, A, B, C, h0, rule):
        batch, length, channels = s.shape
        y = torch.zeros_like(s, memory_format=torch.contiguous_format)
        last = h0.detach().clone(memory_format=torch.contiguous_format)
        kept = s.new_empty(batch, -(-length // CHUNK), *A.shape)
        over_batch(_forward, batch, torch.get_num_threads(), rule, *_arrays(step, s, A, B, C, last, kept, y))
        ctx.save_for_backward(step, s, A, B, C, kept)
        ctx.rule = rule
        return y, last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy, dlast):
        step, s, A, B, C, kept = ctx.saved_tensors
        G = dlast.clone(memory_format=torch.contiguous_format)
        grads = [torch.zeros_like(x, memory_format=torch.contiguous_format) for x in (step, s)]
        grads += [A.new_zeros(s.shape[0], *A.shape), torch.zeros(B.shape, dtype=B.dtype), torch.zeros(C.shape, dtype=C.dtype)]
        over_batch(_backward, s.shape[0], torch.get_num_threads(), ctx.rule, *_arrays(step, s, A, B, C, kept, dy, G, *grads))
        dstep, ds, dA, dB, dC = grads
        return dstep, ds, dA.sum(0), dB, dC, G, None


@uncompiled
def compiled_scan(u, delta, A, B, C, rule, state=None):
    """(y, last state (B, D, N)) of `scan.selective_scan` without D; float32 or float64 on a CPU, A real."""
    step, s = driven(u, delta, rule.taps == 2)
    shape = (u.shape[0], A.shape[1], A.shape[0])
    h0 = u.new_zeros(shape) if state is None else state.to(u.dtype).transpose(1, 2)
    y, last = _Scan.apply(step, s, A.t(), B, C, h0, rule)
    return y, last.transpose(1, 2)
