"""The network around a sequence layer: encoder → residual stack → masked pooling → decoder, and its parameter groups."""

import importlib
import inspect

import torch
import torch.nn.functional as F
from torch import nn

from continuity.layers import build
from continuity.layers.base import SequenceLayer, check_count, keep, real_steps

NORMS = ("post", "pre")
READOUTS = ("mean", "last", "none")


class ForeignLayer(nn.Module):
    """A user's own module (B, L, D) -> (B, L, D); step_scale and lengths reach it where its forward takes them."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module
        taken = inspect.signature(module.forward).parameters
        anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in taken.values())
        self.takes = [name for name in ("step_scale", "lengths") if anything or name in taken]

    def forward(self, u, step_scale=1.0, lengths=None):
        inside = real_steps(lengths, u)
        u = keep(u, inside)
        given = {"step_scale": step_scale, "lengths": lengths}
        y = self.module(u, **{name: given[name] for name in self.takes})
        if not torch.is_tensor(y) or y.shape != u.shape:
            found = tuple(y.shape) if torch.is_tensor(y) else type(y).__name__
            raise ValueError(f"{type(self.module).__name__} must return its input's shape {tuple(u.shape)}, got {found}")
        return keep(y, inside)


def make_layer(layer: str, d_model: int, **options) -> nn.Module:
    """A layer of the registry by name, or a user's by "module:function", called as function(d_model, **options)."""
    if ":" not in layer:
        return build(layer, d_model, **options)
    module, _, function = layer.partition(":")
    try:
        factory = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"cannot load layer {layer!r}: {error}") from error
    made = factory(d_model, **options)
    if not isinstance(made, nn.Module):
        raise ValueError(f"{layer} must return a torch module, got {type(made).__name__}")
    return made if isinstance(made, SequenceLayer) else ForeignLayer(made)


class Block(nn.Module):
    """Residual block: norm, layer, dropout. A layer that acts on channels apart gets GELU and a gated linear map
    behind it.
    """

    def __init__(self, layer: nn.Module, d_model: int, dropout: float, norm: str):
        super().__init__()
        self.layer, self.prenorm = layer, norm == "pre"
        self.norm = nn.LayerNorm(d_model)
        self.mixing = nn.Linear(d_model, 2 * d_model) if getattr(layer, "needs_mixing", False) else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, step_scale, lengths):
        y = self.layer(self.norm(x) if self.prenorm else x, step_scale=step_scale, lengths=lengths)
        if self.mixing is not None:
            y = F.glu(self.mixing(self.dropout(F.gelu(y))), dim=-1)
        x = x + self.dropout(y)
        return x if self.prenorm else self.norm(x)


class SequenceModel(nn.Module):
    """x -> encoder -> n_layers residual blocks -> pooling -> decoder.

    layer: a name of `continuity.layers.LAYERS`, or "module:function" of a user's own; layer_options go to it.
    Give d_input for real sequences (B, L, d_input), or vocab for tokens (B, L) int64. norm "post" or "pre" (then a
    last norm follows the stack). readout "mean" over real steps, "last" real step, or "none": an output a step.
    forward(x, lengths, step_scale, reduce): reduce(h, lengths) -> (h, lengths) thins the encoded sequence before the stack.
    Returns (B, d_output), with readout "none" (B, L, d_output), 0 past the real lengths.
    Raises ValueError for unknown choices, both or neither of d_input and vocab, and input of another shape.
    """

    def __init__(
        self,
        layer,
        d_input=None,
        vocab=None,
        d_model=64,
        n_layers=2,
        d_output=1,
        dropout=0.0,
        norm="post",
        readout="mean",
        layer_options=None,
    ):
        super().__init__()
        if (d_input is None) == (vocab is None):
            raise ValueError("give either d_input (real sequences) or vocab (tokens), not both and not neither")
        for name, value, known in (("norm", norm, NORMS), ("readout", readout, READOUTS)):
            if value not in known:
                raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(known)}")
        end = ("vocab", vocab) if d_input is None else ("d_input", d_input)
        for name, value in (("d_model", d_model), ("n_layers", n_layers), ("d_output", d_output), end):
            check_count(name, value)
        self.d_input, self.vocab, self.readout = d_input, vocab, readout
        self.encoder = nn.Embedding(vocab, d_model) if vocab else nn.Linear(d_input, d_model)
        self.blocks = nn.ModuleList(
            Block(make_layer(layer, d_model, **(layer_options or {})), d_model, dropout, norm) for _ in range(n_layers)
        )
        self.last_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.decoder = nn.Sequential(nn.Linear(d_model, d_model), nn.GELU(), nn.Linear(d_model, d_output))

    def forward(self, x, lengths=None, step_scale=1.0, reduce=None):
        h, inside = self.states(x, lengths, step_scale, reduce)
        if self.readout == "none":
            return keep(self.decoder(h), inside)
        return self.decoder(pool(h, inside, self.readout))

    def encode(self, x, lengths=None):
        """The encoder's output (B, L, d_model), 0 past the real lengths: the latents of `continuity.metric`."""
        self._check(x)
        inside = real_steps(lengths, x)
        if self.d_input is not None:
            return keep(self.encoder(keep(x, inside)), inside)
        tokens = x if inside is None else torch.where(inside.squeeze(-1), x, torch.zeros_like(x))
        if tokens.device.type == "cpu" and (int(tokens.min()) < 0 or int(tokens.max()) >= self.vocab):
            raise ValueError(f"tokens must lie in 0 … {self.vocab - 1}, got {int(tokens.min())} … {int(tokens.max())}")
        return keep(self.encoder(tokens), inside)

    def states(self, x, lengths=None, step_scale=1.0, reduce=None):
        """(output of the stack (B, L, d_model), mask of real steps (B, L, 1) or None)."""
        h = self.encode(x, lengths)
        if reduce is not None:
            h, lengths = reduce(h, lengths)
        for block in self.blocks:
            h = block(h, step_scale, lengths)
        return self.last_norm(h), real_steps(lengths, h)

    def _check(self, x):
        if self.d_input is not None and (x.ndim != 3 or x.shape[2] != self.d_input or not x.is_floating_point()):
            raise ValueError(f"model needs real input (batch, length, {self.d_input}), got {tuple(x.shape)} of {x.dtype}")
        if self.vocab is not None and (x.ndim != 2 or x.is_floating_point() or x.is_complex()):
            raise ValueError(f"model needs tokens (batch, length) of whole numbers, got {tuple(x.shape)} of {x.dtype}")


def pool(h, inside, readout):
    """(B, L, D) -> (B, D): mean over the real steps, or the last real step."""
    if inside is None:
        return h.mean(1) if readout == "mean" else h[:, -1]
    count = inside.sum(1)  # (B, 1)
    if readout == "mean":
        return keep(h, inside).sum(1) / count
    return torch.gather(h, 1, (count - 1).unsqueeze(-1).expand(-1, 1, h.shape[2])).squeeze(1)


def optim_groups(model: nn.Module, lr: float, weight_decay: float, layer_lr: float = 1e-3) -> list[dict]:
    """Three parameter groups for an optimiser.

    "dynamics": A, B and Delta of every layer (`SequenceLayer.dynamics`), at layer_lr, no decay; "plain": biases, norms and
    other vectors, at lr, no decay; "decayed": everything else, at lr with weight_decay. Each carries
    its `name`.
    """
    dynamics = {
        id(layer.get_parameter(name))
        for layer in model.modules()
        if isinstance(layer, SequenceLayer)
        for name in layer.dynamics
    }
    groups = {"dynamics": [], "plain": [], "decayed": []}
    for parameter in model.parameters():
        if id(parameter) in dynamics:
            groups["dynamics"].append(parameter)
        else:
            groups["plain" if parameter.ndim < 2 else "decayed"].append(parameter)
    rates = {"dynamics": (layer_lr, 0.0), "plain": (lr, 0.0), "decayed": (lr, weight_decay)}
    return [
        {"name": name, "params": members, "lr": rates[name][0], "weight_decay": rates[name][1]}
        for name, members in groups.items()
        if members
    ]
