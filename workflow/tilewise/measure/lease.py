"""Give each measuring job exclusive use of one GPU."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from kernelscope.files import take_lock
from tilewise import UserError
from tilewise.nvidia import gpus
from tilewise.study.device import Device

#: A job that finds no GPU free in this time, beyond what other jobs take, ends with a message.
GPU_WAIT_S = 3600


@contextlib.contextmanager
def one_gpu(device: Device, folder: Path | str | None = None, wait_s: float = GPU_WAIT_S) -> Iterator[str | None]:
    """Take a GPU of the platform's model for the block: this process and its children see no other.

    Yields its UUID; None without a GPU. `device` is the content of device.json. The lease is a lock on a file named
    after the GPU in `folder` (by default results/<platform>/gpus), so that a process that dies gives it back. Raises
    UserError if no visible GPU is of that model, and if none becomes free.
    """
    if device.backend != "gpu":
        yield None
        return
    folder = Path(folder or f"results/{device.platform}/gpus")
    name = device.gpu["name"]
    uuids = [gpu.uuid for gpu in gpus.of_model(name)]
    if not uuids:
        raise UserError(
            f"results/{device.platform}/device.json describes an {name}, and no such GPU is visible here "
            f"({gpus.VISIBLE} is {os.environ.get(gpus.VISIBLE, 'not set')}); make one visible, or measure "
            "what is there with `snakemake --cores all --forcerun probe`"
        )
    end = time.monotonic() + wait_s
    while True:
        for uuid in uuids:
            lock = take_lock(folder / f"{uuid}.lock")
            if lock is None:
                continue
            try:
                with gpus.show_only(uuid):
                    yield uuid
            finally:
                lock.release()
            return
        if time.monotonic() > end:
            raise UserError(
                f"{folder}: other jobs use every {name} here ({', '.join(uuids)}); let them end, or give more GPUs"
            )
        time.sleep(0.2)
