"""Choose the learning rate of one architecture on validation data."""

from functools import lru_cache
from itertools import product

from continuity import forecast, search, stage, trajectories
from continuity.training import Budget, at_rate, device_of, one_thread


def work(job: stage.Job) -> None:
    one_thread()
    cfg = job.cfg
    files, device = dict(zip(cfg["systems"], job.listed, strict=True)), device_of(cfg["device"])
    shared = {name: value for name, value in cfg.items() if name not in ("rates", "systems", "etas")}
    grid = product(cfg["systems"], cfg["etas"], cfg["rates"])
    cells = [dict(zip(("system", "eta", "lr"), values, strict=True)) for values in grid]

    @lru_cache(maxsize=1)
    def cell(system, eta):
        states = trajectories.read(files[system])
        return forecast.Cell(states, eta, cfg["construction"], cfg["mixture_seed"], cfg["context"], cfg["horizon"])

    def one(keys, checkpoint, tell):
        budget = Budget(**at_rate(cfg["training"], keys["lr"]))
        plan = forecast.Plan(cfg["model"], cfg["network"], budget, device)
        row, backend = search.trial(cell(keys["system"], keys["eta"]), plan, cfg["readout"], cfg["seed"], checkpoint, tell)
        return [row | {"system": keys["system"]}], backend

    job.runs(
        "forecast_search", [(keys, shared | keys) for keys in cells], one, device, cfg["training"]["epochs"], "epochs",
        reads=lambda keys: [files[keys["system"]]], finish=search.choose,
    )  # fmt: skip


if __name__ == "__main__":
    stage.run("forecast_search", __doc__, work, ("rows", "runs"))
