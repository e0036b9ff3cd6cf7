"""Check every theorem of dissipation theory on random systems, and on systems that break its hypothesis."""

from continuity import stage, theory
from continuity.problems import Problem


def work(job: stage.Job) -> None:
    cfg = job.cfg

    def one():
        try:
            return theory.run(cfg["systems"], cfg["state"], cfg["length"], cfg["beta"], cfg["seed"]), "numpy"
        except ValueError as error:
            raise Problem(f"dissipation: {error}") from None

    job.once("dissipation", one)


if __name__ == "__main__":
    stage.run("dissipation", __doc__, work, ("rows", "runs"))
