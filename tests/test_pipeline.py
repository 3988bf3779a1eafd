"""The study through make and Snakemake, as a user runs it: end to end, the documented commands one after the other, one
task alone, bad input, and the user's own kernels, among them the example of docs/kernels.md."""

import contextlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml
from builders import trace
from clones import SMALL_TRACE, Forks, copy_repository, edit, opened, package_path, snakemake, variables

from tilewise import ROOT
from tilewise.outcome import BESIDE
from tilewise.report import notes, sections
from tilewise.study import registry

QUICK = ("--configfile", "config/quick.yaml")
EXAMPLE = (ROOT / "docs/kernels.md").read_text()


def block(language, holding):
    """The code block of docs/kernels.md in a language that contains a text."""
    return next(text for text in re.findall(rf"```{language}\n(.*?)```", EXAMPLE, re.DOTALL) if holding in text)


#: Five template parameters, two launches, a workspace and a header, as one file, one entry and one line.
MINE = """
#include "mine.cuh"

template <typename T>
__global__ void turn(const T* B, T* turned, int p, int m)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < p && col < m) turned[static_cast<long long>(col) * p + row] = B[static_cast<long long>(row) * m + col];
}

template <typename T, int TILE_N, int TILE_M, int ROWS, int COLUMNS>
__global__ void mine(int m, int n, int p, float alpha, const T* A, const T* turned, T* C)
{
    for (int r = threadIdx.y; r < TILE_N; r += ROWS)
        for (int c = threadIdx.x; c < TILE_M; c += COLUMNS) {
            const int row = blockIdx.y * TILE_N + r, col = blockIdx.x * TILE_M + c;
            if (row < n && col < m) C[static_cast<long long>(row) * m + col] = alpha * dot(A, turned, row, col, p);
        }
}
"""
HEADER = """
template <typename T>
__device__ float dot(const T* A, const T* turned, int row, int col, int p)
{
    float sum = 0;
    for (int k = 0; k < p; ++k)
        sum += float(A[static_cast<long long>(row) * p + k]) * float(turned[static_cast<long long>(col) * p + k]);
    return sum;
}
"""
SHORT = """
#include <cuda_bf16.h>

__global__ void shortMul(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int n, int p, int m)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= m) return;
    float sum = 0;
    for (int k = 0; k < p; ++k) sum += __bfloat162float(A[row * p + k]) * __bfloat162float(B[k * m + col]);
    C[row * m + col] = __float2bfloat16(sum);
}
"""
#: It does not compile, at its fourth line.
BROKEN = """
__global__ void broken(const float* A, const float* B, float* C, int n, int p, int m)
{
    C[0] = zero;
}
"""
ENTRIES = """
mine:
  title: my own kernel
  kind: cuda
  source: mine.cu
  dtypes: [float]
  parameters: [tile_n, tile_m, rows, cols]
  workspaces: {turned: {shape: [m, p], dtype: dtype}}
  launches:
    - function: turn
      template: [dtype]
      block: [32, 8]
      grid: ["ceil_div(m, 32)", "ceil_div(p, 8)"]
      arguments: [B, turned, p, m]
    - template: [dtype, tile_n, tile_m, rows, cols]
      block: [cols, rows]
      covers: [tile_n, tile_m]
      arguments: [m, n, p, {float: 1.0}, A, turned, C]
short_one:
  title: bfloat16
  kind: cuda
  source: short.cu
  dtypes: [bfloat16]
  parameters: [block]
  function: shortMul
  block: [block_x, block_y]
  covers: [block_y, block_x]
broken:
  title: does not compile
  kind: cuda
  source: broken.cu
  dtypes: [float]
  parameters: [block]
  block: [block_x, block_y]
  covers: [block_y, block_x]
"""
LINES = """\
      - {kernel: mine, dtype: float, shapes: square, tile_n: [16, 24], tile_m: 32, rows: 4, cols: 16}
      - {kernel: short_one, dtype: bfloat16, shapes: square, block: 16x8}
"""
BROKEN_LINE = "      - {kernel: broken, dtype: float, shapes: square, block: 16x8}\n"


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


def shell(clone):
    """Where and how a shell runs that is opened in a clone."""
    environment = variables(clone) | {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    environment.pop("VIRTUAL_ENV", None)
    return {"cwd": clone, "env": environment, "text": True}


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A clone with the environment that `make` would make and with a user's kernels, one of which does not compile; and
    `make quick` on the emulator, which has ended: None if it took too long."""
    clone = copy_repository(tmp_path_factory.mktemp("pipeline") / "clone", recorded=False)
    shutil.copytree(ROOT / "requirements", clone / "requirements")
    shutil.copy2(ROOT / "Makefile", clone)
    (clone / ".venv").mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (clone / ".venv" / name).symlink_to(Path(sys.prefix) / name)
    for stamp in ("run", "run-gpu"):
        (clone / ".venv" / stamp).touch()
    # As docs/kernels.md says: one file, one entry, one line.
    sources = {"mine.cu": MINE, "include/mine.cuh": HEADER, "short.cu": SHORT, "broken.cu": BROKEN}
    for name, text in (sources | {"two_rows.cu": block("cuda", "two_rows")}).items():
        (clone / "kernels" / name).parent.mkdir(exist_ok=True)
        (clone / "kernels" / name).write_text(text)
    with (clone / "kernels/registry.yaml").open("a") as entries:
        entries.write(ENTRIES + block("yaml", "two elements per thread"))
    edit(clone / "config/quick.yaml", "  task1b:", f"{block('yaml', 'kernel: two_rows')}{LINES}  task1b:")
    edit(clone / "config/quick.yaml", "  task1c:", f"{BROKEN_LINE}  task1c:")
    with (clone / "config/quick.yaml").open("a") as quick:
        quick.write(f"\ntrace: {json.dumps(SMALL_TRACE)}\n")
    with contextlib.suppress(subprocess.TimeoutExpired):
        return clone, subprocess.run(["make", "quick", "CORES=2"], **shell(clone), capture_output=True, timeout=1800)
    return clone, None


@pytest.fixture
def finished(ended):
    """The same, for the tests that look at the results: a slow machine fails the first test alone."""
    if ended[1] is None:
        pytest.skip("the quick study took too long, as test_the_quick_study_runs_end_to_end says")
    return ended


@pytest.mark.slow
def test_the_quick_study_runs_end_to_end(ended):
    clone, done = ended
    assert done, "it took longer than the limit of clones.snakemake"
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
    for page in sections.PAGES:
        assert (clone / f"results/{page}.html").stat().st_size > 20_000
    assert notes.read(clone / "results") == []


#: The commands of the README and of docs/running.md after the first `make quick`, in their order, each with what it
#: prints, and its exit status if that is not 0.
TYPED = [
    ("make quick CORES=2", "nothing to be done; the report is "),
    (". .venv/bin/activate", ""),
    (
        "snakemake --cores 1 task3",
        "report.html was made before these results: `make report`, or the command of your last whole run",
    ),
    ("snakemake --cores 1 task3", "nothing to be done; "),
    ("snakemake --cores 1 task3 --configfile config/quick.yaml", "task3, Several tiles per block (25 ok), "),
    ("snakemake --cores 1 rectangular", "wrote results/emulator/tables/rectangular.csv"),
    ("tilewise list", "task1a"),
    ("tilewise status", "emulator: {tasks} of {tasks} tasks are finished", 1),  # one of their kernels does not compile
    ("make quick CORES=2", "the report is "),
    ("snakemake --cores 1 --report results/overview.html --configfile config/quick.yaml", "Adding report.html"),
    ("tilewise trace kernels/two_rows.cu --shape 33x35x70 --block 32x8", ""),
    ("snakemake --cores 1 task1a --configfile config/quick.yaml --config strict=True", "two_rows"),
]


@pytest.mark.slow
def test_the_documented_commands_work_in_one_shell(finished, tmp_path):
    """As somebody types them who reads from the top; then in a terminal that is opened later."""
    clone = shutil.copytree(finished[0], tmp_path / "clone", symlinks=True)
    tasks = len(list((clone / "results/emulator/facts").glob("*.csv")))
    with subprocess.Popen(["bash"], **shell(clone), stdin=-1, stdout=-1, stderr=subprocess.STDOUT) as bash:
        for command, said, *status in TYPED:
            bash.stdin.write(f'{command}\necho "ended with $?"\n')
            bash.stdin.flush()
            words = []
            for line in bash.stdout:
                words.append(line)
                if line.startswith("ended with"):
                    break
            expected = f"ended with {sum(status)}\n"
            assert words[-1] == expected and any(said.format(tasks=tasks) in line for line in words), (command, words)
        bash.stdin.close()
    later = ". .venv/bin/activate && snakemake --cores 1 task3 --configfile config/quick.yaml"
    done = subprocess.run(["bash", "-c", later], **shell(clone), capture_output=True)
    assert done.returncode == 0 and "nothing to be done" in done.stderr, done.stderr


@pytest.mark.slow
def test_in_a_pipe_a_run_tells_how_far_it_is_and_ends_with_the_page(finished):
    clone, done = finished
    *lines, last = done.stderr.splitlines()
    assert "\x1b" not in done.stdout + done.stderr and "\r" not in done.stderr
    assert last.startswith("done in ") and last.endswith(f"the report is {clone / 'results/report.html'}{BESIDE}")
    told = [line for line in lines if re.match(r"\d+:\d\d:\d\d \d+ %, .* left: \S", line)]
    assert told and len(lines) < 10 + len(told), "nothing else but what Snakemake says before it begins"
    # Points with their results are tested in test_progress.py: here all may be done between two lines.
    jobs = {"trace", "page", *(path.stem for path in (clone / "results/emulator/tasks").glob("*.csv"))}
    assert any(re.search(r" left: (\w+)", line)[1] in jobs for line in told), "what runs"


@pytest.mark.slow
def test_a_tasks_log_has_a_line_for_each_point(finished):
    clone, _ = finished
    rows = pd.read_csv(clone / "results/emulator/tasks/task3.csv")
    lines = (clone / "logs/emulator/measure/task3.log").read_text().splitlines()
    head, *lines = [line for line in lines if " built " not in line]
    assert head.endswith(f" {len(rows)} points, 0 of them from the journal")
    assert [line.split()[1] for line in lines] == [f"{n}/{len(rows)}" for n in range(1, len(rows) + 1)]
    assert all(line.endswith(" of its bound") and " multi_tile " in line for line in lines)


@pytest.mark.slow
def test_a_users_kernels_are_beside_the_others(finished):
    clone, _ = finished
    rows = pd.read_csv(clone / "results/emulator/measurements.csv")
    own = rows[rows.kernel.isin(["mine", "short_one"])]
    assert set(own.kernel) == {"mine", "short_one"} and set(own.status) == {"ok"}, own.message.tolist()
    assert set(rows[rows.kernel == "mine"].tile_n) == {16, 24} and rows[rows.kernel == "mine"].cols.eq(16).all()
    assert rows[rows.kernel == "naive"].tile_n.isna().all(), "a parameter of others is empty"
    assert (rows[rows.kernel == "mine"].block_y == 4).all() and (own.bound_ratio > 0).all()
    table = pd.read_csv(clone / "results/emulator/tables/task1a.csv")
    assert {"tile_n 16, tile_m 32, rows 4, cols 16"} <= set(table.choice)
    traced = pd.read_csv(clone / "results/emulator/traffic.csv")
    assert traced[traced.kernel == "mine"].races.eq(0).any(), "it was searched for faults"
    page = opened(clone / "results/report.html")
    assert all(re.search(f'[">]{words}', page) for words in ("mine", "short_one", "tile_n 24"))


@pytest.mark.slow
def test_a_kernel_that_does_not_compile_costs_its_own_rows(finished, tmp_path):
    clone, done = finished
    rows = pd.read_csv(clone / "results/emulator/measurements.csv")
    own = rows.kernel == "broken"
    assert set(rows.status[own]) == {"compile_error"} and "compile_error" not in set(rows.status[~own])
    assert all(re.match(r"kernels/broken\.cu:4: .*zero", message) for message in rows.message[own])
    traffic = pd.read_csv(clone / "results/traffic.csv")
    assert set(traffic.kernel[traffic.status == "compile_error"]) == {"broken"}
    assert "Traceback" not in done.stdout + done.stderr
    said = rf"\d+ of {len(rows)} points (is|are) not right: .*broken compile_error \({own.sum()}\)"
    assert re.search(said, done.stderr), done.stderr
    copy = shutil.copytree(clone, tmp_path / "strict", symlinks=True)
    strict = snakemake(copy, *QUICK, "--config", "strict=True")
    assert strict.returncode == 1 and "broken compile_error" in strict.stderr and "the report is" in strict.stderr


@pytest.mark.slow
def test_an_edited_header_builds_and_measures_its_kernels_and_no_others(finished, tmp_path):
    clone, _ = finished
    edited = shutil.copytree(clone, tmp_path / "edited", symlinks=True)
    edit(edited / "kernels/include/mine.cuh", "float sum = 0;", "float sum = 0.0f;")
    tasks = [f"results/emulator/tasks/{task}.csv" for task in ("task1a", "task2a")]
    plan = snakemake(edited, *QUICK, "--dry-run", *tasks)
    assert re.findall(r"output: results/emulator/tasks/(\w+)\.csv", plan.stdout) == ["task1a"]
    before = (edited / "results/emulator/journal/task1a.jsonl").read_text()
    assert snakemake(edited, tasks[0], *QUICK).returncode == 0
    after = (edited / "results/emulator/journal/task1a.jsonl").read_text()
    rows = [json.loads(line)["row"] for line in after.removeprefix(before).splitlines() if line]
    assert after.startswith(before) and {row["kernel"] for row in rows} == {"mine"} and rows


@pytest.mark.slow
def test_a_second_run_does_nothing(finished):
    clone, _ = finished
    again = snakemake(clone, *QUICK)
    assert again.returncode == 0
    assert f"nothing to be done; the report is {clone / 'results/report.html'}" in again.stderr


@pytest.mark.slow
def test_a_clone_that_was_moved_does_nothing(finished, tmp_path):
    clone, _ = finished
    moved = shutil.copytree(clone, tmp_path / "moved", symlinks=True)
    again = snakemake(moved, *QUICK, "-n")
    assert "Nothing to be done" in again.stdout + again.stderr


@pytest.mark.slow
def test_a_task_is_rerun_without_the_others(finished):
    clone, _ = finished
    done = snakemake(clone, "task3", "--forcerun", "measure", "--dry-run", *QUICK)
    assert done.returncode == 0
    planned = re.findall(r"output: results/emulator/tasks/(\w+)\.csv", done.stdout)
    assert planned == ["task3"]


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
    "a missing source": (
        "kernels/registry.yaml",
        "source: textbook/tiled.cu",
        "source: tile.cu",
        ["tile.cu", "no file"],
    ),
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


@pytest.fixture(scope="module")
def unused(tmp_path_factory):
    """A clone without results, and a function that runs a command line in it."""
    clone = copy_repository(tmp_path_factory.mktemp("bad") / "clone", recorded=False)
    with Forks(clone) as run:
        yield clone, run


@pytest.mark.parametrize("name", BAD)
def test_bad_input_ends_before_anything_is_measured(unused, name):
    clone, run = unused
    path, old, new, says = BAD[name]
    before = (clone / path).read_text()
    edit(clone / path, old, new)
    try:
        status, said = run("snakemake --cores 2")
    finally:
        (clone / path).write_text(before)
    assert status and "Traceback" not in said
    for words in says:
        assert words in said
    assert not (clone / "results").exists()


def test_a_missing_compiler_is_named(clone):
    done = snakemake(clone, "results/emulator/tasks/task1b.csv", *QUICK, CXX="no-such-compiler")
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in said
    assert "no-such-compiler" in said and "apt install g++" in said


@pytest.mark.slow
def test_tuning_runs_if_it_is_named_and_only_then(tmp_path):
    clone = copy_repository(tmp_path / "clone", recorded=False)
    path = clone / "config/config.yaml"
    study = yaml.safe_load(path.read_text())
    sweep = {"kernel": "register_tile", "dtype": "float", "shapes": "square_1024", "tile_m": 64, "tile_k": 4}
    study["tasks"]["tune"]["sweeps"] = [sweep | {"tile_n": [32, 64]}]
    study["emulator"]["shapes"] = [{"n": 33, "p": 7, "m": 65}, {"n": 64, "p": 8, "m": 64}]
    path.write_text(yaml.safe_dump(study, sort_keys=False))
    whole = snakemake(clone, "--dry-run")
    assert whole.returncode == 0 and "measure_tune" not in whole.stdout
    done = snakemake(clone, "tune")
    assert done.returncode == 0, done.stderr
    rows = pd.read_csv(clone / "results/emulator/tune/register_tile.csv")
    assert sorted(zip(rows["n"], rows["tile_n"])) == [(33, 32), (33, 64), (64, 32), (64, 64)]
    assert set(rows["status"]) == {"ok"} and not rows["chosen"].any()
    assert (clone / "results/emulator/figures/tune.svg").read_text().startswith("<svg")
    assert pd.read_csv(clone / "results/emulator/tables/tune.csv")["variants"].tolist() == [2, 2]
    assert len((clone / "results/emulator/journal/tune.jsonl").read_text().split()) > 4
    assert "tune, The best parameters of every rung, wrote results/emulator/tables/tune.csv and " in done.stderr
    assert "register_tile" in done.stderr and done.stderr.splitlines()[-1].startswith("done in ")
    again = snakemake(clone, "tune").stderr.splitlines()
    assert any(line.startswith("tune, The best parameters of every rung, is up to date: ") for line in again)
    assert again[-1] == "nothing to be done"


@pytest.mark.slow
def test_another_workflow_uses_the_study_as_a_module_for_one_task_alone(tmp_path):
    """As config/README.md shows; the folder holds nothing but that Snakefile."""
    text = (ROOT / "config/README.md").read_text()
    [shown] = re.findall(r"```python\n(module .*?)```", text, re.DOTALL)
    (tmp_path / "Snakefile").write_text(shown.replace("/path/to/tilewise", str(ROOT)))
    quick, package = ("--configfile", str(ROOT / "config/quick.yaml")), {"PYTHONPATH": package_path(ROOT)}
    planned = snakemake(tmp_path, *quick, "--dry-run", "--quiet", "rules", **package)
    assert re.search(r"^page +1$", planned.stdout + planned.stderr, re.MULTILINE), planned.stderr
    done = snakemake(tmp_path, *quick, "--", "task2b", **package)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir() if path.name[0] != "."} == {"Snakefile", "logs", "results"}
    made = {str(path.relative_to(tmp_path)) for path in (tmp_path / "results").rglob("task*.*")}
    kinds = {"tables": "csv", "figures": "svg", "tasks": "csv"}
    assert {f"results/emulator/{kind}/task2b.{ending}" for kind, ending in kinds.items()} <= made
    assert not [name for name in made if "task2b" not in name], "no other task ran"
    assert len(pd.read_csv(tmp_path / "results/emulator/tables/task2b.csv"))
    assert (tmp_path / "results/.run.lock").exists(), "its checks ran too"
