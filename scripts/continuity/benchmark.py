"""Architectures on labelled tasks: masked pooling over real steps, test accuracy at the best validation epoch."""

from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from continuity.models import backend, build_model
from continuity.tasks.sequences import Sequences, Task
from continuity.training import Budget, Data, Trainer, error_rate, parameters, save, seed_everything


def ends(task: Task) -> dict:
    """What a network for `task` takes in and gives out: vocab or d_input, and d_output."""
    takes = {"vocab": len(task.vocab)} if task.vocab else {"d_input": len(task.channels)}
    return takes | {"d_output": len(task.classes)}


def data(sequences: Sequences) -> Data:
    """A split as padded tensors with real lengths."""
    dense = torch.from_numpy(sequences.padded())
    dense = dense.long() if sequences.tokens else dense.float()
    lengths = torch.from_numpy(sequences.lengths.astype(np.int64))
    ragged = bool((lengths != lengths[0]).any())
    return Data(dense, torch.from_numpy(sequences.labels.astype(np.int64)), lengths if ragged else None)


def majority(task: Task) -> float:
    """Test accuracy of always answering the most frequent training class."""
    counts = np.bincount(task.splits["train"].labels, minlength=len(task.classes))
    return float((task.splits["test"].labels == counts.argmax()).mean())


def train(
    task: Task, model: dict, network: dict, budget: Budget, seed: int, device: str = "cpu", checkpoint: Path | None = None,
    weights: Path | None = None, tell=lambda: None,
):  # fmt: skip
    """(row, backend) of one network; the tested weights are saved to `weights`."""
    seed_everything(seed)
    built = build_model(model, network, **ends(task)).to(device)
    splits = {name: data(part) for name, part in task.splits.items()}
    outcome = Trainer(
        built, splits["train"], splits["validation"], budget, seed, cross_entropy, error_rate, checkpoint, device, tell
    ).fit()
    if weights is not None:
        save({name: value.cpu() for name, value in built.state_dict().items()}, weights)
    row = {"task": task.name, "model": model["name"], "seed": seed, "epoch": outcome.best_epoch, "majority": majority(task)}
    row |= {"parameters": parameters(built), "status": outcome.status, "reason": outcome.reason}
    if outcome.status == "ok":
        row["accuracy"] = 1 - error_rate(built, splits["test"], batch=budget.batch, device=device)
        row["accuracy_validation"] = 1 - outcome.best
    return row, backend(built)
