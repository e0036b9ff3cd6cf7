# Random S4 and S6 systems against a reference trajectory, with the proved bounds.
rule convergence_run:
    output:
        rows=STUDY.output("convergence_run"),
        runs=STUDY.beside("convergence_run", "runs.parquet"),
    log:
        STUDY.log("convergence_run"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory("convergence_run"),
        runtime=minutes("convergence_run"),
    params:
        cfg=cfg("convergence_run"),
        code=code("convergence_run"),
    shell:
        f"{STAGE}/convergence.py {IDENTITY} --rows {{output.rows:q}} --runs {{output.runs:q}} {LOGGED}"


rule convergence:
    input:
        STUDY.run_files("convergence"),
    output:
        rows=STUDY.output("convergence"),
    log:
        STUDY.log("convergence"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("convergence"),
        code=code("convergence"),
    shell:
        f"{STAGE}/compact.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} {LOGGED}"
