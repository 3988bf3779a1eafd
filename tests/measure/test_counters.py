"""Hardware counters: ncu's output is read correctly; if ncu is missing or refuses, the message explains why."""

import math
import pickle
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from builders import two_launches, work_of

from tilewise import UserError
from tilewise.measure import counters
from tilewise.measure.job import plan_columns
from tilewise.nvidia import ncu
from tilewise.study.device import Device
from tilewise.study.points import point
from tilewise.study.registry import load

WIDE = """==PROF== Connected to process 511
==PROF== Profiling "naive" - 0: 0%....50%....100% - 2 passes
"ID","Process ID","Kernel Name","Block Size","Grid Size","l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
"","","","","","request"
"0","511","void naive<float>(const T1 *, const T1 *, T1 *, int, int, int)","(16, 16, 1)","(16, 16, 1)","1,048,576"
"1","511","void tiled<float, 16>(const T1 *, const T1 *)","(16, 16, 1)","(16, 16, 1)","65536.00"
==PROF== Disconnected from process 511
"""


def test_parse():
    first, second = ncu.parse(WIDE)
    assert first["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 1048576
    assert second["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 65536
    assert second["Kernel Name"].startswith("void tiled<float, 16>")


def test_a_rate_of_hits_that_cannot_be_is_no_number():
    """ncu reads hits and accesses in two passes: of a kernel that thrashes the cache it gave 164 %."""
    wide = '"ID","lts__t_sector_hit_rate.pct","l1tex__t_sector_hit_rate.pct"\n"0","164.32","100.00"\n'
    [launch] = ncu.parse(wide)
    assert math.isnan(launch["lts__t_sector_hit_rate.pct"]) and launch["l1tex__t_sector_hit_rate.pct"] == 100


@pytest.fixture
def fake_ncu(tmp_path, monkeypatch):
    """A function that installs an ncu which prints `text` and says that `launches` jobs were launched."""

    def jobs(points, kernels, *_):
        """What is launched for each point, without a build."""
        return [
            SimpleNamespace(
                **{"key": at.label(), "point": at, "launches": plan.launches, "product": plan.product},
                **{"row": plan_columns(kernels[at.kernel], at, plan, GPU), "files": {"f": ""}},
            )
            for at in points
            for plan in [kernels[at.kernel].plan(at)]
        ]

    monkeypatch.setattr(counters, "_jobs", jobs)

    def install(text, launches):
        path = tmp_path / "ncu"
        path.write_text(
            f"#!{sys.executable}\nimport sys\nprint({text!r})\n"
            f"open(sys.argv[-1], 'wb').write({pickle.dumps(launches)!r})\n"
        )
        path.chmod(0o755)
        monkeypatch.setenv("NCU", str(path))

    return install


GPU = Device.from_capability("9.0")
POINTS = [
    point("t", "naive", "float", 1, 1, 1, block_x=8, block_y=8),
    point("t", "naive", "float", 2, 2, 2, block_x=8, block_y=8),
    point("t", "tiled", "float", 1, 1, 1, tile=16),
]


def test_each_kernel_is_built_once_and_its_jobs_can_be_launched(tmp_path):
    jobs = counters._jobs(POINTS, load(), Device.from_capability("9.0", 132), tmp_path, 1)
    assert [job.point for job in jobs] == POINTS and {path.name for path in tmp_path.iterdir()} == {"naive", "tiled"}
    for job in jobs:
        files = [job.files[launch.instance] for launch in job.launches]
        assert files and all(Path(file).read_bytes().startswith(b"\x7fELF") and symbol for file, symbol in files)
    assert len({job.key for job in jobs}) == len(jobs)


def test_a_refused_launch_has_no_row(fake_ncu, tmp_path):
    fake_ncu(WIDE, {0: "", 2: ""})
    frame = counters.count(POINTS, load(), tmp_path / "log", GPU, tmp_path / "build")
    assert list(frame.kernel) == ["naive", "tiled"]
    assert list(frame.global_load_requests) == [1048576, 65536]
    assert frame.global_load_sectors.isna().all()  # not counted: empty, not zero
    assert (tmp_path / "log").read_text().startswith("==PROF==")


def test_a_product_that_is_wrong_has_no_row(fake_ncu, tmp_path):
    fake_ncu(WIDE, {0: "the product is wrong", 2: ""})
    frame = counters.count(POINTS, load(), tmp_path / "log", GPU, tmp_path / "build")
    assert list(frame.kernel) == ["tiled"] and list(frame.global_load_requests) == [65536]


#: As ncu prints it for two launches at full size; it could not read the second's hit rate.
FULL = {
    "l1tex__t_sector_hit_rate.pct": ("%", "50.35", "n/a"),
    "lts__t_sectors_op_read.sum": ("sector", "4,429,185,024", "120"),
    "lts__t_sectors_op_write.sum": ("sector", "2,097,152", "30"),
    "dram__bytes_read.sum": ("byte", "134,250,496", "4,096"),
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "0.61", "12.5"),
    "smsp__issue_active.avg.pct_of_peak_sustained_active": ("%", "41.58", "80"),
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": ("inst", "17.93", "0"),
    "gpu__time_duration.sum": ("ns", "21,893,216", "1,000"),
}


def printed(table):
    """What ncu prints of counters by name: unit, and the value of each launch."""
    rows = [("ID", "Process ID", "Kernel Name", *table), ("", "", "", *(unit for unit, *_ in table.values()))]
    names = ("void naive<float>(const T1 *)", "void tiled<float, 16>(const T1 *)")
    rows += [(str(i), "511", name, *(values[1 + i] for values in table.values())) for i, name in enumerate(names)]
    return "\n".join(",".join(f'"{cell}"' for cell in row) for row in rows)


def test_counters_at_full_size(fake_ncu, tmp_path):
    fake_ncu(printed(FULL), {0: "", 2: ""})
    frame = counters.count(POINTS, load(), tmp_path / "log", GPU, tmp_path / "build", full_size=True)
    naive, tiled = frame.to_dict("records")
    assert naive["l1_hit_percent"] == 50.35 and math.isnan(tiled["l1_hit_percent"])
    assert (naive["l2_sectors"], tiled["l2_sectors"]) == (4_429_185_024 + 2_097_152, 150)
    assert (naive["dram_read_bytes"], naive["profiled_ns"]) == (134_250_496, 21_893_216)
    assert (naive["dram_percent"], naive["issue_percent"], naive["stall_long_scoreboard"]) == (0.61, 41.58, 17.93)
    assert frame[["shared_load_requests", "dram_written_bytes"]].isna().all(axis=None), "not read: empty, not zero"


def test_of_several_launches_counts_add_up_and_percentages_are_those_of_the_product(fake_ncu, tmp_path):
    kernel = two_launches(tmp_path)
    table = {name: FULL[name] for name in ("dram__bytes_read.sum", "l1tex__t_sector_hit_rate.pct")}
    table["l1tex__t_sector_hit_rate.pct"] = ("%", "10", "90")
    text = printed(table).replace("naive<float>", "turn<float>").replace("tiled<float, 16>", "mine<float>")
    at = point("t", "mine", "float", 8, 8, 8)
    fake_ncu(text, {0: ""})
    counted = counters.count([at], {"mine": kernel}, tmp_path / "log", GPU, tmp_path / "build", full_size=True)
    assert list(counted.dram_read_bytes) == [134_250_496 + 4_096] and list(counted.l1_hit_percent) == [90]


def test_the_config_names_what_is_counted_at_full_size(config, kernels):
    points = counters.full_size_points(config, kernels)
    assert {(at.n, at.p, at.m) for at in points} == {(4096, 4096, 4096)} and len(set(points)) == len(points)
    rungs = {name for name, kernel in kernels.items() if kernel.kind == "cuda" and kernel.path.parent.name == "ladder"}
    asked = {at.kernel for at in points}
    assert asked >= {"naive", "naive_transposed", "tiled", "multi_tile"} and len(rungs) > 10 and rungs <= asked
    of = lambda name, key: [dict(at.parameters)[key] for at in points if at.kernel == name]  # noqa: E731
    assert of("naive", "block_x") == [8, 32, 128, 512, 1024] and of("multi_tile", "ntb") == [1, 7, 16]
    broken = config | {"counters": {"sweeps": [{"kernel": "cublas", "dtype": "float", "shapes": "square_4096"}]}}
    with pytest.raises(UserError, match=r"^counters\.sweeps\.0\.kernel: .* cublas is not one"):
        counters.full_size_points(broken, kernels)


def test_launches_in_another_order_are_noticed(fake_ncu, tmp_path):
    with pytest.raises(UserError, match="not in order"):
        fake_ncu(WIDE, {2: "", 0: ""})
        counters.count(POINTS, load(), tmp_path / "log", GPU, tmp_path / "build")
    with pytest.raises(UserError, match="2 launches of 3"):
        fake_ncu(WIDE, {0: "", 1: "", 2: ""})
        counters.count(POINTS, load(), tmp_path / "log", GPU, tmp_path / "build")


def test_permission(fake_ncu, tmp_path):
    refusal = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    with pytest.raises(UserError, match="NVreg_RestrictProfilingToAdminUsers=0"):
        fake_ncu(refusal, {0: "", 1: "", 2: ""})
        counters.count(POINTS, load(), tmp_path / "log", GPU, tmp_path / "build")


def test_other_failures_show_what_ncu_says(fake_ncu, tmp_path):
    failure = "==ERROR== Failed to initialize the profiler: LibraryNotLoaded"
    with pytest.raises(UserError, match=r"read no counters: ==ERROR== Failed to initialize .*; all of it is in .*log"):
        fake_ncu(failure, {})
        counters.count(POINTS, load(), tmp_path / "log", GPU, tmp_path / "build")


def test_missing_ncu(monkeypatch):
    monkeypatch.setattr(ncu, "PLACES", ())
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("NCU", raising=False)
    with pytest.raises(UserError, match="not on this machine; install"):
        ncu.find_ncu()


def test_points_cover_every_gpu_kernel_and_fit_a_device(config):
    kernels = load()
    points = counters.cross_check_points(config, kernels)
    assert {p.kernel for p in points if p.n != p.m} == {"naive", "tiled", "multi_tile"}
    rungs = {name for name, kernel in kernels.items() if kernel.kind == "cuda" and kernel.path.parent.name == "ladder"}
    assert {p.kernel for p in points if p.n == p.p == p.m} >= rungs
    assert len(set(points)) == len(points)
    assert all(kernels[p.kernel].plan(p).product.threads <= 1024 for p in points)


def test_under_ncu_a_launch_that_goes_wrong_costs_its_own_row(monkeypatch, tmp_path, capsys, device, config, kernels):
    """A GPU that is played by NumPy refuses the first of three products, and makes the second wrong."""

    class CudaError(Exception):
        pass

    class Array(np.ndarray):
        def set(self, values):
            self[...] = values

        def get(self):
            return np.asarray(self)

        @property
        def data(self):
            return SimpleNamespace(ptr=self)

    class Product:
        def __init__(self, job, addresses):
            self.job, self.addresses = job, addresses

        def __call__(self):
            if self.job.point.n == 8:
                raise CudaError("CUDA_ERROR_INVALID_VALUE")
            self.addresses["C"][...] = 8 + (self.job.point.n == 9)

    cupy, launcher = ModuleType("cupy"), ModuleType("launcher")
    cupy.empty = lambda shape, dtype: np.empty(shape, dtype).view(Array)
    cupy.cuda = SimpleNamespace(runtime=SimpleNamespace(CUDARuntimeError=OSError))
    launcher.__dict__.update(CudaError=CudaError, Product=Product)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "tilewise.nvidia.launcher", launcher)
    points = [point("t", "tiled", "float", n, 8, 4, tile=8) for n in (8, 9, 10)]
    jobs, done = tmp_path / "jobs", tmp_path / "done"
    jobs.write_bytes(pickle.dumps(work_of(points, kernels, device, config, tmp_path).jobs()))
    ncu.drive(jobs, done)
    assert pickle.loads(done.read_bytes()) == {1: "the product is wrong", 2: ""}
    said = capsys.readouterr().err
    assert "8x8x4 tile=8: CUDA_ERROR_INVALID_VALUE" in said and "9x8x4 tile=8: the product is wrong" in said
