# How continuous each mixture of a discrete and a continuous observation is.
rule mixtures_run:
    input:
        states=STUDY.output("systems_simulate"),
    output:
        rows=STUDY.output("mixtures_run"),
        runs=STUDY.beside("mixtures_run", "runs.parquet"),
    log:
        STUDY.log("mixtures_run"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory("mixtures_run"),
        runtime=minutes("mixtures_run"),
    params:
        cfg=cfg("mixtures_run"),
        code=code("mixtures_run"),
    shell:
        f"{STAGE}/mixtures.py {IDENTITY} --inputs states={{input.states:q}} --rows {{output.rows:q}} --runs {{output.runs:q}} {LOGGED}"


rule mixtures:
    input:
        STUDY.run_files("mixtures"),
    output:
        rows=STUDY.output("mixtures"),
    log:
        STUDY.log("mixtures"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("mixtures"),
        code=code("mixtures"),
    shell:
        f"{STAGE}/compact.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} {LOGGED}"
