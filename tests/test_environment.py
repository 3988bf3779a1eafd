"""One set of dependencies, told twice: for pip and for conda."""

import re
import tomllib

import yaml

from tilewise import ROOT

#: Conda's name for a package of pip's; its snakemake-minimal is what pip calls snakemake.
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


def test_every_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    assert all("==" in line or line.startswith("tilewise[") for line in project["dependencies"] + extras)
