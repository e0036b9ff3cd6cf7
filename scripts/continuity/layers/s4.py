"""S4: a diagonal-plus-low-rank state space with HiPPO-LegS start (Gu et al. 2021, arXiv 2111.00396)."""

import torch
from torch import nn

from continuity.discretization import check_rule, dense, log_uniform
from continuity.layers.base import SequenceLayer, check_count
from continuity.layers.convolution import causal_convolution
from continuity.layers.hippo import normal_part

RULES = ("bilinear", "zoh")


class S4(SequenceLayer):
    """x'(t) = A x(t) + B u(t),  y(t) = C x(t) + D u(t) in each channel;  A = R - p p^T, shared by the channels.

    R holds one block [[r, w], [-w, r]] a conjugate pair, r < 0: the real form of a normal matrix, so that A's
    symmetric part is negative definite whatever is learned, and powers of its discretization never grow. C is stored,
    never the truncated C (I - Abar^L) of the generating function, so any length and step_scale give the right kernel.
    The kernel C Abar^l Bbar comes from two Krylov tables, Abar^r Bbar and C Abar^(q s), r, q about sqrt(L), made by
    doubling.

    Options: d_state N, even; discretization bilinear (that of the paper) or zoh, by the dense matrix exponential;
    delta log-uniform in [dt_min, dt_max]; step_rule ("semigroup" with zoh only: a fractional power of a dense
    bilinear map is ill conditioned). Shapes: u and y (B, L, D); A (N, N) and B (N,) real; C (D, N) real; one delta a
    channel. Raises ValueError for an unknown rule, an odd N, semigroup with bilinear.
    """

    continuous = True
    dynamics = ("log_dt", "log_A_real", "A_imag", "p", "B")
    needs_mixing = True

    def __init__(self, d_model, d_state=64, discretization="bilinear", dt_min=0.001, dt_max=0.1, step_rule="delta"):
        super().__init__(d_model, step_rule)
        check_count("d_state", d_state, multiple=2)
        self.discretization = check_rule(discretization, RULES, "s4")
        if step_rule == "semigroup" and discretization == "bilinear":
            raise ValueError(
                "s4 offers step_rule 'semigroup' with discretization 'zoh' only: a fractional power of a dense "
                "bilinear map is ill conditioned; use 's4d', or step_rule 'delta'"
            )
        frequency, V, p = normal_part(d_state)
        basis = torch.stack([V.real, V.imag], -1).flatten(1) * 2**0.5  # (N, N) orthogonal, a pair in two columns
        dtype = torch.get_default_dtype()
        self.log_A_real = nn.Parameter(torch.full((d_state // 2,), 0.5).log())
        self.A_imag = nn.Parameter(frequency.to(dtype))
        self.p = nn.Parameter((basis.mT @ p).to(dtype))
        self.B = nn.Parameter((basis.mT @ (2**0.5 * p)).to(dtype))
        self.C = nn.Parameter(torch.randn(d_model, d_state) / d_state**0.5)
        self.D = nn.Parameter(torch.randn(d_model))
        self.log_dt = nn.Parameter(log_uniform((d_model,), dt_min, dt_max))

    def A(self):
        """(N, N) real."""
        r, w = -torch.exp(self.log_A_real), self.A_imag
        blocks = torch.stack([torch.stack([r, w], -1), torch.stack([-w, r], -1)], -2)
        return torch.block_diag(*blocks) - torch.outer(self.p, self.p)

    def transition(self, step_scale=1.0):
        """(Abar (D, N, N), Bbar (D, N))."""
        delta = torch.exp(self.log_dt) * step_scale
        Abar, Bbar = dense(delta, self.A(), self.B.unsqueeze(-1), self.discretization)
        return Abar, Bbar.squeeze(-1)

    def kernel(self, length, step_scale=1.0):
        """C Abar^l Bbar, l < length: (D, length), in float32 at least."""
        with torch.autocast(self.C.device.type, enabled=False):
            Abar, Bbar = self.transition(step_scale)
            size = 1 << max(0, (length - 1).bit_length() + 1) // 2
            right, power = krylov(Abar, Bbar, size)
            left, _ = krylov(power.mT, self.C, -(-length // size))
            return (left.mT @ right).flatten(1)[:, :length]

    def mix(self, u, step_scale, lengths):
        return (causal_convolution(u, self.kernel(u.shape[1], step_scale)) + self.D * u).to(u.dtype)

    def initial_state(self, batch):
        """h (B, D, N)."""
        return torch.zeros_like(self.C).repeat(batch, 1, 1)

    def step(self, u, state, step_scale=1.0):
        Abar, Bbar = self.transition(self.scale(step_scale))
        h = (Abar @ state.unsqueeze(-1)).squeeze(-1) + Bbar * u.unsqueeze(-1)
        return (self.C * h).sum(-1) + self.D * u, h


def krylov(M, start, count):
    """([start, M start, …, M^(count-1) start] (D, N, count), M^(2^k) with 2^k >= count) by doubling; M (D, N, N),
    start (D, N).
    """
    table = start.unsqueeze(-1)
    while table.shape[-1] < count:
        table = torch.cat([table, M @ table], -1)
        M = M @ M
    return table[..., :count], M
