"""The largest products: how large they are, how long they take, and how the rate changes on the way to them."""

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

    Adds naive_n, the largest timed with the naive kernel, fitting_n, the largest n that fits with it, and naive_ms, the
    time predicted for it.
    """
    rows = probes(evidence)
    last = rows[rows["time_ms"].notna()].drop_duplicates(["platform", "kernel"], keep="last")
    naive = last[last["kernel"] == "naive"][["platform", "timed_n", "allocatable_n", "predicted_ms"]]
    naive = naive.set_axis(["platform", "naive_n", "fitting_n", "naive_ms"], axis="columns")
    found = last.merge(naive, on="platform")
    return found[found["timed_n"] > found["naive_n"]]
