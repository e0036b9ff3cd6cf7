"""Forecasting mixtures of a discrete and a continuous observation of one system: networks and baselines, one row a run.

The target is the normalised increment: (observation `horizon` steps after the context − last observation of the context) over
its standard deviation in training, so that persistence predicts 0.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import mse_loss

from continuity import mixtures
from continuity.baselines import last_steps, persistence, ridge
from continuity.mlp import LastStepsMLP, hidden_width
from continuity.models import backend, build_model, sized
from continuity.training import Budget, Data, Outcome, Trainer, parameters, predict, rmse, seed_everything
from continuity.trajectories import SPLITS

LAST_STEPS = 8
"""Steps of the context that the ridge and MLP baselines see."""
MLP = "mlp"
"""The baseline that is trained as the architectures are."""


class Cell:
    """One forecasting set: a system's states {split: (n, L, d)} observed at `eta`, cut into windows.

    eta_target: eta of the observation that is forecast, where it is another than the input's.
    """

    def __init__(
        self, states: dict[str, np.ndarray], eta: float, construction: str, seed: int, context: int, horizon: int,
        eta_target: float | None = None,
    ):  # fmt: skip
        self.eta, self.construction, self.horizon = eta, construction, horizon
        self.eta_target = eta if eta_target is None else eta_target
        self.calibration = mixtures.calibrate(states["train"].astype(np.float64), seed)
        self.windows, scale = {}, None
        for split in SPLITS:
            seen = self._observed(states[split], seed, eta)
            targets = seen if self.eta_target == eta else self._observed(states[split], seed, self.eta_target)
            cut = mixtures.windows(seen, context, horizon, targets, scale, every=context)
            self.windows[split], scale = cut, cut.scale

    def _observed(self, states: np.ndarray, seed: int, eta: float, rows: int = 1024) -> np.ndarray:
        """Observations (n, L, 16) in float32, made from float64 a few trajectories at a time."""
        seen = np.empty((*states.shape[:2], mixtures.CHANNELS), np.float32)
        for first in range(0, len(states), rows):
            part = states[first : first + rows].astype(np.float64)
            seen[first : first + rows] = mixtures.observe(part, eta, seed, self.construction, self.calibration)
        return seen

    def data(self, split: str) -> Data:
        """Inputs (m, context, 16) and normalised increments (m, 16), float32."""
        cut = self.windows[split]
        return Data(torch.from_numpy(cut.inputs).float(), torch.from_numpy(cut.targets).float())

    def errors(self, predicted: np.ndarray) -> dict:
        """Test errors of predicted normalised increments (m, 16)."""
        cut = self.windows["test"]
        error = predicted.astype(np.float64) - cut.targets
        found = {
            "rmse": float(np.sqrt((error**2).mean())),
            "mae": float(np.abs(error).mean()),
            "rmse_relative": float(np.sqrt((error**2).mean() / (cut.targets**2).mean())),
        }
        if self.eta_target == 0:
            codes = self.calibration.codes(self.construction)
            seen, actual = cut.observation(predicted), cut.observation(cut.targets)
            found["code_accuracy"] = mixtures.nearest_code_accuracy(seen, actual, codes)
        return found

    @property
    def keys(self) -> dict:
        return {"eta": float(self.eta), "construction": self.construction, "horizon": self.horizon}


def baseline(cell: Cell, name: str) -> dict:
    """One row of persistence, or of ridge regression on the last steps with its penalty chosen on the validation set."""
    if name == "persistence":
        predicted, size = persistence(cell.windows["test"].targets), 0
    else:
        inputs = {split: last_steps(cut.inputs, min(LAST_STEPS, cut.inputs.shape[1])) for split, cut in cell.windows.items()}
        targets = {split: cut.targets for split, cut in cell.windows.items()}
        fitted = ridge(inputs["train"], targets["train"], inputs["validation"], targets["validation"])
        predicted, size = fitted.predict(inputs["test"]), fitted.coefficients.size + fitted.intercept.size
    return cell.keys | {"model": name, "readout": "last", "seed": 0, "parameters": size, "epochs": 0} | cell.errors(predicted)


@dataclass(frozen=True)
class Plan:
    """What is trained, and with which means: a model of the config or the MLP, network sizes, budget and device."""

    model: dict
    network: dict
    budget: Budget
    device: str

    def build(self, context: int, readout: str) -> tuple[torch.nn.Module, int]:
        """(network, its width)."""
        if self.model["name"] == MLP:
            steps = min(LAST_STEPS, context)
            width = hidden_width(self.network, steps, mixtures.CHANNELS, mixtures.CHANNELS)
            return LastStepsMLP(steps, mixtures.CHANNELS, width, mixtures.CHANNELS).to(self.device), width
        ends = {"d_input": mixtures.CHANNELS, "d_output": mixtures.CHANNELS}
        model, sizes = sized(self.model, self.network | {"readout": readout}, **ends)
        return build_model(model, sizes, **ends).to(self.device), sizes["d_model"]


def fit(cell: Cell, plan: Plan, model: torch.nn.Module, seed: int, checkpoint: Path | None, tell=lambda: None) -> Outcome:
    """Train `model`, shuffled by `seed`; it then holds the weights of its best validation epoch."""
    train, validation = cell.data("train"), cell.data("validation")
    return Trainer(model, train, validation, plan.budget, seed, mse_loss, rmse, checkpoint, plan.device, tell).fit()


def train(cell: Cell, plan: Plan, readout: str, seed: int, checkpoint: Path | None = None, tell=lambda: None):
    """(row, backend) of a network initialised and shuffled by `seed`, tested with the weights of its best validation epoch."""
    seed_everything(seed)
    model, width = plan.build(cell.windows["train"].inputs.shape[1], readout)
    test, options = cell.data("test"), {"batch": plan.budget.batch, "device": plan.device}
    untrained = rmse(model, test, **options)
    outcome = fit(cell, plan, model, seed, checkpoint, tell)
    row = cell.keys | {
        "model": plan.model["name"],
        "readout": readout,
        "seed": seed,
        "rmse_untrained": untrained,
        "d_model": width,
        "lr": plan.budget.lr,
        "parameters": parameters(model),
        "epochs": outcome.epochs,
        "best_epoch": outcome.best_epoch,
        "status": outcome.status,
        "reason": outcome.reason,
    }
    errors = cell.errors(predict(model, test, **options).numpy()) if outcome.status == "ok" else {}
    return row | errors, backend(model)


def run(cell: Cell, cfg: dict, device: str, readout: str, seed: int, checkpoint: Path | None = None, tell=lambda: None):
    """(row, backend) of the model of a job's settings: trained where they hold a network, else a fitted baseline."""
    if "network" not in cfg:
        return baseline(cell, cfg["model"]["name"]), "numpy"
    plan = Plan(cfg["model"], cfg["network"], Budget(**cfg["training"]), device)
    return train(cell, plan, readout, seed, checkpoint, tell)
