# Trajectories of the four dynamical systems.
rule systems_simulate:
    output:
        states=STUDY.output("systems_simulate"),
    log:
        STUDY.log("systems_simulate"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory("systems_simulate"),
        runtime=minutes("systems_simulate"),
    params:
        cfg=cfg("systems_simulate"),
        code=code("systems_simulate"),
    shell:
        f"{STAGE}/systems.py {IDENTITY} --states {{output.states:q}} {LOGGED}"


rule systems:
    input:
        STUDY.outputs("systems_simulate"),
