"""How sure, and why: sentences about runs, clocks, blocks and limits follow from rows whose answer is known."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import synthetic
from prose import checks

from tilewise import RECORDED
from tilewise.evidence import load_evidence
from tilewise.explain import timings
from tilewise.report import beside, figures, tables
from tilewise.rules import Study


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
    assert gpu.gpu["runs"].isna().all() and "runs that agree" not in checks(gpu)
    assert timings.describe(gpu.gpu, gpu)["between_percent"].isna().all()


def test_what_lies_between_runs(gpu):
    """Of four points one is apart by 3 %, one by 1.5 %, and one by 5 %."""
    rows = naive_square(gpu).head(4).assign(runs=3, time_ms=[5.0, 6.0, 7.0, 0.008])
    factor = np.array([1.001, 1.015, 1.05, 1.03])
    rows = rows.assign(run_low_ms=rows["time_ms"], run_high_ms=rows["time_ms"] * factor)
    words = checks(with_rows(gpu, rows))["runs that agree"]
    assert words == "25 % within 1 %, 50 % within 2 % of 4 points; the farthest apart are 5 %"
    found = timings.describe(with_rows(gpu, rows).gpu, gpu)["between_percent"]
    assert found.tolist() == pytest.approx([0.1, 1.5, 5, 3])


def test_a_best_is_decided_by_its_runs_if_there_are_several(gpu):
    rows = naive_square(gpu).head(2).assign(time_ms=[5.0, 5.1], time_q1_ms=[4.99, 5.09], time_q3_ms=[5.01, 5.11])
    [alone] = timings.best(timings.describe(with_rows(gpu, rows).gpu, gpu)).to_dict("records")
    assert alone["decided"] is True
    rows = rows.assign(runs=3, run_low_ms=[4.9, 4.95], run_high_ms=[5.05, 5.2])
    [several] = timings.best(timings.describe(with_rows(gpu, rows).gpu, gpu)).to_dict("records")
    assert several["decided"] is False


def test_clocks(gpu):
    rows = (
        naive_square(gpu)
        .head(3)
        .assign(sm_clock_mhz=[1980.0, 1965.0, 1500.0], sm_clock_min_mhz=[1980.0, 1724.0, 1490.0])
    )
    words = checks(with_rows(gpu, rows))["lowered clocks"]
    assert words == "2 of 3 points below 97 % of 1,980 MHz, down to 1,500 MHz"
    never = with_rows(gpu, rows.assign(sm_clock_mhz=1979.0, sm_clock_min_mhz=None))
    assert checks(never)["lowered clocks"] == "0 of 3 points below 97 % of 1,980 MHz"


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


def with_shared_roof(evidence, passes):
    roofs = evidence.facts["bandwidth"]
    shared = roofs.head(1).assign(quantity="shared_wavefronts_16_bytes", measured=passes, unit="10⁹/s")
    return dataclasses.replace(evidence, facts=evidence.facts | {"bandwidth": pd.concat([roofs, shared])})


def test_tiles_of_32_load_8_flop_per_byte_at_any_size():
    evidence = load_evidence([RECORDED / "nvidia-h200"])
    drawn = figures.counted_and_timed(evidence).set_index("kernel")
    tiles = drawn.loc[["tiled", "matrix_struct", "dynamic_tile", "tiled_exact"]]
    assert tiles["n"].nunique() > 1 and (tiles["intensity"] == 8).all()
    assert drawn.loc["naive", "intensity"] == pytest.approx(0.4)
    assert "TFLOP/s at 8 FLOP per byte" in figures.svg(figures.draw("roofline", evidence))


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
    roofs = gpu.facts["bandwidth"]
    broken = roofs["quantity"] == "memory_bandwidth"
    wrong = roofs.assign(status=roofs["status"].mask(broken, "incorrect"), measured=roofs["measured"].mask(broken))
    sides = beside.Sides(None, dataclasses.replace(gpu, facts=gpu.facts | {"bandwidth": wrong}))
    table = beside.facts("bandwidth", sides, "{quantity} {dtype}", "measured", "")
    html = beside.html(table[table["label"] == "memory bandwidth float"], sides, "", "<b>Roofs.</b>", "roofs")
    assert '<span class="status">incorrect</span>' in html
