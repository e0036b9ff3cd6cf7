"""The page of a study: verdicts, then a section a stage, in one file that works offline."""

from pathlib import Path

from continuity import catalog, report, stage, tables


def work(job: stage.Job) -> None:
    page = job.outputs["page"]
    drawn = Path(job.inputs["figures"]).parent
    report.render(catalog.by_name(job.listed), drawn, job.cfg, page, job.cfg_text, job.code)
    tables.write_stamp(page, job.cfg_text, job.code)


if __name__ == "__main__":
    stage.run("report", __doc__, work, ("page",), {"figures": "the list of drawn figures"})
