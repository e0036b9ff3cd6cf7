"""Train one architecture on one system at one step, then evaluate it on finer and coarser grids of the same trajectories."""

from itertools import product

from continuity import refinement, stage
from continuity.training import Budget, device_of


def work(job: stage.Job) -> None:
    stage.one_thread()
    cfg = job.cfg
    device = device_of(cfg["device"])
    system = cfg["system"]
    try:
        problem = refinement.Problem(
            system["name"],
            system.get("parameters", {}),
            cfg["step"],
            cfg["length"],
            cfg["n"],
            cfg["data_seed"],
            system.get("burn_in"),
        )
        samples = refinement.Samples(problem)
    except ValueError as error:
        raise stage.Stop(f"refinement.systems: {system['name']}: {error}") from None
    budget = Budget(**cfg["training"])
    plan = refinement.Plan(cfg["model"], cfg["network"], budget, cfg["step_scales"], cfg["amplitudes"], device)

    def one(keys, checkpoint, tell):
        return refinement.train(samples, plan, keys["method"], keys["seed"], checkpoint, tell)

    shared = {name: value for name, value in cfg.items() if name not in ("methods", "seeds")}
    methods = refinement.methods_of(cfg["model"], cfg["methods"])
    cells = [{"method": method, "seed": seed} for method, seed in product(methods, cfg["seeds"])]
    job.runs("refinement", [(keys, shared | keys) for keys in cells], one, device, budget.epochs, "epochs")


if __name__ == "__main__":
    stage.run("refinement", __doc__, work, ("rows", "runs"))
