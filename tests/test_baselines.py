"""Ridge regression against scikit-learn, and what no change predicts."""

import numpy as np
import pytest
from continuity.baselines import ALPHAS, last_steps, persistence, ridge
from sklearn.linear_model import Ridge as Reference


def regression(seed, m=80, p=12, q=3, noise=0.5):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((m, p)) + 2
    truth = np.random.default_rng(99).standard_normal((p, q))
    return x, x @ truth + 5 + noise * rng.standard_normal((m, q))


@pytest.mark.parametrize("alpha", [1e-4, 1.0, 300.0])
@pytest.mark.parametrize("m", [80, 7])
def test_ridge_equals_scikit_learn(alpha, m):
    x, y = regression(0, m)
    ours, reference = ridge(x, y, alphas=(alpha,)), Reference(alpha).fit(x, y)
    np.testing.assert_allclose(ours.coefficients.T, reference.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.intercept, reference.intercept_, atol=1e-6)
    np.testing.assert_allclose(ours.predict(x), reference.predict(x), atol=1e-6)


def test_the_penalty_is_the_best_one_on_the_validation_set():
    (x, y), (vx, vy) = regression(0, m=14, noise=3.0), regression(1, m=200, noise=3.0)
    errors = [((Reference(alpha).fit(x, y).predict(vx) - vy) ** 2).mean() for alpha in ALPHAS]
    assert ridge(x, y, vx, vy).alpha == ALPHAS[int(np.argmin(errors))]
    assert min(errors) < min(errors[0], errors[-1])


def test_columns_that_repeat_each_other_stay_finite():
    x, y = regression(2)
    doubled = np.concatenate([x, x, np.ones((len(x), 1))], axis=1)
    plain, repeated = ridge(x, y, alphas=(0.0,)), ridge(doubled, y, alphas=(0.0,))
    np.testing.assert_allclose(repeated.predict(doubled), plain.predict(x), atol=1e-8)


def test_no_change_is_a_zero_increment_and_the_last_steps_come_last():
    assert not persistence(np.ones((3, 16))).any()
    inputs = np.arange(24.0).reshape(2, 4, 3)
    assert last_steps(inputs, 2).tolist() == [[6, 7, 8, 9, 10, 11], [18, 19, 20, 21, 22, 23]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ridge(np.ones((3, 2)), np.ones((4, 1))), "must be"),
        (lambda: ridge(np.ones((3, 2)), np.ones((3, 1))), "validation"),
        (lambda: ridge(np.ones((3, 2)), np.ones((3, 1)), alphas=(-1.0,)), "negative"),
        (lambda: last_steps(np.ones((2, 4, 3)), 5), "last 5 steps"),
    ],
)
def test_a_bad_argument_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
