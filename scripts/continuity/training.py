"""Training: one loop, resumable at any moment to the same weights, with every random choice derived from (seed, epoch)."""

import io
import math
import os
import pickle
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from continuity import curves
from continuity.adamw import AdamW
from continuity.network import optim_groups
from continuity.problems import Problem
from continuity.runs import METER
from continuity.stages import rate
from continuity.tables import atomic

SAVE_EVERY = 20.0
"""Seconds between checkpoints."""
PRECISIONS = ("float32", "bfloat16")
AHEAD = 2
"""Batches that are made ready while a device works, where the data do not fit on it."""
Batch = tuple[Tensor, Tensor, Tensor | None]
"""Sequences x, targets y, and real lengths where they differ."""


@dataclass(frozen=True)
class Budget:
    """What one training run may spend.

    epochs · batch (sequences) · lr and layer_lr (peak; the latter for A, B and Delta) · weight_decay · warmup (share of all
    steps, linear; then cosine to zero) · clip (gradient norm) · precision of the forward and backward pass, float32 or
    bfloat16 (weights, loss and evaluation stay in float32). Raises ValueError for another precision.
    """

    epochs: int
    batch: int
    lr: float
    layer_lr: float
    weight_decay: float
    warmup: float
    clip: float
    precision: str = "float32"

    def __post_init__(self):
        if self.precision not in PRECISIONS:
            raise ValueError(f"unknown precision {self.precision!r}: choose one of {', '.join(PRECISIONS)}")


@dataclass(frozen=True)
class Data:
    """Sequences x (n, L, d) or tokens (n, L), targets y (n, …), and real lengths (n,) where they differ."""

    x: Tensor
    y: Tensor
    lengths: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def device(self) -> str:
        """Where the sequences lie."""
        return self.x.device.type

    def near(self, device: str, free: float) -> "Data":
        """On `device` where x and y take at most half of `free` bytes there; else as it is, copied batch by batch."""
        size = self.x.nbytes + self.y.nbytes
        return replace(self, x=self.x.to(device), y=self.y.to(device)) if size <= free / 2 else self

    def take(self, index: Tensor, device: str) -> Batch:
        """One batch on `device`, cut to its longest sequence."""
        x, lengths = self.x[index], None
        if self.lengths is not None:
            lengths = self.lengths[index]
            x = x[:, : int(lengths.max())]
            lengths = lengths.to(device)
        return x.to(device), self.y[index].to(device), lengths


def ahead(load: Callable, items: Iterable, count: int = AHEAD) -> Iterator:
    """load(item) of each item, in order; a thread loads the next `count` while the caller is busy with one."""
    waiting, thread = deque(), ThreadPoolExecutor(1)
    try:
        for item in items:
            waiting.append(thread.submit(load, item))
            if len(waiting) > count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        thread.shutdown(cancel_futures=True)


def pinned(batch: Batch) -> Batch:
    """`batch` in page-locked memory, from which a GPU copies fastest; as it is where there is no GPU."""
    if not torch.cuda.is_available():
        return batch
    return tuple(part if part is None else part.pin_memory() for part in batch)


def at_rate(training: dict, lr: float) -> dict:
    """A training budget of the config with its learning rate `lr`; that of A, B and Delta keeps its ratio to it."""
    return training | {"lr": lr, "layer_lr": lr * training["layer_lr"] / training["lr"]}


@dataclass
class Outcome:
    """How a run ended. `best` is the lowest validation error, reached after `best_epoch` epochs (1 is the first)."""

    best: float = math.inf
    best_epoch: int = 0
    epochs: int = 0
    history: list = field(default_factory=list)
    status: str = "ok"
    reason: str | None = None


class Interrupted(SystemExit):
    """Asked to stop: the checkpoint is saved, and the same command continues from it."""


class Diverged(Exception):
    """A loss that is not finite; the message says step, learning rate and gradient norm."""


def device_of(setting: str) -> str:
    """The device that `auto`, `cpu` or `cuda` means here; CUDA where there is none, or a job with two GPUs, is a Problem."""
    if setting != "cpu" and "SLURM_JOB_ID" in os.environ and (given := gpus_given()) > 1:
        raise Problem(
            f"resources.device: {setting}, but the scheduler gave this job {given} GPUs and it uses one; "
            "ask for one a job (gpu=1, tasks_per_gpu unset) or set resources.device to cpu"
        )
    found = torch.cuda.is_available()
    if setting == "cuda" and not found:
        raise Problem("resources.device: cuda, but torch sees no GPU here; use auto or cpu")
    return "cuda" if found and setting != "cpu" else "cpu"


def gpus_given() -> int:
    """GPUs that this process may use: those that CUDA_VISIBLE_DEVICES names, else all that torch sees."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return torch.cuda.device_count() if named is None else len([one for one in named.split(",") if one.strip()])


def one_thread() -> None:
    """One torch thread: sums are then the same in every run, and two jobs do not fight for cores."""
    torch.set_num_threads(1)


def seed_everything(seed: int, epoch: int = 0) -> None:
    """Seed torch from (seed, epoch), so that an epoch repeats whatever came before it."""
    torch.manual_seed(seed * 1_000_003 + epoch)


def order(n: int, seed: int, epoch: int) -> Tensor:
    """The shuffle of epoch `epoch`: a permutation of n that depends on (seed, epoch) alone."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch + 500_009)
    return torch.randperm(n, generator=generator)


def clock(device: str) -> float:
    """Seconds that work on `device` has taken: wall clock once a GPU is idle; on a CPU, processor time of this process.

    At one thread processor time is wall-clock time, less what other processes took of it.
    """
    if device == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


@torch.no_grad()
def predict(model: nn.Module, data: Data, batch: int = 64, step_scale: float = 1.0, device: str = "cpu", **options) -> Tensor:
    """Outputs for all of `data`, on the CPU; a sequence's output does not depend on its batch. `options` go to the model."""
    model.eval()
    parts = []
    for index in torch.arange(len(data)).split(batch):
        x, _, lengths = data.take(index, device)
        parts.append(model(x, lengths=lengths, step_scale=step_scale, **options).float().cpu())
    return torch.cat(parts)


def rmse(model: nn.Module, data: Data, **options) -> float:
    """Root mean square error over every target entry."""
    return float((predict(model, data, **options) - data.y).double().pow(2).mean().sqrt())


def error_rate(model: nn.Module, data: Data, **options) -> float:
    """Share of sequences whose most likely class is wrong."""
    return float((predict(model, data, **options).argmax(-1) != data.y).double().mean())


class _Stop:
    """Remembers a SIGTERM or SIGINT until the loop can save."""

    def __init__(self):
        self.asked = False

    def __enter__(self):
        self.old = {name: signal.signal(name, self._ask) for name in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_):
        for name, handler in self.old.items():
            signal.signal(name, handler)

    def _ask(self, *_):
        self.asked = True


class Trainer:
    """Trains `model` on `train`, keeps the weights of the best validation error.

    train: `Data`, or what has its `near`, `device` and `take` · loss(output, target) → scalar · score(model, data, batch,
    device) → validation error, lower is better · checkpoint: a file that a stopped run leaves and the same run continues
    from; None for none · tell() after each epoch.
    `seconds` holds what training took, epoch by epoch (`clock`), evaluation and checkpoints left out.
    """

    def __init__(
        self,
        model: nn.Module,
        train: Data,
        validation: Data,
        budget: Budget,
        seed: int,
        loss: Callable[[Tensor, Tensor], Tensor],
        score: Callable[..., float],
        checkpoint: Path | None = None,
        device: str = "cpu",
        tell: Callable[[], None] = lambda: None,
    ):
        self.model = model.to(device)
        free = torch.cuda.mem_get_info()[0] if device == "cuda" else 0
        self.train = self.source = train.near(device, free)
        self.validation, self.budget, self.seed = validation, budget, seed
        self.loss, self.score, self.checkpoint, self.device, self.tell = loss, score, checkpoint, device, tell
        groups = optim_groups(model, budget.lr, budget.weight_decay, budget.layer_lr)
        self.optimizer = AdamW(groups)
        self.peaks = [group["lr"] for group in self.optimizer.param_groups]
        self.steps_per_epoch = math.ceil(len(train) / budget.batch)
        self.outcome = Outcome()
        self.best_weights = {name: value.clone() for name, value in model.state_dict().items()}
        self.step, self.summed = 0, 0.0
        self.seconds, self.spent = [], 0.0
        self.saved = time.monotonic()

    def fit(self) -> Outcome:
        """Train to the end of the budget, from the checkpoint where there is one; the model then holds the best weights."""
        self._resume()
        try:
            with _Stop() as stop:
                for epoch in range(self.outcome.epochs, self.budget.epochs):
                    self._epoch(epoch, stop)
        except Diverged as error:
            self.outcome.status, self.outcome.reason = "diverged", str(error)
        self.model.load_state_dict(self.best_weights)
        return self.outcome

    def _epoch(self, epoch: int, stop: _Stop) -> None:
        begin = self.step - epoch * self.steps_per_epoch
        if begin == 0:
            seed_everything(self.seed, epoch)
            self.summed, self.spent = 0.0, 0.0
        self.model.train()
        began = clock(self.device)
        for batch in self._feed(self._batches(epoch)[begin:]):
            self.summed += self._update(batch) * len(batch[0])
            self.spent += clock(self.device) - began
            self.step += 1
            self._save_when(stop)
            began = clock(self.device)
        line = {"epoch": epoch + 1, "loss": self.summed / len(self.train)} | self._judge(epoch)
        self.outcome.epochs = epoch + 1
        self.outcome.history.append(line)
        curves.write(self.checkpoint, self.outcome.history)
        self.seconds.append(self.spent)
        METER.epoch(len(self.train), self.spent, self.device)
        if line["validation"] < self.outcome.best:
            self.outcome.best, self.outcome.best_epoch = line["validation"], epoch + 1
            self.best_weights = {name: value.clone() for name, value in self.model.state_dict().items()}
        self._save_when(stop)
        self.tell()

    def _judge(self, epoch: int) -> dict:
        """What the history holds of the weights after epoch `epoch`; `validation` decides which are best."""
        return {"validation": self.score(self.model, self.validation, batch=self.budget.batch, device=self.device)}

    def _save_when(self, stop: _Stop) -> None:
        """Save now and then, and before leaving where that was asked."""
        if stop.asked or time.monotonic() - self.saved > SAVE_EVERY:
            self._save()
        if stop.asked:
            raise Interrupted(143)

    def _batches(self, epoch: int) -> tuple[Tensor, ...]:
        """The sequences of each step of epoch `epoch`."""
        return order(len(self.train), self.seed, epoch).split(self.budget.batch)

    def _feed(self, indices: Iterable[Tensor]) -> Iterator[Batch]:
        """The batches `indices` on the device; those of data that lie elsewhere are made ready by a thread (`ahead`)."""
        if self.source.device == self.device:
            yield from (self.source.take(index, self.device) for index in indices)
            return
        for batch in ahead(lambda index: pinned(self.source.take(index, "cpu")), indices):
            yield tuple(part if part is None else part.to(self.device, non_blocking=True) for part in batch)

    def _factor(self) -> float:
        """Factor on the learning rates of this step."""
        return rate(self.step, self.budget.epochs * self.steps_per_epoch, self.budget.warmup)

    def _forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        return self.model(x, lengths=lengths)

    def _loss(self, batch: Batch) -> Tensor:
        x, y, lengths = batch
        half = self.budget.precision == "bfloat16"
        with torch.autocast(self.device, torch.bfloat16, enabled=half):
            output = self._forward(x, lengths)
        return self.loss(output.float() if half else output, y)

    def _update(self, batch: Batch) -> float:
        factor = self._factor()
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * factor
        self.optimizer.zero_grad()
        loss = self._loss(batch)
        loss.backward()
        loss = loss.detach()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.budget.clip)
        if not (torch.isfinite(loss) and torch.isfinite(norm)):
            raise Diverged(
                f"step {self.step + 1}: loss {float(loss):.3g}, gradient norm {float(norm):.3g}, "
                f"learning rate {self.budget.lr * factor:.2g}"
            )
        self.optimizer.step()
        return float(loss)

    def _save(self) -> None:
        self.saved = time.monotonic()
        if self.checkpoint is None:
            return
        state = {
            "step": self.step,
            "summed": self.summed,
            "seconds": self.seconds,
            "spent": self.spent,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "best": self.best_weights,
            "outcome": vars(self.outcome),
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state() if self.device == "cuda" else None,
        }
        save(state, self.checkpoint)

    def _resume(self) -> None:
        if self.checkpoint is None or not self.checkpoint.exists():
            return
        state = load(self.checkpoint)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.best_weights = {name: value.to(self.device) for name, value in state["best"].items()}
        self.step, self.summed, self.outcome = state["step"], state["summed"], Outcome(**state["outcome"])
        self.seconds, self.spent = state["seconds"], state["spent"]
        torch.set_rng_state(state["rng"])
        if state["cuda_rng"] is not None:
            torch.cuda.set_rng_state(state["cuda_rng"])


def save(state: dict, path: Path) -> None:
    """Write tensors and plain Python values to `path` atomically; equal states give equal bytes."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with atomic(path) as temporary:
        temporary.write_bytes(buffer.getvalue())


def load(path: Path | str) -> dict:
    """What `save` wrote, on the CPU; Problem for a torn file."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise Problem(f"{path}: unreadable ({said}); delete it and run the study again") from None


def parameters(model: nn.Module) -> int:
    """Number of trained parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
