"""`tilewise record --cards`: adds the times of a recorded run's points on further cards of the model."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from tilewise import RECORDED, UserError
from tilewise.checksums import METADATA
from tilewise.evidence import load_platform, refuse_no_run
from tilewise.files import write_csv
from tilewise.recorded.check import CARDS, row_label
from tilewise.study import columns, registry
from tilewise.study.device import read as read_device
from tilewise.study.kernel import Kernel
from tilewise.study.status import Status

#: What a card has of kernels in turns.
RATIOS = ("vs_best", "sustained_vs_best")


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
        left_out += [f"{run}: {row_label(row)}: {words}" for row in rows[other].to_dict("records")]
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

        crate.describe(target / CARDS)
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
