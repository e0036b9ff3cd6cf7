"""Networks trained at one sampling step, evaluated on finer and coarser samples of the same trajectories.

The network regresses the parameters that generated a trajectory from one of its coordinates. At step scale s it sees a
sample every s training steps and is told so by a `step_rule` (delta: Delta is multiplied by s; semigroup: s steps of the
trained map are taken; none: it is told nothing). At s = 1 all rules are the trained network. Measured are rmse against
the true parameters, and drift, the change of the network's own output when the step is halved, which needs no truth:
with drifts d(s) from step 2s to step s, the order of convergence is log2(d(2s)/d(s)). All steps share their sample
times: coarse[j] = fine[r j].
"""

import inspect
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import mse_loss

from continuity.diagnosis import diagnose
from continuity.layers import LAYERS, build
from continuity.models import build_model
from continuity.probe import hold_error
from continuity.problems import Problem
from continuity.systems import simulate
from continuity.training import Budget, Data, Outcome, Trainer, predict, rmse, seed_everything
from continuity.trajectories import SPLITS

SWITCHED = {"zoh": "bilinear", "bilinear": "zoh"}
"""The rule that a trained network is also evaluated with, to see how much its rule matters."""
DIAGNOSED = 32
"""Test sequences in a diagnosis."""


@dataclass(frozen=True)
class Regression:
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

    def __init__(self, problem: Regression):
        self.problem = problem
        self.training = problem.trajectories("train")
        coordinate, labels = self.training.states[..., 0], self.training.labels
        if not labels.shape[1]:
            raise ValueError("no parameter has a range, so there is nothing to regress: give one as [low, high]")
        self.mean, self.sd = coordinate.mean(), coordinate.std()
        self.label_mean, self.label_sd = labels.mean(0), labels.std(0)

    @property
    def n_labels(self) -> int:
        return self.training.labels.shape[1]

    def data(self, split: str, scale: float = 1.0) -> Data:
        """Inputs (n, L / scale, 1) and standardised labels (n, p), float32."""
        found = self.training if (split, scale) == ("train", 1.0) else self.problem.trajectories(split, scale)
        x = (found.states[..., :1] - self.mean) / self.sd
        y = (found.labels - self.label_mean) / self.label_sd
        return Data(torch.from_numpy(x).float(), torch.from_numpy(y).float())


def methods_of(model: dict, methods: list[str], d_model: int) -> list[str]:
    """The discretizations that a model of the config is trained with.

    The one its options name, else those of `methods` that its layer has; ["none"] for a layer without any. ValueError,
    in the layer's words, where it has none of `methods`.
    """
    if "factory" in model or "discretization" not in inspect.signature(LAYERS[model["layer"]].__init__).parameters:
        return ["none"]
    options, found, refusal = model.get("options", {}), [], None
    for method in [options["discretization"]] if "discretization" in options else methods:
        try:
            build(model["layer"], d_model, **options | {"discretization": method})
            found.append(method)
        except ValueError as error:
            refusal = error
    if not found:
        raise ValueError(f"{model['name']}: {refusal}")
    return found


@dataclass(frozen=True)
class Plan:
    """What is trained and how it is evaluated."""

    model: dict
    network: dict
    budget: Budget
    step_scales: list
    amplitudes: list
    step_rules: list
    device: str = "cpu"

    def build(self, samples: Samples, method: str, **options) -> torch.nn.Module:
        """The untrained network for `samples`, with `method` and further layer options."""
        options = self.model.get("options", {}) | ({} if method == "none" else {"discretization": method}) | options
        model = build_model(self.model | {"options": options}, self.network, d_input=1, d_output=samples.n_labels)
        return model.to(self.device)


@dataclass(frozen=True)
class Fitted:
    """One trained network."""

    samples: Samples
    plan: Plan
    method: str
    seed: int
    model: torch.nn.Module
    outcome: Outcome

    @property
    def keys(self) -> dict:
        names = {"system": self.samples.problem.system, "model": self.plan.model["name"]}
        return names | {"method": self.method, "seed": self.seed}

    def with_rule(self, rule: str) -> torch.nn.Module | None:
        """The trained weights under another step rule; None where the layer does not offer it."""
        if "factory" in self.plan.model:
            return self.model if rule != "semigroup" else None
        return self._rebuilt(self.method, step_rule=rule)

    def switched(self) -> torch.nn.Module | None:
        """The trained weights under the other of ZOH and bilinear; None where the layer lacks either."""
        return self._rebuilt(SWITCHED[self.method]) if self.method in SWITCHED else None

    def _rebuilt(self, method: str, **options) -> torch.nn.Module | None:
        try:
            other = self.plan.build(self.samples, method, **options)
        except Problem:
            return None
        other.load_state_dict(self.model.state_dict())
        return other


def fit(samples: Samples, plan: Plan, method: str, seed: int, checkpoint: Path | None = None, tell=lambda: None) -> Fitted:
    """One network trained with `method` at the training step."""
    seed_everything(seed)
    model = plan.build(samples, method)
    training, validation = samples.data("train"), samples.data("validation")
    trainer = Trainer(model, training, validation, plan.budget, seed, mse_loss, rmse, checkpoint, plan.device, tell)
    return Fitted(samples, plan, method, seed, model, trainer.fit())


def refine(fitted: Fitted) -> list[dict]:
    """Rows of a trained network at every step rule that it offers, step scale and amplitude."""
    plan, outcome = fitted.plan, fitted.outcome
    if outcome.status != "ok":
        failed = {"step_rule": plan.step_rules[0], "step_scale": 1.0, "amplitude": 1.0}
        return [fitted.keys | failed | {"status": outcome.status, "reason": outcome.reason}]
    tests = {float(scale): fitted.samples.data("test", scale) for scale in sorted(plan.step_scales)}
    rows = []
    for rule in plan.step_rules:
        model = fitted.with_rule(rule)
        if model is None:
            continue
        other = fitted.switched() if rule == "delta" else None
        for amplitude in plan.amplitudes:
            scaled = {scale: Data(data.x * amplitude, data.y) for scale, data in tests.items()}
            found = evaluate(model, scaled, rule, plan.budget.batch, plan.device, other)
            rows += [fitted.keys | {"step_rule": rule, "amplitude": float(amplitude)} | row for row in found]
    return rows


def evaluate(model, tests: dict[float, Data], rule: str = "delta", batch: int = 64, device: str = "cpu",
             other=None) -> list[dict]:  # fmt: skip
    """Rows by step scale, finest first; tests {scale: Data} hold the same trajectories at every scale.

    rmse against the labels · drift from twice this step to this one, over the sd of the outputs on the finest grid
    (`drift`) and over rmse (`drift_relative`) · hold_error, the rms change of the input between two samples over twice this
    step, over its rms: drift = kappa hold_error · switched, the rms change of the output where `other` (the same weights
    under another rule) takes the place of `model`.
    """
    seen = {scale: _outputs(model, data, scale, rule, batch, device) for scale, data in sorted(tests.items())}
    spread = seen[min(seen)].std(0)
    varies = bool((spread > 1e-6 * np.abs(seen[min(seen)]).max()).all())
    rows = []
    for scale, output in seen.items():
        error = _rms(output - tests[scale].y.double().numpy())
        row = {"step_scale": scale, "rmse": error}
        if not varies and np.isfinite(spread).all():
            row |= {"status": "undefined", "reason": "the output does not vary over trajectories"}
        elif 2 * scale in seen:
            change = seen[2 * scale] - output
            row |= {"drift": _rms(change / spread), "drift_relative": _rms(change) / error}
            row["hold_error"] = _rms(hold_error(tests[scale].x, (1, 2))[:, 1])
        if other is not None and varies:
            row["switched"] = _rms((_outputs(other, tests[scale], scale, rule, batch, device) - output) / spread)
        rows.append(row)
    return rows


def _outputs(model, data: Data, scale: float, rule: str, batch: int, device: str) -> np.ndarray:
    """Outputs (n, p) in batches of equal cost: a finer sample is a longer sequence."""
    told = 1.0 if rule == "none" else scale
    return predict(model, data, max(1, int(batch * min(1.0, scale))), told, device).double().numpy()


def _rms(x: np.ndarray) -> float:
    return float(np.sqrt((x**2).mean()))


def diagnosis(fitted: Fitted) -> list[dict]:
    """Rows that say where a trained network departs from itself on the next finer of the step scales that divides 1.

    None where training failed or no scale is finer.
    """
    finer = [scale for scale in fitted.plan.step_scales if scale < 1 and round(1 / scale) * scale == 1]
    if fitted.outcome.status != "ok" or not finer:
        return []
    coarse, fine = (fitted.samples.data("test", s).x[:DIAGNOSED].to(fitted.plan.device) for s in (1.0, max(finer)))
    return [fitted.keys | row for row in diagnose(fitted.with_rule("delta"), coarse, fine)]
