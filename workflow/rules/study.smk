# The config, read and checked before any rule is made: `study` is what the other files ask for platforms and tasks.
import os

from snakemake.exceptions import WorkflowError
from tilewise import UserError
from tilewise.report import figures, tables
from tilewise.study.schema import read_yaml
from tilewise.workflow import Study

try:
    read_yaml("config/config.yaml")  # names the file and line of a mistake, which Snakemake's own message leaves out
except UserError as error:
    raise WorkflowError(str(error))


configfile: "config/config.yaml"


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

if workflow.nodes is None and "gpu" not in workflow.global_resources:
    # Each job that measures takes one GPU; without a limit Snakemake would take the resource for unlimited.
    workflow.global_resources["gpu"] = study.gpus


wildcard_constraints:
    platform="|".join(study.platforms),
    task="|".join(study.tasks),
    kernel="|".join(study.kernels),
