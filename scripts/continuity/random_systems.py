"""Random state-space systems and inputs of the convergence experiment (numerical_experiment.m of arXiv 2605.08539).

Every system is x'(t) = Delta(u) (A x + f(u)), y = C(u) x, x(0) = 0. A new one is a subclass of `System`.
"""

import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.polynomial import chebyshev

from continuity.bounds import s4_bound, s6_bound, switch_bound
from continuity.flow import flow_of
from continuity.layers import hippo

BASE_DELTA = 0.01
DEGREE = 20


class Signal:
    """u(t) = sum_k c_k T_k(2 t / horizon − 1) for t in [0, horizon]; coefficients (cases, H, degree + 1)."""

    def __init__(self, coefficients, horizon):
        self.coefficients = coefficients
        self.horizon = horizon

    def __call__(self, times):
        """Values (cases, M, H) at times (M,)."""
        return self._values(self.coefficients, times)

    @property
    def sup(self):
        """sup |u| over the horizon, (cases,), a hard upper bound within .1 % (Ehlich and Zeller 1964)."""
        return self._sup(self.coefficients)

    @property
    def lipschitz(self):
        """sup |u'| over the horizon, (cases,), a hard upper bound within .1 %."""
        slope = chebyshev.chebder(np.moveaxis(self.coefficients, -1, 0)) * 2 / self.horizon
        return self._sup(np.moveaxis(slope, 0, -1))

    def zeros(self):
        """Times where the first channel is zero, (cases, R), padded with the horizon."""
        found = []
        for c in self.coefficients[:, 0]:
            roots = chebyshev.chebroots(c)
            roots = roots[np.abs(roots.imag) < 1e-10].real
            found.append(np.sort((roots[np.abs(roots) < 1] + 1) * self.horizon / 2))
        width = max(map(len, found))
        return np.array([np.pad(r, (0, width - len(r)), constant_values=self.horizon) for r in found])

    def take(self, index):
        return Signal(self.coefficients[index], self.horizon)

    def _values(self, coefficients, times):
        cases, channels, terms = coefficients.shape
        polynomials = chebyshev.chebvander(2 * times / self.horizon - 1, terms - 1)  # (M, degree + 1)
        values = coefficients.reshape(-1, terms) @ polynomials.T
        return values.reshape(cases, channels, -1).swapaxes(1, 2)

    def _sup(self, coefficients):
        degree = 2 * max(coefficients.shape[-1] - 1, 1)  # of |u|^2
        n = 32 * degree
        nodes = np.cos((np.arange(n) + 0.5) * np.pi / n)
        values = self._values(coefficients, (nodes + 1) * self.horizon / 2)
        squares = (values**2).sum(-1).max(1)
        return np.sqrt(squares / np.cos(degree * np.pi / (2 * n)))


@dataclass(frozen=True)
class Cases:
    """Random parameters repeated over input scales; leading axis cases = len(scales) * n, scale-major.

    A (N, N); B (cases, N, 1); C (cases, 1, N); weight and bias of the step Delta(u) = softplus(weight u + bias).
    Each draw has a generator of its own, so that more draws leave the first ones as they were.
    """

    A: np.ndarray
    B: np.ndarray
    C: np.ndarray
    weight: np.ndarray
    bias: float
    coefficients: np.ndarray
    scale: np.ndarray
    draw: np.ndarray
    seed: int
    horizon: float

    @classmethod
    def random(cls, n, scales, state=8, seed=37, horizon=1.0):
        rows = []
        for draw in range(n):
            rng = np.random.default_rng((seed, draw))
            b, c = rng.standard_normal((2, state)) / np.sqrt(state)
            rows.append((b, c, rng.standard_normal(), random_coefficients(rng)))
        b, c, weight, coefficients = (np.array(x) for x in zip(*rows, strict=True))
        scale = np.repeat(np.asarray(scales, float), n)
        draw = np.tile(np.arange(n), len(scales))
        return cls(
            A=hippo.legs(state)[0].numpy(),
            B=b[draw][:, :, None],
            C=c[draw][:, None, :],
            weight=weight[draw],
            bias=float(np.log(np.expm1(BASE_DELTA))),
            coefficients=scale[:, None] * coefficients[draw],
            scale=scale,
            draw=draw,
            seed=seed,
            horizon=horizon,
        )


def random_coefficients(rng):
    """4 c_k of the published input at scale 1: c_0 ~ .25 N(0, 1), c_k ~ .35 N(0, 1) / k, k up to 20."""
    c = rng.standard_normal(DEGREE + 1)
    return 4 * np.concatenate([0.25 * c[:1], 0.35 * c[1:] / np.arange(1, DEGREE + 1)])


class System:
    """x' = gate(u) (A x + drive(u)), y = Re(readout(u) x), x(0) = 0, for many cases at once.

    A subclass sets `A` (1 or cases, N, N), `B` (cases, N, H), `C` (cases, P, N) and `signal` in its constructor, and
    overrides what differs. Every array attribute has a leading axis of length cases, or one where all cases share it.
    `gate` is (cases, M), or (cases, 1) where it is constant; `breaks` are times where it jumps, (cases, R).
    """

    def __init__(self, cases):
        self.A = cases.A[None]
        self.B = cases.B
        self.C = cases.C
        self.signal = Signal(cases.coefficients[:, None, :], cases.horizon)

    @cached_property
    def flow(self):
        return flow_of(self.A)

    def gate(self, u):
        raise NotImplementedError

    def drive(self, u):
        """f(u), (cases, M, N)."""
        return u @ self.B.swapaxes(1, 2)

    def readout(self, u):
        """C(u), (cases, M or 1, P, N)."""
        return self.C[:, None]

    def breaks(self):
        return None

    def bound(self, kind, tau, method, read):
        """log10 of the proved bound on the largest absolute error, (cases,); NaN where nothing is proved."""
        return np.full(len(self.C), np.nan)

    def take(self, index):
        """The same system for the cases in `index` only."""
        part = copy.copy(self)
        vars(part).pop("constants", None)
        n = len(self.C)
        for name, value in list(vars(part).items()):
            if hasattr(value, "take") and not isinstance(value, np.ndarray):
                setattr(part, name, value.take(index))
            elif isinstance(value, np.ndarray) and len(value) == n and n > 1:
                setattr(part, name, value[index])
        return part

    @cached_property
    def constants(self):
        """What the bounds of all systems read: norms, logarithmic norm, sup |u|, sup |u'|, each (1 or cases,)."""
        symmetric = (self.A + self.A.conj().swapaxes(1, 2)) / 2
        return dict(
            norm_a=np.linalg.norm(self.A, 2, (1, 2)),
            log_norm=np.linalg.eigvalsh(symmetric)[:, -1],
            norm_b=np.linalg.norm(self.B, 2, (1, 2)),
            norm_c=np.linalg.norm(self.C, 2, (1, 2)),
            lipschitz=self.signal.lipschitz,
            amplitude=self.signal.sup,
            horizon=self.signal.horizon,
        )


class S4(System):
    """Linear and time-invariant: Delta = .01, f = B u, C(u) = C."""

    def __init__(self, cases):
        super().__init__(cases)
        self.delta = np.full((len(self.C), 1), BASE_DELTA)

    def gate(self, u):
        return self.delta

    def bound(self, kind, tau, method, read):
        return s4_bound(**self.constants, delta=self.delta[:, 0], tau=tau, method=method, read=read, kind=kind)


class S6(System):
    """Selective: Delta(u) = softplus(w u + b), f = B u^2, C(u) = u C."""

    def __init__(self, cases):
        super().__init__(cases)
        self.weight = cases.weight[:, None]
        self.bias = cases.bias

    def gate(self, u):
        return np.logaddexp(0.0, self.weight * u[..., 0] + self.bias)

    def drive(self, u):
        return u**2 @ self.B.swapaxes(1, 2)

    def readout(self, u):
        return u[..., None] * self.C[:, None]

    def mean_gate(self):
        """Mean of Delta(u(t)) over the horizon, (cases, 1)."""
        times = (np.arange(4096) + 0.5) / 4096 * self.signal.horizon
        return self.gate(self.signal(times)).mean(1, keepdims=True)

    def bound(self, kind, tau, method, read):
        weight = np.abs(self.weight[:, 0])
        largest = np.logaddexp(0.0, weight * self.signal.sup + self.bias)
        return s6_bound(**self.constants, weight=weight, max_delta=largest, tau=tau, method=method, read=read, kind=kind)


class MatchedS4(S4):
    """Control: S4 at the mean Delta of the S6 of the same draw and input, which isolates speed."""

    def __init__(self, cases):
        super().__init__(cases)
        self.delta = S6(cases).mean_gate()


class FixedS6(S6):
    """Control: S6 with its products B u^2 and u C at fixed Delta (its own mean), which isolates the products."""

    def __init__(self, cases):
        super().__init__(cases)
        self.delta = S6(cases).mean_gate()
        self.weight = np.zeros_like(self.weight)

    def gate(self, u):
        return self.delta

    def bound(self, kind, tau, method, read):
        return s6_bound(**self.constants, weight=0.0, max_delta=self.delta[:, 0], tau=tau, method=method, read=read, kind=kind)


class SwitchedS6(S6):
    """Discontinuous gate: Delta is .01 where u <= 0, and there where u > 0 the S6's mean Delta plus .01; C(u) = u C."""

    def __init__(self, cases):
        super().__init__(cases)
        self.high = BASE_DELTA + S6(cases).mean_gate()
        self.switches = self.signal.zeros()

    def gate(self, u):
        return np.where(u[..., 0] > 0, self.high, BASE_DELTA)

    def breaks(self):
        return self.switches

    def bound(self, kind, tau, method, read):
        jumps = (self.switches < self.signal.horizon).sum(1)
        return switch_bound(
            **self.constants, jumps=jumps, low=BASE_DELTA, high=self.high[:, 0], tau=tau, method=method, read=read, kind=kind
        )


class S5(System):
    """Diagonal and multiple-input: N/2 complex modes of the normal HiPPO matrix, a step Delta per mode, H = P = 4.

    x_n' = Delta_n (lambda_n x_n + (B u)_n), y = 2 Re(C x) (Smith et al. 2023, arXiv 2208.04933).
    Delta is log-uniform on [.001, .1]; it is part of A and B here, and the gate is 1. The first channel is S4's input.
    """

    width = 4

    def __init__(self, cases):
        state = len(cases.A)
        if state % 2:
            raise ValueError(f"s5 holds conjugate pairs: state must be even, not {state}")
        frequencies, basis = (x.numpy() for x in hippo.normal_part(state)[:2])
        rates = -0.5 + 1j * frequencies
        rows = [self._row(cases, draw, rates, basis) for draw in range(cases.draw.max() + 1)]
        a, b, c, extra = (np.array(x)[cases.draw] for x in zip(*rows, strict=True))
        self.A, self.B, self.C = a, b, c
        coefficients = np.concatenate([cases.coefficients[:, None], cases.scale[:, None, None] * extra], 1)
        self.signal = Signal(coefficients, cases.horizon)

    def _row(self, cases, draw, rates, basis):
        rng = np.random.default_rng((cases.seed, draw, 5))
        state = len(cases.A)
        delta = np.exp(rng.uniform(np.log(1e-3), np.log(1e-1), len(rates)))
        b = basis.conj().T @ rng.standard_normal((state, self.width)) / np.sqrt(state)
        c = 2 * rng.standard_normal((self.width, state)) @ basis / np.sqrt(state)
        extra = [random_coefficients(rng) for _ in range(self.width - 1)]
        return np.diag(delta * rates), delta[:, None] * b, c, extra

    def gate(self, u):
        return np.ones((len(self.C), 1))

    def bound(self, kind, tau, method, read):
        return s4_bound(**self.constants, delta=1.0, tau=tau, method=method, read=read, kind=kind)


SYSTEMS = {"s4": S4, "s4_matched": MatchedS4, "s6_fixed": FixedS6, "s6": S6, "s5": S5, "s6_switched": SwitchedS6}
