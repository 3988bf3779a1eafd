"""Tilewise: a reproducible study of CUDA matrix multiplication.

The sub-packages follow the flow of the data: `study` reads the config and the registry and expands them into points,
`compile` builds kernels, `microscope` runs CUDA on the CPU, `measure` turns points into jobs and jobs into rows,
`explain` says why a kernel is as fast as it is, and `report` shows it all. `nvidia` alone speaks to the GPUs, as the
`Vendor` of `vendor`. `rules` serves Snakemake's rules.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path


class UserError(Exception):
    """A mistake the user can mend: its message names the place and the remedy, and is shown without a traceback."""


@contextlib.contextmanager
def exiting() -> Iterator[None]:
    """End the process with the message of a UserError that the block raises."""
    try:
        yield
    except UserError as error:
        raise SystemExit(str(error)) from None


ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"
RECORDED = ROOT / "report" / "recorded"
