"""Every layer of the registry against its definition, its promises and independent implementations."""

import inspect
import math

import numpy as np
import pytest
import torch
from continuity import native
from continuity.layers import LAYER_MODULES, LAYERS, build, chunked, hippo, matrix_scan
from continuity.layers.base import SequenceLayer
from continuity.layers.parts import ShortConvolution
from scipy.signal import cont2discrete

RECURRENT = [name for name in LAYERS if name != "transformer"]
TIME_INVARIANT = ["s4", "s4d", "s5"]
CHUNKED = ["mamba2", "mamba3", "deltanet", "gated_deltanet", "linear_attention", "gla"]
LENGTHS = [1, 2, 7, 63, 100, 1021]


@pytest.fixture(autouse=True)
def one_thread_double():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def options(name, **more):
    """Small sizes for a layer, with what else is asked for and accepted."""
    known = inspect.signature(LAYERS[name].__init__).parameters
    small = {"d_state": 8, "head_dim": 4, "n_heads": 2, **more}
    chosen = {key: value for key, value in small.items() if key in known}
    if name == "s4" and chosen.get("step_rule") == "semigroup":
        chosen["discretization"] = "zoh"
    return chosen


def rules(name):
    """Every discretization that a layer accepts; [None] where it has none."""
    if "discretization" not in inspect.signature(LAYERS[name].__init__).parameters:
        return [None]
    tried = {"zoh": True, "bilinear": True, "averaged": name != "s4", "euler": name in ("s6", "mamba")}
    return [rule for rule, allowed in tried.items() if allowed]


VARIANTS = [
    (name, rule, step_rule)
    for name in RECURRENT
    for rule in rules(name)
    for step_rule in ("delta", "semigroup", "none")
    if (name, rule, step_rule) != ("s4", "bilinear", "semigroup")
]


def variant(name, rule, step_rule="delta", d_model=8, **more):
    chosen = options(name, step_rule=step_rule, conv_time="time", **more)
    return build(name, d_model, **chosen, **({"discretization": rule} if rule and "discretization" not in chosen else {}))


def smooth(length, step, channels, seed=0):
    """Samples at k step of one fixed sum of slow sines."""
    draw = np.random.default_rng(seed)
    t = np.arange(length)[:, None, None] * step
    rate, phase = draw.uniform(0, 0.5, (4, channels)), draw.uniform(0, 6.3, (4, channels))
    size = draw.normal(size=(4, channels))
    return torch.from_numpy((size * np.sin(rate * t + phase)).sum(1))[None]


# Forms of one layer


@pytest.mark.parametrize(("name", "rule", "step_rule"), VARIANTS)
def test_the_fast_form_equals_one_step_at_a_time(name, rule, step_rule):
    layer = variant(name, rule, step_rule)
    u = torch.randn(2, 63, 8)
    for scale in (0.25, 1.0, 3.0):
        assert (layer(u, scale) - layer.recurrence(u, scale)).abs().max() < 1e-10


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", RECURRENT)
def test_forms_agree_at_every_length_in_float32(name, length):
    torch.set_default_dtype(torch.float32)
    layer = build(name, 8, **options(name))
    u = torch.randn(1, length, 8)
    with torch.no_grad():
        slow = layer.recurrence(u)
        assert (layer(u) - slow).abs().max() < 1e-4 * max(1.0, slow.abs().max().item())


@pytest.mark.parametrize("name", [*CHUNKED, "s5", "s6"])
@pytest.mark.parametrize("length", [1, 2, 7, 63, 100])
def test_without_numba_layers_and_their_gradients_are_the_same(name, length, monkeypatch):
    layer, u = build(name, 8, **options(name)), torch.randn(2, length, 8)
    wanted = list(layer.parameters())
    compiled = layer(u)
    grads = torch.autograd.grad(compiled.square().sum(), wanted, materialize_grads=True)
    monkeypatch.setattr(native, "HAVE_NUMBA", False)
    plain = layer(u)
    plain_grads = torch.autograd.grad(plain.square().sum(), wanted, materialize_grads=True)
    for mine, reference in zip((compiled, *grads), (plain, *plain_grads), strict=True):
        assert (mine - reference).abs().max() < 1e-10 * max(1.0, reference.abs().max().item())


def test_chunked_forms_do_not_depend_on_the_chunk():
    q, k, v = torch.randn(2, 3, 50, 4), torch.randn(2, 3, 50, 4), torch.randn(2, 3, 50, 5)
    g, gk, b = -torch.rand(2, 3, 50), -torch.rand(2, 3, 50, 4), torch.rand(2, 3, 50)
    k = torch.nn.functional.normalize(k, dim=-1)
    for form, arguments in (
        (chunked.decayed_attention, (q, k, v, g, b, 1 - b)),
        (chunked.delta_rule, (q, k, v, b, 1 - b, g)),
        (chunked.channel_decayed_attention, (q, k, v, gk)),
        (chunked.decayed_attention, (q, k, v)),
    ):
        whole = form(*arguments, chunk=50)
        for chunk in (1, 7, 16, 64):
            assert torch.allclose(form(*arguments, chunk=chunk), whole, atol=1e-11)


def test_strong_decay_stays_finite_in_chunks():
    q, k, v = torch.randn(1, 1, 64, 4), torch.randn(1, 1, 64, 4), torch.randn(1, 1, 64, 4)
    g = torch.full((1, 1, 64), -500.0)
    now = (q * k).sum(-1, keepdim=True) * v
    for form in (chunked, matrix_scan):
        assert torch.allclose(form.decayed_attention(q, k, v, g), now)
        assert torch.allclose(form.channel_decayed_attention(q, k, v, g.unsqueeze(-1).expand(-1, -1, -1, 4)), now)


# Definitions by hand


@pytest.mark.parametrize("rule", ["zoh", "bilinear"])
@pytest.mark.parametrize("scale", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("length", [1, 2, 7, 100])
def test_s4_is_the_dense_recurrence_of_scipy(rule, scale, length):
    layer, u = build("s4", 3, d_state=6, discretization=rule), torch.randn(1, length, 3)
    y = layer(u, scale)[0].detach().numpy()
    A, B, C, D = (x.detach().numpy() for x in (layer.A(), layer.B, layer.C, layer.D))
    for channel in range(3):
        delta = scale * math.exp(layer.log_dt[channel].item())
        Ad, Bd, *_ = cont2discrete((A, B[:, None], C[:1], np.zeros((1, 1))), delta, rule)
        h, expected = np.zeros(6), []
        for sample in u[0, :, channel].numpy():
            h = Ad @ h + Bd[:, 0] * sample
            expected.append(C[channel] @ h + D[channel] * sample)
        np.testing.assert_allclose(y[:, channel], expected, atol=1e-10)


def test_s4_starts_as_hippo_legs():
    layer = build("s4", 2, d_state=8)
    legs, B = hippo.legs(8)
    np.testing.assert_allclose(
        np.sort_complex(np.linalg.eigvals(layer.A().detach().numpy())),
        np.sort_complex(np.linalg.eigvals(legs.numpy())),
        atol=1e-8,
    )
    for s in (1j, 2.0, 0.5 + 3j):
        ours, theirs = (
            b @ np.linalg.solve(s * np.eye(8) - a, b)
            for a, b in ((layer.A().detach().numpy(), layer.B.detach().numpy()), (legs.numpy(), B.numpy()))
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)


@pytest.mark.parametrize("rule", ["zoh", "bilinear"])
def test_s4d_is_the_recurrence_of_its_definition(rule):
    layer, u = build("s4d", 2, d_state=6, discretization=rule), torch.randn(1, 40, 2)
    A = -np.exp(layer.log_A_real.detach().numpy()) + 1j * layer.A_imag.detach().numpy()
    C, delta = layer.C.detach().numpy()[..., 0] + 1j * layer.C.detach().numpy()[..., 1], np.exp(layer.log_dt.detach().numpy())
    z = delta[:, None] * A
    a, b = (np.exp(z), np.expm1(z) / A) if rule == "zoh" else ((1 + z / 2) / (1 - z / 2), delta[:, None] / (1 - z / 2))
    h, expected = np.zeros((2, 3), complex), []
    for sample in u[0].numpy():
        h = a * h + b * sample[:, None]
        expected.append(2 * (C * h).sum(1).real + layer.D.detach().numpy() * sample)
    np.testing.assert_allclose(layer(u)[0].detach().numpy(), expected, atol=1e-10)


def test_s4d_initialisations_are_those_of_the_paper():
    n = np.arange(4)
    lin, inv = (build("s4d", 1, d_state=8, init=init) for init in ("lin", "inv"))
    np.testing.assert_allclose(lin.A_imag[0].detach().numpy(), np.pi * n)
    np.testing.assert_allclose(inv.A_imag[0].detach().numpy(), 8 / np.pi * (8 / (2 * n + 1) - 1))
    np.testing.assert_allclose(-np.exp(lin.log_A_real[0].detach().numpy()), -0.5)


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_s5_equals_s5_pytorch(scale):
    torch.set_default_dtype(torch.float32)
    from s5 import S5

    theirs, ours = S5(6, 8).seq, build("s5", 6, d_state=16)
    B, C = theirs.get_BC_tilde()
    with torch.no_grad():
        ours.log_A_real.copy_(torch.log(-theirs.Lambda.real))
        ours.A_imag.copy_(theirs.Lambda.imag)
        ours.B.copy_(torch.view_as_real(B.resolve_conj()))
        ours.C.copy_(torch.view_as_real(C.resolve_conj()) / 2)  # theirs is Re(C x) over all states, ours 2 Re(C x) over half
        ours.D.copy_(theirs.D)
        ours.log_dt.copy_(theirs.log_step.squeeze(-1))
    u = torch.randn(1, 50, 6)
    expected = theirs(u[0], step_scale=scale)
    assert torch.allclose(ours(u, scale)[0], expected, atol=1e-4)


def mamba_pair():
    torch.set_default_dtype(torch.float32)
    from mambapy.mamba import MambaBlock, MambaConfig

    theirs, ours = MambaBlock(MambaConfig(d_model=16, n_layers=1)), build("mamba", 16)
    with torch.no_grad():
        for mine, other in (
            (ours.in_proj, theirs.in_proj),
            (ours.out_proj, theirs.out_proj),
            (ours.ssm.x_proj, theirs.x_proj),
            (ours.ssm.dt_proj, theirs.dt_proj),
        ):
            mine.load_state_dict(other.state_dict())
        ours.conv.weight.copy_(theirs.conv1d.weight.squeeze(1))
        ours.conv.bias.copy_(theirs.conv1d.bias)
        ours.ssm.A_log.copy_(theirs.A_log)
        ours.ssm.D.copy_(theirs.D)
    return ours, theirs


@pytest.mark.parametrize("length", [2, 7, 100])
def test_mamba_equals_mambapy_in_value_and_gradient(length):
    ours, theirs = mamba_pair()
    u = torch.randn(2, length, 16, requires_grad=True)
    mine, other = ours(u), theirs(u)
    assert torch.allclose(mine, other, atol=1e-5)
    assert torch.allclose(*(torch.autograd.grad(y.square().sum(), u)[0] for y in (mine, other)), atol=1e-4)


def test_mamba2_equals_its_recurrence_with_plain_loops():
    layer, u = build("mamba2", 4, d_state=3, head_dim=4, d_conv=1), torch.randn(1, 12, 4)
    z, xBC, dt = (x[0].detach() for x in layer.in_proj(u).split([8, 14, 2], -1))
    xBC = torch.nn.functional.silu(xBC * layer.conv.weight[:, 0] + layer.conv.bias).detach()
    x, B, C = xBC[:, :8].view(12, 2, 4), xBC[:, 8:11], xBC[:, 11:]
    outputs = []
    h = torch.zeros(2, 4, 3)
    for k in range(12):
        for head in range(2):
            delta = math.log1p(math.exp(dt[k, head] + layer.dt_bias[head].item()))
            h[head] = math.exp(-delta * math.exp(layer.A_log[head].item())) * h[head] + delta * torch.outer(x[k, head], B[k])
        y = (h @ C[k] + layer.D.detach()[:, None] * x[k]).flatten() * torch.nn.functional.silu(z[k])
        y = y / torch.sqrt(y.square().mean() + 1e-5) * layer.norm.weight
        outputs.append(layer.out_proj(y))
    assert torch.allclose(layer(u)[0], torch.stack(outputs), atol=1e-10)


def test_mamba3_with_lambda_one_and_no_turn_is_mamba2s_rule():
    q, k, v = torch.randn(1, 1, 20, 4), torch.randn(1, 1, 20, 4), torch.randn(1, 1, 20, 3)
    g, gain = -torch.rand(1, 1, 20), torch.rand(1, 1, 20)
    two_taps = matrix_scan.decayed_attention(q, k, v, g, gain + torch.zeros_like(gain), gain)
    assert torch.allclose(two_taps, matrix_scan.decayed_attention(q, k, v * gain.unsqueeze(-1), g), atol=1e-12)


def test_mamba3_as_released_has_a_decay_that_no_input_changes():
    layer = build("mamba3", 8, d_state=8, as_released=True)
    u = torch.randn(1, 10, 8)
    log_decay = layer._parts(u, 1.0)[4]
    delta = torch.nn.functional.softplus(layer.in_proj(u).split(layer.sizes, -1)[4] + layer.dt_bias)
    assert torch.allclose(log_decay / delta, torch.full_like(log_decay, 1e-4))


def test_the_delta_rule_recalls_what_it_stored_last():
    keys = torch.linalg.qr(torch.randn(8, 8))[0][None, None]
    values, once = torch.randn(1, 1, 8, 5), torch.ones(1, 1, 16)
    again = torch.randn(1, 1, 8, 5)
    k, v = torch.cat([keys, keys], 2), torch.cat([values, again], 2)
    for form in (chunked, matrix_scan):
        read = form.delta_rule(
            k[:, :, [*range(16), *range(8)]],
            k[:, :, [*range(16), *range(8)]],
            torch.cat([v, torch.zeros(1, 1, 8, 5)], 2),
            torch.cat([once, torch.zeros(1, 1, 8)], -1),
            torch.cat([once, torch.zeros(1, 1, 8)], -1),
        )
        assert torch.allclose(read[:, :, 16:], again, atol=1e-10)


def test_s6_as_released_ignores_c_and_its_projection_has_no_gradient():
    layer = build("s6", 8, d_state=4, as_released=True)
    layer(torch.randn(1, 20, 8)).square().sum().backward()
    assert torch.equal(layer.x_proj.weight.grad[-4:], torch.zeros(4, 8))
    assert layer.x_proj.weight.grad[:-4].abs().max() > 0


def test_s4d_as_released_sees_the_future_and_the_rest_of_the_batch():
    plain, released = build("s4d", 4), build("s4d", 4, as_released=True)
    u = torch.randn(2, 30, 4)
    changed = u.clone()
    changed[1, 20:] += 1
    assert (plain(u)[0] - plain(changed)[0]).abs().max() < 1e-12
    assert (released(u)[0] - released(changed)[0]).abs().max() > 1e-6


def test_a_transformer_as_released_does_not_see_the_order_of_samples():
    released, rotary = build("transformer", 8, as_released=True), build("transformer", 8)
    u = torch.randn(1, 20, 8)
    order = torch.randperm(20)
    assert torch.allclose(released(u).mean(1), released(u[:, order]).mean(1), atol=1e-12)
    assert (rotary(u).mean(1) - rotary(u[:, order]).mean(1)).abs().max() > 1e-4


def test_rotary_attention_depends_on_differences_of_time_only():
    layer = build("transformer", 8, causal=True)
    u = torch.randn(1, 12, 8)
    moved = torch.cat([torch.randn(1, 5, 8), u], 1)
    q, k = (torch.randn(1, 1, 12, 4) for _ in range(2))
    from continuity.layers.transformer import rotate

    time = torch.arange(12.0)
    scores = [(rotate(q, time + shift) @ rotate(k, time + shift).mT) for shift in (0.0, 37.0)]
    assert torch.allclose(*scores, atol=1e-5)
    assert layer(moved).shape == (1, 17, 8)


# Promises of every layer


@pytest.mark.parametrize("name", RECURRENT)
def test_a_change_at_a_step_leaves_earlier_outputs_untouched(name):
    layer, u = build(name, 8, **options(name)), torch.randn(2, 50, 8)
    changed = u.clone()
    changed[:, 30:] += 10
    before, after = layer(u), layer(changed)
    assert (before[:, :30] - after[:, :30]).abs().max() < 1e-11
    assert (before[:, 30:] - after[:, 30:]).abs().amax((0, 2)).min() > 1e-9


def test_a_causal_transformer_is_causal():
    layer, u = build("transformer", 8, causal=True), torch.randn(1, 20, 8)
    changed = u.clone()
    changed[:, 12:] += 1
    assert torch.equal(layer(u)[:, :12], layer(changed)[:, :12])


@pytest.mark.parametrize("filler", [float("nan"), 1e30])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_padding_changes_nothing_and_gets_no_gradient(name, bidirectional, filler):
    torch.set_default_dtype(torch.float32)
    layer = build(name, 8, bidirectional=bidirectional, **options(name))
    real, lengths = torch.randn(3, 40, 8), torch.tensor([40, 1, 17])
    padded = torch.where(torch.arange(40)[None, :, None] < lengths[:, None, None], real, torch.tensor(filler)).requires_grad_()
    together = layer(padded, 0.5, lengths)
    together.square().sum().backward()
    assert torch.isfinite(padded.grad).all()
    for row, length in enumerate(lengths.tolist()):
        alone = layer(real[row : row + 1, :length], 0.5)
        assert (together[row, :length] - alone[0]).abs().max() < 1e-5
        assert not together[row, length:].any() and not padded.grad[row, length:].any()


@pytest.mark.parametrize("name", RECURRENT)
def test_bidirectional_sees_ahead_strictly_and_within_the_real_length(name):
    layer = build(name, 8, bidirectional=True, **options(name))
    ahead_only = build(name, 8, bidirectional=True, **options(name))
    u = torch.randn(1, 20, 8, requires_grad=True)
    full = layer(u)
    assert (torch.autograd.grad(full[0, 5].sum(), u)[0].abs().amax((0, 2)) > 0).all()
    alone = ahead_only._from_the_end(u, 1.0, None)
    seen = torch.autograd.grad(alone[0, 5].sum(), u)[0].abs().amax((0, 2))
    assert (seen[:6] < 1e-12).all() and (seen[6:] > 1e-12).all()


@pytest.mark.parametrize(("name", "rule", "step_rule"), [v for v in VARIANTS if v[2] != "none" and v[1] != "averaged"])
def test_every_layer_with_a_step_rule_converges_at_first_order(name, rule, step_rule):
    layer = variant(name, rule, step_rule)
    outputs = [layer(smooth(31 * r + 1, 1 / r, 8), 1 / r)[:, ::r] for r in (4, 8, 16, 32)]
    gaps = [(a - b)[:, 16:].abs().max().item() for a, b in zip(outputs, outputs[1:], strict=False)]
    assert 0.8 < math.log2(gaps[1] / gaps[2]) < 1.25, gaps


@pytest.mark.parametrize("name", RECURRENT)
def test_without_a_step_rule_a_finer_grid_turns_every_layer_into_another_function(name):
    layer = variant(name, None, "none")
    outputs = [layer(smooth(31 * r + 1, 1 / r, 8), 1 / r)[:, ::r] for r in (1, 2, 4, 8)]
    scale = outputs[0].std().item()
    assert (outputs[3] - outputs[0]).abs().max().item() > 0.1 * scale


def test_a_transformer_converges_with_positions_in_time_only():
    def last_gaps(step_rule):
        layer = build("transformer", 8, step_rule=step_rule)
        outputs = [layer(smooth(31 * r + 1, 1 / r, 8), 1 / r)[:, ::r] for r in (4, 8, 16, 32)]
        gaps = [(a - b).abs().max().item() for a, b in zip(outputs, outputs[1:], strict=False)]
        return math.log2(gaps[1] / gaps[2]), (outputs[-1] - outputs[0]).abs().max().item()

    (order, in_time), (_, in_samples) = last_gaps("delta"), last_gaps("none")
    assert 0.8 < order < 1.2 and in_samples > 2 * in_time


@pytest.mark.parametrize("name", ["s4d", "s5", "s6"])
def test_the_averaged_rule_is_second_order_apart_from_d(name):
    layer = variant(name, "averaged")
    outputs = [layer(smooth(31 * r + 1, 1 / r, 8), 1 / r)[:, ::r] for r in (8, 16, 32, 64)]
    gaps = [(a - b).abs().max().item() for a, b in zip(outputs, outputs[1:], strict=False)]
    assert 1.9 < math.log2(gaps[1] / gaps[2]) < 2.1, gaps


STRIDE_EXACT = [
    ("s4", "zoh", "delta"),
    ("s4d", "zoh", "delta"),
    ("s5", "zoh", "delta"),
    ("s6", "zoh", "delta"),
    ("s4d", "bilinear", "semigroup"),
    ("s5", "bilinear", "semigroup"),
    ("s6", "euler", "semigroup"),
    ("s6", "bilinear", "semigroup"),
    ("linear_attention", None, "semigroup"),
    ("gla", None, "semigroup"),
    ("mamba2", None, "semigroup"),
    ("deltanet", None, "semigroup"),
    ("gated_deltanet", None, "semigroup"),
]


@pytest.mark.parametrize(("name", "rule", "step_rule"), STRIDE_EXACT)
@pytest.mark.parametrize("stride", [2, 3, 5])
def test_held_input_on_a_finer_grid_gives_the_same_output_at_the_end_of_each_block(name, rule, step_rule, stride):
    layer = variant(name, rule, step_rule, d_conv=1)
    u = torch.randn(1, 20, 8)
    coarse = layer(u)
    fine = layer(u.repeat_interleave(stride, 1), 1 / stride)
    assert torch.allclose(fine[:, stride - 1 :: stride], coarse, atol=1e-9)


@pytest.mark.parametrize("name", ["s4", "s4d", "s5", "s6"])
def test_both_directions_of_a_zoh_layer_keep_the_output_on_held_input_in_ragged_batches_too(name):
    layer = build(name, 8, bidirectional=True, **options(name, discretization="zoh"))
    u, lengths = torch.randn(2, 20, 8), torch.tensor([20, 13])
    fine = layer(u.repeat_interleave(3, 1), 1 / 3, 3 * lengths)
    assert torch.allclose(fine[:, 2::3], layer(u, 1.0, lengths), atol=1e-9)


@pytest.mark.parametrize(
    ("name", "rule"),
    [("s4", "bilinear"), ("s4d", "bilinear"), ("s5", "bilinear"), ("s6", "bilinear"), ("s6", "euler"), ("mamba3", None)],
)
def test_other_rules_do_not_give_the_same_output_on_held_input(name, rule):
    layer = variant(name, rule, "delta")
    u = torch.randn(1, 20, 8)
    assert (layer(u.repeat_interleave(2, 1), 0.5)[:, 1::2] - layer(u)).abs().max() > 1e-5


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_those_of_finite_differences(name):
    layer = build(name, 4, **options(name))
    u = torch.randn(1, 6, 4, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: layer(x, 0.7), (u, *layer.parameters()))


@pytest.mark.parametrize("name", RECURRENT)
def test_huge_and_tiny_steps_stay_finite(name):
    torch.set_default_dtype(torch.float32)
    layer = variant(name, None, "delta")
    for scale in (1e-9, 1e-3, 1e3, 1e6):
        y = layer(torch.randn(1, 30, 8), scale)
        grads = torch.autograd.grad(y.mean(), list(layer.parameters()), allow_unused=True)
        assert torch.isfinite(y).all() and all(torch.isfinite(g).all() for g in grads if g is not None)


@pytest.mark.parametrize("name", LAYERS)
def test_bfloat16_autocast_trains_and_stays_close(name):
    torch.set_default_dtype(torch.float32)
    layer, u = build(name, 8, **options(name)), torch.randn(2, 40, 8)
    exact = layer(u)
    with torch.autocast("cpu", torch.bfloat16):
        rough = layer(u)
        rough.float().square().mean().backward()
    assert (rough - exact).abs().max() < 0.05 * max(1.0, exact.abs().max().item())
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", LAYERS)
def test_a_seed_gives_the_same_bits(name):
    torch.set_default_dtype(torch.float32)
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        layer = build(name, 8, **options(name))
        layer(torch.randn(2, 30, 8)).sum().backward()
        results.append([p.grad for p in layer.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True) if a is not None)


@pytest.mark.parametrize("name", LAYERS)
def test_dynamics_name_parameters_that_exist(name):
    layer = build(name, 8, **options(name))
    assert all(layer.get_parameter(parameter).requires_grad for parameter in layer.dynamics)


def test_a_convolution_in_time_reads_the_same_moments_on_every_grid():
    conv = ShortConvolution(3, 4, "time")
    u = smooth(61, 0.5, 3)
    assert torch.allclose(conv(u, 0.5)[:, ::2], conv(u[:, ::2], 1.0), atol=1e-12)
    linear = torch.arange(40.0)[None, :, None].expand(1, 40, 3)
    halves, thirds = conv(linear / 2, 0.5), conv(linear / 3, 1 / 3)
    assert torch.allclose(halves[:, 20], thirds[:, 30], atol=1e-12)
    assert torch.allclose(conv(linear * 2.5, 2.5)[:, 8], conv(linear, 1.0)[:, 20], atol=1e-12)


# Registry and bad input


def test_the_registry_holds_twelve_layers_of_one_kind():
    assert len(LAYERS) == 12 and set(LAYERS) == set(LAYER_MODULES)
    assert all(issubclass(cls, SequenceLayer) for cls in LAYERS.values())


@pytest.mark.parametrize("name", LAYERS)
def test_continuous_layers_react_to_the_step_and_others_do_not(name):
    layer, u = build(name, 8, **options(name)), torch.randn(1, 20, 8)
    assert bool((layer(u, 0.25) - layer(u)).abs().max() > 1e-9) == LAYERS[name].continuous


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: build("s4dd", 8), "did you mean 's4d'"),
        (lambda: build("s4d", 8, d_sate=4), "no option 'd_sate'"),
        (lambda: build("s4d", 8, d_state=7), "divisible by 2"),
        (lambda: build("s4d", 8, discretization="euler"), "choose one of zoh, bilinear, averaged"),
        (lambda: build("s4d", 8, init="legs"), "lin, inv"),
        (lambda: build("s4d", 8, step_rule="deltas"), "choose one of delta"),
        (lambda: build("s4d", 0), "d_model must be a positive whole number"),
        (lambda: build("s4d", 8, dt_min=0.1, dt_max=0.01), "delta range"),
        (lambda: build("deltanet", 8, discretization="bilinear"), "no time scale"),
        (lambda: build("deltanet", 8, n_heads=3), "does not divide 8"),
        (lambda: build("mamba2", 8, head_dim=5), "does not divide 16"),
        (lambda: build("mamba", 8, conv_time="seconds"), "samples, time"),
        (lambda: build("mamba3", 8, rope_fraction=2.0), "0 … 1"),
        (lambda: build("s4", 8, step_rule="semigroup"), "'zoh' only"),
        (lambda: build("transformer", 6, n_heads=2), "even number of channels"),
        (lambda: build("transformer", 8, step_rule="semigroup"), "no recurrence"),
        (lambda: build("transformer", 8, positions="absolute"), "rotary, learned, none"),
        (lambda: build("transformer", 8, positions="learned", max_length=4)(torch.randn(1, 5, 8)), "max_length 4"),
        (lambda: build("s6", 8)(torch.randn(2, 0, 8)), "length 0"),
        (lambda: build("s6", 8)(torch.randn(2, 5, 7)), "(batch, length, 8)"),
        (lambda: build("s6", 8)(torch.randn(2, 5, 8, dtype=torch.complex128)), "real input"),
        (lambda: build("s6", 8)(torch.randn(2, 5, 8), step_scale=0.0), "positive number"),
        (lambda: build("s6", 8)(torch.randn(2, 5, 8), lengths=torch.tensor([5, 6])), "1 … 5"),
        (lambda: build("s6", 8)(torch.randn(2, 5, 8), lengths=torch.tensor([5])), "2 whole numbers"),
        (lambda: build("transformer", 8).recurrence(torch.randn(1, 5, 8)), "no recurrent form"),
    ],
)
def test_bad_input_is_one_clear_line(call, said):
    with pytest.raises(ValueError) as caught:
        call()
    assert said in str(caught.value) and "\n" not in str(caught.value)
