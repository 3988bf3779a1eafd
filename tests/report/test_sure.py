"""How sure, and why: sentences about runs, clocks, blocks and limits follow from rows whose answer is known."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import synthetic
from prose import section

from tilewise.evidence import load_evidence
from tilewise.explain import bottleneck, provenance, timings, traffic
from tilewise.report import tables
from tilewise.rules import Study

APPENDIX, ROOFS = "tables/17-appendix.md", "tables/11-roofs.md"
SIZES = "tables/10-shapes-and-sizes.md"


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    folder = synthetic.write(tmp_path_factory.mktemp("sure") / "nvidia-h200", with_traffic=True)
    return load_evidence([folder], recorded=folder / "none")


def with_rows(evidence, rows):
    return dataclasses.replace(evidence, gpu=rows.astype(evidence.gpu.dtypes))


def naive_square(evidence):
    rows = evidence.gpu
    chosen = (rows["task"] == "task1a") & (rows["kernel"] == "naive") & (rows["n"] == 8192) & (rows["p"] == 8192)
    return rows[(chosen & (rows["m"] == 8192)).fillna(False)]


def test_one_run_says_nothing_about_what_lies_between_runs(gpu):
    assert gpu.gpu["runs"].isna().all() and "runs of a point agree" not in section(gpu, APPENDIX)
    assert timings.describe(gpu.gpu, gpu)["between_percent"].isna().all()


def test_what_lies_between_runs(gpu):
    """Of four points one is apart by 3 %, of less than 10 µs; one by 1.5 %; and one by 5 %, at a lowered clock."""
    rows = naive_square(gpu).head(4).assign(runs=3, time_ms=[5.0, 6.0, 7.0, 0.008])
    factor = np.array([1.001, 1.015, 1.05, 1.03])
    rows = rows.assign(run_low_ms=rows["time_ms"], run_high_ms=rows["time_ms"] * factor)
    rows = rows.assign(sm_clock_min_mhz=[1980, 1980, 1700, 1980])
    words = section(with_rows(gpu, rows), APPENDIX)
    assert "3 runs of a point agree within 1 % at 25 % of four points and within 2 % at 50 %" in words
    assert "among the other 2 are one product of less than 10 µs and one product at a lowered clock. The" in words
    assert "The farthest apart are 5 %." in words
    found = timings.describe(with_rows(gpu, rows).gpu, gpu)["between_percent"]
    assert found.tolist() == pytest.approx([0.1, 1.5, 5, 3])


def test_a_best_is_decided_by_its_runs_if_there_are_several(gpu):
    rows = naive_square(gpu).head(2).assign(time_ms=[5.0, 5.1], time_q1_ms=[4.99, 5.09], time_q3_ms=[5.01, 5.11])
    [alone] = timings.best(timings.describe(with_rows(gpu, rows).gpu, gpu)).to_dict("records")
    assert alone["decided"] is True
    rows = rows.assign(runs=3, run_low_ms=[4.9, 4.95], run_high_ms=[5.05, 5.2])
    [several] = timings.best(timings.describe(with_rows(gpu, rows).gpu, gpu)).to_dict("records")
    assert several["decided"] is False


@pytest.mark.parametrize(("high", "changed"), [(5.05, True), (5.15, False)])
def test_machines_differ_if_the_ranges_of_their_runs_lie_apart(high, changed, tmp_path):
    folders = [synthetic.write(tmp_path / name) for name in ("nvidia-h200", "nvidia-h100")]
    evidence = load_evidence(folders, recorded=tmp_path / "none")
    rows = naive_square(evidence).groupby("platform", sort=False).head(1)
    assert len(rows) == 2
    rows = rows.assign(time_ms=[5.0, 5.2], time_q1_ms=[4.999, 5.199], time_q3_ms=[5.001, 5.201])
    assert provenance.platforms(with_rows(evidence, rows))["changed"].tolist() == [True], "the quartiles lie apart"
    rows = rows.assign(runs=3, run_low_ms=[4.9, 5.1], run_high_ms=[high, 5.3])
    assert provenance.platforms(with_rows(evidence, rows))["changed"].tolist() == [changed]


def test_clocks(gpu):
    rows = (
        naive_square(gpu)
        .head(3)
        .assign(sm_clock_mhz=[1980.0, 1965.0, 1500.0], sm_clock_min_mhz=[1980.0, 1724.0, 1490.0])
    )
    words = section(with_rows(gpu, rows), APPENDIX)
    assert "two points of 3 ran below 98 % of it" in words and "1,500 MHz in the median" in words
    words = section(with_rows(gpu, rows.assign(sm_clock_mhz=1979.0, sm_clock_min_mhz=None)), APPENDIX)
    assert "no point ran at less than 98 % of 1,980 MHz" in words


@pytest.mark.parametrize(
    ("fastest", "ends"), [((8, 128), "block"), ((128, 8), ""), ((1024, 1), "block")], ids=["low", "inside", "high"]
)
def test_a_best_value_at_the_end_of_its_axis_is_marked(gpu, fastest, ends):
    rows = naive_square(gpu)
    times = [1.0 if (x, y) == fastest else 2.0 for x, y in zip(rows["block_x"], rows["block_y"])]
    changed = dataclasses.replace(gpu, gpu=rows.assign(time_ms=times).astype(gpu.gpu.dtypes))
    [best] = timings.best(timings.describe(changed.gpu, gpu)).to_dict("records")
    assert best["at_end"] == ends
    swept = tables.sweep(changed.gpu, gpu)
    assert swept["at_end"].tolist().count(ends) >= 1 and set(swept["at_end"]) <= {"", ends}


def test_two_values_have_no_inside(gpu):
    rows = naive_square(gpu).head(2)
    [best] = timings.best(timings.describe(rows, gpu)).to_dict("records")
    assert best["at_end"] == "", "nobody looked further"


def test_lines_explain_why_the_shape_of_a_block_matters(gpu):
    traffic, rows = [], naive_square(gpu)
    for x, lines in ((8, 5), (16, 3), (128, 2)):
        row = dict.fromkeys(gpu.facts["traffic"]) | {"kernel": "naive", "dtype": "float", "n": 256, "p": 256, "m": 256}
        row["padded_multiply_adds"] = 256.0**3
        row |= {"block_x": x, "block_y": 1024 // x, "global_load_requests": 2 * 256**3 // 32}
        traffic.append(row | {"global_load_lines": lines * 256**3 // 32, "global_load_sectors": 5 * 256**3 // 32})
    table = pd.DataFrame(traffic).astype(gpu.facts["traffic"].dtypes)
    evidence = dataclasses.replace(gpu, facts=gpu.facts | {"traffic": table})
    rate = {8: 3204.0, 16: 4828.0, 128: 6283.0}
    kept = rows[rows["block_x"].isin(rate)]
    kept = kept.assign(gflops=kept["block_x"].map(rate), sm_clock_mhz=1980.0)
    words = section(with_rows(evidence, kept), "tables/01-threads.md")
    assert "8 × 128: 5 lines, 96 %; 16 × 64: 3 lines, 87 %." in words
    assert "another reason" not in words and "do not explain" not in words, "one block needs fewest lines"
    slow = with_rows(evidence, kept.assign(gflops=kept["gflops"].where(kept["block_x"] != 128, 3000.0)))
    assert "87 %. The block 128 × 8 is slow for another reason than look-ups." in section(slow, "tables/01-threads.md")
    equal = evidence.facts["traffic"].assign(global_load_lines=2 * 256**3 // 32)
    alike = dataclasses.replace(slow, facts=slow.facts | {"traffic": equal}, gpu=with_rows(evidence, kept).gpu)
    alike = dataclasses.replace(alike, gpu=alike.gpu.assign(gflops=alike.gpu["gflops"].mask(lambda r: r < 4000, 5e3)))
    said = section(alike, "tables/01-threads.md")
    assert "need 2 lines and reach 4.83 (16 × 64) to 6.28 TFLOP/s (128 × 8): look-ups do not explain" in said
    assert "Some blocks need more" not in said
    ncu = dict.fromkeys(gpu.facts["counters"]) | {"platform": "nvidia-h200", "kernel": "naive", "dtype": "float"}
    ncu |= {"block_x": 128, "block_y": 8, "profiled_ns": 1, "l1_hit_percent": 2.0, "l2_percent": 95.4}

    def words_with_counts_at(n):
        counted = pd.DataFrame([ncu | dict.fromkeys("npm", n)]).astype(gpu.facts["counters"].dtypes)
        return section(dataclasses.replace(slow, facts=slow.facts | {"counters": counted}), "tables/01-threads.md")

    [n] = set(kept["n"])
    said = f"look-ups; ncu counted at n = {n:,}: hits in the first cache 2 %, the second cache busy 95 %."
    assert said in words_with_counts_at(n)
    assert "slow for another reason than look-ups." in words_with_counts_at(n // 2), "another size explains nothing"


def test_a_small_product_has_too_few_blocks_for_many_tiles(gpu):
    rows = gpu.gpu
    chosen = (rows["task"] == "task3") & (rows["kernel"] == "multi_tile") & (rows["dtype"] == "float")
    rows = rows[(chosen & (rows["n"] == 1024) & (rows["p"] == 1024) & (rows["m"] == 1024)).fillna(False)]
    rows = rows[rows["ntb"].isin([8, 16])]
    rate = rows["ntb"].map({8: 11_667.0, 16: 6_227.0})
    words = section(with_rows(gpu, rows.assign(gflops=rate)), "tables/03-several-tiles.md")
    assert "NTB 8 reaches 11.7 TFLOP/s and NTB 16 6.23" in words
    assert "only 64 of 128 blocks remain for 132 multiprocessors" in words
    faster = section(with_rows(gpu, rows.assign(gflops=1 / rate)), "tables/03-several-tiles.md")
    assert "blocks remain" not in faster, "more tiles are faster: nothing falls"


def test_the_rate_falls_towards_the_largest_product(gpu):
    probes = gpu.facts["maximum_size"].head(1)
    probes = pd.concat(
        [probes.assign(timed_n=n, time_ms=2e-6 * n**3 / rate) for n, rate in ((8192, 6277), (53706, 5320))]
    )
    evidence = dataclasses.replace(gpu, facts=gpu.facts | {"maximum_size": probes}, gpu=gpu.gpu.head(0))
    words = section(evidence, SIZES)
    said = "On the Invented H200 the naive kernel reaches 6.28 TFLOP/s at n = 8,192 and 5.32 TFLOP/s at n = 53,706."
    assert said in words and words.count("the naive kernel reaches") == 1


def test_why_double_takes_longer(gpu):
    """Twice the bytes are 9 sectors for 5, and 3 lines for 2; where no roof is near, the cause is not settled."""
    limits = bottleneck.limits(gpu)
    rows = limits[limits["kernel"] == "naive"].set_index("dtype", drop=False)
    known = {"float": (500.0, 200.0, 6287.0, "look-ups in L1", 75.0), "double": (900.0, 300.0, 3782.0, "L1", 68.0)}
    names = ["sectors_per_100", "lines_per_100", "gflops", "limited_by", "limit_percent"]
    for dtype, values in known.items():
        rows.loc[dtype, names] = values
    said = section(gpu, "tables/01-threads.md", limited_by=rows)
    assert "touches 9 sectors of 32 bytes and looks up 3 lines, one of the float kernel 5 and 2" in said
    assert "1.80× the sectors, 1.50× the lines." in said and "No resource is near its limit" in said
    assert "look-ups in L1 in float (75 %) and L1 in double (68 %)" in said
    assert "units for double" not in said, "their rate was not measured"
    roofs = gpu.facts["bandwidth"]
    rate = roofs[roofs["quantity"] == "multiply_add_rate"].assign(dtype="double", measured=31_000.0)
    measured = dataclasses.replace(gpu, facts=gpu.facts | {"bandwidth": pd.concat([roofs, rate])})
    said = section(measured, "tables/01-threads.md", limited_by=rows)
    assert "The units for double are 12 % busy, so they are not the bottleneck" in said
    rows.loc["double", "limit_percent"] = 95.0
    assert "not settled" not in section(gpu, "tables/01-threads.md", limited_by=rows)
    assert "Why? For" not in section(gpu, "tables/01-threads.md", limited_by=rows.assign(sectors_per_100=np.nan)), (
        "not counted"
    )


def with_shared_roof(evidence, passes):
    roofs = evidence.facts["bandwidth"]
    shared = roofs.head(1).assign(quantity="shared_wavefronts_16_bytes", measured=passes, unit="10⁹/s")
    return dataclasses.replace(evidence, facts=evidence.facts | {"bandwidth": pd.concat([roofs, shared])})


def test_what_shared_memory_allows(gpu):
    assert "passes per second" not in section(gpu, "tables/02-tiles.md"), "its rate was not measured"
    evidence = with_shared_roof(gpu, 256.0)
    limits = bottleneck.limits(gpu)
    tiled = limits[(limits["kernel"] == "tiled") & (limits["dtype"] == "float")]
    tiled = tiled.assign(hardware_wavefronts_per_100=160.0, gflops=8192.0)
    said = section(evidence, "tables/02-tiles.md", limited_by=tiled)
    assert "sustains 256 billion passes per second, 98 % of the ideal one per cycle and multiprocessor" in said
    assert "32.8 TB/s, 7.62× the bandwidth of memory" in said
    assert "needs 160 passes, which allows 10.2 TFLOP/s; it reaches 8.19, 80 % of that" in said


def test_the_curve_of_tiles_per_block(gpu):
    """Passes of shared memory explain it; fewer loads and lost blocks do not."""
    rows = gpu.gpu
    rows = rows[(rows["task"] == "task3") & (rows["kernel"] == "multi_tile") & (rows["status"] == "ok")]
    rate = {(32, 1): 8300.0, (32, 7): 13_800.0, (16, 16): 12_400.0}
    floats = rows[(rows["dtype"] == "float") & (rows["n"] == 8192) & (rows["p"] == 8192) & (rows["m"] == 8192)]
    floats = floats.assign(gflops=[rate.get(pair, 9000.0) for pair in zip(floats["tile"], floats["ntb"])])
    doubles = rows[(rows["dtype"] == "double") & (rows["tile"] == 32) & rows["ntb"].isin([1, 10])]
    doubles = doubles.assign(gflops=doubles["ntb"].map({1: 4000.0, 10: 7000.0}).astype("float64"))
    work = 8192**3 / 32
    counted = [
        dict.fromkeys(gpu.facts["counters"])
        | {"platform": "nvidia-h200", "kernel": "multi_tile", "dtype": "float", "n": 8192, "p": 8192, "m": 8192}
        | {"block_x": 32, "block_y": 32, "tile": 32, "ntb": ntb}
        | {
            "shared_load_wavefronts": round(passes * work),
            "shared_store_wavefronts": 0,
            "padded_multiply_adds": 8192.0**2 * -(-8192 // (32 * ntb)) * 32 * ntb,
        }
        for ntb, passes in ((1, 1.5), (7, 1.125))
    ]
    held = dict.fromkeys(gpu.facts["occupancy"]) | {"platform": "nvidia-h200", "kernel": "multi_tile", "tile": 32}
    held = [held | {"dtype": "double", "ntb": ntb, "active_blocks": blocks} for ntb, blocks in ((1, 2), (10, 1))]
    facts = {"counters": pd.DataFrame(counted).astype(gpu.facts["counters"].dtypes)}
    facts["occupancy"] = pd.DataFrame(held).astype(gpu.facts["occupancy"].dtypes)
    evidence = with_shared_roof(with_rows(gpu, pd.concat([floats, doubles])), 256.0)
    evidence = dataclasses.replace(evidence, facts=evidence.facts | facts)
    said = section(evidence, "tables/03-several-tiles.md")
    shares = [100 * gflops / 64 * passes / 256 for gflops, passes in ((8300, 1.5), (13_800, 1.125))]
    # With 7 tiles of 32 columns, the last block of a row has places beyond the edge, whose passes count.
    assert f"NTB 1: 150, {shares[0]:.0f} %; NTB 7: 1" in said and f", {shares[1]:.0f} %." in said
    assert (
        "needs 1.06× the loads from global memory of tile 32 with NTB 1, and is 1.49× as fast, so fewer loads" in said
    )
    assert "holds two blocks at NTB 1 and one block at NTB 10, the fastest: losing a resident block does not" in said
    slower = evidence.gpu["gflops"].where(evidence.gpu["tile"] != 16, 8000.0)
    slow = dataclasses.replace(evidence, gpu=evidence.gpu.assign(gflops=slower))
    assert "so fewer loads" not in section(slow, "tables/03-several-tiles.md")


def test_the_largest_products(gpu):
    probe = gpu.facts["maximum_size"].head(1).assign(timed_n=50_000, allocatable_n=111_638, predicted_ms=512e3)
    own = probe.assign(timed_n=30_536, time_ms=12_148.65)
    ring = probe.assign(kernel="transposing_ring", timed_n=111_600, allocatable_n=111_600, time_ms=50_000.0)
    evidence = dataclasses.replace(gpu, facts=gpu.facts | {"maximum_size": pd.concat([own, probe, ring])})
    said = section(evidence, SIZES)
    assert (
        "n = 30,536, the largest of source a, the naive kernel takes 12.1 s, and on the source's card it took 121 s"
        in said
    )
    assert "transposing_ring multiplies n = 111,600, the largest n that fits, in 50 s" in said
    less = ring.assign(timed_n=111_584)
    other = dataclasses.replace(gpu, facts=gpu.facts | {"maximum_size": pd.concat([own, probe, less])})
    assert "n = 111,584, of 111,600 that would fit, in 50 s" in section(other, SIZES)
    assert "would take 512 s for n = 111,638, so it was timed at n = 50,000" in said
    assert "On the Invented H200:" not in section(gpu, SIZES), "one kernel, at no size of the source's"


def test_the_intensity_is_that_of_the_timed_shape():
    """Tiles of 32 load 8 FLOP per byte at any size; the stores weigh less, the longer the sums are."""
    row = {"n": 8192, "p": 8192, "m": 8192, "padded_multiply_adds": 8192.0**3}
    blocks, steps = (256 // 32) ** 2, 256 // 32
    counted = {"global_load_sectors": blocks * steps * 2 * 32 * 4, "global_store_sectors": blocks * 32 * 4}
    found = traffic.intensity(row | counted | {"counted_p": 256, "counted_multiply_adds": 256.0**3})
    loads, stores = 2 * 8192**3 / 8, 4 * 8192**2
    assert found == pytest.approx(2 * 8192**3 / (loads + stores))


def test_counts_are_of_shapes_that_blocks_divide(config):
    study = Study(config)
    counted = {(p.kernel, p.dtype, p.parameters): p for p in study.counted_points()}
    wide = counted["multi_tile", "float", (("tile", 32), ("ntb", 7))]
    assert (wide.n, wide.p, wide.m) == (256, 256, 448)
    for (name, *_), at in counted.items():
        kernel = study.kernels[name]
        if len(kernel.launches) == 1 and kernel.covered(at) and not kernel.unmet(at):
            rows, cols = kernel.covered(at)
            assert at.n % rows == 0 and at.m % cols == 0, at.label()


def test_the_page_says_which_roof_is_missing(gpu):
    assert "could not be measured" not in section(gpu, ROOFS), "all were measured"
    roofs = gpu.facts["bandwidth"]
    broken = roofs["quantity"] == "memory_bandwidth"
    wrong = roofs.assign(
        status=roofs["status"].mask(broken, "incorrect"), message=roofs["message"].mask(broken, "1 < 2 is wrong")
    )
    words = section(dataclasses.replace(gpu, facts=gpu.facts | {"bandwidth": wrong}), ROOFS)
    said = "On the Invented H200 one roof could not be measured: memory bandwidth in float (incorrect: 1 < 2 is wrong)."
    assert said in words
