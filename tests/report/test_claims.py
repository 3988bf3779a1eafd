"""The claims: each can be evaluated, and each verdict is tested on data for which the answer is known."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import synthetic

from tilewise import ROOT, UserError
from tilewise.report import claims, data

CLAIMS = claims.load()


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    """An invented GPU beside a machine without one."""
    folder = tmp_path_factory.mktemp("claims")
    synthetic.write(folder / "recorded/nvidia-h200", with_traffic=True)
    synthetic.write(folder / "results/emulator", "emulator", with_traffic=True)
    return data.load([folder / "results/emulator"], recorded=folder / "recorded")


@pytest.fixture(scope="module")
def gpu(evidence):
    return claims.Machine(evidence, evidence.gpus[0])


@pytest.fixture(scope="module")
def emulator(evidence):
    return claims.Machine(evidence, evidence.platforms[0])


def claim(quantity, holds_when="value == published", published=1):
    """A claim about an expression."""
    return {"id": "test", "quantity": quantity, "holds_when": holds_when, "published": published}


def with_times(machine, times):
    """The same machine with (time, q1, q3) in ms for the tiled kernel by tile, float at 8192 cubed."""
    rows = machine.rows.copy()
    for tile, values in times.items():
        fits = (rows["kernel"] == "tiled") & (rows["tile"] == tile) & (rows["dtype"] == "float") & (rows["n"] == 8192)
        rows.loc[
            (fits & (rows["m"] == 8192) & (rows["p"] == 8192)).fillna(False), ["time_ms", "time_q1_ms", "time_q3_ms"]
        ] = values
    changed = object.__new__(claims.Machine)
    changed.__dict__.update(machine.__dict__, rows=rows)
    return changed


def with_only(machine, times):
    """The same machine, on which only these kernels ran, with these times."""
    rows = []
    for columns, time in times:
        row = machine.rows[(machine.rows["kernel"] == columns["kernel"]) & (machine.rows["status"] == "ok")].iloc[0]
        measured = {"time_ms": time, "time_q1_ms": time * 0.999, "time_q3_ms": time * 1.001, "samples": 10}
        rows.append(row.to_dict() | SQUARE | columns | measured)
    changed = object.__new__(claims.Machine)
    changed.__dict__.update(machine.__dict__, rows=pd.DataFrame(rows).astype(machine.rows.dtypes))
    return changed


@pytest.mark.parametrize("entry", CLAIMS, ids=lambda entry: entry["id"])
def test_every_expression_can_be_evaluated(entry, gpu, emulator):
    """A column that does not exist raises an error here, not in a reader's report."""
    for machine in (gpu, emulator):
        found = claims.evaluate(entry, machine)
        assert found["verdict"] in (claims.HOLDS, claims.FAILS, claims.UNTESTED)
        assert (found["value"] is None) == (found["verdict"] == claims.UNTESTED)


def test_all_sources_speak():
    assert {entry["source"] for entry in CLAIMS} == set("abcde")
    assert len(CLAIMS) >= 25
    assert f"verdicts on {len(CLAIMS)} published claims" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("double-costs-30-percent", 100 * (2826.502 / 2179.101807 - 1)),
        ("most-memory-can-be-allocated", 100 * 30536 / 31020),
        ("tiles-beat-naive", 2179.101807 / 885.436859),
        ("tiles-gain-square", 2179.101807 / 885.436859),
        ("tiles-gain-small", 3.628693 / 2.154752),
        ("tiles-gain-inner", 42.841162 / 12.527520),
        ("tiles-gain-shallow", 271.195058 / 105.650368),
        ("tiles-gain-tall", 290.632660 / 131.119908),
        ("gain-of-ntb", 896.6119 / 397.8701),
        ("eight-tiles-are-slower", 100 * (409.9855 / 397.8701 - 1)),
        ("one-tile-is-tiled", 896.6119 / 885.436859),
        ("ragged-beats-cpu", 311.685333 / 1.652032),
        ("naive-uses-little-of-the-peak", 100 * 750 / 494700),
    ],
)
def test_published_figures_follow_from_the_tables(name, published):
    entry = next(entry for entry in CLAIMS if entry["id"] == name)
    assert entry["published"] == pytest.approx(published, rel=0.016)


#: A square product, and the columns that tell the rows of a claim apart.
SQUARE = {"n": 8192, "p": 8192, "m": 8192, "dtype": "float"}
NAIVE, TILED = ({"kernel": name} for name in ("naive", "tiled"))
ONE, SEVEN, EIGHT = ({"kernel": "multi_tile", "tile": 32, "ntb": ntb} for ntb in (1, 7, 8))
SIXTEEN = {"kernel": "multi_tile", "tile": 16, "ntb": 16}
IN_DOUBLE = [
    {"kernel": "naive", "task": "task1b", "dtype": "double", "block_x": x, "block_y": 1024 // x} for x in (8, 16, 256)
]

NARROW = {"kernel": "naive", "task": "task1b", "dtype": "double", "block_x": 1024, "block_y": 1}
IN_FLOAT = [
    ({"kernel": "naive", "task": "task1a", "block_x": x, "block_y": y}, time)
    for x, y, time in ((16, 64, 190), (32, 32, 205))
]
PLAIN, OF_3 = {"kernel": "multi_tile_unbounded"}, {"task": "task3"}
TESTED, UNTESTED = (
    {"kernel": name, "task": "rectangular", "tile": 32, "n": 3008} for name in ("tiled_inner_test", "tiled")
)
IN_TILES = {"kernel": "tiled", "task": "task2a"}
SHAPES = {  # claim -> shape, and source a's two times in ms
    "tiles-gain-small": ({"n": 1024, "p": 1024, "m": 1024}, 3.628693, 2.154752),
    "tiles-gain-inner": ({"n": 1024, "p": 8192, "m": 1024}, 42.841162, 12.527520),
    "tiles-gain-shallow": ({"n": 8192, "p": 1024, "m": 8192}, 271.195058, 105.650368),
    "tiles-gain-tall": ({"n": 8192, "p": 8192, "m": 1024}, 290.632660, 131.119908),
}
#: On the source's figures it holds, on a gain of 1.3 it does not.
GAINS = [
    (name, [(NAIVE | shape, naive), (TILED | shape, tiled)], verdict)
    for name, (shape, *source) in SHAPES.items()
    for naive, tiled, verdict in ((*source, claims.HOLDS), (1.3, 1.0, claims.FAILS))
]
#: Source a found 16 to be the best width at all shapes but the square one.
WIDTHS = [
    (f"best-tile-{name}", [(IN_TILES | SHAPES[f"tiles-gain-{name}"][0] | {"tile": best}, 1.0), (other, 1.1)], verdict)
    for name in ("small", "inner", "shallow", "tall")
    for best, verdict in ((16, claims.HOLDS), (32, claims.FAILS))
    for other in [IN_TILES | SHAPES[f"tiles-gain-{name}"][0] | {"tile": 48 - best}]
]
SQUARE_BLOCK = {"kernel": "naive", "task": "task1a", "block_x": 32, "block_y": 32}


@pytest.mark.parametrize(
    ("name", "times", "verdict"),
    [
        *GAINS,
        *WIDTHS,
        ("tiles-beat-naive", [(NAIVE, 175), (TILED, 126)], claims.HOLDS),
        ("tiles-beat-naive", [(NAIVE, 125), (TILED, 126)], claims.FAILS),
        ("tiles-gain-square", [(NAIVE, 175), (TILED, 126)], claims.FAILS),
        ("tiles-gain-square", [(NAIVE, 300), (TILED, 126)], claims.HOLDS),
        ("fewer-loads-make-ntb-fast", [(ONE, 129), (SIXTEEN, 86)], claims.FAILS),
        ("fewer-loads-make-ntb-fast", [(ONE, 129), (SIXTEEN, 137)], claims.HOLDS),
        ("eight-tiles-are-slower", [(SEVEN, 79.6), (EIGHT, 80.0)], claims.FAILS),
        ("eight-tiles-are-slower", [(SEVEN, 397.9), (EIGHT, 410.0)], claims.HOLDS),
        ("worst-double-block", [(IN_DOUBLE[0], 480), (IN_DOUBLE[1], 300), (IN_DOUBLE[2], 310)], claims.HOLDS),
        (
            "worst-double-block",
            [(IN_DOUBLE[0], 480), (IN_DOUBLE[1], 300), (NARROW, 800)],
            claims.HOLDS,
        ),  # not of the six
        ("worst-double-block", [(IN_DOUBLE[0], 300), (IN_DOUBLE[1], 310), (IN_DOUBLE[2], 480)], claims.FAILS),
        ("double-changes-the-block", [*IN_FLOAT, (IN_DOUBLE[1], 300), (IN_DOUBLE[2], 310)], claims.FAILS),
        ("double-changes-the-block", [*IN_FLOAT, (IN_DOUBLE[1], 310), (IN_DOUBLE[2], 300)], claims.HOLDS),
        ("best-float-block-square", IN_FLOAT, claims.HOLDS),
        ("best-float-block-square", [*IN_FLOAT, (NARROW | {"task": "task1a", "dtype": "float"}, 100)], claims.HOLDS),
        ("best-float-block-square", [(IN_FLOAT[0][0], 208), IN_FLOAT[1]], claims.FAILS),
        ("best-ntb", [(SEVEN | OF_3, 79.6), (EIGHT | OF_3, 80.0)], claims.HOLDS),
        ("best-ntb", [(SEVEN | OF_3, 80.0), (EIGHT | OF_3, 79.6)], claims.FAILS),
        ("best-ntb-unbounded", [(SEVEN | OF_3 | PLAIN, 79.6), (EIGHT | OF_3 | PLAIN, 80.0)], claims.HOLDS),
        ("best-ntb-unbounded", [(SEVEN | OF_3 | PLAIN, 80.0), (EIGHT | OF_3 | PLAIN, 79.6)], claims.FAILS),
        ("gain-of-ntb-unbounded", [(ONE | PLAIN, 897), (SEVEN | PLAIN, 398)], claims.HOLDS),
        ("gain-of-ntb-unbounded", [(ONE | PLAIN, 129), (SEVEN | PLAIN, 80)], claims.FAILS),
        ("edge-tests-cost", [(TESTED, 4.2), (UNTESTED, 3.1)], claims.HOLDS),
        ("edge-tests-cost", [(TESTED, 3.1), (UNTESTED, 3.2)], claims.FAILS),
        ("occupancy-limits-speed", [(ONE | {"tile": 16}, 141), (SIXTEEN, 86)], claims.FAILS),
        ("occupancy-limits-speed", [(ONE | {"tile": 16}, 86), (SIXTEEN, 141)], claims.HOLDS),
        ("larger-blocks-are-better", [(IN_TILES | {"tile": 16}, 136), (IN_TILES | {"tile": 32}, 126)], claims.HOLDS),
        ("larger-blocks-are-better", [(IN_TILES | {"tile": 16}, 126), (IN_TILES | {"tile": 32}, 136)], claims.FAILS),
        ("fewer-loads-are-a-huge-win", [(SQUARE_BLOCK, 201), (IN_TILES | {"tile": 32}, 126)], claims.FAILS),
        ("fewer-loads-are-a-huge-win", [(SQUARE_BLOCK, 401), (IN_TILES | {"tile": 32}, 126)], claims.HOLDS),
    ],
)
def test_verdicts_on_known_times(gpu, name, times, verdict):
    entry = next(entry for entry in CLAIMS if entry["id"] == name)
    found = claims.evaluate(entry, with_only(gpu, times))
    assert (found["verdict"], found["reason"]) == (verdict, "")
    if not entry["quantity"].startswith(("best(", "worst(", "pair(")):  # the best of what is left is one, too
        without = claims.evaluate(entry, with_only(gpu, times[:-1]))
        assert (without["verdict"], "not measured" in without["reason"]) == (claims.UNTESTED, True)


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [(["ok", "ok"], claims.HOLDS), (["ok", "incorrect"], claims.FAILS), (["invalid_launch"], claims.UNTESTED)],
)
@pytest.mark.parametrize(
    ("name", "kernels"),
    [("tiles-from-loops-are-right", ["tiled_transposed"]), ("padding-is-right", ["tiled", "multi_tile"])],
)
def test_verdicts_on_products(gpu, name, kernels, statuses, verdict):
    entry = next(entry for entry in CLAIMS if entry["id"] == name)
    rows = [({"kernel": kernel, "status": status}, 1.0) for kernel in kernels for status in statuses]
    assert claims.evaluate(entry, with_only(gpu, rows))["verdict"] == verdict


def test_a_claim_about_one_model_is_tested_on_it_alone(gpu):
    entry = next(entry for entry in CLAIMS if entry["id"] == "memory-delivers-3-tb-s")
    found = claims.evaluate(entry, gpu)
    assert (found["verdict"], "about an H100; this GPU" in found["reason"]) == (claims.UNTESTED, True)
    its = dataclasses.replace(gpu.platform, device=gpu.platform.device | {"gpu": {"name": "NVIDIA H100 80GB HBM3"}})
    there = object.__new__(claims.Machine)
    there.__dict__.update(gpu.__dict__, platform=its)
    for measured, verdict in ((3050, claims.HOLDS), (2000, claims.FAILS)):
        there.facts = gpu.facts | {"bandwidth": gpu.facts["bandwidth"].assign(measured=measured)}
        assert claims.evaluate(entry, there)["verdict"] == verdict


def test_holds(gpu):
    quantity = "best('tile', task='task2a', kernel='tiled', dtype='float', cube=8192)"
    machine = with_times(gpu, {8: (214, 213, 215), 16: (135, 134, 136), 32: (126, 125, 127)})
    assert claims.evaluate(claim(quantity, published=32), machine)["verdict"] == claims.HOLDS
    assert claims.evaluate(claim(quantity, published=16), machine)["verdict"] == claims.FAILS


def test_a_difference_smaller_than_the_spread_is_named(gpu):
    quantity = "best('tile', task='task2a', kernel='tiled', dtype='float', cube=8192)"
    machine = with_times(gpu, {8: (214, 213, 215), 16: (127, 126, 128), 32: (126, 125, 127)})
    found = claims.evaluate(claim(quantity, published=32), machine)
    assert (found["verdict"], found["low"], found["high"]) == (claims.HOLDS, 16, 32)
    assert "smaller than the spread" in found["reason"]


def test_ratios_carry_the_spread(gpu):
    machine = with_times(gpu, {16: (100, 90, 110), 32: (50, 40, 60)})
    narrow, wide = (f"time(kernel='tiled', dtype='float', tile={tile}, cube=8192)" for tile in (16, 32))
    quantity = f"{narrow} / {wide}"
    found = claims.evaluate(claim(quantity, "value >= published", published=1.9), machine)
    assert (found["value"], found["low"], found["high"]) == (2, 90 / 60, 110 / 40)
    assert (found["verdict"], found["reason"]) == (claims.HOLDS, "depends on a difference smaller than the spread")


def test_a_value_inside_the_range_counts_too():
    def answer(found, condition, published=64):
        functions = type("Any", (), {"functions": lambda self: {"found": found}})()
        return claims.evaluate(claim("found", condition, published), functions)["reason"]

    hangs = "depends on a difference smaller than the spread"
    assert answer(claims.Spread(256, 32, 256), "value == published") == hangs
    assert answer(claims.Spread(64, -64, 64), "value != 0") == hangs
    assert answer(claims.Spread(45, 20, 60), "abs(value - published) <= 5", 29.7) == hangs
    assert answer(claims.Spread(256, 32, 256, among=(32, 256)), "value == published") == ""
    assert answer(claims.Spread(256, 64, 256, among=(64, 256)), "value == published") == hangs


def test_of_one_run_the_spread_is_not_known(gpu):
    machine = with_times(gpu, {16: (100, 100, 100), 32: (50, 50, 50)})
    machine.rows.loc[machine.rows["tile"] == 16, "samples"] = 1
    narrow, wide = (f"time(kernel='tiled', dtype='float', tile={tile}, cube=8192)" for tile in (16, 32))
    found = claims.evaluate(claim(f"{narrow} / {wide}", "value >= published", published=1.9), machine)
    assert (found["verdict"], found["known"]) == (claims.HOLDS, False)
    assert found["reason"] == "from fewer than 3 runs, so the spread is not known"
    assert claims.evaluate(claim(wide, "value >= published"), machine)["known"]


def test_what_the_emulator_refuses_is_no_verdict_on_cuda(gpu, emulator):
    quantity = "launch('error', block_x=33, block_y=33) == 'cudaErrorInvalidConfiguration'"
    assert claims.evaluate(claim(quantity), gpu)["verdict"] == claims.HOLDS
    assert claims.evaluate(claim(quantity), emulator)["verdict"] == claims.UNTESTED


def with_facts(machine, **tables):
    """The same machine with these rows of facts; a column that a row lacks is empty."""
    changed = object.__new__(claims.Machine)
    facts = {
        name: pd.DataFrame(rows, columns=list(machine.facts[name])).convert_dtypes() for name, rows in tables.items()
    }
    changed.__dict__.update(machine.__dict__, facts=machine.facts | facts)
    return changed


def gate(difference, origin="measured"):
    point = {"kernel": "multi_tile", "operands": "positive", "n": 1100, "p": 1100, "m": 1100}
    return {"accuracy": [point | {"origin": origin, "loop_difference": difference}]}


def traced(kernel, races, **choice):
    return {"traffic": [{"kernel": kernel, "dtype": "float", "n": 32, "p": 64, "m": 96, "races": races} | choice]}


def roofs(wavefronts, memory):
    measured = {"shared_wavefronts_16_bytes": wavefronts, "memory_bandwidth": memory}
    about = {"dtype": "float", "noise": 0.001}
    return {"bandwidth": [about | {"quantity": name, "measured": value} for name, value in measured.items()]}


def occupied(occupancy):
    choice = {"kernel": "multi_tile_unbounded", "dtype": "double", "tile": 32, "ntb": 10}
    return {"occupancy": [choice | {"occupancy": occupancy}]}


def loads(intensity, side):
    """A traced tiled and a naive product of this side and FLOP per byte."""
    shape = {"dtype": "float", "n": side, "p": side, "m": side, "flop_per_byte": intensity}
    naive = {"kernel": "naive", "block_x": 32, "block_y": 32}
    return {"traffic": [shape | naive, shape | {"kernel": "tiled", "tile": 32}]}


def whole_call(copies, total):
    """A whole call of the tiled kernel, the second one in its process."""
    call = {"kernel": "tiled", "position": 2, "repeat": 1}
    steps = {"copy_in": copies / 2, "kernel": total - copies, "copy_out": copies / 2, "total": total}
    return {"cold_start": [call | {"step": step, "ms": ms} for step, ms in steps.items()]}


@pytest.mark.parametrize(
    ("name", "facts", "verdict"),
    [
        ("transfers-are-the-bottleneck", whole_call(12.0, 15.0), claims.HOLDS),
        ("transfers-are-the-bottleneck", whole_call(6.0, 15.0), claims.FAILS),
        ("transfers-are-the-bottleneck", {"cold_start": []}, claims.UNTESTED),
        ("tiles-are-loaded-again", loads(8.0, 256), claims.HOLDS),
        ("tiles-are-loaded-again", loads(8.0, 32), claims.FAILS),  # of one block
        ("tiles-are-loaded-again", {"traffic": []}, claims.UNTESTED),
        ("two-by-two-asks-8-times", loads(0.25, 256), claims.HOLDS),
        ("two-by-two-asks-8-times", loads(0.5, 256), claims.FAILS),
        ("two-by-two-asks-8-times", {"traffic": []}, claims.UNTESTED),
        ("ragged-error", gate(5.5e-8), claims.HOLDS),
        ("ragged-error", gate(5.9e-7), claims.FAILS),
        ("ragged-error", gate(5.5e-8, "predicted"), claims.HOLDS),
        ("ragged-error", {"accuracy": []}, claims.UNTESTED),
        ("barriers-are-needed", traced("without_barriers", 12), claims.HOLDS),
        ("barriers-are-needed", traced("without_barriers", 0), claims.FAILS),
        ("barriers-are-needed", traced("without_barriers", None), claims.UNTESTED),
        ("k-races", traced("parallel_k", 3), claims.HOLDS),
        ("k-races", traced("parallel_k", 0), claims.FAILS),
        ("k-races", traced("tiled", 0), claims.UNTESTED),
        ("rows-and-columns-run-in-parallel", traced("tiled_transposed", 0, tile=16), claims.HOLDS),
        ("rows-and-columns-run-in-parallel", traced("tiled_transposed", 9, tile=16), claims.FAILS),
        ("rows-and-columns-run-in-parallel", traced("tiled", 0, tile=16), claims.UNTESTED),
        ("shared-memory-is-faster", roofs(250, 4300), claims.HOLDS),
        ("shared-memory-is-faster", roofs(50, 4300), claims.FAILS),
        ("shared-memory-is-faster", {"bandwidth": []}, claims.UNTESTED),
        ("registers-cost-occupancy", occupied(0.5), claims.HOLDS),
        ("registers-cost-occupancy", occupied(1.0), claims.FAILS),
        ("registers-cost-occupancy", {"occupancy": []}, claims.UNTESTED),
    ],
)
def test_verdicts_on_known_facts(gpu, name, facts, verdict):
    entry = next(entry for entry in CLAIMS if entry["id"] == name)
    found = claims.evaluate(entry, with_facts(gpu, **facts))
    assert (found["verdict"], "spread" in found["reason"]) == (verdict, False)


@pytest.mark.parametrize("entry", [e for e in CLAIMS if "not_here" not in e["quantity"]], ids=lambda entry: entry["id"])
def test_what_was_not_measured_is_not_judged(entry, gpu):
    """Every claim that is about what the study measures is untestable on a machine without a row."""
    empty = object.__new__(claims.Machine)
    facts = {name: table.head(0) for name, table in gpu.facts.items()}
    empty.__dict__.update(gpu.__dict__, facts=facts, rows=gpu.rows.head(0))
    if "limit(" in entry["quantity"] and "held(" not in entry["quantity"]:
        assert claims.evaluate(entry, gpu)["verdict"] != claims.UNTESTED, "it needs device.json alone"
    else:
        assert claims.evaluate(entry, empty)["verdict"] == claims.UNTESTED


def with_runs(machine, times, **runs):
    """As with_only, of points that ran several times: each has a factor of its time for the fastest and slowest run."""
    changed = with_only(machine, times)
    rows = changed.rows.assign(runs=3, samples=9)
    rows["run_low_ms"], rows["run_high_ms"] = rows["time_ms"] * runs["low"], rows["time_ms"] * runs["high"]
    changed.__dict__["rows"] = rows.astype(machine.rows.dtypes)
    return changed


@pytest.mark.parametrize(
    ("eight", "runs", "verdict", "depends"),
    [
        (397.9 * 1.03, {"low": 0.9999, "high": 1.0001}, claims.HOLDS, False),
        (397.9 * 1.03, {"low": 0.99, "high": 1.01}, claims.HOLDS, True),  # 3 % might be 1 %
        (397.9 * 1.005, {"low": 0.9999, "high": 1.0001}, claims.FAILS, False),
        (397.9 * 1.012, {"low": 0.99, "high": 1.01}, claims.FAILS, True),
    ],
)
def test_a_verdict_uses_what_lies_between_runs(gpu, eight, runs, verdict, depends):
    entry = next(entry for entry in CLAIMS if entry["id"] == "eight-tiles-are-slower")
    found = claims.evaluate(entry, with_runs(gpu, [(SEVEN, 397.9), (EIGHT, eight)], **runs))
    assert (found["verdict"], "smaller than the spread" in found["reason"]) == (verdict, depends)
    assert found["low"] < found["value"] < found["high"] and found["known"]
    again = claims.evaluate(entry, with_runs(gpu, [(SEVEN, 397.9), (EIGHT, eight)], **runs))
    assert again == found, "the same draws for the same points"


def test_the_bootstrap_covers_the_median_of_its_runs(gpu):
    """Three runs 1 % apart: medians of three draws lie between them; a point is exactly as fast as itself."""
    row = with_runs(gpu, [(SEVEN, 100.0)], low=0.99, high=1.01).rows.iloc[0]
    draws = claims.bootstrap(row)
    assert len(draws) == claims.DRAWS
    assert 98.7 < min(draws) < 99.2 and 100.8 < max(draws) < 101.3 and abs(np.median(draws) - 100) < 0.3
    exact = claims.Spread.drawn(100.0, draws)
    assert (exact / exact).low == (exact / exact).high == 1
    assert (2 * exact).low == pytest.approx(2 * exact.low)
    mixed = exact / claims.Spread(10, 9, 11)
    assert mixed.draws is None and (mixed.low, mixed.high) == (exact.low / 11, exact.high / 9)


def test_what_is_best_within_the_range_of_the_runs_is_named(gpu):
    times = [(SEVEN | OF_3, 100.0), (EIGHT | OF_3, 100.5)]
    entry = next(entry for entry in CLAIMS if entry["id"] == "best-ntb")
    close = claims.evaluate(entry, with_runs(gpu, times, low=0.99, high=1.01))
    assert (close["verdict"], close["low"], close["high"]) == (claims.HOLDS, 7, 8) and "spread" in close["reason"]
    apart = claims.evaluate(entry, with_runs(gpu, times, low=0.999, high=1.001))
    assert (apart["low"], apart["high"], apart["reason"]) == (7, 7, "")


def test_choices_are_named(gpu):
    """A pair of blocks is shown in words, and one that ties with another within the spread depends on it."""
    entry = next(entry for entry in CLAIMS if entry["id"] == "double-changes-the-block")
    times = [*IN_FLOAT, (IN_DOUBLE[1], 300), (IN_DOUBLE[2], 310)]
    found = claims.evaluate(entry, with_only(gpu, times))
    assert found["value"] == "16 × 64 and 16 × 64"
    tie = [*IN_FLOAT, (IN_DOUBLE[1], 300), (IN_DOUBLE[2], 300.1)]
    found = claims.evaluate(entry, with_only(gpu, tie))
    assert (found["verdict"], found["reason"]) == (claims.FAILS, "depends on a difference smaller than the spread")


def test_untestable_says_why(gpu, emulator):
    found = claims.evaluate(claim("time(kernel='naive', dtype='float', cube=8192)"), emulator)
    assert (found["verdict"], found["reason"]) == (claims.UNTESTED, "there is no GPU here")
    found = claims.evaluate(claim("time(kernel='multi_tile', dtype='double', tile=32, ntb=16, cube=8192)"), gpu)
    assert found["verdict"] == claims.UNTESTED
    assert "invalid_launch" in found["reason"]
    found = claims.evaluate(claim("time(kernel='kij', dtype='float', cube=8192)"), emulator)
    assert "timeout" in found["reason"]


@pytest.mark.parametrize(
    ("quantity", "message"),
    [
        ("time(kernle='naive')", "no column 'kernle'"),
        ("traffic('sectors', kernel='naive')", "no column 'sectors'"),
        ("tiem(kernel='naive')", "'tiem' is undefined"),
        ("time(kernel='naive'", "test.quantity"),
        ("limit('threads')", "no 'threads' in limits"),
    ],
)
def test_broken_expressions(quantity, message, gpu, evidence):
    with pytest.raises(UserError, match=message):
        claims.evaluate(claim(quantity), gpu)
    entry = CLAIMS[0] | claim(quantity)
    found = set(claims.verdicts([entry], evidence)["verdict"])  # without a GPU some functions have nothing to ask
    assert claims.BROKEN in found <= {claims.BROKEN, claims.UNTESTED}, "the report goes on"


def test_expressions_cannot_reach_into_python(gpu):
    for quantity in ("time.__globals__", "().__class__.__bases__", "best.__func__"):
        with pytest.raises(UserError):
            claims.evaluate(claim(quantity), gpu)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sorce": "a"}, "unknown key 'sorce'; did you mean 'source'"),
        ({"source": "f"}, "expected a, b, c, d or e"),
        ({"published": [100]}, "published"),
    ],
)
def test_the_file_is_strict(change, message, tmp_path):
    file = tmp_path / "claims.yaml"
    file.write_text(pd.Series([CLAIMS[0] | change]).to_json(orient="records"))  # JSON is YAML
    with pytest.raises(UserError, match=message):
        claims.load(file)


def test_ids_are_unique(tmp_path):
    file = tmp_path / "claims.yaml"
    file.write_text(pd.Series([CLAIMS[0], CLAIMS[0]]).to_json(orient="records"))
    with pytest.raises(UserError, match="occurs twice"):
        claims.load(file)


def test_side_by_side(evidence):
    table = claims.side_by_side(claims.verdicts(CLAIMS, evidence), evidence).set_index("id")
    assert len(table) == len(CLAIMS)
    row = table.loc["best-ntb"]
    assert row["verdict emulator"] == "cannot be tested here"
    assert row["verdict nvidia-h200"] == "holds", "a recorded verdict is not about this machine"
    assert (row["published"], row["measured nvidia-h200"]) == ("7", "7")
    assert "112" in table.loc["shared-bytes-a-thread", "published"]
    assert "are 114 B" in table.loc["shared-bytes-a-thread", "why"]


def test_spread_arithmetic():
    a, b = claims.Spread(10, 9, 11), claims.Spread(2, 1, 4)
    assert a / b == claims.Spread(5, 9 / 4, 11)
    assert a - b == claims.Spread(8, 5, 10)
    assert 100 * (a / 10 - 1) == claims.Spread(0, 100 * (9 / 10 - 1), 100 * (11 / 10 - 1))
    assert 20 / b == claims.Spread(10, 5, 20)
    assert 1 - a == claims.Spread(-9, -10, -8)
    assert dataclasses.asdict(a + 1)["high"] == 12
