"""A model of the configuration as a network, and the kernels that it runs on."""

import torch

from continuity.native import BACKEND
from continuity.network import SequenceModel
from continuity.problems import Problem
from continuity.scan import triton_agrees


def build_model(model: dict, sizes: dict, **ends) -> SequenceModel:
    """The network of a config entry at `sizes` {d_model, n_layers, …}; `ends`: d_input or vocab, and d_output."""
    layer = model.get("layer") or model["factory"]
    try:
        return SequenceModel(layer, layer_options=model.get("options", {}), **sizes, **ends)
    except ValueError as error:
        raise Problem(f"models: {model['name']}: {error}") from None


def backend(model: torch.nn.Module) -> str:
    """The kernels that `model` runs on: torch's, with numba's compiled loops on a CPU and Triton's on a GPU where they run."""
    device = next(model.parameters()).device.type
    compiled = BACKEND if device == "cpu" else "triton" if device == "cuda" and triton_agrees() else "torch"
    return "torch" if compiled == "torch" else f"torch, {compiled}"
