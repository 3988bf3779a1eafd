"""The largest products: their sizes and times, and the rates of smaller ones."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from tilewise.evidence import Evidence


def probes(evidence: Evidence) -> pd.DataFrame:
    """Every product that the probe of the largest size timed, or could not, from small to large.

    Adds gflops, and source_ms: the time in source a's Table 3, where it has the same kernel at the same n.
    """
    published = evidence.published
    source = published[published["place"] == "Table 3"].set_index(["kernel", "n"])["value"]
    rows = evidence.facts["maximum_size"].sort_values("timed_n", kind="stable")
    rows = rows.drop_duplicates(["platform", "kernel", "timed_n"], keep="last")
    return rows.assign(
        gflops=2e-6 * rows["timed_n"].astype("float64") ** 3 / rows["time_ms"],
        source_ms=[source.get(key) for key in zip(rows["kernel"], rows["timed_n"])],
    ).astype({"source_ms": "float64"})


def beyond_naive(evidence: Evidence) -> pd.DataFrame:
    """The largest timed product of each kernel that was timed at a larger n than the naive kernel.

    Adds naive_n, the largest timed with the naive kernel, and naive_ms, the time predicted for the largest n that fits.
    """
    rows = probes(evidence)
    last = rows[rows["time_ms"].notna()].drop_duplicates(["platform", "kernel"], keep="last")
    naive = last[last["kernel"] == "naive"][["platform", "timed_n", "predicted_ms"]]
    naive = naive.set_axis(["platform", "naive_n", "naive_ms"], axis="columns")
    found = last.merge(naive, on="platform")
    return found[found["timed_n"] > found["naive_n"]]


def maximum_size(evidence: Evidence) -> pd.DataFrame:
    """Table 3: memory, sizes and time of the largest product, one row per quantity and platform.

    n is the number of rows of each of the three square float matrices. `share` rows are in percent. If the probe did
    not time something, its value is empty and the column `note` says why.
    """
    published = evidence.published
    source = published[published["kernel"].isna() | (published["place"] == "Table 3") | (published["kernel"] == "")]
    known = dict(zip(source["quantity"], source["value"]))
    known["timed_n"] = published.loc[published["place"] == "Table 3", "n"].iloc[0]
    known["time"] = published.loc[published["place"] == "Table 3", "value"].iloc[0]
    timed = known | {"kernel": "naive", "time_ms": known["time"]}
    rows: list[dict[str, Any]] = []
    for probe in evidence.facts["maximum_size"].to_dict("records"):
        emulated = probe["platform"] not in {gpu.name for gpu in evidence.gpus}
        not_timed = "emulated: verified, not timed" if emulated else ""
        budget = f"; the budget is {probe['budget_s']:g} s" if pd.notna(probe["budget_s"]) else ""
        predicted = f"at n = {probe['allocatable_n']}{budget}"
        first = not any((row["platform"], row["kernel"]) == (probe["platform"], probe["kernel"]) for row in rows)
        entries = []
        if first and probe["kernel"] == "naive":
            entries += [
                ("memory, B", known["memory_total"], probe["memory_total_bytes"], ""),
                ("largest n in theory", known["theoretical_n"], probe["theoretical_n"], "three matrices in all memory"),
                ("largest n allocated", known["allocatable_n"], probe["allocatable_n"], "found by bisection"),
                (
                    "share of the theory, %",
                    *(100 * n["allocatable_n"] / n["theoretical_n"] for n in (known, probe)),
                    "",
                ),
            ]
        if first:
            words = f"{probe['kernel']}: predicted time of the largest, ms"
            entries.append((words, None, probe["predicted_ms"], not_timed or predicted))
        source = timed if (probe["kernel"], probe["timed_n"]) == (timed["kernel"], timed["timed_n"]) else {}
        for words, column, note in (("time, ms", "time_ms", _size_note(probe)), ("rate, GFLOP/s", "gflops", "")):
            theirs, ours = (_with_rate(each).get(column) for each in (source, probe))
            entries.append((f"{probe['kernel']} at n = {probe['timed_n']:,}: {words}", theirs, ours, not_timed or note))
        for quantity, theirs, ours, note in entries:
            about = {"quantity": quantity, "platform": probe["platform"], "kernel": probe["kernel"]}
            rows.append(about | {"published": theirs, "measured": ours, "note": note})
    if not any(row["published"] == timed["time_ms"] for row in rows):  # the source's own n was not timed
        for words, column in (("time, ms", "time_ms"), ("rate, GFLOP/s", "gflops")):
            quantity, theirs = f"naive at n = {timed['timed_n']:,.0f}: {words}", _with_rate(timed)[column]
            for platform in dict.fromkeys(row["platform"] for row in rows):
                rows.append({"quantity": quantity, "platform": platform, "published": theirs, "note": "not timed here"})
    table = pd.DataFrame(rows, columns=["quantity", "platform", "published", "measured", "note"])
    table = table.astype({"published": "float64", "measured": "float64"})
    order = pd.factorize(table["quantity"])[0].argsort(kind="stable")
    real = table["platform"].isin([gpu.name for gpu in evidence.gpus])  # the emulated memory is a choice of the config
    ratio = (table["measured"] / table["published"]).where(real)
    return table.assign(ratio=ratio).iloc[order].reset_index(drop=True)


def _with_rate(timed: Mapping[str, Any]) -> Mapping[str, Any]:
    """A timed product of `timed_n` with its rate in GFLOP/s, if it has a time."""
    if pd.isna(timed.get("time_ms")):
        return timed
    return {**timed, "gflops": 2e-6 * timed["timed_n"] ** 3 / timed["time_ms"]}


def _size_note(probe: Mapping[str, Any]) -> str:
    """How far a product of a chosen size was checked, and why it has that size."""
    checked = f"{probe['rows_checked']} rows of C verified" if pd.notna(probe["rows_checked"]) else "it failed"
    return checked if probe["timed_n"] < probe["allocatable_n"] else f"{checked}; the largest that fits"
