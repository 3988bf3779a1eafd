"""The page of source a's assignment: numbers side by side, and answers from the recorded runs, or none."""

import io
import re

import pandas as pd
import pytest
import synthetic
from prose import plain

from tilewise import RECORDED
from tilewise.__main__ import main
from tilewise.evidence import load_evidence
from tilewise.explain import blocks
from tilewise.explain.number_format import rounded
from tilewise.report import beside, markup, notes, render
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
    page = render.assignment(beside.Sides(record, None)).html("assignment")
    assert notes.find_notes(page) == []
    parts = re.split(r"<h2[^>]*>Task (\w+):", page.partition("<footer>")[0])
    return {name: plain(words) for name, words in zip(parts[1::2], parts[2::2])}


def test_each_task_has_an_answer_that_says_what_is_not_known(answers):
    assert tuple(answers) == TASKS
    for name, words in answers.items():
        said = words[words.index("Answer.") :]
        assert "Not known:" in said, name
        assert 3 <= len(re.findall(r"[a-z0-9%×)s]\.(?= [A-Z0-9]|$)", said)) <= 10, name


def test_answers_follow_from_the_record(answers, best):
    naive, tiled = best["task1a", "naive", "float"], best["task2a", "tiled", "float"]
    assert f"is 512 × 2 ({rounded(naive)} ms)" in answers["1a"]
    assert f"{rounded(best['cpu', 'kij', 'float'] / naive, 'x')}× as long as the GPU" in answers["1a"]
    double = best["task1b", "naive", "double"]
    assert f"double takes {100 * (double / naive - 1):.0f} % longer on the NVIDIA H200" in answers["1b"]
    assert "the units for double are 13 % busy" in answers["1b"]
    assert f"width 32 is best ({rounded(tiled)} ms" in answers["2a"] and f"{naive / tiled:.2f}×" in answers["2a"]
    assert f"{double / best['task2b', 'tiled', 'double']:.2f}× as fast as the best naive" in answers["2b"]
    assert "from 158 to 111" in answers["3"] and "8,288 columns, 1.2 % more" in answers["3"]
    assert "error in the Frobenius norm is 5.95e-07" in answers["4"] and "at all nine shapes" in answers["4"]


def test_what_the_words_take_for_granted_holds_in_the_record(record):
    """The answers say of these numbers what no condition in the text checks."""
    page = render.assignment(beside.Sides(record, None))
    for gpu in record.gpus:
        double = page.row("limited_by", platform=gpu.name, kernel="naive", dtype="double")
        assert double.limit_percent < 80, "the cause is not settled"
        blocks = page.frame("block_shapes").query("platform == @gpu.name").set_index("block_x")
        assert blocks.loc[8, "looked_up"] > blocks.loc[128, "looked_up"]
        assert blocks.loc[1024, "cause"] == "other" and blocks.loc[32:512, "cause"].eq("").all()
        tiles = page.frame("tile_counts").query("platform == @gpu.name and dtype == 'float' and tile == 32")
        tiles = tiles.set_index("ntb")
        assert tiles.loc[7, "shared_percent"] > tiles.loc[1, "shared_percent"]
        assert tiles["time_ms"].idxmin() == 32
        assert set(page.frame("task4").query("platform == @gpu.name")["status"]) == {Status.OK}
    hits = page.frame("profiled").query("kernel == 'naive' and dtype == 'float'").set_index(["platform", "block_x"])
    last = record.gpus[-1].name
    assert hits.loc[(last, 1024), "l1_hit_percent"] < 0.5 * hits.loc[(last, 512), "l1_hit_percent"]
    assert hits.loc[(last, 1024), "dram_gb"] > 5 * hits.loc[(last, 512), "dram_gb"]


def test_double_over_float_with_the_best_block_of_each(record):
    rows = pd.read_csv(RECORDED / "nvidia-h200/measurements.csv", low_memory=False)
    rows = rows[rows["task"].isin(["task1a", "task1b"]) & (rows["kernel"] == "naive")]
    rows = rows[(rows[["n", "p", "m"]] == 8192).all(axis="columns") & (rows["run_high_ms"] < 1.25 * rows["time_ms"])]
    costs = blocks.double_cost(record).set_index("platform")["longer_percent"]
    times = rows.groupby("dtype")["time_ms"].min()
    assert costs["nvidia-h200"] == pytest.approx(100 * (times["double"] / times["float"] - 1))


def test_look_ups_explain_the_narrow_blocks_alone(record):
    found = blocks.block_shapes(record).query("platform == 'nvidia-h200'").set_index("block_x")
    assert found["looked_up"].to_dict() == {8: 5, 16: 3} | dict.fromkeys((32, 64, 128, 256, 512, 1024), 2)
    assert found.loc[8, "used_percent"] == pytest.approx(95.8, abs=0.1)
    assert found.loc[512, "gflops"] > 1.2 * found.loc[32, "gflops"], "with equal look-ups"


def test_the_largest_products_stand_in_their_rows(record):
    table = beside.largest_products(beside.Sides(record, None)).set_index(["side", "label"])
    assert table.loc[("source", "naive, n = 30,536"), "time_ms"] == pytest.approx(121486.5)
    h200 = table.loc["recorded nvidia-h200"]
    assert h200.loc["naive, n = 30,536", "time_ms"] == pytest.approx(10850.17, abs=0.01)
    assert h200.loc["largest n allocated", "value"] == 111_637
    assert h200.loc["transposing_ring, the largest n timed", "choice"] == "n = 111,600"


def test_blocks_whose_runs_overlap_tie(answers):
    rows = pd.read_csv(RECORDED / "nvidia-h200/measurements.csv", low_memory=False)
    rows = rows[(rows["task"] == "task1a") & (rows["kernel"] == "naive") & (rows["block_x"] <= 256)]
    rows = rows[(rows[["n", "p", "m"]] == 8192).all(axis="columns")].set_index("block_x")
    first = rows.loc[rows["time_ms"].idxmin()]
    tied = rows[rows["run_low_ms"] <= first["run_high_ms"]].index
    assert sorted(tied) == [128, 256] and "128 × 8 and 256 × 4 tie" in answers["1a"]


def test_all_sides_stand_in_one_row(record, tmp_path):
    own = load_evidence([synthetic.write(tmp_path / "mine")])
    sides = beside.Sides(record, own)
    where = {"kernel": "naive", "dtype": "float"}
    table = beside.rows("task1a", sides, where)
    at = table[table["label"] == "n = 8192"].set_index("side")
    assert list(at.index) == ["recorded nvidia-h200", "recorded nvidia-h100-80gb-hbm3", "own mine", "source"]
    assert at.loc["source", "time_ms"] == pytest.approx(2179.101807)
    assert at["gflops"].tolist() == pytest.approx((2e-6 * 8192**3 / at["time_ms"]).tolist())
    assert table["label"].nunique() == 5
    tiles = beside.rows("task3", sides, {"kernel": "multi_tile", "dtype": "float", "tile": 32, "n": 8192}, key="ntb")
    source = tiles[tiles["side"] == "source"]
    assert source["label"].tolist() == [1, 2, 4, 6, 7, 8] and source["time_ms"].iloc[4] == pytest.approx(397.8701)
    html = beside.html(table, sides, "size", "<b>Naive.</b>", "naive", blank="your value")
    cells = re.findall(r"<td[^>]*>(.*?)</td>", html)
    assert len(cells) == 5 * 6 and cells[5::6] == [""] * 5


def test_a_machine_without_a_gpu_shows_what_it_verified(record, tmp_path):
    own = load_evidence([synthetic.write(tmp_path / "laptop", "emulator")])
    table = beside.rows("task2a", beside.Sides(record, own), {"kernel": "tiled", "dtype": "float"})
    mine = table[table["side"] == "own laptop"]
    assert len(mine) and mine["time_ms"].isna().all() and set(mine["status"]) == {Status.OK}
    assert beside.VERIFIED in beside.html(table, beside.Sides(record, own), "size", "<b>Tiled.</b>", "tiled")


def test_the_hand_out_has_no_answers(tmp_path, capsys):
    assert main(["assignment", "--questions", "--output", str(tmp_path / "q.html")]) == 0
    assert str(tmp_path / "q.html") in capsys.readouterr().out
    page = (tmp_path / "q.html").read_text()
    assert notes.find_notes(page) == []
    assert re.findall(r"<h2[^>]*>Task (\w+):", page) == list(TASKS)
    assert "Answer." not in page and "Not known" not in page and 'href="tables.html"' not in page
    assert page.count("your value") == len(markup.packed_files(page)) == 10
    assert main(["assignment", "--output", str(tmp_path / "a.html")]) == 0
    assert (tmp_path / "a.html").read_text().count("Answer.") == len(TASKS)


def test_a_page_that_cannot_be_written_is_one_message(tmp_path, capsys):
    assert main(["assignment", "--output", str(tmp_path)]) == 2
    assert f"{tmp_path}: it cannot be written" in capsys.readouterr().err


def test_the_tables_can_be_taken_away(record):
    page = render.assignment(beside.Sides(record, None)).html("assignment")
    table = pd.read_csv(io.StringIO(markup.packed_files(page)["naive-kernel-float.csv"]))
    assert {"side", "time_ms", "gflops", "n", "p", "m"} <= set(table)
    assert table["side"].nunique() == 3
