"""The story: its numbers are the record's, and a record that contradicts it is refused."""

import re

import pytest
import yaml
from prose import plain

from tilewise import RECORDED, UserError
from tilewise.evidence import load_evidence
from tilewise.report import notes, render, story


@pytest.fixture(scope="module")
def pages():
    return {name: render.Page(load_evidence([RECORDED / name])) for name in story.runs()}


def test_numbers_come_from_the_record(pages):
    numbers = story.fill(pages)
    rows = pages["nvidia-h200"].evidence.select_tasks("ladder_float").gpu
    rate = rows[(rows["kernel"] == "stream_k") & (rows["n"] == 8192) & (rows["m"] == 8192)]["gflops"].max() / 1000
    assert numbers["stream_k"] == pytest.approx(rate)
    text = render.tell(pages["nvidia-h200"])[0]
    assert notes.find_notes(text) == [] and f"{rate:.1f} TFLOP/s" in plain(text)


def test_every_number_is_used():
    listed = yaml.safe_load(story.NUMBERS.read_text())
    used = story.TEXT.read_text() + str(listed)
    names = [name for run in listed["runs"].values() for name in run]
    assert [name for name in names if len(re.findall(rf"\b{name}\b", used)) < 2] == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("lead > 5", "lead > 50", "`lead > 50` no longer holds"),
        ('kernel="naive", dtype="float") / 1000', 'kernel="mine", dtype="float") / 1000', "does not have it"),
    ],
)
def test_a_record_that_contradicts_the_text_is_refused(tmp_path, pages, old, new, message):
    (tmp_path / "story.yaml").write_text(story.NUMBERS.read_text().replace(old, new, 1))
    with pytest.raises(UserError, match=message):
        story.fill(pages, tmp_path / "story.yaml")
