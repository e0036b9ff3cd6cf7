"""DLinear: one linear map of the trend and one of the rest (Zeng et al. 2023, arXiv 2205.13504)."""

import torch.nn.functional as F
from torch import nn

from continuity.hosts.base import Host, apart


class DLinear(Host):
    """y = W_t trend + W_r (x - trend) + biases, the same for every channel; trend: moving average, the ends repeated.

    kernel: odd width of the moving average. The whole is an affine map of x. ValueError for an even kernel.
    """

    normalized = False

    def __init__(self, channels, input_length, horizon, kernel=25):
        super().__init__(channels, input_length, horizon)
        if not isinstance(kernel, int) or kernel < 1 or kernel % 2 == 0:
            raise ValueError(f"dlinear: kernel must be odd and positive, got {kernel!r}")
        self.kernel = kernel
        self.trend = nn.Linear(input_length, horizon)
        self.rest = nn.Linear(input_length, horizon)

    def core(self, z):
        x = apart(z)  # (B C, L)
        half = self.kernel // 2
        trend = F.avg_pool1d(F.pad(x[:, None], (half, half), mode="replicate"), self.kernel, 1)[:, 0]
        y = self.trend(trend) + self.rest(x - trend)
        return y.view(len(z), self.channels, self.horizon).transpose(1, 2)
