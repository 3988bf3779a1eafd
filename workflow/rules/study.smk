# The config, read and checked before any rule is made: `study` is what the other files ask for platforms and tasks.
import os
import shlex
import sys

import snakemake.exceptions
from snakemake.exceptions import WorkflowError
from snakemake_interface_executor_plugins.settings import ExecMode
from tilewise import UserError, files, progress, start
from tilewise.report import figures, tables
from tilewise.study.schema import read_yaml
from tilewise.workflow import Study

files.end_with_make()
# A script is a child of this process, not of a shell, and ends with it.
os.environ[files.RUN] = str(os.getpid())
if workflow.exec_mode == ExecMode.REMOTE:  # the run that shows its progress is elsewhere
    os.environ.pop(files.SHOWN, None)
shell.prefix("exec ")
sys.executable = shlex.quote(sys.executable)  # Snakemake writes it into commands as it is, also with a space in it

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
    if workflow.exec_mode == ExecMode.DEFAULT:  # not a job under Slurm
        start.check_kept(study.kernels)
        if study.remark:
            print(study.remark, file=sys.stderr)
except UserError as error:
    raise WorkflowError(str(error))

if workflow.exec_mode == ExecMode.DEFAULT:
    others = start.take_over()
    if others:
        message = f"{' and '.join(others)} works here on the same files; let it end, or stop it"
        snakemake.exceptions.LockException = lambda: WorkflowError(message)
    for path in start.changed_by_hand() if not others else ():
        print(f"{path} was changed after it was made; it is made again", file=sys.stderr)

if workflow.nodes is None and "gpu" not in workflow.global_resources:
    # Each job that measures takes one GPU; without a limit Snakemake would take the resource for unlimited.
    workflow.global_resources["gpu"] = study.gpus


wildcard_constraints:
    platform="|".join(study.platforms),
    task="|".join(study.tasks),
    kernel="|".join(study.kernels),


onstart:
    # To keep to a rate of jobs that nothing here comes near, each look for jobs makes another one second later: after 90
    # jobs there are 90 looks per second, on the cores that are being timed.
    workflow.scheduler.job_rate_limiter = None
    progress.begin(workflow, study)
