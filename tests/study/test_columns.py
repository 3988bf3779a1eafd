"""Every column is described once, and what is read is what was written."""

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise import UserError
from tilewise.study import columns, schema


def test_every_file_has_columns_that_are_described():
    source = Path(columns.__file__).with_suffix(".yaml")
    schema.validate(schema.read_yaml(source), "columns", source)
    for file in columns.FILES:
        unknown = [name for name in columns.column_names(file, []) if name not in columns.COLUMNS]
        assert unknown in ([], ["tile"]), file  # tile_choice.csv is about one kernel's own parameter


@settings(max_examples=20)
@given(st.lists(st.sampled_from(["tile_n", "stages", "vector", "tile"]), unique=True), st.integers(0, 3))
def test_rows_are_read_as_they_were_written(tmp_path_factory, parameters, filled):
    path = tmp_path_factory.mktemp("rows") / "measurements.csv"
    row = {"kernel": "mine", "status": "ok", "n": 2**31, "time_ms": 0.1} | dict.fromkeys(parameters[:filled], 7)
    table = columns.frame([row, {}], "measurements", parameters)
    assert list(table) == columns.column_names("measurements", parameters)
    table.to_csv(path, index=False)
    pd.testing.assert_frame_equal(columns.read(path, "measurements", parameters), table)


def test_a_run_may_lack_the_columns_of_later_parameters_and_no_others(tmp_path):
    table = columns.frame([{"kernel": "tiled", "tile": 16}], "measurements", ["tile", "gone"])
    table.to_csv(tmp_path / "old.csv", index=False)
    read = columns.read(tmp_path / "old.csv", "measurements", ["tile", "stages"])
    assert read.stages.isna().all() and read.tile[0] == 16
    assert "gone" in read, "a column that no kernel has today stays"
    table.drop(columns="gpu_uuid").to_csv(tmp_path / "old.csv", index=False)
    says = r"old.csv: the column 'gpu_uuid' is missing; a run of another version of Tilewise is read by that"
    with pytest.raises(UserError, match=says):
        columns.read(tmp_path / "old.csv", "measurements", ["tile", "stages"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kernel,n\na,1\n", "the column 'platform' is missing"),
        ("", "this is not a table"),
        ("wrong", "time_ms.* does not hold what it should"),
    ],
)
def test_a_damaged_table_is_named(tmp_path, text, says):
    path = tmp_path / "measurements.csv"
    good = columns.frame([{"time_ms": 0.25}], "measurements", []).to_csv(index=False)
    path.write_text(good.replace("0.25", "soon") if text == "wrong" else text)
    with pytest.raises(UserError, match=rf"measurements.csv: .*{says}.*; delete the file and run again"):
        columns.read(path, "measurements")
