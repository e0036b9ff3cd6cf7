# Sequences as points of a latent space, by encoder.
rule latents_encode:
    input:
        sequences=STUDY.sequences,
        weights=lambda wildcards: STUDY.encoder_weights(
            wildcards.task, wildcards.encoder
        ),
    output:
        latents=STUDY.output("latents_encode"),
    log:
        STUDY.log("latents_encode"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory("latents_encode"),
        runtime=minutes("latents_encode"),
    params:
        cfg=cfg("latents_encode"),
        code=code("latents_encode"),
    shell:
        f"{STAGE}/latents.py {IDENTITY} --inputs sequences={{input.sequences:q}} --files {{input.weights:q}} --latents {{output.latents:q}} {LOGGED}"


rule latents:
    input:
        STUDY.outputs("latents_encode"),
