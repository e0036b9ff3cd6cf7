# Claims with verdicts, figures, one page, one database. `--report FILE` shows them in Snakemake's own report too.
report: "captions/study.rst"


rule runs:
    input:
        STUDY.sidecars(),
    output:
        rows=STUDY.output("runs"),
    log:
        STUDY.log("runs"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("runs"),
        code=code("runs"),
    shell:
        f"{STAGE}/compact.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} {LOGGED}"


rule claims:
    input:
        STUDY.measured(),
    output:
        rows=STUDY.output("claims"),
    log:
        STUDY.log("claims"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("claims"),
        code=code("claims"),
    shell:
        f"{STAGE}/claims.py {IDENTITY} --files {{input:q}} --rows {{output.rows:q}} {LOGGED}"


rule figures:
    input:
        STUDY.measured(),
    output:
        listing=STUDY.output("figures"),
        pictures=report(
            directory(STUDY.beside("figures", "svg")),
            patterns=["{figure}.svg"],
            caption="captions/figure.rst",
            category="Figures",
            labels={"stage": "{figure}"},
        ),
    log:
        STUDY.log("figures"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("figures"),
        code=code("figures"),
    shell:
        f"{STAGE}/figures.py {IDENTITY} --files {{input:q}} --listing {{output.listing:q}} --pictures {{output.pictures:q}} {LOGGED}"


rule catalog:
    input:
        STUDY.tables(),
    output:
        database=STUDY.output("catalog"),
    log:
        STUDY.log("catalog"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("catalog"),
        code=code("catalog"),
    shell:
        f"{STAGE}/catalog.py {IDENTITY} --files {{input:q}} --database {{output.database:q}} {LOGGED}"


rule provenance:
    input:
        STUDY.tables(),
    output:
        crate=STUDY.output("provenance"),
    log:
        STUDY.log("provenance"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("provenance"),
        code=code("provenance"),
    shell:
        f"{STAGE}/provenance.py {IDENTITY} --files {{input:q}} --crate {{output.crate:q}} {LOGGED}"


rule report:
    input:
        tables=STUDY.tables(),
        figures=STUDY.output("figures"),
    output:
        page=report(
            STUDY.output("report"),
            caption="captions/page.rst",
            category="Verdicts",
            labels={"file": "the page"},
        ),
    log:
        STUDY.log("report"),
    conda:
        ENVIRONMENT
    params:
        cfg=cfg("report"),
        code=code("report"),
    shell:
        f"{STAGE}/report.py {IDENTITY} --inputs figures={{input.figures:q}} --files {{input.tables:q}} --page {{output.page:q}} {LOGGED}"
