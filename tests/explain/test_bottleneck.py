"""What limits a kernel: kernels whose bottleneck is known, because they are made so."""

import dataclasses
import math

import pandas as pd
import pytest
import synthetic

from tilewise import RECORDED
from tilewise.evidence import load_evidence, load_platform
from tilewise.explain import climb, counts
from tilewise.explain.bottleneck import LATENCY, allowed, limits, roofs
from tilewise.study import points, registry
from tilewise.study.precision import bytes_of_product

#: A chip with round numbers: 100 multiprocessors at 1000 MHz make 100 wavefronts, 400 instructions, all 10^9 a second.
MEASURED = {
    ("multiply_add_rate", "float"): 25_000,
    ("tensor_rate", "half"): 400_000,
    ("shared_wavefronts_16_bytes", "float"): 90,
    ("l1_bandwidth", "float"): 10_000,
    ("memory_bandwidth", "float"): 4_000,
}
CHIP = roofs(100, MEASURED, "float")
#: A multiply-add of a warp per nanosecond is 64 GFLOP/s. What uses next to nothing of anything:
FRUGAL = {"multiply-adds": 1, "instructions": 1, **dict.fromkeys(("requests", "passes of shared memory"), 0)}
FRUGAL |= dict.fromkeys(("look-ups in L1", "L1", "memory"), 0)


def limit(gflops, needs, chip=CHIP):
    """The resource that limits a run, and the run's share of the rate that it allows."""
    _, name, percent, _, _ = limits(gflops, allowed(needs, chip))
    return name, percent / 100


@pytest.mark.parametrize(
    ("gflops", "asks", "name", "share"),
    [
        (64 * 80, {"passes of shared memory": 1}, "passes of shared memory", 80 / 90),
        (64 * 80, {"look-ups in L1": 1.1}, "look-ups in L1", 88 / 100),
        (64 * 60, {"L1": 32 * 5}, "L1", 32 * 60 * 5 / 10_000),
        (64 * 50, {"memory": 64}, "memory", 50 * 64 / 4_000),
        (64 * 50, {"instructions": 1 / 0.2}, "instructions", 50 / 0.2 / 400),
        (24_000, {"instructions": 1 / 0.95}, "instructions", 24_000 / 64 / 0.95 / 400),
        (24_000, {}, "multiply-adds", 24_000 / 25_000),
        (3_000, {"passes of shared memory": 0.9}, LATENCY, math.nan),
    ],
)
def test_the_bottleneck_of_a_kernel_that_has_one(gflops, asks, name, share):
    assert limit(gflops, FRUGAL | asks) == (name, pytest.approx(share, nan_ok=True))


def test_the_bound_is_the_rate_of_the_first_limit_and_known_without_one():
    rates = allowed(FRUGAL | {"passes of shared memory": 1, "requests": 0.8}, CHIP)
    bound, name, percent, second, other = limits(4_800, rates)
    assert (bound, name, second) == (64 * 90, "passes of shared memory", "requests")
    assert (percent, other) == (pytest.approx(100 * 4_800 / bound), pytest.approx(100 * 4_800 / (64 * 100 / 0.8)))
    assert limits(2_000, rates) == (
        bound,
        LATENCY,
        pytest.approx(math.nan, nan_ok=True),
        name,
        pytest.approx(200_000 / bound),
    )


def test_a_kernel_on_the_tensor_cores():
    asks = {"tensor cores": 1, "passes of shared memory": 0}
    assert limit(350_000, asks, roofs(100, MEASURED, "half")) == ("tensor cores", pytest.approx(0.875))
    unknown = limits(350_000, allowed(asks | {"memory": 1}, roofs(100, MEASURED, "bfloat16")))
    assert unknown[1] == "memory" and math.isnan(unknown[0]), "the roof of its type was not measured"
    assert limit(350_000, asks, roofs(100, MEASURED, "bfloat16"))[0] == ""


def test_no_kernel_of_the_recorded_run_uses_more_than_there_is_and_the_tensor_cores_limit_with_their_clock():
    [folder] = [each for each in RECORDED.iterdir() if each.name == "nvidia-h200"]
    platform = load_platform(folder, recorded=True)
    evidence = dataclasses.replace(load_evidence([folder]), kernels=registry.load())
    found = climb.limited_by(evidence)
    assert (found["limit_percent"].dropna() <= 100).all(), found.loc[found["limit_percent"] > 100, "kernel"]
    assert found["limit_percent"].dropna().tolist() == pytest.approx(
        (100 * found["gflops"] / found["bound_gflops"])[found["limit_percent"].notna()].tolist()
    )
    assert not (found["second_percent"] > found["limit_percent"]).any()
    own = found.set_index(["kernel", "dtype"])
    gpu = platform.device.gpu
    for kernel in ("wgmma", "warp_specialised", "clusters"):
        row = own.loc[(kernel, "bfloat16")]
        slowed = row["sm_clock_mhz"] / gpu["sm_clock_mhz"]
        assert slowed < 0.85 and row["limited_by"] == "tensor cores, whose clock was lowered"
        assert row["limit_percent"] == pytest.approx(100 * row["gflops"] / gpu["peak_gflops"]["bfloat16"] / slowed)
        assert 87 < row["limit_percent"] < 96
    assert own.loc[("triton", "float"), "limited_by"] == "", "its machine code is not read, so its units are not known"


def test_what_ncu_counted_behind_the_first_cache():
    known = roofs(100, MEASURED | {("l2_bandwidth", "float"): 5_000}, "float")
    asks = FRUGAL | {"L2": 80, "memory": 8}
    assert limit(64 * 50, asks, known) == ("L2", pytest.approx(50 * 80 / 5_000))
    assert allowed(asks, known)["memory"] == pytest.approx(64 * 50 / 0.1)
    assert limit(3_000, asks)[0] == "", "counted, but the roof was not measured"


def test_what_is_not_known_is_not_called_latency():
    """A resource above half limits, whatever else there may be; that none does, is only known if all are."""
    asks = FRUGAL | {"passes of shared memory": 0.1, "L1": math.nan}
    assert limit(3_000, asks)[0] == ""
    assert limit(64 * 80, asks | {"passes of shared memory": 1})[0] == "passes of shared memory"
    assert limit(3_000, {}) == ("", pytest.approx(math.nan, nan_ok=True))


def test_without_a_measured_roof_the_clock_gives_it():
    needs = {"passes of shared memory": 0.5}
    for cycle in (100, 50):
        assert allowed(needs, roofs(cycle, {}, "float")) == {"passes of shared memory": 2 * 64 * cycle}
    assert bytes_of_product("float", 1000, 1000, 1000) == 4 * 3 * 1000**2
    assert bytes_of_product("int8", 1000, 1000, 1000) == (1 + 1 + 4) * 1000**2


def test_the_table_names_a_limit_for_what_was_counted(tmp_path):
    folder = synthetic.write(tmp_path / "nvidia-h200", with_traffic=True)
    evidence = load_evidence([folder], recorded=tmp_path / "none")
    found = climb.limited_by(evidence).set_index(["kernel", "dtype"])
    assert set(found["n"]) == {8192} and found.index.is_unique
    tiled = found.loc[("tiled", "float")]
    # 262144 wavefronts of loads and 7 of stores for 256^3 multiply-adds, of which 32 make a warp's.
    wavefronts = (250_000 + 7) / (256**3 / 32)
    assert tiled["hardware_wavefronts_per_100"] == pytest.approx(100 * wavefronts)
    used = {
        "passes of shared memory": 100 * tiled["gflops"] / 64 * wavefronts / (132 * 1.965),
        "instructions": 100 * tiled["gflops"] / 64 / 0.5 / (4 * 132 * 1.965),
        "multiply-adds": 100 * tiled["gflops"] / 61e3,
        "requests": 100 * tiled["gflops"] / 64 * tiled["accesses_per_100"] / 100 / (132 * 1.965),
    }
    assert max(used.values()) < 50, "and nobody counted the lines"
    assert tiled["limited_by"] == "" and math.isnan(tiled["limit_percent"])
    busy = evidence.facts["counters"].assign(shared_load_wavefronts=1_000_000)
    evidence = dataclasses.replace(evidence, facts=evidence.facts | {"counters": busy})
    tiled = climb.limited_by(evidence).set_index(["kernel", "dtype"]).loc[("tiled", "float")]
    wavefronts = (1_000_000 + 7) / (256**3 / 32)
    share = 100 * tiled["gflops"] / 64 * wavefronts / (132 * 1.965)
    assert share > 50
    assert (tiled["limited_by"], tiled["limit_percent"]) == ("passes of shared memory", pytest.approx(share))
    assert (tiled["second_limit"], tiled["second_percent"]) == ("requests", pytest.approx(used["requests"]))
    assert found.loc[("cublas", "float"), "limited_by"] == "", "nobody counts what a library asks for"
    assert climb.limited_by(
        load_evidence([synthetic.write(tmp_path / "emulator", "emulator")], recorded=tmp_path / "none")
    ).empty


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    folder = synthetic.write(tmp_path_factory.mktemp("profiled") / "nvidia-h200", with_traffic=True)
    return load_evidence([folder], recorded=folder / "none")


def test_the_table_of_counters_at_full_size(profiled):
    [row] = counts.profiled(profiled).to_dict("records")
    assert (row["platform"], row["kernel"], row["choice"], row["n"]) == ("nvidia-h200", "tiled", "tile 16", 2048)
    assert (row["profiled_ms"], row["dram_gb"]) == (2.5, 0.064)
    assert row["matrices_moved"] == pytest.approx(64e6 / (3 * 4 * 2048**2))
    assert row["wavefronts_per_100"] == pytest.approx(100 * 2**27 / (2048**3 / 32))
    assert row["waits"] == "mio throttle 5, barrier 2, long scoreboard 1", "an instruction that is issued does not wait"
    nothing = profiled.facts | {"counters": profiled.facts["counters"].head(0)}
    assert counts.profiled(dataclasses.replace(profiled, facts=nothing)).empty


def test_what_limits_follows_from_counters_of_its_own_machine(profiled):
    """The share of a machine's memory is what ncu counted there, per multiply-add, in a launch of the same rate."""
    rows = profiled.gpu
    rows = rows[((rows["kernel"] == "tiled") & (rows["tile"] == 16)).fillna(False)]
    largest = rows["n"].eq(8192) & rows["p"].eq(8192) & rows["m"].eq(8192)
    launch = rows[largest].assign(n=2048, p=2048, m=2048)  # as the counters have it
    only = dataclasses.replace(profiled, gpu=pd.concat([rows, launch]))
    work, gflops = 2048**3 / 32, climb.limited_by(only).set_index("dtype").loc["float", "gflops"]

    def limit(only=only, **changes):
        counted = profiled.facts["counters"].assign(shared_load_wavefronts=0, shared_store_wavefronts=0)
        evidence = dataclasses.replace(only, facts=only.facts | {"counters": counted.assign(**changes)})
        row = climb.limited_by(evidence).set_index("dtype").loc["float"]
        return row["limited_by"], row["limit_percent"]

    moved = 4300e9 * 64 * work / (gflops * 1e9)  # as much as memory delivers in the time of the product
    assert limit(dram_read_bytes=round(0.9 * moved), dram_written_bytes=0) == ("memory", pytest.approx(90, rel=1e-6))
    elsewhere = limit(dram_read_bytes=round(0.9 * moved), dram_written_bytes=0, platform="nvidia-a100")
    assert elsewhere != ("memory", pytest.approx(90, rel=1e-6))
    slower = dataclasses.replace(only, gpu=pd.concat([rows, launch.assign(gflops=0.9 * launch["gflops"])]))
    at_another = limit(slower, dram_read_bytes=round(0.9 * moved), dram_written_bytes=0)
    assert at_another != ("memory", pytest.approx(90, rel=1e-6)), "at another rate the caches hold other lines"


@pytest.mark.parametrize(
    ("kernel", "choice", "sides", "share"),
    [
        ("multi_tile", {"tile": 32, "ntb": 7}, (256, 448), 1),
        ("multi_tile", {"tile": 32, "ntb": 7}, (256, 256), 448 / 256),  # its second block is mostly beyond the edge
        ("stream_k", {"tile_n": 128, "tile_m": 256, "tile_k": 16, "stages": 4, "walk": 79, "band": 16}, (256, 256), 1),
        ("clusters", {"tile_m": 256, "stages": 4, "cluster_blocks": 1, "band": 16}, (256, 256), 1),
    ],
)
def test_the_work_of_a_counted_launch(kernel, choice, sides, share):
    """Of kernels whose blocks stay and take tile after tile, the number of blocks says nothing."""
    n, m = sides
    kernel = synthetic.KERNELS[kernel]
    at = points.point("", kernel.name, kernel.dtypes[0], n, 64, m, **choice)
    assert kernel.padded_multiply_adds(at) == pytest.approx(n * 64 * m * share, rel=0.02)
