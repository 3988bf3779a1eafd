"""A GPU of one's own: of those of a machine with several, each measuring job takes one that no other job has."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tilewise import UserError
from tilewise.files import locked

#: A job that finds no GPU free in this time, beyond what other jobs take, ends with a message.
WAIT_S = 3600


def visible() -> list[str]:
    """UUIDs of the GPUs that this process may use, in the order of CUDA."""
    import pynvml

    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    uuids = [text(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    if asked is None:
        return uuids
    chosen = []
    for word in filter(None, asked.split(",")):
        if word.isdigit() and int(word) < len(uuids):
            chosen.append(uuids[int(word)])
        else:
            chosen += [uuid for uuid in uuids if uuid.startswith(word)] or [word]  # a MIG instance is not in the list
    return chosen


@contextlib.contextmanager
def one_gpu(
    device: Mapping[str, Any], folder: Path | str | None = None, wait_s: float = WAIT_S
) -> Iterator[str | None]:
    """Take a GPU for the block: this process and its children see no other. Yields its UUID; None without a GPU.

    The lease is a lock on a file named after the GPU in `folder` (by default results/<platform>/gpus), so that a
    process that dies gives it back. Raises UserError if no GPU becomes free.
    """
    if device["backend"] != "gpu":
        yield None
        return
    folder = Path(folder or f"results/{device['platform']}/gpus")
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    end = time.monotonic() + wait_s
    while True:
        for uuid in visible():
            lock = locked(folder / f"{uuid}.lock")
            if lock is None:
                continue
            os.environ |= {"CUDA_VISIBLE_DEVICES": uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
            try:
                yield uuid
            finally:
                lock.release()
                os.environ.pop("CUDA_VISIBLE_DEVICES")
                if before is not None:
                    os.environ["CUDA_VISIBLE_DEVICES"] = before
            return
        if time.monotonic() > end:
            raise UserError(
                f"{folder}: other jobs use every GPU here ({', '.join(visible())}); let them end, or give more GPUs"
            )
        time.sleep(0.2)


def text(value: Any) -> str:
    """What NVML or the CUDA runtime answers, as text: some of their versions give bytes."""
    return value.decode() if isinstance(value, bytes) else value
