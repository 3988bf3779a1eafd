"""How sure, and why: sentences about runs, clocks, blocks and limits follow from rows whose answer is known."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import synthetic

from tilewise.report import claims, data, findings, tables
from tilewise.workflow import Study


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    folder = synthetic.write(tmp_path_factory.mktemp("sure") / "nvidia-h200", with_traffic=True)
    return data.load([folder], recorded=folder / "none")


def with_rows(evidence, rows):
    return dataclasses.replace(evidence, gpu=rows.astype(evidence.gpu.dtypes))


def naive_square(evidence):
    rows = evidence.gpu
    chosen = (rows["task"] == "task1a") & (rows["kernel"] == "naive") & (rows["n"] == 8192) & (rows["p"] == 8192)
    return rows[(chosen & (rows["m"] == 8192)).fillna(False)]


def test_one_run_says_nothing_about_what_lies_between_runs(gpu):
    assert gpu.gpu["runs"].isna().all() and findings.between_runs(gpu) == ""
    assert tables.describe(gpu.gpu, gpu)["between_percent"].isna().all()


def test_what_lies_between_runs(gpu):
    """Of four points one is apart by 3 %, of less than 10 µs; one by 1.5 %; and one by 5 %, at a lowered clock."""
    rows = naive_square(gpu).head(4).assign(runs=3, time_ms=[5.0, 6.0, 7.0, 0.008])
    factor = np.array([1.001, 1.015, 1.05, 1.03])
    rows = rows.assign(run_low_ms=rows["time_ms"], run_high_ms=rows["time_ms"] * factor)
    rows = rows.assign(sm_clock_min_mhz=[1980, 1980, 1700, 1980])
    words = findings.between_runs(with_rows(gpu, rows))
    assert (
        "3 runs of a point agree within 1\u00a0% at 25\u00a0% of four points and within 2\u00a0% at 50\u00a0%" in words
    )
    assert "among the other 2 are one product of less than 10 µs and one product at a lowered clock" in words
    assert words.endswith("The farthest apart are 5\u00a0%.")
    found = tables.describe(with_rows(gpu, rows).gpu, gpu)["between_percent"]
    assert found.tolist() == pytest.approx([0.1, 1.5, 5, 3])


def test_a_best_is_decided_by_its_runs_if_there_are_several(gpu):
    rows = naive_square(gpu).head(2).assign(time_ms=[5.0, 5.1], time_q1_ms=[4.99, 5.09], time_q3_ms=[5.01, 5.11])
    [alone] = tables.best(tables.describe(with_rows(gpu, rows).gpu, gpu)).to_dict("records")
    assert alone["decided"] is True
    rows = rows.assign(runs=3, run_low_ms=[4.9, 4.95], run_high_ms=[5.05, 5.2])
    [several] = tables.best(tables.describe(with_rows(gpu, rows).gpu, gpu)).to_dict("records")
    assert several["decided"] is False


def test_clocks(gpu):
    rows = (
        naive_square(gpu)
        .head(3)
        .assign(sm_clock_mhz=[1980.0, 1965.0, 1500.0], sm_clock_min_mhz=[1980.0, 1724.0, 1490.0])
    )
    words = findings.clocks(with_rows(gpu, rows))
    assert "two points of 3 ran below 98\u00a0% of it" in words and "1,500 MHz in the median" in words
    words = findings.clocks(with_rows(gpu, rows.assign(sm_clock_mhz=1979.0, sm_clock_min_mhz=None)))
    assert "no point ran at less than 98\u00a0% of 1980 MHz" in words


@pytest.mark.parametrize(
    ("fastest", "ends"), [((8, 128), "block"), ((128, 8), ""), ((1024, 1), "block")], ids=["low", "inside", "high"]
)
def test_a_best_value_at_the_end_of_its_axis_is_marked(gpu, fastest, ends):
    rows = naive_square(gpu)
    times = [1.0 if (x, y) == fastest else 2.0 for x, y in zip(rows["block_x"], rows["block_y"])]
    changed = dataclasses.replace(gpu, gpu=rows.assign(time_ms=times).astype(gpu.gpu.dtypes))
    [best] = tables.best(tables.describe(changed.gpu, gpu)).to_dict("records")
    assert best["at_end"] == ends
    swept = tables.sweep(changed.gpu, gpu, data.published())
    assert swept["at_end"].tolist().count(ends) >= 1 and set(swept["at_end"]) <= {"", ends}


def test_two_values_have_no_inside(gpu):
    rows = naive_square(gpu).head(2)
    [best] = tables.best(tables.describe(rows, gpu)).to_dict("records")
    assert best["at_end"] == "", "nobody looked further"


def test_lines_explain_why_the_shape_of_a_block_matters(gpu):
    traffic, rows = [], naive_square(gpu)
    for x, lines in ((8, 5), (16, 3), (128, 2)):
        row = dict.fromkeys(gpu.facts["traffic"]) | {"kernel": "naive", "dtype": "float", "n": 256, "p": 256, "m": 256}
        row |= {"block_x": x, "block_y": 1024 // x, "global_load_requests": 2 * 256**3 // 32}
        traffic.append(row | {"global_load_lines": lines * 256**3 // 32, "global_load_sectors": 5 * 256**3 // 32})
    table = pd.DataFrame(traffic).astype(gpu.facts["traffic"].dtypes)
    evidence = dataclasses.replace(gpu, facts=gpu.facts | {"traffic": table})
    rate = {8: 3204.0, 16: 4828.0, 128: 6283.0}
    kept = rows[rows["block_x"].isin(rate)]
    kept = kept.assign(gflops=kept["block_x"].map(rate), sm_clock_mhz=1980.0)
    words = findings.block_shapes(with_rows(evidence, kept))
    assert "8 × 128: 5 lines, 96\u00a0%; 16 × 64: 3 lines, 87\u00a0%; 128 × 8: 2 lines, 75\u00a0%" in words


def test_a_small_product_has_too_few_blocks_for_many_tiles(gpu):
    rows = gpu.gpu
    chosen = (rows["task"] == "task3") & (rows["kernel"] == "multi_tile") & (rows["dtype"] == "float")
    rows = rows[(chosen & (rows["n"] == 1024) & (rows["p"] == 1024) & (rows["m"] == 1024)).fillna(False)]
    rows = rows[rows["ntb"].isin([8, 16])]
    rate = rows["ntb"].map({8: 11_667.0, 16: 6_227.0})
    words = findings.few_blocks(with_rows(gpu, rows.assign(gflops=rate)))
    assert "NTB 8 reaches 11,667 GFLOP/s and NTB 16 6,227" in words
    assert "128 blocks have become 64, and there are 132 multiprocessors" in words
    assert findings.few_blocks(with_rows(gpu, rows.assign(gflops=1 / rate))) == "", (
        "more tiles are faster: nothing falls"
    )


def test_the_largest_product_says_how_many_rows_of_blocks_run_together(gpu):
    probes = gpu.facts["maximum_size"].head(1)
    probes = pd.concat(
        [probes.assign(timed_n=n, time_ms=2e-6 * n**3 / rate) for n, rate in ((8192, 6277), (53706, 5320))]
    )
    held = dict.fromkeys(gpu.facts["occupancy"]) | {"platform": "nvidia-h200", "kernel": "naive", "dtype": "float"}
    held = pd.DataFrame([held | {"block_x": 128, "block_y": 8, "active_blocks": 2}])
    facts = {"maximum_size": probes, "occupancy": held.astype(gpu.facts["occupancy"].dtypes)}
    evidence = dataclasses.replace(gpu, facts=gpu.facts | facts, gpu=gpu.gpu.head(0))
    words = findings.largest_rates(evidence)
    assert "6,277 GFLOP/s at n = 8,192, 5,320 GFLOP/s at n = 53,706" in words
    assert "264 blocks of 128 × 8 run at once; these are 4.1, 0.63 rows of blocks" in words


def test_the_conclusion_is_made_of_the_tables(gpu):
    published = data.published()
    ladder, limits = tables.ladder(gpu, published), tables.limits(gpu)
    verdicts = claims.verdicts(claims.load(), gpu)
    words = findings.conclusion(gpu, ladder, limits, verdicts)
    square = tables.largest_square(ladder).set_index(["kernel", "dtype"])
    gain = square.loc[("naive", "float"), "time_ms"] / square.loc[("tiled", "float"), "time_ms"]
    assert f"{gain:.3g}× as fast as the best naive kernel; source a found 2.46×" in words
    counts = verdicts["verdict"].value_counts()
    assert f"{counts[claims.HOLDS]} hold on this machine and {counts[claims.FAILS]} do not" in words
    limited = limits.assign(limited_by="shared memory", limit_percent=88.0)
    said = findings.conclusion(gpu, ladder, limited, verdicts)
    assert "What limits `tiled` most is shared memory, at 88\u00a0% of its roof" in said
    assert findings.conclusion(gpu, ladder.head(0), limits.head(0), verdicts.head(0)) == ""


def test_the_intensity_is_that_of_the_timed_shape(gpu):
    """Tiles of 32 load 8 FLOP per byte at any size; the stores weigh less, the longer the sums are."""
    row = {"kernel": "tiled", "tile": 32, "dtype": "float", "n": 8192, "p": 8192, "m": 8192}
    blocks, steps = (256 // 32) ** 2, 256 // 32
    counted = {"global_load_sectors": blocks * steps * 2 * 32 * 4, "global_store_sectors": blocks * 32 * 4}
    found = tables.intensity(row | counted | dict.fromkeys(("counted_n", "counted_p", "counted_m"), 256), gpu)
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
    assert findings.missing_roofs(gpu) == "", "all were measured"
    roofs = gpu.facts["bandwidth"]
    broken = roofs["quantity"] == "memory_bandwidth"
    wrong = roofs.assign(
        status=roofs["status"].mask(broken, "incorrect"), message=roofs["message"].mask(broken, "1 < 2 is wrong")
    )
    words = findings.missing_roofs(dataclasses.replace(gpu, facts=gpu.facts | {"bandwidth": wrong}))
    assert words == (
        "**On Invented H200 one roof could not be measured:** memory bandwidth in float (incorrect: 1 &lt; 2 is wrong)."
    )
