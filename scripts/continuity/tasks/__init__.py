"""Labelled sequences, one task family a module, loaded when first used."""

from collections.abc import Callable, Mapping
from inspect import signature

from continuity.registry import Registry
from continuity.tasks.sequences import Sequences, Task, batches, permuted, read, write

TASK_MODULES = {
    "smnist": "continuity.tasks.smnist:load",
    "listops": "continuity.tasks.listops:load",
    "pathfinder": "continuity.tasks.pathfinder:load",
    "pathx": "continuity.tasks.pathfinder:load_pathx",
    "text": "continuity.tasks.text:load",
    "retrieval": "continuity.tasks.text:load_pairs",
    "image": "continuity.tasks.image:load",
    "speech": "continuity.tasks.speech:load",
    "user": "continuity.tasks.user:load",
}

TASKS: Mapping[str, Callable[..., Task]] = Registry(TASK_MODULES)
"""Name -> function that makes the task; importing this package imports none of them."""


def make(entry: Mapping, seed: int = 0) -> Task:
    """The task of a config entry: its `kind` (or `name`) among TASKS; one that is not, and has a `path`, is a user's file.

    `permute`: steps of the blocks that `permuted` puts into another order. All other keys are arguments of that task's
    `load`. Raises ValueError for an unknown name or argument and for a permuted task of unequal lengths, and InputProblem,
    one line a problem, for a file that cannot be used.
    """
    name, kind = entry["name"], entry.get("kind", entry["name"])
    options = {key: value for key, value in entry.items() if key not in ("name", "kind", "permute")}
    known = [task for task in TASKS if task != "user"]
    if "path" not in options and kind not in known:
        raise ValueError(f"there is no task {kind!r}: choose one of {', '.join(known)}, or give a path")
    load = TASKS[kind if kind in known else "user"]
    unknown = sorted(set(options) - set(signature(load).parameters))
    if unknown:
        raise ValueError(f"task {name} has no option {', '.join(unknown)}: it has {', '.join(signature(load).parameters)}")
    task = load(name=name, seed=seed, **options)
    return permuted(task, entry["permute"], seed) if "permute" in entry else task


__all__ = ["TASKS", "TASK_MODULES", "Sequences", "Task", "batches", "make", "permuted", "read", "write"]
