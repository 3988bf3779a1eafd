"""Fail if the page or a task lacks a piece, or, in a strict run, if a point is not right."""

from pathlib import Path

from tilewise import UserError, outcome
from tilewise.files import script
from tilewise.report import notes

with script(snakemake.log[0]):
    if task := snakemake.params.get("task"):
        folders = [Path(table).parent.parent for table in snakemake.input.tables]
        found = [*outcome.task_faults(task, folders, snakemake.params.strict)]
    else:
        found = notes.read(Path(snakemake.input.page).parent)
        if snakemake.params.strict:
            found += filter(None, [outcome.wrong_points_line(map(Path, snakemake.input.measured))])
    if found:
        raise UserError("\n".join(found))
    Path(snakemake.output[0]).write_text("Nothing is missing.\n", encoding="utf-8")
