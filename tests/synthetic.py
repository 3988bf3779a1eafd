"""Invented results for tests of the report, with the real columns. They are never written outside a test's folder."""

import functools
import json
import math
import shutil
import tempfile
from pathlib import Path

from builders import KERNELS as STUDY

from kernelscope.yaml_input import read_yaml
from tilewise import ROOT
from tilewise.compile.build import unsupported
from tilewise.measure.job import plan_columns
from tilewise.study import columns, points, registry, tuning
from tilewise.study.device import EMULATED, Device
from tilewise.study.sweeps import Reading, Target, expand, gpu_of_choices

#: The registry whose kernels the invented results are of; a test may replace it.
KERNELS = STUDY
#: The ways by which a kernel may load and store, other than by plain instructions.
OTHER_WAYS = ("async", "tma", "matrix", "cluster")
#: What the emulator counts of a kernel without copies by other ways.
COUNTS = {name: 0 if name.startswith(OTHER_WAYS) else 7 for name in columns.counts()}
COUNTS |= dict.fromkeys(("races", "out_of_bounds", "uninitialised", "divergence", "misaligned"), 7)
#: GFLOP/s of a point at 8192 cubed, float, roughly those of an H200; double takes 1.7 times as long.
_NAIVE = {8: 3200, 16: 4760, 32: 5340, 64: 5530, 128: 6180, 256: 5700}
_TILED = {8: 5140, 16: 8140, 32: 8730}
_MULTI = {1: 8500, 2: 11200, 3: 12200, 4: 12900, 5: 13300, 6: 13570, 7: 13800, 8: 12640, 10: 11000, 12: 9000, 16: 7000}


def parameters():
    """The columns of the kernels' parameters."""
    return registry.parameters(KERNELS)


def point_of(row, kernel):
    """The point of a row of measurements.csv or of the facts."""
    parameters = {name: int(row[name]) for name in kernel.columns}
    return points.point(row.get("task", ""), kernel.name, row["dtype"], *(int(row[n]) for n in "npm"), **parameters)


def launched(kernel, point):
    """The columns that follow from a point's plan on a GPU."""
    return point.columns() | plan_columns(kernel, point, kernel.plan(point), Device.from_capability("9.0"))


def _gflops(point):
    if KERNELS[point.kernel].emulation:
        return 28000
    if KERNELS[point.kernel].library == "cublas":
        return {"float": 51000, "double": 57000, "tf32": 350e3}.get(point.dtype, 700e3)
    chosen = dict(point.parameters)
    rate = {
        "kij": 8,
        "numpy": 900,
        "naive": _NAIVE.get(chosen.get("block_x"), 5000),
        "tiled": _TILED.get(chosen.get("tile"), 8000),
    }.get(point.kernel, _MULTI.get(chosen.get("ntb"), 8000) * (1 if chosen.get("tile") == 32 else 0.9))
    size = min(1, (point.n * point.p * point.m / 1024**3) ** 0.2)
    return rate * size * (0.6 if point.dtype == "double" else 1)


def config(*tasks):
    """The study's own config, with these tasks alone if any are named."""
    study = read_yaml(ROOT / "config/config.yaml")
    return study | {"tasks": {name: study["tasks"][name] for name in tasks or study["tasks"]}}


def row(point, platform, backend="gpu", **changes):
    """A row of measurements.csv for a point; `changes` replace columns."""
    kernel = KERNELS[point.kernel]
    plan = kernel.plan(point)
    values = dict.fromkeys(columns.column_names("measurements", parameters())) | point.columns()
    values |= {
        "platform": platform,
        "status": "ok",
        "message": "",
        "samples": 0,
        "relative_error": 1e-7,
        "bound_ratio": 2e-3,
    }
    values |= plan_columns(kernel, point, plan, Device.from_capability("9.0") if backend == "gpu" else EMULATED)
    if plan.product:
        values["build_sha256"] = "0" * 64
    if backend == "emulator" and kernel.launched:
        values["message"] = "emulated: verified, not timed"
    else:
        rate = _gflops(point)
        time = 2e-6 * point.n * point.p * point.m / rate + 2e-3
        noise = 0.02 if point.kernel == "naive" and dict(point.parameters)["block_x"] == 8 else 0.001
        values |= {
            "samples": 50,
            "time_ms": time,
            "time_min_ms": time * 0.999,
            "noise": noise,
            "batch_ms": time * 0.998,
        }
        values |= {"time_q1_ms": time * (1 - noise / 2), "time_q3_ms": time * (1 + noise / 2), "sm_clock_mhz": 1965.0}
        values |= {"gflops": 2e-6 * point.n * point.p * point.m / time}
    return values | changes


def failed(values, status, message):
    """The row of a point that did not run: its cause, without numbers."""
    numbers = [name for name in columns.FILES["measurements"] if name != "*" and columns.COLUMNS[name].type == "number"]
    numbers = [name for name in numbers if name not in ("unit_products", "padded_multiply_adds")]  # of its launch
    return values | dict.fromkeys(numbers) | {"status": status, "message": message, "samples": 0}


def device(platform, backend, **different):
    """A device.json with the keys that the probe writes; `different` are those of another GPU."""
    gpu = {
        "name": "Invented H200",
        "compute_capability": "9.0",
        "sms": 132,
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 3201,
        "memory_bytes": 150_000_000_000,
        "memory_bandwidth_gb_s": 4917.0,
        "l2_bytes": 62_914_560,
        "driver": "570.1",
        "peak_gflops": {"float": 66_908.0, "double": 33_454.0, "bfloat16": 989_000.0},
    } | different
    return {
        "platform": platform,
        "backend": backend,
        "captured": "2026-11-21T03:20:00+00:00",
        "gpu": gpu if backend == "gpu" else None,
        "limits": {
            "max_threads_per_block": 1024,
            "shared_bytes_per_block": 49152,
            "shared_bytes_per_block_optin": 232448,
            "shared_bytes_per_sm": 233472,
            "threads_per_sm": 2048,
            "warp_size": 32,
        },
        "versions": {"cuda_runtime": "13.0", "cublas": "13.0", "python": "3.11", "numpy": "2.4"},
        "cpu": {"name": "Invented CPU", "cores": 16, "memory_gib": 128},
        "host_compiler": "g++ 12.2.0",
    }


def maximum_size(platform, backend):
    """The row of facts of maximum_size, whose sizes are those of an H200."""
    n = 111_638 if backend == "gpu" else 128
    row = dict.fromkeys(columns.column_names("maximum_size", ())) | {
        "platform": platform,
        "kernel": "naive",
        "dtype": "float",
        "budget_s": 60.0,
    }
    row |= {"memory_total_bytes": 12 * (n + 40) ** 2, "memory_free_bytes": 12 * n * n + 1}
    row |= {"theoretical_n": n + 40, "allocatable_n": n, "timed_n": n, "rows_checked": n}
    if backend == "gpu":
        row |= {"predicted_ms": 2e-6 * n**3 / 6000, "timed_n": 50_000, "time_ms": 41_666.0, "rows_checked": 64}
    return row


#: What ncu reads of a tiled product at full size: 60 MB from memory and 4 to it, where the matrices take 50.
FULL_SIZE = {"kernel": "tiled", "dtype": "float", "n": 2048, "p": 2048, "m": 2048, "block_x": 16, "block_y": 16}
FULL_SIZE |= {"padded_multiply_adds": 2048.0**3}
FULL_SIZE |= {"tile": 16, "l1_hit_percent": 1.5, "l2_hit_percent": 60.0, "l2_sectors": 33_554_432}
FULL_SIZE |= {"dram_read_bytes": 60_000_000, "dram_written_bytes": 4_000_000, "l2_percent": 20.0, "dram_percent": 3.0}
FULL_SIZE |= {"issue_percent": 45.0, "active_warps_percent": 99.0, "profiled_ns": 2_500_000}
FULL_SIZE |= {"stall_barrier": 2.0, "stall_long_scoreboard": 1.0, "stall_mio_throttle": 5.0, "stall_selected": 9.0}
FULL_SIZE |= {"shared_load_wavefronts": 100_663_296, "shared_store_wavefronts": 33_554_432}


def hardware():
    """Rows of counters.csv for every rung of the float ladder: `naive` loads more often than all others."""
    rows = []
    for at in expand(config(), KERNELS, "ladder_float"):
        if at.dtype == "float" and at.n == at.p == at.m and KERNELS[at.kernel].kind == "cuda":
            work = at.n**3 // 32  # multiply-adds of warps
            executed, loads = (5 * work, work) if at.kernel == "naive" else (3 * work // 2, work // 10)
            row = {"kernel": at.kernel, "dtype": at.dtype, **at.shape, **dict(at.parameters), "l2_sectors": work}
            row["padded_multiply_adds"] = KERNELS[at.kernel].padded_multiply_adds(at)
            row |= {"executed_instructions": executed, "shared_bank_conflicts": 0, "shared_load_wavefronts": loads}
            row |= {"global_load_requests": loads, "shared_load_requests": loads, "shared_store_wavefronts": 0}
            row |= dict.fromkeys(["global_store_requests", "shared_store_requests"], 0)
            rows.append(row)
    return rows


def traffic(counted=True):
    """Rows of traffic.csv, or of counters.csv with a difference in one column."""
    rows = []
    for name, tile, per_request, intensity in [
        ("naive", None, 2.5, 0.4),
        ("tiled", 16, 2.0, 4.0),
        ("tiled", 32, 4.0, 8.0),
    ]:
        requests = 1_048_576 // (tile or 1)
        block = tile or 32
        rows.append(
            {"kernel": name, "dtype": "float", "n": 256, "p": 256, "m": 256, "block_x": block, "block_y": block}
            | COUNTS
            | {"padded_multiply_adds": 256.0**3}
            | {"tile": tile, "global_load_requests": requests, "global_load_sectors": requests * per_request}
            | {"global_store_sectors": 8192, "sectors_per_request": per_request, "shared_bank_conflicts": 0}
            | {"shared_load_wavefronts": 262_144 if counted else 250_000, "flop_per_byte": intensity / 2}
            | {"flop_per_byte_moved": intensity}
            | {"races": 0, "out_of_bounds": 0}
        )
    if not counted:
        rows += [FULL_SIZE, *hardware()]
    return columns.frame(rows, "traffic" if counted else "counters", parameters())


def lines():
    """Rows of cache_lines.csv."""
    study = config()
    rows = []
    for point in expand(study, KERNELS, "loop_orders"):
        if point.dtype == "float":
            row = {"kernel": point.kernel, "element_bytes": 4, **point.shape, **dict(point.parameters)}
            counts = {"multiply_adds": 1000, "l1_lines": 63 if point.n < 300 else 1000, "l2_lines": 1}
            rows.append(row | counts)
    return columns.frame(rows, "cache_lines", parameters())


def variants(platform, backend="gpu"):
    """Rows of tune/<kernel>.csv for one kernel at two shapes: the third of four variants is best, the fourth failed."""
    rows = []
    for n in (4096, 8192):
        for tile_k, rate in ((4, 20_000.0), (8, 30_000.0), (16, 40_000.0), (32, None)):
            at = points.point("tune", "register_tile", "float", n, n, n, tile_n=128, tile_m=128, tile_k=tile_k)
            rate = rate if backend == "gpu" else None
            row = at.columns() | {"platform": platform, "shape_class": tuning.shape_class(at.shape), "message": ""}
            row |= {"status": "ok", "registers": 128, "spill_bytes": 64 if tile_k == 4 else 0, "shared_bytes": 4096}
            row |= {"registered": tile_k == 8, "chosen": rate == 40_000.0, "gflops": rate}
            row |= {"screen_ms": 2e-6 * n**3 / rate if rate else None, "samples": 3, "build_sha256": "0" * 64}
            if tile_k == 32:
                row |= {"status": "incorrect", "message": "C[0, 0] is 1, should be 0"}
            if rate == 40_000.0:
                row |= {"time_ms": 2e-6 * n**3 / rate, "noise": 0.001, "sm_clock_mhz": 1965.0}
            rows.append(row)
    return columns.frame(rows, "tune", parameters())


def accuracy(platform, backend, study):
    """Rows of the accuracy gate, in which one accumulator fails and half parts have their limits."""
    rows = []
    asked = backend == "gpu" and "accuracy_gate" in study["tasks"]
    for at in expand(study, KERNELS, "accuracy_gate") if asked else ():
        for kind in ("mixed", "along_k", "steep_along_k"):
            row = at.columns() | {"platform": platform, "operands": kind, "status": "ok", "message": ""}
            row |= {"claimed": KERNELS[at.kernel].claims_accuracy(kind, at.p)}
            row |= {"sgemm_relative_error": 2e-8 * at.p**0.5, "sgemm_worst_error": 3e-7}
            verdict, error = {"float_from_half": ("passes", 2e-7), "three_tf32": ("fails", 6e-9 * at.p)}.get(
                at.kernel, ("passes", 1.5e-7)
            )
            if at.kernel == "float_from_half" and kind != "mixed":
                verdict, error = ("fails", 2e-6) if kind == "along_k" else ("refuses", None)
            row |= {"relative_error": error, "worst_error": error, "verdict": verdict}
            rows.append(row)
    return rows


def grading(platform, backend, study):
    """Rows of four tests of the grading task, in which half parts refuse one, and few moduli wide doubles."""
    rows = []
    asked = backend == "gpu" and "grading" in study["tasks"]
    for at in expand(study, KERNELS, "grading", Target(backend), Reading(emulators_shapes=False)) if asked else ():
        for test, number, p in (
            ("curve", 16, 16),
            ("curve", 1024, 1024),
            ("spread", 0, 1024),
            ("log-normal 3", None, 2048),
            *(("wide", phi, 2048) for phi in (0, 4) if at.dtype == "double"),
        ):
            row = at.columns() | {"platform": platform, "p": p, "test": test, "number": number, "message": ""}
            row |= {
                "componentwise": 0.3 * p**0.5,
                "rowwise": 0.2 * p**0.5,
                "normwise": 0.1,
                "grade": "A",
                "status": "ok",
            }
            few = test == "wide" and number > dict(at.parameters).get("moduli", 18) - 14
            if few or (at.kernel == "float_from_half" and number is None):
                row |= {"grade": "none", "message": "156 of 1600 results are finite or not, and should not be"}
            row |= {"test_ms": round(2e-6 * at.n * p * at.m / _gflops(at), 4)}
            row |= {"claimed_grade": KERNELS[at.kernel].accuracy.get("grade", "")}
            rows.append(row)
    return rows


def energy(platform, backend, study):
    """Rows of the energy task, in which faster kernels take as many watts; none of a study without this task."""
    rows = []
    asked = "energy" in study["tasks"]
    for at in expand(study, KERNELS, "energy", Target(backend), Reading(emulators_shapes=False)) if asked else ():
        row = at.columns() | {"platform": platform, "status": "not_timed", "message": "emulated"}
        if backend == "gpu":
            gflops = _gflops(at)
            each = 2e-9 * at.n * at.p * at.m
            row |= {"counted_products": 100, "energy_s": 100 * each / gflops, "joules": 650 * 100 * each / gflops}
            row |= {"joules_per_product": 650 * each / gflops, "watts": 650.0, "gflops": gflops}
            row |= {"gflop_per_joule": gflops / 650, "status": "ok", "message": ""}
        rows.append(row)
    return rows


def sizes(platform, backend, study):
    """Rows of the task `sizes`, in turns: none on the emulator or of a study without this task."""
    asked = expand(study, KERNELS, "sizes", Target(backend)) if backend == "gpu" and "sizes" in study["tasks"] else ()
    return in_brief_turns([row(at, platform, backend) for at in asked])


def in_brief_turns(rows):
    """Rows with turns, and with their ratios to the library's default and best of the same product."""
    best, default = {}, {}
    for each in rows:
        product = tuple(each.get(name) for name in ("dtype", "batch", "n", "p", "m"))
        call = KERNELS[each["kernel"]].library_call
        if each["status"] == "ok" and call:
            best[product] = min(each["time_ms"], best.get(product, each["time_ms"]))
            default |= {product: each["time_ms"]} if call == "default" else {}
    for each in rows:
        product = tuple(each.get(name) for name in ("dtype", "batch", "n", "p", "m"))
        each["turns"] = 10
        for name, library in (("vs_default", default), ("vs_best", best)):
            if each["status"] == "ok" and product in library:
                ratio = library[product] / each["time_ms"]
                each |= {name: ratio, f"{name}_low": 0.99 * ratio, f"{name}_high": 1.01 * ratio}
    return rows


def batches(platform, backend, study):
    """Rows of the task `batches`, as those of `sizes`."""
    asked = backend == "gpu" and "batches" in study["tasks"]
    points = expand(study, KERNELS, "batches", Target(backend), Reading(batches=True)) if asked else ()
    return in_brief_turns([row(at, platform, backend) | {"batch": at.batch} for at in points])


#: Calls of tilewise.matmul: slower by the host's part, by the library, and by an own kernel; one went wrong.
CALLED = [
    {"kernel": kernel, "dtype": dtype, "n": n, "p": n, "m": n, "call_us": us, "cupy_us": cupy_us, "samples": 7}
    | {"bound_ratio": 0.01, "status": "ok" if us else "error", "message": "" if us else "the driver refuses it"}
    for kernel, dtype, n, us, cupy_us in (
        ("cublas", "float", 64, 40.0, 10.0),
        ("stream_k", "float", 4096, 2500.0, 2700.0),
        ("clusters", "bfloat16", 8192, 1560.0, 1600.0),
        ("dmma_pipelined", "double", 1024, None, None),
    )
]


def instructions(asked):
    """The loops of the products of some points: half of each are multiply-adds, on the tensor cores in `dmma` alone."""
    kinds = {name: 0 for name in columns.FILES["instructions"] if columns.COLUMNS[name].type == "whole"}
    rows = {}
    for point in asked:
        kernel = KERNELS[point.kernel]
        if kernel.kind == "cuda":
            opcode = "DMMA.16x8x4" if point.kernel == "dmma" else {"double": "DFMA", "int32": "IMAD"}.get(point.dtype)
            about = {"kernel": kernel.name, "dtype": point.dtype, "instance": kernel.plan(point).product.instance}
            about["architecture"] = kernel.target("9.0")
            loop = {"instructions": 100, "multiply_add_instructions": 50, "multiply_add_share": 0.5}
            loop |= {"multiply_add": opcode or "FFMA", "shared_loads_32": 30, "integer": 20, "reused_operands": 25}
            rows[tuple(about.values())] = (
                about | kinds | loop | {"registers": 64, "spill_bytes": 0, "build_sha256": "0"}
            )
    return columns.frame(rows.values(), "instructions")


def facts(platform, backend, study):
    """The facts of all methods except sweeps, and tables of the platform: what an H200 or the emulator might say."""
    timed = backend == "gpu"
    note = "" if timed else "emulated: verified, not measured"
    point = {"platform": platform, "dtype": "int32", "n": 2000, "p": 2000, "m": 2000, "status": "ok", "message": note}
    calls = []
    for order in ("naive, tiled", "tiled, naive"):
        for position, kernel in enumerate(order.split(", "), 1):
            ms = {"context": 180.0} if position == 1 else {}
            ms |= {"allocate": 0.3, "copy_in": 5.0, "load": 1.0, "kernel": 2.9 if kernel == "naive" else 2.1}
            ms |= {"copy_out": 6.0, "free": 0.4}
            place = point | {"order": order, "position": position, "kernel": kernel}
            steps = ms | {"total": sum(ms.values())}
            calls += [place | {"step": s, "ms": v, "repeat": r} for r in (1, 2, 3) for s, v in steps.items() if timed]
    launches = []
    for side in (16, 32, 33, 64):
        refused = side > 32
        launches.append(
            point
            | {"dtype": "float", "n": 64, "p": 64, "m": 64, "kernel": "naive", "block_x": side, "block_y": side}
            | {"threads": side**2, "shared_bytes": 0, "limit_raised": False, "c_untouched": refused}
            | {"outcome": "refused" if refused else "launched", "error_text": "invalid configuration argument"}
            | {"error": "cudaErrorInvalidConfiguration" if refused else ""}
            | {"driver_error": "CUDA_ERROR_INVALID_VALUE" if refused else ""}
        )
    roofs = [("memory_bandwidth", 4300.0, 4917.0, "GB/s"), ("multiply_add_rate", 61e3, 66908.0, "GFLOP/s")]
    roofs += [("ceiling_at_0.25_flop_per_byte", 1075.0, 1229.0, "GFLOP/s")]
    roofs = [dict(zip(("quantity", "measured", "datasheet", "unit"), roof)) for roof in roofs]
    common = {"dtype": "float", "samples": 20, "noise": 0.001, "status": "ok", "message": note, "platform": platform}
    roofs = [common | roof | ({} if timed else {"measured": None, "datasheet": None}) for roof in roofs]
    empty = {"platform": platform, "overhead_us": 4.25, "samples": 1000, "noise": 0.02, "status": "ok", "message": ""}
    held = {"platform": platform, "kernel": "tiled", "dtype": "float", "block_x": 16, "block_y": 16, "tile": 16}
    held |= {"threads": 256, "registers": 38, "shared_bytes": 2048, "active_blocks": 6, "occupancy": 0.75}
    held |= {"limiter": "registers", "api_active_blocks": 6}
    return {
        "maximum_size": columns.frame([maximum_size(platform, backend)], "maximum_size"),
        "cold_start": columns.frame(calls, "cold_start"),
        "accuracy": columns.frame(accuracy(platform, backend, study), "accuracy", parameters()),
        "energy": columns.frame(energy(platform, backend, study), "energy", parameters()),
        "grading": columns.frame(grading(platform, backend, study), "grading", parameters()),
        "launch_limits": columns.frame(launches, "launch_limits"),
        "bandwidth": columns.frame(roofs, "bandwidth"),
        "sizes": columns.frame(sizes(platform, backend, study), "sizes", parameters()),
        "batches": columns.frame(batches(platform, backend, study), "batches", parameters()),
        "overhead": columns.frame([empty] if timed else [], "overhead"),
        "calls": columns.frame([called | {"platform": platform} for called in CALLED if timed], "calls"),
        "occupancy": columns.frame([held] if timed else [], "occupancy", parameters()),
        "tile_choice": columns.frame([], "tile_choice"),
    }


def _as_it_ran(values, point, machine):
    """The row of a point, or that of its failure if the machine refuses it, cannot run it or takes too long."""
    kernel, chosen, backend = KERNELS[point.kernel], dict(point.parameters), machine["backend"]
    if backend == "emulator":
        if point.kernel == "kij" and math.prod([point.n, point.p, point.m]) > 2**30:
            return failed(values, "timeout", "one run would take longer than 5 s (cpu.budget_s.emulator)")
        return values
    gpu = Device(machine["platform"], backend, gpu=machine["gpu"])
    if kernel.kind == "cuda" and unsupported(kernel, gpu):
        return failed(values, "unsupported", unsupported(kernel, gpu))
    if (point.kernel, point.dtype, chosen.get("tile"), chosen.get("ntb")) == ("multi_tile", "double", 32, 16):
        refused = "CUDA_ERROR_INVALID_VALUE: 139264 B of shared memory, 232448 allowed"
        return failed(values, "invalid_launch", refused)
    return values


#: The folders of `_written`, which go with the process.
_KEPT = []


def write(folder, backend="gpu", study=None, with_traffic=False, **gpu):
    """Write a complete platform into `folder`, whose name it gets; on a GPU one point is refused, one not verified.

    `gpu` are facts of another GPU than an H200: what it cannot run is unsupported. Tests want the same ones again and
    again, which take a second each: a process makes each once.
    """
    written = _written if KERNELS is STUDY else _written.__wrapped__
    made = written(folder.name, backend, json.dumps(study or config()), with_traffic, json.dumps(gpu))
    return shutil.copytree(made, folder, dirs_exist_ok=True)


@functools.cache
def _written(platform, backend, study, with_traffic, gpu):
    """The folder of such a platform; the arguments of `write`, its dicts as JSON."""
    _KEPT.append(tempfile.TemporaryDirectory())
    folder, study, gpu = Path(_KEPT[-1].name, platform), json.loads(study), json.loads(gpu)
    machine = device(platform, backend, **gpu)
    rows, everything = [], []
    target = Target(backend, gpu_of_choices(platform, KERNELS, gpu.get("compute_capability", "")))
    (folder / "facts").mkdir(parents=True)
    for task, entry in study["tasks"].items():
        if entry.get("method") in (
            "bandwidth",
            "overhead",
            "launch_limits",
            "tune",
            "accuracy",
            "energy",
            "grading",
            "sizes",
            "calls",
            "batches",
        ):
            continue
        expanded = expand(study, KERNELS, task, target, Reading(shapes=entry.get("method") != "maximum_size"))
        everything += expanded
        if "method" not in entry:
            took = {"platform": platform, "task": task, "wall_s": 12.5, "timed_s": 10.25, "remembered": 0}
            took = columns.frame([took | {"points": len(expanded)}], "sweep")
            took.to_csv(folder / "facts" / f"{task}.csv", index=False)
        n = maximum_size(platform, backend)["timed_n"]
        other = {"n": n, "p": n, "m": n} if entry.get("method") == "maximum_size" else {}
        rows += [_as_it_ran(row(point, platform, backend) | other, point, machine) for point in expanded]
    measurements = columns.frame(rows, "measurements", parameters())
    (folder / "tasks").mkdir()
    for task, part in measurements.groupby("task"):
        part.to_csv(folder / "tasks" / f"{task}.csv", index=False)
    measurements.to_csv(folder / "measurements.csv", index=False)
    (folder / "tune").mkdir()
    variants(platform, backend).to_csv(folder / "tune" / "register_tile.csv", index=False)
    known = facts(platform, backend, study)
    for task, entry in study["tasks"].items():
        if entry.get("method") in known:
            known[entry["method"]].to_csv(folder / "facts" / f"{task}.csv", index=False)
    for name in ("accuracy", "occupancy", "tile_choice"):
        known[name].to_csv(folder / f"{name}.csv", index=False)
    (folder / "device.json").write_text(json.dumps(machine, indent=1))
    (folder / "config.json").write_text(json.dumps(study))
    if with_traffic:
        if backend == "gpu":
            instructions(everything).to_csv(folder / "instructions.csv", index=False)
        traffic().to_csv(folder / "traffic.csv", index=False)
        lines().to_csv(folder / "cache_lines.csv", index=False)
        traffic(counted=False).to_csv(folder / "counters.csv", index=False)
    return folder
