# Labelled sequences: made, shipped in a package, or a user's own file.
rule tasks_make:
    input:
        lambda wildcards: STUDY.task_files(wildcards.task),
    output:
        sequences=STUDY.sequences,
        rows=STUDY.output("tasks_make"),
        runs=STUDY.beside("tasks_make", "runs.parquet"),
    log:
        STUDY.log("tasks_make"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory("tasks_make"),
        runtime=minutes("tasks_make"),
    params:
        cfg=cfg("tasks_make"),
        code=code("tasks_make"),
    shell:
        f"{STAGE}/tasks.py {IDENTITY} --sequences {{output.sequences:q}} --rows {{output.rows:q}} --runs {{output.runs:q}} {LOGGED}"


rule tasks:
    input:
        STUDY.run_files("tasks"),
    output:
        rows=STUDY.output("tasks"),
    log:
        STUDY.log("tasks"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("tasks"),
        code=code("tasks"),
    shell:
        f"{STAGE}/compact.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} {LOGGED}"
