"""`tilewise record`: makes a recorded run of the results of a platform, without what is private."""

import csv
import re
import shutil
import socket
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tilewise import RECORDED, ROOT, UserError, crate
from tilewise.evidence import load_platform, refuse_no_run
from tilewise.files import read_json, write_json
from tilewise.recorded import check, entry, samples
from tilewise.recorded.check import PRIVATE, Finding
from tilewise.study import columns

#: A name of a machine that is shorter may be a word, such as `gpu`.
SHORTEST = 4
_TEXTS = [name for name, column in columns.COLUMNS.items() if column.type == "text"]


def record(source: Path, into: Path = RECORDED) -> tuple[Path, list[Finding]]:
    """Make the recorded run `into`/<platform> of results/<platform>; returns it with what a check says of it.

    If the check finds anything, nothing is recorded. An older recorded run of the platform is replaced. Raises
    UserError if `source` is no run.
    """
    refuse_no_run(source)
    source, target = source.resolve(), into / source.resolve().name
    if target.resolve() == source:
        raise UserError(f"{source}: this is recorded already; give a folder such as results/nvidia-h200")
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into, prefix=".") as temporary:
        made = Path(temporary, source.name)
        _copy(source, made)
        samples.pack(source / "samples", made)
        found = check.check(made)
        if found:
            return target, [Finding(each.check, each.says.replace(str(made), str(source))) for each in found]
        text = entry.text(made, load_platform(made, recorded=True))
        (made / entry.README).write_text(text, encoding="utf-8")
        crate.write(made)
        if target.exists():
            shutil.rmtree(target)
        made.rename(target)
    return target, []


def _copy(source: Path, made: Path) -> None:
    """Copy the files of a run, without what is private."""
    device = read_json(source / "device.json")
    wanted = [name for name in check.files_of(read_json(source / "config.json")) if (source / name).is_file()]
    wanted += sorted(f"tune/{path.name}" for path in (source / "tune").glob("*.csv"))
    names = _machines(device, [source / name for name in wanted if name.endswith(".csv")])
    for name in wanted:
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".json"):
            said = _public(read_json(source / name), names)
            own = {"node": "machine 1", "slurm_job": None} if name == "device.json" else {}
            write_json(said | own, made / name)
        else:
            _copy_table(source / name, made / name, names)


def _machines(device: Mapping[str, Any], tables: Iterable[Path]) -> dict[str, str]:
    """The names of a run's machines, with those by which they are recorded: `machine 1` is that of device.json."""
    found = [device.get("node") or socket.gethostname()]
    for path in tables:
        with path.open(encoding="utf-8", newline="", errors="replace") as file:
            found += [row["node"] for row in csv.DictReader(file) if row.get("node")]
    return {name: f"machine {number}" for number, name in enumerate(dict.fromkeys(found), 1)}


def _copy_table(path: Path, made: Path, names: Mapping[str, str]) -> None:
    """Copy a CSV: its numbers as they are, digit by digit, its words without what is private."""
    with (
        path.open(encoding="utf-8", newline="", errors="replace") as file,
        made.open("w", encoding="utf-8", newline="") as copy,
    ):
        rows = csv.DictReader(file)
        writer = csv.DictWriter(copy, rows.fieldnames or [], lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        for row in rows:
            words = {name: public(row[name], names) for name in _TEXTS if row.get(name)}
            place = {"slurm_job": "", "node": names.get(row.get("node", ""), "")}
            writer.writerow(row | words | {name: place[name] for name in place if name in row})
    shutil.copystat(path, made)  # which says when it was measured


def _public(data: Any, names: Mapping[str, str]) -> Any:
    """What a JSON file holds, with `public` applied to every text."""
    if isinstance(data, dict):
        return {key: _public(value, names) for key, value in data.items()}
    if isinstance(data, list):
        return [_public(value, names) for value in data]
    return public(data, names) if isinstance(data, str) else data


def public(text: str, names: Mapping[str, str]) -> str:
    """Text without the names of machines, and with the last part of each path; paths of the clone begin in it."""
    for name, machine in names.items():
        if len(name) >= SHORTEST:
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", machine, text)
    return PRIVATE.sub(lambda match: match[0].rpartition("/")[2].partition("@")[0], text.replace(f"{ROOT}/", ""))
