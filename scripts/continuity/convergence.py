"""The convergence experiment: random S4 and S6 systems, their discretisations, the bounds and the half-sample law.

Every system x' = Delta(u)(A x + f(u)), y = C(u) x is stepped on a grid of step tau with u held or averaged over a step,
and compared at the grid's own instants with a reference trajectory (`continuity.reference`, relative tolerance 1e-11).
Published setting (numerical_experiment.m of arXiv 2605.08539): 20 systems, N = 8, scales 2^(0:.5:5), steps 2^-10 to
2^-2, ZOH and bilinear, output read before the update.
"""

import numpy as np
import pyarrow as pa

from continuity import reference
from continuity.bounds import METHODS, READS
from continuity.intervals import mean_interval
from continuity.random_systems import SYSTEMS, Cases, System
from continuity.tables import TABLES

SCALES = tuple(2.0 ** np.arange(0, 5.5, 0.5))
TAUS = tuple(2.0 ** np.arange(-10, -1))
MEMORY = 2**24
BOUNDS = {"norm": "bound_log10", "lognorm": "bound_lognorm_log10", "tight": "bound_tight_log10"}

LATE = {"after": "margin_after_log10", "next": "margin_next_log10"}
SCHEMA = TABLES["convergence"].schema


def run(
    n_systems=20,
    scales=SCALES,
    taus=TAUS,
    seed=37,
    *,
    models=tuple(SYSTEMS),
    methods=METHODS,
    state=8,
    horizon=1.0,
    read="before",
    tolerance=reference.TOLERANCE,
):
    """The experiment as a table with one row for each draw, model, method, scale and tau.

    models: names of `SYSTEMS`, or subclasses of `System`; methods: zoh, bilinear, averaged; state: N; horizon: T.
    read: "before" the update (published), "after" it against y(t_k), or "next", after it against y(t_{k+1}); the
    averaged rule, whose state already holds the newest sample, is always read in place.

    rel_linf, rel_rmse, abs_linf: max|e|/max|y|, rms(e)/rms(y), max|e|, on the coarse grid
    bound_…_log10: the bounds on abs_linf by norm, logarithmic norm and its tight form
    margin_log10: log10(abs_linf) − bound_tight_log10, below 0 where the bound holds
    margin_after_log10, margin_next_log10: the same of the error and the bound of the other two readings
    law: the half-sample law's prediction of abs_linf; NULL for the averaged rule, whose first-order term is zero
    k_star: the law's constant; read before the update, rel_linf = k_star tau to first order
    reference_error: estimated relative error of the reference

    Numbers that do not exist are NULL; status is "diverged" where an error is not finite and "unresolved" where the
    reference missed its tolerance.
    Raises ValueError for unknown names and for steps that do not divide the horizon and one another.
    """
    systems = _systems(models)
    scales, taus = _positive("scales", scales), sorted(_positive("taus", taus))
    _check(n_systems, state, horizon, taus, methods, read)
    cases = Cases.random(n_systems, scales, state, seed, horizon)
    tables = []
    for name, system in systems.items():
        tables += _model_tables(name, system(cases), cases, taus, methods, read, tolerance)
    keys = [
        ("model", "ascending"),
        ("method", "ascending"),
        ("scale", "ascending"),
        ("draw", "ascending"),
        ("tau", "ascending"),
    ]
    return pa.concat_tables(tables).sort_by(keys)


def simulate(system, tau, steps, method):
    """States (cases, steps + 1, N) of `system` stepped from 0 with step tau.

    zoh       x_{k+1} = e^{A d_k} x_k + phi1(A d_k) d_k f_k, d_k = tau Delta(u_k)
    bilinear  x_{k+1} = (I − A d_k/2)^{-1} [(I + A d_k/2) x_k + d_k f_k]
    averaged  x_{k+1} = e^{A d} x_k + phi1(A d)(d_k f_k + d_{k+1} f_{k+1})/2, d = (d_k + d_{k+1})/2
    """
    u = system.signal(np.arange(steps + 1) * tau)
    theta = tau * system.gate(u)  # (cases, steps + 1 or 1)
    push = theta[..., None] * system.drive(u)  # (cases, steps + 1, N)
    flow = system.flow
    if method == "averaged":
        theta = (theta[:, :-1] + theta[:, 1:]) / 2 if theta.shape[1] > 1 else theta
        push = (push[:, :-1] + push[:, 1:]) / 2
    else:
        theta = theta[:, :steps]
        push = push[:, :-1]
    if method == "bilinear":
        return reference.scan(flow.bilinear_increment(theta), flow.resolvent_on(theta, push))
    return reference.scan(flow.increment(theta), flow.phi1_on(theta, push))


def summary(table, finest=3):
    """One row for each model, method and scale, over the draws.

    order, order_low, order_high: mean slope of log rel_linf over log tau on the `finest` steps, and its 95 % t interval
    error: geometric mean of rel_linf at the finest step
    law_ratio, law_share: median of abs_linf/law at the finest step, and its share within .9 to 1.1
    margin_log10: largest margin over all steps

    Raises ValueError below two steps.
    """
    rows = []
    for (model, method, scale), group in _by(table, ("model", "method", "scale")).items():
        taus, errors = _draws_by_tau(group, "rel_linf")
        if len(taus) < 2:
            raise ValueError("an order needs at least two steps: give more taus")
        steps = np.log(taus[:finest]) - np.log(taus[:finest]).mean()
        order, low, high = mean_interval(np.log(errors[:, :finest]) @ steps / (steps @ steps))
        law = _finite(_draws_by_tau(group, "abs_linf")[1][:, 0] / _draws_by_tau(group, "law")[1][:, 0])
        margin = _finite(group["margin_log10"])
        rows.append(
            dict(
                model=model,
                method=method,
                scale=scale,
                order=order,
                order_low=low,
                order_high=high,
                n=len(errors),
                error=float(np.exp(_finite(np.log(errors[:, 0])).mean())),
                law_ratio=float(np.median(law)) if len(law) else None,
                law_share=float(np.mean((law >= 0.9) & (law <= 1.1))) if len(law) else None,
                margin_log10=float(margin.max()) if len(margin) else None,
            )
        )
    return pa.Table.from_pylist(rows)


def ratio(table, model="s6", over="s4", method="zoh"):
    """Geometric mean over draws of rel_linf(model)/rel_linf(over) with its 95 % t interval, for each scale and tau.

    A model that diverges under refinement has a ratio that grows as tau falls; a larger constant has a level one.
    Columns: scale, tau, ratio, low, high, n. Raises ValueError when the table lacks either model.
    """
    groups = _by(table, ("model", "method", "scale"))
    scales = sorted(key[2] for key in groups if key[:2] == (model, method) and (over, method, key[2]) in groups)
    if not scales:
        raise ValueError(f"the table holds no scale with both {model} and {over} under {method}: run both models")
    rows = []
    for scale in scales:
        taus, above = _draws_by_tau(groups[model, method, scale], "rel_linf")
        below = _draws_by_tau(groups[over, method, scale], "rel_linf")[1]
        for tau, logs in zip(taus, np.log(above / below).T, strict=True):
            centre, low, high = np.exp(mean_interval(logs))
            rows.append(
                dict(
                    scale=scale,
                    tau=float(tau),
                    ratio=float(centre),
                    low=float(low),
                    high=float(high),
                    n=int(np.isfinite(logs).sum()),
                )
            )
    return pa.Table.from_pylist(rows)


def _model_tables(name, system, cases, taus, methods, read, tolerance):
    n = len(cases.draw)
    steps = round(cases.horizon / taus[0])
    size = max(1, MEMORY // (steps * system.A.shape[-1] ** 2))
    for start in range(0, n, size):
        index = np.arange(start, min(n, start + size))
        part = system.take(index)
        truth = _Truth(part, np.arange(steps + 1) * taus[0], tolerance)
        for method in methods:
            for tau in taus:
                columns = _measure(part, truth, tau, round(tau / taus[0]), method, read, tolerance)
                keys = dict(
                    draw=cases.draw[index],
                    model=[name] * len(index),
                    method=[method] * len(index),
                    scale=cases.scale[index],
                    tau=np.full(len(index), tau),
                )
                yield _table(keys | columns)


class _Truth:
    """What all steps of one model are compared with, on the finest grid: readouts, reference states, the law's lag."""

    def __init__(self, system, times, tolerance):
        trajectory = reference.integrate(system, times, tolerance)
        u = system.signal(times)
        self.states = trajectory.states
        self.error = trajectory.error
        self.readout = system.readout(u)
        velocity = system.gate(u)[..., None] * (self.states @ system.A.swapaxes(1, 2) + system.drive(u))
        start = np.broadcast_to(velocity[:, :1], velocity.shape)
        self.lag = (velocity - system.flow.exp_on(trajectory.theta, start)) / 2  # (x' − Phi x'(0))/2
        largest = _largest(reference.read_out(self.readout, self.states))
        self.k_star = _largest(reference.read_out(self.readout, self.lag)) / largest

    def readout_every(self, stride):
        return self.readout[:, ::stride] if self.readout.shape[1] > 1 else self.readout


def _measure(system, truth, tau, stride, method, read, tolerance):
    exact = truth.states[:, ::stride]
    readout = truth.readout_every(stride)
    held = method != "averaged"
    read = read if held else "before"
    truly = reference.read_out(readout, exact)
    with np.errstate(all="ignore"):
        states = simulate(system, tau, exact.shape[1] - 1, method)
        error, target = _deviation(readout, states, truly, read)
        law = _deviation(readout, exact - tau * truth.lag[:, ::stride], truly, read)[0]
        abs_linf = _largest(error)
        energy = (np.abs(target) ** 2).sum((1, 2))
        columns = dict(
            rel_linf=abs_linf / _largest(target),
            rel_rmse=np.sqrt((error**2).sum((1, 2)) / energy),
            abs_linf=abs_linf,
            law=_largest(law) if held else np.full(len(abs_linf), np.nan),
            k_star=truth.k_star,
            reference_error=truth.error,
        )
        for kind, column in BOUNDS.items():
            columns[column] = np.broadcast_to(system.bound(kind, tau, method, read), abs_linf.shape)
        columns["margin_log10"] = np.log10(abs_linf) - columns["bound_tight_log10"]
        for late, column in LATE.items():
            error = _largest(_deviation(readout, states, truly, late)[0]) if held else np.nan
            columns[column] = np.log10(error) - system.bound("tight", tau, method, late) * np.ones(len(abs_linf))
    status = np.where(~(truth.error <= tolerance), "unresolved", np.where(np.isfinite(abs_linf), "ok", "diverged"))
    for column in ("rel_linf", "rel_rmse", "abs_linf", "margin_log10", *LATE.values()):
        columns[column] = np.where(status == "ok", columns[column], np.nan)
    return columns | dict(status=status)


def _deviation(readout, states, target, read):
    """Outputs read at the chosen instant minus their target, and that target, each (cases, M, P)."""
    if read == "before":
        return reference.read_out(readout, states) - target, target
    early = readout[:, :-1] if readout.shape[1] > 1 else readout
    target = target[:, :-1] if read == "after" else target[:, 1:]
    return reference.read_out(early, states[:, 1:]) - target, target


def _largest(outputs):
    """max over time of the Euclidean norm over channels: (cases, M, P) -> (cases,)."""
    return np.sqrt((outputs**2).sum(-1)).max(1)


REASONS = {
    "ok": None,
    "diverged": "the discretised output is not finite",
    "unresolved": "the reference trajectory missed its tolerance",
}


def _table(columns):
    columns["reason"] = [REASONS[status] for status in columns["status"]]
    arrays = []
    for field in SCHEMA:
        values = columns[field.name]
        if pa.types.is_floating(field.type):
            values = np.where(np.isfinite(values), values, np.nan)
        arrays.append(pa.array(values, field.type, from_pandas=pa.types.is_floating(field.type)))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _finite(values):
    return values[np.isfinite(values)]


def _by(table, keys):
    """Rows of `table` as columns of numpy arrays, grouped by `keys`."""
    columns = {
        name: table[name].to_numpy(zero_copy_only=False)
        for name in table.column_names
        if not pa.types.is_null(table[name].type)
    }
    order = {}
    for i, key in enumerate(zip(*(columns[k].tolist() for k in keys), strict=True)):
        order.setdefault(key, []).append(i)
    return {key: {name: values[rows] for name, values in columns.items()} for key, rows in order.items()}


def _draws_by_tau(group, column):
    """Ascending taus, and `column` as (draws, taus)."""
    taus, at = np.unique(group["tau"], return_inverse=True)
    draws, which = np.unique(group["draw"], return_inverse=True)
    values = np.full((len(draws), len(taus)), np.nan)
    values[which, at] = group[column]
    return taus, values


def _systems(models):
    chosen = {}
    for model in models:
        if isinstance(model, type) and issubclass(model, System):
            chosen[model.__name__.lower()] = model
        elif model in SYSTEMS:
            chosen[model] = SYSTEMS[model]
        else:
            raise ValueError(f"model {model!r} is unknown: choose from {', '.join(SYSTEMS)}, or subclass System")
    return chosen


def _positive(name, values):
    values = [float(v) for v in np.atleast_1d(values)]
    if not values or not all(np.isfinite(v) and v > 0 for v in values):
        raise ValueError(f"{name} must be one or more positive numbers, not {values}")
    return values


def _check(n_systems, state, horizon, taus, methods, read):
    if n_systems < 1 or state < 2:
        raise ValueError(f"n_systems {n_systems} and state {state} must be at least 1 and 2")
    if not (np.isfinite(horizon) and horizon > 0):
        raise ValueError(f"horizon {horizon} must be a positive number")
    for tau in taus:
        for whole, part in ((horizon, tau), (tau, taus[0])):
            if abs(whole / part - round(whole / part)) > 1e-9 or round(whole / part) < 1:
                raise ValueError(f"step {part} does not divide {whole}: taus must divide the horizon and one another")
    for method in methods:
        if method not in METHODS:
            raise ValueError(f"method {method!r} is unknown: choose from {', '.join(METHODS)}")
    if read not in READS:
        raise ValueError(f"read {read!r} is unknown: choose from {', '.join(READS)}")
