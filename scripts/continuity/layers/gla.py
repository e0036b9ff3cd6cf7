"""Gated linear attention: a learned decay for every channel of the key (Yang et al. 2023, arXiv 2312.06635)."""

import torch
import torch.nn.functional as F
from torch import nn

from continuity.discretization import phi1
from continuity.layers.base import SequenceLayer, check_count, check_heads
from continuity.layers.matrix_scan import channel_decayed_attention
from continuity.layers.parts import HeadNorm, full, heads


class GLA(SequenceLayer):
    """S_k = diag(e^(g_k)) S_(k-1) + k_k v_k^T,  o_k = S_k^T q_k/sqrt(K),  out = W_out (RMSNorm_head(o) * SiLU(z)).

    g = logsigmoid(W_2 W_1 u + b)/temperature for every channel of the key. Options: n_heads; gate_rank of W_1;
    temperature; step_rule "none" (default), "delta" (g and k times step_scale) or "semigroup" (e^(s g); k times (1 -
    e^(s g))/(1 - e^g)).
    """

    dynamics = ("gate_up.bias",)

    def __init__(self, d_model, n_heads=4, gate_rank=16, temperature=16.0, step_rule="none"):
        super().__init__(d_model, step_rule)
        self.n_heads, self.width = n_heads, check_heads(d_model, n_heads)
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.temperature = temperature
        self.qkvz = nn.Linear(d_model, 4 * d_model, bias=False)
        self.gate_down = nn.Linear(d_model, check_count("gate_rank", gate_rank), bias=False)
        self.gate_up = nn.Linear(gate_rank, d_model)
        self.norm = HeadNorm(self.width)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def mix(self, u, step_scale, lengths):
        q, k, v, g, z = self._parts(u, step_scale)
        with torch.autocast(u.device.type, enabled=False):
            y = channel_decayed_attention(*full(q, k, v, g))
        return self._close(y.transpose(1, 2), z)

    def initial_state(self, batch):
        return self.norm.weight.new_zeros(batch, self.n_heads, self.width, self.width)

    def step(self, u, state, step_scale=1.0):
        q, k, v, g, z = self._parts(u.unsqueeze(1), self.scale(step_scale))
        q, k, v, g = (x.squeeze(2) for x in (q, k, v, g))
        state = torch.exp(g).unsqueeze(-1) * state + k.unsqueeze(-1) * v.unsqueeze(-2)
        y = (q.unsqueeze(-1) * state).sum(-2)
        return self._close(y, z.squeeze(1)), state

    def _parts(self, u, step_scale):
        *qkv, z = self.qkvz(u).chunk(4, -1)
        q, k, v = (heads(x, self.n_heads) for x in qkv)
        (g,) = full(heads(F.logsigmoid(self.gate_up(self.gate_down(u))), self.n_heads))
        g = g / self.temperature
        gain = step_scale * phi1(step_scale * g) / phi1(g) if self.step_rule == "semigroup" else step_scale
        return q * self.width**-0.5, k * gain, v, g * step_scale, z

    def _close(self, y, z):
        return self.out_proj((self.norm(y).flatten(-2) * F.silu(z)).to(z.dtype))
