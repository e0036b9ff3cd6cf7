"""A study invented from formulas: every table the report reads, with known answers, failures and hostile names."""

import itertools
import math
from pathlib import Path

import numpy as np
from continuity import tables

SYSTEMS = ("dho", "duffing", "ou", "vdp")
ETAS = (0.0, 0.25, 0.5, 0.75, 1.0)
SEEDS = (0, 1, 2)
ADVANTAGE = {"s4d": (0.5, -0.6), "s6": (0.1, 0.1), "transformer": (0.2, 0.0)}  # log error = a + b eta
CONTROLS = {"s4": 1.0, "s4_matched": 1.6, "s6_fixed": 2.0, "s6": 4.0}  # error over that of s4 at scale 32
KAPPA = {"s4d": 0.4, "s6": 0.8}
ROUGHNESS = {"dho": 0.05, "vdp": 0.07}  # hold error at step scale 1
DEPARTS = {"layer": 2, "channel": 3, "position": 0.6875}  # where s6 stops being continuous
HOSTILE = '<script>alert("task")</script> & co'
IDENTITY = {"cfg": '{"study":"invented"}', "code": "0" * 16}


def forecast(rng: np.random.Generator, noise: float = 0.05, fail: bool = True) -> list[dict]:
    """Log errors linear in eta, so that s4d loses to s6 at eta 0 and wins at eta 1; one run diverged."""
    cell = {"construction": "balanced", "readout": "last", "horizon": 16}
    rows = []
    for system, eta, (model, (start, slope)) in itertools.product(SYSTEMS, ETAS, ADVANTAGE.items()):
        for seed in SEEDS:
            rmse = math.exp(start + slope * eta + 0.1 * SYSTEMS.index(system) + noise * rng.standard_normal())
            rows.append(cell | {
                "system": system, "eta": eta, "model": model, "seed": seed, "rmse": rmse, "mae": 0.8 * rmse,
                "rmse_relative": rmse / 2, "rmse_untrained": 3.0, "parameters": 5000, "epochs": 4, "best_epoch": 3,
            })  # fmt: skip
    for system, eta, (model, rmse) in itertools.product(SYSTEMS, ETAS, (("persistence", 2.0), ("ridge", 0.4))):
        rows.append(cell | {"system": system, "eta": eta, "model": model, "seed": 0, "rmse": rmse,
                            "mae": 0.8 * rmse, "rmse_relative": rmse / 2})  # fmt: skip
    if fail:
        broken = next(r for r in rows if (r["model"], r["eta"], r["system"]) == ("transformer", 0.25, "ou"))
        broken |= {"rmse": None, "mae": None, "rmse_relative": None, "status": "diverged",
                   "reason": "loss not finite at step 17"}  # fmt: skip
    return rows


def forecast_search() -> list[dict]:
    """Two rates, of which the smaller is better."""
    return [
        {"model": model, "lr": lr, "system": "vdp", "eta": 0.5, "validation": error, "mean": error, "chosen": lr == 0.01,
         "epochs": 4, "best_epoch": 4}
        for model, (lr, error) in itertools.product(ADVANTAGE, ((0.01, 0.5), (0.1, 0.9)))
    ]  # fmt: skip


def crossed() -> list[dict]:
    """s4d is good at a continuous input, s6 at a continuous target."""
    return [
        {"system": "vdp", "eta": eta, "eta_target": target, "construction": "balanced", "model": model, "readout": "last",
         "horizon": 16, "seed": seed, "rmse": 1.0, "mae": 0.8, "epochs": 4, "parameters": 5000,
         "rmse_relative": math.exp(-0.5 * (eta if model == "s4d" else target) + 0.01 * seed)}
        for model, eta, target, seed in itertools.product(("s4d", "s6"), (0.0, 0.5, 1.0), (0.0, 0.5, 1.0), SEEDS) if eta != target
    ]  # fmt: skip


def mixtures() -> list[dict]:
    """mu rises with eta in every system."""
    return [
        {"system": system, "eta": eta, "construction": "balanced", "mu": eta - 0.02 * index, "low": eta - 0.05,
         "high": eta + 0.03, "n_sequences": 64}
        for (index, system), eta in itertools.product(enumerate(SYSTEMS), ETAS)
    ]  # fmt: skip


def convergence(rng: np.random.Generator, draws: int = 12) -> list[dict]:
    """Error = c tau^p: p = 1, and 2 for the averaged rule; c of CONTROLS at scale 32, 1 at scale 1; bounds hold."""
    rows = []
    scales, methods = (1.0, 32.0), ("zoh", "bilinear", "averaged")
    taus = [2.0**-k for k in range(10, 1, -1)]
    for draw, model, method, scale in itertools.product(range(draws), CONTROLS, methods, scales):
        constant = (CONTROLS[model] if scale > 1 else 1.0) * math.exp(0.1 * rng.standard_normal())
        for tau in taus:
            error = constant * tau ** (2 if method == "averaged" else 1)
            rows.append({
                "draw": draw, "model": model, "method": method, "scale": scale, "tau": tau, "rel_linf": error,
                "rel_rmse": 0.5 * error, "abs_linf": scale * error, "bound_log10": math.log10(scale * error) + 2,
                "bound_lognorm_log10": math.log10(scale * error) + 1, "law": None if method == "averaged" else 1.01 * scale * error,
            })  # fmt: skip
    return rows


def refinement(rng: np.random.Generator) -> list[dict]:
    """Drift = kappa x hold error, the hold error proportional to the step; s6 drifts twice as much as s4d."""
    rows = []
    scales = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
    for system, model, method, scale, seed in itertools.product(ROUGHNESS, KAPPA, ("zoh", "bilinear"), scales, SEEDS):
        hold = None if scale == 4.0 else ROUGHNESS[system] * scale
        drift = None if hold is None else KAPPA[model] * hold * math.exp(0.05 * rng.standard_normal())
        rows.append({
            "system": system, "model": model, "method": method, "step_rule": "delta", "step_scale": scale,
            "amplitude": 1.0, "seed": seed, "rmse": 0.3 + 0.02 * scale, "drift": drift, "hold_error": hold,
        })  # fmt: skip
    return rows


def diagnosis() -> list[dict]:
    """s4d departs a little everywhere, s6 strongly at DEPARTS, where its Delta is steepest."""
    rows = []
    layers, channels, parts = (1, 2), range(4), range(8)
    for system, model, method in itertools.product(ROUGHNESS, KAPPA, ("zoh", "bilinear")):
        for layer, channel, k in itertools.product(layers, channels, parts):
            place = {"layer": layer, "channel": channel, "position": (k + 0.5) / 8}
            worst, steep = model == "s6" and place == DEPARTS, (layer, place["position"]) == (2, DEPARTS["position"])
            rows.append({
                "system": system, "model": model, "method": method, "seed": 0, **place,
                "own": 0.5 if worst else 0.01, "departure": 0.6 if worst else 0.01 * layer,
                "own_layer": 0.25 if model == "s6" and steep else 0.01, "departure_layer": 0.3 if model == "s6" and steep else 0.01 * layer,
                "delta": 0.1 if model == "s6" else None,
                "lipschitz_delta": (5.0 if steep else 0.5) if model == "s6" else None,
            })  # fmt: skip
    return rows


def score() -> tuple[list[dict], list[dict]]:
    """smnist continuous, listops discrete; one hostile name; one constant task without a score."""
    rows, lags = [], []
    for task, encoder in itertools.product(("smnist", "listops", HOSTILE), ("raw", "random", "s4d", "s6")):
        mu = {"smnist": 0.6, "listops": 0.08, HOSTILE: 0.3}[task] + 0.01 * len(encoder)
        rows.append({"task": task, "encoder": encoder, "mu": mu, "low": mu - 0.02, "high": mu + 0.02, "max_lag": 16,
                     "min_separation": 128, "max_separation": 384, "n_sequences": 200, "null_mu": 0.0})  # fmt: skip
        lags += [
            {"task": task, "encoder": encoder, "lag": lag, "similarity": 0.6 + 0.4 * mu ** (lag / 4), "beta": 0.6,
             "mu_t": mu ** (lag / 4), "n_pairs": 10000}
            for lag in range(17)
        ]  # fmt: skip
    rows.append({"task": "constant", "encoder": "raw", "status": "undefined", "reason": "the input is constant"})
    return rows, lags


def sensitivity() -> list[dict]:
    """Half the length leaves mu as it is; time shuffled takes it to nothing."""
    found = []
    for task, (parameter, value, change) in itertools.product(
        ("smnist", "listops"), (("score", 1.0, 0.0), ("length", 0.5, 0.001))
    ):
        mu = {"smnist": 0.6, "listops": 0.08}[task]
        found.append({"task": task, "encoder": "s4d", "parameter": parameter, "value": value, "mu": mu + change, "low": mu - 0.02,
                      "high": mu + 0.02, "change": change, "change_low": change - 0.004, "change_high": change + 0.004,
                      "n_sequences": 200})  # fmt: skip
    return found


def benchmark(rng: np.random.Generator) -> list[dict]:
    """s4d ahead on smnist, s6 on listops."""
    truth = {("smnist", "s4d"): 0.8, ("smnist", "s6"): 0.7, ("listops", "s4d"): 0.3, ("listops", "s6"): 0.35}
    return [
        {"task": task, "model": model, "seed": seed, "accuracy": accuracy + 0.01 * rng.standard_normal(), "epoch": 3,
         "accuracy_validation": accuracy, "majority": 0.11, "n_test": 500, "parameters": 9000}
        for ((task, model), accuracy), seed in itertools.product(truth.items(), SEEDS)
    ]  # fmt: skip


def curriculum() -> tuple[list[dict], list[dict], list[dict]]:
    """Plain and coarse plans of four epochs that end alike; coarse epochs cost a quarter, and s6 loses .1 at the refinement."""
    rows, times = [], []
    for model, plan, seed, epoch in itertools.product(("s4d", "s6"), ("plain", "coarse"), SEEDS, (1, 2, 3, 4)):
        keys = {"task": "smnist", "model": model, "plan": plan, "seed": seed, "epoch": epoch}
        stride = 4 if plan == "coarse" and epoch < 3 else 1
        accuracy = 0.2 * epoch + 0.001 * seed
        rows.append(keys | {
            "stage": 1 if plan == "plain" or epoch < 3 else 2, "stride": stride, "samples": 1000 * epoch, "accuracy": accuracy,
            "accuracy_stage": accuracy, "loss": 1 / epoch, "lr": 0.01, "time_scale": True, "parameters": 9000, "majority": 0.11,
        })  # fmt: skip
        if plan == "coarse" and epoch == 2:
            fall = (0.1 if model == "s6" else 0.01) + 0.001 * seed
            rows[-1] |= {"accuracy_next": accuracy - fall, "drift": 0.2, "predicted": 0.18 + 0.01 * seed}
        times.append(keys | {"seconds": 1.0 / stride + 0.01 * seed})
    ratios = [
        {"task": "smnist", "model": model, "plan": "coarse", "target": "95 % of plain", "baseline": baseline, "target_accuracy": 0.76,
         "ratio": 0.6, "low": 0.5, "high": 0.7, "ratio_median": 0.6, "ratio_samples": 0.6, "seconds": 2.5, "baseline_seconds": 4.0,
         "baseline_plan": "plain", "n_seeds": 3, "n_reached": 3}
        for model, baseline in itertools.product(("s4d", "s6"), ("envelope", "restarts"))
    ]  # fmt: skip
    return rows, times, ratios


def dissipation() -> list[dict]:
    """Every theorem holds where its hypothesis does, and fails where it is broken."""
    settings = [("forgetting", "strict", True), ("forgetting", "counterexample: lossless gates", False), ("storage", "passive by 1 %", True),
                ("irreversible", "rank", True), ("input to state", "every schedule", True),
                ("landscape", "slower than a random matrix of the same logarithmic norm", True)]  # fmt: skip
    return [
        {"theorem": theorem, "setting": setting, "system": system, "seed": 0, "hypothesis": holds, "bound": 0.01 * (1 + system),
         "measured": 1 + 0.1 * system if theorem == "landscape" else (0.02 if holds else -0.02) * (1 + system), "margin": 0.01 if holds else -0.03, "holds": holds}
        for (theorem, setting, holds), system in itertools.product(settings, range(4))
    ]  # fmt: skip


def stability(rng: np.random.Generator) -> tuple[list[dict], list[dict]]:
    """A penalty takes 92 % off the violation, a certificate all of it; errors stay, perturbed or not."""
    left = {"none": 1.0, "identity": 0.08, "diagonal": 0.04, "certified": 0.0}
    found, perturbed = [], []
    for storage, seed in itertools.product(left, SEEDS):
        keys = {"dataset": "vic_elec", "horizon": 24, "host": "mamba", "storage": storage, "seed": seed, "beta": 0.0,
                "weight": 1.0 if storage in ("identity", "diagonal") else 0.0, "router_weight": 0.0}  # fmt: skip
        violation = 0.036 * left[storage] * math.exp(0.02 * rng.standard_normal())
        mse = 0.5 * math.exp(0.001 * rng.standard_normal()) + 0.01 * seed
        found.append(keys | {
            "mse": mse, "mae": 0.5, "violation": violation, "violation_scaled": 10 * violation, "violating_share": 0.5 * left[storage],
            "violation_max": 3 * violation, "state_norm": 1.0, "violation_d_off": 2 * violation, "violation_identity": violation,
            "parameters": 2000, "epochs": 4, "best_epoch": 4,
        })  # fmt: skip
        for kind, level in (("none", 0.0), ("gaussian", 0.3), ("burst", 1.0)):
            perturbed.append(keys | {"perturbation": kind, "level": level, "where": "before", "mse": mse * (1 + level), "mae": 0.5,
                                     "violation": violation, "violation_max": 3 * violation, "state_norm": 1.0 + level})  # fmt: skip
    still = {"dataset": "vic_elec", "horizon": 24, "host": "persistence", "storage": "none", "seed": 0, "beta": 0.0, "weight": 0.0,
             "router_weight": 0.0, "mse": 1.0, "mae": 0.8, "parameters": 0, "epochs": 0}  # fmt: skip
    return [*found, still], perturbed


def rows(seed: int = 0) -> dict[str, list[dict]]:
    """The primary tables of the invented study (gap, alignment and claims are made from them)."""
    rng = np.random.default_rng(seed)
    scores, lags = score()
    curves, times, ratios = curriculum()
    trained, perturbed = stability(np.random.default_rng(seed + 1))
    task = {"n": 100, "length_min": 784, "length_mean": 784.0, "length_max": 784, "classes": 10, "licence": "MIT"}
    return {
        "tasks": [task | {"task": name, "split": split, "source": "invented <i>here</i>"}
                  for name in ("smnist", "listops", HOSTILE) for split in ("train", "test")],
        "score": scores,
        "similarity": lags,
        "score_sensitivity": sensitivity(),
        "mixtures": mixtures(),
        "forecast": forecast(rng),
        "forecast_search": forecast_search(),
        "crossed": crossed(),
        "convergence": convergence(rng),
        "refinement": refinement(rng),
        "diagnosis": diagnosis(),
        "benchmark": benchmark(rng),
        "curriculum": curves,
        "curriculum_times": times,
        "time_to_target": ratios,
        "dissipation": dissipation(),
        "stability": trained,
        "robustness": perturbed,
        "runs": [{"table": name, "key": f"{name}{i}", "run": f"{name} {i}", "seconds": 1.5, "device": "cpu",
                  "sequences_per_s": 250.0, "utilisation": 0.98, "backend": "numba", "threads": 1,
                  "versions": "python 3.11, torch 2.13.0", "host": "desk <1>",
                  "started": "2026-11-30T00:00:00", "cfg": "{}", "code": "c"}
                 for name in ("score", "forecast") for i in range(2)],
    }  # fmt: skip


def write(folder: Path, seed: int = 0, leave_out: tuple[str, ...] = ()) -> Path:
    """Write the invented study's tables to `folder`/tables and return that folder."""
    made = Path(folder) / "tables"
    for name, content in rows(seed).items():
        if name not in leave_out:
            tables.write(name, content, made / f"{name}.parquet", IDENTITY)
    return made
