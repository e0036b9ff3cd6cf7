# Forecasters whose selective memory is left alone, penalised, or dissipative by construction; also on perturbed input.
rule stability_run:
    input:
        lambda wildcards: STUDY.series_files(wildcards.dataset),
    output:
        rows=STUDY.output("stability_run"),
        runs=STUDY.beside("stability_run", "runs.parquet"),
        robustness=STUDY.robustness,
    log:
        STUDY.log("stability_run"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory("stability_run"),
        runtime=minutes("stability_run"),
        gpu=gpus("stability_run"),
    params:
        cfg=cfg("stability_run"),
        code=code("stability_run"),
    shell:
        f"{STAGE}/stability.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} --runs {{output.runs:q}} --robustness {{output.robustness:q}} {LOGGED}"


rule stability:
    input:
        STUDY.run_files("stability"),
    output:
        rows=STUDY.output("stability"),
    log:
        STUDY.log("stability"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("stability"),
        code=code("stability"),
    shell:
        f"{STAGE}/compact.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} {LOGGED}"


rule robustness:
    input:
        STUDY.run_files("robustness"),
    output:
        rows=STUDY.output("robustness"),
    log:
        STUDY.log("robustness"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("robustness"),
        code=code("robustness"),
    shell:
        f"{STAGE}/compact.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} {LOGGED}"
