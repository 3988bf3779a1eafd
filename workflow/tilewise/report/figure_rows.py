"""Prepare the rows of figures: a table, with the further columns that an entry of figures.yaml names."""

import itertools
import re
import string
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain import timings, traffic
from tilewise.explain.bottleneck import ON_TENSOR_CORES
from tilewise.explain.number_format import rounded
from tilewise.report import tables
from tilewise.report.tables import choice_text
from tilewise.study.columns import SHAPE
from tilewise.study.kernel import LANGUAGES
from tilewise.study.status import Status

#: A figure of points has so many names at most; more cannot be told apart.
_MOST_NAMES = 40
#: A name has a line break after at most so many letters.
_LETTERS = 48
#: The four kinds of instructions -> columns of instructions.csv.
_MIX = {
    "adds": ["multiply_add_instructions"],
    "shared": ["shared_loads_128", "shared_loads_64", "shared_loads_32", "matrix_loads", "shared_stores"],
    "elsewhere": [
        *("global_loads_128", "global_loads_64", "global_loads_32", "async_copies", "tensor_copies"),
        *("global_stores", "spills"),
    ],
    "others": ["integer", "arithmetic", "moves", "synchronisation", "control", "other"],
}


class _Words(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        ours = {
            "?": lambda _: "",
            "three": rounded,
            "percent": lambda share: rounded(share, "%"),
            "words": lambda name: name.replace("_", " "),
        }
        return ours[format_spec](value) if format_spec in ours else format(value, format_spec)


def fill(template: str, row: Mapping[str, Any]) -> str:
    """A template filled in from a row; a part in [brackets] is left out if one of its values is missing.

    `{rate:three}` has three digits, `{share:percent}` those of a percentage, `{name:words}` has blanks for underscores,
    and `{rate:?}` is empty: it only asks whether there is such a value.
    """

    def kept(part: re.Match[str]) -> str:
        names = [name for _, name, *_ in string.Formatter().parse(part[1]) if name]
        return "" if any(pd.isna(row[name]) for name in names) else part[1]

    return _Words().vformat(re.sub(r"\[([^]]*)\]", kept, template), (), row)


def fill_rows(template: str, rows: pd.DataFrame) -> list[str]:
    """A template filled in from each row."""
    named = {name for _, name, *_ in string.Formatter().parse(re.sub(r"[][]", "", template)) if name}
    return [fill(template, row) for row in rows[[name for name in rows if name in named]].to_dict("records")]


def by_size(rows: pd.DataFrame) -> list[str]:
    """The shapes of rows as text, the smallest product first."""
    work = rows[SHAPE].astype("float64").prod(axis=1)
    return list(dict.fromkeys(rows["shape"].loc[work.sort_values(kind="stable").index]))


def described(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Rows with the further columns that figures.yaml grants to all."""
    added: dict[str, Any] = {}
    if "platform" in rows:
        added["machine"] = rows["platform"].map(evidence.labels)
        added["folded"] = rows["platform"].isin(evidence.folded)
    if "gflops" in rows:
        added["tflops"] = rows["gflops"] / 1000
        large = rows["gflops"].max() >= 100  # no CPU loop is that fast
        added |= {"rate": added["tflops"] if large else rows["gflops"], "rate_unit": "TFLOP/s" if large else "GFLOP/s"}
    if "peak_gflops" in rows:
        added |= {"peak_tflops": rows["peak_gflops"] / 1000, "of_peak": rows["gflops"] / rows["peak_gflops"]}
    if {"shape", *SHAPE} <= {*rows}:
        added["shape"] = pd.Categorical(rows["shape"], by_size(rows))
    return rows.assign(**added)


def _ranked(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """Rows with a `rank` for the largest of each kernel on each platform."""
    best = rows.sort_values(by, ascending=False).drop_duplicates(["platform", "kernel"])
    return rows.assign(rank=pd.Series(range(len(best)), index=best.index))


def overhead(evidence: Evidence) -> pd.DataFrame:
    """The isolated time of an empty kernel on each machine."""
    return evidence.facts["overhead"]


def largest_square(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Of a ladder the largest square products, the units that compute them, and floats of short numbers."""
    rows = timings.largest_square(rows)
    units = ["tensor cores" if dtype in ON_TENSOR_CORES else "vector units" for dtype in rows["dtype"]]
    return rows.assign(units=units, short=timings.made_of_short(rows, evidence))


def climb(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Of the largest square products in float, each kernel that is faster than all before it in the registry's order,
    then the fastest that makes floats of short numbers; `idea` has the kernel in words, `library` its rate."""
    rows = largest_square(rows[(rows["dtype"] == "float") & rows["gflops"].notna()], evidence)
    rows = in_order(rows, evidence).sort_values(["short", "kernel"], kind="stable")
    own = rows[~rows["anchor"]]
    rates = own.groupby(["platform", "short"])["gflops"]
    kept = own[own["gflops"] == rates.transform("max").where(own["short"], rates.cummax())]
    titles = (evidence.kernels[name].title.replace(" x ", " × ") for name in kept["kernel"].astype("str"))
    titles = (title if len(title) < 35 else title.partition(",")[0] for title in titles)  # two lines at most
    libraries = rows[rows["anchor"]].groupby("platform")["tflops"].max()
    return kept.assign(idea=[textwrap.fill(title, 26) for title in titles], library=kept["platform"].map(libraries))


def last_rungs(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The four fastest float kernels of the CUDA cores and the libraries, at each shape that two of the four have."""
    rows = rows[(rows["dtype"] == "float") & rows["gflops"].notna() & ~timings.made_of_short(rows, evidence)]
    first = rows[~rows["anchor"]].groupby("kernel")["gflops"].max().nlargest(4).index
    rows = rows[rows["anchor"] | rows["kernel"].isin(first)]
    several = rows.groupby(["platform", *SHAPE])["kernel"].transform("nunique") > 2
    return in_order(rows[several], evidence).sort_values([*SHAPE, "kernel"], kind="stable")


def accuracy_and_rate(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The largest square products of our kernels and of libraries, with `group`, by which doubles have their own panel;
    libraries are named first, then the fastest and slowest of a type."""
    rows = timings.largest_square(rows)
    others = [name for name, kernel in evidence.kernels.items() if kernel.kind in LANGUAGES]
    rows = rows[~rows["kernel"].isin(others)]
    rows = rows[(rows["relative_error"] > 0) & (rows["gflops"] > 0)].sort_values("gflops", ascending=False)
    types = rows.groupby(["platform", "dtype"])
    middle = types.cumcount().ne(0) & types.cumcount(ascending=False).ne(0)
    ranked = rows.assign(own=~rows["anchor"], middle=middle).sort_values(["own", "middle"], kind="stable")
    floats = rows[rows["dtype"] == "float"].groupby("platform")["peak_tflops"].first()
    rank = pd.Series(range(len(rows)), index=ranked.index)
    group = (rows["dtype"] == "double").map({True: "double", False: "float and shorter numbers"})
    peaks = rows["platform"].map(floats).where(rows["dtype"] != "double")
    return rows.assign(rank=rank, group=group, float_peak=peaks).sort_index()


def in_order(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Kernels in the registry's order, the libraries last."""
    order = {name: place for place, name in enumerate(evidence.kernels)}
    names = sorted(rows["kernel"].unique(), key=lambda name: (name in evidence.libraries, order.get(name, len(order))))
    return rows.assign(kernel=pd.Categorical(rows["kernel"], names))


def cache_lines(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Loops that were both timed and counted; the slowest point of each kernel is named."""
    return _ranked(rows.dropna(subset=["l1_lines_per_multiply_add", "ns_per_multiply_add"]), "ns_per_multiply_add")


def cold_start(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Calls with the times of their four parts, and the steps of a part as text."""
    parts = {"context": ["context_ms"], "copies": ["copy_in_ms", "copy_out_ms"], "launch": ["kernel_ms"]}
    named = {"total_ms", *itertools.chain(*parts.values())}
    parts["rest"] = [name for name in tables.steps(evidence) if name not in named]
    for part, names in parts.items():
        own = {name: name.removesuffix("_ms").replace("_", " ") for name in names if name in rows}
        words = ", ".join(f"{step} {{{name}:.3g}} ms" for name, step in own.items())
        took = rows[list(own)].fillna(0).sum(axis=1)
        rows = rows.assign(**{part: took, f"{part}_words": fill_rows(words, rows)})
    return rows


def shape_map(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Products of the same C with several sums: the rate as a multiple of the library's, and the shape of C as text."""
    several = rows.groupby(["platform", "dtype", "n", "m"])["p"].transform("nunique") > 1
    oblong = rows["n"] != rows["m"]
    rows = rows[several & rows["friendly"] & rows["dtype"].isin(rows.loc[oblong, "dtype"])]
    rows = rows.sort_values(["n", "m"], key=lambda sizes: sizes.astype("float64"), kind="stable")
    words = [f"{n} × {m}" for n, m in zip(rows["n"], rows["m"])]
    return rows.assign(ratio=rows["percent_of_anchor"] / 100, product=pd.Categorical(words, list(dict.fromkeys(words))))


def platforms(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The float kernels at the largest square product that all machines have; without rows if there is one machine."""
    rows = timings.cubes(rows[(rows["dtype"] == "float") & (rows["status"] == Status.OK)])
    shared = rows.groupby("n")["platform"].nunique()
    rows = rows[rows["n"] == shared[shared == rows["platform"].nunique()].index.max()]
    return in_order(rows if rows["platform"].nunique() > 1 else rows.iloc[:0], evidence)


def bandwidth(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Roofs that were measured; `alone` is the machine if there is no other."""
    rows = rows[rows["percent_of_computed"].notna() & ~rows["quantity"].str.startswith("ceiling")]
    return rows.assign(alone=rows["machine"] if rows["platform"].nunique() == 1 else None)


def accuracy(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Errors as multiples of SGEMM's, a row per measure."""
    kernels = list(dict.fromkeys(rows.loc[rows["relative_error"].notna(), "kernel"]))
    measures = {"relative_error": "Frobenius norm", "worst_error": "worst element"}
    rows = rows.assign(operands=pd.Categorical(rows["operands"], list(dict.fromkeys(rows["operands"]))))
    found = [
        part[part["kernel"] == kernel].assign(measure=words, ratio=part[name] / part[f"sgemm_{name}"])
        for _, part in rows.groupby("platform", sort=False)
        for name, words in measures.items()
        for kernel in kernels
    ]
    return pd.concat(found) if found else rows.iloc[:0]


def instructions(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Loops with the kinds of their instructions in percent, by the units that compute, CUDA cores first."""
    rows = rows[rows["instructions"].notna()]
    whole = rows["instructions"]
    shares = {name: (100 * rows[own].sum(axis=1) / whole).astype("float64") for name, own in _MIX.items()}
    units = np.where(rows["multiply_add"].str.contains("MMA"), "on the tensor cores", "on the CUDA cores")
    # An instance that nothing timed, such as that of a batched kernel, is of no platform.
    where = "" if rows["platform"].nunique() < 2 else (", " + rows["platform"]).fillna("")
    rows = rows.assign(units=units, where=where, **shares)
    return rows.sort_values(["units", "multiply_add_share"], kind="stable")


def beside_limits(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Rungs with their ceilings, and the limits of their chip, in TFLOP/s."""
    rows = rows.assign(
        ceiling=rows["ceiling_gflops"] / 1000, slower=(rows["gain"] < 1) & ~rows["as_fast"].fillna(False).astype(bool)
    )
    groups = list(rows.groupby(["platform", "dtype"], sort=False))
    found = []
    for (platform, dtype), part in groups:
        gpu = next(gpu.device.gpu for gpu in evidence.gpus if gpu.name == platform)
        roofs = evidence.roofs(platform)
        mma = part.loc[~part["anchor"], "multiply_add"].fillna("").str.contains("MMA").any()
        limits = {
            "library": part.loc[part["anchor"], "gflops"].max(),
            "alone": roofs.get(("multiply_add_rate", dtype)),
            "tensor": roofs.get(("tensor_rate", dtype)) if mma else None,
            "peak": (gpu["peak_gflops"] or {}).get(dtype),
        }
        limits = {name: np.nan if rate is None else rate / 1000 for name, rate in limits.items()}
        words = {"units": " on the vector units" if mma else "", "only": "" if len(groups) == 1 else None}
        # Five kinds of lines and marks would be too many for a legend; the caption tells of the mark.
        words |= {"ceiling_words": "" if mma else "ceiling of its instructions", "clock": gpu["sm_clock_mhz"]}
        found.append(part[~part["anchor"]].assign(**limits, **words))
    return pd.concat(found) if found else rows


def rates(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Points with kernel and choice as `label`; the choices of one kernel are filled, hollow and pale."""
    label = [f"{kernel} {choice}".strip() for kernel, choice in zip(rows["kernel"], rows["choice"])]
    cause = [f"{row.kernel}: {row.status}" if row.status != Status.OK else "" for row in rows.itertuples()]
    rows = rows.assign(label=label, cause=cause)
    fills: dict[str, float] = {}
    for _, own in rows.groupby("kernel", sort=False):
        fills |= dict(zip(own["label"].unique(), itertools.chain([1.0], itertools.cycle([0.0, 0.4]))))
    rows = rows.assign(fill=rows["label"].map(fills))
    return rows[rows.groupby(["platform", "dtype"])["gflops"].transform("count") > 0]


def points(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Points with kernel and choice as `label`, of very many choices only the fastest."""
    case = rows.groupby(["platform", "dtype", "kernel", *SHAPE])
    asked = {"block": "block_x"} | {name: name for name in evidence.parameters}
    told = {name: set(rows.loc[case[column].transform("nunique") > 1, "kernel"]) for name, column in asked.items()}
    words = []
    for row in rows.to_dict("records"):  # those parameters only that tell rows of the same case apart
        without = [name for name, kernels in told.items() if row["kernel"] not in kernels]
        label = f"{row['kernel']} {choice_text(row, evidence.kernels, without=without)}".strip()
        words.append(textwrap.fill(label, _LETTERS))
    rows, found = rows.assign(label=words), []
    for _, part in rows.groupby(["platform", "dtype"], sort=False):
        best = part.groupby("label", sort=False)["gflops"].max()
        many = f", the fastest {_MOST_NAMES} of {len(best)}" if len(best) > _MOST_NAMES else ""
        kept = part[part["label"].isin(best.nlargest(_MOST_NAMES).index)] if many else part
        found.append(kept.assign(many=many))
    return pd.concat(found)


def gauge(evidence: Evidence) -> pd.DataFrame:
    """The largest product of the source and of each machine: n in theory, n allocated, and every n that was timed."""
    source = evidence.published.set_index("quantity")["value"]
    entry = {name: source[name] for name in ("theoretical_n", "allocatable_n")}
    entries = [entry | {"who": "RTX 2080 Ti, published", "timed_n": [entry["allocatable_n"]]}]
    probes = evidence.facts["maximum_size"]
    probes = probes[probes["platform"].isin([gpu.name for gpu in evidence.gpus])]
    several = probes.groupby("platform")["kernel"].nunique().gt(1).any()
    for (platform, kernel), own in probes.groupby(["platform", "kernel"], sort=False):
        label = evidence.labels[platform].replace(", recorded", "\nrecorded")
        who = f"{kernel}\n{label}" if several else label
        entries.append(own.iloc[-1].to_dict() | {"who": who, "timed_n": list(own["timed_n"].dropna())})
    rows = pd.DataFrame(entries, columns=["who", "theoretical_n", "allocatable_n", "timed_n"])
    return rows.assign(share=rows["allocatable_n"] / rows["theoretical_n"])


def roofline(counted: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The fastest timed float product of each counted kernel, and its FLOP per byte."""
    keys = ["kernel", "dtype", *evidence.choice]
    measured = timings.timed_rows(evidence.gpu)
    sizes = {"p": "counted_p", "padded_multiply_adds": "counted_multiply_adds"}
    counted = counted.rename(columns=sizes)[[*keys, *sizes.values(), *traffic.MOVED]]
    rows = measured.merge(counted, on=keys)
    rows = rows[rows[traffic.MOVED].notna().all(axis=1)]
    rows["intensity"] = [traffic.intensity(row) for row in rows.to_dict("records")]
    rows = rows[(rows["dtype"] == "float") & (rows["intensity"] > 0)]
    rows = timings.fastest_first(rows).drop_duplicates(timings.CASE).sort_values("gflops")
    rows = rows.drop_duplicates(["platform", "kernel"], keep="last")
    # Columns that are not those of a measurement would be taken for parameters.
    table = timings.describe(rows[list(measured)], evidence).assign(intensity=rows["intensity"])
    table = table.assign(tflops=table["gflops"] / 1000)
    return _ranked(table, "gflops").sort_values("kernel", kind="stable")
