"""`tilewise record --cards`: what further cards of the model took for the points of a recorded run."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tilewise import RECORDED, UserError, crate
from tilewise.evidence import Platform, load_platform
from tilewise.files import write_csv
from tilewise.recorded.possible import about
from tilewise.study import columns, registry
from tilewise.study.status import Status

FILE = "cards.csv"


def add(runs: Sequence[Path], recorded: Path = RECORDED) -> tuple[Path, int, list[str]]:
    """Add the times of `runs` on other cards to the recorded run of their platform, `recorded`/<platform>.

    Returns its cards.csv, how many points it has, and what of the runs was left out, in lines: points that were built
    from other sources. A card that is there already is replaced. Raises UserError if a folder is no run, if the runs
    are of several platforms or none of the recorded ones, or if they have nothing to add.
    """
    kernels = registry.load()
    parameters = registry.parameters(kernels)
    read = [load_platform(run, kernels=kernels) for run in runs]
    names = {platform.device.platform for platform in read}
    if len(names) > 1:
        raise UserError(f"record --cards: these are runs of several platforms: {', '.join(sorted(names))}; name one's")
    [name] = names
    target = recorded / name
    if not (target / "device.json").is_file():
        raise UserError(f"{target}: no run of {name} is recorded; record a whole one first (docs/recording.md)")
    kept = load_platform(target, recorded=True, kernels=kernels)
    found, left_out = [kept.cards], []
    for run, platform in zip(runs, read):
        rows, other = _of_other_cards(platform, kept)
        left_out += [f"{run}: {about(row)}: built from other sources than the recorded row" for row in other]
        found.append(rows.assign(platform=name))
    rows = pd.concat(found, ignore_index=True)
    key = [*_key(rows), "gpu_uuid"]
    rows = rows.sort_values(key[:-1], kind="stable", key=lambda column: column.astype(str))
    rows = rows.drop_duplicates(key, keep="last")
    if len(rows) == len(kept.cards) == 0:
        raise UserError(f"record --cards: no point of {name} was timed on another card than that of its recorded row")
    write_csv(columns.typed(rows.reindex(columns=columns.of("cards", parameters))), target / FILE)
    if (target / crate.METADATA).is_file():
        crate.write(target)
    return target / FILE, len(rows), left_out


def damage(kept: Platform) -> list[str]:
    """Rows of cards.csv with an unknown point, the recorded card, other sources, or no time."""
    recorded = kept.measurements.set_index(_key(kept.measurements)).index
    rows = kept.cards
    if rows.empty:
        return []
    own = _beside(rows, kept)
    wrong = {
        "there is no such point in measurements.csv": ~rows.set_index(_key(kept.measurements)).index.isin(recorded),
        "this is the card of the recorded row": own["gpu_uuid"] == own["recorded_uuid"],
        "built from other sources than the recorded row": own["build_sha256"] != own["recorded_sha256"],
        "it has no time": ~(own["time_ms"] > 0),
    }
    return [
        f"{FILE}: {about(row)}: {words}"
        for words, which in wrong.items()
        for row in rows[pd.Series(which, rows.index).fillna(False).astype(bool).to_numpy()].to_dict("records")
    ]


def _of_other_cards(platform: Platform, kept: Platform) -> tuple[pd.DataFrame, list[dict]]:
    """The timed rows of a run of points that are recorded, of other cards; and those that other sources made."""
    rows = platform.measurements
    rows = rows[(rows["status"] == Status.OK) & rows["time_ms"].notna() & (rows["gpu_uuid"].fillna("") != "")]
    rows = _beside(rows, kept)
    rows = rows[rows["recorded_uuid"].notna() & (rows["recorded_uuid"] != rows["gpu_uuid"])]
    same = rows["build_sha256"] == rows["recorded_sha256"]
    rows = rows.drop(columns=["recorded_uuid", "recorded_sha256"])
    return rows[same], rows[~same].to_dict("records")


def _beside(rows: pd.DataFrame, kept: Platform) -> pd.DataFrame:
    """Rows with the card and the hash of the recorded row of their point, in the order of `rows`."""
    key = _key(kept.measurements)
    known = kept.measurements.drop_duplicates(key)[[*key, "gpu_uuid", "build_sha256"]]
    known = known.rename(columns={"gpu_uuid": "recorded_uuid", "build_sha256": "recorded_sha256"})
    return rows.reindex(columns=list(dict.fromkeys([*rows, *key]))).merge(known, how="left", on=key)


def _key(rows: pd.DataFrame) -> list[str]:
    return [*columns.POINT, *columns.parameters_of(rows)]
