"""The learning rate of each architecture: the same small grid for all, judged on validation data alone."""

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from continuity import tables
from continuity.forecast import Cell, Plan, fit
from continuity.models import backend
from continuity.problems import Problem
from continuity.training import at_rate, device_of, seed_everything


def trial(cell: Cell, plan: Plan, readout: str, seed: int, checkpoint: Path | None = None, tell=lambda: None):
    """(row, backend) of one rate on one cell: its lowest validation error over that of persistence. No test data is seen."""
    seed_everything(seed)
    model, _ = plan.build(cell.windows["train"].inputs.shape[1], readout)
    outcome = fit(cell, plan, model, seed, checkpoint, tell)
    persistence = float(np.sqrt((cell.windows["validation"].targets ** 2).mean()))
    row = {"model": plan.model["name"], "lr": plan.budget.lr, "eta": float(cell.eta), "epochs": outcome.epochs}
    row |= {"best_epoch": outcome.best_epoch, "status": outcome.status, "reason": outcome.reason}
    if outcome.status == "ok":
        row["validation"] = outcome.best / persistence
    return row, backend(model)


def choose(rows: Iterable[dict]) -> list[dict]:
    """The trials of one model with `mean`, the geometric mean of their rate over cells, and whether their rate is `chosen`.

    The rate of the least mean is, of equal ones the smaller. A rate that failed on a cell has no mean; where all did, the
    smallest is chosen.
    """
    rows, logs = [dict(row) for row in rows], {}
    for row in rows:
        logs.setdefault(row["lr"], []).append(math.log(row["validation"]) if row.get("validation") else math.inf)
    means = {lr: math.exp(np.mean(values)) if max(values) < math.inf else math.inf for lr, values in logs.items()}
    best = min(means, key=lambda lr: (means[lr], lr))
    for row in rows:
        mean = means[row["lr"]]
        row |= {"mean": mean if mean < math.inf else None, "chosen": row["lr"] == best}
    return rows


def shared(cfg: dict, lists: Iterable[str], files: Iterable[Path | str]) -> tuple[dict, str, int, str]:
    """Of a job of forecasts: settings that all its runs share, device, and units of progress a run with their name.

    lists: settings that the runs differ in. Where the model is trained, it is at the rate that a search chose (`searched`).
    """
    found = {name: value for name, value in cfg.items() if name not in lists}
    if "network" not in cfg:
        return found, "cpu", 1, "baselines"
    return found | {"training": searched(cfg["training"], files)}, device_of(cfg["device"]), cfg["training"]["epochs"], "epochs"


def searched(training: dict, files: Iterable[Path | str]) -> dict:
    """`training` at the rate that a search chose; `files`: the search's run file of the model, or none where none was made."""
    for path in files:
        chosen = {row["lr"] for row in tables.read(path).to_pylist() if row["chosen"]}
        if len(chosen) != 1:
            raise Problem(f"{path}: {len(chosen)} learning rates are chosen, not one; delete it and run the study again")
        training = at_rate(training, chosen.pop())
    return training
