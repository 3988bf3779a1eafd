"""The commands `tilewise compare` and `tilewise record`."""

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kernelscope.cli import option_type
from kernelscope.cpp import display_path
from tilewise import RECORDED, UserError
from tilewise.files import write_csv
from tilewise.recorded import cards, check, compare, record
from tilewise.recorded.check import ARCHIVE
from tilewise.recorded.compare import THRESHOLD, Comparison, Verdict
from tilewise.study import registry

#: The screen shows so many of the points that differ; the CSV has all.
MOST_LISTED = 20
#: The columns of these points.
SHOWN = "task kernel dtype shape choice time_ms other_time_ms ratio ratio_low ratio_high why".split()
PERCENT = option_type(
    "percentage (such as 3%)", lambda text: float(re.sub(r"\s*%$", "", text)), lambda value: 0 <= value < 100
)


def add(commands: Any) -> None:
    """Add the commands to the subparsers of `tilewise`."""
    comparing = commands.add_parser(
        "compare",
        allow_abbrev=False,
        help="compare the times of two runs, point by point",
        description="Compare two runs of the study: folders such as results/nvidia-h200, or names of recorded "
        "platforms. docs/comparing.md says how. Exit status: 0 if no point of the second run is slower by more than "
        "the threshold and none lost its status ok, else 1; 2 if they cannot be compared.",
    )
    comparing.add_argument("runs", nargs=2, metavar="RUN", help="folder, or name of a recorded platform")
    comparing.add_argument(
        "--threshold", type=PERCENT, default=THRESHOLD, metavar="PERCENT", help="call smaller differences equal (2%%)"
    )
    comparing.add_argument("--csv", type=Path, metavar="FILE", help="write one row per point into FILE")
    comparing.set_defaults(run=_compare)
    recording = commands.add_parser(
        "record",
        allow_abbrev=False,
        help="make a recorded run of results, or check recorded runs",
        description="Make report/recorded/<platform> of results/<platform>, without what is private, if the run is "
        "whole, of one commit and possible. With --check, say what is wrong with runs that are recorded. "
        "docs/recording.md says what is checked. Exit status: 0, 1 if a run is refused, 2 if the folder is no run.",
    )
    recording.add_argument(
        "folders", nargs="*", type=Path, metavar="FOLDER", help="results/<platform>; with --check recorded runs (all)"
    )
    what = recording.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="check recorded runs, write nothing")
    what.add_argument(
        "--cards", action="store_true", help="add what other cards took, in these runs, to the recorded run"
    )
    recording.add_argument(
        "--into", type=Path, default=RECORDED, metavar="FOLDER", help="where recorded runs are (report/recorded)"
    )
    recording.set_defaults(run=_record)


def _compare(options: argparse.Namespace, _: dict[str, int]) -> tuple[list[str], int]:
    kernels = registry.load()
    runs = {name: compare.read(name, kernels) for name in options.runs}
    first, second = (runs[name] for name in options.runs)
    found = compare.compare(first, second, kernels, options.threshold)
    if options.csv:
        write_csv(found.points, options.csv)
    lines = [f"{name}: {compare.label(runs[name])}" for name in options.runs]
    return [*lines, *_lines(found)], 1 if found.is_worse else 0


def _lines(found: Comparison) -> Iterator[str]:
    """A comparison as text: the kernels that differ, the points that differ most, and the outcome."""
    known = "the runs did not both measure it" if found.overhead_us is None else f"{found.overhead_us:+.2f} µs"
    yield f"overhead of an isolated time, the second run's less the first's: {known}"
    table, points = found.by_kernel, found.points
    differs = table[Verdict.EQUAL] < table["points"]
    if differs.any():
        yield from ["", _text(table[differs].sort_values("ratio", ascending=False, kind="stable"))]
    if not differs.all():
        types = table[~differs].groupby("kernel", sort=False)["dtype"].agg(", ".join)  # naive (float, double)
        named = "; ".join(f"{kernel} ({each})" for kernel, each in types.items())
        yield f"{'equal at all points:' if differs.any() else 'All points are equal:'} {named}"
    changed = points[points["verdict"] != Verdict.EQUAL]
    changed = changed.loc[(changed["ratio"] - 1).abs().sort_values(ascending=False, na_position="first").index]
    if len(changed):
        statuses = changed["status"] + ", then " + changed["other_status"]
        changed = changed.assign(why=changed["why"].mask(changed["verdict"] == Verdict.STATUS, statuses))
        yield from ["", _text(changed[SHOWN].head(MOST_LISTED))]
    if len(changed) > MOST_LISTED:
        yield f"… and {len(changed) - MOST_LISTED} more, which --csv lists"
    yield from ["", *filter(None, [found.ratios_line]), found.line]


def _text(table: pd.DataFrame) -> str:
    return table.to_string(index=False, na_rep="", float_format="{:.4g}".format)


def _record(options: argparse.Namespace, _: dict[str, int]) -> tuple[list[str], int]:
    folders, into = options.folders, options.into
    if options.check:
        folders = folders or sorted(path.parent for path in into.glob("*/device.json"))
        if not folders:
            raise UserError(f"{into}: no run is recorded there; name a folder")
        found = {folder: check.check(folder) for folder in folders}
        lines = []
        for folder, each in found.items():
            lines += [f"{folder}: {'refused' if each else 'right'}", *(f"  {line}" for line in _refusals(each))]
        return lines, int(any(found.values()))
    if not folders or (len(folders) > 1 and not options.cards):
        raise UserError("record: name the folder of one run, such as results/nvidia-h200; with --cards of one or more")
    if options.cards:
        path, points, left_out = cards.add_cards(folders, into)
        return [*left_out, f"{path}: {points} points of further cards; see what changed with `git diff`"], 0
    target, refused = record.record(folders[0], into)
    if refused:
        return [f"{folders[0]}: not recorded", *_refusals(refused)], 1
    samples = "there are no samples in the results, so none are kept"
    if (target / ARCHIVE).is_file():
        samples = f"{target / ARCHIVE}: git ignores it; keep it for the release that brings this run"
    return [f"{target}: recorded; `git add {display_path(target)}` and commit it", samples], 0


def _refusals(findings: Sequence[str]) -> list[str]:
    """The findings of checks as lines, and then the remedy of each check."""
    names = dict.fromkeys(finding.partition(":")[0] for finding in findings)
    remedies = [f"remedy of {name}: {check.REMEDIES[name]}" for name in names]
    return [*(f"refused: {each}" for each in findings), *remedies]
