"""Compile one kernel for one platform."""

from tilewise.build.build import build
from tilewise.files import read_json, script
from tilewise.study import registry

with script(snakemake.log[0]):
    target = read_json(snakemake.input.target)
    kernel = registry.load()[snakemake.wildcards.kernel]
    build(kernel, snakemake.params.instances, target, snakemake.output[0])
