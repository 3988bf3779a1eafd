"""A point's job on a machine as data, and its result row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelscope.launch import Launch, Workspace
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point

#: Columns of measurements.csv by name; a value is text, a number, or None for what does not apply.
Row = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """The data with which a worker runs a point. `backend` is cuda, emulator or host.

    `product` is the launch that makes the product; None if nothing is launched. `files` maps a template instance to its
    binary and the symbol in it. `key` names everything that the row depends on: the point, its build and launches, the
    machine, and how it is measured; the journal knows rows by it.
    """

    key: str
    backend: str
    kernel: Kernel
    point: Point
    row: Row
    launches: tuple[Launch, ...]
    product: Launch | None
    workspaces: tuple[Workspace, ...]
    files: Mapping[str, tuple[str, str]]
