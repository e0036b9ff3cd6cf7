"""S4D: a diagonal linear time-invariant state space per channel (Gu et al. 2022, arXiv 2206.11893)."""

import math

import torch
from torch import nn

from continuity.discretization import check_rule, log_uniform, scaled_transition
from continuity.layers.base import SequenceLayer, check_count
from continuity.layers.convolution import causal_convolution, held_input, held_sample, power_kernel

RULES = ("zoh", "bilinear", "averaged")
INITS = ("lin", "inv")


class S4D(SequenceLayer):
    """One single-input single-output system per channel.

    x'(t) = A x(t) + u(t),  y(t) = 2 Re(C x(t)) + D u(t),  A diagonal with Re A < 0.

    Options: d_state N, even: N/2 conjugate pairs; discretization zoh, bilinear or averaged; init "lin" (A = -1/2 + i
    pi n) or "inv" (A = -1/2 + i N/pi (N/(2n + 1) - 1)); delta drawn log-uniformly from [dt_min, dt_max]; step_rule;
    as_released divides the state's output by its norm over channels and multiplies it by that norm's mean over batch
    and time, as the published baseline does (its output then depends on the rest of the batch and on the future).
    Shapes: u and y (B, L, D); A and C (D, N/2) complex.
    Raises ValueError for an unknown rule or init or an odd N.
    """

    continuous = True
    dynamics = ("log_dt", "log_A_real", "A_imag")
    needs_mixing = True

    def __init__(
        self,
        d_model,
        d_state=64,
        discretization="zoh",
        init="lin",
        dt_min=0.001,
        dt_max=0.1,
        step_rule="delta",
        as_released=False,
    ):
        super().__init__(d_model, step_rule)
        pairs = check_count("d_state", d_state, multiple=2) // 2
        self.discretization = check_rule(discretization, RULES, "s4d")
        if init not in INITS:
            raise ValueError(f"unknown init {init!r} for s4d: choose one of {', '.join(INITS)}")
        n = torch.arange(pairs, dtype=torch.get_default_dtype())
        imag = math.pi * n if init == "lin" else d_state / math.pi * (d_state / (2 * n + 1) - 1)
        self.log_dt = nn.Parameter(log_uniform((d_model,), dt_min, dt_max))
        self.log_A_real = nn.Parameter(torch.full((d_model, pairs), math.log(0.5)))
        self.A_imag = nn.Parameter(imag.repeat(d_model, 1))
        self.C = nn.Parameter(torch.randn(d_model, pairs, 2) * 0.5**0.5)
        self.D = nn.Parameter(torch.randn(d_model))
        self.as_released = as_released

    def transition(self, step_scale=1.0):
        """(log a, b), each (D, N/2) complex, of h_k = a h_(k-1) + b u_k, in float32 at least."""
        A = torch.complex(-torch.exp(self.log_A_real), self.A_imag)
        delta = torch.exp(self.log_dt).unsqueeze(-1)
        return scaled_transition(delta, A, self.discretization, step_scale, self.step_rule)

    def kernel(self, length, step_scale=1.0):
        """2 Re sum_n C b a^l, l < length: (D, length)."""
        with torch.autocast(self.C.device.type, enabled=False):
            log_a, b = self.transition(step_scale)
            return power_kernel(log_a, torch.view_as_complex(self.C) * b, length)

    def mix(self, u, step_scale, lengths):
        y = causal_convolution(held_input(u, self.discretization), self.kernel(u.shape[1], step_scale))
        if self.as_released:
            norm = y.norm(dim=-1, keepdim=True)
            y = y / norm.clamp_min(torch.finfo(y.dtype).tiny) * norm.mean()
        return (y + self.D * u).to(u.dtype)

    def initial_state(self, batch):
        """(h (B, D, N/2) complex, previous sample or None)."""
        return torch.view_as_complex(torch.zeros_like(self.C)).repeat(batch, 1, 1), None

    def step(self, u, state, step_scale=1.0):
        if self.as_released:
            raise ValueError("s4d with as_released has no recurrent form: its output depends on the batch and on the future")
        h, before = state
        log_a, b = self.transition(self.scale(step_scale))
        h = torch.exp(log_a) * h + b * held_sample(u, before, self.discretization).unsqueeze(-1)
        y = 2 * (torch.view_as_complex(self.C) * h).sum(-1).real + self.D * u
        return y, (h, u)
