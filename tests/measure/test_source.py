"""With what a row was measured: the commit, and the files that differed from it at that moment."""

import subprocess

import pandas as pd
import pytest

from tilewise.measure import environment
from tilewise.measure.journal import Journal

NAMES = ("one", "two", "three", "four", "five", "six", "seven")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A clone with one commit; `git` runs in it."""

    def git(*words):
        command = ["git", "-C", str(tmp_path / "clone"), "-c", "user.name=me", "-c", "user.email=me@here", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    (tmp_path / "clone/kernels/textbook").mkdir(parents=True)
    (tmp_path / "clone/kernels/textbook/naive.cu").write_text("void naive() {}\n")
    (tmp_path / "clone/README.md").write_text("Read me.\n")
    subprocess.run(["git", "init", "-q", str(tmp_path / "clone")], check=True)
    git("add", ".")
    git("commit", "-qm", "first")
    monkeypatch.setattr(environment, "ROOT", tmp_path / "clone")
    environment.source.cache_clear()
    yield tmp_path / "clone", git
    environment.source.cache_clear()


def now():
    environment.source.cache_clear()  # as a new process has it
    return environment.source()


def test_a_row_says_its_commit_and_the_changes_and_new_files_of_what_measures(repository):
    folder, git = repository
    commit = git("rev-parse", "HEAD")[:10]
    assert now() == {"commit": commit, "changes": ""}
    (folder / "README.md").write_text("Another text.\n")
    (folder / "notes.txt").write_text("Nobody measures with notes.\n")
    assert now() == {"commit": commit, "changes": ""}
    (folder / "kernels/textbook/naive.cu").write_text("void naive() { }\n")
    (folder / "kernels/mine.cu").write_text("void mine() {}\n")
    (folder / "config").mkdir()
    (folder / "config/mine.yaml").write_text("seed: 7\n")
    changed = "kernels/textbook/naive.cu, config/mine.yaml (new), kernels/mine.cu (new)"
    assert now() == {"commit": commit, "changes": changed}
    git("add", ".")
    git("commit", "-qm", "second")
    assert now() == {"commit": git("rev-parse", "HEAD")[:10], "changes": ""} != {"commit": commit, "changes": ""}


def test_of_many_changes_a_row_names_the_first(repository):
    folder, _ = repository
    for name in NAMES:
        (folder / f"kernels/{name}.cu").touch()
    named = ", ".join(f"kernels/{name}.cu (new)" for name in sorted(NAMES)[:5])
    assert now()["changes"] == f"{named}, 2 more"


def test_a_copy_without_history_or_a_machine_without_git_does_not_say_that_it_is_clean(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert now() == {"commit": "", "changes": ""}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert now() == {"commit": "", "changes": ""}
    environment.source.cache_clear()


def test_a_row_of_the_journal_keeps_the_commit_that_it_was_measured_with(repository, tmp_path):
    folder, git = repository
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.add("first", {"status": "ok"})
    first = now()["commit"]
    (folder / "kernels/mine.cu").touch()
    git("commit", "-qm", "second", "--allow-empty")
    second = now()["commit"]
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.add("second", {"status": "ok"})
        rows = pd.DataFrame(journal.rows.values())
    assert first != second
    assert rows["commit"].tolist() == [first, second]
    assert rows["changes"].tolist() == ["", "kernels/mine.cu (new)"]
