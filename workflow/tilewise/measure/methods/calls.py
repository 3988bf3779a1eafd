"""Time consecutive calls of tilewise.matmul and cupy.matmul, including the host's share."""

import logging
from pathlib import Path

from tilewise import KERNELS, RECORDED
from tilewise.measure.backends import Setting, open_backend
from tilewise.measure.methods.base import Method, Tables
from tilewise.measure.result_rows import message_of
from tilewise.measure.task import Work
from tilewise.study import columns
from tilewise.study.jobs import Row
from tilewise.study.status import Status

LOG = logging.getLogger(__name__)
CALLED_TYPES = ("float", "double", "half", "bfloat16")
#: n of n x n matrices; 1100 is no multiple of a tile.
CALLED_SIZES = (64, 128, 256, 512, 1024, 1100, 2048, 4096, 8192)


class Calls(Method):
    """No kernel of the task's own is timed: measurements.csv gets no row. Facts: a row per type and size, on the
    emulator none."""

    name = "calls"

    def sources(self) -> list[Path]:
        """Files that decide the choice of the kernel, and every kernel that may be chosen."""
        times = [*RECORDED.glob("*/measurements.csv"), *RECORDED.glob("*/facts/sizes.csv")]
        decide = [KERNELS / "registry.yaml", KERNELS / "tuned.yaml", *sorted(times)]
        return [*decide, *sorted(KERNELS.glob("ladder/*.cu")), *sorted(KERNELS.glob("include/*.cuh"))]

    def run(self, work: Work) -> Tables:
        rows = []
        if work.device.backend == "gpu":
            backend = open_backend("cuda", Setting(work.device, work.config, work.samples))
            for dtype in CALLED_TYPES:
                for n in CALLED_SIZES:
                    about: Row = {"platform": work.device.platform, "dtype": dtype, "n": n, "p": n, "m": n}
                    try:
                        about |= backend.called(dtype, n)
                    except Exception as error:  # whatever it is: other sizes are called in this process too
                        about |= {"status": Status.ERROR, "message": message_of(error)}
                    LOG.info("%s %d: %s %s", dtype, n, about.get("kernel", ""), about["status"])
                    rows.append(about)
        return columns.frame([], "measurements", work.parameters), columns.frame(rows, self.name)
