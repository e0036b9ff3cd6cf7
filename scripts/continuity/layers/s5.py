"""S5: one diagonal state space with all channels as inputs and outputs (Smith et al. 2022, arXiv 2208.04933)."""

import math

import torch
from torch import nn

from continuity.discretization import check_rule, log_uniform, scaled_transition
from continuity.layers.base import SequenceLayer, check_count
from continuity.layers.convolution import held_input, held_sample
from continuity.layers.hippo import normal_part
from continuity.lti_scan import lti_scan

RULES = ("zoh", "bilinear", "averaged")


class S5(SequenceLayer):
    """x'(t) = A x(t) + B u(t),  y(t) = 2 Re(C x(t)) + D u(t),  A diagonal, one step Delta a state.

    A starts as the spectrum of HiPPO-N (real part -1/2). Options: d_state P, even: P/2 conjugate pairs;
    discretization zoh, bilinear or averaged; delta log-uniform in [dt_min, dt_max]; step_rule.
    Shapes: u and y (B, L, D); A (P/2,), B (P/2, D), C (D, P/2) complex.
    Raises ValueError for an unknown rule or an odd P.
    """

    continuous = True
    dynamics = ("log_A_real", "A_imag", "log_dt", "B")
    needs_mixing = True

    def __init__(self, d_model, d_state=64, discretization="zoh", dt_min=0.001, dt_max=0.1, step_rule="delta"):
        super().__init__(d_model, step_rule)
        pairs = check_count("d_state", d_state, multiple=2) // 2
        self.discretization = check_rule(discretization, RULES, "s5")
        frequency, V, _ = normal_part(d_state)
        dtype = torch.get_default_dtype()
        B = V.mH @ torch.randn(d_state, d_model, dtype=torch.float64).to(V.dtype) / math.sqrt(d_model)
        C = torch.randn(d_model, d_state, dtype=torch.complex128) @ V / math.sqrt(d_state)
        self.log_A_real = nn.Parameter(torch.full((pairs,), math.log(0.5)))
        self.A_imag = nn.Parameter(frequency.to(dtype))
        self.B = nn.Parameter(torch.view_as_real(B.resolve_conj()).to(dtype))
        self.C = nn.Parameter(torch.view_as_real(C).to(dtype))
        self.D = nn.Parameter(torch.randn(d_model))
        self.log_dt = nn.Parameter(log_uniform((pairs,), dt_min, dt_max))

    def transition(self, step_scale=1.0):
        """(log a (P/2,), input map (D, P) in planes, output map (P, D) in planes), in float32 at least."""
        A = torch.complex(-torch.exp(self.log_A_real), self.A_imag)
        log_a, b = scaled_transition(torch.exp(self.log_dt), A, self.discretization, step_scale, self.step_rule)
        B = b.unsqueeze(-1) * torch.view_as_complex(self.B)
        C = torch.view_as_complex(self.C)
        return log_a, torch.cat([B.real, B.imag]).mT, 2 * torch.cat([C.real, -C.imag], -1).mT

    def mix(self, u, step_scale, lengths):
        with torch.autocast(u.device.type, enabled=False):
            x = u.to(self.D.dtype)
            log_a, into, out = self.transition(step_scale)
            y = lti_scan(log_a, held_input(x, self.discretization) @ into) @ out + self.D * x
        return y.to(u.dtype)

    def initial_state(self, batch):
        """(h (B, P) in planes, previous sample or None)."""
        return self.D.new_zeros(batch, 2 * self.A_imag.shape[0]), None

    def step(self, u, state, step_scale=1.0):
        h, before = state
        log_a, into, out = self.transition(self.scale(step_scale))
        a, (real, imag) = torch.exp(log_a), h.chunk(2, -1)
        h = torch.cat([a.real * real - a.imag * imag, a.real * imag + a.imag * real], -1)
        h = h + held_sample(u, before, self.discretization) @ into
        return h @ out + self.D * u, (h, u)
