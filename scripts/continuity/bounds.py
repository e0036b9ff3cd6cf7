"""Proved bounds on the error of held-input discretisation, in log10 so that none overflows.

For x' = Delta(u)(A x + f(u)), y = C(u) x, x(0) = 0, sampled with step tau and read on the same grid,

    max_k |y_k − y(t_k)| <= K tau + E,

where K belongs to the hold (zero-order hold is exact for held input), E to the bilinear rule, and the averaged rule,
whose input is off by half as much, has K/2. Corollaries 1 and 2 of arXiv 2605.08539, here for any horizon T and with:

- kind "norm": growth by the spectral norm, exp(Delta |A| T); "lognorm": by mu = lambda_max((A + A^T)/2) <= 0, with
  m = min(1/|mu|, Delta T) in place of the exponential; "tight": "lognorm" with a closer term for the product f(u);
- read "before" the update (published), "after" it against y(t_k), or "next": after it against y(t_{k+1}).

Arguments are broadcast: norm_a, norm_b, norm_c spectral norms; log_norm mu; amplitude M_u = sup |u|; lipschitz
L_u = sup |u'|.
"""

import numpy as np

KINDS = ("norm", "lognorm", "tight")
METHODS = ("zoh", "bilinear", "averaged")
READS = ("before", "after", "next")


def s4_bound(
    *, norm_a, log_norm, norm_b, norm_c, lipschitz, amplitude, delta, tau, horizon=1.0, method="zoh", read="before", kind="norm"
):
    """log10 of the bound for f = B u, C(u) = C and constant Delta.

    K = |C||B| L_u (exp(Delta |A| T) − 1)/|A|, or with the logarithmic norm |C||B| L_u (1 − exp(Delta mu T))/(−mu).
    Read after the update against y(t_k): K += |C| Delta |B| M_u (|A| m + 1).
    Bilinear, for mu <= 0: E = tau^2 T Delta^3 |A|^2 |C||B| M_u (|A| m + 1)/12. NaN where nothing is proved (mu > 0).
    """
    _check(method, read, kind)
    with np.errstate(divide="ignore"):
        gain = np.log(norm_c) + np.log(norm_b)
        rate = norm_a if kind == "norm" else np.asarray(log_norm)
        hold = gain + np.log(lipschitz) + _log_growth(delta * rate * horizon) + np.log(delta) + np.log(horizon)
        reach = np.log(norm_a * _memory(log_norm, delta, horizon) + 1) + np.log(amplitude)
        late = gain + np.log(delta) + reach if read == "after" else -np.inf
        return _total(hold, late, gain + reach, norm_a, log_norm, delta, tau, horizon, method, read, kind)


def s6_bound(
    *,
    norm_a,
    log_norm,
    norm_b,
    norm_c,
    lipschitz,
    amplitude,
    weight,
    max_delta,
    tau,
    horizon=1.0,
    method="zoh",
    read="before",
    kind="norm",
):
    """log10 of the bound for Delta(u) = softplus(w u + b), f = B u^2, C(u) = u C; weight |w|, max_delta M = sup Delta.

    norm     K = |C||B| L_u M_u^2 [|w| M_u exp(M |A| T) + 2 M] (exp(M |A| T) − 1)/(M |A|)
    lognorm  K = |C||B| L_u M_u T [|w| M_u^2 (|A| m + 1) + 2 M M_u]
    tight    K = |C||B| L_u M_u [T |w| M_u^2 (|A| m + 1) + 2 M_u m]; the averaged rule keeps "lognorm"
    Read after the update: K += |C| M |B| M_u^3 (|A| m + 1) against y(t_k), |C| L_u |B| M_u^2 m against y(t_{k+1}).
    Bilinear as in `s4_bound` with M_u^3 for M_u.
    """
    _check(method, read, kind)
    with np.errstate(divide="ignore"):
        gain = np.log(norm_c) + np.log(norm_b)
        m = _memory(log_norm, max_delta, horizon)
        reach = np.log(norm_a * m + 1)
        speed, size = np.log(lipschitz), np.log(amplitude)
        if kind == "norm":
            exponent = max_delta * norm_a * horizon
            factor = np.logaddexp(np.log(weight) + size + exponent, np.log(2 * max_delta))
            hold = gain + speed + 2 * size + factor + _log_growth(exponent) + np.log(horizon)
        else:
            product = m if kind == "tight" and method != "averaged" else max_delta * horizon
            factor = np.logaddexp(np.log(horizon * weight) + 2 * size + reach, np.log(2 * product) + size)
            hold = gain + speed + size + factor
        late = {
            "before": -np.inf,
            "after": gain + np.log(max_delta) + 3 * size + reach,
            "next": gain + speed + 2 * size + np.log(m),
        }[read]
        return _total(hold, late, gain + 3 * size + reach, norm_a, log_norm, max_delta, tau, horizon, method, read, kind)


def switch_bound(
    *,
    norm_a,
    log_norm,
    norm_b,
    norm_c,
    lipschitz,
    amplitude,
    jumps,
    low,
    high,
    tau,
    horizon=1.0,
    method="zoh",
    read="before",
    kind="norm",
):
    """log10 of the bound for a gate that jumps between `low` and `high` at most `jumps` times; f = B u^2, C(u) = u C.

    The held gate is wrong for at most tau after each jump, so although Delta(u) has no Lipschitz constant,
    K = |C||B| M_u [J |high − low| M_u^2 (|A| m + 1) + 2 L_u M_u high T] with the logarithmic norm only ("norm" is NaN).
    Read after the update, and bilinear, as in `s6_bound`; the averaged rule halves no jump and keeps K.
    """
    _check(method, read, kind)
    with np.errstate(divide="ignore"):
        gain = np.log(norm_c) + np.log(norm_b)
        m = _memory(log_norm, high, horizon)
        reach = np.log(norm_a * m + 1)
        speed, size = np.log(lipschitz), np.log(amplitude)
        wrong = np.log(jumps * np.abs(high - low)) + 3 * size + reach
        hold = gain + np.logaddexp(wrong, np.log(2 * high * horizon) + speed + 2 * size)
        late = {
            "before": -np.inf,
            "after": gain + np.log(high) + 3 * size + reach,
            "next": gain + speed + 2 * size + np.log(m),
        }[read]
        hold = hold + np.log(2) if method == "averaged" else hold
        total = _total(hold, late, gain + 3 * size + reach, norm_a, log_norm, high, tau, horizon, method, read, kind)
    return np.where(kind == "norm", np.nan, total)


def _total(hold, late, swing, norm_a, log_norm, delta, tau, horizon, method, read, kind):
    """log10 of K tau + E, from the natural logarithms of the parts of K; `swing` bounds |C||A x + f|."""
    if method == "averaged":
        total = hold + np.log(tau / 2)  # its state already holds the newest sample: nothing is read late
    else:
        total = np.logaddexp(hold, late) + np.log(tau)
    if method == "bilinear":
        extra = 2 * np.log(tau) + np.log(horizon) + 3 * np.log(delta) + 2 * np.log(norm_a) + swing - np.log(12)
        total = np.logaddexp(total, extra)
    needs_dissipation = method == "bilinear" or kind != "norm" or read != "before"
    unproved = np.logical_and(needs_dissipation, np.asarray(log_norm) > 0)
    return np.where(unproved, np.nan, total / np.log(10))


def _memory(log_norm, delta, horizon):
    """m = min(1/|mu|, Delta T), which bounds the integral of Delta exp(mu theta)."""
    return np.minimum(1 / np.abs(log_norm), delta * horizon)


def _log_growth(x):
    """log((e^x − 1)/x), without overflow; 0 at x = 0, any sign of x."""
    x = np.asarray(x, float)
    size = np.where(x == 0, 1.0, np.abs(x))
    positive = np.log(-np.expm1(-size)) - np.log(size)  # log((1 − e^{−|x|})/|x|)
    return np.where(x == 0, 0.0, positive + np.maximum(x, 0))


def _check(method, read, kind):
    for name, value, known in (("method", method, METHODS), ("read", read, READS), ("kind", kind, KINDS)):
        if value not in known:
            raise ValueError(f"{name} {value!r} is unknown: choose one of {', '.join(known)}")
