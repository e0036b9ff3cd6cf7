"""The registry of sequence layers: a new layer is one file and one line here.

Classes load when asked for, and the table holds text, so that a file which uses one layer does not depend on the
others.
"""

from continuity.problems import nearest
from continuity.registry import Registry

LAYER_MODULES = {
    "s4": "continuity.layers.s4:S4",
    "s4d": "continuity.layers.s4d:S4D",
    "s5": "continuity.layers.s5:S5",
    "s6": "continuity.layers.s6:S6",
    "mamba": "continuity.layers.mamba:Mamba",
    "mamba2": "continuity.layers.mamba2:Mamba2",
    "mamba3": "continuity.layers.mamba3:Mamba3",
    "deltanet": "continuity.layers.deltanet:DeltaNet",
    "gated_deltanet": "continuity.layers.gated_deltanet:GatedDeltaNet",
    "linear_attention": "continuity.layers.linear_attention:LinearAttention",
    "gla": "continuity.layers.gla:GLA",
    "transformer": "continuity.layers.transformer:Transformer",
}
"""Where each layer's class is. A run's identity holds the file of its own layer, not this table."""

LAYERS = Registry(LAYER_MODULES)


def build(name: str, d_model: int, **options):
    """The layer `name` for d_model channels. ValueError for an unknown name (with the nearest) or option (with the
    known).
    """
    if name not in LAYERS:
        near = nearest(name, LAYERS)
        hint = f"; did you mean {near!r}?" if near else ""
        raise ValueError(f"unknown layer {name!r}{hint} Known layers: {', '.join(LAYERS)}")
    return LAYERS[name](d_model, **options)
