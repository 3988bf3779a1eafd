"""`make release`: what it writes, and what it refuses."""

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import synthetic
from clones import edit, variables

from tilewise import RECORDED, ROOT, UserError, release
from tilewise.report import render

SAMPLES = b"samples of a run"


def test_the_metadata_are_valid_and_agree():
    version, date = release.check_metadata()
    assert re.fullmatch(r"\d+\.\d+\.\d+", version) and re.fullmatch(r"(\d{4}-\d\d-\d\d)?", date)


#: The file that is edited; a pattern, and what replaces it; and the message.
FAULTS = {
    "a misspelled key": ("CITATION.cff", r"\nkeywords:", "\nkeyword:", r"CITATION\.cff: .*keyword"),
    "a version with a letter": ("CITATION.cff", r"\nversion: .*", "\nversion: v1.0.0", r"CITATION\.cff: version: "),
    "another version": ("CITATION.cff", r"\nversion: .*", "\nversion: 9.8.7", r"CITATION\.cff: '9\.8\.7', but '"),
    "a newer heading": ("CHANGELOG.md", r"(?=\n## )", "\n## 9.8.7, now\n", r"CHANGELOG\.md: '9\.8\.7', but '"),
    "another date": ("CHANGELOG.md", r"\n## (\S+), .*", r"\n## \1, 2031-01-01", r"CITATION\.cff: .* but '2031-01-01'"),
    "no heading": (release.MICROSCOPE_CHANGES, r"\n## ", "\n### ", r"microscope/CHANGELOG\.md: it has no heading"),
    "no creators": (".zenodo.json", r'"creators": \[.*\],', "", r"\.zenodo\.json: .*creators"),
    "another title": (".zenodo.json", r'"title": "', '"title": "The ', r"\.zenodo\.json: 'The Tilewise: .*', but 'T"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_metadata_that_are_wrong_are_refused_by_file(fault, tmp_path):
    for name in (release.CITATION, release.DEPOSIT, release.CHANGES, release.MICROSCOPE_CHANGES, "pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    name, pattern, by, said = FAULTS[fault]
    text, found = re.subn(pattern, by, (tmp_path / name).read_text(), count=1)
    assert found
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=said):
        release.check_metadata(tmp_path)


@pytest.fixture
def clone(tmp_path):
    """A clone with the environment of these tests, and samples of one run, whose hash is not committed."""
    folder = tmp_path / "a clone"
    if subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", folder]).returncode:
        pytest.skip("this copy has no git history to clone")
    (folder / ".venv").mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (folder / ".venv" / name).symlink_to(Path(sys.prefix) / name)
    for stamp in ("run", "run-gpu"):
        (folder / ".venv" / stamp).touch()
    run = folder / "report/recorded/nvidia-h200"
    (run / "samples.tar.xz").write_bytes(SAMPLES)
    (run / "samples.sha256").write_text(f"{hashlib.sha256(SAMPLES).hexdigest()}  samples.tar.xz\n")
    return folder


def commit(clone):
    name = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *name, "commit", "--quiet", "--all", "--message", "a release"], cwd=clone, check=True)


PAGES = {f"pages/{name}.html" for name in ("index", "report", "story", "assignment")}


def check_release(clone, said):
    """Whether dist/ of a clone has the source, the samples and the pages, with their sums."""
    version, dist = release.check_metadata()[0], clone / "dist"
    files = {f"tilewise-{version}.tar.gz", "nvidia-h200-samples.tar.xz", *PAGES}
    there = {path.relative_to(dist).as_posix() for path in dist.rglob("*") if path.is_file()}
    assert there == files | {"SHA256SUMS"}
    subprocess.run(["sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS"], cwd=dist, check=True)
    assert {line.split()[1] for line in (dist / "SHA256SUMS").read_text().splitlines()} == files
    assert "nvidia-h100-80gb-hbm3-samples.tar.xz: absent" in said
    with tarfile.open(dist / f"tilewise-{version}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=clone, capture_output=True, text=True, check=True).stdout
    assert set(tracked.strip("\0").split("\0")) <= names


def check_site(folder, runs):
    """Whether the pages lead to each other, and say of these runs that they are recorded."""
    for path in folder.glob("*.html"):
        links = set(re.findall(r'href="(\w+\.html)', path.read_text()))
        assert links == {"report.html", "story.html", "assignment.html"}
    report = (folder / "report.html").read_text()
    assert "The recorded runs" in report and "Your run" not in report and "This run" not in report
    [data] = re.findall(r"<p>Data: (.*?)</p>", report, re.DOTALL)
    assert len(data.split("; ")) == data.count(", recorded") == runs


def test_a_release_has_the_source_the_samples_and_the_sums(clone, monkeypatch):
    def site(folder):
        folder.mkdir()
        for name in PAGES:
            (folder / Path(name).name).write_text("a page")
        return []

    for name, value in {"ROOT": clone, "RECORDED": clone / "report" / "recorded", "write_site": site}.items():
        monkeypatch.setattr(release, name, value)
    with pytest.raises(UserError, match=r"1 changed files \(report/recorded/nvidia-h200/samples\.sha256\); commit"):
        list(release.make(clone / "dist"))
    assert not (clone / "dist").exists()
    commit(clone)
    check_release(clone, "\n".join(release.make(clone / "dist")))
    (clone / "new.md").touch()
    with pytest.raises(UserError, match=r"1 changed files \(new\.md\)"):
        list(release.make(clone / "dist"))


@pytest.mark.slow
def test_the_site_of_recorded_runs_is_theirs_alone(tmp_path, monkeypatch):
    study = synthetic.config("task1a", "ladder_float")
    synthetic.write(tmp_path / "recorded" / "tesla-t4", study=study)
    monkeypatch.setattr(render, "RECORDED", tmp_path / "recorded")  # which the story is not about
    assert render.write_site(tmp_path / "site", tmp_path / "recorded") == []
    assert {path.name for path in (tmp_path / "site").iterdir()} == {Path(name).name for name in PAGES}
    check_site(tmp_path / "site", 1)


@pytest.mark.exhaustive  # all pages of the recorded runs, which other tests render too
def test_make_release_as_it_is_typed(clone):
    commit(clone)
    done = subprocess.run(
        ["make", "release"], cwd=clone, env=variables(clone), capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    check_release(clone, done.stdout)
    check_site(clone / "dist" / "pages", len(list(RECORDED.glob("*/device.json"))))


def test_samples_of_another_run_are_refused(tmp_path):
    run = tmp_path / "tesla-t4"
    run.mkdir()
    (run / "samples.sha256").write_text(f"{hashlib.sha256(SAMPLES).hexdigest()}  samples.tar.xz\n")
    (run / "samples.tar.xz").write_bytes(SAMPLES)
    assert release._samples(run, tmp_path) == "tesla-t4-samples.tar.xz: has its hash"
    (run / "samples.tar.xz").write_bytes(SAMPLES * 2)
    with pytest.raises(UserError, match=r"tesla-t4: samples\.sha256: this is not the sha256 of samples\.tar\.xz"):
        release._samples(run, tmp_path)


def test_an_archive_that_does_not_run_is_refused(clone, tmp_path, monkeypatch):
    edit(clone / "workflow/tilewise/__main__.py", "import argparse", "import argparse_")
    commit(clone)
    monkeypatch.setattr(release, "ROOT", clone)
    with pytest.raises(UserError, match=r"(?s)unpacked, `tilewise --version` says: .*argparse_"):
        release._source(tmp_path, "1.0.0")
