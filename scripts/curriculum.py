"""Train one architecture on one labelled task by every plan and seed: coarse to fine, and plain."""

import sys
from itertools import product
from pathlib import Path

from continuity import benchmark, curriculum, stage, tables, tasks
from continuity.models import build_model
from continuity.runs import folder
from continuity.stages import plan_of
from continuity.training import Budget, device_of, one_thread

TIMES = "seconds.parquet"


def work(job: stage.Job) -> None:
    one_thread()
    cfg, place = job.cfg, Path(job.outputs["rows"]).parent
    task = tasks.read(job.inputs["sequences"])
    device, budget = device_of(cfg["device"]), Budget(**cfg["training"])
    plans = {plan["name"]: plan for plan in cfg["plans"]}
    tell_no_time_scale(cfg, task)

    def one(keys, checkpoint, tell):
        rows, times, backend = curriculum.train(
            task, cfg["model"], cfg["network"], budget, plans[keys["plan"]], keys["seed"], device, checkpoint, tell
        )
        tables.write("curriculum_times", times, checkpoint.parent / TIMES)
        return rows, backend

    shared = {name: value for name, value in cfg.items() if name not in ("plans", "seeds")}
    # Seeds outermost: the runs that are compared with each other follow each other.
    cells = [{"plan": plan, "seed": seed} for seed, plan in product(cfg["seeds"], plans)]
    runs = [(keys, shared | keys | {"plan": plans[keys["plan"]]}) for keys in cells]
    epochs = max(plan_of(plan).total(budget.epochs) for plan in plans.values())
    job.runs("curriculum", runs, one, device, epochs, "epochs", beside=(TIMES,))
    kept = [folder(place, keys) / TIMES for keys in cells]
    job.write("curriculum_times", [row for path in kept for row in tables.read(path).to_pylist()], "times")


def tell_no_time_scale(cfg: dict, task: tasks.Task) -> None:
    """Say on standard error where a step scale means nothing to the model: its stages are then different functions."""
    if not curriculum.has_time_scale(build_model(cfg["model"], cfg["network"], **benchmark.ends(task))):
        print(f"{cfg['model']['name']} has no time scale: a stride changes the function that it is", file=sys.stderr)


if __name__ == "__main__":
    stage.run("curriculum", __doc__, work, ("rows", "runs", "times"), {"sequences": "the task"})
