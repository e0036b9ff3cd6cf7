"""The published claims of config/claims.yaml, each measured on this study's tables and judged."""

from continuity import catalog, claims, stage
from continuity.identity import ROOT


def work(job: stage.Job) -> None:
    entries, scales = claims.read(ROOT / "config" / "claims.yaml")
    connection = catalog.open_files(catalog.by_name(job.listed))
    job.write("claims", claims.evaluate(connection, entries, scales, job.cfg["study"]))


if __name__ == "__main__":
    stage.run("claims", __doc__, work)
