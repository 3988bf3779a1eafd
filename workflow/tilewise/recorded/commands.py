"""The commands `tilewise compare` and `tilewise record`."""

import argparse
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kernelscope.cli import option_type
from kernelscope.cpp import display_path
from tilewise import RECORDED, UserError
from tilewise.files import write_csv
from tilewise.recorded import check, compare, record
from tilewise.recorded.check import ARCHIVE
from tilewise.recorded.compare import THRESHOLD, Comparison, Verdict
from tilewise.study import registry

#: The screen shows so many of the points that differ; the CSV has all.
MOST_LISTED = 20
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
    first, second = (compare.read(name, kernels) for name in options.runs)
    found = compare.compare(first, second, kernels, options.threshold)
    if options.csv:
        write_csv(found.points, options.csv)
    return list(_lines(found)), 1 if found.is_worse else 0


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
        path, points, left_out = record.add_cards(folders, into)
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


def _lines(found: Comparison) -> Iterable[str]:
    yield from (found.first.label, found.second.label)
    overhead = found.overhead
    yield f"overhead of an isolated time: {overhead.difference_us:+.2f} µs in the second run ({overhead.source})"
    kernels, points = found.kernels, found.points
    differ = kernels[kernels[str(Verdict.EQUAL)] < kernels["points"]]
    yield ""
    for row in differ.sort_values("ratio", ascending=False, kind="stable").to_dict("records"):
        counts = ", ".join(f"{row[verdict]} {verdict}" for verdict in Verdict if row[verdict])
        ratios = f"{row['ratio']:.3f} ({row['least']:.3f} to {row['largest']:.3f})".replace("nan (nan to nan)", "")
        yield f"{row['kernel']:20} {row['dtype']:9} {row['points']:4} points  {ratios:26} {counts}"
    same = kernels.drop(differ.index)
    if len(same):
        types = same.groupby("kernel", sort=False)["dtype"].agg(", ".join)  # naive (float, double)
        named = "; ".join(f"{kernel} ({each})" for kernel, each in types.items())
        yield f"{'equal at all points:' if len(differ) else 'All points are equal:'} {named}"
    changed = points[points["verdict"] != Verdict.EQUAL]
    changed = changed.loc[(changed["ratio"] - 1).abs().sort_values(ascending=False, na_position="first").index]
    for row in changed.head(MOST_LISTED).to_dict("records"):
        words = " ".join(filter(None, [row["kernel"], row["dtype"], row["shape"], row["choice"]]))
        if row["verdict"] == Verdict.STATUS:
            yield f"  {row['task']}: {words}: {row['status']}, then {row['other_status']}"
            continue
        why = f"; {row['why']}" if row["why"] else ""
        ratio = f"{row['ratio']:.3f} ({row['ratio_low']:.3f} to {row['ratio_high']:.3f})"
        yield f"  {row['task']}: {words}: {row['time_ms']:.4g} and {row['other_time_ms']:.4g} ms, {ratio}{why}"
    if len(changed) > MOST_LISTED:
        yield f"  … and {len(changed) - MOST_LISTED} more, which --csv lists"
    yield ""
    if found.ratios_line:
        yield found.ratios_line
    yield found.line
