"""The claims of the sources, each tested on the measured tables: holds here, does not hold here, cannot be tested here.

report/claims.yaml holds them. A claim's `quantity` is an expression that uses the functions of `Machine`; its
`holds_when` is a condition on `value` and `published`. A measured quantity is an interval, and arithmetic works on
intervals; or, if its points ran several times, on what a bootstrap draws for them. If the condition changes its answer
within the interval, the verdict depends on a difference smaller than the spread, and says so.
"""

import contextlib
import itertools
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tilewise import UserError
from tilewise.report import notes
from tilewise.report.data import CLAIMS, Evidence, Platform, within
from tilewise.study import columns
from tilewise.study.columns import SHAPE
from tilewise.study.expressions import evaluate as evaluate_expression
from tilewise.study.precision import PRECISIONS
from tilewise.study.schema import read_yaml, validate

#: The verdicts.
HOLDS, FAILS, UNTESTED, BROKEN = "holds here", "does not hold here", "cannot be tested here", "cannot be made"
#: With fewer runs than this, quartiles say nothing.
FEWEST_SAMPLES = 3
#: How often the bootstrap draws.
DRAWS = 2000


class Untestable(Exception):
    """Something that a claim needs was not measured on this machine; the message says what."""


@dataclass(frozen=True)
class Spread:
    """A measured number and the range in which it lies: for times, the median and the quartiles.

    `known` is false if there were too few samples for a range. If the number can have only a few values, such as the
    blocks that are equally fast, `among` lists them. If the point ran several times, in processes of its own, `draws`
    are what the bootstrap says that it might have been; the range is then the middle 95 % of them, and what is
    calculated from such numbers is calculated from their draws.
    """

    value: float
    low: float
    high: float
    known: bool = True
    among: tuple = ()
    draws: np.ndarray | None = field(default=None, compare=False, repr=False)

    @classmethod
    def drawn(cls, value, draws):
        """A number with what the bootstrap drew for it."""
        low, high = np.percentile(draws, [2.5, 97.5])
        return cls(value, float(low), float(high), draws=draws)

    def _with(self, other, operation):
        number = not isinstance(other, Spread)
        if self.draws is not None and (number or other.draws is not None):
            return Spread.drawn(
                operation(self.value, other if number else other.value),
                operation(self.draws, other if number else other.draws),
            )
        other = Spread(other, other, other, among=(other,)) if number else other
        ends = [operation(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        among = tuple(sorted({operation(a, b) for a in self.among for b in other.among}))
        return Spread(operation(self.value, other.value), min(ends), max(ends), self.known and other.known, among)

    def values(self, *marks):
        """Values that it may have, its own first: all if they are few, else some of its range and the marks in it."""
        marks = [mark for mark in marks if mark is not None and self.low <= mark <= self.high]
        return [self.value, *(self.among or [*marks, *np.linspace(self.low, self.high, 101)])]

    def __add__(self, other):
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other):
        return self._with(other, lambda a, b: a - b)

    def __mul__(self, other):
        return self._with(other, lambda a, b: a * b)

    def __truediv__(self, other):
        return self._with(other, lambda a, b: a / b)

    def __rsub__(self, other):
        return self._with(other, lambda a, b: b - a)

    def __rtruediv__(self, other):
        return self._with(other, lambda a, b: b / a)

    __radd__ = __add__
    __rmul__ = __mul__


def bootstrap(row):
    """What the time of a point might have been, in ms: draws from what its runs say, the same for the same point.

    A bootstrap of two stages (A. C. Davison and D. V. Hinkley, Bootstrap Methods and their Application, 1997, section
    3.8): as many runs as there were are drawn from them, each with what its median may be off by, and their median is
    taken. A row has the least, the middle and the largest of the runs' medians, which are all if there were three; the
    standard error of a median is 1.25 times that of the mean, and its deviation follows from the quartiles.
    """
    name = "|".join(str(row[key]) for key in sorted(row.index) if key in columns.POINT or key not in columns.COLUMNS)
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    runs = _runs(row)
    medians = (
        [row["run_low_ms"], row["time_ms"], row["run_high_ms"]] if runs > 2 else [row["run_low_ms"], row["run_high_ms"]]
    )
    deviation = (row["time_q3_ms"] - row["time_q1_ms"]) / 1.349
    error = 1.253 * deviation / max(1, row["samples"]) ** 0.5
    drawn = generator.choice(medians, (DRAWS, runs)) + generator.normal(0, error, (DRAWS, runs))
    return np.median(drawn, axis=1)


def _runs(row):
    return 1 if pd.isna(row["runs"]) else int(row["runs"])


@dataclass(frozen=True)
class Choice:
    """What a sweep found best or worst, in words, such as the block `16 × 64`.

    `among` lists all that are as fast within the spread, the first of them `value`. A pair of choices has pairs.
    """

    value: str | tuple[str, ...]
    among: tuple

    @property
    def words(self) -> str:
        """The choice as a table shows it."""
        return self.value if isinstance(self.value, str) else " and ".join(self.value)

    def values(self, *marks):
        """Every value that it may have, its own first."""
        return [self.value, *self.among]


class Machine:
    """What an expression can ask of one platform. Every function takes conditions on columns: `dtype='float', tile=32`.

    A list has the values that a column may have: `block_x=[8, 16]`, for a claim about those that a source tried.
    `cube=8192` means n = p = m = 8192. A column that does not exist raises UserError. A row that does not exist, or
    that did not run, makes the claim untestable.
    """

    def __init__(self, evidence: Evidence, platform: Platform):
        self.platform = platform
        rows = pd.concat([evidence.gpu, evidence.cpu, evidence.emulated], ignore_index=True)
        self.rows = rows[rows["platform"] == platform.name]
        # Counts do not depend on the machine that counted; everything else does.
        self.facts = {
            name: table[table["platform"] == platform.name] if "platform" in table else table
            for name, table in evidence.facts.items()
        }

    def functions(self) -> dict[str, Callable]:
        """The functions, by the names that expressions use."""
        names = (
            "time rate best worst pair wrong error gate traffic maximum call launch roof held chosen_tile limit "
            "bandwidth peak only_on not_here"
        )
        return {name: getattr(self, name) for name in names.split()} | {"abs": abs}

    def time(self, **where):
        """Time in ms of the fastest row that fits, with its quartiles; of several runs, as the bootstrap draws it."""
        row = self._fastest(where).iloc[0]
        if _runs(row) > 1:
            return Spread.drawn(row["time_ms"], bootstrap(row))
        return Spread(row["time_ms"], row["time_q1_ms"], row["time_q3_ms"], known=not row["samples"] < FEWEST_SAMPLES)

    def rate(self, **where):
        """Rate in GFLOP/s of the fastest row that fits."""
        row = self._fastest(where).iloc[0]
        return 2e-6 * float(row["n"]) * float(row["p"]) * float(row["m"]) / self.time(**where)

    def best(self, column, **where):
        """The value of a column in the fastest row; its range covers all rows that are as fast within the spread.

        The column `block` is both sizes of the block, in words.
        """
        rows = self._fastest(where)
        low, high = within(rows)
        return _one_of(rows, column, low <= high.iloc[0], 0)

    def worst(self, column, **where):
        """The same of the slowest row; its range covers all rows that are as slow within the spread."""
        rows = self._fastest(where)
        low, high = within(rows)
        return _one_of(rows, column, high >= low.iloc[-1], -1)

    def pair(self, one, other):
        """Two choices beside each other, for a claim that they differ: `value[0] != value[1]`."""
        return Choice((one.value, other.value), tuple(itertools.product(one.among, other.among)))

    def wrong(self, **where):
        """How many of the verified products came out wrong."""
        rows = _fitting(self.rows, where)
        rows = rows[rows["status"].isin(["ok", "incorrect"])]
        if rows.empty:
            raise Untestable(f"no product was verified for {_words(where)}")
        return int((rows["status"] == "incorrect").sum())

    def error(self, column, **where):
        """The largest relative_error or bound_ratio of the rows that fit."""
        rows = _fitting(self.rows, where)
        _known(rows, [column])
        if rows[column].isna().all():
            raise Untestable(f"nothing was verified for {_words(where)}")
        return float(rows[column].max())

    def gate(self, column, **where):
        """A column of the accuracy gate, for the longest sums that fit: as measured, or else as predicted."""
        measured = (self.facts["accuracy"]["origin"] == "measured").any()
        return self._fact("accuracy", column, where | {"origin": "measured" if measured else "predicted"})

    def traffic(self, column, **where):
        """A count of the emulator for the largest shape that fits."""
        return self._fact("traffic", column, where)

    def maximum(self, column, **where):
        """A figure of the maximum-size probe."""
        self._needs_gpu()
        return self._fact("maximum_size", column, where)

    def call(self, kernel, position, step="total"):
        """ms of a whole call in a fresh process, or of one step of it: median and range of the repeats."""
        calls = _fitting(self.facts["cold_start"], {"kernel": kernel, "position": position, "step": step})
        if calls["ms"].isna().all():
            raise Untestable("no whole call was timed")
        return Spread(calls["ms"].median(), calls["ms"].min(), calls["ms"].max())

    def launch(self, column, **where):
        """A column of the tried launches, such as outcome or error."""
        self._needs_gpu()  # the emulator only refuses what this repository makes it refuse
        return self._fact("launch_limits", column, where)

    def roof(self, quantity, dtype="float"):
        """A measured roof of the device: memory_bandwidth in GB/s, multiply_add_rate in GFLOP/s."""
        self._needs_gpu()
        where = {"quantity": quantity, "dtype": dtype}
        value, noise = (self._fact("bandwidth", column, where) for column in ("measured", "noise"))
        return Spread(value, value * (1 - noise), value * (1 + noise))

    def held(self, column, **where):
        """A column of the occupancy table."""
        return self._fact("occupancy", column, where)

    def chosen_tile(self):
        """The tile width that dynamic_tile gets from the device's limits."""
        return self._fact("tile_choice", "tile", {"chosen": True})

    def only_on(self, model, value):
        """A value of this GPU, for a claim about a GPU whose name contains `model`."""
        name = self.platform.device["gpu"]["name"]
        if model not in name:
            raise Untestable(f"the claim is about an {model}; this GPU is an {name}")
        return value

    def not_here(self, reason):
        """For a claim that nothing in the study can test; `reason` says why."""
        raise Untestable(reason)

    def limit(self, name):
        """A limit of the GPU, as device.json names it."""
        self._needs_gpu()
        return _entry(self.platform.device["limits"], name, "limits")

    def bandwidth(self):
        """Memory bandwidth of the datasheet, in GB/s."""
        self._needs_gpu()
        return self.platform.device["gpu"]["memory_bandwidth_gb_s"]

    def peak(self, dtype):
        """The vector peak of the datasheet, in GFLOP/s."""
        self._needs_gpu()
        known = self.platform.device["gpu"]["peak_gflops"] or {}
        if dtype in PRECISIONS and dtype not in known:
            raise Untestable(f"the peak of this GPU in {dtype} is not known")
        return _entry(known, dtype, "peak_gflops")

    def _needs_gpu(self):
        if not self.platform.has_gpu:
            raise Untestable("there is no GPU here")

    def _fastest(self, where):
        rows = _fitting(self.rows, where)
        ran = rows[(rows["status"] == "ok") & rows["time_ms"].notna()].sort_values("time_ms", kind="stable")
        if len(ran):
            return ran
        failed = rows[rows["status"] != "ok"]
        if len(failed):
            row = failed.iloc[0]
            raise Untestable(f"{row['kernel']} was not timed: {row['status']}, {row['message']}")
        self._needs_gpu()
        raise Untestable(f"not measured: {_words(where)}")

    def _fact(self, table, column, where):
        rows = self.facts[table]
        _known(rows, [column])
        rows = _fitting(rows, where)
        if set(SHAPE) <= set(rows):
            rows = rows.loc[rows[SHAPE].astype("float64").prod(axis=1).sort_values(kind="stable").index]
        rows = rows[rows[column].notna()]
        if rows.empty:
            raise Untestable(f"nothing in {table} for {_words(where) or column}")
        value = rows[column].iloc[-1]
        return value if isinstance(value, str) else float(value)


def _one_of(rows, column, close, place):
    """What a column holds at a place of the rows, and in all that are `close` to it."""
    if column == "block":
        words = [f"{x} × {y}" for x, y in zip(rows["block_x"], rows["block_y"])]
        return Choice(words[place], tuple(dict.fromkeys(word for word, near in zip(words, close) if near)))
    _known(rows, [column])
    among = tuple(sorted({float(each) for each in rows.loc[close, column]}))
    return Spread(float(rows[column].iloc[place]), among[0], among[-1], among=among)


def _known(rows, columns):
    missing = [name for name in columns if name not in rows]
    if missing:
        raise UserError(f"there is no column '{missing[0]}'; there are {', '.join(rows)}")


def _fitting(rows, where):
    where = dict(where)
    if "cube" in where:
        where |= dict.fromkeys(SHAPE, where.pop("cube"))
    _known(rows, where)
    fits = np.ones(len(rows), dtype=bool)  # the rows are copied once, for claims are checked at every start
    for name, value in where.items():
        found = rows[name].isin(value) if isinstance(value, list) else rows[name] == value
        fits &= found.to_numpy(dtype=bool, na_value=False)
    return rows[fits]


def _entry(table, name, where):
    if name not in table:
        raise UserError(f"there is no '{name}' in {where} of device.json; there are {', '.join(table)}")
    return table[name]


def _words(where):
    return ", ".join(f"{name} {value}" for name, value in where.items())


def load(path: Path | str = CLAIMS) -> list[dict[str, Any]]:
    """The claims of a YAML file as dicts. Raises UserError if an entry is malformed or an id occurs twice."""
    claims = read_yaml(path)
    validate(claims, "claims", path)
    names = [claim["id"] for claim in claims]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UserError(f"{path}: the id '{min(twice)}' occurs twice; each claim needs its own")
    return claims


def evaluate(claim: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """The verdict on a claim on one Machine, a dict: verdict, value, low, high, known, reason.

    `known` says whether low and high are known. `reason` says what is missing for an untestable claim, and warns if the
    verdict depends on the spread. Raises UserError if an expression cannot be evaluated, for example because it names a
    column that does not exist.
    """
    try:
        found = _calculate(claim, "quantity", machine.functions())
    except Untestable as missing:
        return _unknown | {"reason": str(missing)}
    if not isinstance(found, Spread | Choice):
        found = Spread(float(found), float(found), float(found))
    answers = [
        bool(_calculate(claim, "holds_when", {"value": value, "published": claim["published"], "abs": abs}))
        for value in found.values(claim["published"], 0)
    ]
    reason = "" if len(set(answers)) == 1 else "depends on a difference smaller than the spread"
    if isinstance(found, Spread) and not found.known:
        reason = f"{reason}; " * bool(reason) + f"from fewer than {FEWEST_SAMPLES} runs, so the spread is not known"
    verdict = HOLDS if answers[0] else FAILS
    if isinstance(found, Choice):
        return _unknown | {"verdict": verdict, "value": found.words, "reason": reason}
    numbers = {"value": found.value, "low": found.low, "high": found.high, "known": found.known}
    return {"verdict": verdict, **numbers, "reason": reason}


_unknown = {"verdict": UNTESTED, "value": None, "low": None, "high": None, "known": False}


def _calculate(claim, key, variables):
    try:
        return evaluate_expression(claim[key], variables)
    except Untestable:
        raise
    except UserError as error:
        raise UserError(f"report/claims.yaml: {claim['id']}.{key}: {error}") from None
    except Exception as error:
        raise UserError(f"report/claims.yaml: {claim['id']}.{key}: '{claim[key]}': {error}") from None


def check(claims: list[dict[str, Any]], evidence: Evidence) -> None:
    """Raise UserError, with the claim's id and key, if an expression cannot be evaluated on any platform."""
    for machine in (Machine(evidence, platform) for platform in evidence.everyone):
        for claim in claims:
            with contextlib.suppress(Untestable):
                found = _calculate(claim, "quantity", machine.functions())
                value = found.value if isinstance(found, Spread | Choice) else found
                _calculate(claim, "holds_when", {"value": value, "published": claim["published"], "abs": abs})


def verdicts(claims: list[dict[str, Any]], evidence: Evidence) -> pd.DataFrame:
    """Every claim on every platform of the report: a DataFrame with one row for each, in the order of the claims.

    The reason of a claim that cannot be made, such as one with a broken expression, is a note.
    """
    machines = [Machine(evidence, platform) for platform in evidence.everyone]
    rows = []
    for claim in claims:
        about = {"error": "", "unit": ""} | claim
        for machine in machines:
            try:
                found = evaluate(claim, machine)
            except Exception as error:  # whatever it is, the other claims go on
                found = _unknown | {"verdict": BROKEN, "reason": notes.sentence(f"Claim: {claim['id']}", error)}
            rows.append(about | {"platform": machine.platform.name} | found)
    table = pd.DataFrame(rows)
    for name in ("value", "published"):  # a choice is in words, for which there is a column
        words = table[name].map(lambda value: value if isinstance(value, str) else "").fillna("")
        table[name] = table[name].where(words == "")
        table[f"{name}_words"] = words
    return table.astype(dict.fromkeys(("value", "low", "high", "published"), "float64"))


def side_by_side(verdicts: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The verdicts for reading: one row per claim, with the verdict and the measured value on each platform, as text.

    The verdict on a recorded platform does not say `here`, because it is not about this machine.
    """
    said = verdicts.drop_duplicates("id")
    published = [words or _figure(*p) for words, *p in zip(said["published_words"], said["published"], said["unit"])]
    table = said[["id", "source", "claim", "why", "error"]].assign(published=published).set_index("id")
    table = table[["source", "claim", "published", "why", "error"]]
    for platform in evidence.everyone:
        own = verdicts[verdicts["platform"] == platform.name].set_index("id")
        words = own["verdict"].str.removesuffix(" here") if platform.recorded else own["verdict"]
        table[f"verdict {platform.name}"] = words
        table[f"measured {platform.name}"] = [_measured(row) for row in own.to_dict("records")]
    why = table.pop("why")
    error = table.pop("error").map(lambda words: f" In the source: {words}" if words else "")
    return table.assign(why=why + error).reset_index()


def _figure(value, unit):
    if pd.isna(value):
        return ""
    text = f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
    return f"{text}{unit}" if unit == "×" else f"{text}\u00a0{unit}".rstrip("\u00a0")


def _measured(row):
    if row["verdict"] in (UNTESTED, BROKEN):
        return row["reason"]
    low, middle, high = (_figure(row[name], row["unit"]) for name in ("low", "value", "high"))
    text = row["value_words"] or middle
    text = text if low == high or not row["known"] else f"{middle} ({low} to {high})"
    return f"{text}; {row['reason']}" if row["reason"] else text
