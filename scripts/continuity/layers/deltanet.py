"""DeltaNet: an associative memory corrected by its own error (Yang et al. 2024, arXiv 2406.06484)."""

import torch
import torch.nn.functional as F
from torch import nn

from continuity.layers.base import SequenceLayer, check_heads
from continuity.layers.matrix_scan import delta_rule
from continuity.layers.parts import HeadNorm, ShortConvolution, full, heads


class DeltaNet(SequenceLayer):
    """S_k = S_(k-1)(I - b_k k_k k_k^T) + b_k v_k k_k^T,  o_k = S_k q_k/sqrt(K),  out = W_out RMSNorm_head(o).

    q, k and v pass a short convolution and SiLU, q and k are scaled to unit length, b = sigmoid(w u) a head.
    Options: n_heads; d_conv and conv_time as in `ShortConvolution`; step_rule "none" (default), "delta" (b -> min(s
    b, 1)) or "semigroup" (b -> 1 - (1 - b)^s).
    """

    def __init__(self, d_model, n_heads=4, d_conv=4, conv_time="samples", step_rule="none"):
        super().__init__(d_model, step_rule)
        self.n_heads, self.width = n_heads, check_heads(d_model, n_heads)
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.conv = ShortConvolution(3 * d_model, d_conv, conv_time)
        self.b_proj = nn.Linear(d_model, n_heads, bias=False)
        self.norm = HeadNorm(self.width)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def mix(self, u, step_scale, lengths):
        q, k, v = self._heads(self.conv(self.qkv(u), step_scale))
        erase, write, log_decay = (x if x is None else x.mT for x in self.rates(u, step_scale))
        with torch.autocast(u.device.type, enabled=False):
            y = delta_rule(q, k, v, erase, write, log_decay)
        return self._close(y.transpose(1, 2), u)

    def initial_state(self, batch):
        return self.conv.initial_state(batch), self.norm.weight.new_zeros(batch, self.n_heads, self.width, self.width)

    def step(self, u, state, step_scale=1.0):
        past, S = state
        step_scale = self.scale(step_scale)
        x, past = self.conv.step(self.qkv(u), past, step_scale)
        q, k, v = (y.squeeze(2) for y in self._heads(x.unsqueeze(1)))
        erase, write, log_decay = (None if x is None else x[..., None] for x in self.rates(u, step_scale))
        if log_decay is not None:
            S = torch.exp(log_decay).unsqueeze(-1) * S
        recalled = (S * k.unsqueeze(-1)).sum(-2)
        S = S + k.unsqueeze(-1) * (write * v - erase * recalled).unsqueeze(-2)
        return self._close((S * q.unsqueeze(-1)).sum(-2), u), (past, S)

    def rates(self, u, step_scale):
        """(erase, write, log decay or None), each (…, H), in float32 at least."""
        b = torch.sigmoid(full(self.b_proj(u))[0])
        b = 1 - (1 - b) ** step_scale if self.step_rule == "semigroup" else (b * step_scale).clamp_max(1)
        return b, b, None

    def _heads(self, qkv):
        q, k, v = (heads(x, self.n_heads) for x in full(*qkv.chunk(3, -1)))
        return F.normalize(q, dim=-1) * self.width**-0.5, F.normalize(k, dim=-1), v

    def _close(self, y, u):
        return self.out_proj(self.norm(y).flatten(-2).to(u.dtype))
