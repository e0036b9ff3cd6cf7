"""Where a network stops being continuous: in which layer, which channel, which part of the sequence.

The network sees the same sequences at two sampling steps, coarse[j] = fine[r j]. In units of the standard deviation of a
layer's own outputs, and at the times that both have,

    departure  how far its output on the coarse samples is from its output on the fine ones
    own        the same where it is given every r-th sample of its fine input: what it adds itself, not what it inherits

so that `own` names the layer at fault, and `departure` what reaches it. Of a layer with a selective Delta(u), the local
Lipschitz constant |dDelta/du| (spectral norm of the Jacobian) says how abruptly its clock follows its input.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

BINS = 16
"""Parts of the sequence."""
CHANNELS = 16
"""Channels of a layer that are listed, those that add most."""
SEQUENCES_PROBED = 8
"""Sequences at which the Jacobian of Delta is taken."""


@dataclass(frozen=True)
class Passage:
    """What went through one layer: input and output (B, L, D), and the samples that Delta was selected from, or None."""

    given: Tensor
    output: Tensor
    selected: Tensor | None


@torch.no_grad()
def diagnose(model: nn.Module, coarse: Tensor, fine: Tensor, step_scale: float = 1.0, bins: int = BINS,
             channels: int = CHANNELS) -> list[dict]:  # fmt: skip
    """Rows of layer, channel, position (middle of a part, as a share of the sequence) and what is measured there.

    model: a `SequenceModel` · coarse (B, L, d) at `step_scale`, fine at step_scale / r: the same sequences, r times the
    samples, r a whole number · rows hold departure and own of the channel, departure_layer and own_layer of all channels
    together, and, at the middle of the part, delta (mean) and lipschitz_delta (largest over sequences) at the trained step.
    Raises ValueError for a model without blocks, and for sequences that are not the same.
    """
    blocks = getattr(model, "blocks", None)
    if not isinstance(blocks, nn.ModuleList):
        raise ValueError(f"{type(model).__name__} has no stack of blocks to look into: give a SequenceModel")
    ratio = _ratio(coarse, fine)
    model.eval()
    rough, smooth = _passages(model, coarse, step_scale), _passages(model, fine, step_scale / ratio)
    rows = []
    for number, (block, seen, truth) in enumerate(zip(blocks, rough, smooth, strict=True), start=1):
        common = slice(None, ratio * coarse.shape[1], ratio)
        wanted = truth.output[:, common]
        alone = block.layer(truth.given[:, common], step_scale=step_scale, lengths=None)
        spread = wanted.double().std()
        parts = {"departure": _binned(seen.output - wanted, bins) / spread, "own": _binned(alone - wanted, bins) / spread}
        clock = _clock(_selective(block.layer), seen.selected, len(parts["own"]))
        rows += [{"layer": number} | row for row in _rows(parts, clock, channels)]
    return rows


def first_departure(rows: list[dict], share: float = 0.5) -> dict:
    """The row of `diagnose` where the network first departs by itself.

    It is of the first layer with an `own` of at least `share` of the largest anywhere, of the channel that adds most in it,
    and of the first part of the sequence in which that channel adds `share` of its own largest.
    """
    largest = max(row["own"] for row in rows)
    layer = min(row["layer"] for row in rows if row["own"] >= share * largest)
    worst = max((row for row in rows if row["layer"] == layer), key=lambda row: row["own"])
    early = [row for row in rows if row["layer"] == layer and row["channel"] == worst["channel"]]
    return min((row for row in early if row["own"] >= share * worst["own"]), key=lambda row: row["position"])


def _ratio(coarse: Tensor, fine: Tensor) -> int:
    """Fine samples for each coarse one."""
    same = coarse.ndim == fine.ndim == 3 and coarse.shape[0] == fine.shape[0] and coarse.shape[2] == fine.shape[2]
    if same and coarse.shape[1] > 0:
        ratio = -(-fine.shape[1] // coarse.shape[1])
        found = fine[:, :: max(ratio, 1)][:, : coarse.shape[1]]
        if ratio > 1 and found.shape == coarse.shape and torch.allclose(found, coarse, rtol=1e-4, atol=1e-5):
            return ratio
    raise ValueError(
        f"coarse {tuple(coarse.shape)} is not every r-th sample of fine {tuple(fine.shape)}: "
        "sample the same sequences at both steps, coarse[:, j] = fine[:, r j], r at least 2"
    )


def _passages(model: nn.Module, x: Tensor, step_scale: float) -> list[Passage]:
    """What goes through each layer of `model` on x."""
    seen, hooks = {}, []
    sources = [_selective(block.layer) for block in model.blocks]
    records = [_Record(source) for source in sources if source is not None]
    for number, block in enumerate(model.blocks):
        hooks.append(block.layer.register_forward_hook(
            lambda _, given, output, number=number: seen.update({number: (given[0], output)})))  # fmt: skip
    try:
        model(x, step_scale=step_scale)
    finally:
        for hook in [*hooks, *records]:
            hook.remove()
    selected = {id(record.module): record.samples for record in records}
    return [Passage(*seen[number], selected.get(id(source))) for number, source in enumerate(sources)]


def _selective(layer: nn.Module) -> nn.Module | None:
    """The part of a layer that selects Delta from its input: `selection(u)` → (Delta, …)."""
    return next((part for part in layer.modules() if callable(getattr(part, "selection", None))), None)


class _Record:
    """Remembers the sequences that `module.selection` is called with, until removed."""

    def __init__(self, module: nn.Module):
        self.module, self.samples = module, None
        plain = module.selection

        def recorded(u):
            self.samples = u if u.ndim == 3 else self.samples
            return plain(u)

        module.selection = recorded

    def remove(self) -> None:
        del self.module.selection


def _binned(change: Tensor, bins: int) -> Tensor:
    """Root mean square of a change (B, L, D) over sequences and the samples of each of `bins` parts: (bins, D), float64."""
    length = change.shape[1]
    bins = min(bins, length)
    part = torch.arange(length, device=change.device) * bins // length
    squares = change.double().square().mean(0)  # (L, D)
    total = squares.new_zeros(bins, squares.shape[1]).index_add(0, part, squares)
    return (total / torch.bincount(part, minlength=bins)[:, None]).sqrt()


def _clock(source: nn.Module | None, samples: Tensor | None, bins: int) -> list[dict]:
    """Mean Delta and its local Lipschitz constant in the middle of each part; nothing for a layer that selects no Delta."""
    if source is None or samples is None:
        return [{}] * bins
    middle = [int((k + 0.5) * samples.shape[1] / bins) for k in range(bins)]
    u = samples[:SEQUENCES_PROBED, middle]  # (b, bins, D)
    delta, slope = source.selection(u)[0], lipschitz_delta(source, u)
    return [{"delta": float(delta[:, k].mean()), "lipschitz_delta": float(slope[:, k].max())} for k in range(bins)]


def lipschitz_delta(source: nn.Module, u: Tensor) -> Tensor:
    """Spectral norm of dDelta/du at samples u (…, D), for Delta = source.selection(u)[0] (…, D): shape (…)."""
    with torch.enable_grad():
        u = u.detach().requires_grad_()
        delta = source.selection(u)[0]
        # A sample's Delta depends on that sample alone, so one gradient of the sum is a row of every Jacobian.
        rows = [torch.autograd.grad(delta[..., d].sum(), u, retain_graph=True)[0] for d in range(delta.shape[-1])]
    return torch.linalg.matrix_norm(torch.stack(rows, -2), ord=2)


def _rows(parts: dict[str, Tensor], clock: list[dict], channels: int) -> list[dict]:
    """One row a part and listed channel; parts hold (bins, D)."""
    strongest = parts["own"].square().sum(0).nan_to_num(torch.inf).argsort(descending=True, stable=True)[:channels]
    together = {f"{name}_layer": found.square().mean(1).sqrt().tolist() for name, found in parts.items()}
    apart = {name: found.tolist() for name, found in parts.items()}
    bins = len(clock)
    return [
        {"channel": channel, "position": (k + 0.5) / bins}
        | {name: found[k][channel] for name, found in apart.items()}
        | {name: found[k] for name, found in together.items()}
        | clock[k]
        for channel in sorted(strongest.tolist())
        for k in range(bins)
    ]
