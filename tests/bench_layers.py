"""Speed of the sequence layers as ratios in one run: forward and backward, one torch thread on both
sides, medians of CPU seconds, which other work on the machine hardly changes.

    python tests/bench_layers.py             length 1024
    python tests/bench_layers.py --orders    order of convergence of every layer under every step rule
    python tests/bench_layers.py --long      also length 4096, and one layer a process at length 65,536 with its peak memory
"""

import argparse
import inspect
import math
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from continuity.layers import LAYERS, build
from continuity.layers.matrix_scan import decayed_attention, delta_rule
from continuity.scan import selective_scan

BATCH, CHANNELS, HEADS = 8, 128, 4


def seconds(work, repeats):
    """Median CPU seconds of a forward and backward pass; the first pass, which compiles, is not counted."""
    taken = []
    for _ in range(repeats + 1):
        start = time.process_time()
        work().square().mean().backward()
        taken.append(time.process_time() - start)
    return statistics.median(taken[1:])


def ratio(name, goal, slow, fast, rounds=3):
    """Both sides by turns, so that other work on the machine meets both."""
    pairs = [(seconds(slow, 1), seconds(fast, 3)) for _ in range(rounds)]
    slow_s, fast_s = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"{name}: ratio {slow_s / fast_s:.1f} (goal {goal}; {1e3 * slow_s:.1f} ms against {1e3 * fast_s:.1f} ms)", flush=True)


def tensors(*shapes):
    return [torch.randn(*shape, requires_grad=True) for shape in shapes]


def bench_s4d_kernel(length=4096):
    layer = build("s4d", CHANNELS, d_state=64)

    def direct():
        log_a, b = layer.transition()
        powers = torch.exp(log_a.unsqueeze(-1) * torch.arange(length))  # (D, N/2, L)
        return 2 * ((torch.view_as_complex(layer.C) * b).unsqueeze(-1) * powers).sum(1).real

    ratio(f"s4d kernel, length {length}, against the exponential over (D, N, L)", 30, direct, lambda: layer.kernel(length))


def bench_s6_scan(length):
    from mambapy.pscan import pscan

    u, B, C = tensors((BATCH, length, CHANNELS), (BATCH, length, 16), (BATCH, length, 16))
    delta = (torch.rand(BATCH, length, CHANNELS) * 0.1).requires_grad_()
    A = (-torch.arange(1.0, 17).repeat(CHANNELS, 1)).requires_grad_()

    def theirs():
        step = delta.unsqueeze(-1)
        h = pscan(torch.exp(step * A), step * B.unsqueeze(2) * u.unsqueeze(-1))
        return (h @ C.unsqueeze(-1)).squeeze(-1)

    for rule in ("euler", "zoh"):
        ratio(
            f"s6 scan ({rule}), length {length}, against mambapy's pscan",
            10,
            theirs,
            lambda rule=rule: selective_scan(u, delta, A, B, C, discretization=rule),
        )


def bench_mamba(length):
    from mambapy.mamba import MambaBlock, MambaConfig

    u = torch.randn(BATCH, length, CHANNELS, requires_grad=True)
    theirs, ours = MambaBlock(MambaConfig(d_model=CHANNELS, n_layers=1)), build("mamba", CHANNELS)
    ratio(f"mamba block, length {length}, against mambapy", 5, lambda: theirs(u), lambda: ours(u))


def bench_s5(length):
    from s5 import S5

    u = torch.randn(BATCH, length, CHANNELS, requires_grad=True)
    theirs, ours = S5(CHANNELS, 64), build("s5", CHANNELS, d_state=64)
    ratio(f"s5, length {length}, against s5-pytorch", 2, lambda: theirs(u), lambda: ours(u))


def bench_deltanet(length):
    shape = (BATCH, HEADS, length, CHANNELS // HEADS)
    q, k, v = tensors(shape, shape, shape)
    b = torch.rand(shape[:3]).requires_grad_()

    def plain():
        keys = torch.nn.functional.normalize(k, dim=-1)
        state, outputs = torch.zeros(*shape[:2], shape[3], shape[3]), []
        for q_t, k_t, v_t, b_t in zip(q.unbind(2), keys.unbind(2), v.unbind(2), b.unbind(2), strict=True):
            error = v_t - (k_t.unsqueeze(-2) @ state).squeeze(-2)
            state = state + k_t.unsqueeze(-1) * (b_t.unsqueeze(-1) * error).unsqueeze(-2)
            outputs.append((q_t.unsqueeze(-2) @ state).squeeze(-2))
        return torch.stack(outputs, 2)

    ratio(
        f"deltanet, length {length}, against the recurrence",
        8,
        plain,
        lambda: delta_rule(q, torch.nn.functional.normalize(k, dim=-1), v, b, b),
    )


def bench_linear_attention(length):
    shape = (BATCH, HEADS, length, CHANNELS // HEADS)
    q, k, v = tensors(shape, shape, shape)

    def plain():
        state, outputs = torch.zeros(*shape[:2], shape[3], shape[3]), []
        for q_t, k_t, v_t in zip(q.unbind(2), k.unbind(2), v.unbind(2), strict=True):
            state = state + k_t.unsqueeze(-1) * v_t.unsqueeze(-2)
            outputs.append((q_t.unsqueeze(-2) @ state).squeeze(-2))
        return torch.stack(outputs, 2)

    ratio(f"linear attention, length {length}, against the recurrence", 10, plain, lambda: decayed_attention(q, k, v))


def bench_mamba3(length):
    q, k, v = tensors(*[(BATCH, HEADS, length, 2 * CHANNELS // HEADS)] * 3)
    g = (-torch.rand(BATCH, HEADS, length)).requires_grad_()
    past, own = (torch.rand(BATCH, HEADS, length).requires_grad_() for _ in range(2))

    def plain():
        state, outputs, before = torch.zeros(BATCH, HEADS, k.shape[-1], v.shape[-1]), [], None
        steps = zip(*(x.unbind(2) for x in (q, k, v, torch.exp(g), past, own)), strict=True)
        for q_t, k_t, v_t, a_t, p_t, o_t in steps:
            if before is not None:
                state = state + p_t[..., None, None] * before
            before = k_t.unsqueeze(-1) * v_t.unsqueeze(-2)
            state = a_t[..., None, None] * state
            state = state + o_t[..., None, None] * before
            outputs.append((q_t.unsqueeze(-2) @ state).squeeze(-2))
        return torch.stack(outputs, 2)

    def fast():
        later = torch.cat([past[..., 1:], torch.zeros_like(past[..., :1])], -1)
        return decayed_attention(q, k, v, g, own + later, own)

    ratio(f"mamba3, length {length}, against the recurrence", 8, plain, fast)


def bench_growth(name, lengths=(4096, 16384)):
    layer = build(name, CHANNELS)
    taken = []
    for length in lengths:
        u = torch.randn(1, length, CHANNELS)
        taken.append(seconds(lambda u=u: layer(u), 3))
    print(
        f"{name}, time at length {lengths[1]} over {lengths[0]}: ratio {taken[1] / taken[0]:.1f} "
        f"(linear is {lengths[1] / lengths[0]:.0f}; {1e3 * taken[0]:.0f} ms, {1e3 * taken[1]:.0f} ms)",
        flush=True,
    )


def order(name, step_rule, channels=8, length=64):
    """Order of convergence of a small random layer under refinement of a smooth input, from its three finest grids.

    The median over time, since a normalised readout changes direction at single moments where it passes through zero.
    """
    torch.manual_seed(1)
    known = inspect.signature(LAYERS[name].__init__).parameters
    options = {
        key: value for key, value in {"d_state": 8, "head_dim": 4, "n_heads": 2, "conv_time": "time"}.items() if key in known
    }
    if (name, step_rule) == ("s4", "semigroup"):
        options["discretization"] = "zoh"
    layer = build(name, channels, step_rule=step_rule, **options).double()
    rate, phase = 0.5 * torch.rand(channels).double(), 6.3 * torch.rand(channels).double()
    outputs = []
    for stride in (8, 16, 32):
        t = torch.arange((length - 1) * stride + 1).double().unsqueeze(-1) / stride
        outputs.append(layer(torch.sin(rate * t + phase).unsqueeze(0), 1 / stride)[:, ::stride])
    coarse, fine = ((a - b).abs().amax(2).median().item() for a, b in zip(outputs, outputs[1:], strict=False))
    return math.log2(coarse / fine)


def print_orders():
    print("layer, order under step_rule delta, semigroup, none (Mamba's and DeltaNet's convolutions in time)")
    for name in LAYERS:
        rules = ("delta", "none") if name == "transformer" else ("delta", "semigroup", "none")
        orders = {rule: f"{order(name, rule):.2f}" for rule in rules}
        print(f"{name}: {orders['delta']}, {orders.get('semigroup', '-')}, {orders['none']}", flush=True)


def peak_memory():
    """Peak resident memory of this process in KiB; getrusage would count what the process had before it was this program."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def longest(name, length=65536):
    """One pass of one layer in this process: seconds and peak memory."""
    torch.set_num_threads(1)
    layer, u = build(name, CHANNELS), torch.randn(1, length, CHANNELS)
    base = peak_memory()
    start = time.process_time()
    layer(u).square().mean().backward()
    spent, peak = time.process_time() - start, peak_memory()
    print(
        f"{name}, length {length}: {spent:.1f} s, peak {peak / 2**20:.2f} GiB "
        f"({(peak - base) / 2**20:.2f} GiB over start; goal 8)",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="lengths 4096 and 65,536 too (minutes)")
    parser.add_argument("--orders", action="store_true", help="only the table of orders of convergence")
    parser.add_argument("--longest", metavar="LAYER", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.longest:
        longest(arguments.longest)
        return
    torch.set_num_threads(1)
    if arguments.orders:
        print_orders()
        return
    torch.manual_seed(0)
    bench_s4d_kernel()
    for length in (1024, 4096) if arguments.long else (1024,):
        for bench in (bench_s6_scan, bench_mamba, bench_s5, bench_deltanet, bench_linear_attention, bench_mamba3):
            bench(length)
    recurrent = [name for name in LAYERS if name != "transformer"]
    for name in recurrent:
        bench_growth(name)
    if arguments.long:
        for name in recurrent:
            subprocess.run([sys.executable, __file__, "--longest", name], check=True)


if __name__ == "__main__":
    main()
