"""Tabulate the occupancy of every kernel of the study, and the tile width that it favours."""

from pathlib import Path

from tilewise.build import build
from tilewise.count import occupancy
from tilewise.files import script, write_csv
from tilewise.measure.lease import one_gpu
from tilewise.measure.probe import check_here
from tilewise.study import columns, registry
from tilewise.study.device import read as read_device
from tilewise.workflow import Study

with script(snakemake.log[0]):
    study = Study(snakemake.config, checked=True)
    device = read_device(snakemake.input.device)
    check_here(device)
    builds = {Path(folder).name: folder for folder in snakemake.input.builds}
    manifests = build.manifests(builds)
    points = study.timed_on(device["platform"], "sweep")
    with one_gpu(device):
        ask = occupancy.cuda_api(builds) if device["backend"] == "gpu" else None
        rows = occupancy.table(points, study.kernels, manifests, device, ask)
    write_csv(columns.frame(rows, "occupancy", registry.parameters(study.kernels)), snakemake.output.table)
    name = "dynamic_tile"
    chosen = occupancy.tile_choice(study.kernels[name], manifests[name], device) if name in manifests else []
    write_csv(columns.frame(chosen, "tile_choice"), snakemake.output.tile_choice)
