"""`tilewise record`: makes a recorded run of the results of a platform, without what is private; and `--cards`, which
adds the times of its points on further cards of the model."""

import contextlib
import io
import re
import shutil
import socket
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tilewise import RECORDED, ROOT, UserError
from tilewise.checksums import METADATA
from tilewise.evidence import load_platform, refuse_no_run
from tilewise.files import read_json, write_csv, write_json
from tilewise.recorded import check
from tilewise.recorded.check import ARCHIVE, DIGEST, README, WORKFLOW, readme_text, sha256
from tilewise.study import columns, registry
from tilewise.study.device import read as read_device
from tilewise.study.kernel import Kernel
from tilewise.study.status import Status

#: The file of the times on further cards.
CARDS = "cards.csv"
#: What a card has of kernels in turns.
RATIOS = ("vs_best", "sustained_vs_best")
#: What NVBench wrote: its tables, and every time and clock. The workers' logs name paths.
SAMPLE_ENDINGS = (".json", ".bin")
#: A name of a machine that is shorter may be a word, such as `gpu`.
SHORTEST = 4
_TEXTS = [name for name, column in columns.COLUMNS.items() if column.type == "text"]


def record(source: Path, into: Path = RECORDED) -> tuple[Path, list[str]]:
    """Make the recorded run `into`/<platform> of results/<platform>; returns it with the findings of the checks.

    If the checks find anything, nothing is recorded. An older recorded run of the platform is replaced. Raises
    UserError if `source` is no run.
    """
    from tilewise import crate  # loading rocrate takes a fifth of a second

    refuse_no_run(source)
    if not (source / "config.json").is_file():
        raise UserError(f"{source}: this run is not finished, it has no config.json yet; `make report` continues it")
    source, target = source.resolve(), into / source.resolve().name
    if target.resolve() == source:
        raise UserError(f"{source}: this is recorded already; give a folder such as results/nvidia-h200")
    with tempfile.TemporaryDirectory() as temporary:  # outside the clone, where a remedy is not git's
        made = Path(temporary).resolve() / source.name
        _copy(source, made)
        if found := check.check(made, complete=False):
            return target, [each.replace(str(made), str(source)) for each in found]
        _pack(source / "samples", made)  # a minute for the whole study, so a run that is refused does without
        platform = load_platform(made, recorded=True)
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
    """Copy the files of a run, without what is private. A damaged table is copied as it is: the checks refuse it."""
    config = source / "config.json"
    wanted = [name for name in check.files_of(read_json(config), config) if (source / name).is_file()]
    wanted += sorted(f"tune/{path.name}" for path in (source / "tune").glob("*.csv"))
    tables = {name: _cells(source / name) for name in wanted if name.endswith(".csv")}
    nodes = [read_device(source / "device.json").node or socket.gethostname()]
    nodes += [node for table in tables.values() if "node" in table for node in table["node"]]
    names = {node: f"machine {number}" for number, node in enumerate(filter(None, dict.fromkeys(nodes)), 1)}
    for name in wanted:
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        if name not in tables:
            own = {"node": "machine 1", "slurm_job": None} if name == "device.json" else {}
            write_json(_public(read_json(source / name), names) | own, made / name)
            continue
        shutil.copy2(source / name, made / name)  # its time says when it was measured
        if not tables[name].empty:
            write_csv(_public_table(tables[name], names), made / name)
            shutil.copystat(source / name, made / name)


def _cells(path: Path) -> pd.DataFrame:
    """The cells of a CSV as they are written, so that numbers keep their digits; empty if it is damaged."""
    content = path.read_bytes()
    with contextlib.suppress(ValueError):
        if content.endswith(b"\n"):  # else its last line is cut short
            return pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
    return pd.DataFrame()


def _public_table(table: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """A table of cells without what is private."""
    place = {"slurm_job": lambda _: "", "node": lambda node: names.get(node, "")}
    changes = {name: place.get(name, lambda text: _public(text, names)) for name in table if name in _TEXTS}
    return table.assign(**{name: table[name].map(change) for name, change in changes.items()})


def _public(data: Any, names: Mapping[str, str]) -> Any:
    """Text, or all texts of JSON, without machines' names, and with the last part of each path outside the clone."""
    if isinstance(data, dict):
        return {key: _public(value, names) for key, value in data.items()}
    if isinstance(data, list):
        return [_public(value, names) for value in data]
    if not isinstance(data, str):
        return data
    for name, machine in names.items():
        if len(name) >= SHORTEST:
            data = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", machine, data)
    return check.PRIVATE.sub(lambda match: match[0].rpartition("/")[2].partition("@")[0], data.replace(f"{ROOT}/", ""))


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
    (folder / DIGEST).write_text(f"{sha256(folder / ARCHIVE)}  {ARCHIVE}\n")  # as `sha256sum --check` reads it


def add_cards(runs: Sequence[Path], recorded: Path = RECORDED) -> tuple[Path, int, list[str]]:
    """Add the times of `runs` on other cards to the recorded run of their platform, `recorded`/<platform>.

    A run counts with the tasks that it has finished, so those of config/duels.yaml alone will do. Kernels in turns have
    their ratios to cuBLAS too, if cuBLAS is that of the recorded run; a duel whose task the recorded run lacks, as
    those of config/duels.yaml, counts for the same points in turns in another task there.

    Returns its cards.csv, the number of its points, and a line for each point that was built from other sources and is
    left out. A card that is there already is replaced. Raises UserError if a folder is no run, if the runs are of
    several platforms or none of the recorded ones, or if they have nothing to add.
    """
    kernels = registry.load()
    for run in runs:
        refuse_no_run(run)
    names = sorted({read_device(run / "device.json").platform for run in runs})
    if len(names) > 1:
        raise UserError(f"record --cards: these are runs of several platforms: {', '.join(names)}; name one's")
    target = recorded / names[0]
    if not (target / "device.json").is_file():
        raise UserError(f"{target}: no run of {names[0]} is recorded; record a whole one first (docs/recording.md)")
    kept = load_platform(target, recorded=True, kernels=kernels)
    found, left_out = [kept.cards], []
    for run in runs:
        rows = _finished_tasks(run, kernels)
        rows = rows[(rows["status"] == Status.OK) & rows["time_ms"].notna() & (rows["gpu_uuid"].fillna("") != "")]
        rows = _renamed(rows, kept.measurements)
        own = _recorded(rows, kept.measurements, _key(kept.measurements), ["gpu_uuid", "build_sha256"])
        rows = rows[own["gpu_uuid"].notna() & (own["gpu_uuid"] != rows["gpu_uuid"])]
        other = rows["build_sha256"] != own.loc[rows.index, "build_sha256"]
        # As the table of kernels in turns has it: to the faster of the library's calls.
        rows["sustained_vs_best"] = rows[["sustained_vs_best", "sustained_vs_default"]].min(axis="columns")
        rows.loc[_of_other_library(rows, other, kernels), list(RATIOS)] = float("nan")
        words = "built from other sources than the recorded row"
        left_out += [f"{run}: {check.row_label(row)}: {words}" for row in rows[other].to_dict("records")]
        found.append(rows[~other].assign(platform=names[0]))
    table = pd.concat(found, ignore_index=True)
    key = _key(table)
    table = table.sort_values(key, kind="stable", key=lambda column: column.astype(str))
    table = table.drop_duplicates([*key, "gpu_uuid"], keep="last")
    if table.empty:
        raise UserError(
            f"record --cards: no point of {names[0]} was timed on another card than that of its recorded row"
        )
    write_csv(
        columns.set_types(table.reindex(columns=columns.column_names("cards", registry.parameters(kernels)))),
        target / CARDS,
    )
    if (target / METADATA).is_file():
        from tilewise import crate  # rocrate loads in a fifth of a second; other commands do without

        crate.write(target, workflow=target / WORKFLOW)
    return target / CARDS, len(table), left_out


def _finished_tasks(run: Path, kernels: Mapping[str, Kernel]) -> pd.DataFrame:
    """The rows of measurements.csv of a run's finished tasks, though the run as a whole may have none."""
    paths = sorted((run / "tasks").glob("*.csv"))
    if not paths:
        raise UserError(f"{run}: no task is finished there; measure one, or give a folder such as results/nvidia-h200")
    return columns.read_all(paths, "measurements", registry.parameters(kernels))


def _renamed(rows: pd.DataFrame, recorded: pd.DataFrame) -> pd.DataFrame:
    """Rows; those in turns whose task the recorded run lacks get its first task that timed the same point
    in turns."""
    in_turns = recorded[recorded["turns"].notna()]
    tasks = _recorded(rows, in_turns, [name for name in _key(recorded) if name != "task"], ["task"])["task"]
    return rows.assign(task=rows["task"].mask(rows["turns"].notna() & ~rows["task"].isin(recorded["task"]), tasks))


def _recorded(rows: pd.DataFrame, recorded: pd.DataFrame, key: list[str], names: list[str]) -> pd.DataFrame:
    """Columns of the first recorded row of each row's point, which `key` names; empty where there is none."""
    known = recorded.drop_duplicates(key)[[*key, *names]]
    return rows.reindex(columns=key).merge(known, how="left", on=key)[names].set_axis(rows.index)


def _of_other_library(rows: pd.DataFrame, other: pd.Series, kernels: Mapping[str, Kernel]) -> pd.Series:
    """Rows whose ratios refer to another library than those of the recorded run; `other` marks rows of other builds."""
    product = ["dtype", *columns.SHAPE]
    library = rows["kernel"].isin([name for name, kernel in kernels.items() if kernel.library])
    return (other & library).groupby([rows[name] for name in product], dropna=False).transform("any")


def _key(rows: pd.DataFrame) -> list[str]:
    return [*columns.POINT, *columns.parameters_of(rows)]
