"""What a product costs and reaches in each language, of invented rows."""

import pytest
import synthetic

from tilewise.evidence import load_evidence
from tilewise.explain.comparisons import by_language


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    """A GPU's invented rows of the task `languages` alone, in which cuTile was not there."""
    folder = tmp_path_factory.mktemp("languages") / "h200"
    study = synthetic.config()
    study["tasks"] = {"languages": study["tasks"]["languages"]}
    synthetic.write(folder, study=study)
    return folder


def test_each_row_has_its_language_its_lines_and_its_shares(gpu):
    table = by_language(load_evidence([gpu]))
    assert {"Triton", "Gluon", "Numba", "cuTile", "Warp", "CuTe DSL", "CUDA C++", "library"} == set(table["language"])
    at = table[(table["n"] == 8192) & (table["dtype"] == "float")].set_index("kernel")
    assert at.loc["cublas", "percent_of_anchor"] == pytest.approx(100)
    fastest = at.loc[at["language"] == "CUDA C++", "time_ms"].min()
    assert at.loc["triton", "percent_of_cuda"] == pytest.approx(100 * fastest / at.loc["triton", "time_ms"])
    assert at.loc["triton", "lines"] < at.loc["stream_k", "lines"]
    assert at["lines"].isna().equals(at["language"] == "library")
    assert not table.duplicated(["kernel", "dtype", "n"]).any()


def test_without_rows_the_table_is_empty(gpu):
    evidence = load_evidence([gpu]).select_tasks("ladder_float")
    assert by_language(evidence).empty and {"language", "lines", "percent_of_cuda"} <= set(by_language(evidence))
