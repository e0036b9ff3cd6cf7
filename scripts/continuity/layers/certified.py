"""S6 with a certificate: passive for every input and gate schedule by construction, without a penalty to weigh."""

import torch
import torch.nn.functional as F
from torch import nn

from continuity.discretization import check_rule, coefficients, inverse_softplus, semigroup
from continuity.dissipation import RULES, SUPPLIES
from continuity.layers.mamba import Mamba
from continuity.layers.s6 import S6
from continuity.scan import run, selective_scan, unit_gain

FLOOR = 1e-3
ROUNDINGS = 32


class Certified(S6):
    """S6 whose feed-through follows the token: y_k = C_k h_k + D_k u_k, and V(h) = sum q h^2 / 2 certifies it.

    With b and a of the token, c = C_k and room = q (1 - a^2) - 2 beta,

        D_k = D^2 + 1/2 max(0, sum_n q b^2 - 2 c b + a^2 (q b - c)^2 / room)

    makes the Schur complement of the dissipation block -2 D^2, so that its largest eigenvalue is at most 0 (1e-9 in
    float64; in float32 within 1e-5 of the block's size). D_k is rounded up by ROUNDINGS units of each term.

    Supply "delta" (`continuity.dissipation`) has the limit D_k -> D^2 + 1/4 sum (q B - C)^2 / (q |A| - beta) on finer
    grids, and the layer converges as S6 does. Supply "unit" is certified at every step_scale as well, but its D_k grows
    as 1/step_scale, because an energy per sample says nothing about time. q (D, N) is learned and positive; its scale
    is free, since no scale changes the sign of an eigenvalue. beta is the certified rate; a token whose step is too
    short for it (4 beta > min q (1 - a^2)) is certified at a quarter of what it has.

    Options: as S6, without the averaged rule, which has no one-step block. Raises ValueError for unknown choices and a
    negative beta.
    """

    dynamics = (*S6.dynamics, "q_raw")

    def __init__(
        self,
        d_model,
        d_state=16,
        dt_rank=None,
        discretization="zoh",
        dt_min=0.001,
        dt_max=0.1,
        step_rule="delta",
        supply="delta",
        beta=0.0,
    ):
        check_rule(discretization, RULES, "certified")
        if supply not in SUPPLIES:
            raise ValueError(f"unknown supply {supply!r}: choose one of {', '.join(SUPPLIES)}")
        if not beta >= 0:
            raise ValueError(f"beta must not be negative, got {beta}")
        super().__init__(d_model, d_state, dt_rank, discretization, dt_min, dt_max, step_rule)
        self.supply, self.beta = supply, float(beta)
        with torch.no_grad():
            per_step = F.softplus(self.dt_proj.bias) if supply == "unit" else torch.ones(d_model)
            start = inverse_softplus((1 / per_step - FLOOR).unsqueeze(1).repeat(1, d_state))
        self.q_raw = nn.Parameter(torch.where(torch.isfinite(start), start, (1 / per_step).unsqueeze(1)))

    def q(self):
        """The storage's weights (D, N), positive."""
        return F.softplus(self.q_raw) + FLOOR

    def certificate(self, delta, B, C, step_scale=1.0):
        """What certifies tokens delta (…, D), at the step used, B and C (…, N): D and beta (…, D), p (D, N), supply, output."""
        a, loss, gain = self._one_step(delta, step_scale)
        q = self.q()
        gain = gain * B.unsqueeze(-2)  # b / delta
        ratio = delta.unsqueeze(-1) if self.supply == "unit" else torch.ones_like(gain[..., :1])
        room = ratio * q * loss
        rate = (room.amin(-1) / 4).clamp_max(self.beta)
        c = C.unsqueeze(-2)
        stored = delta.unsqueeze(-1) * q * ratio * gain.square()
        crossed = 2 * delta.unsqueeze(-1) * c * gain
        border = (a * (q * ratio * gain - c)).square()
        border = border / (room - 2 * rate.unsqueeze(-1)).clamp_min(torch.finfo(a.dtype).tiny)
        safe = ROUNDINGS * torch.finfo(a.dtype).eps * (stored + crossed.abs() + border)
        needed = (stored - crossed + border + safe).sum(-1)
        return {"D": self.D.square() + needed.clamp_min(0) / 2, "p": q, "beta": rate, "supply": self.supply, "output": "post"}

    def mix(self, u, step_scale, lengths):
        delta, B, C = self.selection(u)
        self.tell(u, delta, B, C, step_scale, lengths)
        delta = delta * step_scale
        with torch.autocast(u.device.type, enabled=False):
            real = delta.dtype
            through = self.certificate(delta, B.to(real), C.to(real), step_scale)["D"]
            if self._powers(step_scale):
                a, b = semigroup(*coefficients(delta.unsqueeze(-1) / step_scale, self.A(), self.discretization), step_scale)
                y = run(a, b * u.to(real).unsqueeze(-1) * B.to(real).unsqueeze(2), C.to(real))[0]
            else:
                y = selective_scan(u, delta, self.A(), B, C, None, self.discretization)
            return (y + through * u).to(u.dtype)

    def step(self, u, state, step_scale=1.0):
        y, state = super().step(u, state, step_scale)
        delta, B, C = self.selection(u)
        scale = self.scale(step_scale)
        return y + (self.certificate(delta * scale, B, C, scale)["D"] - self.D) * u, state

    def _one_step(self, delta, step_scale):
        """(a, (1 - a^2)/delta, b/(delta B)) of tokens, each (…, D, N); finite as delta -> 0."""
        A, wide = self.A(), delta.unsqueeze(-1)
        if self._powers(step_scale):
            a, b = semigroup(*coefficients(wide / step_scale, A, self.discretization), step_scale)
            wide = wide.clamp_min(torch.finfo(delta.dtype).tiny)
            return a, (1 - a) * (1 + a) / wide, b / wide
        gain = unit_gain(wide * A, self.discretization)
        if self.discretization == "bilinear":
            a = 1 + wide * A * gain
            return a, -A * gain * (a + 1), gain
        return torch.exp(wide * A), -2 * A * unit_gain(2 * wide * A, "zoh"), gain


class CertifiedMamba(Mamba):
    """Mamba around `Certified`, whose options supply and beta it takes beside its own. Draws what `Mamba` draws."""

    def __init__(
        self,
        d_model,
        d_state=16,
        expand=2,
        d_conv=4,
        conv_time="samples",
        dt_rank=None,
        discretization="euler",
        dt_min=0.001,
        dt_max=0.1,
        step_rule="delta",
        supply="delta",
        beta=0.0,
    ):
        self.certified = {"supply": supply, "beta": beta}
        super().__init__(d_model, d_state, expand, d_conv, conv_time, dt_rank, discretization, dt_min, dt_max, step_rule)

    def selective(self, inner, **options):
        return Certified(inner, **options, **self.certified)
