"""What every forecaster shares: shapes, instance normalisation, patches."""

import torch
import torch.nn.functional as F
from torch import nn

from continuity.layers.base import check_count

EPSILON = 1e-5
"""Added to the variance of an instance, as in RevIN."""


def normalize(x):
    """(z, centre, scale) of x (B, L, C): each channel of each instance with mean 0 and standard deviation 1 over time.

    Reversible instance normalisation (Kim et al. 2022) without an affine map: x = z scale + centre.
    """
    centre = x.mean(1, keepdim=True)
    scale = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + EPSILON)
    return (x - centre) / scale, centre, scale


def patches(x, length, stride):
    """Windows of x (B, L) over its last axis, padded with `stride` copies of the last value: (B, tokens, length)."""
    return F.pad(x, (0, stride), mode="replicate").unfold(-1, length, stride)


def count_patches(input_length, length, stride):
    """Number of tokens that `patches` makes. ValueError for patches longer than the padded input."""
    check_count("patch", length)
    check_count("stride", stride)
    if length > input_length + stride:
        raise ValueError(f"patch {length} is longer than the input of {input_length} steps and its padding of {stride}")
    return (input_length + stride - length) // stride + 1


def apart(x):
    """(B, L, C) -> (B C, L): every channel an instance of its own, those of one sample together."""
    return x.transpose(1, 2).reshape(-1, x.shape[1])


class Host(nn.Module):
    """A forecaster: x (B, input_length, C) -> (B, horizon, C).

    A subclass writes `core` on instances that are normalised unless `normalized` is False. `disturb`, a function of
    (B, L, C), changes what the core sees, after the normalisation. lengths and step_scale are taken for the trainer's
    sake and mean nothing here. `router` holds the weights (B, 2) of the last forward where experts are mixed, else None.
    Raises ValueError for an input of another shape.
    """

    normalized = True

    def __init__(self, channels, input_length, horizon):
        super().__init__()
        for name, value in (("channels", channels), ("input_length", input_length), ("horizon", horizon)):
            check_count(name, value)
        self.channels, self.input_length, self.horizon = channels, input_length, horizon
        self.router = None

    def forward(self, x, lengths=None, step_scale=1.0, disturb=None):
        if x.ndim != 3 or x.shape[1:] != (self.input_length, self.channels):
            wanted = f"(batch, {self.input_length}, {self.channels})"
            raise ValueError(f"{type(self).__name__} needs an input {wanted}, got {tuple(x.shape)}")
        disturb = disturb or (lambda z: z)
        if not self.normalized:
            return self.core(disturb(x))
        z, centre, scale = normalize(x)
        return self.core(disturb(z)) * scale + centre

    def core(self, z):
        """The forecast of normalised instances, in their units."""
        raise NotImplementedError(f"{type(self).__name__} must define core(z)")
