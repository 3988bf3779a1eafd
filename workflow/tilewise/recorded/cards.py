"""`tilewise record --cards`: times of the points of a recorded run on further cards of its model."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tilewise import RECORDED, UserError
from tilewise.checksums import METADATA
from tilewise.evidence import Platform, load_platform
from tilewise.files import write_csv
from tilewise.recorded.check import about
from tilewise.recorded.entry import WORKFLOW
from tilewise.study import columns, registry
from tilewise.study.status import Status

FILE = "cards.csv"


def add(runs: Sequence[Path], recorded: Path = RECORDED) -> tuple[Path, int, list[str]]:
    """Add the times of `runs` on other cards to the recorded run of their platform, `recorded`/<platform>.

    Returns its cards.csv, the number of its points, and a line for each point that was built from other sources and is
    left out. A card that is there already is replaced. Raises UserError if a folder is no run, if the runs are of
    several platforms or none of the recorded ones, or if they have nothing to add.
    """
    kernels = registry.load()
    read = [load_platform(run, kernels=kernels) for run in runs]
    names = sorted({platform.device.platform for platform in read})
    if len(names) > 1:
        raise UserError(f"record --cards: these are runs of several platforms: {', '.join(names)}; name one's")
    target = recorded / names[0]
    if not (target / "device.json").is_file():
        raise UserError(f"{target}: no run of {names[0]} is recorded; record a whole one first (docs/recording.md)")
    kept = load_platform(target, recorded=True, kernels=kernels)
    found, left_out = [kept.cards], []
    for run, platform in zip(runs, read):
        rows = platform.measurements
        rows = rows[(rows["status"] == Status.OK) & rows["time_ms"].notna() & (rows["gpu_uuid"].fillna("") != "")]
        rows = _beside(rows, kept)
        rows = rows[rows["recorded_uuid"].notna() & (rows["recorded_uuid"] != rows["gpu_uuid"])]
        other = rows["build_sha256"] != rows["recorded_sha256"]
        words = "built from other sources than the recorded row"
        left_out += [f"{run}: {about(row)}: {words}" for row in rows[other].to_dict("records")]
        found.append(rows[~other].drop(columns=["recorded_uuid", "recorded_sha256"]).assign(platform=names[0]))
    table = pd.concat(found, ignore_index=True)
    key = _key(table)
    table = table.sort_values(key, kind="stable", key=lambda column: column.astype(str))
    table = table.drop_duplicates([*key, "gpu_uuid"], keep="last")
    if table.empty:
        raise UserError(
            f"record --cards: no point of {names[0]} was timed on another card than that of its recorded row"
        )
    write_csv(columns.typed(table.reindex(columns=columns.of("cards", registry.parameters(kernels)))), target / FILE)
    if (target / METADATA).is_file():
        from tilewise import crate  # rocrate loads in a fifth of a second; other commands do without

        crate.write(target, workflow=target / WORKFLOW)
    return target / FILE, len(table), left_out


def _beside(rows: pd.DataFrame, kept: Platform) -> pd.DataFrame:
    """Rows with the card and the hash of the recorded row of their point, in the order of `rows`."""
    key = _key(kept.measurements)
    known = kept.measurements.drop_duplicates(key)[[*key, "gpu_uuid", "build_sha256"]]
    known = known.rename(columns={"gpu_uuid": "recorded_uuid", "build_sha256": "recorded_sha256"})
    return rows.reindex(columns=list(dict.fromkeys([*rows, *key]))).merge(known, how="left", on=key)


def _key(rows: pd.DataFrame) -> list[str]:
    return [*columns.POINT, *columns.parameters_of(rows)]
