"""Transformer: softmax attention and a feed-forward block, with rotary, learned or no positions (Vaswani et al. 2017)."""

import torch
import torch.nn.functional as F
from torch import nn

from continuity.layers.base import SequenceLayer, check_count, check_heads

POSITIONS = ("rotary", "learned", "none")


class Transformer(SequenceLayer):
    """Multi-head attention, then a GELU feed-forward map; both residual inside, so the layer returns the sum without
    its input.

    Options: n_heads; ff_mult, width of the feed-forward map over d_model; positions rotary (angle t base^(-2i/d) at
    time t), learned (a table of max_length rows, read at time t by linear interpolation) or none; causal; dropout of
    the attention; step_rule "delta" puts sample k at time k step_scale, "none" (default) at time k; as_released takes
    positions and mask away, as in the published baseline, whose mean over time then does not see the order of the
    samples. Attention is over real steps only. Raises ValueError for heads that do not divide d_model, odd channels a
    head with rotary positions, step_rule "semigroup", and sequences longer than max_length with learned positions.
    """

    two_sided = True
    dynamics = ()

    def __init__(
        self,
        d_model,
        n_heads=4,
        ff_mult=4,
        positions="rotary",
        causal=False,
        dropout=0.0,
        max_length=4096,
        step_rule="none",
        as_released=False,
    ):
        super().__init__(d_model, step_rule)
        if step_rule == "semigroup":
            raise ValueError("transformer has no recurrence to raise to a power: use step_rule 'delta' or 'none'")
        width = check_heads(d_model, n_heads)
        if as_released:
            positions, causal = "none", False
        if positions not in POSITIONS:
            raise ValueError(f"unknown positions {positions!r}: choose one of {', '.join(POSITIONS)}")
        if positions == "rotary" and width % 2:
            raise ValueError(f"rotary positions need an even number of channels a head, got {width}")
        self.n_heads, self.positions, self.causal, self.dropout = n_heads, positions, causal, dropout
        self.norm = nn.LayerNorm(d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        hidden = check_count("ff_mult", ff_mult) * d_model
        self.ff = nn.Sequential(nn.LayerNorm(d_model), nn.Linear(d_model, hidden), nn.GELU(), nn.Linear(hidden, d_model))
        if positions == "learned":
            self.table = nn.Parameter(torch.randn(check_count("max_length", max_length), d_model) * 0.02)

    def mix(self, u, step_scale, lengths):
        batch, length, d = u.shape
        time = torch.arange(length, device=u.device, dtype=torch.float32) * step_scale
        x = u + self._learned(time).to(u.dtype) if self.positions == "learned" else u
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        if self.positions == "rotary":
            q, k = rotate(q, time), rotate(k, time)
        y = F.scaled_dot_product_attention(
            q, k, v, self._mask(length, lengths, u.device), self.dropout if self.training else 0.0
        )
        y = self.out(y.transpose(1, 2).reshape(batch, length, d))
        return y + self.ff(u + y)

    def _learned(self, time):
        last = self.table.shape[0] - 1
        if float(time[-1]) > last:
            raise ValueError(
                f"learned positions end at max_length {last + 1}, the sequence at time {float(time[-1]) + 1:g}: "
                "build the layer with a larger max_length"
            )
        low = time.floor().long()
        part = (time - low).unsqueeze(-1).to(self.table.dtype)
        return self.table[low] * (1 - part) + self.table[(low + 1).clamp_max(last)] * part

    def _mask(self, length, lengths, device):
        """(B or 1, 1, L, L), True where attention is allowed; None where it is everywhere."""
        mask = None
        if self.causal:
            mask = torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]
        if lengths is not None:
            real = torch.arange(length, device=device) < torch.as_tensor(lengths, device=device)[:, None]
            mask = real[:, None, None] if mask is None else mask & real[:, None, None]
        return mask


def rotate(x, time, base=10000.0):
    """Rotary positions: channels (i, i + d/2) of x (…, L, d) turn by time base^(-2i/d); angles in float32."""
    half = x.shape[-1] // 2
    speed = base ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = time.unsqueeze(-1) * speed
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)
