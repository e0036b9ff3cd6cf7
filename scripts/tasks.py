"""Make one labelled task, or read it from a user's file, and count it."""

from continuity import stage, tasks
from continuity.problems import Problem
from continuity.tasks.user import InputProblem


def work(job: stage.Job) -> None:
    progress = None

    def tell(total):
        nonlocal progress
        progress = progress or stage.Progress("tasks", total, "sequences")
        progress.step()

    def one():
        try:
            task = tasks.make(job.cfg["task"], job.cfg["seed"], tell)
        except InputProblem as error:
            raise Problem(error.problems) from None
        except ValueError as error:
            raise Problem(f"tasks.list: {error}") from None
        tasks.write(task, job.outputs["sequences"], job.identity)
        return task.summary(), "numpy"

    job.once("tasks", one)


if __name__ == "__main__":
    stage.run("tasks", __doc__, work, ("rows", "runs", "sequences"))
