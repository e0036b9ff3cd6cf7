"""Gated DeltaNet: DeltaNet whose memory also decays, with an output gate (Yang et al. 2024, arXiv 2412.06464)."""

import torch
import torch.nn.functional as F
from torch import nn

from continuity.discretization import inverse_softplus, log_uniform, phi1
from continuity.layers.deltanet import DeltaNet
from continuity.layers.parts import full


class GatedDeltaNet(DeltaNet):
    """S_k = e^(g_k) S_(k-1)(I - b_k k_k k_k^T) + b_k v_k k_k^T,  out = W_out (RMSNorm_head(o) * SiLU(z)).

    g = -softplus(w u + bias) e^(A_log) a head. Options as in `DeltaNet`; step_rule "delta" scales g and b (b <= 1),
    "semigroup" decays by e^(s g), erases 1 - (1 - b)^s and writes b (1 - a^s)/(1 - a) with a = e^g (1 - b).
    """

    dynamics = ("A_log", "dt_bias")

    def __init__(self, d_model, n_heads=4, d_conv=4, conv_time="samples", dt_min=0.001, dt_max=0.1, step_rule="none"):
        super().__init__(d_model, n_heads=n_heads, d_conv=d_conv, conv_time=conv_time, step_rule=step_rule)
        self.g_proj = nn.Linear(d_model, n_heads, bias=False)
        self.z_proj = nn.Linear(d_model, d_model, bias=False)
        self.dt_bias = nn.Parameter(inverse_softplus(torch.exp(log_uniform((n_heads,), dt_min, dt_max))))
        self.A_log = nn.Parameter(torch.log(torch.empty(n_heads).uniform_(1, 16)))

    def rates(self, u, step_scale):
        raw, gate = full(self.b_proj(u), self.g_proj(u))
        b = torch.sigmoid(raw)
        g = -F.softplus(gate + self.dt_bias) * torch.exp(self.A_log)
        if self.step_rule == "semigroup":
            log_a = g + F.logsigmoid(-raw)
            write = b * step_scale * phi1(step_scale * log_a) / phi1(log_a)
            return 1 - (1 - b) ** step_scale, write, step_scale * g
        b = (b * step_scale).clamp_max(1)
        return b, b, step_scale * g

    def _close(self, y, u):
        return self.out_proj((self.norm(y).flatten(-2) * F.silu(self.z_proj(u))).to(u.dtype))
