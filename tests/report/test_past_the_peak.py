"""What the page says of floats made of short numbers: every number follows from the tables."""

import dataclasses

import pandas as pd
import pytest
import synthetic

from tilewise.evidence import load_evidence
from tilewise.explain import grades, timings
from tilewise.report import figures, tables


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    """An H200 that measured, invented."""
    return load_evidence([synthetic.write(tmp_path_factory.mktemp("peak") / "nvidia-h200")])


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """A machine without a GPU, and nothing recorded."""
    folder = tmp_path_factory.mktemp("peak")
    return load_evidence([synthetic.write(folder / "emulator", "emulator")], recorded=folder / "none")


def test_the_gate_in_words(evidence):
    def found(facts):
        own = dataclasses.replace(evidence, facts=evidence.facts | {"accuracy": facts})
        return grades.gate(tables.accuracy(own)).set_index("kernel")

    facts = evidence.facts["accuracy"]
    own = found(facts).loc["float_from_half"]
    assert own[["passes", "fails", "refuses"]].tolist() == ["mixed", "along k", "steep along k"]
    assert set(found(facts)["claimed, but not so"]) == {""}
    one = (facts["kernel"] == "float_from_half") & (facts["operands"] == "along_k") & (facts["p"] > 1024)
    other = found(facts.assign(verdict=facts["verdict"].mask(one, "passes"))).loc["float_from_half"]
    assert other["fails"] == "along k (p = 1,024)", "it does not fail in longer sums"
    broken = (facts["kernel"] == "float_from_bf16") & (facts["operands"] == "along_k") & (facts["p"] == 4096)
    other = found(facts.assign(verdict=facts["verdict"].mask(broken, "fails"))).loc["float_from_bf16"]
    assert other["claimed, but not so"] == "along k (p = 4,096)"


def test_without_a_gpu_the_gate_has_no_verdict(emulated):
    assert grades.gate(tables.accuracy(emulated)).empty


def test_the_figure_of_accuracy_draws_the_largest_square(evidence, emulated):
    ladder = tables.ladder(evidence)
    rows = timings.largest_square(ladder)
    assert set(rows["n"]) == {8192} and {"float", "double", "bfloat16", "tf32", "half"} <= set(rows["dtype"])
    made = set(rows["kernel"][timings.made_of_short(rows, evidence)])
    assert made == {"float_from_half", "float_from_bf16", "float_always", "three_tf32", "triton_tf32x3"}
    beside = figures.svg(figures.draw("accuracy_and_rate", evidence, ladder))
    assert "the peak of the float units" in beside and "<title>cublas, double, (8192, 8192, 8192): " in beside
    assert "<title>triton, " not in beside, "languages have their own picture"
    assert "no GPU was timed" in figures.svg(figures.draw("accuracy_and_rate", emulated, tables.ladder(emulated)))
    empty = timings.largest_square(pd.DataFrame(columns=[*ladder]))
    assert empty.empty


def test_a_square_at_which_few_kernels_ran_is_not_the_largest(evidence):
    """In a quick run some of the kernels are timed at 1100, all of them at 1024."""
    rows = timings.largest_square(tables.ladder(evidence))
    names = rows["kernel"].unique()
    for count, largest in ((len(names) // 2 - 1, 8192), (len(names) // 2 + 1, 9000)):
        few = rows[rows["kernel"].isin(names[:count])].assign(n=9000, p=9000, m=9000)
        assert set(timings.largest_square(pd.concat([rows, few]))["n"]) == {largest}


def test_the_figure_of_moduli_says_what_is_refused(evidence, emulated):
    drawn = figures.svg(figures.draw("spread_of_exponents", evidence))
    assert "16 moduli" in drawn and "13 moduli" in drawn and "cublas" in drawn
    assert "No errors over the spread" not in drawn
    assert "No errors over the spread" in figures.svg(figures.draw("spread_of_exponents", emulated))
