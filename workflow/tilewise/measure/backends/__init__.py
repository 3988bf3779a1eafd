"""Backends that run jobs: a GPU, the CPU emulator, or the CPU. Each has a file; all have one interface."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tilewise.study.device import Device
from tilewise.study.jobs import Job, Row
from tilewise.study.verify import Check


@dataclass(frozen=True)
class Setting:
    """The setting of jobs: the device, the config, and the folder for the timer's files."""

    device: Device
    config: Mapping[str, Any]
    samples: Path


class Attempt(NamedTuple):
    """How a launch that may be refused went: the names and words of the errors, empty if there is none, whether C is as
    it was before, if it was launched, whether the product is right, and the GPU's UUID if it was one."""

    error: str
    error_text: str
    driver_error: str
    c_untouched: bool
    check: Check | None
    gpu_uuid: str | None = None


class Bench(Protocol):
    """A backend with its own memory and limits."""

    def measure(self, jobs: Sequence[Job], answer: Callable[[Row], None]) -> None:
        """Verify and time the jobs, one after the other; `answer` gets the row of each as it ends."""

    def screen(self, jobs: Sequence[Job], answer: Callable[[Row], None]) -> None:
        """Verify jobs and time each in a few runs, if the device has a clock: `answer` gets rows with `screen_ms`.

        Jobs that share their operands come in a row. Of those, one whose first run takes `tuning.give_up` times as long
        as the fastest before it is not run again.
        """

    def memory(self) -> tuple[int, int]:
        """Free and total memory in bytes."""

    def allocates(self, sizes: Sequence[int]) -> bool:
        """Whether arrays of these sizes in bytes can be allocated at the same time."""

    def once(self, job: Job) -> Row:
        """One run of a job, timed if the device has a clock, and checked on whole random rows."""

    def attempt(self, job: Job, raised: bool) -> Attempt:
        """Launch a job that the device may refuse; `raised` says whether to raise the limit of shared memory before."""


def open_backend(name: str, setting: Setting) -> Any:
    """The backend of a name: cuda, emulator or host. Only a worker or a method on a GPU imports what `cuda` needs."""
    return importlib.import_module(f"tilewise.measure.backends.{name}").Backend(setting)


def bench_of(setting: Setting) -> Bench:
    """The backend of a platform's GPU, or of the emulated one."""
    return open_backend("cuda" if setting.device.backend == "gpu" else "emulator", setting)
