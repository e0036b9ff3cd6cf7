"""A model of the configuration as a network, and the kernels that it runs on."""

import functools
import json

import torch

from continuity import matching
from continuity.identity import canonical
from continuity.native import BACKEND
from continuity.network import SequenceModel
from continuity.problems import Problem
from continuity.scan import triton_agrees


def build_model(model: dict, sizes: dict, **ends) -> SequenceModel:
    """The network of a config entry at `sizes` {d_model or parameters, n_layers, …}; `ends`: d_input or vocab, and d_output."""
    model, sizes = sized(model, sizes, **ends)
    layer = model.get("layer") or model["factory"]
    try:
        return SequenceModel(layer, layer_options=model.get("options", {}), **sizes, **ends)
    except ValueError as error:
        raise Problem(f"models: {model['name']}: {error}") from None


def sized(model: dict, sizes: dict, **ends) -> tuple[dict, dict]:
    """`model` and `sizes` with d_model in place of parameters, where those are given (`matching.fit`)."""
    if sizes.get("parameters") is None:
        return model, {name: value for name, value in sizes.items() if name != "parameters"}
    return _fitted(canonical(model), canonical(sizes), canonical(ends))


@functools.cache
def _fitted(model: str, sizes: str, ends: str) -> tuple[dict, dict]:
    model, sizes, ends = json.loads(model), json.loads(sizes), json.loads(ends)
    layer = model.get("layer") or model["factory"]

    def count(variant: dict, width: dict) -> int:
        with torch.random.fork_rng(devices=[]):
            network = SequenceModel(layer, layer_options=variant["options"], **width, **ends)
        return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)

    return matching.fit(model, sizes, count)


def backend(model: torch.nn.Module) -> str:
    """The kernels that `model` runs on: torch's, with numba's compiled loops on a CPU and Triton's on a GPU where they run."""
    device = next(model.parameters()).device.type
    compiled = BACKEND if device == "cpu" else "triton" if device == "cuda" and triton_agrees() else "torch"
    return "torch" if compiled == "torch" else f"torch, {compiled}"
