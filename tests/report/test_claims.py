"""The claims: each can be evaluated, and each verdict is tested on data for which the answer is known."""

import dataclasses

import pandas as pd
import pytest
import synthetic

from tilewise import RECORDED, UserError
from tilewise.evidence import load_evidence
from tilewise.explain import quantities
from tilewise.report import claims
from tilewise.report.claims import Verdict
from tilewise.report.page import Page

CLAIMS = claims.load()


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    """An invented GPU beside a machine without one."""
    folder = tmp_path_factory.mktemp("claims")
    synthetic.write(folder / "recorded/nvidia-h200", with_traffic=True)
    synthetic.write(folder / "results/emulator", "emulator", with_traffic=True)
    return load_evidence([folder / "results/emulator"], recorded=folder / "recorded")


@pytest.fixture(scope="module")
def gpu(evidence):
    return quantities.Machine(evidence, evidence.gpus[0])


@pytest.fixture(scope="module")
def emulator(evidence):
    return quantities.Machine(evidence, evidence.platforms[0])


def claim(quantity, holds_when="value == published", published=1, **keys):
    """A claim about an expression."""
    said = {"id": "test", "quantity": quantity, "holds_when": holds_when, "published": published}
    return claims.cases(said | keys)[0]


def named(name):
    """The claim `id`, or of `id: words` the case with these words."""
    name, _, words = name.partition(": ")
    own = [case for entry in CLAIMS if entry["id"] == name for case in claims.cases(entry)]
    [case] = [case for case in own if not words or case["case"] == words]
    return case


def on(machine, gpu):
    """The same machine, whose GPU has this name."""
    changed = object.__new__(quantities.Machine)
    device = dataclasses.replace(machine.platform.device, gpu=machine.platform.device.gpu | {"name": gpu})
    changed.__dict__.update(machine.__dict__, platform=dataclasses.replace(machine.platform, device=device))
    return changed


def with_times(machine, times):
    """The same machine with (time, q1, q3) in ms for the tiled kernel by tile, float at 8192 cubed."""
    rows = machine.rows.copy()
    for tile, values in times.items():
        fits = (rows["kernel"] == "tiled") & (rows["tile"] == tile) & (rows["dtype"] == "float") & (rows["n"] == 8192)
        rows.loc[
            (fits & (rows["m"] == 8192) & (rows["p"] == 8192)).fillna(False), ["time_ms", "time_q1_ms", "time_q3_ms"]
        ] = values
    changed = object.__new__(quantities.Machine)
    changed.__dict__.update(machine.__dict__, rows=rows)
    return changed


def with_only(machine, times):
    """The same machine, on which only these kernels ran, with these times."""
    rows = []
    for columns, time in times:
        row = machine.rows[(machine.rows["kernel"] == columns["kernel"]) & (machine.rows["status"] == "ok")].iloc[0]
        measured = {"time_ms": time, "time_q1_ms": time * 0.999, "time_q3_ms": time * 1.001, "samples": 10}
        rows.append(row.to_dict() | SQUARE | columns | measured)
    changed = object.__new__(quantities.Machine)
    changed.__dict__.update(machine.__dict__, rows=pd.DataFrame(rows).astype(machine.rows.dtypes))
    return changed


@pytest.mark.parametrize("entry", CLAIMS, ids=lambda entry: entry["id"])
def test_every_expression_can_be_evaluated(entry, gpu, emulator):
    """A column that does not exist raises an error here, not in a reader's report."""
    for case in claims.cases(entry):
        for machine in (gpu, emulator):
            found = claims.evaluate(case, machine)
            assert found["verdict"] in set(Verdict) - {Verdict.BROKEN}
            assert (found["value"] is None) == (found["verdict"] == Verdict.UNTESTED)


def test_all_sources_speak():
    assert {entry["source"] for entry in CLAIMS} == set("abcde")
    assert len(CLAIMS) >= 25


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("double-costs-30-percent", 100 * (2826.502 / 2179.101807 - 1)),
        ("most-memory-can-be-allocated", 30536 / 31020),
        ("tiles-beat-naive", 2179.101807 / 885.436859),
        ("tiles-gain: (8192, 8192, 8192)", 2179.101807 / 885.436859),
        ("tiles-gain: (1024, 1024, 1024)", 3.628693 / 2.154752),
        ("tiles-gain: (1024, 1024, 8192)", 42.841162 / 12.527520),
        ("tiles-gain: (8192, 8192, 1024)", 271.195058 / 105.650368),
        ("tiles-gain: (8192, 1024, 8192)", 290.632660 / 131.119908),
        ("gain-of-ntb: as the source's", 896.6119 / 397.8701),
        ("eight-tiles-are-slower: as the source's", 100 * (409.9855 / 397.8701 - 1)),
        ("one-tile-is-tiled", 896.6119 / 885.436859),
        ("ragged-beats-cpu", 311.685333 / 1.652032),
        ("naive-uses-little-of-the-peak", 100 * 750 / 494700),
    ],
)
def test_published_figures_follow_from_the_tables(name, published):
    entry = named(name)
    assert entry["published"] == pytest.approx(published, rel=0.016)


#: A square product, and the columns that tell the rows of a claim apart.
SQUARE = {"n": 8192, "p": 8192, "m": 8192, "dtype": "float"}
NAIVE, TILED = ({"kernel": name} for name in ("naive", "tiled"))
ONE, SEVEN, EIGHT = ({"kernel": "multi_tile", "task": "task3", "tile": 32, "ntb": ntb} for ntb in (1, 7, 8))
SIXTEEN = {"kernel": "multi_tile", "task": "task3", "tile": 16, "ntb": 16}
MANY = {"kernel": "multi_tile", "task": "task3", "tile": 32, "ntb": 32}
NAIVE = NAIVE | {"block_x": 64, "block_y": 16}
NAIVE_512 = {"kernel": "naive", "block_x": 512, "block_y": 2}  # which source a did not try
LOOP, CUBLAS, RING = ({"kernel": name} for name in ("kij", "cublas", "tma_ring"))
DOUBLE = {"dtype": "double"}
#: ms at which a product at 4 FLOP per byte of the invented GPU's memory would be at the ceiling.
AT_CEILING = 2e-6 * 8192**3 / (4 * 4917.0)
#: What source a tried.
BLOCKS, COUNTS = ("block_x", (8, 16, 32, 64, 128, 256)), ("ntb", (1, 2, 4, 6, 7, 8))


def beside(rows, choices, time):
    """The rows, and one for every other of the choices, with this time."""
    column, values = choices
    known = {columns[column] for columns, _ in rows}
    return [*rows, *((rows[0][0] | {column: value}, time) for value in values if value not in known)]


IN_DOUBLE = [
    {"kernel": "naive", "task": "task1b", "dtype": "double", "block_x": x, "block_y": 1024 // x} for x in (8, 16, 256)
]

NARROW = {"kernel": "naive", "task": "task1b", "dtype": "double", "block_x": 1024, "block_y": 1}
IN_FLOAT = [
    ({"kernel": "naive", "task": "task1a", "block_x": x, "block_y": y}, time)
    for x, y, time in ((16, 64, 190), (32, 32, 205), (8, 128, 300), (64, 16, 220), (128, 8, 230), (256, 4, 240))
]
PLAIN = {"kernel": "multi_tile_unbounded"}
TESTED, UNTESTED = (
    {"kernel": name, "task": "rectangular", "tile": 32, "n": 3008} for name in ("tiled_inner_test", "tiled")
)
IN_TILES = {"kernel": "tiled", "task": "task2a"}
SHAPES = {  # claim -> shape, and source a's two times in ms
    "tiles-gain: (1024, 1024, 1024)": ({"n": 1024, "p": 1024, "m": 1024}, 3.628693, 2.154752),
    "tiles-gain: (1024, 1024, 8192)": ({"n": 1024, "p": 8192, "m": 1024}, 42.841162, 12.527520),
    "tiles-gain: (8192, 8192, 1024)": ({"n": 8192, "p": 1024, "m": 8192}, 271.195058, 105.650368),
    "tiles-gain: (8192, 1024, 8192)": ({"n": 8192, "p": 8192, "m": 1024}, 290.632660, 131.119908),
}
#: On the source's figures it holds, on a gain of 1.3 it differs.
GAINS = [
    (name, [(NAIVE | shape, naive), (TILED | shape, tiled)], verdict)
    for name, (shape, *source) in SHAPES.items()
    for naive, tiled, verdict in ((*source, Verdict.HOLDS), (1.3, 1.0, Verdict.DIFFERS))
]
#: Source a found 16 to be the best width at all shapes but the square one.
WIDTHS = [
    (name.replace("tiles-gain", "best-tile"), [(IN_TILES | shape | {"tile": best}, 1.0), (other, 1.1)], verdict)
    for name, (shape, *_) in SHAPES.items()
    for best, verdict in ((16, Verdict.HOLDS), (32, Verdict.DIFFERS))
    for other in [IN_TILES | shape | {"tile": 48 - best}]
]
SQUARE_BLOCK = {"kernel": "naive", "task": "task1a", "block_x": 32, "block_y": 32}


@pytest.mark.parametrize(
    ("name", "times", "verdict"),
    [
        *GAINS,
        *WIDTHS,
        ("tiles-beat-naive", [(NAIVE, 175), (TILED, 126)], Verdict.HOLDS),
        ("tiles-beat-naive", [(NAIVE, 125), (TILED, 126)], Verdict.FAILS),
        ("tiles-gain: (8192, 8192, 8192)", [(NAIVE, 175), (TILED, 126)], Verdict.DIFFERS),
        ("tiles-gain: (8192, 8192, 8192)", [(NAIVE, 300), (TILED, 126)], Verdict.HOLDS),
        ("tiles-gain: (8192, 8192, 8192)", [(NAIVE, 400), (TILED, 126)], Verdict.DIFFERS),  # not one-sided
        ("tiles-gain: (8192, 8192, 8192)", [(NAIVE_512, 126), (NAIVE, 300), (TILED, 126)], Verdict.HOLDS),
        ("gpu-100-times-cpu", [(LOOP, 20600), (NAIVE, 200)], Verdict.HOLDS),
        ("gpu-100-times-cpu", [(LOOP, 300_000), (NAIVE, 200)], Verdict.DIFFERS),
        ("fewer-loads-make-ntb-fast", [(ONE, 129), (SIXTEEN, 86)], Verdict.FAILS),
        ("fewer-loads-make-ntb-fast", [(ONE, 129), (SIXTEEN, 137)], Verdict.HOLDS),
        ("eight-tiles-are-slower: with launch bounds", [(SEVEN, 80.4), (EIGHT, 80.0)], Verdict.DIFFERS),
        ("eight-tiles-are-slower: with launch bounds", [(SEVEN, 79.6), (EIGHT, 80.0)], Verdict.HOLDS),
        ("eight-tiles-are-slower: as the source's", [(SEVEN | PLAIN, 87.9), (EIGHT | PLAIN, 79.0)], Verdict.DIFFERS),
        ("worst-double-block", beside([(IN_DOUBLE[0], 480)], BLOCKS, 300), Verdict.HOLDS),
        (
            "worst-double-block",
            beside([(IN_DOUBLE[0], 480), (NARROW, 800)], BLOCKS, 300),
            Verdict.HOLDS,
        ),  # not of the six
        ("worst-double-block", beside([(IN_DOUBLE[0], 300), (IN_DOUBLE[2], 480)], BLOCKS, 310), Verdict.DIFFERS),
        ("double-changes-the-block", [*IN_FLOAT, *beside([(IN_DOUBLE[1], 300)], BLOCKS, 310)], Verdict.DIFFERS),
        ("double-changes-the-block", [*IN_FLOAT, *beside([(IN_DOUBLE[2], 300)], BLOCKS, 310)], Verdict.HOLDS),
        ("best-float-block: (8192, 8192, 8192)", IN_FLOAT, Verdict.HOLDS),
        ("best-float-block: (8192, 8192, 8192)", [*IN_FLOAT, (NAIVE_512 | {"task": "task1a"}, 100)], Verdict.HOLDS),
        ("best-float-block: (8192, 8192, 8192)", [(IN_FLOAT[0][0], 208), *IN_FLOAT[1:]], Verdict.DIFFERS),
        (
            "best-ntb: with launch bounds",
            beside([(SEVEN, 79.6), (EIGHT, 80.0)], COUNTS, 200),
            Verdict.HOLDS,
        ),
        (
            "best-ntb: with launch bounds",
            beside([(SEVEN, 82.0), (EIGHT, 79.6)], COUNTS, 200),
            Verdict.DIFFERS,
        ),
        (
            "best-ntb: with launch bounds",
            beside([(MANY, 77), (SEVEN, 79), (EIGHT, 80)], COUNTS, 200),
            Verdict.HOLDS,
        ),
        (
            "best-ntb: as the source's",
            beside([(SEVEN | PLAIN, 79.6), (EIGHT | PLAIN, 80.0)], COUNTS, 200),
            Verdict.HOLDS,
        ),
        (
            "best-ntb: as the source's",
            beside([(SEVEN | PLAIN, 87.9), (EIGHT | PLAIN, 79.0)], COUNTS, 200),
            Verdict.DIFFERS,
        ),
        ("gain-of-ntb: as the source's", [(ONE | PLAIN, 897), (SEVEN | PLAIN, 398)], Verdict.HOLDS),
        ("gain-of-ntb: as the source's", [(ONE | PLAIN, 129), (SEVEN | PLAIN, 80)], Verdict.DIFFERS),
        ("edge-tests-cost: float, tile 32", [(TESTED, 4.2), (UNTESTED, 3.1)], Verdict.HOLDS),
        ("edge-tests-cost: float, tile 32", [(TESTED, 3.1), (UNTESTED, 3.2)], Verdict.FAILS),
        ("edge-tests-cost: double, tile 32", [(TESTED | DOUBLE, 10.1), (UNTESTED | DOUBLE, 10.3)], Verdict.FAILS),
        ("cublas-is-faster: the source's kernel", [(TILED, 126), (CUBLAS, 21)], Verdict.HOLDS),
        ("cublas-is-faster: the fastest on the CUDA cores", [(RING, 19), (CUBLAS, 21)], Verdict.FAILS),
        ("cublas-is-faster: the fastest on the CUDA cores", [(RING, 23), (CUBLAS, 21)], Verdict.HOLDS),
        ("one-tile-is-tiled", [(ONE | PLAIN, 125), (TILED | {"tile": 32}, 126)], Verdict.HOLDS),
        ("one-tile-is-tiled", [(ONE | PLAIN, 100), (TILED | {"tile": 32}, 126)], Verdict.FAILS),
        ("bandwidth-limits-tiles", [(TILED | {"tile": 16}, AT_CEILING / 0.42)], Verdict.FAILS),
        ("bandwidth-limits-tiles", [(TILED | {"tile": 16}, AT_CEILING / 0.9)], Verdict.HOLDS),
        ("bandwidth-limits-naive", [(NAIVE, 16 * AT_CEILING / 5.6)], Verdict.FAILS),
        ("bandwidth-limits-naive", [(NAIVE, 16 * AT_CEILING / 0.9)], Verdict.HOLDS),
        ("larger-blocks-are-better", [(IN_TILES | {"tile": 16}, 136), (IN_TILES | {"tile": 32}, 126)], Verdict.HOLDS),
        ("larger-blocks-are-better", [(IN_TILES | {"tile": 16}, 126), (IN_TILES | {"tile": 32}, 136)], Verdict.FAILS),
        ("fewer-loads-are-a-huge-win", [(SQUARE_BLOCK, 120), (IN_TILES | {"tile": 32}, 126)], Verdict.FAILS),
        ("fewer-loads-are-a-huge-win", [(SQUARE_BLOCK, 201), (IN_TILES | {"tile": 32}, 126)], Verdict.HOLDS),
    ],
)
def test_verdicts_on_known_times(gpu, name, times, verdict):
    entry = named(name)
    found = claims.evaluate(entry, with_only(gpu, times))
    assert (found["verdict"], found["reason"]) == (verdict, "")
    choice = entry["quantity"].startswith(("best(", "worst(", "pair("))  # the best of what is left is one, too
    if len(times) > 1 and not choice:
        without = claims.evaluate(entry, with_only(gpu, times[:-1]))
        assert (without["verdict"], "not measured" in without["reason"]) == (Verdict.UNTESTED, True)


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [(["ok", "ok"], Verdict.HOLDS), (["ok", "incorrect"], Verdict.FAILS), (["invalid_launch"], Verdict.UNTESTED)],
)
@pytest.mark.parametrize(
    ("name", "kernels"),
    [("tiles-from-loops-are-right", ["tiled_transposed"]), ("padding-is-right", ["tiled", "multi_tile"])],
)
def test_verdicts_on_products(gpu, name, kernels, statuses, verdict):
    entry = named(name)
    rows = [({"kernel": kernel, "status": status}, 1.0) for kernel in kernels for status in statuses]
    assert claims.evaluate(entry, with_only(gpu, rows))["verdict"] == verdict


@pytest.mark.parametrize(
    ("card", "measured", "verdict"),
    [
        ("NVIDIA H100 80GB HBM3", 3050, Verdict.HOLDS),
        ("NVIDIA H100 80GB HBM3", 2000, Verdict.FAILS),
        ("NVIDIA H200", 4300, Verdict.DIFFERS),
        ("NVIDIA H200", 3050, Verdict.HOLDS),
    ],
)
def test_what_a_source_measured_on_another_card_differs(gpu, card, measured, verdict):
    there = with_facts(on(gpu, card), **roofs(250, measured))
    assert claims.evaluate(named("memory-delivers-3-tb-s"), there)["verdict"] == verdict


@pytest.mark.parametrize(
    ("slower", "low", "verdict"),
    [(1.005, 1.004, Verdict.AS_GOOD), (1.02, 1.019, Verdict.DIFFERS), (1.02, 0.99, Verdict.AS_GOOD)],
)
def test_a_choice_that_costs_little_is_as_good_as_the_best(gpu, slower, low, verdict):
    """Within a hundredth of the best, or within the range of the runs: the source's choice is no worse."""
    rows = with_only(gpu, beside([(SEVEN, 100 * slower), (EIGHT, 100)], COUNTS, 200))
    rows.rows.loc[rows.rows["ntb"] == 7, "time_q1_ms"] = 100 * low
    assert claims.evaluate(named("best-ntb: with launch bounds"), rows)["verdict"] == verdict


def test_the_best_of_what_a_source_tried_needs_all_of_it(gpu):
    """The quick study tries fewer blocks; if the source's is not among them, another one is not better."""
    found = claims.evaluate(named("best-float-block: (8192, 8192, 8192)"), with_only(gpu, IN_FLOAT[1:]))
    assert (found["verdict"], found["reason"]) == (Verdict.UNTESTED, "not measured: block_x 16")


def test_a_choice_that_a_recorded_run_does_not_name_is_not_judged(gpu):
    for name, lost in (("best-float-block: (8192, 8192, 8192)", "block_y"), ("best-ntb: with launch bounds", "ntb")):
        machine = with_only(gpu, [*IN_FLOAT, *beside([(SEVEN, 79.6)], COUNTS, 80.0)])
        machine.rows[lost] = pd.NA
        assert claims.evaluate(named(name), machine)["verdict"] == Verdict.UNTESTED
        everything = claim(f"best('{'block' if lost == 'block_y' else lost}', dtype='float')")
        assert "is not known" in claims.evaluate(everything, machine)["reason"]


def test_what_follows_from_definitions_is_no_measurement(gpu):
    true, false = claim("4", published=4, arithmetic=True), claim("4", published=5, arithmetic=True)
    assert claims.evaluate(true, gpu)["verdict"] == Verdict.ARITHMETIC
    assert claims.evaluate(false, gpu)["verdict"] == Verdict.FAILS
    assert claims.evaluate(named("padded-grid-covers-the-edge"), gpu)["verdict"] == Verdict.ARITHMETIC


def test_the_formula_of_source_e_covers_every_ragged_width():
    for width in range(1, 200):
        for x in (2, 16, 32):
            needed, given = -(-width // x), width // x + (x + 1) // x
            assert given - needed == (width % x == 0), "as its note says"


def test_a_claim_has_the_verdict_of_its_least_favourable_case(evidence):
    assert Verdict.of_all([Verdict.HOLDS, Verdict.AS_GOOD, Verdict.UNTESTED]) is Verdict.AS_GOOD
    assert Verdict.of_all([Verdict.DIFFERS, Verdict.FAILS, Verdict.ARITHMETIC]) is Verdict.FAILS
    assert Verdict.of_all([Verdict.UNTESTED]) is Verdict.UNTESTED
    cases = [{"case": str(value), "names": {"value_of": value}} for value in (1, 2)]
    entry = CLAIMS[0] | claim("value_of", "value < 2") | {"cases": cases}
    found = claims.verdicts([entry], evidence)
    own = found[found["platform"] == "nvidia-h200"]
    assert list(own["verdict"]) == [Verdict.HOLDS, Verdict.FAILS] and set(own["of_claim"]) == {Verdict.FAILS}
    assert claims.counts(own) == "does not hold 1", "one claim, one mark"
    [row] = claims.side_by_side(found, evidence)
    assert row["measured nvidia-h200"] == "1: 1, holds\n2: 2, does not hold"


def test_the_policy_stands_beside_the_count(evidence):
    words = Page(evidence).section("05-whole.md")
    for verdict in (Verdict.DIFFERS, Verdict.AS_GOOD, Verdict.ARITHMETIC):
        assert f"<em>{verdict}</em>" in words


def test_holds(gpu):
    quantity = "best('tile', task='task2a', kernel='tiled', dtype='float', cube=8192)"
    machine = with_times(gpu, {8: (214, 213, 215), 16: (135, 134, 136), 32: (126, 125, 127)})
    assert claims.evaluate(claim(quantity, published=32), machine)["verdict"] == Verdict.HOLDS
    assert claims.evaluate(claim(quantity, published=16), machine)["verdict"] == Verdict.FAILS


def test_a_difference_smaller_than_the_spread_is_named(gpu):
    quantity = "best('tile', task='task2a', kernel='tiled', dtype='float', cube=8192)"
    machine = with_times(gpu, {8: (214, 213, 215), 16: (127, 126, 128), 32: (126, 125, 127)})
    found = claims.evaluate(claim(quantity, published=32), machine)
    assert (found["verdict"], found["low"], found["high"]) == (Verdict.AS_GOOD, 16, 32)
    assert "smaller than the range of the runs" in found["reason"]


def test_ratios_carry_the_spread(gpu):
    machine = with_times(gpu, {16: (100, 90, 110), 32: (50, 40, 60)})
    narrow, wide = (f"time(kernel='tiled', dtype='float', tile={tile}, cube=8192)" for tile in (16, 32))
    quantity = f"{narrow} / {wide}"
    found = claims.evaluate(claim(quantity, "value >= published", published=1.9), machine)
    assert (found["value"], found["low"], found["high"]) == (2, 90 / 60, 110 / 40)
    assert (found["verdict"], found["reason"]) == (
        Verdict.AS_GOOD,
        "depends on a difference smaller than the range of the runs",
    )


def test_a_value_inside_the_range_counts_too():
    def answer(found, condition, published=64):
        functions = type("Any", (), {"functions": lambda self: {"found": found}})()
        return claims.evaluate(claim("found", condition, published), functions)["reason"]

    hangs = "depends on a difference smaller than the range of the runs"
    assert answer(quantities.Spread(256, 32, 256), "value == published") == hangs
    assert answer(quantities.Spread(64, -64, 64), "value != 0") == hangs
    assert answer(quantities.Spread(45, 20, 60), "abs(value - published) <= 5", 29.7) == hangs
    assert answer(quantities.Spread(256, 32, 256, among=(32, 256)), "value == published") == ""
    assert answer(quantities.Spread(256, 64, 256, among=(64, 256)), "value == published") == hangs


def test_of_one_run_the_spread_is_not_known(gpu):
    machine = with_times(gpu, {16: (100, 100, 100), 32: (50, 50, 50)})
    machine.rows.loc[machine.rows["tile"] == 16, "samples"] = 1
    narrow, wide = (f"time(kernel='tiled', dtype='float', tile={tile}, cube=8192)" for tile in (16, 32))
    found = claims.evaluate(claim(f"{narrow} / {wide}", "value >= published", published=1.9), machine)
    assert (found["verdict"], found["known"]) == (Verdict.HOLDS, False)
    assert found["reason"] == "from fewer than 3 samples, so the range is not known"
    assert claims.evaluate(claim(wide, "value >= published"), machine)["known"]


def test_what_the_emulator_refuses_is_no_verdict_on_cuda(gpu, emulator):
    quantity = "fact('launch_limits', 'error', block_x=33, block_y=33) == 'cudaErrorInvalidConfiguration'"
    assert claims.evaluate(claim(quantity), gpu)["verdict"] == Verdict.HOLDS
    assert claims.evaluate(claim(quantity), emulator)["verdict"] == Verdict.UNTESTED


def with_facts(machine, **tables):
    """The same machine with these rows of facts; a column that a row lacks is empty."""
    changed = object.__new__(quantities.Machine)
    facts = {
        name: pd.DataFrame(rows, columns=list(machine.facts[name])).convert_dtypes() for name, rows in tables.items()
    }
    changed.__dict__.update(machine.__dict__, facts=machine.facts | facts)
    return changed


def gate(difference):
    point = {"kernel": "multi_tile", "operands": "positive", "n": 1100, "p": 1100, "m": 1100}
    return {"accuracy": [point | {"loop_difference": difference}]}


def traced(kernel, races, **choice):
    return {"traffic": [{"kernel": kernel, "dtype": "float", "n": 32, "p": 64, "m": 96, "races": races} | choice]}


def roofs(wavefronts, memory):
    measured = {"shared_wavefronts_16_bytes": wavefronts, "memory_bandwidth": memory}
    about = {"dtype": "float", "noise": 0.001}
    return {"bandwidth": [about | {"quantity": name, "measured": value} for name, value in measured.items()]}


DRAM = ("counters", "dram_read_bytes", 4096)


def tensor_rate(rate):
    return {"bandwidth": [{"quantity": "tensor_rate", "dtype": "tf32", "measured": rate, "noise": 0.001}]}


def largest(n, ms):
    return {"maximum_size": [{"kernel": "naive", "timed_n": n, "time_ms": ms}]}


def occupied(occupancy):
    choice = {"kernel": "multi_tile_unbounded", "dtype": "double", "tile": 32, "ntb": 10}
    return {"occupancy": [choice | {"occupancy": occupancy}]}


def bounds(without, within):
    """The occupancy of source a's kernel without and with launch bounds."""
    held = {"multi_tile_unbounded": without, "multi_tile": within}
    choice = {"dtype": "float", "tile": 32, "ntb": 7}
    return {"occupancy": [choice | {"kernel": name, "occupancy": share} for name, share in held.items()]}


def spills(many, few, architecture="sm_90"):
    """Bytes that a thread keeps in local memory, with many and with few sums."""
    code = {"multi_tile<double, 16, 32>": many, "multi_tile<double, 16, 16>": few}
    about = {"kernel": "multi_tile", "dtype": "double", "architecture": architecture}
    return {"instructions": [about | {"instance": name, "spill_bytes": count} for name, count in code.items()]}


def joules(naive, tiled):
    about = {"dtype": "float", "n": 8192, "p": 8192, "m": 8192}
    each = {"naive": naive, "tiled": tiled}
    return {"energy": [about | {"kernel": name, "joules_per_product": value} for name, value in each.items()]}


def sectors(naive, tiled, table="traffic", column="global_load_sectors", side=256):
    """What two kernels move, as the emulator or the GPU counts it."""
    about = {"dtype": "float", "n": side, "p": side, "m": side, "block_x": 32, "block_y": 32}
    each = [{"kernel": "naive", column: naive}, {"kernel": "tiled", "tile": 32, column: tiled}]
    return {table: [about | row for row in each]}


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
        ("transfers-are-the-bottleneck", whole_call(12.0, 15.0), Verdict.HOLDS),
        ("transfers-are-the-bottleneck", whole_call(6.0, 15.0), Verdict.FAILS),
        ("transfers-are-the-bottleneck", {"cold_start": []}, Verdict.UNTESTED),
        ("tiles-are-loaded-again", loads(8.0, 256), Verdict.ARITHMETIC),
        ("tiles-are-loaded-again", loads(8.0, 32), Verdict.FAILS),  # of one block
        ("tiles-are-loaded-again", {"traffic": []}, Verdict.UNTESTED),
        ("two-by-two-asks-8-times", loads(0.25, 256), Verdict.ARITHMETIC),
        ("two-by-two-asks-8-times", loads(0.5, 256), Verdict.FAILS),
        ("two-by-two-asks-8-times", {"traffic": []}, Verdict.UNTESTED),
        ("ragged-error", gate(5.5e-8), Verdict.HOLDS),
        ("ragged-error", gate(5.9e-7), Verdict.FAILS),
        ("ragged-error", {"accuracy": []}, Verdict.UNTESTED),
        ("barriers-are-needed", traced("without_barriers", 12), Verdict.HOLDS),
        ("barriers-are-needed", traced("without_barriers", 0), Verdict.FAILS),
        ("barriers-are-needed", traced("without_barriers", None), Verdict.UNTESTED),
        ("k-races", traced("parallel_k", 3), Verdict.HOLDS),
        ("k-races", traced("parallel_k", 0), Verdict.FAILS),
        ("k-races", traced("tiled", 0), Verdict.UNTESTED),
        ("rows-and-columns-run-in-parallel", traced("tiled_transposed", 0, tile=16), Verdict.HOLDS),
        ("rows-and-columns-run-in-parallel", traced("tiled_transposed", 9, tile=16), Verdict.FAILS),
        ("rows-and-columns-run-in-parallel", traced("tiled", 0, tile=16), Verdict.UNTESTED),
        ("shared-memory-is-faster", roofs(250, 4300), Verdict.HOLDS),
        ("shared-memory-is-faster", roofs(50, 4300), Verdict.FAILS),
        ("shared-memory-is-faster", {"bandwidth": []}, Verdict.UNTESTED),
        ("global-memory-costs-energy: tiled", joules(99.9, 60.0), Verdict.HOLDS),
        ("global-memory-costs-energy: tiled", joules(60.0, 99.9), Verdict.FAILS),
        ("global-memory-costs-energy: tiled", {"energy": []}, Verdict.UNTESTED),
        ("tiling-saves-bandwidth: sectors that warps request", sectors(20, 1), Verdict.HOLDS),
        ("tiling-saves-bandwidth: sectors that warps request", sectors(1, 1), Verdict.FAILS),
        ("tiling-saves-bandwidth: bytes read from memory", sectors(4, 8, *DRAM), Verdict.FAILS),
        ("tiling-saves-bandwidth: bytes read from memory", sectors(8, 4, *DRAM), Verdict.HOLDS),
        ("tiling-saves-bandwidth: bytes read from memory", {"counters": []}, Verdict.UNTESTED),
        ("tensor-cores-peak-at-495-tflops", tensor_rate(489_700), Verdict.HOLDS),
        ("tensor-cores-peak-at-495-tflops", tensor_rate(165_000), Verdict.DIFFERS),
        ("tensor-cores-peak-at-495-tflops", {"bandwidth": []}, Verdict.UNTESTED),
        ("largest-product-takes-121-s", largest(30536, 120_000), Verdict.HOLDS),
        ("largest-product-takes-121-s", largest(30536, 10_700), Verdict.DIFFERS),
        ("largest-product-takes-121-s", largest(16384, 121_000), Verdict.UNTESTED),
        ("registers-cost-occupancy", occupied(0.5), Verdict.HOLDS),
        ("registers-cost-occupancy", occupied(1.0), Verdict.FAILS),
        ("registers-cost-occupancy", {"occupancy": []}, Verdict.UNTESTED),
    ],
)
def test_verdicts_on_known_facts(gpu, name, facts, verdict):
    entry = named(name)
    found = claims.evaluate(entry, with_facts(on(gpu, "NVIDIA H200"), **facts))
    assert (found["verdict"], "range of the runs" in found["reason"]) == (verdict, False)


@pytest.mark.parametrize(
    ("name", "facts", "times", "verdict"),
    [
        ("occupancy-limits-speed", bounds(0.5, 1.0), (87.9, 79.6), Verdict.HOLDS),
        ("occupancy-limits-speed", bounds(0.5, 1.0), (79.6, 87.9), Verdict.FAILS),
        ("occupancy-limits-speed", bounds(1.0, 1.0), (87.9, 79.6), Verdict.UNTESTED),  # nothing differs
        ("occupancy-limits-speed", {"occupancy": []}, (87.9, 79.6), Verdict.UNTESTED),
        ("private-arrays-are-slow: tile 16, NTB 32", spills(9088, 0), (1120.0, 156.0), Verdict.HOLDS),
        ("private-arrays-are-slow: tile 16, NTB 32", spills(9088, 0), (156.0, 1120.0), Verdict.FAILS),
        ("private-arrays-are-slow: tile 16, NTB 32", spills(0, 0), (1120.0, 156.0), Verdict.UNTESTED),
        ("private-arrays-are-slow: tile 16, NTB 32", spills(9088, 0, "sm_80"), (1120.0, 156.0), Verdict.UNTESTED),
    ],
)
def test_times_tell_nothing_if_what_should_differ_is_the_same(gpu, name, facts, times, verdict):
    """The time of the kernel of which the claim says that it is slow, and that of the one beside it."""
    rows = [(SEVEN | PLAIN, times[0]), (SEVEN, times[1])]
    if name.startswith("private"):
        rows = [(SIXTEEN | DOUBLE | {"ntb": ntb}, time) for ntb, time in zip((32, 16), times)]
    assert claims.evaluate(named(name), with_facts(with_only(gpu, rows), **facts))["verdict"] == verdict


#: What needs no results: the claims about limits of the device, and arithmetic without a count.
OF_THE_DEVICE = {"blocks-end-at-1024-threads", "a-warp-is-32-threads", "shared-bytes-a-thread"}
OF_THE_DEVICE |= {"padded-grid-covers-the-edge"}


@pytest.mark.parametrize("case", [c for e in CLAIMS for c in claims.cases(e)], ids=lambda c: f"{c['id']} {c['case']}")
def test_what_was_not_measured_is_not_judged(case, gpu):
    """Every claim that is about what the study measures is untestable on a machine without a row."""
    empty = object.__new__(quantities.Machine)
    facts = {name: table.head(0) for name, table in gpu.facts.items()}
    empty.__dict__.update(gpu.__dict__, facts=facts, rows=gpu.rows.head(0))
    found = claims.evaluate(case, empty)["verdict"]
    assert (found == Verdict.UNTESTED) != (case["id"] in OF_THE_DEVICE)


def with_runs(machine, times, **runs):
    """As with_only, of points that ran several times: each has a factor of its time for the fastest and slowest run."""
    changed = with_only(machine, times)
    rows = changed.rows.assign(runs=3, samples=9)
    rows["run_low_ms"], rows["run_high_ms"] = rows["time_ms"] * runs["low"], rows["time_ms"] * runs["high"]
    changed.__dict__["rows"] = rows.astype(machine.rows.dtypes)
    return changed


@pytest.mark.parametrize(
    ("eight", "runs", "verdict"),
    [
        (397.9 * 1.03, {"low": 0.9999, "high": 1.0001}, Verdict.HOLDS),
        (397.9 * 1.03, {"low": 0.98, "high": 1.02}, Verdict.AS_GOOD),  # 3 % might be none
        (397.9 * 0.97, {"low": 0.9999, "high": 1.0001}, Verdict.DIFFERS),
        (397.9 * 0.99, {"low": 0.99, "high": 1.01}, Verdict.AS_GOOD),
    ],
)
def test_a_verdict_uses_the_range_of_the_runs(gpu, eight, runs, verdict):
    machine = with_runs(gpu, [(SEVEN, 397.9), (EIGHT, eight)], **runs)
    found = claims.evaluate(named("eight-tiles-are-slower: with launch bounds"), machine)
    assert (found["verdict"], "range of the runs" in found["reason"]) == (verdict, verdict == Verdict.AS_GOOD)
    ratios = [
        eight * end / (397.9 * other) for end, other in ((runs["low"], runs["high"]), (runs["high"], runs["low"]))
    ]
    assert [found["low"], found["high"]] == pytest.approx([100 * (ratio - 1) for ratio in ratios]) and found["known"]


def test_what_is_best_within_the_range_of_the_runs_is_named(gpu):
    times = beside([(SEVEN, 100.0), (EIGHT, 100.5)], COUNTS, 200.0)
    case = named("best-ntb: with launch bounds")
    close = claims.evaluate(case, with_runs(gpu, times, low=0.99, high=1.01))
    assert (close["verdict"], close["low"], close["high"]) == (Verdict.AS_GOOD, 7, 8) and "range" in close["reason"]
    apart = claims.evaluate(case, with_runs(gpu, times, low=0.999, high=1.001))
    assert (apart["verdict"], apart["low"], apart["high"], apart["reason"]) == (Verdict.HOLDS, 7, 7, "")


def test_a_best_is_known_without_a_range(gpu):
    times = beside([(SEVEN, 100.0), (EIGHT, 105)], COUNTS, 200.0)
    found = claims.evaluate(named("best-ntb: with launch bounds"), with_runs(gpu, times, low=float("nan"), high=1.0))
    assert (found["verdict"], found["value"], found["low"], found["high"]) == (Verdict.HOLDS, 7, 7, 7)


def test_choices_are_named(gpu):
    """A pair of blocks is shown in words, and one that ties with another within the spread depends on it."""
    entry = named("double-changes-the-block")
    times = [*IN_FLOAT, *beside([(IN_DOUBLE[1], 300)], BLOCKS, 310)]
    found = claims.evaluate(entry, with_only(gpu, times))
    assert found["value"] == "16 × 64 and 16 × 64"
    tie = [*IN_FLOAT, *beside([(IN_DOUBLE[1], 300), (IN_DOUBLE[2], 300.1)], BLOCKS, 400)]
    found = claims.evaluate(entry, with_only(gpu, tie))
    assert found["verdict"] == Verdict.AS_GOOD and "range of the runs" in found["reason"]


def test_untestable_says_why(gpu, emulator):
    found = claims.evaluate(claim("time(kernel='naive', dtype='float', cube=8192)"), emulator)
    assert (found["verdict"], found["reason"]) == (Verdict.UNTESTED, "there is no GPU here")
    found = claims.evaluate(claim("time(kernel='multi_tile', dtype='double', tile=32, ntb=16, cube=8192)"), gpu)
    assert found["verdict"] == Verdict.UNTESTED
    assert "invalid_launch" in found["reason"]
    found = claims.evaluate(claim("time(kernel='kij', dtype='float', cube=8192)"), emulator)
    assert "timeout" in found["reason"]


@pytest.mark.parametrize(
    ("quantity", "message"),
    [
        ("time(kernle='naive')", "no column 'kernle'"),
        ("fact('traffic', 'sectors', kernel='naive')", "no column 'sectors'"),
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
    assert Verdict.BROKEN in found <= {Verdict.BROKEN, Verdict.UNTESTED}, "the report goes on"


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
    table = {row["id"]: row for row in claims.side_by_side(claims.verdicts(CLAIMS, evidence), evidence)}
    assert len(table) == len(CLAIMS)
    row = table["best-ntb"]
    assert row["verdict emulator"] == "cannot be tested"
    assert row["verdict nvidia-h200"] == "holds", "a recorded verdict is not about this machine"
    assert (row["published"], row["measured nvidia-h200"]) == ("7", "7, holds"), "both cases say the same"
    assert row["why"].startswith("“The best performing kernel was for NTB = 7” (section 6). A warp reads")
    assert table["best-tile"]["published"].splitlines()[1] == "(1024, 1024, 1024): 16"
    assert "112" in table["shared-bytes-a-thread"]["published"]
    assert "are 114 B" in table["shared-bytes-a-thread"]["why"]


def test_spread_arithmetic():
    a, b = quantities.Spread(10, 9, 11), quantities.Spread(2, 1, 4)
    assert a / b == quantities.Spread(5, 9 / 4, 11)
    assert a - b == quantities.Spread(8, 5, 10)
    assert 100 * (a / 10 - 1) == quantities.Spread(0, 100 * (9 / 10 - 1), 100 * (11 / 10 - 1))
    assert 20 / b == quantities.Spread(10, 5, 20)
    assert 1 - a == quantities.Spread(-9, -10, -8)
    assert dataclasses.asdict(a + 1)["high"] == 12


@pytest.fixture(scope="module")
def recorded():
    """The recorded run of an H200."""
    evidence = load_evidence([], recorded=RECORDED)
    return quantities.Machine(evidence, next(gpu for gpu in evidence.gpus if gpu.name == "nvidia-h200"))


SIX_BLOCKS = [8, 16, 32, 64, 128, 256]
DRAM_GB_S = 4814.3  # of the data sheet
RECTANGLE = {"task": "rectangular", "dtype": "double", "tile": 32, "n": 3008, "p": 2016, "m": 4032}


def fastest(file, column="time_ms", **where):
    """The least value of a column among the rows of a recorded H200's file with these values, read by pandas alone."""
    rows = pd.read_csv(RECORDED / "nvidia-h200" / file, low_memory=False)
    for name, value in where.items():
        rows = rows[rows[name].isin(value if isinstance(value, list) else [value])]
    return rows[column].min()


def ms(kernel, **where):
    """Milliseconds of the fastest row of a kernel, by default in float at 8192 cubed."""
    cube = {"n": 8192, "p": 8192, "m": 8192, "dtype": "float"}
    return fastest("measurements.csv", kernel=kernel, **cube | where)


def tiles(kernel="multi_tile", **where):
    return ms(kernel, **{"task": "task3", "tile": 32, "ntb": 7} | where)


def energy_of(kernel):
    return fastest("facts/energy.csv", "joules_per_product", kernel=kernel, dtype="float")


def bytes_read(kernel, **where):
    return fastest("counters.csv", "dram_read_bytes", kernel=kernel, dtype="float", n=4096, **where)


def best_block_at_1024():
    cube = {"n": 1024, "p": 1024, "m": 1024, "task": "task1a"}
    x = min(SIX_BLOCKS, key=lambda x: ms("naive", block_x=x, **cube))
    return f"{x} × {1024 // x}"


def slower_percent(kernel):
    return 100 * (tiles(kernel, ntb=8) / tiles(kernel) - 1)


@pytest.mark.parametrize(
    ("name", "verdict", "value"),
    [
        ("occupancy-limits-speed", Verdict.HOLDS, lambda: tiles("multi_tile_unbounded") / tiles()),
        (
            "private-arrays-are-slow: tile 16, NTB 32",
            Verdict.HOLDS,
            lambda: tiles(dtype="double", tile=16, ntb=32) / tiles(dtype="double", tile=16, ntb=16),
        ),
        (
            "private-arrays-are-slow: tile 32, NTB 27",
            Verdict.HOLDS,
            lambda: tiles(dtype="double", ntb=27) / tiles(dtype="double", ntb=16),
        ),
        ("global-memory-costs-energy: tiled", Verdict.HOLDS, lambda: energy_of("naive") / energy_of("tiled")),
        ("global-memory-costs-energy: warp_tile", Verdict.HOLDS, lambda: energy_of("naive") / energy_of("warp_tile")),
        ("global-memory-costs-energy: tma_ring", Verdict.HOLDS, lambda: energy_of("naive") / energy_of("tma_ring")),
        ("tiling-saves-bandwidth: sectors that warps request", Verdict.HOLDS, lambda: 20),
        (
            "tiling-saves-bandwidth: bytes read from memory",
            Verdict.FAILS,
            lambda: bytes_read("naive", block_x=32, block_y=32) / bytes_read("tiled", tile=32),
        ),
        (
            "tensor-cores-peak-at-495-tflops",
            Verdict.HOLDS,
            lambda: fastest("facts/bandwidth.csv", "measured", quantity="tensor_rate", dtype="tf32") / 1000,
        ),
        (
            "largest-product-takes-121-s",
            Verdict.DIFFERS,
            lambda: fastest("facts/task1c.csv", kernel="naive", timed_n=30536) / 1000,
        ),
        ("fewer-loads-make-ntb-fast", Verdict.FAILS, lambda: tiles(ntb=1) / tiles(tile=16, ntb=16)),
        (
            "fewer-loads-are-a-huge-win",
            Verdict.HOLDS,
            lambda: ms("naive", task="task1a", block_x=32, block_y=32) / ms("tiled", task="task2a", tile=32),
        ),
        (
            "bandwidth-limits-tiles",
            Verdict.FAILS,
            lambda: 2 * 8192**3 / ms("tiled", tile=16) / 1e6 / (4 * DRAM_GB_S),
        ),
        (
            "edge-tests-cost: double, tile 32",
            Verdict.FAILS,
            lambda: ms("tiled_inner_test", **RECTANGLE) / ms("tiled", **RECTANGLE),
        ),
        (
            "cublas-is-faster: the fastest on the CUDA cores",
            Verdict.FAILS,
            lambda: ms("stream_k") / ms("cublas"),
        ),
        (
            "tiles-gain: (8192, 8192, 8192)",
            Verdict.DIFFERS,
            lambda: ms("naive", task="task1a", block_x=SIX_BLOCKS) / ms("tiled", task="task2a"),
        ),
        ("best-float-block: (1024, 1024, 1024)", Verdict.AS_GOOD, best_block_at_1024),
        ("best-ntb: with launch bounds", Verdict.HOLDS, lambda: 7),
        ("best-ntb: as the source's", Verdict.DIFFERS, lambda: 8),
        ("eight-tiles-are-slower: with launch bounds", Verdict.HOLDS, lambda: slower_percent("multi_tile")),
        ("eight-tiles-are-slower: as the source's", Verdict.DIFFERS, lambda: slower_percent("multi_tile_unbounded")),
    ],
)
def test_verdicts_on_the_recorded_run(recorded, name, verdict, value):
    """The verdicts that the pages' answers lean on, with quantities worked out here from the recorded files."""
    found, expected = claims.evaluate(named(name), recorded), value()
    assert found["verdict"] == verdict
    assert found["value"] == (expected if isinstance(expected, str) else pytest.approx(expected))


def test_the_causes_that_the_claims_name_are_in_the_record(recorded):
    seven = {"dtype": "float", "tile": 32, "ntb": 7}
    for kernel, registers, occupancy in (("multi_tile_unbounded", 40, 0.5), ("multi_tile", 32, 1.0)):
        held = [recorded.fact("occupancy", column, kernel=kernel, **seven) for column in ("registers", "occupancy")]
        assert held == [registers, occupancy]
    fastest = recorded.best("ntb", task="task3", kernel="multi_tile", dtype="float", tile=32, cube=8192).value
    assert fastest == 32, "a lower occupancy is no loss by itself"
    assert recorded.fact("occupancy", "occupancy", kernel="multi_tile", **seven | {"ntb": 32}) == 0.5
    many = {"kernel": "multi_tile", "dtype": "double", "instance": "multi_tile<double, 16, 32>"}
    assert [recorded.fact("instructions", column, **many) for column in ("spill_bytes", "spills")] == [9088, 1056]
    block = {"kernel": "naive", "dtype": "float", "block_x": 32, "block_y": 32, "cube": 256}
    assert recorded.fact("traffic", "sectors_per_request", **block) == 2.5, "four of a row of B, one of an element of A"
    joules = [
        recorded.fact("energy", "joules_per_product", kernel=kernel, dtype="float").value
        for kernel in ("naive", "tiled", "warp_tile", "tma_ring")
    ]
    assert joules == sorted(joules, reverse=True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"quantity": "time(kernel='kijj')"}, "test.quantity: there is no kernel 'kijj'; did you mean 'kij'?"),
        (
            {"quantity": "time(kernel=['naive', 'tield'])"},
            "test.quantity: there is no kernel 'tield'; did you mean",
        ),
        ({"quantity": "time(kernel=k)", "names": {"k": "kijj"}}, "test.quantity: there is no kernel 'kijj'"),
        ({"quantity": "time(kernel='naive', dtype='flaot')"}, "test.quantity: there is no dtype 'flaot'; .*'float'"),
        (
            {"quantity": "time(kernel='naive')", "holds_when": "value / published > 1", "published": "hundred"},
            "test.published: 'hundred' is text, and the quantity is a number; write a number",
        ),
    ],
)
def test_what_a_claim_names_in_vain_is_found_at_the_start(evidence, change, says):
    entry = {"id": "test", "quantity": "1", "holds_when": "true", "published": 1} | change
    with pytest.raises(UserError, match=f"^report/claims.yaml: {says}"):
        claims.check([entry], evidence)
