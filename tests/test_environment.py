"""One set of dependencies, written down once: in pyproject.toml, which conda installs too."""

import re
import shutil
import subprocess
import tomllib

import yaml

from tilewise import ROOT

#: What conda provides and pip takes from the system.
SYSTEM = {"python", "pip", "gxx", "make"}


def test_conda_installs_the_project_and_repeats_no_pins():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert conda.pop() == {"pip": ["--editable ."]}
    pairs = dict(re.fullmatch(r"([\w-]+)(?: ?(>=.*))?", line).groups() for line in conda)
    assert pairs.pop("python") == project["requires-python"]
    assert pairs == dict.fromkeys(SYSTEM - {"python"})


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
