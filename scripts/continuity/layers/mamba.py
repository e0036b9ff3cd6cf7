"""Mamba: projections, short convolution, selective scan and gate (Gu & Dao 2023, arXiv 2312.00752)."""

import torch.nn.functional as F
from torch import nn

from continuity.discretization import RULES, check_rule
from continuity.layers.base import SequenceLayer, check_count
from continuity.layers.parts import ShortConvolution
from continuity.layers.s6 import S6


class Mamba(SequenceLayer):
    """out = W_out (S6(SiLU(conv(x))) * SiLU(z)),  (x, z) = W_in u.

    Options: expand, width of x over d_model; d_conv taps; conv_time "samples" or "time" (`ShortConvolution`);
    discretization euler (what Mamba runs), zoh, bilinear or averaged; d_state, dt_rank (default ceil(d_model/16)),
    dt_min, dt_max, step_rule as in `S6`.
    """

    continuous = True

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
    ):
        super().__init__(d_model, step_rule)
        check_rule(discretization, RULES, "mamba")
        inner = check_count("expand", expand) * d_model
        self.in_proj = nn.Linear(d_model, 2 * inner, bias=False)
        self.conv = ShortConvolution(inner, d_conv, conv_time)
        self.ssm = self.selective(
            inner,
            d_state=d_state,
            dt_rank=-(-d_model // 16) if dt_rank is None else dt_rank,
            discretization=discretization,
            dt_min=dt_min,
            dt_max=dt_max,
            step_rule=step_rule,
        )
        self.out_proj = nn.Linear(inner, d_model, bias=False)

    def selective(self, inner, **options):
        """The selective layer between the projections."""
        return S6(inner, **options)

    def mix(self, u, step_scale, lengths):
        x, z = self.in_proj(u).chunk(2, -1)
        y = self.ssm.mix(self.conv(x, step_scale), step_scale, lengths)
        return self.out_proj(y * F.silu(z))

    def initial_state(self, batch):
        return self.conv.initial_state(batch), self.ssm.initial_state(batch)

    def step(self, u, state, step_scale=1.0):
        past, h = state
        step_scale = self.scale(step_scale)
        x, z = self.in_proj(u).chunk(2, -1)
        x, past = self.conv.step(x, past, step_scale)
        y, h = self.ssm.step(x, h, step_scale)
        return self.out_proj(y * F.silu(z)), (past, h)
