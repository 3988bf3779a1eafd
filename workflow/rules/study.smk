# Read and check the config before any rule exists: `study` holds the platforms and tasks, `conditions` the digests that
# make a rule run again, `resources` the cores, memory and time of its jobs.
import contextlib
import os
import shlex
import sys

from snakemake_interface_executor_plugins.settings import ExecMode
from tilewise import configfiles, exit_on_user_error, files, outcome, preflight, progress, stopping
from tilewise.conditions import Conditions
from tilewise.files import of_project
from tilewise.report import sections, tables
from tilewise.resources import JobResources
from tilewise.rules import Study

# Snakemake writes the path of Python into a script's command as it is, so a clone in a folder with a space would not run.
sys.executable = shlex.quote(sys.executable)


# A job under Slurm: the run that submitted it has checked the config, and shows the progress.
in_job = workflow.exec_mode != ExecMode.DEFAULT

if not in_job:
    with exit_on_user_error():
        # Names the file and line of a mistake, which Snakemake's own message leaves out.
        configfiles.read(of_project("config/config.yaml"))


configfile: of_project("config/config.yaml")


cores = None
with contextlib.suppress(Exception):  # Snakemake's, where nothing runs, as with --summary
    cores = workflow.cores

with exit_on_user_error():
    study = Study(
        config,
        source=configfiles.settle(config, workflow.configfiles, workflow.config_settings),
        remote="slurm" in config,  # as config/cluster.yaml and the profile say
        cores=cores,
        reserved={*tables.TABLES, *tables.SIDE_BY_SIDE, *tables.STUDY_FIGURES, *tables.PAGE_FIGURES},
        checked=in_job,
    )

# What the tasks of a run make, and the tables and figures over all of them.
SHOWN = [path for task in study.tasks for path in study.files_of_task(task)]
SHOWN += expand("results/{platform}/tables/{name}.csv", platform=study.platforms, name=tables.OVERVIEW)
SHOWN += expand("results/{platform}/figures/{name}.svg", platform=study.platforms, name=tables.STUDY_FIGURES)
# The files that each platform has in addition to those of its tasks.
OF_PLATFORM = ["device.json", "config.json", "measurements.csv", "accuracy.csv", "occupancy.csv", "tile_choice.csv"]
OF_PLATFORM += ["traffic.csv", "cache_lines.csv"]
config["tasks"] = study.config["tasks"]
conditions, resources = Conditions(study), JobResources(study)

if not in_job:
    progress.EXPECTED |= resources.expected()
    if study.remark:
        print(study.remark, file=sys.stderr)
    outcome.TASKS |= config["tasks"]
    outcome.TARGETS.append(lambda: workflow.dag_settings.targets if workflow.dag_settings else ())  # known after rules
    outcome.ON_PURPOSE |= {os.path.relpath(kernel.path) for kernel in study.kernels.values() if kernel.faulty}


if config["platforms"] == "auto":
    config["platforms"] = study.platforms  # the jobs need not look at the machine again


wildcard_constraints:
    platform="|".join(study.platforms),
    task="|".join(study.tasks),


# What the run holds until its process ends.
held = contextlib.ExitStack()


onstart:
    stopping.install_signal_handlers()
    # Snakemake 9 looks at the open jobs again a second after each look, and once more for each job that has ended: after
    # 60 jobs that takes a tenth of a core beside what is measured. Without a limit of jobs per second it does not.
    workflow.scheduler.job_rate_limiter = None
    with exit_on_user_error():
        # Snakemake's own lock would stay when a run is killed; the system frees this one.
        held.enter_context(files.hold_lock("results/.run.lock", wait_s=2, what="the same files"))
        auto = study.config["platforms"] == "auto"
        preflight.check_executor(workflow.executor_plugin, auto)
        about_report = outcome.wants_report(workflow.dag_settings.targets)
        preflight.check(study.kernels, remote="slurm" in config, tasks=study.tasks, report=about_report)
