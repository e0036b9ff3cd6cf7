"""All result tables of a study, with views and comments, as one DuckDB file."""

from continuity import catalog, stage, tables


def work(job: stage.Job) -> None:
    database = job.outputs["database"]
    catalog.export(catalog.by_name(job.listed), database)
    tables.write_stamp(database, job.cfg_text, job.code)


if __name__ == "__main__":
    stage.run("catalog", __doc__, work, ("database",))
