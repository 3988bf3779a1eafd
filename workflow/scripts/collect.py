"""Join the tasks' tables into those of the platform."""

import pandas as pd

from tilewise.files import script, write_csv
from tilewise.measure.methods.maximum_size import COLUMNS as MAXIMUM_SIZE
from tilewise.measure.task import COLUMNS, WHOLE


def joined(paths, columns, **options):
    """The rows of several CSVs one after the other; just the head where there is none."""
    frames = [pd.read_csv(path, **options) for path in paths]
    return pd.concat(frames) if frames else pd.DataFrame(columns=columns)


with script(snakemake.log[0]):
    whole = dict.fromkeys(WHOLE, "Int64")
    write_csv(joined(snakemake.input.tasks, COLUMNS, dtype=whole), snakemake.output.measurements)
    write_csv(joined(snakemake.input.maximum_size, MAXIMUM_SIZE), snakemake.output.maximum_size)
