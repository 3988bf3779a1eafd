"""The columns of the page's tables: one entry of tables.yaml says them all, and a wrong one is named in one line."""

import pandas as pd
import pytest

from tilewise import UserError
from tilewise.report import headings


@pytest.fixture
def edited(tmp_path):
    """Loads a copy of tables.yaml in which one text is another."""

    def load(old, new):
        text = headings.LAYOUTS_FILE.read_text()
        assert old in text
        (tmp_path / "tables.yaml").write_text(text.replace(old, new, 1))
        return headings.load(tmp_path / "tables.yaml")

    return load


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "kernel title reason",
            "kernel titel reason",
            "not_emulated: there is no column 'titel'; did you mean 'title'?",
        ),
        ("kernel title reason", "kernel qqq", "there is no column 'qqq'; add it to study/columns.yaml"),
        ("[platform card node", "[platform crad node", "by_card: there is no column 'crad'; did you mean 'card'?"),
        ("{points: all}", "{point: all}", "verification: there is no column 'point'; did you mean 'points'?"),
        ("  suffix: _ms", "  sufix: _ms", "cold_start: unknown key 'sufix'; did you mean 'suffix'?"),
        ("[kernel title reason]", "[[kernel, title]]", "not_emulated.columns.0: .* is not of type 'string', 'object'"),
        ("[kernel title reason]", "[]", "not_emulated.columns: .*non-empty"),
        ("[kernel title reason]", "[kernel, title", "flow sequence"),
        ("agreement:", "counted:", "the key 'counted' occurs twice"),
    ],
)
def test_a_wrong_entry_is_named_in_one_line(edited, old, new, said):
    with pytest.raises(UserError, match=rf"tables\.yaml.*{said}") as raised:
        edited(old, new)
    assert "\n" not in str(raised.value)


def test_a_column_is_added_to_a_table_by_its_entry_alone(edited):
    table = pd.DataFrame(columns=["kernel", "title", "reason", "registers"])
    assert "registers" not in headings.make_headings(headings.load()["not_emulated"], table)
    layout = edited("[kernel title reason]", "[kernel title reason, Of a thread: registers]")["not_emulated"]
    assert (
        list(headings.make_headings(layout, table))
        == list(headings.make_headings(layout, table, brief=True))
        == list(table)
    )
    assert headings.make_headings(layout, table)["registers"] == ("Of a thread", "registers per thread")


def test_a_brief_table_keeps_the_groups_of_the_whole_and_has_the_choice_for_the_parameters(edited):
    table = pd.DataFrame(columns="shape kernel dtype choice tile time_ms batch_ms gflops ratio".split())
    layout = edited("bound_ratio published_ms at_end", "published_ms at_end")["sweep"]
    whole, brief = headings.make_headings(layout, table), headings.make_headings(layout, table, brief=True)
    assert set(whole) - set(brief) == {"tile", "batch_ms"} and set(brief) - set(whole) == {"choice"}
    assert brief["gflops"] == whole["gflops"] == ("Measured", "GFLOP/s")
