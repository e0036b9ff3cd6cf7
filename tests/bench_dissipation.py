"""The violation of a selective layer with all its gradients against eigvalsh with autograd; prints `name: ratio x`.

N = 16; float32; both sides get the same delta, A, B, C, D and p and give the same value and gradients to 1e-4. Beside it
the plain torch form, blocks that nearly all comply, loose blocks, and the cost of the regularizer on a training step of
a bare Mamba forecaster of the published ETT size (batch 128 of 7 channels, 41 tokens, width 16: 1.18 million blocks), on
all blocks and on 65,536 drawn ones. Processor times, the best of three.
"""

import time

import torch
from continuity import native
from continuity.dissipation import lmi_block, lmi_violation, one_step, selective_violation
from continuity.layers import build
from continuity.regularizer import DissipationRegularizer
from torch import nn

CHANNELS, STATES, TOKENS = 32, 16, 41


def quantities(batch, feedthrough):
    delta = 0.06 * torch.rand(batch, TOKENS, CHANNELS) + 0.005
    A = -torch.arange(1, STATES + 1.0).repeat(CHANNELS, 1)
    B, C = torch.randn(batch, TOKENS, STATES) / 2, torch.randn(batch, TOKENS, STATES) / 2
    tensors = delta, A, B, C, torch.full((CHANNELS,), feedthrough), torch.ones(CHANNELS, STATES)
    return [x.requires_grad_() for x in tensors]


def by_eigvalsh(delta, A, B, C, D, p):
    a, _, b = one_step(delta, A, B, "euler")
    return torch.linalg.eigvalsh(lmi_block(a, b, C.unsqueeze(2), D, p, 1e-3))[..., -1].clamp_min(0)


def ours(*tensors):
    return selective_violation(*tensors, 1e-3, discretization="euler")


def seconds(function, tensors):
    """(processor time a block, value, gradients)."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        value = function(*tensors)
        grads = torch.autograd.grad(value.mean(), tensors)
        best = min(best, time.process_time() - start)
    return best / value.numel(), value, grads


def step_cost(weight, blocks=None):
    """Seconds of one training step of the forecaster, without the penalty where weight is 0."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(48, 16), build("mamba", 16), nn.Linear(16, 128), nn.GELU(), nn.Linear(128, 16))
    head = nn.Linear(16 * TOKENS, 96)
    regularizer = DissipationRegularizer(net, weight, blocks=blocks) if weight else None
    optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()], 1e-4)
    x, y = torch.randn(896, TOKENS, 48), torch.randn(896, 96)
    times = []
    for _ in range(8):
        start = time.process_time()
        loss = (head(net(x).flatten(1)) - y).square().mean() + (regularizer() if weight else 0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.append(time.process_time() - start)
    return sorted(times)[1]


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for batch in (2, 2):
        small = quantities(batch, 0.0)
        slow, value, grads = seconds(by_eigvalsh, small)
        _, mine, my_grads = seconds(ours, small)
    gaps = [(x - y).abs().max() / y.abs().max() for x, y in zip((mine, *my_grads), (value, *grads), strict=True)]
    assert max(gaps) < 1e-4, gaps
    for name, feedthrough in (("all blocks violate", 0.0), ("nearly all comply", 30.0)):
        fast, value, _ = seconds(ours, quantities(64, feedthrough))
        share = (value > 0).double().mean().item()
        print(
            f"violation of a layer with gradients, {name}, against eigvalsh: {slow / fast:.0f} x ({1e9 * fast:.0f} ns a block, {share:.0%} violate)"
        )
    a, _, b = (x.detach().requires_grad_() for x in one_step(*quantities(64, 0.0)[:3], "euler"))
    c = torch.randn_like(b).div(2).requires_grad_()
    loose = a, b, c, torch.zeros(CHANNELS, requires_grad=True), torch.ones(STATES, requires_grad=True)
    fast, _, _ = seconds(lambda *x: lmi_violation(*x, 1e-3), loose)
    print(f"violation of loose blocks with gradients against eigvalsh: {slow / fast:.0f} x ({1e9 * fast:.0f} ns a block)")
    native.HAVE_NUMBA, kept = False, native.HAVE_NUMBA
    fast, _, _ = seconds(ours, quantities(16, 0.0))
    native.HAVE_NUMBA = kept
    print(f"the same in plain torch against eigvalsh: {slow / fast:.1f} x")
    bare = step_cost(0.0)
    for name, blocks in (("65,536 drawn blocks", 2**16), ("all blocks", None)):
        print(
            f"training step with the regularizer on {name} against without: {step_cost(0.1, blocks) / bare:.2f} x ({1e3 * bare:.0f} ms without)"
        )


if __name__ == "__main__":
    main()
