"""What a run costs before it runs: seconds on a reference core, memory, files. The constants are in costs.toml. Needs no torch.

`runs` lists the runs of a job as its script will; `cost` prices one of them. Both read the settings that the job receives.
"""

import functools
import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from continuity import variants
from continuity.config import kind_of
from continuity.sizes import Amount, Sizes
from continuity.stages import plan_of

WORD = 4
"""Bytes of a float32."""
SELECTIVE = ("mamba", "sst")
UNTRAINED = ("persistence", "last_season")


@functools.cache
def constants() -> dict:
    """The shipped constants."""
    return tomllib.loads((Path(__file__).parent / "costs.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Cost:
    """Of one run: seconds on the reference core of its updates whatever their size, of the work in them and of attention; bytes
    of memory on the device and on the host beside it; bytes of a checkpoint; whether the sizes behind it are known."""

    overhead: float
    work: float = 0.0
    attention: float = 0.0
    device_bytes: float = 0.0
    host_bytes: float = 0.0
    checkpoint: float = 0.0
    known: bool = True

    def seconds(self, device: str = "cpu") -> float:
        """On the reference core while others work beside it, or on the assumed GPU."""
        if device == "cpu":
            return constants()["cpu"]["busy"] * (self.overhead + self.work + self.attention)
        gpu = constants()["cuda"]
        return self.overhead * gpu["update"] + self.work * gpu["work"] + self.attention * gpu["attention"]


@dataclass(frozen=True)
class Network:
    """A stack of one layer kind."""

    layer: str
    d_model: int
    n_layers: int
    d_state: int
    heads: int
    expand: float

    @classmethod
    def of(cls, model: dict, network: dict) -> "Network":
        """The network of a model of the config at the sizes of a stage."""
        layer, options = layer_of(model), model.get("options", {})
        row = constants()["layers"][layer]
        state, depth = options.get("d_state", row.get("d_state", 0)), network["n_layers"]
        width = network.get("d_model") or _width(row["parameters"], state, network["parameters"] / depth)
        heads, expand = options.get("n_heads", row.get("n_heads", 1)), options.get("expand", 2) / 2
        return cls(layer, width, depth, state, heads, expand)

    @property
    def row(self) -> dict:
        return constants()["layers"][self.layer]

    def update(self) -> float:
        """Seconds of one update, whatever its size."""
        return 1e-6 * self.row["update"] * self.n_layers

    def step(self) -> float:
        """Seconds for each step of a sequence, forward and backward, without attention."""
        row, d = self.row, self.d_model * (self.expand if "expand" in self.row else 1)
        linear = row["width"] * d + row["square"] * d * self.d_model + row["state"] * d * self.d_state
        return 1e-9 * self.n_layers * linear

    def pairs(self, length: int) -> float:
        """Seconds of attention for each step of a sequence of `length` steps, forward and backward."""
        return 1e-9 * self.n_layers * self.row["pairs"] * self.heads * length

    def kept(self) -> float:
        """Bytes kept for the backward pass for each step of a sequence."""
        d = self.d_model * (self.expand if "expand" in self.row else 1)
        return self.n_layers * (self.row["kept"] * d + self.row["kept_state"] * d * self.d_state)

    def parameters(self) -> float:
        square, width, state = self.row["parameters"]
        return self.n_layers * (square * self.d_model**2 + width * self.d_model + state * self.d_model * self.d_state)


def layer_of(model: dict) -> str:
    """The row of the constants for a model of the config; a baseline that is trained has one by its own name."""
    if "layer" in model:
        return model["layer"]
    return model["name"] if model["name"] in constants()["layers"] else "factory"


def _width(parameters: list, state: int, goal: float) -> float:
    """The width at which a layer has `goal` parameters: the positive root of a quadratic."""
    square, width, each = parameters
    linear = width + each * state
    return (math.sqrt(linear**2 + 4 * square * goal) - linear) / (2 * square)


def training(net: Network, batch: int, epochs: list[tuple[int, int]], amount: Amount, judged: float) -> Cost:
    """Training over `epochs`, pairs (number, steps of a sequence), each judged by a pass over `judged` steps."""
    n, passes = amount.n["train"], constants()["passes"]
    updates = sum(count for count, _ in epochs) * math.ceil(n / batch)
    work = sum(count * n * length for count, length in epochs) + judged * passes["forward"]
    attention = sum(count * n * length * net.pairs(length) for count, length in epochs)
    attention += judged * net.pairs(amount.length) * passes["forward"]
    longest = max(length for _, length in epochs)
    weights = net.parameters() * WORD
    return Cost(
        updates * net.update(), work * net.step(), attention, batch * longest * net.kept() + 4 * weights,
        2.5 * amount.total * amount.length * amount.channels * WORD, 4 * weights, amount.known,
    )  # fmt: skip


# ---------------------------------------------------------------- the runs of a job


def runs(rule: str, cfg: dict) -> list[dict]:
    """The settings of every run of a job with settings `cfg`, lists replaced by the run's own values."""
    return LISTS[rule](cfg) if rule in LISTS else [cfg]


def _product(cfg: dict, **lists: list) -> list[dict]:
    grid = product(*lists.values())
    return [cfg | dict(zip(lists, values, strict=True)) for values in grid]


def _forecast_runs(cfg: dict) -> list[dict]:
    trained = {"readout": cfg["readouts"], "seed": cfg["seeds"]} if "network" in cfg else {}
    return _product(cfg, eta=cfg["etas"], construction=cfg["constructions"], horizon=cfg["horizons"], **trained)


def _crossed_runs(cfg: dict) -> list[dict]:
    pairs = [(eta, target) for eta, target in product(cfg["etas"], cfg["etas"]) if eta != target]
    seeds = cfg.get("seeds", [0])
    return [cfg | {"eta": eta, "eta_target": target, "seed": seed} for (eta, target), seed in product(pairs, seeds)]


def methods(model: dict, wanted: list[str]) -> list[str]:
    """The discretizations that a model of the config is trained with."""
    options = model.get("options", {})
    has = constants()["layers"][layer_of(model)]["methods"]
    if not has:
        return ["none"]
    return [options["discretization"]] if "discretization" in options else [method for method in wanted if method in has]


def _stability_runs(cfg: dict) -> list[dict]:
    cfg = variants.resolved(cfg)
    kind, layer = cfg["host"]["host"], cfg["host"]["options"].get("layer", "mamba")
    host = variants.Traits(kind not in UNTRAINED, kind in SELECTIVE and layer in ("mamba", "s6"), kind == "sst")
    return [cfg | keys | {"horizon": horizon} for horizon in cfg["horizons"] for keys in variants.keys(cfg, host)]


LISTS: dict[str, Callable[[dict], list[dict]]] = {
    "benchmark_run": lambda cfg: _product(cfg, seed=cfg.get("seeds", [0])),
    "mixtures_run": lambda cfg: _product(cfg, eta=cfg["etas"], construction=cfg["constructions"]),
    "forecast_run": _forecast_runs,
    "forecast_search_run": lambda cfg: _product(cfg, system=cfg["systems"], eta=cfg["etas"], lr=cfg["rates"]),
    "crossed_run": _crossed_runs,
    "refinement_run": lambda cfg: _product(cfg, method=methods(cfg["model"], cfg["methods"]), seed=cfg["seeds"]),
    "curriculum_run": lambda cfg: _product(cfg, seed=cfg["seeds"], plan=cfg["plans"]),
    "stability_run": _stability_runs,
}


def kind(rule: str, cfg: dict) -> str:
    """What the speed of a run depends on beside its size: the layer, host, task or control that it is about."""
    if rule == "stability_run":
        return cfg["host"]["host"]
    if rule in ("tasks_make", "score_run"):
        return cfg["task"]["name"] if rule == "tasks_make" else cfg["task"]
    model = cfg.get("model", "")
    return model.get("layer") or model.get("factory") or model["name"] if isinstance(model, dict) else model


def trains(cfg: dict) -> bool:
    """Whether a job with settings `cfg` trains on the study's device."""
    return "device" in cfg and "training" in cfg and cfg.get("host", {}).get("host") not in UNTRAINED


# ---------------------------------------------------------------- the price of a run


def cost(rule: str, cfg: dict, sizes: Sizes) -> Cost:
    """The cost of one run with settings `cfg`. KeyError for settings of another version."""
    return PRICES[rule](cfg, sizes) if rule in PRICES else Cost(constants()["jobs"].get(rule, constants()["jobs"]["compact"]))


def _systems(cfg: dict, sizes: Sizes) -> Cost:
    steps = sum(cfg["n"].values()) * (cfg["length"] * cfg["step"] + cfg.get("burn_in", 0)) / 0.00125
    values = sum(cfg["n"].values()) * cfg["length"] * 2
    return Cost(0.5, 1e-9 * constants()["steps"]["systems"] * steps, host_bytes=6 * values * WORD)


def _tasks(cfg: dict, sizes: Sizes) -> Cost:
    known, amount = constants()["tasks"], sizes.task(cfg["task"]["name"])
    price = known.get(kind_of(cfg["task"]), known["user"])
    return Cost(price["seconds"], price["each"] * amount.total, host_bytes=3 * amount.total * amount.length * WORD,
                known=amount.known)  # fmt: skip


def _benchmark(cfg: dict, sizes: Sizes) -> Cost:
    amount = sizes.task(cfg["task"])
    if "network" not in cfg:
        values = amount.total * min(amount.length, 4096) * amount.channels
        return Cost(0.3, 1e-7 * values, host_bytes=3 * values * WORD, known=amount.known)
    net, budget = Network.of(cfg["model"], cfg["network"]), cfg["training"]
    judged = (budget["epochs"] * amount.n["validation"] + amount.n["test"]) * amount.length
    stages = [(budget["epochs"], amount.length)] * len(cfg["rates"] or [None])
    return training(net, budget["batch"], stages, amount, judged * len(stages))


def _latents(cfg: dict, sizes: Sizes) -> Cost:
    amount = sizes.task(cfg["task"])
    count = min(cfg["sequences"], amount.n["test"])
    width = embedded(cfg.get("network", {}))
    values = count * amount.length * width
    deep = 0.0
    if "@" in cfg["encoder"]:
        net = Network.of(cfg["model"], cfg["network"])
        deep = count * amount.length * (net.step() + net.pairs(amount.length)) * constants()["passes"]["forward"]
    return Cost(0.7, 2e-8 * values + deep, host_bytes=2 * amount.total * amount.length * WORD, known=amount.known)


def embedded(network: dict) -> float:
    """Width of an encoder's latents."""
    return network.get("d_model") or 32


def _score(cfg: dict, sizes: Sizes) -> Cost:
    amount = sizes.task(cfg["task"])
    part, network = sizes.config["latents"], sizes.config["benchmark"]["network"]
    width = (amount.vocabulary or 32) if cfg["encoder"] == "raw" else embedded(network)
    values = min(part["sequences"], amount.n["test"]) * amount.length * width
    return Cost(0.2, 1e-9 * constants()["steps"]["score"] * values, host_bytes=64 * amount.length * width * 8 * 4,
                known=amount.known)  # fmt: skip


def _mixtures(cfg: dict, sizes: Sizes) -> Cost:
    amount = sizes.systems
    values = amount.n["test"] * amount.length * 16
    held = 16 * amount.total * amount.length + 32 * values
    return Cost(0.05, 1e-9 * constants()["steps"]["score"] * values, host_bytes=held)


def _forecast(cfg: dict, sizes: Sizes) -> Cost:
    trajectories = sizes.systems
    windows = (trajectories.length - cfg["horizon"]) // cfg["context"]
    amount = Amount({split: count * windows for split, count in trajectories.n.items()}, cfg["context"], 16)
    if "network" not in cfg:
        values = amount.total * amount.length * 16
        return Cost(0.05, 1.6e-8 * values, host_bytes=6 * values * WORD)
    net, budget = Network.of(cfg["model"], cfg["network"]), cfg["training"]
    judged = (budget["epochs"] * amount.n["validation"] + 2 * amount.n["test"]) * amount.length
    return training(net, budget["batch"], [(budget["epochs"], amount.length)], amount, judged)


def _convergence(cfg: dict, sizes: Sizes) -> Cost:
    steps = sum(cfg["horizon"] / tau for tau in cfg["taus"])
    cells = cfg["systems"] * len(cfg["scales"]) * len(cfg["methods"])
    return Cost(0.5, 1e-9 * constants()["steps"]["convergence"] * cells * steps * cfg["state"] / 8, host_bytes=2e8)


def _refinement(cfg: dict, sizes: Sizes) -> Cost:
    net, budget, n = Network.of(cfg["model"], cfg["network"]), cfg["training"], cfg["n"]
    amount = Amount(n, cfg["length"], 1)
    grids = sum(cfg["length"] / scale for scale in cfg["step_scales"])
    judged = budget["epochs"] * n["validation"] * cfg["length"]
    judged += n["test"] * grids * len(cfg["amplitudes"]) * (len(cfg["step_rules"]) + 1)
    found = training(net, budget["batch"], [(budget["epochs"], cfg["length"])], amount, judged)
    finest = n["test"] * cfg["length"] / min(cfg["step_scales"])
    return replace(found, host_bytes=found.host_bytes + 12 * finest * WORD)


def _curriculum(cfg: dict, sizes: Sizes) -> Cost:
    net, amount, budget = Network.of(cfg["model"], cfg["network"]), sizes.task(cfg["task"]), cfg["training"]
    stages = plan_of(cfg["plan"]).stages(budget["epochs"])
    epochs = [(stage.epochs, math.ceil(amount.length / stage.stride)) for stage in stages]
    judged = sum(count * (amount.length + (length < amount.length) * length) for count, length in epochs)
    return training(net, budget["batch"], epochs, amount, judged * amount.n["test"])


def _dissipation(cfg: dict, sizes: Sizes) -> Cost:
    return Cost(0.5, 1e-9 * constants()["steps"]["dissipation"] * cfg["systems"] * cfg["length"])


def _stability(cfg: dict, sizes: Sizes) -> Cost:
    host, budget, name = cfg["host"], cfg["training"], cfg["host"]["host"]
    amount = sizes.series(cfg["dataset"], cfg["input_length"], cfg["horizon"], cfg["strides"])
    price, levels = constants()["hosts"].get(name, constants()["hosts"]["mamba"]), cfg["robustness"]
    host_bytes = 4 * amount.total * WORD + 1e7 * amount.channels
    if name in UNTRAINED:
        return Cost(price["seconds"], host_bytes=host_bytes, known=amount.known)
    update, window, kept, weights = _host(host, cfg, amount.channels)
    n, epochs, passes = amount.n, budget["epochs"], constants()["passes"]
    judged = epochs * n["validation"] + n["test"]
    cells = 1 + len(levels["kinds"]) * len(levels["levels"]) * len(levels["where"])
    measured = (cfg["measure"]["windows"] + cells * levels["count"]) * passes["measured"]
    penalty = 1.5 if cfg["weight"] or cfg["router_weight"] or cfg["storage"] == "certified" else 1.0
    work = window * price["factor"] * (epochs * n["train"] * penalty + (judged + measured) * passes["forward"])
    updates = epochs * math.ceil(n["train"] / budget["batch"])
    return Cost(
        price["seconds"] + updates * update * penalty, work, 0.0, budget["batch"] * kept * penalty + 4 * weights, host_bytes,
        4 * weights, amount.known,
    )  # fmt: skip


def _host(host: dict, cfg: dict, channels: int) -> tuple[float, float, float, float]:
    """Of a host: seconds an update, seconds and bytes a window, bytes of its weights."""
    options, length = host["options"], cfg["input_length"]
    if host["host"] == "dlinear":
        values = channels * length * cfg["horizon"]
        return 0.001, 1e-9 * values, WORD * channels * length * 4, WORD * 2 * length * cfg["horizon"]
    short = host["host"] == "sst"
    patch, stride = (options.get("long_patch", 48), options.get("long_stride", 16)) if short else (
        options.get("patch", 16), options.get("stride", 8))  # fmt: skip
    width = {"d_model": options.get("d_model", 16), "n_layers": options.get("m_layers" if short else "n_layers", 1)}
    layer = options.get("layer", "mamba")
    model = {"layer": layer if layer in constants()["layers"] else "factory", "options": options.get("layer_options", {})}
    stacks = [(Network.of(model, width), _tokens(length, patch, stride))]
    if short:
        local = {"layer": "transformer", "options": {"n_heads": options.get("n_heads", 4)}}
        deep = width | {"n_layers": options.get("e_layers", 3)}
        tokens = _tokens(
            options.get("short_length", length // 2), options.get("short_patch", 16), options.get("short_stride", 8)
        )
        stacks.append((Network.of(local, deep), tokens))
    head = sum(net.d_model * tokens for net, tokens in stacks) * cfg["horizon"]
    seconds = channels * sum(tokens * (net.step() + net.pairs(tokens)) for net, tokens in stacks) + 1e-9 * channels * head
    kept = channels * sum(tokens * net.kept() for net, tokens in stacks)
    return sum(net.update() for net, _ in stacks), seconds, kept, WORD * (sum(net.parameters() for net, _ in stacks) + head)


def _tokens(length: int, patch: int, stride: int) -> int:
    return max(1, (length + stride - patch) // stride + 1)


PRICES: dict[str, Callable[[dict, Sizes], Cost]] = {
    "systems_simulate": _systems,
    "tasks_make": _tasks,
    "benchmark_run": _benchmark,
    "latents_encode": _latents,
    "score_run": _score,
    "mixtures_run": _mixtures,
    "forecast_run": _forecast,
    "forecast_search_run": _forecast,
    "crossed_run": _forecast,
    "convergence_run": _convergence,
    "refinement_run": _refinement,
    "curriculum_run": _curriculum,
    "dissipation_run": _dissipation,
    "stability_run": _stability,
}
