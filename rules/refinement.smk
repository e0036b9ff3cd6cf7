# Networks trained at one sampling step, evaluated on finer and coarser grids of the same trajectories.
rule refinement_run:
    output:
        rows=STUDY.output("refinement_run"),
        runs=STUDY.beside("refinement_run", "runs.parquet"),
        diagnosis=STUDY.diagnosis,
    log:
        STUDY.log("refinement_run"),
    # A long job that starts late would keep one core busy alone.
    priority: 1
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory("refinement_run"),
        runtime=minutes("refinement_run"),
        gpu=gpus("refinement_run"),
    params:
        cfg=cfg("refinement_run"),
        code=code("refinement_run"),
    shell:
        f"{STAGE}/refinement.py {IDENTITY} --rows {{output.rows:q}} --runs {{output.runs:q}} --diagnosis {{output.diagnosis:q}} {LOGGED}"


rule refinement:
    input:
        STUDY.run_files("refinement"),
    output:
        rows=STUDY.output("refinement"),
    log:
        STUDY.log("refinement"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("refinement"),
        code=code("refinement"),
    shell:
        f"{STAGE}/compact.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} {LOGGED}"


rule diagnosis:
    input:
        STUDY.run_files("diagnosis"),
    output:
        rows=STUDY.output("diagnosis"),
    log:
        STUDY.log("diagnosis"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("diagnosis"),
        code=code("diagnosis"),
    shell:
        f"{STAGE}/compact.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} {LOGGED}"
