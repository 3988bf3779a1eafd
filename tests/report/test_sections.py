"""The language of the sections: what a writer may do, and what is said if it goes wrong."""

import shutil
import subprocess
import sys

import pytest
import synthetic
from prose import said

from tilewise import UserError
from tilewise.evidence import load_evidence
from tilewise.report import render, sections


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    """Evidence of a machine with a GPU, all invented."""
    folder = synthetic.write(tmp_path_factory.mktemp("results") / "nvidia-h200", with_traffic=True)
    return load_evidence([folder], recorded=folder / "none")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("{{ figrue('task1a', 'x') }}", "there is no function 'figrue'; did you mean 'figure'"),
        ("{% for gpu in gpus('tasc3') %}x{% endfor %}", "there is no task 'tasc3'; did you mean 'task3'"),
        ("{{ figure('tsak3', 'x') }}", "there is no figure 'tsak3'; did you mean 'task3'"),
        ("{{ figure('rooflien', 'x') }}", "there is no figure 'rooflien'; did you mean 'roofline'"),
        ("{{ figure('shape_mpa', 'x') }}", "there is no figure 'shape_mpa'; did you mean 'shape_map'"),
        ("{{ table('proves', 'x') }}", "there is no table 'proves'; did you mean 'probes'"),
        ("{{ rows('proves') | length }}", "there is no table 'proves'; did you mean 'probes'"),
        ("{{ row('tsak3', kernel='naive').time_ms }}", "there is no table 'tsak3'; did you mean 'task3'"),
        ("{% if has('cuonters') %}x{% endif %}", "there is no task or table 'cuonters'; did you mean 'counters'"),
        ("{{ tiles('tield') }}", "there is no kernel 'tield'; did you mean 'tiled'"),
        ("{{ 1.4 | tmies }}", "No filter named 'tmies'"),
        ("{% if x %}{{ 1.4 | tmies }}{% endif %}", "there is no filter 'tmies'; did you mean 'times'"),
        ("{% if x %}{{ x is defnied }}{% endif %}", "there is no test 'defnied'; did you mean 'defined'"),
        ("{% include 'other.md' %}", "there is no `include` in a section, which stands alone"),
        ("{% extends 'other.md' %}", "there is no `extends` in a section"),
        ("{% from 'other.md' import x %}", "there is no `fromimport` in a section"),
        ("{{ ''.__class__ }}", "there is no '__class__' in a section; Python's own attributes are closed"),
        ("{{ gpu.tmie(kernel='naive') }}", "there is no function 'tmie'; did you mean 'time'"),
        ("{{ gpu.time(kernl='naive') }}", "there is no column 'kernl'; did you mean 'kernel'"),
        ("{% sentence if %}x{% endsentence %}", "unexpected 'end of statement block'"),
        ("{% sentence %}x", "Unexpected end of template"),
        ("{{ 1 + }}", "unexpected 'end of print statement'"),
    ],
)
def test_a_mistake_is_one_message_with_file_and_line(tmp_path, kernels, words, message):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/00-mine.md").write_text(f"# Mine\n\n{words}\n")
    with pytest.raises(UserError, match=rf"report/sections/tables/00-mine.md:\d: .*{message}"):
        sections.check(kernels, synthetic.config()["tasks"], tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, " it cannot be read: it is a folder, not a file"),
        ("# Mine\n\nCafé\n".encode("latin-1"), "3: this is not text in UTF-8"),
    ],
)
def test_a_section_that_is_no_text_is_named(tmp_path, kernels, content, message):
    path = tmp_path / "tables/00-mine.md"
    path.parent.mkdir()
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
        "{{ rows('best_of_each')[0].time_ms.dump('made') }}",
        "{{ rows('best_of_each')[0]._values.to_csv('made') }}",
        "{{ gpus()[0]._functions }}",
        "{{ ['{0.__class__.__init__.__globals__}'.format(figure)] }}",
        "{{ gpus()[0].config.update(a=1) }}",
    ],
)
def test_a_section_runs_no_code(tmp_path, gpu, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.md").write_text(f"{{% sentence %}}It says {words}.{{% endsentence %}}\n")
    language = sections.Language(render.Page(gpu).names(), tmp_path)
    made = language.get_template("mine.md").render()
    assert "SecurityError" in made or "UndefinedError" in made, made
    assert not (tmp_path / "made").exists()


def test_the_studys_own_sections_are_right(kernels):
    sections.check(kernels, synthetic.config()["tasks"])


def test_the_check_does_not_load_matplotlib():
    """A run checks the sections at its start, which should take no second more."""
    words = "import sys; import tilewise.report.sections; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", words], check=False).returncode == 0


def test_a_sentence_is_changed_in_one_file(tmp_path, gpu, monkeypatch):
    """A writer edits Markdown; nothing else."""
    folder = tmp_path / "sections"
    shutil.copytree(sections.FOLDER, folder)
    path = folder / "tables/01-threads.md"
    old = "which block of 1024 threads is fastest"
    path.write_text(path.read_text().replace(old, "what is left to choose is the block"))
    monkeypatch.setattr(sections.Language.__init__, "__defaults__", (None, folder))
    assert "what is left to choose is the block" in render.Page(gpu).section("tables/01-threads.md")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{{ 1234567 }}, {{ 1234567.8 }}", "1,234,567, 1,230,000"),
        ("{{ 1234567.8 | whole }}", "1,234,568"),
        ("{{ 12.3456 | digits(4) }}", "12.35"),
        ("{{ 1.39 | times }}", "1.39×"),
        ("{{ 4.06 | percent }} {{ 85.4 | percent }}", "4.1 % 85 %"),
        ("{{ 2 | number_of('block') }}, {{ 1 | number_of('block') }}", "two blocks, one block"),
        ("{{ ['a', 'b', 'c'] | listed }}, {{ ['a'] | listed }}", "a, b and c, a"),
        ("{{ '*a* <i>' }}", "*a* <i>"),
        ("{% sentence %}{{ none }}.{% endsentence %}", ""),
        ("{% sentence if 1 > 2 %}Never.{% endsentence %}", ""),
    ],
)
def test_numbers_and_words(gpu, value, words):
    assert said(gpu, value) == words


def test_why_a_sentence_was_left_out(gpu):
    page = render.Page(gpu)
    sentence = "{% sentence %}{{ gpu.time(kernel='mine') }}{% endsentence %}"
    page.text(f"Title\n\n{{% for gpu in gpus() %}}{sentence}{{% endfor %}}")
    page.text("{% sentence if 1 > 2 %}Never.{% endsentence %}")
    assert page.left_out == [("None:3", "not measured: kernel mine"), ("None:1", "its condition does not hold")]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{% filter listed %}\n- a 1\n- b,\n  too\n- c\n{% endfilter %}.", "a 1, b, too and c."),
        ("{% filter listed(';') %}\n- a\n- b\n{% endfilter %}.", "a; b."),
        ("{% filter listed %}\n{% endfilter %}.", "."),
        ("{{ 'a_b' | code }}", "a_b"),
        (
            "{% set one = rows('best_of_each', kernel='tiled', dtype='float')[0] %}{{ one | named }}",
            "tiled (tile 32) in float",
        ),
        ("{% set one = rows('best_of_each')[0] %}{{ 'yes' if 'watts' in one else 'no' }}", "no"),
        ("{{ rows('best_of_each')[0].machine }}", "Invented H200"),
        ("{{ rows('best_of_each', kernel='mine') | length }}", "0"),
    ],
)
def test_lists_and_rows(gpu, source, words):
    assert said(gpu, source) == words
