"""How continuous is somebody's own torch module? Its order of convergence as its input is sampled more coarsely.

The module sees every r-th sample of the same sequences and, where it takes one, the step scale r. Outputs are compared
at equal times, coarse[j] with fine[r j]; no label is needed. Between strides r_j and r_{j+1} = q r_j the successive
drift d_j grows as r^p for a model of order p, so p = log_q(d_{j+1}/d_j): 1 for a model that holds its input over a
step, 0 or less for one that computes another function at every rate. (Drift against the finest grid overstates p.)
"""

import importlib
import importlib.util
import inspect
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from continuity.intervals import mean_interval

STRIDES = (1, 2, 4, 8)
CONTINUOUS_FROM = 0.75
NOT_CONTINUOUS_TO = 0.5
FEWEST_COARSE_SAMPLES = 4


@dataclass(frozen=True)
class ProbeResult:
    """What a probe found. Lists follow the strides; NaN stands for what could not be measured.

    drift: rms change of the outputs between successive strides over the sd of the finest outputs, geometric mean
    orders: order between successive drifts
    order, low, high: slope over all strides, mean over samples with its 95 % interval
    hold_error, input_order: delta(r), rms change of the input within a step of r samples over its rms; its order
    hold_drift: rms change of the outputs when the input is held over r samples, over their rms, geometric mean
    kappa, kappa_low, kappa_high: hold_drift over delta(r), by the law hold_drift(r) = kappa delta(r), with its interval
    verdict, sentence: continuous, not_continuous, no_time_scale or undetermined, and the same in words
    """

    strides: tuple[int, ...]
    step_scale_arg: str | None
    n_samples: int
    length: int
    drift: tuple[float, ...]
    orders: tuple[float, ...]
    order: float
    low: float
    high: float
    hold_error: tuple[float, ...]
    input_order: float
    hold_drift: tuple[float, ...]
    kappa: float
    kappa_low: float
    kappa_high: float
    verdict: str
    sentence: str

    def to_json(self):
        """A dict of plain lists, numbers and strings; NaN becomes None."""
        return {name: _plain(value) for name, value in asdict(self).items()}


def probe(module, inputs, step_scale_arg=None, strides=STRIDES, finest_scale=1.0, batch=16):
    """Order of convergence of `module` under coarser sampling of `inputs`.

    module: maps (B, L, D) to (B, L, D') or (B, k), at any L; it is put in evaluation mode and back
    inputs: (B, L, D), array or tensor, cut to a multiple of the largest stride plus one: all strides share their ends
    step_scale_arg: the keyword that takes the step scale; None for a module without one; "auto" for `step_scale` where
        the module's signature has it
    strides: each divides the next, from 1
    finest_scale: step scale of the inputs as given; 1/8 where they are eight times finer than the model was trained on
    batch: sequences in one call

    Raises ValueError in one line for bad inputs, too few strides or samples, an output that is not a finite tensor of
    either shape, and a module that fails at some length, is random, or lacks the step argument.
    """
    strides = _checked_strides(strides)
    inputs = _checked_inputs(inputs, strides)
    argument = _step_argument(module, step_scale_arg)
    with _Evaluation(module):
        call = _Caller(module, argument, finest_scale, batch)
        outputs = [call(inputs[:, ::r], r) for r in strides]
        call.check_deterministic(inputs, outputs[0])
        ignored = argument is not None and call.ignores_scale(inputs, outputs[0])
        held = [call(_held(inputs, r), 1) for r in strides[1:]]
    common = [_at_common_times(out, r, strides[-1]) for out, r in zip(outputs, strides, strict=True)]
    with np.errstate(all="ignore"):
        hold_drift = np.stack([_rms(out - outputs[0]) / _rms(outputs[0]) for out in held], 1)
    return _judge(common, inputs.double().numpy(), hold_drift, strides, argument, ignored)


def hold_error(inputs, strides=STRIDES):
    """delta(r) of each sample and stride, (B, R): rms over lags t < r of |u_{k+t} − u_k|, over the rms of |u|.

    For unit vectors this is 2 sqrt((1 − beta) mean_{t<r}(1 − mu_t)) in the terms of the task metric. inputs (B, L, D).
    """
    inputs = np.asarray(inputs, float)
    power = (inputs**2).sum(-1).mean(1)
    squares = [np.zeros(len(inputs))]
    for lag in range(1, max(strides)):
        squares.append(((inputs[:, lag:] - inputs[:, :-lag]) ** 2).sum(-1).mean(1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack([np.sqrt(np.mean(squares[:r], 0) / power) for r in strides], 1)


def smooth_inputs(n=16, length=1025, channels=1, seed=0):
    """Smooth random sequences (n, length, channels), float32: eight random tones of half to five periods each."""
    rng = np.random.default_rng(seed)
    time = np.linspace(0, 1, length)
    frequency, phase, weight = (
        rng.uniform(0.5, 5, (n, channels, 8)),
        rng.uniform(0, 2 * np.pi, (n, channels, 8)),
        rng.standard_normal((n, channels, 8)) / 2,
    )
    waves = np.sin(2 * np.pi * frequency[..., None] * time + phase[..., None])
    return (weight[..., None] * waves).sum(2).swapaxes(1, 2).astype(np.float32)


def load_factory(spec):
    """The torch module that `spec` names: "package.module:name" or "path/to/file.py:name", from the current folder too.

    `name` is a module, or a function or class that makes one without arguments. Raises ValueError in one line.
    """
    place, _, name = spec.partition(":")
    if not place or not name:
        raise ValueError(f"cannot read {spec!r}: write module:function, such as mymodels.s4:make")
    source = _imported(place)
    if not hasattr(source, name):
        raise ValueError(f"{place} has no {name!r}: it defines {', '.join(_public(source)) or 'nothing public'}")
    made = getattr(source, name)
    if not isinstance(made, torch.nn.Module):
        if not callable(made):
            raise ValueError(f"{spec} is a {type(made).__name__}, not a torch module or a function that makes one")
        try:
            made = made()
        except Exception as error:
            raise ValueError(f"{spec}() failed: {_one_line(error)}") from error
    if not isinstance(made, torch.nn.Module):
        raise ValueError(f"{spec}() made a {type(made).__name__}, not a torch module")
    return made


def refined(inputs, factor):
    """`factor` samples for each one by linear interpolation, array (B, (L − 1) factor + 1, D); originals are kept."""
    inputs = np.asarray(inputs)
    part = (np.arange(factor) / factor)[:, None].astype(inputs.dtype)
    between = inputs[:, :-1, None] * (1 - part) + inputs[:, 1:, None] * part
    return np.concatenate([between.reshape(len(inputs), -1, inputs.shape[2]), inputs[:, -1:]], 1)


def main_result(
    spec, inputs=None, step_scale_arg="auto", strides=STRIDES, refine=True, channels=1, length=1025, n_samples=16, seed=0
):
    """The probe of the factory `spec` as a dict ready for JSON. Errors as in `probe` and `load_factory`.

    inputs (B, L, D) are taken at step scale 1. With `refine` they are interpolated, so that the module runs at its own
    step and finer, on the first `length` refined samples; without, they are thinned: its own step and coarser.
    Without inputs it runs on `smooth_inputs` at its own step and finer.
    """
    module, strides = load_factory(spec), _checked_strides(strides)
    if inputs is None:
        inputs = smooth_inputs(n_samples, length, channels, seed)
    elif refine and np.ndim(inputs) == 3:
        inputs = refined(inputs, strides[-1])[:, :length]
    finest_scale = 1 / strides[-1] if refine else 1.0
    return {"factory": spec} | probe(module, inputs, step_scale_arg, strides, finest_scale).to_json()


def _judge(outputs, inputs, hold_drift, strides, argument, ignored):
    """ProbeResult from outputs (B, M, D') at common times, finest first, and hold_drift (B, R − 1)."""
    drift = np.stack([_rms(a - b) for a, b in zip(outputs[:-1], outputs[1:], strict=True)], 1)  # (B, R − 1)
    spread = outputs[0].std()
    noise = 20 * np.finfo(np.float32).eps * max(float(_rms(outputs[0]).max()), np.finfo(np.float32).tiny)
    delta = hold_error(inputs, strides)
    resolved = (drift > noise).all(1)
    slopes = _slopes(drift[resolved], strides[1:])
    order, low, high = mean_interval(slopes)
    moves = (delta[:, 1:] > 0).all(1)
    input_order = float(np.mean(_slopes(delta[moves][:, 1:], strides[1:]))) if moves.any() else np.nan
    with np.errstate(all="ignore"):
        kappa = np.exp(mean_interval(np.log(hold_drift / delta[:, 1:]).mean(1)))
        hold = np.exp(np.log(hold_drift).mean(0))
        centre = np.exp(np.log(drift[resolved] / spread).mean(0)) if resolved.any() else drift.mean(0) / spread
        orders = np.diff(np.log(centre)) / np.diff(np.log(strides[1:]))
    exact = not (drift > noise).any()
    verdict, sentence = _verdict(order, low, high, input_order, spread <= noise, exact, argument, ignored)
    return ProbeResult(
        strides,
        argument,
        len(inputs),
        inputs.shape[1],
        tuple(centre.tolist()),
        tuple(orders.tolist()),
        order,
        low,
        high,
        tuple(delta.mean(0).tolist()),
        input_order,
        tuple(hold.tolist()),
        *kappa.tolist(),
        verdict,
        sentence,
    )


def _verdict(order, low, high, input_order, constant, exact, argument, ignored):
    """The verdict and its sentence."""
    if constant:
        return "undetermined", "The outputs hardly vary, so there is nothing to measure."
    if np.isnan(input_order) or input_order < NOT_CONTINUOUS_TO:
        return "undetermined", (
            "The inputs change at random from sample to sample, so that no model could converge on "
            "them: give smoother or more finely sampled data."
        )
    if exact:
        return "continuous", "Continuous: outputs at equal times agree to rounding at every sampling rate."
    if np.isnan(order):
        return "undetermined", "The drift at some rates is within rounding: give larger strides or rougher data."
    interval = f"order {order:.2f}" + ("" if np.isnan(low) else f", 95 % interval {low:.2f} to {high:.2f}")
    if np.isnan(low):
        low = high = order
    if low >= CONTINUOUS_FROM:
        without = "" if argument and not ignored else ", though it does not use the sampling step"
        return "continuous", f"Continuous: its outputs converge as time is sampled more finely{without} ({interval})."
    if order > NOT_CONTINUOUS_TO or high >= CONTINUOUS_FROM:
        return "undetermined", f"Undetermined: {interval}; give more sequences, or a longer range of strides."
    if argument is None:
        return "no_time_scale", f"No time scale: it takes no sampling step, and does not converge ({interval})."
    if ignored:
        return "no_time_scale", f"No time scale: it ignores {argument}, and does not converge ({interval})."
    return "not_continuous", f"Not continuous: told the sampling step, its outputs still do not converge ({interval})."


class _Caller:
    """Calls the module in batches at a step scale, and checks what it returns."""

    def __init__(self, module, argument, finest_scale, batch):
        self.module, self.argument, self.finest_scale, self.batch = module, argument, finest_scale, batch
        tensors = list(module.parameters()) if isinstance(module, torch.nn.Module) else []
        real = [p for p in tensors if p.is_floating_point()]
        self.home = dict(device=real[0].device, dtype=real[0].dtype) if real else dict(dtype=torch.float32)

    @torch.no_grad()
    def __call__(self, sequences, stride):
        """Outputs (B, L, D') or (B, 1, k), float64, of sequences (B, L, D) at `stride` times the finest step scale."""
        options = {} if self.argument is None else {self.argument: self.finest_scale * stride}
        parts = []
        for part in sequences.to(**self.home).split(self.batch):
            try:
                out = self.module(part, **options)
            except Exception as error:
                raise ValueError(
                    f"the module fails on inputs of shape {tuple(part.shape)}, stride {stride}: {_one_line(error)}"
                ) from error
            parts.append(_checked_output(out, part, stride))
        return torch.cat(parts).double().cpu().numpy()

    def check_deterministic(self, inputs, outputs):
        again = self(inputs[:1], 1)
        if np.abs(again - outputs[:1]).max() > 1e-3 * max(np.abs(outputs[:1]).max(), 1e-30):
            raise ValueError("the module gives another output for the same input: make it deterministic when evaluated")

    def ignores_scale(self, inputs, outputs):
        other = self(inputs[:1], 4)
        return bool(np.abs(other - outputs[:1]).max() <= 1e-6 * np.abs(outputs[:1]).max())


def _held(inputs, stride):
    return inputs[:, torch.arange(inputs.shape[1]) // stride * stride]


def _checked_output(out, part, stride):
    if not isinstance(out, torch.Tensor):
        raise ValueError(f"the module returned a {type(out).__name__}: it must return one tensor, (B, L, D) or (B, k)")
    sequence = out.ndim == 3 and out.shape[:2] == part.shape[:2]
    if not sequence and not (out.ndim == 2 and len(out) == len(part)):
        raise ValueError(f"the module maps {tuple(part.shape)} to {tuple(out.shape)}, not to (B, L, D) or (B, k)")
    if out.ndim == 2 and out.shape[1] == part.shape[1]:
        raise ValueError(f"the module returns one number a step, {tuple(out.shape)}: return (B, L, 1) instead")
    if out.is_complex():
        raise ValueError("the module returns complex numbers: return their real and imaginary parts as channels")
    if not torch.isfinite(out).all():
        bad = int((~torch.isfinite(out)).sum())
        raise ValueError(f"the module's output is not finite at stride {stride}: {bad} of {out.numel()} values")
    return out if sequence else out[:, None]


def _at_common_times(out, stride, largest):
    return out[:, :: largest // stride] if out.shape[1] > 1 else out


def _rms(x):
    """Root mean square over all but the first axis."""
    return np.sqrt((x**2).mean(axis=tuple(range(1, x.ndim))))


def _slopes(values, strides):
    """Slope of log values (B, R) over log strides, for each sample."""
    if not len(values):
        return np.array([])
    return np.polyfit(np.log(strides), np.log(values).T, 1)[0]


def _step_argument(module, name):
    if name is None:
        return None
    parameters = inspect.signature(module.forward if isinstance(module, torch.nn.Module) else module).parameters
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if name == "auto":
        return "step_scale" if "step_scale" in parameters else None
    if name not in parameters and not anything:
        raise ValueError(f"the module takes no argument {name!r}: its forward has {', '.join(parameters) or 'none'}")
    return name


def _checked_strides(strides):
    strides = tuple(int(r) for r in strides)
    if len(strides) < 3:
        raise ValueError(f"an order needs at least three strides, not {len(strides)}: give for example 1, 2, 4, 8")
    nested = all(b > a and b % a == 0 for a, b in zip(strides[:-1], strides[1:], strict=True))
    if strides[0] != 1 or not nested:
        raise ValueError(f"strides {strides} must start at 1 and each divide the next")
    return strides


def _checked_inputs(inputs, strides):
    inputs = torch.as_tensor(inputs)
    if inputs.ndim != 3 or not len(inputs) or not inputs.shape[2]:
        raise ValueError(f"inputs must be (B, L, D), not {tuple(inputs.shape)}")
    shortest = FEWEST_COARSE_SAMPLES * strides[-1] + 1
    if inputs.shape[1] < shortest:
        raise ValueError(
            f"sequences of {inputs.shape[1]} samples are too short for stride {strides[-1]}: "
            f"give at least {shortest} samples, or smaller strides"
        )
    if not torch.isfinite(inputs).all():
        raise ValueError("inputs hold NaN or infinity: fill or drop them first")
    return inputs[:, : (inputs.shape[1] - 1) // strides[-1] * strides[-1] + 1].detach().cpu()


class _Evaluation:
    """The module in evaluation mode, and back."""

    def __init__(self, module):
        self.modules = [(m, m.training) for m in module.modules()] if isinstance(module, torch.nn.Module) else []

    def __enter__(self):
        for module, _ in self.modules:
            module.training = False

    def __exit__(self, *_):
        for module, training in self.modules:
            module.training = training


def _imported(place):
    """The Python module of a dotted name or a .py file; its own folder and the current one are importable meanwhile."""
    file = Path(place) if place.endswith(".py") else None
    if file and not file.is_file():
        raise ValueError(f"cannot import {place}: there is no such file in {Path.cwd()}")
    before = list(sys.path)
    sys.path[:0] = [str(Path.cwd())] + ([str(file.resolve().parent)] if file else [])
    try:
        if not file:
            return importlib.import_module(place)
        description = importlib.util.spec_from_file_location(f"probed_{file.stem}", file)
        source = sys.modules[description.name] = importlib.util.module_from_spec(description)
        description.loader.exec_module(source)
        return source
    except (Exception, SystemExit) as error:
        raise ValueError(f"cannot import {place} from {Path.cwd()}: {_one_line(error)}") from error
    finally:
        sys.path[:] = before


def _public(source):
    own = getattr(source, "__name__", None)
    return [
        name for name, value in vars(source).items() if not name.startswith("_") and getattr(value, "__module__", None) == own
    ]


def _one_line(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _plain(value):
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return float(value) if np.isfinite(value) else None
    return value
