"""The experiments of sources b to e: their kernels are right, and what they say of a device follows from its data."""

import dataclasses
import shutil

import numpy as np
import pandas as pd
import pytest
from builders import KERNELS, built, product, work_of

from kernelscope.compile import build as build_emulated
from kernelscope.emulator import Emulator
from tilewise import UserError
from tilewise.measure import occupancy
from tilewise.measure.backends import host
from tilewise.measure.job import prepare
from tilewise.measure.methods import METHODS, bandwidth, cold_start
from tilewise.nvidia import nvrtc, sass
from tilewise.rules import Study
from tilewise.study import columns, registry, verify
from tilewise.study.device import Device
from tilewise.study.occupancy import occupancy as blocks_held
from tilewise.study.points import point
from tilewise.study.precision import PRECISIONS
from tilewise.study.sweeps import Target, expand

DTYPES = ("float", "double", "int32")
ARCHITECTURES = ["7.5", "8.0", "9.0", "12.0"]
SHAPES = [(1, 1, 1), (33, 35, 70), (64, 64, 64), (32, 64, 96), (1, 37, 65)]
BLOCKS = [{"block_x": x, "block_y": y} for x, y in ((16, 16), (8, 128), (7, 3))]
TILES = [{"tile": tile} for tile in (8, 16, 32)]
CHOICES = {
    "naive_transposed": BLOCKS,
    "tiled_transposed": TILES,
    "tiled_exact": TILES,
    "dynamic_tile": [*TILES, {"tile": 5}],
    "matrix_struct": TILES,
}
#: A second kernel of the file, for sub-matrices; the third template argument is the border around them.
INSIDE = dataclasses.replace(
    KERNELS["matrix_struct"],
    name="matrix_struct_inside",
    parameters=("tile", "border"),
    launches=tuple(
        dataclasses.replace(launch, function="matrix_struct_inside", template=("dtype", "tile", "border"))
        for launch in KERNELS["matrix_struct"].launches
    ),
)
LOOPS = ["ijk", "ikj", "jik", "jki", "kij", "kji", "blocked"]
EXPERIMENTS = (
    "integers coalescing cold_start launch_limits loop_orders rectangular dynamic_tile matrix_struct bandwidth"
).split()
#: The limits as in device.json, for compute capability 9.0, 8.0, 8.6 and 7.5.
LIMITS = {
    capability: {
        "warp_size": 32,
        "max_threads_per_block": 1024,
        "registers_per_sm": 65536,
        "threads_per_sm": threads,
        "blocks_per_sm": blocks,
        "shared_bytes_per_sm": 1024 * shared,
        "shared_bytes_per_block_optin": 1024 * (shared - (1 if reserved else 0)),
        "reserved_shared_bytes_per_block": reserved,
    }
    for capability, threads, blocks, shared, reserved in (
        ("9.0", 2048, 32, 228, 1024),
        ("8.0", 2048, 32, 164, 1024),
        ("8.6", 1536, 16, 100, 1024),
        ("7.5", 1024, 16, 64, 0),
    )
}
H200 = Device(
    "h200",
    "gpu",
    gpu={
        "sms": 132,
        "compute_capability": "9.0",
        "memory_bandwidth_gb_s": 4800.0,
        "peak_gflops": {"float": 66908.2, "double": 33454.1, "int32": 33454.1},
    },
    limits=LIMITS["9.0"],
    host_compiler="g++",
)


def poisoned(A, B, dtype):
    C = np.empty((A.shape[0], B.shape[1]), A.dtype)
    verify.poison(C, dtype)
    return C


def asked(config, kernels, task, backend="gpu"):
    """The points of a task, as its method asks for them; none of one that runs only if it is named."""
    its = METHODS[config["tasks"][task].get("method", "sweep")]
    if its.on_request:
        return []
    return expand(config, kernels, task, Target(backend), its.reading)


# ---- Kernels ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def emulators(tmp_path_factory):
    """One library per kernel with all instances of CHOICES."""
    folder = tmp_path_factory.mktemp("emulators")

    def instances(name):
        kernel = KERNELS[name]
        points = [point("", name, d, 32, 32, 32, **choice) for d in DTYPES for choice in CHOICES[name]]
        return {instance for at in points for instance in kernel.plan(at).instances}

    return {
        name: Emulator(build_emulated(KERNELS[name], sorted(instances(name)), folder / f"{name}.so"))
        for name in CHOICES
    }


@pytest.mark.parametrize("order", [{}, {"reverse": True}, {"seed": 7}], ids=["forward", "reverse", "random"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CHOICES)
def test_every_new_kernel_multiplies(emulators, name, dtype, order):
    kernel, checked = KERNELS[name], 0
    for choice in CHOICES[name]:
        for shape in SHAPES:
            at = point("", name, dtype, *shape, **choice)
            if kernel.unmet(at):
                continue
            A, B = verify.operands(np, dtype, *shape, seed=524)
            C = poisoned(A, B, dtype)
            product(kernel, at, emulators[name], A, B, C, **order)
            found = verify.check(C, *verify.reference(A, B, dtype), dtype, at.p)
            assert found.ok, f"{at.label()}: {found.message}"
            checked += 1
    assert checked >= 6


def test_exact_tiles_are_refused_ragged_edges():
    for shape in ((33, 32, 32), (32, 33, 32), (32, 32, 33)):
        assert KERNELS["tiled_exact"].unmet(point("", "tiled_exact", "float", *shape, tile=32))
    assert not KERNELS["tiled_exact"].unmet(point("", "tiled_exact", "float", 32, 64, 96, tile=32))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(24, 30, 41), (7, 64, 7)])
def test_sub_matrices_of_larger_arrays(tmp_path, dtype, shape):
    border = 3
    kernel = INSIDE
    at = point("", kernel.name, dtype, *shape, tile=8, border=border)
    emulator = Emulator(build_emulated(kernel, kernel.plan(at).instances, tmp_path / "inside.so"))
    A, B = verify.operands(np, dtype, *shape, seed=524)
    C = poisoned(A, B, dtype)
    product(kernel, at, emulator, A, B, C)
    inside = (slice(border, -border),) * 2
    part_a, part_b = np.ascontiguousarray(A[inside]), np.ascontiguousarray(B[inside])
    found = verify.check(C[inside], *verify.reference(part_a, part_b, dtype), dtype, part_a.shape[1])
    assert found.ok, found.message
    C[inside] = poisoned(part_a, part_b, dtype)
    assert verify.is_untouched(C, dtype), "the border of C was written"


@pytest.mark.slow
@pytest.mark.parametrize("capability", ARCHITECTURES)
def test_what_is_not_in_the_registry_compiles_too(capability):
    kernels = registry.load(bandwidth.PROBES)
    found = [(INSIDE, f"{INSIDE.name}<float, 16, 3>")]
    for case, dtype in bandwidth.CASES:
        kernel = kernels[case.kernel]
        at = point("", kernel.name, dtype, 64, 64, 64, **case.parameters)
        if not kernel.cannot_run(capability):
            found.append((kernel, kernel.plan(at).instances[0]))
    for kernel, instance in found:
        cubin, entry = nvrtc.compile_cubin(kernel, instance, capability)
        assert cubin and not entry["spill_bytes"]


#: What the loop of each probe is made of: the instruction that it is about, and how many of them a turn has. A compiler
#: that saw that some are repeated would leave them out, and the rate would be too good.
TURNS = {
    "add": None,  # it has no loop
    "multiply_add": {"float": ("FFMA", 128), "double": ("DFMA", 128), "int32": ("IMAD", 128)},
    "multiply_add_pairs": {"half": ("HFMA2", 256), "bfloat16": ("HFMA2.BF16_V2", 256)},
    "shared_loads": {4: ("LDS", 16), 8: ("LDS.64", 16), 16: ("LDS.128", 16)},
    "cached_loads": {1: ("LDG.E.128.STRONG.SM", 16), 2: ("LDG.E.128.STRONG.GPU", 16)},
    "tensor_products": {
        "half": ("HGMMA.64x256x16.F32", 16),
        "bfloat16": ("HGMMA.64x256x16.F32.BF16", 16),
        "tf32": ("HGMMA.64x256x8.F32.TF32", 16),
    },
    "int8_products": {"int8": ("IGMMA.64x256x32.S8.S8", 16)},
    "double_products": {"double": ("DMMA.16x8x16", 32)},
}


TAKES_ITS_PLACE = ("LD", "ST", "BAR", "FFMA", "HFMA2", "HADD2", "HMUL2", "HGMMA", "IGMMA")


@pytest.mark.slow
@pytest.mark.parametrize(("probe", "dtype"), bandwidth.CASES, ids=lambda each: getattr(each, "quantity", each))
def test_no_compiler_leaves_out_what_a_probe_measures(probe, dtype, tmp_path):
    kernel = registry.load(bandwidth.PROBES)[probe.kernel]
    if TURNS[kernel.name] is None:
        return
    [instance] = kernel.plan(point("", kernel.name, dtype, 64, 64, 64, **probe.parameters)).instances
    cubin, _ = nvrtc.compile_cubin(kernel, instance, "9.0")
    (tmp_path / "probe.cubin").write_bytes(cubin)
    graphs = sass.functions(sass.disassemble(tmp_path / "probe.cubin"))
    [graph] = [graph for name, graph in graphs.items() if kernel.name in name]
    chosen = probe.parameters.get("width", probe.parameters.get("level", dtype))
    opcode, count = TURNS[kernel.name][chosen]
    turns = [[graph.nodes[node]["line"].opcode for node in loop] for loop in sass.loops(graph)]
    longest = max(turns, key=len)
    assert longest.count(opcode) == count
    others = [name for name in longest if name != opcode and name.startswith(TAKES_ITS_PLACE)]
    assert not others, "the loop does nothing else that takes the place of what is measured"


@pytest.mark.parametrize(("probe", "dtype"), bandwidth.CASES, ids=lambda each: getattr(each, "quantity", each))
def test_every_probe_is_right_on_the_emulator(probe, dtype, device, config, kernels, tmp_path):
    work = work_of([], kernels, device, config, tmp_path)
    row = bandwidth._row(probe, dtype, registry.load(bandwidth.PROBES)[probe.kernel], work, tmp_path)
    assert (row["status"], row["message"]) == ("ok", "emulated: verified, not measured")
    gpu = H200.gpu | {"sm_clock_mhz": 1980, "peak_gflops": {dtype: 1.0}}
    ceiling = probe.ceiling(gpu, dtype)
    assert ceiling is None or ceiling > 0
    at = point("", probe.kernel, dtype, *(probe.shape or (64, 64, 64)), **probe.parameters)
    assert probe.work(at) > 10**4


@pytest.mark.parametrize("dtype", ["half", "bfloat16"])
@pytest.mark.parametrize(("steps", "wanted"), [(16, 312), (32, 56), (2080, 56), (2096, 312)])
def test_pairs_that_climb_and_fall_are_exact_after_any_number_of_steps(dtype, steps, wanted, tmp_path):
    """bfloat16 has 8 bits: chains that only climbed would stand still at 256."""
    probe = bandwidth.PAIRS
    kernel = registry.load(bandwidth.PROBES)[probe.kernel]
    at = point("", kernel.name, dtype, 1, steps, 9, **probe.parameters)
    assert probe.expected(None, None, at) == wanted
    library = Emulator(build_emulated(kernel, kernel.plan(at).instances, tmp_path / "pairs.so"))
    one, C = PRECISIONS[dtype].narrow(np, np.ones(1, np.float32)), np.zeros((1, 9), PRECISIONS[dtype].stored)
    product(kernel, at, library, one, one, C)
    assert (PRECISIONS[dtype].wide(np, C) == wanted).all()


def test_the_roofs_of_shared_memory_and_of_the_caches_are_those_of_the_chip():
    gpu = {"sms": 132, "sm_clock_mhz": 1980}
    of = {probe.quantity: (probe, probe.ceiling(gpu, "float")) for probe in (*bandwidth.SHARED, bandwidth.CACHES[0])}
    assert of["shared_wavefronts_16_bytes"][1] == pytest.approx(261.36), "10⁹ wavefronts"
    assert of["l1_bandwidth"][1] == pytest.approx(33_454.08), "GB/s"
    at = point("", "shared_loads", "float", 1, 1, 32, width=16)
    assert of["shared_wavefronts_16_bytes"][0].work(at) == 4 * 4, "four loads of a warp, of four wavefronts each"
    at = point("", "shared_loads", "float", 1, 1, 32, width=4)
    assert of["shared_wavefronts_4_bytes"][0].work(at) == 4


def test_a_probe_that_the_gpu_does_not_run_is_a_row(device, config, kernels, tmp_path):
    ampere = dataclasses.replace(
        device, backend="gpu", gpu=H200.gpu | {"compute_capability": "8.0", "sm_clock_mhz": 1410}
    )
    work = work_of([], kernels, ampere, config, tmp_path)
    kernel = registry.load(bandwidth.PROBES)["tensor_products"]
    row = bandwidth._row(bandwidth.TENSOR, "half", kernel, work, tmp_path)
    assert (row["status"], "measured" in row) == ("unsupported", False) and "lacks wgmma" in row["message"]


@pytest.fixture(scope="module")
def loops(tmp_path_factory, device, config):
    """The CPU loops as (kernel, dtype) -> function of A, B, C."""
    folder, found = tmp_path_factory.mktemp("loops"), {}
    for name in LOOPS:
        kernel = KERNELS[name]
        choice = {"tile": 16} if kernel.parameters else {}
        points = {dtype: point("", name, dtype, 1, 1, 1, **choice) for dtype in DTYPES}
        builds = built(list(points.values()), KERNELS, device, folder)
        for dtype, at in points.items():
            found[name, dtype] = host._function(prepare(at, kernel, builds, device, config))
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LOOPS)
def test_every_order_of_the_cpu_loop_multiplies(loops, name, dtype):
    for shape in (*SHAPES, (31, 17, 49)):
        A, B = verify.operands(np, dtype, *shape, seed=524)
        C = poisoned(A, B, dtype)
        loops[name, dtype](A, B, C)
        found = verify.check(C, *verify.reference(A, B, dtype), dtype, shape[1])
        assert found.ok, f"{name} {shape}: {found.message}"


# ---- The config ------------------------------------------------------------------------------------------------------


def test_every_experiment_is_a_task_in_the_order_of_the_issue(config):
    assert [task for task in config["tasks"] if task in EXPERIMENTS] == EXPERIMENTS


def test_ragged_edges_and_multiples_take_the_same_number_of_tiles(config):
    [ragged], [whole] = config["shapes"]["all_edges_ragged"], config["shapes"]["multiples_of_32"]
    for tile in (16, 32):
        for size in "npm":
            assert ragged[size] % tile and whole[size] % tile == 0
            assert -(-ragged[size] // tile) == whole[size] // tile


def test_kernels_with_conditions_run_on_the_emulator_where_they_can(config, kernels):
    points = [p for p in expand(config, kernels, "rectangular", Target("emulator")) if p.kernel == "tiled_exact"]
    assert {(p.n, p.p, p.m) for p in points} == {(64, 64, 64), (32, 64, 96)}


# ---- Occupancy -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "capability, threads, registers, shared, blocks, limiter",
    [  # as in NVIDIA's occupancy calculator
        ("9.0", 1024, 32, 8192, 2, "threads"),
        ("9.0", 1024, 33, 0, 1, "registers"),  # a thread gets 40 registers: 51 warps, 48 in fours
        ("9.0", 1024, 65, 0, 0, "registers"),
        ("9.0", 256, 255, 0, 1, "registers"),
        ("9.0", 256, 32, 49152, 4, "shared memory"),  # 48 KiB and 1 KiB for the system
        ("9.0", 256, 32, 232448, 1, "shared memory"),
        ("9.0", 256, 32, 232449, 0, "shared memory"),
        ("9.0", 32, 16, 0, 32, "blocks"),
        ("9.0", 1025, 16, 0, 0, "threads"),
        ("8.0", 256, 32, 49152, 3, "shared memory"),
        ("8.0", 128, 32, 0, 16, "threads"),
        ("8.6", 1024, 32, 0, 1, "threads"),
        ("8.6", 256, 40, 0, 6, "threads"),
        ("7.5", 256, 32, 0, 4, "threads"),
        ("7.5", 256, 64, 16384, 4, "threads"),
        ("7.5", 64, 32, 8193, 7, "shared memory"),  # a block gets it in units of 256 B
    ],
)
def test_occupancy(capability, threads, registers, shared, blocks, limiter):
    limits = LIMITS[capability]
    found = blocks_held(threads, registers, shared, limits, capability)
    assert (found.active_blocks, found.limiter) == (blocks, limiter)
    warps = -(-threads // 32) * blocks
    assert found.occupancy == warps * 32 / limits["threads_per_sm"]


def test_occupancy_table_and_the_tile_it_favours():
    kernel = KERNELS["dynamic_tile"]
    entry = {"registers": 32, "shared_bytes": 0}
    builds = {kernel.name: {"instances": {f"dynamic_tile<{cpp}>": entry for cpp in ("float", "double", "int")}}}
    points = [point("a", kernel.name, "float", n, n, n, tile=tile) for n in (64, 128) for tile in (16, 24)]
    rows = occupancy.table(points, KERNELS, builds, H200, ask=lambda *_: 3)
    table = columns.frame(rows, "occupancy", ["tile"])
    assert list(table.tile) == [16, 24]  # launches that differ only in the matrices are one row
    assert list(table.active_blocks) == [8, 3]
    assert list(table.shared_bytes) == [2 * 16 * 16 * 4, 2 * 24 * 24 * 4]
    assert list(table.api_active_blocks) == [3, 3]
    choice = columns.frame(occupancy.tile_choice(kernel, builds, H200), "tile_choice")
    assert list(choice[choice.chosen].tile) == [32, 32, 32]
    entries = builds[kernel.name]["instances"].items()
    more = {kernel.name: {"instances": {name: entry | {"registers": 40} for name, entry in entries}}}
    choice = columns.frame(occupancy.tile_choice(kernel, more, H200), "tile_choice")
    best = choice[choice.chosen].iloc[0]
    assert best.occupancy == choice[choice["dtype"] == "float"].occupancy.max()
    assert best.tile < 32  # two blocks of 1024 threads no longer fit


def test_no_registers_no_occupancy():
    points = [point("a", "tiled", "float", 64, 64, 64, tile=16)]
    emulated = {"tiled": {"instances": {"tiled<float, 16>": {"sha256": "", "symbol": ""}}}}
    assert not occupancy.table(points, KERNELS, emulated, H200)
    assert not occupancy.tile_choice(KERNELS["dynamic_tile"], {}, H200)


# ---- Launch limits, cold start, bandwidth ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def emulated(tmp_path_factory, config, device, kernels):
    """Builds for the emulator of what launch_limits and cold_start run, and the points of both."""
    points = {task: asked(config, kernels, task, "emulator") for task in ("launch_limits", "cold_start")}
    folder = tmp_path_factory.mktemp("builds")
    return points, built([p for some in points.values() for p in some], kernels, device, folder)


def test_launch_limits_on_the_emulator(emulated, device, config, kernels, tmp_path):
    points, builds = emulated
    work = work_of(points["launch_limits"], kernels, device, config, tmp_path, builds)
    rows, facts = METHODS["launch_limits"].run(work)
    assert list(rows.columns) == columns.column_names("measurements", registry.parameters(kernels))
    assert list(facts.columns) == columns.column_names("launch_limits", [])
    blocks = facts[facts.kernel == "naive"].set_index("block_x")
    assert list(blocks.index) == [16, 32, 33, 64]
    assert list(blocks.outcome) == ["launched", "launched", "refused", "refused"]
    assert set(blocks.error[2:]) == {"cudaErrorInvalidValue"}
    shared = facts[facts.kernel == "dynamic_tile"]
    assert list(shared.shared_bytes) == [49152, 49153, 232448, 232449]
    assert list(shared.outcome) == ["launched", "refused", "launched", "refused"]
    assert (facts.c_untouched == (facts.outcome == "refused")).all()
    assert list(rows.status) == ["ok" if outcome == "launched" else "invalid_launch" for outcome in facts.outcome]
    assert rows.time_ms.isna().all()


def test_a_block_that_no_device_takes_is_a_mistake_anywhere_else(config, kernels):
    task = config["tasks"]["launch_limits"]
    with pytest.raises(UserError, match="33 x 33 = 1089 threads"):
        Study(config | {"tasks": {"mine": task | {"method": "sweep"}}})


def test_cold_start_on_the_emulator_invents_no_times(emulated, device, config, kernels, tmp_path):
    points, builds = emulated
    jobs = work_of(points["cold_start"], kernels, device, config, tmp_path, builds).jobs()
    facts = columns.frame(cold_start.calls(jobs, device, config["seed"]), "cold_start")
    assert set(facts.order) == {"naive, tiled", "tiled, naive"}
    assert facts.ms.isna().all() and set(facts.message) == {"emulated: not timed"}


def test_cold_start_says_why_a_process_failed(emulated, config, device, kernels, monkeypatch, tmp_path):
    """Without a GPU the fresh process ends with an error, as it would with a broken driver."""
    points, builds = emulated
    monkeypatch.setattr(cold_start, "REPEATS", 1)
    some = [p for p in points["cold_start"] if p.n == 64]
    jobs = work_of(some, kernels, device, config, tmp_path, builds).jobs()
    on_gpu = dataclasses.replace(device, backend="gpu")
    facts = columns.frame(cold_start.calls(jobs, on_gpu, config["seed"]), "cold_start")
    if not (facts.status == "ok").all():
        assert len(facts) == 4 and set(facts.status) == {"error"}
        assert facts.message.str.len().min() > 5 and facts.ms.isna().all()


def test_laps():
    ms = cold_start.laps(iter("ab"))
    assert list(ms) == ["a", "b", "total"]
    assert ms["total"] == pytest.approx(ms["a"] + ms["b"])


def test_bandwidth_on_the_emulator_checks_and_measures_nothing(tmp_path, device, config, kernels):
    _, facts = METHODS["bandwidth"].run(work_of([], kernels, device, config, tmp_path))
    assert list(facts.columns) == columns.column_names("bandwidth", [])
    assert list(facts.quantity[:4]) == ["memory_bandwidth"] + 3 * ["multiply_add_rate"]
    assert facts[["measured", "datasheet", "noise"]].isna().all(axis=None) and set(facts.status) == {"ok"}


@pytest.mark.parametrize(
    ("file", "right", "wrong", "lost", "status", "message"),
    [
        ("add.cu", "+ B[row + col]", "- B[row + col]", ["memory_bandwidth", "ceiling"], "incorrect", "result is wrong"),
        ("multiply_add.cu", "x[c] * a + b", "x[c] * a", ["multiply_add_rate"], "incorrect", "result is wrong"),
        ("multiply_add.cu", "T sum = 0;", "T sum = no;", ["multiply_add_rate"], "compile_error", "no"),
    ],
)
def test_a_probe_that_goes_wrong_costs_its_own_row(
    file, right, wrong, lost, status, message, tmp_path, device, config, kernels, monkeypatch
):
    broken = shutil.copytree(bandwidth.PROBES, tmp_path / "bandwidth")
    text = (broken / file).read_text()
    assert right in text
    (broken / file).write_text(text.replace(right, wrong))
    monkeypatch.setattr(bandwidth, "PROBES", broken)
    _, facts = METHODS["bandwidth"].run(work_of([], kernels, device, config, tmp_path))
    its = facts.quantity.str.startswith(tuple(lost))
    assert its.any() and not its.all()
    assert set(facts[its].status) == {status} and facts[its].message.str.contains(message).all()
    assert set(facts[~its].status) == {"ok"} and facts[its].measured.isna().all()


def test_a_probe_that_raises_costs_its_own_row(tmp_path, device, config, kernels, monkeypatch):
    """As on a GPU that has no memory left, or whose driver complains."""
    probed = bandwidth._emulated

    def failing(probe, dtype, *others):
        if dtype == "double":
            raise MemoryError("no such amount")
        return probed(probe, dtype, *others)

    monkeypatch.setattr(bandwidth, "_emulated", failing)
    _, facts = METHODS["bandwidth"].run(work_of([], kernels, device, config, tmp_path))
    lost = facts.dtype == "double"
    assert facts[lost].status.tolist() == ["error"] and facts[lost].message.tolist() == ["MemoryError: no such amount"]
    assert set(facts[~lost].status) == {"ok"}


def test_ceilings_of_the_roofline():
    memory = {"quantity": "memory_bandwidth", "measured": 4000.0, "datasheet": 4800.0, "unit": "GB/s"}
    low, high = bandwidth.ceilings(memory)
    assert (low["quantity"], low["measured"], low["datasheet"]) == ("ceiling_at_0.25_flop_per_byte", 1000, 1200)
    assert (high["quantity"], high["measured"], high["unit"]) == ("ceiling_at_4_flop_per_byte", 16000, "GFLOP/s")
    assert bandwidth.ARITHMETIC.ceiling(H200.gpu, "double") == 33454.1


# ---- On a GPU --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built_kernels(gpu, config, kernels, built_for_gpu):
    """Builds of all CUDA kernels for this machine's GPU, and their points."""
    points = [
        at for task in config["tasks"] for at in asked(config, kernels, task) if kernels[at.kernel].kind == "cuda"
    ]
    return built_for_gpu(points, kernels, gpu), points


@pytest.mark.gpu
def test_occupancy_is_what_cuda_says(gpu, built_kernels, kernels):
    builds, points = built_kernels
    runs = [p for p in points if kernels[p.kernel].plan(p).product.threads <= 1024]
    from tilewise.nvidia.launcher import active_blocks

    rows = occupancy.table(runs, kernels, builds, gpu, active_blocks)
    table = columns.frame(rows, "occupancy", registry.parameters(kernels))
    assert len(table) > 50
    different = table[table.active_blocks != table.api_active_blocks]
    assert different.empty, different.to_string()


@pytest.mark.gpu
def test_launch_limits_on_a_gpu(gpu, built_kernels, config, kernels, tmp_path):
    work = work_of(asked(config, kernels, "launch_limits"), kernels, gpu, config, tmp_path, built_kernels[0])
    rows, facts = METHODS["launch_limits"].run(work)
    assert list(facts.outcome) == ["launched", "launched", "refused", "refused"] + 2 * ["launched", "refused"]
    # The first is CUDA's name before 13, the second its name since 13 (seen on an H200: cudaLaunchKernel and nvcc).
    assert set(facts.error[facts.block_x > 32]) <= {"cudaErrorInvalidConfiguration", "cudaErrorInvalidValue"}
    assert (facts.c_untouched == (facts.outcome == "refused")).all()
    assert set(rows.status) == {"ok", "invalid_launch"} and rows.gpu_uuid.str.startswith("GPU-").all()


@pytest.mark.gpu(alone=True)
def test_cold_start_on_a_gpu(gpu, built_kernels, config, kernels, monkeypatch, tmp_path):
    monkeypatch.setattr(cold_start, "REPEATS", 1)
    jobs = work_of(asked(config, kernels, "cold_start"), kernels, gpu, config, tmp_path, built_kernels[0]).jobs()
    facts = columns.frame(cold_start.calls(jobs, gpu, config["seed"]), "cold_start")
    assert set(facts.status) == {"ok"}, facts.message
    assert len(facts) == 2 * (len(cold_start.STEPS) + len(cold_start.STEPS) - 1)  # the context is created once
    assert (facts.ms > 0).all()


@pytest.mark.gpu(alone=True)
def test_bandwidth_on_a_gpu(gpu, config, kernels, tmp_path):
    _, facts = METHODS["bandwidth"].run(work_of([], kernels, gpu, config, tmp_path))
    known = facts.dropna(subset="datasheet")
    assert (known.measured > 0.3 * known.datasheet).all() and (known.measured < 1.1 * known.datasheet).all()
    assert pd.Series(facts.noise).max() < 0.2
