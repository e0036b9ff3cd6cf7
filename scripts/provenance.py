"""What made every table: rule, settings, code, versions and inputs, as a Process Run Crate."""

import json
from pathlib import Path

from continuity import provenance, stage, tables
from continuity.study import Study


def work(job: stage.Job) -> None:
    out = Path(job.outputs["crate"])
    root = out.absolute().parent
    study = Study(job.cfg | {"results": str(root.parent)})
    with tables.atomic(out) as temporary:
        temporary.write_text(json.dumps(provenance.crate(study), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    tables.write_stamp(out, job.cfg_text, job.code)


if __name__ == "__main__":
    stage.run("provenance", __doc__, work, ("crate",))
