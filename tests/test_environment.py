"""One set of dependencies, written down twice: for pip and for conda."""

import re
import shutil
import subprocess
import tomllib

import yaml

from tilewise import ROOT

#: Conda's name for a pip package: conda's snakemake-minimal is what pip calls snakemake.
CONDA_NAMES = {"snakemake-minimal": "snakemake"}
#: What conda provides and pip takes from the system.
SYSTEM = {"python", "pip", "gxx", "make"}


def test_conda_and_pip_name_the_same_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert conda.pop() == {"pip": ["--editable ."]}
    pairs = (re.fullmatch(r"([\w-]+)(?: ?[=>]=(.*))?", line).groups() for line in conda)
    conda_pins = {CONDA_NAMES.get(name, name): pin for name, pin in pairs}
    assert f">={conda_pins['python']}" == project["requires-python"]
    pip_pins = dict(line.split("==") for line in project["dependencies"])
    assert {name: pin for name, pin in conda_pins.items() if name not in SYSTEM} == pip_pins


def test_a_gpu_that_comes_later_brings_its_packages(tmp_path):
    """`make report` installs what a machine with a GPU needs, even if an environment without it already exists."""
    (tmp_path / ".venv").mkdir()
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv/run").touch()
    (tmp_path / "bin").mkdir()

    def plan():
        path = f"{tmp_path}/bin:/usr/bin:/bin"
        return subprocess.run(
            ["make", "-n", "report"], cwd=tmp_path, env={"PATH": path}, capture_output=True, text=True
        )

    assert "pip install" not in plan().stdout
    (tmp_path / "bin/nvidia-smi").write_text("#!/bin/sh\n")
    (tmp_path / "bin/nvidia-smi").chmod(0o755)
    assert "--editable .[gpu]" in plan().stdout


def test_every_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    assert all("==" in line or line.startswith("tilewise[") for line in project["dependencies"] + extras)
