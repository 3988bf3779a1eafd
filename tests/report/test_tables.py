"""The tables: what was published, what was measured, their ratio, and what must never be mixed."""

import dataclasses
import json
import math
import re

import pandas as pd
import pytest
import synthetic

from tilewise import UserError, outcome
from tilewise.evidence import Evidence, load_evidence, load_platform, load_published
from tilewise.explain import comparisons, counts, provenance, timings
from tilewise.report import figures, headings, tables
from tilewise.study import builds, columns, points

PUBLISHED = load_published()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder like report/recorded with one invented platform."""
    folder = tmp_path_factory.mktemp("recorded")
    synthetic.write(folder / "nvidia-h200", with_traffic=True)
    return folder


@pytest.fixture(scope="module")
def emulators_folder(tmp_path_factory):
    """The results of a machine without a GPU."""
    return synthetic.write(tmp_path_factory.mktemp("results") / "emulator", "emulator", with_traffic=True)


@pytest.fixture(scope="module")
def emulator(recorded, emulators_folder):
    """Evidence of a machine without a GPU."""
    return load_evidence([emulators_folder], recorded=recorded)


@pytest.fixture(scope="module")
def gpu(recorded):
    """Evidence of a machine with a GPU: no recorded data is read."""
    return load_evidence([recorded / "nvidia-h200"], recorded=recorded / "none")


def measured(*rows):
    """Rows as a measurements table of the right types."""
    return columns.frame(rows, "measurements", synthetic.parameters())


def naive(block_x, time_ms, spread=0.0, **changes):
    """A row of the naive kernel at 8192 cubed with quartiles `spread` (a fraction) around the median."""
    point = points.point("task1a", "naive", "float", 8192, 8192, 8192, block_x=block_x, block_y=1024 // block_x)
    times = {"time_ms": time_ms, "time_q1_ms": time_ms * (1 - spread), "time_q3_ms": time_ms * (1 + spread)}
    return synthetic.row(point, "gpu", **(times | changes))


# What the sources say: each figure as the source gives it.


@pytest.mark.parametrize(
    ("place", "chosen", "value"),
    [
        ("Table 1", {"kernel": "naive", "n": 1024, "m": 1024, "p": 1024}, 3.628693),
        ("Table 1", {"kernel": "naive", "n": 1024, "m": 1024, "p": 8192}, 42.841162),
        ("Table 1", {"kernel": "naive", "n": 8192, "m": 8192, "p": 1024}, 271.195058),
        ("Table 1", {"kernel": "naive", "n": 8192, "m": 1024, "p": 8192}, 290.632660),
        ("Table 1", {"kernel": "kij", "n": 8192, "m": 1024, "p": 8192}, 25230.9069),
        ("Table 1", {"kernel": "kij", "n": 8192, "m": 8192, "p": 8192}, 224239.7760),
        ("Table 2", {"block_x": 32}, 2826.502),
        ("Table 3", {"n": 30536}, 121486.5),
        ("Table 4", {"n": 8192, "m": 1024, "p": 8192}, 131.119908),
        ("Table 5", {"ntb": 7}, 397.8701),
        ("section 7", {"kernel": "kij", "n": 1100}, 311.685333),
        ("passing run", {"kernel": "ijk"}, 23042.4),
        ("failing run", {"kernel": "naive", "quantity": "call_time"}, 345.838),
    ],
)
def test_published(place, chosen, value):
    rows = PUBLISHED[PUBLISHED["place"] == place]
    for column, wanted in chosen.items():
        rows = rows[rows[column] == wanted]
    assert rows["value"].tolist() == [value]


def test_published_grids_follow_from_shapes_and_blocks():
    """Source a's shapes are (n, m, p): its grids show which is which."""
    rows = PUBLISHED[PUBLISHED["grid_x"].notna()]
    assert len(rows) == 5 + 6 + 5 + 6 + 1
    for row in rows.to_dict("records"):
        columns = row["block_x"] * (row["ntb"] if pd.notna(row["ntb"]) else 1)
        assert (row["grid_x"], row["grid_y"]) == (math.ceil(row["m"] / columns), math.ceil(row["n"] / row["block_y"]))


def test_published_rows_name_source_place_and_unit():
    assert set(PUBLISHED["source"]) == set("abcde")
    assert (PUBLISHED[["source", "place", "quantity", "unit"]] != "").all(axis=None)
    assert PUBLISHED["value"].notna().all()


# What was measured beside it.


def test_best_and_runner_up(gpu):
    rows = timings.describe(measured(naive(8, 300), naive(32, 200, 0.01), naive(64, 203, 0.01), naive(16, 250)), gpu)
    best = timings.best(rows).iloc[0]
    assert (best["choice"], best["runner_up"], best["points_ran"]) == ("32 × 32", "64 × 16", "4 of 4")
    assert best["gap_percent"] == pytest.approx(1.5)
    assert not best["decided"], "quartile ranges that overlap decide nothing"
    rows = timings.describe(measured(naive(32, 200, 0.001), naive(64, 203, 0.001)), gpu)
    assert timings.best(rows).iloc[0]["decided"]


def test_a_failed_point_is_never_best_and_never_blank(gpu):
    refused = synthetic.failed(naive(8, 1), "invalid_launch", "refused")
    best = timings.best(timings.describe(measured(refused, naive(32, 200)), gpu)).iloc[0]
    assert (best["choice"], best["points_ran"]) == ("32 × 32", "1 of 2")
    rows = measured(refused)
    for layout in (tables.sweep, tables.winners):
        row = layout(rows, gpu).iloc[0]
        assert row["status"] == "invalid_launch"
        assert pd.isna(row["time_ms"])


def test_a_block_whose_height_was_not_recorded_says_so(gpu):
    rows = gpu.select_tasks("task1a").gpu.assign(block_y=pd.NA, grid_y=pd.NA)
    described = timings.describe(rows[rows["kernel"] == "naive"].astype({"block_y": "Int64", "grid_y": "Int64"}), gpu)
    assert described["choice"].str.fullmatch(r"\d+ × \?").all()
    assert described["block"].str.fullmatch(r"\(\d+, \?\)").all()
    assert described["grid"].str.fullmatch(r"\(\d+, \?\)").all()


def test_table_1(gpu):
    table = tables.winners(gpu.select_tasks("task1a").gpu, gpu).set_index(["shape", "kernel"])
    row = table.loc[("(8192, 1024, 8192)", "naive")]
    assert row["published_ms"] == 290.632660
    assert row["ratio"] == pytest.approx(row["published_ms"] / row["time_ms"])
    assert row["published_cpu_ms"] == 25230.9069
    assert row["published_speedup_over_cpu"] == pytest.approx(25230.9069 / 290.632660)
    assert row["speedup_over_cpu"] == pytest.approx(row["cpu_ms"] / row["time_ms"])
    assert len(table) == 10, "five shapes, each with cuBLAS beside it"


@pytest.mark.parametrize("task", ["task1a", "task1b", "task2a", "task2b", "task3", "task4", "ladder_float"])
def test_the_table_of_a_task_has_every_point(gpu, task):
    points = gpu.select_tasks(task).gpu
    assert len(tables.task(task, gpu)) == len(points) > 10


def test_table_2_matches_blocks(gpu):
    table = tables.task("task1b", gpu)
    square = table[(table["shape"] == "(8192, 8192, 8192)") & (table["kernel"] == "naive")].set_index("block")
    assert set(square.index[square["published_ms"].isna()]) == {"(512, 2)", "(1024, 1)"}, "the source ends at 256 × 4"
    assert square["published_ms"].dropna().to_dict() == {
        **{"(8, 128)": 3462.878, "(16, 64)": 2870.899, "(32, 32)": 2826.502},
        **{"(64, 16)": 2944.203, "(128, 8)": 3005.359, "(256, 4)": 3231.829},
    }
    assert table[table["shape"] != "(8192, 8192, 8192)"]["published_ms"].isna().all()


def test_table_3(gpu, emulator):
    """The probe of the invented card, and that of the emulated device."""
    [row] = tables.task("task1c", gpu).to_dict("records")
    assert row["allocatable_n"] == row["theoretical_n"] - 40 and row["gflops"] == pytest.approx(6000, rel=0.01)
    assert pd.isna(row["published_ms"]), "the source has no time at this n"
    facts = gpu.facts["maximum_size"].assign(timed_n=30536)
    [row] = tables.task("task1c", dataclasses.replace(gpu, facts=gpu.facts | {"maximum_size": facts})).to_dict(
        "records"
    )
    assert row["published_ms"] == 121486.5
    here = tables.task("task1c", emulator)
    [row] = here[here["platform"] == "emulator"].to_dict("records")
    assert pd.isna(row["time_ms"]) and row["allocatable_n"] == 128, "the emulator does not time anything"


def test_table_5(gpu):
    table = tables.task("task3", gpu)
    found = table[table["published_ms"].notna()]
    assert found[["ntb", "tile"]].to_records(index=False).tolist() == [(n, 32) for n in (1, 2, 4, 6, 7, 8)]
    assert set(found["dtype"]) == {"float"}
    assert found.set_index("ntb")["published_ms"][7] == 397.8701
    assert table[table["best"]].groupby(["kernel", "dtype", "shape"]).size().max() == 1
    refused = table[table["status"] != "ok"]
    assert refused["choice"].tolist() == ["tile 32, ntb 16"]


def test_ladder(gpu):
    table = tables.ladder(gpu)
    square = table[(table["shape"] == "(8192, 8192, 8192)") & (table["dtype"] == "float")].set_index("kernel")
    ours = [name for name in square.index if name in ("naive", "tiled", "multi_tile")]
    assert ours == ["naive", "tiled", "multi_tile"]
    assert set(square.index[-2:]) == {"cublas", "cublas_best"}, "the library comes last"
    assert square.loc["naive", "speedup_over_naive"] == 1
    assert square.loc["cublas", "percent_of_anchor"] == pytest.approx(100)
    assert square.loc["tiled", "percent_of_peak"] == pytest.approx(100 * square.loc["tiled", "gflops"] / 66908)


# What must never be mixed.


def test_without_a_gpu_the_recorded_times_stand_in(emulator):
    assert set(emulator.gpu["platform"]) == {"nvidia-h200"}
    assert emulator.labels["nvidia-h200"] == "Invented H200, recorded 2026-11-21"
    assert set(emulator.cpu["platform"]) == {"emulator", "nvidia-h200"}
    assert set(emulator.emulated["platform"]) == {"emulator"}
    assert emulator.emulated["time_ms"].isna().all()
    assert not set(emulator.emulated["kernel"]) & {"kij", "numpy", "cublas"}


def test_with_a_gpu_nothing_recorded_is_shown(recorded, tmp_path):
    own = synthetic.write(tmp_path / "other-gpu")
    evidence = load_evidence([own], recorded=recorded)
    assert set(evidence.labels) == {"other-gpu"}
    assert set(evidence.gpu["platform"]) == {"other-gpu"}


def test_several_platforms_stand_side_by_side(recorded, tmp_path):
    folders = [recorded / "nvidia-h200", synthetic.write(tmp_path / "other-gpu")]
    evidence = load_evidence(folders)
    table = tables.winners(evidence.select_tasks("task1a").gpu, evidence)
    first = table[table["shape"] == "(1024, 1024, 1024)"]
    assert first["platform"].tolist() == ["nvidia-h200", "other-gpu"] * 2
    assert evidence.labels["other-gpu"] == "Invented H200 (other-gpu)", "two of the same kind have different labels"


def test_tables_say_what_the_emulator_verified(emulator, gpu):
    table = tables.task("task2a", emulator)
    assert set(table.loc[table["kernel"] == "tiled", "emulator"]) == {"ok"}
    assert "emulator" not in tables.task("task2a", gpu)


def test_one_wrong_emulated_product_shows(recorded, tmp_path):
    folder = synthetic.write(tmp_path / "emulator", "emulator")
    file = folder / "measurements.csv"
    rows = pd.read_csv(file)
    rows.loc[(rows["kernel"] == "tiled") & (rows["tile"] == 32) & (rows["dtype"] == "float"), "status"] = "incorrect"
    rows.to_csv(file, index=False)
    evidence = load_evidence([folder], recorded=recorded)
    table = tables.task("task2a", evidence)
    assert set(table.loc[(table["kernel"] == "tiled") & (table["tile"] == 32), "emulator"]) == {"incorrect"}
    assert "incorrect" in set(provenance.failures(evidence)["status"])


def test_failures_and_verification(emulator):
    failed = provenance.failures(emulator)
    assert set(failed["status"]) == {"timeout", "invalid_launch"}
    assert (failed["message"] != "").all()
    verified = provenance.verification(emulator).set_index(["platform", "kernel", "dtype"])
    assert verified.loc[("nvidia-h200", "multi_tile", "double"), ["points", "verified"]].tolist() == [37, 36]


def test_a_launch_that_should_be_refused_is_no_failure(recorded, tmp_path):
    folder = synthetic.write(tmp_path / "gpu")
    rows = pd.read_csv(folder / "measurements.csv")
    refused = (
        rows[rows["kernel"] == "naive"]
        .head(1)
        .assign(task="launch_limits", status="invalid_launch", message="asked for", time_ms=None)
    )
    pd.concat([rows, refused]).to_csv(folder / "measurements.csv", index=False)
    evidence = load_evidence([folder])
    assert "launch_limits" not in set(provenance.failures(evidence)["task"])
    assert "launch_limits" in set(evidence.gpu["task"])


def test_nor_does_it_stand_beside_the_times_of_other_tasks(recorded, tmp_path):
    folder = synthetic.write(tmp_path / "emulator", "emulator")
    rows = pd.read_csv(folder / "measurements.csv")
    refused = rows[(rows["kernel"] == "tiled") & (rows["tile"] == 32)].assign(status="invalid_launch")
    pd.concat([rows, refused.assign(task="launch_limits")]).to_csv(folder / "measurements.csv", index=False)
    table = tables.task("task2a", load_evidence([folder], recorded=recorded))
    assert set(table.loc[table["kernel"] == "tiled", "emulator"]) == {"ok"}


def test_a_task_alone_needs_only_its_own_file(recorded, tmp_path):
    folder = synthetic.write(tmp_path / "other-gpu")
    for file in [*folder.glob("tasks/*.csv"), folder / "measurements.csv"]:
        if file.stem != "task3":
            file.unlink()
    table = tables.task("task3", load_evidence([folder], "task3"))
    assert table["time_ms"].notna().any()


def test_nothing_measured_yet(tmp_path):
    with pytest.raises(UserError, match="run `make report`"):
        load_evidence([tmp_path])


def test_a_missing_column_is_named(recorded, tmp_path):
    folder = synthetic.write(tmp_path / "gpu")
    rows = pd.read_csv(folder / "measurements.csv")
    rows.drop(columns="noise").to_csv(folder / "measurements.csv", index=False)
    with pytest.raises(UserError, match="'noise'"):
        load_evidence([folder])


def test_counted_against_hardware(emulator):
    table = counts.counted_against_hardware(emulator)
    assert len(table) == 3 * len(columns.counts())
    by_count = table.groupby("count")["difference_percent"].max()
    assert by_count["global_load_sectors"] == 0
    assert by_count["shared_load_wavefronts"] == pytest.approx(4.8576)


def test_what_the_tuner_found(gpu, emulator):
    table = comparisons.tuning(gpu)
    assert table["shape"].tolist() == ["(4096, 4096, 4096)", "(8192, 8192, 8192)"]
    assert table["shape_class"].tolist() == ["medium", "large"]
    row = table.iloc[1]
    assert (row["variants"], row["failed"], row["spilled"], row["within_percent"]) == (4, 1, 1, 1)
    assert row["choice"] == "tile_n 128, tile_m 128, tile_k 16" and row["gflops"] == 40_000
    assert row["registry_gflops"] == 30_000 and row["gain_percent"] == pytest.approx(100 / 3)
    assert row["percent_of_anchor"] == pytest.approx(100 * 40 / 51, rel=0.01)
    assert table[["variants", "failed"]].sum().tolist() == [8, 2]
    # Without a GPU the recorded variants are shown beside what the emulator verified.
    both = comparisons.tuning(emulator).set_index("platform")
    assert both.loc["nvidia-h200", "gflops"].tolist() == [40_000, 40_000]
    assert both.loc["emulator", "gflops"].isna().all() and (both.loc["emulator", "variants"] == 4).all()


# Figures: each is drawn, and shows what it must.


TASKS = synthetic.config()["tasks"]
#: One task of each method.
SOME = {entry.get("method", "sweep"): name for name, entry in TASKS.items()}.values()
#: Every task with a GPU; on the emulator, beside the recorded times, one task of each method.
DRAWN = [("gpu", name) for name in TASKS]
#: The methods without a figure.
UNDRAWN = "accuracy bandwidth batches calls cold_start energy grading launch_limits maximum_size overhead tune".split()
DRAWN += [pytest.param("emulator", name, marks=[pytest.mark.exhaustive] * (name not in SOME)) for name in TASKS]


@pytest.mark.slow
@pytest.mark.parametrize(("where", "task"), DRAWN)
def test_the_rows_of_a_task_alone_give_the_same_figure(task, where, recorded, emulators_folder, request):
    """The file of a task, which is drawn from it alone, shows what the page shows."""
    whole = request.getfixturevalue(where)
    folder, kept = (recorded / "nvidia-h200", "none") if where == "gpu" else (emulators_folder, ".")
    own = load_evidence([folder], task, recorded / kept, whole.kernels)
    figure = figures.task(task, own)
    drawing = figures.svg(figure)
    bare = own.method(task) in UNDRAWN
    assert figures.missing_reason(figure).startswith("This task has no figure") == bare
    assert drawing.startswith("<svg") and (bare or where == "gpu" or "recorded" in drawing)
    assert _named(drawing) == _named(figures.svg(figures.task(task, whole))), "the same data gives the same picture"


def _named(drawing):
    """A drawing whose clip paths, named after positions with their last digit, are numbered instead."""
    names = dict.fromkeys(re.findall(r'<clipPath id="(\w+)"', drawing))
    for number, name in enumerate(names):
        drawing = drawing.replace(name, f"clip{number}")
    return drawing


def test_scattered_and_refused_points_are_marked(emulator):
    assert "± more than 1 %" in figures.svg(figures.task("task1a", emulator))
    assert "did not run" in figures.svg(figures.task("task3", emulator))


def test_overview_figures(emulator):
    words = {"roofline": "vector peak", "accuracy_and_rate": "faster to the right"}
    words |= {"rungs": "upper bound"}
    assert set(words) == set(figures.OVERVIEW)
    for name, draw in figures.OVERVIEW.items():
        assert words[name] in figures.svg(draw(emulator))
    assert "cuBLAS" in figures.svg(figures.draw("climb", emulator))


def with_traffic(emulator, *rows):
    """The evidence with these rows of traffic.csv instead of its own; what they lack is empty."""
    rows = [{"kernel": "naive", "dtype": "float", "n": 8, "p": 8, "m": 8} | row for row in rows]
    table = columns.frame(rows, "traffic", emulator.parameters)
    return dataclasses.replace(emulator, facts=emulator.facts | {"traffic": table})


CLEAN = dict.fromkeys(columns.FAULTS, 0) | {"status": "ok", "global_load_requests": 3}


def test_a_kernel_that_was_not_traced_is_not_clean(emulator):
    unsuited = {"kernel": "tiled", "tile": 8, "status": "unsupported", "message": "it requires n % 128 == 0"}
    counted = {"kernel": "tiled", "tile": 16, "global_load_requests": 3, "status": "ok"}
    here = with_traffic(emulator, CLEAN, CLEAN | {"n": 9, "divergence": 2}, unsuited, counted)
    table = counts.traffic(here)
    assert table["searched"].tolist() == [
        "2 shapes",
        "not traced: it requires n % 128 == 0",
        "not traced: add a shape that it takes to trace.shapes",
    ]
    faults = table[list(columns.FAULTS)]
    assert faults.loc[0].to_dict() == dict.fromkeys(columns.FAULTS, 0) | {"divergence": 2}
    assert faults.loc[1:].isna().all(axis=None)
    found = counts.faults(here)
    assert found.to_dict("tight")["data"] == [["naive", "yes", "divergence"], ["tiled", "no", ""]]


def test_every_kind_of_fault_is_on_the_page(emulator):
    for column in columns.FAULTS:
        here = with_traffic(emulator, CLEAN | {column: 1})
        assert counts.faults(here)["found"].tolist() == [columns.heading(column)]
        assert column in headings.make_headings(headings.load()["traffic"], counts.traffic(here))


def test_unused_reads_are_counted_and_no_fault(emulator):
    here = with_traffic(emulator, CLEAN, CLEAN | {"n": 9, "unused_reads": 5})
    table = counts.traffic(here)
    assert table["unused_reads"].tolist() == [5] and "unused_reads" in headings.make_headings(
        headings.load()["traffic"], table
    )
    assert counts.faults(here).empty


def test_a_shape_that_was_left_out_is_named_beside_the_others(emulator):
    left = {"n": 9, "status": "timeout", "message": "not done after 60 s"}
    here = with_traffic(emulator, CLEAN, left)
    assert counts.traffic(here)["searched"].tolist() == ["1 shape; 1 not traced: not done after 60 s"]
    assert counts.traffic(here)["global_load_requests"].tolist() == [3], "the row with counts"


def test_a_kernel_that_was_only_verified_is_in_its_tasks_table(recorded, tmp_path):
    folder = synthetic.write(tmp_path / "emulator", "emulator")
    rows = pd.read_csv(folder / "measurements.csv")
    own = rows[(rows["task"] == "task1a") & (rows["kernel"] == "naive")].assign(kernel="two_rows", status="incorrect")
    pd.concat([rows, own]).to_csv(folder / "measurements.csv", index=False)
    facts = pd.read_csv(folder / "facts/task1a.csv")
    facts.assign(points=facts["points"] + len(own)).to_csv(folder / "facts/task1a.csv", index=False)
    table = tables.task("task1a", load_evidence([folder], recorded=recorded))
    assert set(table.loc[table["kernel"] == "two_rows", "status"]) == {"incorrect"}
    assert "two_rows" not in set(table.loc[table["platform"] != "emulator", "kernel"])


def test_kernels_that_the_emulator_does_not_run_are_named_with_the_reason(emulator, gpu):
    assert "wgmma" not in set(provenance.not_emulated(emulator)["kernel"])
    kernels = dict(emulator.kernels)
    kernels["wgmma"] = dataclasses.replace(kernels["wgmma"], emulated=False, reason="it uses what is new")
    table = provenance.not_emulated(dataclasses.replace(emulator, kernels=kernels))
    assert ["wgmma", "it uses what is new"] in table[["kernel", "reason"]].values.tolist()
    assert provenance.not_emulated(dataclasses.replace(gpu, kernels=kernels)).empty


def test_kernels_edited_since_they_were_recorded_are_named(recorded):
    gpu = load_platform(recorded / "nvidia-h200", recorded=True)
    rows = gpu.measurements[(gpu.measurements["kernel"] == "tiled") & (gpu.measurements["tile"] == 16)]
    tiled = synthetic.KERNELS["tiled"]
    hashes = [builds.row_sha256(row, tiled, gpu.device) for row in rows.to_dict("records")]
    same = dataclasses.replace(gpu, measurements=rows.assign(build_sha256=hashes))
    other = dataclasses.replace(gpu, measurements=rows)

    def said(platform):
        evidence = Evidence((platform,), (platform,), None, None, None, {}, synthetic.KERNELS)
        table = provenance.provenance(evidence).set_index("fact")
        return table.loc["kernels"].iloc[0]

    assert said(same) == "as measured, by the hash of every source"
    assert said(other) == "edited since: tiled"


def test_the_provenance_says_with_which_commits_and_changes_the_tasks_were_measured(recorded):
    gpu = load_platform(recorded / "nvidia-h200", recorded=True)
    rows, roofs = gpu.measurements, gpu.facts["bandwidth"]

    def said(measured, facts):
        platform = dataclasses.replace(gpu, measurements=measured, facts=gpu.facts | {"bandwidth": facts})
        evidence = Evidence((platform,), (platform,), None, None, None, {}, synthetic.KERNELS)
        return provenance.provenance(evidence).set_index("fact").loc["commit"].iloc[0]

    assert said(rows, roofs) == "unknown"
    silent = {name: table.iloc[:0] for name, table in gpu.facts.items()}
    gpu = dataclasses.replace(gpu, facts=silent)
    new = rows[rows["task"].isin(["task1a", "task3"])].assign(commit="b0f6ce0967", changes="")
    assert said(new, roofs.assign(commit="b0f6ce0967")) == "b0f6ce0967"
    new.loc[new["task"] == "task3", "changes"] = "kernels/mine.cu (new)"
    not_built = new.iloc[:1].assign(task="ladder_float", status="unsupported", commit="", changes="")
    assert said(pd.concat([new, not_built]), roofs.assign(commit="1234567890")) == (
        "b0f6ce0967 (task1a); b0f6ce0967 with changes in kernels/mine.cu (new) (task3); 1234567890 (bandwidth)"
    )


def test_the_overhead_of_a_machine_has_a_table_and_no_figure(gpu):
    [row] = tables.task("overhead", gpu).to_dict("records")
    assert row["overhead_us"] == 4.25
    assert "its table has its numbers" in figures.missing_reason(figures.task("overhead", gpu))
    facts = {name: table.iloc[:0] if name == "overhead" else table for name, table in gpu.facts.items()}
    assert tables.task("overhead", dataclasses.replace(gpu, facts=facts)).empty


def test_calls_have_a_table(gpu):
    rows = tables.task("calls", gpu).set_index(["dtype", "n"])
    assert rows["times_as_fast"].round(3).to_dict()["float", 64] == 0.25
    facts = {name: table.iloc[:0] if name == "calls" else table for name, table in gpu.facts.items()}
    assert tables.task("calls", dataclasses.replace(gpu, facts=facts)).empty


def test_a_gpu_whose_peak_is_not_known_has_a_roofline(emulator):
    first = emulator.gpus[0].device
    device = dataclasses.replace(first, gpu=first.gpu | {"peak_gflops": None})
    evidence = dataclasses.replace(emulator, gpus=(dataclasses.replace(emulator.gpus[0], device=device),))
    for draw in figures.OVERVIEW.values():
        drawing = figures.svg(draw(evidence))
        assert "vector peak" not in drawing or draw is not figures.OVERVIEW["roofline"]


def test_what_a_task_no_longer_asked_for_left_behind_is_not_shown(tmp_path, recorded):
    study = synthetic.config()
    folder = synthetic.write(tmp_path / "other-gpu", study=study)
    assert len(load_evidence([folder], recorded=recorded).facts["maximum_size"]) == 1
    del study["tasks"]["task1c"]
    (folder / "config.json").write_text(json.dumps(study))
    assert load_evidence([folder], recorded=recorded).facts["maximum_size"].empty


def test_figures_without_any_gpu_data_say_so(tmp_path):
    evidence = load_evidence([synthetic.write(tmp_path / "emulator", "emulator")], recorded=tmp_path / "none")
    assert "Nothing of this task was timed" in figures.svg(figures.task("task3", evidence))
    assert tables.task("task3", evidence)["status"].eq("ok").all()
    for draw in figures.OVERVIEW.values():
        assert "<svg" in figures.svg(draw(evidence))


def test_a_terminal_says_whose_rows_it_shows(tmp_path):
    path = tmp_path / "emulator/tables/task3.csv"
    path.parent.mkdir(parents=True)
    rows = pd.DataFrame({"platform": ["nvidia-h200", "emulator"], "kernel": ["naive", "tiled"], "time_ms": [1.5, None]})
    rows.to_csv(path, index=False)
    own = [*outcome.table_lines(path, "sweep", 5)]
    assert "tiled" in own[1] and "naive" in own[2], "those of this machine come first"
    rows[:1].to_csv(path, index=False)
    others = [*outcome.table_lines(path, "sweep", 5)]
    assert others[0] == "no rows for emulator; recorded ones instead, of nvidia-h200:" and "naive" in others[2]
