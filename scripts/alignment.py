"""Rank correlation of mu with the advantage of one architecture over another, over system x eta cells."""

from continuity import alignment, catalog, stage


def work(job: stage.Job) -> None:
    advantages = catalog.open_files(job.inputs).sql("FROM advantage").to_arrow_table()
    job.write("alignment", alignment.align(advantages, draws=job.cfg["permutations"], seed=job.cfg["seed"]))


if __name__ == "__main__":
    inputs = {"forecast": "the forecast table", "mixtures": "the mixtures table"}
    stage.run("alignment", __doc__, work, inputs=inputs)
