# Tilewise: a reproducible study of CUDA matrix multiplication. The README shows how to run it.
container: "docker://snakemake/snakemake:v9.27.1"


include: "workflow/rules/study.smk"


rule all:
    default_target: True
    input:
        expand("results/{page}.html", page=sections.PAGES),
        expand("results/{platform}/tables/{name}.csv", platform=study.platforms, name=[*study.tasks, *tables.OVERVIEW]),
        "results/outcome.txt",
    localrule: True


include: "workflow/rules/probe.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/tune.smk"
include: "workflow/rules/explain.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/outcome.smk"
