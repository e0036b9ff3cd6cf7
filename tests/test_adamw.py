"""The optimizer, against torch.optim.AdamW."""

import copy

import pytest
import torch
from continuity.adamw import AdamW


def network(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3), torch.nn.Linear(2, 2))


def groups(model):
    """Different rates, decays and betas; the last layer never gets a gradient."""
    weights = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    biases = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    return [
        {"params": weights, "lr": 0.02, "weight_decay": 0.1},
        {"params": biases, "lr": 0.1, "weight_decay": 0.0, "betas": (0.8, 0.99)},
    ]


def train(model, optimizer, steps, dtype=torch.float32):
    for step in steps:
        for group, peak in zip(optimizer.param_groups, (0.02, 0.1), strict=True):
            group["lr"] = peak / (1 + step)
        optimizer.zero_grad()
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(step), dtype=dtype)
        model[:3](x).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_equal_those_of_torch_bit_for_bit(dtype):
    ours, theirs = network().to(dtype), network().to(dtype)
    train(ours, AdamW(groups(ours)), range(20), dtype)
    train(theirs, torch.optim.AdamW(groups(theirs), fused=True), range(20), dtype)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert not torch.equal(ours[0].weight, network().to(dtype)[0].weight)


def test_a_resumed_optimizer_goes_on_as_if_never_stopped():
    whole = network()
    train(whole, AdamW(groups(whole)), range(10))
    stopped = network()
    first = AdamW(groups(stopped))
    train(stopped, first, range(4))
    resumed = network(seed=1)
    resumed.load_state_dict(stopped.state_dict())
    second = AdamW(groups(resumed))
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    train(resumed, second, range(4, 10))
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))
