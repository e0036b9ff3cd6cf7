"""Families of architectures: what a model is made of decides which one it belongs to. Light: read at planning time."""

from collections.abc import Mapping

FAMILIES = {
    "s4": "time-invariant",
    "s4d": "time-invariant",
    "s5": "time-invariant",
    "s6": "selective",
    "mamba": "selective",
    "mamba2": "selective",
    "mamba3": "selective",
    "gla": "linear attention",
    "linear_attention": "linear attention",
    "deltanet": "linear attention",
    "gated_deltanet": "linear attention",
    "transformer": "softmax attention",
}
"""Family of each layer: state spaces fixed in time, selective ones, matrix memories, softmax attention."""


def family(model: Mapping) -> str:
    """The family of a model of the config; a user's own is a family of its own."""
    return FAMILIES.get(model.get("layer", ""), model["name"])
