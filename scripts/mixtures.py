"""Score how continuous each mixture of the discrete and the continuous observation of one system is."""

from itertools import product

import numpy as np
from continuity import stage, trajectories
from continuity.metric import task_continuity
from continuity.mixtures import calibrate, observe


def work(job: stage.Job) -> None:
    cfg = job.cfg
    states = {split: found.astype(np.float64) for split, found in trajectories.read(job.inputs["states"]).items()}
    calibration = calibrate(states["train"], cfg["seed"])
    shared = {name: cfg[name] for name in ("system", "seed", "score")}

    def one(keys, checkpoint, tell):
        seen = observe(states["test"], keys["eta"], cfg["seed"], keys["construction"], calibration)
        found = task_continuity(seen, **cfg["score"])
        row = {"system": cfg["system"], "mu": found.mu, "low": found.low, "high": found.high}
        row |= {"n_sequences": found.n_sequences, "status": found.status, "reason": found.reason or None}
        return [row | {"eta": float(keys["eta"]), "construction": keys["construction"]}], "numpy"

    cells = [{"eta": eta, "construction": construction} for eta, construction in product(cfg["etas"], cfg["constructions"])]
    job.runs("mixtures", [(keys, shared | keys) for keys in cells], one)


if __name__ == "__main__":
    stage.run("mixtures", __doc__, work, ("rows", "runs"), {"states": "trajectories of the system"})
