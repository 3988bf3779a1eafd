"""What further cards of a model took: kept beside a recorded run, and shown as the spread over cards."""

import json
import shutil

import pandas as pd
import pytest
import synthetic

from tilewise import UserError
from tilewise.__main__ import main
from tilewise.evidence import load_evidence, load_platform
from tilewise.explain import comparisons, provenance
from tilewise.recorded import cards
from tilewise.report import tables
from tilewise.study import registry

OWN, OTHER, THIRD = (f"GPU-0000{each}-0000-0000-0000-000000000000" for each in ("0000", "aaaa", "bbbb"))
ON_THE_HOST = [name for name, kernel in registry.load(checked=True).items() if not kernel.on_gpu]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A recorded run, and the results of the same study."""
    folder = tmp_path_factory.mktemp("cards")
    run = synthetic.write(folder / "recorded" / "nvidia-h200")
    table = pd.read_csv(run / "measurements.csv", dtype=str, keep_default_na=False)
    table.loc[~table["kernel"].isin(ON_THE_HOST), "gpu_uuid"] = OWN
    table.to_csv(run / "measurements.csv", index=False)
    return folder


@pytest.fixture
def recorded(written, tmp_path):
    shutil.copytree(written / "recorded", tmp_path / "recorded")
    return tmp_path / "recorded"


def rows_of(recorded):
    """The rows of the recorded run, as text."""
    return pd.read_csv(recorded / "nvidia-h200" / "measurements.csv", dtype=str, keep_default_na=False)


def results(table, recorded, folder):
    """Results of some tasks alone, as `snakemake headline` leaves them: device.json, and a file for each task."""
    run = folder / "nvidia-h200"
    (run / "tasks").mkdir(parents=True)
    shutil.copy(recorded / "nvidia-h200" / "device.json", run)
    for task, rows in table.groupby("task"):
        rows.to_csv(run / "tasks" / f"{task}.csv", index=False)
    return run


def on_card(table, uuid, longer=1.0, clock=1.0, task="ladder_float"):
    """Rows of another card, on which the products of a task take `longer`, at `clock` of the clock."""
    own = (table["task"] == task) & (table["time_ms"] != "")
    for name, factor in (("time_ms", longer), ("sm_clock_mhz", clock)):
        table.loc[own, name] = [repr(float(each) * factor) if each else "" for each in table.loc[own, name]]
    table.loc[table["gpu_uuid"] != "", "gpu_uuid"] = uuid
    return table


def results_on(recorded, folder, *card, **differs):
    """Results of another card."""
    return results(on_card(rows_of(recorded), *card, **differs), recorded, folder)


def test_the_spread_over_cards_is_a_column_and_points_that_differ_have_their_reason(recorded, tmp_path, capsys):
    runs = [
        results_on(recorded, tmp_path / "a", OTHER, 1.02),
        results_on(recorded, tmp_path / "b", THIRD, 1.06, 1 / 1.06),
    ]
    assert main(["record", "--cards", *map(str, runs), "--into", str(recorded)]) == 0
    assert "points of further cards" in capsys.readouterr().out
    kept = load_platform(recorded / "nvidia-h200", recorded=True)
    assert set(kept.cards["gpu_uuid"]) == {OTHER, THIRD}
    evidence = load_evidence([recorded / "nvidia-h200"], recorded=recorded)
    shown = tables.task("ladder_float", evidence)
    timed = shown[shown["status"] == "ok"]
    assert timed["cards_percent"].tolist() == pytest.approx([6.0] * len(timed))
    table = provenance.cards_differ(evidence)
    assert set(table["card_count"]) == {3} and set(table["cards_percent"].round(6)) == {6.0}
    short = table["high_ms"] - table["low_ms"] <= provenance.LAUNCH_MS
    assert table.loc[~short, "why"].str.startswith("the clock: ").all() and not short.all()
    assert (table.loc[short, "why"] == "no more apart than launches on two machines").all()


def test_a_card_that_differs_for_no_known_reason_has_none(recorded, tmp_path):
    cards.add_cards([results_on(recorded, tmp_path / "a", OTHER, 1.06)], recorded)
    table = provenance.cards_differ(load_evidence([recorded / "nvidia-h200"], recorded=recorded))
    assert (table.loc[table["low_ms"] > 1, "why"] == "").all() and (table["low_ms"] > 1).any()


def test_short_products_differ_as_launches_do(recorded, tmp_path):
    cards.add_cards([results_on(recorded, tmp_path / "a", OTHER, 1.06, task="task4")], recorded)
    table = provenance.cards_differ(load_evidence([recorded / "nvidia-h200"], recorded=recorded))
    short = table["low_ms"] < 0.04
    assert short.any() and set(table.loc[short, "why"]) == {"no more apart than launches on two machines"}


def test_a_card_is_added_once_and_replaced(recorded, tmp_path):
    first = results_on(recorded, tmp_path / "a", OTHER, 1.02)
    path, points, left_out = cards.add_cards([first], recorded)
    assert points > 100 and not left_out
    before = path.read_bytes()
    assert cards.add_cards([first], recorded)[:2] == (path, points) and path.read_bytes() == before
    cards.add_cards([results_on(recorded, tmp_path / "b", OTHER, 1.5)], recorded)
    table = pd.read_csv(path)
    assert len(table) == points and table.loc[table["task"] == "ladder_float", "time_ms"].sum() > 0
    assert path.read_bytes() != before


def test_points_of_other_sources_are_left_out_and_refused(recorded, tmp_path):
    table = on_card(rows_of(recorded), OTHER)
    stream_k = (table["kernel"] == "stream_k") & (table["time_ms"] != "")
    table.loc[stream_k, "build_sha256"] = "1" * 64
    path, _, left_out = cards.add_cards([results(table, recorded, tmp_path / "a")], recorded)
    assert len(left_out) == stream_k.sum() and "stream_k" in left_out[0] and "other sources" in left_out[0]
    kept = pd.read_csv(path, dtype=str, keep_default_na=False)
    assert "stream_k" not in set(kept["kernel"])


def test_runs_that_cannot_be_added_are_refused_in_a_line(recorded, tmp_path):
    same = results(rows_of(recorded), recorded, tmp_path / "same")
    with pytest.raises(UserError, match="no point of nvidia-h200 was timed on another card"):
        cards.add_cards([same], recorded)
    other = results_on(recorded, tmp_path / "a", OTHER)
    device = json.loads((other / "device.json").read_text()) | {"platform": "nvidia-h100"}
    (other / "device.json").write_text(json.dumps(device))
    with pytest.raises(UserError, match="runs of several platforms: nvidia-h100, nvidia-h200"):
        cards.add_cards([same, other], recorded)
    with pytest.raises(UserError, match="no run of nvidia-h100 is recorded"):
        cards.add_cards([other], recorded)
    (other / "device.json").write_bytes((same / "device.json").read_bytes())
    shutil.rmtree(other / "tasks")
    with pytest.raises(UserError, match="no task is finished there"):
        cards.add_cards([other], recorded)
    with pytest.raises(UserError, match="it is not a run"):
        cards.add_cards([tmp_path], recorded)
    assert main(["record", "--cards"]) == 2


def in_turns(table, uuid, task, ratio, library=None):
    """Rows of `ladder_float` in turns on a card, as those of a task of this name, at this ratio to cuBLAS."""
    table = table[table["task"] == "ladder_float"]
    own = table["time_ms"] != ""
    table.loc[own, ["turns", "vs_best", "sustained_vs_best"]] = ["10", repr(ratio), repr(round(ratio - 0.01, 2))]
    table.loc[own, "sustained_vs_default"] = repr(ratio)
    table.loc[table["gpu_uuid"] != "", "gpu_uuid"] = uuid
    if library:
        table.loc[own & table["kernel"].str.startswith("cublas"), "build_sha256"] = library
    return table.assign(task=task)


def test_the_headline_duels_of_further_cards_are_the_spread_of_a_ratio(recorded, tmp_path):
    rows = rows_of(recorded)
    rows.update(in_turns(rows.copy(), OWN, "ladder_float", 1.10))
    rows.to_csv(recorded / "nvidia-h200" / "measurements.csv", index=False)

    def add(*card):
        run = results(in_turns(rows.copy(), *card), recorded, tmp_path / card[0] / str(card[2]))
        return cards.add_cards([run], recorded)[2]

    assert not add(OTHER, "headline", 1.13)

    def shown():
        evidence = load_evidence([recorded / "nvidia-h200"], recorded=recorded)
        return comparisons.duels(evidence)

    table = shown()
    columns = ["card_count", "cards_low", "cards_high", "cards_sustained_low", "cards_sustained_high"]
    assert (table[columns] == [2, 1.10, 1.13, 1.09, 1.12]).all(axis=None) and len(table) > 20
    # Another version of cuBLAS: its own row is left out, and the times of the others stay without their ratios.
    left_out = add(THIRD, "headline", 1.5, "1" * 64)
    assert left_out and all("cublas" in line for line in left_out)
    assert shown()[columns].equals(table[columns])
    kept = pd.read_csv(recorded / "nvidia-h200" / "cards.csv").set_index("gpu_uuid")[list(cards.RATIOS)]
    assert kept.loc[THIRD].isna().all(axis=None) and kept.loc[OTHER].notna().any(axis=None)
    add(THIRD, "headline", 1.09)
    assert (shown()[columns[:3]] == [3, 1.09, 1.13]).all(axis=None)
