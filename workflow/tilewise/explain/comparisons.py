"""Compare kernels: with the library in turns, across languages, and the tuner's variants with the registry's choice."""

import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain.provenance import on_all_cards
from tilewise.explain.timings import CASE, LOWERED, beside_anchor, best, by_shape, describe, fastest_first, with_words
from tilewise.study import columns
from tilewise.study.accuracy import ROUNDING
from tilewise.study.columns import SHAPE
from tilewise.study.kernel import LANGUAGES, Kind
from tilewise.study.sources import lines_of_code
from tilewise.study.status import Status

#: A variant is as good as the best if its rate is at least this fraction of the best one's.
AS_GOOD = 0.95
#: The languages of kernels that run on a GPU.
_LANGUAGES = {Kind.CUDA: "CUDA C++", Kind.LIBRARY: "library"} | {kind: each.name for kind, each in LANGUAGES.items()}


def duels(evidence: Evidence) -> pd.DataFrame:
    """A row per kernel, product and task that was timed in turns, its best choice; the largest product first.

    Choices that round differently have a row each: a product of fewer moduli is another product.

    Adds `sustained_gflops`, and `power_limited`: whether the clock under load is below LOWERED times that of isolated
    launches, empty for kernels that were too short to be loaded. Where several cards timed a point in turns, adds their
    number, `card_count`, and the extremes of their ratios, `cards_low` to `cards_sustained_high`. Under load, too, the
    library's best is the faster of its calls: a search that found the best alone may have found a slower one.
    """
    rows = evidence.gpu[evidence.gpu["turns"].notna() & (evidence.gpu["status"] == Status.OK)]
    key = ["platform", "task", "kernel", "dtype", *SHAPE, *({ROUNDING} & {*rows})]
    rows = fastest_first(rows).drop_duplicates(key).sort_index()
    smaller = -rows[SHAPE].astype("float64").prod(axis="columns")
    table = describe(rows.loc[smaller.sort_values(kind="stable").index], evidence)
    slower = table["sustained_mhz"] < LOWERED * table["sm_clock_mhz"]
    other = table["sustained_vs_default"] < table["sustained_vs_best"]
    for end in ("", "_low", "_high"):
        best = table[f"sustained_vs_best{end}"]
        table[f"sustained_vs_best{end}"] = best.mask(other, table[f"sustained_vs_default{end}"])
    table = table.assign(
        sustained_gflops=table["gflops"] * table["time_ms"] / table["sustained_ms"],
        power_limited=slower.astype("boolean").where(table["sustained_mhz"].notna()),
    )
    key = ["task", *CASE, *evidence.choice]
    rows = on_all_cards(table, evidence, [*key, "gpu_uuid", "vs_best", "sustained_vs_best"]).dropna(subset="vs_best")
    over_cards = rows.groupby(key, sort=False, dropna=False).agg(
        card_count=("gpu_uuid", "nunique"),
        cards_low=("vs_best", "min"),
        cards_high=("vs_best", "max"),
        cards_sustained_low=("sustained_vs_best", "min"),
        cards_sustained_high=("sustained_vs_best", "max"),
    )
    return by_shape(table.merge(over_cards[over_cards["card_count"] > 1].reset_index(), how="left", on=key))


def by_language(evidence: Evidence) -> pd.DataFrame:
    """The best row of each kernel, type and shape, with its language, its lines of code and its shares in %.

    percent_of_anchor is the share of cuBLAS, percent_of_cuda that of the fastest kernel of CUDA C++ in the task; a row
    that did not run keeps its place, with its status and message.
    """
    rows = describe(evidence.select_tasks("languages").gpu, evidence)
    table = by_shape(beside_anchor(best(rows), rows, evidence))
    kernels = [evidence.kernels.get(name) for name in table["kernel"]]
    packages = [LANGUAGES[k.kind].package if k and k.kind in LANGUAGES else "" for k in kernels]
    versions = [evidence.device(where).versions.get(name, "") for where, name in zip(table["platform"], packages)]
    table = table.assign(
        language=pd.Series([_LANGUAGES[kernel.kind] if kernel else "" for kernel in kernels], dtype="str"),
        version=pd.Series(versions, dtype="str"),
        lines=pd.Series([lines_of_code(k.files) if k and k.source else None for k in kernels], dtype="Int64"),
    )
    cuda = (table["language"] == _LANGUAGES[Kind.CUDA]) & (table["status"] == Status.OK)
    of_cuda = table.assign(time_ms=table["time_ms"].where(cuda)).groupby(["platform", "dtype", *SHAPE])["time_ms"]
    return table.assign(percent_of_cuda=100 * of_cuda.transform("min") / table["time_ms"])


def tuning(evidence: Evidence) -> pd.DataFrame:
    """Results of the tuner, one row per kernel, element type and shape.

    The best is the variant that was chosen for the class of the shape. Without times, on the emulator, nothing is best.
    """
    found, needed = [], ["status", "spill_bytes", "registered", "chosen", "gflops", "time_ms"]
    rows = with_words(evidence.facts["tune"], evidence)[[*CASE, "shape", "shape_class", "choice", *needed]]
    for _, case in rows.groupby(CASE, sort=False):
        ran, chosen = case[case["status"] == Status.OK], case[case["chosen"]]
        first = (chosen if len(chosen) else case).iloc[0]
        row = {name: first[name] for name in [*CASE, "shape", "shape_class"]}
        row |= {"variants": len(case), "failed": len(case) - len(ran), "spilled": (ran["spill_bytes"] > 0).sum()}
        if len(chosen):
            row |= {name: first[name] for name in ("choice", "time_ms", "gflops")}
            row["within_percent"] = (ran["gflops"] >= AS_GOOD * case["gflops"].max()).sum()
        found.append(row | {"registry_gflops": ran.loc[ran["registered"], "gflops"].max()})
    names = ["shape", "shape_class", "variants", "failed", "spilled", "within_percent", "choice", "time_ms", "gflops"]
    table = columns.set_types(pd.DataFrame(found, columns=[*CASE, *names, "registry_gflops"]))
    table = table.assign(gain_percent=100 * (table["gflops"] / table["registry_gflops"] - 1))
    return beside_anchor(table, evidence.gpu, evidence)
