"""Count the memory accesses of every kernel and CPU loop of the study, and look for faults."""

import tempfile
from pathlib import Path

import pandas as pd

from kernelscope import compile
from tilewise.files import processes, script, write_csv
from tilewise.measure import environment
from tilewise.measure.journal import Journal
from tilewise.rules import Study
from tilewise.traced import cache_lines, traffic

with script(snakemake.log[0]):
    study = Study(snakemake.config, checked=True)
    shapes = study.config["trace"]
    examined, counted = study.traced
    workers = environment.cores(snakemake.threads)
    with (
        Journal(snakemake.params.journal) as journal,
        tempfile.TemporaryDirectory() as folder,
        processes(workers, "traced kernels") as pool,
    ):
        loops = pool.submit(cache_lines.count, study.loop_points(), study.kernels, shapes["cache_lines"], folder)
        traced, counts, faults = traffic.trace_points(
            examined, counted, study.kernels, folder, shapes["limit_s"], pool, journal
        )
        lines, messages = loops.result()
    said = [*map(str, faults), *traffic.missing_points(traced), *messages, *compile.missing_checks()]
    Path(snakemake.log[0]).write_text("".join(f"{line}\n" for line in said) or "no faults\n", encoding="utf-8")
    write_csv(pd.concat([traced, counts]), snakemake.output.traffic)
    write_csv(lines, snakemake.output.cache_lines)
