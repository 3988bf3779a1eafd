# Tilewise: a reproducible study of CUDA matrix multiplication. The README tells how to run it.
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

min_version("9.0")

sys.path.insert(0, str(Path(workflow.basedir) / "workflow"))
from tilewise import UserError
from tilewise.study import Study


configfile: "config/config.yaml"


try:
    study = Study(config, remote=workflow.nodes is not None)
except UserError as error:
    raise WorkflowError(str(error))


wildcard_constraints:
    platform="|".join(study.platforms),
    task="|".join(study.tasks),
    kernel="|".join(study.kernels),


localrules:
    all,


rule all:
    default_target: True
    input:
        "results/report.html",
        expand("results/{platform}/tables/{task}.csv", platform=study.platforms, task=study.tasks),
        expand("results/{platform}/occupancy.csv", platform=study.platforms),
        expand("results/{platform}/traffic.csv", platform=study.platforms),


include: "workflow/rules/probe.smk"
include: "workflow/rules/build.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/experiments.smk"
include: "workflow/rules/trace.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/slurm.smk"
