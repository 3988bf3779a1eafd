# A run fails, after its page is there, if the page lacks a piece; with `strict: true` also if a point is not right.
rule outcome:
    input:
        page="results/report.html",
        measured=expand("results/{platform}/measurements.csv", platform=study.platforms),
    output:
        "results/outcome.txt",
    log:
        "logs/outcome.log",
    localrule: True
    params:
        strict=config.get("strict", False),
    script:
        "../scripts/outcome.py"


# Describes the run and the files that it made, for archives: results/ is then an RO-Crate.
rule crate:
    input:
        pages=expand("results/{page}.html", page=sections.PAGES),
        tables=expand(
            "results/{platform}/tables/{name}.csv", platform=study.platforms, name=[*study.tasks, *tables.OVERVIEW]
        ),
        measured=expand("results/{platform}/measurements.csv", platform=study.platforms),
        workflow=of_project("workflow/Snakefile"),
    output:
        metadata="results/ro-crate-metadata.json",
        workflow="results/Snakefile",
    log:
        "logs/crate.log",
    localrule: True
    params:
        platforms=list(study.platforms),
    script:
        "../scripts/crate.py"
