"""Train one architecture, or fit one baseline, on every mixture of one system."""

from functools import lru_cache
from itertools import product

from continuity import forecast, stage, trajectories
from continuity.training import Budget, device_of, one_thread

KEYS = ("eta", "construction", "horizon", "readout", "seed")


def work(job: stage.Job) -> None:
    one_thread()
    cfg = job.cfg
    states = trajectories.read(job.inputs["states"])
    trains = "network" in cfg
    device = device_of(cfg["device"]) if trains else "cpu"
    shared = {
        name: value for name, value in cfg.items() if name not in ("etas", "constructions", "horizons", "readouts", "seeds")
    }
    grid = product(cfg["etas"], cfg["constructions"], cfg["horizons"], cfg.get("readouts", ["last"]), cfg.get("seeds", [0]))
    cells = [(keys, shared | keys) for keys in (dict(zip(KEYS, values, strict=True)) for values in grid)]

    @lru_cache(maxsize=1)
    def cell(eta, construction, horizon):
        return forecast.Cell(states, eta, construction, cfg["mixture_seed"], cfg["context"], horizon)

    def one(keys, checkpoint, tell):
        data = cell(keys["eta"], keys["construction"], keys["horizon"])
        if not trains:
            row, backend = forecast.baseline(data, cfg["model"]["name"]), "numpy"
        else:
            plan = forecast.Plan(cfg["model"], cfg["network"], Budget(**cfg["training"]), device)
            row, backend = forecast.train(data, plan, keys["readout"], keys["seed"], checkpoint, tell)
        return [row | {"system": cfg["system"]}], backend

    epochs = cfg["training"]["epochs"] if trains else 1
    job.runs("forecast", cells, one, device, epochs, "epochs" if trains else "baselines")


if __name__ == "__main__":
    stage.run("forecast", __doc__, work, ("rows", "runs"), {"states": "trajectories of the system"})
