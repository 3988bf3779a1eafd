"""Whatever parameters, element types and statuses a study has: tables, layouts and figures follow from the registry."""

import dataclasses
import json
import re
import shutil
from html import escape

import markupsafe
import pandas as pd
import pytest
import synthetic
from prose import checks, unpacked
from test_report import Page

from tilewise.evidence import Evidence, load_evidence, load_platform
from tilewise.explain import provenance, timings
from tilewise.report import figures, headings, markup, render, sweep_figures, tables
from tilewise.study import builds, columns, registry
from tilewise.study.kernel import LaunchEntry

FIVE = ("bm", "bn", "bk", "depth", "vector")
EVIL = "<script>alert('a & b')</script>"
#: A title in which a reader of Markdown, mathematics, HTML or templates would find something.
TITLE = f'{EVIL} var(--x) `a` *b* _c_ <i>d</i> $e$ [f](#g) </script> & "h" \\ | ~~i~~ &amp; ![j](k)'


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A recorded run of the study's own kernels."""
    folder = tmp_path_factory.mktemp("recorded")
    synthetic.write(folder / "nvidia-h200", with_traffic=True)
    return folder


@pytest.fixture
def with_kernels(monkeypatch):
    """A function that adds kernels, made from `tiled`, to the registry; returns the registry."""

    def add(name, **changes):
        kernel = dataclasses.replace(synthetic.KERNELS["tiled"], name=name, **changes)
        monkeypatch.setattr(synthetic, "KERNELS", synthetic.KERNELS | {name: kernel})
        return synthetic.KERNELS

    return add


@pytest.fixture
def five(with_kernels):
    """A registry with a kernel of five parameters of its own."""
    launch = LaunchEntry("gemm", ("dtype", *FIVE), (32, 4), ("bm", "bn"))
    return with_kernels("gemm", parameters=FIVE, launches=(launch,))


def sweeping(*sweeps, **entry):
    """The study with one task more, `mine`, of these sweeps."""
    study = synthetic.config("task2a", "task3")
    study["tasks"]["mine"] = {"title": "Mine", "sweeps": list(sweeps)} | entry
    return study


SPACE = {"kernel": "gemm", "dtype": "float", "shapes": ["square", "others"]}
SPACE |= {"bm": 128, "bn": 64, "bk": [8, 16], "depth": [2, 3, 4], "vector": 4}


def test_five_parameters_are_in_tables_layouts_and_figures(five, tmp_path):
    folder = synthetic.write(tmp_path / "gpu", study=sweeping(SPACE))
    evidence = load_evidence([folder], kernels=five)
    assert set(FIVE) < set(evidence.parameters)
    table = tables.task("mine", evidence)
    assert len(table) == 5 * 2 * 3
    assert table["choice"].iloc[0] == "bm 128, bn 64, bk 8, depth 2, vector 4"
    assert table.loc[table["depth"] == 4, "bk"].tolist() == [8, 16] * 5
    shown = headings.make_headings(headings.load()["sweep"], table)
    assert [(shown[name], columns.is_words(name)) for name in FIVE] == [(("", name), False) for name in FIVE]
    html = markup.table_html(table, "sweep", "Mine.", evidence, "mine")
    heads = [words for _, words in unpacked(html)["heads"]]
    assert {*FIVE} < {*heads} and not {"ntb", "tile"} & {*heads}, "parameters of other kernels are not columns here"
    assert tables.choices(evidence, "mine")["points_ran"].tolist() == ["6 of 6"] * 5
    drawn = figures.svg(figures.task("mine", evidence))
    for words in (">depth<", "gemm, (", "bm 128, bn 64, bk 16, vector 4"):
        assert words in drawn
    for draw in figures.OVERVIEW.values():
        assert "<svg" in figures.svg(draw(evidence))


def test_a_run_recorded_before_a_parameter_was_there_is_read(recorded, five):
    evidence = load_evidence([recorded / "nvidia-h200"], kernels=five)
    assert evidence.gpu[[*FIVE]].isna().all(axis=None)
    assert {str(evidence.gpu[name].dtype) for name in FIVE} == {"Int64"}
    for name, table in evidence.facts.items():
        assert ("*" in columns.FILES[name]) == (set(FIVE) <= set(table))
    table = tables.task("task3", evidence)
    assert table["published_ms"].notna().sum() == 6, "a published figure is of a kernel without the new parameters"
    assert "depth" not in markup.table_html(table, "sweep", "Table 5.", evidence, "task3")


def test_a_parameter_that_only_a_recorded_run_has_stays(five, recorded, tmp_path):
    folder = synthetic.write(tmp_path / "gpu", study=sweeping(SPACE))
    kernels = registry.load()
    evidence = load_evidence([folder, recorded / "nvidia-h200"], kernels=kernels)
    assert set(FIVE) < set(evidence.parameters)
    table = tables.task("mine", evidence)
    assert table["choice"].iloc[0] == "bm 128, bn 64, bk 8, depth 2, vector 4"
    assert "depth" in headings.make_headings(headings.load()["sweep"], table)


def test_a_published_figure_is_not_of_a_kernel_with_another_parameter(with_kernels, tmp_path):
    """The source's tiled kernel has no depth, so one that has some is another kernel."""
    tiled = synthetic.KERNELS["tiled"]
    entry = dataclasses.replace(tiled.launches[0], template=("dtype", "tile", "depth"))
    kernels = with_kernels("tiled", parameters=("tile", "depth"), launches=(entry,))
    sweep = {"kernel": "tiled", "dtype": "float", "shapes": "square", "tile": 32, "depth": 2}
    study = sweeping(sweep)
    del study["tasks"]["task2a"]
    evidence = load_evidence([synthetic.write(tmp_path / "gpu", study=study)], kernels=kernels)
    assert tables.task("mine", evidence)["published_ms"].isna().all()


def test_a_block_and_another_parameter(with_kernels, tmp_path):
    entry = dataclasses.replace(synthetic.KERNELS["naive"].launches[0], function="mine")
    kernels = with_kernels("mine", parameters=("block", "unroll"), launches=(entry,))
    sweep = {"kernel": "mine", "dtype": "float", "shapes": "square", "block": ["8x128", "32x32"], "unroll": [1, 2, 4]}
    evidence = load_evidence([synthetic.write(tmp_path / "gpu", study=sweeping(sweep))], kernels=kernels)
    table = tables.task("mine", evidence)
    assert table["choice"].tolist()[:2] == ["8 × 128, unroll 1", "8 × 128, unroll 2"]
    drawn = figures.svg(figures.task("mine", evidence))
    assert ">unroll<" in drawn and "mine, (" in drawn


def test_a_curve_of_too_many_lines_becomes_bars(five, tmp_path):
    space = SPACE | {"shapes": "square", "bm": [32, 64, 128], "bk": [4, 8, 16], "vector": [1, 2]}
    evidence = load_evidence([synthetic.write(tmp_path / "gpu", study=sweeping(space))], kernels=five)
    drawn = figures.svg(figures.task("mine", evidence))
    assert "the fastest 40 of 54" in drawn


def test_bfloat16_is_compared_with_its_own_library(with_kernels, tmp_path):
    kernels = with_kernels("mine", dtypes=("float", "bfloat16", "tf32"))
    shapes = {"shapes": "square"}
    study = sweeping(
        {"kernel": "mine", "dtype": ["float", "bfloat16", "tf32"], "tile": 16, **shapes},
        {"kernel": "cublas", "dtype": "float", **shapes},
        {"kernel": "cublas_bf16", "dtype": "bfloat16", **shapes},
    )
    evidence = load_evidence([synthetic.write(tmp_path / "gpu", study=study)], kernels=kernels)
    of_types = {f"cublas_{name}" for name in ("tf32", "bf16", "half", "int8", "emulated", "best")}
    assert {"cublas", "numpy", *of_types} == evidence.libraries
    table = tables.task("mine", evidence)
    time = table.set_index(["kernel", "dtype"])["time_ms"]
    share = table.set_index(["kernel", "dtype"])["percent_of_anchor"]
    assert share["mine", "bfloat16"] == pytest.approx(100 * time["cublas_bf16", "bfloat16"] / time["mine", "bfloat16"])
    assert share["mine", "float"] == pytest.approx(100 * time["cublas", "float"] / time["mine", "float"])
    assert pd.isna(share["mine", "tf32"]), "no library was timed in that type"
    assert table.loc[table["anchor"], "kernel"].tolist() == ["cublas", "cublas_bf16"]
    ladder = tables.ladder(evidence).set_index(["kernel", "dtype"])
    assert ladder.loc[("cublas_bf16", "bfloat16"), "peak_gflops"] == 989_000


def test_a_loop_is_not_compared_with_a_gpus_library(tmp_path):
    study = sweeping({"kernel": ["kij", "cublas"], "dtype": "float", "shapes": "square_1100"})
    table = tables.task("mine", load_evidence([synthetic.write(tmp_path / "gpu", study=study)]))
    assert table.set_index("kernel")["percent_of_anchor"].isna().to_dict() == {"kij": True, "cublas": False}


def test_a_kernel_that_cannot_run_is_one_row_of_failures(tmp_path):
    folder = synthetic.write(tmp_path / "gpu")
    rows = pd.read_csv(folder / "measurements.csv")
    own = (rows["task"] == "task2a") & (rows["kernel"] == "tiled")
    timed = ["time_ms", "time_min_ms", "time_q1_ms", "time_q3_ms", "noise", "batch_ms", "gflops", "bound_ratio"]
    rows.loc[own, timed] = float("nan")
    rows.loc[own, "status"], rows.loc[own, "message"] = "unsupported", "it needs compute capability 10.0"
    rows.to_csv(folder / "measurements.csv", index=False)
    evidence = load_evidence([folder])
    failed = provenance.failures(evidence)
    assert failed["status"].tolist() == ["unsupported", "invalid_launch"], "in the order of the tasks"
    assert failed["points"].tolist() == [own.sum(), 1] == [15, 1]
    assert failed.loc[0, ["shape", "choice"]].tolist() == ["", ""]
    assert checks(evidence)["other points"] == "15 unsupported, 1 invalid_launch"
    assert set(tables.task("task2a", evidence)["status"]) == {"unsupported", "ok"}
    rows = timings.describe(evidence.select_tasks("task2a").gpu, evidence)
    rows = sweep_figures.with_labels(rows, evidence)
    assert {"tiled tile 16: unsupported", "tiled tile 32: unsupported"} <= {*rows["label"]}
    none = rows[rows["kernel"] == "tiled"]
    assert "tiled tile 16: unsupported" in figures.svg(sweep_figures.points(none, evidence)), "a panel without a rate"
    assert "did not run" in figures.svg(figures.task("task2a", evidence))


def test_kernels_that_the_emulator_does_not_run(with_kernels, recorded, tmp_path):
    kernels = with_kernels("mine", title=EVIL, emulated=False, reason=f"it needs wgmma {EVIL}")
    here = load_evidence([synthetic.write(tmp_path / "emulator", "emulator")], recorded=recorded, kernels=kernels)
    table = provenance.not_emulated(here)
    assert table["kernel"].tolist() == [name for name, kernel in kernels.items() if not kernel.emulated]
    assert table["kernel"].iloc[-1] == "mine"
    html = markup.table_html(table, "not_emulated", "Kernels.", here, "kernels")
    assert "<script" not in html and "it needs wgmma &lt;script&gt;" in str(unpacked(html)["rows"][-1])
    assert provenance.not_emulated(load_evidence([recorded / "nvidia-h200"], kernels=kernels)).empty, (
        "nothing is emulated there"
    )


def test_how_long_tasks_took(recorded):
    table = tables.OVERVIEW["durations"](load_evidence([recorded / "nvidia-h200"]))
    assert len(table) == sum("method" not in entry for entry in synthetic.config()["tasks"].values())
    assert table.set_index("task").loc["task3", ["points", "wall_s", "timed_s"]].tolist() == [144, 12.5, 10.25]


def test_tasks_of_one_method_do_not_mix(tmp_path):
    study = synthetic.config()
    study["tasks"]["second"] = dict(study["tasks"]["task1c"])
    folder = synthetic.write(tmp_path / "gpu", study=study)
    facts = pd.read_csv(folder / "facts/task1c.csv")
    facts.assign(timed_n=40_000).to_csv(folder / "facts/second.csv", index=False)
    evidence = load_evidence([folder])
    sizes = {name: set(tables.task(name, evidence)["timed_n"].dropna()) for name in ("task1c", "second")}
    assert sizes == {"task1c": {50_000}, "second": {40_000}}


def test_steps_of_a_call_are_those_of_the_facts(recorded, tmp_path):
    folder = synthetic.write(tmp_path / "gpu")
    calls = pd.read_csv(folder / "facts/cold_start.csv")
    calls["step"] = calls["step"].replace({"load": "warm_up"})
    calls.to_csv(folder / "facts/cold_start.csv", index=False)
    evidence = load_evidence([folder])
    steps = "context allocate copy_in warm_up kernel copy_out free total".split()
    table = tables.task("cold_start", evidence)
    assert [*table][4:-2] == [f"{step}_ms" for step in steps]
    heads = [head for _, head in headings.make_headings(headings.load()["cold_start"], table).values()]
    assert heads[heads.index("context") :][:4] == ["context", "allocate", "copy in", "warm up"]


def test_a_recorded_run_is_read_whole_or_for_one_task(recorded, tmp_path):
    folder = tmp_path / "nvidia-h200"
    shutil.copytree(recorded / "nvidia-h200", folder)
    first = load_platform(folder, recorded=True)
    one = load_platform(folder, "task3", recorded=True)
    assert set(one.measurements["task"]) == {"task3"} and set(one.facts["sweep"]["task"]) <= {"task3"}
    assert len(first.measurements) > len(one.measurements)
    device = folder / "device.json"
    device.write_text(json.dumps(json.loads(device.read_text()) | {"node": "mine"}))
    assert load_platform(folder, recorded=True).device.node == "mine"


def test_a_kernel_whose_parameters_changed_was_edited(recorded, monkeypatch):
    gpu = load_platform(recorded / "nvidia-h200", recorded=True)
    later = dataclasses.replace(synthetic.KERNELS["tiled"], parameters=("tile", "depth"))

    def edited(kernels):
        evidence = Evidence((gpu,), (gpu,), None, None, None, {}, kernels)
        return provenance.provenance(evidence).set_index("fact").loc["kernels"].iloc[0]

    monkeypatch.setattr(builds, "sha256_of", lambda kernel, instances, device: "0" * 64)
    loops = {name: kernel for name, kernel in synthetic.KERNELS.items() if kernel.kind == "cuda"}
    assert edited(loops) == "as measured, by the hash of every source"
    assert edited(loops | {"tiled": later}) == "edited since: tiled"


@pytest.mark.slow
def test_words_of_others_cannot_become_markup(tmp_path, monkeypatch):
    """Titles, names of devices and messages are text on the page, in tables, prose, headings and drawings."""
    monkeypatch.setattr(render, "RECORDED", tmp_path / "none")  # of the story, which has no words of this run
    kernels = {name: dataclasses.replace(kernel, title=TITLE) for name, kernel in synthetic.KERNELS.items()}
    monkeypatch.setattr(registry, "load", lambda *_, **__: kernels)
    study = sweeping({"kernel": "naive", "dtype": "float", "shapes": "square", "block": "32x32"}, title=TITLE)
    study["tasks"]["launch_limits"] = synthetic.config()["tasks"]["launch_limits"]
    folder = synthetic.write(tmp_path / "recorded/nvidia-h200", study=study)
    synthetic.write(tmp_path / "results/emulator", "emulator", study=study)
    for place in (folder, tmp_path / "results/emulator"):
        device = json.loads((place / "device.json").read_text())
        device["cpu"]["name"] = device["host_compiler"] = EVIL
        if device["gpu"]:
            device["gpu"]["name"] = EVIL
        (place / "device.json").write_text(json.dumps(device))
        facts = pd.read_csv(place / "facts/launch_limits.csv")
        facts.assign(error_text=EVIL, error=EVIL).to_csv(place / "facts/launch_limits.csv", index=False)
        rows = pd.read_csv(place / "measurements.csv")
        rows.loc[rows["task"] == "mine", ["status", "message"]] = ["timeout", EVIL]
        rows.to_csv(place / "measurements.csv", index=False)
    page = tmp_path / "report.html"
    assert render.render(page, [tmp_path / "results/emulator"], recorded=tmp_path / "recorded") == []
    text = page.read_text()
    text, own = re.subn(r'<script type="module">.*?</script>', "", text, flags=re.DOTALL)
    assert own == 1 and "<script" not in text
    assert text.count("&lt;script&gt;") > 20
    assert "&amp;lt;" not in text, "nothing is escaped twice"
    assert "<i>d</i>" not in text and 'href="#g"' not in text
    assert f">{escape(TITLE, quote=False)}".replace('"', "&quot;") + "<a class=" in text, "a heading"
    assert f"<b>{markupsafe.escape(TITLE)}.</b>" in text, "a caption"
    assert f">{markupsafe.escape(TITLE)}</a>" in text, "the table of contents"
    assert Page(text).count("script") == 0


@pytest.mark.slow
def test_every_column_of_every_table_is_in_the_list(recorded, tmp_path):
    here = synthetic.write(tmp_path / "emulator", "emulator", with_traffic=True)
    evidence = load_evidence([here], recorded=recorded)
    made = {name: tables.task(name, evidence) for name in evidence.config["tasks"]}
    made |= {name: draw(evidence) for name, draw in tables.OVERVIEW.items()}
    for name in ("claims", "provenance", "cold_start"):  # whose columns are of platforms and of steps
        made.pop(name)
    for name, table in made.items():
        assert set(columns.parameters_of(table)) <= set(evidence.parameters), name


def test_every_column_of_every_file_is_printed():
    """`python -m tilewise.study.columns` prints each file with all its columns."""
    parts = re.split(r"^## ", columns.markdown(), flags=re.MULTILINE)
    for file, names in columns.FILES.items():
        [part] = [part for part in parts if part.startswith(f"{file}\n")]
        assert re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE) == [name for name in names if name != "*"]
