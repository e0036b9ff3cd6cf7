"""Parts that several gated layers share: a short convolution in samples or in time, heads, normalisations."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from continuity.layers.base import check_count

CONV_TIMES = ("samples", "time")


class ShortConvolution(nn.Module):
    """Depthwise causal convolution with `width` taps, then SiLU.

    conv_time "samples": tap i reads i samples back, whatever the sampling step. "time": tap i reads the time i steps
    of the training grid back, between two samples by linear interpolation; time before the first sample holds zeros.
    """

    def __init__(self, channels: int, width: int = 4, conv_time: str = "samples"):
        super().__init__()
        check_count("d_conv", width)
        if conv_time not in CONV_TIMES:
            raise ValueError(f"unknown conv_time {conv_time!r}: choose one of {', '.join(CONV_TIMES)}")
        self.width, self.conv_time = width, conv_time
        bound = width**-0.5
        self.weight = nn.Parameter(torch.empty(channels, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(channels).uniform_(-bound, bound))

    def forward(self, x, step_scale=1.0):
        """x (B, L, D) -> (B, L, D)."""
        if self.conv_time == "samples" or step_scale == 1:
            padded = F.pad(x.transpose(1, 2), (self.width - 1, 0))
            y = F.conv1d(padded, self.weight.unsqueeze(1), self.bias, groups=x.shape[2]).transpose(1, 2)
            return F.silu(y)
        y = self.bias.expand_as(x)
        for lag, weight in self._taps(step_scale):
            if lag < x.shape[1]:
                y = y + weight * F.pad(x[:, : x.shape[1] - lag], (0, 0, lag, 0))
        return F.silu(y)

    def step(self, x, past, step_scale=1.0):
        """One sample x (B, D) and the past (B, n, D), oldest first -> (output, next past)."""
        past = torch.cat([past, x.unsqueeze(1)], 1)
        scale = step_scale if self.conv_time == "time" else 1.0
        y, reach = self.bias.expand_as(x), 0
        for lag, weight in self._taps(scale):
            reach = max(reach, lag)
            if lag < past.shape[1]:
                y = y + weight * past[:, past.shape[1] - 1 - lag]
        return F.silu(y), past[:, max(0, past.shape[1] - reach) :]

    def initial_state(self, batch):
        return self.weight.new_zeros(batch, 0, self.weight.shape[0])

    def _taps(self, step_scale):
        """(lag in samples, weight (D,)) of every sample read."""
        for i in range(self.width):
            weight = self.weight[:, self.width - 1 - i]
            back = round(i / step_scale, 9)
            lag = math.floor(back)
            yield lag, weight * (1 - (back - lag))
            if back > lag:
                yield lag + 1, weight * (back - lag)


class HeadNorm(nn.Module):
    """Root-mean-square normalisation over each head's channels, (…, H, d), with a learned scale shared by the heads."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return rms(x) * self.weight


def rms(x, eps=1e-5):
    """x / sqrt(mean(x^2) + eps) over the last dimension."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def heads(x, n_heads):
    """(B, L, H d) -> (B, H, L, d)."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def full(*tensors):
    """Tensors in float32 at least, as every state is kept under autocast."""
    return tuple(x.to(torch.promote_types(x.dtype, torch.float32)) for x in tensors)
