"""The one-step dissipation block of a state space model and its largest eigenvalue (Zubic & Scaramuzza, arXiv 2505.11602).

For h_k = a h_{k-1} + b u_k with output y_k and storage V(h) = h^H P h / 2, the inequality

    V(h_k) - V(h_{k-1}) - Re <u_k, y_k> + beta |h_{k-1}|^2 <= 0   for all h_{k-1}, u_k

holds exactly when the block L is negative semidefinite (its left side is z^H L z / 2, z = (h_{k-1}, u_k)):

| output | y_k | L11 | L12 | L22 |
|---|---|---|---|---|
| post | c h_k + d u_k | a^H P a - P + 2 beta | a^H (P b - c^H) | b^H P b - c b - (c b)^H - d - d^H |
| pre | c h_{k-1} + d u_k | a^H P a - P + 2 beta | a^H P b - c^H | b^H P b - d - d^H |

Supply "delta" multiplies the supply and beta by the step: c, d and beta become delta c, delta d and delta beta. Only it
has a limit as delta -> 0. With diagonal a and P = diag(p) the block is an arrowhead, diag(e) bordered by w and closed by
s, and its largest eigenvalue is the largest root of x = s + sum w_i^2 / (x - e_i).

`lmi_violation` takes any blocks, `selective_violation` the quantities of a selective layer, without the (B, L, D, N)
arrays between. On a CPU with numba both run compiled (`backend`); the torch form runs anywhere and is what the compiled
one is tested against. Gradients are first order only.
"""

import torch

from continuity import native
from continuity.discretization import check_rule
from continuity.scan import unit_gain

OUTPUTS = ("post", "pre")
SUPPLIES = ("unit", "delta")
RULES = ("zoh", "bilinear", "euler")
LIMIT = 40


def backend(*tensors: torch.Tensor) -> str:
    """Name of the computation used for such tensors with a diagonal storage: "numba" or "torch"."""
    compiled = native.HAVE_NUMBA and all(t.device.type == "cpu" and not t.is_complex() for t in tensors)
    return "numba" if compiled else "torch"


def lmi_block(a, b, c, d, p, beta=0.0, output="post", supply="unit", delta=None, dense=False):
    """The block L (…, N+1, N+1), Hermitian, as the module's table writes it.

    a, b, c, p (…, N), d (…); real or complex, p real. With `dense` a and p are matrices (…, N, N), p Hermitian. beta and,
    for supply "delta", delta are numbers or (…). Raises ValueError for unknown choices and shapes that do not fit.
    """
    a, b, c, d, p, beta = _prepared(a, b, c, d, p, beta, output, supply, delta, dense)
    if not dense:
        a, p = torch.diag_embed(a), torch.diag_embed(p)
    dtype = torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.promote_types(c.dtype, p.dtype))
    a, b, c, d, p = (x.to(dtype) for x in (a, b, c, d, p))
    eye = torch.eye(b.shape[-1], dtype=dtype, device=b.device)
    corner = a.mH @ p @ a - p + 2 * beta[..., None, None] * eye
    pushed = (p @ b.unsqueeze(-1)).squeeze(-1)  # (…, N), P b
    stored = (b.conj() * pushed).sum(-1) - d - d.conj()
    if output == "post":
        border = (a.mH @ (pushed - c.conj()).unsqueeze(-1)).squeeze(-1)
        through = (c * b).sum(-1)
        stored = stored - through - through.conj()
    else:
        border = (a.mH @ pushed.unsqueeze(-1)).squeeze(-1) - c.conj()
    shape = torch.broadcast_shapes(corner.shape[:-2], border.shape[:-1], stored.shape)
    n = b.shape[-1]
    border = border.expand(*shape, n)
    above = torch.cat([corner.expand(*shape, n, n), border.unsqueeze(-1)], -1)
    below = torch.cat([border.conj(), stored.expand(shape).unsqueeze(-1)], -1).unsqueeze(-2)
    return torch.cat([above, below], -2)


def lmi_violation(
    a, b, c, d, p, beta=0.0, *, output="post", supply="unit", delta=None, logarithm=False, dense=False, clip=True
):  # fmt: skip
    """Largest eigenvalue of the block, clipped at 0 unless `clip` is False: (…), differentiable.

    a, b, c and p (…, N) real, d (…), broadcast against one another. With `logarithm` a is the logarithm of the transition,
    delta A: then a^2 - 1 is expm1(2 delta A), which in float32 is right where a^2 - 1 cancels. With `dense` a and p are
    matrices (…, N, N), complex numbers are allowed, and the eigenvalue comes from eigvalsh.

    Where max e < 0 a sign test tells violating blocks from the others at the cost of one sum; compliant blocks have value
    and gradient 0. Raises ValueError for a transition that is not diagonal or not stable (|a| > 1) unless `dense`,
    negative p or beta, unknown choices, shapes that do not fit.
    """
    if dense:
        block = lmi_block(a, b, c, d, p, beta, output, supply, delta, dense=True)
        top = torch.linalg.eigvalsh(block)[..., -1]
        return top.clamp_min(0) if clip else top
    a, b, c, d, p, beta = _prepared(a, b, c, d, p, beta, output, supply, delta, dense)
    if any(x.is_complex() for x in (a, b, c, d, p)):
        raise ValueError("the arrowhead root needs real a, b, c, d and p: pass dense=True for complex systems")
    _check_stable(a, logarithm)
    if backend(a, b, c, d, p) == "numba":
        from continuity.dissipation_kernels import compiled_violation

        return compiled_violation(a, b, c, d, p, beta, logarithm, output, clip)
    shrink = torch.expm1(2 * a) if logarithm else (a - 1) * (a + 1)
    return largest_eigenvalue(*arrowhead(a.exp() if logarithm else a, shrink, b, c, d, p, beta, output), clip=clip)


def selective_violation(
    delta, A, B, C, D, p, beta=0.0, *, discretization="zoh", output="post", supply="unit", clip=True
):  # fmt: skip
    """Largest eigenvalue of the block of every token and channel of a selective layer: (B, L, D), differentiable.

    delta (B, L, D); A (D, N) real and negative; B, C (B, L, N); D (D,), or (B, L, D) where it varies, or None; p (N,) or
    (D, N); beta a number or (B, L, D), without gradient; discretization zoh, bilinear or euler. Computed in float32 at
    least. Raises ValueError as `lmi_violation`.
    """
    check_rule(discretization, RULES, "a one-step block")
    delta, A, B, C, D, p, beta = _selective(delta, A, B, C, D, p, beta, output, supply)
    if backend(delta, A, B, C, D, p) == "numba":
        from continuity.dissipation_kernels import compiled_selective

        return compiled_selective(delta, A, B, C, D, p, beta, discretization, output, supply, clip)
    a, shrink, b = one_step(delta, A, B, discretization)
    c, d = C.unsqueeze(2), D
    if supply == "delta":
        c, d, beta = delta.unsqueeze(-1) * c, delta * d, delta * beta
    return largest_eigenvalue(*arrowhead(a, shrink, b, c, d, p, beta, output), clip=clip)


def scaled_violation(delta, A, B, C, D, p, beta=0.0, *, discretization="zoh", output="post", supply="unit", clip=True):
    """Largest eigenvalue of S^{-1/2} L S^{-1/2}, S = diag(p (1 - a^2), sum p b^2 + 2 sum |c b| + 2 |D|): (B, L, D).

    Every diagonal entry of the scaled block lies in [-1, 1] for beta = 0, so that no rescaling of B, C and D lowers it,
    provided p is rescaled with them (`free_scale`). Arguments as `selective_violation`; no gradient.
    """
    check_rule(discretization, RULES, "a one-step block")
    delta, A, B, C, D, p, beta = (x.detach() for x in _selective(delta, A, B, C, D, p, beta, output, supply))
    beta = beta.expand_as(delta)
    values = []
    for first in range(0, len(delta), _at_once(delta, A)):
        part = slice(first, first + _at_once(delta, A))
        step, through = delta[part], D if D.ndim == 1 else D[part]
        a, shrink, b = one_step(step, A, B[part], discretization)
        c, rate = C[part].unsqueeze(2), beta[part]
        if supply == "delta":
            c, through, rate = step.unsqueeze(-1) * c, step * through, step * rate
        e, w, s = arrowhead(a, shrink, b, c, through, p, rate, output)
        tiny = torch.finfo(e.dtype).tiny
        inner = (-p * shrink).clamp_min(tiny)
        outer = ((p * b.square()).sum(-1) + 2 * (c * b).abs().sum(-1) + 2 * through.abs()).clamp_min(tiny)
        w = w / inner.sqrt() / outer.sqrt().unsqueeze(-1)
        values.append(largest_eigenvalue(e / inner, w, s / outer, clip=clip))
    return torch.cat(values)


def free_scale(delta, A, B, C, p, *, discretization="zoh", supply="unit") -> torch.Tensor:
    """The scale g of the storage g p at which input and output maps balance: median |c| / (median |b| · geometric mean p).

    B -> r B, C -> s C / r moves g to s g / r^2, so that metrics with the storage g p do not see such a rescaling.
    """
    delta, A, B, C, _, p, _ = (x.detach() for x in _selective(delta, A, B, C, None, p, 0.0, "post", supply))
    tiny = torch.finfo(delta.dtype).tiny
    per_step = (unit_gain(delta.unsqueeze(-1) * A, discretization) * B.abs().unsqueeze(2)).median().clamp_min(tiny)
    b_over_c = per_step * (1.0 if supply == "delta" else delta.median())
    return C.abs().median().clamp_min(tiny) / b_over_c / p.clamp_min(tiny).log().mean().exp()


def violating_share(violation: torch.Tensor, tolerance: float = 0.0) -> float:
    """Share of blocks whose largest eigenvalue lies above `tolerance`."""
    return (violation > tolerance).double().mean().item()


def feasible_beta(delta, A, p, supply="unit") -> torch.Tensor:
    """Largest beta that some input and output maps could meet, min_i p_i (1 - a_i^2) / 2 of each token: (B, L, D).

    a = exp(delta A). For supply "delta" it is divided by delta.
    """
    room = (-p * torch.expm1(2 * delta.unsqueeze(-1) * A)).amin(-1) / 2
    return room / delta if supply == "delta" else room


def check_beta(delta, A, p, beta, supply="unit") -> None:
    """ValueError where beta cannot be met on some token, with the floor of the largest eigenvalue that it causes there."""
    room = feasible_beta(delta, A, p, supply).detach()
    excess = (beta - room) * (delta.detach() if supply == "delta" else 1)
    if (excess >= 0).any():
        raise ValueError(
            f"beta {beta:g} is beyond what the storage loses in a step (at most {room.min().item():.3g} at the smallest step): "
            f"whatever B, C and D are, the largest eigenvalue stays at or above {2 * excess.max().item():.3g}; "
            f"choose beta below {room.min().item():.3g} or larger steps"
        )


def one_step(delta, A, B, discretization):
    """(a, a^2 - 1, b), each (B, L, D, N), of delta (B, L, D), A (D, N), B (B, L, N); a^2 - 1 without cancellation."""
    z = delta.unsqueeze(-1) * A
    gain = unit_gain(z, discretization)
    if discretization == "bilinear":
        a = 1 + z * gain
        shrink = z * gain * (a + 1)
    else:
        a, shrink = torch.exp(z), torch.expm1(2 * z)
    return a, shrink, gain * delta.unsqueeze(-1) * B.unsqueeze(2)


def arrowhead(a, shrink, b, c, d, p, beta, output):
    """(e (…, N), w (…, N), s (…)) of the block; shrink is a^2 - 1."""
    e = p * shrink + 2 * beta.unsqueeze(-1)
    if output == "post":
        w = a * (p * b - c)
        s = (p * b.square() - 2 * c * b).sum(-1) - 2 * d
    else:
        w = p * a * b - c
        s = (p * b.square()).sum(-1) - 2 * d
    shape = torch.broadcast_shapes(e.shape, w.shape, (*s.shape, 1))
    return e.expand(shape), w.expand(shape), s.expand(shape[:-1])


def largest_eigenvalue(e, w, s, clip=False):
    """Largest eigenvalue (…) of diag(e) bordered by w (…, N) and closed by s (…); with `clip` not below 0.

    Its gradient is that of a simple eigenvalue, the square of its eigenvector; where w vanishes at the top pole and the
    root does not pass it, the eigenvalue is max e.
    """
    if not clip:
        return _Root.apply(e, w, s)
    top = e.detach().amax(-1)
    room = torch.where(top.unsqueeze(-1) < 0, -e.detach(), torch.ones_like(e))
    violating = (top >= 0) | (s.detach() + (w.detach().square() / room).sum(-1) > 0)
    at = violating.reshape(-1).nonzero().squeeze(-1)
    n = e.shape[-1]
    roots = _Root.apply(e.reshape(-1, n)[at], w.reshape(-1, n)[at], s.reshape(-1)[at])
    return s.new_zeros(s.numel()).index_put((at,), roots.clamp_min(0)).view(s.shape)


class _Root(torch.autograd.Function):
    """The root in t = x - max e, from above, by interpolation that osculates with one pole; every step is a lower bound.

    Where a step more than grows a lower bound by half, which is what happens next to a pole that hardly carries weight,
    the next point is the geometric mean of the bounds.
    """

    @staticmethod
    def forward(ctx, e, w, s):
        top, at = e.max(-1)
        gap, squares, sigma = top.unsqueeze(-1) - e, w.square(), s - top
        tiny, zero = torch.finfo(e.dtype).tiny, torch.zeros_like(sigma)
        head = torch.where(gap == 0, squares, torch.zeros_like(squares)).sum(-1)
        low = _larger_of_two(sigma, zero, head)
        high = _larger_of_two(sigma, zero, squares.sum(-1))
        t = _bracketed(gap, squares, sigma, low, high, top.abs() + s.abs() + high)
        v = w / (t.unsqueeze(-1) + gap + tiny)
        last = (1 + v.square().sum(-1)).rsqrt()
        deflated = (t <= 0) & (head == 0)
        v = v * last.unsqueeze(-1)
        v = torch.where(deflated.unsqueeze(-1), torch.zeros_like(v).scatter(-1, at.unsqueeze(-1), 1.0), v)
        ctx.save_for_backward(v, torch.where(deflated, torch.zeros_like(last), last))
        return top + t

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        v, last = ctx.saved_tensors
        wide = grad.unsqueeze(-1)
        return wide * v.square(), 2 * wide * v * last.unsqueeze(-1), grad * last.square()


def _bracketed(gap, squares, sigma, low, high, scale):
    """Root t in [low, high] of t = sigma + sum squares / (t + gap)."""
    numbers = torch.finfo(sigma.dtype)
    t, done = high, torch.zeros_like(sigma, dtype=torch.bool)
    for _ in range(LIMIT):
        inverse = 1 / (t.unsqueeze(-1) + gap + numbers.tiny)
        pull = squares * inverse
        total, slope = pull.sum(-1), (pull * inverse).sum(-1)
        above = sigma + total < t
        high = torch.where(above, t, high)
        ratio = total / slope.clamp_min(numbers.tiny)
        new = torch.maximum(_larger_of_two(sigma, t - ratio, total * ratio), low)
        met = (new - t).abs() <= 2 * numbers.eps * (new + scale / (1 + slope))
        crawls = ~above & (new > 1.5 * t) & ~met
        low = new
        t = torch.where(done, t, torch.where(crawls, torch.sqrt(low * high), low))
        done = done | met
        if done.all():
            break
    return t


def _larger_of_two(x, y, q):
    """Larger eigenvalue of [[x, r], [r, y]] with r^2 = q >= 0."""
    half = (x - y).abs() / 2
    excess = q / (half + torch.sqrt(half.square() + q)).clamp_min(torch.finfo(x.dtype).tiny)
    return torch.maximum(x, y) + excess


def _at_once(delta, A) -> int:
    """Samples whose blocks are held at once where nothing needs a gradient."""
    return max(1, 2**18 // (delta[0].numel() * A.shape[1]))


def _prepared(a, b, c, d, p, beta, output, supply, delta, dense):
    """The six quantities as tensors of float32 at least, supply applied."""
    _check_choices(output, supply)
    a, b, c, p = (torch.as_tensor(x) for x in (a, b, c, p))
    real = torch.promote_types(b.dtype, torch.float32).to_real()
    n = b.shape[-1] if b.ndim else 0
    if b.ndim < 1 or c.ndim < 1 or c.shape[-1] != n or a.ndim < 1 or a.shape[-1] != n or p.ndim < 1 or p.shape[-1] != n:
        raise ValueError(f"a, b, c and p need one last size N, got {[tuple(x.shape) for x in (a, b, c, p)]}")
    for name, x in (("a", a), ("p", p)):
        matrix = x.ndim > 1 and x.shape[-2] == n and x.ndim > max(b.ndim, c.ndim)
        if dense and (x.ndim < 2 or x.shape[-2] != n):
            raise ValueError(f"dense=True needs {name} as matrices (…, {n}, {n}), got {tuple(x.shape)}")
        if matrix and not dense:
            raise ValueError(f"{name} {tuple(x.shape)} looks like a matrix: pass its diagonal (…, {n}), or dense=True")
    d, beta = (x if torch.is_tensor(x) else torch.as_tensor(x, dtype=real, device=b.device) for x in (d, beta))
    a, b, c, d, p, beta = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (a, b, c, d, p, beta))
    _check_sign("beta", beta)
    if not dense:
        _check_sign("p", p)
    if supply == "delta":
        if delta is None:
            raise ValueError('supply "delta" needs delta, the step of every block')
        delta = torch.as_tensor(delta, dtype=real, device=b.device)
        c, d, beta = delta.unsqueeze(-1) * c, delta * d, delta * beta
    return a, b, c, d, p, beta


def _selective(delta, A, B, C, D, p, beta, output, supply):
    """A selective layer's quantities in one real dtype."""
    _check_choices(output, supply)
    if delta.ndim != 3 or A.ndim != 2 or B.ndim != 3 or B.shape != C.shape:
        shapes = [tuple(x.shape) for x in (delta, A, B, C)]
        raise ValueError(f"a selective layer has delta (B, L, D), A (D, N), B and C (B, L, N), got {shapes}")
    if delta.shape[:2] != B.shape[:2] or A.shape != (delta.shape[2], B.shape[2]):
        raise ValueError(f"delta {tuple(delta.shape)}, A {tuple(A.shape)} and B {tuple(B.shape)} do not belong together")
    dtype = torch.promote_types(torch.promote_types(delta.dtype, A.dtype), torch.float32)
    D = delta.new_zeros(delta.shape[2]) if D is None else D
    delta, A, B, C, D, p = (x.to(dtype) for x in (delta, A, B, C, D, torch.as_tensor(p, device=A.device)))
    if D.shape not in (delta.shape[2:], delta.shape) or p.shape not in (A.shape[1:], A.shape):
        raise ValueError(f"D {tuple(D.shape)} must be (D,) or (B, L, D), and p {tuple(p.shape)} must be (N,) or (D, N)")
    if (A.detach() > 0).any():
        raise ValueError("A must be negative: a positive entry grows without bound and no storage dissipates")
    _check_sign("p", p)
    beta = torch.as_tensor(beta, dtype=dtype, device=A.device).detach()
    _check_sign("beta", beta)
    return delta, A, B, C, D, p.expand_as(A), beta


def _check_choices(output, supply) -> None:
    for name, value, known in (("output", output, OUTPUTS), ("supply", supply, SUPPLIES)):
        if value not in known:
            raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(known)}")


def _check_sign(name: str, value: torch.Tensor) -> None:
    if not value.is_complex() and (value.detach() < 0).any():
        raise ValueError(f"{name} must not be negative, its smallest entry is {value.min().item():g}")


def _check_stable(a, logarithm) -> None:
    over = (a.detach() > 0) if logarithm else (a.detach().abs() > 1)
    if over.any():
        found = a.detach().exp().max().item() if logarithm else a.detach().abs().max().item()
        raise ValueError(f"transitions must be stable, |a| <= 1: the largest is {found:g}")
