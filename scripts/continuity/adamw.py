"""AdamW in torch's own arithmetic, without torch's class: making one imports torch's compiler, three seconds of a job."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw


class AdamW:
    """Decoupled weight decay, arXiv 1711.05101; the same bits as `torch.optim.AdamW(groups, fused=True)`.

    groups: {"params", "lr", "weight_decay"} each, and where they differ "betas" (.9, .999) and "eps" (1e-8); `param_groups`
    may be changed between steps. Parameters without a gradient stay as they are.
    """

    def __init__(self, groups: list[dict]):
        self.param_groups = [{"betas": (0.9, 0.999), "eps": 1e-8} | group for group in groups]
        self.moments: dict[nn.Parameter, tuple[Tensor, Tensor, Tensor]] = {}

    def zero_grad(self) -> None:
        for parameter in self._parameters():
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not moved:
                continue
            first, second, steps = map(list, zip(*(self._moments(parameter) for parameter in moved), strict=True))
            beta1, beta2 = group["betas"]
            adamw(
                moved, [parameter.grad for parameter in moved], first, second, [], steps, fused=True, amsgrad=False,
                beta1=beta1, beta2=beta2, lr=group["lr"], weight_decay=group["weight_decay"], eps=group["eps"], maximize=False,
            )  # fmt: skip

    def state_dict(self) -> list[list[Tensor] | None]:
        """Moments of every parameter in order: [first, second, number of steps], None before its first step."""
        found = (self.moments.get(parameter) for parameter in self._parameters())
        return [one and list(one) for one in found]

    def load_state_dict(self, state: list[list[Tensor] | None]) -> None:
        for parameter, moments in zip(self._parameters(), state, strict=True):
            if moments is not None:
                self.moments[parameter] = tuple(moment.to(parameter.device) for moment in moments)

    def _parameters(self) -> Iterator[nn.Parameter]:
        return (parameter for group in self.param_groups for parameter in group["params"])

    def _moments(self, parameter: nn.Parameter) -> tuple[Tensor, Tensor, Tensor]:
        if parameter not in self.moments:
            zero = torch.zeros_like(parameter)
            self.moments[parameter] = zero, zero.clone(), torch.zeros((), device=parameter.device)
        return self.moments[parameter]
