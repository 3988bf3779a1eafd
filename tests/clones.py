"""Copies of the repository in which tests run Snakemake as a user would."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tilewise import ROOT

COPIED = ("Snakefile", "config", "kernels", "profiles", "report", "slurm", "workflow", "pyproject.toml")


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
    variables = os.environ | {"PYTHONPATH": str(folder / "workflow"), **environment}
    command = [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=480)


def edit(path, old, new):
    """Replace a text that must occur in the file; if an edit no longer applies, its test has to fail."""
    text = Path(path).read_text()
    assert old in text, f"{path} no longer contains {old!r}"
    Path(path).write_text(text.replace(old, new, 1))
