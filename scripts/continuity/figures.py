"""Figures of the study, one a stage, named as the stage: SVG for print and page, the same narrow for phones, and PNG.

Colours are Okabe and Ito's, told apart by every kind of colour vision; each series also has its own marker. The same
tables give the same bytes.
"""

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb

from continuity import tables

INK = "#1b1f24"
FAINT = "#8a9099"
SERIES = {
    "s4": ("#003b5c", "h"),
    "s4d": ("#0072b2", "o"),
    "s6": ("#d55e00", "s"),
    "transformer": ("#009e73", "^"),
    "mamba": ("#cc79a7", "D"),
    "s5": ("#56b4e9", "v"),
    "persistence": (FAINT, "x"),
    "ridge": (FAINT, "+"),
    "mlp": (FAINT, "1"),
    "linear_pooled": (FAINT, "x"),
    "linear_flat": (FAINT, "+"),
    "s4_matched": ("#56b4e9", "D"),
    "s6_fixed": ("#e69f00", "^"),
    "s6_switched": ("#cc79a7", "v"),
    "vdp": ("#0072b2", "o"),
    "dho": ("#d55e00", "s"),
    "duffing": ("#009e73", "^"),
    "ou": ("#cc79a7", "D"),
    "none": ("#8a9099", "o"),
    "identity": ("#0072b2", "s"),
    "diagonal": ("#d55e00", "^"),
    "certified": ("#009e73", "D"),
    "plain": ("#8a9099", "o"),
    "plain_short": ("#8a9099", "v"),
    "envelope": ("#8a9099", "o"),
    "restarts": ("#e69f00", "s"),
    "coarse": ("#0072b2", "^"),
    "auto": ("#cc79a7", "D"),
    "raw": ("#009e73", "^"),
    "random": ("#cc79a7", "D"),
}
SPARE = (("#e69f00", "P"), ("#56b4e9", "X"), ("#8c6bb1", "<"), ("#a6761d", ">"), ("#4d9221", "h"), ("#c51b7d", "p"))
LABELS = {"s4": "S4", "s4d": "S4D", "s6": "S6", "s5": "S5", "s4_matched": "S4, step of S6", "s6_fixed": "S6, fixed step",
          "s6_switched": "S6, switched gate", "transformer": "Transformer", "vdp": "Van der Pol", "dho": "damped harmonic",
          "duffing": "Duffing", "ou": "Ornstein-Uhlenbeck", "zoh": "ZOH", "deltanet": "DeltaNet", "mamba": "Mamba",
          "mamba2": "Mamba-2", "mamba3": "Mamba-3", "gla": "GLA", "mlp": "MLP", "linear_pooled": "linear, pooled",
          "linear_flat": "linear, all values", "linear_attention": "linear attention",
          "gated_deltanet": "gated DeltaNet"}  # fmt: skip
METHOD_LINES = {"zoh": "-", "bilinear": "--", "averaged": ":", "euler": "-."}
PNG_DPI = 200
PANEL_WIDE, PANEL_NARROW, HEIGHT = 3.5, 3.55, 2.75
ROOM = 8  # series that a legend inside a panel can hold


# ---------------------------------------------------------------- style


def _start():
    """matplotlib and seaborn with the style of all figures."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    import matplotlib
    import matplotlib.pyplot as plt
    import seaborn

    matplotlib.use("Agg")
    seaborn.set_theme(context="paper", style="ticks")
    matplotlib.rcParams.update({
        "svg.hashsalt": "continuity", "svg.fonttype": "path", "figure.dpi": 100, "text.hinting": "none",
        "font.family": "DejaVu Sans", "font.size": 8.5, "axes.titlesize": 9, "axes.labelsize": 8.5, "legend.fontsize": 7.5,
        "legend.title_fontsize": 7.5,
        "xtick.labelsize": 7.5, "ytick.labelsize": 7.5, "axes.titleweight": "bold", "axes.titlelocation": "left",
        "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
        "lines.linewidth": 1.5, "lines.markersize": 4.5, "axes.linewidth": 0.7, "legend.frameon": False,
        "errorbar.capsize": 2, "axes.formatter.use_mathtext": False, "figure.facecolor": "none", "axes.facecolor": "none",
    })  # fmt: skip
    return plt


def _panels(count: int, narrow: bool, height: float = HEIGHT, width: float = PANEL_WIDE):
    """A figure of `count` panels: in rows of at most three (four as two by two), or one below the other."""
    plt = _start()
    columns = 1 if narrow else 2 if count == 4 else min(count, 3)
    rows = -(-count // columns)
    size = (PANEL_NARROW, height * rows) if narrow else (width * columns, height * rows)
    figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    axes = list(grid.flat)
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def series(name: str, among: Sequence[str]) -> tuple[str, str]:
    """Colour and marker of a model, system or task; a name without its own takes the next spare one."""
    if name in SERIES:
        return SERIES[name]
    unknown = [other for other in among if other not in SERIES]
    return SPARE[unknown.index(name) % len(SPARE)]


def label(name: str, longest: int = 26) -> str:
    """A name as figures spell it; a user's own is shortened and never read as mathematics."""
    shown = LABELS.get(name, name)
    shown = shown if len(shown) <= longest else shown[: longest - 1] + "…"
    return shown.replace("$", r"\$")


def _finish(axis, title: str, x: str, y: str) -> None:
    import seaborn

    axis.set(title=title, xlabel=x, ylabel=y)
    seaborn.despine(ax=axis)


def _band(axis, rows, x: str, y: str, name: str, among: Sequence[str], **style) -> None:
    """One series over x with its interval, where there is one, as bars."""
    colour, marker = series(name, among)
    style = {"color": colour, "marker": marker, "label": label(name)} | style
    rows = rows.dropna(subset=[y])
    low, high = rows[y] - rows["low"], rows["high"] - rows[y]
    axis.errorbar(rows[x], rows[y], yerr=[low.fillna(0).clip(lower=0), high.fillna(0).clip(lower=0)], elinewidth=0.9, **style)


def _dots(axis, rows, value: str, kind: str, place: str, marker_of: str | None = None) -> None:
    """Values with intervals as dots, one line of the axis a `place`, the `kind`s beside one another."""
    places = list(dict.fromkeys(rows[place]))
    kinds = list(dict.fromkeys(rows[kind]))
    for i, name in enumerate(kinds):
        part = rows[rows[kind] == name].dropna(subset=[value])
        at = [places.index(p) + (i - (len(kinds) - 1) / 2) * 0.16 for p in part[place]]
        colour, marker = series(name, kinds)
        error = [(part[value] - part["low"]).fillna(0), (part["high"] - part[value]).fillna(0)]
        axis.errorbar(part[value], at, xerr=error, color=colour, marker=marker, linestyle="none", label=label(name))
    axis.set_yticks(range(len(places)), [label(p, 18) for p in places])
    axis.set_ylim(len(places) - 0.4, -0.6)


def _slope(axis, xs, start: float, order: int) -> None:
    """A faint guide line of slope `order` through (xs[0], start)."""
    ys = [start * (x / xs[0]) ** order for x in xs]
    axis.plot(xs, ys, color=FAINT, linewidth=0.8, zorder=0)
    axis.annotate(f"slope {order}", (xs[-1], ys[-1]), color=FAINT, fontsize=7, ha="left", va="top")


SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _logarithmic(axis, base: int = 10, powers: bool = True) -> None:
    """A logarithmic x or y axis: ticks at powers of `base`, or at 1, 2 and 5 where it spans few decades."""
    from matplotlib.ticker import LogLocator, NullLocator

    name = axis.axis_name
    getattr(axis.axes, f"set_{name}scale")("log", base=base)
    axis.set_major_locator(LogLocator(base, subs=(1,) if powers else (1, 2, 5)))
    axis.set_minor_locator(NullLocator())

    def spelled(value: float, _) -> str:
        exponent = str(round(math.log(value, base))).translate(SUPERSCRIPT)
        return f"{base}{exponent}" if powers else f"{value:g}"

    axis.set_major_formatter(spelled)


def _legend(axis, **where) -> None:
    """What the series of a panel mean; beside it, or below a narrow one, where they are too many to leave room for it."""
    handles, labels = axis.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    if len(unique) > ROOM:
        below = axis.figure.get_figwidth() <= PANEL_NARROW
        beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
        where |= {"loc": "upper center", "bbox_to_anchor": (0.5, -0.25), "ncols": 3} if below else beside
    if unique:
        axis.legend(unique.values(), unique.keys(), handlelength=1.6, borderaxespad=0.2, **where)


# ---------------------------------------------------------------- one function a figure


def score(ask: Callable, narrow: bool):
    """Continuity of each task and encoder, and similarity over lags."""
    rows, lags = ask("FROM score WHERE mu IS NOT NULL ORDER BY mu DESC"), ask("FROM similarity ORDER BY task, lag")
    figure, (left, right) = _panels(2, narrow, width=5.0 if not narrow else PANEL_WIDE)
    _dots(left, rows, "mu", "encoder", "task")
    left.axvline(0, color=FAINT, linewidth=0.8, zorder=0)
    _finish(left, "How continuous is each task?", "continuity mu (0: none, 1: full)", "")
    _legend(left, title="latents of")
    tasks = list(dict.fromkeys(rows["task"]))
    shown = "s4d" if "s4d" in set(lags["encoder"]) else next(iter(lags["encoder"]), "")
    for task in tasks:
        part = lags[(lags["task"] == task) & (lags["encoder"] == shown)].dropna(subset=["mu_t"])
        colour, marker = SPARE[tasks.index(task) % len(SPARE)]
        right.plot(part["lag"], part["mu_t"], color=colour, marker=marker, label=label(task), markersize=3.5)
    right.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
    _finish(right, f"How far does likeness reach? ({label(shown)} latents)", "lag (steps)", "mu at this lag")
    _legend(right)
    return figure


def mixtures(ask: Callable, narrow: bool):
    """mu of the observations against eta."""
    rows = ask("FROM mixtures WHERE mu IS NOT NULL ORDER BY construction, system, eta")
    constructions = list(dict.fromkeys(rows["construction"]))
    figure, axes = _panels(len(constructions), narrow, width=5.0 if len(constructions) > 1 else 6.5)
    systems = list(dict.fromkeys(rows["system"]))
    for axis, construction in zip(axes, constructions, strict=True):
        for system in systems:
            part = rows[(rows["construction"] == construction) & (rows["system"] == system)]
            _band(axis, part, "eta", "mu", system, systems)
        axis.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
        _finish(axis, f"{construction} mixture", "eta (0: discrete, 1: continuous)", "continuity mu")
    _legend(axes[0])
    return figure


def forecast(ask: Callable, narrow: bool):
    """Error against persistence, and the cross-fitted gap to the best architecture, over eta."""
    setting = "(construction, readout, horizon)"
    where = f"{setting} = (SELECT {setting} FROM forecast_eta ORDER BY construction, readout, horizon DESC LIMIT 1)"
    rows = ask(f"FROM forecast_eta WHERE {where} ORDER BY model, eta")
    gaps = ask(f"FROM gap WHERE {where} ORDER BY model, eta") if "gap" in ask.tables else rows.iloc[:0]
    figure, (left, right) = _panels(2, narrow, width=5.0)
    models = list(dict.fromkeys(rows["model"]))
    for model in models:
        flat = {"linestyle": "--", "linewidth": 1.0} if model in ("persistence", "ridge", "mlp") else {}
        _band(left, rows[rows["model"] == model], "eta", "rmse_relative", model, models, **flat)
    _logarithmic(left.yaxis, powers=False)
    _finish(left, "Error of the forecast", "eta (0: discrete, 1: continuous)", "RMSE / RMSE of persistence")
    _legend(left)
    for model in dict.fromkeys(gaps["model"]):
        _band(right, gaps[gaps["model"] == model], "eta", "gap", model, models)
    right.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
    _finish(right, "Distance to the best architecture", "eta (0: discrete, 1: continuous)", "cross-fitted relative gap")
    _legend(right)
    return figure


def crossed(ask: Callable, narrow: bool):
    """Error against persistence, the eta of the input crossed with that of the target, a panel a model."""
    setting = "(construction, readout, horizon)"
    where = f"{setting} = (SELECT {setting} FROM crossed_cell ORDER BY construction, readout, horizon DESC LIMIT 1)"
    rows = ask(f"FROM crossed_cell WHERE {where} AND rmse_relative IS NOT NULL ORDER BY model, eta, eta_target")
    models = list(dict.fromkeys(rows["model"]))
    figure, axes = _panels(len(models), narrow, width=3.2)
    ends = max(abs(math.log(value)) for value in rows["rmse_relative"]) or 1.0
    for axis, model in zip(axes, models, strict=True):
        grid = rows[rows["model"] == model].pivot(index="eta_target", columns="eta", values="rmse_relative")
        shown = grid.map(math.log).to_numpy()
        axis.imshow(shown, cmap="PuOr_r", vmin=-ends, vmax=ends, origin="lower", aspect="auto")
        for i, j in ((i, j) for i in range(len(grid.index)) for j in range(len(grid.columns))):
            value = grid.iloc[i, j]
            if value == value:
                ink = "white" if abs(math.log(value)) > 0.6 * ends else INK
                axis.text(j, i, f"{value:.2g}", ha="center", va="center", fontsize=7.5, color=ink)
        axis.set_xticks(range(len(grid.columns)), [f"{eta:g}" for eta in grid.columns])
        axis.set_yticks(range(len(grid.index)), [f"{eta:g}" for eta in grid.index])
        _finish(axis, label(model), "eta of the input", "eta of the target")
    return figure


def convergence(ask: Callable, narrow: bool):
    """Error against the step at the smallest and largest amplitude, order over amplitudes, and the controls from S4 to S6."""
    rows = ask("FROM convergence_error ORDER BY model, method, scale, tau")
    orders = ask("FROM convergence_order ORDER BY scale")
    controls = ask(CONTROLS)
    scales = sorted(set(rows["scale"]))
    scales = [scales[0], scales[-1]] if len(scales) > 1 else scales
    figure, axes = _panels(len(scales) + 1 + (len(controls) > 1), narrow, width=4.6)
    models = [model for model in dict.fromkeys(rows["model"]) if model in ("s4", "s6")] or list(dict.fromkeys(rows["model"]))
    rows, orders = rows[rows["model"].isin(models)], orders[orders["model"].isin(models)]
    for axis, scale in zip(axes, scales, strict=False):
        _errors(axis, rows[rows["scale"] == scale], models)
        _finish(axis, f"Amplitude {scale:g}", "sampling step tau", "relative error")
    _method_legend(axes[0], models, list(dict.fromkeys(rows["method"])))
    for (model, method), part in orders.groupby(["model", "method"]):
        style = {"linestyle": METHOD_LINES.get(method, "-"), "markersize": 3}
        _band(axes[len(scales)], part, "scale", "convergence_order", model, models, **style)
    _logarithmic(axes[len(scales)].xaxis, 2)
    axes[len(scales)].set_ylim(bottom=0)
    _finish(axes[len(scales)], "Order of convergence", "amplitude", "order, three finest steps")
    if len(controls) > 1:
        _controls(axes[-1], controls)
    return figure


def _errors(axis, rows, models: Sequence[str]) -> None:
    """Error against the step, one line a model and method, with a guide of slope one."""
    for (model, method), part in rows.groupby(["model", "method"]):
        _band(axis, part, "tau", "error", model, models, linestyle=METHOD_LINES.get(method, "-"), markersize=2.5)
    taus = sorted(set(rows["tau"]))
    zoh = rows[rows["method"] == "zoh"]["error"].dropna()
    if len(taus) > 3 and len(zoh):
        _slope(axis, taus[:4], 0.4 * zoh.min(), 1)
    _logarithmic(axis.xaxis, 2)
    _logarithmic(axis.yaxis)


CONTROLS = """
SELECT * FROM convergence_confound
WHERE method = 'zoh' AND scale = (SELECT max(scale) FROM convergence)
    AND tau = (SELECT max(tau) FROM convergence WHERE tau <= 0.015625)
ORDER BY list_position(['s4', 's4_matched', 's6_fixed', 's6'], model), model
"""


def _controls(axis, rows) -> None:
    """Error over S4's, one line a model, with what each control adds to the one before it."""
    for i, row in enumerate(rows.itertuples()):
        colour, marker = series(row.model, list(rows["model"]))
        bar = [[max(row.ratio - row.low, 0)], [max(row.high - row.ratio, 0)]] if row.low == row.low else None
        axis.errorbar([row.ratio], [i], xerr=bar, color=colour, marker=marker, linestyle="none")
        if row.factor == row.factor:
            axis.annotate(f"×{row.factor:.2g}", (row.ratio, i - 0.22), color=INK, fontsize=7, ha="center", va="bottom")
    axis.axvline(1, color=FAINT, linewidth=0.8, zorder=0)
    _logarithmic(axis.xaxis, powers=False)
    axis.set_yticks(range(len(rows)), [label(model) for model in rows["model"]])
    axis.set_ylim(len(rows) - 0.4, -0.6)
    _finish(axis, f"From S4 to S6, amplitude {rows['scale'].iloc[0]:g}", "error / error of S4", "")


def _method_legend(axis, models: Sequence[str], methods: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=series(m, models)[0], marker=series(m, models)[1], label=label(m), markersize=3.5) for m in models
    ]
    handles += [Line2D([], [], color=FAINT, linestyle=METHOD_LINES.get(m, "-"), label=label(m)) for m in methods]
    axis.legend(handles=handles, handlelength=2.2, fontsize=6.5, loc="lower right")


def refinement(ask: Callable, narrow: bool):
    """Drift of trained models' outputs when the step is halved, per system, and against the hold error of the input."""
    rows = ask("FROM refinement_drift WHERE drift IS NOT NULL ORDER BY system, model, method, step_scale")
    rows = rows[rows["step_rule"] == "delta"] if "delta" in set(rows["step_rule"]) else rows
    rows = rows[rows["amplitude"] == rows["amplitude"].min()]
    systems, law = list(dict.fromkeys(rows["system"])), rows.dropna(subset=["hold_error"])
    figure, axes = _panels(len(systems) + (len(law) > 0), narrow)
    models, methods = list(dict.fromkeys(rows["model"])), list(dict.fromkeys(rows["method"]))
    for axis, system in zip(axes, systems, strict=False):
        part = rows[rows["system"] == system]
        for (model, method), line in part.groupby(["model", "method"]):
            _band(axis, line, "step_scale", "drift", model, models, linestyle=METHOD_LINES.get(method, "-"))
        _slope(axis, sorted(set(part["step_scale"])), 0.6 * part["drift"].min(), 1)
        _logarithmic(axis.xaxis, 2)
        _logarithmic(axis.yaxis, powers=False)
        _finish(axis, label(system), "step / step of training", "drift (sd of the output)")
    _method_legend(axes[0], models, methods)
    if len(law):
        _law(axes[-1], law, systems, models)
    return figure


def _law(axis, rows, systems: Sequence[str], models: Sequence[str]) -> None:
    """Drift against the hold error of the input, one line a system and model, with the line where the two are equal."""
    from matplotlib.lines import Line2D

    first = rows["method"].min() if "zoh" not in set(rows["method"]) else "zoh"
    for (system, model), part in rows[rows["method"] == first].groupby(["system", "model"]):
        colour, _ = series(model, models)
        _, marker = series(system, systems)
        part = part.sort_values("hold_error")
        axis.plot(part["hold_error"], part["drift"], color=colour, marker=marker, linewidth=0.8, markersize=3.5)
    ends = [rows["hold_error"].min(), rows["hold_error"].max()]
    axis.plot(ends, ends, color=FAINT, linewidth=0.8, zorder=0)
    looks = {label(system): series(system, systems)[1] for system in systems}
    axis.legend(handles=[Line2D([], [], color=INK, marker=m, linewidth=0.8, label=name) for name, m in looks.items()],
                fontsize=6.5, loc="lower right")  # fmt: skip
    axis.annotate("kappa 1", (ends[1], ends[1]), color=FAINT, fontsize=7, ha="right", va="bottom")
    _logarithmic(axis.xaxis, powers=False)
    _logarithmic(axis.yaxis, powers=False)
    _finish(axis, f"drift = kappa × hold error ({label(first)})", "hold error of the input", "drift (sd of the output)")


def diagnosis(ask: Callable, narrow: bool):
    """What every layer of a trained model adds to the departure along the sequence, beside the slope of its Delta."""
    rows = ask(
        "FROM diagnosis_map WHERE own_layer > 0 QUALIFY method = first_value(method) OVER ("
        "PARTITION BY model ORDER BY method = 'zoh' DESC, method) ORDER BY model, system, layer, position"
    )
    models = list(dict.fromkeys(rows["model"]))
    selective = [model for model in models if rows[rows["model"] == model]["lipschitz_delta"].notna().any()]
    maps = [(model, "own_layer", f"Own departure: {label(model)}", "sd of the layer") for model in models]
    maps += [(model, "lipschitz_delta", f"Slope of Delta: {label(model)}", "|dDelta/du| (1/input)") for model in selective]
    lines = rows[["system", "layer"]].drop_duplicates().shape[0]
    figure, axes = _panels(len(maps), narrow, height=1.5 + 0.24 * lines, width=4.2)
    for axis, (model, value, title, unit) in zip(axes, maps, strict=True):
        same = rows if value == "own_layer" else rows[rows["model"].isin(selective)]
        _heat(axis, rows[rows["model"] == model], value, (same[value].min(), same[value].max()), unit)
        _finish(axis, title, "position in the sequence", "system and layer")
    return figure


def _heat(axis, rows, value: str, limits: tuple[float, float], unit: str) -> None:
    """Layer by position as colours, one row a system and layer; a ring at the largest value of each system."""
    from matplotlib.colors import LogNorm

    places = list(dict.fromkeys(zip(rows["system"], rows["layer"], strict=True)))
    grid = rows.pivot(index=["system", "layer"], columns="position", values=value).reindex(places)
    low, high = limits if limits[0] < limits[1] else (limits[0] / 2, limits[0] * 2)
    ends = [i / grid.shape[1] for i in range(grid.shape[1] + 1)]
    mesh = axis.pcolormesh(ends, [i - 0.5 for i in range(len(places) + 1)], grid.to_numpy(float), cmap="cividis",
                           norm=LogNorm(low, high))  # fmt: skip
    for system, part in rows.dropna(subset=[value]).groupby("system"):
        top = part.loc[part[value].idxmax()]
        axis.plot(top["position"], places.index((system, top["layer"])), color="#ffffff", marker="o", markersize=7,
                  markerfacecolor="none", markeredgecolor="#d55e00", markeredgewidth=1.6)  # fmt: skip
    axis.set_yticks(range(len(places)), [f"{label(system, 16)} {layer}" for system, layer in places])
    axis.set_ylim(len(places) - 0.5, -0.5)
    bar = axis.figure.colorbar(mesh, ax=axis, pad=0.02, label=unit)
    bar.set_ticks([low, math.sqrt(low * high), high], labels=[f"{value:.2g}" for value in (low, math.sqrt(low * high), high)])
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)


def benchmark(ask: Callable, narrow: bool):
    """Test accuracy of the architectures on the labelled tasks, with the majority class."""
    rows = ask("FROM benchmark_cell WHERE accuracy IS NOT NULL AND model <> 'majority' ORDER BY task, model")
    figure, (axis,) = _panels(1, narrow, width=6.5, height=1.3 + 0.45 * max(2, rows["task"].nunique()))
    _dots(axis, rows, "accuracy", "model", "task")
    tasks = list(dict.fromkeys(rows["task"]))
    for i, task in enumerate(tasks):
        share = rows[rows["task"] == task]["majority"].max()
        axis.plot([share, share], [i - 0.3, i + 0.3], color=FAINT, linewidth=2, label="majority class")
    axis.set_xlim(left=0)
    _finish(axis, "Accuracy on labelled tasks", "test accuracy", "")
    _legend(axis, loc="best")
    return figure


def alignment(ask: Callable, narrow: bool):
    """Advantage of one architecture against mu, cell by cell, and the rank correlations of all pairs."""
    pairs = ask("FROM alignment WHERE rho IS NOT NULL ORDER BY pair <> 's4d-s6', abs(rho) DESC, pair").head(MOST_PAIRS)
    pairs = pairs.sort_values("rho", ascending=False)
    figure, (left, right) = _panels(2, narrow, width=5.0)
    names = list(pairs["pair"])
    _advantage(left, ask, "s4d-s6" if "s4d-s6" in names else names[0])
    right.errorbar(
        pairs["rho"], range(len(pairs)), xerr=[pairs["rho"] - pairs["low"], pairs["high"] - pairs["rho"]],
        color=SERIES["s4"][0], marker="o", linestyle="none",
    )  # fmt: skip
    right.set_yticks(range(len(pairs)), [" over ".join(map(label, name.split("-", 1))) for name in names])
    right.set(xlim=(-1.05, 1.05), ylim=(max(len(pairs) - 0.4, 0.6), -0.6))
    right.axvline(0, color=FAINT, linewidth=0.8, zorder=0)
    _finish(right, "Does advantage follow mu?", "rank correlation of mu and advantage", "")
    return figure


MOST_PAIRS = 12
"""Pairs of architectures that the figure shows: S4D over S6, and those whose correlation is strongest."""


def _advantage(axis, ask: Callable, pair: str) -> None:
    import seaborn

    rows = ask(
        "SELECT system, eta, mu, avg(advantage) AS advantage FROM advantage WHERE pair = ? AND mu IS NOT NULL"
        " AND (construction, readout) = (SELECT (construction, readout) FROM advantage ORDER BY construction, readout LIMIT 1)"
        " AND horizon = (SELECT max(horizon) FROM advantage) GROUP BY ALL ORDER BY ALL",
        pair,
    )
    systems = list(dict.fromkeys(rows["system"]))
    rows["shown"] = [label(system) for system in rows["system"]]
    looks = {label(system): series(system, systems) for system in systems}
    seaborn.scatterplot(
        rows, x="mu", y="advantage", hue="shown", style="shown", ax=axis, s=28, linewidth=0,
        palette={name: colour for name, (colour, _) in looks.items()},
        markers={name: marker for name, (_, marker) in looks.items()},
    )  # fmt: skip
    axis.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
    first, second = map(label, pair.split("-", 1))
    _finish(axis, f"{first} against {second}", "continuity mu of the observations", f"log advantage of {first}")
    _legend(axis, fontsize=6.5)


def _of_task(rows, names):
    """Names of rows, the task before them where there are several."""
    return names if rows["task"].nunique() == 1 else rows["task"] + ", " + names


def curriculum(ask: Callable, narrow: bool):
    """Accuracy against training time by plan, the time to the highest target that all seeds reach, what a refinement costs."""
    curves = ask("FROM curriculum_curve ORDER BY task, model, plan, epoch")
    first = "s4d" if "s4d" in set(curves["model"]) else curves["model"].iloc[0]
    curves = curves[curves["model"] == first]
    tasks, plans = list(dict.fromkeys(curves["task"])), list(dict.fromkeys(curves["plan"]))
    ratios = curves.iloc[:0]
    if "time_to_target" in ask.tables:
        wanted = "ratio IS NOT NULL AND target LIKE '% of plain' AND NOT starts_with(plan, 'restarts')"
        best = f"SELECT target FROM time_to_target WHERE {wanted} ORDER BY status = 'ok' DESC, target_accuracy DESC LIMIT 1"
        ratios = ask(f"FROM time_to_target WHERE {wanted} AND target = ({best}) ORDER BY task, model, plan, baseline")
    drops = ask("FROM curriculum_drop ORDER BY task, plan, stage, stride DESC, to_stride, model")
    figure, axes = _panels(len(tasks) + (len(ratios) > 0) + (len(drops) > 0), narrow)
    for axis, task in zip(axes, tasks, strict=False):
        for plan, line in curves[curves["task"] == task].groupby("plan"):
            colour, marker = series(plan, plans)
            axis.plot(line["seconds"], line["accuracy"], color=colour, marker=marker, markersize=3.5, label=label(plan))
        _legend(axis, loc="lower right")
        _finish(axis, f"{label(task)}: {label(first)} by plan", "training time (s)", "test accuracy, every step")
    rest = iter(axes[len(tasks) :])
    if len(ratios):
        axis = next(rest)
        ratios["place"] = _of_task(ratios, ratios["model"].map(label) + ", " + ratios["plan"])
        _dots(axis, ratios, "ratio", "baseline", "place")
        _legend(axis, title="baseline", loc="best")
        axis.axvline(1, color=FAINT, linewidth=0.8, zorder=0)
        _finish(axis, f"Time to {ratios['target'].iloc[0]}'s best", "training time / that of the baseline", "")
    if len(drops):
        axis = next(rest)
        strides = drops["stride"].astype(str) + " to " + drops["to_stride"].astype(str)
        drops["place"] = _of_task(drops, drops["plan"] + ", " + strides)
        _dots(axis, drops, "drop", "model", "place")
        _legend(axis, loc="lower right")
        axis.axvline(0, color=FAINT, linewidth=0.8, zorder=0)
        _finish(axis, "Refining the stride", "accuracy lost at once", "")
    return figure


def dissipation(ask: Callable, narrow: bool):
    """Forgetting at the proved rate and without its hypothesis, and how slowly HiPPO forgets."""
    rows = ask("FROM dissipation ORDER BY theorem, setting, system")
    figure, axes = _panels(2, narrow, width=4.0)
    axis, part = axes[0], rows[rows["theorem"] == "forgetting"]
    looks = iter((("#d55e00", "x"), ("#e69f00", "+")))
    for setting, cell in part.groupby("setting", sort=False):
        colour, marker = ("#0072b2", "o") if cell["hypothesis"].all() else next(looks)
        name = label(
            setting.removeprefix("counterexample: ").replace("stable gates without a common storage", "no common storage"), 40
        )
        axis.plot(cell["bound"], cell["measured"], marker, color=colour, markersize=4, label=name)
    ends = [part["bound"].min(), part["bound"].max()]
    axis.plot(ends, ends, color=FAINT, linewidth=0.8, zorder=0)
    axis.set_yscale("symlog", linthresh=1e-3)
    _legend(axis, loc="lower left", bbox_to_anchor=(0, 0.1))
    _finish(axis, "Forgetting", "proved rate (1/step)", "measured rate (1/step)")
    axis, part = axes[1], rows[(rows["theorem"] == "landscape") & rows["setting"].str.startswith("slower")]
    for i, (_, cell) in enumerate(part.groupby("setting", sort=False)):
        axis.plot(cell["measured"], [i] * len(cell), "o", color="#0072b2", markersize=3.5, alpha=0.6)
        axis.plot(cell["measured"].mean(), i, "|", color=INK, markersize=14)
    names = [setting.removeprefix("slower than ") for setting in dict.fromkeys(part["setting"])]
    axis.set_yticks(
        range(len(names)),
        [name.replace(" of the", "\nof the").replace("same ", "same\n").replace(" as fast", "\nas fast") for name in names],
    )
    axis.set_ylim(-0.5, len(names) - 0.5)
    axis.axvline(0, color=FAINT, linewidth=0.8, zorder=0)
    _finish(axis, "HiPPO-LegS against", "log ratio of half-lives of the energy", "")
    return figure


def stability(ask: Callable, narrow: bool):
    """Violation against error by storage, errors of all forecasters, and what perturbed input does to both."""
    pareto = ask("FROM stability_pareto ORDER BY dataset, horizon, host, storage, weight, beta")
    errors = ask("FROM stability_cell WHERE router_weight = 0 AND mse_relative IS NOT NULL ORDER BY mse_relative DESC")
    shaken = ask(
        "SELECT storage, level, exp(avg(ln(1 + mse_rise))) AS mse, avg(violation) AS violation FROM robustness_cell "
        "WHERE host = (SELECT min(host) FROM robustness WHERE violation IS NOT NULL) GROUP BY ALL ORDER BY ALL"
    )
    figure, axes = _panels(2 + 2 * (len(shaken) > 0), narrow)
    for (host, storage), part in pareto.groupby(["host", "storage"], sort=False):
        colour, marker = series(storage, ())
        reach = [part["violation"] - part["violation_low"], part["violation_high"] - part["violation"]]
        kept = storage if host == pareto["host"].iloc[0] else None
        axes[0].errorbar(part["violation"], part["mse"], xerr=reach, fmt=marker, color=colour, elinewidth=0.9, label=kept)
    axes[0].set_xscale("symlog", linthresh=1e-4)
    _legend(axes[0])
    _finish(axes[0], "Violation against error", "mean violation, own storage", "mean square error")
    errors["place"] = [
        f"{host}, {storage}" if storage != "none" else host
        for host, storage in zip(errors["host"], errors["storage"], strict=True)
    ]
    for place, part in errors.groupby("place", sort=False):
        colour, marker = series(part["storage"].iloc[0], ())
        axes[1].plot(part["mse_relative"], [place] * len(part), marker, color=colour)
    axes[1].axvline(1, color=FAINT, linewidth=0.8, zorder=0)
    _finish(axes[1], "Forecast error", "mean square error / persistence", "")
    if len(shaken):
        for value, axis, title in (
            ("mse", axes[2], "Error on perturbed input"),
            ("violation", axes[3], "Violation on perturbed input"),
        ):
            for storage, line in shaken.groupby("storage"):
                colour, marker = series(storage, ())
                axis.plot(line["level"], line[value], color=colour, marker=marker, label=label(storage))
            _finish(
                axis, title, "perturbation (sd of the input)", "error / clean error" if value == "mse" else "mean violation"
            )
        _legend(axes[2])
    return figure


def study(ask: Callable, narrow: bool):
    """The story: how continuous tasks are, how continuous models are, and whether the two must match."""
    wanted = [(_story_tasks, {"mixtures"}), (_story_models, {"convergence"}), (_story_match, {"forecast", "mixtures"})]
    panels = [panel for panel, needs in wanted if needs <= ask.tables]
    figure, axes = _panels(len(panels), narrow, height=2.6)
    for axis, panel in zip(axes, panels, strict=True):
        panel(axis, ask)
    return figure


def _story_tasks(axis, ask: Callable) -> None:
    first = "(SELECT min(construction) FROM mixtures WHERE mu IS NOT NULL)"
    rows = ask(f"FROM mixtures WHERE mu IS NOT NULL AND construction = {first} ORDER BY system, eta")
    systems = list(dict.fromkeys(rows["system"]))
    for system in systems:
        _band(axis, rows[rows["system"] == system], "eta", "mu", system, systems, markersize=3)
    _finish(axis, "Tasks from discrete to continuous", "eta", "continuity mu of the task")
    _legend(axis, fontsize=6.5)


def _story_models(axis, ask: Callable) -> None:
    rows = ask(
        "FROM convergence_error WHERE method IN ('zoh', 'averaged') AND scale = (SELECT max(scale) FROM convergence)"
        " ORDER BY model, method, tau"
    )
    models = list(dict.fromkeys(rows["model"]))
    models = [model for model in models if model in ("s4", "s6")] or models
    for (model, method), part in rows[rows["model"].isin(models)].groupby(["model", "method"]):
        _band(axis, part, "tau", "error", model, models, linestyle=METHOD_LINES[method], markersize=3)
    _logarithmic(axis.xaxis, 2)
    _logarithmic(axis.yaxis)
    _method_legend(axis, models, list(dict.fromkeys(rows["method"])))
    _finish(axis, "Models under refinement", "sampling step tau", "relative error, loudest input")


def _story_match(axis, ask: Callable) -> None:
    order = "pair <> 's4d-s6', pair LIKE '%-persistence', pair"
    pairs = list(ask(f"SELECT DISTINCT pair FROM advantage WHERE mu IS NOT NULL ORDER BY {order}")["pair"])
    if pairs:
        _advantage(axis, ask, pairs[0])
    axis.set_title("Must the two match?")


NEEDS = {
    "study": (study, ()),
    "score": (score, ("score", "similarity")),
    "mixtures": (mixtures, ("mixtures",)),
    "forecast": (forecast, ("forecast",)),
    "crossed": (crossed, ("crossed", "forecast")),
    "convergence": (convergence, ("convergence",)),
    "refinement": (refinement, ("refinement",)),
    "diagnosis": (diagnosis, ("diagnosis",)),
    "benchmark": (benchmark, ("benchmark",)),
    "alignment": (alignment, ("alignment", "forecast", "mixtures")),
    "curriculum": (curriculum, ("curriculum", "curriculum_times")),
    "dissipation": (dissipation, ("dissipation",)),
    "stability": (stability, ("stability", "robustness")),
}
FIGURES = tuple(NEEDS)


class _Ask:
    """A connection that answers with data frames, and the tables of it that have rows with status ok."""

    def __init__(self, connection: duckdb.DuckDBPyConnection):
        self.connection = connection
        there = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        count = "SELECT count(*) FROM {} WHERE status = 'ok'"
        self.tables = {name for name in there & (set(tables.TABLES) - {"claims"})
                       if connection.execute(count.format(name)).fetchall()[0][0]}  # fmt: skip

    def __call__(self, sql: str, *values):
        return self.connection.sql(sql, params=list(values)).df()


def draw(name: str, connection: duckdb.DuckDBPyConnection, out_stem: Path | str) -> list[Path]:
    """Draw figure `name` to `out_stem`.svg, .narrow.svg and .png; returns what was written.

    Writes nothing, and removes what an earlier run left, where the study lacks the tables that the figure shows.
    Raises ValueError for an unknown name.
    """
    if name not in NEEDS:
        raise ValueError(f"no figure {name!r}; there are {', '.join(FIGURES)}")
    function, needs = NEEDS[name]
    ask = _Ask(connection)
    paths = [Path(f"{out_stem}{ending}") for ending in (".svg", ".narrow.svg", ".png")]
    enough = set(needs) <= ask.tables if needs else bool(ask.tables & {"mixtures", "convergence"})
    if not enough:
        for path in paths:
            path.unlink(missing_ok=True)
        return []
    _save(function(ask, False), paths[0], paths[2])
    _save(function(ask, True), paths[1])
    return paths


def _save(figure, svg: Path, png: Path | None = None) -> None:
    """Lay out once, then print; `savefig` would draw every figure a second time to measure it."""
    import matplotlib.pyplot as plt
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    figure.get_layout_engine().execute(figure)
    figure.set_layout_engine("none")
    with tables.atomic(svg) as temporary:
        FigureCanvasSVG(figure).print_svg(temporary, metadata={"Date": None})
    if png:
        figure.set_dpi(PNG_DPI)
        figure.set_facecolor("white")
        with tables.atomic(png) as temporary:
            FigureCanvasAgg(figure).print_png(temporary, metadata={"Software": None})
    plt.close(figure)
