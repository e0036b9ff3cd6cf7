"""Plans of coarse-to-fine training: the stride of each stage, what it sees of a sequence, the learning rate. Needs no torch.

A plan in a PyTorch loop of your own:

    plan = Plan(strides=[8, 4, 1])
    scheduler = LambdaLR(optimizer, lambda step: plan.rate(step, epochs, len(loader)))
    for stage in plan.stages(epochs):
        for _ in range(stage.epochs):
            for x, y in loader:
                x, lengths = stage.reduce(x)
                loss = criterion(model(x, step_scale=stage.stride), y)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

REDUCTIONS = ("index", "pool")


def rate(step: int, steps: int, warmup: float) -> float:
    """Factor on the learning rate at step 0 … steps − 1: linear warm-up over a share of the steps, then cosine to zero."""
    ramp = max(1, round(warmup * steps))
    if step < ramp:
        return (step + 1) / (ramp + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - ramp) / max(1, steps - ramp)))


def index(x, stride: int, lengths=None):
    """Every stride-th step of x (B, L, …), from the first: (B, ceil(L / stride), …), and the lengths (B,) likewise."""
    return x[:, ::stride], None if lengths is None else -(-lengths // stride)


def pool(x, stride: int, lengths=None):
    """Means of x (B, L, …) over windows of `stride` real steps: (B, ceil(L / stride), …), and the lengths (B,) likewise.

    The last window of a sequence may hold fewer steps, whose mean it is; windows without a real step are 0.
    Raises ValueError for tokens, which have no mean: pool them behind the embedding (`SequenceModel(..., reduce=)`).
    """
    import torch

    if not x.is_floating_point():
        raise ValueError(f"steps of {x.dtype} have no mean: pool behind the embedding, or take reduce='index'")
    n = -(-x.shape[1] // stride)
    real = torch.full(x.shape[:1], x.shape[1], device=x.device) if lengths is None else lengths.to(x.device)
    count = (real[:, None] - stride * torch.arange(n, device=x.device)).clamp(0, stride)  # (B, n)
    inside = torch.arange(n * stride, device=x.device) < real[:, None]  # (B, n stride)
    x = torch.cat([x, x.new_zeros(len(x), n * stride - x.shape[1], *x.shape[2:])], 1)
    x = x.masked_fill(~inside.reshape(*inside.shape, *[1] * (x.ndim - 2)), 0)
    total = x.unflatten(1, (n, stride)).sum(2)  # (B, n, …)
    mean = total / count.clamp_min(1).reshape(*count.shape, *[1] * (x.ndim - 2)).to(x.dtype)
    return mean, None if lengths is None else -(-lengths // stride)


@dataclass(frozen=True)
class Stage:
    """One stage of a plan: its place from 0, its stride, its first epoch and number of epochs, and how it thins sequences."""

    index: int
    stride: int
    start: int
    epochs: int
    reduction: str = "index"

    def reduce(self, x, lengths=None):
        """(x (B, L, …), lengths (B,) or None) as this stage sees them; stride 1 leaves both as they are."""
        if self.stride == 1:
            return x, lengths
        return (index if self.reduction == "index" else pool)(x, self.stride, lengths)


@dataclass(frozen=True)
class Plan:
    """Coarse-to-fine training: stage s sees the steps of a sequence at strides[s] and multiplies Delta by strides[s].

    strides: none above the one before it; the last is 1, so that the last stage is the plain model
    shares: of the epochs, one a stage, summing to 1; None: equal. Whole epochs, the remainder by largest fraction
    epochs: one number a stage, in place of shares
    reduce: "index" takes every stride-th step, "pool" the mean over stride steps
    restart: a cosine a stage from the full learning rate, or one over all steps; warm-up is once, at the start, either way
    patience, improvement: a stage ends early when the loss of `patience` epochs in a row stays above (1 − improvement)
        times the least before them; the epochs left go to the last stage. Needs restart=False. None: never

    Raises ValueError, in one line, for anything else.
    """

    strides: Sequence[int]
    shares: Sequence[float] | None = None
    epochs: Sequence[int] | None = None
    reduce: str = "index"
    restart: bool = True
    patience: int | None = None
    improvement: float = 0.01

    def __post_init__(self):
        for name in ("strides", "shares", "epochs"):
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else tuple(given))
        _check_strides(self.strides)
        if self.shares is not None and self.epochs is not None:
            raise ValueError("a plan takes shares or epochs, not both")
        for name in ("shares", "epochs"):
            given = getattr(self, name)
            if given is not None and len(given) != len(self.strides):
                raise ValueError(f"{name} {list(given)} must be one a stage: there are {len(self.strides)} strides")
        if self.shares is not None and (min(self.shares) <= 0 or abs(sum(self.shares) - 1) > 1e-6):
            raise ValueError(f"shares {list(self.shares)} must be positive and sum to 1; they sum to {sum(self.shares):g}")
        if self.epochs is not None and not all(_whole(count) for count in self.epochs):
            raise ValueError(f"epochs {list(self.epochs)} must be positive whole numbers")
        if self.reduce not in REDUCTIONS:
            raise ValueError(f"unknown reduce {self.reduce!r}: choose one of {', '.join(REDUCTIONS)}")
        if self.patience is not None and self.restart:
            raise ValueError("a plan with patience cannot know when a cosine ends: set restart to false")
        if self.patience is not None and not (_whole(self.patience) and 0 <= self.improvement < 1):
            raise ValueError("patience must be a positive whole number of epochs, improvement a share in [0, 1)")

    def total(self, epochs: int) -> int:
        """Epochs of the whole plan where plain training has `epochs`."""
        return epochs if self.epochs is None else sum(self.epochs)

    def counts(self, epochs: int, losses: Sequence[float] = ()) -> tuple[int, ...]:
        """Epochs of each stage, of `epochs` in all; `losses` are those of the epochs trained so far, where patience counts.

        Raises ValueError where a stage would get no epoch.
        """
        if self.epochs is not None:
            planned = self.epochs
        else:
            planned = _divide(epochs, self.shares or (1 / len(self.strides),) * len(self.strides))
            if min(planned) < 1:
                raise ValueError(f"{epochs} epochs leave a stage of strides {list(self.strides)} without one: {list(planned)}")
        if self.patience is None:
            return planned
        ended, done = [], 0
        for count in planned[:-1]:
            ended.append(self._stalled(losses[done : done + count]) or count)
            done += ended[-1]
        return (*ended, sum(planned) - done)

    def stages(self, epochs: int, losses: Sequence[float] = ()) -> list[Stage]:
        """The stages in their order, over `epochs` in all."""
        counts = self.counts(epochs, losses)
        starts = [sum(counts[:s]) for s in range(len(counts))]
        found = zip(self.strides, starts, counts, strict=True)
        return [Stage(s, stride, start, count, self.reduce) for s, (stride, start, count) in enumerate(found)]

    def stage(self, epoch: int, epochs: int, losses: Sequence[float] = ()) -> Stage:
        """The stage that epoch 0 … epochs − 1 belongs to."""
        return next(stage for stage in reversed(self.stages(epochs, losses)) if stage.start <= epoch)

    def rate(self, step: int, epochs: int, steps_per_epoch: int, warmup: float = 0.0) -> float:
        """Factor on the learning rate at `step` of epochs · steps_per_epoch; `warmup` is a share of all steps.

        The warm-up takes at most half of the first stage. With one stage this is `rate`, plain training's.
        """
        steps = self.total(epochs) * steps_per_epoch
        if not self.restart or len(self.strides) == 1:
            return rate(step, steps, warmup)
        stage = self.stage(step // steps_per_epoch, epochs)
        begin, count = stage.start * steps_per_epoch, stage.epochs * steps_per_epoch
        if stage.index == 0:
            return rate(step, count, min(0.5, warmup * steps / count))
        return 0.5 * (1 + math.cos(math.pi * (step - begin) / count))

    def check_lengths(self, shortest: int) -> None:
        """ValueError where a stride is longer than the shortest sequence."""
        if self.strides[0] > shortest:
            raise ValueError(f"stride {self.strides[0]} is longer than the shortest sequence, {shortest} steps: lower it")

    def _stalled(self, losses: Sequence[float]) -> int | None:
        """After how many epochs the loss had stopped improving; None where it has not."""
        for done in range(self.patience + 1, len(losses) + 1):
            before = done - self.patience
            if min(losses[before:done]) > (1 - self.improvement) * min(losses[:before]):
                return done
        return None


def _check_strides(strides: tuple) -> None:
    if not strides or not all(_whole(stride) for stride in strides):
        raise ValueError(f"strides {list(strides)} must be positive whole numbers, one a stage")
    for before, after in zip(strides, strides[1:], strict=False):
        if after > before:
            raise ValueError(f"strides {list(strides)} grow from {before} to {after}: coarse comes first")
    if strides[-1] != 1:
        raise ValueError(f"strides {list(strides)} end in {strides[-1]}: the last stage must see every step, stride 1")


def _whole(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _divide(epochs: int, shares: Sequence[float]) -> tuple[int, ...]:
    """`epochs` in whole parts by `shares`; the remainder goes to the largest fractions, the first of equal ones first."""
    exact = [round(epochs * share, 9) for share in shares]
    parts = [math.floor(part) for part in exact]
    by_fraction = sorted(range(len(shares)), key=lambda s: (parts[s] - exact[s], s))
    for s in by_fraction[: epochs - sum(parts)]:
        parts[s] += 1
    return tuple(parts)


def options_of(entry: dict) -> dict:
    """The arguments of `Plan` in a config entry {name, tasks, models, automatic, …}."""
    return {key: value for key, value in entry.items() if key not in ("name", "tasks", "models", "automatic")}


def plan_of(entry: dict) -> Plan:
    """The plan of a config entry; an automatic one, whose strides are to come, as [2, 1]. Raises ValueError as `Plan`."""
    return Plan(**({"strides": [2, 1]} if "automatic" in entry else {}) | options_of(entry))
