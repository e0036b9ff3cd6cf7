"""Reference trajectories of x' = Delta(u)(A x + f(u)), to a stated tolerance.

With theta(t) the integral of Delta, x(b) = e^{A (theta_b − theta_a)} x(a) + integral of e^{A (theta_b − theta(s))} Delta(s) f(s) ds.
The integral is taken by Gauss-Legendre quadrature with six nodes a piece (order 12 for smooth input, no stability limit), theta at
the nodes by collocation. Pieces are halved until two levels agree; they end where the gate jumps.
"""

from dataclasses import dataclass

import numpy as np

NODES = 6
TOLERANCE = 1e-11
MOST_HALVINGS = 7
CHUNK = 2**19


@dataclass(frozen=True)
class Trajectory:
    """States (cases, K + 1, N), elapsed theta (cases, K + 1), and the error estimate (cases,).

    `error` is the largest difference between the last two levels, relative to the largest output.
    """

    times: np.ndarray
    states: np.ndarray
    theta: np.ndarray
    error: np.ndarray


def integrate(system, times, tolerance=TOLERANCE):
    """Trajectory of `system` at `times` (K + 1,), equally spaced from 0, converged to `tolerance` where it can be.

    A case that has not converged after seven halvings keeps its last level and an `error` above the tolerance.
    """
    states, theta = _level(system, times, 1)
    error = np.full(len(states), np.inf)
    pieces, active = 1, np.arange(len(states))
    for _ in range(MOST_HALVINGS):
        pieces *= 2
        part = system.take(active)
        finer, finer_theta = _level(part, times, pieces)
        change = observe(part, times, finer - states[active])
        size = observe(part, times, finer)
        error[active] = np.abs(change).max((1, 2)) / np.maximum(np.abs(size).max((1, 2)), np.finfo(float).tiny)
        states[active], theta[active] = finer, finer_theta
        active = active[~(error[active] <= tolerance)]
        if not len(active):
            break
    return Trajectory(times, states, theta, error)


def observe(system, times, states):
    """Outputs (cases, M, P) of states (cases, M, N) at `times` (M,)."""
    return read_out(system.readout(system.signal(times)), states)


def read_out(readout, states):
    """Re(C x): readout (cases, M or 1, P, N), states (cases, M, N) -> (cases, M, P)."""
    return np.real(readout @ states[..., None])[..., 0]


def scan(increments, forcing, start=None):
    """x_{k+1} = x_k + increments_k x_k + forcing_k: (cases, K or 1, N, N), (cases, K, N) -> (cases, K + 1, N).

    start: x_0 (cases, N), 0 if None.
    """
    cases, steps, n = forcing.shape
    increments, forcing = np.moveaxis(increments, 1, 0), np.ascontiguousarray(np.moveaxis(forcing, 1, 0))
    changing = len(increments) > 1
    states = np.zeros((steps + 1, cases, n), np.result_type(increments, forcing))
    states[0] = 0 if start is None else start
    for k in range(steps):
        change = np.einsum("cij,cj->ci", increments[k if changing else 0], states[k])
        change += forcing[k]
        np.add(states[k], change, out=states[k + 1])
    return states.swapaxes(0, 1)


def _level(system, times, pieces):
    """States and theta at `times` with every interval cut into `pieces`, and at the system's breaks."""
    edges, at = _edges(times, pieces, system.breaks())
    cases, n = len(system.C), system.A.shape[-1]
    steps = max(1, CHUNK // (cases * NODES * n))
    states, turned = [np.zeros((cases, 1, n))], [np.zeros((cases, 1))]
    for start in range(0, edges.shape[-1] - 1, steps):
        increments, forcing, turn = _propagators(system, edges[:, start:start + steps + 1])
        states.append(scan(increments, forcing, states[-1][:, -1])[:, 1:])
        turned.append(np.broadcast_to(turn, forcing.shape[:2]))
    states, theta = np.concatenate(states, 1), np.cumsum(np.concatenate(turned, 1), 1)
    return np.take_along_axis(states, at[:, :, None], 1), np.take_along_axis(theta, at, 1)


def _edges(times, pieces, breaks):
    """Ends of the pieces (1 or cases, E), and where `times` lie among them (cases or 1, K + 1)."""
    fine = np.linspace(times[0], times[-1], (len(times) - 1) * pieces + 1)
    at = np.arange(len(times)) * pieces
    if breaks is None:
        return fine[None], at[None]
    together = np.concatenate([np.broadcast_to(fine, (len(breaks), len(fine))), breaks], 1)
    order = np.argsort(together, 1, kind="stable")
    return np.take_along_axis(together, order, 1), np.argsort(order, 1)[:, at]


def _propagators(system, edges):
    """x -> x + increment x + forcing over each piece, and theta's increase: (…, M or 1, …), (cases, M, N), (cases, M or 1)."""
    nodes, weights, collocation = _gauss()
    length = np.diff(edges)                                                # (1 or cases, M)
    times = (edges[:, :-1, None] + length[..., None] * nodes).reshape(len(edges), -1)
    u = system.signal(times)
    shape = (len(system.C), length.shape[1], NODES)
    gate, drive = system.gate(u), system.drive(u).reshape(shape + (-1,))
    uniform = np.ptp(length) <= 1e-9 * length.max()
    if gate.shape[1] == 1 and uniform:
        gate, length = gate[:, :, None] * np.ones(NODES), length[:1, :1]   # one map serves every piece
    else:
        gate = np.broadcast_to(gate, (shape[0], shape[1] * NODES)).reshape(shape)
    whole = length * (gate @ weights)                                      # (cases, M or 1)
    left = whole[..., None] - length[..., None] * (gate @ collocation.T)   # theta still to go at each node
    weighted = (length[..., None] * weights * gate)[..., None] * drive     # (cases, M, NODES, N)
    return system.flow.increment(whole), system.flow.weighted_sum(left, weighted), whole


def _gauss():
    """Gauss-Legendre nodes and weights on [0, 1], and the matrix of integrals from 0 to each node."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    nodes, weights = (nodes + 1) / 2, weights / 2
    powers = np.arange(1, NODES + 1)
    vandermonde = nodes[:, None] ** (powers - 1)
    return nodes, weights, (nodes[:, None] ** powers / powers) @ np.linalg.inv(vandermonde)

