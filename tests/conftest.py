"""What the tests share: the study's own config and registry, and a copy of the repository to run Snakemake in."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import synthetic
import yaml

from tilewise import ROOT, registry, render
from tilewise.emulator import EMULATED_LIMITS

COPIED = ("Snakefile", "config", "kernels", "report", "slurm", "workflow", "pyproject.toml")


@pytest.fixture(scope="session")
def config():
    """The study as config/config.yaml tells it."""
    return yaml.safe_load((ROOT / "config/config.yaml").read_text())


@pytest.fixture(scope="session")
def kernels():
    """The registry."""
    return registry.load()


@pytest.fixture(scope="session")
def device(config):
    """device.json of a machine without a GPU, as far as the measurements read it."""
    return {
        "platform": "emulator",
        "backend": "emulator",
        "gpu": None,
        "limits": EMULATED_LIMITS | {"memory_bytes": config["emulator"]["memory_bytes"]},
        "versions": {},
        "cpu": {},
        "host_compiler": "g++",
    }


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


@pytest.fixture(scope="session")
def new_clone():
    """`copy_repository`, for tests that cannot import this file."""
    return copy_repository


@pytest.fixture
def clone(tmp_path):
    """A fresh copy of the repository for one test."""
    return copy_repository(tmp_path / "clone")


def snakemake(folder, *arguments, **environment):
    """Run Snakemake in a clone as a user would; returns the finished process with its output as text."""
    variables = os.environ | {"PYTHONPATH": str(folder / "workflow"), **environment}
    command = [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=280)


def edit(path, old, new):
    """Replace a text that must be there; a test whose edit no longer applies has to fail."""
    text = Path(path).read_text()
    assert old in text, f"{path} no longer holds {old!r}"
    Path(path).write_text(text.replace(old, new, 1))


def write_json(path, data):
    """Write JSON for a test."""
    Path(path).write_text(json.dumps(data))


@pytest.fixture(scope="session")
def rendered(tmp_path_factory):
    """The page of a machine without a GPU, beside a recorded run."""
    folder = tmp_path_factory.mktemp("report")
    synthetic.write(folder / "recorded/nvidia-h200", with_traffic=True)
    synthetic.write(folder / "results/emulator", "emulator", with_traffic=True)
    render.render(folder / "report.html", [folder / "results/emulator"], recorded=folder / "recorded")
    return folder / "report.html"
