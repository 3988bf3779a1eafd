"""Queries for claims and articles.

The functions of `Machine` are the one query language, for the expressions of report/claims.yaml and of articles. A
measured quantity is an interval, the range of the runs of its points, and arithmetic works on intervals.
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tilewise import UserError
from tilewise.evidence import Evidence, Platform, time_range
from tilewise.explain.timings import fastest_first
from tilewise.study.columns import SHAPE
from tilewise.study.status import Status

#: With fewer samples than this, quartiles say nothing.
FEWEST_SAMPLES = 3
#: A choice that takes at most so many times the shortest time is as good as the best.
NEARLY = 1.01
#: Tables of facts that say nothing without a GPU: the emulator refuses only what this repository makes it refuse.
OF_GPUS = ("bandwidth", "instructions", "launch_limits", "maximum_size")


class Untestable(Exception):
    """A required quantity was not measured on this machine; the message names it."""


@dataclass(frozen=True)
class Spread:
    """A measured number and the range in which it lies: for times, that of the runs, or of one run the quartiles.

    `known` is false if there were too few samples for a range. If the number can have only a few values, such as the
    tiles that are equally fast, `among` lists them, and `nearly` those that are not much slower.
    """

    value: float
    low: float
    high: float
    known: bool = True
    among: tuple = ()
    nearly: tuple = ()

    def _with(self, other, operation):
        other = other if isinstance(other, Spread) else Spread(other, other, other, among=(other,))
        ends = [operation(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        among = tuple(sorted({operation(a, b) for a in self.among for b in other.among}))
        return Spread(operation(self.value, other.value), min(ends), max(ends), self.known and other.known, among)

    def values(self, *marks):
        """Values that it may have, its own first: all if they are few, else some of its range and the marks in it."""
        marks = [mark for mark in marks if mark is not None and self.low <= mark <= self.high]
        return [self.value, *(self.among or [*marks, *np.linspace(self.low, self.high, 101)])]

    __add__ = __radd__ = functools.partialmethod(_with, operation=operator.add)
    __sub__ = functools.partialmethod(_with, operation=operator.sub)
    __mul__ = __rmul__ = functools.partialmethod(_with, operation=operator.mul)
    __truediv__ = functools.partialmethod(_with, operation=operator.truediv)
    __rsub__ = functools.partialmethod(_with, operation=lambda a, b: b - a)
    __rtruediv__ = functools.partialmethod(_with, operation=lambda a, b: b / a)


@dataclass(frozen=True)
class Choice:
    """The best or worst choice of a sweep as text, such as the block `16 × 64`.

    `among` lists all that are as fast within the spread, the first of them `value`, and `nearly` those that are not
    much slower. A pair of choices has pairs.
    """

    value: str | tuple[str, ...]
    among: tuple
    nearly: tuple = ()

    @property
    def words(self) -> str:
        """The choice as a table shows it."""
        return self.value if isinstance(self.value, str) else " and ".join(self.value)

    def values(self, *marks):
        """Every value that it may have, its own first."""
        return [self.value, *self.among]


class Machine:
    """The queries of expressions on one platform: its public methods, most of which take conditions on columns, as in
    `dtype='float', tile=32`.

    A list has the values that a column may have: `block_x=[8, 16]`, for a claim about those that a source tried.
    `cube=8192` means n = p = m = 8192. A column that does not exist raises UserError. A row that does not exist, or
    that did not run, makes the claim untestable.
    """

    def __init__(self, evidence: Evidence, platform: Platform):
        self.platform = platform
        self.rows, self.facts = _about(evidence, platform.name)

    def functions(self) -> dict[str, Callable]:
        """The functions, by the names that expressions use."""
        names = [name for name in vars(Machine) if not name.startswith("_") and name != "functions"]
        return {name: getattr(self, name) for name in names} | {"abs": abs}

    def time(self, **where):
        """Time in ms of the fastest row that fits, with the range of its runs, or of one run with its quartiles."""
        return _time_of(self._fastest(where).head(1))

    def rate(self, **where):
        """Rate in GFLOP/s of the fastest row that fits."""
        rows = self._fastest(where).head(1)
        return 2e-6 * math.prod(float(rows[size].iloc[0]) for size in SHAPE) / _time_of(rows)

    def best(self, column, **where):
        """The value of a column in the fastest row; its range covers all rows that are as fast within the spread.

        The column `block` is both sizes of the block, in words. If `where` lists values, all must have been tried.
        """
        rows = self._all_tried(where)
        low, high = time_range(rows)
        return _one_of(rows, column, low <= high.iloc[0], rows["time_ms"] <= NEARLY * rows["time_ms"].iloc[0], 0)

    def worst(self, column, **where):
        """The value of the slowest row; its range covers all rows that are as slow within the spread."""
        rows = self._all_tried(where).sort_values("time_ms", kind="stable")
        low, high = time_range(rows)
        return _one_of(rows, column, high >= low.iloc[-1], NEARLY * rows["time_ms"] >= rows["time_ms"].iloc[-1], -1)

    def pair(self, one, other):
        """Two choices as a pair, for a claim that they differ: `value[0] != value[1]`."""
        return Choice((one.value, other.value), tuple(itertools.product(one.among, other.among)))

    def wrong(self, **where):
        """The number of incorrect products among the verified ones."""
        rows = fitting(self.rows, where)
        rows = rows[rows["status"].isin([Status.OK, Status.INCORRECT])]
        if rows.empty:
            raise Untestable(f"no product was verified for {_words(where)}")
        return int((rows["status"] == Status.INCORRECT).sum())

    def fact(self, table, column, **where):
        """A column of a table of facts, for the largest shape that fits.

        Such tables are traffic (counts of the emulator), counters (those of the GPU), instructions (of the machine code
        that this GPU runs), occupancy, tile_choice, accuracy, energy, maximum_size and launch_limits.
        """
        if table in OF_GPUS:
            self._needs_gpu()
        if table == "instructions":
            architecture = "sm_" + self.platform.device.gpu["compute_capability"].replace(".", "")
            where |= {"architecture": [architecture, f"{architecture}a"]}
        rows = self.facts[table]
        _known(rows, [column])
        rows = fitting(rows, where)
        if set(SHAPE) <= set(rows):
            rows = rows.loc[rows[SHAPE].astype("float64").prod(axis=1).sort_values(kind="stable").index]
        rows = rows[rows[column].notna()]
        if rows.empty:
            raise Untestable(f"nothing in {table} for {_words(where) or column}")
        value = rows[column].iloc[-1]
        if table == "energy":  # which is measured once
            return Spread(value, value, value, known=False)
        return value if isinstance(value, str) else float(value)

    def call(self, kernel, position, steps=("total",), share=False):
        """ms of a whole call in a fresh process, or of some steps of it, or these as a `share` of the call: median and
        range of the repeats."""
        calls = fitting(self.facts["cold_start"], {"kernel": kernel, "position": position}).dropna(subset="ms")
        each = calls.pivot_table(index="repeat", columns="step", values="ms")
        if not {*steps, "total"} <= set(each):
            raise Untestable("no whole call was timed")
        took = each[[*steps]].sum(axis=1) / (each["total"] if share else 1)
        return Spread(took.median(), took.min(), took.max())

    def roof(self, quantity, dtype="float"):
        """A measured roof of the device: memory_bandwidth in GB/s, multiply_add_rate in GFLOP/s."""
        where = {"quantity": quantity, "dtype": dtype}
        value, noise = (self.fact("bandwidth", column, **where) for column in ("measured", "noise"))
        return Spread(value, value * (1 - noise), value * (1 + noise))

    def not_here(self, reason):
        """Raise Untestable for a claim outside the study's scope, with its `reason`."""
        raise Untestable(reason)

    def limit(self, name):
        """A limit of the GPU, as device.json names it."""
        self._needs_gpu()
        limits = self.platform.device.limits
        if name not in limits:
            raise UserError(f"there is no '{name}' in limits of device.json; there are {', '.join(limits)}")
        return limits[name]

    def bandwidth(self):
        """Memory bandwidth of the datasheet, in GB/s."""
        self._needs_gpu()
        return self.platform.device.gpu["memory_bandwidth_gb_s"]

    def _needs_gpu(self):
        if not self.platform.has_gpu:
            raise Untestable("there is no GPU here")

    def _fastest(self, where):
        rows = fitting(self.rows, where)
        ran = fastest_first(rows)
        if len(ran):
            return ran
        failed = rows[rows["status"] != Status.OK]
        if len(failed):
            row = failed.iloc[0]
            raise Untestable(f"{row['kernel']} was not timed: {row['status']}, {row['message']}")
        self._needs_gpu()
        raise Untestable(f"not measured: {_words(where)}")

    def _all_tried(self, where):
        """The rows that ran, the fastest first, if a run was tried for every value that `where` lists."""
        ran = self._fastest(where)
        for name in (name for name, values in where.items() if isinstance(values, list)):
            tried = set(fitting(self.rows, where)[name])
            if missing := [str(value) for value in where[name] if value not in tried]:
                raise Untestable(f"not measured: {name} {', '.join(missing)}")
        return ran


@functools.lru_cache(maxsize=64)
def _about(evidence, platform):
    """The rows of the points of a platform, by its name, and the tables of facts."""
    rows = pd.concat([evidence.gpu, evidence.cpu, evidence.emulated], ignore_index=True)
    # Counts do not depend on the machine that counted; everything else does.
    facts = {
        name: table[table["platform"] == platform] if "platform" in table else table
        for name, table in evidence.facts.items()
    }
    return rows[rows["platform"] == platform], facts


def _time_of(rows):
    """The time of one row in ms, with its range."""
    time, samples, runs = (rows[name].iloc[0] for name in ("time_ms", "samples", "runs"))
    [low], [high] = time_range(rows)
    few = pd.notna(samples) and samples < FEWEST_SAMPLES
    return Spread(float(time), low, high, known=bool(pd.notna(runs) and runs > 1) or not few)


def _one_of(rows, column, equal, close, place):
    """What a column holds at a place of the rows, in all that are `equal` to it and in all that are `close`."""
    names = ["block_x", "block_y"] if column == "block" else [column]
    _known(rows, names)
    known = rows[names].notna().all(axis=1)
    if not known.iloc[place]:  # a recorded run may lack a column
        raise Untestable(f"the {column} of the points is not known")
    itself = rows.index == rows.index[place]  # whose range may not be known
    equal, close = equal | itself, close | itself
    if column == "block":
        words = rows["block_x"].astype(str) + " × " + rows["block_y"].astype(str)
        return Choice(words.iloc[place], *(tuple(dict.fromkeys(words[fits & known])) for fits in (equal, close)))
    among, nearly = (tuple(sorted(set(rows.loc[fits & known, column].astype(float)))) for fits in (equal, close))
    return Spread(float(rows[column].iloc[place]), among[0], among[-1], among=among, nearly=nearly)


def _known(rows, columns):
    missing = [name for name in columns if name not in rows]
    if missing:
        raise UserError(f"there is no column '{missing[0]}'; there are {', '.join(rows)}")


def fitting(rows, where):
    """The rows whose columns have the values of `where`, or one of a list; `cube` is all three sizes."""
    where = dict(where)
    if "cube" in where:
        where |= dict.fromkeys(SHAPE, where.pop("cube"))
    _known(rows, where)
    fits = np.ones(len(rows), dtype=bool)  # the rows are copied once, for claims are checked at every start
    for name, value in where.items():
        found = rows[name].isin(value) if isinstance(value, list) else rows[name] == value
        fits &= found.to_numpy(dtype=bool, na_value=False)
    return rows[fits]


def _words(where):
    return ", ".join(f"{name} {value}" for name, value in where.items())
