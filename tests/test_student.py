"""Student's distribution against scipy."""

import math

import pytest
from continuity import student
from scipy import stats


@pytest.mark.parametrize("df", [1, 2, 3, 7, 30, 31, 100, 1000])
def test_quantile_is_scipys(df):
    assert student.quantile_975(df) == pytest.approx(stats.t.ppf(0.975, df), rel=2e-6)


@pytest.mark.parametrize("df", [1, 2, 3, 4, 9, 50])
@pytest.mark.parametrize("t", [0.0, 0.3, -2.0, 4.5])
def test_two_sided_tail_is_scipys(df, t):
    assert student.two_sided(t, df) == pytest.approx(2 * stats.t.sf(abs(t), df), abs=1e-12)


def test_degrees_of_freedom_below_one_are_refused():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        student.two_sided(1.0, 0)


def test_quantiles_fall_towards_the_normal_one():
    values = [student.quantile_975(df) for df in range(1, 200)]
    assert values == sorted(values, reverse=True)
    assert math.isclose(values[-1], student.NORMAL_975, rel_tol=0.01)
