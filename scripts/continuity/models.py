"""A model of the configuration as a network, and the kernels that it runs on."""

import torch

from continuity.native import BACKEND
from continuity.network import SequenceModel


def build_model(model: dict, sizes: dict, **ends) -> SequenceModel:
    """The network of a config entry {layer | factory, options} at sizes {d_model, n_layers, …}; ends: d_input or vocab, d_output."""
    layer = model.get("layer") or model["factory"]
    return SequenceModel(layer, layer_options=model.get("options", {}), **sizes, **ends)


def backend(model: torch.nn.Module) -> str:
    """The kernels that `model` runs on: torch's alone on a GPU, with compiled loops where numba is installed on a CPU."""
    device = next(model.parameters()).device.type
    return "torch" if device != "cpu" or BACKEND == "torch" else f"torch, {BACKEND}"
