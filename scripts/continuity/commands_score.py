"""`continuity score`: how continuous somebody's own data is, where that lies among known tasks, and what follows from it."""

import argparse
import json
import math
import sys
from pathlib import Path

WIDTH = 40
"""Longest bar of the plot."""


def register(commands) -> None:
    """Add the command to an argparse subparsers object."""
    score = commands.add_parser("score", help="how continuous is your data? mu with its interval, and what follows from it")
    score.add_argument("data", help="a .csv, .tsv, .parquet, .npy, .wav, image or text file, a folder of such, or the id of "
                                    "a hub data set")  # fmt: skip
    score.add_argument("--group", metavar="COLUMN", help="column that tells sequences apart; default: guessed, and told")
    score.add_argument("--time", metavar="COLUMN", help="column that orders the steps; default: guessed, and told")
    score.add_argument(
        "--values", metavar="COLUMN", nargs="+", help="columns of numbers; default: all others that hold numbers"
    )
    score.add_argument("--layout", choices=("auto", "long", "wide"), default="auto", help="a row is a step, or a sequence")
    score.add_argument("--sequences", type=_count, default=2000, metavar="N", help="sequences at most (default 2000)")
    score.add_argument("--channels", choices=("auto", "raw", "fourier", "delay"), default="auto",
                       help="auto: several channels are standardised, one is lifted; raw: as they are")  # fmt: skip
    score.add_argument("--max-lag", type=_count, default=16, metavar="STEPS", help="largest lag (default 16)")
    score.add_argument(
        "--min-separation", type=_count, default=128, metavar="STEPS", help="farther pairs are far (default 128)"
    )
    score.add_argument("--max-separation", type=_count, metavar="STEPS", help="farthest pairs (default 3 x min-separation)")
    score.add_argument("--kappa", type=_positive, help="of the model that the schedule is for (default: the study's, or 1)")
    score.add_argument("--tolerance", type=_positive, help="output error, in its sd, that a stride may make (default 0.1)")
    score.add_argument("--png", metavar="FILE", help="draw the curve of mu_t into FILE")
    score.add_argument("--study", help="study whose tables are compared with; default: the newest, if there is one")
    score.add_argument("--results", help="results folder; default: CONTINUITY_RESULTS, or the nearest one above")
    score.add_argument("--json", action="store_true", help="print everything measured as JSON")
    score.set_defaults(work=work)


def work(arguments: argparse.Namespace) -> None:
    """Read, score and print; ValueError or Problem, a line a problem, for bad input."""
    from continuity import scoring

    _check_png(arguments.png)
    found = scoring.read(arguments.data, arguments.sequences, sequence=arguments.group, time=arguments.time,
                         values=arguments.values, layout=arguments.layout)  # fmt: skip
    last = arguments.max_separation or 3 * arguments.min_separation
    score, null = scoring.measure(found, arguments.channels, max_lag=arguments.max_lag,
                                  min_separation=arguments.min_separation, max_separation=last)  # fmt: skip
    folder = _study(arguments)
    study = scoring.ask_study(score.mu, folder) if folder is not None and score.mu is not None else None
    result = _result(arguments, found, score, null, study)
    if arguments.png and score.mu is None:
        print(f"{arguments.png} is not written: mu is undefined", file=sys.stderr)
    elif arguments.png:
        draw(result, arguments.png)
    print(json.dumps(result, indent=2) if arguments.json else render(result))


def _study(arguments: argparse.Namespace) -> Path | None:
    """The folder of the study to compare with; None where none was asked for and there is none."""
    from continuity.places import QueryError, find_results, find_study

    try:
        return find_study(Path(arguments.results) if arguments.results else find_results(), arguments.study)
    except QueryError:
        if arguments.study or arguments.results:
            raise
        return None


def _check_png(png: str | None) -> None:
    if png is not None and not Path(png).absolute().parent.is_dir():
        raise ValueError(f"--png {png}: no such folder; make it, or name another")


def _result(arguments: argparse.Namespace, found, score, null, study) -> dict:
    """Everything measured, as plain numbers and text."""
    from continuity import scoring

    lengths = [len(one) for one in found.values]
    lags = [
        {"lag": lag, "mu_t": _finite(mu_t), "similarity": _finite(similarity), "n_pairs": int(pairs)}
        for lag, (mu_t, similarity, pairs) in enumerate(zip(score.mu_t, score.similarity, score.n_pairs, strict=True), 1)
    ]
    result = {"data": arguments.data, "kind": found.kind, "sequences": len(lengths), "length_min": min(lengths),
              "length_max": max(lengths), "channels": list(found.channels), "notes": list(found.notes), "mu": score.mu,
              "low": score.low, "high": score.high, "interval": score.interval, "reason": score.reason or None,
              "beta": score.beta, "kernel": score.kernel, "null_mu": null.mu, "null_low": null.low, "null_high": null.high,
              "lags": lags, "published": scoring.PUBLISHED, "study": study.name if study else None}  # fmt: skip
    told = vars(study) if study else dict.fromkeys(scoring.QUESTIONS, [])
    result |= {name: told[name] for name in scoring.QUESTIONS}
    if score.mu is None:
        return result | {"schedules": []}
    kappas = [{"model": None, "kappa": arguments.kappa}] if arguments.kappa else result["kappa"]
    kappas = kappas or [{"model": None, "kappa": scoring.KAPPA}]
    tolerance = arguments.tolerance or scoring.TOLERANCE
    schedules = [{"model": row["model"]} | scoring.schedule(score, row["kappa"], tolerance) for row in kappas]
    return result | {"schedules": schedules}


def render(result: dict) -> str:
    """The result in words, with a bar a lag."""
    lengths = (
        str(result["length_min"])
        if result["length_min"] == result["length_max"]
        else "{length_min} to {length_max}".format(**result)
    )
    width = f", {len(result['channels'])} channels" if len(result["channels"]) > 1 else ""
    count = "1 sequence" if result["sequences"] == 1 else f"{result['sequences']} sequences"
    lines = [f"{result['data']}: {result['kind']}, {count} of {lengths} steps{width}"]
    lines += [f"  {note}" for note in result["notes"]]
    if result["mu"] is None:
        return "\n".join([*lines, "", f"mu undefined: {result['reason']}"])
    lines += ["", f"mu {_interval(result, 'mu')}: 0 is noise, 1 does not change from step to step"]
    lines.append(f"after shuffling time {_interval(result, 'null_mu', 'null_')}")
    lines += ["", *_curve(result["lags"]), "", *_spectrum(result), *_favoured(result), *_schedules(result)]
    return "\n".join(lines)


def _interval(row: dict, name: str, prefix: str = "") -> str:
    low, high = row.get(f"{prefix}low"), row.get(f"{prefix}high")
    if row.get(name) is None:
        return "undefined"
    span = f" (95 % interval {low:.3f} to {high:.3f})" if low is not None and high is not None else ""
    return f"{row[name]:.3f}{span}"


def _curve(lags: list[dict]) -> list[str]:
    lines = [f"{'lag':>5}  {'mu_t':>6}"]
    for row in lags:
        if row["mu_t"] is not None:
            bar = "#" * round(WIDTH * min(max(row["mu_t"], 0), 1))
            lines.append(f"{row['lag']:>5}  {row['mu_t']:>6.3f}  {bar}".rstrip())
    return lines


def _spectrum(result: dict) -> list[str]:
    """Known tasks in the order of their scores, with this one among them."""
    rows = [(mu, f"{name} (published, trained encoder)") for name, mu in result["published"].items()]
    rows += [(row["mu"], f"{row['task']} ({row['encoder']}, study {result['study']})") for row in result["scores"]]
    rows.append((result["mu"], f"<- {Path(result['data']).name or result['data']}"))
    return ["among known tasks"] + [f"  {mu:>6.3f}  {name}" for mu, name in sorted(rows)]


def _favoured(result: dict) -> list[str]:
    if not result["favoured"] and not result["alignment"]:
        where = f"study {result['study']} has no forecasts" if result["study"] else "there is no study here"
        return ["", f"which architecture suits it: {where}; run `make study`, or give --results"]
    lines, shown = [], None
    for row in result["favoured"]:
        if (row["readout"], row["horizon"]) != shown:
            shown = row["readout"], row["horizon"]
            where = f"mu {row['mu']:.2f} (eta {row['eta']:g}, horizon {row['horizon']}, readout {row['readout']})"
            lines += ["", f"architectures where the study's mu is nearest, {where}: relative distance to the best"]
        lines.append(f"  {row['model']:<16} {_interval(row, 'gap')}")
    if result["alignment"]:
        lines += ["", "does mu decide between two of them? rank correlation with the advantage of the first"]
        lines += [f"  {row['pair']:<24} {_interval(row, 'rho')} over {row['n_tasks']} cells" for row in result["alignment"]]
    return lines


def _schedules(result: dict) -> list[str]:
    first = result["schedules"][0]
    shares = ", ".join(f"{stride}: {delta:.3f}" for stride, delta in first["delta"].items())
    how = "every r-th step" if result["mu"] >= 0.5 else "means of r steps"
    lines = ["", f"error of holding a step for r steps, delta(r): {shares}"]
    for one in result["schedules"]:
        model = f"{one['model']} (kappa {one['kappa']:.2f})" if one["model"] else f"a model of kappa {one['kappa']:g}"
        if one["longest"] > 1:
            plan = ", ".join(map(str, one["plan"]))
            lines.append(f"strides to train {model} with: {plan}; {how}; output error at most {one['tolerance']:g} sd")
        else:
            lines.append(f"strides to train {model} with: 1 only; stride 2 would cost more than {one['tolerance']:g} sd")
    return lines


def draw(result: dict, png: str) -> None:
    """The curve of mu_t, and mu with its interval, as a picture."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise ValueError("--png needs the package matplotlib: pip install matplotlib") from None
    lags = [row for row in result["lags"] if row["mu_t"] is not None]
    figure, axes = pyplot.subplots(figsize=(5, 3), layout="constrained")
    axes.plot([row["lag"] for row in lags], [row["mu_t"] for row in lags], marker="o", color="black")
    axes.axhline(result["mu"], linestyle="--", color="tab:blue", label=f"mu {result['mu']:.3f}")
    if result["low"] is not None:
        axes.axhspan(result["low"], result["high"], color="tab:blue", alpha=0.2, linewidth=0)
    axes.set(xlabel="lag / steps", ylabel="mu_t", title=Path(result["data"]).name)
    axes.legend(frameon=False)
    try:
        figure.savefig(png, format="png", dpi=150)
    except OSError as error:
        raise ValueError(f"--png {png}: cannot be written ({error.strerror}); name another file") from None
    finally:
        pyplot.close(figure)
    print(f"wrote {png}", file=sys.stderr)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _count(text: str) -> int:
    value = int(text) if text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, at least 1")
    return value


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number above 0")
    return value
