"""Forecast one mixture of a system from another of the same trajectories: the input's eta crossed with the target's."""

from functools import lru_cache
from itertools import product

from continuity import forecast, search, stage, trajectories
from continuity.training import one_thread


def work(job: stage.Job) -> None:
    one_thread()
    cfg = job.cfg
    states = trajectories.read(job.inputs["states"])
    shared, device, epochs, unit = search.shared(cfg, ("etas", "seeds"), job.listed)
    grid = product(cfg["etas"], cfg["etas"], cfg.get("seeds", [0]))
    cells = [{"eta": eta, "eta_target": target, "seed": seed} for eta, target, seed in grid if eta != target]

    @lru_cache(maxsize=1)
    def cell(eta, target):
        return forecast.Cell(states, eta, cfg["construction"], cfg["mixture_seed"], cfg["context"], cfg["horizon"], target)

    def one(keys, checkpoint, tell):
        data = cell(keys["eta"], keys["eta_target"])
        row, backend = forecast.run(data, shared, device, cfg["readout"], keys["seed"], checkpoint, tell)
        return [row | {"system": cfg["system"], "eta_target": float(keys["eta_target"])}], backend

    runs = [(keys, shared | keys) for keys in cells]
    job.runs("crossed", runs, one, device, epochs, unit, reads=lambda keys: [job.inputs["states"]])


if __name__ == "__main__":
    stage.run("crossed", __doc__, work, ("rows", "runs"), {"states": "trajectories of the system"})
