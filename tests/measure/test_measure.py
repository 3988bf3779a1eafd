"""Measuring survives a crash, a hang, a wrong kernel and a kill, and nothing is measured twice."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import psutil
import pytest
from builders import work_of
from waiting import has_ended, wait_until

from tilewise.measure import task as measure
from tilewise.measure.methods import maximum_size as maximum
from tilewise.measure.result_rows import failed_row, median_run, timing
from tilewise.study import columns, registry
from tilewise.study.points import point
from tilewise.study.status import Status
from tilewise.study.sweeps import Reading, Target, expand

KERNEL = """
template <typename T>
__global__ void mine(const T* A, const T* B, T* C, int n, int p, int m)
{{
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    for (int row = 0; row < n && col < m; ++row) {{
        T sum = 0;
        for (int k = 0; k < p; ++k) sum += A[row * p + k] * B[k * m + col];
        C[row * m + col] = sum;
    }}
    {also}
}}
"""
ENTRY = """
mine: {{title: mine, kind: cuda, source: mine.cu, template: [dtype], dtypes: [float], parameters: [block],
       block: [block_x, block_y], covers: {covers}}}
"""


def entries(journal):
    """The rows of a journal, without lines that a kill cut short."""
    return [json.loads(line)["row"] for line in journal.read_text().splitlines() if line.endswith("}}")]


@pytest.fixture
def study(tmp_path, device, config):
    """A function that measures a kernel with an extra line at some sizes, on the emulator, and returns the rows."""

    def run(also="", sizes=(4, 5, 6), limit_s=20, block=32, covers="[n, block_x]"):
        (tmp_path / "mine.cu").write_text(KERNEL.format(also=also))
        (tmp_path / "registry.yaml").write_text(ENTRY.format(covers=covers))
        kernels = registry.load(tmp_path)
        points = [point("t", "mine", "float", n, 7, 9, block_x=block, block_y=1) for n in sizes]
        settings = config | {"timing": config["timing"] | {"point_limit_s": limit_s}}
        return measure.measure_task(work_of(points, kernels, device, settings, tmp_path))[0]

    return run


def test_rows_have_the_columns_of_the_contract(study):
    rows = study()
    assert list(rows.columns) == columns.column_names("measurements", [])
    assert rows.status.tolist() == ["ok"] * 3
    assert rows.n.tolist() == [4, 5, 6]
    assert (rows.bound_ratio <= 1).all() and rows.build_sha256.str.len().eq(64).all()
    assert rows[["time_ms", "gflops"]].isna().all(axis=None), "the emulator does not time anything"


def test_a_crash_ends_only_its_own_point(study):
    rows = study(also="if (n == 5) *(volatile int*)0 = 1;")
    assert rows.status.tolist() == ["ok", "error", "ok"]
    assert "of block (0, 0, 0) reads or writes address 0x0" in rows.message[1]


def test_a_hang_ends_only_its_own_point(study):
    rows = study(also="for (volatile int i = 0; n == 5; ++i) {}", limit_s=2)
    assert rows.status.tolist() == ["ok", "timeout", "ok"]
    assert "2 s" in rows.message[1]


def test_a_shape_beyond_the_emulators_own_is_a_row_that_says_so(study):
    rows = study(sizes=(4, 1000))
    assert rows.status.tolist() == ["ok", "unsupported"]
    assert rows.message[1].startswith("no shape of up to 512 suits this kernel; add one")


def test_a_worker_may_write_its_files_after_the_last_point(study, monkeypatch, tmp_path):
    slow = tmp_path / "python"
    slow.write_text(f'#!/bin/sh\n"{sys.executable}" "$@"; sleep 1; touch "{tmp_path}/written"\n')
    slow.chmod(0o755)
    monkeypatch.setattr(measure.sys, "executable", str(slow))
    assert set(study().status) == {"ok"}
    assert (tmp_path / "written").exists()


def test_a_wrong_product_is_a_row_without_times(study):
    rows = study(also="if (n == 6) C[0] += 1;")
    assert rows.status.tolist() == ["ok", "ok", "incorrect"]
    assert "C[0, 0]" in rows.message[2]
    assert rows.time_ms.isna()[2]


def test_a_kernel_that_adds_beta_c_is_right_if_its_entry_says_so(tmp_path, device, config):
    body = KERNEL.format(also="").replace("C[row * m + col] = sum;", "C[row * m + col] = sum + 0 * C[row * m + col];")
    (tmp_path / "mine.cu").write_text(body)
    for entry, status in ((ENTRY, "incorrect"), (ENTRY.replace("title: mine", "title: mine, reads_c: true"), "ok")):
        (tmp_path / "registry.yaml").write_text(entry.format(covers="[n, block_x]"))
        points = [point("t", "mine", "float", 4, 7, 9, block_x=32, block_y=1)]
        rows, _ = measure.measure_task(work_of(points, registry.load(tmp_path), device, config, tmp_path / status))
        assert rows.status.tolist() == [status], rows.message[0]


def test_a_refused_launch_is_a_row_with_the_error(study):
    rows = study(block=2048)
    assert set(rows.status) == {"invalid_launch"}
    assert "CUDA" in rows.message[0] or "cuda" in rows.message[0]


def test_finished_points_are_not_measured_again(study, tmp_path):
    study(sizes=(4, 5))
    journal = (tmp_path / "journal").read_text()
    study(sizes=(4, 5, 6))
    assert (tmp_path / "journal").read_text().startswith(journal)
    assert [row["n"] for row in entries(tmp_path / "journal")] == [4, 5, 6]


def test_an_edited_kernel_is_measured_again(study, tmp_path):
    study(sizes=(4,))
    study(sizes=(4,), also="constexpr int another = 1;")
    assert [row["n"] for row in entries(tmp_path / "journal")] == [4, 4]


def test_a_corrected_launch_is_measured_again(study, tmp_path):
    rows = study(sizes=(70,), covers="[2 * n, 64 * block_x]")
    assert (rows.status[0], rows.grid_x[0]) == ("ok", 1)
    rows = study(sizes=(70,), covers="[n, block_x]")
    assert rows.grid_x[0] == 1 and len(entries(tmp_path / "journal")) == 1, "the same grid"
    rows = study(sizes=(70,), covers="[7, block_x]")
    assert rows.grid_y[0] == 10 and len(entries(tmp_path / "journal")) == 2


def test_a_torn_journal_is_passed_over(study, tmp_path):
    study(sizes=(4, 5))
    text = (tmp_path / "journal").read_text()
    (tmp_path / "journal").write_text(text[:-20])
    rows = study(sizes=(4, 5))
    assert rows.status.tolist() == ["ok", "ok"]
    assert [row["n"] for row in entries(tmp_path / "journal")] == [4, 5], "5 was measured again"


SCRIPT = """
import json, sys
from pathlib import Path
from tilewise.compile import build
from tilewise.measure import task as measure
from tilewise.study import registry
from tilewise.study.device import Device
from tilewise.study.points import point
folder, request = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
points = [point("t", "mine", "float", n, 7, 9, block_x=32, block_y=1) for n in range(1, 41)]
kernels = registry.load(folder)
builds = build.build(build.instances(points, kernels), kernels, Device(**request["device"]), folder / "build")
work = measure.Work("t", points, kernels, builds, Device(**request["device"]), request["config"], folder / "samples",
                    folder / "journal")
rows, _ = measure.measure_task(work)
print(len(rows), set(rows.status))
"""


def test_a_killed_run_resumes_where_it_was(study, tmp_path, device, config):
    # A tenth of a second per point, so that the kill comes in the middle.
    slow = "if (col == 0) for (volatile int i = 0; i < 30000000; ++i) {}"
    study(also=slow, sizes=(50,))
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"device": dataclasses.asdict(device), "config": config}))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), str(request)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    first = subprocess.Popen(command, env=environment, start_new_session=True)
    journal = tmp_path / "journal"
    deadline = time.monotonic() + 60
    while len(entries(journal)) < 5 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    done = journal.read_text()
    assert 5 <= len(entries(journal)) < 41, "the kill came in the middle"
    again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert again.stdout.strip() == "40 {'ok'}", again.stderr
    after = journal.read_text()
    assert after.startswith(done), "the journal only grows"
    assert sorted(row["n"] for row in entries(journal)) == [*range(1, 41), 50], "no point was measured twice"


def test_a_worker_does_not_outlive_its_task(study, tmp_path, device, config):
    study(also="for (volatile int i = 0; n < 41; ++i) {}", sizes=(50,))  # others never end
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"device": dataclasses.asdict(device), "config": config}))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), str(request)]
    task = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})

    def workers():
        all_processes = psutil.process_iter(["ppid", "cmdline"])  # compilers among them, which may end meanwhile
        ours = [process for process in all_processes if process.info["ppid"] == task.pid]
        return [process.pid for process in ours if "tilewise.measure.worker" in (process.info["cmdline"] or [])]

    try:
        [worker] = wait_until(workers, message="a worker")
        time.sleep(1)  # until it works
    finally:
        task.kill()
        task.wait()
    wait_until(lambda: has_ended(worker), 10, "the end of the worker")


def test_a_cpu_loop_over_its_budget_is_a_timeout_that_says_so(tmp_path, device, config, kernels):
    points = [point("cpu", "kij", "float", 64, 64, 64), point("cpu", "kij", "float", 1024, 1024, 1024)]
    settings = config | {"cpu": config["cpu"] | {"budget_s": {"gpu": 1, "emulator": 0.02}}}
    rows, facts = measure.measure_task(work_of(points, kernels, device, settings, tmp_path))
    assert (facts.points[0], facts.remembered[0]) == (2, 0) and facts.wall_s[0] > 0
    assert rows.status.tolist() == ["ok", "timeout"]
    assert rows.time_ms[0] > 0 and rows.samples[0] == 3
    assert np.isnan(rows.time_ms[1]) and "budget_s" in rows.message[1]


def test_columns_of_the_timing_are_median_and_quartiles():
    job = SimpleNamespace(point=point("t", "naive", "float", 1500, 1000, 1000))
    found = timing([4.0, 1.0, 3.0, 2.0, 5.0], job)
    assert (found["time_ms"], found["time_min_ms"], found["samples"]) == (3, 1, 5)
    assert (found["time_q1_ms"], found["time_q3_ms"]) == (2, 4)
    assert found["gflops"] == pytest.approx(1000)
    assert found["noise"] == pytest.approx(np.std([1, 2, 3, 4, 5]) / 3)


@pytest.mark.parametrize(
    ("kernel", "error", "hint"),
    [
        ("tiled", "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered", True),
        ("tiled", "cudaErrorMisalignedAddress: misaligned address", True),
        ("tiled", "CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure", True),
        ("tiled", "CUDA_ERROR_INVALID_VALUE: invalid argument", False),
        ("cublas", "cudaErrorIllegalAddress: an illegal memory access was encountered", False),
    ],
)
def test_a_faulty_access_on_a_gpu_leads_to_the_microscope(kernels, kernel, error, hint):
    row = failed_row(SimpleNamespace(kernel=kernels[kernel], row={}), Status.ERROR, error)
    remedy = "; `tilewise trace kernels/textbook/tiled.cu`, with a small --shape, names a faulty access"
    assert row["message"] == error + remedy * hint
    assert len(row["message"]) < 200, "a log shows no more"


def test_the_row_of_several_runs_is_that_of_the_median_run():
    runs = [
        {"status": "ok", "time_ms": t, "time_q1_ms": t - 1, "batch_ms": b} for t, b in ((5, 4.5), (9, None), (4, None))
    ]
    found = median_run(runs)
    assert (found["time_ms"], found["time_q1_ms"], found["batch_ms"]) == (5, 4, 4.5)
    assert (found["runs"], found["run_low_ms"], found["run_high_ms"]) == (3, 4, 9)
    assert median_run(runs[:2])["time_ms"] == 5, "of an even number the faster of the two"
    wrong = {"status": "incorrect", "message": "the timed product: C[0, 0] is 1"}
    assert median_run([*runs, wrong]) == wrong
    verified = {"status": "ok", "time_ms": None}
    assert median_run([verified]) == verified, "the emulator does not time, so there is nothing between runs"


def test_a_sweep_on_a_gpu_is_repeated_in_processes_of_its_own(tmp_path, device, config, kernels, monkeypatch):
    asked = []

    def invented(jobs, device, config, samples, how):
        asked.append((how, len(jobs)))
        for job in jobs:
            time_ms = 10.0 + len(asked) * (1e-3 if job.point.n == 32 else 1)
            ms = {"time_ms": time_ms, "samples": 9, "gflops": 1.0, "status": "ok"}
            yield job.key, job.row | {"message": ""} | ({"status": "invalid_launch"} if job.point.n == 16 else ms)

    points = [point("t", "tiled", "float", n, n, n, tile=8) for n in (16, 24, 32)]
    points += [point("t", "kij", "float", 40, 40, 40)]
    jobs = work_of(points, kernels, device, config, tmp_path).jobs()
    jobs = [dataclasses.replace(job, backend="cuda" if job.backend == "emulator" else "host") for job in jobs]
    monkeypatch.setattr(measure.Work, "jobs", lambda self: jobs)
    monkeypatch.setattr(measure, "run_jobs", invented)

    def rows_of(repeats):
        asked.clear()
        timing = config["timing"] | {"repeats": repeats}
        return measure.measure_task(work_of(points, kernels, device, config | {"timing": timing}, tmp_path))

    rows, facts = rows_of(3)
    assert asked == [("measure", 4), ("repeat", 2), ("repeat", 1)], "not what failed, what no GPU runs, and what agreed"
    assert rows.status.tolist() == ["invalid_launch", "ok", "ok", "ok"]
    assert rows.time_ms.tolist()[1:] == [12, 10.001, 11] and rows.runs.tolist()[1:] == [3, 2, 1]
    assert rows.run_low_ms.tolist()[1:] == [11, 10.001, 11] and rows.run_high_ms.tolist()[1:] == [13, 10.002, 11]
    assert facts.points[0] == 4
    again, _ = rows_of(3)
    assert asked == [("measure", 0), ("repeat", 0), ("repeat", 0)], "every run is in the journal"
    pd.testing.assert_frame_equal(again, rows)
    assert rows_of(1)[0].time_ms.tolist()[1:] == [11, 10.001, 11]


@pytest.mark.parametrize("limit", [0, 1, 2, 17, 99, 100])
def test_bisection_is_exact_to_one(limit):
    asked = []
    assert maximum.largest(lambda n: asked.append(n) or n <= limit, 100) == limit
    assert len(asked) <= 8


def test_the_theoretical_size_is_that_of_source_a():
    assert maximum.theoretical_n(11546918912, "float") == 31020


def test_maximum_size_on_the_emulated_device(tmp_path, device, config, kernels, monkeypatch):
    points = expand(config, kernels, "task1c", Target("emulator"), Reading(shapes=False))
    work = work_of(points, kernels, device, config, tmp_path)
    rows, facts = maximum.MaximumSize().run(work)
    fact = facts.iloc[0]
    total = config["emulator"]["memory_bytes"]
    assert 12 * fact.theoretical_n**2 <= total < 12 * (fact.theoretical_n + 1) ** 2
    assert 0 < fact.allocatable_n <= fact.theoretical_n
    assert rows.n[0] == fact.timed_n == fact.allocatable_n
    assert rows.status[0] == "ok" and np.isnan(fact.time_ms)
    probed = []
    monkeypatch.setattr(maximum, "_probe", lambda *arguments: probed.append(arguments))
    again = maximum.MaximumSize().run(work)
    assert not probed, "a finished probe is taken from the journal"
    pd.testing.assert_frame_equal(again[0], rows)
    pd.testing.assert_frame_equal(again[1], facts)
