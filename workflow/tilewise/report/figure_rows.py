"""Prepare the rows of figures: which rows of a table a figure shows, and the further columns that it needs."""

import textwrap
from collections.abc import Callable
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
#: A figure of so many kernels at most has a row for each product instead.
_FEW_KERNELS = 4
#: A name has a line break after at most so many letters.
_LETTERS = 48
#: The four kinds of instructions -> columns of instructions.csv.
MIX = {
    "multiply-adds": ["multiply_add_instructions"],
    "shared memory": ["shared_loads_128", "shared_loads_64", "shared_loads_32", "matrix_loads", "shared_stores"],
    "global memory": [
        *("global_loads_128", "global_loads_64", "global_loads_32", "async_copies", "tensor_copies"),
        *("global_stores", "spills"),
    ],
    "addresses, moves, waiting and others": "integer arithmetic moves synchronisation control other".split(),
}


# ---- For all figures -------------------------------------------------------------------------------------------------
def described(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Rows with the further columns that all figures have.

    `said` is the tooltip of a row: its kernel, choice, type, product and rate, as far as it has them. A platform
    has the name of its `machine`. With rates come `tflops`, and `rate` in `rate_unit`, which is GFLOP/s for CPU loops
    and TFLOP/s otherwise. The categories of `shape` begin with the smallest product.
    """
    named = rows[[name for name in ("kernel", "choice", "dtype", "shape") if name in rows]].astype("object").fillna("")
    said = [", ".join(filter(None, row)) for row in named.to_numpy()]
    added: dict[str, Any] = {"machine": rows["platform"].map(evidence.labels)} if "platform" in rows else {}
    if "gflops" in rows:
        unit, large = ("TFLOP/s", 1000) if rows["gflops"].max() >= 100 else ("GFLOP/s", 1)  # no CPU loop is that fast
        added |= {"tflops": rows["gflops"] / 1000, "rate": rows["gflops"] / large, "rate_unit": unit}
        said = [f"{words}: {rounded(rate)} {unit}" for words, rate in zip(said, added["rate"].astype("float64"))]
    if {"shape", *SHAPE} <= {*rows}:
        added["shape"] = pd.Categorical(rows["shape"], by_size(rows))
    return rows.assign(**added, said=pd.Series(said, rows.index, dtype="object"))


def by_size(rows: pd.DataFrame) -> list[str]:
    """The shapes of rows as text, the smallest product first."""
    work = rows[SHAPE].astype("float64").prod(axis=1)
    return list(dict.fromkeys(rows["shape"].loc[work.sort_values(kind="stable").index]))


def _written(column: pd.Series, form: Callable[[Any], str] = rounded) -> pd.Series:
    """Numbers as words, also if there are none."""
    return pd.Series([form(number) for number in column], column.index, dtype="object")


def _titled(rows: pd.DataFrame, first: pd.Series | str, dashed: pd.Series | str, tflops: str) -> pd.DataFrame:
    """Rows with a `title`, which also says what the dashed line is, if the rate in that column is known."""
    second = (dashed + ", " + _written(rows[tflops]) + " TFLOP/s").where(rows[tflops] > 0, "")
    return rows.assign(title=(first + second).str.strip())


def _ranked(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """Rows with a `rank` for the largest of each kernel on each platform."""
    best = rows.sort_values(by, ascending=False).drop_duplicates(["platform", "kernel"])
    return rows.assign(rank=pd.Series(range(len(best)), index=best.index))


# ---- Of the whole study ----------------------------------------------------------------------------------------------
def climb(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Of the largest square products in float, each kernel that is faster than all before it in the registry's order,
    then the fastest that makes floats of short numbers; `idea` has the kernel in words, `library` its rate."""
    rows = timings.largest_square(rows[(rows["dtype"] == "float") & rows["gflops"].notna()])
    place = rows["kernel"].map({name: number for number, name in enumerate(evidence.kernels)})
    rows = rows.assign(short=timings.made_of_short(rows, evidence), place=place).sort_values(["short", "place"])
    own = rows[~rows["anchor"]]
    rates = own.groupby(["platform", "short"])["gflops"]
    kept = own[own["gflops"] == rates.transform("max").where(own["short"], rates.cummax())]
    words = (evidence.kernels[name].title.replace(" x ", " × ") for name in kept["kernel"])
    words = (title if len(title) < 35 else title.partition(",")[0] for title in words)  # two lines at most
    library = kept["platform"].map(rows[rows["anchor"]].groupby("platform")["tflops"].max())
    kept = kept.assign(idea=[textwrap.fill(title, 26) for title in words], library=library)
    return _titled(kept, "", "dash-dotted: cuBLAS", "library")


def peak(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The largest square products of a ladder, with the units that compute them and with floats of short numbers."""
    rows = timings.largest_square(rows)
    rows = rows[rows["n"] == rows["n"].max()]
    rows = rows.assign(short=timings.made_of_short(rows, evidence), peak_tflops=rows["peak_gflops"] / 1000)
    units = rows["dtype"].isin(ON_TENSOR_CORES).map({True: "tensor cores", False: "vector units"})
    first = rows["dtype"] + ", " + rows["shape"].astype("str")
    return _titled(rows, first, "\ndashed: the peak of the " + units, "peak_tflops")


def accuracy_and_rate(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The largest square products of our kernels and of libraries, with `group`, by which doubles have their own panel;
    libraries are named first, then the fastest and slowest of a type."""
    rows = timings.largest_square(rows)
    others = [name for name, kernel in evidence.kernels.items() if kernel.kind in LANGUAGES]
    rows = rows[~rows["kernel"].isin(others)]
    rows = rows[(rows["relative_error"] > 0) & (rows["gflops"] > 0)].sort_values("gflops", ascending=False)
    types = rows.groupby(["platform", "dtype"])
    middle = types.cumcount().ne(0) & types.cumcount(ascending=False).ne(0)
    first = rows.assign(own=~rows["anchor"], middle=middle).sort_values(["own", "middle"], kind="stable").index
    double, floats = (
        rows["dtype"] == "double",
        rows[rows["dtype"] == "float"].groupby("platform")["peak_gflops"].first(),
    )
    rows = rows.assign(
        rank=pd.Series(range(len(rows)), index=first),
        group=double.map({True: "double", False: "float and shorter numbers"}),
        float_peak=rows["platform"].map(floats).where(~double) / 1000,
        said=rows["said"] + ", error " + _written(rows["relative_error"]),
    )
    titles = rows["group"] + ", " + rows["shape"].astype("str")
    return _titled(rows, titles, "\ndashed: the peak of the float units", "float_peak").sort_index()


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
    table = described(timings.describe(rows[list(measured)], evidence), evidence).assign(intensity=rows["intensity"])
    table = table.assign(said=table["said"] + " at " + _written(rows["intensity"]) + " FLOP per byte")
    return _ranked(table, "gflops").sort_values("kernel", kind="stable")


def roofs(platform: str, evidence: Evidence) -> tuple[dict[str, float], float]:
    """The roofs of a GPU for floats: the memory's and the caches' in TB/s, and the peak in TFLOP/s, 0 if not known."""
    gpu = next(gpu.device.gpu for gpu in evidence.gpus if gpu.name == platform)
    measured = {name: speed for (name, dtype), speed in evidence.roofs(platform).items() if dtype == "float"}
    speeds = {"memory": measured.get("memory_bandwidth", gpu["memory_bandwidth_gb_s"])}
    speeds |= {f"L{n}": measured[f"l{n}_bandwidth"] for n in (2, 1) if f"l{n}_bandwidth" in measured}
    peak = (gpu["peak_gflops"] or {}).get("float") or 0
    return {name: speed / 1000 for name, speed in speeds.items()}, peak / 1000


def beside_limits(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Rungs with their ceilings and the limits of their chip in TFLOP/s; LIMIT_words says what a limit is."""
    slower = (rows["gain"] < 1) & ~rows["as_fast"].fillna(False).astype(bool)
    titles = rows["dtype"] + ", " + rows["shape"].astype("str")
    rows, found = rows.assign(ceiling=rows["ceiling_gflops"] / 1000, slower=slower, title=titles), []
    for (platform, dtype), part in rows.groupby(["platform", "dtype"], sort=False):
        gpu = next(gpu.device.gpu for gpu in evidence.gpus if gpu.name == platform)
        roofs, own = evidence.roofs(platform), part[~part["anchor"]]
        mma = own["multiply_add"].fillna("").str.contains("MMA").any()
        units = " on the vector units" if mma else ""
        limits: dict[str, tuple[float | None, str]] = {
            "library": (part.loc[part["anchor"], "gflops"].max(), "cuBLAS"),
            "alone": (roofs.get(("multiply_add_rate", dtype)), f"multiply-adds alone{units}, measured"),
            "tensor": (roofs.get(("tensor_rate", dtype)) if mma else None, "tensor cores alone, measured"),
            "peak": ((gpu["peak_gflops"] or {}).get(dtype), f"peak at {gpu['sm_clock_mhz']:,} MHz{units}"),
        }
        for name, (rate, words) in limits.items():
            own = own.assign(**{name: np.nan if rate is None else rate / 1000, f"{name}_words": words})
        # Five kinds of lines and marks would be too many for a legend; the caption tells of the mark.
        found.append(own.assign(ceiling_words="" if mma else "ceiling of its instructions"))
    return pd.concat(found) if found else rows


def instructions(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Loops with the kinds of their instructions in percent, by the units that compute, CUDA cores first."""
    rows = rows[rows["instructions"].notna()]
    whole = rows["instructions"]
    shares = {name: (100 * rows[own].sum(axis=1) / whole).astype("float64") for name, own in MIX.items()}
    units = np.where(rows["multiply_add"].str.contains("MMA"), "on the tensor cores", "on the CUDA cores")
    # An instance that nothing timed, such as that of a batched kernel, is of no platform.
    where = "" if rows["platform"].nunique() < 2 else (", " + rows["platform"]).fillna("")
    rows = rows.assign(units=units, name=rows["kernel"] + ", " + rows["dtype"] + where, **shares)
    return rows.sort_values(["units", "multiply_add_share"], kind="stable")


def cache_lines(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Loops that were both timed and counted; the slowest point of each kernel is named."""
    lines, time = rows["l1_lines_per_multiply_add"], rows["ns_per_multiply_add"]
    rows = rows.assign(said=rows["said"] + ": " + _written(time) + " ns, " + _written(lines) + " lines")
    rows = _ranked(rows[lines.notna() & time.notna()], "ns_per_multiply_add")
    return rows.sort_values("kernel", kind="stable")


# ---- Of tasks and of the page ----------------------------------------------------------------------------------------
def ranked(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The variants that ran."""
    rows = rows[rows["rank"].notna()]
    return rows.assign(title=rows["kernel"] + ", " + rows["dtype"])


def accuracy(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Errors as multiples of SGEMM's, a row per measure; `area` is that of a mark, the larger the longer the sum."""
    kernels = list(dict.fromkeys(rows.loc[rows["relative_error"].notna(), "kernel"]))
    measures = {"relative_error": "Frobenius norm", "worst_error": "worst element"}
    rows = rows.assign(operands=pd.Categorical(rows["operands"], list(dict.fromkeys(rows["operands"]))))
    found = [
        part[part["kernel"] == kernel].assign(title=f"{kernel}\n{words}", ratio=part[name] / part[f"sgemm_{name}"])
        for _, part in rows.groupby("platform", sort=False)
        for name, words in measures.items()
        for kernel in kernels
    ]
    rows = pd.concat(found) if found else rows.iloc[:0].assign(ratio=0.0)
    about = rows["kernel"] + ", " + rows["operands"].astype("str") + ", p = " + _written(rows["p"], "{:,}".format)
    return rows.assign(area=areas(rows["p"]), said=about + ": " + _written(rows["ratio"]) + " times SGEMM's")


def areas(sizes: pd.Series) -> pd.Series:
    """The area of a mark for each of these sizes in square points, from the smallest to the largest."""
    places = sizes.rank(method="dense") - 1
    most = places.max() if places.notna().any() else 0
    return 22 * (90 / 22) ** (places / most) if most else places + 42


def gauge(evidence: Evidence) -> pd.DataFrame:
    """The largest product of the source and of each machine: n in theory, n allocated, and every n that was timed."""
    source = evidence.published.set_index("quantity")["value"]
    most, allocated = source["theoretical_n"], source["allocatable_n"]
    entries: list[tuple] = [("RTX 2080 Ti, published", most, allocated, [allocated])]
    probes = evidence.facts["maximum_size"]
    probes = probes[probes["platform"].isin([gpu.name for gpu in evidence.gpus])]
    several = probes.groupby("platform")["kernel"].nunique().gt(1).any()
    for (platform, kernel), own in probes.groupby(["platform", "kernel"], sort=False):
        label = evidence.labels[platform].replace(", recorded", "\nrecorded")
        who, last = f"{kernel}\n{label}" if several else label, own.iloc[-1]
        entries.append((who, last["theoretical_n"], last["allocatable_n"], list(own["timed_n"].dropna())))
    return pd.DataFrame(entries, columns=["who", "in theory", "allocated", "timed"])


def cold_start(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Calls with their `name`, the times of their four parts, and the steps of a part as its tooltip."""
    parts = {"context": ["context_ms"], "copies": ["copy_in_ms", "copy_out_ms"], "kernel": ["kernel_ms"]}
    named = {"total_ms", *(step for steps in parts.values() for step in steps)}
    parts["everything else"] = [step for step in tables.steps(evidence) if step not in named]
    name = rows["kernel"] + ", call " + rows["position"].astype("str") + " of\n" + rows["order"]
    made: dict[str, Any] = {"name": name}
    for part, steps in parts.items():
        took = rows[[step for step in steps if step in rows]].astype("float64")
        made[f"{part}: said"] = [
            ", ".join(f"{step.removesuffix('_ms').replace('_', ' ')} {ms:.3g} ms" for step, ms in row.dropna().items())
            for _, row in took.iterrows()
        ]
        made[part] = took.sum(axis=1)
    return rows.drop(columns="kernel").assign(**made)


def bandwidth(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Roofs that were measured, those of a `name` together; `title` is the machine if there is no other."""
    rows = rows[rows["percent_of_computed"].notna() & ~rows["quantity"].str.startswith("ceiling")]
    name = rows["quantity"].str.replace("_", " ") + ", " + rows["dtype"]
    rows = rows.assign(title=rows["machine"] if rows["platform"].nunique() == 1 else "")
    return rows.assign(name=pd.Categorical(name, name.unique())).sort_values("name", kind="stable")


def calls(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Calls that were timed."""
    rows = rows.dropna(subset="times_as_fast")
    times = _written(rows["times_as_fast"]) + " times as fast as cupy.matmul"
    return rows.assign(
        said=rows["dtype"] + ", n = " + _written(rows["n"], "{:,}".format) + ", by " + rows["kernel"] + ": " + times
    )


def squares(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Square products by their size, with the `roof` of their units and that of a `launch` in TFLOP/s, if known."""
    rows = rows[(rows["n"] == rows["p"]) & (rows["n"] == rows["m"])].sort_values("n", kind="stable")
    limits = {name: rows.get(f"{name}_gflops", pd.Series(np.nan, rows.index)) / 1000 for name in ("roof", "launch")}
    return rows.assign(**limits)


def shape_map(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Products of the same `c`, in words, with several sums: the rate as a multiple of the library's."""
    several = rows.groupby(["platform", "dtype", "n", "m"])["p"].transform("nunique") > 1
    oblong = rows["n"] != rows["m"]
    rows = rows[several & rows["friendly"] & rows["dtype"].isin(rows.loc[oblong, "dtype"])]
    rows = rows.sort_values(["n", "m"], key=lambda sizes: sizes.astype("float64"), kind="stable")
    words, titles = (
        [f"{n} × {m}" for n, m in zip(rows["n"], rows["m"])],
        rows["dtype"] + ": times as fast as the library",
    )
    c = pd.Categorical(words, list(dict.fromkeys(words)))
    return rows.assign(ratio=rows["percent_of_anchor"] / 100, c=c, title=titles)


def points(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Described points of a sweep; `label` is their row: kernel and choice, of very many choices only the fastest.

    If there are few kernels with one choice each, the product is; such labels are categories, and `named` has the
    choice. `area` is that of a mark, the larger the larger the product. A point without a rate has its status in its
    label.
    """
    case = rows.groupby(["platform", "dtype", "kernel", *SHAPE])
    asked = {"block": "block_x"} | {name: name for name in evidence.parameters}
    told = {name: set(rows.loc[case[column].transform("nunique") > 1, "kernel"]) for name, column in asked.items()}
    kernels, words = rows[["kernel", *evidence.choice]].drop_duplicates()["kernel"], []
    few = len(kernels) <= _FEW_KERNELS and kernels.is_unique
    for row in rows.to_dict("records"):  # those parameters only that tell rows of the same case apart
        without = [name for name, kernels in told.items() if row["kernel"] not in kernels]
        name = f"{row['kernel']} {choice_text(row, evidence.kernels, without=without)}".strip()
        label, cause = (row["shape"], f": {row['kernel']} {row['status']}") if few else (name, f": {row['status']}")
        words.append(textwrap.fill(label + cause * (row["status"] != Status.OK), _LETTERS))
    places = {shape: place for place, shape in enumerate(by_size(rows))}
    rows, found = rows.assign(label=words, area=areas(rows["shape"].map(places))), []
    for (_, dtype), part in rows.groupby(["platform", "dtype"], sort=False):
        best = part.groupby("label", sort=False)["gflops"].max()
        many = f", the fastest {_MOST_NAMES} of {len(best)}" if len(best) > _MOST_NAMES else ""
        kept = part[part["label"].isin(best.nlargest(_MOST_NAMES).index)] if many else part
        found.append(kept.assign(title=f"{dtype}{many}"))
    rows = described(pd.concat(found), evidence)
    if few:
        named, labels = (rows["kernel"] + " " + rows["choice"]).str.strip(), by_size(rows.assign(shape=rows["label"]))
        rows = rows.assign(named=named, label=pd.Categorical(rows["label"], labels))
    return rows
