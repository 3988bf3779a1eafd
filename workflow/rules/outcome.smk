# A run fails, after its page is there, if the page lacks a piece; with `strict: true` also if a point is not right.
rule outcome:
    input:
        page="results/report.html",
        notes="results/notes.json",
        shown=SHOWN,
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


# The same for a task by its name.
rule outcome_of_task:
    input:
        tables=expand("results/{platform}/tables/{{task}}.csv", platform=study.platforms),
        figures=expand("results/{platform}/figures/{{task}}.svg", platform=study.platforms),
    output:
        "results/outcomes/{task}.txt",
    log:
        "logs/outcome/{task}.log",
    wildcard_constraints:
        task="|".join([*study.tasks, *study.tunings]),
    localrule: True
    params:
        task=lambda wildcards: wildcards.task,
        strict=config.get("strict", False),
    script:
        "../scripts/outcome.py"


# Describes the run and the files that it made, for archives: results/ is then an RO-Crate.
rule crate:
    input:
        pages=expand("results/{page}.html", page=sections.PAGES),
        shown=SHOWN,
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


# A page by its name, as in `snakemake results/report.html`, is kept if it lacks a piece, but the run fails.
onsuccess:
    with exit_on_user_error():
        outcome.refuse_incomplete(workflow.dag_settings.targets)
