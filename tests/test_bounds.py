"""The bounds against their formulas in exact arithmetic, and where nothing is proved."""

import mpmath
import numpy as np
import pytest
from continuity.bounds import s4_bound, s6_bound, switch_bound

NORMS = dict(norm_a=40.8, log_norm=-0.5, norm_b=0.9, norm_c=1.1, lipschitz=30.0, amplitude=5.0, horizon=1.5)
TAU = 2.0**-6


def exact(kind, delta, weight=None, method="zoh", read="before", power=1):
    """The bound of the paper (S4 for weight None, else S6), evaluated with 50 digits."""
    mpmath.mp.dps = 50
    a, mu, b, c, speed, size, horizon = (mpmath.mpf(x) for x in NORMS.values())
    d, e = mpmath.mpf(delta), mpmath.exp
    m = min(1 / abs(mu), d * horizon)
    if weight is None:
        k = c * b * speed * ((e(d * a * horizon) - 1) / a if kind == "norm" else (1 - e(d * mu * horizon)) / -mu)
        power = 1
    elif kind == "norm":
        growth = e(d * a * horizon)
        k = c * b * speed * size**2 * (weight * size * growth + 2 * d) * (growth - 1) / (d * a)
        power = 3
    else:
        product = horizon * d if kind == "lognorm" else m
        k = c * b * speed * size * (horizon * weight * size**2 * (a * m + 1) + 2 * size * product)
        power = 3
    if read == "after":
        k += c * d * b * size**power * (a * m + 1)
    if read == "next" and weight is not None:
        k += c * speed * b * size**2 * m
    total = k * TAU
    if method == "bilinear":
        total += mpmath.mpf(TAU) ** 2 * horizon * d**3 * a**2 * c * b * size**power * (a * m + 1) / 12
    return float(mpmath.log10(total))


@pytest.mark.parametrize("read", ["before", "after", "next"])
@pytest.mark.parametrize("method", ["zoh", "bilinear"])
@pytest.mark.parametrize("delta", [0.01, 4.0, 300.0])
@pytest.mark.parametrize("kind", ["norm", "lognorm"])
def test_s4_bound_is_its_formula_even_beyond_float64(kind, delta, method, read):
    ours = s4_bound(**NORMS, delta=delta, tau=TAU, kind=kind, method=method, read=read)
    assert ours == pytest.approx(exact(kind, delta, None, method, read), rel=1e-12)


@pytest.mark.parametrize("read", ["before", "after", "next"])
@pytest.mark.parametrize("method", ["zoh", "bilinear"])
@pytest.mark.parametrize("delta", [0.01, 4.0, 300.0])
@pytest.mark.parametrize("kind", ["norm", "lognorm", "tight"])
@pytest.mark.parametrize("weight", [0.0, 1.7])
def test_s6_bound_is_its_formula_even_beyond_float64(kind, delta, method, read, weight):
    ours = s6_bound(**NORMS, weight=weight, max_delta=delta, tau=TAU, kind=kind, method=method, read=read)
    assert ours == pytest.approx(exact(kind, delta, weight, method, read), rel=1e-12)


def test_norm_bound_explodes_where_the_logarithmic_norm_grows_as_the_fourth_power_of_amplitude():
    scale = 2.0 ** np.arange(2, 11)
    arguments = NORMS | dict(amplitude=5 * scale, lipschitz=30 * scale)
    arguments |= dict(weight=1.0, max_delta=5 * scale, tau=TAU)
    norm, lognorm = (s6_bound(**arguments, kind=kind) for kind in ("norm", "lognorm"))
    assert np.all(np.isfinite(norm)) and norm[-1] > 1e5
    assert np.diff(lognorm)[-1] / np.log10(2) == pytest.approx(4, abs=0.01)


def test_tight_is_under_lognorm_is_under_norm():
    bounds = [s6_bound(**NORMS, weight=1.7, max_delta=4.0, tau=TAU, kind=k) for k in ("tight", "lognorm", "norm")]
    assert bounds == sorted(bounds) and bounds[0] < bounds[-1]


def test_averaged_rule_has_half_the_hold_bound():
    half = s4_bound(**NORMS, delta=0.01, tau=TAU, method="averaged")
    assert half == pytest.approx(s4_bound(**NORMS, delta=0.01, tau=TAU) - np.log10(2))


def test_zero_rate_is_the_limit_of_small_rates():
    limit = s4_bound(**(NORMS | dict(log_norm=0.0)), delta=0.01, tau=TAU, kind="lognorm")
    assert limit == pytest.approx(np.log10(0.9 * 1.1 * 30 * 0.01 * 1.5 * TAU), rel=1e-12)
    near = s4_bound(**(NORMS | dict(log_norm=-1e-9)), delta=0.01, tau=TAU, kind="lognorm")
    assert limit == pytest.approx(near, abs=1e-9)


def test_growing_systems_have_only_the_norm_bound():
    growing = NORMS | dict(log_norm=0.3)
    assert np.isfinite(s4_bound(**growing, delta=0.01, tau=TAU, kind="norm"))
    for options in (dict(kind="lognorm"), dict(kind="norm", method="bilinear"), dict(kind="norm", read="after")):
        assert np.isnan(s6_bound(**growing, weight=1.0, max_delta=2.0, tau=TAU, **options))


def test_switched_gate_bound_is_its_formula():
    m, reach = 2.0, 40.8 * 2.0 + 1
    k = 1.1 * 0.9 * 5 * (3 * (4 - 0.01) * 25 * reach + 2 * 30 * 5 * 4 * 1.5)
    arguments = NORMS | dict(jumps=3, low=0.01, high=4.0, tau=TAU)
    assert switch_bound(**arguments, kind="lognorm") == pytest.approx(np.log10(k * TAU), rel=1e-12)
    late = k + 1.1 * 30 * 0.9 * 25 * m
    assert switch_bound(**arguments, kind="lognorm", read="next") == pytest.approx(np.log10(late * TAU), rel=1e-12)
    assert np.isnan(switch_bound(**arguments, kind="norm"))


@pytest.mark.parametrize("wrong", [dict(method="euler"), dict(read="later"), dict(kind="frobenius")])
def test_unknown_choices_are_named(wrong):
    with pytest.raises(ValueError, match="is unknown: choose one of"):
        s4_bound(**NORMS, delta=0.01, tau=TAU, **wrong)
