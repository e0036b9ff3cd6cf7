"""The published convergence experiment at full size: bands, bounds, half-sample law, averaged rule."""

import numpy as np
import pytest
from continuity import convergence, reference
from continuity.flow import DenseFlow, ModalFlow, flow_of
from continuity.intervals import mean_interval
from continuity.layers import hippo
from continuity.random_systems import SYSTEMS, Cases, Signal, System
from scipy.integrate import solve_ivp
from scipy.linalg import expm

MODELS = ("s4", "s4_matched", "s6_fixed", "s6")


@pytest.fixture(scope="module")
def published():
    return convergence.run(models=MODELS)


@pytest.fixture(scope="module")
def rows(published):
    return convergence.summary(published).to_pylist()


@pytest.fixture(scope="module")
def small():
    return convergence.run(2, (1, 32), 2.0 ** np.arange(-8, -2), models=tuple(SYSTEMS))


def columns(table, **where):
    """Columns of the rows that match `where`, as arrays."""
    keep = np.ones(len(table), bool)
    for name, value in where.items():
        keep &= table[name].to_numpy() == value
    return {name: table[name].to_numpy()[keep] for name in table.column_names}


def geometric(table, **where):
    return np.exp(np.log(columns(table, **where)["rel_linf"]).mean())


def one(rows, **where):
    (row,) = [row for row in rows if all(row[k] == v for k, v in where.items())]
    return row


def test_published_experiment_has_every_row_and_no_failure(published):
    assert len(published) == 4 * 3 * 11 * 9 * 20
    assert set(published["status"].to_pylist()) == {"ok"}
    assert max(published["reference_error"].to_pylist()) <= reference.TOLERANCE


@pytest.mark.parametrize("method", ["zoh", "bilinear"])
@pytest.mark.parametrize(
    "model, scale, low, high",
    [("s4", 1, 0.990, 1.015), ("s4", 32, 0.990, 1.015), ("s6", 1, 0.97, 1.03), ("s6", 32, 0.90, 1.08)],
)
def test_s4_and_s6_converge_at_first_order(rows, method, model, scale, low, high):
    assert low <= one(rows, model=model, scale=scale, method=method)["order"] <= high


@pytest.mark.parametrize("model, scale, low, high", [("s4", 1, 0.024, 0.056), ("s6", 1, 0.025, 0.095), ("s6", 32, 0.096, 0.35)])
def test_error_at_step_2_to_minus_6_is_the_published_size(published, model, scale, low, high):
    assert low <= geometric(published, model=model, scale=scale, tau=2.0**-6, method="zoh") <= high


@pytest.mark.parametrize("scale, low, high", [(1, 1.0, 2.3), (32, 3.3, 9.3)])
def test_s6_does_not_diverge_its_error_is_a_level_multiple_of_s4s(published, scale, low, high):
    ratios = [r for r in convergence.ratio(published).to_pylist() if r["scale"] == scale]
    at = {r["tau"]: r for r in ratios}
    assert low <= at[2.0**-6]["ratio"] <= high
    assert all(r["low"] < r["ratio"] < r["high"] for r in ratios)
    assert at[2.0**-10]["ratio"] < 1.25 * at[2.0**-6]["ratio"]


def test_s4_relative_error_does_not_depend_on_amplitude(published):
    for method in ("zoh", "bilinear", "averaged"):
        error = columns(published, model="s4", method=method)
        table = error["rel_linf"].reshape(11, -1)
        assert np.abs(table / table[0] - 1).max() < 1e-6


def test_speed_products_and_varying_delta_each_add_to_the_error(published):
    steps = [geometric(published, model=m, scale=32, tau=2.0**-6, method="zoh") for m in MODELS]
    assert 1.3 < steps[1] / steps[0] < 2.7
    assert 1.1 < steps[2] / steps[1] < 2.0
    assert 1.6 < steps[3] / steps[2] < 3.8


def test_every_error_is_under_its_bounds(published, small):
    for table in (published, small):
        error = np.log10(table["abs_linf"].to_numpy())
        for name in ("bound_log10", "bound_lognorm_log10", "bound_tight_log10"):
            bound = table[name].to_numpy()
            known = np.isfinite(bound)
            assert known.mean() > 0.8
            assert np.all(error[known] < bound[known]), name
        for name in ("margin_log10", "margin_after_log10", "margin_next_log10"):
            assert np.nanmax(table[name].to_numpy()) < 0
        held = np.array(table["method"].to_pylist()) != "averaged"
        assert np.all(
            np.isfinite(table["margin_after_log10"].to_numpy()) == (held & np.isfinite(table["margin_log10"].to_numpy()))
        )


@pytest.mark.parametrize("read", ["after", "next"])
def test_layers_read_after_the_update_stay_under_their_bounds_and_follow_the_law(read):
    taus = 2.0 ** np.arange(-10, -2)
    table = convergence.run(6, (1, 4, 32), taus, models=("s4", "s6"), methods=("zoh", "bilinear"), read=read)
    assert np.all(table["margin_log10"].to_numpy() < 0)
    assert np.array_equal(table["margin_log10"].to_numpy(), table[f"margin_{read}_log10"].to_numpy())
    finest = columns(table, tau=taus[0])
    assert np.mean(np.abs(finest["abs_linf"] / finest["law"] - 1) < 0.1) >= 0.85


def test_half_sample_law_predicts_the_error(published):
    for model in ("s4", "s6"):
        finest = columns(published, model=model, method="zoh", tau=2.0**-10)
        ratio = finest["abs_linf"] / finest["law"]
        assert np.mean((ratio > 0.9) & (ratio < 1.1)) >= 0.9
        assert abs(np.median(ratio) - 1) < 0.02
        constant = finest["rel_linf"] / (finest["k_star"] * finest["tau"])
        assert abs(np.median(constant) - 1) < 0.02


@pytest.mark.parametrize("model", ["s4", "s6"])
def test_averaging_two_samples_gives_second_order_and_far_less_error(published, rows, model):
    for scale in convergence.SCALES:
        assert one(rows, model=model, scale=scale, method="averaged")["order"] >= 1.9
    held = columns(published, model=model, method="zoh", tau=2.0**-10)["rel_linf"]
    averaged = columns(published, model=model, method="averaged", tau=2.0**-10)["rel_linf"]
    assert np.exp(np.log(held / averaged).mean()) >= 20


def test_a_gate_that_jumps_still_converges_but_loses_the_second_order():
    taus = 2.0 ** np.arange(-10, -5)
    table = convergence.run(20, (1, 32), taus, models=("s6_switched",), methods=("zoh", "averaged"))
    rows = convergence.summary(table).to_pylist()
    assert all(abs(one(rows, scale=s, method="zoh")["order"] - 1) < 0.1 for s in (1, 32))
    assert one(rows, scale=32, method="averaged")["order"] < 1.7


def dop853(system, times):
    """Outputs at `times` by scipy, restarted at every jump of the gate, just inside each smooth stretch."""

    def slope(t, x):
        u = system.signal(np.array([t]))
        return system.gate(u)[0, 0] * (system.A[0] @ x + system.drive(u)[0, 0])

    jumps = [] if system.breaks() is None else system.breaks()[0]
    ends, nudge = np.unique(np.concatenate([[0.0, 1.0], jumps])), 1e-13 if len(jumps) else 0.0
    state, states = np.zeros(system.A.shape[-1], np.result_type(system.A, float)), {0.0: 0 * system.A[0, 0]}
    for start, stop in zip(ends[:-1], ends[1:], strict=True):
        inside = times[(times > start) & (times < stop)]
        solution = solve_ivp(
            slope,
            (start + nudge, stop - nudge),
            state,
            "DOP853",
            rtol=1e-12,
            atol=1e-14,
            t_eval=np.append(inside, stop - nudge),
        )
        state = solution.y[:, -1]
        states |= dict(zip([*inside, stop], solution.y.T, strict=True))
    readout = np.broadcast_to(system.readout(system.signal(times)), (1, len(times)) + system.C.shape[1:])
    return np.array([np.real(readout[0, i] @ np.broadcast_to(states[t], state.shape)) for i, t in enumerate(times)])


@pytest.mark.parametrize("name", list(SYSTEMS))
@pytest.mark.parametrize("scale", [1, 32])
def test_reference_agrees_with_dop853(name, scale):
    system = SYSTEMS[name](Cases.random(1, (scale,), seed=5))
    times = np.arange(65) / 64
    trajectory = reference.integrate(system, times)
    truth = dop853(system, times)
    assert trajectory.error[0] <= reference.TOLERANCE
    assert np.abs(reference.observe(system, times, trajectory.states)[0] - truth).max() <= 3e-10 * np.abs(truth).max()


def test_reference_that_cannot_reach_its_tolerance_says_so():
    table = convergence.run(1, (1,), (0.25, 0.5), models=("s6",), tolerance=0.0)
    assert set(table["status"].to_pylist()) == {"unresolved"}
    assert table["rel_linf"].null_count == len(table)


@pytest.mark.parametrize("name", ["s4", "s6", "s5"])
@pytest.mark.parametrize("method", ["zoh", "bilinear", "averaged"])
def test_steps_equal_a_loop_of_matrix_exponentials(name, method):
    system = SYSTEMS[name](Cases.random(3, (1, 32), seed=2))
    tau, steps = 2.0**-5, 32
    states = convergence.simulate(system, tau, steps, method)
    u = system.signal(np.arange(steps + 1) * tau)
    gate = np.broadcast_to(system.gate(u), u.shape[:2])
    drive = system.drive(u)
    for case in range(6):
        a = np.broadcast_to(system.A, (6,) + system.A.shape[1:])[case]
        x = np.zeros(len(a), states.dtype)
        for k in range(steps):
            d, force = tau * gate[case, k], tau * gate[case, k] * drive[case, k]
            if method == "averaged":
                after = tau * gate[case, k + 1]
                d, force = (d + after) / 2, (force + after * drive[case, k + 1]) / 2
            if method == "bilinear":
                eye = np.eye(len(a))
                x = np.linalg.solve(eye - d * a / 2, (eye + d * a / 2) @ x + force)
            else:
                x = expm(d * a) @ x + np.linalg.solve(d * a, (expm(d * a) - np.eye(len(a))) @ force)
            assert np.abs(states[case, k + 1] - x).max() <= 1e-9 * np.abs(states[case]).max()


def test_dense_and_modal_flow_agree_and_ill_conditioned_bases_take_the_dense_one():
    a = hippo.legs(8)[0].numpy()[None]
    rng = np.random.default_rng(0)
    theta, v = rng.uniform(0, 3, (2, 5)), rng.standard_normal((2, 5, 8))
    modal, dense = flow_of(a), DenseFlow(a)
    assert isinstance(modal, ModalFlow) and isinstance(flow_of(hippo.legs(24)[0].numpy()[None]), DenseFlow)
    for name in ("exp_on", "phi1_on", "resolvent_on"):
        assert np.abs(getattr(modal, name)(theta, v) - getattr(dense, name)(theta, v)).max() < 1e-10
    for name in ("increment", "bilinear_increment"):
        assert np.abs(getattr(modal, name)(theta) - getattr(dense, name)(theta)).max() < 1e-10


@pytest.mark.parametrize("state", [2, 4, 24])
def test_any_state_size_scale_and_horizon(state):
    models = ("s4", "s6", "s6_switched")
    table = convergence.run(2, (0.5, 3), (0.125, 0.25, 0.5), state=state, horizon=3.0, models=models)
    assert set(table["status"].to_pylist()) == {"ok"}
    assert np.nanmax(table["margin_log10"].to_numpy()) < 0


def test_more_draws_or_models_leave_the_first_ones_as_they_were():
    few = convergence.run(2, (1,), (0.25, 0.5), models=("s6",))
    more = columns(convergence.run(3, (1, 2), (0.25, 0.5), models=("s4", "s6", "s5")), model="s6", scale=1)
    assert np.allclose(few["abs_linf"].to_numpy(), more["abs_linf"][more["draw"] < 2], rtol=1e-12, atol=0)


def test_same_seed_same_bytes():
    one, two = (convergence.run(2, (1, 8), (0.125, 0.25)) for _ in range(2))
    assert one.equals(two)
    assert not one.equals(convergence.run(2, (1, 8), (0.125, 0.25), seed=38))


def test_a_new_system_is_a_subclass():
    class Leaky(System):
        def gate(self, u):
            return np.ones((len(self.C), 1))

    table = convergence.run(2, (1,), 2.0 ** np.arange(-9, -3), models=(Leaky,), methods=("zoh",))
    (row,) = convergence.summary(table).to_pylist()
    assert row["model"] == "leaky" and abs(row["order"] - 1) < 0.1
    assert table["bound_log10"].null_count == len(table)


def test_sup_and_lipschitz_constant_are_tight_upper_bounds():
    rng = np.random.default_rng(0)
    signal = Signal(rng.standard_normal((4, 2, 21)), 3.0)
    times = np.linspace(0, 3, 20001)
    u = signal(times)
    size = np.linalg.norm(u, axis=-1).max(1)
    speed = np.linalg.norm(np.gradient(u, times, axis=1), axis=-1)[:, 1:-1].max(1)
    assert np.all(size <= signal.sup) and np.all(signal.sup < 1.002 * size)
    assert np.all(speed <= signal.lipschitz * (1 + 1e-9)) and np.all(signal.lipschitz < 1.02 * speed)


def test_hippo_has_the_norm_and_logarithmic_norm_of_the_bounds():
    constants = SYSTEMS["s4"](Cases.random(2, (1,))).constants
    assert constants["norm_a"][0] == pytest.approx(40.8, abs=0.05)
    assert constants["log_norm"][0] == pytest.approx(-0.5, abs=1e-12)


def test_mean_interval_is_students():
    centre, low, high = mean_interval([1.0, 2.0, 3.0, np.nan])
    assert (centre, (high - low) / 2) == (2.0, pytest.approx(4.302652729911275 / np.sqrt(3)))


@pytest.mark.parametrize(
    "arguments, words",
    [
        (dict(models=("s7",)), "s7"),
        (dict(methods=("euler",)), "euler"),
        (dict(read="later"), "later"),
        (dict(taus=(0.3,)), "does not divide"),
        (dict(taus=(0.25, 0.2)), "does not divide"),
        (dict(scales=(0,)), "scales"),
        (dict(n_systems=0), "n_systems"),
        (dict(state=1), "state"),
        (dict(models=("s5",), state=5), "even"),
        (dict(horizon=-1.0), "horizon"),
        (dict(scales=()), "scales"),
    ],
)
def test_bad_arguments_are_one_clear_line(arguments, words):
    with pytest.raises(ValueError, match=words) as error:
        convergence.run(**(dict(n_systems=1, scales=(1,), taus=(0.5,)) | arguments))
    assert "\n" not in str(error.value)


def test_summary_needs_two_steps_and_ratio_needs_both_models():
    table = convergence.run(2, (1,), (0.5,), models=("s4",))
    with pytest.raises(ValueError, match="two steps"):
        convergence.summary(table)
    with pytest.raises(ValueError, match="s6"):
        convergence.ratio(table)
