"""HiPPO-LegS and its normal part (Gu et al. 2020, arXiv 2008.07669; Gu et al. 2021, arXiv 2111.00396)."""

import torch


def legs(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(A (n, n), B (n,)) in float64: A_ij = -sqrt((2i+1)(2j+1)) below the diagonal, -(i+1) on it; B_i = sqrt(2i+1)."""
    root = torch.sqrt(2 * torch.arange(n, dtype=torch.float64) + 1)
    A = -torch.outer(root, root).tril(-1) - torch.diag(torch.arange(1, n + 1, dtype=torch.float64))
    return A, root


def normal_part(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(w (n/2,), V (n, n/2) complex, p (n,)) for even n: A + p p^T = -I/2 + a skew matrix, whose eigenvalues are ± i
    w, w > 0, with eigenvectors V (for + i w) and their conjugates; p_i = sqrt(i + 1/2).
    """
    A, root = legs(n)
    p = root / 2**0.5
    skew = A + torch.outer(p, p) + torch.eye(n, dtype=torch.float64) / 2
    values, vectors = torch.linalg.eigh(-1j * skew.to(torch.complex128))
    return values[n // 2 :], vectors[:, n // 2 :], p
