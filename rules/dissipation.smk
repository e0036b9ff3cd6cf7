# Every theorem of dissipation theory on random systems, and on systems that break its hypothesis.
rule dissipation_run:
    output:
        rows=STUDY.output("dissipation_run"),
        runs=STUDY.beside("dissipation_run", "runs.parquet"),
    log:
        STUDY.log("dissipation_run"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory("dissipation_run"),
        runtime=minutes("dissipation_run"),
    params:
        cfg=cfg("dissipation_run"),
        code=code("dissipation_run"),
    shell:
        f"{STAGE}/dissipation.py {IDENTITY} --rows {{output.rows:q}} --runs {{output.runs:q}} {LOGGED}"


rule dissipation:
    input:
        STUDY.run_files("dissipation"),
    output:
        rows=STUDY.output("dissipation"),
    log:
        STUDY.log("dissipation"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("dissipation"),
        code=code("dissipation"),
    shell:
        f"{STAGE}/compact.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} {LOGGED}"
