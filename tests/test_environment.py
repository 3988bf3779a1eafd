"""One set of dependencies, written down once: in pyproject.toml, which conda installs too."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.request

import pytest
import yaml
from clones import copy_repository
from packaging.requirements import Requirement

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


def test_the_gpu_packages_leave_pip_nothing_to_try():
    """pip takes a name with other extras for another package, and tries every version of one that has no pin."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = [Requirement(line) for lines in extras.values() for line in lines]
    assert [str(each) for each in named if "ctk" in each.extras] == []
    [toolkit] = [each for each in named if each.name == "cuda-toolkit"]
    assert {"cublas", "cudart", "curand", "nvrtc"} <= toolkit.extras
    pinned = {each.name: str(each.specifier) for each in named}
    assert pinned["cuda-toolkit"].startswith("==13.0.") and pinned["nvidia-cuda-nvrtc"].startswith("==13.0.")


#: A Python whose pip warns of an index that is not there; its second argument is the folder of the new environment.
PYTHON = """#!/bin/sh
case "$*" in
  *"-m venv"*) mkdir -p .venv/bin; cp "$0" .venv/bin/python;;
  *"-m pip"*) echo "WARNING: Location 'file:///nowhere/' is ignored" >&2
    test -z "$BROKEN" || { echo no space left; exit 1; };;
esac
"""


def make(folder, *arguments, **variables):
    """Run make in a folder that has nothing but the Makefile, with a Python that installs nothing."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    (folder / "python").write_text(PYTHON)
    (folder / "python").chmod(0o755)
    command = ["make", f"PYTHON={folder}/python", *arguments]
    environment = {"PATH": "/usr/bin:/bin", **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_make_prints_a_line_for_each_step_with_its_seconds_whatever_pip_says(tmp_path):
    done = make(tmp_path, ".venv/test")
    assert done.returncode == 0 and not done.stderr
    steps = ["making the environment .venv", "installing the packages", "installing the packages of the tests"]
    assert [re.sub(r"\d+ s$", "N s", line) for line in done.stdout.splitlines()] == [
        f"{name} ... N s" for name in steps
    ]


def test_make_shows_what_a_failed_step_said(tmp_path):
    done = make(tmp_path, ".venv/run", BROKEN="1")
    assert done.returncode != 0 and not (tmp_path / ".venv/run").exists()
    assert "installing the packages ... failed\n" in done.stdout and "no space left" in done.stdout


@pytest.mark.slow
def test_the_recipe_for_nodes_without_a_network_works_as_written(tmp_path):
    """The commands of docs/cluster.md, without the GPU's packages, in an environment that has pip as venv brings it."""
    recipe = re.search(
        r"```bash\n(pip wheel .*)\n(pip install --no-index .*)\n```", (ROOT / "docs/cluster.md").read_text()
    )
    collect, install = (line.split("#")[0].replace("'.[gpu]'", ".") for line in recipe.groups())
    clone = copy_repository(tmp_path / "clone")
    shutil.copy(ROOT / "LICENSE", clone)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "new"], check=True)
    online = os.environ | {"PATH": f"{tmp_path}/new/bin:{os.environ['PATH']}"}
    subprocess.run(collect, shell=True, cwd=clone, env=online, check=True, capture_output=True)
    assert {path.suffix for path in (clone / "wheels").iterdir()} == {".whl"}
    offline = {name: value for name, value in online.items() if not name.startswith("PIP_")}
    offline |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}
    done = subprocess.run(install, shell=True, cwd=clone, env=offline, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = subprocess.run(["tilewise", "--version"], env=online, capture_output=True, text=True).stdout
    assert said.startswith("tilewise ")


@pytest.mark.slow
def test_pip_resolves_the_gpu_packages_at_once(tmp_path, record_property):
    """Only metadata is fetched: the sizes of the files are asked for, and nothing is kept."""
    report = tmp_path / "report.json"
    options = ["--dry-run", "--ignore-installed", "--no-cache-dir", "--use-feature=fast-deps", "--report", str(report)]
    begin = time.monotonic()
    command = [sys.executable, "-m", "pip", "install", *options, f"{ROOT}[gpu]"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seconds = time.monotonic() - begin
    wheels = re.findall(r"(cuda[-_]toolkit|nvidia[-_]cu\w+)[- ](\d[\w.]*)", done.stdout.partition("Would install")[0])
    tried = {name: {v for n, v in wheels if n.replace("-", "_") == name.replace("-", "_")} for name, _ in wheels}
    assert tried and all(len(versions) == 1 for versions in tried.values()), tried
    files = [each["download_info"]["url"] for each in json.loads(report.read_text())["install"]]
    size = sum(_size(url) for url in files if url.endswith(".whl"))
    record_property("note", f"GPU packages: {len(files)} files of {size / 1e9:.1f} GB, resolved in {seconds:.0f} s")
    assert 0 < size < 2.6e9


def _size(url):
    """Bytes of a file on the web or on a disk."""
    with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as answer:
        return int(answer.headers["Content-Length"])
