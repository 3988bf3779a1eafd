"""Fail if a point is not right or the page lacks something."""

from pathlib import Path

from tilewise import UserError, outcome
from tilewise.files import script
from tilewise.report import notes

with script(snakemake.log[0]):
    found = [outcome.wrong(map(Path, snakemake.input.measured)), *notes.read(Path(snakemake.input.page).parent)]
    if any(found):
        raise UserError("\n".join(filter(None, found)))
    Path(snakemake.output[0]).write_text("Every point is right, and the page lacks nothing.\n")
