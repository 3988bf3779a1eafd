"""Write the resolved config."""

from tilewise.files import script, write_json

with script(snakemake.log[0]):
    write_json(snakemake.params.config, snakemake.output[0])
