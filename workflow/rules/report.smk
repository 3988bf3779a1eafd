from tilewise.report import FIGURES, data, tables

# The tables of a platform as a whole, beside those of its tasks.
PLATFORM = ["measurements", "accuracy", "occupancy", "traffic", "cache_lines"]
# Its tasks' figures are those of the page too; a page of several platforms has figures with all of them.
ALONE = study.platforms if len(study.platforms) == 1 else []

for task in study.tasks:

    rule:
        name:
            task
        input:
            expand("results/{platform}/tables/{task}.csv", platform=study.platforms, task=task),


# What the report tells of the study. Nothing that is measured depends on this file.
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


rule show_task:
    input:
        device="results/{platform}/device.json",
        config=ancient("results/{platform}/config.json"),  # of which `shown` is what it reads
        task="results/{platform}/tasks/{task}.csv",
        facts="results/{platform}/facts/{task}.csv",
        kept=data.kept_files(),
    output:
        table="results/{platform}/tables/{task}.csv",
        figure=report(
            "results/{platform}/figures/{task}.svg",
            caption="../../report/captions/task.rst",
            category="Tasks",
            labels={"task": "{task}", "platform": "{platform}"},
        ),
    log:
        "logs/{platform}/show/{task}.log",
    localrule: True
    params:
        shown=study.shown_of,
    script:
        "../scripts/show_task.py"


rule overview:
    input:
        device="results/{platform}/device.json",
        config="results/{platform}/config.json",
        registry="kernels/registry.yaml",
        measured=expand("results/{{platform}}/{name}.csv", name=PLATFORM),
        facts=expand("results/{{platform}}/facts/{task}.csv", task=study.tasks),
        counters=study.counters_of,
        instructions=study.instructions_of,
        kept=data.kept_files(),
    output:
        tables=expand("results/{{platform}}/tables/{name}.csv", name=tables.OVERVIEW),
        figures=report(
            expand("results/{{platform}}/figures/{name}.svg", name=FIGURES),
            caption="../../report/captions/overview.rst",
            category="Kernels side by side",
            labels={"platform": "{platform}"},
        ),
    log:
        "logs/{platform}/show/overview.log",
    localrule: True
    script:
        "../scripts/show_overview.py"


rule page:
    input:
        devices=expand("results/{platform}/device.json", platform=study.platforms),
        configs=expand("results/{platform}/config.json", platform=study.platforms),
        registry="kernels/registry.yaml",
        measured=expand("results/{platform}/{name}.csv", platform=study.platforms, name=PLATFORM),
        facts=expand("results/{platform}/facts/{task}.csv", platform=study.platforms, task=study.tasks),
        counters=study.counters_of,
        instructions=study.instructions_of,
        figures=expand("results/{platform}/figures/{task}.svg", platform=ALONE, task=study.tasks),
        kept=data.kept_files(),
        notebook="report/report.py",
        template="report/template/report.html.j2",
        style="report/template/style.css",
        behaviour="report/template/page.js",
    output:
        # Beside it lie its figures, in results/figures/, and its notes, in results/notes.json: made with it again.
        report(
            update("results/report.html"),  # the old page stays until the new one is there
            caption="../../report/captions/page.rst",
            category="Report",
            labels={"page": "the whole report"},
        ),
    log:
        "logs/report.log",
    priority: 1
    localrule: True
    params:
        variants=study.variants(),
    script:
        "../scripts/page.py"
