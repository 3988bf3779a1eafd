"""Count what every kernel and CPU loop of the study asks of memory, and look for faults."""

import dataclasses
import tempfile
from pathlib import Path

import pandas as pd

from tilewise.count import cache_lines, counters, trace
from tilewise.files import processes, script, write_csv
from tilewise.measure import place
from tilewise.workflow import Study

with script(snakemake.log[0]):
    study = Study(snakemake.config, checked=True)
    shapes = study.config["trace"]
    examined = study.traced_points(shapes["shapes"])
    asked = study.counted_points() + counters.cross_check_points(study.config, study.kernels)
    # A point that is run whole is counted by that; of others a few blocks are run.
    alike = dict.fromkeys(dataclasses.replace(point, task="trace") for point in asked)
    counted = [point for point in alike if point not in examined]
    workers = place.cores(snakemake.threads)
    with tempfile.TemporaryDirectory() as folder, processes(workers, "traced kernels") as pool:
        loops = pool.submit(cache_lines.count, study.loop_points(), study.kernels, shapes["cache_lines"], folder)
        traced, counts, faults = trace.trace_points(examined, counted, study.kernels, folder, shapes["limit_s"], pool)
        lines, messages = loops.result()
    said = [*map(str, faults), *trace.left_out(traced), *messages, *trace.lacking()]
    Path(snakemake.log[0]).write_text("".join(f"{line}\n" for line in said) or "no faults\n")
    write_csv(pd.concat([traced, counts]), snakemake.output.traffic)
    write_csv(lines, snakemake.output.cache_lines)
