"""The figures of a study, one a stage, as SVG (wide and narrow) and PNG, a list of what was drawn, and the wide ones apart."""

import json
import shutil
from pathlib import Path

from continuity import catalog, figures, stage, tables


def work(job: stage.Job) -> None:
    listing = Path(job.outputs["listing"])
    listing.parent.mkdir(parents=True, exist_ok=True)
    connection = catalog.open_files(catalog.by_name(job.listed))
    drawn = {name: figures.draw(name, connection, listing.parent / name) for name in figures.FIGURES}
    shown = Path(job.outputs["pictures"])
    shown.mkdir(exist_ok=True)
    for paths in filter(None, drawn.values()):
        shutil.copyfile(paths[0], shown / paths[0].name)
    with tables.atomic(listing) as temporary:
        names = {name: [path.name for path in paths] for name, paths in drawn.items()}
        temporary.write_text(json.dumps(names, indent=1) + "\n", encoding="utf-8")
    tables.write_stamp(listing, job.cfg_text, job.code)


if __name__ == "__main__":
    stage.run("figures", __doc__, work, ("listing", "pictures"))
