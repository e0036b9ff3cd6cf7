"""Trajectories against independent integrators, closed forms and exact moments."""

import numpy as np
import pytest
from continuity.native import HAVE_NUMBA
from continuity.philox import philox
from continuity.systems import SYSTEMS, simulate
from scipy.integrate import solve_ivp

EQUATIONS = {
    "vdp": lambda t, y, p: [y[1], p["mu"] * (1 - y[0] ** 2) * y[1] - y[0]],
    "dho": lambda t, y, p: [y[1], -2 * p["zeta"] * p["omega"] * y[1] - p["omega"] ** 2 * y[0]],
    "duffing": lambda t, y, p: [
        y[1],
        -p["damping"] * y[1] - p["alpha"] * y[0] - p["beta"] * y[0] ** 3 + p["gamma"] * np.cos(p["omega"] * t),
    ],
}
BACKENDS = ["numpy", *(["numba"] if HAVE_NUMBA else [])]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("system", EQUATIONS)
def test_paths_solve_their_equation(system, backend):
    found = simulate(system, 5, 400, 0.02, seed=3, burn_in=0.0, window=0.0, backend=backend)
    assert found.backend == backend
    times = 0.02 * np.arange(400)
    for states, values in zip(found.states, found.parameters, strict=True):
        p = dict(zip(found.parameter_names, values, strict=True))
        truth = solve_ivp(EQUATIONS[system], (0, 8), states[0], "DOP853", times, args=(p,), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(states, truth.y.T, atol=1e-7)


@pytest.mark.parametrize("backend", BACKENDS)
def test_burn_in_follows_the_forced_equation(backend):
    late = simulate("duffing", 3, 50, 0.01, seed=1, burn_in=2.0, window=1.0, backend=backend)
    early = simulate("duffing", 3, 400, 0.01, seed=1, burn_in=0.0, window=0.0, internal_step=0.00125, backend=backend)
    for path, full in zip(late.states, early.states, strict=True):
        shift = np.abs(full[:, 0] - path[0, 0]).argmin()
        assert 200 <= shift <= 300
        np.testing.assert_allclose(path, full[shift : shift + 50], atol=1e-6)


def test_damped_oscillator_has_its_closed_form():
    found = simulate("dho", 20, 300, 0.05, seed=2, x0=1.0, v0=0.0)
    t = 0.05 * np.arange(300)
    omega, zeta = found.parameters.T[:, :, None]
    damped = omega * np.sqrt(1 - zeta**2)
    truth = np.exp(-zeta * omega * t) * (np.cos(damped * t) + zeta * omega / damped * np.sin(damped * t))
    np.testing.assert_allclose(found.states[..., 0], truth, atol=1e-9)


@pytest.mark.parametrize("system", EQUATIONS)
def test_compiled_and_plain_forms_agree(system):
    plain = simulate(system, 19, 60, 0.01, seed=5, backend="numpy")
    fast = simulate(system, 19, 60, 0.01, seed=5, threads=2)
    np.testing.assert_allclose(fast.states, plain.states, atol=1e-6)


def test_runge_kutta_is_fourth_order():
    def error(h):
        coarse = simulate("vdp", 4, 2, 3.2, seed=1, internal_step=h, mu=(0.5, 1.0))
        fine = simulate("vdp", 4, 2, 3.2, seed=1, internal_step=0.000625, mu=(0.5, 1.0))
        return np.abs(coarse.states - fine.states).max()

    assert np.log2(error(0.04) / error(0.02)) == pytest.approx(4, abs=0.3)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("ratio", [2, 3, 8])
def test_a_finer_step_shows_the_same_path(system, ratio):
    """The internal grid is the finest: 8 refinements of .01, and 3 steps of .00125 in .00375."""
    step = 0.01 if ratio != 3 else 0.00375
    coarse = simulate(system, 4, 30, step, seed=9)
    fine = simulate(system, 4, 30 * ratio, step / ratio, seed=9)
    np.testing.assert_array_equal(fine.states[:, ::ratio], coarse.states)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_path_depends_on_seed_and_index_alone(system):
    whole = simulate(system, 40, 20, 0.01, seed=4)
    shard = simulate(system, 5, 20, 0.01, seed=4, start_index=33)
    np.testing.assert_array_equal(shard.states, whole.states[33:38])
    np.testing.assert_array_equal(shard.parameters, whole.parameters[33:38])
    assert not np.array_equal(simulate(system, 5, 20, 0.01, seed=5, start_index=33).states, shard.states)


def test_a_longer_path_begins_like_the_short_one():
    np.testing.assert_array_equal(simulate("ou", 3, 90, 0.005).states[:, :50], simulate("ou", 3, 50, 0.005).states)


def test_philox_is_that_of_numpy():
    """numpy steps the counter before it draws."""
    for key in ([5, 7], [2**64 - 1, 2**63 + 12345]):
        key = np.array(key, dtype=np.uint64)
        bits = np.random.Philox(key=key, counter=np.array([2**64 - 2, 3, 0, 9], dtype=np.uint64)).random_raw(8)
        counters = np.array([[2**64 - 1, 3, 0, 9], [0, 4, 0, 9]], dtype=np.uint64)
        np.testing.assert_array_equal(philox(counters, key).ravel(), bits)


def test_parameters_are_uniform_over_their_range():
    found = simulate("vdp", 20000, 1, 0.01, seed=1)
    assert found.varied == ("mu",)
    np.testing.assert_allclose(np.quantile(found.labels, [0, 0.25, 0.5, 0.75, 1]), np.linspace(0.1, 5, 5), atol=0.06)


@pytest.mark.parametrize("step", [0.01, 0.00125, 0.05])
def test_ornstein_uhlenbeck_has_its_exact_moments(step):
    theta, sigma, n = 1.5, 0.6, 4000
    x = simulate("ou", n, 60, step, seed=8, theta=theta, sigma=sigma).states[..., 0]
    variance = sigma**2 / (2 * theta)
    assert abs(x.mean()) < 5 * np.sqrt(variance / n)
    np.testing.assert_allclose(x.var(0), variance, rtol=0.12)
    for lag in (1, 7, 30):
        expected = variance * np.exp(-theta * lag * step)
        assert (x[:, lag:] * x[:, :-lag]).mean() == pytest.approx(expected, abs=5 * variance / np.sqrt(n))


@pytest.mark.parametrize("step", [0.01, 0.005, 0.00125])
def test_innovations_of_the_bridge_are_white_with_the_exact_variance(step):
    theta, sigma = 3.0, 1.0
    x = simulate("ou", 2000, 100, step, seed=2, theta=theta, sigma=sigma).states[..., 0]
    innovation = x[:, 1:] - np.exp(-theta * step) * x[:, :-1]
    variance = sigma**2 * -np.expm1(-2 * theta * step) / (2 * theta)
    assert innovation.var() == pytest.approx(variance, rel=0.02)
    assert (innovation[:, 1:] * innovation[:, :-1]).mean() / variance == pytest.approx(0, abs=0.012)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"system": "lorenz"}, "there is no system 'lorenz'"),
        ({"step": 0.003}, "the nearest is 0.0025"),
        ({"step": -1.0}, "positive"),
        ({"nu": 3}, "no parameter nu"),
        ({"mu": (2.0, 1.0)}, "low, high"),
        ({"x0": "stationary", "mu": "stationary"}, "low, high"),
        ({"n": -1}, "negative"),
        ({"seed": -1}, "seed"),
        ({"burn_in": -1.0}, "burn_in"),
        ({"backend": "gpu"}, "backend"),
    ],
)
def test_a_bad_argument_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        simulate(**{"system": "vdp", "n": 2, "length": 5} | arguments)
