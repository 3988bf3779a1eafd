"""The page of source a's assignment: numbers side by side, and answers from the recorded runs, or none."""

import io
import re

import pandas as pd
import pytest
import synthetic
from prose import packed_files, plain

from tilewise import RECORDED
from tilewise.__main__ import main
from tilewise.evidence import load_evidence
from tilewise.explain.number_format import rounded
from tilewise.report import beside, headlines, notes, render
from tilewise.study.status import Status

TASKS = ("1a", "1b", "1c", "2a", "2b", "3", "4")


@pytest.fixture(scope="module")
def record():
    return beside.load_record()


@pytest.fixture(scope="module")
def best():
    """The least time in ms at n = 8192 on the recorded H200, by task, kernel and type, without unsettled points."""
    rows = pd.read_csv(RECORDED / "nvidia-h200/measurements.csv", low_memory=False)
    cube = rows[(rows["status"] == "ok") & (rows["n"] == 8192) & (rows["p"] == 8192) & (rows["m"] == 8192)]
    cube = cube[~(cube["run_high_ms"] > 1.25 * cube["time_ms"])]
    return {name: part["time_ms"].min() for name, part in cube.groupby(["task", "kernel", "dtype"])}


@pytest.fixture(scope="module")
def answers(record):
    """What the page says under each task, as text."""
    page = render.assignment(beside.Sides(record, None))
    assert notes.find_notes(page) == []
    parts = re.split(r"<h2[^>]*>Task (\w+):", page.partition("<footer>")[0])
    return {name: plain(words) for name, words in zip(parts[1::2], parts[2::2])}


def test_each_task_has_an_answer_that_says_what_is_not_known(answers):
    assert tuple(answers) == TASKS
    for name, words in answers.items():
        said = words.partition("Answer. ")[2]
        assert "Not known:" in said, name
        assert 3 <= len(re.findall(r"[a-z0-9%×)sBMC]\.(?= [A-Z0-9]|$)", said)) <= 6, name


def test_answers_follow_from_the_record(answers, best):
    naive, tiled = best["task1a", "naive", "float"], best["task2a", "tiled", "float"]
    assert f"is 512 × 2 ({rounded(naive)} ms on the H200" in answers["1a"]
    assert f"takes {rounded(best['cpu', 'kij', 'float'] / naive)} times as long as the H200" in answers["1a"]
    double = best["task1b", "naive", "double"]
    assert f"double takes {100 * (double / naive - 1):.0f} % longer on the H200" in answers["1b"]
    assert "the units for double are only 13 % busy" in answers["1b"]
    assert (
        f"a width of 32 is best on both GPUs ({rounded(tiled)} ms" in answers["2a"]
        and f"{naive / tiled:.2f}×" in answers["2a"]
    )
    assert f"{double / best['task2b', 'tiled', 'double']:.2f}× as fast as the best naive" in answers["2b"]
    assert "from 158 to 111" in answers["3"] and "8,288 columns, 1.2 % more" in answers["3"]
    assert "error in the Frobenius norm is 5.95e-07" in answers["4"] and "Yes, at all shapes" in answers["4"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("longer > 40", "longer > 400", "`longer > 400 and longer_h100 > 40` no longer holds (longer is "),
        ('== "512 × 2" and', '== "8 × 128" and', "(naive_best is 512 × 2, naive_best_h100 is 512 × 2)"),
        ('kernel="transposing_ring"', 'kernel="mine"', "beyond_n: the record of nvidia-h200 does not have it"),
    ],
)
def test_a_record_that_contradicts_the_answers_is_a_note_beside_the_tables(record, tmp_path, old, new, message):
    article, words = tmp_path / "assignment.md", render.ASSIGNMENT.with_suffix(".yaml").read_text()
    article.write_text(render.ASSIGNMENT.read_text())
    article.with_suffix(".yaml").write_text(words.replace(old, new, 1))
    page = render.assignment(beside.Sides(record, None), article=article)
    [note] = notes.find_notes(page)
    assert note.startswith("Numbers of assignment.md cannot be made: ") and message in note.replace("\u00a0", " ")
    assert "Answer." not in page and len(packed_files(page)) == 10


def test_without_the_record_there_are_tables_and_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(render, "RECORDED", tmp_path / "none")
    own = load_evidence([synthetic.write(tmp_path / "mine")], recorded=tmp_path / "none")
    page = render.assignment(beside.Sides(None, own))
    assert notes.find_notes(page) == [] and "Answer." not in page and "Not known" not in page
    assert plain(page).count("recorded runs, which this copy of the study lacks") == 1
    assert page.count("your value") == 10 and "of the recorded runs and of this run." in plain(page)


def test_the_page_of_the_record_alone_speaks_of_no_other_run(record):
    text = plain(render.assignment(beside.Sides(record, None)).partition("<main")[2])
    assert "this run" not in text.casefold() and "of the report and of the recorded runs. A time is" in text


def test_the_largest_products_stand_in_their_rows(record):
    table = beside.largest_products(beside.Sides(record, None)).set_index(["side", "label"])
    assert table.loc[("source", "naive, n = 30,536"), "time_ms"] == pytest.approx(121486.5)
    h200 = table.loc["recorded nvidia-h200"]
    facts = pd.read_csv(RECORDED / "nvidia-h200/facts/task1c.csv").set_index("kernel")
    naive = facts.loc["naive"].set_index("timed_n")
    assert h200.loc["naive, n = 30,536", "time_ms"] == naive.loc[30_536, "time_ms"]
    assert h200.loc["largest n allocated", "value"] == naive["allocatable_n"].max()
    largest = facts.loc["transposing_ring", "timed_n"].max()
    assert h200.loc["transposing_ring, the largest n timed", "choice"] == f"n = {largest:,}" and largest > 110_000


def test_the_best_of_source_as_blocks_are_those_whose_runs_overlap(answers):
    rows = pd.read_csv(RECORDED / "nvidia-h200/measurements.csv", low_memory=False)
    rows = rows[(rows["task"] == "task1a") & (rows["kernel"] == "naive") & (rows["block_x"] <= 256)]
    rows = rows[(rows[["n", "p", "m"]] == 8192).all(axis="columns")].set_index("block_x")
    first = rows.loc[rows["time_ms"].idxmin()]
    tied = rows[rows["run_low_ms"] <= first["run_high_ms"]].index
    named = " and ".join(f"{width:.0f} × {1024 / width:.0f}" for width in sorted(tied))
    assert f"of source a's six blocks, {named} {'tie' if len(tied) > 1 else 'is the fastest'}" in answers["1a"]


def test_all_sides_stand_in_one_row(record, tmp_path):
    own = load_evidence([synthetic.write(tmp_path / "mine")])
    sides = beside.Sides(record, own)
    where = {"kernel": "naive", "dtype": "float"}
    table = beside.rows("task1a", sides, **where)
    at = table[table["label"] == "n = 8192"].set_index("side")
    assert list(at.index) == [*(f"recorded {each.name}" for each in record.platforms), "own mine", "source"]
    assert at.loc["source", "time_ms"] == pytest.approx(2179.101807)
    assert at["gflops"].tolist() == pytest.approx((2e-6 * 8192**3 / at["time_ms"]).tolist())
    assert table["label"].nunique() == 5
    tiles = beside.rows("task3", sides, key="ntb", kernel="multi_tile", dtype="float", tile=32, n=8192)
    source = tiles[tiles["side"] == "source"]
    assert source["label"].tolist() == [1, 2, 4, 6, 7, 8] and source["time_ms"].iloc[4] == pytest.approx(397.8701)
    html = beside.html(table, sides, "size", "<b>Naive.</b>", "naive", blank="your value")
    cells = re.findall(r"<td[^>]*>(.*?)</td>", html)
    width = len(record.platforms) + 4  # the label, the source, this run, and the blank
    assert len(cells) == 5 * width and cells[width - 1 :: width] == [""] * 5


def test_a_table_is_at_the_largest_square_of_this_run(record, tmp_path):
    """The tables beside the record are at n = 1024 for a quick run, and at the record's n for a run without a GPU."""
    study = synthetic.config()
    study["shapes"] |= {name: [dict.fromkeys("npm", 1024)] for name in ("square", "square_4096")}
    study["tasks"] = {"ladder_float": study["tasks"]["ladder_float"]}
    quick = load_evidence([synthetic.write(tmp_path / "mine", study=study)])
    square = beside.largest_square("ladder_float", beside.Sides(record, quick))
    assert square == dict.fromkeys("npm", 1024)
    table = beside.rows("ladder_float", beside.Sides(record, quick), **square)
    own = table[table["side"] == "own mine"]
    assert set(table["n"]) == {1024} and own["time_ms"].notna().all() and {"naive", "stream_k"} <= set(own["kernel"])
    assert "recorded nvidia-h200" in set(table["side"])
    none = load_evidence([synthetic.write(tmp_path / "laptop", "emulator")])
    assert beside.largest_square("ladder_float", beside.Sides(record, none)) == dict.fromkeys("npm", 8192)
    assert beside.largest_square("ladder_float", beside.Sides(None, none)) == {}
    assert headlines.five_numbers(beside.Sides(record, none)).query("side == 'own laptop'")["time_ms"].isna().all()


def test_a_machine_without_a_gpu_shows_what_it_verified(record, tmp_path):
    own = load_evidence([synthetic.write(tmp_path / "laptop", "emulator")])
    table = beside.rows("task2a", beside.Sides(record, own), kernel="tiled", dtype="float")
    mine = table[table["side"] == "own laptop"]
    sizes = dict.fromkeys("npm", 8192)
    at = beside.rows("task2a", beside.Sides(record, own), kernel="tiled", dtype="float", **sizes)
    assert "own laptop" in set(at["side"]), "the emulator's sizes are its own"
    assert len(mine) and mine["time_ms"].isna().all() and set(mine["status"]) == {Status.OK}
    assert "verified by emulation" in beside.html(table, beside.Sides(record, own), "size", "<b>Tiled.</b>", "tiled")


def test_the_hand_out_has_no_answers(tmp_path, capsys):
    assert main(["assignment", "--questions", "--output", str(tmp_path / "q.html")]) == 0
    assert str(tmp_path / "q.html") in capsys.readouterr().out
    page = (tmp_path / "q.html").read_text()
    assert notes.find_notes(page) == []
    assert re.findall(r"<h2[^>]*>Task (\w+):", page) == list(TASKS)
    assert "Answer." not in page and "Not known" not in page and 'href="tables.html"' not in page
    assert page.count("your value") == len(packed_files(page)) == 10
    assert main(["assignment", "--output", str(tmp_path / "a.html")]) == 0
    assert (tmp_path / "a.html").read_text().count("Answer.") == len(TASKS)


def test_a_page_that_cannot_be_written_is_one_message(tmp_path, capsys):
    assert main(["assignment", "--output", str(tmp_path)]) == 2
    assert f"{tmp_path}: it cannot be written" in capsys.readouterr().err


def test_the_tables_can_be_taken_away(record):
    page = render.assignment(beside.Sides(record, None))
    table = pd.read_csv(io.StringIO(packed_files(page)["naive-kernel-float.csv"]))
    assert {"side", "time_ms", "gflops", "n", "p", "m"} <= set(table)
    assert table["side"].nunique() == len(record.platforms) + 1
