"""The table of kernels that were timed in turns."""

import dataclasses

import pandas as pd
import pytest
import synthetic

from tilewise.evidence import load_evidence
from tilewise.explain import comparisons, timings


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    """A run in which `ladder_short` was timed in turns, cuBLAS's clock falling under load."""
    folder = synthetic.write(tmp_path_factory.mktemp("duels") / "a-gpu")
    path = folder / "measurements.csv"
    rows = pd.read_csv(path, low_memory=False)
    turned = (rows["task"] == "ladder_short") & (rows["status"] == "ok")
    rows.loc[turned, ["turns", "vs_default", "vs_best", "sm_clock_mhz"]] = [12, 1.02, 0.875, 1900.0]
    library = turned & rows["kernel"].str.startswith("cublas")
    rows.loc[library, ["sustained_ms", "sustained_mhz"]] = [2.0, 1400.0]
    rows.to_csv(path, index=False)
    return load_evidence([folder], recorded=None)


def test_a_row_for_each_kernel_in_turns(evidence):
    table = comparisons.duels(evidence)
    assert set(table["task"]) == {"ladder_short"} and (table["turns"] == 12).all()
    library = table["kernel"].str.startswith("cublas")
    assert table.loc[library, "power_limited"].all() and table.loc[~library, "power_limited"].isna().all()
    assert (table["sustained_gflops"] * table["sustained_ms"] - table["gflops"] * table["time_ms"]).abs().max() < 1e-3


def test_products_of_different_moduli_have_a_row_each(tmp_path):
    folder = synthetic.write(tmp_path / "a-gpu")
    rows = pd.read_csv(folder / "measurements.csv", low_memory=False)
    rows.loc[(rows["task"] == "double_accuracy") & (rows["status"] == "ok"), "turns"] = 12
    rows.to_csv(folder / "measurements.csv", index=False)
    table = comparisons.duels(load_evidence([folder], recorded=None))
    of_bytes = table[(table["kernel"] == "double_from_int8") & (table["n"] == 8192)]
    assert set(of_bytes["moduli"]) == {13, 14, 15, 16} and len(of_bytes) == 4


def test_the_best_choice_of_the_largest_product_comes_first(evidence):
    """A choice is not the best if it is fast because its errors are large."""
    rows = evidence.gpu
    turned = rows.index[rows["turns"].notna() & (rows["kernel"] == "clusters") & (rows["dtype"] == "half")]
    [at] = turned[rows.loc[turned, "n"] == rows.loc[turned, "n"].max()]
    coarse = rows.loc[[at]].assign(time_ms=rows["time_ms"][at] / 2, relative_error=10 * rows["relative_error"][at])
    both = dataclasses.replace(evidence, gpu=pd.concat([rows, coarse], ignore_index=True))
    table = comparisons.duels(both)
    work = table["n"].astype(float) * table["m"] * table["p"]
    assert work.is_monotonic_decreasing and work.nunique() > 1
    same = table[(table["kernel"] == "clusters") & (table["dtype"] == "half") & (table["n"] == rows["n"][at])]
    assert same["time_ms"].tolist() == [rows["time_ms"][at]]


def test_under_load_the_best_of_the_library_is_its_faster_call_there(evidence):
    columns = [f"sustained_vs_{name}{end}" for name in ("best", "default") for end in ("", "_low", "_high")]
    for given, shown in ((1.02, 0.99), (0.98, 0.98)):
        row = dict.fromkeys(columns[:3], given) | dict.fromkeys(columns[3:], 0.99)
        table = comparisons.duels(dataclasses.replace(evidence, gpu=evidence.gpu.assign(**row)))
        assert (table[columns[:3]] == shown).all(axis=None)


def test_shares_of_the_library_are_those_of_the_turns(evidence):
    rows = timings.describe(evidence.select_tasks("ladder_short", "ladder_float").gpu, evidence)
    shares = timings.beside_anchor(rows, rows, evidence).set_index("task")["percent_of_anchor"]
    assert (shares["ladder_short"].dropna() == 87.5).all() and not (shares["ladder_float"] == 87.5).any()


def test_without_turns_the_table_is_empty(tmp_path):
    assert comparisons.duels(load_evidence([synthetic.write(tmp_path / "a-gpu")], recorded=None)).empty
