"""The penalty in a training loop, what it measures, and the layer that needs none."""

from itertools import product

import pytest
import torch
from continuity import dissipation
from continuity.dissipation import selective_violation
from continuity.layers import build
from continuity.layers.certified import Certified, CertifiedMamba
from continuity.network import SequenceModel
from continuity.regularizer import DissipationRegularizer
from torch import nn


@pytest.fixture(autouse=True)
def one_thread_double():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def model(layer="s6", **options):
    return SequenceModel(layer, d_input=2, d_model=4, n_layers=2, layer_options={"d_state": 3, **options})


def trained(weight, steps=15, resume_at=None, storage="diagonal", penalised=True, **how):
    """(model, regularizer, losses) after some steps; interrupted and rebuilt from state dicts at `resume_at`."""
    torch.manual_seed(1)
    net = model("mamba")
    regularizer = DissipationRegularizer(net, weight, storage, **how) if penalised else None
    optimizer = torch.optim.Adam([*net.parameters(), *(regularizer.parameters() if penalised else ())], 1e-2)
    losses = []
    for step in range(steps):
        if step == resume_at:
            states = [x.state_dict() for x in (net, regularizer, optimizer)]
            net = model("mamba")
            regularizer = DissipationRegularizer(net, weight, storage, **how)
            optimizer = torch.optim.Adam([*net.parameters(), *regularizer.parameters()], 1e-2)
            for x, state in zip((net, regularizer, optimizer), states, strict=True):
                x.load_state_dict(state)
        x = torch.randn(8, 12, 2, generator=torch.Generator().manual_seed(step))
        loss = (net(x) - x.mean((1, 2)).unsqueeze(1)).square().mean() + (regularizer() if penalised else 0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return net, regularizer, losses


@pytest.mark.parametrize(("feedthrough", "exponent", "supply"), [(True, 1, "unit"), (False, 2, "delta")])
def test_the_penalty_is_the_mean_over_layers_tokens_and_channels(feedthrough, exponent, supply):
    net, x = model(), torch.randn(3, 7, 2)
    regularizer = DissipationRegularizer(net, 0.3, beta=0.01, feedthrough=feedthrough, exponent=exponent, supply=supply)
    inputs = []
    for block in net.blocks:
        block.layer.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    net(x)
    means = []
    for block, u in zip(net.blocks, inputs, strict=True):
        layer = block.layer
        delta, B, C = layer.selection(u)
        D = layer.D if feedthrough else None
        means.append(selective_violation(delta, layer.A(), B, C, D, torch.ones(3), 0.01, supply=supply).pow(exponent).mean())
    assert torch.allclose(regularizer(), 0.3 * (means[0] + means[1]) / 2)


def test_the_largest_channel_counts_where_asked():
    net = model()
    mean, largest = (DissipationRegularizer(net, 1.0, channels=how, feedthrough=False) for how in ("mean", "max"))
    net(torch.randn(3, 7, 2))
    assert largest() > mean()


def test_weight_zero_changes_no_bit():
    plain, weightless = trained(0, penalised=False), trained(0.0)
    assert plain[2] == weightless[2]
    for mine, other in zip(plain[0].parameters(), weightless[0].parameters(), strict=True):
        assert torch.equal(mine, other)


def test_the_penalty_trains_the_violation_away_under_either_storage():
    final = {}
    for storage, weight in (("identity", 0.0), ("identity", 1.0), ("diagonal", 1.0)):
        net, regularizer, _ = trained(weight, 40, storage=storage, feedthrough=False)
        net(torch.randn(16, 12, 2, generator=torch.Generator().manual_seed(99)))
        final[storage, weight] = regularizer.measure()["violation"]
    assert max(final["diagonal", 1.0], final["identity", 1.0]) < 0.3 * final["identity", 0.0]


def test_a_learned_storage_keeps_its_mean_of_one():
    _, regularizer, _ = trained(1.0)
    for q in regularizer.storages():
        assert (q > 0).all() and q.mean().item() == pytest.approx(1) and q.std() > 1e-3


def test_a_resumed_run_draws_and_learns_the_same():
    whole, resumed = trained(0.5, blocks=40), trained(0.5, blocks=40, resume_at=7)
    assert whole[2] == resumed[2]


def test_a_sample_of_blocks_is_unbiased_and_differs_from_step_to_step():
    net, x = model(), torch.randn(6, 9, 2)
    lengths = torch.tensor([9, 2, 5, 9, 1, 7])
    full = DissipationRegularizer(net, 1.0, feedthrough=False)
    few = {how: DissipationRegularizer(net, 1.0, feedthrough=False, blocks=24, channels=how, seed=3) for how in ("mean", "max")}
    largest = DissipationRegularizer(net, 1.0, feedthrough=False, channels="max")
    drawn = {"mean": [], "max": []}
    with torch.no_grad():
        for _ in range(400):
            net(x, lengths)
            for how, values in drawn.items():
                values.append(few[how]().item())
        truth = {"mean": full().item(), "max": largest().item()}
    for how, values in drawn.items():
        values = torch.tensor(values)
        assert len(values.unique()) > 300
        assert abs(values.mean() - truth[how]) < 4 * values.std() / len(values) ** 0.5
        assert values.std() > 0.01 * truth[how]


@pytest.mark.parametrize("name", ["s6", "mamba"])
def test_padding_and_second_directions(name):
    net, x = model(name, bidirectional=True), torch.randn(2, 9, 2)
    regularizer = DissipationRegularizer(net, 1.0, feedthrough=False)
    assert len(regularizer.storages()) == 4
    net(x, torch.tensor([9, 4]))
    together, apart = regularizer().item(), regularizer.per_sample()
    alone = []
    for row, length in enumerate((9, 4)):
        net(x[row : row + 1, :length])
        alone.append(regularizer().item())
        assert regularizer.per_sample()[0].item() == pytest.approx(alone[-1])
    assert apart.tolist() == pytest.approx(alone)
    assert together == pytest.approx((9 * alone[0] + 4 * alone[1]) / 13)


class Foreign(nn.Module):
    """The layout of mamba-ssm's Mamba: names and shapes of its parts, its scan as one loop."""

    def __init__(self, d_model, inner, n, rank=1):
        super().__init__()
        self.in_proj = nn.Linear(d_model, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.x_proj = nn.Linear(inner, rank + 2 * n, bias=False)
        self.dt_proj = nn.Linear(rank, inner)
        self.A_log = nn.Parameter(torch.log(torch.arange(1.0, n + 1)).repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, d_model, bias=False)

    def forward(self, hidden_states):
        x, z = self.in_proj(hidden_states).chunk(2, -1)
        x = nn.functional.silu(self.conv1d(x.mT)[..., : x.shape[1]].mT)
        low, B, C = self.x_proj(x).split([self.dt_proj.in_features, self.A_log.shape[1], self.A_log.shape[1]], -1)
        delta, h, outputs = nn.functional.softplus(self.dt_proj(low)), 0, []
        for k in range(x.shape[1]):
            step = delta[:, k].unsqueeze(-1)
            h = torch.exp(-step * self.A_log.exp()) * h + step * B[:, k].unsqueeze(1) * x[:, k].unsqueeze(-1)
            outputs.append((h * C[:, k].unsqueeze(1)).sum(-1) + self.D * x[:, k])
        return self.out_proj(torch.stack(outputs, 1) * nn.functional.silu(z))


def foreign_twin(ours):
    theirs = Foreign(ours.d_model, ours.ssm.d_model, ours.ssm.d_state, ours.ssm.dt_rank)
    with torch.no_grad():
        for mine, other in (
            (ours.in_proj, theirs.in_proj), (ours.ssm.x_proj, theirs.x_proj), (ours.ssm.dt_proj, theirs.dt_proj),
            (ours.out_proj, theirs.out_proj),
        ):  # fmt: skip
            other.load_state_dict(mine.state_dict())
        theirs.conv1d.weight.copy_(ours.conv.weight.unsqueeze(1))
        theirs.conv1d.bias.copy_(ours.conv.bias)
    return theirs


def test_a_module_laid_out_as_mamba_ssms_is_penalised_and_measured_as_ours():
    ours = build("mamba", 4, d_state=3)
    theirs = foreign_twin(ours)
    x = torch.randn(2, 8, 4)
    found = []
    for net, weights in ((ours, ours.in_proj.weight), (theirs, theirs.in_proj.weight)):
        regularizer = DissipationRegularizer(net, 1.0, feedthrough=False)
        y = net(x)
        value = regularizer()
        found.append((y, value, torch.autograd.grad(value, weights)[0], regularizer.measure()))
    (y, value, slope, measured), (other_y, other_value, other_slope, other_measured) = found
    assert torch.allclose(y, other_y) and torch.allclose(value, other_value) and torch.allclose(slope, other_slope)
    assert measured == pytest.approx(other_measured)


def test_mambapys_block_is_found_by_its_layout():
    from mambapy.mamba import MambaBlock, MambaConfig

    torch.set_default_dtype(torch.float32)
    block = MambaBlock(MambaConfig(d_model=16, n_layers=1))
    regularizer = DissipationRegularizer(block, 1.0, feedthrough=False)
    block(torch.randn(2, 9, 16))
    assert regularizer() > 0


def test_the_state_norm_is_that_of_the_recurrence():
    net = build("s6", 4, d_state=3)
    regularizer = DissipationRegularizer(net, 0.0)
    u, lengths = torch.randn(2, 11, 4), torch.tensor([11, 6])
    net(u, 1.0, lengths)
    states = []
    for row, length in enumerate(lengths.tolist()):
        state = net.initial_state(1)
        for k in range(length):
            _, state = net.step(u[row : row + 1, k], state)
            states.append(state[0].flatten())
    expected = torch.cat(states).square().mean().sqrt().item()
    assert regularizer.measure()["state_norm"] == pytest.approx(expected)


def test_primary_metrics_do_not_see_a_rescaling_that_the_published_one_rewards():
    net = build("s6", 4, d_state=3)
    x = 2 * torch.randn(4, 20, 4)
    measured, outputs = [], []
    for r, s in ((1.0, 1.0), (0.03, 0.002)):
        with torch.no_grad():
            net.x_proj.weight[1:4] *= r
            net.x_proj.weight[4:] *= s / r
            net.D *= s
        regularizer = DissipationRegularizer(net, 0.0)
        outputs.append(net(x) / s)
        measured.append(regularizer.measure(feedthrough=False))
    assert torch.allclose(*outputs)
    assert measured[1]["violation"] < 0.1 * measured[0]["violation"]
    for name in ("violation_scaled", "violating_share"):
        assert measured[1][name] == pytest.approx(measured[0][name]) and measured[0][name] > 0


# The layer that is passive by construction


@pytest.mark.parametrize(
    ("supply", "rule", "step_scale"), list(product(("delta", "unit"), ("zoh", "euler", "bilinear"), (0.05, 1.0, 7.0)))
)
def test_a_certified_layer_meets_its_block_on_every_token_whatever_its_weights(supply, rule, step_scale):
    for beta, noise in ((0.0, 0.0), (0.01, 0.0), (0.01, 0.5)):
        layer = Certified(6, d_state=5, discretization=rule, supply=supply, beta=beta)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter += noise * torch.randn_like(parameter)
            layer.D.zero_()
        delta, B, C = layer.selection(3 * torch.randn(3, 30, 6))
        delta = step_scale * delta
        found = layer.certificate(delta, B, C)
        assert (found["beta"] >= 0).all() and (found["beta"] <= beta).all()
        through = found.pop("D")
        top = selective_violation(delta, layer.A(), B, C, through, found.pop("p"), discretization=rule, clip=False, **found)
        assert top.max() <= 1e-9


def test_a_certified_layer_never_gives_back_more_than_it_took():
    layer = Certified(4, d_state=3)
    u = 3 * torch.randn(8, 60, 4)
    u[:, ::7] *= -5
    delta, _, _ = layer.selection(u)
    taken = (delta * u * layer(u)).cumsum(1)
    assert taken.min() > -1e-12
    passive, free = build("s6", 4, d_state=3), layer
    passive.load_state_dict({k: v for k, v in free.state_dict().items() if k != "q_raw"})
    with torch.no_grad():
        passive.D.zero_()
    assert (delta * u * passive(u)).cumsum(1).min() < -1e-3


def test_a_trained_certified_model_stays_certified_in_float32():
    torch.set_default_dtype(torch.float32)
    for layer in (Certified(4, d_state=3), CertifiedMamba(4, d_state=3)):
        net = nn.Sequential(nn.Linear(2, 4), layer, nn.Linear(4, 1))
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)
        regularizer = DissipationRegularizer(net, 1.0)
        for step in range(20):
            x = torch.randn(4, 15, 2, generator=torch.Generator().manual_seed(step))
            loss = (net(x) - x.sum(2, keepdim=True).cumsum(1)).square().mean() + regularizer()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        net(torch.randn(4, 15, 2))
        assert regularizer.measure()["violation"] <= 1e-5
        regularizer.blocks = 60
        assert regularizer.measure()["violation"] <= 1e-5
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in layer.parameters())


@pytest.mark.parametrize(("rule", "step_rule"), [("zoh", "delta"), ("euler", "delta"), ("bilinear", "semigroup")])
def test_the_certified_layer_is_its_recurrence_and_converges_with_supply_per_step(rule, step_rule):
    layer = Certified(4, d_state=3, discretization=rule, step_rule=step_rule)
    u = torch.randn(2, 25, 4)
    for scale in (0.25, 1.0, 3.0):
        assert (layer(u, scale) - layer.recurrence(u, scale)).abs().max() < 1e-10
    t = torch.arange(0, 12, 1 / 32).unsqueeze(-1)
    smooth = torch.sin(t * torch.tensor([0.3, 0.5, 0.7, 0.9])).unsqueeze(0)
    outputs = [layer(smooth[:, :: 32 // r], 1 / r)[:, ::r] for r in (4, 8, 16, 32)]
    gaps = [(a - b).abs().max().item() for a, b in zip(outputs, outputs[1:], strict=False)]
    assert 1.7 < gaps[1] / gaps[2] < 2.4


def test_a_certified_mamba_starts_from_the_weights_of_mamba():
    torch.manual_seed(5)
    plain = build("mamba", 4, d_state=3)
    torch.manual_seed(5)
    certified = CertifiedMamba(4, d_state=3)
    for name, value in plain.state_dict().items():
        assert torch.equal(value, certified.state_dict()[name])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: DissipationRegularizer(nn.Linear(2, 2), 1.0), "no selective layer"),
        (lambda: DissipationRegularizer(build("s6", 4, discretization="averaged"), 1.0), "no one-step block"),
        (lambda: DissipationRegularizer(build("s6", 4), 1.0, storage="full"), "choose one of identity, diagonal"),
        (lambda: DissipationRegularizer(build("s6", 4), -1.0), "must not be negative"),
        (lambda: DissipationRegularizer(build("s6", 4), 1.0, exponent=0), "at least 1"),
        (lambda: DissipationRegularizer(build("s6", 4), 1.0, blocks=0), "positive whole number"),
        (lambda: DissipationRegularizer(build("s6", 4), 1.0)(), "call the model first"),
        (lambda: Certified(4, discretization="averaged"), "choose one of zoh, bilinear, euler"),
        (lambda: Certified(4, supply="step"), "choose one of unit, delta"),
        (lambda: Certified(4, beta=-1.0), "must not be negative"),
    ],
)
def test_bad_input_is_one_clear_line(call, said):
    with pytest.raises(ValueError) as caught:
        call()
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_the_penalty_of_one_pass_counts_once():
    net = model()
    regularizer = DissipationRegularizer(net, 1.0)
    net(torch.randn(2, 5, 2))
    regularizer()
    with pytest.raises(ValueError, match="since"):
        regularizer()
    assert regularizer.measure()["violation"] >= 0
    assert dissipation.backend(torch.ones(1)) in ("numba", "torch")
