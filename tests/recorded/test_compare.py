"""`tilewise compare`: it finds what was planted, and nothing between two samplings of one run."""

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic

from tilewise import RECORDED, outcome
from tilewise.__main__ import main
from tilewise.recorded import compare
from tilewise.recorded.compare import Verdict
from tilewise.study import registry


@pytest.fixture(scope="module")
def study():
    """A part of the study's config: enough kernels to tell one from the others, and CPU loops."""
    config = synthetic.config()
    names = ("cpu", "task1a", "task2a", "task3", "task4", "overhead")
    return config | {"tasks": {name: config["tasks"][name] for name in names}}


@pytest.fixture
def runs(tmp_path, study):
    """Two folders with the same results."""
    return [str(synthetic.write(tmp_path / name / "nvidia-h200", study=study)) for name in ("a", "b")]


def edited(folder, edit, name="measurements.csv"):
    """Let `edit` change the rows of a file of a run."""
    path = f"{folder}/{name}"
    edit(pd.read_csv(path)).to_csv(path, index=False)


def slower(rows, chosen, factor):
    """The rows with the times of some of them multiplied."""
    times = [name for name in rows if name.startswith("time_")]
    rows.loc[chosen, times] = rows.loc[chosen, times] * factor
    return rows


def sampled(rows, seed):
    """Rows with the medians and quartiles of samples that scatter as the row says."""
    generator = np.random.default_rng(seed)
    for index, row in rows[rows["time_ms"].notna()].iterrows():
        samples = row["time_ms"] * generator.normal(1, row["noise"], 50)
        rows.loc[index, ["time_q1_ms", "time_ms", "time_q3_ms"]] = np.percentile(samples, [25, 50, 75])
    return rows


def compared(runs, **options):
    kernels = registry.load()
    return compare.compare(*(compare.read(run, kernels) for run in runs), kernels, **options)


@pytest.mark.parametrize("threshold", [0.5, 2])
def test_two_samplings_of_one_run_are_equal(runs, threshold):
    for seed, run in enumerate(runs):
        edited(run, lambda rows, seed=seed: sampled(rows, seed))
    found = compared(runs, threshold=threshold)
    assert set(found.points["verdict"]) == {Verdict.EQUAL} and not found.is_worse
    assert (found.points["ratio"] != 1).sum() > 100, "they are two samplings"


def test_a_planted_change_of_3_percent_is_found_in_its_kernel_alone(runs, capsys):
    for seed, run in enumerate(runs):
        edited(run, lambda rows, seed=seed: sampled(rows, seed))
    edited(runs[1], lambda rows: slower(rows, rows["kernel"] == "tiled", 1.03))
    found = compared(runs)
    changed = found.points[found.points["verdict"] != Verdict.EQUAL]
    assert set(changed["kernel"]) == {"tiled"} and set(changed["verdict"]) == {Verdict.SLOWER}
    assert len(changed) == (found.points["kernel"] == "tiled").sum()
    tiled = found.by_kernel.set_index("kernel").loc["tiled"]
    assert tiled["ratio"] == pytest.approx(1.03, abs=0.002)
    assert main(["compare", *runs]) == 1
    assert re.search(r"^ *tiled +float +\d+ +1\.0(29|3|31) ", capsys.readouterr().out, re.MULTILINE)
    assert main(["compare", *reversed(runs)]) == 0, "what is faster is no failure"
    assert main(["compare", *runs, "--threshold", "4%"]) == 0


def test_a_run_without_a_gpu_has_only_its_loops_in_common(runs):
    def nothing_ran(rows):
        refused = rows["grid_x"].notna()
        rows.loc[refused, "status"] = "invalid_launch"  # on both
        return rows

    for run in runs:
        edited(run, nothing_ran)
    device = json.loads(Path(runs[1], "device.json").read_text()) | {"backend": "emulator", "gpu": None}
    Path(runs[1], "device.json").write_text(json.dumps(device))
    assert set(compared(runs).points["processor"]) == {"CPU"}


@pytest.mark.parametrize("known", [True, False])
def test_the_difference_of_the_overheads_is_taken_off_if_both_are_known(runs, known, capsys):
    def shorter(rows):
        on_gpu = rows["grid_x"].notna()
        times = [name for name in rows if name.startswith("time_")]
        rows.loc[on_gpu, times] -= 1.75e-3
        return rows

    edited(runs[1], shorter)
    edited(runs[1], lambda rows: rows.assign(overhead_us=2.5), "facts/overhead.csv")
    if not known:
        edited(runs[0], lambda rows: rows.head(0), "facts/overhead.csv")
    found = compared(runs)
    assert found.overhead_us == (pytest.approx(-1.75) if known else None)
    main(["compare", *runs])
    said = "-1.75 µs" if known else "the runs did not both measure it"
    assert f"overhead of an isolated time, the second run's less the first's: {said}\n" in capsys.readouterr().out
    library = found.points["kernel"].isin(["cublas"])  # it has no grid, so it is as it was
    short = found.points["time_ms"] < 0.02
    changed = library if known else ~library & (found.points["processor"] == "GPU")
    assert (found.points.loc[changed & short, "ratio"] > 1).all() == known
    assert set(found.points.loc[~library & short, "verdict"]) == {Verdict.EQUAL if known else Verdict.FASTER}


def test_a_lost_status_and_another_clock_are_named(runs, capsys):
    def lose(rows):
        row = rows.index[rows["kernel"] == "naive"][0]
        rows.loc[row, ["status", "message"]] = ["incorrect", "wrong"]
        rows.loc[row, [name for name in rows if name.startswith("time_")]] = None
        slow = rows["kernel"] == "cublas"
        rows.loc[slow, "sm_clock_mhz"] = rows.loc[slow, "sm_clock_mhz"] / 1.05
        return slower(rows, slow, 1.05)

    edited(runs[1], lose)
    assert main(["compare", *runs]) == 1
    said = capsys.readouterr().out
    assert "ok, then incorrect" in said and "its clock: 1965 and 1871 MHz" in said
    assert "1 status differs" in said


def test_ratios_of_points_in_turns_are_compared_by_themselves(runs, capsys):
    def in_turns(ratio):
        def edit(rows):
            turned = (rows["task"] == "task2a") & (rows["kernel"] == "tiled") & (rows["status"] == "ok")
            rows.loc[turned, ["turns", "vs_best", "run_low_ms", "run_high_ms"]] = [10, ratio, 0.0, 1e6]
            return rows

        return edit

    assert not compared(runs).ratios_line
    for folder, ratio in zip(runs, (0.5, 0.505)):
        edited(folder, in_turns(ratio))
    assert "alone by 1 % in the median, at most 1 % (tiled float" in compared(runs).ratios_line
    main(["compare", *runs])
    assert "0.500, then 0.505" in capsys.readouterr().out


def test_the_csv_has_a_row_per_point(runs, tmp_path):
    assert main(["compare", *runs, "--csv", str(tmp_path / "out.csv")]) == 0
    table = pd.read_csv(tmp_path / "out.csv")
    assert len(table) > 100 and set(table["verdict"]) == {"equal"}
    assert set(table["processor"]) == {"GPU", "CPU"}


def damaged(path):
    path.write_bytes(path.read_bytes()[:-40])


BAD = {
    "no such run": (lambda run: None, "no-such-run", "there is no such folder and no recorded run of that name"),
    "no measurements": (lambda run: (run / "measurements.csv").unlink(), None, "it has 0 rows of cpu"),
    "a damaged file": (lambda run: damaged(run / "measurements.csv"), None, "measurements.csv: "),
    "a damaged device": (lambda run: damaged(run / "device.json"), None, "device.json: this is not JSON"),
    "another schema": (
        lambda run: edited(run, lambda rows: rows.drop(columns="time_q1_ms")),
        None,
        "the column 'time_q1_ms' is missing; ",
    ),
    "no point in common": (
        lambda run: edited(run, lambda rows: rows.assign(n=rows["n"] + 1)),
        None,
        "have no point in common (tasks cpu, task1a, task2a, task3 and cpu, task1a, task2a, task3)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_ends_in_one_message(runs, tmp_path, capsys, name):
    spoil, other, words = BAD[name]
    spoil(tmp_path / "b" / "nvidia-h200")
    assert main(["compare", runs[0], other or runs[1]]) == 2
    said = capsys.readouterr().err
    assert said.startswith("tilewise: ") and words in said and ";" in said and said.count("\n") == 1


def test_the_recorded_run_is_equal_to_itself_within_seconds(record_property):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "tilewise", "compare", "nvidia-h200", str(RECORDED / "nvidia-h200")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    record_property("note", f"tilewise compare of two recorded runs took {took:.1f} s of a processor")
    assert took < 4, "two seconds of a processor of its own; a shared one may be half as fast"
    assert "All points are equal" in said


def test_the_end_of_a_run_says_how_it_compares(runs, tmp_path, monkeypatch):
    edited(runs[1], lambda rows: slower(rows, rows["kernel"] == "tiled", 1.05))
    monkeypatch.setattr(outcome, "RECORDED", tmp_path / "a")
    end = "done", ["nvidia-h200"], {"all"}, [], tmp_path / "b"
    [line] = [line for line in outcome.final_summary(*end) if "recorded run" in line]
    assert "slower" in line and "tilewise compare nvidia-h200" in line
    monkeypatch.setattr(outcome, "RECORDED", tmp_path / "nothing")
    assert not [line for line in outcome.final_summary(*end) if "recorded run" in line]
