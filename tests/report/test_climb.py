"""The climb: bounds from the machine code, each rung beside the one before it, and sentences with their numbers."""

import dataclasses
import math

import pandas as pd
import pytest
import synthetic
from prose import plain

from tilewise import RECORDED
from tilewise.evidence import load_evidence
from tilewise.explain import climb
from tilewise.report import figures, markup
from tilewise.study import columns

#: GFLOP/s of a multiply-add in every slot of the four schedulers of 132 multiprocessors, at the clock of the rows.
SLOTS = 64 * 4 * 132 * 1.965


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    """Evidence of a machine with a GPU, all invented."""
    folder = synthetic.write(tmp_path_factory.mktemp("results") / "nvidia-h200", with_traffic=True)
    return load_evidence([folder], recorded=folder / "none")


@pytest.fixture(scope="module")
def recorded():
    """Evidence of a machine without a GPU that has measured nothing: the repository's recorded run."""
    return load_evidence([RECORDED / "nvidia-h200"])


def changed(evidence, name, **values):
    """The same evidence with other values in a table of facts."""
    return dataclasses.replace(evidence, facts=evidence.facts | {name: evidence.facts[name].assign(**values)})


def only(table, **where):
    for name, value in where.items():
        table = table[table[name] == value]
    [row] = table.to_dict("records")
    return row


def test_instructions_allow_the_share_of_multiply_adds_of_the_slots_of_the_schedulers(gpu):
    """At the clock of the row, whatever multiply-adds alone reach."""
    quarter = changed(gpu, "instructions", multiply_add_share=0.25)
    found = only(climb.instructions(quarter), kernel="tiled", dtype="float")
    assert found["bound_gflops"] == pytest.approx(SLOTS / 4) and found["others_per_100"] == 300
    found = only(climb.instructions(gpu), kernel="tiled", dtype="float")
    assert found["bound_gflops"] == pytest.approx(SLOTS / 4 / 0.6), "60 requests for 100 multiply-adds are worse"
    assert found["others_per_100"] == 100 and found["accesses_per_100"] == 60
    assert found["shared_bytes_per_multiply_add"] == 30 * 4 / 50
    assert found["reused_per_multiply_add"] == 0.5


def test_units_of_half_rate_leave_the_other_slots_free(gpu):
    """A double multiply-add takes two cycles of its units: half of the slots are enough, and a third is too little."""
    roofs = gpu.facts["bandwidth"]
    double = roofs[roofs["quantity"] == "multiply_add_rate"].assign(dtype="double", measured=25e3)
    gpu = dataclasses.replace(gpu, facts=gpu.facts | {"bandwidth": pd.concat([roofs, double], ignore_index=True)})
    assert only(climb.instructions(gpu), kernel="tiled", dtype="double")["bound_gflops"] == pytest.approx(25e3)
    third = changed(gpu, "instructions", multiply_add_share=1 / 3)
    found = only(climb.instructions(third), kernel="tiled", dtype="double")
    assert found["bound_gflops"] == pytest.approx(SLOTS / 3)


def test_tensor_cores_have_no_bound_without_their_measured_rate(gpu):
    assert math.isnan(only(climb.instructions(gpu), kernel="dmma", dtype="double")["bound_gflops"])
    unmeasured = changed(gpu, "bandwidth", measured=float("nan"))
    tiled = only(climb.instructions(unmeasured), kernel="tiled", dtype="float")
    assert tiled["bound_gflops"] == pytest.approx(SLOTS / 4 / 0.6), "the clock alone gives the roof of requests"


def test_rungs_stand_in_the_order_of_the_registry_with_the_library_last(gpu):
    rungs = climb.rungs(climb.climb(gpu, "ladder_float"), gpu)
    names = list(rungs["kernel"])
    assert names[:3] == ["naive", "tiled", "multi_tile"] and names[-2:] == ["cublas", "cublas_best"]
    assert names == [name for name in gpu.kernels if name in names]
    assert set(rungs["n"]) == {8192}


def test_a_rung_is_compared_with_the_fastest_before_it(gpu):
    rows = climb.climb(gpu, "ladder_float")
    rates = {"naive": 10.0, "tiled": 30.0, "multi_tile": 20.0, "register_tile": 60.0, "cublas": 120.0}
    rows = rows[rows["kernel"].isin(rates)].assign(gflops=rows["kernel"].map(rates))
    rungs = climb.rungs(rows, gpu).set_index("kernel")
    assert list(rungs["before"]) == ["", "naive", "tiled", "tiled", ""]
    assert rungs.loc["multi_tile", "gain"] == pytest.approx(2 / 3)
    assert rungs.loc["register_tile", "gain"] == 2 and rungs.loc["register_tile", "percent_of_anchor"] == 50


def test_the_best_choice_of_a_kernel_stands_for_it(gpu):
    rows = climb.climb(gpu, "ladder_float")
    slow = rows["walk"] == 80
    rungs = climb.rungs(rows.assign(gflops=rows["gflops"].mask(slow, 1.0)), gpu)
    fast = rows[(rows["kernel"] == "pipelined") & ~slow & (rows["n"] == 8192)]
    assert only(rungs, kernel="pipelined")["walk"] == fast["walk"].iloc[0] != 80


def test_wavefronts_count_the_work_beyond_the_edges(gpu):
    """7 tiles of 32 per block make 2 blocks of 8 tiles: nearly twice the work, which the passes have served too."""
    at = {"kernel": "multi_tile", "dtype": "float", "n": 256, "p": 256, "m": 256, "tile": 32, "ntb": 7}
    at |= {"block_x": 32, "block_y": 32, "shared_load_wavefronts": 1048576, "shared_store_wavefronts": 0}
    kernel = synthetic.KERNELS["multi_tile"]
    at["padded_multiply_adds"] = kernel.padded_multiply_adds(synthetic.point_of(at, kernel))
    counted = columns.frame([at | {"shared_bank_conflicts": 0}], "traffic", synthetic.parameters())
    gpu = dataclasses.replace(gpu, facts=gpu.facts | {"traffic": counted})
    found = only(climb.rungs(climb.climb(gpu, "ladder_float"), gpu), kernel="multi_tile")
    assert found["wavefronts_per_100"] == pytest.approx(100 * 1048576 / (256**3 / 32) * 8 / 14, rel=0.02)
    assert found["conflict_percent"] == 0


def test_occupancy_and_waves_follow_from_the_launch(recorded):
    found = climb.rungs(climb.climb(recorded, "ladder_float"), recorded).set_index("kernel")
    assert found.loc["naive", "warps"] == 64  # as many as there are places
    assert found.loc["pipelined", "warps"] == 8  # 255 registers: one block of 256 threads
    assert found.loc["pipelined", "waves"] == pytest.approx((8192 / 128) * (8192 / 256) / 132)
    assert found.loc["stream_k", "waves"] == 1


def test_no_recorded_kernel_exceeds_its_bound(recorded):
    """Every recorded instance was read, and the bound is one: the best rungs come near it."""
    loops, rows = recorded.facts["instructions"], climb.explained(recorded.gpu, recorded)
    elsewhere = ("accuracy", "energy", "sizes", "batches", "grading")  # their rows are no points of a sweep
    others = {name for table in elsewhere for name in recorded.facts[table]["kernel"]}
    timed = pd.MultiIndex.from_frame(loops[climb.INSTANCE]).isin(pd.MultiIndex.from_frame(rows[climb.INSTANCE]))
    assert set(loops[~timed]["kernel"]) <= others and (loops["other"] == 0).all()
    spilling = loops[loops["spills"] > 0]
    assert set(spilling["kernel"]) <= {"multi_tile"} and (spilling["dtype"] == "double").all()  # far past its optimum
    share = (100 * rows["gflops"] / rows["bound_gflops"]).dropna()
    assert len(share) > 500 and 90 < share.max() <= 100 and rows["limit_percent"].max() == share.max()


# ---- Sentences and figures -------------------------------------------------------------------------------------------


def test_nothing_timed_has_no_rungs(gpu):
    rows = climb.climb(gpu, "no such task")
    assert climb.rungs(rows, gpu).empty
    library = climb.climb(gpu, "ladder_float").query("anchor")
    assert len(library) and climb.rungs(library, gpu).empty


def test_a_run_without_machine_code_still_climbs(gpu):
    bare = dataclasses.replace(gpu, facts=gpu.facts | {"instructions": gpu.facts["instructions"].head(0)})
    rungs = climb.rungs(climb.climb(bare, "ladder_float"), bare)
    assert rungs["gflops"].notna().all() and rungs["bound_gflops"].isna().all()
    box = markup.rung_html(rungs, "tiled")
    assert "TFLOP/s</strong>" in box and "limited by" not in box and "nan" not in box
    assert figures.svg(figures.draw("rungs", bare, rungs)).count("<path") > 10


def test_the_ladder_has_its_lines(gpu):
    drawn = figures.svg(figures.draw("rungs", gpu, climb.rungs(climb.climb(gpu, "ladder_float"), gpu)))
    for words in (
        "cuBLAS: ",
        "multiply-adds alone, measured: 61",
        "peak at 1,980 MHz: 66.9",
        "upper bound",
    ):
        assert words in drawn


def test_two_gpus_climb_side_by_side(gpu, tmp_path):
    other = synthetic.write(tmp_path / "nvidia-other")
    both = load_evidence(
        [other, synthetic.write(tmp_path / "nvidia-h200", with_traffic=True)], recorded=tmp_path / "none"
    )
    rungs = climb.rungs(climb.climb(both, "ladder_float"), both)
    assert rungs["platform"].nunique() == 2
    for _, own in rungs.groupby("platform"):
        assert "the rate of naive" in plain(markup.rung_html(own, "tiled"))
    assert figures.svg(figures.draw("rungs", both, rungs)).count("Invented H200") == 2
