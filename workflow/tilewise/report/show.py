"""Write the tables and figures of a platform as files: those of a task, and those of the study as a whole."""

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tilewise.evidence import load_evidence
from tilewise.report import figures, tables
from tilewise.study import registry


def task(name: str, folder: Path, config: Mapping[str, Any], table: Path | str, figure: Path | str) -> None:
    """Write the table (CSV) and the figure (SVG) of a task from its results in `folder` alone.

    Without a GPU, they also have the task's recorded times. `config` is the resolved config of the run.
    """
    evidence = load_evidence([folder], name, kernels=registry.load(checked=True), config=config)
    tables.save(lambda: tables.task(name, evidence), table)
    figures.save(lambda: figures.task(name, evidence), figure)


def overview(folder: Path, paths: Iterable[Path | str]) -> None:
    """Write tables (.csv) and figures (.svg) over all tasks of the platform in `folder`, each named as in OVERVIEW."""
    evidence = load_evidence([folder], kernels=registry.load(checked=True))
    for path in map(Path, paths):
        kind: Any = tables if path.suffix == ".csv" else figures
        kind.save(functools.partial(kind.OVERVIEW[path.stem], evidence), path)
