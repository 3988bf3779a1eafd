"""`tilewise grade` on a machine or a cluster with a GPU: times beside the study's kernel, the threshold, what fails."""

import csv
import dataclasses
import json
import os
from pathlib import Path

import pytest
import synthetic
from cards import H200, smi

from tilewise import ROOT, UserError
from tilewise.__main__ import main
from tilewise.grade import timing
from tilewise.measure import probe
from tilewise.study import registry
from tilewise.study.device import Device

HAND_INS = {
    "constant": """#include <cstdio>
#define N 256
__global__ void constant(float *a, float *b, float *c) {
    int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N || j >= N) return;
    float sum = 0;
    for (int k = 0; k < N; ++k) sum += a[i * N + k] * b[k * N + j];
    c[i * N + j] = sum;
}
int main() { constant<<<dim3(16, 16), dim3(16, 16)>>>(nullptr, nullptr, nullptr); printf("done"); }
""",
    "plain": (ROOT / "examples/hand-ins/right_plain.cu").read_text(encoding="utf-8"),
    "wide": (ROOT / "examples/hand-ins/right_tiled_with_main.cu").read_text(encoding="utf-8"),
    "wrong": (ROOT / "examples/hand-ins/wrong_edge.cu").read_text(encoding="utf-8"),
}
TASK = "own: {timed: 1024x1024x1024, reference: naive, threshold: time_ms <= 2 * reference_ms}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the hand-ins, and a task beside it."""
    (tmp_path / "in").mkdir()
    for name, text in HAND_INS.items():
        (tmp_path / "in" / f"{name}.cu").write_text(text, encoding="utf-8")
    (tmp_path / "own.yaml").write_text(TASK, encoding="utf-8")
    return tmp_path


def graded(folder: Path, *options: str) -> tuple[int, dict[str, dict[str, str]]]:
    status = main(
        ["grade", str(folder / "in"), "--task", str(folder / "own.yaml"), "--output", str(folder / "out"), *options]
    )
    with (folder / "out/grades.csv").open(encoding="utf-8") as file:
        return status, {row["student"]: row for row in csv.DictReader(file)}


@pytest.fixture
def h200(tmp_path: Path, monkeypatch) -> list:
    """A machine with an H200 that measures nothing: the jobs that it was given, each of which took a millisecond,
    those of `plain` five."""
    monkeypatch.setenv("PATH", str(smi(tmp_path / "bin", [H200])), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    device = synthetic.device("nvidia-h200", "gpu", name="NVIDIA H200")
    known = {field.name for field in dataclasses.fields(Device)}
    monkeypatch.setattr(probe, "capture", lambda *_: Device(**{k: v for k, v in device.items() if k in known}))
    jobs = []

    def run_jobs(given, *_):
        jobs.extend(given)
        for job in given:
            is_plain = job.launches[0].instance.startswith("matrixMultiply")
            yield job.key, job.row | {"status": "ok", "time_ms": 5.0 if is_plain else 1.0}

    monkeypatch.setattr(timing, "run_jobs", run_jobs)
    return jobs


def test_what_passes_is_timed_beside_the_reference_and_held_to_the_threshold(folder: Path, h200, capsys) -> None:
    status, rows = graded(folder)
    assert status == 1
    assert {name: (row["mistakes"], row["time_ms"]) for name, row in rows.items()} == {
        "constant": ("", "1.0"),
        "plain": ("too_slow", "5.0"),
        "wide": ("", "1.0"),
        "wrong": ("edge_not_tested", ""),
    }
    assert all("reference_ms is 1," in row["hint"] for row in rows.values() if row["mistakes"] == "too_slow")
    [least] = {float(row["recorded_ms"]) for name, row in rows.items() if name in ("constant", "plain")}
    rows_of_h200 = timing.recorded_rows(registry.load()["naive"], (1024, 1024, 1024))["nvidia-h200"]
    assert least == rows_of_h200[rows_of_h200["dtype"] == "float"]["time_ms"].min()
    page = (folder / "out/students/constant.md").read_text(encoding="utf-8")
    assert "nvidia-h100" in page and f"{least:.4g} ms" in page
    points = {(job.point.kernel, job.point.dtype): job.point for job in h200 if job.point.kernel == "naive"}
    assert set(points) == {("naive", "float"), ("naive", "double")}
    assert all(set(point.shape.values()) == {1024} and point.parameters for point in points.values())
    files = [Path(file) for job in h200 for file, _ in job.files.values()]
    assert len(files) == 5 and all(file.stat().st_size for file in files), "each was compiled for the GPU"


def test_what_fails_on_the_gpu_alone_has_its_message(folder: Path, h200, monkeypatch) -> None:
    def run_jobs(given, *_):
        for job in given:
            failed = {"status": "error", "message": "CUDA_ERROR_ILLEGAL_ADDRESS"}
            yield job.key, job.row | (failed if job.point.kernel == "1-0" else {"status": "ok", "time_ms": 1.0})

    monkeypatch.setattr(timing, "run_jobs", run_jobs)
    _, rows = graded(folder)
    assert rows["constant"]["mistakes"] == "fails_on_gpu" and "ILLEGAL_ADDRESS" in rows["constant"]["hint"]
    assert rows["plain"]["verdict"] == "passed"


def test_a_gpu_that_cannot_be_used_leaves_the_marks_without_times(folder: Path, h200, monkeypatch, capsys) -> None:
    def capture(*_):
        raise UserError("the package cupy is missing")

    monkeypatch.setattr(probe, "capture", capture)
    status, rows = graded(folder)
    assert status == 1 and rows["plain"]["verdict"] == "passed" and not rows["plain"]["time_ms"]
    assert "nothing is timed: the package cupy is missing" in capsys.readouterr().out


@pytest.mark.slow
def test_a_threshold_without_a_value_for_some_times_fails_nobody(folder: Path, h200, capsys) -> None:
    (folder / "own.yaml").write_text(
        "own: {reference: naive, threshold: 1 / (reference_ms - 1) < 2}\n", encoding="utf-8"
    )
    _, rows = graded(folder)
    assert {name for name, row in rows.items() if row["verdict"] == "passed"} == {"constant", "plain", "wide"}
    assert "plain: the task's threshold is not tested" in capsys.readouterr().out


SRUN = """#!/bin/sh
printf '%s\\n' "$@" > "$0.arguments"
for last; do :; done
cp "$0.times" "$last/times.json"
"""


@pytest.mark.slow
def test_slurm_times_on_a_node_by_the_settings_of_the_cluster(folder: Path, monkeypatch, capsys) -> None:
    srun = folder / "bin/srun"
    srun.parent.mkdir()
    srun.write_text(SRUN, encoding="utf-8")
    srun.chmod(0o755)
    ok = {"status": "ok", "message": "", "time_ms": 4.0}
    times = {"platform": "nvidia-h200", "reference": {"float": ok, "double": ok}}
    times["hand_ins"] = {name: [ok] for name in ("constant", "plain", "wide")}
    Path(f"{srun}.times").write_text(json.dumps(times), encoding="utf-8")
    cluster = folder / "cluster.yaml"
    cluster.write_text(
        "slurm: {account: class}\nplatforms: {a: {backend: gpu, slurm: {partition: gpu, gpu_model: h200}}}\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(timing, "CLUSTER", cluster)
    monkeypatch.setenv("PATH", str(srun.parent), prepend=os.pathsep)
    _, rows = graded(folder, "--profile", "slurm")
    assert [rows[name]["time_ms"] for name in ("constant", "plain", "wide", "wrong")] == ["4.0", "4.0", "4.0", ""]
    given = Path(f"{srun}.arguments").read_text(encoding="utf-8").split("\n")
    assert {"--account=class", "--partition=gpu", "--gpus=h200:1"} <= set(given) and "--gpus=1" not in given
    request = json.loads((folder / "out/timing/request.json").read_text(encoding="utf-8"))
    assert set(request["hand_ins"]) == {"constant", "plain", "wide"}
    srun.write_text("#!/bin/sh\necho srun: error: Invalid account; exit 1\n", encoding="utf-8")
    command = ["grade", str(folder / "in"), "--task", str(folder / "own.yaml"), "--output", str(folder / "out")]
    assert main([*command, "--profile", "slurm"]) == 2
    assert "Invalid account" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "words"),
    [("reference: nobody", "reference"), ("threshold: speed < 3", "threshold"), ("timed: big", "timed")],
)
def test_a_task_that_cannot_be_timed_is_refused(folder: Path, capsys, key: str, words: str) -> None:
    (folder / "own.yaml").write_text(f"own: {{{key}}}\n", encoding="utf-8")
    assert main(["grade", str(folder / "in"), "--task", str(folder / "own.yaml")]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


@pytest.mark.gpu
def test_hand_ins_are_timed_on_this_gpu(folder: Path) -> None:
    _, rows = graded(folder)
    assert {name: row["mistakes"] for name, row in rows.items()} == {
        "constant": "",
        "plain": "",
        "wide": "",
        "wrong": "edge_not_tested",
    }
    for name in ("constant", "plain", "wide"):
        ours, reference = float(rows[name]["time_ms"]), float(rows[name]["reference_ms"])
        assert 0.3 * reference < ours <= 2 * reference
