"""Fail if a point is not right or the page lacks something."""

from pathlib import Path

from tilewise import UserError, outcome
from tilewise.files import script

with script(snakemake.log[0]):
    notes = outcome.notes(Path(snakemake.input.page).with_name("notes.json"))
    found = [outcome.wrong(map(Path, snakemake.input.measured)), *notes]
    if any(found):
        raise UserError("\n".join(filter(None, found)))
    Path(snakemake.output[0]).write_text("Every point is right, and the page lacks nothing.\n")
