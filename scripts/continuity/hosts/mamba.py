"""A plain selective forecaster: patches of every channel, a residual stack of one layer kind, a linear head."""

from torch import nn

from continuity.hosts.base import Host, apart, count_patches, patches
from continuity.network import Block, make_layer


class MambaForecaster(Host):
    """Channel-independent: every channel of an instance is a sequence of tokens of its own.

    patch, stride: steps of a token and between tokens · d_model, n_layers, dropout: the stack · layer: mamba, s6, or any
    sequence layer by name, or a user's by "module:function" · layer_options go to it.
    """

    def __init__(self, channels, input_length, horizon, patch=16, stride=8, d_model=16, n_layers=1, dropout=0.0,
                 layer="mamba", layer_options=None):  # fmt: skip
        super().__init__(channels, input_length, horizon)
        self.patch, self.stride = patch, stride
        self.tokens = count_patches(input_length, patch, stride)
        self.embed = nn.Linear(patch, d_model)
        self.blocks = nn.ModuleList(
            Block(make_layer(layer, d_model, **(layer_options or {})), d_model, dropout, "pre") for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(self.tokens * d_model, horizon)

    def core(self, z):
        h = self.embed(patches(apart(z), self.patch, self.stride))  # (B C, tokens, d)
        for block in self.blocks:
            h = block(h, 1.0, None)
        y = self.head(self.norm(h).flatten(1))
        return y.view(len(z), self.channels, self.horizon).transpose(1, 2)
