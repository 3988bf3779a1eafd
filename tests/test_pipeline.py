"""The study through Snakemake, as a user runs it: end to end, one task alone, bad input, and the user's own kernel."""

import shutil

import pandas as pd
import pytest
from clones import copy_repository, edit, snakemake

QUICK = ("--configfile", "config/quick.yaml")
MINE = """
mine:
  title: my own kernel
  kind: cuda
  source: mine.cu
  template: [dtype]
  dtypes: [float]
  parameters: [block]
  block: [block_x, block_y]
  covers: [block_y, block_x]
"""
SWEEP = "      - {kernel: cublas, dtype: float, shapes: [others, square]}\n  task1b:"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A clone with the user's own kernel, after a whole quick run on the emulator; and the output of Snakemake."""
    clone = copy_repository(tmp_path_factory.mktemp("pipeline") / "clone")
    # As the README says: one file, one entry, one line.
    text = (clone / "kernels/naive.cu").read_text().replace("void naive(", "void mine(")
    (clone / "kernels/mine.cu").write_text(text)
    with (clone / "kernels/registry.yaml").open("a") as registry:
        registry.write(MINE)
    line = "      - {kernel: mine, dtype: float, shapes: square, block: 32x8}\n"
    edit(clone / "config/quick.yaml", "  task1b:", f"{line}  task1b:")
    return clone, snakemake(clone, *QUICK)


def test_the_quick_study_runs_end_to_end(finished):
    clone, done = finished
    assert done.returncode == 0, done.stderr
    rows = pd.read_csv(clone / "results/emulator/measurements.csv")
    refused = rows.task == "launch_limits"
    assert set(rows[refused].status) == {"ok", "invalid_launch"}
    emulated = rows[rows.kernel.isin(["naive", "tiled", "multi_tile"]) & ~refused]
    assert set(emulated.status) == {"ok"}
    assert set(emulated.dtype) == {"float", "double", "int32"}
    assert emulated.time_ms.isna().all(), "nothing emulated has a time"
    assert set(rows[rows.task == "cpu"].status) <= {"ok", "timeout"}
    assert rows[(rows.task == "cpu") & (rows.status == "ok")].time_ms.gt(0).all()
    assert (clone / "results/report.html").stat().st_size > 50_000


def test_a_users_kernel_is_beside_the_others(finished):
    clone, _ = finished
    rows = pd.read_csv(clone / "results/emulator/measurements.csv")
    assert set(rows[rows.kernel == "mine"].status) == {"ok"}
    assert ">mine<" in (clone / "results/report.html").read_text()


def test_a_second_run_does_nothing(finished):
    clone, _ = finished
    again = snakemake(clone, *QUICK)
    assert again.returncode == 0
    assert "Nothing to be done" in again.stdout + again.stderr


def test_a_clone_that_was_moved_does_nothing(finished, tmp_path):
    clone, _ = finished
    moved = shutil.copytree(clone, tmp_path / "moved", symlinks=True)
    again = snakemake(moved, *QUICK, "-n")
    assert "Nothing to be done" in again.stdout + again.stderr


def test_one_task_alone(finished, tmp_path):
    clone, _ = finished
    alone = tmp_path / "alone"
    shutil.copytree(clone, alone, ignore=shutil.ignore_patterns("results", ".snakemake", "logs"))
    done = snakemake(alone, "task2b", *QUICK)
    assert done.returncode == 0, done.stderr
    made = {str(path.relative_to(alone / "results/emulator")) for path in (alone / "results").rglob("task*.*")}
    assert {"tasks/task2b.csv", "tables/task2b.csv", "figures/task2b.svg"} <= made
    assert not [name for name in made if "task2b" not in name]


def test_a_task_is_rerun_without_the_others(finished):
    clone, _ = finished
    done = snakemake(clone, "task3", "--forcerun", "measure", "--dry-run", *QUICK)
    assert done.returncode == 0
    assert "task3.csv" in done.stdout and "task2a.csv" not in done.stdout


BAD = {
    "a typo in a key": ("config/config.yaml", "seed: 524", "sede: 524", ["sede", "seed"]),
    "an unknown kernel": ("config/config.yaml", "kernel: tiled,", "kernel: tilde,", ["tilde", "'tiled'"]),
    "an unknown dtype": ("config/config.yaml", "dtype: double", "dtype: quad", ["quad", "double"]),
    "a size of zero": (
        "config/config.yaml",
        "{n: 8192, p: 8192, m: 8192}",
        "{n: 0, p: 1, m: 1}",
        ["shapes.square.0.n"],
    ),
    "too many threads": ("config/config.yaml", "8x128", "64x32", ["2048 threads", "1024"]),
    "a missing source": ("kernels/registry.yaml", "source: tiled.cu", "source: tile.cu", ["tile.cu", "no file"]),
    "broken YAML": ("kernels/registry.yaml", "naive:\n", "naive: [\n", ["registry.yaml:", "brackets"]),
    "a bracket left open": ("config/config.yaml", "[16, 32]", "[16, 32", ["config/config.yaml:", "brackets"]),
    "a kernel's name twice": (
        "kernels/registry.yaml",
        "tiled:\n",
        "naive:\n",
        ["registry.yaml:", "'naive' occurs twice"],
    ),
    "a task's name twice": (
        "config/config.yaml",
        "task3:\n",
        "task1a:\n",
        ["config/config.yaml:", "'task1a' occurs twice"],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_ends_before_anything_is_measured(clone, name):
    path, old, new, says = BAD[name]
    edit(clone / path, old, new)
    done = snakemake(clone)
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in said
    for words in says:
        assert words in said
    assert not (clone / "results").exists()


def test_a_kernel_that_does_not_compile_ends_with_its_line_and_keeps_results(finished, tmp_path):
    clone, _ = finished
    broken = tmp_path / "broken"
    shutil.copytree(clone, broken)
    edit(broken / "kernels/tiled.cu", "T sum = 0;", "T sum = zero;")
    before = (broken / "results/emulator/measurements.csv").read_text()
    done = snakemake(broken, *QUICK)
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in said
    line = next(i for i, t in enumerate((broken / "kernels/tiled.cu").read_text().splitlines(), 1) if "zero;" in t)
    assert f"kernels/tiled.cu:{line}:" in said and "zero" in said
    assert (broken / "results/emulator/measurements.csv").read_text() == before


def test_a_missing_compiler_is_named(clone):
    done = snakemake(clone, "results/emulator/build/naive", *QUICK, CXX="no-such-compiler")
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in said
    assert "no-such-compiler" in said and "apt install g++" in said
