"""Architectures on labelled tasks: masked pooling over real steps, test accuracy at the best validation epoch."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from continuity import curves, logistic
from continuity.models import backend, build_model, sized
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


LARGEST_FLAT = 4096
"""Values of a sequence up to which the linear baseline takes them all."""


def pooled(sequences: Sequences, task: Task) -> np.ndarray:
    """Features that no order enters: the mean of every channel over real steps, or the share of every symbol; (n, p)."""
    if sequences.tokens:
        rows = [np.bincount(sequences[i], minlength=len(task.vocab)) for i in range(len(sequences))]
        return np.array(rows, np.float64) / sequences.lengths[:, None]
    sums = np.add.reduceat(sequences.values.astype(np.float64), sequences.offsets[:-1], axis=0)
    return sums / sequences.lengths[:, None]


def flat(sequences: Sequences, task: Task) -> np.ndarray | None:
    """All values of sequences of one length as features (n, L d); None for tokens, several lengths, or too many values."""
    lengths = {int(length) for part in task.splits.values() for length in np.unique(part.lengths)}
    if sequences.tokens or len(lengths) > 1 or max(lengths) * sequences.values.shape[1] > LARGEST_FLAT:
        return None
    return sequences.padded().reshape(len(sequences), -1).astype(np.float64)


FEATURES = {"linear_pooled": pooled, "linear_flat": flat}
"""Linear baselines by name, and what they see of a sequence."""


def baseline(task: Task, name: str, weights: Path | None = None) -> dict:
    """A row of the most frequent class, or of logistic regression with its penalty chosen on validation data.

    What was fitted is saved to `weights`.
    """
    row = _row(task, name, 0) | {"parameters": 0}
    found, fitted = ({"accuracy": row["majority"]}, None) if name == "majority" else _linear(task, name)
    if weights is not None:
        kept = {} if fitted is None else {"weights": fitted.weights, "intercept": fitted.intercept}
        save({part: torch.from_numpy(value) for part, value in kept.items()}, weights)
    return row | found


def _linear(task: Task, name: str) -> tuple[dict, logistic.Logistic | None]:
    """(columns of the row, classifier) of a linear baseline; no classifier where its features do not exist."""
    features = {split: FEATURES[name](part, task) for split, part in task.splits.items()}
    if features["train"] is None:
        reason = f"needs sequences of values, of one length, at most {LARGEST_FLAT} values each"
        return {"status": "undefined", "reason": reason}, None
    centre, spread = features["train"].mean(0), features["train"].std(0)
    scaled = {split: (x - centre) / np.where(spread > 1e-12, spread, 1.0) for split, x in features.items()}
    parts = {split: (scaled[split], part.labels) for split, part in task.splits.items()}
    fitted = logistic.chosen(parts["train"], parts["validation"], len(task.classes))
    right = {split: float((fitted.predict(x) == labels).mean()) for split, (x, labels) in parts.items()}
    size = fitted.weights.size + fitted.intercept.size
    return {"accuracy": right["test"], "accuracy_validation": right["validation"], "parameters": size}, fitted


def _row(task: Task, model: str, seed: int) -> dict:
    """What a row holds of its task, whatever was fitted."""
    return {"task": task.name, "model": model, "seed": seed, "majority": majority(task), "n_test": len(task.splits["test"])}


def majority(task: Task) -> float:
    """Test accuracy of always answering the most frequent training class."""
    counts = np.bincount(task.splits["train"].labels, minlength=len(task.classes))
    return float((task.splits["test"].labels == counts.argmax()).mean())


def train(
    task: Task, model: dict, network: dict, budgets: Sequence[Budget], seed: int, device: str = "cpu",
    checkpoint: Path | None = None, weights: Path | None = None, tell=lambda: None,
):  # fmt: skip
    """(row, backend) of one network, trained from the same start on each budget; the row is of the best on validation data.

    The budgets are of one length and differ in their learning rate; of equally good ones the smaller rate stays. The tested
    weights are saved to `weights`.
    """
    model, sizes = sized(model, network, **ends(task))
    splits = {name: data(part) for name, part in task.splits.items()}
    trained = []
    for index, budget in enumerate(budgets):
        seed_everything(seed)
        built = build_model(model, sizes, **ends(task)).to(device)
        place = checkpoint and checkpoint.with_name(f"{checkpoint.stem}-{index}{checkpoint.suffix}")
        outcome = Trainer(
            built, splits["train"], splits["validation"], budget, seed, cross_entropy, error_rate, place, device, tell
        ).fit()
        trained.append((outcome.best if outcome.status == "ok" else math.inf, budget, outcome, built))
    _, budget, outcome, built = min(trained, key=lambda one: (one[0], one[1].lr))
    curves.write(checkpoint, outcome.history)
    if weights is not None:
        save({name: value.cpu() for name, value in built.state_dict().items()}, weights)
    row = _row(task, model["name"], seed) | {"epoch": outcome.best_epoch, "status": outcome.status, "reason": outcome.reason}
    row |= {"lr": budget.lr, "parameters": parameters(built), "d_model": sizes["d_model"]}
    if outcome.status == "ok":
        row["accuracy"] = 1 - error_rate(built, splits["test"], batch=budget.batch, device=device)
        row["accuracy_validation"] = 1 - outcome.best
    return row, backend(built)
