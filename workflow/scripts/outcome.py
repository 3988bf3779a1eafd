"""Fail if the page lacks a piece, or, in a strict run, if a point is not right."""

from pathlib import Path

from tilewise import UserError, outcome
from tilewise.files import script
from tilewise.report import notes

with script(snakemake.log[0]):
    found = notes.read(Path(snakemake.input.page).parent)
    if snakemake.params.strict:
        found += filter(None, [outcome.wrong(map(Path, snakemake.input.measured))])
    if found:
        raise UserError("\n".join(found))
    Path(snakemake.output[0]).write_text("The page lacks nothing.\n", encoding="utf-8")
