"""Tabulate the occupancy of every kernel of the study, and the tile width that it favours."""

import json
from pathlib import Path

from tilewise.build import build
from tilewise.count import occupancy
from tilewise.files import script, write_csv
from tilewise.measure.probe import check_here
from tilewise.study.study import Study

with script(snakemake.log[0]):
    study = Study(snakemake.config)
    device = json.loads(Path(snakemake.input.device).read_text())
    check_here(device)
    builds = {Path(folder).name: folder for folder in snakemake.input.builds}
    manifests = build.manifests(builds)
    points = [point for task in study.with_method("sweep") for point in study.points(task)]
    ask = occupancy.cuda_api(builds) if device["backend"] == "gpu" else None
    write_csv(occupancy.table(points, study.kernels, manifests, device, ask), snakemake.output.table)
    name = "dynamic_tile"
    write_csv(occupancy.tile_choice(study.kernels[name], manifests.get(name, {}), device), snakemake.output.tile_choice)
