"""Run one random system of the convergence experiment against its reference, and evaluate the bounds beside it."""

from continuity import convergence, stage
from continuity.problems import Problem


def work(job: stage.Job) -> None:
    cfg = job.cfg

    def one():
        try:
            table = convergence.run(
                cfg["systems"], cfg["scales"], cfg["taus"], cfg["seed"], models=[cfg["model"]], methods=cfg["methods"],
                state=cfg["state"], horizon=cfg["horizon"],
            )  # fmt: skip
        except ValueError as error:
            raise Problem(f"convergence: {error}") from None
        return table.to_pylist(), "numpy"

    job.once("convergence", one)


if __name__ == "__main__":
    stage.run("convergence", __doc__, work, ("rows", "runs"))
