"""Why each rung is faster: every number of a causal sentence comes from the recorded counts, and a sentence whose
premise fails in another run is not said there."""

import base64
import dataclasses
import gzip
import re

import numpy as np
import pandas as pd
import pytest
from prose import checks, plain

from tilewise import RECORDED
from tilewise.evidence import load_evidence
from tilewise.explain import climb, provenance, timings
from tilewise.explain.number_format import plus_minus, rounded
from tilewise.report import figures, markup, tables

FOLDER = RECORDED / "nvidia-h200"
#: By how many cycles an instruction two H200s differ in a wait.
CARD = 0.03


@pytest.fixture(scope="module")
def recorded():
    """The repository's recorded run."""
    return load_evidence([FOLDER])


@pytest.fixture(scope="module")
def rungs(recorded):
    """The recorded float rungs at their largest cube, by kernel."""
    return climb.rungs(climb.climb(recorded, climb.CLIMB), recorded).set_index("kernel")


@pytest.fixture(scope="module")
def ncu():
    """What ncu counted at 4096 cubed in float, as the file has it: one row per kernel of the ladder."""
    rows = pd.read_csv(FOLDER / "counters.csv", low_memory=False)
    rows = rows[(rows["dtype"] == "float") & (rows["n"] == 4096) & rows["executed_instructions"].notna()]
    rows = rows[(rows["kernel"] != "naive") | (rows["block_x"] == 128)]
    rows = rows[(rows["kernel"] != "multi_tile") | (rows["ntb"] == 7)]
    rows = rows.set_index("kernel")
    assert rows.index.is_unique
    return rows.assign(work=4096**3 / 32)  # multiply-adds of a warp


def test_bounds_follow_from_the_instructions_that_ran(rungs, ncu):
    """What the executed instructions allow, from the files alone: four slots a cycle at the clock of the row."""
    for kernel, executed in {
        "register_tile": 0.746,
        "vector_loads": 0.864,
        "warp_tile": 0.865,
        "pipelined": 0.918,
        "tma_ring": 0.939,
    }.items():
        share = ncu.loc[kernel, "work"] / ncu.loc[kernel, "executed_instructions"]
        assert share == pytest.approx(executed, abs=0.001)
        slots = 64 * 4 * 132 * rungs.loc[kernel, "sm_clock_mhz"] / 1000
        found = "second" if kernel == "vector_loads" else "limit"  # its passes are worse
        allowed = 100 * rungs.loc[kernel, "gflops"] / rungs.loc[kernel, f"{found}_percent"]
        assert allowed == pytest.approx(share * slots)
        assert rungs.loc[kernel, "second_limit" if found == "second" else "limited_by"] == "instructions"
        assert rungs.loc[kernel, "others_per_100"] == pytest.approx(100 * (1 / share - 1))


def test_what_ncu_did_not_count_is_of_the_machine_code(recorded, rungs):
    none = recorded.facts["counters"].head(0)
    bare = dataclasses.replace(recorded, facts=recorded.facts | {"counters": none})
    found = climb.rungs(climb.climb(bare, climb.CLIMB), bare).set_index("kernel")
    of_loop = found.loc["register_tile", "executed_percent"]
    assert of_loop / rungs.loc["register_tile", "executed_percent"] == pytest.approx(1.09, abs=0.005)
    assert found["issue_percent"].isna().all() and found.loc["register_tile", "wavefronts_per_100"] > 70
    elsewhere = recorded.facts["counters"].assign(platform="nvidia-a100")
    other = dataclasses.replace(recorded, facts=recorded.facts | {"counters": elsewhere})
    found = climb.rungs(climb.climb(other, climb.CLIMB), other).set_index("kernel")
    assert found.loc["register_tile", "executed_percent"] == of_loop


def test_everything_shows_the_same_bound(recorded, rungs):
    loops = climb.instructions(recorded)
    loops = loops[loops["dtype"] == "float"].set_index("kernel")
    limits = climb.limited_by(recorded)
    limits = limits[limits["dtype"] == "float"].set_index("kernel")
    for kernel in ("register_tile", "vector_loads", "warp_tile", "tma_ring"):
        bound = rungs.loc[kernel, "bound_gflops"]
        assert limits.loc[kernel, "bound_gflops"] == bound
        assert loops.loc[kernel, "bound_gflops"] == pytest.approx(bound, rel=0.01), "at another shape, another clock"
        drawn = figures.svg(figures.draw("rungs", recorded, rungs.reset_index()))
        assert f"{kernel}: upper bound {rounded(bound / 1000)} TFLOP/s" in drawn
        said = plain(markup.rung_html(rungs.reset_index(), kernel))
        limit = limits.loc[kernel, "limited_by"]
        assert said.startswith(f"Upper bound{rounded(bound / 1000)} TFLOP/s, limited by {limit}")
    # 73 % of the slots of a scheduler at 1980 MHz, of which ncu saw 71.
    slots = limits.loc["warp_tile", "gflops"] / 64 / (4 * 132 * limits.loc["warp_tile", "sm_clock_mhz"] / 1000)
    assert limits.loc["warp_tile", "limit_percent"] == pytest.approx(
        100 * slots / (limits.loc["warp_tile", "executed_percent"] / 100)
    )


def test_the_counts_behind_register_tile_and_vector_loads(rungs, ncu):
    """What falls is what they execute and wait for; passes of shared memory and resident warps do not."""
    before, after = ncu.loc["register_tile"], ncu.loc["vector_loads"]
    others = [100 * (row["executed_instructions"] / row["work"] - 1) for row in (before, after)]
    assert others == pytest.approx([34.1, 15.7], abs=0.1)
    passes = [
        100 * (row["shared_load_wavefronts"] + row["shared_store_wavefronts"]) / row["work"] for row in (before, after)
    ]
    assert passes == pytest.approx([32.5, 33.7], abs=0.1)
    waits = [row[["stall_long_scoreboard", "stall_barrier"]].tolist() for row in (before, after)]
    assert np.array(waits) == pytest.approx(np.array([[1.3, 1.15], [0.87, 0.34]]), abs=CARD)
    assert rungs.loc["register_tile", "warps"] == rungs.loc["vector_loads", "warps"] == 16
    assert rungs.loc[["register_tile", "vector_loads"], "wavefronts_per_100"].tolist() == pytest.approx(passes)
    names = [f"{where}_{what}_requests" for where in ("shared", "global") for what in ("load", "store")]
    assert 100 * before[names].sum() / before["work"] == pytest.approx(8.6, abs=0.05)
    assert after["issue_percent"] > before["issue_percent"] + 10, "and the schedulers issue more"


def test_the_counts_behind_the_rungs_that_wait_less(rungs, ncu):
    waits = [ncu.loc[name, ["stall_long_scoreboard", "stall_barrier"]].tolist() for name in ("warp_tile", "pipelined")]
    assert np.array(waits) == pytest.approx(np.array([[0.8, 0.45], [0.01, 0.02]]), abs=CARD)
    assert rungs.loc["pipelined", "limit_percent"] > rungs.loc["warp_tile", "limit_percent"] + 10
    row = rungs.loc["warp_tile"]
    assert row["accesses_per_100"] < 25 and row["wavefronts_per_100"] < 25 < rungs.loc["tiled", "wavefronts_per_100"]
    conflicts = [
        100 * row["shared_bank_conflicts"] / (row["shared_load_wavefronts"] + row["shared_store_wavefronts"])
        for _, row in ncu.loc[["vector_loads", "warp_tile"]].iterrows()
    ]
    assert conflicts == pytest.approx([39.7, 4.06], abs=0.05)
    stalls = ncu.loc[["pipelined", "async_copies"], "stall_dispatch_stall"].tolist()
    assert stalls == pytest.approx([0.16, 0.41], abs=CARD)


def test_the_counts_behind_tiles_in_shared_memory(rungs, ncu):
    """The tighter of two limits is shown: passes of shared memory, for which the warps wait, and not barriers."""
    tiled = ncu.loc["tiled"]
    waits = tiled[["stall_mio_throttle", "stall_long_scoreboard", "stall_barrier"]].tolist()
    assert waits == pytest.approx([15.75, 6.44, 5.11], abs=CARD)
    assert rungs.loc["tiled", "gflops"] < rungs.loc["tiled", "bound_gflops"]


def without(evidence, **changes):
    """The same evidence with other counts of ncu."""
    counters = evidence.facts["counters"]
    return dataclasses.replace(evidence, facts=evidence.facts | {"counters": counters.assign(**changes)})


def test_waits_at_one_size_explain_no_other(recorded, ncu):
    """ncu profiled at 4096 cubed: a rung that is slower at 8192 waits for something else there."""
    large = (recorded.gpu["kernel"] == "register_tile") & (recorded.gpu["n"] == 8192)
    gpu = recorded.gpu.assign(gflops=recorded.gpu["gflops"].mask(large, 22_000.0))
    slow = dataclasses.replace(recorded, gpu=gpu)
    found = climb.rungs(climb.climb(slow, climb.CLIMB), slow).set_index("kernel")
    assert pd.isna(found.loc["register_tile", "stall_barrier"])
    assert found.loc["warp_tile", "stall_barrier"] == ncu.loc["warp_tile", "stall_barrier"]


def with_runs(evidence, kernel, slower):
    """The same evidence, except that a rung takes `slower` times as long as the fastest at the largest square."""
    rows = evidence.gpu
    cube = (rows["task"] == climb.CLIMB) & (rows["n"] == 8192) & (rows["m"] == 8192) & (rows["p"] == 8192)
    [best] = rows[cube & (rows["kernel"] == "stream_k")].to_dict("records")
    own = cube & (rows["kernel"] == kernel)
    changed = {name: rows[name].mask(own, best[name] * slower) for name in ("time_ms", "run_low_ms", "run_high_ms")}
    return dataclasses.replace(
        evidence, gpu=rows.assign(**changed, gflops=rows["gflops"].mask(own, best["gflops"] / slower))
    )


def test_a_tie_is_told_and_drawn_as_a_tie(recorded):
    """Two rungs whose runs overlap are as fast as each other; two whose runs do not are not."""
    [best] = points(task=climb.CLIMB, kernel="stream_k", n=8192, p=8192, m=8192).to_dict("records")
    assert best["run_low_ms"] < 1.0001 * best["time_ms"] < best["run_high_ms"] < 1.02 * best["run_low_ms"]
    tied, apart = (with_runs(recorded, "tma_ring", slower) for slower in (1.0001, 1.02))
    found = [climb.rungs(climb.climb(each, climb.CLIMB), each) for each in (tied, apart)]
    assert [table["as_fast"].sum() for table in found] == [1, 0]
    assert found[0].set_index("kernel").loc["stream_k", "as_fast"]
    said = [plain(markup.rung_html(table, "stream_k")) for table in found]
    assert "as fast as tma_ring: their runs overlap" in said[0] and "overlap" not in said[1]


def test_no_best_choice_has_bought_its_rate_with_digits(recorded):
    """With 13 moduli a product of doubles is faster than with 14, and its error is five times as large."""

    def best(evidence):
        ladder = tables.ladder(evidence)
        [row] = ladder[(ladder["kernel"] == "double_from_int8") & (ladder["n"] == 8192)].to_dict("records")
        return row["moduli"]

    own = recorded.gpu[(recorded.gpu["kernel"] == "double_from_int8") & (recorded.gpu["n"] == 8192)]
    fastest = own.loc[own["gflops"].idxmax()]
    assert fastest["moduli"] == 13 and fastest["relative_error"] > 4 * own["relative_error"].min()
    as_accurate = recorded.gpu["relative_error"].where(recorded.gpu["kernel"] != "double_from_int8", 1e-15)
    assert best(recorded) == 14
    assert best(dataclasses.replace(recorded, gpu=recorded.gpu.assign(relative_error=as_accurate))) == 13


def test_a_point_that_several_tasks_timed_has_the_rate_of_its_ladder(recorded):
    stream_k = recorded.gpu[
        (recorded.gpu["kernel"] == "stream_k") & (recorded.gpu[["n", "p", "m"]] == 8192).all(axis=1)
    ]
    times = stream_k.set_index("task")["time_ms"]
    assert times["languages"] < times["ladder_float"]
    ladder = tables.ladder(recorded)
    [row] = ladder[(ladder["kernel"] == "stream_k") & (ladder[["n", "p", "m"]] == 8192).all(axis=1)].to_dict("records")
    assert row["task"] == "ladder_float" and row["time_ms"] == times["ladder_float"]


def test_a_card_that_is_not_listed_has_no_data_sheet(recorded):
    """Nor has one whose name only begins alike."""
    [gpu] = recorded.gpus
    device = dataclasses.replace(gpu.device, gpu={**gpu.device.gpu, "name": "NVIDIA H200 NVL"})
    other = dataclasses.replace(recorded, gpus=(dataclasses.replace(gpu, device=device),))
    table = tables.bandwidth(other)
    assert table["printed"].isna().all()


def test_every_measured_row_is_told_of_its_card(recorded):
    [gpu] = recorded.gpus
    rows = pd.read_csv(FOLDER / "measurements.csv", low_memory=False)
    table = provenance.by_card([gpu])
    assert table["points"].sum() == len(rows)
    for row in table.to_dict("records"):
        own = rows[rows["gpu_uuid"].fillna("").str.contains(row["card"]) & rows["task"].isin(row["tasks"].split(", "))]
        assert len(own) >= row["points"] > 0 and set(own["commit"]) == {row["commit"]}
    assert set(table["card"]) == {uuid[4:12] for uuid in rows["gpu_uuid"].fillna("")}
    described = timings.describe(recorded.select_tasks("ladder_float").gpu, recorded)
    own = rows.loc[rows["task"] == "ladder_float", "gpu_uuid"]
    assert set(described["card"]) == {uuid[4:12] for uuid in own.dropna()}


def test_the_largest_error_is_that_of_a_single_product(recorded):
    rows = pd.read_csv(FOLDER / "measurements.csv", low_memory=False)
    worst = rows[rows["bound_ratio"] == rows["bound_ratio"].max()]
    assert set(worst["p"]) == {1} and worst["bound_ratio"].iloc[0] > 0.99
    said = checks(recorded)["largest error"]
    assert said == "100 % of its rounding bound, where every element is a single product, rounded once"
    longer = dataclasses.replace(recorded, gpu=recorded.gpu.assign(p=64))
    assert "single product" not in checks(longer)["largest error"]


def test_the_report_and_its_tables_measure_spread_alike(recorded):
    """From the slowest to the fastest run, divided by the time."""
    rows = pd.read_csv(FOLDER / "measurements.csv", low_memory=False)
    several = rows[rows["runs"] > 1]
    apart = (100 * (several["run_high_ms"] - several["run_low_ms"]) / several["time_ms"]).max()
    assert apart == pytest.approx(timings.describe(recorded.gpu, recorded)["between_percent"].max())
    assert f"the farthest apart are {rounded(apart, '%')} %" in checks(recorded)["runs that agree"]


def test_arithmetic_allows_what_the_tightest_count_does(rungs, ncu):
    """By hand from ncu's counts and the recorded roofs; what a rung gains is beside what arithmetic lets it expect."""
    roofs = pd.read_csv(FOLDER / "facts/bandwidth.csv").set_index(["quantity", "dtype"])
    # One request per cycle and multiprocessor, at the clock of the row; 64 operations per multiply-add of a warp.
    clock = rungs.loc["naive", "sm_clock_mhz"]
    requests = 64 * 132 * clock / 1000 * 100 / rungs.loc["naive", "accesses_per_100"]
    assert rungs.loc["naive", ["bound_gflops", "limited_by"]].tolist() == [pytest.approx(requests), "requests"]
    passes = 64 * roofs.loc[("shared_wavefronts_16_bytes", "float"), "measured"] / 1.57060900
    assert rungs.loc["tiled", "bound_gflops"] == pytest.approx(passes, rel=1e-4)
    assert rungs.loc[["tiled", "multi_tile", "vector_loads"], "limited_by"].unique() == ["passes of shared memory"]
    assert rungs["bound_gain"].dropna().to_numpy() == pytest.approx(
        [
            rungs.loc[name, "bound_gflops"] / rungs.loc[row["before"], "bound_gflops"]
            for name, row in rungs.iterrows()
            if row["before"]
        ]
    )

    assert (rungs["gflops"] <= rungs["bound_gflops"]).sum() == rungs["bound_gflops"].notna().sum() >= 10
    top = rungs.loc["tiled", ["top_wait", "top_wait_each"]].tolist()
    assert top == ["because the queue to shared memory is full", ncu.loc["tiled", "stall_mio_throttle"]]


def points(**where):
    """Rows of measurements.csv."""
    rows = pd.read_csv(FOLDER / "measurements.csv", low_memory=False)
    for column, value in where.items():
        rows = rows[rows[column].isin(value if isinstance(value, list) else [value])]
    return rows


def test_the_time_of_a_table_has_the_range_of_its_runs(recorded):
    rows = points(task="task3", kernel="multi_tile", dtype="float", tile=32, n=8192, p=8192, m=8192, ntb=[7, 8])
    far = [max(row["time_ms"] - row["run_low_ms"], row["run_high_ms"] - row["time_ms"]) for _, row in rows.iterrows()]
    found = timings.range_percent(rows)
    assert found.tolist() == pytest.approx([100 * each / time for each, time in zip(far, rows["time_ms"])])
    shown = markup.table_html(tables.task("task3", recorded), "sweep", "<b>Tiles.</b>", recorded, "tiles")
    cell = f"{rounded(rows['time_ms'].iloc[0])} {plus_minus(found.iloc[0])}"
    [packed] = re.findall(r'data-table="([^"]+)"', shown)
    assert cell in gzip.decompress(base64.b64decode(packed)).decode()
    alone = rows.assign(runs=1, samples=1)
    assert timings.range_percent(alone).isna().all(), "one sample has no range"


def test_no_share_of_a_roof_exceeds_it(recorded):
    shares = climb.limited_by(recorded)[["limit_percent", "second_percent"]]
    assert shares.max().max() <= 100

    """Per 100 multiply-adds of the machine code: addresses and tests, barriers and copies into shared memory."""
    code = pd.read_csv(FOLDER / "instructions.csv").set_index("instance")
    before, ring = (
        100
        * code.loc[name, ["integer", "control", "synchronisation"]].sum()
        / code.loc[name, "multiply_add_instructions"]
        for name in ("pipelined<float, 128, 256, 32, 8, 16, 79, true>", "tma_ring<128, 256, 16, 4, 7, true>")
    )
    assert before == pytest.approx(2.69, abs=0.01) and ring == pytest.approx(0.88, abs=0.01)


def test_floats_made_of_short_numbers_are_limited_by_the_tensor_cores(recorded):
    """Three products of halves or TF32, six of bfloat16, at the clock of the row."""
    rows = points(task="float_accuracy", n=8192, p=8192, m=8192).set_index("kernel")
    found = climb.limited_by(recorded)
    found = found[found["dtype"] == "float"].set_index("kernel")
    peaks = {"float_from_half": (3, 1070.5), "float_from_bf16": (6, 1070.5), "three_tf32": (3, 535.3)}
    for kernel, (products, peak) in peaks.items():
        row = rows.loc[kernel]
        share = 100 * products * row["gflops"] / 1000 / (peak * row["sm_clock_mhz"] / 1980)
        assert found.loc[kernel, "limit_percent"] == pytest.approx(share, abs=0.05) and 80 < share < 95
        assert found.loc[kernel, "limited_by"] == "tensor cores, whose clock was lowered"
    assert found.loc["pipelined", "limited_by"] == "instructions"


def test_a_recording_without_the_threads_of_a_launch_has_its_table(recorded):
    known = tables.launch_limits(recorded)
    assert known["percent_of_limit"].max() > 100
    facts = recorded.facts | {"launch_limits": recorded.facts["launch_limits"].assign(threads=None)}
    found = tables.launch_limits(dataclasses.replace(recorded, facts=facts))
    assert len(found) == len(known) and found["percent_of_limit"].isna().all()
