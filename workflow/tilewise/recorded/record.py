"""`tilewise record`: makes a recorded run of the results of a platform, without what is private."""

import functools
import re
import shutil
import socket
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

import jinja2
import pandas as pd

from tilewise import RECORDED, ROOT, UserError
from tilewise.evidence import Platform, load_platform, refuse_no_run
from tilewise.explain.provenance import by_card
from tilewise.files import read_json, write_csv, write_json
from tilewise.recorded import check
from tilewise.recorded.check import ARCHIVE, DIGEST, README, WORKFLOW
from tilewise.study import columns, registry

#: What NVBench wrote: its tables, and every time and clock. The workers' logs name paths.
SAMPLE_ENDINGS = (".json", ".bin")
#: A name of a machine that is shorter may be a word, such as `gpu`.
SHORTEST = 4
#: The columns that may hold what is private.
TEXTS = [name for name, column in columns.COLUMNS.items() if column.type == "text"]


def record(source: Path, into: Path = RECORDED) -> tuple[Path, list[str]]:
    """Make the recorded run `into`/<platform> of results/<platform>; returns it with the findings of the checks.

    If the checks find anything, nothing is recorded. An older recorded run of the platform is replaced. Raises
    UserError if `source` is no run, or damaged.
    """
    from tilewise import crate  # loading rocrate takes a fifth of a second

    refuse_no_run(source)
    if not (source / "config.json").is_file():
        raise UserError(f"{source}: this run is not finished, it has no config.json yet; `make report` continues it")
    source, target = source.resolve(), into / source.resolve().name
    if target.resolve() == source:
        raise UserError(f"{source}: this is recorded already; give a folder such as results/nvidia-h200")
    check.read(source, registry.load())  # a damaged file is named where it lies
    with tempfile.TemporaryDirectory() as temporary:  # outside the clone, where a remedy is not git's
        made = Path(temporary).resolve() / source.name
        _copy(source, made)
        if found := check.check(made, complete=False):
            return target, [each.replace(str(made), str(source)) for each in found]
        _pack(source / "samples", made)  # a minute for the whole study, so a run that is refused does without
        platform = load_platform(made)
        (made / README).write_text(readme_text(made, platform))
        with check.sources(next(iter(platform.commits))) as tree:  # the checks have found it
            crate.write(made, workflow=tree / "workflow" / WORKFLOW)
        into.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=into, prefix=".") as beside:  # a full disk leaves the older run whole
            whole = shutil.copytree(made, Path(beside, source.name))
            if target.exists():
                shutil.rmtree(target)
            whole.rename(target)
    return target, []


def _copy(source: Path, made: Path) -> None:
    """Copy the files of a run, without what is private: machines' names, job numbers, paths and addresses of mail."""
    names = [name for name in check.files_of(read_json(source / "config.json")) if (source / name).is_file()]
    names += sorted(f"tune/{path.name}" for path in (source / "tune").glob("*.csv"))
    # Cells as they are written, so that numbers keep their digits.
    tables = {name: pd.read_csv(source / name, dtype=str, keep_default_na=False) for name in names if "csv" in name}
    device = read_json(source / "device.json")
    nodes = [device.get("node") or socket.gethostname(), *tables["measurements.csv"]["node"]]
    machines = {node: f"machine {number}" for number, node in enumerate(filter(None, dict.fromkeys(nodes)), 1)}
    public = functools.partial(_public, machines=machines)
    for name in names:
        if name in tables:
            table = tables[name].replace({"node": machines})
            table = table.assign(slurm_job="") if "slurm_job" in table else table
            texts = {column: table[column].map(public) for column in table if column in TEXTS}
            write_csv(table.assign(**texts), made / name)
        else:
            own = {"node": "machine 1", "slurm_job": None} if name == "device.json" else {}
            write_json(check.map_texts(read_json(source / name), public) | own, made / name)
        shutil.copystat(source / name, made / name)  # its time says when it was measured


def _public(text: str, machines: Mapping[str, str]) -> str:
    """A text without names of machines, and with the last part of each path outside the clone."""
    for name, machine in machines.items():
        if len(name) >= SHORTEST:
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", machine, text)
    return check.PRIVATE.sub(lambda match: match[0].rpartition("/")[2].partition("@")[0], text.replace(f"{ROOT}/", ""))


def _pack(source: Path, folder: Path) -> None:
    """Write the archive of the samples in `source`, if there are any, and its hash into `folder`.

    The same samples make the same bytes: the archive has no owners and no times.
    """
    paths = sorted(path for path in source.rglob("*") if path.suffix in SAMPLE_ENDINGS and path.is_file())
    if not paths:
        return
    with tarfile.open(folder / ARCHIVE, "w:xz", preset=6) as archive:
        for path in paths:
            info = tarfile.TarInfo(f"samples/{path.relative_to(source)}")
            info.size = path.stat().st_size
            with path.open("rb") as file:
                archive.addfile(info, file)
    (folder / DIGEST).write_bytes(check.samples_line(folder))


def readme_text(folder: Path, platform: Platform) -> str:
    """The README.md of the recorded run in a folder, from the data that `platform` was read from."""
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(Path(__file__).with_name("README.md.j2").read_text())
    digest = (folder / DIGEST).read_text().split()[0] if (folder / DIGEST).is_file() else ""
    cards = by_card([platform]).to_dict("records")  # a run resumed on another card has several
    return template.render(run=platform, gpu=platform.device.gpu, cards=cards, sha256=digest)
