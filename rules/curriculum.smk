# Coarse-to-fine training against plain training, and the time that each takes to an accuracy.
rule curriculum_run:
    input:
        sequences=STUDY.sequences,
    output:
        rows=STUDY.output("curriculum_run"),
        runs=STUDY.beside("curriculum_run", "runs.parquet"),
        times=STUDY.curriculum_times,
    log:
        STUDY.log("curriculum_run"),
    # A long job that starts late would keep one core busy alone.
    priority: 1
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory("curriculum_run"),
        runtime=minutes("curriculum_run"),
        gpu=gpus("curriculum_run"),
    params:
        cfg=cfg("curriculum_run"),
        code=code("curriculum_run"),
    shell:
        f"{STAGE}/curriculum.py {IDENTITY} --inputs sequences={{input.sequences:q}} --rows {{output.rows:q}} --runs {{output.runs:q}} --times {{output.times:q}} {LOGGED}"


rule curriculum:
    input:
        STUDY.run_files("curriculum"),
    output:
        rows=STUDY.output("curriculum"),
    log:
        STUDY.log("curriculum"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("curriculum"),
        code=code("curriculum"),
    shell:
        f"{STAGE}/compact.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} {LOGGED}"


rule curriculum_times:
    input:
        STUDY.run_files("curriculum_times"),
    output:
        rows=STUDY.output("curriculum_times"),
    log:
        STUDY.log("curriculum_times"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("curriculum_times"),
        code=code("curriculum_times"),
    shell:
        f"{STAGE}/compact.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} {LOGGED}"


rule time_to_target:
    input:
        curriculum=STUDY.output("curriculum"),
        times=STUDY.output("curriculum_times"),
    output:
        rows=STUDY.output("time_to_target"),
    log:
        STUDY.log("time_to_target"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("time_to_target"),
        code=code("time_to_target"),
    shell:
        f"{STAGE}/time_to_target.py {IDENTITY} --inputs curriculum={{input.curriculum:q}} curriculum_times={{input.times:q}} --rows {{output.rows:q}} {LOGGED}"
