"""`continuity probe`: the order of convergence of somebody's own torch module, its drift curve and a verdict."""

import argparse
import contextlib
import json
import math
import sys
from fractions import Fraction

WIDTH = 40
"""Longest bar of the plot."""


def register(commands) -> None:
    """Add the command to an argparse subparsers object."""
    probe = commands.add_parser("probe", help="how continuous is your own torch module? its order under refinement")
    probe.add_argument("factory", help="module:function or file.py:function that makes the torch module, (B, L, D) to "
                                       "(B, L, D') or (B, k)")  # fmt: skip
    probe.add_argument("--data", metavar="FILE", help="sequences: .npy (n, L, D), .csv, .parquet; default: smooth random ones")
    probe.add_argument("--step-scale-arg", default="auto", metavar="NAME",
                       help="argument of forward that takes the step scale; none for no such argument; default: step_scale "
                            "where there is one")  # fmt: skip
    probe.add_argument("--channels", type=_count, metavar="D", help="channels of the random sequences (default 1)")
    probe.add_argument("--length", type=_count, default=1025, metavar="L", help="samples on the finest grid (default 1025)")
    probe.add_argument("--sequences", type=_count, default=16, metavar="N", help="sequences at most (default 16)")
    probe.add_argument(
        "--thin",
        action="store_true",
        help="thin the data (its own step and coarser), do not interpolate it (its own step and finer)",
    )
    probe.add_argument("--json", action="store_true", help="print everything measured as JSON")
    probe.set_defaults(work=work)


def work(arguments: argparse.Namespace) -> None:
    """Probe and print; ValueError in one line for bad input."""
    from continuity.probe import main_result

    if arguments.thin and not arguments.data:
        raise ValueError("--thin needs --data: random sequences are made at every step as they are")
    inputs = read_sequences(arguments.data, arguments.sequences, arguments.channels) if arguments.data else None
    if inputs is not None and arguments.thin:
        inputs = inputs[:, : arguments.length]
    argument = None if arguments.step_scale_arg == "none" else arguments.step_scale_arg
    # What the user's own code prints must not mix with the answer.
    with contextlib.redirect_stdout(sys.stderr):
        result = main_result(arguments.factory, inputs, argument, refine=not arguments.thin, length=arguments.length,
                             channels=arguments.channels or 1, n_samples=arguments.sequences)  # fmt: skip
    print(json.dumps(result, indent=2) if arguments.json else render(result, 1.0 if arguments.thin else None))


def read_sequences(path: str, n: int, channels: int | None = None):
    """The first n sequences of a file as float32 (n, L, D), cut to the shortest; ValueError, a line a problem."""
    import numpy as np

    from continuity.tasks import user

    splits = user.load(path).splits.values()
    found = [split[i] for split in splits for i in range(len(split))][:n]
    length, width = min(len(one) for one in found), found[0].shape[1]
    if channels not in (None, width):
        raise ValueError(f"{path} has {width} channels, not {channels}: leave --channels out, or correct the file")
    return np.stack([one[:length] for one in found]).astype(np.float32)


def render(result: dict, finest: float | None = None) -> str:
    """The result of `probe.main_result` in words, with a bar a step; finest: step scale of stride 1, default 1/largest."""
    strides = result["strides"]
    finest = 1 / strides[-1] if finest is None else finest
    steps = [str(Fraction(finest * stride).limit_denominator(1000)) for stride in strides]
    told = f"told its step by {result['step_scale_arg']}" if result["step_scale_arg"] else "not told its step"
    sequences = "1 sequence" if result["n_samples"] == 1 else f"{result['n_samples']} sequences"
    lines = [f"{result['factory']}: {sequences} of {result['length']} samples, {told}", ""]
    names = [f"{fine} to {coarse}" for fine, coarse in zip(steps[:-1], steps[1:], strict=True)]
    wide = max(map(len, ["step", *names]))
    lines.append(f"{'step':>{wide}}  {'drift':>9}  drift of the outputs / their sd, log scale")
    for name, drift, bar in zip(names, result["drift"], _bars(result["drift"]), strict=True):
        lines.append(f"{name:>{wide}}  {_number(drift, '.3g'):>9}  {bar}".rstrip())
    order, kappa = (_estimate(result, *names) for names in (("order", "low", "high"), ("kappa", "kappa_low", "kappa_high")))
    lines += ["", f"order {order}", f"kappa {kappa}: change of the output over that of the input when the input is held"]
    return "\n".join([*lines, "", result["sentence"]])


def _estimate(result: dict, name: str, low: str, high: str) -> str:
    if result[low] is None:
        return f"{_number(result[name])} (no interval: it takes two sequences or more)"
    return f"{_number(result[name])} (95 % interval {result[low]:.2f} to {result[high]:.2f})"


def _bars(values: list[float | None]) -> list[str]:
    """Bars on a log scale: the largest is longest, a factor of two is a fixed length."""
    levels = [math.log2(value) if value else None for value in values]
    seen = [level for level in levels if level is not None]
    if not seen:
        return [""] * len(values)
    unit = WIDTH / max(8.0, max(seen) - min(seen) + 1)
    return ["" if level is None else "#" * max(1, round(WIDTH - unit * (max(seen) - level))) for level in levels]


def _number(value: float | None, form: str = ".2f") -> str:
    return "unknown" if value is None else format(value, form)


def _count(text: str) -> int:
    value = int(text) if text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, at least 1")
    return value
