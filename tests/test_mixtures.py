"""Observations: their geometry, and how continuous they are."""

import numpy as np
import pytest
from continuity.metric import task_continuity
from continuity.mixtures import CONSTRUCTIONS, calibrate, nearest_code_accuracy, observe, symbols, windows
from continuity.systems import simulate

ETAS = (0.0, 0.25, 0.5, 0.75, 1.0)


@pytest.fixture(scope="module")
def vdp():
    return simulate("vdp", 60, 1040, 0.01, seed=37).states


def scores(states, construction):
    return [task_continuity(observe(states, eta, 37, construction), bootstrap=0).mu for eta in ETAS]


def test_balanced_mixtures_span_the_whole_scale(vdp):
    np.testing.assert_allclose(scores(vdp, "balanced"), [-0.06, 0.25, 0.53, 0.79, 1.0], atol=0.05)


@pytest.mark.parametrize("system", ["dho", "duffing", "ou"])
def test_the_balanced_discrete_end_is_discrete(system):
    states = simulate(system, 40, 1040, 0.01, seed=37).states
    assert task_continuity(observe(states, 0.0), bootstrap=0).mu == pytest.approx(-0.06, abs=0.03)


def test_published_mixtures_are_continuous_at_both_ends(vdp):
    assert min(scores(vdp, "published")) > 0.75


def test_continuous_end_is_a_linear_view_of_the_state(vdp):
    seen = observe(vdp, 1.0, construction="published").reshape(-1, 16)
    assert np.linalg.matrix_rank(seen) == 2
    unit = calibrate(vdp).projection
    np.testing.assert_allclose(np.linalg.norm(unit, axis=0), 1)


def test_balanced_parts_are_centred_with_unit_mean_norm(vdp):
    continuous = observe(vdp, 1.0).reshape(-1, 16)
    np.testing.assert_allclose(continuous.mean(0), 0, atol=1e-10)
    assert np.linalg.norm(continuous, axis=1).mean() == pytest.approx(1)
    discrete = observe(vdp, 0.0).reshape(-1, 16)
    np.testing.assert_allclose(np.linalg.norm(discrete, axis=1), 1)
    assert np.linalg.norm(discrete.mean(0)) < 0.05


def test_codes_are_a_regular_simplex_and_an_orthonormal_basis(vdp):
    calibration = calibrate(vdp)
    gram = calibration.balanced @ calibration.balanced.T
    np.testing.assert_allclose(gram, np.eye(17) * 17 / 16 - 1 / 16, atol=1e-12)
    np.testing.assert_allclose(calibration.published @ calibration.published.T, np.eye(16), atol=1e-12)


def test_the_walk_changes_at_every_step_and_gives_the_bins_back(vdp):
    calibration = calibrate(vdp)
    codes = observe(vdp, 0.0, calibration=calibration)
    walk = (codes @ calibration.balanced.T).argmax(-1)
    assert (np.diff(walk, axis=1) % 17 - 1 == symbols(vdp, calibration)[:, 1:]).all()
    assert not (walk[:, 1:] == walk[:, :-1]).any()


def test_bins_are_a_four_by_four_grid_or_sixteen():
    grid = np.stack(np.meshgrid([0.1, 0.3, 0.6, 0.9], [0.1, 0.3, 0.6, 0.9], indexing="ij"), -1).reshape(1, 16, 2)
    corners = np.array([[[0.0, 0.0], [1.0, 1.0]]])
    assert symbols(grid, calibrate(corners)).tolist() == [list(range(16))]
    line = (np.arange(16) + 0.5)[None, :, None] / 16
    assert symbols(line, calibrate(np.array([[[0.0], [1.0]]]))).tolist() == [list(range(16))]


def test_the_past_does_not_depend_on_the_future_unless_as_released(vdp):
    calibration = calibrate(vdp)
    early, later = vdp[:, :200], vdp.copy()
    later[:, 200:] *= 3
    for construction in CONSTRUCTIONS:
        seen = observe(later, 0.3, 37, construction, calibration)[:, :200]
        np.testing.assert_array_equal(seen, observe(early, 0.3, 37, construction, calibration))
    leak = observe(later, 0.3, 37, "published", calibration, as_released=True)[:, :200]
    assert not np.array_equal(leak, observe(early, 0.3, 37, "published", calibration, as_released=True))


def test_windows_return_the_observation_at_the_horizon(vdp):
    seen = observe(vdp, 0.5)
    made = windows(seen, 1024, 16)
    np.testing.assert_array_equal(made.inputs, seen[:, :1024])
    np.testing.assert_allclose(made.observation(made.targets), seen[:, 1039], atol=1e-12)
    np.testing.assert_allclose(made.targets.std(0), 1)
    many = windows(seen, 100, 16, every=400, scale=made.scale)
    assert many.inputs.shape == (3 * 60, 100, 16)
    np.testing.assert_allclose(many.observation(many.targets)[60:120], seen[:, 515], atol=1e-12)


def test_persistence_never_names_the_next_code(vdp):
    seen = observe(vdp, 0.0)
    codes = calibrate(vdp).balanced
    made = windows(seen, 100, 1)
    assert nearest_code_accuracy(made.last, made.observation(made.targets), codes) == 0
    assert nearest_code_accuracy(made.observation(made.targets), made.observation(made.targets), codes) == 1


def test_input_and_target_may_have_different_etas(vdp):
    discrete, continuous = observe(vdp, 0.0), observe(vdp, 1.0)
    made = windows(discrete, 100, 16, targets=continuous)
    np.testing.assert_array_equal(made.inputs, discrete[:, :100])
    np.testing.assert_array_equal(made.last, continuous[:, 99])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: observe(x, 1.5), "eta is 1.5"),
        (lambda x: observe(x, 0.5, construction="fair"), "'fair'"),
        (lambda x: observe(x, 0.5, 3, calibration=calibrate(x, 37)), "seed 37"),
        (lambda x: observe(x[..., None], 0.5), "shape"),
        (lambda x: calibrate(np.zeros_like(x)), "constant"),
        (lambda x: calibrate(np.full_like(x, np.nan)), "finite"),
        (lambda x: windows(observe(x, 1.0), 1030, 16), "must fit into 1040"),
    ],
)
def test_a_bad_argument_is_named(vdp, call, message):
    with pytest.raises(ValueError, match=message):
        call(vdp)
