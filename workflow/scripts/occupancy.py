"""Tabulate the occupancy of every kernel of the study, and the tile width that it favours."""

from tilewise.compile import build
from tilewise.files import script, write_csv
from tilewise.measure import environment, occupancy
from tilewise.measure.lease import one_gpu
from tilewise.measure.probe import check_here
from tilewise.rules import Study
from tilewise.study import columns, registry
from tilewise.study.device import read as read_device

#: The kernel whose tile width is chosen at run time.
ANY_TILE = "dynamic_tile"

with script(snakemake.log[0]):
    study = Study(snakemake.config, checked=True)
    device = read_device(snakemake.input.device)
    rows, chosen = [], []
    if device.gpu:  # nothing is known about registers elsewhere
        check_here(device)
        points = study.timed_on(device.platform, "sweep")
        wanted = build.instances(points, study.kernels)
        workers = environment.cores(snakemake.threads)
        builds = build.build(wanted, study.kernels, device, snakemake.params.builds, workers)
        with one_gpu(device):
            from tilewise.nvidia.launcher import active_blocks

            rows = occupancy.table(points, study.kernels, builds, device, active_blocks)
        chosen = occupancy.tile_choice(study.kernels[ANY_TILE], builds, device) if ANY_TILE in builds else []
    write_csv(columns.frame(rows, "occupancy", registry.parameters(study.kernels)), snakemake.output.table)
    write_csv(columns.frame(chosen, "tile_choice"), snakemake.output.tile_choice)
