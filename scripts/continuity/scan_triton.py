"""Fused selective scan on a GPU, forward and backward, in Triton; the recurrence and rules of `continuity.scan`.

One program walks through time for one sequence and a block of channels, its state in registers. Forward keeps the state
at every CHUNK-th step; backward recomputes the states between, one chunk at a time, into a scratch that stays in cache.
Gradients that several programs share (of A, B and C) are written apart and added in one order: every run gives the same bits.
With TRITON_INTERPRET=1 the same kernels run on a CPU, for tests.
"""

import torch
import triton
import triton.language as tl

from continuity.scan import driven
from continuity.uncompiled import uncompiled

CHUNK = 32
RULES = {"zoh": 0, "bilinear": 1, "euler": 2, "averaged": 3}
TERMS = {torch.float32: 8, torch.float64: 18}
"""Terms of the series of phi1 for |z| < 1/2 that reach each precision."""
SCRATCH = 2**17
"""Numbers that one program may keep of a chunk."""


@triton.jit
def _phi2(z, TERMS: tl.constexpr):
    """(e^z - 1 - z)/z^2 by its series, |z| <= 1/2."""
    total = tl.zeros_like(z)
    for k in tl.static_range(TERMS):
        total = 1.0 / (TERMS + 1 - k) * (1.0 + z * total)
    return total


@triton.jit
def _slopes(z, RULE: tl.constexpr, TERMS: tl.constexpr):
    """(a, g, da/dz, dg/dz) of the rule at z = delta A: h <- a h + g x."""
    if RULE == 1:
        g = 1.0 / (1.0 - 0.5 * z)
        return (1.0 + 0.5 * z) * g, g, g * g, 0.5 * g * g
    a = tl.exp(z)
    if RULE == 2:
        return a, tl.zeros_like(z) + 1.0, a, tl.zeros_like(z)
    small = tl.abs(z) < 0.5
    near, far = tl.where(small, z, 0.0), tl.where(small, 1.0, z)
    p2 = _phi2(near, TERMS)
    g = tl.where(small, 1.0 + near * p2, (a - 1.0) / far)
    return a, g, a, g - tl.where(small, p2, (g - 1.0) / far)


@triton.jit
def _drive(s, B, at, t, b, L, D, N, d, n, inside_d, inside_n, RULE: tl.constexpr):
    """x_t (BD, BN): B s of this step, under `averaged` plus that of the step before; 0 there at the first step."""
    now_s = tl.load(s + at + d, inside_d, 0.0)
    now_B = tl.load(B + (b * L + t) * N + n, inside_n, 0.0)
    x = now_s[:, None] * now_B[None, :]
    if RULE == 3:
        later_d, later_n = inside_d & (t + 0 * d > 0), inside_n & (t + 0 * n > 0)
        past_s = tl.load(s + at - D + d, later_d, 0.0)
        past_B = tl.load(B + (b * L + t - 1) * N + n, later_n, 0.0)
        x = tl.where(later_d[:, None], x + past_s[:, None] * past_B[None, :], 0.0)
    return x, now_s, now_B


@triton.jit
def _forward(step, s, A, B, C, h0, y, last, kept, L, D, N, CHUNKS, BD: tl.constexpr, BN: tl.constexpr,
             CHUNK: tl.constexpr, RULE: tl.constexpr, TERMS: tl.constexpr):  # fmt: skip
    b, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d, n = block * BD + tl.arange(0, BD), tl.arange(0, BN)
    inside_d, inside_n = d < D, n < N
    tile = d[:, None] * N + n[None, :]
    inside = inside_d[:, None] & inside_n[None, :]
    rate = tl.load(A + tile, inside, 0.0)
    h = tl.load(h0 + b * D * N + tile, inside, 0.0)
    for t in range(L):
        if t % CHUNK == 0:
            tl.store(kept + (b * CHUNKS + t // CHUNK) * D * N + tile, h, inside)
        at = (b * L + t) * D
        x, _, _ = _drive(s, B, at, t, b, L, D, N, d, n, inside_d, inside_n, RULE)
        delta = tl.load(step + at + d, inside_d, 0.0)
        a, g, _, _ = _slopes(delta[:, None] * rate, RULE, TERMS)
        h = a * h + g * x
        read = tl.load(C + (b * L + t) * N + n, inside_n, 0.0)
        tl.store(y + at + d, tl.sum(h * read[None, :], 1), inside_d)
    tl.store(last + b * D * N + tile, h, inside)


@triton.jit
def _backward(step, s, A, B, C, kept, dy, dlast, scratch, dstep, ds, dA, dB, dC, dh0, L, D, N, CHUNKS, BLOCKS,
              BD: tl.constexpr, BN: tl.constexpr, CHUNK: tl.constexpr, RULE: tl.constexpr, TERMS: tl.constexpr):  # fmt: skip
    b, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d, n = block * BD + tl.arange(0, BD), tl.arange(0, BN)
    inside_d, inside_n = d < D, n < N
    tile = d[:, None] * N + n[None, :]
    inside = inside_d[:, None] & inside_n[None, :]
    own = tl.arange(0, BD)[:, None] * BN + n[None, :]
    before = scratch + (b * BLOCKS + block) * CHUNK * BD * BN
    rate = tl.load(A + tile, inside, 0.0)
    G = tl.load(dlast + b * D * N + tile, inside, 0.0)
    rate_grad, carried = tl.zeros_like(rate), tl.zeros_like(rate)
    for back in range(CHUNKS):
        chunk = CHUNKS - 1 - back
        start = chunk * CHUNK
        steps = tl.minimum(CHUNK, L - start)
        h = tl.load(kept + (b * CHUNKS + chunk) * D * N + tile, inside, 0.0)
        for i in range(steps):
            tl.store(before + i * BD * BN + own, h)
            at = (b * L + start + i) * D
            x, _, _ = _drive(s, B, at, start + i, b, L, D, N, d, n, inside_d, inside_n, RULE)
            delta = tl.load(step + at + d, inside_d, 0.0)
            a, g, _, _ = _slopes(delta[:, None] * rate, RULE, TERMS)
            h = a * h + g * x
        tl.debug_barrier()
        for j in range(steps):
            i = steps - 1 - j
            t = start + i
            at = (b * L + t) * D
            x, now_s, now_B = _drive(s, B, at, t, b, L, D, N, d, n, inside_d, inside_n, RULE)
            delta = tl.load(step + at + d, inside_d, 0.0)
            a, g, a_slope, g_slope = _slopes(delta[:, None] * rate, RULE, TERMS)
            h = tl.load(before + i * BD * BN + own)
            out = tl.load(dy + at + d, inside_d, 0.0)
            read = tl.load(C + (b * L + t) * N + n, inside_n, 0.0)
            grad = G + out[:, None] * read[None, :]
            dx = grad * g
            if RULE == 3:
                dx = tl.where((t + 0 * d > 0)[:, None], dx, 0.0)
                into = dx + carried
                carried = dx
            else:
                into = dx
            dz = grad * (a_slope * h + g_slope * x)
            rate_grad += dz * delta[:, None]
            shared = ((b * BLOCKS + block) * L + t) * N
            tl.store(dC + shared + n, tl.sum((a * h + g * x) * out[:, None], 0), inside_n)
            tl.store(dB + shared + n, tl.sum(into * now_s[:, None], 0), inside_n)
            tl.store(ds + at + d, tl.sum(into * now_B[None, :], 1), inside_d)
            tl.store(dstep + at + d, tl.sum(dz * rate, 1), inside_d)
            G = a * grad
        tl.debug_barrier()
    tl.store(dA + b * D * N + tile, rate_grad, inside)
    tl.store(dh0 + b * D * N + tile, G, inside)


def _sizes(D, N):
    """(channels, states) of a program's block: powers of two, the scratch of a chunk within SCRATCH."""
    states = triton.next_power_of_2(N)
    channels = max(1, min(triton.next_power_of_2(D), 32, SCRATCH // (CHUNK * states)))
    return channels, states


class _Scan(torch.autograd.Function):
    """(step, s, A (D, N), B, C, h0 (B, D, N)) -> (y, last state)."""

    @staticmethod
    def forward(ctx, step, s, A, B, C, h0, rule):
        step, s, A, B, C, h0 = (x.contiguous() for x in (step, s, A, B, C, h0))
        (batch, L, D), N = s.shape, A.shape[1]
        BD, BN = _sizes(D, N)
        chunks = triton.cdiv(L, CHUNK)
        y, last = torch.empty_like(s), torch.empty_like(h0)
        kept = s.new_empty(batch, chunks, D, N)
        _forward[(batch, triton.cdiv(D, BD))](
            step, s, A, B, C, h0, y, last, kept, L, D, N, chunks, BD, BN, CHUNK, rule, TERMS[s.dtype]
        )
        ctx.save_for_backward(step, s, A, B, C, kept)
        ctx.rule = rule
        return y, last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy, dlast):
        step, s, A, B, C, kept = ctx.saved_tensors
        (batch, L, D), N = s.shape, A.shape[1]
        BD, BN = _sizes(D, N)
        chunks, blocks = kept.shape[1], triton.cdiv(D, BD)
        scratch = s.new_empty(batch * blocks, CHUNK, BD, BN)
        dstep, ds = torch.empty_like(step), torch.empty_like(s)
        dA, dh0 = s.new_empty(batch, D, N), s.new_empty(batch, D, N)
        dB, dC = (s.new_empty(batch, blocks, L, N) for _ in range(2))
        _backward[(batch, blocks)](
            step, s, A, B, C, kept, dy.contiguous(), dlast.contiguous(), scratch, dstep, ds, dA, dB, dC, dh0,
            L, D, N, chunks, blocks, BD, BN, CHUNK, ctx.rule, TERMS[s.dtype],
        )  # fmt: skip
        return dstep, ds, dA.sum(0), dB.sum(1), dC.sum(1), dh0, None


@uncompiled
def triton_scan(u, delta, A, B, C, discretization="zoh", state=None):
    """(y, last state (B, D, N)) of `scan.selective_scan` without D; float32 or float64, A real."""
    step, s = driven(u, delta, discretization == "averaged")
    h0 = u.new_zeros(u.shape[0], *A.shape) if state is None else state.to(u.dtype)
    return _Scan.apply(step, s, A, B, C, h0, RULES[discretization])
