"""A penalty on the dissipation block of every selective layer of a model, for any training loop.

    regularizer = DissipationRegularizer(model, weight=0.1, storage="diagonal")
    optimizer.add_param_group({"params": regularizer.parameters(), "weight_decay": 0.0})
    …
    loss = criterion(model(x), y) + regularizer()

(Zubic & Scaramuzza, arXiv 2505.11602; blocks and formulas in `continuity.dissipation`.)
"""

from dataclasses import dataclass, replace
from weakref import WeakMethod

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from continuity import dissipation
from continuity.discretization import inverse_softplus
from continuity.layers.base import real_steps
from continuity.layers.s6 import OBSERVERS, S6

STORAGES = ("identity", "diagonal")
CHANNELS = ("mean", "max")
FLOOR = 1e-3
TOGETHER = 32
"""Channels that share one drawn set of tokens."""
SCALES = tuple(2.0**k for k in range(-8, 9))
TRIED = 2**13
FOREIGN = ("in_proj", "conv1d", "x_proj", "dt_proj", "A_log", "D")


@dataclass(frozen=True)
class Seen:
    """What a selective layer did in its last forward pass: u and delta (B, L, D), A (D, N), B and C (B, L, N)."""

    u: torch.Tensor
    delta: torch.Tensor
    A: torch.Tensor
    B: torch.Tensor
    C: torch.Tensor
    D: torch.Tensor
    discretization: str
    lengths: torch.Tensor | None = None
    certified: dict | None = None

    def detached(self):
        parts = {name: getattr(self, name).detach() for name in ("u", "delta", "A", "B", "C", "D")}
        return replace(self, **parts)

    def at(self, token, channel=None):
        """Tokens, by their flat index, and channels as a batch of sequences of length 1."""
        d = slice(None) if channel is None else channel
        parts = {name: getattr(self, name) for name in ("u", "delta", "B", "C", "D")}
        parts = {name: x.reshape(-1, 1, x.shape[-1])[token] if x.ndim == 3 else x for name, x in parts.items()}
        for name in ("u", "delta", "D"):
            parts[name] = parts[name][..., d]
        certified = self.certified
        if certified:
            rate = certified["beta"].reshape(-1, 1, certified["beta"].shape[-1])[token][..., d]
            certified = certified | {"p": certified["p"][d], "beta": rate}
        return replace(self, A=self.A[d], lengths=None, certified=certified, **parts)

    def tokens(self):
        """Flat indices of the real tokens."""
        inside = self.inside()
        count = self.delta.shape[0] * self.delta.shape[1]
        device = self.delta.device
        return torch.arange(count, device=device) if inside is None else inside.reshape(-1).nonzero().squeeze(-1)

    def inside(self):
        """(B, L) boolean, True on real steps, or None where all are real."""
        mask = real_steps(self.lengths, self.u)
        return None if mask is None else mask.squeeze(-1)


class DissipationRegularizer(nn.Module):
    """weight · mean over layers and blocks of max(0, lambda_max)^exponent of the last forward pass.

    Attaches to every `S6` of the model (those inside `Mamba` and of second directions included) and to every module
    laid out as mamba-ssm's Mamba (in_proj, conv1d, x_proj, dt_proj, A_log, D), whose Delta, B and C are computed anew.
    A layer's padding is left out. A layer that carries a certificate of its own (`layers.certified`) is measured with
    it and not penalised.

    storage "identity": P = 1; "diagonal": P = diag(q), q = softplus + a floor, mean 1 in each layer, shared by all tokens
    and learned: give `parameters()` to the optimiser. beta, supply and output: `continuity.dissipation`. feedthrough:
    whether D counts. channels "max": the largest eigenvalue over channels before the mean over tokens. blocks: at most
    so many blocks a step, drawn uniformly with replacement from a generator seeded by (seed, step), so that the mean is
    unbiased and a resumed run (`state_dict`) draws what it would have drawn.

    With weight 0 the value is a plain 0, nothing is drawn and no graph is kept. Raises ValueError for a model without
    selective layers or with the averaged rule (it has no one-step block), and for unknown choices.
    """

    def __init__(
        self, model, weight, storage="identity", beta=1e-3, supply="unit", output="post", feedthrough=True, exponent=1,
        channels="mean", blocks=None, seed=0,
    ):  # fmt: skip
        super().__init__()
        _check(weight, storage, beta, supply, output, exponent, channels, blocks)
        self.weight, self.beta, self.supply, self.output = float(weight), float(beta), supply, output
        self.feedthrough, self.exponent, self.channels = bool(feedthrough), exponent, channels
        self.blocks, self.seed = blocks, int(seed)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        self._layers = _attach(model, self)
        self._seen: dict[int, Seen] = {}
        self._counted = 0
        self.q_raw = nn.ParameterList()
        if storage == "diagonal":
            start = inverse_softplus(torch.tensor(1 - FLOOR, dtype=torch.float64)).item()
            self.q_raw.extend(nn.Parameter(torch.full_like(layer.A_log.detach(), start)) for layer in self._layers)

    def storages(self) -> list[torch.Tensor]:
        """p (D, N) of each layer: ones, or the learned q, whose mean is 1."""
        if not len(self.q_raw):
            return [torch.ones_like(layer.A_log.detach()) for layer in self._layers]
        q = [F.softplus(raw) + FLOOR for raw in self.q_raw]
        return [one / one.mean() for one in q]

    def forward(self) -> torch.Tensor:
        """The penalty on the last forward pass. Raises ValueError where there was none since the last call."""
        if self.weight == 0:
            return torch.zeros((), device=self.step.device)
        if self._counted == len(self._layers):
            raise ValueError("the model has not run since the regularizer was last called")
        parts = [self._penalty(i, seen, p) for i, (seen, p) in enumerate(self._pairs())]
        self._seen = {i: seen.detached() for i, seen in self._seen.items()}
        self._counted = len(self._layers)
        self.step += 1
        return self.weight * torch.stack(parts).mean()

    @torch.no_grad()
    def measure(self, feedthrough=None) -> dict[str, float]:
        """Means over the layers of the last forward pass, with D on or off (default: as penalised).

        violation: mean of max(0, lambda_max) at the storage in use, the published number; violating_share: share of
        blocks with lambda_max > 0; violation_scaled: mean of max(0, lambda_max) of the scaled block
        (`dissipation.scaled_violation`). For the last two the scale of the storage, and of beta with it, is free: the
        best of a grid around `dissipation.free_scale`, so that no rescaling of B, C and D changes them. state_norm:
        root mean square of the hidden state's entries over real tokens, channels and states. Only `blocks` blocks are
        drawn where that is set.
        """
        on = self.feedthrough if feedthrough is None else feedthrough
        rows = [self._measured(i, seen.detached(), p, on) for i, (seen, p) in enumerate(self._pairs())]
        return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}

    @torch.no_grad()
    def per_sample(self, feedthrough=None) -> torch.Tensor:
        """Mean of max(0, lambda_max) of every sample of the last forward pass: (B,), over real tokens, channels, layers."""
        on = self.feedthrough if feedthrough is None else feedthrough
        means = []
        for seen, p in self._pairs():
            value = self._violation(seen.detached(), p, on).mean(-1)
            inside = seen.inside()
            inside = torch.ones_like(value) if inside is None else inside.to(value.dtype)
            means.append((value * inside).sum(1) / inside.sum(1))
        return torch.stack(means).mean(0)

    def observe(self, layer, u, delta, B, C, step_scale, lengths):
        """Called by a layer of `continuity.layers` on its every forward pass."""
        if step_scale != 1 and layer._powers(step_scale):
            raise ValueError("the dissipation block of a semigroup step is not that of a finer step: train at step_scale 1")
        delta, certified, through = delta * step_scale, None, layer.D
        if hasattr(layer, "certificate"):
            with torch.no_grad():
                certified = layer.certificate(delta, B, C)
            through = certified.pop("D")
        self._keep(layer, Seen(u, delta, layer.A(), B, C, through, layer.discretization, lengths, certified))

    def observe_foreign(self, layer, inputs, output):
        """Forward hook of a module laid out as mamba-ssm's Mamba: computes Delta, B and C from its input."""
        with torch.set_grad_enabled(bool(self.weight) and torch.is_grad_enabled()):
            self._keep(layer, self._recomputed(layer, inputs[0]))

    @staticmethod
    def _recomputed(layer, u):
        x = F.linear(u, layer.in_proj.weight, layer.in_proj.bias).chunk(2, -1)[0]  # (B, L, D)
        x = F.silu(layer.conv1d(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        rank, n = layer.dt_proj.weight.shape[1], layer.A_log.shape[1]
        low_rank, B, C = F.linear(x, layer.x_proj.weight, layer.x_proj.bias).split([rank, n, n], -1)
        delta = F.softplus(F.linear(low_rank, layer.dt_proj.weight) + layer.dt_proj.bias)
        return Seen(x, delta, -torch.exp(layer.A_log), B, C, layer.D, "euler")

    def _keep(self, layer, seen):
        at = next(i for i, known in enumerate(self._layers) if known is layer)
        self._counted = 0
        self._seen[at] = seen if self.weight and torch.is_grad_enabled() else seen.detached()

    def _pairs(self):
        if len(self._seen) < len(self._layers):
            raise ValueError("the regularizer has not seen every selective layer run: call the model first")
        return [(self._seen[i], p) for i, p in enumerate(self.storages())]

    def _penalty(self, layer, seen, p):
        if seen.certified:
            return seen.delta.new_zeros(())
        seen, p = self._sample(layer, seen, p, whole=self.channels == "max")
        value = self._violation(seen, p, self.feedthrough)
        if self.channels == "max":
            value = value.amax(-1)
        inside = seen.inside()
        return (value if inside is None else value[inside]).pow(self.exponent).mean()

    def _how(self, seen, p):
        """Keywords of a block's functions: as penalised, or as certified."""
        how = {"p": p, "beta": self.beta, "supply": self.supply, "output": self.output} | (seen.certified or {})
        return how | {"discretization": seen.discretization}

    def _violation(self, seen, p, feedthrough):
        D = seen.D if feedthrough or seen.certified else None
        return dissipation.selective_violation(seen.delta, seen.A, seen.B, seen.C, D, **self._how(seen, p))

    def _sample(self, layer, seen, p, whole=False):
        """At most `blocks` blocks of one layer: uniform real tokens times uniform channels (`whole`: all of them)."""
        share = None if self.blocks is None else max(1, self.blocks // len(self._layers))
        width = seen.delta.shape[2]
        if share is None or seen.delta.numel() <= share:
            return seen, p
        entropy = np.random.SeedSequence([self.seed, int(self.step), layer]).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(entropy[0]))
        kept = width if whole else min(width, TOGETHER)
        tokens = seen.tokens()
        token = tokens[torch.randint(len(tokens), (max(1, share // kept),), generator=generator).to(tokens.device)]
        channel = torch.randint(width, (kept,), generator=generator) if kept < width else torch.arange(width)
        return seen.at(token, channel.to(token.device)), p[channel.to(p.device)]

    def _measured(self, layer, seen, p, feedthrough):
        norm = state_norm(seen)
        seen, p = self._sample(layer, seen, p)
        inside = seen.inside()
        real = slice(None) if inside is None else inside
        violation = self._violation(seen, p, feedthrough)[real].mean()
        how, D = self._how(seen, p), seen.D if feedthrough or seen.certified else None
        if not seen.certified:
            how |= _best_scale(seen, D, how)
        eigenvalue, scaled = (
            function(seen.delta, seen.A, seen.B, seen.C, D, **how)[real]
            for function in (dissipation.selective_violation, dissipation.scaled_violation)
        )
        return {
            "violation": violation.item(),
            "violation_scaled": scaled.mean().item(),
            "violating_share": dissipation.violating_share(eigenvalue),
            "state_norm": norm,
        }


def _best_scale(seen, D, how):
    """p and beta, scaled alike, for which the mean scaled violation of at most TRIED blocks is least."""
    tokens = seen.tokens()
    few = seen.at(tokens[:: max(1, len(tokens) * seen.delta.shape[2] // TRIED)])
    some = None if D is None else few.D
    rule = {"discretization": how["discretization"], "supply": how["supply"]}
    centre = dissipation.free_scale(few.delta, few.A, few.B, few.C, how["p"], **rule)
    tried = {}
    for factor in SCALES:
        options = how | {"p": factor * centre * how["p"], "beta": factor * centre * how["beta"]}
        tried[factor] = dissipation.scaled_violation(few.delta, few.A, few.B, few.C, some, **options).mean().item()
    best = centre * min(tried, key=tried.get)
    return {"p": best * how["p"], "beta": best * how["beta"]}


def state_norm(seen) -> float:
    """Root mean square of the hidden states' entries over real tokens, channels and states."""
    z = torch.zeros_like(seen.A).expand(len(seen.u), -1, -1)
    inside = seen.inside()
    total, count = 0.0, 0
    for k in range(seen.u.shape[1]):
        a, _, b = dissipation.one_step(seen.delta[:, k : k + 1], seen.A, seen.B[:, k : k + 1], seen.discretization)
        z = a.squeeze(1) * z + b.squeeze(1) * seen.u[:, k].unsqueeze(-1)
        kept = z if inside is None else z[inside[:, k]]
        total, count = total + kept.double().square().sum().item(), count + kept.numel()
    return (total / count) ** 0.5


def _attach(model, regularizer):
    """Selective layers of `model`, in order, each told to report to `regularizer`."""
    layers = []
    for name, module in model.named_modules():
        if isinstance(module, S6):
            if module.discretization == "averaged":
                raise ValueError(f"layer {name!r} uses the averaged rule, which has no one-step block: choose zoh or euler")
            OBSERVERS.setdefault(module, []).append(WeakMethod(regularizer.observe))
        elif all(hasattr(module, part) for part in FOREIGN):
            module.register_forward_hook(regularizer.observe_foreign)
        else:
            continue
        layers.append(module)
    if not layers:
        raise ValueError("the model holds no selective layer (S6, Mamba, or a module laid out as mamba-ssm's Mamba)")
    return tuple(layers)


def _check(weight, storage, beta, supply, output, exponent, channels, blocks):
    choices = (
        ("storage", storage, STORAGES), ("channels", channels, CHANNELS), ("supply", supply, dissipation.SUPPLIES),
        ("output", output, dissipation.OUTPUTS),
    )  # fmt: skip
    for name, value, known in choices:
        if value not in known:
            raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(known)}")
    if not weight >= 0 or not beta >= 0:
        raise ValueError(f"weight and beta must not be negative, got {weight} and {beta}")
    if not exponent >= 1:
        raise ValueError(f"exponent must be at least 1, got {exponent}")
    if blocks is not None and (not isinstance(blocks, int) or blocks < 1):
        raise ValueError(f"blocks must be a positive whole number or None, got {blocks!r}")
