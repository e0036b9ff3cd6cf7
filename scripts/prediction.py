"""Predict from mu alone which family of architectures wins, on systems and labelled tasks that were left out."""

from continuity import catalog, prediction, stage


def work(job: stage.Job) -> None:
    cfg = job.cfg
    connection = catalog.open_files(job.inputs)
    settings = (
        ("forecast", prediction.FORECAST, prediction.FEWEST_SYSTEMS, True),
        ("benchmark", prediction.BENCHMARK, prediction.FEWEST_TASKS, False),
    )
    rows = []
    for setting, sql, fewest, within in settings:
        found = connection.sql(sql).to_arrow_table().to_pylist()
        rows += prediction.predict(setting, found, cfg["families"], fewest, within, cfg["permutations"], cfg["seed"])
    job.write("prediction", rows)


if __name__ == "__main__":
    inputs = {name: f"the {name} table" for name in ("forecast", "mixtures", "benchmark", "score")}
    stage.run("prediction", __doc__, work, inputs=inputs)
