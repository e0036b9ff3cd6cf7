"""Networks trained at one sampling step, evaluated on finer and coarser samples of the same trajectories.

The network regresses the parameters that generated a trajectory from one of its coordinates. At step scale s it sees every
s-th part of the training step and is told so (`step_rule` delta: Delta is multiplied by s) or not (none). Two measures:
rmse against the true parameters, and drift, the change of the network's own output when the step is halved, which needs no
truth: for a continuous network the drift falls with the step.
"""

import inspect
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import mse_loss

from continuity.layers import LAYERS
from continuity.models import backend, build_model
from continuity.systems import simulate
from continuity.training import Budget, Data, Trainer, predict, rmse, seed_everything

STEP_RULES = ("delta", "none")
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Problem:
    """A regression problem: system, values that replace its defaults, step, length, n by split, data seed, burn-in time."""

    system: str
    values: dict
    step: float
    length: int
    n: dict
    seed: int
    burn_in: float | None = None

    def trajectories(self, split: str, scale: float = 1.0):
        """The trajectories of a split, sampled at step · scale over the same span of time."""
        ranges = {name: tuple(value) if isinstance(value, list) else value for name, value in self.values.items()}
        length, seed = round(self.length / scale), self.seed + SPLITS.index(split)
        return simulate(self.system, self.n[split], length, self.step * scale, seed, burn_in=self.burn_in, **ranges)


class Samples:
    """Standardised network inputs and labels of a problem; the constants come from the training split at the training step."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.training = problem.trajectories("train")
        coordinate, labels = self.training.states[..., 0], self.training.labels
        self.mean, self.sd = coordinate.mean(), coordinate.std()
        self.label_mean, self.label_sd = labels.mean(0), labels.std(0)

    def data(self, split: str, scale: float = 1.0) -> Data:
        """Inputs (n, L / scale, 1) and standardised labels (n, p), float32."""
        found = self.training if (split, scale) == ("train", 1.0) else self.problem.trajectories(split, scale)
        x = (found.states[..., :1] - self.mean) / self.sd
        y = (found.labels - self.label_mean) / self.label_sd
        return Data(torch.from_numpy(x).float(), torch.from_numpy(y).float())


def methods_of(model: dict, methods: list[str]) -> list[str]:
    """The discretizations that a model of the config can be trained with; ["none"] for one that has none."""
    if "factory" in model or "discretization" not in inspect.signature(LAYERS[model["layer"]].__init__).parameters:
        return ["none"]
    return methods


@dataclass(frozen=True)
class Plan:
    """What is trained and how it is evaluated."""

    model: dict
    network: dict
    budget: Budget
    step_scales: list
    amplitudes: list
    device: str = "cpu"


def train(samples: Samples, plan: Plan, method: str, seed: int, checkpoint: Path | None = None, tell=lambda: None):
    """(rows, backend): one network trained with `method`, then evaluated at every step scale, rule and amplitude."""
    seed_everything(seed)
    options = plan.model.get("options", {}) | ({} if method == "none" else {"discretization": method})
    outputs = samples.training.labels.shape[1]
    model = build_model(plan.model | {"options": options}, plan.network, d_input=1, d_output=outputs).to(plan.device)
    outcome = Trainer(
        model,
        samples.data("train"),
        samples.data("validation"),
        plan.budget,
        seed,
        mse_loss,
        rmse,
        checkpoint,
        plan.device,
        tell,
    ).fit()
    keys = {"system": samples.problem.system, "model": plan.model["name"], "method": method, "seed": seed}
    if outcome.status != "ok":
        return [keys | {"step_rule": "delta", "step_scale": 1.0, "amplitude": 1.0} | failed(outcome)], backend(model)
    tests = {scale: samples.data("test", scale) for scale in sorted(plan.step_scales)}
    rows = []
    for amplitude in plan.amplitudes:
        for rule in STEP_RULES:
            found = evaluate(model, tests, rule, amplitude, plan.budget.batch, plan.device)
            rows += [keys | {"step_rule": rule, "amplitude": float(amplitude)} | row for row in found]
    return rows, backend(model)


def failed(outcome) -> dict:
    return {"status": outcome.status, "reason": outcome.reason}


def evaluate(model, tests: dict[float, Data], rule: str, amplitude: float, batch: int = 64, device: str = "cpu") -> list[dict]:
    """Rows of rmse and drift by step scale; tests {scale: Data} hold the same trajectories at every scale."""
    seen = {}
    for scale, data in tests.items():
        told = float(scale) if rule == "delta" else 1.0
        data = Data(data.x * amplitude, data.y)
        # Batches of equal cost: a finer sample is a longer sequence.
        size = max(1, int(batch * min(1.0, scale)))
        seen[scale] = predict(model, data, size, told, device).double().numpy()
    spread = seen[min(seen)].std(0)
    truth = next(iter(tests.values())).y.double().numpy()
    rows = []
    for scale, output in seen.items():
        row = {"step_scale": float(scale), "rmse": float(np.sqrt(((output - truth) ** 2).mean()))}
        if 2 * scale in seen:
            change = (seen[2 * scale] - output) / np.where(spread > 0, spread, np.nan)
            row["drift"] = float(np.sqrt((change**2).mean()))
        rows.append(row)
    return rows
