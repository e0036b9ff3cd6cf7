"""A model of the configuration as a network, and the kernels that it runs on."""

import torch

from continuity.native import BACKEND
from continuity.network import SequenceModel
from continuity.problems import Problem


def build_model(model: dict, sizes: dict, **ends) -> SequenceModel:
    """The network of a config entry at `sizes` {d_model, n_layers, …}; `ends`: d_input or vocab, and d_output."""
    layer = model.get("layer") or model["factory"]
    try:
        return SequenceModel(layer, layer_options=model.get("options", {}), **sizes, **ends)
    except ValueError as error:
        raise Problem(f"models: {model['name']}: {error}") from None


def backend(model: torch.nn.Module) -> str:
    """The kernels that `model` runs on: torch's alone on a GPU, with compiled loops where numba is installed on a CPU."""
    device = next(model.parameters()).device.type
    return "torch" if device != "cpu" or BACKEND == "torch" else f"torch, {BACKEND}"
