"""What a job of many runs saves against a process a run, what a training step of the S6 network costs against mambapy's
scan, and whether runs stacked into one batch would be faster than one after the other.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from continuity import config
from continuity.layers.s6 import S6
from continuity.models import build_model
from continuity.network import SequenceModel, optim_groups
from continuity.study import Study
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

ROOT = Path(__file__).parents[1]
REPEATS, RUNS = 5, 15
ALONE = 3
"""Runs that are timed in a process each; a process a run is their mean times RUNS."""
ENDS = {"d_input": 16, "d_output": 16}


def median(work, repeats: int = REPEATS) -> float:
    """Median processor seconds of `work`, after one call that does not count."""
    work()
    times = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return statistics.median(times)


def jobs(folder: Path, model: str) -> tuple[float, float]:
    """Wall-clock seconds of one job with RUNS runs at the default sizes, and of RUNS processes with one run each."""
    study = Study(config.load())
    states = folder / "states.parquet"
    launch([ROOT / "scripts/systems.py", "--cfg", study.cfg("systems_simulate", {"system": "vdp"}), "--states", states])
    cfg = json.loads(study.cfg("forecast_run", {"model": model, "system": "vdp"}))
    assert len(cfg["etas"]) * len(cfg["seeds"]) == RUNS

    def seconds(name: str, **less) -> float:
        place = folder / name
        return launch(
            [ROOT / "scripts/forecast.py", "--cfg", json.dumps(cfg | less), "--inputs", f"states={states}"]
            + ["--rows", place / "rows.parquet", "--runs", place / "runs.parquet"]
        )

    together = seconds(f"{model} together")
    alone = [seconds(f"{model} {k}", etas=[cfg["etas"][k]], seeds=[cfg["seeds"][k % 3]]) for k in range(ALONE)]
    return together, RUNS * statistics.mean(alone)


def launch(arguments: list) -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, *map(str, arguments)], check=True, capture_output=True)
    return time.monotonic() - began


def step_of(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor):
    """One training step of `model`: forward, backward, clipping, AdamW."""
    optimizer = torch.optim.AdamW(optim_groups(model, 1e-3, 0.01), fused=True)

    def step():
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def mambapy_s6(model: SequenceModel) -> None:
    """Give the S6 layers of `model` mambapy's scan in place of ours; Euler's B, which is what it computes."""
    from mambapy.pscan import pscan

    def mix(layer, u, step_scale, lengths):
        delta, B, C = layer.selection(u)
        delta = (delta * step_scale).unsqueeze(-1)
        h = pscan(torch.exp(delta * layer.A()), delta * B.unsqueeze(2) * u.unsqueeze(-1))
        return (h * C.unsqueeze(2)).sum(-1) + layer.D * u

    for layer in model.modules():
        if isinstance(layer, S6):
            layer.mix = mix.__get__(layer)


def steps() -> tuple[float, float]:
    """Processor seconds of a training step of the S6 network at (64, 256, 32): mambapy's scan, ours."""
    sizes = {"d_input": 32, "d_model": 32, "n_layers": 1, "d_output": 16, "layer_options": {"discretization": "euler"}}
    x, y = torch.randn(64, 256, 32), torch.randn(64, 16)
    ours, theirs = SequenceModel("s6", **sizes), SequenceModel("s6", **sizes)
    theirs.load_state_dict(ours.state_dict())
    mambapy_s6(theirs)
    assert torch.allclose(ours(x), theirs(x), atol=1e-4)
    return median(step_of(theirs, x, y)), median(step_of(ours, x, y))


def stacked(model: str, runs: int) -> tuple[float, float]:
    """Processor seconds of one forward and backward pass of `runs` default networks: one after the other, and stacked."""
    study = Study(config.load())
    part = study.config["forecast"]
    networks = [build_model(study.model(model), part["network"] | {"readout": "last"}, **ENDS) for _ in range(runs)]
    x, y = torch.randn(runs, 64, part["context"], 16), torch.randn(runs, 64, 16)
    parameters, buffers = stack_module_state(networks)

    def loss(one, rest, inputs, targets):
        return torch.nn.functional.mse_loss(functional_call(networks[0], (one, rest), (inputs,)), targets)

    together = vmap(grad_and_value(loss))

    def separately():
        for network, inputs, targets in zip(networks, x, y, strict=True):
            network.zero_grad()
            torch.nn.functional.mse_loss(network(inputs), targets).backward()

    separately()
    gradients, _ = together(parameters, buffers, x, y)
    for name, expected in networks[-1].named_parameters():
        assert torch.allclose(gradients[name][-1], expected.grad, atol=1e-5), name
    return median(separately), median(lambda: together(parameters, buffers, x, y))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    theirs, ours = steps()
    print(f"training step of the S6 network (64, 256, 32): {1e3 * ours:.0f} ms, mambapy's scan {theirs / ours:.1f} x that")
    for model in ("s4d", "s6", "transformer"):
        for runs in (3, RUNS):
            try:
                apart, together = stacked(model, runs)
            except RuntimeError as error:
                print(f"{model}: {runs} runs cannot be stacked: {str(error).splitlines()[0][:100]}")
                break
            print(f"{model}: {runs} runs stacked are {apart / together:.2f} x as fast as one after the other")
    with tempfile.TemporaryDirectory() as folder:
        for model in ("s4d", "s6"):
            together, apart = jobs(Path(folder), model)
            print(f"{model}: {RUNS} runs in one job {together:.0f} s, in a process each {apart / together:.1f} x that")


if __name__ == "__main__":
    main()
