"""Training time to an accuracy, coarse-to-fine over plain training, by seed-paired log ratios."""

import pyarrow as pa
from continuity import catalog, stage, tables

TARGETS = pa.schema([("task", pa.string()), ("share", pa.float64()), ("accuracy", pa.float64())])


def work(job: stage.Job) -> None:
    relative = [{"task": None, "share": share, "accuracy": None} for share in job.cfg["relative"]]
    published = [
        {"task": entry["task"], "share": None, "accuracy": accuracy}
        for entry in job.cfg["published"]
        for accuracy in entry["accuracies"]
    ]
    connection = catalog.open_files({name: job.inputs[name] for name in ("curriculum", "curriculum_times")})
    connection.register("targets", pa.Table.from_pylist(relative + published, schema=TARGETS))
    connection.register("automatic", pa.table({"plan": pa.array(job.cfg["automatic"], pa.string())}))
    answer = connection.sql((catalog.SQL / "time_to_target.sql").read_text(encoding="utf-8")).to_arrow_table()
    job.write("time_to_target", tables.rows_to_table("time_to_target", answer.to_pylist()))


if __name__ == "__main__":
    inputs = {"curriculum": "the curriculum table", "curriculum_times": "its training seconds"}
    stage.run("time_to_target", __doc__, work, inputs=inputs)
