"""The flow of x' = A x for many matrices and times at once: exponential, phi1 and the bilinear map.

Shapes: A (1 or cases, N, N); theta (cases, M); vectors v (cases, M, N); matrices (cases, M, N, N).
Steps are returned as increments, e^{theta A} − I, whose rounding shrinks with theta: many short steps lose nothing.
"""

import numpy as np
import torch

LARGEST_CONDITION = 1e6


class ModalFlow:
    """Flow by the eigenbasis V of A, where every map is one number a mode. Loses cond(V) * 1e-16 of accuracy."""

    def __init__(self, rates, basis):
        inverse = np.linalg.inv(basis)
        if np.all(rates.imag == 0):
            rates, basis, inverse = rates.real, basis.real, inverse.real
        self.rates = rates[:, None, :]  # (1 or cases, 1, N)
        self.outward = basis.swapaxes(1, 2)  # rows: x = z @ outward
        self.inward = inverse.swapaxes(1, 2)
        n = rates.shape[-1]
        self.outer = (self.outward[:, :, :, None] * inverse[:, :, None, :]).reshape(-1, n, n * n)

    def exp_on(self, theta, v):
        """e^{theta A} v."""
        return self._on(np.exp(self._z(theta)), v)

    def phi1_on(self, theta, v):
        """phi1(theta A) v with phi1(z) = (e^z − 1)/z and phi1(0) = 1."""
        z = self._z(theta)
        small = np.abs(z) < 1e-12
        return self._on(np.where(small, 1.0, np.expm1(z) / np.where(small, 1.0, z)), v)

    def resolvent_on(self, theta, v):
        """(I − theta A/2)^{-1} v."""
        return self._on(1 / (1 - self._z(theta) / 2), v)

    def increment(self, theta):
        """e^{theta A} − I."""
        return self._matrices(np.expm1(self._z(theta)))

    def bilinear_increment(self, theta):
        """(I − theta A/2)^{-1} (I + theta A/2) − I."""
        z = self._z(theta)
        return self._matrices(z / (1 - z / 2))

    def weighted_sum(self, theta, v):
        """sum_s e^{theta_s A} v_s: theta (cases, M or 1, S), v (cases, M, S, N) -> (cases, M, N)."""
        decay = np.exp(self.rates[:, None] * theta[..., None])
        inner = v @ self.inward[:, None]
        return np.einsum("cmsn,cmsn->cmn", np.broadcast_to(decay, inner.shape), inner) @ self.outward

    def take(self, index):
        return _taken(self, index)

    def _z(self, theta):
        return self.rates * theta[..., None]

    def _on(self, maps, v):
        return (maps * (v @ self.inward)) @ self.outward

    def _matrices(self, maps):
        n = maps.shape[-1]
        return (maps @ self.outer).reshape(maps.shape[:2] + (n, n))


class DenseFlow:
    """The methods of `ModalFlow` by batched matrix exponentials, for ill-conditioned eigenbases; N^3 an instant."""

    def __init__(self, matrices):
        self.matrices = matrices

    def exp_on(self, theta, v):
        return _on(_matrix_exp(self._z(theta)), v)

    def phi1_on(self, theta, v):
        z = self._z(theta)
        n = z.shape[-1]
        block = np.zeros(z.shape[:-2] + (2 * n, 2 * n), z.dtype)
        block[..., :n, :n] = z
        block[..., :n, n:] = np.eye(n)
        return _on(_matrix_exp(block)[..., :n, n:], v)

    def resolvent_on(self, theta, v):
        z = self._z(theta)
        return _on(np.linalg.inv(np.eye(z.shape[-1]) - z / 2), v)

    def increment(self, theta):
        return _matrix_exp(self._z(theta)) - np.eye(self.matrices.shape[-1])

    def bilinear_increment(self, theta):
        z = self._z(theta)
        return np.linalg.solve(np.eye(z.shape[-1]) - z / 2, z)

    def weighted_sum(self, theta, v):
        cases, instants, nodes, n = v.shape
        theta = theta.reshape(cases, -1)
        maps = _matrix_exp(self._z(theta)).reshape(cases, -1, nodes, n, n)
        return np.einsum("cmsij,cmsj->cmi", np.broadcast_to(maps, v.shape + (n,)), v)

    def take(self, index):
        return _taken(self, index)

    def _z(self, theta):
        return self.matrices[:, None] * theta[..., None, None]


def flow_of(matrices):
    """The cheapest accurate flow of `matrices` (1 or cases, N, N): modal where the eigenbasis allows, else dense."""
    rates, basis = np.linalg.eig(matrices)
    if np.linalg.cond(basis).max() <= LARGEST_CONDITION:
        return ModalFlow(rates, basis)
    return DenseFlow(matrices)


def _on(maps, v):
    return (maps @ v[..., None])[..., 0]


def _matrix_exp(a):
    return torch.linalg.matrix_exp(torch.from_numpy(np.ascontiguousarray(a))).numpy()


def _taken(flow, index):
    """A copy of `flow` for the cases in `index`; arrays shared by all cases have a leading axis of one."""
    copy = object.__new__(type(flow))
    for name, value in vars(flow).items():
        setattr(copy, name, value if len(value) == 1 else value[index])
    return copy
