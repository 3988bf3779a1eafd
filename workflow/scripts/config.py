"""Write the config as a platform's run understands it."""

from tilewise.files import script, write_json
from tilewise.rules import Study

with script(snakemake.log[0]):
    write_json(Study(snakemake.config, checked=True).resolved(snakemake.wildcards), snakemake.output[0])
