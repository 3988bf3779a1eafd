"""One product of the study, as plain data."""

from dataclasses import dataclass
from typing import Any

Parameters = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Point:
    """One product to verify and time: C (n x m) = A (n x p) B (p x m) by one kernel with one choice of parameters.

    With a `batch` it is that many products of one shape, whose matrices lie one below the other. `parameters` holds the
    names of the kernel's parameters with their values; block_x and block_y are threads.
    """

    task: str
    kernel: str
    dtype: str
    n: int
    p: int
    m: int
    parameters: Parameters = ()
    batch: int = 1

    @property
    def shape(self) -> dict[str, int]:
        """n, p and m by name."""
        return {"n": self.n, "p": self.p, "m": self.m}

    @property
    def multiply_adds(self) -> int:
        """batch n p m."""
        return self.batch * self.n * self.p * self.m

    def columns(self) -> dict[str, Any]:
        """The point as columns of a row: one for each field, and one for each parameter. A single product has no
        `batch`: rows recorded before there were batches have none."""
        names = ("task", "kernel", "dtype", "n", "p", "m", *(["batch"] if self.batch > 1 else []))
        return {name: getattr(self, name) for name in names} | dict(self.parameters)

    def label(self) -> str:
        """The label of the point in messages: `tiled float 64x64x64 tile=16` (n x p x m)."""
        times = f"{self.batch} times " if self.batch > 1 else ""
        words = [self.kernel, self.dtype, f"{times}{self.n}x{self.p}x{self.m}"]
        values = dict(self.parameters)
        if "block_x" in values:
            words.append(f"block={values.pop('block_x')}x{values.pop('block_y')}")
        return " ".join([*words, *(f"{name}={value}" for name, value in values.items())])


def point(task: str, kernel: str, dtype: str, n: int, p: int, m: int, **parameters: int) -> Point:
    """A Point with its parameters as keywords."""
    return Point(task, kernel, dtype, n, p, m, tuple(parameters.items()))
