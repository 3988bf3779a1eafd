"""The story: its numbers are the record's, its words fit them, and a record that contradicts it costs only its page."""

import re

import pytest
import yaml
from prose import plain

from tilewise import RECORDED, UserError
from tilewise.evidence import load_evidence
from tilewise.explain.number_format import rounded
from tilewise.report import beside, notes, render, sections, tables


@pytest.fixture(scope="module")
def recorded():
    return {name: load_evidence([RECORDED / name]) for name in render.runs()}


@pytest.fixture(scope="module")
def told(recorded):
    """The whole page."""
    return render.story(beside.Sides(None, recorded["nvidia-h200"]))


@pytest.fixture(scope="module")
def article(told):
    return re.search(r'<main id="content">(.*?)<footer>', told, re.DOTALL)[1]


def test_numbers_come_from_the_record(recorded, article):
    numbers = render.fill(recorded, render.STORY)
    rows = recorded["nvidia-h200"].select_tasks("ladder_float").gpu
    rate = rows[(rows["kernel"] == "stream_k") & (rows["n"] == 8192) & (rows["m"] == 8192)]["gflops"].max() / 1000
    assert numbers["stream_k"] == pytest.approx(rate)
    assert notes.find_notes(article) == [] and f"{rate:.1f} TFLOP/s" in plain(article)


@pytest.mark.parametrize("article", [render.STORY, render.ASSIGNMENT], ids=lambda path: path.stem)
def test_every_number_is_used(article):
    listed = yaml.safe_load(article.with_suffix(".yaml").read_text())
    used = article.read_text() + str(listed)
    names = [name for run in listed["runs"].values() for name in run]
    assert [name for name in names if len(re.findall(rf"\b{name}\b", used)) < 2] == []


def test_each_rung_has_its_picture_and_its_box(recorded, article):
    """The box has the bound that the tightest count sets, the rate, and the counts."""
    rungs = tables.frame("rungs", recorded["nvidia-h200"])
    rungs = rungs[~rungs["anchor"]]
    drawn = re.findall(r'<figure id="figure-story-tiles-of-(\w+)"', article)
    assert len(rungs) >= 11 and set(rungs["kernel"]) <= set(drawn)
    boxes = [plain(box) for box in re.findall(r'<dl class="step">(.*?)</dl>', article, re.DOTALL)]
    assert len(boxes) == len(rungs)
    for rate, box in zip(rungs["gflops"], boxes, strict=True):
        assert f"Measured{rounded(rate / 1000)} TFLOP/s" in box
    [tiled] = rungs[rungs["kernel"] == "tiled"].to_dict("records")
    bound, gain = rounded(tiled["bound_gflops"] / 1000), rounded(tiled["bound_gain"], "x")
    assert f"Upper bound{bound} TFLOP/s, limited by passes of shared memory; {gain}× that of naive" in boxes[1]
    assert "138 requests, 157 passes, 214 other instructions" in boxes[1]


def test_a_reader_has_time_for_it(article):
    """At most 4,500 words outside folds, and in running text a number for 18 words at most."""
    shown = re.sub(r"<(svg|pre|details).*?</\1>", "", article, flags=re.DOTALL)
    assert len(plain(shown).split()) <= 4500
    text = " ".join(plain(words) for words in re.findall(r"<(?:p|li)>(.*?)</(?:p|li)>", shown, re.DOTALL))
    numbers = re.findall(r"(?<![\w.])\d[\d.,]*", text)
    assert len(text.split()) > 1500 and len(text.split()) / len(numbers) >= 18


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("lead > 5", "lead > 50", r"`lead > 50` no longer holds \(lead is \d"),
        ('kernel="naive", dtype="float") / 1000', 'kernel="mine", dtype="float") / 1000', "does not have it"),
    ],
)
def test_a_record_that_contradicts_the_text_is_refused(tmp_path, recorded, old, new, message):
    article = tmp_path / "story.md"
    article.write_text(render.STORY.read_text())
    article.with_suffix(".yaml").write_text(render.STORY.with_suffix(".yaml").read_text().replace(old, new, 1))
    with pytest.raises(UserError, match=message):
        render.fill(recorded, article)
    text = render.story(beside.Sides(None, recorded["nvidia-h200"]), article)
    [note] = notes.find_notes(text)
    assert re.search(message, note) and f"{tmp_path / 'story.yaml'}:" in note


def test_without_the_record_the_story_is_one_line(tmp_path, recorded, monkeypatch):
    monkeypatch.setattr(render, "RECORDED", tmp_path)
    text = render.story(beside.Sides(None, recorded["nvidia-h200"]))
    assert notes.find_notes(text) == []
    assert "recorded runs, which this copy of the study lacks" in plain(text)
    (tmp_path / "nvidia-h200").mkdir()
    text = render.story(beside.Sides(None, recorded["nvidia-h200"]))
    [note] = notes.find_notes(text)
    assert note.startswith("Numbers of story.md cannot be made: ") and str(tmp_path / "nvidia-h200") in note
    assert sections.PAGES["story"] in plain(text)
