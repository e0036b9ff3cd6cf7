"""Simulate the training, validation and test trajectories of one dynamical system."""

from continuity import stage, trajectories
from continuity.problems import Problem
from continuity.systems import simulate


def work(job: stage.Job) -> None:
    cfg = job.cfg
    ranges = {name: tuple(value) if isinstance(value, list) else value for name, value in cfg["parameters"].items()}
    options = {name: cfg[name] for name in ("burn_in",) if name in cfg}
    try:
        found = {
            split: simulate(cfg["system"], cfg["n"][split], cfg["length"], cfg["step"], cfg["seed"] + k, **options, **ranges)
            for k, split in enumerate(trajectories.SPLITS)
        }
    except ValueError as error:
        raise Problem(f"systems.list: {cfg['system']}: {error}") from None
    trajectories.write(found, job.outputs["states"], job.identity)


if __name__ == "__main__":
    stage.run("systems", __doc__, work, ("states",))
