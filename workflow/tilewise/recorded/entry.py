"""The README.md of a recorded run: what it is, from its own data."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from tilewise.evidence import Platform
from tilewise.explain.runs import by_card
from tilewise.recorded import samples

README = "README.md"


def text(folder: Path, platform: Platform) -> str:
    """The entry of the recorded run in a folder, which `platform` was read from."""
    device, gpu, rows = platform.device, platform.device.gpu, platform.measurements
    commits = ", ".join(f"`{state}`" for state in platform.commits)
    limit = f"{gpu['power_limit_w']:.0f} W, " if gpu.get("power_limit_w") else ""
    repeats = platform.config["timing"].get("repeats", 1)
    counts = rows["status"].value_counts()
    points = ", ".join(f"{count} {status}" for status, count in counts.items())
    minutes = platform.facts["sweep"]["wall_s"].sum() / 60
    lines = [
        f"# {folder.name}",
        "<!-- Made by `tilewise record` from the data in this folder; do not edit. -->",
        f"{gpu['name']} ({limit}driver {gpu['driver']}), {gpu['sms']} multiprocessors; {device.cpu['name']}, "
        f"{device.cpu['cores']} cores. Measured by commit {commits} from {device.captured[:16].replace('T', ' ')} UTC.",
        "",
        f"{len(_tasks(platform))} tasks with {len(rows)} points: {points}. Each point of a sweep was timed in up to "
        f"{repeats} processes; the sweeps took {minutes:.0f} minutes.",
        "",
        "| card | machine | tasks |",
        "| --- | --- | --- |",
        *_cards(platform),
        "",
        f"The hardware's counters: {_count(platform.facts['counters'], 'launch', 'launches')}. The tuner: "
        f"{_count(platform.facts['tune'], 'variant', 'variants')}{_tuner(platform.tuner_commits)}.",
    ]
    if (folder / samples.DIGEST).is_file():
        digest = (folder / samples.DIGEST).read_text(encoding="utf-8").split()[0]
        lines += [
            "",
            f"`{samples.ARCHIVE}` has every sample and clock. It is attached to the release that brought this "
            f"run, not kept in the repository; its sha256 is\n`{digest}`.",
        ]
    return "\n".join(lines) + "\n"


def _tuner(states: Sequence[str]) -> str:
    """Its commits: the tuner ran before the commit that has its choices."""
    return ", measured by commit " + ", ".join(f"`{state}`" for state in states) if states else ""


def _tasks(platform: Platform) -> list[str]:
    facts = (table["task"] for table in platform.facts.values() if "task" in table)
    return sorted({task for column in (platform.measurements["task"], *facts) for task in column})


def _cards(platform: Platform) -> Iterable[str]:
    """A line for each card of each machine, with its tasks: a run resumed on another one says so."""
    for row in by_card([platform]).to_dict("records"):
        yield f"| {row['card'] or 'none: CPU loops'} | {row['node']} | {row['tasks']} |"


def _count(table: pd.DataFrame, one: str, many: str) -> str:
    return f"{len(table)} {one if len(table) == 1 else many}" if len(table) else "not asked for"
