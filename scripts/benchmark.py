"""Train one architecture on one labelled task, every seed of it, or fit one baseline."""

import shutil
from pathlib import Path

from continuity import benchmark, stage, tasks
from continuity.training import Budget, at_rate, device_of, one_thread


def work(job: stage.Job) -> None:
    one_thread()
    cfg = job.cfg
    task = tasks.read(job.inputs["sequences"])
    trains = "network" in cfg
    seeds, place = cfg.get("seeds", [0]), Path(job.outputs["rows"]).parent
    device = device_of(cfg["device"]) if trains else "cpu"
    shared = {name: value for name, value in cfg.items() if name != "seeds"}

    settings = [at_rate(cfg["training"], rate) for rate in cfg.get("rates") or ()] or [cfg.get("training")]
    budgets = [Budget(**one) for one in settings] if trains else []

    def one(keys, checkpoint, tell):
        weights = place / f"seed={keys['seed']}" / "weights.pt"
        if not trains:
            return [benchmark.baseline(task, cfg["model"]["name"], weights)], "torch"
        row, backend = benchmark.train(
            task, cfg["model"], cfg["network"], budgets, keys["seed"], device, checkpoint, weights, tell
        )
        return [row], backend

    cells = [({"seed": seed}, shared | {"seed": seed}) for seed in seeds]
    epochs = cfg["training"]["epochs"] * len(budgets) if trains else 1
    job.runs("benchmark", cells, one, device, epochs, "epochs" if trains else "baselines", beside=("weights.pt",))
    Path(job.outputs["weights"]).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(place / f"seed={seeds[0]}" / "weights.pt", job.outputs["weights"])


if __name__ == "__main__":
    stage.run("benchmark", __doc__, work, ("rows", "runs", "weights"), {"sequences": "the task"})
