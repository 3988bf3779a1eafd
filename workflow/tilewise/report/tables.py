"""The tables of the report: functions from measured and published figures to a table. They read and write no files.

Times are in ms and are medians of isolated runs; rates are in GFLOP/s; `ratio` is the published time divided by the
measured time. A row that did not run keeps its place, with its status. Shapes are shown as source a writes them:
(n, m, p), where C is n x m.
"""

import pandas as pd

from tilewise.build import build
from tilewise.count.cache_lines import KEYS as CACHE_KEYS
from tilewise.count.counters import METRICS
from tilewise.measure.methods.cold_start import STEPS
from tilewise.report import claims
from tilewise.report.data import ANCHORS, CHOICE, SHAPE
from tilewise.study import registry
from tilewise.study.registry import DTYPES

_CASE = ["platform", "kernel", "dtype", *SHAPE]  # what a best block, tile or NTB is chosen for
_CHOSEN = ["kernel", "dtype", *CHOICE]  # the same kernel with the same choice, at any shape


def choice_text(row):
    """What the sweep chose for this row: `16 × 64` threads, `tile 32, NTB 7`; empty for a library or a loop."""
    parts = [f"{name} {row[key]}" for key, name in (("tile", "tile"), ("ntb", "NTB")) if pd.notna(row[key])]
    if not parts and pd.notna(row["block_x"]):
        parts = [f"{row['block_x']} × {row['block_y']}"]
    return ", ".join(parts)


def shape_text(row):
    """The shape as source a writes it: (n, m, p)."""
    return f"({row['n']}, {row['m']}, {row['p']})"


def _pair(x, y):
    return [f"({a}, {b})" if pd.notna(a) else "" for a, b in zip(x, y)]


def describe(rows, max_noise):
    """Rows of measurements.csv with the further columns that a reader needs.

    Adds shape, choice, block, grid (text), spread_percent (interquartile range divided by the median) and `unstable`:
    the standard deviation is above `max_noise`, a fraction of the mean.
    """
    return rows.assign(
        shape=[shape_text(row) for row in rows.to_dict("records")],
        choice=[choice_text(row) for row in rows.to_dict("records")],
        block=_pair(rows["block_x"], rows["block_y"]),
        grid=_pair(rows["grid_x"], rows["grid_y"]),
        # The quartiles of one sample are not a range.
        spread_percent=(100 * (rows["time_q3_ms"] - rows["time_q1_ms"]) / rows["time_ms"]).where(rows["samples"] > 1),
        unstable=rows["noise"] > max_noise,
    )


def best(rows):
    """The fastest row of each case (platform, kernel, dtype, shape), with its runner-up.

    Adds `points` ("5 of 6" ran), runner_up, gap_percent (how much slower the runner-up is) and `decided`: the quartile
    ranges of the two do not overlap, so the difference exceeds the spread. If nothing ran, the first row is taken.
    """
    found = []
    for _, case in rows.groupby(_CASE, sort=False, dropna=False):
        ran = case[case["status"] == "ok"].sort_values("time_ms", kind="stable").drop_duplicates(CHOICE)
        case = case.drop_duplicates(CHOICE)  # two tasks may have asked for the same point
        winner = (case if ran.empty else ran).iloc[0].to_dict()
        winner |= {"points": f"{len(ran)} of {len(case)}", "runner_up": "", "gap_percent": None, "decided": None}
        if len(ran) > 1:
            second = ran.iloc[1]
            winner["runner_up"] = choice_text(second)
            winner["gap_percent"] = 100 * (second["time_ms"] / winner["time_ms"] - 1)
            winner["decided"] = bool(winner["time_q3_ms"] < second["time_q1_ms"])
        found.append(winner)
    table = pd.DataFrame(found, columns=[*rows.columns, "points", "runner_up", "gap_percent", "decided"])
    types = {"gap_percent": "float64", "decided": "boolean", "runner_up": "str"}
    return table.astype(rows.dtypes.to_dict() | types)


def _published_times(published, keys, pick_best):
    times = published[(published["quantity"] == "time") & (published["unit"] == "ms")]
    if pick_best:
        times = times.sort_values("value", kind="stable").drop_duplicates(keys)
    return times.assign(
        published_block=_pair(times["block_x"], times["block_y"]),
        published_grid=_pair(times["grid_x"], times["grid_y"]),
        published_ms=times["value"],
    )[[*keys, "published_block", "published_grid", "published_ms"]]


def _beside_published(table, published, pick_best):
    keys = ["kernel", "dtype", *SHAPE, *([] if pick_best else CHOICE)]
    table = table.merge(_published_times(published, keys, pick_best), how="left", on=keys)
    return table.assign(ratio=table["published_ms"] / table["time_ms"])


def _beside_anchor(table, rows):
    """Adds `percent_of_anchor`: the rate as a percentage of cuBLAS's (on the CPU, of NumPy's) for the same product."""
    anchors = rows[rows["kernel"].isin(ANCHORS.values()) & (rows["status"] == "ok")]
    keys = ["platform", "dtype", *SHAPE]
    anchors = (
        anchors.sort_values("time_ms", kind="stable")
        .drop_duplicates(keys)
        .rename(columns={"time_ms": "anchor_ms"})[[*keys, "anchor_ms"]]
    )
    table = table.merge(anchors, how="left", on=keys)
    return table.assign(percent_of_anchor=100 * table["anchor_ms"] / table["time_ms"])


def _beside_cpu(table, cpu, published):
    """Adds the CPU loop of the same machine and of source a for the same product, and the speed-ups over them."""
    keys = ["platform", "dtype", *SHAPE]
    loop = cpu[cpu["kernel"] == "kij"].drop_duplicates(keys)
    loop = loop.rename(columns={"time_ms": "cpu_ms", "status": "cpu_status"})[[*keys, "cpu_ms", "cpu_status"]]
    source = published[(published["kernel"] == "kij") & (published["quantity"] == "time")]
    source = source.rename(columns={"value": "published_cpu_ms"})[[*keys[1:], "published_cpu_ms"]].drop_duplicates(
        keys[1:]
    )
    table = table.merge(loop, how="left", on=keys).merge(source, how="left", on=keys[1:])
    return table.assign(
        ratio_cpu=table["published_cpu_ms"] / table["cpu_ms"],
        speedup_over_cpu=table["cpu_ms"] / table["time_ms"],
        published_speedup_over_cpu=table["published_cpu_ms"] / table["published_ms"],
    )


def _beside_emulator(table, evidence):
    """Adds `emulator`: whether this run's emulator verified the same kernel with the same parameters."""
    emulated = _but_asked_refusals(evidence.emulated, evidence)
    if emulated.empty:
        return table
    worst = emulated.sort_values("status", key=lambda status: status == "ok", kind="stable").drop_duplicates(_CHOSEN)
    found = worst.rename(columns={"status": "emulator"})[[*_CHOSEN, "emulator"]]
    return table.merge(found, how="left", on=_CHOSEN)


def _by_shape(table):
    """Shapes in the order in which they first occur, the platforms of a shape together, the anchor last."""
    shapes = pd.factorize(table["n"].astype(str) + "," + table["m"].astype(str) + "," + table["p"].astype(str))[0]
    order = pd.DataFrame({"shape": shapes, "anchor": table["kernel"].isin(ANCHORS.values())}, index=table.index)
    return table.loc[order.sort_values(["shape", "anchor"], kind="stable").index].reset_index(drop=True)


def sweep(rows, evidence, published):
    """Every point, in the layout of Tables 2 and 5: beside it the time published for the same parameters.

    `best` marks the fastest row of each case.
    """
    rows = describe(rows, evidence.max_noise)
    cases = rows.groupby(_CASE, dropna=False)["time_ms"]
    rows = rows.assign(best=(rows["time_ms"] == cases.transform("min")) & (cases.transform("count") > 1))
    table = _beside_published(rows, published, pick_best=False)
    return _by_shape(_beside_emulator(_beside_anchor(table, rows), evidence))


def winners(rows, evidence, published):
    """The best of each case, in the layout of Tables 1 and 4: beside it the published best and the CPU loop."""
    table = _beside_published(best(describe(rows, evidence.max_noise)), published, pick_best=True)
    table = _beside_cpu(_beside_anchor(table, rows), evidence.cpu, published)
    return _by_shape(_beside_emulator(table, evidence))


def maximum_size(evidence, published):
    """Table 3: memory, sizes and time of the largest product, one row per quantity and platform.

    n is the number of rows of each of the three square float matrices. `share` rows are in percent. If the probe did
    not time something, its value is empty and the column `note` says why.
    """
    source = published[published["kernel"].isna() | (published["place"] == "Table 3") | (published["kernel"] == "")]
    known = dict(zip(source["quantity"], source["value"]))
    known["timed_n"] = published.loc[published["place"] == "Table 3", "n"].iloc[0]
    known["time"] = published.loc[published["place"] == "Table 3", "value"].iloc[0]
    rows = []
    for probe in evidence.facts["maximum_size"].to_dict("records"):
        emulated = probe["platform"] not in {gpu.name for gpu in evidence.gpus}
        within = probe["timed_n"] == probe["allocatable_n"]
        not_timed = "emulated: verified, not timed" if emulated else ""
        predicted = f"at n = {probe['allocatable_n']}; the budget is {probe['budget_s']:g} s"
        checked = probe["rows_checked"]
        verified = f"{checked} rows of C verified" if pd.notna(checked) else "it failed"
        entries = [
            ("memory, B", known["memory_total"], probe["memory_total_bytes"], ""),
            ("largest n in theory", known["theoretical_n"], probe["theoretical_n"], "three matrices in all the memory"),
            ("largest n allocated", known["allocatable_n"], probe["allocatable_n"], "found by bisection"),
            ("share of the theory, %", *(100 * n["allocatable_n"] / n["theoretical_n"] for n in (known, probe)), ""),
            ("predicted time, ms", None, probe["predicted_ms"], not_timed or predicted),
            (
                "n timed",
                known["timed_n"],
                probe["timed_n"],
                not_timed or ("" if within else "the largest in the budget"),
            ),
            ("time, ms", known["time"], probe["time_ms"], not_timed or verified),
            (
                "rate, GFLOP/s",
                *(2e-6 * r["timed_n"] ** 3 / r[t] for r, t in ((known, "time"), (probe, "time_ms"))),
                not_timed,
            ),
        ]
        for quantity, theirs, ours, note in entries:
            rows.append(
                {
                    "quantity": quantity,
                    "platform": probe["platform"],
                    "published": theirs,
                    "measured": ours,
                    "note": note,
                }
            )
    table = pd.DataFrame(rows, columns=["quantity", "platform", "published", "measured", "note"])
    table = table.astype({"published": "float64", "measured": "float64"})
    order = pd.factorize(table["quantity"])[0].argsort(kind="stable")
    real = table["platform"].isin([gpu.name for gpu in evidence.gpus])  # the emulated memory is a choice of the config
    alike = table["quantity"] != "time, ms"  # of products of different sizes
    ratio = (table["measured"] / table["published"]).where(real & alike)
    return table.assign(ratio=ratio).iloc[order].reset_index(drop=True)


def cold_start(evidence, published):
    """Source b's way to time: whole calls in a fresh process, in both orders; medians in ms by step, one row per call.

    alone_ms is the time of the kernel alone, warmed up, as every other task measures it.
    """
    calls = evidence.facts["cold_start"]
    calls = calls[calls["ms"].notna()].assign(step=lambda rows: rows["step"] + "_ms")
    key = ["platform", "order", "position", "kernel"]
    table = calls.pivot_table(index=key, columns="step", values="ms", aggfunc="median", sort=False).reset_index()
    steps = [f"{step}_ms" for step in STEPS if f"{step}_ms" in table]
    alone = evidence.gpu[evidence.gpu["task"] == "cold_start"].set_index(["platform", "kernel"])["time_ms"]
    source = published[(published["quantity"] == "call_time") & (published["place"] == "passing run")]
    source = source.set_index("kernel")["value"]
    in_order = table["order"] == "naive, tiled"
    return table[[*key, *steps]].assign(
        alone_ms=[alone.get(pair) for pair in zip(table["platform"], table["kernel"])],
        published_ms=table["kernel"].map(source).where(in_order),
    )


def launch_limits(evidence, published):
    """Which launches ran and which were refused, with the error's name and the percentage of the device's limit."""
    limits = {platform.name: platform.device["limits"] for platform in evidence.everyone}
    rows = []
    for row in evidence.facts["launch_limits"].to_dict("records"):
        allowed = limits[row["platform"]]
        shared = allowed["shared_bytes_per_block_optin" if row["limit_raised"] is True else "shared_bytes_per_block"]
        most = max(row["threads"] / allowed["max_threads_per_block"], row["shared_bytes"] / shared)
        rows.append(row | {"block": f"{row['block_x']} × {row['block_y']}", "percent_of_limit": 100 * most})
    return pd.DataFrame(rows, columns=[*evidence.facts["launch_limits"], "block", "percent_of_limit"])


def bandwidth(evidence, published):
    """The roofs of the device: memory bandwidth, multiply-add rates and what source d's intensities allow."""
    rows = evidence.facts["bandwidth"]
    return rows.assign(percent_of_datasheet=100 * rows["measured"] / rows["datasheet"])


def occupancy(evidence):
    """How many blocks and warps of each launch of the study a multiprocessor holds, and what limits them."""
    rows = evidence.facts["occupancy"]
    return rows.assign(
        choice=[choice_text(row) for row in rows.to_dict("records")], occupancy_percent=100 * rows["occupancy"]
    )


_OF_METHOD = {
    "maximum_size": maximum_size,
    "cold_start": cold_start,
    "launch_limits": launch_limits,
    "bandwidth": bandwidth,
}
#: The tasks whose table shows only the best of each case, as the source does, instead of every point.
_WINNERS = {"task1a", "task2a", "task2b"}


def task(name, evidence, published):
    """The table of a task: Table 1 is task1a, 2 task1b, 3 task1c, 4 task2a, 5 task3; other tasks show every point."""
    method = evidence.config["tasks"].get(name, {}).get("method", "sweep")
    if method != "sweep":
        return _OF_METHOD[method](evidence, published)
    own = evidence.of(name)
    timed = pd.concat([own.gpu, own.cpu], ignore_index=True)
    # If a kernel was timed nowhere, such as a new kernel on a machine without a GPU, the table can only show whether it
    # is right.
    timed_ones, verified_ones = (pd.MultiIndex.from_frame(part[_CHOSEN].astype(str)) for part in (timed, own.emulated))
    rows = pd.concat([timed, own.emulated[~verified_ones.isin(timed_ones)]], ignore_index=True)
    layout = winners if name in _WINNERS else sweep
    return layout(rows, evidence, published)


def largest(table):
    """The rows of the largest product."""
    work = table[SHAPE].astype("float64").prod(axis=1)
    return table[work == work.max()]


def choices(evidence, *tasks):
    """The best choice of every case in these tasks; kernels without a choice, such as cuBLAS, are left out."""
    rows = evidence.of(*tasks).gpu
    rows = best(describe(rows[rows["time_ms"].notna()], evidence.max_noise))
    return rows[rows["runner_up"].fillna("") != ""].reset_index(drop=True)


def ladder(evidence, published):
    """The best of every kernel for every product on every GPU, in all tasks: rate, percentage of peak, speed-ups.

    speedup_over_naive and speedup_over_cpu are ratios of times on the same machine. percent_of_peak refers to the
    vector peak of device.json; cuBLAS can exceed it for double if the GPU has FP64 tensor cores.
    """
    swept = [name for name, entry in evidence.config["tasks"].items() if entry.get("method") != "maximum_size"]
    table = winners(evidence.of(*swept).gpu, evidence, published)
    naive = table[(table["kernel"] == "naive") & (table["status"] == "ok")]
    keys = ["platform", "dtype", *SHAPE]
    naive = naive.rename(columns={"time_ms": "naive_ms"})[[*keys, "naive_ms"]]
    table = table.merge(naive, how="left", on=keys)
    peaks = {gpu.name: gpu.device["gpu"]["peak_gflops"] or {} for gpu in evidence.gpus}
    peak = pd.Series(
        [peaks[name].get(dtype) for name, dtype in zip(table["platform"], table["dtype"])], dtype="float64"
    )
    return table.assign(
        speedup_over_naive=table["naive_ms"] / table["time_ms"],
        peak_gflops=peak,
        percent_of_peak=100 * table["gflops"] / peak,
    )


def _points(evidence):
    """All points of all platforms, except launches whose refusal is what the task asks for."""
    return _but_asked_refusals(pd.concat([evidence.gpu, evidence.cpu, evidence.emulated], ignore_index=True), evidence)


def _but_asked_refusals(rows, evidence):
    tasks = {}
    for platform in evidence.everyone:
        tasks |= platform.device["config"]["tasks"]
    asked = [name for name, entry in tasks.items() if entry.get("method") == "launch_limits"]
    return rows[~(rows["task"].isin(asked) & (rows["status"] == "invalid_launch"))]


def failures(evidence):
    """Every point that is not ok, with its cause."""
    rows = _points(evidence)
    rows = describe(rows[rows["status"] != "ok"], evidence.max_noise)
    return rows[["platform", "task", "kernel", "dtype", "shape", "choice", "status", "message"]].reset_index(drop=True)


def verification(evidence):
    """How many points of each kernel and dtype are right, and the largest error relative to its rounding bound."""
    rows = _points(evidence)
    groups = rows.assign(verified=rows["status"] == "ok").groupby(["platform", "kernel", "dtype"], sort=False)
    return groups.agg(
        points=("status", "size"),
        verified=("verified", "sum"),
        largest_bound_ratio=("bound_ratio", "max"),
        largest_relative_error=("relative_error", "max"),
    ).reset_index()


def traffic(evidence):
    """The memory traffic of each kernel, counted by the emulator at its largest traced shape; faults at all shapes."""
    key, faults = _CHOSEN, ["races", "out_of_bounds"]
    rows = evidence.facts["traffic"].copy()
    rows["work"] = rows[SHAPE].astype("float64").prod(axis=1)
    rows[faults] = rows.groupby(key, dropna=False, sort=False)[faults].transform("sum")
    rows = rows.sort_values("work", kind="stable").drop_duplicates(key, keep="last").sort_index()
    described = rows.assign(
        shape=[shape_text(row) for row in rows.to_dict("records")],
        choice=[choice_text(row) for row in rows.to_dict("records")],
    )
    return described.drop(columns="work").reset_index(drop=True)


def cache_lines(evidence):
    """The time of each CPU loop beside the lines that it fetches into the first cache and from beyond the second.

    Times (in ns) and lines are per multiply-add; the lines come from a model (tilewise.count.cache_lines).
    """
    rows = describe(evidence.cpu[evidence.cpu["status"] == "ok"], evidence.max_noise)
    rows = rows.assign(element_bytes=[DTYPES[dtype][1].itemsize for dtype in rows["dtype"]])
    rows = rows.astype({"element_bytes": "Int64"}).merge(evidence.facts["cache_lines"], on=CACHE_KEYS)
    work = rows[SHAPE].astype("float64").prod(axis=1)
    rows = rows.assign(
        ns_per_multiply_add=1e6 * rows["time_ms"] / work,
        l1_lines_per_multiply_add=rows["l1_lines"] / rows["multiply_adds"],
        l2_lines_per_multiply_add=rows["l2_lines"] / rows["multiply_adds"],
    )
    rows = _by_shape(rows.assign(work=work))
    columns = ["platform", "kernel", "dtype", "shape", "choice", "work", "unstable", "spread_percent"]
    return rows[[*columns, *(name for name in rows if name.endswith("_per_multiply_add"))]]


def counted_against_hardware(evidence):
    """The emulator's and the hardware's counts of the same launch, one row per count.

    difference_percent is how much more the emulator counted than the hardware.
    """
    keys = ["kernel", "dtype", *SHAPE, *CHOICE]
    both = evidence.facts["traffic"].merge(evidence.facts["counters"], on=keys, suffixes=("_counted", "_hardware"))
    rows = []
    for row in both.to_dict("records"):
        for count in METRICS:
            counted, hardware = row[f"{count}_counted"], row[f"{count}_hardware"]
            if pd.isna(counted) or pd.isna(hardware):
                continue
            same = counted == hardware
            percent = 0.0 if same else 100 * (counted / hardware - 1) if hardware else None
            rows.append(
                {"kernel": row["kernel"], "dtype": row["dtype"], "shape": shape_text(row), "choice": choice_text(row)}
                | {"count": count, "counted": counted, "hardware": hardware, "difference_percent": percent}
            )
    columns = ["kernel", "dtype", "shape", "choice", "count", "counted", "hardware", "difference_percent"]
    return pd.DataFrame(rows, columns=columns)


def agreement(evidence):
    """How well the emulator's counts and the hardware's agree over the launches, for each kernel, type and count."""
    rows = counted_against_hardware(evidence)
    groups = rows.assign(equal=rows["counted"] == rows["hardware"]).groupby(["kernel", "dtype", "count"], sort=False)
    return groups.agg(
        launches=("equal", "size"), equal=("equal", "sum"), largest_difference_percent=("difference_percent", _largest)
    ).reset_index()


def _largest(percents):
    known = percents.dropna()
    return known.loc[known.abs().idxmax()] if len(known) else None


def provenance(evidence):
    """Where every number comes from: one row per fact, one column per platform."""
    return (
        pd.DataFrame({evidence.labels[platform.name]: _facts(platform) for platform in evidence.everyone})
        .rename_axis("fact")
        .reset_index()
    )


#: The tables of the whole study, in addition to those of its tasks: file name -> function of evidence and published.
OVERVIEW = {
    "claims": lambda evidence, published: claims.verdicts(claims.load(), evidence),
    "ladder": ladder,
    "choices": lambda evidence, published: choices(evidence, *evidence.config["tasks"]),
    "failures": lambda evidence, published: failures(evidence),
    "verification": lambda evidence, published: verification(evidence),
    "provenance": lambda evidence, published: provenance(evidence),
    "occupancy": lambda evidence, published: occupancy(evidence),
    "traffic": lambda evidence, published: traffic(evidence),
    "cache_lines": lambda evidence, published: cache_lines(evidence),
    "counted_against_hardware": lambda evidence, published: counted_against_hardware(evidence),
}


def _facts(platform):
    device = platform.device
    cpu, gpu = device["cpu"], device["gpu"]
    facts = {
        "platform": platform.name,
        "measured": f"{device['captured']}{', kept in the repository' if platform.recorded else ', this run'}",
        "GPU": "none: CUDA kernels ran on the CPU emulator and were not timed",
    }
    if gpu:
        peak = gpu["peak_gflops"] or {}
        facts |= {
            "GPU": f"{gpu['name']}, {gpu['sms']} SMs, compute capability {gpu['compute_capability']}",
            "clocks": f"SM {gpu['sm_clock_mhz']} MHz, memory {gpu['memory_clock_mhz']} MHz",
            "GPU memory": f"{gpu['memory_bytes'] / 2**30:.1f} GiB, {gpu['memory_bandwidth_gb_s']:.0f} GB/s",
            "L2 cache": f"{gpu['l2_bytes'] / 2**20:.0f} MiB",
            "peak, vector units": ", ".join(f"{name} {value / 1000:.1f} TFLOP/s" for name, value in peak.items()),
            "driver": str(gpu["driver"]),
        }
    facts["CPU"] = f"{cpu['name']}, {cpu['cores']} cores, {cpu['memory_gib']} GiB"
    facts["host compiler"] = str(device["host_compiler"])
    facts |= {name.replace("_", " "): str(version) for name, version in device["versions"].items() if version}
    if platform.recorded:
        edited = _edited(platform)
        facts["kernels"] = (
            f"edited since: {', '.join(edited)}" if edited else "as measured, by the hash of every source"
        )
    facts["commit"] = f"{device['commit'] or 'unknown'}{' with changes not committed' if device['dirty'] else ''}"
    return facts


def _edited(platform):
    """Names of the kernels whose source differs from the one that was measured on a platform."""
    kernels, edited = registry.load(), set()
    for row in platform.measurements.to_dict("records"):
        kernel = kernels.get(row["kernel"])
        if kernel and kernel.source:
            tile, ntb = (None if pd.isna(row[name]) else int(row[name]) for name in ("tile", "ntb"))
            instance = registry.instance(kernel, row["dtype"], tile, ntb)
            if build.source_sha256(kernel, instance, platform.device) != row["build_sha256"]:
                edited.add(row["kernel"])
    return sorted(edited)
