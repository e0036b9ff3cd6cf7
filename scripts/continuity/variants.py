"""The runs of a stability job: what is done about the memory of a host, and which of it means anything to that host.

Needs no torch: what a study will take is planned from the same list.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from continuity.problems import Problem

STORAGES = ("none", "identity", "diagonal", "certified")


@dataclass(frozen=True)
class Variant:
    """What is done about the memory: its storage, weight and beta of the penalty, weight of the router's penalty."""

    storage: str = "none"
    weight: float = 0.0
    beta: float = 0.0
    router_weight: float = 0.0


def variants(storages: list[Mapping], router_weights: tuple[float, ...] = (0.0,)) -> list[Variant]:
    """The variants of config entries {name, weights, betas}: every combination; weights for identity and diagonal only.

    Raises Problem for an unknown storage, or a penalty without a positive weight.
    """
    found, problems = [], []
    for entry in storages:
        name, weights, betas = entry["name"], entry.get("weights", [0.0]), entry.get("betas", [0.0])
        if name not in STORAGES:
            problems.append(f"stability.storages: {name}: choose one of {', '.join(STORAGES)}")
        elif name in ("none", "certified"):
            weights, betas = [0.0], [0.0]
        elif min(weights) <= 0:
            problems.append(f"stability.storages: {name}: needs `weights` above 0; weight 0 is storage none")
        found += [Variant(name, *values) for values in product(weights, betas, router_weights)]
    if problems:
        raise Problem(problems)
    return found


@dataclass(frozen=True)
class Traits:
    """What a host has: parameters to train, selective layers whose memory is measured, a router between experts."""

    trained: bool
    selective: bool
    routed: bool

    def suits(self, variant: Variant) -> bool:
        """Whether a variant means anything to such a host."""
        return (self.selective or variant.storage == "none") and (self.routed or not variant.router_weight)


def resolved(cfg: dict) -> dict:
    """The settings of a job, with what its host and its set change in storages, router weights, training and options."""
    dataset, host = dict(cfg["dataset"]), dict(cfg["host"])
    changed = {name: host.pop(name) for name in ("storages", "router_weights") if name in host}
    training = cfg["training"] | host.pop("training", {}) | dataset.pop("training", {})
    host["options"] = host.get("options", {}) | dataset.pop("options", {}).get(host["name"], {})
    return cfg | changed | {"dataset": dataset, "host": host, "training": training}


def keys(cfg: dict, host: Traits) -> list[dict]:
    """Keys of the runs of one horizon: all variants where the host has a memory, else one; one seed where nothing is drawn."""
    found = [variant for variant in variants(cfg["storages"], cfg["router_weights"]) if host.suits(variant)] or [Variant()]
    seeds = cfg["seeds"] if host.trained else cfg["seeds"][:1]
    return [vars(variant) | {"seed": seed} for variant, seed in product(found, seeds)]
