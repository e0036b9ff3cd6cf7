"""The network around a layer: shapes, real lengths, readouts, users' own layers, parameter groups, compilation."""

import subprocess
import sys

import pytest
import torch
from continuity.layers import LAYERS
from continuity.layers.base import SequenceLayer
from continuity.network import ForeignLayer, SequenceModel, optim_groups
from torch import nn


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


def small(layer, **more):
    sizes = {"d_input": 3, "d_model": 8, "n_layers": 2, "d_output": 4} | more
    return SequenceModel(layer, **sizes)


class Smoother(nn.Module):
    """A user's layer that knows nothing of steps or lengths: the mean of a sample and the one before it."""

    def __init__(self, d_model, gain=1.0):
        super().__init__()
        self.map, self.gain = nn.Linear(d_model, d_model), gain

    def forward(self, u):
        return self.gain * self.map((u + torch.cat([torch.zeros_like(u[:, :1]), u[:, :-1]], 1)) / 2)


class StepAware(Smoother):
    def forward(self, u, step_scale=1.0):
        return step_scale * super().forward(u)


class Wrong(Smoother):
    def forward(self, u):
        return u[:, :-1]


def not_a_module(d_model):
    return 3


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("readout", ["mean", "last", "none"])
def test_a_ragged_batch_gives_each_sample_its_own_answer(layer, readout):
    model, lengths = small(layer, readout=readout), torch.tensor([30, 1, 17])
    x = torch.randn(3, 30, 3)
    padded = torch.where(torch.arange(30)[None, :, None] < lengths[:, None, None], x, torch.tensor(float("nan")))
    together = model(padded, lengths, step_scale=0.5)
    for row, length in enumerate(lengths.tolist()):
        alone = model(x[row : row + 1, :length], step_scale=0.5)[0]
        mine = together[row, :length] if readout == "none" else together[row]
        assert (mine - alone).abs().max() < 1e-5
    if readout == "none":
        assert together.shape == (3, 30, 4) and not together[1, 1:].any()


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_padding_gets_no_gradient_and_breaks_none(norm):
    model, lengths = small("s6", norm=norm), torch.tensor([12, 20])
    x = torch.randn(2, 20, 3)
    x[0, 12:] = float("inf")
    x.requires_grad_()
    model(x, lengths).sum().backward()
    assert not x.grad[0, 12:].any() and torch.isfinite(x.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_mean_readout_is_the_mean_over_real_steps_and_last_the_last_real_state():
    lengths, x = torch.tensor([5, 9]), torch.randn(2, 9, 3)
    for readout in ("mean", "last"):
        model = small("s4d", readout=readout)
        h, _ = model.states(x, lengths)
        pooled = torch.stack([h[i, :n].mean(0) if readout == "mean" else h[i, n - 1] for i, n in enumerate(lengths)])
        assert torch.allclose(model(x, lengths), model.decoder(pooled), atol=1e-6)


def test_tokens_enter_through_an_embedding_and_padding_tokens_may_be_anything():
    model, lengths = SequenceModel("s6", vocab=5, d_model=8, d_output=2), torch.tensor([7, 4])
    tokens = torch.randint(0, 5, (2, 7))
    padded = tokens.clone()
    padded[1, 4:] = -100
    assert torch.equal(model(padded, lengths), model(tokens, lengths))
    assert torch.equal(model.encode(tokens), model.encoder(tokens))
    assert not model.encode(padded, lengths)[1, 4:].any()


def test_encode_is_the_encoder_alone():
    model, x = small("s4d"), torch.randn(2, 6, 3)
    assert torch.equal(model.encode(x), model.encoder(x)) and model.encode(x).shape == (2, 6, 8)


@pytest.mark.parametrize("layer", LAYERS)
def test_every_network_learns_a_little(layer):
    model = small(layer, d_output=1)
    x = torch.randn(16, 20, 3)
    target = x[:, -5:, 0].sum(1, keepdim=True)
    optimiser = torch.optim.AdamW(optim_groups(model, lr=1e-2, weight_decay=0.01))
    losses = []
    for _ in range(30):
        optimiser.zero_grad()
        loss = (model(x) - target).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_parameter_groups_split_dynamics_from_weights_and_lose_nothing(layer, bidirectional):
    model = small(layer, layer_options={"bidirectional": bidirectional})
    groups = {group["name"]: group for group in optim_groups(model, lr=0.01, weight_decay=0.1, layer_lr=1e-4)}
    named = {id(p): name for name, p in model.named_parameters()}
    grouped = [named[id(p)] for group in groups.values() for p in group["params"]]
    assert sorted(grouped) == sorted(named.values())
    assert groups["decayed"]["weight_decay"] == 0.1 and groups["plain"]["weight_decay"] == 0
    assert not any(n.endswith("bias") and ".layer." not in n for n in (named[id(p)] for p in groups["decayed"]["params"]))
    dynamics = {named[id(p)].rsplit(".layer.", 1)[1] for p in groups.get("dynamics", {"params": []})["params"]}
    of_layers = {name for name in dynamics if any(word in name for word in ("A_", "A_log", "dt", "B", "p", "gate_up"))}
    assert dynamics == of_layers
    if dynamics:
        assert groups["dynamics"]["lr"] == 1e-4 and groups["dynamics"]["weight_decay"] == 0


@pytest.mark.parametrize(
    ("layer", "members"),
    [
        ("s4d", {"log_dt", "log_A_real", "A_imag"}),
        ("s6", {"A_log", "dt_proj.weight", "dt_proj.bias"}),
        ("mamba", {"ssm.A_log", "ssm.dt_proj.weight", "ssm.dt_proj.bias"}),
        ("mamba2", {"A_log", "dt_bias"}),
        ("s5", {"log_dt", "log_A_real", "A_imag", "B"}),
        ("s4", {"log_dt", "log_A_real", "A_imag", "p", "B"}),
        ("mamba3", {"dt_bias"}),
        ("transformer", set()),
    ],
)
def test_the_dynamics_group_holds_a_b_and_delta(layer, members):
    model = small(layer, n_layers=1)
    ids = {id(p) for group in optim_groups(model, 1e-3, 0.1) if group["name"] == "dynamics" for p in group["params"]}
    assert {name for name, p in model.blocks[0].layer.named_parameters() if id(p) in ids} == members


def test_a_users_own_layer_enters_by_name():
    model = small(f"{__name__}:Smoother", layer_options={"gain": 2.0})
    assert isinstance(model.blocks[0].layer, ForeignLayer) and model.blocks[0].layer.module.gain == 2.0
    x, lengths = torch.randn(2, 10, 3), torch.tensor([10, 4])
    assert torch.allclose(model(x, lengths)[1], model(x[1:, :4])[0], atol=1e-6)
    assert torch.equal(model(x, step_scale=0.5), model(x))
    aware = small(f"{__name__}:StepAware")
    assert not torch.equal(aware(x, step_scale=0.5), aware(x))


def test_a_layer_of_the_registry_written_by_a_user_is_used_as_it_is():
    class Own(SequenceLayer):
        def mix(self, u, step_scale, lengths):
            return u

    assert torch.equal(Own(3)(torch.ones(1, 2, 3), 1.0, torch.tensor([1])), torch.tensor([[[1.0] * 3, [0.0] * 3]]))


@pytest.mark.parametrize("layer", ["s4d", "s5", "s6", "mamba", "mamba3", "deltanet", "transformer"])
def test_torch_compile_gives_the_same_numbers(layer):
    model, x = small(layer).eval(), torch.randn(2, 20, 3)
    with torch.no_grad():
        assert torch.allclose(torch.compile(model, backend="eager")(x), model(x), atol=1e-6)
    torch._dynamo.reset()


def test_the_core_imports_and_trains_without_numba_and_scipy():
    code = """
import sys
for name in ("numba", "scipy", "triton", "duckdb", "pandas", "snakemake"):
    sys.modules[name] = None
import torch
from continuity.native import BACKEND
from continuity.layers import LAYERS
from continuity.network import SequenceModel
for name in LAYERS:
    model = SequenceModel(name, d_input=2, d_model=8, n_layers=1)
    model(torch.randn(2, 9, 2)).sum().backward()
print(BACKEND)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "torch"


@pytest.mark.parametrize("folder", ["/proc/nowhere", None])
def test_a_cache_folder_that_cannot_be_written_stops_nothing(folder, tmp_path):
    environment = {"PATH": "/usr/bin", "HOME": "/proc/nowhere", "XDG_CACHE_HOME": "/proc/nowhere"}
    if folder:
        environment["NUMBA_CACHE_DIR"] = folder
    code = "from continuity.native import njit\nimport os\nprint(njit(lambda x: x + 1)(1), os.environ['NUMBA_CACHE_DIR'])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 ") and "/proc" not in done.stdout


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: SequenceModel("s4d"), "either d_input"),
        (lambda: SequenceModel("s4d", d_input=1, vocab=3), "not both"),
        (lambda: SequenceModel("s4d", d_input=0), "d_input must be a positive whole number"),
        (lambda: small("s4d", norm="batch"), "post, pre"),
        (lambda: small("s4d", readout="max"), "mean, last, none"),
        (lambda: small("s4d", n_layers=0), "n_layers"),
        (lambda: small("s7"), "unknown layer 's7'"),
        (lambda: small("nowhere_at_all:f"), "cannot load layer"),
        (lambda: small(f"{__name__}:missing"), "cannot load layer"),
        (lambda: small(f"{__name__}:not_a_module"), "must return a torch module"),
        (lambda: small(f"{__name__}:Wrong")(torch.randn(1, 5, 3)), "must return its input's shape"),
        (lambda: small("s4d")(torch.randn(1, 5, 2)), "(batch, length, 3)"),
        (lambda: SequenceModel("s4d", vocab=3)(torch.randn(1, 5)), "tokens (batch, length)"),
        (lambda: SequenceModel("s4d", vocab=3)(torch.tensor([[0, 3]])), "tokens must lie in 0 … 2"),
    ],
)
def test_bad_input_is_one_clear_line(call, said):
    with pytest.raises(ValueError) as caught:
        call()
    assert said in str(caught.value) and "\n" not in str(caught.value)
