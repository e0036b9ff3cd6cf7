"""Networks of equal size: every architecture comes within 5 % of a number of parameters, or says so in one line."""

import pytest
import torch
from continuity import matching
from continuity.layers import LAYERS
from continuity.mlp import LastStepsMLP, hidden_width
from continuity.models import build_model, sized
from continuity.problems import Problem

ENTRIES = {
    "s4": {"options": {"d_state": 16}},
    "s4d": {"options": {"d_state": 16}},
    "s5": {"options": {"d_state": 16}},
    "s6": {"options": {"d_state": 8}},
    "mamba": {"options": {"d_state": 8, "expand": 1}},
    "mamba2": {"options": {"d_state": 8, "expand": 1}},
    "mamba3": {"options": {"d_state": 8, "expand": 1, "head_dim": 8}, "match": {"d_state": [4, 6, 10, 12, 16]}},
    "deltanet": {"options": {"n_heads": 2}},
    "gated_deltanet": {"options": {"n_heads": 2}},
    "linear_attention": {"options": {"n_heads": 2}},
    "gla": {"options": {"n_heads": 2}, "match": {"gate_rank": [8, 4, 12]}},
    "transformer": {"options": {"n_heads": 2, "ff_mult": 1}, "match": {"n_heads": [2, 1], "ff_mult": [2, 3, 4]}},
}
ENDS = {"d_input": 16, "d_output": 16}


def entry(name):
    return {"name": name, "layer": name} | ENTRIES[name]


def count(network):
    return sum(parameter.numel() for parameter in network.parameters())


def test_every_layer_is_matched_here():
    assert set(ENTRIES) == set(LAYERS)


@pytest.mark.parametrize("goal, layers", [(6000, 1), (100_000, 4)])
@pytest.mark.parametrize("name", ENTRIES)
def test_every_architecture_comes_within_five_percent(name, goal, layers):
    sizes = {"parameters": goal, "n_layers": layers, "dropout": 0.0}
    network = build_model(entry(name), sizes, **ENDS)
    assert abs(count(network) / goal - 1) <= 0.05
    assert network(torch.zeros(2, 5, 16)).shape == (2, 16)


def test_the_width_is_the_nearest_one():
    """7 w² + 3 parameters at even widths: 14 gives 1375, 16 gives 1795."""

    def size(model, sizes):
        if sizes["d_model"] % 2:
            raise ValueError("odd")
        return 7 * sizes["d_model"] ** 2 + 3

    model, sizes = matching.fit({"name": "a"}, {"parameters": 1400, "n_layers": 1}, size)
    assert sizes == {"n_layers": 1, "d_model": 14} and model["options"] == {}
    with pytest.raises(
        Problem, match="models: a: no width has within 5% of 1600 parameters, the nearest is d_model 16 with 1795"
    ):
        matching.fit({"name": "a"}, {"parameters": 1600, "n_layers": 1}, size)


def test_options_vary_only_where_the_models_own_reach_no_width():
    def size(model, sizes):
        return 1000 * sizes["d_model"] + 10 * model["options"]["extra"]

    entry = {"name": "a", "options": {"extra": 0}, "match": {"extra": [20, 40, 45]}}
    assert matching.fit(entry, {"parameters": 3000}, size)[0]["options"] == {"extra": 0}
    assert matching.fit(entry, {"parameters": 3400}, size)[0]["options"] == {"extra": 40}


def test_a_model_that_refuses_every_width_is_one_line():
    def refuse(model, sizes):
        raise ValueError("never")

    with pytest.raises(Problem, match="models: a: no width up to 512 suits its options"):
        matching.fit({"name": "a"}, {"parameters": 100}, refuse)


def test_looking_for_a_width_moves_no_random_number():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    sized(entry("s6"), {"parameters": 6100, "n_layers": 1, "dropout": 0.0}, **ENDS)
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("goal", [1500, 6000, 100_000])
def test_the_mlp_is_as_large_as_the_networks(goal):
    width = hidden_width({"parameters": goal}, 8, 16, 16)
    assert abs(count(LastStepsMLP(8, 16, width, 16)) / goal - 1) <= 0.05


def test_the_mlp_sees_the_last_steps_alone():
    torch.manual_seed(0)
    net, x = LastStepsMLP(8, 3, 5, 2), torch.randn(4, 20, 3)
    y = x.clone()
    y[:, :12] = 7.0
    assert torch.equal(net(x), net(y)) and not torch.equal(net(x), net(x.flip(1)))
