"""Count the memory traffic of every kernel of the study, and look for faults."""

import tempfile
from pathlib import Path

import pandas as pd

from tilewise import counters, trace
from tilewise.files import script, write_csv
from tilewise.study import Study

with script(snakemake.log[0]):
    study = Study(snakemake.config)
    shapes = study.config["trace"]
    examined = study.traced_points(shapes["shapes"])
    counted = study.traced_points(shapes["counted"]) + counters.cross_check_points(study.kernels)
    with tempfile.TemporaryDirectory() as folder:
        tracers = trace.tracers(examined + counted, study.kernels, folder)
        traced, faults = trace.trace_points(examined, tracers)
        counts = trace.count_points(counted, tracers)
    Path(snakemake.log[0]).write_text("".join(f"{fault}\n" for fault in faults) or "no faults\n")
    print(*faults, sep="\n")
    # A point that was run whole also has its faults; it goes before its count from single blocks.
    write_csv(pd.concat([traced, counts]).drop_duplicates(counters.KEYS), snakemake.output[0])
