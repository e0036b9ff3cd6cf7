"""Forecasters: layouts as published, each part against an independent truth, and the released defects on demand."""

import numpy as np
import pytest
import torch
from continuity.hosts import HOSTS, build_host
from continuity.hosts.base import apart, normalize, patches
from continuity.hosts.sst import DEFECTS, Fusion, ShortLayer, attention_mask, released_rate
from continuity.layers import build
from torch import nn

SMALL = {
    "sst": {"long_patch": 12, "long_stride": 4, "short_patch": 8, "short_stride": 4, "d_model": 8, "d_ff": 16, "e_layers": 2},
    "mamba": {"patch": 8, "stride": 4, "d_model": 8},
    "dlinear": {"kernel": 5},
    "persistence": {},
    "last_season": {"season": 6},
}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


def host(name, channels=3, length=48, horizon=10, **options):
    return build_host(name, channels, length, horizon, **SMALL[name] | options)


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_maps_input_to_horizon_for_every_channel(name):
    made = host(name)
    assert made(torch.randn(5, 48, 3)).shape == (5, 10, 3)
    with pytest.raises(ValueError, match=r"needs an input \(batch, 48, 3\), got \(5, 47, 3\)"):
        made(torch.randn(5, 47, 3))


@pytest.mark.parametrize("name", HOSTS)
def test_a_forecast_does_not_depend_on_the_batch(name):
    made, x = host(name).eval(), torch.randn(6, 48, 3)
    together = made(x)
    assert torch.allclose(torch.cat([made(x[i : i + 1]) for i in range(6)]), together, atol=1e-5)


@pytest.mark.parametrize("name", ["mamba", "dlinear", "persistence", "last_season"])
def test_channels_are_forecast_apart(name):
    made, x = host(name).eval(), torch.randn(4, 48, 3)
    changed = x.clone()
    changed[..., 1] = torch.randn(4, 48)
    assert torch.equal(made(changed)[..., [0, 2]], made(x)[..., [0, 2]])


@pytest.mark.parametrize("name", ["sst", "mamba"])
def test_a_normalized_host_follows_scale_and_offset_of_each_instance(name):
    made, x = host(name).eval(), torch.randn(4, 48, 3)
    scale, offset = torch.rand(4, 1, 3) * 5 + 0.5, torch.randn(4, 1, 3) * 10
    assert torch.allclose(made(x * scale + offset), made(x) * scale + offset, rtol=1e-3, atol=1e-3)


def test_normalization_gives_mean_0_and_deviation_1_and_is_undone_by_its_constants():
    x = torch.randn(7, 200, 3, dtype=torch.float64) * torch.tensor([1.0, 30.0, 0.2]) + torch.tensor([5.0, -80.0, 0.0])
    z, centre, scale = normalize(x)
    assert torch.allclose(z * scale + centre, x, atol=1e-12)
    assert np.allclose(z.mean(1), 0, atol=1e-12) and np.allclose(z.std(1, unbiased=False), 1, atol=1e-3)
    assert np.allclose(centre[:, 0], x.numpy().mean(1)) and np.allclose(scale[:, 0] ** 2, x.numpy().var(1) + 1e-5)


def test_patches_are_the_windows_of_the_input_and_its_repeated_end():
    x = torch.arange(20.0)[None]
    padded = [*range(20), 19, 19, 19, 19]
    assert patches(x, 8, 4)[0].tolist() == [padded[i : i + 8] for i in range(0, 17, 4)]


def test_sst_has_41_long_and_42_short_tokens_at_the_published_size():
    made = build_host("sst", 7, 672, 96)
    assert (made.long_tokens, made.short_tokens) == (41, 42)
    assert made.head.heads[0].weight.shape == (96, 16 * (41 + 42))
    assert made(torch.randn(2, 672, 7)).shape == (2, 96, 7)


def test_sst_routes_every_sample_by_one_pair_of_weights_that_sum_to_1():
    made = host("sst")
    made(torch.randn(5, 48, 3))
    assert made.router.shape == (5, 2)
    assert torch.allclose(made.router.sum(1), torch.ones(5)) and (made.router > 0).all()


def test_the_router_decides_between_the_experts():
    made, x = host("sst").eval(), torch.randn(4, 48, 3)
    with torch.no_grad():
        made.route[-1].weight.zero_()
        made.route[-1].bias.copy_(torch.tensor([100.0, -100.0]))
        long_only = made(x)
        for parameter in [*made.short.parameters(), made.positions]:
            parameter.add_(1.0)
        assert torch.allclose(made(x), long_only)
        made.route[-1].bias.neg_()
        assert not torch.allclose(made(x), long_only)


@pytest.mark.parametrize(("window", "reach"), [(1, 0), (7, 3), (21, 10)])
def test_a_token_attends_to_its_window_and_as_released_only_outside_it(window, reach):
    right, wrong = attention_mask(42, window), attention_mask(42, window, inverted=True)
    for i in range(42):
        near = [j for j in range(42) if abs(i - j) <= reach]
        assert right[i].nonzero().flatten().tolist() == near
        assert wrong[i].nonzero().flatten().tolist() == [j for j in range(42) if j not in near]


def test_as_released_a_window_over_all_tokens_leaves_nothing_to_attend_to():
    with pytest.raises(ValueError, match="window of 83 leaves some of 42 tokens none to attend to"):
        attention_mask(42, 83, inverted=True)
    with pytest.raises(ValueError, match="must be odd"):
        attention_mask(42, 8)


def test_short_layer_is_masked_attention_that_adds_the_scores_before_it():
    layer = ShortLayer(8, 16, 2, 0.0).double().eval()
    u, before, mask = torch.randn(2, 5, 8).double(), torch.randn(2, 2, 5, 5).double(), attention_mask(5, 3)
    q, k, v = (part.numpy().reshape(2, 5, 2, 4) for part in layer.qkv(u).detach().chunk(3, -1))
    mixed, scores = np.zeros((2, 5, 2, 4)), np.zeros((2, 2, 5, 5))
    for b in range(2):
        for h in range(2):
            scores[b, h] = q[b, :, h] @ k[b, :, h].T / 2 + before[b, h].numpy()
            for i in range(5):
                near = [j for j in range(5) if abs(i - j) <= 1]
                weight = np.exp(scores[b, h, i, near])
                mixed[b, i, h] = (weight / weight.sum()) @ v[b, near, h]
    still = 1 / np.sqrt(1 + layer.attention_norm.eps)
    middle = (u + layer.out(torch.from_numpy(mixed.reshape(2, 5, 8)))) * still
    wanted = (middle + layer.ff(middle)) * still
    found, passed_on = layer(u, before, mask)
    assert torch.allclose(found, wanted, atol=1e-12) and np.allclose(passed_on.detach(), scores)


def test_the_long_expert_sees_only_the_past_of_each_token():
    made, z = host("sst").eval(), torch.randn(2, 48, 3)
    tokens = made.long_embed(patches(apart(z), 12, 4))
    changed = tokens.clone()
    changed[:, 6:] += 1
    assert torch.allclose(made.long[0](tokens)[:, :6], made.long[0](changed)[:, :6], atol=1e-6)


@pytest.mark.parametrize("name", ["sst", "mamba"])
@pytest.mark.parametrize("layer", ["mamba", "s6", "s4d"])
def test_the_selective_layer_is_exchangeable(name, layer):
    made = host(name, layer=layer, layer_options={"d_state": 4})
    kinds = {type(module) for module in made.modules()}
    assert type(build(layer, 8, d_state=4)) in kinds
    assert made(torch.randn(2, 48, 3)).shape == (2, 10, 3)


def fusion(batch, concat=True, individual=False, released=()):
    torch.manual_seed(1)
    made = Fusion(3, 6, 4, 5, concat, individual, released)
    weight = torch.rand(batch, 1)
    return made, torch.randn(batch, 3, 6), torch.randn(batch, 3, 4), torch.cat([weight, 1 - weight], 1)


@pytest.mark.parametrize("individual", [False, True])
@pytest.mark.parametrize("concat", [False, True])
def test_fusion_weighs_each_sample_by_its_own_router_weights(concat, individual):
    made, long, short, router = fusion(4, concat, individual)
    found = made(long, short, router)
    for b in range(4):
        for c in range(3):
            k = c if individual else 0
            if concat:
                seen = torch.cat([router[b, 0] * long[b, c], router[b, 1] * short[b, c]])
            else:
                seen = router[b, 0] * made.to_short[k](long[b, c]) + router[b, 1] * short[b, c]
            assert torch.allclose(found[b, c], made.heads[k](seen), atol=1e-6)


def test_as_released_added_experts_are_weighed_feature_by_feature():
    made, long, short, router = fusion(4, concat=False, released=("fusion",))
    wanted = made.heads[0](router[:, 0] * made.to_short[0](long) + router[:, 1] * short)
    assert torch.allclose(made(long, short, router), wanted)
    with pytest.raises(ValueError, match="3 router weights of a batch meet 4 features"):
        made(long[:3], short[:3], router[:3])


def test_as_released_individual_heads_fail_beyond_one_channel():
    made, *given = fusion(4, individual=True, released=("individual",))
    with pytest.raises(ValueError, match="lose the long expert's output"):
        made(*given)


def test_as_released_the_default_fusion_is_right():
    made, *given = fusion(4)
    released, *_ = fusion(4, released=DEFECTS)
    assert torch.equal(made(*given), released(*given))


def test_as_released_sst_differs_by_its_mask_alone():
    x = torch.randn(2, 48, 3)
    torch.manual_seed(3)
    right = host("sst", local_window=3).eval()
    torch.manual_seed(3)
    released = host("sst", local_window=3, as_released=True).eval()
    assert not torch.allclose(right(x), released(x))
    released.mask.copy_(attention_mask(right.short_tokens, 3))
    assert torch.equal(right(x), released(x))


def test_the_released_learning_rate_is_a_twenty_fifth_at_first_and_for_wide_sets_throughout():
    found = [1e-4 * released_rate(epoch) for epoch in range(1, 7)]
    assert np.allclose(found, [4e-6, 1e-4, 1e-4, 1e-4, 0.9e-4, 0.81e-4])
    assert {released_rate(epoch, "SST") for epoch in range(1, 11)} == {0.04}


def test_dlinear_is_an_affine_map():
    made = host("dlinear", channels=1, length=12, horizon=4).double()
    with torch.no_grad():
        offset = made(torch.zeros(1, 12, 1).double())[0, :, 0]
        matrix = made(torch.eye(12).double()[..., None])[..., 0] - offset
    x = torch.randn(20, 12, 1).double()
    assert torch.allclose(made(x)[..., 0], x[..., 0] @ matrix + offset, atol=1e-12)


def test_dlinear_trained_to_the_end_is_linear_regression():
    torch.manual_seed(4)
    x = torch.randn(60, 6, 1).double()
    y = x[..., 0] @ torch.randn(6, 2).double() + 0.3 + 0.1 * torch.randn(60, 2).double()
    design = np.c_[x[..., 0].numpy(), np.ones(60)]
    wanted = design @ np.linalg.lstsq(design, y.numpy(), rcond=None)[0]
    made = host("dlinear", channels=1, length=6, horizon=2, kernel=3).double()
    solver = torch.optim.LBFGS(made.parameters(), max_iter=500, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def closure():
        solver.zero_grad()
        loss = nn.functional.mse_loss(made(x)[..., 0], y)
        loss.backward()
        return loss

    solver.step(closure)
    assert np.allclose(made(x)[..., 0].detach(), wanted, atol=1e-5)


def test_persistence_repeats_the_last_value_and_last_season_the_last_season():
    x = torch.arange(24.0)[None, :, None]
    assert host("persistence", 1, 24, 4)(x)[0, :, 0].tolist() == [23.0] * 4
    assert host("last_season", 1, 24, 8, season=6)(x)[0, :, 0].tolist() == [18.0, 19, 20, 21, 22, 23, 18, 19]


def test_last_season_is_exact_on_a_periodic_series():
    wave = torch.sin(2 * torch.pi * torch.arange(34.0) / 6)[None, :, None]
    assert torch.allclose(host("last_season", 1, 24, 10)(wave[:, :24]), wave[:, 24:], atol=1e-5)


@pytest.mark.parametrize("name", ["sst", "mamba"])
def test_a_disturbance_meets_the_normalized_input(name):
    made, x = host(name).eval(), torch.randn(4, 48, 3) * 5 + 3
    seen = []
    made(x, disturb=lambda z: seen.append(z) or z)
    assert torch.allclose(seen[0], normalize(x)[0])
    z, centre, scale = normalize(x)
    assert torch.allclose(made(x, disturb=torch.neg), made.core(-z) * scale + centre)


@pytest.mark.parametrize(
    ("name", "options", "wanted"),
    [
        ("mamb", {}, "unknown host 'mamb'; did you mean 'mamba'"),
        ("mamba", {"patches": 8}, "host mamba has no option 'patches': its options are patch, stride"),
        ("mamba", {"patch": 60}, "patch 60 is longer than the input of 48 steps and its padding of 4"),
        ("sst", {"as_released": ["mask"]}, "as_released names 'mask': it may be true, or name window, fusion"),
        ("sst", {"short_length": 60}, "short_length 60 is longer than the input of 48 steps"),
        ("sst", {"n_heads": 3}, "n_heads must divide d_model"),
        ("dlinear", {"kernel": 4}, "kernel must be odd and positive, got 4"),
        ("last_season", {"season": 60}, "48 steps are fewer than 60"),
    ],
)
def test_a_wrong_option_is_one_line(name, options, wanted):
    with pytest.raises(ValueError, match=wanted) as caught:
        build_host(name, 3, 48, 10, **SMALL.get(name, {}) | options)
    assert "\n" not in str(caught.value)
