"""Discretization rules: how x'(t) = A x(t) + B u(t) becomes h_k = a h_{k-1} + b B u_k over a step delta.

| rule | a | b | order on held input | order on smooth input |
|---|---|---|---|---|
| zoh | exp(delta A) | (exp(delta A) - 1)/A | exact | 1 |
| bilinear | (1 + delta A/2)/(1 - delta A/2) | delta/(1 - delta A/2) | 2 | 1 |
| euler | exp(delta A) | delta | 1 | 1 |
| averaged | exp(delta' A) | phi1(delta' A) on the mean of two neighbouring inputs | – | 2 |

`averaged` uses delta' = (delta_{k-1} + delta_k)/2 and the input (delta_{k-1} B_{k-1} u_{k-1} + delta_k B_k u_k)/2:
the trapezoid between two samples. Its state belongs to the time of the sample itself, so the first sample, before
which no time has passed, leaves the initial state unchanged.

Everything is safe at A -> 0 and delta -> 0, for real and complex A, in value and in gradient.
"""

import math

import torch

RULES = ("zoh", "bilinear", "euler", "averaged")
STEP_RULES = ("delta", "semigroup", "none")

_SERIES_BELOW = 0.1
_TERMS = 10


def check_rule(rule: str, allowed: tuple[str, ...] = RULES, who: str = "this function") -> str:
    """Return `rule`; ValueError names the allowed ones."""
    if rule not in allowed:
        raise ValueError(f"unknown discretization {rule!r} for {who}: choose one of {', '.join(allowed)}")
    return rule


def check_step_rule(rule: str) -> str:
    """Return `rule`; ValueError names the allowed ones."""
    if rule not in STEP_RULES:
        raise ValueError(f"unknown step_rule {rule!r}: choose one of {', '.join(STEP_RULES)}")
    return rule


def phi1(z: torch.Tensor) -> torch.Tensor:
    """(exp(z) - 1)/z, with phi1(0) = 1; real or complex, accurate to rounding everywhere."""
    small = z.abs() < _SERIES_BELOW
    near = torch.where(small, z, torch.zeros_like(z))
    series = torch.ones_like(z)
    for k in range(_TERMS, 0, -1):
        series = 1 + near * series / (k + 1)
    far = torch.where(small, torch.ones_like(z), z)
    return torch.where(small, series, torch.expm1(far) / far)


def log_transition(delta: torch.Tensor, A: torch.Tensor, rule: str) -> torch.Tensor:
    """Principal log of the one-step transition a, so that a^l = exp(l log a). Broadcasts delta against A.

    For bilinear it is 2 artanh(delta A/2) and A must be complex (a real transition may be negative).
    """
    z = delta * A
    if rule != "bilinear":
        return z
    if not z.is_complex():
        raise ValueError("the log of a bilinear transition needs complex A: pass A.to(torch.complex64) or complex128")
    z = torch.where(z == -2, torch.full_like(z, -2 + torch.finfo(z.real.dtype).eps), z)  # a = 0 has no log
    return torch.log1p(z / 2) - torch.log1p(-z / 2)


def coefficients(delta: torch.Tensor, A: torch.Tensor, rule: str = "zoh") -> tuple[torch.Tensor, torch.Tensor]:
    """(a, b) of h_k = a h_{k-1} + b B u_k, elementwise over the diagonal A; delta and A broadcast.

    For `averaged` delta is the mean of the two steps' deltas and b multiplies the mean input of the two samples.
    Raises ValueError for an unknown rule.
    """
    check_rule(rule)
    z = delta * A
    if rule == "bilinear":
        inverse = 1 / (1 - z / 2)
        return (1 + z / 2) * inverse, delta * inverse
    if rule == "euler":
        return torch.exp(z), delta.to(z.dtype).expand_as(z)
    return torch.exp(z), delta * phi1(z)


def semigroup(a: torch.Tensor, b: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Coefficients (a^s, (a^s - 1)/(a - 1) b) of s steps of h <- a h + b v on held v; s may be any positive number.

    A negative real a has no real power; sign(a) |a|^s is used, which is right at s = 1.
    """
    if scale == 1:
        return a, b
    log = torch.log(a) if a.is_complex() else torch.log(a.abs().clamp_min(torch.finfo(a.dtype).tiny))
    power = torch.exp(scale * log) if a.is_complex() else torch.sign(a) * torch.exp(scale * log)
    ratio = scale * phi1(scale * log) / phi1(log)
    if not a.is_complex():
        negative = a < 0
        ratio = torch.where(negative, (power - 1) / torch.where(negative, a - 1, torch.ones_like(a)), ratio)
    return power, ratio * b


def scaled_transition(delta, A, rule, step_scale=1.0, step_rule="delta"):
    """(log a, b) of h_k = a h_{k-1} + b B u_k at `step_scale` times the trained step; complex diagonal A, zoh,
    bilinear, averaged.

    step_rule "delta" multiplies delta; "semigroup" takes step_scale steps of the trained map: (s log a, (a^s - 1)/(a
    - 1) b).
    """
    if step_rule != "semigroup":
        delta = delta * step_scale
        return log_transition(delta, A, rule), coefficients(delta, A, rule)[1]
    log_a = log_transition(delta, A, rule)
    b = coefficients(delta, A, rule)[1]
    return step_scale * log_a, step_scale * phi1(step_scale * log_a) / phi1(log_a) * b


def phi1_matrix(Z: torch.Tensor) -> torch.Tensor:
    """phi1 of square matrices (…, N, N), from the exponential of [[Z, I], [0, 0]]; Z may be singular."""
    n = Z.shape[-1]
    block = torch.zeros(*Z.shape[:-2], 2 * n, 2 * n, dtype=Z.dtype, device=Z.device)
    block[..., :n, :n] = Z
    block[..., :n, n:] = torch.eye(n, dtype=Z.dtype, device=Z.device)
    return torch.linalg.matrix_exp(block)[..., :n, n:]


def dense(delta: torch.Tensor, A: torch.Tensor, B: torch.Tensor, rule: str = "zoh") -> tuple[torch.Tensor, torch.Tensor]:
    """Dense discretization: A (…, N, N), B (…, N, M), delta (…) -> (Abar, Bbar). zoh or bilinear; A may be singular."""
    check_rule(rule, ("zoh", "bilinear"), "a dense matrix")
    Z = delta[..., None, None] * A
    input_ = delta[..., None, None] * B
    if rule == "zoh":
        return torch.linalg.matrix_exp(Z), phi1_matrix(Z) @ input_
    identity = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    left = identity - Z / 2
    return torch.linalg.solve(left, identity + Z / 2), torch.linalg.solve(left, input_)


def inverse_softplus(x: torch.Tensor) -> torch.Tensor:
    """y with log(1 + e^y) = x > 0."""
    return x + torch.log(-torch.expm1(-x))


def log_uniform(shape: tuple[int, ...], low: float, high: float) -> torch.Tensor:
    """Logs of numbers drawn log-uniformly from [low, high]."""
    if not 0 < low <= high:
        raise ValueError(f"delta range [{low}, {high}] must satisfy 0 < low <= high")
    return math.log(low) + torch.rand(*shape) * (math.log(high) - math.log(low))
