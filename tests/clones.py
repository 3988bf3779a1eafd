"""Copies of the repository in which tests run Snakemake as a user would."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tilewise import ROOT

COPIED = ("CITATION.cff", "Snakefile", "config", "kernels", "profiles", "report", "slurm", "workflow", "pyproject.toml")


def copy_repository(folder):
    """Copy what a run needs into `folder`, which becomes a clone without history; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        elif source.exists():
            shutil.copy(source, folder / name)
    return folder


def snakemake(folder, *arguments, **environment):
    """Run Snakemake in a clone as a user would; returns the finished process with its output as text."""
    return subprocess.run(**_command(folder, arguments, environment), capture_output=True, timeout=1800)


def started(folder, *arguments):
    """Start Snakemake in a clone, in a process group of its own; returns the process, whose stdout has its words."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
    return subprocess.Popen(**_command(folder, arguments, {}), **pipes)


def _command(folder, arguments, environment):
    variables = os.environ | {"PYTHONPATH": str(folder / "workflow")} | environment
    command = [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]
    return {"args": command, "cwd": folder, "env": variables, "text": True}


def measured(journal):
    """The keys of the points in a journal, each as often as it was measured."""
    lines = journal.read_text().splitlines() if journal.exists() else []
    return [json.loads(line)["key"] for line in lines if line.endswith("}}")]


def edit(path, old, new):
    """Replace a text that must occur in the file; if an edit no longer applies, its test has to fail."""
    text = Path(path).read_text()
    assert old in text, f"{path} no longer contains {old!r}"
    Path(path).write_text(text.replace(old, new, 1))
