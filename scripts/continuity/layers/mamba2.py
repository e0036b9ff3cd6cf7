"""Mamba-2: one scalar decay a head, B and C shared by the heads (Dao & Gu 2024, arXiv 2405.21060)."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from continuity.discretization import inverse_softplus, log_uniform, phi1
from continuity.layers.base import SequenceLayer, check_count
from continuity.layers.matrix_scan import decayed_attention
from continuity.layers.parts import HeadNorm, ShortConvolution, full, heads


class Mamba2(SequenceLayer):
    """h_k = e^(Delta_k A) h_(k-1) + Delta_k x_k B_k^T,  y_k = h_k C_k + D x_k,  out = W_out (RMSNorm(y * SiLU(z))).

    Options: d_state N; expand; head_dim P, a divisor of expand * d_model (default its common divisor with 32); d_conv
    and conv_time as in `ShortConvolution`; delta at u = 0 log-uniform in [dt_min, dt_max], A = -U[1, 16] a head;
    step_rule. Shapes: x (B, H, L, P); B and C (B, L, N); Delta and A one a head. The state is kept in float32 at least.
    """

    continuous = True
    dynamics = ("A_log", "dt_bias")

    def __init__(
        self,
        d_model,
        d_state=64,
        expand=2,
        head_dim=None,
        d_conv=4,
        conv_time="samples",
        dt_min=0.001,
        dt_max=0.1,
        step_rule="delta",
    ):
        super().__init__(d_model, step_rule)
        self.inner = check_count("expand", expand) * d_model
        self.d_state = check_count("d_state", d_state)
        head_dim = math.gcd(self.inner, 32) if head_dim is None else check_count("head_dim", head_dim)
        if self.inner % head_dim:
            raise ValueError(f"head_dim must divide expand * d_model: {head_dim} does not divide {self.inner}")
        self.n_heads = self.inner // head_dim
        self.in_proj = nn.Linear(d_model, 2 * self.inner + 2 * d_state + self.n_heads, bias=False)
        self.conv = ShortConvolution(self.inner + 2 * d_state, d_conv, conv_time)
        self.dt_bias = nn.Parameter(inverse_softplus(torch.exp(log_uniform((self.n_heads,), dt_min, dt_max))))
        self.A_log = nn.Parameter(torch.log(torch.empty(self.n_heads).uniform_(1, 16)))
        self.D = nn.Parameter(torch.ones(self.n_heads))
        self.norm = HeadNorm(self.inner)
        self.out_proj = nn.Linear(self.inner, d_model, bias=False)

    def mix(self, u, step_scale, lengths):
        delta, z, xBC = self.selection(u)
        x, B, C = self._channels(self.conv(xBC, step_scale))
        log_decay, gain = self._rates(delta, step_scale)  # (B, L, H)
        with torch.autocast(u.device.type, enabled=False):
            x, B, C = full(x, B, C)
            v = heads(x, self.n_heads)
            y = decayed_attention(C.unsqueeze(1), B.unsqueeze(1), v * gain.mT.unsqueeze(-1), log_decay.mT)
            y = y + self.D[:, None, None] * v
        return self._close(y.transpose(1, 2).flatten(-2), z).to(u.dtype)

    def initial_state(self, batch):
        state = self.A_log.new_zeros(batch, self.n_heads, self.inner // self.n_heads, self.d_state)
        return self.conv.initial_state(batch), state

    def step(self, u, state, step_scale=1.0):
        past, h = state
        step_scale = self.scale(step_scale)
        delta, z, xBC = self.selection(u)
        xBC, past = self.conv.step(xBC, past, step_scale)
        x, B, C = self._channels(xBC)
        x = x.unflatten(-1, (self.n_heads, -1))  # (B, H, P)
        log_decay, gain = self._rates(delta, step_scale)
        h = torch.exp(log_decay)[..., None, None] * h + (gain.unsqueeze(-1) * x).unsqueeze(-1) * B[:, None, None]
        y = (h * C[:, None, None]).sum(-1) + self.D[:, None] * x
        return self._close(y.flatten(-2), z), (past, h)

    def selection(self, u):
        """Delta at the trained step (…, H) of samples u (…, D), the gate z, and x, B and C before their convolution."""
        z, xBC, dt = self.in_proj(u).split([self.inner, self.inner + 2 * self.d_state, self.n_heads], -1)
        return F.softplus(full(dt)[0] + self.dt_bias), z, xBC

    def _channels(self, xBC):
        return xBC.split([self.inner, self.d_state, self.d_state], -1)

    def _rates(self, delta, step_scale):
        """Log decay and input gain of each head at every step."""
        log_decay = -delta * torch.exp(self.A_log)
        if self.step_rule == "semigroup":
            return step_scale * log_decay, delta * step_scale * phi1(step_scale * log_decay) / phi1(log_decay)
        return step_scale * log_decay, step_scale * delta

    def _close(self, y, z):
        return self.out_proj(self.norm(y * F.silu(z)))
