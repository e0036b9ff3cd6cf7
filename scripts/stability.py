"""Train one forecaster on one set, by horizon, storage and seed; measure its memory, also on perturbed input."""

from functools import lru_cache
from pathlib import Path

from continuity import series, stability, stage, tables, variants
from continuity.problems import Problem
from continuity.runs import folder
from continuity.tasks.files import InputProblem
from continuity.training import Budget, device_of, one_thread

ROBUSTNESS = "robustness.parquet"
LISTS = ("horizons", "storages", "router_weights", "seeds")


def work(job: stage.Job) -> None:
    one_thread()
    cfg, place = variants.resolved(job.cfg), Path(job.outputs["rows"]).parent
    dataset, host = cfg["dataset"], cfg["host"]
    budget = Budget(**cfg["training"])
    plan = stability.Plan(host, budget, cfg["penalty"], cfg["measure"]["beta"], device_of(cfg["device"]))
    loaded = guarded(series.load, dataset)

    @lru_cache(maxsize=1)
    def data(horizon):
        return guarded(series.windows, loaded, cfg["input_length"], horizon, cfg["strides"])

    def one(keys, checkpoint, tell):
        variant = variants.Variant(*(keys[name] for name in ("storage", "weight", "beta", "router_weight")))
        named = {"dataset": dataset["name"], "horizon": keys["horizon"], "seed": keys["seed"]}
        fitted = stability.fit(data(keys["horizon"]), plan, variant, named, checkpoint, tell)
        rows = [stability.row(fitted, cfg["measure"]["windows"])]
        tables.write("robustness", stability.perturbed(fitted, **cfg["robustness"]), checkpoint.parent / ROBUSTNESS)
        return rows, stability.backend(fitted.host)

    shared = {name: value for name, value in cfg.items() if name not in LISTS}
    cells = []
    for horizon in cfg["horizons"]:
        host_traits = stability.traits(plan.build(data(horizon), variants.Variant()))
        cells += [keys | {"horizon": horizon} for keys in variants.keys(cfg, host_traits)]
    runs = [(keys, shared | keys) for keys in cells]
    job.runs("stability", runs, one, plan.device, plan.budget.epochs, "epochs", beside=(ROBUSTNESS,))
    kept = [folder(place, keys) / ROBUSTNESS for keys in cells]
    job.write("robustness", [row for path in kept for row in tables.read(path).to_pylist()], "robustness")


def guarded(function, *arguments):
    """`function` of `arguments`, with what is wrong with the set as problems of the config."""
    try:
        return function(*arguments)
    except InputProblem as error:
        raise Problem([f"stability.datasets: {problem}" for problem in error.problems]) from None


if __name__ == "__main__":
    stage.run("stability", __doc__, work, ("rows", "runs", "robustness"))
