"""Tilewise: a reproducible study of CUDA matrix multiplication.

The sub-packages are in the order in which data flows: `study` reads the config and the registry and multiplies them
out to points; `build` compiles kernels; `measure` makes jobs of points and rows of jobs; `count` counts without a
clock; `report` shows it all. A package imports from those before it only. `workflow` is what Snakemake's rules ask
for; nothing else here knows Snakemake.
"""

from pathlib import Path


class UserError(Exception):
    """A mistake the user can mend: its message names the place and the remedy, and is shown without a traceback."""


ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"
