"""Train one architecture, or fit one baseline, on every mixture of one system."""

from functools import lru_cache
from itertools import product

from continuity import forecast, search, stage, trajectories
from continuity.training import one_thread

KEYS = ("eta", "construction", "horizon", "readout", "seed")


def work(job: stage.Job) -> None:
    one_thread()
    cfg = job.cfg
    states = trajectories.read(job.inputs["states"])
    lists = ("etas", "constructions", "horizons", "readouts", "seeds")
    shared, device, epochs, unit = search.shared(cfg, lists, job.listed)
    grid = product(cfg["etas"], cfg["constructions"], cfg["horizons"], cfg.get("readouts", ["last"]), cfg.get("seeds", [0]))
    cells = [(keys, shared | keys) for keys in (dict(zip(KEYS, values, strict=True)) for values in grid)]

    @lru_cache(maxsize=1)
    def cell(eta, construction, horizon):
        return forecast.Cell(states, eta, construction, cfg["mixture_seed"], cfg["context"], horizon)

    def one(keys, checkpoint, tell):
        data = cell(keys["eta"], keys["construction"], keys["horizon"])
        row, backend = forecast.run(data, shared, device, keys["readout"], keys["seed"], checkpoint, tell)
        return [row | {"system": cfg["system"]}], backend

    # A run depends on the rate that the search chose, not on how it was found.
    job.runs("forecast", cells, one, device, epochs, unit, reads=lambda keys: [job.inputs["states"]])


if __name__ == "__main__":
    stage.run("forecast", __doc__, work, ("rows", "runs"), {"states": "trajectories of the system"})
