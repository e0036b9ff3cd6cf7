"""S6: the bare selective state space, without convolution, gate or projections (Gu & Dao 2023, arXiv 2312.00752)."""

import math
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import nn

from continuity.discretization import RULES, check_rule, coefficients, inverse_softplus, log_uniform, semigroup
from continuity.layers.base import SequenceLayer, check_count
from continuity.scan import run, selective_scan

OBSERVERS: WeakKeyDictionary = WeakKeyDictionary()
"""Layer -> weak references to methods that are told of its every forward pass, before it runs:
observer(layer, u, delta, B, C, step_scale, lengths), delta at the trained step.
"""


class S6(SequenceLayer):
    """One diagonal system per channel whose Delta, B and C are functions of the sample.

    h_k = a(Delta_k A) h_(k-1) + b(Delta_k A) Delta_k B_k u_k,  y_k = C_k h_k + D u_k,  Delta = softplus(W u + bias)
    step_scale

    Options: d_state N; dt_rank (default ceil(d_model/16)); discretization zoh, bilinear, averaged, or euler (B by
    Euler's rule, A exact: what Mamba runs); delta's bias makes delta at u = 0 log-uniform in [dt_min, dt_max];
    step_rule; as_released ignores C, as the published baseline does.
    Shapes: u, y and Delta (B, L, D); A (D, N) real and negative; B and C (B, L, N).
    Raises ValueError for an unknown rule.
    """

    continuous = True
    dynamics = ("A_log", "dt_proj.weight", "dt_proj.bias")
    needs_mixing = True

    def __init__(
        self,
        d_model,
        d_state=16,
        dt_rank=None,
        discretization="zoh",
        dt_min=0.001,
        dt_max=0.1,
        step_rule="delta",
        as_released=False,
    ):
        super().__init__(d_model, step_rule)
        self.d_state = check_count("d_state", d_state)
        self.dt_rank = math.ceil(d_model / 16) if dt_rank is None else check_count("dt_rank", dt_rank)
        self.discretization = check_rule(discretization, RULES, "s6")
        self.as_released = as_released
        self.x_proj = nn.Linear(d_model, self.dt_rank + 2 * d_state, bias=False)
        self.dt_proj = nn.Linear(self.dt_rank, d_model)
        nn.init.uniform_(self.dt_proj.weight, -(self.dt_rank**-0.5), self.dt_rank**-0.5)
        with torch.no_grad():
            self.dt_proj.bias.copy_(inverse_softplus(torch.exp(log_uniform((d_model,), dt_min, dt_max))))
        self.A_log = nn.Parameter(torch.log(torch.arange(1, d_state + 1, dtype=torch.get_default_dtype())).repeat(d_model, 1))
        self.D = nn.Parameter(torch.ones(d_model))

    def selection(self, u):
        """Delta at the trained step (…, D), B (…, N) and C (…, N) of samples u (…, D); Delta in float32 at least."""
        low_rank, B, C = self.x_proj(u).split([self.dt_rank, self.d_state, self.d_state], dim=-1)
        with torch.autocast(u.device.type, enabled=False):
            weight = self.dt_proj.weight
            delta = F.softplus(F.linear(low_rank.to(weight.dtype), weight, self.dt_proj.bias))
        return delta, B, torch.ones_like(C) if self.as_released else C

    def A(self):
        return -torch.exp(self.A_log)

    def tell(self, *quantities):
        """Pass (u, delta, B, C, step_scale, lengths) on to the observers that are still alive."""
        for reference in OBSERVERS.get(self, ()):
            observer = reference()
            if observer is not None:
                observer(self, *quantities)

    def mix(self, u, step_scale, lengths):
        delta, B, C = self.selection(u)
        self.tell(u, delta, B, C, step_scale, lengths)
        if self._powers(step_scale):
            a, b = semigroup(*coefficients(delta.unsqueeze(-1), self.A(), self.discretization), step_scale)
            return run(a, b * u.unsqueeze(-1) * B.unsqueeze(2), C)[0] + self.D * u
        return selective_scan(u, delta * step_scale, self.A(), B, C, self.D, self.discretization).to(u.dtype)

    def initial_state(self, batch):
        """(h (B, D, N), (Delta, Delta B u) of the sample before, or None)."""
        return torch.zeros_like(self.A_log).repeat(batch, 1, 1), None

    def step(self, u, state, step_scale=1.0):
        h, before = state
        step_scale = self.scale(step_scale)
        delta, B, C = self.selection(u)
        if not self._powers(step_scale):
            delta = delta * step_scale
        delta, drive = delta.unsqueeze(-1), u.unsqueeze(-1) * B.unsqueeze(1)  # (B, D, 1), (B, D, N)
        now = (delta, delta * drive)
        if self.discretization == "averaged":
            if before is None:
                delta, drive = torch.zeros_like(delta), torch.zeros_like(drive)
            else:
                delta = (before[0] + now[0]) / 2
                drive = (before[1] + now[1]) / (2 * delta)
        a, b = coefficients(delta, self.A(), self.discretization)
        if self._powers(step_scale):
            a, b = semigroup(a, b, step_scale)
        h = a * h + b * drive
        return (h * C.unsqueeze(1)).sum(-1) + self.D * u, (h, now)

    def _powers(self, step_scale):
        """Whether s steps of the trained map are taken; for exact transitions that is the same as s Delta."""
        return self.step_rule == "semigroup" and step_scale != 1 and self.discretization in ("bilinear", "euler")
