"""Write the tables and figures of a run as files: one of each per task, and those of the study as a whole."""

import functools
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from tilewise.files import processes
from tilewise.report import data, figures, tables
from tilewise.report.data import Evidence


def show(folder: Path, of_tables: Iterable[str], of_figures: Iterable[str], workers: int) -> None:
    """Write files of the platform in `folder`, each named after a task or after an entry of OVERVIEW."""
    with processes(workers, "drew figures") as pool:
        made = [pool.submit(_table, folder, path) for path in of_tables]
        made += [pool.submit(_figure, folder, path) for path in of_figures]
        for each in made:
            each.result()


def show_task(task: str, folder: Path) -> None:
    """Write a task's table and figure from its results alone."""
    evidence = data.load([folder], task)
    published = data.published(kernels=evidence.kernels)
    tables.save(lambda: tables.task(task, evidence, published), folder / f"tables/{task}.csv")
    figures.save(lambda: figures.task(task, evidence, published), folder / f"figures/{task}.svg")


@functools.cache
def _loaded(folder: Path) -> tuple[Evidence, pd.DataFrame]:
    """What a process of the pool loads once."""
    evidence = data.load([folder])
    return evidence, data.published(kernels=evidence.kernels)


def _table(folder: Path, path: str) -> None:
    name, (evidence, published) = Path(path).stem, _loaded(folder)
    if name in tables.OVERVIEW:
        tables.save(lambda: tables.OVERVIEW[name](evidence, published), path)
    else:
        tables.save(lambda: tables.task(name, evidence.of(name), published), path)


def _figure(folder: Path, path: str) -> None:
    name, (evidence, published) = Path(path).stem, _loaded(folder)
    if name in figures.OVERVIEW:
        figures.save(lambda: figures.OVERVIEW[name](evidence, published), path)
    else:
        figures.save(lambda: figures.task(name, evidence.of(name), published), path)
