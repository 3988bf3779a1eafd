"""Rates over sizes, from the task `sizes`: the fastest kernel of each product, and products limited by a launch."""

from enum import StrEnum

import numpy as np
import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain import provenance
from tilewise.explain.timings import CASE, beside_anchor, cubes, made_of_short, timed_rows, with_words
from tilewise.study import columns
from tilewise.study.columns import SHAPE

#: A kernel is slower than the library below this share of its rate, and faster above the inverse of the share.
LEVEL = 0.98
#: A launch decides about a time of which it is this part.
LAUNCH_DECIDES = 0.5


class Rules(StrEnum):
    """The fastest at a product, or `launch` if the launch takes at least half of the time."""

    LAUNCH = "launch"
    OWN = "own kernel"
    LIBRARY = "library"
    EQUAL = "equal"


def over_size(evidence: Evidence) -> pd.DataFrame:
    """The timed points of the task `sizes`, with words and the rate as a percentage of the library's.

    Adds `anchor`, `friendly` (n, p and m are multiples of 16) and `short` (floats are computed from short numbers).
    """
    rows = _beside_library(evidence.facts["sizes"], evidence)
    return rows.assign(friendly=(rows[SHAPE] % 16 == 0).all(axis=1).astype("bool"), short=made_of_short(rows, evidence))


def below_roofs(evidence: Evidence) -> pd.DataFrame:
    """The fastest choice of each kernel in `over_size`, with launch_gflops and roof_gflops, which other tasks measured.

    A product at the first takes as long as an empty kernel; the second is what the units of the type alone reached.
    """
    rows = over_size(evidence).sort_values("time_ms", kind="stable").drop_duplicates(CASE).sort_index(ignore_index=True)
    roofs = evidence.facts["bandwidth"].pivot_table(index=["platform", "dtype"], columns="quantity", values="measured")
    units = (
        roofs.reindex(columns=["tensor_rate", "multiply_add_rate"]).bfill(axis=1)["tensor_rate"].rename("roof_gflops")
    )
    overheads = rows["platform"].map(provenance.overheads(evidence.shown_platforms)).astype("float64")
    work = 2e-3 * rows[SHAPE].astype("float64").prod(axis=1)  # 10^9 operations a second, over µs
    return rows.merge(units, how="left", on=["platform", "dtype"]).assign(launch_gflops=work / overheads)


def at_every_size(evidence: Evidence) -> pd.DataFrame:
    """The fastest own kernel at each product, compared with the library: one row per platform, element type and shape.

    `rules` says who is fastest, or that a launch takes at least half of the time. Floats computed from short numbers
    have their own errors, so they do not count.
    """
    rows = below_roofs(evidence)
    own = rows[~rows["anchor"] & ~rows["short"] & rows["percent_of_anchor"].notna()]
    key = ["platform", "dtype", *SHAPE]
    own = own.sort_values("time_ms", kind="stable").drop_duplicates(key)
    share, anchor = own["percent_of_anchor"] / 100, 100 * own["gflops"] / own["percent_of_anchor"]
    launch = anchor.clip(lower=own["gflops"]) >= LAUNCH_DECIDES * own["launch_gflops"]
    rules = np.select([launch, share > 1 / LEVEL, share < LEVEL], [Rules.LAUNCH, Rules.OWN, Rules.LIBRARY], Rules.EQUAL)
    own = own.assign(rules=pd.Series(rules, own.index, "str"), anchor_gflops=anchor)
    return own.sort_values(key, kind="stable", ignore_index=True)


def size_ranges(evidence: Evidence) -> pd.DataFrame:
    """Per platform and element type, who rules from which size to which, of the squares whose sides divide by 16."""
    rows = cubes(at_every_size(evidence))
    rows = rows[rows["friendly"]]
    groups = rows.groupby(["platform", "dtype"], sort=False)["rules"]
    run = groups.transform(lambda column: column.ne(column.shift()).cumsum())
    found = rows.groupby(["platform", "dtype", run.rename("run")], sort=False)
    table = found.agg(
        rules=("rules", "first"),
        from_n=("n", "min"),
        to_n=("n", "max"),
        percent_of_anchor=("percent_of_anchor", "median"),
    )
    return columns.set_types(table.reset_index().drop(columns="run"))


def batches(evidence: Evidence) -> pd.DataFrame:
    """The timed products of many matrices at once, with words and the share of the library's batched call."""
    rows = _beside_library(evidence.facts["batches"], evidence)
    return rows.assign(batch_shape=rows["batch"].astype("str") + " × " + rows["shape"])


def _beside_library(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    rows = timed_rows(rows)
    rows = with_words(beside_anchor(rows, rows, evidence), evidence)
    return rows.assign(anchor=rows["kernel"].isin(evidence.libraries))
