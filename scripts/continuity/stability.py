"""Forecasters whose selective memory is left alone, penalised for not being dissipative, or dissipative by construction.

A run trains one host on one set and horizon. All runs of a seed start from the same weights and see the same batches,
whatever their storage, so that differences between storages are paired.

storage: "none", no penalty · "identity", a penalty with P = I · "diagonal", a penalty with P = diag(q), q learned with
mean 1 · "certified", layers that are passive for every weight (`layers.certified`). None and identity are measured with
P = I, diagonal with its q, certified with its certificate.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from continuity import models, perturbations
from continuity.hosts import build_host
from continuity.hosts.base import Host
from continuity.layers.certified import Certified, CertifiedMamba
from continuity.layers.s6 import S6
from continuity.problems import Problem
from continuity.regularizer import DissipationRegularizer, state_norm
from continuity.series import Windows
from continuity.training import Batch, Budget, Outcome, Trainer, parameters, seed_everything
from continuity.variants import Traits, Variant

WHERE = ("before", "after")
"""Whether a perturbation meets the input before or after the host's instance normalisation."""
CERTIFIED = {"mamba": CertifiedMamba, "s6": Certified}
"""The certified form of a selective layer; both draw the same initial weights."""
MEASURED = ("violation", "violation_scaled", "violating_share")


@dataclass(frozen=True)
class Plan:
    """What is trained and how it is measured.

    host: a config entry {name, host, options} · penalty: options of the regulariser in training (supply, output,
    feedthrough, exponent, channels, blocks) · beta: that of the measurement, the same for all runs · batch: windows at
    once in evaluation.
    """

    host: Mapping
    budget: Budget
    penalty: Mapping
    beta: float = 0.0
    device: str = "cpu"
    batch: int = 128

    def build(self, data: Mapping[str, Windows], variant: Variant) -> Host:
        """The untrained host, its penalty attached as `host.penalty` where the variant has one.

        Raises Problem where the host's options do not fit, or the variant needs what the host does not have.
        """
        train, name = data["train"], self.host["name"]
        try:
            host = build_host(
                self.host["host"], train.values.shape[1], train.input_length, train.horizon, **self.options(variant.storage)
            )
            host.penalty = None
            if variant.weight or variant.router_weight:
                storage = variant.storage if variant.weight else "identity"
                host.penalty = DissipationRegularizer(host, variant.weight, storage, variant.beta, **self.penalty)
        except ValueError as error:
            raise Problem(f"stability.hosts: {name}: {error}") from None
        if variant.router_weight and not hasattr(host, "route"):
            raise Problem(f"stability.router_weights: host {name} has no router; leave only 0")
        return host.to(self.device)

    def options(self, storage: str) -> dict:
        """The host's options, with the certified form of its selective layer for storage "certified"."""
        options = dict(self.host.get("options", {}))
        if storage == "certified":
            layer = options.get("layer", "mamba")
            if layer not in CERTIFIED:
                raise ValueError(f"layer {layer} has no certified form; there is one of {', '.join(CERTIFIED)}")
            supply = {"supply": self.penalty["supply"]} if "supply" in self.penalty else {}
            options["layer"] = f"{CERTIFIED[layer].__module__}:{CERTIFIED[layer].__name__}"
            options["layer_options"] = options.get("layer_options", {}) | supply
        return options


def traits(host: Host) -> Traits:
    """What an untrained or trained host has."""
    selective = any(isinstance(module, S6) for module in host.modules())
    return Traits(parameters(host) > 0, selective, hasattr(host, "route"))


class ForecastTrainer(Trainer):
    """A `Trainer` whose loss adds the host's penalty, and which can follow SST's released schedule."""

    def __init__(self, host: Host, data: Mapping[str, Windows], plan: Plan, variant: Variant, seed: int, **options):
        super().__init__(host, data["train"], data["validation"], plan.budget, seed, mse_loss, validation_error, **options)
        self.router_weight = variant.router_weight
        self.released = "schedule" in getattr(host, "released", ())
        if self.released:
            for group in self.optimizer.param_groups:
                group["betas"] = (host.released_beta1, group["betas"][1])

    def _factor(self) -> float:
        return self.model.released_rate(self.step // self.steps_per_epoch + 1) if self.released else super()._factor()

    def _loss(self, batch: Batch) -> Tensor:
        loss, penalty = super()._loss(batch), self.model.penalty
        if penalty is None:
            return loss
        if penalty.weight:
            loss = loss + penalty()
        if self.router_weight:
            loss = loss + self.router_weight * (self.model.router[:, 0] * per_window(penalty, len(batch[0]))).mean()
        return loss


def per_window(penalty: DissipationRegularizer, count: int) -> Tensor:
    """Mean violation of each of the `count` windows of the last forward pass, over channels, tokens and states: (count,)."""
    return penalty.per_sample().view(count, -1).mean(1)


class Gauge(DissipationRegularizer):
    """What a host's memory does in its last forward pass, measured without a penalty."""

    def __init__(self, host: Host, plan: Plan, variant: Variant, storage: str):
        options = {name: value for name, value in plan.penalty.items() if name in ("supply", "output", "blocks")}
        super().__init__(host, 0.0, storage, plan.beta, **options)
        if storage == "diagonal":
            self.q_raw.load_state_dict(host.penalty.q_raw.state_dict())
        self.to(plan.device)

    @torch.no_grad()
    def quick(self) -> dict[str, float]:
        """violation and state_norm as in `measure`, and the largest eigenvalue of any block, clipped at 0."""
        values = [self._violation(seen.detached(), p, True) for seen, p in self._pairs()]
        norms = [state_norm(seen) for seen, _ in self._pairs()]
        return {
            "violation": sum(value.double().mean().item() for value in values) / len(values),
            "violation_max": max(value.max().item() for value in values),
            "state_norm": sum(norms) / len(norms),
        }


class Memory:
    """The memory of a trained host, measured in float64 on a copy of it: the host's own storage, D off, and P = I."""

    def __init__(self, fitted: "Fitted"):
        fitted.host.router = None  # a tensor within a graph cannot be copied
        self.host = copy.deepcopy(fitted.host).double()
        self.variant, made = fitted.variant, partial(Gauge, self.host, fitted.plan, fitted.variant)
        self.own, self.identity = None, None
        if traits(self.host).selective:
            self.own = made("diagonal" if self.variant.storage == "diagonal" else "identity")
            self.identity = made("identity") if self.variant.storage == "diagonal" else self.own

    def quick(self) -> dict[str, float]:
        """violation, violation_max and state_norm of the last forward pass; empty for a host without selective layers."""
        return self.own.quick() if self.own else {}

    def full(self) -> dict[str, float]:
        """`quick` and `measure`, again with suffix _d_off, D not counted, and _identity, P = I; not so for a certificate."""
        if not self.own:
            return {}
        measured = self.own.measure(True)
        found = measured | self.own.quick()
        if self.variant.storage == "certified":
            return found
        identity = measured if self.identity is self.own else self.identity.measure(True)
        others = {"_d_off": self.own.measure(False), "_identity": identity}
        return found | {name + suffix: taken[name] for suffix, taken in others.items() for name in MEASURED}


def dtype_of(host: Host) -> torch.dtype:
    """The floating type that a host computes in."""
    return next((parameter.dtype for parameter in host.parameters()), torch.float32)


@torch.no_grad()
def assess(host: Host, windows: Windows, plan: Plan, before=None, after=None, taken: Callable[[], dict] = dict) -> dict:
    """mse and mae over every entry of every window, and the means of what `taken` finds after each batch.

    before, after: functions (x, index) that change the input of the windows `index`, before or after normalisation. Keys
    that end in _max hold the largest, not the mean.
    """
    host.eval()
    sums = {}
    for index in torch.arange(len(windows)).split(plan.batch):
        x, y, _ = windows.take(index, plan.device)
        x = x.to(dtype_of(host))
        x = x if before is None else before(x, index)
        error = (host(x, disturb=None if after is None else partial(after, index=index)) - y).double()
        found = {"mse": error.square().mean().item(), "mae": error.abs().mean().item()} | taken()
        for name, value in found.items():
            if name.endswith("_max"):
                sums[name] = max(sums.get(name, value), value)
            else:
                sums[name] = sums.get(name, 0.0) + value * len(index) / len(windows)
    return sums


def validation_error(host: Host, windows: Windows, batch: int, device: str) -> float:
    """Mean square error over every entry of every window; the memory is not looked at."""
    total = 0.0
    host.eval()
    with torch.no_grad():
        for index in torch.arange(len(windows)).split(batch):
            x, y, _ = windows.take(index, device)
            total += (host(x) - y).double().square().mean().item() * len(index)
    return total / len(windows)


@dataclass(frozen=True)
class Fitted:
    """One trained host."""

    data: Mapping[str, Windows]
    plan: Plan
    variant: Variant
    host: Host
    outcome: Outcome
    keys: dict


def fit(data: Mapping[str, Windows], plan: Plan, variant: Variant, keys: Mapping, checkpoint: Path | None = None,
        tell: Callable[[], None] = lambda: None) -> Fitted:  # fmt: skip
    """One host trained from `keys` {dataset, horizon, seed}, with the weights of its best validation epoch.

    A host without parameters is not trained.
    """
    seed_everything(keys["seed"])
    host, outcome = plan.build(data, variant), Outcome()
    if parameters(host):
        options = {"checkpoint": checkpoint, "device": plan.device, "tell": tell}
        outcome = ForecastTrainer(host, data, plan, variant, keys["seed"], **options).fit()
    return Fitted(data, plan, variant, host, outcome, dict(keys) | {"host": plan.host["name"]} | vars(variant))


def row(fitted: Fitted, count: int) -> dict:
    """A row of the stability table: errors over all test windows, and what the memory does in `count` of them."""
    outcome, host, test = fitted.outcome, fitted.host, fitted.data["test"]
    size = parameters(host) - (parameters(host.penalty) if host.penalty is not None else 0)
    found = {"parameters": size, "epochs": outcome.epochs, "best_epoch": outcome.best_epoch}
    found |= fitted.keys | {"status": outcome.status, "reason": outcome.reason}
    if outcome.status != "ok":
        return found
    errors = assess(host, test, fitted.plan)
    memory, router, violation = Memory(fitted), [], []

    def taken():
        if memory.own and memory.host.router is not None:
            router.append(memory.host.router[:, 0])
            violation.append(per_window(memory.own, len(router[-1])))
        return memory.full()

    found |= assess(memory.host, test.first(count), fitted.plan, taken=taken) | errors
    if router:
        weight = torch.cat(router)
        found |= {"router_mean": weight.mean().item(), "router_sd": weight.std(correction=0).item()}
        found["router_correlation"] = correlation(weight, torch.cat(violation))
    return found


def correlation(x: Tensor, y: Tensor) -> float | None:
    """Pearson's coefficient; None where either does not vary."""
    x, y = x.double() - x.double().mean(), y.double() - y.double().mean()
    spread = (x.square().sum() * y.square().sum()).sqrt().item()
    return (x * y).sum().item() / spread if spread > 0 else None


def perturbed(fitted: Fitted, kinds: list[str], levels: list[float], where: list[str], count: int, seed: int) -> list[dict]:
    """Rows of the robustness table: a trained host on `count` test windows, perturbed and not (perturbation "none").

    where: among WHERE; a host that does not normalise has no "after". Raises Problem for an unknown kind or level.
    """
    try:
        for kind, level in product(kinds, levels):
            perturbations.check(kind, level)
    except ValueError as error:
        raise Problem(f"stability.robustness: {error}") from None
    windows, host = fitted.data["test"].first(count), fitted.host
    cells = [("none", 0.0, "before")]
    cells += [cell for cell in product(kinds, map(float, levels), where) if host.normalized or cell[2] == "before"]
    if fitted.outcome.status != "ok":
        failed = {"status": fitted.outcome.status, "reason": fitted.outcome.reason}
        return [fitted.keys | dict(zip(("perturbation", "level", "where"), cell, strict=True)) | failed for cell in cells]
    memory = Memory(fitted)

    @lru_cache(maxsize=1)
    def change(kind):
        steps, channels = windows.input_length, windows.values.shape[1]
        drawn = perturbations.draw(kind, seed, windows.starts, steps, channels).to(fitted.plan.device)
        return lambda x, index, level: perturbations.PERTURBATIONS[kind].apply(x, drawn[index], level)

    rows = []
    for kind, level, place in cells:
        acts = {} if kind == "none" else {place: partial(change(kind), level=level)}
        found = assess(memory.host, windows, fitted.plan, **acts, taken=memory.quick)
        rows.append(fitted.keys | {"perturbation": kind, "level": level, "where": place} | found)
    return rows


def backend(host: Host) -> str:
    """The kernels that a host runs on."""
    return models.backend(host) if parameters(host) else "torch"
