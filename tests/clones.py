"""Copies of the repository in which tests run Snakemake as a user would."""

import base64
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from tilewise import ROOT
from tilewise.nvidia.gpus import VISIBLE

COPIED = ["CITATION.cff", "Snakefile", "config", "kernels", "packages", "profiles", "report", "slurm", "workflow"]
COPIED += ["pyproject.toml"]


def opened(page):
    """The text of a page with its packed tables, as they open on demand."""
    text = page.read_text()
    packed = re.findall(r'data-table="([^"]+)"', text)
    return text + "".join(gzip.decompress(base64.b64decode(each)).decode() for each in packed)


def package_path(folder):
    """The PYTHONPATH by which the packages of a clone are found."""
    return f"{folder}/workflow"


#: What `make test CUDA=12` hands on to every make that a test starts.
OF_MAKE = ("CUDA", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")


def variables(folder):
    """The environment of what is typed in a clone: its packages are found, and no GPU of this machine is."""
    kept = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
    return kept | {"PYTHONPATH": package_path(folder), VISIBLE: ""}


def copy_repository(folder, recorded=True):
    """Copy what a run needs into `folder`, which becomes a clone without history; returns it.

    Without the `recorded` runs, a page and the figures take a third of the time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    left_out = ("__pycache__", "*.egg-info", *(() if recorded else ("nvidia-*",)))
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, symlinks=True, ignore=shutil.ignore_patterns(*left_out))
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
    command = [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]
    return {"args": command, "cwd": folder, "env": variables(folder) | environment, "text": True}


class Forks:
    """Runs in a clone without the seconds that a start takes; a context."""

    def __init__(self, clone):
        self.clone = clone

    def __enter__(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        command = [sys.executable, ROOT / "tests/forks.py"]
        self.server = subprocess.Popen(command, cwd=self.clone, env=variables(self.clone), **pipes)
        assert self.server.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *error):
        self.server.stdin.close()
        self.server.wait()
        self.server.stdout.close()

    def __call__(self, command):
        """Run a command line, as in `snakemake --cores 1 task3`; returns its exit status and what it printed."""
        print(command, file=self.server.stdin, flush=True)
        status = int(self.server.stdout.readline())
        return status, (self.clone / "run.out").read_text()


def without_work(clone, command):
    """Let each job of a clone run a shell command, such as `touch {output}`, instead of its script."""
    for rules in (clone / "workflow/rules").glob("*.smk"):
        scripts = re.compile(r'script:\n( +)"\.\./scripts/.*"')
        rules.write_text(scripts.sub(lambda found: f"shell:\n{found[1]}{command!r}", rules.read_text()))


def measured(journal):
    """The keys of the points in a journal, each as often as it was measured."""
    lines = journal.read_text().splitlines() if journal.exists() else []
    return [json.loads(line)["key"] for line in lines if line.endswith("}}")]


#: A trace of seconds instead of a minute, as a config's `trace` has it.
SMALL_TRACE = {"shapes": [{"n": 33, "p": 35, "m": 70}], "counted": [{"n": 64, "p": 64, "m": 64}]}


def keep_tasks(clone, *names):
    """Let config/quick.yaml of a clone have these tasks alone, and SMALL_TRACE."""
    path, study = clone / "config/quick.yaml", yaml.safe_load((clone / "config/config.yaml").read_text())
    quick = yaml.safe_load(path.read_text())
    kept = {name: quick["tasks"].get(name) or study["tasks"][name] for name in names}
    quick |= {"tasks": dict.fromkeys(study["tasks"]) | kept, "trace": SMALL_TRACE}
    path.write_text(yaml.safe_dump(quick, sort_keys=False))


def edit(path, old, new):
    """Replace a text that must occur in the file; if an edit no longer applies, its test has to fail."""
    text = Path(path).read_text()
    assert old in text, f"{path} no longer contains {old!r}"
    Path(path).write_text(text.replace(old, new, 1))
