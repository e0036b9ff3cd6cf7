"""Train one architecture on one labelled task, every seed of it."""

import shutil
from pathlib import Path

from continuity import benchmark, stage, tasks
from continuity.training import Budget, device_of, one_thread


def work(job: stage.Job) -> None:
    one_thread()
    cfg = job.cfg
    task = tasks.read(job.inputs["sequences"])
    device, budget = device_of(cfg["device"]), Budget(**cfg["training"])
    shared = {name: value for name, value in cfg.items() if name != "seeds"}
    place = Path(job.outputs["rows"]).parent

    def one(keys, checkpoint, tell):
        weights = place / f"seed={keys['seed']}" / "weights.pt"
        row, backend = benchmark.train(
            task, cfg["model"], cfg["network"], budget, keys["seed"], device, checkpoint, weights, tell
        )
        return [row], backend

    cells = [({"seed": seed}, shared | {"seed": seed}) for seed in cfg["seeds"]]
    job.runs("benchmark", cells, one, device, budget.epochs, "epochs", beside=("weights.pt",))
    Path(job.outputs["weights"]).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(place / f"seed={cfg['seeds'][0]}" / "weights.pt", job.outputs["weights"])


if __name__ == "__main__":
    stage.run("benchmark", __doc__, work, ("rows", "runs", "weights"), {"sequences": "the task"})
