"""Write the tables and figures of a run as files: one of each per task, and those of the study as a whole."""

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tilewise.evidence import Evidence, load_evidence
from tilewise.files import processes
from tilewise.report import figures, tables


def show(folder: Path, of_tables: Iterable[str], of_figures: Iterable[str], workers: int) -> None:
    """Write files of the platform in `folder`, each named after a task or after an entry of OVERVIEW."""
    with processes(workers, "drew figures") as pool:
        for each in [pool.submit(_write, folder, path) for path in (*of_tables, *of_figures)]:
            each.result()


def show_task(task: str, folder: Path) -> None:
    """Write a task's table and figure from its results alone."""
    evidence = load_evidence([folder], task)
    tables.save(lambda: tables.task(task, evidence), folder / f"tables/{task}.csv")
    figures.save(lambda: figures.task(task, evidence), folder / f"figures/{task}.svg")


@functools.cache
def _loaded(folder: Path) -> Evidence:
    """What a process of the pool loads once."""
    return load_evidence([folder])


def _write(folder: Path, path: str) -> None:
    """Write a table (.csv) or a figure (.svg)."""
    name, evidence = Path(path).stem, _loaded(folder)
    kind: Any = tables if path.endswith(".csv") else figures
    if name in kind.OVERVIEW:
        kind.save(lambda: kind.OVERVIEW[name](evidence), path)
    else:
        kind.save(lambda: kind.task(name, evidence.of(name)), path)
