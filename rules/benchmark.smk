# Architectures trained on the labelled tasks; the first seed's network is kept as an encoder.
rule benchmark_run:
    input:
        sequences=STUDY.sequences,
    output:
        rows=STUDY.output("benchmark_run"),
        runs=STUDY.beside("benchmark_run", "runs.parquet"),
        weights=STUDY.weights,
    log:
        STUDY.log("benchmark_run"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory("benchmark_run"),
        runtime=minutes("benchmark_run"),
        gpu=gpus("benchmark_run"),
    params:
        cfg=cfg("benchmark_run"),
        code=code("benchmark_run"),
    shell:
        f"{STAGE}/benchmark.py {IDENTITY} --inputs sequences={{input.sequences:q}} --rows {{output.rows:q}} --runs {{output.runs:q}} --weights {{output.weights:q}} {LOGGED}"


rule benchmark:
    input:
        STUDY.run_files("benchmark"),
    output:
        rows=STUDY.output("benchmark"),
    log:
        STUDY.log("benchmark"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("benchmark"),
        code=code("benchmark"),
    shell:
        f"{STAGE}/compact.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} {LOGGED}"
