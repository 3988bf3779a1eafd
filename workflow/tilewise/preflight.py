"""Checks before a run starts, so that it does not fail after an hour when it draws the page."""

import os
import sys
from collections.abc import Collection, Mapping

from snakemake_interface_executor_plugins.registry.plugin import Plugin

import snakemake_executor_plugin_tilewise
from kernelscope import cpp
from tilewise import RECORDED, UserError
from tilewise.evidence import load_evidence, load_published
from tilewise.report import claims, headings, sections
from tilewise.study.kernel import Kernel


def check(kernels: Mapping[str, Kernel], remote: bool, tasks: Collection[str] = (), report: bool = True) -> None:
    """Raise UserError if tables and, for a run about the `report`, its pages cannot be made from their sources, or if
    there is no suitable compiler.

    The jobs of a cluster are `remote`: they compile elsewhere. `tasks` are those of this run.
    """
    if not remote:
        cpp.check()
    headings.load()
    entries = claims.load()
    load_published(kernels=kernels)
    if not report or not any(RECORDED.glob("*/device.json")):  # reading the records takes more than a second
        return
    evidence = load_evidence([], kernels=kernels)  # the recorded runs
    claims.check(entries, evidence)
    # A study may have fewer tasks than the page describes; the recorded runs had all.
    sections.check(kernels, {*tasks, *evidence.tasks})


def check_executor(plugin: Plugin, auto: bool) -> None:
    """Raise UserError if an executor cannot run the jobs; print a line about one that a user's profile has chosen.

    Other executors than Snakemake's own submit jobs to other machines; the platform `auto` is this machine.
    """
    if plugin.name == "tilewise":
        snakemake_executor_plugin_tilewise.check()
    elif not plugin.common_settings.local_exec:
        profile = os.environ.get("SNAKEMAKE_PROFILE")
        executor = f"the executor {plugin.name}" + (f" of SNAKEMAKE_PROFILE={profile}" if profile else "")
        if auto:
            raise UserError(
                f"{executor} would submit the measurements of this machine (`platforms: auto`) to other machines; "
                "with SNAKEMAKE_PROFILE=none this machine measures, with `--profile slurm` the cluster that "
                "config/cluster.yaml describes"
            )
        print(f"{executor} submits the jobs of this run; `--profile slurm` uses the project's own", file=sys.stderr)
