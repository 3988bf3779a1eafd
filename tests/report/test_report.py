"""The page: everything is on it, it loads nothing from elsewhere, and it never shows the emulator as a GPU."""

import dataclasses
import importlib.metadata
import io
import json
import re
import struct
from html.parser import HTMLParser

import jupytext
import pandas as pd
import pytest
import synthetic
import yaml
from prose import packed_files, pages, plain

from tilewise import RECORDED, ROOT, UserError
from tilewise.evidence import load_evidence
from tilewise.explain import number_format, provenance
from tilewise.report import figures, headings, markup, notes, render, sections
from tilewise.report import page as report
from tilewise.report.page import load

TABLES = """
Five numbers. Best blocks, float. Every block, float. Best blocks, double. Every block, double. Coalesced or not.
Every point of coalescing. The largest products. Probes of the largest product. Best tiles, float. Every tile, float.
Best tiles, double. Every tile, double. Run-time tile. Every run-time tile. Matrix struct. Every point of the matrix
struct. Best NTB. Every NTB. Ragged and degenerate shapes, float. Every ragged and degenerate shape. Rectangles. Every
rectangle. The ladder. The ladder explained. The ladder at all shapes. Instructions of the multiply-add loop. The
ladder in double. The ladder in double explained. The ladder in double at all shapes. Low precision. Every point in
low precision. Bytes. Every product of bytes. Float results. Every float result. Double results. Every double result.
Verdicts of the accuracy gate. The accuracy gate. Grades and rates. Grades, test by test. Each language. Languages in
numbers. Every point in every language. Energy per product. Every energy. Who wins at which n. Own kernels and the
library at every size. Every kernel at every size. Every kernel at every batch. Calls. Products of integers. Every
product of integers. Whole calls, ms. Whole calls, step by step. Launch limits. Every launch. Roofs. Roofs and data
sheets. CPU times. Every CPU time. Loop orders, float. Every loop order. Cache lines. Variants. Limited by. The best
of each kernel. Best choices. Occupancy. Memory traffic. Kernels that the emulator does not run. Counters at full
size. Counted against hardware. Where they differ. Claims. Checks. Kernels with faults, or not searched for them.
Verified points. Points that are not ok. Provenance. What each card measured. How long it took."""
FIGURES = """
Speed-up over the naive kernel, rung by rung. Rate over the shape of the block, float. Rate over the shape of the
block, double. Rate over the width of the tile, float. Rate over the width of the tile, double. Rates of tile widths
chosen at run time and at compile time. Rate over the number of tiles per block (NTB). Every rung against its limits,
float. Every rung against its limits, double. Rates in low precision on the tensor cores. Rates of products of bytes.
Accuracy against rate. Rates of double results. How many moduli a spread of exponents needs. Rate over size.
The ratio to cuBLAS at each shape. Roofline, float. Rates on the CPU.
Rates of the loop orders."""
TABLES, FIGURES = (re.findall(r"\S[^.]+\.", names.replace("\n", " ")) for names in (TABLES, FIGURES))


class Page(HTMLParser):
    """What a page is made of: its tags with their attributes, and the text of its captions."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.captions, self._inside = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("caption", "figcaption") or (tag, dict(attrs).get("class")) == ("p", "caption"):
            self._inside = tag
            self.captions.append("")

    def numbered(self, kind):
        """The captions of tables or figures that begin with a number, in the order of the page, without it."""
        found = [re.match(rf"{kind} (\d+)\. (.*)", " ".join(caption.split())) for caption in self.captions]
        found = [each for each in found if each]
        assert [int(each[1]) for each in found] == list(range(1, len(found) + 1))
        return [each[2] for each in found]

    def handle_endtag(self, tag):
        if tag == self._inside:
            self._inside = None

    def handle_data(self, text):
        if self._inside:
            self.captions[-1] += text

    def count(self, tag):
        """How often a tag occurs."""
        return sum(name == tag for name, _ in self.tags)


@pytest.fixture(scope="session")
def parsed(rendered):
    """The same pages, parsed: name -> page."""
    return {name: Page(rendered.with_name(f"{name}.html").read_text()) for name in sections.PAGES}


@pytest.mark.parametrize(
    ("kind", "caption"), [("Table", name) for name in TABLES] + [("Figure", name) for name in FIGURES]
)
def test_every_table_and_figure_is_there(parsed, kind, caption):
    assert any(found.startswith(caption) for page in parsed.values() for found in page.numbered(kind))


def test_all_tables_and_figures_are_on_one_page(parsed):
    assert len(parsed["report"].numbered("Table")) == len(TABLES)
    assert len(parsed["report"].numbered("Figure")) == len(FIGURES)


@pytest.mark.parametrize("name", sections.PAGES)
def test_each_has_a_caption_and_figures_have_a_name(parsed, name):
    page = parsed[name]
    assert page.count("table") == page.count("caption")
    packed = sum("data-drawing" in attrs for _, attrs in page.tags)
    assert len(page.numbered("Figure")) == page.count("svg") + packed == page.count("figcaption")
    targets = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    for tag, attrs in page.tags:
        if tag == "svg":
            assert attrs["role"] == "img" and {attrs["aria-labelledby"], attrs["aria-describedby"]} <= targets


@pytest.mark.parametrize("name", sections.PAGES)
def test_anchors_are_unique_and_plain(parsed, name):
    """Two tables of one name would also share their file."""
    ids = [attrs["id"] for _, attrs in parsed[name].tags if "id" in attrs]
    assert len(set(ids)) == len(ids) > 10
    assert [each for each in ids if not re.fullmatch(r"[\w.-]+", each)] == []
    files = [attrs["data-file"] for _, attrs in parsed[name].tags if str(attrs.get("data-file")).endswith(".csv")]
    assert len(set(files)) == len(files)


def test_every_table_brings_its_data_and_every_figure_its_drawing(rendered):
    text = pages(rendered)
    figures = re.findall(r'<figure id="figure-([^"]+)">(.*?)</figure>', text, re.DOTALL)
    drawn = {name for name, figure in figures if "<svg" in figure or "data-drawing=" in figure}
    assert set(re.findall(r'data-file="([^"]+)\.svg"', text)) == drawn
    tables = {name: pd.read_csv(io.StringIO(table)) for name, table in packed_files(text).items()}
    assert [name for name, table in tables.items() if len(table.columns) < 2] == []
    ladder = tables["ladder_float.csv"]
    assert {"kernel", "time_ms", "gflops"} <= set(ladder) and ladder["gflops"].dtype == "float64"


@pytest.mark.parametrize("name", sections.PAGES)
def test_nothing_comes_from_the_network(rendered, parsed, name):
    """The library that sorts tables names the sites of its authors; nothing is asked of them (test_browser.py)."""
    page = parsed[name]
    text = re.sub(r'xmlns(:xlink)?="[^"]+"', "", rendered.with_name(f"{name}.html").read_text())
    text = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert "http://" not in text and "https://" not in text
    assert [attrs for tag, attrs in page.tags if tag == "script"] == [{"type": "module"}], "no src"
    for tag, attrs in page.tags:
        if tag in ("img", "link", "iframe"):
            assert (attrs.get("src") or attrs.get("href")).startswith("data:")
    assert "@import" not in text and "@font-face" not in text


@pytest.mark.parametrize("name", sections.PAGES)
def test_links_lead_somewhere(parsed, name):
    """To a place of the same page or of another one."""
    targets = {f"{page}.html" for page in parsed}
    for page, found in parsed.items():
        ids = {attrs["id"] for _, attrs in found.tags if "id" in attrs}
        targets |= {f"{page}.html#{each}" for each in ids} | {f"#{each}" for each in ids if page == name}
    links = [attrs["href"] for tag, attrs in parsed[name].tags if tag == "a" and "href" in attrs]
    links = {link for link in links if not link.startswith("data:")}
    assert links <= targets and {f"{page}.html" for page in parsed} <= links
    assert sum(str(attrs.get("data-file")).endswith(".svg") for _, attrs in parsed[name].tags) == len(
        parsed[name].numbered("Figure")
    )


@pytest.mark.parametrize("name", sections.PAGES)
def test_a_link_to_a_page_has_a_preview(rendered, parsed, name):
    """Its title, its first words and a picture, which lies beside the page."""
    metas = {
        attrs.get("property", attrs.get("name")): attrs["content"]
        for tag, attrs in parsed[name].tags
        if tag == "meta" and "content" in attrs
    }
    assert metas["og:title"] and metas["og:description"] == metas["description"] != ""
    picture = (rendered.parent / metas["og:image"]).read_bytes()
    assert picture.startswith(b"\x89PNG") and struct.unpack(">II", picture[16:24]) == (1200, 630)


@pytest.mark.parametrize("name", sections.PAGES)
def test_every_page_says_whose_it_is_and_what_its_data_are(rendered, name):
    words = plain(re.search(r"<footer>(.*?)</footer>", rendered.with_name(f"{name}.html").read_text(), re.DOTALL)[1])
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    for each in (cited["title"], cited["authors"][0]["name"], cited["license"], "make quick", "docs/teaching.md"):
        assert each in words
    recorded = json.loads((RECORDED / "nvidia-h200" / "device.json").read_text())
    [commit] = set(pd.read_csv(RECORDED / "nvidia-h200" / "measurements.csv")["commit"])
    run = f"{recorded['gpu']['name']}, {recorded['captured'][:10]}, commit {commit}"
    assert (run if name == "story" else "Invented H200") in words


@pytest.mark.parametrize("name", sections.PAGES)
def test_references_within_drawings_are_not_broken(rendered, name):
    text = rendered.with_name(f"{name}.html").read_text()
    used = set(re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', text))
    assert used <= set(re.findall(r' id="([^"]+)"', text))


def test_recorded_times_are_labelled(rendered):
    text = pages(rendered)
    assert "so no GPU was timed" in text and "The times of GPUs are those of the recorded runs." in text
    assert "2026-11-21T03:20" in text
    assert ", kept in the repository" in text and "timeout" in text and "one run would take longer than 5 s" in text


def test_a_gpu_run_does_not_claim_to_be_recorded(tmp_path):
    synthetic.write(tmp_path / "nvidia-h200")
    facts = dict(provenance.provenance(load_evidence([tmp_path / "nvidia-h200"])).itertuples(index=False))
    assert facts["measured"].endswith(", this run")


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (0.0358, "", "0.0358"),
        (0.82, "", "0.82"),
        (0.99977, "", "1.00"),
        (1.0, "", "1"),
        (8.0, "x", "8"),
        (9.058, "x", "9.06"),
        (0.912, "x", "0.91"),
        (1.003, "x", "1.00"),
        (1859.4, "x", "1,860"),
        (0.0012, "x", "<0.01"),
        (110.9, "%", "111"),
        (9.96, "%", "10"),
        (4.06, "%", "4.1"),
        (0.04, "%", "<0.1"),
        (100 * (1.01 - 1), "%", "1"),
        (111637.0, "", "111,637"),
        (63431.5, "", "63,400"),
        (999.7, "", "1,000"),
        (23.96, "", "24.0"),
        (1295.8, "MHz", "1,296"),
        (4.3e-8, "", "4.30e-08"),
        (float("inf"), "", "∞"),
        (0.0, "", "0"),
        (-3.21, "%", "-3.2"),
    ],
)
def test_numbers_are_rounded_by_one_rule(value, unit, words):
    assert number_format.rounded(value, unit) == words
    column = {"x": "ratio", "%": "percent_of_anchor", "MHz": "sm_clock_mhz", "": "gflops"}[unit]
    assert headings.text(value, column) == words + "×" * (unit == "x")


def test_figures_of_data_sheets_keep_their_digits():
    assert [headings.text(989.52, name) for name in ("printed", "measured", "published_ms")] == ["989.52", "990", "990"]


@pytest.mark.parametrize(
    ("percent", "words"), [(0.0, "0.0"), (0.0063, "0.1"), (0.7, "0.7"), (0.71, "0.8"), (12.3, "13")]
)
def test_what_lies_behind_plus_minus_is_rounded_up(percent, words):
    assert number_format.plus_minus(percent) == f"± {words} %"


@pytest.mark.slow
def test_a_run_in_which_every_kernel_is_wrong_has_a_report(tmp_path):
    """A kernel that leaves elements unwritten has an infinite error; only cuBLAS and the CPU are left to show."""
    study = synthetic.config("cpu", "task2a", "ladder_float", "float_accuracy")
    folder = synthetic.write(tmp_path / "gpu", study=study)
    rows = pd.read_csv(folder / "measurements.csv")
    own = rows["kernel"].map(lambda name: synthetic.KERNELS[name].launched)
    timed = ["time_ms", "time_min_ms", "time_q1_ms", "time_q3_ms", "noise", "batch_ms", "gflops"]
    rows.loc[own, timed] = float("nan")
    rows.loc[own, "status"] = "incorrect"
    rows.loc[own, "bound_ratio"] = float("inf")
    rows.to_csv(folder / "measurements.csv", index=False)
    page = load([folder], tmp_path / "none")
    text = "".join(map(page.section, sections.names_of()))
    assert notes.find_notes(text) == []
    assert re.search(rf"{own.sum():,} incorrect", text)


def test_ntb_curves_of_several_kernels_and_many_shapes(tmp_path, monkeypatch):
    mine = dataclasses.replace(synthetic.KERNELS["multi_tile"], name="mine")
    monkeypatch.setattr(synthetic, "KERNELS", synthetic.KERNELS | {"mine": mine})
    study = synthetic.config()
    study["shapes"]["others"] = [{"n": 100 * k, "p": 100, "m": 100} for k in range(1, 13)]
    sweep = {"kernel": ["multi_tile", "mine"], "dtype": "float", "shapes": "others", "tile": 32, "ntb": [1, 2, 4]}
    study["tasks"] = {"task3": {"title": "NTB", "sweeps": [sweep]}}
    evidence = load_evidence([synthetic.write(tmp_path / "gpu", study=study)])
    drawn = figures.svg(figures.task("task3", evidence))
    for words in ("multi_tile, (1200, 100, 100), tile 32", "mine, (1200, 100, 100), tile 32"):
        assert words in drawn


def test_text_from_results_cannot_become_markup(tmp_path):
    evidence = load_evidence([synthetic.write(tmp_path / "gpu")])
    table = provenance.failures(evidence)
    table.loc[0, "message"] = "template <typename T> & more"
    html = markup.table_html(table, "failures", "Failures.", evidence, "failures")
    assert "template &lt;typename T&gt; &amp; more" in html


def test_a_missing_package_is_one_message(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    report._datatables.cache_clear()
    with pytest.raises(UserError, match=r"the package itables, which sorts .* is missing; install .* as `make` does"):
        report._datatables()


def test_a_page_without_evidence_is_one_message(tmp_path):
    with pytest.raises(UserError, match="there is no such file, so nothing was measured here yet"):
        render.render(tmp_path / "report.html", [tmp_path / "nowhere"])
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("value", "column", "words"),
    [
        (8192, "n", "8,192"),
        (float("nan"), "time_ms", headings.MISSING),
        ("a < b", "message", "a < b"),
    ],
)
def test_numbers(value, column, words):
    assert headings.text(value, column) == words


@pytest.mark.slow
def test_the_report_is_a_notebook_that_runs(tmp_path):
    """Every cell, over a run of a few tasks; it shows every section."""
    study = synthetic.config("task1a", "ladder_float")
    notebook = jupytext.read(ROOT / "report/report.py")
    assert notebook.cells[0].source.startswith("# ")
    shown = []
    names = {"shown": shown}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            exec(cell.source.replace("display(", "shown.append("), names)
        if "parameters" in cell.metadata.get("tags", []):
            names |= {"folders": [synthetic.write(tmp_path / "gpu", study=study)], "recorded": tmp_path / "none"}
    assert len(shown) == len(sections.names_of()) and "<h1" in shown[0].data
