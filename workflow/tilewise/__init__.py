"""Tilewise: a reproducible study of CUDA matrix multiplication.

`study` reads the config, `registry` the kernels, `points` multiplies them out; `probe`, `build`, `measure` and `trace`
make the data; `tables` and `figures` show it. No module here imports Snakemake: the rules hand files to functions.
"""

from pathlib import Path


class UserError(Exception):
    """A mistake the user can mend: its message names the place and the remedy, and is shown without a traceback."""


ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"
