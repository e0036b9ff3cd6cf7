"""Discretization rules against scipy, high-precision arithmetic, exact solutions and their orders of convergence."""

import math

import mpmath
import numpy as np
import pytest
import torch
from continuity.discretization import (
    RULES,
    check_step_rule,
    coefficients,
    dense,
    log_transition,
    phi1,
    phi1_matrix,
    scaled_transition,
    semigroup,
)
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from scipy.signal import cont2discrete

POINTS = [0.0, 1e-300, 1e-12, -1e-6, 1e-3, -0.0999, 0.1, -0.5, 3.0, -40.0, 1e-9 + 1e-9j, -0.05 + 0.08j, -1 + 30j, 2j * math.pi]


@pytest.mark.parametrize("z", POINTS)
def test_phi1_equals_its_definition_in_fifty_digits(z):
    with mpmath.workdps(50):
        exact = complex(mpmath.expm1(z) / z) if z != 0 else 1.0
    value = phi1(torch.tensor(z, dtype=torch.complex128)).item()
    assert abs(value - exact) <= 4e-15 * max(1.0, abs(exact))
    if isinstance(z, float):
        assert abs(phi1(torch.tensor(z, dtype=torch.float64)).item() - exact) <= 4e-15 * max(1.0, abs(exact))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_phi1_has_the_right_gradient_on_both_sides_of_the_series(dtype):
    z = torch.tensor([0.0, 1e-8, 0.0999, 0.1001, -0.3, -2.0], dtype=dtype, requires_grad=True)
    assert torch.autograd.gradcheck(phi1, z)


def test_zoh_in_float32_is_accurate_where_refinement_goes():
    delta = torch.logspace(-12, -1, 40)
    a, b = coefficients(delta, torch.tensor(-3.0), "zoh")
    exact = np.expm1(-3.0 * delta.double().numpy()) / -3.0
    assert np.abs(b.double().numpy() / exact - 1).max() < 3e-7
    assert torch.isfinite(a).all()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_an_integrator_gains_exactly_delta(rule, dtype):
    a, b = coefficients(torch.tensor(0.25, dtype=torch.float64), torch.zeros(3, dtype=dtype), rule)
    assert torch.equal(a, torch.ones(3, dtype=dtype))
    assert torch.equal(b, torch.full((3,), 0.25, dtype=dtype))


@pytest.mark.parametrize("rule", ["zoh", "bilinear"])
@pytest.mark.parametrize("delta", [1e-6, 0.1, 2.0])
def test_dense_rules_equal_scipy(rule, delta):
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((5, 5)) - 2 * np.eye(5), rng.standard_normal((5, 2))
    ours = dense(torch.tensor(delta, dtype=torch.float64), torch.from_numpy(A), torch.from_numpy(B), rule)
    theirs = cont2discrete((A, B, np.eye(5), np.zeros((5, 2))), delta, rule)
    for mine, reference in zip(ours, theirs[:2], strict=True):
        np.testing.assert_allclose(mine.numpy(), reference, rtol=1e-10, atol=1e-12)


def test_diagonal_rules_equal_the_dense_ones_of_scipy():
    A = np.array([-0.5, -3.0, -20.0])
    for rule in ("zoh", "bilinear"):
        a, b = coefficients(torch.tensor(0.3, dtype=torch.float64), torch.from_numpy(A), rule)
        Ad, Bd, *_ = cont2discrete((np.diag(A), np.ones((3, 1)), np.eye(3), np.zeros((3, 1))), 0.3, rule)
        np.testing.assert_allclose(a.numpy(), np.diag(Ad), rtol=1e-12)
        np.testing.assert_allclose(b.numpy(), Bd[:, 0], rtol=1e-12)


def test_phi1_of_a_singular_matrix_is_the_integral_of_its_exponential():
    Z = torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    nodes, weights = np.polynomial.legendre.leggauss(12)
    integral = sum(w / 2 * expm((x + 1) / 2 * Z.numpy()) for x, w in zip(nodes, weights, strict=True))
    np.testing.assert_allclose(phi1_matrix(Z).numpy(), integral, atol=1e-14)


@pytest.mark.parametrize("rule", ["zoh", "bilinear"])
def test_the_log_of_a_transition_gives_its_powers(rule):
    A = torch.tensor([-0.5 + 3j, -2.0, -0.1 - 8j, -1e-9], dtype=torch.complex128)
    a = coefficients(torch.tensor(0.4, dtype=torch.float64), A, rule)[0]
    log_a = log_transition(torch.tensor(0.4, dtype=torch.float64), A, rule)
    for power in (1, 2, 50):
        assert torch.allclose(torch.exp(power * log_a), a**power, rtol=1e-12, atol=1e-15)


def test_a_bilinear_transition_of_zero_has_a_finite_log():
    log_a = log_transition(torch.tensor(1.0), torch.tensor([-2.0 + 0j]), "bilinear")
    assert torch.isfinite(torch.view_as_real(log_a)).all()
    assert torch.exp(log_a).abs() < 1e-6


@pytest.mark.parametrize("scale", [0.25, 1 / 3, 2.0, 5.0])
@pytest.mark.parametrize("rule", ["zoh", "bilinear", "euler"])
def test_semigroup_steps_compose_to_the_trained_step_on_held_input(rule, scale):
    A = torch.tensor([-0.3, -2.0, -7.0], dtype=torch.float64)
    a, b = coefficients(torch.tensor(0.2, dtype=torch.float64), A, rule)
    once, back = semigroup(a, b, scale), semigroup(*semigroup(a, b, scale), 1 / scale)
    assert torch.allclose(back[0], a, rtol=1e-12) and torch.allclose(back[1], b, rtol=1e-12)
    if scale < 1:
        h = torch.zeros(3, dtype=torch.float64)
        for _ in range(round(1 / scale)):
            h = once[0] * h + once[1]
        assert torch.allclose(h, b, rtol=1e-12)


def test_semigroup_and_delta_are_one_rule_for_zoh_and_two_for_bilinear():
    A, delta = torch.tensor([-1.0 + 4j], dtype=torch.complex128), torch.tensor(0.5, dtype=torch.float64)
    for rule, same in (("zoh", True), ("bilinear", False)):
        by_delta, by_power = (scaled_transition(delta, A, rule, 0.5, step) for step in ("delta", "semigroup"))
        assert torch.allclose(by_delta[0], by_power[0], rtol=1e-12) is same
        assert torch.allclose(by_delta[1], by_power[1], rtol=1e-12) is same


def drive(t):
    return np.sin(1.3 * t) + 0.5 * np.cos(2.1 * t + 0.4)


def error_at_two(rule, n, sample, A=-1.5):
    """|h - x(2)| of x' = A x + u from x(0) = 0 with n steps; sample: "left", "middle", or "held" with u constant on eighths."""
    tau = 2 / n
    t = np.arange(n) * tau
    u = drive(np.floor(t * 4) / 4) if sample == "held" else drive(t + (tau / 2 if sample == "middle" else 0))
    if sample == "held":
        exact = 0.0
        for k in range(8):
            exact = math.exp(A / 4) * exact + math.expm1(A / 4) / A * drive(k / 4)
    else:
        exact = solve_ivp(lambda t, x: A * x + drive(t), (0, 2), [0.0], rtol=1e-12, atol=1e-14, method="DOP853").y[0, -1]
    a, b = (float(x) for x in coefficients(torch.tensor(tau, dtype=torch.float64), torch.tensor(A, dtype=torch.float64), rule))
    if rule == "averaged":
        u = (drive(t) + drive(t + tau)) / 2
    h = 0.0
    for value in u:
        h = a * h + b * value
    return abs(h - exact)


@pytest.mark.parametrize(
    ("rule", "sample", "order"),
    [
        ("zoh", "left", 1),
        ("bilinear", "left", 1),
        ("euler", "left", 1),
        ("averaged", "left", 2),
        ("zoh", "middle", 2),
        ("bilinear", "middle", 2),
        ("euler", "middle", 1),
        ("bilinear", "held", 2),
        ("euler", "held", 1),
    ],
)
def test_rules_converge_at_their_order(rule, sample, order):
    errors = [error_at_two(rule, n, sample) for n in (256, 512, 1024)]
    measured = math.log2(errors[1] / errors[2])
    assert abs(measured - order) < 0.05, errors


def test_zoh_is_exact_on_piecewise_constant_input():
    assert error_at_two("zoh", 8, "held") < 1e-15
    assert error_at_two("zoh", 64, "held") < 1e-14


@pytest.mark.parametrize(
    "call",
    [
        lambda: coefficients(torch.tensor(1.0), torch.tensor(1.0), "zho"),
        lambda: check_step_rule("deltas"),
        lambda: dense(torch.tensor(1.0), torch.eye(2), torch.ones(2, 1), "averaged"),
        lambda: log_transition(torch.tensor(1.0), torch.tensor(-1.0), "bilinear"),
    ],
)
def test_bad_choices_are_one_clear_line(call):
    with pytest.raises(ValueError) as caught:
        call()
    assert "\n" not in str(caught.value) and ("choose one of" in str(caught.value) or "complex" in str(caught.value))
