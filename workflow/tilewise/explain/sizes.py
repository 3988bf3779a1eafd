"""The largest products: their sizes and times."""

import pandas as pd

from tilewise.evidence import Evidence


def probes(evidence: Evidence) -> pd.DataFrame:
    """Every product that the probe of the largest size timed, or could not, from small to large.

    Adds gflops, and published_ms: the time in source a's Table 3, where it has the same kernel at the same n.
    """
    published = evidence.published
    source = published[published["place"] == "Table 3"].set_index(["kernel", "n"])["value"]
    rows = evidence.facts["maximum_size"].sort_values("timed_n", kind="stable")
    rows = rows.drop_duplicates(["platform", "kernel", "timed_n"], keep="last")
    return rows.assign(
        gflops=2e-6 * rows["timed_n"].astype("float64") ** 3 / rows["time_ms"],
        published_ms=[source.get(key) for key in zip(rows["kernel"], rows["timed_n"])],
    ).astype({"published_ms": "float64"})
