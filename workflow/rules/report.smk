# The tables of a platform as a whole, in addition to those of its tasks.
PLATFORM = ["measurements", "accuracy", "occupancy", "traffic", "cache_lines"]


# A task by its name, as in `snakemake task3`: measured, with its table and figure.
for task in [*study.tasks, *study.tunings]:

    rule:
        name:
            task
        input:
            study.files_of_task(task),
            f"results/outcomes/{task}.txt",
        localrule: True


rule draw:
    input:
        device="results/{platform}/device.json",
        results=study.results_of,
    output:
        table="results/{platform}/tables/{task}.csv",
        figure=report(
            "results/{platform}/figures/{task}.svg",
            caption="../../report/captions/figures.rst",
            category="Figures",
        ),
    log:
        "logs/{platform}/draw/{task}.log",
    wildcard_constraints:
        task="|".join([*study.tasks, *study.tunings]),
    localrule: True
    params:
        conditions=conditions.of_drawing,
    script:
        "../scripts/draw.py"


# The config as the report shows it. Nothing that is measured depends on this file.
rule config:
    output:
        "results/{platform}/config.json",
    log:
        "logs/{platform}/config.log",
    localrule: True
    params:
        conditions=conditions.of_config,
    script:
        "../scripts/config.py"


rule overview:
    input:
        device="results/{platform}/device.json",
        config="results/{platform}/config.json",
        measured=expand("results/{{platform}}/{name}.csv", name=PLATFORM),
        facts=expand("results/{{platform}}/facts/{task}.csv", task=study.tasks),
        counters=study.counters_of,
        instructions=study.instructions_of,
    output:
        expand("results/{{platform}}/tables/{name}.csv", name=tables.OVERVIEW),
        report(
            expand("results/{{platform}}/figures/{name}.svg", name=tables.STUDY_FIGURES),
            caption="../../report/captions/figures.rst",
            category="Figures",
        ),
    log:
        "logs/{platform}/overview.log",
    localrule: True
    params:
        conditions=conditions.of_overview,
    script:
        "../scripts/overview.py"


rule page:
    input:
        devices=expand("results/{platform}/device.json", platform=study.platforms),
        configs=expand("results/{platform}/config.json", platform=study.platforms),
        measured=expand("results/{platform}/{name}.csv", platform=study.platforms, name=PLATFORM),
        facts=expand("results/{platform}/facts/{task}.csv", platform=study.platforms, task=study.tasks),
        counters=study.counters_of,
        instructions=study.instructions_of,
    output:
        # The old pages stay until the new ones are there.
        report(
            update(expand("results/{page}.html", page=sections.PAGES)),
            caption="../../report/captions/page.rst",
            category="Report",
        ),
        notes="results/notes.json",
        preview="results/preview.png",
    log:
        "logs/report.log",
    priority: 1
    localrule: True
    params:
        conditions=conditions.of_page,
    script:
        "../scripts/page.py"
