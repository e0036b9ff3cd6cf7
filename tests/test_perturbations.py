"""Perturbations: one scale for all, drawn from (seed, window) alone."""

import numpy as np
import pytest
import torch
from continuity.perturbations import BURST, IMPULSES, PERTURBATIONS, check, draw

LENGTH, CHANNELS = 400, 3


def drawn(kind, index=range(40), seed=5):
    return draw(kind, seed, torch.tensor(list(index)), LENGTH, CHANNELS)


def changed(kind, x, level):
    return PERTURBATIONS[kind].apply(x, drawn(kind), level)


@pytest.fixture
def x():
    """Windows of variance 1 and mean 0, over time and channels."""
    found = torch.randn(40, LENGTH, CHANNELS, generator=torch.Generator().manual_seed(0))
    return (found - found.mean(1, keepdim=True)) / found.std(1, keepdim=True, unbiased=False)


@pytest.mark.parametrize("level", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("kind", PERTURBATIONS)
def test_every_kind_changes_a_unit_input_by_its_level(kind, level, x):
    change = (changed(kind, x, level) - x).square().mean().sqrt().item()
    assert change == pytest.approx(level, rel=0.06)


@pytest.mark.parametrize("kind", PERTURBATIONS)
def test_a_window_meets_the_same_perturbation_in_any_batch(kind):
    alone = torch.cat([drawn(kind, [i]) for i in range(8)])
    assert torch.equal(drawn(kind, range(8)), alone)
    assert torch.equal(drawn(kind, [7, 3]), alone[[7, 3]])


@pytest.mark.parametrize("kind", PERTURBATIONS)
def test_another_seed_or_window_meets_another_perturbation(kind):
    assert not torch.equal(drawn(kind), drawn(kind, seed=6))
    assert not torch.equal(drawn(kind, range(20)), drawn(kind, range(20, 40)))


def test_kinds_do_not_share_their_draws():
    noise, mask = drawn("gaussian").flatten(), drawn("masking").flatten()
    assert abs(np.corrcoef(noise, mask)[0, 1]) < 0.02


def test_impulses_are_few_and_equal(x):
    change = changed("impulses", x, 0.2) - x
    hit = change.abs() > 1e-6
    assert hit.double().mean().item() == pytest.approx(IMPULSES, rel=0.1)
    assert torch.allclose(change[hit].abs(), torch.tensor(0.2 * 50**0.5), atol=1e-5)


def test_a_burst_is_one_stretch_of_a_tenth(x):
    change = (changed("burst", x, 0.2) - x).abs().sum(-1) > 0
    for window in change:
        steps = window.nonzero().flatten()
        assert len(steps) == round(BURST * LENGTH) == steps[-1] - steps[0] + 1


def test_masking_sets_entries_to_the_mean(x):
    seen = changed("masking", x, 0.5)
    masked = seen != x
    assert (seen[masked] == 0).all() and masked.double().mean().item() == pytest.approx(0.25, abs=0.01)


def test_gain_drift_is_a_straight_line_from_one(x):
    gain = (changed("gain_drift", x, 0.3) / x).double()
    steps = torch.diff(gain, dim=1)
    assert torch.allclose(steps, steps[:, :1].expand_as(steps), atol=1e-4)
    assert torch.allclose(gain[:, 0], 1 + steps[:, 0], atol=1e-4)
    assert (steps[:, 0] > 0).any() and (steps[:, 0] < 0).any()


def test_a_higher_level_scales_the_same_noise(x):
    low, high = changed("burst", x, 0.1) - x, changed("burst", x, 0.4) - x
    assert torch.allclose(4 * low, high, atol=1e-5)


@pytest.mark.parametrize(("kind", "level", "wanted"), [("nois", 1, "unknown perturbation 'nois'"), ("gaussian", 0, "above 0"),
                                                       ("masking", 1.5, "at most 1")])  # fmt: skip
def test_a_wrong_kind_or_level_is_one_line(kind, level, wanted):
    with pytest.raises(ValueError, match=wanted):
        check(kind, level)
