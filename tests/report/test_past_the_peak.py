"""What the page says of floats made of short numbers: every number follows from the tables."""

import dataclasses

import pandas as pd
import pytest
import synthetic
from prose import section

from tilewise.evidence import load_evidence
from tilewise.explain import digits, timings
from tilewise.report import figures, tables

PEAK, GATE, ENERGY = "report/04-past-the-peak.md", "tables/07-past-the-peak.md", "tables/08-others-and-energy.md"


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    """An H200 that measured, invented."""
    return load_evidence([synthetic.write(tmp_path_factory.mktemp("peak") / "nvidia-h200")])


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """A machine without a GPU, and nothing recorded."""
    folder = tmp_path_factory.mktemp("peak")
    return load_evidence([synthetic.write(folder / "emulator", "emulator")], recorded=folder / "none")


def faster(evidence, kernel, gflops, error):
    """The same evidence with another rate and error of a kernel at every shape."""
    gpu = evidence.gpu.copy()
    own = gpu["kernel"] == kernel
    work = 2e-6 * gpu.loc[own, ["n", "p", "m"]].astype("float64").prod(axis=1)
    gpu.loc[own, ["gflops", "relative_error"]] = [gflops, error]
    gpu.loc[own, "time_ms"] = work / gflops
    return dataclasses.replace(evidence, gpu=gpu)


def test_rate_and_error_stand_beside_the_librarys(evidence):
    changed = faster(faster(evidence, "float_from_half", 200_000.0, 3e-8), "cublas", 50_000.0, 1.5e-7)
    said = section(changed, PEAK)
    assert "SGEMM reaches 50 TFLOP/s" in said
    assert "float_from_half 200 TFLOP/s, 4× cuBLAS's and 299 % of the peak" in said and "with 0.20× its error" in said
    counted = said[said.index("Splitting included, the others reach:") :]
    assert counted.index("float_from_half") < counted.index("three_tf32"), "the fastest first"


def test_the_gate_in_words(evidence):
    said = section(evidence, GATE)
    assert "Measured:" in said and "Predicted" not in said
    verdicts = "passes on mixed; fails on along k; refuses on steep along k."
    assert f"float_from_half on the Invented H200 in sums of 1,024, 4,096 and 8,192 products: {verdicts}" in said
    assert "claims the accuracy" not in said
    facts = evidence.facts["accuracy"]
    one = (facts["kernel"] == "float_from_half") & (facts["operands"] == "along_k") & (facts["p"] > 1024)
    other = facts.assign(verdict=facts["verdict"].mask(one, "passes"))
    said = section(dataclasses.replace(evidence, facts=evidence.facts | {"accuracy": other}), GATE)
    assert "fails on along k (p = 1,024); refuses" in said, "it does not fail in longer sums"
    broken = (facts["kernel"] == "float_from_bf16") & (facts["operands"] == "along_k") & (facts["p"] == 4096)
    facts = facts.assign(verdict=facts["verdict"].mask(broken, "fails"))
    said = section(dataclasses.replace(evidence, facts=evidence.facts | {"accuracy": facts}), GATE)
    assert "float_from_bf16 claims the accuracy of SGEMM and does not have it: along k at p = 4,096." in said


def test_without_a_gpu_the_gate_is_predicted_and_says_so(emulated):
    said = section(emulated, GATE)
    assert "Predicted by the model of the tensor cores, not measured: " in said and "three_tf32 in sums of" in said
    nothing = dataclasses.replace(emulated, facts=emulated.facts | {"accuracy": emulated.facts["accuracy"].iloc[:0]})
    assert "not measured:" not in section(nothing, GATE) and "in sums of" not in section(nothing, GATE)


def test_energy_in_words(evidence, emulated):
    said = section(evidence, ENERGY)
    sgemm = evidence.facts["energy"].set_index(["kernel", "dtype"]).loc[("cublas", "float")]
    assert f"costs {digits.rounded(sgemm.joules_per_product)} J in cuBLAS" in said and "650 W" in said
    assert "in cuBLAS" not in section(emulated, ENERGY) and "Splitting included" not in section(emulated, PEAK)


def test_the_figures_draw_every_kernel_of_the_largest_square(evidence, emulated):
    ladder = tables.ladder(evidence)
    rows = timings.largest_square(ladder)
    assert set(rows["n"]) == {8192} and {"float", "double", "bfloat16", "tf32", "half"} <= set(rows["dtype"])
    made = set(rows["kernel"][timings.made_of_short(rows, evidence)])
    assert made == {"float_from_half", "float_from_bf16", "float_always", "three_tf32", "triton_tf32x3"}
    drawn = figures.svg(figures.draw("past_the_peak", evidence, ladder))
    for kernel in rows.loc[rows["dtype"] == "float", "kernel"]:
        assert f">{kernel}<" in drawn
    assert "peak of the float units" in drawn and "peak of the float units" in figures.svg(
        figures.draw("accuracy_and_rate", evidence, ladder)
    )
    nothing = tables.ladder(emulated)
    for name in ("past_the_peak", "accuracy_and_rate"):
        assert "no GPU was timed" in figures.svg(figures.draw(name, emulated, nothing))
    empty = timings.largest_square(pd.DataFrame(columns=[*ladder]))
    assert empty.empty
