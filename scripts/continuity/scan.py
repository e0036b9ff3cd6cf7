"""The selective scan: a diagonal state space whose step, input and output maps change with time (Gu & Dao 2023, arXiv
2312.00752).

    h_k = a(delta_k A) h_{k-1} + b(delta_k A) delta_k B_k u_k,    y_k = C_k h_k + D u_k

`scan_plain` writes the recurrence in torch. `selective_scan` picks the compiled loop of `scan_kernels` where it can:
one pass forward that keeps the state at every 32nd step only, and one pass backward that recomputes the states between.
"""

import torch

from continuity import native
from continuity.discretization import check_rule, coefficients, phi1


def backend(u: torch.Tensor, A: torch.Tensor) -> str:
    """Name of the computation `selective_scan` uses for such inputs: "numba" or "torch"."""
    compiled = native.HAVE_NUMBA and u.device.type == "cpu" and not A.is_complex()
    return "numba" if compiled else "torch"


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
    autocast does not reach it; float64 input gives float64. Real A on a CPU runs compiled where numba is installed
    (`backend`). Raises ValueError for shapes that do not fit and for an unknown rule.
    """
    check_rule(discretization, who="selective_scan")
    check_shapes(u, delta, A, B, C, D)
    with torch.autocast(u.device.type, enabled=False):
        dtype = torch.promote_types(torch.promote_types(u.dtype, A.dtype), torch.float32)
        real = torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32
        u, delta = u.to(real), delta.to(real)
        A, B, C = A.to(dtype), B.to(dtype), C.to(dtype)
        if backend(u, A) == "numba":
            from continuity.scan_kernels import KERNEL_RULES, compiled_scan

            y, last = compiled_scan(u, delta, A, B, C, KERNEL_RULES[discretization], state)
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
