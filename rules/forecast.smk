# Which architecture forecasts best at which eta; the gap to the best, and its alignment with mu.
rule forecast_run:
    input:
        states=STUDY.output("systems_simulate"),
    output:
        rows=STUDY.output("forecast_run"),
        runs=STUDY.beside("forecast_run", "runs.parquet"),
    log:
        STUDY.log("forecast_run"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=STUDY.config["resources"]["memory_mb"],
        runtime=STUDY.config["resources"]["minutes"],
    params:
        cfg=cfg("forecast_run"),
        code=code("forecast_run"),
    shell:
        f"{STAGE}/forecast.py {IDENTITY} --inputs states={{input.states:q}} --rows {{output.rows:q}} --runs {{output.runs:q}} {LOGGED}"


rule forecast:
    input:
        STUDY.run_files("forecast"),
    output:
        rows=STUDY.output("forecast"),
    log:
        STUDY.log("forecast"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("forecast"),
        code=code("forecast"),
    shell:
        f"{STAGE}/compact.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} {LOGGED}"


rule gap:
    input:
        forecast=STUDY.output("forecast"),
    output:
        rows=STUDY.output("gap"),
    log:
        STUDY.log("gap"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("gap"),
        code=code("gap"),
    shell:
        f"{STAGE}/gap.py {IDENTITY} --inputs forecast={{input.forecast:q}} --rows {{output.rows:q}} {LOGGED}"


rule alignment:
    input:
        forecast=STUDY.output("forecast"),
        mixtures=STUDY.output("mixtures"),
    output:
        rows=STUDY.output("alignment"),
    log:
        STUDY.log("alignment"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("alignment"),
        code=code("alignment"),
    shell:
        f"{STAGE}/alignment.py {IDENTITY} --inputs forecast={{input.forecast:q}} mixtures={{input.mixtures:q}} --rows {{output.rows:q}} {LOGGED}"
