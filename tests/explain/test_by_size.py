"""The rate over the size: who is fastest where, and where a launch decides."""

import dataclasses

import pytest
import synthetic

from tilewise.evidence import load_evidence
from tilewise.explain import by_size
from tilewise.report import figures, tables
from tilewise.study import columns, points

NAME = "nvidia-h200"
#: µs of an empty kernel in the invented results.
EMPTY = 4.25


@pytest.fixture(scope="module")
def study():
    config = synthetic.config()
    return config | {"tasks": {name: config["tasks"][name] for name in ("task1a", "sizes", "bandwidth", "overhead")}}


@pytest.fixture(scope="module")
def evidence(tmp_path_factory, study):
    return load_evidence([synthetic.write(tmp_path_factory.mktemp("sizes") / NAME, study=study)])


@pytest.fixture
def of_rows(evidence):
    """A function that makes evidence of rows (kernel, n, ms) in bfloat16."""

    def made(*rows):
        at = [(points.point("sizes", kernel, "bfloat16", n, n, n), ms) for kernel, n, ms in rows]
        facts = [each.columns() | {"platform": NAME, "status": "ok", "time_ms": ms} for each, ms in at]
        facts = [row | {"gflops": 2e-6 * row["n"] ** 3 / row["time_ms"]} for row in facts]
        own = columns.frame(facts, "sizes", synthetic.parameters()).assign(task="sizes")
        return dataclasses.replace(evidence, facts=evidence.facts | {"sizes": own})

    return made


def test_the_fastest_own_kernel_stands_beside_the_library(of_rows):
    found = by_size.at_every_size(
        of_rows(
            ("cublas_bf16", 64, 0.005), ("clusters", 64, 0.0045),          # a launch decides
            ("cublas_bf16", 1024, 0.1), ("clusters", 1024, 0.09), ("mma_sync", 1024, 0.095),
            ("cublas_bf16", 2048, 0.5), ("clusters", 2048, 0.505),
            ("cublas_bf16", 4096, 1.0), ("clusters", 4096, 1.25), ("mma_sync", 4096, 1.3),
            ("clusters", 8192, 9.0),                                       # without a library
        )
    )  # fmt: skip
    shown = found[["n", "kernel", "percent_of_anchor", "rules"]].round(1).to_numpy().tolist()
    assert shown == [
        [64, "clusters", 111.1, "launch"],
        [1024, "clusters", 111.1, "own kernel"],
        [2048, "clusters", 99.0, "equal"],
        [4096, "clusters", 80.0, "library"],
    ]
    assert found["anchor_gflops"].iloc[-1] == pytest.approx(2e-6 * 4096**3 / 1.0)
    assert found["launch_gflops"].iloc[0] == pytest.approx(2e-3 * 64**3 / EMPTY)


def test_a_range_ends_where_somebody_else_is_fastest(of_rows):
    times = {16: 0.004, 64: 0.004, 1024: 0.09, 2048: 0.4, 4096: 1.2, 8192: 7.0}
    library = {16: 0.004, 64: 0.004, 1024: 0.1, 2048: 0.5, 4096: 1.0, 8192: 6.0}
    rows = [
        (kernel, n, ms) for kernel, each in (("clusters", times), ("cublas_bf16", library)) for n, ms in each.items()
    ]
    # A prime is no end of a range.
    found = by_size.size_ranges(of_rows(*rows, ("clusters", 1021, 0.2), ("cublas_bf16", 1021, 0.1)))
    assert found[["rules", "from_n", "to_n"]].to_numpy().tolist() == [
        ["launch", 16, 64],
        ["own kernel", 1024, 2048],
        ["library", 4096, 8192],
    ]


def test_floats_of_short_numbers_are_a_line_but_not_the_best_own_kernel(evidence):
    assert {"float_from_half", "stream_k"} <= set(by_size.over_size(evidence)["kernel"])
    assert "float_from_half" not in set(by_size.at_every_size(evidence)["kernel"])


def test_a_line_of_the_figure_is_the_fastest_choice_of_its_kernel(of_rows):
    rows = ("cublas_bf16", 2048, 0.5), ("clusters", 2048, 0.6), ("clusters", 2048, 0.55), ("mma_sync", 2048, 0.7)
    shown = by_size.below_roofs(of_rows(*rows))[["kernel", "time_ms"]].to_numpy().tolist()
    assert shown == [["cublas_bf16", 0.5], ["clusters", 0.55], ["mma_sync", 0.7]]


def test_the_figures_have_the_roofs_the_launch_and_the_shapes(evidence):
    drawn = figures.svg(figures.draw("rate_over_size", evidence))
    for words in ("a launch alone", "the units alone, measured", "stream_k", "cublas", "(2047, 2047, 2047): "):
        assert words in drawn
    assert "a launch alone" not in figures.svg(figures.task("sizes", evidence)), "other tasks measured it"
    drawn = figures.svg(figures.draw("shape_map", evidence))
    assert all(words in drawn for words in ("16384 × 64", "64 × 16384", "512 × 512", "bfloat16", "8192"))
    assert "tf32" not in drawn, "it was timed at squares alone"


def test_without_rows_there_are_empty_tables_and_figures_that_say_so(evidence):
    without = dataclasses.replace(evidence, facts=evidence.facts | {"sizes": evidence.facts["sizes"].iloc[:0]})
    assert by_size.at_every_size(without).empty and by_size.size_ranges(without).empty
    assert tables.task("sizes", without).empty
    assert "No rate over the size" in figures.svg(figures.task("sizes", without))
    assert "No map of shapes" in figures.svg(figures.draw("shape_map", without))


def test_batches_beside_the_librarys_call_for_as_many(evidence):
    """The ratio is that of the turns, or else of the rates at the same batch."""
    at = [
        ("cublas_bf16", 8, 0.10, None), ("batched_wgmma", 8, 0.08, None),
        ("cublas_bf16", 64, 0.40, 1.0), ("batched_wgmma", 64, 0.50, 0.9),
    ]  # fmt: skip
    rows = [
        points.point("batches", kernel, "bfloat16", 256, 256, 256).columns()
        | {"platform": NAME, "status": "ok", "time_ms": ms, "gflops": 1 / ms, "batch": batch, "vs_best": ratio}
        for kernel, batch, ms, ratio in at
    ]
    own = columns.frame(rows, "batches", synthetic.parameters()).assign(task="batches")
    found = by_size.batches(dataclasses.replace(evidence, facts=evidence.facts | {"batches": own}))
    assert found["percent_of_anchor"].round(1).tolist() == [100, 125, 100, 90]
    assert found["batch_shape"].tolist() == ["8 × (256, 256, 256)"] * 2 + ["64 × (256, 256, 256)"] * 2


def test_sizes_in_turns_have_the_ratios_of_the_turns(evidence):
    found = by_size.over_size(evidence)
    known = found[found["vs_best"].notna()]
    assert len(known) > 100 and not known["unlike_anchor"].any()
    assert known["percent_of_anchor"].tolist() == pytest.approx((100 * known["vs_best"]).tolist())
