"""Compiled loops over dissipation blocks, LANES of them side by side, so that every inner loop is one vector operation.

Value first, gradients in a second pass that recomputes what it needs. Where the sign test finds all lanes compliant
nothing is iterated, and the gradients of compliant blocks stay the untouched zero pages of `torch.zeros`. The root is
that of `dissipation.largest_eigenvalue`; transition, gain and slopes are those of `scan_kernels`. Sums over blocks run
in PARTS fixed parts, so that they do not depend on the number of threads.

A tile holds every quantity of LANES blocks: row n of `tile` those of entry n, `lane` those of the whole block, one
quantity after the other at the offsets below. One array with fixed offsets is what lets a compiler see that nothing
overlaps. ROOT is t >= 0, the distance of the eigenvalue from max e; t = -1 marks a compliant block.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F

from continuity.dissipation import LIMIT
from continuity.native import njit, over_batch
from continuity.scan_kernels import KERNEL_RULES, exp_parts, slopes
from continuity.uncompiled import uncompiled

_FAST = {"reassoc", "contract", "nsz"}
_EXACT, _BILINEAR = KERNEL_RULES["zoh"], KERNEL_RULES["bilinear"]
EXACT, EULER, BILINEAR = range(3)
PARTS = 8
LANES = 32

ENTRIES = 16
POWER, SHRINK, B, C, P, E, W, ON_E, ON_W, ON_A, ON_B, ON_C, ON_P, GAIN, POWER_SLOPE, GAIN_SLOPE = (
    LANES * row for row in range(ENTRIES)
)
"""Offsets in a row of `tile`: a, a^2 - 1, b, c, p, arrowhead, gradients of all of these, and what b and a are made of."""

WHOLE = 20
S, D, BETA, STEP, SCALE, TOP, SIGMA, LOW, HIGH, SIZE, ROOT, TOTAL, SLOPE, DONE, ON_S, GRAD, ON_STEP, ON_SCALE, ON_D, ON_BETA = (
    LANES * row for row in range(WHOLE)
)
"""Offsets in `lane`: the block's scalars, the numbers of the iteration, and gradients."""

part = njit(fastmath=_FAST, no_cpython_wrapper=True, no_cfunc_wrapper=True)


# The eigenvalue


@part
def _larger_of_two(x, y, q, half, tiny):
    """Larger eigenvalue of [[x, r], [r, y]] with r^2 = q; half and tiny carry the precision."""
    gap = abs(x - y) * half
    return max(x, y) + q / (gap + math.sqrt(gap * gap + q) + tiny)


@part
def _arrow(post, tile, lane):
    """E, W and S from POWER, SHRINK, B, C, P, D and BETA."""
    two = tile.dtype.type(2)
    for j in range(LANES):
        lane[S + j] = -two * lane[D + j]
    for n in range(tile.shape[0]):
        row = tile[n]
        for j in range(LANES):
            row[E + j] = row[P + j] * row[SHRINK + j] + two * lane[BETA + j]
        if post:
            for j in range(LANES):
                stored = row[P + j] * row[B + j]
                row[W + j] = row[POWER + j] * (stored - row[C + j])
                lane[S + j] += row[B + j] * (stored - two * row[C + j])
        else:
            for j in range(LANES):
                stored = row[P + j] * row[B + j]
                row[W + j] = row[POWER + j] * stored - row[C + j]
                lane[S + j] += row[B + j] * stored


@part
def _top(tile, lane):
    for j in range(LANES):
        lane[TOP + j] = tile[0, E + j]
    for n in range(1, tile.shape[0]):
        row = tile[n]
        for j in range(LANES):
            lane[TOP + j] = max(lane[TOP + j], row[E + j])


@part
def _sign_test(tile, lane):
    """DONE = 1 for lanes with max e < 0 and a Schur complement s + sum w^2/|e| <= 0; returns how many are left."""
    zero, one = tile.dtype.type(0), tile.dtype.type(1)
    for j in range(LANES):
        lane[TOTAL + j] = lane[S + j]
    for n in range(tile.shape[0]):
        row = tile[n]
        for j in range(LANES):
            e = row[E + j]
            lane[TOTAL + j] -= row[W + j] * row[W + j] / (e if e < zero else -one)
    left = zero
    for j in range(LANES):
        done = one if (lane[TOP + j] < zero and lane[TOTAL + j] <= zero) else zero
        lane[DONE + j] = done
        left += one - done
    return left


@part
def _gaps(tile, lane):
    """E becomes max e - e, kept in memory so that no sum is rearranged around it; sums of w^2, over all and at gap 0."""
    zero = tile.dtype.type(0)
    for j in range(LANES):
        lane[TOTAL + j] = zero
        lane[SLOPE + j] = zero
    for n in range(tile.shape[0]):
        row = tile[n]
        for j in range(LANES):
            gap = lane[TOP + j] - row[E + j]
            square = row[W + j] * row[W + j]
            row[E + j] = gap
            lane[TOTAL + j] += square
            lane[SLOPE + j] += square if gap == zero else zero


@part
def _sweep(tile, lane, tiny):
    """TOTAL and SLOPE: sums of w^2/(t + gap) and of its negative derivative."""
    zero, one = tile.dtype.type(0), tile.dtype.type(1)
    for j in range(LANES):
        lane[TOTAL + j] = zero
        lane[SLOPE + j] = zero
    for n in range(tile.shape[0]):
        row = tile[n]
        for j in range(LANES):
            inverse = one / (lane[ROOT + j] + row[E + j] + tiny)
            pull = row[W + j] * row[W + j] * inverse
            lane[TOTAL + j] += pull
            lane[SLOPE + j] += pull * inverse


@part
def _advance(lane, half, small):
    """One osculating step of every lane that is not done; returns how many are left."""
    tiny, eps = small
    one, zero = half + half, half - half
    left = zero
    for j in range(LANES):
        sigma, t, total, slope = lane[SIGMA + j], lane[ROOT + j], lane[TOTAL + j], lane[SLOPE + j]
        done = lane[DONE + j]
        above = sigma + total < t
        high = t if above else lane[HIGH + j]
        ratio = total / max(slope, tiny)
        new = max(_larger_of_two(sigma, t - ratio, total * ratio, half, tiny), lane[LOW + j])
        met = abs(new - t) <= (eps + eps) * (new + lane[SIZE + j] / (one + slope))
        crawls = (not above) and new > t + half * t and not met
        following = math.sqrt(new * high) if crawls else new
        lane[ROOT + j] = t if done > zero else following
        lane[LOW + j] = new
        lane[HIGH + j] = high
        done = one if met else done
        lane[DONE + j] = done
        left += one - done
    return left


@part
def _solve(tile, lane, clip, small):
    """Largest eigenvalue into TOTAL and t into ROOT; 0 and -1 for compliant lanes if clipped. Destroys E."""
    half, zero, one = tile.dtype.type(0.5), tile.dtype.type(0), tile.dtype.type(1)
    _top(tile, lane)
    if _sign_test(tile, lane) == zero and clip:
        for j in range(LANES):
            lane[TOTAL + j] = zero
            lane[ROOT + j] = -one
        return
    _gaps(tile, lane)
    for j in range(LANES):
        sigma = lane[S + j] - lane[TOP + j]
        high = _larger_of_two(sigma, zero, lane[TOTAL + j], half, small[0])
        lane[SIGMA + j] = sigma
        lane[LOW + j] = _larger_of_two(sigma, zero, lane[SLOPE + j], half, small[0])
        lane[HIGH + j] = high
        lane[ROOT + j] = high
        lane[SIZE + j] = abs(lane[TOP + j]) + abs(lane[S + j]) + high
        lane[DONE + j] = lane[DONE + j] if clip else zero
        lane[ON_S + j] = lane[DONE + j]
    for _ in range(LIMIT):
        _sweep(tile, lane, small[0])
        if _advance(lane, half, small) == zero:
            break
    for j in range(LANES):
        found = lane[TOP + j] + lane[ROOT + j]
        found = max(found, zero) if clip else found
        compliant = lane[ON_S + j] > zero
        lane[TOTAL + j] = zero if compliant else found
        lane[ROOT + j] = -one if compliant else lane[ROOT + j]


# Its gradient


@part
def _slopes_of_root(tile, lane, tiny):
    """ON_E, ON_W and ON_S at ROOT: products of the eigenvector's entries. Destroys E."""
    zero, one, two = tile.dtype.type(0), tile.dtype.type(1), tile.dtype.type(2)
    _top(tile, lane)
    _gaps(tile, lane)
    for j in range(LANES):
        lane[TOTAL + j] = one
    for n in range(tile.shape[0]):
        row = tile[n]
        for j in range(LANES):
            v = row[W + j] / (lane[ROOT + j] + row[E + j] + tiny)
            lane[TOTAL + j] += v * v
            row[ON_W + j] = v
    for j in range(LANES):
        lane[ON_S + j] = one / lane[TOTAL + j]
    for n in range(tile.shape[0]):
        row = tile[n]
        for j in range(LANES):
            v = row[ON_W + j]
            row[ON_E + j] = v * v * lane[ON_S + j]
            row[ON_W + j] = v * lane[ON_S + j] * two
    for j in range(LANES):
        if lane[ROOT + j] <= zero and lane[SLOPE + j] == zero:
            _deflated(tile, lane, j)


@part
def _deflated(tile, lane, j):
    """The eigenvalue of lane j is its first largest e."""
    found = False
    for n in range(tile.shape[0]):
        here = tile[n, E + j] == 0 and not found
        found = found or here
        tile[n, ON_E + j] = 1 if here else 0
        tile[n, ON_W + j] = 0
    lane[ON_S + j] = 0


@part
def _through_arrow(post, tile, lane):
    """ON_A, ON_B, ON_C, ON_P, ON_D and ON_BETA, times GRAD."""
    two, zero = tile.dtype.type(2), tile.dtype.type(0)
    for j in range(LANES):
        lane[ON_S + j] *= lane[GRAD + j]
        lane[ON_D + j] = -two * lane[ON_S + j]
        lane[ON_BETA + j] = zero
    for n in range(tile.shape[0]):
        row = tile[n]
        for j in range(LANES):
            row[ON_E + j] *= lane[GRAD + j]
            row[ON_W + j] *= lane[GRAD + j]
            lane[ON_BETA + j] += two * row[ON_E + j]
        for j in range(LANES):
            rest = row[P + j] * row[B + j] - (row[C + j] if post else zero)
            on_s = two * lane[ON_S + j]
            row[ON_A + j] = two * row[P + j] * row[POWER + j] * row[ON_E + j] + row[ON_W + j] * rest
            row[ON_B + j] = row[ON_W + j] * row[POWER + j] * row[P + j] + on_s * rest
            row[ON_C + j] = -(row[ON_W + j] * row[POWER + j] + on_s * row[B + j]) if post else -row[ON_W + j]
        for j in range(LANES):
            pushed = row[ON_W + j] * row[POWER + j] + lane[ON_S + j] * row[B + j]
            row[ON_P + j] = row[ON_E + j] * row[SHRINK + j] + pushed * row[B + j]


# Blocks given one by one


@part
def _transition(logarithm, tile):
    """POWER and SHRINK from GAIN, where a or its logarithm was loaded."""
    one = tile.dtype.type(1)
    for n in range(tile.shape[0]):
        row = tile[n]
        if logarithm:
            for j in range(LANES):
                power, gain, _ = exp_parts(row[GAIN + j])
                row[POWER + j] = power
                row[SHRINK + j] = row[GAIN + j] * gain * (power + one)
        else:
            for j in range(LANES):
                a = row[GAIN + j]
                row[POWER + j] = a
                row[SHRINK + j] = (a - one) * (a + one)


@part
def _row(m, rows, whole):
    """Row of a table of `rows` rows that block m of `whole` reads."""
    return m if rows == whole else (0 if rows == 1 else m % rows)


@part
def _load(table, first, last, whole, tile, at):
    """Rows first … first + LANES - 1 of a table as columns of a tile; past `last` the last one again."""
    for j in range(LANES):
        row = table[_row(min(first + j, last - 1), table.shape[0], whole)]
        for n in range(row.shape[0]):
            tile[n, at + j] = row[n]


@part
def _load_block(first, last, whole, given, b, c, d, p, beta, tile, lane):
    _load(given, first, last, whole, tile, GAIN)
    _load(b, first, last, whole, tile, B)
    _load(c, first, last, whole, tile, C)
    _load(p, first, last, whole, tile, P)
    _load(d, first, last, whole, lane.reshape(1, lane.shape[0]), D)
    _load(beta, first, last, whole, lane.reshape(1, lane.shape[0]), BETA)


@njit(fastmath=_FAST)
def _blocks_forward(first, last, logarithm, post, clip, small, given, b, c, d, p, beta, value, kept):
    whole = value.shape[0]
    tile = np.zeros((given.shape[1], ENTRIES * LANES), given.dtype)
    lane = np.zeros(WHOLE * LANES, given.dtype)
    stop = whole * last // PARTS
    for m in range(whole * first // PARTS, stop, LANES):
        _load_block(m, stop, whole, given, b, c, d, p, beta, tile, lane)
        _transition(logarithm, tile)
        _arrow(post, tile, lane)
        _solve(tile, lane, clip, small)
        for j in range(min(LANES, stop - m)):
            value[m + j] = lane[TOTAL + j]
            kept[m + j] = lane[ROOT + j]


@part
def _weights(grad, kept, first, last, lane):
    """GRAD and ROOT of a tile's blocks, 0 and 1 for compliant and missing ones; whether any gradient is left."""
    some = False
    for j in range(LANES):
        m = min(first + j, last - 1)
        live = first + j < last and kept[m] >= 0
        lane[GRAD + j] = grad[m] if live else 0
        lane[ROOT + j] = kept[m] if live else 1
        some = some or lane[GRAD + j] != 0
    return some


@part
def _add(tables, share, m, whole, tile, at, j):
    """Lane j of a quantity onto its row of a table."""
    table = tables[share % tables.shape[0]]
    row = table[_row(m, table.shape[0], whole)]
    for n in range(row.shape[0]):
        row[n] += tile[n, at + j]


@njit(fastmath=_FAST)
def _blocks_backward(
    first, last, logarithm, post, small, given, b, c, d, p, beta, kept, grad, dgiven, db, dc, dd, dp, dbeta
):  # fmt: skip
    whole = kept.shape[0]
    tile = np.zeros((given.shape[1], ENTRIES * LANES), given.dtype)
    lane = np.zeros(WHOLE * LANES, given.dtype)
    line = lane.reshape(1, lane.shape[0])
    for share in range(first, last):
        stop = whole * (share + 1) // PARTS
        for m in range(whole * share // PARTS, stop, LANES):
            if not _weights(grad, kept, m, stop, lane):
                continue
            _load_block(m, stop, whole, given, b, c, d, p, beta, tile, lane)
            _transition(logarithm, tile)
            _arrow(post, tile, lane)
            _slopes_of_root(tile, lane, small[0])
            _through_arrow(post, tile, lane)
            if logarithm:
                for n in range(tile.shape[0]):
                    for j in range(LANES):
                        tile[n, ON_A + j] *= tile[n, POWER + j]
            for j in range(min(LANES, stop - m)):
                if lane[GRAD + j] != 0:
                    _add(dgiven, share, m + j, whole, tile, ON_A, j)
                    _add(db, share, m + j, whole, tile, ON_B, j)
                    _add(dc, share, m + j, whole, tile, ON_C, j)
                    _add(dp, share, m + j, whole, tile, ON_P, j)
                    _add(dd, share, m + j, whole, line, ON_D, j)
                    _add(dbeta, share, m + j, whole, line, ON_BETA, j)


# Blocks of a selective layer


@part
def _ends(scaled, delta, skip, beta, sample, k, first, lane):
    """STEP, SCALE, D and BETA of LANES channels of one token; past the last channel a step of 1."""
    one, width = lane.dtype.type(1), delta.shape[2]
    for j in range(LANES):
        d = min(first + j, width - 1)
        step = delta[sample, k, d] if first + j < width else one
        scale = step if scaled else one
        lane[STEP + j] = step
        lane[SCALE + j] = scale
        lane[D + j] = scale * skip[sample % skip.shape[0], k % skip.shape[1], d]
        lane[BETA + j] = scale * beta[sample % beta.shape[0], k % beta.shape[1], d % beta.shape[2]]


@part
def _token(rule, A, p, into, out, tile, lane):
    """Everything about a token's block that its arrowhead needs; A and p (N, LANES), B `into` (N,) and C `out` (N,)."""
    zero, one = tile.dtype.type(0), tile.dtype.type(1)
    for n in range(tile.shape[0]):
        row, An, pn, b, c = tile[n], A[n], p[n], into[n], out[n]
        if rule == BILINEAR:
            for j in range(LANES):
                z = lane[STEP + j] * An[j]
                power, gain, power_slope, gain_slope = slopes(_BILINEAR, z)
                row[POWER + j] = power
                row[GAIN + j] = gain
                row[POWER_SLOPE + j] = power_slope
                row[GAIN_SLOPE + j] = gain_slope
                row[SHRINK + j] = z * gain * (power + one)
        else:
            for j in range(LANES):
                z = lane[STEP + j] * An[j]
                power, gain, power_slope, gain_slope = slopes(_EXACT, z)
                row[POWER + j] = power
                row[GAIN + j] = gain
                row[POWER_SLOPE + j] = power_slope
                row[GAIN_SLOPE + j] = gain_slope
                row[SHRINK + j] = z * gain * (power + one)
        if rule == EULER:
            for j in range(LANES):
                row[GAIN + j] = one
                row[GAIN_SLOPE + j] = zero
        for j in range(LANES):
            row[B + j] = row[GAIN + j] * lane[STEP + j] * b
            row[C + j] = lane[SCALE + j] * c
            row[P + j] = pn[j]


@part
def _through_token(A, into, out, dA, dp, dB, dC, tile, lane):
    """ON_STEP and ON_SCALE are added to, and so are the gradients of A and p (N, LANES), B and C (N,)."""
    zero = tile.dtype.type(0)
    for n in range(tile.shape[0]):
        row, An, b, c, to_A, to_p = tile[n], A[n], into[n], out[n], dA[n], dp[n]
        to_b, to_c = zero, zero
        for j in range(LANES):
            held = row[ON_B + j] * row[GAIN + j]
            dz = row[ON_A + j] * row[POWER_SLOPE + j] + row[ON_B + j] * row[GAIN_SLOPE + j] * lane[STEP + j] * b
            lane[ON_STEP + j] += dz * An[j] + held * b
            row[ON_E + j] = dz * lane[STEP + j]
            to_b += held * lane[STEP + j]
        for j in range(LANES):
            lane[ON_SCALE + j] += row[ON_C + j] * c
            to_c += row[ON_C + j] * lane[SCALE + j]
        for j in range(LANES):
            to_A[j] += row[ON_E + j]
            to_p[j] += row[ON_P + j]
        dB[n] += to_b
        dC[n] += to_c


@njit(fastmath=_FAST)
def _selective_forward(first, last, rule, post, scaled, clip, small, delta, A, into, out, skip, p, beta, value, kept):
    width = delta.shape[2]
    tile = np.zeros((A.shape[1], ENTRIES * LANES), A.dtype)
    lane = np.zeros(WHOLE * LANES, A.dtype)
    for sample in range(first, last):
        for k in range(delta.shape[1]):
            for group in range(A.shape[0]):
                start = group * LANES
                _ends(scaled, delta, skip, beta, sample, k, start, lane)
                _token(rule, A[group], p[group], into[sample, k], out[sample, k], tile, lane)
                _arrow(post, tile, lane)
                _solve(tile, lane, clip, small)
                for j in range(min(LANES, width - start)):
                    value[sample, k, start + j] = lane[TOTAL + j]
                    kept[sample, k, start + j] = lane[ROOT + j]


@njit(fastmath=_FAST)
def _selective_backward(
    first, last, rule, post, scaled, small, delta, A, into, out, skip, p, beta, kept, grad, ddelta, dA, dB, dC, dD, dp
):  # fmt: skip
    samples, width, tiny = delta.shape[0], delta.shape[2], small[0]
    tile = np.zeros((A.shape[1], ENTRIES * LANES), A.dtype)
    lane = np.zeros(WHOLE * LANES, A.dtype)
    for share in range(first, last):
        for sample in range(samples * share // PARTS, samples * (share + 1) // PARTS):
            own = sample if skip.shape[0] == samples and skip.shape[1] == delta.shape[1] else share
            for k in range(delta.shape[1]):
                for group in range(A.shape[0]):
                    start = group * LANES
                    if not _weights(grad[sample, k], kept[sample, k], start, width, lane):
                        continue
                    _ends(scaled, delta, skip, beta, sample, k, start, lane)
                    b, c = into[sample, k], out[sample, k]
                    _token(rule, A[group], p[group], b, c, tile, lane)
                    _arrow(post, tile, lane)
                    _slopes_of_root(tile, lane, tiny)
                    _through_arrow(post, tile, lane)
                    for j in range(LANES):
                        supplied = lane[ON_D + j] * lane[D + j] + lane[ON_BETA + j] * lane[BETA + j]
                        lane[ON_SCALE + j] = supplied / max(lane[SCALE + j], tiny)
                        lane[ON_STEP + j] = 0
                    _through_token(
                        A[group], b, c, dA[share, group], dp[share, group], dB[sample, k], dC[sample, k], tile, lane
                    )  # fmt: skip
                    for j in range(min(LANES, width - start)):
                        ddelta[sample, k, start + j] = lane[ON_STEP + j] + (lane[ON_SCALE + j] if scaled else 0)
                        dD[own, k % dD.shape[1], start + j] += lane[ON_D + j] * lane[SCALE + j]


# Autograd


def _arrays(*tensors):
    return tuple(t.detach().contiguous().numpy() for t in tensors)


def _small(like):
    """(smallest normal number, rounding unit) of a tensor's precision, as numpy scalars."""
    real, numbers = like.detach().numpy().dtype.type, torch.finfo(like.dtype)
    return real(numbers.tiny), real(numbers.eps)


class _Blocks(torch.autograd.Function):
    """(a or log a, b, c, d, p, beta) as tables of rows -> value (M,); a table with fewer rows than M is read cyclically."""

    @staticmethod
    def forward(ctx, whole, logarithm, output, clip, *tables):
        value, kept = (tables[0].new_zeros(whole) for _ in range(2))
        ctx.how, ctx.small = (logarithm, output == "post"), _small(value)
        ends = _arrays(*tables, value, kept)
        over_batch(_blocks_forward, PARTS, torch.get_num_threads(), *ctx.how, clip, ctx.small, *ends)
        ctx.save_for_backward(kept, *tables)
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        kept, *tables = ctx.saved_tensors
        grads = [x.new_zeros(1 if len(x) == len(kept) else PARTS, *x.shape) for x in tables]
        ends = _arrays(*tables, kept, grad, *grads)
        over_batch(_blocks_backward, PARTS, torch.get_num_threads(), *ctx.how, ctx.small, *ends)
        return None, None, None, None, *(g.sum(0) if len(g) > 1 else g[0] for g in grads)


class _Selective(torch.autograd.Function):
    """(delta, A, B, C, D (1 or B, 1 or L, D), p) -> value (B, L, D); beta (1 or B, 1 or L, 1 or D) has no gradient."""

    @staticmethod
    def forward(ctx, rule, output, scaled, clip, beta, delta, A, B, C, D, p):
        value, kept = (torch.zeros(delta.shape, dtype=delta.dtype) for _ in range(2))
        ctx.how, ctx.small = (rule, output == "post", scaled), _small(delta)
        given = _arrays(delta, _lanes(A, -1.0), B, C, D, _lanes(p, 1.0), beta)
        ends = _arrays(value, kept)
        over_batch(_selective_forward, len(delta), torch.get_num_threads(), *ctx.how, clip, ctx.small, *given, *ends)
        ctx.save_for_backward(kept, beta, delta, A, B, C, D, p)
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        kept, beta, delta, A, B, C, D, p = ctx.saved_tensors
        given = _arrays(delta, _lanes(A, -1.0), B, C, D, _lanes(p, 1.0), beta, kept, grad)
        ddelta, dB, dC = (torch.zeros(x.shape, dtype=x.dtype) for x in (delta, B, C))
        dA, dp = (torch.zeros(PARTS, *given[1].shape, dtype=A.dtype) for _ in range(2))
        own = D.shape[:2] == delta.shape[:2]
        dD = D.new_zeros(len(D) if own else PARTS, *D.shape[1:])
        ends = _arrays(ddelta, dA, dB, dC, dD, dp)
        over_batch(_selective_backward, PARTS, torch.get_num_threads(), *ctx.how, ctx.small, *given, *ends)
        through = dD if own else dD.sum(0, keepdim=True)
        dA, dp = (x.sum(0).transpose(1, 2).reshape(-1, A.shape[1])[: len(A)] for x in (dA, dp))
        return None, None, None, None, None, ddelta, dA, dB, dC, through, dp


def _lanes(x, fill):
    """(D, N) -> (groups, N, LANES), filled up with `fill`."""
    missing = -len(x) % LANES
    return F.pad(x.detach(), (0, 0, 0, missing), value=fill).view(-1, LANES, x.shape[1]).transpose(1, 2)


@uncompiled
def compiled_violation(a, b, c, d, p, beta, logarithm, output, clip):
    """`dissipation.lmi_violation` of real tensors on a CPU."""
    dtype = torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.promote_types(c.dtype, p.dtype))
    shape = torch.broadcast_shapes(*(x.shape for x in (a, b, c, p)), (*d.shape, 1), (*beta.shape, 1))
    tables = [_table(x.to(dtype), shape) for x in (a, b, c, d.unsqueeze(-1), p, beta.unsqueeze(-1))]
    return _Blocks.apply(math.prod(shape[:-1]), logarithm, output, clip, *tables).view(shape[:-1])


def _table(x, shape):
    """Rows of x: as they are where x repeats over leading sizes of `shape`, one for every block elsewhere."""
    repeats = x.shape[:-1].numel() == 1 or x.shape[:-1] == shape[len(shape) - x.ndim : -1]
    return x.reshape(-1, x.shape[-1]) if repeats else x.expand(*shape[:-1], x.shape[-1]).reshape(-1, x.shape[-1])


@uncompiled
def compiled_selective(delta, A, B, C, D, p, beta, discretization, output, supply, clip):
    """`dissipation.selective_violation` of real tensors on a CPU."""
    rule = {"zoh": EXACT, "euler": EULER, "bilinear": BILINEAR}[discretization]
    D, beta = (x.view((1,) * (3 - x.ndim) + x.shape) for x in (D, beta))
    return _Selective.apply(rule, output, supply == "delta", clip, beta, delta, A, B, C, D, p)
