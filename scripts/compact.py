"""Join the declared run files of one result table into one file."""

from continuity import stage, tables


def work(job: stage.Job) -> None:
    tables.compact(job.cfg["table"], job.listed, job.outputs["rows"], job.identity)


if __name__ == "__main__":
    stage.run("compact", __doc__, work)
