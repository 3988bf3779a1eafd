"""What a release carries, and its checks: `make release`."""

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import kernelscope
from kernelscope.files import read_text
from tilewise import RECORDED, ROOT, UserError, exit_on_user_error
from tilewise.checksums import SUMS, sha256
from tilewise.recorded.check import ARCHIVE, DIGEST, wrong_samples
from tilewise.report.render import write_site
from tilewise.study import schema

CITATION, DEPOSIT, CHANGES = "CITATION.cff", ".zenodo.json", "CHANGELOG.md"
MICROSCOPE_CHANGES = "packages/microscope/CHANGELOG.md"
#: The newest heading of a changelog: a version, and the date of its release or words in its place.
HEADING = re.compile(r"^## (\d+\.\d+\.\d+), (.*)$", re.MULTILINE)
NOT_YET = "not yet released"
#: What Zenodo's metadata say too: key of the citation -> key of the deposit.
SHARED = {"title": "title", "abstract": "description", "license": "license", "keywords": "keywords"}


def make(folder: Path) -> Iterator[str]:
    """Write what a release carries into a folder, which is replaced, and check it; yields lines about it.

    Raises UserError if the tree has changes, if its files state several versions, if samples are not those of their
    run, or if the archive or a page cannot be made as it should be.
    """
    if changes := _git("status", "--porcelain").splitlines():
        some = ", ".join(line[3:] for line in changes[:3])
        raise UserError(f"the tree has {len(changes)} changed files ({some}); commit or remove them: a release is HEAD")
    version, date = check_metadata()
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    commit = _git("rev-parse", "--short=10", "HEAD").strip()
    yield f"{_source(folder, version).name}: the source of {commit}, unpacked and run"
    for run in sorted(path.parent for path in RECORDED.glob("*/device.json")):
        yield _samples(run, folder)
    if notes := write_site(folder / "pages"):
        raise UserError(f"pages: {'; '.join(notes)}; `make report` writes the cause into logs/report.log")
    yield "pages: the recorded runs, the story and the assignment; pages/index.html leads to them"
    made = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    sums = "".join(f"{sha256(folder / path)}  {path}\n" for path in made)
    (folder / SUMS).write_text(sums, encoding="utf-8")
    yield f"{SUMS}: `sha256sum --check {SUMS}`"
    yield f"{version} of {date}: tag it v{version}" if date else f"{version} is {NOT_YET}: a trial (CONTRIBUTING.md)"


def check_metadata(root: Path = ROOT) -> tuple[str, str]:
    """The version of a tree, and the date of its release, or "" if CHANGELOG.md says that it is not yet released.

    Raises UserError if CITATION.cff or .zenodo.json is not valid, or if they, the changelogs, pyproject.toml and
    kernelscope do not agree.
    """
    cited, deposit = schema.read(root / CITATION, "citation"), schema.read(root / DEPOSIT, "zenodo")
    project = tomllib.loads(read_text(root / "pyproject.toml"))["project"]
    version = project["version"]
    newest, date = _newest(root / CHANGES)
    stated = [(CITATION, cited["version"], version), (CHANGES, newest, version)]
    stated += [(CITATION, cited["license"], project["license"])]
    stated += [(MICROSCOPE_CHANGES, _newest(root / MICROSCOPE_CHANGES)[0], kernelscope.__version__)]
    if date != NOT_YET:
        stated += [(CITATION, cited["date-released"], date)]
    stated += [(DEPOSIT, str(deposit[name]), str(cited[key])) for key, name in SHARED.items()]
    for name, found, wanted in stated:
        if found != wanted:
            raise UserError(f"{root / name}: '{found}', but '{wanted}' elsewhere; let the files agree")
    return version, "" if date == NOT_YET else date


def _newest(changelog: Path) -> tuple[str, str]:
    """The version and the date of a changelog's newest heading."""
    found = HEADING.search(read_text(changelog))
    if found is None:
        raise UserError(f"{changelog}: it has no heading such as '## 1.0.0, {NOT_YET}'")
    return found[1], found[2]


def _source(folder: Path, version: str) -> Path:
    """Write the archive of HEAD; its command states the version."""
    name = f"tilewise-{version}"
    archive = folder / f"{name}.tar.gz"
    _git("archive", f"--prefix={name}/", f"--output={archive.resolve()}", "HEAD")
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(archive) as files:
            files.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2, of Debian 12, has none
            files.extractall(place)
        command = [sys.executable, "-m", "tilewise", "--version"]  # of the folder that it runs in
        done = subprocess.run(command, cwd=Path(place, name, "workflow"), capture_output=True, text=True)
    if done.stdout != f"tilewise {version}\n":
        raise UserError(f"{archive}: unpacked, `tilewise --version` says: {(done.stdout + done.stderr).strip()[-500:]}")
    return archive


def _samples(run: Path, folder: Path) -> str:
    """Copy the samples of a recorded run, if they lie beside it; a line about them."""
    target = folder / f"{run.name}-{ARCHIVE}"
    if not (run / ARCHIVE).is_file():
        needed = (run / DIGEST).is_file()
        return f"{target.name}: absent" + f"; {run.relative_to(ROOT) / DIGEST} has its hash" * needed
    if wrong := wrong_samples(run):
        raise UserError(f"{run}: {wrong}; take the samples of this run, or remove them")
    shutil.copy(run / ARCHIVE, target)
    return f"{target.name}: has its hash"


def _git(*words: str) -> str:
    """What a command of git prints. Raises UserError if it fails, as outside a clone."""
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        said = str(getattr(error, "stderr", "") or error).strip()
        raise UserError(f"git {words[0]}: {said}; a release is made in a clone, with git") from None


if __name__ == "__main__":
    with exit_on_user_error():
        for line in make(Path(sys.argv[1])):
            print(line, flush=True)
