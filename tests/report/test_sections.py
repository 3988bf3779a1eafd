"""The language of the sections: what a writer may do, and what is said if it goes wrong."""

import shutil
import subprocess
import sys

import pytest
import synthetic
from prose import plain

from tilewise import UserError
from tilewise.evidence import load_evidence
from tilewise.report import headings, sections, tables
from tilewise.report.page import Page


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    """Evidence of a machine with a GPU, all invented."""
    folder = synthetic.write(tmp_path_factory.mktemp("results") / "nvidia-h200", with_traffic=True)
    return load_evidence([folder], recorded=folder / "none")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("{{ figrue('task1a', 'x') }}", "there is no function 'figrue'; did you mean 'figure'"),
        ("{{ beside('tasc3', 'x') }}", "there is no task or table 'tasc3'; did you mean 'task3'"),
        ("{{ figure('tsak3', 'x') }}", "there is no figure 'tsak3'; did you mean 'task3'"),
        ("{{ figure('rooflien', 'x') }}", "there is no figure 'rooflien'; did you mean 'roofline'"),
        ("{{ figure('shape_mpa', 'x') }}", "there is no figure 'shape_mpa'; did you mean 'shape_map'"),
        ("{{ table('dules', 'x') }}", "there is no table 'dules'; did you mean 'duels'"),
        ("{% if has('cuonters') %}x{% endif %}", "there is no task or table 'cuonters'; did you mean 'counters'"),
        ("{{ tiles('tield') }}", "there is no kernel 'tield'; did you mean 'tiled'"),
        ("{{ 1.4 | tmies }}", "No filter named 'tmies'"),
        ("{% if x %}{{ 1.4 | tmies }}{% endif %}", "there is no filter 'tmies'; did you mean 'times'"),
        ("{% if x is defnied %}x{% endif %}", "there is no test 'defnied'; did you mean 'defined'"),
        ("{% sentence %}x{% endsentence %}", "Encountered unknown tag 'sentence'"),
        ("{% if x %}", "Unexpected end of template"),
        ("{{ 1 + }}", "unexpected 'end of print statement'"),
    ],
)
def test_a_mistake_is_one_message_with_file_and_line(tmp_path, kernels, words, message):
    (tmp_path / "00-mine.md").write_text(f"# Mine\n\n{words}\n")
    with pytest.raises(UserError, match=rf"report/sections/00-mine.md:\d: .*{message}"):
        sections.check(kernels, synthetic.config()["tasks"], tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, " it cannot be read: it is a folder, not a file"),
        ("# Mine\n\nCafé\n".encode("latin-1"), "3: this is not text in UTF-8"),
    ],
)
def test_a_section_that_is_no_text_is_named(tmp_path, kernels, content, message):
    path = tmp_path / "00-mine.md"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(UserError, match=rf"{path}:{message}"):
        sections.check(kernels, synthetic.config()["tasks"], tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        "{{ cycler.__init__.__globals__.os.popen('touch made').read() }}",
        "{{ (''|attr('__class__')).mro() }}",
        "{{ figure['__globals__'] }}",
        "{{ figure|attr('__self__') }}",
        "{{ figure.__func__ }}",
        "{{ configs.__call__.__self__ }}",
        "{{ ['{0.__class__.__init__.__globals__}'.format(figure)] }}",
        "{{ config.update(a=1) }}",
        "{{ what_ran()[0].__class__.__base__.__subclasses__() }}",
    ],
)
def test_a_section_runs_no_code(tmp_path, gpu, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.md").write_text(f"It says {words}.\n")
    made = sections.Language(Page(gpu).names(), tmp_path).fill("mine.md")
    assert "SecurityError" in made or "UndefinedError" in made, made
    assert not (tmp_path / "made").exists()


def test_a_section_reads_no_file_outside_of_its_folder(tmp_path, gpu):
    (tmp_path / "in").mkdir()
    (tmp_path / "secret.md").write_text("secret")
    for name in ("../secret.md", str(tmp_path / "secret.md")):
        (tmp_path / "in/mine.md").write_text(f"{{% include {name!r} %}}")
        assert "TemplateNotFound" in sections.Language(Page(gpu).names(), tmp_path / "in").fill("mine.md")


def test_the_studys_own_sections_are_right(kernels):
    sections.check(kernels, synthetic.config()["tasks"])


def test_the_check_does_not_load_matplotlib():
    """A run checks the sections at its start, which should take no second more."""
    words = "import sys; import tilewise.report.sections; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", words], check=False).returncode == 0


def test_a_section_is_changed_in_one_file(tmp_path, gpu, monkeypatch):
    """A writer edits Markdown; nothing else."""
    folder = tmp_path / "sections"
    shutil.copytree(sections.FOLDER, folder)
    path = folder / "01-threads.md"
    old = "which block of 1024 threads is fastest"
    path.write_text(path.read_text().replace(old, "what is left to choose is the block"))
    monkeypatch.setattr(sections.Language.__init__, "__defaults__", (None, folder))
    assert "what is left to choose is the block" in Page(gpu).section("01-threads.md")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{{ 1234567 }}, {{ 1234567.8 }}", "1,234,567, 1,230,000"),
        ("{{ 1234567.8 | whole }}", "1,234,568"),
        ("{{ 1.39 | times }}", "1.39×"),
        ("{{ 4.06 | percent }} {{ 85.4 | percent }}", "4.1 % 85 %"),
        ("{{ '*a* <i>' }}", "*a* <i>"),
        ("{{ number }}", "–"),
    ],
)
def test_numbers_and_words(value, words):
    language = sections.Language({"number": float("nan")})
    assert plain(language.from_string(value).render()) == words


def test_every_table_with_a_layout_and_every_figure_of_the_study_is_in_a_section():
    text = "".join((sections.FOLDER / name).read_text() for name in sections.names_of())
    shown = {name for name in tables.TABLES if name in headings.load()} | {*tables.STUDY_FIGURES}
    assert [name for name in sorted(shown) if f'"{name}"' not in text] == []
