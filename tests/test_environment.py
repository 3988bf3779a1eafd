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

import filelock
import pytest
import yaml
from cards import H200, smi
from clones import copy_repository
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tilewise import ROOT

#: For these no wheel of `immutables` exists, which Snakemake needs: pip compiles it, with Python's headers.
BUILT_FROM_SOURCE = {"3.14"}
#: What conda provides and pip takes from the system.
SYSTEM = {"python", "pip", "gxx", "make"}


def test_conda_installs_the_project_and_repeats_no_pins():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert conda.pop() == {"pip": ["--editable ."]}
    pairs = dict(re.fullmatch(r"([\w-]+)(?: ?(>=.*))?", line).groups() for line in conda)
    ours, condas = SpecifierSet(project["requires-python"]), SpecifierSet(pairs.pop("python"))
    versions = [f"3.{minor}" for minor in range(30)]
    assert {v for v in versions if v in condas} == {v for v in versions if v in ours and v not in BUILT_FROM_SOURCE}
    assert pairs == dict.fromkeys(SYSTEM - {"python"})


#: A Python that takes itself for another version, for the test of the Makefile; it makes no environment.
OTHER_PYTHON = """#!/bin/sh
case "$1" in
  -c) exec {python} -c "import sys; sys.version_info = (3, {minor}, 0); $2";;
  -m) [ $2 != venv ] || {{ mkdir -p .venv/bin && cp "$0" .venv/bin/python; }};;
esac
"""


def test_make_refuses_another_python(tmp_path):
    """It takes the versions of pyproject.toml; which comes first, the message of make is the shorter one."""
    copy_makefile(tmp_path)
    allowed = SpecifierSet(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"])
    other = tmp_path / "python"
    for minor in (9, 10, 11, 14, 15):
        other.write_text(OTHER_PYTHON.format(python=sys.executable, minor=minor))
        other.chmod(0o755)
        shutil.rmtree(tmp_path / ".venv", ignore_errors=True)
        command = ["make", ".venv/run", f"PYTHON={other}"]
        done = subprocess.run(command, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
        assert (done.returncode == 0) == (f"3.{minor}" in allowed), done.stdout + done.stderr
        assert (f"this is {sys.version.split()[0]}" in done.stderr) == (done.returncode != 0), done.stderr


def test_a_gpu_that_comes_later_brings_its_packages(tmp_path):
    """`make report` installs what a machine with a GPU needs, even if an environment without it already exists."""
    (tmp_path / ".venv").mkdir()
    copy_makefile(tmp_path)
    (tmp_path / ".venv/run").touch()

    def plan(*variables, **environment):
        command = ["make", "-n", "report", f"PYTHON={sys.executable}", *variables]
        environment |= {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    smi(tmp_path / "bin", [])
    assert "pip install" not in plan().stdout
    smi(tmp_path / "bin", [H200])
    assert "pip install -qq --disable-pip-version-check -r requirements/gpu.txt" in plan().stdout
    (tmp_path / ".venv/run-gpu").touch()
    assert "pip install" not in plan().stdout
    assert "pip install" not in plan(CUDA_VISIBLE_DEVICES="").stdout, "the packages of CUDA do no harm without it"
    plain, forced = plan(), plan("CUDA=12")
    assert "venv --clear" in forced.stdout and "-r requirements/gpu12.txt" in forced.stdout and not plain.stderr
    assert "driver 580.1: CUDA 12 packages" in forced.stdout
    (tmp_path / ".venv/run-gpu").rename(tmp_path / ".venv/run-gpu12")
    assert "pip install" not in plan().stdout, "the environment that was forced stays"
    assert "venv --clear" in plan("CUDA=13").stdout
    os.utime(tmp_path / "requirements/gpu12.txt")
    assert "driver 580.1, as in the environment that is there: CUDA 12 packages" in plan().stdout
    (tmp_path / "bin/nvidia-smi").unlink()
    smi(tmp_path / "bin", [H200 | {"driver_version": "550.54.14"}])
    refused = plan("CUDA=13")
    assert refused.returncode and refused.stderr.endswith(
        "*** CUDA 13 needs driver 580 or newer, and this is 550.54.14; use CUDA=12.  Stop.\n"
    )


def copy_makefile(folder):
    """Copy what make reads when it makes an environment."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    (folder / "workflow").symlink_to(ROOT / "workflow")


def test_every_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    assert all("==" in line or line.startswith("tilewise[") for line in project["dependencies"] + extras)


def test_the_lock_has_what_the_project_names_with_a_hash_for_every_package():
    """`make lock` writes requirements/; a pin changed without it would install the old version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert {path.stem for path in (ROOT / "requirements").iterdir()} == {"run", *extras}
    for name in ("run", *extras):
        text = (ROOT / f"requirements/{name}.txt").read_text()
        assert "://" not in text
        # Ubuntu 22.04 has 3.11.0rc1, which its pip leaves out of "python_full_version < '3.12'".
        assert not re.search(r"python_full_version [<>=]+ '[0-9]+\.[0-9]+'", text)
        entries = text.replace("\\\n", "").splitlines()
        assert all(re.search(r" --hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
        locked = {}
        for each in (Requirement(entry.partition(" --hash")[0]) for entry in entries):
            locked.setdefault(each.name, []).append(each)
        wanted = [*project["dependencies"], *extras.get(name, [])]
        wanted += extras.get(name.replace("gpu", "compiler"), []) * name.startswith("gpu")
        for each in map(Requirement, wanted):
            if each.name != project["name"]:
                assert [str(found.specifier) for found in locked[each.name.replace("_", "-")]] == [str(each.specifier)]
        for version in ("3.11.2", "3.11.14", "3.12.12", "3.13.9", "3.14.1"):
            here = {"sys_platform": "linux", "python_full_version": version}
            here["python_version"] = version.rpartition(".")[0]
            taken = {}
            for machine in ("x86_64", "aarch64"):
                counts = {
                    package: sum(each.marker.evaluate(here | {"platform_machine": machine}) for each in versions)
                    for package, versions in locked.items()
                }
                assert max(counts.values()) <= 1
                taken[machine] = {package for package, count in counts.items() if count}
            assert taken["x86_64"] - taken["aarch64"] <= {"cuda-bench"} and taken["aarch64"] <= taken["x86_64"]


def test_the_gpu_packages_leave_pip_nothing_to_try():
    """pip takes a name with other extras for another package, and tries every version of one that has no pin."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = [Requirement(line) for lines in extras.values() for line in lines]
    assert [str(each) for each in named if "ctk" in each.extras] == []
    for extra, suffix, cuda in (("gpu", "", "13.0"), ("gpu12", "-cu12", "12.9")):
        lines = extras[extra] + extras[extra.replace("gpu", "compiler")]
        pinned = {each.name: each for each in map(Requirement, lines)}
        assert {"cudart", "curand", "nvrtc"} <= pinned["cuda-toolkit"].extras
        assert str(pinned[f"nvidia-cublas{suffix}"].specifier).startswith(f"=={cuda[:3]}"), "newer than the toolkit's"
        assert str(pinned["cuda-toolkit"].specifier).startswith(f"=={cuda}.")
        assert str(pinned[f"nvidia-cuda-nvrtc{suffix}"].specifier).startswith(f"=={cuda}.")


#: A Python whose pip warns of an index that is not there; its second argument is the folder of the new environment.
PYTHON = """#!/bin/sh
case "$*" in
  *"-m tilewise"*) exec {python} "$@";;
  *"-m venv"*) mkdir -p .venv/bin; cp "$0" .venv/bin/python;;
  *"-m pip"*) echo "WARNING: Location 'file:///nowhere/' is ignored" >&2
    test -z "$BROKEN" || {{ echo no space left; exit 1; }};;
esac
"""


def make(folder, *arguments, **variables):
    """Run make in a folder that has nothing but the Makefile, with a Python that installs nothing, without a GPU."""
    copy_makefile(folder)
    (folder / "python").write_text(PYTHON.format(python=sys.executable))
    (folder / "python").chmod(0o755)
    command = ["make", f"PYTHON={folder}/python", *arguments]
    environment = {"PATH": f"{smi(folder / 'bin', [])}:/usr/bin:/bin", **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_make_prints_a_line_for_each_step_with_its_seconds_whatever_pip_says(tmp_path):
    done = make(tmp_path, ".venv/test")
    assert done.returncode == 0 and not done.stderr
    steps = ["making the environment .venv", "installing the packages (250 MB)", "installing the packages of the tests"]
    why, *lines = done.stdout.splitlines()
    assert why == "no GPU with a driver here: packages without CUDA"
    assert [re.sub(r"\d+ s$", "N s", line) for line in lines] == [f"{name} ... N s" for name in steps]


def test_make_shows_what_a_failed_step_said(tmp_path):
    done = make(tmp_path, ".venv/run", BROKEN="1")
    assert done.returncode != 0 and not (tmp_path / ".venv/run").exists()
    assert "installing the packages (250 MB) ... failed\n" in done.stdout and "no space left" in done.stdout


def test_make_clean_spares_the_results_of_a_run_at_work(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "results").mkdir()
    with filelock.FileLock(tmp_path / "results/.run.lock"):
        refused = subprocess.run(["make", "clean"], cwd=tmp_path, capture_output=True, text=True)
        assert refused.returncode and "a run works on these results" in refused.stdout
        assert (tmp_path / "results").exists()
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True, capture_output=True)
    assert not (tmp_path / "results").exists()


def test_make_help_lists_every_target():
    # By its own environment: a make that `make test` runs says which directory it enters.
    run = {"cwd": ROOT, "env": {"PATH": "/usr/bin:/bin"}, "capture_output": True, "text": True}
    listed = subprocess.run(["make", "help"], **run, check=True).stdout
    known = subprocess.run(["make", "--question", "--print-data-base", "help"], **run).stdout
    targets = re.search(r"^\.PHONY: (.*)$", known, re.MULTILINE)[1].split()
    assert sorted(line.split()[0] for line in listed.splitlines()) == sorted(targets)


@pytest.mark.exhaustive
def test_the_recipe_for_nodes_without_a_network_works_as_written(tmp_path):
    """The commands of docs/cluster.md, without the GPU's packages, in an environment that has pip as venv brings it."""
    recipe = re.search(
        r"```bash\n(pip wheel .*)\n(pip install --no-index .*)\n```", (ROOT / "docs/cluster.md").read_text()
    )
    lines = (line.split("#")[0] for line in recipe.groups())
    collect, install = (line.replace("requirements/gpu", "requirements/run").replace("'.[gpu]'", ".") for line in lines)
    clone = copy_repository(tmp_path / "clone")
    shutil.copy(ROOT / "LICENSE", clone)
    shutil.copytree(ROOT / "requirements", clone / "requirements")
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


@pytest.mark.exhaustive
@pytest.mark.parametrize("version", ["23.2.1", "26.3"])
def test_pip_resolves_the_gpu_packages_at_once(tmp_path, record_property, version):
    """By an old and a new pip. Only metadata is fetched: the sizes of the files are asked for, and nothing is kept."""
    own = [sys.executable, "-m", "pip", "install", "--quiet", "--target", tmp_path / "pip", f"pip=={version}"]
    got = subprocess.run(own, capture_output=True, text=True)
    if got.returncode:
        pytest.skip(f"no index that has pip {version}: {got.stderr.strip().splitlines()[-1]}")
    report = tmp_path / "report.json"
    options = ["--dry-run", "--ignore-installed", "--no-cache-dir", "--use-feature=fast-deps", "--report", str(report)]
    begin = time.monotonic()
    command = [sys.executable, "-m", "pip", "install", *options, f"{ROOT}[gpu]"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "pip")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(report.read_text())["pip_version"] == version
    seconds = time.monotonic() - begin
    wheels = re.findall(r"(cuda[-_]toolkit|nvidia[-_]cu\w+)[- ](\d[\w.]*)", done.stdout.partition("Would install")[0])
    tried = {name: {v for n, v in wheels if n.replace("-", "_") == name.replace("-", "_")} for name, _ in wheels}
    assert tried and all(len(versions) == 1 for versions in tried.values()), tried
    files = [each["download_info"]["url"] for each in json.loads(report.read_text())["install"]]
    size = sum(_size(url) for url in files if url.endswith(".whl"))
    said = f"{len(files)} files of {size / 1e9:.1f} GB, resolved in {seconds:.0f} s"
    record_property("note", f"GPU packages by pip {version}: {said}")
    assert 0 < size < 2.6e9


def _size(url):
    """Bytes of a file on the web or on a disk."""
    with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as answer:
        return int(answer.headers["Content-Length"])
