"""What every sequence layer shares: real lengths, the second direction, the step rule, streaming."""

import inspect
import math

import torch
from torch import nn

from continuity.discretization import check_step_rule


class _LayerType(type):
    """Makes `bidirectional` an option of every layer, and an unknown option one clear line."""

    def __call__(cls, d_model, *, bidirectional=False, **options):
        known = list(inspect.signature(cls.__init__).parameters)[2:]
        unknown = [name for name in options if name not in known]
        if unknown:
            reason = " (it has no time scale to discretize)" if "discretization" in unknown else ""
            raise ValueError(
                f"{cls.__name__} has no option {', '.join(map(repr, unknown))}{reason}: "
                f"its options are {', '.join([*known, 'bidirectional'])}"
            )
        check_count("d_model", d_model)
        layer = super().__call__(d_model, **options)
        if bidirectional and not cls.two_sided:
            layer.opposite = super().__call__(d_model, **options)
        return layer


class SequenceLayer(nn.Module, metaclass=_LayerType):
    """(B, L, D) -> (B, L, D).

    forward(u, step_scale=1.0, lengths=None): `step_scale` is the sampling step relative to the one trained on;
    `lengths` (B,) are the real lengths, past which input is ignored, whatever it holds, and output is 0. A subclass
    writes `mix`, and, if it is a recurrence, `initial_state` and `step`. With `bidirectional=True` a second layer of
    the same kind runs from the end of each real sequence and sees only what lies strictly ahead; both outputs are
    added.

    Class attributes: `continuous`, whether step_scale means anything by default; `dynamics`, the names of the
    parameters that make up A, B and Delta (own learning rate, no weight decay); `needs_mixing`, whether the layer is
    linear in time and channels apart, so that a network adds a gated linear map behind it; `two_sided`, whether it
    sees ahead anyway.

    Raises ValueError for an input that is not (B, L, d_model) real floating point, L = 0, a step_scale that is not a
    positive number, lengths outside 1 … L.
    """

    continuous = False
    dynamics: tuple[str, ...] = ()
    needs_mixing = False
    two_sided = False

    def __init__(self, d_model: int, step_rule: str = "delta"):
        super().__init__()
        self.d_model = d_model
        self.step_rule = check_step_rule(step_rule)
        self.opposite = None

    def forward(self, u, step_scale=1.0, lengths=None):
        self._check(u, step_scale)
        inside = real_steps(lengths, u)
        u = keep(u, inside)
        y = self.mix(u, self.scale(step_scale), lengths)
        if self.opposite is not None:
            y = y + self._from_the_end(u, step_scale, lengths)
        return keep(y, inside)

    def mix(self, u, step_scale, lengths):
        """The layer itself on clean input; causal unless `two_sided`."""
        raise NotImplementedError(f"{type(self).__name__} must define mix(u, step_scale, lengths)")

    def initial_state(self, batch: int):
        """State before the first sample, for `step`."""
        raise ValueError(f"{type(self).__name__} has no recurrent form")

    def step(self, u, state, step_scale=1.0):
        """One sample u (B, D) -> (y (B, D), next state)."""
        raise ValueError(f"{type(self).__name__} has no recurrent form")

    def recurrence(self, u, step_scale=1.0):
        """The forward direction on (B, L, D), one `step` at a time."""
        self._check(u, step_scale)
        state, outputs = self.initial_state(u.shape[0]), []
        for sample in u.unbind(1):
            y, state = self.step(sample, state, step_scale)
            outputs.append(y)
        return torch.stack(outputs, 1)

    def scale(self, step_scale: float) -> float:
        return 1.0 if self.step_rule == "none" else float(step_scale)

    def _from_the_end(self, u, step_scale, lengths):
        order = reversal(lengths, u)
        ahead = torch.gather(u, 1, order.expand_as(u))
        ahead = torch.cat([torch.zeros_like(ahead[:, :1]), ahead[:, :-1]], 1)
        y = self.opposite.mix(ahead, self.scale(step_scale), lengths)
        return torch.gather(y, 1, order.expand_as(y))

    def _check(self, u, step_scale):
        if u.ndim != 3 or u.shape[2] != self.d_model or not u.is_floating_point():
            raise ValueError(
                f"{type(self).__name__} needs a real input (batch, length, {self.d_model}), got {tuple(u.shape)} of {u.dtype}"
            )
        if u.shape[1] == 0:
            raise ValueError(f"{type(self).__name__} needs at least one time step, got length 0")
        if not (math.isfinite(step_scale) and step_scale > 0):
            raise ValueError(f"step_scale must be a positive number, got {step_scale}")


def real_steps(lengths, u):
    """(B, L, 1) boolean, True inside the real lengths; None where all steps are real."""
    if lengths is None:
        return None
    lengths = torch.as_tensor(lengths, device=u.device)
    if lengths.shape != u.shape[:1] or lengths.is_floating_point():
        found = f"{tuple(lengths.shape)} of {lengths.dtype}"
        raise ValueError(f"lengths must be {u.shape[0]} whole numbers, one a sequence, got {found}")
    if int(lengths.min()) < 1 or int(lengths.max()) > u.shape[1]:
        raise ValueError(f"lengths must lie in 1 … {u.shape[1]}, got {int(lengths.min())} … {int(lengths.max())}")
    return (torch.arange(u.shape[1], device=u.device) < lengths[:, None]).unsqueeze(-1)


def keep(u, inside):
    """u inside, 0 outside; no value and no gradient passes from outside."""
    return u if inside is None else torch.where(inside, u, torch.zeros_like(u))


def reversal(lengths, u):
    """(B, L, 1) indices that reverse each sequence within its real length."""
    steps = torch.arange(u.shape[1], device=u.device).expand(u.shape[0], -1)
    if lengths is None:
        return steps.flip(1).unsqueeze(-1)
    last = torch.as_tensor(lengths, device=u.device)[:, None] - 1
    return torch.where(steps <= last, last - steps, steps).unsqueeze(-1)


def check_count(name: str, value, multiple: int = 1) -> int:
    """ValueError unless `value` is a positive whole number, divisible by `multiple`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive whole number, got {value!r}")
    if value % multiple:
        raise ValueError(f"{name} must be divisible by {multiple}, got {value}")
    return value


def check_heads(d: int, n_heads: int, what: str = "d_model") -> int:
    """Channels a head; ValueError unless n_heads divides d."""
    check_count("n_heads", n_heads)
    if d % n_heads:
        raise ValueError(f"n_heads must divide {what}: {n_heads} does not divide {d}")
    return d // n_heads
