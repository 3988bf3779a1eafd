# Tilewise: a reproducible study of CUDA matrix multiplication. The README tells how to run it.
import os

from snakemake.exceptions import WorkflowError
from tilewise import UserError, figures, tables
from tilewise.schema import read_yaml
from tilewise.study import Study

try:
    read_yaml("config/config.yaml")  # what is wrong in it and where, which Snakemake's own message leaves out
except UserError as error:
    raise WorkflowError(str(error))


configfile: "config/config.yaml"


container: "docker://snakemake/snakemake:v9.27.1"


try:
    study = Study(
        config,
        source=", ".join(os.path.relpath(path) for path in workflow.configfiles),
        remote=workflow.nodes is not None,
        cores=workflow.cores,
        reserved={*tables.OVERVIEW, *figures.OVERVIEW},
    )
except UserError as error:
    raise WorkflowError(str(error))


wildcard_constraints:
    platform="|".join(study.platforms),
    task="|".join(study.tasks),
    kernel="|".join(study.kernels),


rule all:
    default_target: True
    input:
        "results/report.html",
        expand("results/{platform}/tables/{name}.csv", platform=study.platforms, name=[*study.tasks, *tables.OVERVIEW]),
    localrule: True


include: "workflow/rules/probe.smk"
include: "workflow/rules/build.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/experiments.smk"
include: "workflow/rules/trace.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/slurm.smk"
