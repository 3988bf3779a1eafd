from tilewise.evidence import kept_files
from tilewise.report import sections, specs, tables

# The tables of a platform as a whole, in addition to those of its tasks.
PLATFORM = ["measurements", "accuracy", "occupancy", "traffic", "cache_lines"]
# With one platform, the page takes its tasks' figures; with several it has figures of all of them.
DRAWN = study.platforms if len(study.platforms) == 1 else []


# A task by its name, as in `snakemake task3`: measured, with its table and figure. In a whole run the rule `show` writes
# these files for all tasks; here they are no outputs, because one file cannot belong to two rules.
for task in study.tasks:

    rule:
        name:
            task
        input:
            devices=expand("results/{platform}/device.json", platform=study.platforms),
            configs=ancient(expand("results/{platform}/config.json", platform=study.platforms)),
            tasks=expand("results/{platform}/tasks/{task}.csv", platform=study.platforms, task=task),
            facts=expand("results/{platform}/facts/{task}.csv", platform=study.platforms, task=task),
        log:
            f"logs/show/{task}.log",
        localrule: True
        params:
            task=task,
        script:
            "../scripts/show_task.py"


# The config as the report shows it. Nothing that is measured depends on this file.
rule config:
    output:
        "results/{platform}/config.json",
    log:
        "logs/{platform}/config.log",
    localrule: True
    params:
        config=study.resolved,
    script:
        "../scripts/config.py"


rule show:
    input:
        device="results/{platform}/device.json",
        config="results/{platform}/config.json",
        registry=of_project("kernels/registry.yaml"),
        measured=expand("results/{{platform}}/{name}.csv", name=PLATFORM),
        facts=expand("results/{{platform}}/facts/{task}.csv", task=study.tasks),
        counters=study.counters_of,
        instructions=study.instructions_of,
        kept=kept_files(),
    output:
        tables=expand("results/{{platform}}/tables/{name}.csv", name=[*study.tasks, *tables.OVERVIEW]),
        figures=report(
            expand("results/{{platform}}/figures/{name}.svg", name=[*study.tasks, *specs.SPECS["study"]]),
            caption="../../report/captions/figures.rst",
            category="Figures",
        ),
    log:
        "logs/{platform}/show.log",
    localrule: True
    threads: study.cores or 1
    script:
        "../scripts/show.py"


rule page:
    input:
        devices=expand("results/{platform}/device.json", platform=study.platforms),
        configs=expand("results/{platform}/config.json", platform=study.platforms),
        registry=of_project("kernels/registry.yaml"),
        measured=expand("results/{platform}/{name}.csv", platform=study.platforms, name=PLATFORM),
        facts=expand("results/{platform}/facts/{task}.csv", platform=study.platforms, task=study.tasks),
        counters=study.counters_of,
        instructions=study.instructions_of,
        figures=expand("results/{platform}/figures/{task}.svg", platform=DRAWN, task=study.tasks),
        kept=kept_files(),
        sections=[of_project(f"report/sections/{name}") for name in sections.names_of()],
        template=of_project("report/template/report.html.j2"),
        pieces=of_project("report/template/pieces.html.j2"),
        ideas=of_project("report/template/ideas.html.j2"),
        style=of_project("report/template/style.css"),
        behaviour=of_project("report/template/page.js"),
    output:
        # The old pages stay until the new ones are there. The same script writes their figures, to results/figures/, and
        # their notes, to results/notes.json.
        report(
            update(expand("results/{page}.html", page=sections.PAGES)),
            caption="../../report/captions/page.rst",
            category="Report",
        ),
    log:
        "logs/report.log",
    priority: 1
    localrule: True
    params:
        variants=study.variants(),
    script:
        "../scripts/page.py"
