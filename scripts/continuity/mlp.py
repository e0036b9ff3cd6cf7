"""A small network that sees only the last steps: what a forecast gains from memory is what it gains over this one."""

from torch import nn

from continuity.layers.base import check_count


class LastStepsMLP(nn.Module):
    """(B, L, channels) -> (B, d_output): the last `steps`, flattened, through one hidden layer of GELUs.

    Sequences all have their full length. Raises ValueError for sizes that are not positive whole numbers.
    """

    def __init__(self, steps: int, channels: int, hidden: int, d_output: int):
        super().__init__()
        for name, value in (("steps", steps), ("channels", channels), ("hidden", hidden), ("d_output", d_output)):
            check_count(name, value)
        self.steps = steps
        self.net = nn.Sequential(nn.Linear(steps * channels, hidden), nn.GELU(), nn.Linear(hidden, d_output))

    def forward(self, x, lengths=None, step_scale=1.0):
        return self.net(x[:, -self.steps :].flatten(1))


def hidden_width(network: dict, steps: int, channels: int, d_output: int) -> int:
    """Hidden units with which it has about network.parameters, or network.d_model of them where no number is given."""
    if network.get("parameters") is None:
        return network["d_model"]
    return max(1, round((network["parameters"] - d_output) / (steps * channels + 1 + d_output)))
