"""Evidence of every kind has a page without a note, and a note costs only the piece that cannot be made.

The invented runs take their tasks, shapes and kernels from the study's own configs, so that a new task is covered.
"""

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest
import synthetic
import yaml
from prose import pages
from snakemake.utils import update_config

from tilewise import ROOT
from tilewise.evidence import load_evidence
from tilewise.explain import climb, provenance
from tilewise.nvidia import toolkits
from tilewise.report import claims, figures, headlines, markup, notes, render, sections, sweep_figures, tables
from tilewise.report.page import load
from tilewise.report.tables import TABLES
from tilewise.rules import Study
from tilewise.study import columns
from tilewise.study.architectures import TOOLKITS

pytestmark = pytest.mark.slow
GPUS = {
    "nvidia-h200": {},
    "nvidia-a100": {"name": "NVIDIA A100", "compute_capability": "8.0", "sms": 108},
    "nvidia-rtx-4090": {"name": "NVIDIA GeForce RTX 4090", "compute_capability": "8.9", "sms": 128},
    "nvidia-t4": {"name": "Tesla T4", "compute_capability": "7.5", "sms": 40, "peak_gflops": None},
    "tesla-v100": {"name": "Tesla V100-SXM2-16GB", "compute_capability": "7.0", "sms": 80},
    "nvidia-b200": {"name": "NVIDIA B200", "compute_capability": "10.0", "sms": 148},
}
FAILURES = ("incorrect", "invalid_launch", "out_of_memory", "compile_error", "timeout", "unsupported", "error")
NUMBERS = [name for name in columns.column_names("measurements", ()) if columns.COLUMNS[name].type == "number"]
TIMES = [name for name in NUMBERS if name.endswith("_ms")]


def quick():
    """The quick config, as Snakemake reads it with the study's own."""
    study = synthetic.config()
    update_config(study, yaml.safe_load((ROOT / "config/quick.yaml").read_text()))
    return Study(study).config


FULL, QUICK = synthetic.config(), quick()


#: What happens to a table of points: its rows and a random generator.
def _as_it_is(rows, generator):
    return rows


def _rates_at_random(rows, generator):
    factor = np.exp(generator.normal(0, 3, len(rows)))
    for name in TIMES:
        rows[name] = rows[name] * factor
    return rows.assign(gflops=rows["gflops"] / factor, noise=generator.random(len(rows)))


def _ties(rows, generator):
    known = rows["time_ms"].notna()
    rows.loc[known, TIMES] = 1.0
    rows.loc[known, "gflops"] = 1000.0
    return rows


def _statuses_at_random(rows, generator):
    failed = generator.random(len(rows)) < generator.random()
    rows.loc[failed, NUMBERS] = np.nan
    rows.loc[failed, "status"] = generator.choice(FAILURES, failed.sum())
    rows.loc[failed, "message"] = "<b>*why*</b> `not` $x$"
    return rows


def _three_runs(rows, generator):
    timed = rows["time_ms"].notna()
    rows.loc[timed, "runs"] = 3
    rows.loc[timed, "run_low_ms"] = rows.loc[timed, "time_ms"] * 0.9
    rows.loc[timed, "run_high_ms"] = rows.loc[timed, "time_ms"] * 1.2
    return rows


def _kernels_missing(rows, generator):
    kernels = rows["kernel"].unique()
    return rows[rows["kernel"].isin(generator.choice(kernels, len(kernels) // 2, replace=False))]


def _sizes_missing(rows, generator):
    sizes = rows["n"].unique()
    return rows[rows["n"].isin(generator.choice(sizes, -(-len(sizes) // 2), replace=False))]


def _rows_missing(rows, generator):
    return rows[generator.random(len(rows)) < 0.5]


def change(folder, generator, *changes):
    """Change the points of a platform in measurements.csv; the facts of its sweeps go on to fit."""
    path = folder / "measurements.csv"
    rows = pd.read_csv(path).astype({"message": "object"})
    for each in changes:
        rows = each(rows, generator)
    rows.to_csv(path, index=False)
    counts = rows["task"].value_counts()
    for facts in (folder / "facts").glob("*.csv"):
        table = pd.read_csv(facts)
        if "points" in table:
            table.assign(points=counts.get(facts.stem, 0)).to_csv(facts, index=False)


def lose(folder, generator):
    """Remove some tables of a recorded run: a study with fewer tasks, or one without hardware counters."""
    for path in sorted(folder.rglob("*.csv")):
        if generator.random() < 0.15:
            path.unlink()


def assert_whole(page):
    """No part of a page has a note, or shows a number that nobody knows."""
    for name in sections.names_of():
        text = page.section(name)
        assert notes.find_notes(text) == []
        prose = re.sub(r"<svg.*?</svg>|<details.*?</details>|<[^>]*>", "", text, flags=re.DOTALL)
        unknown = re.search(r".{,80}\b(nan|inf|None|NA)\b.{,80}", prose)
        assert not unknown, unknown[0]


def some(full=(), quick=()):
    """The study of some tasks at its own shapes, and of others at those of the quick study."""
    study = synthetic.config()
    study["tasks"] = {name: FULL["tasks"][name] for name in full} | {name: QUICK["tasks"][name] for name in quick}
    study["shapes"] = FULL["shapes"] | (QUICK["shapes"] if quick else {})
    return study


#: Evidence of each kind, in four pages: what ran, where, what is recorded, what came out, what is lost, what is traced.
CHOSEN = {
    "failures on the emulator": (
        some(quick=("task1a", "task4")),
        ["emulator"],
        [],
        _statuses_at_random,
        _rows_missing,
        True,
    ),
    "ties on a GPU without a peak": (
        some(full=("task2a", "ladder_float")),
        ["nvidia-t4"],
        ["nvidia-h200"],
        _ties,
        _kernels_missing,
        False,
    ),
    "random rates on two machines": (
        some(full=("bandwidth", "ladder_short", "energy")),
        ["nvidia-a100", "emulator"],
        ["nvidia-rtx-4090", "nvidia-t4"],
        _rates_at_random,
        _sizes_missing,
        True,
    ),
    "three runs of a GPU": (
        some(full=("task3",), quick=("sizes", "launch_limits")),
        ["nvidia-h200"],
        ["nvidia-a100"],
        _three_runs,
        _as_it_is,
        False,
    ),
}


@pytest.mark.parametrize("case", CHOSEN)
def test_chosen_evidence_has_a_page_without_a_note(tmp_path, case):
    assert_page_is_whole(tmp_path, *CHOSEN[case], seed=1)


def assert_page_is_whole(folder, study, here, recorded, how, lost, traced, seed):
    """Write these runs, change them, and check the page that compares them."""
    generator = np.random.default_rng(seed)
    for name in here:
        backend = "emulator" if name == "emulator" else "gpu"
        synthetic.write(folder / "results" / name, backend, study, traced, **GPUS.get(name, {}))
        change(folder / "results" / name, generator, how, lost)
    for name in recorded:
        synthetic.write(folder / "recorded" / name, "gpu", with_traffic=True, **GPUS[name])
        change(folder / "recorded" / name, generator, how, lost)
        lose(folder / "recorded" / name, generator)
    assert_whole(load([folder / "results" / name for name in here], folder / "recorded"))


#: The kernels of float, double and short numbers that each GPU's ladder does not have.
FROM_AMPERE = {"pipelined", "async_copies", "mma_sync"}
RINGS = {"tma_ring", "transposing_ring", "stream_k"}
WARP_GROUPS = {"wgmma", "warp_specialised", "clusters", "wgmma_turns"}
FROM_HOPPER = RINGS | WARP_GROUPS | {"dmma", "split_sums", "dmma_split", "mma_split", "wgmma_split"}
ABSENT = {
    "tesla-v100": FROM_AMPERE | FROM_HOPPER,
    "nvidia-t4": FROM_AMPERE | FROM_HOPPER,
    "nvidia-a100": FROM_HOPPER,
    "nvidia-rtx-4090": FROM_HOPPER,
    "nvidia-b200": WARP_GROUPS,
}


@pytest.mark.parametrize("gpu", ABSENT)
def test_a_ladder_ends_where_the_gpu_ends(tmp_path, monkeypatch, gpu):
    monkeypatch.setattr(toolkits, "installed", lambda: TOOLKITS[0])
    study = some(quick=("ladder_float", "ladder_double", "ladder_short"))
    folder = synthetic.write(tmp_path / gpu, "gpu", study, with_traffic=True, **GPUS[gpu])
    rows = pd.read_csv(folder / "measurements.csv")
    assert set(rows["status"]) == {"ok", "unsupported"}
    absent = rows[rows["status"] == "unsupported"]
    capability = GPUS[gpu]["compute_capability"]
    assert absent["message"].str.startswith(f"this GPU, of compute capability {capability}, lacks").all()
    known = set().union(*ABSENT.values()) & set(rows["kernel"])
    assert set(absent["kernel"]) & known == ABSENT[gpu] & known
    evidence = load_evidence([folder], recorded=tmp_path / "none")
    float_rungs = climb.rungs(climb.climb(evidence, "ladder_float"), evidence)["kernel"].tolist()
    every = rows.loc[rows["task"] == "ladder_float", "kernel"].unique()
    assert set(float_rungs) == set(every) - ABSENT[gpu], "no hole, and no rung above the end"
    if gpu == "tesla-v100":  # whose machine code the disassembler of the packages does not read
        loops = pd.read_csv(folder / "instructions.csv")
        loops.iloc[:0].to_csv(folder / "instructions.csv", index=False)
        assert_whole(load([folder], tmp_path / "none"))


@pytest.fixture
def small(tmp_path):
    """A function that loads the page of a study of three tasks, which it may change."""
    study = synthetic.config("cpu", "task2a")
    study["tasks"]["mine"] = dict(study["tasks"]["task2a"])

    def loaded(**changes):
        study["tasks"]["mine"] |= changes
        return load([synthetic.write(tmp_path / "results/gpu", study=study)], tmp_path / "none")

    return loaded


@pytest.fixture
def report_alone(tmp_path, monkeypatch):
    """Leaves the other pages, which are about the recorded runs, without any."""
    monkeypatch.setattr(render, "RECORDED", tmp_path / "none")


def _fail(*_, **__):
    raise LookupError("<no>\nway")


#: For each piece of a page: the mapping with its function, the key there, its name, its section, the caption beside it.
PIECES = [
    (vars(sweep_figures), "points", "Figure: Rates on the CPU", "04-further.md", "CPU times."),
    (TABLES, "by_card", "Table: What each card measured", "06-reading.md", "Provenance."),
    (TABLES, "checks", "Table: Checks", "06-reading.md", "Provenance."),
]


def test_a_piece_that_cannot_be_made_leaves_a_note_beside_the_rest(small, monkeypatch):
    for owner, name, *_ in PIECES:
        monkeypatch.setitem(owner, name, _fail)
    made = small()
    texts = {section: made.section(section) for *_, section, _ in PIECES}
    for *_, piece, section, beside in PIECES:
        found = notes.find_notes(texts[section])
        assert f"{piece} cannot be made: LookupError: <no> way" in found
        assert all(note.endswith("LookupError: <no> way") for note in found), "and what needs it"
        assert f"<b>{beside}</b>" in texts[section]


def test_claims_and_a_section_that_cannot_be_made_leave_notes_in_their_place(
    small, report_alone, tmp_path, monkeypatch
):
    entries = claims.load()
    entries[3]["quantity"] = "time(kernle='naive')"
    entries[4]["quantity"] = "'words'"
    monkeypatch.setattr(claims, "load", lambda: entries)
    monkeypatch.setattr(headlines, "what_ran", _fail)
    small()
    output = tmp_path / "results/report.html"
    found = render.render(output, [tmp_path / "results/gpu"], recorded=tmp_path / "none")
    page = pages(output)
    assert notes.read(tmp_path / "results") == found == list(dict.fromkeys(notes.find_notes(page)))
    section, *of_claims = found
    assert section == "Section: 00-run.md:1 cannot be made: LookupError: <no> way"
    assert notes.find_notes(output.read_text())[0] == section and "<b>Provenance.</b>" in output.read_text()
    assert [note.partition(":")[2].split()[0] for note in of_claims] == [entries[3]["id"], entries[4]["id"]]
    assert "kernle" in of_claims[0] and "ValueError" in of_claims[1]
    assert 'id="claim-' + entries[5]["id"] in page


def test_files_of_tables_and_figures_that_cannot_be_made_say_so(tmp_path):
    tables.save(_fail, tmp_path / "gpu/tables/ladder.csv")
    figures.save(_fail, tmp_path / "gpu/figures/peak.svg")
    tables.save(lambda: pd.DataFrame({"kernel": ["naive"]}), tmp_path / "gpu/tables/fine.csv")
    figures.save(lambda: figures.empty_figure("Nothing was timed."), tmp_path / "gpu/figures/fine.svg")
    places = [str(tmp_path / "gpu" / name) for name in ("figures/peak.svg", "tables/ladder.csv")]
    assert notes.read(tmp_path) == [f"{place} cannot be made: LookupError: <no> way" for place in places]
    [note, _] = notes.read(tmp_path)
    assert len(notes.find_notes(markup.missing_html(note, "Peak", "peak"))) == 1


@pytest.mark.parametrize("overhead", [4.0, None])
def test_the_overhead_of_an_isolated_time_is_a_fact_if_it_was_measured(tmp_path, overhead):
    evidence = load_evidence([synthetic.write(tmp_path / "gpu", study=QUICK)], recorded=tmp_path / "none")
    [gpu] = evidence.gpus
    measured = pd.DataFrame({"platform": ["gpu"], "overhead_us": [overhead]}).astype({"overhead_us": "float64"})
    gpu = dataclasses.replace(gpu, facts=gpu.facts | {"overhead": measured})
    evidence = dataclasses.replace(evidence, gpus=(gpu,), platforms=(gpu,))
    facts = dict(provenance.provenance(evidence).itertuples(index=False))
    assert facts.get("overhead of an isolated time") == (f"{overhead:.1f} µs" if overhead else None)
