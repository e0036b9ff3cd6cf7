"""Train one architecture on one system at one step, then evaluate it on finer and coarser grids of the same trajectories."""

from itertools import product
from pathlib import Path

from continuity import refinement, stage, tables
from continuity.models import backend
from continuity.problems import Problem
from continuity.runs import folder
from continuity.training import Budget, device_of, one_thread

DIAGNOSIS = "diagnosis.parquet"


def work(job: stage.Job) -> None:
    one_thread()
    cfg, place = job.cfg, Path(job.outputs["rows"]).parent
    device, budget = device_of(cfg["device"]), Budget(**cfg["training"])
    samples, methods = prepared(cfg)
    plan = refinement.Plan(
        cfg["model"], cfg["network"], budget, cfg["step_scales"], cfg["amplitudes"], cfg["step_rules"], device
    )

    def one(keys, checkpoint, tell):
        fitted = refinement.fit(samples, plan, keys["method"], keys["seed"], checkpoint, tell)
        where = refinement.diagnosis(fitted) if keys["seed"] == cfg["seeds"][0] else []
        tables.write("diagnosis", where, checkpoint.parent / DIAGNOSIS)
        return refinement.refine(fitted), backend(fitted.model)

    shared = {name: value for name, value in cfg.items() if name not in ("methods", "seeds")}
    cells = [{"method": method, "seed": seed} for method, seed in product(methods, cfg["seeds"])]
    runs = [(keys, shared | keys | {"diagnosed": keys["seed"] == cfg["seeds"][0]}) for keys in cells]
    job.runs("refinement", runs, one, device, budget.epochs, "epochs", beside=(DIAGNOSIS,))
    kept = [folder(place, keys) / DIAGNOSIS for keys in cells if keys["seed"] == cfg["seeds"][0]]
    job.write("diagnosis", [row for path in kept for row in tables.read(path).to_pylist()], "diagnosis")


def prepared(cfg: dict) -> tuple[refinement.Samples, list[str]]:
    """The trajectories of a job and the methods that its model is trained with."""
    system = cfg["system"]
    problem = refinement.Regression(
        system["name"],
        system.get("parameters", {}),
        cfg["step"],
        cfg["length"],
        cfg["n"],
        cfg["data_seed"],
        system.get("burn_in"),
    )
    try:
        samples = refinement.Samples(problem)
    except ValueError as error:
        raise Problem(f"refinement.systems: {system['name']}: {error}") from None
    try:
        return samples, refinement.methods_of(cfg["model"], cfg["methods"], cfg["network"]["d_model"])
    except ValueError as error:
        raise Problem(f"refinement.methods: {error}") from None


if __name__ == "__main__":
    stage.run("refinement", __doc__, work, ("rows", "runs", "diagnosis"))
