"""Coarse-to-fine training beside plain training, and the strides that a task and a model allow.

A stage of stride r sees every r-th step of each sequence and is told step_scale = r, so the last stage is the plain model.
Everything else is plain training's: seeds, shuffles, batches, optimiser, number of updates an epoch. Accuracy is taken
after each epoch on the test split, on which nothing is chosen: at every step, and as the stage sees it.

Predicted for a refinement from stride r to q is the relative change of the network's outputs, kappa (delta(r) − delta(q)):
delta(r) is how far the held samples of stride r lie from the sequence, kappa how much of that the network passes on.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from continuity import benchmark
from continuity.layers.base import SequenceLayer
from continuity.models import backend, build_model
from continuity.network import ForeignLayer
from continuity.problems import Problem
from continuity.stages import Plan, Stage, options_of, plan_of
from continuity.tasks.sequences import Task
from continuity.training import Budget, Data, Trainer, error_rate, parameters, predict, seed_everything

PREDICTED = 64
"""Training sequences that a prediction is made from."""


def has_time_scale(model: nn.Module) -> bool:
    """Whether a step scale means anything to the layers of `model`."""
    layers = [layer for layer in model.modules() if isinstance(layer, SequenceLayer | ForeignLayer)]
    return any(
        "step_scale" in layer.takes
        if isinstance(layer, ForeignLayer)
        else layer.step_rule != "none" and (layer.continuous or layer.step_rule == "semigroup")
        for layer in layers
    )


def thinned(data: Data, stage: Stage) -> tuple[Data, dict]:
    """`data` as `stage` sees it, and what the model must further be told: tokens are pooled behind its embedding."""
    if stage.reduction == "pool" and not data.x.is_floating_point():
        return data, {} if stage.stride == 1 else {"reduce": stage.reduce}
    x, lengths = stage.reduce(data.x, data.lengths)
    return Data(x, data.y, lengths), {}


def seen(model: nn.Module, data: Data, stage: Stage, batch: int = 64, device: str = "cpu") -> Tensor:
    """Outputs of `model` for all of `data`, thinned as by `stage`, on the CPU."""
    coarse, options = thinned(data, stage)
    return predict(model, coarse, batch, float(stage.stride), device, **options)


def accuracy(outputs: Tensor, data: Data) -> float:
    """Share of sequences whose most likely class is right."""
    return float((outputs.argmax(-1) == data.y).double().mean())


def departure(coarse: Tensor, fine: Tensor) -> float:
    """rms change of outputs (n, k) from `fine` to `coarse`, over the sd of `fine` over sequences."""
    spread = (fine - fine.mean(0)).double().pow(2).mean().sqrt()
    return float((coarse - fine).double().pow(2).mean().sqrt() / spread)


class StagedTrainer(Trainer):
    """`Trainer` with a plan; its history says stage and stride of each epoch and how accurate the weights then are.

    With one stage of stride 1 it is `Trainer`, bit for bit. Stopped and started again it continues in the same stage.
    """

    def __init__(self, plan: Plan, model, train: Data, test: Data, budget: Budget, seed: int, checkpoint: Path | None = None,
                 device: str = "cpu", tell=lambda: None):  # fmt: skip
        budget = replace(budget, epochs=plan.total(budget.epochs))
        super().__init__(model, train, test, budget, seed, cross_entropy, error_rate, checkpoint, device, tell)
        self.plan, self.stage = plan, None

    def _stage(self, epoch: int, *newest: float) -> Stage:
        losses = [line["loss"] for line in self.outcome.history]
        return self.plan.stage(epoch, self.budget.epochs, [*losses, *newest])

    def enter(self, stage: Stage) -> None:
        """Train on the sequences as `stage` sees them from now on."""
        if stage != self.stage:
            self.stage = stage
            self.source, self.options = thinned(self.train, stage)

    def _epoch(self, epoch, stop):
        self.enter(self._stage(epoch))
        super()._epoch(epoch, stop)

    def _factor(self):
        return self.plan.rate(self.step, self.budget.epochs, self.steps_per_epoch, self.budget.warmup)

    def _forward(self, x, lengths):
        return self.model(x, lengths=lengths, step_scale=float(self.stage.stride), **self.options)

    def _judge(self, epoch):
        stage, after = self.stage, self._stage(epoch + 1, self.summed / len(self.train))
        outputs = {stride: self._outputs(stride) for stride in {1, stage.stride, after.stride}}
        right = {stride: accuracy(found, self.validation) for stride, found in outputs.items()}
        first = epoch * self.steps_per_epoch
        line = {
            "validation": 1 - right[1],
            "accuracy": right[1],
            "accuracy_stage": right[stage.stride],
            "stage": stage.index + 1,
            "stride": stage.stride,
            "lr": self.budget.lr * self.plan.rate(first, self.budget.epochs, self.steps_per_epoch, self.budget.warmup),
        }
        if after.index != stage.index:
            line["next"] = after.stride
            line["accuracy_next"] = right[after.stride]
            line["drift"] = departure(outputs[stage.stride], outputs[after.stride])
        return line

    def _outputs(self, stride: int) -> Tensor:
        return seen(self.model, self.validation, replace(self.stage, stride=stride), self.budget.batch, self.device)


@dataclass(frozen=True)
class Prediction:
    """kappa of a network on its data, and delta by stride: the predicted drift is kappa times the change of delta."""

    kappa: float
    delta: dict

    def drift(self, stride: int, finer: int = 1) -> float:
        """Relative change of the outputs when `stride` is refined to `finer`."""
        return self.kappa * (self.delta[stride] - self.delta[finer])


def hold_error(latents: Tensor, stage: Stage, lengths: Tensor | None = None) -> float:
    """delta: rms distance of latents (n, L, d), as unit vectors, from what `stage` holds of them, over their rms."""
    unit = torch.nn.functional.normalize(latents.double(), dim=-1)
    coarse, _ = stage.reduce(unit, lengths)
    held = coarse.repeat_interleave(stage.stride, 1)[:, : unit.shape[1]]
    if lengths is not None:
        inside = torch.arange(unit.shape[1])[None] < lengths[:, None]
        unit, held = unit[inside], held[inside]
    return float(((held - unit).pow(2).sum() / unit.pow(2).sum()).sqrt())


def hold_error_of(mu_t: Sequence[float], beta: float, stride: int) -> float:
    """delta of a stride by index from a task's score: 2 sqrt((1 − beta) mean over lags t < stride of (1 − mu_t)), mu_0 = 1.

    mu_t: lags 1, 2, …; ValueError where they end before stride − 1.
    """
    if len(mu_t) < stride - 1:
        raise ValueError(f"delta of stride {stride} needs mu_t up to lag {stride - 1}; there are {len(mu_t)} lags")
    return 2 * ((1 - beta) * sum(1 - mu for mu in mu_t[: stride - 1]) / stride) ** 0.5


@torch.no_grad()
def foresee(model: nn.Module, data: Data, strides: Sequence[int], reduction: str = "index", device: str = "cpu") -> Prediction:
    """kappa of `model` as it is, over `strides`, and delta of its encoder's latents; from the first sequences of `data`.

    kappa: geometric mean over the strides above 1 of the drift from that stride to stride 1, over delta; NaN without any.
    """
    few = Data(data.x[:PREDICTED], data.y[:PREDICTED], None if data.lengths is None else data.lengths[:PREDICTED])
    lengths = None if few.lengths is None else few.lengths.to(device)
    latents = model.encode(few.x.to(device), lengths).float().cpu()
    stages = {stride: Stage(0, stride, 0, 1, reduction) for stride in sorted({1, *strides})}
    delta = {stride: hold_error(latents, stage, few.lengths) for stride, stage in stages.items()}
    outputs = {stride: seen(model, few, stage, device=device) for stride, stage in stages.items()}
    ratios = [departure(outputs[stride], outputs[1]) / delta[stride] for stride in stages if delta[stride] > 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        return Prediction(float(np.exp(np.mean(np.log(ratios)))) if ratios else float("nan"), delta)


def automatic(prediction: Prediction, tolerance: float, **options) -> Plan:
    """The plan from the coarsest stride whose predicted drift is at most `tolerance` straight to stride 1.

    Plain training where every stride drifts more. options: of `Plan`, but strides.
    """
    allowed = [stride for stride in prediction.delta if stride > 1 and prediction.drift(stride) <= tolerance]
    return Plan([max(allowed), 1], **options) if allowed else Plan([1])


def chosen(entry: dict, model: nn.Module, data: Data, device: str = "cpu") -> tuple[Plan, Prediction]:
    """The plan of a config entry and what it predicts for `model`, untrained, on `data`.

    Raises ValueError for a plan that cannot be, or a stride longer than a sequence.
    """
    shortest = data.x.shape[1] if data.lengths is None else int(data.lengths.min())
    plan = plan_of(entry)
    if "automatic" not in entry:
        plan.check_lengths(shortest)
        return plan, foresee(model, data, plan.strides, plan.reduce, device)
    candidates = [stride for stride in entry["automatic"]["strides"] if stride <= shortest]
    prediction = foresee(model, data, candidates, plan.reduce, device)
    return automatic(prediction, entry["automatic"]["tolerance"], **options_of(entry)), prediction


def train(
    task: Task, model: dict, network: dict, budget: Budget, plan: dict, seed: int, device: str = "cpu",
    checkpoint: Path | None = None, tell=lambda: None,
) -> tuple[list[dict], list[dict], str]:  # fmt: skip
    """(rows of `curriculum`, rows of `curriculum_times`, backend) of one network trained by the plan of a config entry.

    Raises Problem for a plan that does not fit the task.
    """
    seed_everything(seed)
    built = build_model(model, network, **benchmark.ends(task)).to(device)
    training, test = (benchmark.data(task.splits[split]) for split in ("train", "test"))
    keys = {"task": task.name, "model": model["name"], "plan": plan["name"], "seed": seed}
    try:
        staged, prediction = chosen(plan, built, training, device)
        trainer = StagedTrainer(staged, built, training, test, budget, seed, checkpoint, device, tell)
        staged.counts(trainer.budget.epochs)
    except ValueError as error:
        raise Problem(f"curriculum.plans: {plan['name']}: task {task.name}: {error}") from None
    _rehearse(trainer)
    outcome = trainer.fit()
    shared = keys | {"parameters": parameters(built), "time_scale": has_time_scale(built)}
    shared["majority"] = benchmark.majority(task)
    rows = [shared | line for line in _lines(trainer, prediction)]
    if outcome.status != "ok":
        rows.append(shared | {"epoch": outcome.epochs + 1, "status": outcome.status, "reason": outcome.reason})
    times = [keys | {"epoch": epoch, "seconds": seconds} for epoch, seconds in enumerate(trainer.seconds, start=1)]
    return rows, times, backend(built)


def _rehearse(trainer: StagedTrainer) -> None:
    """Run one batch of every stride on a copy of the network, so that no epoch pays for compiling or planning kernels."""
    model, spare = trainer.model, copy.deepcopy(trainer.model)
    trainer.model = spare
    for stage in trainer.plan.stages(trainer.budget.epochs):
        trainer.enter(stage)
        trainer._loss(*trainer._feed([torch.arange(min(len(trainer.train), trainer.budget.batch))])).backward()
    trainer.model = model


def _lines(trainer: StagedTrainer, prediction: Prediction) -> list[dict]:
    """The history as columns of `curriculum`, with the steps read so far and what was predicted of each refinement."""
    lines, samples = [], 0
    columns = ("epoch", "stage", "stride", "accuracy", "accuracy_stage", "accuracy_next", "loss", "lr", "drift")
    for line in trainer.outcome.history:
        samples += _steps(trainer.train, line["stride"])
        row = {name: _finite(line.get(name)) for name in columns} | {"samples": samples}
        if "next" in line:
            row["predicted"] = _finite(prediction.drift(line["stride"], line["next"]))
        lines.append(row)
    return lines


def _steps(data: Data, stride: int) -> int:
    """Steps of all sequences of `data` at `stride`."""
    if data.lengths is None:
        return len(data) * -(-data.x.shape[1] // stride)
    return int((-(-data.lengths // stride)).sum())


def _finite(value):
    return None if value is None or not np.isfinite(value) else value
