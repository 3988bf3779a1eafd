"""Ratios of kernels that were timed in turns, with their intervals."""

from typing import NamedTuple

import numpy as np

from tilewise.study.jobs import Row

#: Resamples of the turns for an interval, which has so many percent of them.
RESAMPLES, PERCENT = 1000, 95


class Turns(NamedTuple):
    """The times of a case's kernels in turns.

    times_ms     an array of turns x kernels
    default      the column of the library's default; None without one
    best         the column of the library's fastest call; None without one
    """

    times_ms: np.ndarray
    default: int | None
    best: int | None

    def ratios(self, to: int) -> np.ndarray:
        """How many times as fast each kernel was as that of column `to` in each turn: turns x kernels."""
        return self.times_ms[:, [to]] / self.times_ms

    def widest_percent(self) -> float:
        """Half the width of the widest interval of a ratio to the library's default, or else to the fastest kernel, in
        percent."""
        at = self.default if self.default is not None else int(np.argmin(np.median(self.times_ms, axis=0)))
        low, middle, high = _median_with_interval(self.ratios(at))
        return float(np.max(50 * (high - low) / middle))

    def columns(self, index: int) -> Row:
        """The columns of a kernel: the interval of its median, and its ratios to the library's with their intervals."""
        low, _, high = _median_with_interval(self.times_ms[:, index])
        found: Row = {"run_low_ms": float(low), "run_high_ms": float(high)}
        for name, other in (("vs_default", self.default), ("vs_best", self.best)):
            if other is not None:
                ends = _median_with_interval(self.ratios(other)[:, index])
                found |= dict(zip((f"{name}_low", name, f"{name}_high"), map(float, ends)))
        return found


def _median_with_interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The lower end of the median's interval, the median, and the upper end, over the first axis, the turns, which are
    drawn again and again with replacement (Efron 1979, the bootstrap)."""
    count = len(values)
    drawn = np.random.default_rng(count).integers(count, size=(RESAMPLES, count))
    low, high = np.percentile(np.median(values[drawn], axis=1), [50 - PERCENT / 2, 50 + PERCENT / 2], axis=0)
    return low, np.median(values, axis=0), high
