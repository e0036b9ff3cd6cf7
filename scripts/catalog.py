"""All result tables of a study, with views and comments, as one DuckDB file."""

from continuity import catalog, stage


def work(job: stage.Job) -> None:
    catalog.export(catalog.by_name(job.listed), job.outputs["database"])
    tables_stamp(job)


if __name__ == "__main__":
    stage.run("catalog", __doc__, work, ("database",))
