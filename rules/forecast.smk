# Which architecture forecasts best at which eta; the gap to the best, and its alignment with mu.
rule forecast_search_run:
    input:
        STUDY.search_states(),
    output:
        rows=STUDY.output("forecast_search_run"),
        runs=STUDY.beside("forecast_search_run", "runs.parquet"),
    log:
        STUDY.log("forecast_search_run"),
    # Every other job of its model waits for it.
    priority: 2
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory("forecast_search_run"),
        runtime=minutes("forecast_search_run"),
        gpu=gpus("forecast_search_run"),
    params:
        cfg=cfg("forecast_search_run"),
        code=code("forecast_search_run"),
    shell:
        f"{STAGE}/forecast_search.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} --runs {{output.runs:q}} {LOGGED}"


rule forecast_search:
    input:
        STUDY.run_files("forecast_search"),
    output:
        rows=STUDY.output("forecast_search"),
    log:
        STUDY.log("forecast_search"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("forecast_search"),
        code=code("forecast_search"),
    shell:
        f"{STAGE}/compact.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} {LOGGED}"


rule forecast_run:
    input:
        states=STUDY.output("systems_simulate"),
        search=lambda wildcards: STUDY.search(wildcards.model),
    output:
        rows=STUDY.output("forecast_run"),
        runs=STUDY.beside("forecast_run", "runs.parquet"),
    log:
        STUDY.log("forecast_run"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory("forecast_run"),
        runtime=minutes("forecast_run"),
        gpu=gpus("forecast_run"),
    params:
        cfg=cfg("forecast_run"),
        code=code("forecast_run"),
    shell:
        f"{STAGE}/forecast.py {IDENTITY} --inputs states={{input.states:q}} --files {{input.search:q}} --rows {{output.rows:q}} --runs {{output.runs:q}} {LOGGED}"


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


rule crossed_run:
    input:
        states=STUDY.output("systems_simulate"),
        search=lambda wildcards: STUDY.search(wildcards.model),
    output:
        rows=STUDY.output("crossed_run"),
        runs=STUDY.beside("crossed_run", "runs.parquet"),
    log:
        STUDY.log("crossed_run"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory("crossed_run"),
        runtime=minutes("crossed_run"),
        gpu=gpus("crossed_run"),
    params:
        cfg=cfg("crossed_run"),
        code=code("crossed_run"),
    shell:
        f"{STAGE}/crossed.py {IDENTITY} --inputs states={{input.states:q}} --files {{input.search:q}} --rows {{output.rows:q}} --runs {{output.runs:q}} {LOGGED}"


rule crossed:
    input:
        STUDY.run_files("crossed"),
    output:
        rows=STUDY.output("crossed"),
    log:
        STUDY.log("crossed"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("crossed"),
        code=code("crossed"),
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


rule prediction:
    input:
        forecast=STUDY.output("forecast"),
        mixtures=STUDY.output("mixtures"),
        benchmark=STUDY.output("benchmark"),
        score=STUDY.output("score"),
    output:
        rows=STUDY.output("prediction"),
    log:
        STUDY.log("prediction"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("prediction"),
        code=code("prediction"),
    shell:
        f"{STAGE}/prediction.py {IDENTITY} --inputs forecast={{input.forecast:q}} mixtures={{input.mixtures:q}} benchmark={{input.benchmark:q}} score={{input.score:q}} --rows {{output.rows:q}} {LOGGED}"
