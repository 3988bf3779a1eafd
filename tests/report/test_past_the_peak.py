"""What the page says of floats made of short numbers: every number follows from the tables."""

import dataclasses

import pandas as pd
import pytest
import synthetic

from tilewise.report import data, figures, findings, tables

PUBLISHED = data.published()


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    """An H200 that measured, invented."""
    return data.load([synthetic.write(tmp_path_factory.mktemp("peak") / "nvidia-h200")])


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """A machine without a GPU, and nothing recorded."""
    folder = tmp_path_factory.mktemp("peak")
    return data.load([synthetic.write(folder / "emulator", "emulator")], recorded=folder / "none")


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
    said = findings.past_the_peak(tables.ladder(changed, PUBLISHED), changed)
    assert "SGEMM makes 50 TFLOP/s" in said
    assert (
        "`float_from_half` 200 TFLOP/s, 4× cuBLAS's and 299\u00a0% of the peak" in said
        and "with 0.2× its error" in said
    )
    assert said.index("float_from_half") < said.index("three_tf32"), "the fastest first"


def test_the_gate_in_words(evidence):
    said = findings.gate(evidence)
    assert said.startswith("Measured:") and "Invented H200" in said
    half = next(line for line in said.splitlines() if line.startswith("- `float_from_half`"))
    assert half.endswith(
        "sums of 1,024 and more products: passes on mixed; fails on along k; refuses on steep along k."
    )
    assert "claims" not in said
    facts = evidence.facts["accuracy"]
    broken = (facts["kernel"] == "float_from_bf16") & (facts["operands"] == "along_k") & (facts["p"] == 4096)
    facts = facts.assign(verdict=facts["verdict"].mask(broken, "fails"))
    said = findings.gate(dataclasses.replace(evidence, facts=evidence.facts | {"accuracy": facts}))
    assert "**`float_from_bf16` claims the accuracy of SGEMM and does not have it**: along k at p = 4,096" in said


def test_without_a_gpu_the_gate_is_predicted_and_says_so(emulated):
    said = findings.gate(emulated)
    assert said.startswith("Predicted by the model of the tensor cores, not measured:") and "three_tf32" in said
    nothing = dataclasses.replace(emulated, facts=emulated.facts | {"accuracy": emulated.facts["accuracy"].iloc[:0]})
    assert findings.gate(nothing) == ""


def test_energy_in_words(evidence, emulated):
    said = findings.energy(evidence, PUBLISHED)
    sgemm = evidence.facts["energy"].set_index(["kernel", "dtype"]).loc[("cublas", "float")]
    assert f"costs {sgemm.joules_per_product:.3g} J in cuBLAS" in said and "650 W" in said
    assert (
        findings.energy(emulated, PUBLISHED)
        == findings.past_the_peak(tables.ladder(emulated, PUBLISHED), emulated)
        == ""
    )


def test_the_figures_draw_every_kernel_of_the_largest_square(evidence, emulated):
    ladder = tables.ladder(evidence, PUBLISHED)
    rows = tables.largest_square(ladder)
    assert set(rows["n"]) == {8192} and {"float", "double", "bfloat16", "tf32", "half"} <= set(rows["dtype"])
    made = set(rows["kernel"][tables.made_of_short(rows, evidence)])
    assert made == {"float_from_half", "float_from_bf16", "three_tf32", "triton_tf32x3"}
    drawn = figures.svg(figures.past_the_peak(ladder, evidence))
    for kernel in rows.loc[rows["dtype"] == "float", "kernel"]:
        assert f">{kernel}<" in drawn
    assert "peak of the float units" in drawn and "peak of the float units" in figures.svg(
        figures.accuracy_and_rate(ladder, evidence)
    )
    nothing = tables.ladder(emulated, PUBLISHED)
    for draw in (figures.past_the_peak, figures.accuracy_and_rate):
        assert "no GPU was timed" in figures.svg(draw(nothing, emulated))
    empty = tables.largest_square(pd.DataFrame(columns=[*ladder]))
    assert empty.empty
