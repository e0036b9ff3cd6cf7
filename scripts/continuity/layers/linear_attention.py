"""Linear attention: a sum of outer products read by a query, without decay or normaliser (Katharopoulos et al. 2020)."""

import torch
from torch import nn

from continuity.layers.base import SequenceLayer, check_heads
from continuity.layers.matrix_scan import decayed_attention
from continuity.layers.parts import HeadNorm, full, heads


class LinearAttention(SequenceLayer):
    """S_k = S_(k-1) + phi(k_k) v_k^T,  o_k = S_k^T phi(q_k)/sqrt(K),  out = W_out RMSNorm_head(o).

    phi is the product of two learned affine maps of a head's channels. Options: n_heads; step_rule "none" (default), or
    "delta" and "semigroup", which here are one: every sample counts step_scale times.
    """

    def __init__(self, d_model, n_heads=4, step_rule="none"):
        super().__init__(d_model, step_rule)
        width = check_heads(d_model, n_heads)
        self.n_heads, self.width = n_heads, width
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.q_map, self.k_map = (nn.Linear(width, 2 * width) for _ in range(2))
        self.norm = HeadNorm(width)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def mix(self, u, step_scale, lengths):
        q, k, v = self._features(u, step_scale)
        with torch.autocast(u.device.type, enabled=False):
            y = decayed_attention(*full(q, k, v))
        return self.out_proj(self.norm(y).transpose(1, 2).flatten(-2).to(u.dtype))

    def initial_state(self, batch):
        return self.norm.weight.new_zeros(batch, self.n_heads, self.width, self.width)

    def step(self, u, state, step_scale=1.0):
        q, k, v = (x.squeeze(2) for x in self._features(u.unsqueeze(1), self.scale(step_scale)))
        state = state + k.unsqueeze(-1) * v.unsqueeze(-2)
        y = (q.unsqueeze(-1) * state).sum(-2)
        return self.out_proj(self.norm(y).flatten(-2)), state

    def _features(self, u, step_scale):
        q, k, v = (heads(x, self.n_heads) for x in self.qkv(u).chunk(3, -1))
        q, k = (torch.mul(*m(x).chunk(2, -1)) for m, x in ((self.q_map, q), (self.k_map, k)))
        return q * self.width**-0.5, k * step_scale, v
