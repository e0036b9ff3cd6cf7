"""SST: a patched Mamba for the long range and a local Transformer for the short, mixed by a router (Xu et al., CIKM 2025)."""

import torch
from torch import nn

from continuity.hosts.base import Host, apart, count_patches, patches
from continuity.layers.base import check_count, check_heads
from continuity.network import make_layer

DEFECTS = ("window", "fusion", "individual", "schedule")
"""What the released code does otherwise than its paper says; see `SST`."""
ADJUSTS = ("type3", "SST")


class SST(Host):
    """Two experts on one normalised window: Mamba on long patches of all of it, attention on short patches of its end.

    The long expert has m_layers of [layer, Linear, GELU, Linear] without residual or norm, the short one e_layers of
    attention within a window of `local_window` tokens that adds the scores of the layer before (RealFormer), with
    BatchNorm after each residual. Both are channel-independent. The router sees the whole window and gives each sample
    one pair of weights that sum to 1. concat: the weighted experts side by side, else added; individual: a head a channel.
    layer, layer_options: the selective layer, mamba by default.
    as_released: True, or names among DEFECTS, each corrected otherwise: "window": a token attends only to tokens outside
    its window, never to itself; "fusion": without concat, or with individual heads, the weights (B,) meet the experts'
    last axis; "individual": heads of later channels find the long expert's output overwritten, and fail; "schedule": the
    learning rate of `released_rate` and Adam's beta1 of .95, in which the option for the warm-up share has no effect (the
    trainer reads them); adjust: "type3", or "SST" as for electricity and traffic.
    Raises ValueError for unknown defects, an even window, sizes that do not fit, and where the released code fails.
    """

    released_beta1 = 0.95

    def __init__(self, channels, input_length, horizon, short_length=None, long_patch=48, long_stride=16, short_patch=16,
                 short_stride=8, d_model=16, d_ff=128, n_heads=4, m_layers=1, e_layers=3, dropout=0.3, local_window=7,
                 concat=True, individual=False, layer="mamba", layer_options=None, as_released=(),
                 adjust="type3"):  # fmt: skip
        super().__init__(channels, input_length, horizon)
        self.released, self.adjust = defects(as_released), adjust
        if adjust not in ADJUSTS:
            raise ValueError(f"sst: unknown adjust {adjust!r}: choose one of {', '.join(ADJUSTS)}")
        self.short_length = input_length // 2 if short_length is None else check_count("short_length", short_length)
        if self.short_length > input_length:
            raise ValueError(f"sst: short_length {short_length} is longer than the input of {input_length} steps")
        self.long_patch, self.long_stride = long_patch, long_stride
        self.short_patch, self.short_stride = short_patch, short_stride
        self.long_tokens = count_patches(input_length, long_patch, long_stride)
        self.short_tokens = count_patches(self.short_length, short_patch, short_stride)
        self.long_embed = nn.Linear(long_patch, d_model)
        options = layer_options or {}
        self.long = nn.ModuleList(LongLayer(make_layer(layer, d_model, **options), d_model, d_ff) for _ in range(m_layers))
        self.short_embed = nn.Linear(short_patch, d_model)
        self.positions = nn.Parameter(torch.empty(self.short_tokens, d_model).uniform_(-0.02, 0.02))
        self.dropout = nn.Dropout(dropout)
        mask = attention_mask(self.short_tokens, local_window, inverted="window" in self.released)
        self.register_buffer("mask", mask, persistent=False)
        self.short = nn.ModuleList(ShortLayer(d_model, d_ff, n_heads, dropout) for _ in range(e_layers))
        self.route = nn.Sequential(nn.Linear(channels, d_model), nn.Flatten(), nn.Linear(input_length * d_model, 2))
        sizes = d_model * self.long_tokens, d_model * self.short_tokens
        self.head = Fusion(channels, *sizes, horizon, concat, individual, self.released)

    def released_rate(self, epoch):
        """Factor on the learning rate in epoch 1, 2, … of the released training."""
        return released_rate(epoch, self.adjust)

    def core(self, z):
        self.router = self.route(z).softmax(-1)  # (B, 2)
        long = self.long_embed(patches(apart(z), self.long_patch, self.long_stride))  # (B C, tokens, d)
        for layer in self.long:
            long = layer(long)
        short = self.short_embed(patches(apart(z[:, -self.short_length :]), self.short_patch, self.short_stride))
        short, scores = self.dropout(short + self.positions), None
        for layer in self.short:
            short, scores = layer(short, scores, self.mask)
        shape = len(z), self.channels, -1
        return self.head(long.reshape(shape), short.reshape(shape), self.router).transpose(1, 2)


def defects(as_released):
    """The names among DEFECTS that `as_released` (True, False or names) stands for. ValueError for any other."""
    if isinstance(as_released, bool):
        return DEFECTS if as_released else ()
    unknown = [name for name in as_released if name not in DEFECTS]
    if unknown:
        raise ValueError(
            f"sst: as_released names {', '.join(map(repr, unknown))}: it may be true, or name {', '.join(DEFECTS)}"
        )
    return tuple(as_released)


def attention_mask(tokens, window, inverted=False):
    """(tokens, tokens), True where attention is allowed: at most window // 2 tokens away; inverted: farther than that.

    ValueError for an even window, and, inverted, for one so wide that a token has none to attend to.
    """
    check_count("local_window", window)
    if window % 2 == 0:
        raise ValueError(f"sst: local_window must be odd, to reach as far back as ahead, got {window}")
    distance = (torch.arange(tokens)[:, None] - torch.arange(tokens)).abs()
    mask = distance > window // 2 if inverted else distance <= window // 2
    if not mask.any(1).all():
        raise ValueError(f"sst: as released, a window of {window} leaves some of {tokens} tokens none to attend to")
    return mask


def released_rate(epoch, adjust="type3"):
    """Factor on the learning rate in epoch 1, 2, …: .04 in the first, where OneCycleLR's constructor leaves it, then as
    `adjust` says: "type3": 1 up to epoch 4, then .9 a further epoch; "SST" (electricity, traffic): .04 to the end.
    """
    if epoch == 1 or adjust == "SST":
        return 0.04
    return 0.9 ** max(0, epoch - 4)


class LongLayer(nn.Module):
    """The selective layer and a feed-forward map, without residual or norm: (B, L, d) -> (B, L, d)."""

    def __init__(self, layer, d_model, d_ff):
        super().__init__()
        self.layer = layer
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.GELU(), nn.Linear(d_ff, d_model))

    def forward(self, u):
        return self.ff(self.layer(u))


class ShortLayer(nn.Module):
    """Masked attention whose scores start from those of the layer before, then a feed-forward map.

    (u (B, L, d), scores (B, heads, L, L) or None, mask (L, L)) -> (u, scores); each residual is followed by BatchNorm.
    """

    def __init__(self, d_model, d_ff, n_heads, dropout):
        super().__init__()
        self.width, self.n_heads = check_heads(d_model, n_heads), n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.GELU(), nn.Dropout(dropout), nn.Linear(d_ff, d_model))
        self.out_dropout, self.ff_dropout = nn.Dropout(dropout), nn.Dropout(dropout)
        self.attention_norm, self.ff_norm = nn.BatchNorm1d(d_model), nn.BatchNorm1d(d_model)

    def forward(self, u, scores, mask):
        batch, length, d = u.shape
        q, k, v = self.qkv(u).view(batch, length, 3, self.n_heads, self.width).permute(2, 0, 3, 1, 4)
        found = q @ k.transpose(-1, -2) * self.width**-0.5
        scores = found if scores is None else found + scores
        seen = scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v  # (B, heads, L, width)
        attended = self.out(seen.transpose(1, 2).reshape(batch, length, d))
        u = _norm(self.attention_norm, u + self.out_dropout(attended))
        return _norm(self.ff_norm, u + self.ff_dropout(self.ff(u))), scores


def _norm(norm, u):
    return norm(u.transpose(1, 2)).transpose(1, 2)


class Fusion(nn.Module):
    """The experts' outputs, weighed by the router, to the forecast: (B, C, f_long), (B, C, f_short), (B, 2) -> (B, C, H)."""

    def __init__(self, channels, long, short, horizon, concat, individual, released):
        super().__init__()
        self.concat, count = concat, channels if individual else 1
        self.misaligned = "fusion" in released and (individual or not concat)
        self.overwrites = "individual" in released and individual and channels > 1
        self.to_short = None if concat else nn.ModuleList(nn.Linear(long, short) for _ in range(count))
        self.heads = nn.ModuleList(nn.Linear(long + short if concat else short, horizon) for _ in range(count))

    def forward(self, long, short, router):
        if self.overwrites:
            raise ValueError("sst: as released, individual heads lose the long expert's output after the first channel")
        long = long if self.to_short is None else each(self.to_short, long)
        long, short = self._weigh(router[:, 0], long), self._weigh(router[:, 1], short)
        return each(self.heads, torch.cat([long, short], -1) if self.concat else long + short)

    def _weigh(self, weight, expert):
        if not self.misaligned:
            return weight.view(-1, 1, 1) * expert
        if len(weight) not in (1, expert.shape[-1]):
            raise ValueError(
                f"sst: as released, the {len(weight)} router weights of a batch meet {expert.shape[-1]} features: "
                "their numbers must be equal"
            )
        return weight * expert


def each(maps, x):
    """x (B, C, f) through one linear map for all channels, or one a channel."""
    if len(maps) == 1:
        return maps[0](x)
    weight, bias = torch.stack([m.weight for m in maps]), torch.stack([m.bias for m in maps])
    return torch.einsum("bcf,chf->bch", x, weight) + bias
