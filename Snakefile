# Continuity in sequence models: a study as one workflow. README.md says what it answers, config/README.md what to set.
#
# results/<study>/data/     trajectories, tasks, trained encoders, latents
# results/<study>/tables/   one Parquet file a result table; below it one folder a run
# results/<study>/figures/  one figure a stage, SVG and PNG
# results/<study>/logs/     one log a job
# results/<study>/report.html, study.duckdb and provenance.json
from snakemake.utils import min_version

min_version("9.0")


configfile: f"{workflow.basedir}/config/config.yaml"


include: "rules/common.smk"
include: "rules/systems.smk"
include: "rules/tasks.smk"
include: "rules/benchmark.smk"
include: "rules/latents.smk"
include: "rules/score.smk"
include: "rules/mixtures.smk"
include: "rules/forecast.smk"
include: "rules/convergence.smk"
include: "rules/refinement.smk"
include: "rules/curriculum.smk"
include: "rules/dissipation.smk"
include: "rules/stability.smk"
include: "rules/report.smk"


rule all:
    default_target: True
    input:
        STUDY.output("report"),
        STUDY.output("catalog"),
        STUDY.output("provenance"),
