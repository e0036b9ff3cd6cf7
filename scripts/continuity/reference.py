"""Reference trajectories of x' = Delta(u)(A x + f(u)), to a stated tolerance.

With theta(t) the integral of Delta,

    x(b) = e^{A (theta_b − theta_a)} x(a) + integral over [a, b] of e^{A (theta_b − theta(s))} Delta(s) f(s) ds,

taken by Gauss-Legendre quadrature with six nodes a piece (order 12 where the input is smooth, no stability limit),
theta at the nodes by collocation. Pieces are halved until two levels agree; they end where the gate jumps.
"""

from dataclasses import dataclass

import numpy as np

NODES = 6
TOLERANCE = 1e-11
MOST_HALVINGS = 8
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

    The first level has pieces of two intervals, the next of one, then halves. A case that has not converged on the last
    level keeps it, and an `error` above the tolerance.
    """
    stride = 2 if len(times) % 2 else 1
    coarse = _level(system, times[::stride], 1)[0]
    cases = len(coarse)
    states = np.zeros((cases, len(times), coarse.shape[-1]), coarse.dtype)
    theta = np.zeros((cases, len(times)))
    pieces, active, error = 2 // stride, np.arange(cases), np.full(cases, np.inf)
    for _ in range(MOST_HALVINGS):
        part = system.take(active)
        finer, theta[active] = _level(part, times, pieces)
        change = observe(part, times[::stride], finer[:, ::stride] - coarse)
        size = observe(part, times, finer)
        error[active] = np.abs(change).max((1, 2)) / np.maximum(np.abs(size).max((1, 2)), np.finfo(float).tiny)
        states[active] = finer
        unfinished = ~(error[active] <= tolerance)
        active, coarse, stride, pieces = active[unfinished], finer[unfinished], 1, 2 * pieces
        if not len(active):
            break
    return Trajectory(times, states, theta, error)


def observe(system, times, states):
    """Outputs (cases, M, P) of states (cases, M, N) at `times` (M,)."""
    return read_out(system.readout(system.signal(times)), states)


def read_out(readout, states):
    """Re(C x): readout (cases, M or 1, P, N), states (cases, M, N) -> (cases, M, P)."""
    if readout.shape[1] == 1:
        return np.real(states @ readout[:, 0].swapaxes(1, 2))
    return np.real(np.einsum("cmpn,cmn->cmp", readout, states))


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
    for start in range(0, len(edges) - 1, steps):
        increments, forcing, turn = _propagators(system, edges[start : start + steps + 1])
        states.append(scan(increments, forcing, states[-1][:, -1])[:, 1:])
        turned.append(np.broadcast_to(turn, forcing.shape[:2]))
    states, theta = np.concatenate(states, 1), np.cumsum(np.concatenate(turned, 1), 1)
    return states[:, at], theta[:, at]


def _edges(times, pieces, breaks):
    """Ends of the pieces (E + 1,), shared by all cases, and where `times` lie among them."""
    fine = np.linspace(times[0], times[-1], (len(times) - 1) * pieces + 1)
    edges = fine if breaks is None else np.union1d(fine, breaks)
    return edges, np.searchsorted(edges, fine[::pieces])


def _propagators(system, edges):
    """x -> x + increment x + forcing over each piece, and theta's increase over it.

    Shapes (cases, M or 1, N, N), (cases, M, N) and (cases, M or 1); one map serves all pieces of a constant gate.
    """
    nodes, weights, collocation = _gauss()
    length = np.diff(edges)
    u = system.signal((edges[:-1, None] + length[:, None] * nodes).ravel())
    gate, drive = system.gate(u), system.drive(u)
    pieces = (len(drive), len(length), NODES)
    if gate.shape[1] == 1:
        gate = gate[:, :, None] * np.ones(NODES)
        length = length[:1] if np.ptp(length) <= 1e-9 * length.max() else length
    else:
        gate = gate.reshape(pieces)
    whole = length * (gate @ weights)  # (cases, M or 1)
    left = whole[..., None] - length[:, None] * (gate @ collocation.T)  # theta still to go at each node
    weighted = (length[:, None] * weights * gate)[..., None] * drive.reshape(pieces + (-1,))
    return system.flow.increment(whole), system.flow.weighted_sum(left, weighted), whole


def _gauss():
    """Gauss-Legendre nodes and weights on [0, 1], and the matrix of integrals from 0 to each node."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    nodes, weights = (nodes + 1) / 2, weights / 2
    powers = np.arange(1, NODES + 1)
    vandermonde = nodes[:, None] ** (powers - 1)
    return nodes, weights, (nodes[:, None] ** powers / powers) @ np.linalg.inv(vandermonde)
