# Task continuity: similarity, beta and mu_t per lag, mu with its interval.
rule score_run:
    input:
        latents=STUDY.output("latents_encode"),
    output:
        rows=STUDY.output("score_run"),
        runs=STUDY.beside("score_run", "runs.parquet"),
        similarity=STUDY.similarity,
        sensitivity=STUDY.sensitivity,
    log:
        STUDY.log("score_run"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory("score_run"),
        runtime=minutes("score_run"),
    params:
        cfg=cfg("score_run"),
        code=code("score_run"),
    shell:
        f"{STAGE}/score.py {IDENTITY} --inputs latents={{input.latents:q}} --rows {{output.rows:q}} --runs {{output.runs:q}} --similarity {{output.similarity:q}} --sensitivity {{output.sensitivity:q}} {LOGGED}"


rule score:
    input:
        STUDY.run_files("score"),
    output:
        rows=STUDY.output("score"),
    log:
        STUDY.log("score"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("score"),
        code=code("score"),
    shell:
        f"{STAGE}/compact.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} {LOGGED}"


rule similarity:
    input:
        STUDY.run_files("similarity"),
    output:
        rows=STUDY.output("similarity"),
    log:
        STUDY.log("similarity"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("similarity"),
        code=code("similarity"),
    shell:
        f"{STAGE}/compact.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} {LOGGED}"


rule score_sensitivity:
    input:
        STUDY.run_files("score_sensitivity"),
    output:
        rows=STUDY.output("score_sensitivity"),
    log:
        STUDY.log("score_sensitivity"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("score_sensitivity"),
        code=code("score_sensitivity"),
    shell:
        f"{STAGE}/compact.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} {LOGGED}"
