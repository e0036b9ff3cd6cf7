"""Long causal convolutions over time, and their kernels."""

import torch


def fast_length(n: int) -> int:
    """Smallest even number >= n whose only prime factors are 2, 3 and 5."""
    best = 1 << max(1, (n - 1).bit_length())
    for odd in (3, 5, 9, 15, 25, 27, 45):
        size = odd * max(2, 1 << max(0, -(-n // odd) - 1).bit_length())
        best = min(best, size)
    return best


def causal_convolution(u, kernel):
    """y_k = sum_l kernel_l u_(k-l) for u (B, L, D) and kernel (D, L), by FFT in float32 at least."""
    length = u.shape[1]
    with torch.autocast(u.device.type, enabled=False):
        u = u.to(torch.promote_types(u.dtype, torch.float32))
        n = fast_length(2 * length - 1)
        product = torch.fft.rfft(u.transpose(1, 2), n=n) * torch.fft.rfft(kernel.to(u.dtype), n=n)
        return torch.fft.irfft(product, n=n)[..., :length].transpose(1, 2)


def power_kernel(log_a, weight, length: int):
    """2 Re sum_n weight_n a_n^l for l < length, from log a and weight (D, N): (D, length).

    With l = q s + r, a^l = a^(q s) a^r: two tables of about sqrt(length) powers and one real batched matrix product.
    Time and memory O(D N sqrt(length) + D length) besides the product itself.
    """
    size = max(1, round(length**0.5))
    blocks = -(-length // size)
    fine = power_table(log_a, size)  # (D, N, size)
    coarse = power_table(log_a * size, blocks, weight)  # (D, N, blocks)
    left = torch.cat([coarse.real, -coarse.imag], 1).transpose(1, 2)  # (D, blocks, 2N)
    right = torch.cat([fine.real, fine.imag], 1)  # (D, 2N, size)
    return 2 * (left @ right).reshape(log_a.shape[0], -1)[:, :length]


def power_table(log_a, count, weight=None):
    """weight a^l for l < count: (…, count); the same two levels again, since a complex exponential costs ten products."""
    size = max(1, round(count**0.5))
    steps = torch.arange(max(size, -(-count // size)), device=log_a.device)
    fine = torch.exp(log_a.unsqueeze(-1) * steps[:size])
    coarse = torch.exp(log_a.unsqueeze(-1) * (steps[: -(-count // size)] * size))
    if weight is not None:
        coarse = weight.unsqueeze(-1) * coarse
    return (coarse.unsqueeze(-1) * fine.unsqueeze(-2)).flatten(-2)[..., :count]


def held_input(u, rule):
    """What drives a state at each step: the sample, or for `averaged` its mean with the one before, and 0 at the first."""
    if rule != "averaged":
        return u
    return torch.cat([torch.zeros_like(u[:, :1]), (u[:, 1:] + u[:, :-1]) / 2], 1)


def held_sample(u, before, rule):
    """`held_input` for one sample u (B, D) and the sample before it (None at the first)."""
    if rule != "averaged":
        return u
    return torch.zeros_like(u) if before is None else (u + before) / 2
