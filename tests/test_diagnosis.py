"""The diagnosis points at the layer, channel and time that were made discontinuous by hand, and at nothing else."""

import numpy as np
import pytest
import torch
from continuity.diagnosis import CHANNELS, diagnose, first_departure, lipschitz_delta
from continuity.layers import LAYERS, build
from continuity.network import ForeignLayer, SequenceModel
from continuity.tables import rows_to_table
from torch import nn

LENGTH, RATIO, LAYER, CHANNEL, TIME = 64, 2, 2, 5, 0.6


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def sequences(ratio=RATIO, n=12):
    """The same smooth waves at two steps: (coarse, fine)."""
    rng = np.random.default_rng(1)
    time = np.arange(LENGTH * ratio) / (LENGTH * ratio)
    frequency, phase = rng.uniform(0.5, 2, (n, 3, 1)), rng.uniform(0, 2 * np.pi, (n, 3, 1))
    wave = np.sin(2 * np.pi * frequency * time + phase).sum(1)
    fine = torch.from_numpy(wave[..., None]).float()
    return fine[:, ::ratio], fine


def network(layer="s4d", n_layers=3, d_model=8, **options):
    torch.manual_seed(0)
    return SequenceModel(layer, d_input=1, d_model=d_model, n_layers=n_layers, d_output=1, layer_options=options)


class CountsSamples(nn.Module):
    """A layer with a threshold on the number of samples, not on time, in one channel and a twentieth of the sequence."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, u, step_scale=1.0):
        y = self.layer(u, step_scale=step_scale)
        k = torch.arange(u.shape[1])
        share = k / u.shape[1]
        opened = (share >= TIME) & (share < TIME + 0.05) & (k > LENGTH)
        return y + 5 * opened[:, None] * (torch.arange(u.shape[2]) == CHANNEL)


def test_a_planted_threshold_is_found_in_its_layer_channel_and_time():
    model = network()
    model.blocks[LAYER - 1].layer = ForeignLayer(CountsSamples(model.blocks[LAYER - 1].layer))
    rows = diagnose(model, *sequences())
    found = first_departure(rows)
    assert (found["layer"], found["channel"]) == (LAYER, CHANNEL)
    assert abs(found["position"] - TIME) < 1 / 16
    elsewhere = [row["own"] for row in rows if (row["layer"], row["channel"]) != (LAYER, CHANNEL)]
    assert max(elsewhere) < 0.2 * found["own"]


def test_what_a_later_layer_inherits_is_not_its_own():
    model = network()
    model.blocks[LAYER - 1].layer = ForeignLayer(CountsSamples(model.blocks[LAYER - 1].layer))
    last = [row for row in diagnose(model, *sequences()) if row["layer"] == 3]
    worst = max(last, key=lambda row: row["departure_layer"])
    assert worst["departure_layer"] > 5 * worst["own_layer"]


def test_the_first_layer_inherits_nothing():
    for row in diagnose(network(), *sequences()):
        if row["layer"] == 1:
            assert row["own"] == pytest.approx(row["departure"], rel=1e-3, abs=1e-6)


def test_a_layer_without_memory_adds_nothing():
    model = network(n_layers=2)
    model.blocks[1].layer = ForeignLayer(nn.Linear(8, 8))
    rows = [row for row in diagnose(model, *sequences()) if row["layer"] == 2]
    assert max(row["own_layer"] for row in rows) < 1e-5 < min(row["departure_layer"] for row in rows)


@pytest.mark.parametrize("layer", ["s4d", "s6"])
def test_departure_halves_with_the_step(layer):
    model, (_, finest) = network(layer, d_state=4), sequences(16, n=4)
    coarse = diagnose(model, finest[:, ::8], finest[:, ::4], step_scale=0.5)
    fine = diagnose(model, finest[:, ::4], finest[:, ::2], step_scale=0.25)
    for name in ("departure_layer", "own_layer"):
        larger, smaller = (np.sqrt(np.mean([row[name] ** 2 for row in rows])) for rows in (coarse, fine))
        assert larger / smaller == pytest.approx(2, rel=0.15)


def test_the_layers_departure_is_the_rms_of_its_channels():
    rows = diagnose(network(), *sequences())
    for layer in (1, 2, 3):
        part = [row for row in rows if row["layer"] == layer and row["position"] == rows[3]["position"]]
        assert len(part) == 8
        assert part[0]["own_layer"] == pytest.approx(np.sqrt(np.mean([row["own"] ** 2 for row in part])))


def test_lipschitz_constant_of_delta_is_that_of_its_formula():
    """Delta = softplus(W u + b) has the Jacobian diag(1 − e^−Delta) W."""
    torch.manual_seed(0)
    layer = build("s6", 6, dt_rank=2).double()
    u = torch.randn(3, 5, 6, dtype=torch.float64)
    weight = layer.dt_proj.weight @ layer.x_proj.weight[:2]
    with torch.no_grad():
        jacobian = (1 - torch.exp(-layer.selection(u)[0])).unsqueeze(-1) * weight
        wanted = torch.linalg.matrix_norm(jacobian, ord=2)
    assert torch.allclose(lipschitz_delta(layer, u), wanted, rtol=1e-10)


@pytest.mark.parametrize("name", ["mamba2", "mamba3"])
def test_lipschitz_constant_of_a_heads_delta_is_that_of_its_formula(name):
    """One Delta a head: softplus(w u + b), w a row of the input projection."""
    torch.manual_seed(0)
    layer = build(name, 6, d_state=4, head_dim=4).double()
    u = torch.randn(3, 5, 6, dtype=torch.float64)
    start = 2 * 12 + 2 * 4
    weight = layer.in_proj.weight[start : start + layer.n_heads]
    with torch.no_grad():
        jacobian = torch.sigmoid(u @ weight.T + layer.dt_bias).unsqueeze(-1) * weight
        wanted = torch.linalg.matrix_norm(jacobian, ord=2)
    assert torch.allclose(lipschitz_delta(layer, u), wanted, rtol=1e-10)


def test_delta_never_changes_faster_than_its_lipschitz_constant():
    """Along the segment between two samples: the mean value theorem."""
    torch.manual_seed(1)
    layer = build("s6", 6).double()
    a, b = torch.randn(2, 50, 6, dtype=torch.float64)
    between = torch.stack([a + (b - a) * t for t in np.linspace(0, 1, 21)])
    with torch.no_grad():
        change = (layer.selection(b)[0] - layer.selection(a)[0]).norm(dim=-1)
    assert (change <= 1.02 * lipschitz_delta(layer, between).max(0).values * (b - a).norm(dim=-1)).all()


@pytest.mark.parametrize("layer", list(LAYERS))
def test_every_layer_can_be_diagnosed(layer):
    model = network(layer, n_layers=2, d_model=16)
    before = {name for part in model.modules() for name in vars(part)}
    rows = diagnose(model, *sequences())
    table = rows_to_table("diagnosis", [{"system": "dho", "model": layer, "method": "none", "seed": 0} | row for row in rows])
    assert {row["status"] for row in table.to_pylist()} == {"ok"}
    assert {name for part in model.modules() for name in vars(part)} == before
    assert all(("lipschitz_delta" in row) == (layer in ("s6", "mamba", "mamba2", "mamba3")) for row in rows)


def test_a_wide_model_lists_the_channels_that_add_most():
    rows = diagnose(network(d_model=40, n_layers=2), *sequences())
    assert len(rows) == 2 * CHANNELS * 16
    everything = diagnose(network(d_model=40, n_layers=2), *sequences(), channels=40)
    listed = {row["channel"] for row in rows if row["layer"] == 1}
    power = {}
    for row in everything:
        if row["layer"] == 1:
            power[row["channel"]] = power.get(row["channel"], 0) + row["own"] ** 2
    assert min(power[c] for c in listed) >= max(power[c] for c in set(power) - listed)


def test_sequences_that_differ_and_models_without_blocks_are_refused():
    coarse, fine = sequences()
    for bad in (fine + 1, fine[:, :-5], fine[:5], coarse):
        with pytest.raises(ValueError, match="is not every r-th sample"):
            diagnose(network(), coarse, bad)
    with pytest.raises(ValueError, match="no stack of blocks"):
        diagnose(nn.Linear(1, 1), coarse, fine)
