"""Mamba-3, single input: exponential-trapezoidal rule, rotated B and C, no convolution (Lahoti et al. 2026)."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from continuity.discretization import inverse_softplus, log_uniform, phi1
from continuity.layers.base import SequenceLayer, check_count
from continuity.layers.matrix_scan import decayed_attention
from continuity.layers.parts import HeadNorm, full


class Mamba3(SequenceLayer):
    """S_k = alpha S_(k-1) + beta v_(k-1) k_(k-1)^T + gamma v_k k_k^T,  y_k = S_k q_k + D v_k,  out = W_out (y *
    SiLU(z)).

    alpha = e^(A Delta), gamma = lambda Delta, beta = (1 - lambda) Delta alpha, lambda = sigmoid; A = -softplus(.), at
    most -1e-4; k and q are B and C, normalised, with a bias a head, rotated in pairs by theta_k = theta_(k-1) + pi
    tanh(angle_k) Delta_k. Options: d_state N; expand; head_dim; rope_fraction of the N channels that turn; delta at u
    = 0 log-uniform in [dt_min, dt_max]; step_rule: "delta" scales Delta everywhere, "semigroup" alpha, the angle and
    both input gains; as_released makes A the constant +1e-4 of one published version (no decay that depends on data;
    a growing state).
    """

    continuous = True
    dynamics = ("dt_bias",)

    def __init__(
        self,
        d_model,
        d_state=64,
        expand=2,
        head_dim=None,
        rope_fraction=0.5,
        dt_min=0.001,
        dt_max=0.1,
        step_rule="delta",
        as_released=False,
    ):
        super().__init__(d_model, step_rule)
        self.inner = check_count("expand", expand) * d_model
        head_dim = math.gcd(self.inner, 32) if head_dim is None else check_count("head_dim", head_dim)
        if self.inner % head_dim:
            raise ValueError(f"head_dim must divide expand * d_model: {head_dim} does not divide {self.inner}")
        self.d_state, self.n_heads = check_count("d_state", d_state, multiple=2), self.inner // head_dim
        if not 0 <= rope_fraction <= 1:
            raise ValueError(f"rope_fraction must lie in 0 … 1, got {rope_fraction}")
        self.pairs = int(d_state * rope_fraction) // 2
        self.as_released = as_released
        self.sizes = [self.inner, self.inner, d_state, d_state, self.n_heads, self.n_heads, self.n_heads, self.pairs]
        self.in_proj = nn.Linear(d_model, sum(self.sizes), bias=False)
        self.dt_bias = nn.Parameter(inverse_softplus(torch.exp(log_uniform((self.n_heads,), dt_min, dt_max))))
        self.B_norm, self.C_norm = HeadNorm(d_state), HeadNorm(d_state)
        self.B_bias, self.C_bias = (nn.Parameter(torch.ones(self.n_heads, d_state)) for _ in range(2))
        self.D = nn.Parameter(torch.ones(self.n_heads))
        self.out_proj = nn.Linear(self.inner, d_model, bias=False)

    def mix(self, u, step_scale, lengths):
        z, v, k, q, log_decay, past, own, turn = self._parts(u, step_scale)
        with torch.autocast(u.device.type, enabled=False):
            theta = turned(turn.double().cumsum(1)).to(v.dtype)
            k, q = (rotate_pairs(x, theta).transpose(1, 2) for x in (k, q))
            later = torch.cat([past[:, 1:], torch.zeros_like(past[:, :1])], 1)  # sample j enters once more at step j + 1
            y = decayed_attention(q, k, v.transpose(1, 2), log_decay.mT, (own + later).mT, own.mT).transpose(1, 2)
            y = (y + self.D[:, None] * v).flatten(-2)
        return self.out_proj((y * F.silu(z)).to(u.dtype))

    def initial_state(self, batch):
        """(S (B, H, N, P), k and v of the sample before, theta)."""
        zeros = self.D.new_zeros
        width = self.inner // self.n_heads
        return (
            zeros(batch, self.n_heads, self.d_state, width),
            zeros(batch, self.n_heads, self.d_state),
            zeros(batch, self.n_heads, width),
            zeros(batch, self.n_heads, self.pairs),
        )

    def step(self, u, state, step_scale=1.0):
        S, k_before, v_before, theta = state
        parts = self._parts(u.unsqueeze(1), self.scale(step_scale))
        z, v, k, q, log_decay, past, own, turn = (x.squeeze(1) for x in parts)
        theta = turned(theta + turn)
        k, q = rotate_pairs(k, theta), rotate_pairs(q, theta)
        alpha, past, own = torch.exp(log_decay)[..., None], past[..., None], own[..., None]
        S = alpha.unsqueeze(-1) * (S + (past * k_before).unsqueeze(-1) * v_before.unsqueeze(-2))
        S = S + (own * k).unsqueeze(-1) * v.unsqueeze(-2)
        y = ((S * q.unsqueeze(-1)).sum(-2) + self.D[:, None] * v).flatten(-2)
        return self.out_proj(y * F.silu(z)), (S, k, v, theta)

    def selection(self, u):
        """Delta at the trained step (…, H) of samples u (…, D), then z, v, B, C, A, trap and angle as projected."""
        z, v, B, C, dt, A, trap, angle = self.in_proj(u).split(self.sizes, -1)
        v, B, C, dt, A, trap, angle = full(v, B, C, dt, A, trap, angle)
        return F.softplus(dt + self.dt_bias), z, v, B, C, A, trap, angle

    def _parts(self, u, step_scale):
        """z (B, L, inner); v (B, L, H, P); k, q (B, L, H, N) unrotated; log alpha, beta/alpha, gamma (B, L, H); turn
        (B, L, H, pairs).
        """
        delta, z, v, B, C, A, trap, angle = self.selection(u)
        A = torch.full_like(A, 1e-4) if self.as_released else -F.softplus(A).clamp_min(1e-4)
        log_decay = step_scale * delta * A
        if self.step_rule == "semigroup":
            gain = delta * step_scale * phi1(log_decay) / phi1(delta * A)
        else:
            gain = step_scale * delta
        share = torch.sigmoid(trap)
        k = self.B_norm(B).unsqueeze(-2) + self.B_bias
        q = self.C_norm(C).unsqueeze(-2) + self.C_bias
        turn = math.pi * torch.tanh(angle).unsqueeze(-2) * (step_scale * delta).unsqueeze(-1)
        return z, v.unflatten(-1, (self.n_heads, -1)), k, q, log_decay, (1 - share) * gain, share * gain, turn


def turned(theta):
    """theta modulo a full turn."""
    return torch.remainder(theta, 2 * math.pi)


def rotate_pairs(x, theta):
    """Turn channels (2i, 2i + 1) of x (…, N) by theta_i (…, pairs); channels past the pairs stay."""
    pairs = theta.shape[-1]
    even, odd = x[..., 0 : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]
    cos, sin = theta.cos(), theta.sin()
    turned_ = torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)
    return torch.cat([turned_, x[..., 2 * pairs :]], -1)
