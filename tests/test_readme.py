"""The README and docs/running.md work as typed: their commands one after the other in one shell, and the example of a
user's own kernel, from docs/kernels.md."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from builders import trace
from clones import copy_repository, keep_tasks, variables

from kernelscope.yaml_input import read_yaml
from tilewise import ROOT
from tilewise.study import registry

KERNELS = (ROOT / "docs/kernels.md").read_text()


def block(language, holding):
    """The code block of docs/kernels.md in a language that contains a text."""
    return next(text for text in re.findall(rf"```{language}\n(.*?)```", KERNELS, re.DOTALL) if holding in text)


def test_the_example_kernel_works_as_written(tmp_path):
    (tmp_path / "two_rows.cu").write_text(block("cuda", "two_rows"))
    (tmp_path / "registry.yaml").write_text(block("yaml", "two elements per thread"))
    kernel = registry.load(tmp_path)["two_rows"]
    sweep = yaml.safe_load(block("yaml", "kernel: two_rows"))[0]
    assert sweep["kernel"] == kernel.name and sweep["dtype"] in kernel.dtypes
    x, y = (int(size) for size in sweep["block"].split("x"))
    for dtype in kernel.dtypes:
        row, faults = trace(kernel, dtype, (33, 35, 70), block_x=x, block_y=y)
        assert not faults, faults[0]
        assert row["races"] == row["out_of_bounds"] == 0


#: What `make quick` runs here of its tasks.
SHORT = ("task1a", "task3", "cpu")
#: The commands of the README and of docs/running.md in their order, each with what it prints.
TYPED = [
    ("make quick CORES=2", "the report is "),
    (". .venv/bin/activate", ""),
    (
        "snakemake --cores 1 task3",
        "report.html was made before these results: `make report`, or the command of your last whole run",
    ),
    ("snakemake --cores 1 task3", "nothing to be done; "),
    ("snakemake --cores 1 task3 --configfile config/quick.yaml", "task3, Several tiles per block (25 ok), "),
    ("snakemake --cores 1 rectangular", "wrote results/emulator/tables/rectangular.csv"),
    ("tilewise list", "task1a"),
    ("tilewise status", "emulator: 3 of 3 tasks are finished"),
    ("make quick CORES=2", "the report is "),
    ("snakemake --cores 1 --report results/overview.html --configfile config/quick.yaml", "Adding report.html"),
    ("tilewise trace kernels/two_rows.cu --shape 33x35x70 --block 32x8", ""),
    ("snakemake --cores 1 task1a --configfile config/quick.yaml --config strict=True", "two_rows"),
]


@pytest.fixture
def newcomer(tmp_path):
    """A clone with the environment that `make` would make, a quick study of three tasks, and the example kernel."""
    clone = copy_repository(tmp_path / "clone", recorded=False)
    shutil.copytree(ROOT / "requirements", clone / "requirements")
    shutil.copy2(ROOT / "Makefile", clone)
    for name in ("bin", "lib", "pyvenv.cfg"):
        (clone / ".venv").mkdir(exist_ok=True)
        (clone / ".venv" / name).symlink_to(Path(sys.prefix) / name)
    for stamp in ("run", "run-gpu"):
        (clone / ".venv" / stamp).touch()
    keep_tasks(clone, *SHORT)
    quick = read_yaml(clone / "config/quick.yaml")
    quick["tasks"]["task1a"]["sweeps"] += yaml.safe_load(block("yaml", "kernel: two_rows"))
    (clone / "config/quick.yaml").write_text(yaml.safe_dump(quick, sort_keys=False))
    (clone / "kernels/two_rows.cu").write_text(block("cuda", "two_rows"))
    with (clone / "kernels/registry.yaml").open("a") as entries:
        entries.write(block("yaml", "two elements per thread"))
    return clone


@pytest.mark.slow
def test_the_documented_commands_work_in_one_shell(newcomer):
    """As somebody types them who reads from the top; then in a terminal that is opened later."""
    environment = variables(newcomer) | {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    environment.pop("VIRTUAL_ENV", None)
    with subprocess.Popen(
        ["bash"], cwd=newcomer, env=environment, text=True, stdin=-1, stdout=-1, stderr=subprocess.STDOUT
    ) as shell:
        for command, said in TYPED:
            shell.stdin.write(f'{command}\necho "ended with $?"\n')
            shell.stdin.flush()
            words = []
            for line in shell.stdout:
                words.append(line)
                if line.startswith("ended with"):
                    break
            assert words[-1] == "ended with 0\n" and any(said in line for line in words), (command, words)
        shell.stdin.close()
    later = ". .venv/bin/activate && snakemake --cores 1 task3 --configfile config/quick.yaml"
    done = subprocess.run(["bash", "-c", later], cwd=newcomer, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "nothing to be done" in done.stderr, done.stderr
