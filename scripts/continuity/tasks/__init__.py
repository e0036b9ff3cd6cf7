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


def make(entry: Mapping, seed: int = 0, tell: Callable[[int], None] = lambda total: None) -> Task:
    """The task of a config entry: its `kind` (or `name`) among TASKS; one that is not, and has a `path`, is a user's file.

    `permute`: steps of the blocks that `permuted` puts into another order. All other keys are arguments of that task's
    `load`. tell: called after every sequence with the number of all, where making them takes long. Raises ValueError for an
    unknown name or argument and for a permuted task of unequal lengths, and InputProblem, one line a problem, for a file
    that cannot be used.
    """
    name, kind = entry["name"], entry.get("kind", entry["name"])
    options = {key: value for key, value in entry.items() if key not in ("name", "kind", "permute")}
    known = [task for task in TASKS if task != "user"]
    if "path" not in options and kind not in known:
        raise ValueError(f"there is no task {kind!r}: choose one of {', '.join(known)}, or give a path")
    load = TASKS[kind if kind in known else "user"]
    takes = dict(signature(load).parameters)
    tells = {"tell": tell} if takes.pop("tell", None) else {}
    unknown = sorted(set(options) - set(takes))
    if unknown:
        raise ValueError(f"task {name} has no option {', '.join(unknown)}: it has {', '.join(takes)}")
    task = load(name=name, seed=seed, **options, **tells)
    return permuted(task, entry["permute"], seed) if "permute" in entry else task


__all__ = ["TASKS", "TASK_MODULES", "Sequences", "Task", "batches", "make", "permuted", "read", "write"]
