"""The selective scan: a diagonal state space whose step, input and output maps change with time (Gu & Dao 2023, arXiv
2312.00752).

    h_k = a(delta_k A) h_{k-1} + b(delta_k A) delta_k B_k u_k,    y_k = C_k h_k + D u_k

`scan_plain` writes the recurrence in torch. `selective_scan` picks the compiled loop of `scan_kernels` (CPU) or
`scan_triton` (GPU) where it can: one pass forward that keeps the state at every 32nd step only, and one pass backward that
recomputes the states between.
"""

import warnings
from functools import cache
from importlib.util import find_spec

import torch

from continuity import native
from continuity.discretization import check_rule, coefficients, phi1


def backend(u: torch.Tensor, A: torch.Tensor) -> str:
    """Name of the computation `selective_scan` uses for such inputs: "numba", "triton" or "torch"."""
    if A.is_complex():
        return "torch"
    if u.device.type == "cpu":
        return "numba" if native.HAVE_NUMBA else "torch"
    return "triton" if u.device.type == "cuda" and triton_agrees() else "torch"


@cache
def triton_agrees(device: str = "cuda") -> bool:
    """Whether the Triton kernels run on `device` and give, with their gradients, what `scan_plain` gives; tried once, on
    a small scan. Warns, and the plain recurrence runs instead, where Triton is there but fails.
    """
    if find_spec("triton") is None:
        return False
    try:
        from continuity.scan_triton import triton_scan

        draw = torch.Generator().manual_seed(0)
        shapes = ((2, 37, 5), (2, 37, 5), (5, 3), (2, 37, 3), (2, 37, 3))
        values = [torch.rand(shape, generator=draw).to(device) for shape in shapes]
        values[2] = -2 * values[2]
        found = [_with_gradients(scan, values) for scan in (triton_scan, scan_plain)]
        apart = [float((a - b).abs().max() / b.abs().max()) for a, b in zip(*found, strict=True)]
        if max(apart) < 1e-3:
            return True
        reason = f"it differs from the plain recurrence by {max(apart):.1g} of the largest value"
    except Exception as error:  # whatever a compiler or a driver raises
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
    warnings.warn(f"the Triton scan is not used, the plain recurrence runs instead: {reason}", stacklevel=2)
    return False


def _with_gradients(scan, values):
    """Output of a scan and the gradients of its sum of squares."""
    values = [value.detach().requires_grad_() for value in values]
    y = scan(*values)[0]
    return [y.detach(), *torch.autograd.grad(y.square().sum(), values)]


def check_shapes(u, delta, A, B, C, D) -> None:
    """ValueError with one line where the shapes of a scan do not fit together."""
    if u.ndim != 3 or A.ndim != 2:
        raise ValueError(f"scan needs u (B, L, D) and A (D, N), got {tuple(u.shape)} and {tuple(A.shape)}")
    (batch, length, channels), states = u.shape, A.shape[1]
    if length == 0:
        raise ValueError("scan needs at least one time step, got length 0")
    wanted = {
        "delta": (batch, length, channels),
        "A": (channels, states),
        "B": (batch, length, states),
        "C": (batch, length, states),
        "D": (channels,),
    }
    for name, value in (("delta", delta), ("A", A), ("B", B), ("C", C), ("D", D)):
        if value is not None and tuple(value.shape) != wanted[name]:
            raise ValueError(f"scan needs {name} of shape {wanted[name]} for u {tuple(u.shape)}, got {tuple(value.shape)}")


def selective_scan(u, delta, A, B, C, D=None, discretization="zoh", state=None, return_state=False):
    """Selective scan with zero or given initial state.

    Args: u, delta (B, L, D); A (D, N); B, C (B, L, N); D (D,) or None; discretization zoh, bilinear, euler or averaged;
    state (B, D, N) before the first step. With `averaged` the first sample leaves the state as it is.
    Returns y (B, L, D), and the last state (B, D, N) with `return_state`. Computed in float32 at least, so that
    autocast does not reach it; float64 input gives float64. Real A runs compiled, on a CPU by numba and on a GPU by
    Triton, where those are installed (`backend`). Raises ValueError for shapes that do not fit and for an unknown rule.
    """
    check_rule(discretization, who="selective_scan")
    check_shapes(u, delta, A, B, C, D)
    with torch.autocast(u.device.type, enabled=False):
        dtype = torch.promote_types(torch.promote_types(u.dtype, A.dtype), torch.float32)
        real = torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32
        u, delta = u.to(real), delta.to(real)
        A, B, C = A.to(dtype), B.to(dtype), C.to(dtype)
        kernel = backend(u, A)
        if kernel == "numba":
            from continuity.scan_kernels import KERNEL_RULES, compiled_scan

            y, last = compiled_scan(u, delta, A, B, C, KERNEL_RULES[discretization], state)
        elif kernel == "triton":
            from continuity.scan_triton import triton_scan

            y, last = triton_scan(u, delta, A, B, C, discretization, state)
        else:
            y, last = scan_plain(u, delta, A, B, C, discretization, state)
        if D is not None:
            y = y + D.to(real) * u
    return (y, last) if return_state else y


def scan_plain(u, delta, A, B, C, discretization="zoh", state=None):
    """The recurrence of the module's head step by step: (y, last state) without D. Complex A gives 2 Re(C h)."""
    x = (delta * u).unsqueeze(-1) * B.unsqueeze(2)  # (B, L, D, N)
    step = delta
    if discretization == "averaged":
        x = torch.cat([torch.zeros_like(x[:, :1]), (x[:, :-1] + x[:, 1:]) / 2], dim=1)
        step = torch.cat([torch.zeros_like(delta[:, :1]), (delta[:, :-1] + delta[:, 1:]) / 2], dim=1)
    a, _ = coefficients(step.unsqueeze(-1), A, discretization)  # (B, L, D, N)
    return run(a, unit_gain(step.unsqueeze(-1) * A, discretization) * x, C, state)


def driven(u, delta, averaged):
    """(step, s) of a compiled scan, whose input is B s: `averaged` takes half of this sample's and half of the last one's,
    over the mean of the two steps, the first of which is 0.
    """
    if not averaged:
        return delta, delta * u
    return torch.cat([torch.zeros_like(delta[:, :1]), (delta[:, :-1] + delta[:, 1:]) / 2], dim=1), delta * u / 2


def run(a, v, C, state=None):
    """(y, last state) of h_k = a_k h_{k-1} + v_k, y_k = C_k h_k; a and v (B, L, D, N), C (B, L, N)."""
    h = v.new_zeros(v[:, 0].shape) if state is None else state.to(v.dtype)
    states = []
    for a_k, v_k in zip(a.unbind(1), v.unbind(1), strict=True):
        h = a_k * h + v_k
        states.append(h)
    y = (torch.stack(states, 1) * C.unsqueeze(2)).sum(-1)
    return (2 * y.real if y.is_complex() else y), h


def unit_gain(z, discretization):
    """b / delta at z = delta A: the gain on an input that already carries its own delta; finite at delta = 0."""
    if discretization == "bilinear":
        return 1 / (1 - z / 2)
    return torch.ones_like(z) if discretization == "euler" else phi1(z)
