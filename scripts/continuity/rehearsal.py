"""Every network of a study built once, a user's also given a tiny batch, every task of the user read once: what cannot run
fails here.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from continuity import tasks
from continuity.models import build_model
from continuity.problems import Problem

BATCH = 2


def network_problem(entry: dict) -> str | None:
    """What is wrong with {where, model, network, d_input, d_output, length}; a user's runs forward and backward on a batch."""
    name, network = entry["model"]["name"], entry["network"]
    if network.get("parameters") is None:
        network = network | {"n_layers": 1}
    try:
        model = build_model(entry["model"], network, d_input=entry["d_input"], d_output=entry["d_output"])
        if not entry["model"].get("factory"):
            return None
        x = torch.randn(BATCH, entry["length"], entry["d_input"])
        lengths = torch.tensor([entry["length"], max(1, entry["length"] // 2)])
        for given in (None, lengths):
            model(x, lengths=given).square().mean().backward()
    except Problem as error:
        return f"{entry['where']}: {'; '.join(error.problems)}"
    except Exception as error:
        # A user's own module may raise anything.
        said = next(iter(str(error).strip().splitlines()), "no message")
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        shape = f"({BATCH}, {entry['length']}, {network.get('d_model') or 'd_model'})"
        return f"{entry['where']}: models: {name}: fails on a batch {shape}: {kind}{said}"
    return None


def task_problems(entry: dict) -> Iterator[str]:
    """What is wrong with {task, seed, stride} of the user: file and classes, empty splits, sequences shorter than a stride."""
    name = entry["task"]["name"]
    try:
        task = tasks.make(entry["task"], entry["seed"])
    except Exception as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        lines = getattr(error, "problems", None) or [f"{kind}{error}"]
        yield from (f"tasks.list: {name}: {line}" for line in lines)
        return
    for split, part in task.splits.items():
        if not len(part):
            yield f"tasks.list: {name}: no sequence in {split}; give more of them, or another division"
        elif entry["stride"] > int(part.lengths.min()):
            shortest = int(part.lengths.min())
            yield (
                f"curriculum.plans: stride {entry['stride']} is longer than the shortest sequence of {name} in {split}, "
                f"{shortest} steps: lower it, or set tasks.list.min_length"
            )


def rehearse(script: dict) -> list[str]:
    """Problems of {networks, tasks}, one line each, equal ones once."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = [problem for entry in script["networks"] if (problem := network_problem(entry))]
    found += [problem for entry in script["tasks"] for problem in task_problems(entry)]
    return list(dict.fromkeys(found))


def main() -> None:
    """Answer the JSON on standard input with a JSON list in the last line of standard output."""
    # A user's own modules lie in the working directory.
    sys.path.append(str(Path.cwd()))
    print("\n" + json.dumps(rehearse(json.load(sys.stdin))))


if __name__ == "__main__":
    main()
