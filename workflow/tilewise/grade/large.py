"""A product that is too large for this machine, of which a few blocks are run: an index of 32 bits that overflows is
out of bounds, or misses the only elements of the factors that are not 0."""

import numpy as np

from kernelscope.launch import Three
from kernelscope.program import Arrays
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.traced.multiplication import Multiplication

#: Elements of a matrix, and terms of a sum, of the largest product: more take too much address space or time.
MOST_ELEMENTS, MOST_TERMS = 1 << 34, 1 << 16
#: The first and the last row or column of a matrix.
ENDS = [0, -1]


class LargeProduct(Multiplication):
    """A point of a kernel whose factors are 0, except the first and the last row of A and column of B. Its results are
    the first and the last element of C."""

    def __init__(self, kernel: Kernel, point: Point) -> None:
        super().__init__(kernel, point)
        terms = np.arange(point.p)
        self.row, self.column = terms % 3 + 1, terms % 2 + 1  # floats add whole numbers of this size exactly

    def fill(self, arrays: Arrays) -> None:
        arrays["A"][ENDS] = self.row
        arrays["B"][:, ENDS] = self.column[:, None]
        arrays["C"][ENDS, ENDS] = 0

    def results(self, arrays: Arrays) -> dict[str, np.ndarray]:
        return {"C": arrays["C"][ENDS, ENDS]}

    def wrong(self, results: Arrays) -> str:
        expected = int(self.row @ self.column)
        for name, found in zip(("first", "last"), results["C"]):
            if found != expected:
                return f"the {name} element of C is {found:g}, and should be {expected}"
        return ""

    def end_blocks(self, number: int) -> list[Three]:
        """The first block of the grid, and its last ones, so many along x and along y."""
        [launch] = self.launches
        across, down, _ = launch.grid
        last = {(x, y, 0) for y in range(max(0, down - number), down) for x in range(max(0, across - number), across)}
        return sorted({(0, 0, 0)} | last)
