"""Relative distance of every architecture to the best one, per eta, cross-fitted over seeds."""

from continuity import catalog, stage


def work(job: stage.Job) -> None:
    job.write("gap", catalog.aggregate("gap", {"forecast": job.inputs["forecast"]}, job.cfg["baselines"]))


if __name__ == "__main__":
    stage.run("gap", __doc__, work, inputs={"forecast": "the forecast table"})
