"""A point that goes wrong costs its own row, in the methods that run their points in one process, too."""

import contextlib
import dataclasses
import importlib
import io
import pickle
import sys
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
from builders import work_of

from tilewise.measure.backends import Attempt
from tilewise.measure.methods import accuracy, cold_start, energy, launch_limits, maximum_size
from tilewise.measure.result_rows import failed_row
from tilewise.study.points import point
from tilewise.study.verify import Check

RIGHT = Check(True, 0.0, 0.0, "")
NAIVE, TILED = {"block_x": 16, "block_y": 16}, {"tile": 16}


@pytest.fixture
def work(tmp_path, device, config, kernels):
    """Two kernels at 64³."""
    points = [point("t", "naive", "float", 64, 64, 64, **NAIVE), point("t", "tiled", "float", 64, 64, 64, **TILED)]
    return work_of(points, kernels, device, config, tmp_path)


class Device:
    """A device on which all that one kernel does goes wrong, in a way of one's choice."""

    def __init__(self, fails):
        self.fails, self.sizes = fails, []

    def memory(self):
        return 12 * 8192**2, 12 * 8192**2

    def allocates(self, sizes):
        return sum(sizes) <= 12 * 8192**2

    def once(self, job):
        if job.kernel.name == "naive":
            self.sizes.append(job.point.n)
            return self.fails(job)
        ms = 2e-6 * job.point.n**3 / 1000
        return job.row | {"status": "ok", "time_ms": ms, "gflops": 1000.0}

    def attempt(self, job, raised):
        if job.kernel.name == "naive":
            self.fails(job)
        return Attempt("", "", "", False, RIGHT)


def raises(job):
    raise MemoryError("no such amount")


def wrong(job):
    return failed_row(job, "incorrect", "C[0, 0] is 1, should be 0") | {"time_ms": None}


@pytest.mark.parametrize(
    ("fails", "status", "message"),
    [(raises, "error", "MemoryError: no such amount"), (wrong, "incorrect", "C[0, 0] is 1, should be 0")],
)
def test_the_largest_product(fails, status, message, work, monkeypatch):
    device = Device(fails)
    monkeypatch.setattr(maximum_size, "bench_of", lambda setting: device)
    rows, facts = maximum_size.MaximumSize().run(work)
    assert rows.set_index("kernel").status.to_dict() == {"naive": status, "tiled": "ok"}
    assert rows.message[0] == message
    assert set(facts.kernel) == {"tiled"} and facts.timed_n.max() > 1024
    assert max(device.sizes) == 1024, "what is wrong is not run at the largest size, for which there is no budget then"


def test_launches_that_may_be_refused(work, monkeypatch):
    monkeypatch.setattr(launch_limits, "bench_of", lambda setting: Device(raises))
    rows, facts = launch_limits.LaunchLimits().run(work)
    assert rows.set_index("kernel").status.to_dict() == {"naive": "error", "tiled": "ok"}
    assert rows.message[0] == "MemoryError: no such amount" and list(facts.kernel) == ["tiled"]


class Multiplier:
    """A GPU that is played by NumPy, and that has no memory for what is as high as `too_high`, or for one kernel."""

    xp = np

    def __init__(self, too_high=0, kernel=""):
        self.too_high, self.kernel = too_high, kernel

    def sgemm(self, A, B):
        if len(A) == self.too_high:
            raise MemoryError("no such amount")
        return A @ B

    def multiply(self, job, A, B):
        if job.kernel.name == self.kernel:
            raise MemoryError("no such amount")
        return A @ B, job.row | {"status": "ok"}


@pytest.mark.parametrize("by", [Multiplier(too_high=32), Multiplier(kernel="naive")], ids=["SGEMM", "a kernel"])
def test_the_accuracy_gate(by, work):
    jobs = work.jobs([dataclasses.replace(work.points[0], n=32), work.points[1]])
    rows = accuracy.columns.frame(accuracy.compare(jobs, by, 1), "accuracy", work.parameters)
    lost = rows[rows.n == 32]
    assert set(lost.status) == {"error"} and set(lost.message) == {"MemoryError: no such amount"}
    assert set(lost.kernel) == {"naive"} and lost.verdict.eq("").all()
    kept = rows[rows.n == 64]
    assert set(kept.status) == {"ok"} and set(kept.verdict) == {"passes"}
    assert list(lost.operands) == list(kept.operands) and len(kept) > 3


def test_what_is_built_is_called_beside_what_is_not(work):
    """As in cold starts, whose kernels run in one process."""
    naive, tiled = work.jobs()
    broken = dataclasses.replace(naive, row=naive.row | {"status": "compile_error", "message": "a brace is missing"})
    rows = cold_start.calls([broken, tiled], work.device, 1)
    assert [(row["kernel"], row["status"], row.get("order")) for row in rows] == [
        ("naive", "compile_error", None),
        ("tiled", "not_timed", "tiled"),
    ]


def test_a_call_that_fails_in_a_fresh_process(work, monkeypatch, capsys):
    def whole_call(job, arrays, first):
        if job.kernel.name == "naive":
            raise MemoryError("no such amount")
        np.matmul(arrays["A"], arrays["B"], out=arrays["C"])
        yield "kernel"

    request = io.BytesIO(pickle.dumps({"jobs": work.jobs(), "seed": 1}))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=request))
    monkeypatch.setitem(sys.modules, "tilewise.nvidia.launcher", SimpleNamespace(whole_call=whole_call))
    monkeypatch.setattr(cold_start, "laps", lambda steps: dict.fromkeys(steps, 0.5) | {"total": 2.5})
    cold_start.main()
    said = capsys.readouterr().out
    done = SimpleNamespace(returncode=0, stdout=said.encode(), stderr=b"")
    monkeypatch.setattr(cold_start.subprocess, "run", lambda *args, **options: done)
    rows = cold_start._in_fresh_process(work.jobs(), 1)
    assert [(row["kernel"], row["status"], row.get("step"), row.get("ms")) for row in rows] == [
        ("naive", "error", None, None),
        ("tiled", "ok", "kernel", 0.5),
        ("tiled", "ok", "total", 2.5),
    ]
    assert rows[0]["message"] == "MemoryError: no such amount"


class NVMLError(Exception):
    pass


def test_energy(work, monkeypatch, backend):
    """One kernel raises, and the board of the other does not tell its energy."""

    def refused():
        raise NVMLError("not here")

    def verified(job, operands):
        if job.kernel.name == "naive":
            raise MemoryError("no such amount")
        return (lambda stream: None), job.row | {"status": "ok"}, True, []

    nvml = ModuleType("pynvml")
    nvml.__dict__.update(NVMLError=NVMLError, nvmlInit=refused)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    made = backend(played())
    module = sys.modules[type(made).__module__]
    for name, value in (("Operands", lambda config: None), ("uuid", lambda: "GPU-1"), ("verified", verified)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(energy, "open_backend", lambda name, setting: made)
    naive, tiled = energy._measured(work)
    assert (naive["status"], naive["message"]) == ("error", "MemoryError: no such amount")
    assert (tiled["status"], tiled["message"].startswith("NVML does not report")) == ("unsupported", True)


KEPT: dict = {}


@pytest.mark.parametrize(
    ("made", "status", "message"),
    [
        (lambda A, B, C: np.matmul(A, B, out=C), "ok", ""),
        (lambda A, B, C: np.copyto(C, KEPT.setdefault(id(C), A @ B)), "incorrect", "the timed product, "),
        (lambda A, B, C: np.matmul(A[1:], B, out=C[1:]), "incorrect", ""),
        (lambda A, B, C: np.matmul(A, B, out=C), "incorrect", "0 GFLOP/s are above the roof of 0, the peak of float: "),
    ],
    ids=["honest", "keeps C", "a part", "too fast"],
)
@pytest.mark.parametrize("runs", [2, 60])
def test_a_timing_is_verified_before_while_and_after(work, monkeypatch, backend, made, status, message, runs):
    """NumPy plays CuPy, so that all of it runs but the launches and the clock."""
    device, _, arrays = on_numpy(monkeypatch, backend, work, made, 0.1 if "roof" in message else 100)

    def execute(launch, timer=False, batched=None):
        assert timer != bool(batched), "isolated runs by a timer, then a batch"
        for _ in range(runs):
            launch(MagicMock(), MagicMock()) if timer else launch(MagicMock())

    KEPT.clear()
    job = next(job for job in work.jobs() if job.kernel.name == "tiled")
    results = SimpleNamespace(last=lambda: {"times_ms": [1.0, 3.0, 2.0], "batch_ms": None}, batch_ms=lambda: 1.5)
    state = SimpleNamespace(exec=execute, set_timeout=lambda seconds: None)
    row = device._timed(job, state, arrays.Operands(device.config), results, batched=True)
    assert row.get("batch_ms") == (1.5 if status == "ok" else None)
    assert row["status"] == status and row["message"].startswith(message) and row["registers"] == 7
    assert row.get("time_ms") == (2.0 if status == "ok" else None)
    assert (row["bound_ratio"] < 1) == (status == "ok" or "roof" in message)


def on_numpy(monkeypatch, backend, work, made, peak=100.0):
    """The GPU's backend and its modules, on a CuPy that NumPy plays, with `made(A, B, C)` for what is launched."""
    cupy = played()
    functions = "absolute copyto empty empty_like float32 float64 random stack uint8 zeros zeros_like"
    for name in functions.split():
        setattr(cupy, name, getattr(np, name))
    cupy.cuda.runtime.memGetInfo.return_value = (2**40, 2**40)
    device = backend(cupy)
    device.device.gpu = {"l2_bytes": 100, "memory_bandwidth_gb_s": 1000, "peak_gflops": {"float": peak}}
    device.config = work.config
    module, arrays = (sys.modules[f"tilewise.measure.backends.{name}"] for name in ("cuda", "operands"))

    def bound(job, A, B, C, arena=None):
        return lambda stream: made(A, B, C), {"registers": 7}, []

    monkeypatch.setattr(arrays, "bound", bound)
    monkeypatch.setattr(module, "elapsed", lambda: contextlib.nullcontext([0.5]))
    monkeypatch.setattr(module, "uuid", lambda: "GPU-1")
    return device, module, arrays


def unless_known(A, B, C):
    """Leave C if it holds the product of the operands of the last run, by one element of each."""
    seen = [A[0, 0], B[0, 0], C[0, 0]]
    if KEPT.get("seen") != seen:
        np.matmul(A, B, out=C)
        KEPT["seen"] = [A[0, 0], B[0, 0], C[0, 0]]


EVERYWHERE = {
    "honest": (lambda A, B, C: np.matmul(A, B, out=C), 1e6, ""),
    "a fingerprint": (unless_known, 1e6, "after "),
    "too fast": (lambda A, B, C: np.matmul(A, B, out=C), 1e-6, "GFLOP/s are above the roof of 0, "),
}


def by_screen(device, module, job, monkeypatch):
    """One of the three products of a screening is verified, after a change of some kind: many screenings."""
    found = []
    for _ in range(30):
        KEPT.clear()
        device.screen([job], found.append)
    return found


def by_energy(device, module, job, monkeypatch):
    def repeated(point, launch, wait, counter_mj):
        for _ in range(9):
            launch()
        return {"gflops": 1.0, "joules": 2.0}

    monkeypatch.setattr(module.nvml, "energy_counter", lambda uuid: lambda: 1)
    return device.energy([job], repeated)


def by_once(device, module, job, monkeypatch):
    monkeypatch.setattr(module, "bound", sys.modules["tilewise.measure.backends.operands"].bound)
    return [device.once(job)]


def by_call(device, module, job, monkeypatch):
    launch = sys.modules["tilewise.measure.backends.operands"].bound
    monkeypatch.setattr(module.tilewise, "matmul", lambda A, B, out: launch(job, A, B, out)[0](0))
    monkeypatch.setattr(module.cupy, "matmul", lambda A, B, out: np.matmul(A, B, out=out))
    monkeypatch.setattr(module, "DTYPES", {np.dtype(np.float32): "float"})
    monkeypatch.setattr(module, "kernel_for", lambda *_: "naive")
    return [device.called("float", 64)]


@pytest.mark.parametrize(
    ("what", "run", "column"),
    [
        (what, run, column)
        for what in EVERYWHERE
        for run, column in ((by_screen, "screen_ms"), (by_energy, "joules"), (by_once, "time_ms"), (by_call, "call_us"))
        if (what, run) != ("a fingerprint", by_once)  # what runs once cannot keep anything
    ],
)
def test_every_method_that_times_verifies_afterwards(work, monkeypatch, backend, what, run, column):
    made, peak, words = EVERYWHERE[what]
    KEPT.clear()
    device, module, _ = on_numpy(monkeypatch, backend, work, made, peak)
    [job] = [job for job in work.jobs() if job.kernel.name == "tiled"]
    found = run(device, module, job, monkeypatch)
    wrong = [row for row in found if row["status"] != "ok"]
    assert bool(wrong) == (what != "honest") and all(row["status"] == "incorrect" for row in wrong), found
    assert all(words in row["message"] for row in wrong), wrong
    assert all((row.get(column) is None) == (row["status"] != "ok") for row in found)


def played():
    """A CuPy whose errors are never raised."""
    cupy = MagicMock()
    cupy.cuda.memory.OutOfMemoryError = cupy.cuda.runtime.CUDARuntimeError = cupy.cuda.cublas.CUBLASError = NVMLError
    return cupy


@pytest.fixture
def backend(monkeypatch):
    """The GPU's backend on a CuPy of one's choice; whatever was imported before is there again afterwards."""
    names = [f"tilewise.nvidia.{name}" for name in ("cublas", "launcher", "runtime")]
    names += ["tilewise.measure.backends.cuda", "tilewise.measure.backends.operands"]
    places = [(importlib.import_module(folder), name) for folder, _, name in (name.rpartition(".") for name in names)]
    before = [vars(package).get(name) for package, name in places]

    def made(cupy):
        for name, module in (("cupy", cupy), ("cupy.cuda", cupy.cuda), ("cupy.cuda.runtime", cupy.cuda.runtime)):
            monkeypatch.setitem(sys.modules, name, module)
        for name in names:
            monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module("tilewise.measure.backends.cuda").Backend(MagicMock())

    yield made
    for (package, name), module in zip(places, before):
        sys.modules.pop(f"{package.__name__}.{name}", None)
        if module is None:
            vars(package).pop(name, None)
        else:
            setattr(package, name, module)


def test_what_a_kernel_before_has_left_in_the_pool_does_not_count(backend):
    """CuPy keeps what was freed; the largest product of the second kernel needs it."""

    class Refused(Exception):
        def __str__(self):
            return "cudaErrorMemoryAllocation: out of memory"

    total, held = 100, {"pool": 60, "ours": 0}
    cupy = played()
    cupy.get_default_memory_pool().free_all_blocks.side_effect = lambda: held.update(pool=0)
    runtime = cupy.cuda.runtime
    runtime.CUDARuntimeError, runtime.memGetInfo = Refused, lambda: (total - sum(held.values()), total)

    def malloc(size):
        if size > total - sum(held.values()):
            raise Refused
        held["ours"] += size
        return size

    runtime.malloc, runtime.free = malloc, lambda size: held.update(ours=held["ours"] - size)
    device = backend(cupy)
    assert device.allocates([50, 50]) and held == {"pool": 0, "ours": 0}
    assert not device.allocates([50, 51]) and held["ours"] == 0
    held["pool"] = 60
    assert device.memory() == (100, 100)
