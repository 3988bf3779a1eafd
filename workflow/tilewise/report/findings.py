"""What the data says, in sentences: functions from evidence to Markdown, so that every sentence fits its numbers."""

import contextlib
import json
import math
import re
from collections.abc import Iterable

import pandas as pd

from tilewise.report import claims, notes, tables
from tilewise.report.data import Evidence, Platform
from tilewise.report.limits import HALF
from tilewise.report.notes import plain
from tilewise.study import columns
from tilewise.study.expressions import evaluate

_COUNTS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def _label(evidence, platform):
    return plain(evidence.labels[platform.name])


def origin(evidence: Evidence) -> str:
    """What was measured, where and when, as a block quote at the top of the page."""
    here = ", ".join(plain(platform.device["cpu"]["name"]) for platform in evidence.platforms if not platform.has_gpu)
    lines = []
    if here and not evidence.gpus:
        lines.append("**No GPU times.** This machine has no GPU, and the repository does not hold a recorded run.")
    elif here:
        source = " and ".join(_recorded(gpu) for gpu in evidence.gpus)
        lines.append(f"**The GPU times on this page were not measured on this machine**, which has no GPU: {source}.")
    for platform in evidence.platforms:
        if platform.has_gpu:
            lines.append(f"**Measured on {plain(platform.label)}**, {_when(platform)}, by this run.")
    if here:
        lines.append(
            f"Measured here ({here}): the CPU loop. Verified here: every CUDA kernel, on the CPU emulator, "
            "which does not measure times."
        )
    return "\n".join(f"> {line}\n>" for line in lines)


def _when(platform):
    return platform.device["captured"].replace("T", " ")[:16] + " UTC"


def _recorded(gpu):
    commits = dict.fromkeys(f"`{state.partition(' ')[0][:10]}`" for state in gpu.commits)
    said = (
        f"they were recorded on an {plain(gpu.device['gpu']['name'])} at {_when(gpu)} (`{gpu.name}`, "
        f"commit {' and '.join(commits)})"
    )
    cards = gpu.measurements["gpu_uuid"]
    cards = cards[cards != ""].dropna()
    others = (~cards.isin(gpu.device["gpu"].get("all_uuids", cards.unique()))).sum()
    if others:  # a run in parts
        said += (
            f"; {others:,} of its {len(cards):,} rows come from other cards, and `report/recorded/README.md` says when"
        )
    return said


def _count(number, noun):
    words = _COUNTS[number - 1] if 0 < number <= len(_COUNTS) else f"{number:,}"
    return f"{words} {noun}{'' if number == 1 else 's'}"


def _times(ratio):
    return f"{rounded(ratio)}×"


def rounded(value: float, digits: int = 2) -> str:
    """A number of the prose as a person says it: 0.4, 5.4, 54, 540, 54,300; 1.01 near 1, and a whole number whole."""
    size = abs(value)
    if not math.isfinite(value) or value == round(value):
        return f"{value:,.0f}"
    if size >= 1000:
        return f"{round(value, 2 - math.floor(math.log10(size))):,.0f}"
    if size >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits + (0.9 < size < 1.1)}g}"


def _ends(evidence, rungs, platform):
    """The float rungs of a platform: the textbook's kernel and the fastest; None if there are no two of them."""
    own = rungs[(rungs["platform"] == platform.name) & (rungs["dtype"] == "float") & ~rungs["anchor"]]
    if len(own) < 2 or "naive" not in set(own["kernel"]):
        return None
    return own[own["kernel"] == "naive"].iloc[0], own.loc[own["gflops"].idxmax()], own


def answer(evidence: Evidence, rungs: pd.DataFrame, ladder: pd.DataFrame) -> str:
    """The answer to the page's title in one sentence per GPU: from the textbook's kernel to the fastest, in float.

    `rungs` is that of `tables.rungs`, `ladder` that of `tables.ladder`. Without a ladder it says so.
    """
    lines = []
    for gpu in evidence.gpus:
        ends = _ends(evidence, rungs, gpu)
        if not ends:
            continue
        naive, best, _ = ends
        said = f"**{rounded(best['gflops'] / 1000)} TFLOP/s** (`{best['kernel']}`)"
        compared = [f"{rounded(best['gflops'] / naive['gflops'])} times as fast"]
        if pd.notna(best["percent_of_anchor"]):
            compared.append(f"{rounded(best['percent_of_anchor'])} % of the rate of NVIDIA's own library")
        peak = (gpu.device["gpu"]["peak_gflops"] or {}).get("float")
        if peak:
            compared.append(f"{rounded(100 * best['gflops'] / peak)} % of the peak of the chip's float units")
        lines.append(
            f"On {_label(evidence, gpu)}, the textbook's kernel multiplies {naive['n']:,} × {naive['n']:,} matrices of "
            f"floats at **{rounded(naive['gflops'] / 1000)} TFLOP/s**, and the fastest one of this study at {said}: "
            f"{_listed(compared)}.{_beyond(ladder, best, gpu, evidence)}"
        )
    if lines:
        return "\n\n".join(f'<p class="answer">{html_of(line)}</p>' for line in lines)
    reason = "has not timed the ladder" if evidence.gpus else "has no GPU, and no recorded run is at hand"
    return f'<p class="answer">This study {reason}, so this page cannot say how fast; it says what is right.</p>'


def _beyond(ladder, best, gpu, evidence):
    """A sentence about floats made of short numbers, if they are faster than the best rung."""
    rows = tables.largest_square(ladder)
    rows = rows[(rows["platform"] == gpu.name) & (rows["dtype"] == "float")]
    made = rows[tables.made_of_short(rows, evidence)].sort_values("gflops")
    if made.empty or made["gflops"].iloc[-1] <= best["gflops"]:
        return ""
    row = made.iloc[-1]
    return (
        f" Floats made of short numbers on the tensor cores come to {rounded(row['gflops'] / 1000)} TFLOP/s "
        f"(`{row['kernel']}`)."
    )


def _listed(words):
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def html_of(line: str) -> str:
    """Bold words and code of a line of Markdown as HTML, for a line inside an element of its own."""
    line = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", line)
    return re.sub(r"`(.+?)`", r"<code>\1</code>", line)


def reasons(evidence: Evidence, rungs: pd.DataFrame) -> str:
    """Why the fastest rung is faster than the textbook's kernel: up to three causes with what was measured of each.

    If several GPUs climbed, it is about the one that came highest.
    """
    climbed = {gpu.name: ends for gpu in evidence.gpus if (ends := _ends(evidence, rungs, gpu))}
    if not climbed:
        return ""
    platform = max(climbed, key=lambda name: climbed[name][1]["gflops"])
    naive, best, own = climbed[platform]
    points = []
    asked, share, near = "accesses_per_100", "multiply_add_percent", "percent_of_ceiling"
    if best[asked] < naive[asked]:
        points.append(
            f"**It asks memory for less.** For 100 multiply-adds, a warp of `naive` makes {rounded(naive[asked])} "
            f"requests to caches and shared memory; one of `{best['kernel']}` makes {rounded(best[asked])}. What it "
            "has loaded stays in registers and serves many sums."
        )
    if best[share] > naive[share]:
        points.append(
            f"**It spends its instructions on arithmetic.** {rounded(naive[share])} % of the instructions "
            "in `naive`'s loop "
            f"are multiply-adds, and {rounded(best[share])} % in `{best['kernel']}`'s. A scheduler issues "
            "one instruction "
            "per cycle, so every other one costs a multiply-add."
        )
    least = own.loc[own[near].idxmin()] if own[near].notna().any() else None
    if least is not None and best[near] > least[near]:
        points.append(
            f"**It waits less.** `{least['kernel']}` reaches {rounded(least[near])} % of the rate that its "
            "own loop allows, "
            f"`{best['kernel']}` {rounded(best[near])} %. In the rest of the time no multiply-add is ready."
        )
    if not points:
        return ""
    where = f" on {plain(evidence.labels[platform])}" if len(climbed) > 1 else ""
    count = (
        "One reason, measured:" if len(points) == 1 else f"{_count(len(points), 'reason').capitalize()}, each measured:"
    )
    return "\n".join([f"**Why{where}?** {count}", "", *(f"{i}. {point}" for i, point in enumerate(points, 1))])


def summary(evidence: Evidence, ladder: pd.DataFrame, verified: pd.DataFrame, failed: pd.DataFrame) -> str:
    """The study in a few points: the kernels of each GPU at the largest float product, then checks and failures."""
    points = []
    for gpu in evidence.gpus:
        points += _ladder_points(ladder[ladder["platform"] == gpu.name], _label(evidence, gpu))
    total, right = int(verified["points"].sum()), int(verified["verified"].sum())
    worst = verified.loc[verified["points"] == verified["verified"], "largest_bound_ratio"].max()
    sentence = f"{right:,} of {total:,} points were verified"
    if pd.notna(worst):
        sentence += f"; the largest error is {rounded(100 * worst)} % of its rounding bound"
    points.append(f"{sentence}.")
    points += company(evidence)
    points += _faults(evidence)
    wrong = failed[failed["status"] == "incorrect"]
    if len(wrong):
        points.append(f"**{_count(len(wrong), 'product').capitalize()} came out wrong**; see What failed and why.")
    if len(failed):
        counts = failed.groupby("status", sort=False)["points"].sum().sort_values(ascending=False, kind="stable")
        kinds = ", ".join(f"{count} {status}" for status, count in counts.items())
        points.append(f"{_count(int(counts.sum()), 'point').capitalize()} did not give a time or a product ({kinds}).")
    return "\n".join(f"- {point}" for point in points)


def _faults(evidence: Evidence) -> list[str]:
    """What the emulator found wrong in kernels that should be right, and which it did not search at any shape."""
    traffic = evidence.facts["traffic"]
    faulty = [name for name, kernel in evidence.kernels.items() if kernel.faulty]
    traffic = traffic[~traffic["kernel"].isin(faulty)]
    by_kernel = traffic.groupby("kernel", sort=False)[list(columns.FAULTS)].sum(min_count=1)
    points, where = [], "see What the kernels ask of memory"
    broken = by_kernel[(by_kernel > 0).any(axis=1)]
    if len(broken):
        kinds = (
            (kernel, [columns.heading(name) for name in broken if row[name] > 0])
            for kernel, row in broken.fillna(0).iterrows()  # some faults may not have been searched for
        )
        said = "; ".join(f"{kernel} ({', '.join(names)})" for kernel, names in kinds)
        points.append(f"**The emulator found faults: {said}**; {where}, and `logs/trace.log` for the lines.")
    left = by_kernel.index[by_kernel.isna().all(axis=1)]
    if len(left):
        points.append(
            f"The emulator did not search {_count(len(left), 'kernel')} for faults ({', '.join(left)}); {where} for "
            "the reasons."
        )
    return points


def company(evidence: Evidence) -> list[str]:
    """What shared a machine with the study, as far as it is known: one sentence per platform that was not alone."""
    found = []
    for platform in evidence.everyone:
        label, busy = _label(evidence, platform), (platform.device["gpu"] or {}).get("busy")
        if busy:
            found.append(
                f"**When the study began, {label} was in use**: {plain('; '.join(busy))}. Times may be too long."
            )
        known = platform.measurements["alone"].dropna()
        beside = int((~known.astype(bool)).sum())
        if beside:
            found.append(
                f"On {label}, {beside:,} of {_count(len(known), 'point')} were measured beside other work on the same "
                "GPU or node; `alone` in measurements.csv tells which."
            )
    return found


def platforms(table: pd.DataFrame, evidence: Evidence) -> str:
    """How many points differ between two GPUs by more than their spread, and by how much; `table` is that of tables."""
    lines = []
    for (first, other), rows in table.groupby(["platform", "other_machine"], sort=False):
        name, changed = plain(evidence.labels[first]), rows[rows["changed"]]
        ran, apart = (_count(len(part), "point").capitalize() for part in (rows, changed))
        said = (
            f"{ran} ran on {name} and on {plain(other)}. In the median, {name} takes "
            f"{rounded(1 / rows['faster'].median())} times the other's time. {apart} "
            f"{'differs' if len(changed) == 1 else 'differ'} by more than the spread."
        )
        if len(changed):
            most, least = changed.loc[changed["faster"].idxmax()], changed.loc[changed["faster"].idxmin()]
            said += (
                f" The range is from {rounded(least['faster'])} times as fast (`{least['kernel']}`, {least['dtype']}, "
                f"{least['shape']}) to {rounded(most['faster'])} times (`{most['kernel']}`, {most['dtype']}, "
                f"{most['shape']})."
            )
        lines.append(said)
    return "\n\n".join(lines)


def cards(compared: pd.DataFrame, evidence: Evidence) -> str:
    """How far the cards of each model are apart, and which is the slowest; `compared` is tables.cards."""
    models = {each.name: each.device["gpu"]["name"] for each in evidence.platforms if each.has_gpu}
    lines = []
    for model, rows in compared.groupby(compared["platform"].map(models), sort=False):
        slow, fast = rows.loc[rows["rate_percent"].idxmin()], rows.loc[rows["rate_percent"].idxmax()]
        lines.append(
            f"{_count(len(rows), 'card').capitalize()} of the model {plain(model)} were compared at "
            f"{_count(int(slow['compared']), 'point')}: from the slowest to the fastest is "
            f"{rounded(fast['rate_percent'] - slow['rate_percent'])} % of the median rate. The slowest is "
            f"{plain(slow['gpu_uuid'])} on {plain(slow['node'] or slow['platform'])}, at "
            f"{rounded(slow['rate_percent'], 4)} %."
        )
    return "\n\n".join(lines)


def verdict_counts(verdicts: pd.DataFrame, evidence: Evidence) -> str:
    """How many claims the sources make, and that each is a mark to choose."""
    sources = verdicts["source"].nunique()
    return (
        f"**Do the published claims hold?** {_count(verdicts['id'].nunique(), 'claim').capitalize()} of "
        f"{_count(sources, 'source')}, each tested on these numbers. Choose a mark to read what was claimed, what was "
        "measured, and why."
    )


def _ladder_points(ladder, label):
    rows = ladder[(ladder["dtype"] == "float") & (ladder["status"] == "ok") & (ladder["n"] == ladder["p"])]
    rows = rows[(rows["n"] == rows["m"]) & (rows["n"] == rows["n"].max())]
    if rows.empty:
        return []
    rows = {row["kernel"]: row for row in rows.to_dict("records")}
    steps = []
    for name, row in sorted(rows.items(), key=lambda item: -item[1]["time_ms"]):
        choice = f" ({row['choice']})" if row["choice"] else ""
        steps.append(f"{name}{choice} {rounded(row['time_ms'])} ms")
    shape = next(iter(rows.values()))["shape"]
    points = [f"**{label}**, float, {shape}: {', '.join(steps)}."]
    own = [row for name, row in rows.items() if not row["anchor"]]
    if not own:
        return points
    fastest = min(own, key=lambda row: row["time_ms"])
    sentence = f"The fastest kernel of the study is `{fastest['kernel']}`"
    if fastest["choice"]:
        sentence += f" with {fastest['choice']}"
    compared = []
    if pd.notna(fastest["speedup_over_naive"]) and fastest["kernel"] != "naive":
        compared.append(f"{_times(fastest['speedup_over_naive'])} the speed of the best naive kernel")
    if pd.notna(fastest["percent_of_anchor"]):
        compared.append(f"{rounded(fastest['percent_of_anchor'])}\u00a0% of cuBLAS")
    if pd.notna(fastest["percent_of_peak"]):
        compared.append(f"{rounded(fastest['percent_of_peak'])}\u00a0% of the chip's vector peak")
    points.append(f"{sentence}: {_listed(compared)}." if compared else f"{sentence}.")
    naive = rows.get("naive", {})
    if pd.notna(naive.get("speedup_over_cpu")):
        published = naive["published_speedup_over_cpu"]
        beside = f" (source a: {_times(published)})" if pd.notna(published) else ""
        points.append(f"The naive kernel is {_times(naive['speedup_over_cpu'])} the speed of one core's loop{beside}.")
    return points


def past_the_peak(ladder: pd.DataFrame, evidence: Evidence) -> str:
    """How fast and how accurate floats made of short numbers are beside the library's float product, on each GPU."""
    rows = tables.largest_square(ladder)
    rows = rows[rows["dtype"] == "float"].assign(made=lambda rows: tables.made_of_short(rows, evidence))
    lines = []
    for gpu in evidence.gpus:
        own = rows[rows["platform"] == gpu.name]
        library, made = own[own["anchor"]], own[own["made"]].sort_values("gflops", ascending=False)
        if library.empty or made.empty:
            continue
        sgemm = library.iloc[0]
        said = []
        for row in made.to_dict("records"):
            words = (
                f"`{row['kernel']}` {rounded(row['gflops'] / 1000)} TFLOP/s, {_times(row['gflops'] / sgemm['gflops'])}"
            )
            if pd.notna(row["percent_of_peak"]):
                words += f" cuBLAS's and {rounded(row['percent_of_peak'])}\u00a0% of the peak of the float units"
            said.append(f"{words}, with {_times(row['relative_error'] / sgemm['relative_error'])} its error")
        lines.append(
            f"On {_label(evidence, gpu)}, at {sgemm['shape']}, cuBLAS's SGEMM makes {rounded(sgemm['gflops'] / 1000)} "
            f"TFLOP/s. Everything counted, splitting too: {'; '.join(said)} (operands of both signs, Frobenius norm)."
        )
    return "\n\n".join(lines)


def gate(evidence: Evidence) -> str:
    """For which operands each kernel may be used in place of SGEMM, by the accuracy gate; claims that do not hold.

    What was measured goes before what the model predicts.
    """
    rows = tables.accuracy(evidence, pd.DataFrame())
    rows = rows[rows["verdict"] != ""]
    origin = "measured" if (rows["origin"] == "measured").any() else "predicted"
    rows = rows[rows["origin"] == origin]
    points = []
    for (platform, kernel), own in rows.groupby(["platform", "kernel"], sort=False):
        long = own[own["p"] >= 1024]
        verdicts = (long if len(long) else own).groupby("operands", sort=False)["verdict"].unique()
        kinds: dict[str, list[str]] = {"passes": [], "fails": [], "refuses": []}
        for name, found in verdicts.items():
            kinds["fails" if "fails" in found else "refuses" if "refuses" in found else "passes"].append(name)
        words = [f"{verdict} on {', '.join(names)}" for verdict, names in kinds.items() if names]
        least = f" in sums of {long['p'].min():,} and more products" if len(long) else ""
        where = "" if origin == "predicted" else f" on {plain(evidence.labels[platform])}"
        points.append(f"- `{kernel}`{where}{least}: {'; '.join(words)}.")
        broken = own[own["claimed"].fillna(False) & (own["verdict"] != "passes")]
        if len(broken):
            cases = ", ".join(dict.fromkeys(f"{row.operands} at p = {row.p:,}" for row in broken.itertuples()))
            points.append(f"- **`{kernel}` claims the accuracy of SGEMM and does not have it**: {cases}.")
    said = {"measured": "Measured:", "predicted": "Predicted by the model of the tensor cores, not measured:"}
    return "\n".join([said[origin], "", *points]) if points else ""


def energy(evidence: Evidence, published: pd.DataFrame) -> str:
    """How much further a joule goes in the best kernel than in the library's float product, on each GPU."""
    rows = tables.energy(evidence, published)
    rows = rows.dropna(subset=["gflop_per_joule", "joules_per_product"])
    lines = []
    for gpu in evidence.gpus:
        own = rows[rows["platform"] == gpu.name]
        library = own[(own["dtype"] == "float") & own["kernel"].isin(evidence.libraries)]
        kernels = own[(own["dtype"] == "float") & ~own["kernel"].isin(evidence.libraries)]
        if len(library) and len(kernels):
            best, sgemm = kernels.loc[kernels["gflop_per_joule"].idxmax()], library.iloc[0]
            watts = "" if pd.isna(best["watts"]) else f", at {rounded(best['watts'])} W"
            lines.append(
                f"On {_label(evidence, gpu)}, a product of floats costs "
                f"{rounded(sgemm['joules_per_product'])} J in cuBLAS "
                f"({rounded(sgemm['gflop_per_joule'])} GFLOP/J) and {rounded(best['joules_per_product'])} J in "
                f"`{best['kernel']}` ({rounded(best['gflop_per_joule'])} GFLOP/J{watts})."
            )
    return "\n\n".join(lines)


def double_cost(evidence: Evidence, published: pd.DataFrame) -> str:
    """How much longer the naive kernel takes in double at the square shape, beside source a's 29.7 %; best blocks."""
    claim = published.loc[published["quantity"] == "time_increase_double", "value"].iloc[0]
    rows = evidence.of("task1a", "task1b").gpu
    best = tables.best(tables.describe(rows[(rows["n"] == rows["p"]) & (rows["n"] == rows["m"])], evidence))
    best = best[(best["kernel"] == "naive") & (best["status"] == "ok")]
    lines = []
    for gpu in evidence.gpus:
        own = best[best["platform"] == gpu.name]
        own = own[own["n"] == own["n"].max()].set_index("dtype")
        if {"float", "double"} <= set(own.index):
            more = 100 * (own.loc["double", "time_ms"] / own.loc["float", "time_ms"] - 1)
            one, two = own.loc["float", "choice"], own.loc["double", "choice"]
            blocks = f"{one} for both" if one == two else f"{one} for float and {two} for double"
            lines.append(
                f"Source a found that double is {claim:g}\u00a0% slower than float, each with its best block, and that "
                f"another block is best for double. On {_label(evidence, gpu)} double takes {rounded(more)}\u00a0% "
                f"longer; the best block is {blocks}."
            )
    return "\n\n".join(lines)


def double_cause(evidence: Evidence, limits: pd.DataFrame) -> str:
    """Source a's question 1b, why double takes longer: what the best naive kernel asks of the caches in both types.

    `limits` is that of tables.limits.
    """
    lines = []
    for gpu in evidence.gpus:
        own = limits[(limits["platform"] == gpu.name) & (limits["kernel"] == "naive")].set_index("dtype")
        asked = ["sectors_per_100", "lines_per_100", "gflops"]
        if not {"float", "double"} <= set(own.index) or own.loc[["float", "double"], asked].isna().any(axis=None):
            continue
        one, two = own.loc["float"], own.loc["double"]
        sectors, looked = (two[name] / one[name] for name in asked[:2])
        longer = one["gflops"] / two["gflops"]
        low, high = sorted((sectors, looked))
        between = "between the two" if low <= longer <= high else "above both" if longer > high else "below both"
        words = (
            "Why? For a multiply-add, a warp of the double kernel touches "
            f"{rounded(two['sectors_per_100'] / 100)} sectors "
            f"of 32 bytes and looks up {rounded(two['lines_per_100'] / 100)} lines, one of the float kernel "
            f"{rounded(one['sectors_per_100'] / 100)} and {rounded(one['lines_per_100'] / 100)}: "
            f"{_times(sectors)} the sectors, "
            f"{_times(looked)} the lines. It takes {_times(longer)} the time, which is {between}."
        )
        with contextlib.suppress(claims.Untestable):
            roof = claims.Machine(evidence, gpu).roof("multiply_add_rate", "double").value
            used = f"{rounded(100 * two['gflops'] / roof)}\u00a0% of what the units for double can do"
            words += f" It uses {used}{', so they are not the cause' if two['gflops'] < roof / 2 else ''}."
        if one["limited_by"] and two["limited_by"]:
            words += (
                f" The largest share of a roof is that of {one['limited_by']} in float "
                f"({rounded(one['limit_percent'])}\u00a0%) and of {two['limited_by']} in double "
                f"({rounded(two['limit_percent'])}\u00a0%)."
            )
        lines.append(words)
    return "\n\n".join(lines)


def shared_rate(evidence: Evidence, limits: pd.DataFrame) -> str:
    """Source a's question 2, what a tile can gain: the rate of shared memory, and what it allows the tiled kernel."""
    lines = []
    for gpu in evidence.gpus:
        machine = claims.Machine(evidence, gpu)
        tiled = limits[(limits["platform"] == gpu.name) & (limits["kernel"] == "tiled") & (limits["dtype"] == "float")]
        with contextlib.suppress(claims.Untestable):
            passes, memory = machine.roof("shared_wavefronts_16_bytes").value, machine.roof("memory_bandwidth").value
            per_cycle = gpu.device["gpu"]["sms"] * gpu.device["gpu"]["sm_clock_mhz"] / 1000
            said = (
                f"On {_label(evidence, gpu)} shared memory makes {rounded(passes)} · 10⁹ passes per second, "
                f"{rounded(100 * passes / per_cycle)}\u00a0% of one per cycle and multiprocessor. A pass "
                "moves 128 bytes: "
                f"{rounded(128 * passes / 1000)} TB/s, {_times(128 * passes / memory)} what memory delivers"
            )
            for row in tiled.to_dict("records"):
                counted = row["hardware_wavefronts_per_100"]
                asked = row["wavefronts_per_100"] if pd.isna(counted) else counted
                most = 100 * 64 * passes / asked if asked > 0 else math.nan
                if row["gflops"] <= most:  # else the emulator counted reads that the compiler joins
                    said += (
                        f". For 100 multiply-adds a warp of `tiled` ({row['choice']}) takes "
                        f"{rounded(asked)} passes, which "
                        f"allows {rounded(most)} GFLOP/s; it makes {rounded(row['gflops'])}, "
                        f"{rounded(100 * row['gflops'] / most)}\u00a0% of that"
                    )
            lines.append(f"{said}.")
    return "\n\n".join(lines)


def tile_curve(counts: pd.DataFrame, evidence: Evidence) -> str:
    """Source a's question 3, why more tiles per block are faster; `counts` is that of tables.tile_counts."""
    lines = []
    for gpu in evidence.gpus:
        rows = counts[counts["platform"] == gpu.name]
        own = rows[(rows["dtype"] == "float") & (rows["tile"] == 32)]
        known = own[own["hardware_wavefronts_per_100"].notna()].sort_values("ntb")
        said = []
        if len(known) > 1:
            each = [
                f"NTB {row['ntb']}: {rounded(row['hardware_wavefronts_per_100'])}, "
                f"{rounded(row['shared_percent'])}\u00a0%"
                for row in known.to_dict("records")
            ]
            said.append(
                "Why? A warp reads its element of A from shared memory once for NTB multiply-adds. Passes of shared "
                "memory per 100 multiply-adds of a warp (tile 32, float, counted by ncu), and the share of all passes "
                f"that {_label(evidence, gpu)} can make: {'; '.join(each)}."
            )
        few, many = own[own["ntb"] == 1], rows[(rows["dtype"] == "float") & (rows["tile"] == 16) & (rows["ntb"] == 16)]
        if len(few) and len(many):
            loads = ((1 + 1 / 16) / 16) / ((1 + 1) / 32)
            faster = many["gflops"].iloc[0] / few["gflops"].iloc[0]
            said.append(
                f"Tile 16 with NTB 16 makes {_times(loads)} the loads from global memory of tile 32 with NTB 1 and is "
                f"{_times(faster)} as fast{', so fewer loads are not the cause' if faster > 1 else ''}."
            )
        double = rows[(rows["dtype"] == "double") & (rows["tile"] == 32) & rows["active_blocks"].notna()]
        if len(double) > 1:
            first, best = double.loc[double["ntb"].idxmin()], double.loc[double["gflops"].idxmax()]
            words = (
                f"In double with tile 32 a multiprocessor holds {_count(int(first['active_blocks']), 'block')} at NTB "
                f"{first['ntb']} and {_count(int(best['active_blocks']), 'block')} at NTB {best['ntb']}, the fastest"
            )
            if best["active_blocks"] < first["active_blocks"]:
                words += ": the loss of a block does not turn the curve"
            said.append(f"{words}.")
        if said:
            lines.append(" ".join(said))
    return "\n\n".join(lines)


def tuned(table: pd.DataFrame, evidence: Evidence) -> str:
    """How much the choice of parameters matters on each machine, and where the registry's could be better.

    `table` is that of `tables.tuning`.
    """
    lines = []
    for platform, rows in table.groupby("platform", sort=False):
        tried, failed = int(rows["variants"].sum()), int(rows["failed"].sum())
        place = plain(evidence.labels[platform])
        sentences = [f"On {place} the tuner made {tried:,} trials of a variant at a shape; {failed:,} failed."]
        timed = rows[rows["gflops"].notna()]
        if len(timed):
            shares = 100 * timed["within_percent"] / timed["variants"]
            sentences.append(
                f"In the median, {rounded(shares.median())}\u00a0% of the variants are within 5\u00a0% of the best."
            )
            least, most = timed.loc[shares.idxmin()], timed.loc[shares.idxmax()]
            sentences.append(
                f"The choice matters most for `{least['kernel']}` ({least['dtype']}) at {least['shape']}, with "
                f"{_count(int(least['within_percent']), 'such variant')} of {least['variants']}, and least for "
                f"`{most['kernel']}` ({most['dtype']}) at {most['shape']}, with {int(most['within_percent'])} of "
                f"{most['variants']}."
            )
            gains = timed[timed["gain_percent"] > 0]
            if len(gains):
                largest = gains.loc[gains["gain_percent"].idxmax()]
                sentences.append(
                    f"The best is faster than the registry's choice in {len(gains)} of {len(timed)} cases, at most by "
                    f"{rounded(largest['gain_percent'])}\u00a0% (`{largest['kernel']}`, {largest['dtype']}, "
                    f"{largest['shape']})."
                )
        lines.append(" ".join(sentences))
    return "\n\n".join(lines)


def lines_explain(table: pd.DataFrame, evidence: Evidence) -> str:
    """What more cache lines cost a CPU loop, on each machine, compared with the same loop at the smallest product."""
    keys, counted, time = ["kernel", "dtype"], "l1_lines_per_multiply_add", "ns_per_multiply_add"
    lines = []
    for platform, rows in table.groupby("platform", sort=False):
        smallest = rows[rows["work"] == rows.groupby(keys)["work"].transform("min")]
        pairs = rows.merge(smallest, on=keys, suffixes=("", "_smallest"))
        pairs = pairs[pairs["work"] > pairs["work_smallest"]]
        more, longer = (pairs[name] / pairs[f"{name}_smallest"] for name in (counted, time))
        parts = [
            f"at {_count(int(chosen.sum()), 'point')} it fetches {words} and takes, in the median, "
            f"{rounded(longer[chosen].median())} times as long ({rounded(longer[chosen].min())} to "
            f"{rounded(longer[chosen].max())})"
            for chosen, words in ((more > 2, "more than twice the lines"), (more <= 2, "at most twice the lines"))
            if chosen.any()
        ]
        if len(parts) == 2:
            lines.append(
                f"On {plain(evidence.labels[platform])}, a multiply-add of a larger product compares with one of the "
                f"same loop at {smallest['shape'].iloc[0]} as follows: {'; '.join(parts)}."
            )
    return "\n\n".join(lines)


def found(evidence: Evidence, sentence: str, platforms: Iterable[Platform] | None = None) -> str:
    """A sentence with its figures filled in, once for each platform that has them (default: platforms with GPU times).

    Braces hold expressions as in report/claims.yaml, evaluated on the tasks of `evidence`, or the word `platform`.
    """
    lines = []
    for platform in evidence.gpus if platforms is None else platforms:
        functions = claims.Machine(evidence, platform).functions()
        lines += _filled(sentence.replace("{platform}", _label(evidence, platform)), functions)
    return "\n\n".join(lines)


def rung(
    evidence: Evidence, rows: pd.DataFrame, rungs: pd.DataFrame, kernel: str, *sentences: str, dtype: str = "float"
) -> str:
    """A paragraph about one rung of a ladder for each GPU that climbed it: its rate, then sentences with their figures.

    `rows` and `rungs` are those of `tables.climb` and `tables.rungs`. Braces hold expressions as in report/claims.yaml.
    There are further functions: this(column), last(column) of the fastest rung before, rung(kernel, column), and
    row(column, **conditions) of any row at the same shape. A sentence without its figures is left out, and so is one
    that begins with {only if CONDITION} of which the condition does not hold: what it says would not be so in this run.
    """
    lines = []
    for gpu in evidence.gpus:
        own = rungs[(rungs["platform"] == gpu.name) & (rungs["dtype"] == dtype)].set_index("kernel", drop=False)
        if kernel not in own.index:
            continue
        functions = claims.Machine(evidence, gpu).functions() | _of_rungs(own, rows, kernel)
        this = own.loc[kernel]
        words = f"**{_label(evidence, gpu)}:** " if len(evidence.gpus) > 1 else ""
        words += f"**{rounded(this['gflops'] / 1000)}\u00a0TFLOP/s**"
        if this["before"]:
            words += f", {_times(this['gain'])} the rate of `{this['before']}`"
        if pd.notna(this["percent_of_anchor"]):
            words += f", {rounded(this['percent_of_anchor'])}\u00a0% of cuBLAS"
        said = [f"{words}."]
        for sentence in sentences:
            said += _filled(sentence, functions)
        lines.append(" ".join(said).replace(" %", "\u00a0%").replace(" TFLOP/s", "\u00a0TFLOP/s"))
    return "\n\n".join(lines)


def _of_rungs(own, rows, kernel):
    """The functions that sentences about a rung may use beside those of claims."""
    here = rows.merge(own.head(1)[["platform", "dtype", "n", "p", "m"]], on=["platform", "dtype", "n", "p", "m"])

    def value(table, column):
        if table.empty or pd.isna(found := table.iloc[-1][column]):
            raise claims.Untestable(f"{column} is not known")
        return found if isinstance(found, str) else float(found)

    def of(name, column):
        return value(own[own["kernel"] == name], column)

    def row(column, **where):
        fits = here
        for name, wanted in where.items():
            fits = fits[(fits[name] == wanted).fillna(False)] if name in fits else fits.head(0)
        return value(fits, column)

    before = own.loc[kernel, "before"]
    return {"this": lambda c: of(kernel, c), "last": lambda c: of(before, c), "rung": of, "row": row}


def top(evidence: Evidence, rungs: pd.DataFrame) -> str:
    """How near the fastest rung of each GPU comes to its loop's ceiling, to the multiply-adds' rate and to the peak."""
    lines = []
    for (platform, dtype), own in rungs.groupby(["platform", "dtype"], sort=False):
        own = own[~own["anchor"]]
        best = own.loc[own["gflops"].idxmax()]
        gpu = next(gpu for gpu in evidence.gpus if gpu.name == platform)
        shares = {}
        if pd.notna(best["percent_of_anchor"]):
            shares["of cuBLAS's rate"] = best["percent_of_anchor"]
        if pd.notna(best["ceiling_gflops"]):
            shares["of what its loop allows"] = best["percent_of_ceiling"]
        on_vector_units = "MMA" not in str(best["multiply_add"])  # of which the roofs are
        with contextlib.suppress(claims.Untestable):
            name = "multiply_add_rate" if on_vector_units else "tensor_rate"
            roof = claims.Machine(evidence, gpu).roof(name, dtype).value
            alone = "multiply-adds" if on_vector_units else "the tensor cores"
            shares[f"of the rate that {alone} alone reach"] = 100 * best["gflops"] / roof
        peak = (gpu.device["gpu"]["peak_gflops"] or {}).get(dtype)
        if peak and on_vector_units:
            shares["of the datasheet's peak"] = 100 * best["gflops"] / peak
        words = [f"{rounded(share)}\u00a0% {of}" for of, share in shares.items()]
        clocks = own["sm_clock_mhz"].dropna()
        held = (
            f" The clock held {rounded(clocks.min())} to {rounded(clocks.max())} MHz over all rungs."
            if len(clocks)
            else ""
        )
        rate = f"{rounded(best['gflops'] / 1000)}\u00a0TFLOP/s"
        lines.append(
            f"On {_label(evidence, gpu)} the fastest is `{best['kernel']}` with {rate}: {', '.join(words)}.{held}"
        )
    return "\n\n".join(lines)


#: Less of a time than this is not worth a remark, when it is the machine's.
REMARKED = 0.02


def overhead(table: pd.DataFrame, evidence: Evidence) -> str:
    """How much of the times of a table is the overhead of an isolated time, on each GPU where it is over 2 % of one."""
    lines = []
    for name, overhead_us in tables.overheads(evidence.everyone).items():
        times = table.loc[table["platform"] == name, "time_ms"] if "time_ms" in table else pd.Series(dtype="float64")
        longest = overhead_us / 1000 / REMARKED
        if (times < longest).any():
            lines.append(
                f"{rounded(overhead_us)} µs of each time on {plain(evidence.labels[name])} are the overhead of an "
                f"isolated run, over 2\u00a0% of times below {rounded(longest)} ms."
            )
    return " ".join(lines)


def between_runs(evidence: Evidence) -> str:
    """How far the runs of a point, each in a process of its own, are apart; of those that are more, what they are."""
    lines = []
    for gpu in evidence.gpus:
        rows = evidence.gpu[(evidence.gpu["platform"] == gpu.name) & (evidence.gpu["runs"] > 1)]
        if rows.empty:
            continue
        apart = 100 * (rows["run_high_ms"] / rows["run_low_ms"] - 1)
        far = rows[apart > 2]
        short, throttled = far["time_ms"] < 0.01, _throttled(far, gpu)
        causes = [
            f"{_count(int(found.sum()), 'product')} {words}"
            for found, words in ((short, "of less than 10 µs"), (throttled & ~short, "at a lowered clock"))
            if found.any()
        ]
        sentence = (
            f"On {_label(evidence, gpu)} the {int(rows['runs'].max())} runs of a point agree within 1\u00a0% at "
            f"{rounded(100 * (apart <= 1).mean())}\u00a0% of {_count(len(rows), 'point')} and within 2\u00a0% at "
            f"{rounded(100 * (apart <= 2).mean())}\u00a0%"
        )
        others = f"; among the other {len(far)} are {' and '.join(causes)}" if causes else ""
        lines.append(f"{sentence}{others}. The farthest apart are {rounded(apart.max())}\u00a0%.")
    return "\n\n".join(lines)


#: A clock is lowered if it is this much below the highest.
LOWERED = 0.98


def _throttled(rows: pd.DataFrame, gpu: Platform) -> pd.Series:
    """Of each row, whether its lowest clock was below the chip's highest."""
    least = rows["sm_clock_min_mhz"].fillna(rows["sm_clock_mhz"])
    return least < LOWERED * gpu.device["gpu"]["sm_clock_mhz"]


def clocks(evidence: Evidence) -> str:
    """At which clocks the chip ran, and which products it slowed down for, on each GPU."""
    lines = []
    for gpu in evidence.gpus:
        rows = evidence.gpu[(evidence.gpu["platform"] == gpu.name) & evidence.gpu["sm_clock_mhz"].notna()]
        slow = tables.describe(rows[_throttled(rows, gpu)], evidence)
        highest = gpu.device["gpu"]["sm_clock_mhz"]
        if rows.empty:
            continue
        if slow.empty:
            lines.append(
                f"On {_label(evidence, gpu)} no point ran at less than {rounded(100 * LOWERED)}\u00a0% of "
                f"{highest} MHz."
            )
            continue
        least = slow.loc[slow["sm_clock_mhz"].idxmin()]
        choice = f" ({least['choice']})" if least["choice"] else ""
        lines.append(
            f"Percentages of a peak refer to {highest} MHz, the highest clock. On {_label(evidence, gpu)} "
            f"{_count(len(slow), 'point')} of {len(rows)} ran below {rounded(100 * LOWERED)}\u00a0% of it. "
            f"The slowest clock was that of `{least['kernel']}`{choice} in {least['dtype']} at "
            f"{least['shape']}, {rounded(least['sm_clock_mhz'])} MHz in the median."
        )
    return "\n\n".join(lines)


def block_shapes(evidence: Evidence) -> str:
    """Source a's question 1a, why the shape of a block matters: lines looked up per pair of loads beside the rates."""
    rows = tables.climb(evidence, "task1a")
    rows = rows[(rows["kernel"] == "naive") & rows["lines_per_100"].notna()]
    rows = tables.largest(rows) if len(rows) else rows
    lines = []
    for gpu in evidence.gpus:
        own = rows[rows["platform"] == gpu.name].sort_values("block_x", kind="stable")
        if len(own) < 2:
            continue
        per_cycle = gpu.device["gpu"]["sms"] * own["sm_clock_mhz"] / 1000
        used = own["gflops"] / 64 * own["lines_per_100"] / 100 / per_cycle
        said = [
            f"{choice}: {rounded(lines_)} lines, {rounded(100 * share)}\u00a0%"
            for choice, lines_, share in zip(own["choice"], own["lines_per_100"] / 100, used, strict=True)
        ]
        lines.append(
            "Why does the shape matter? For each multiply-add a warp loads an element of A and one of B, and the first "
            "cache looks up one line of 128 bytes per cycle. Lines per pair of loads, and the share of a "
            f"multiprocessor's cycles that the look-ups take at the measured rate on {_label(evidence, gpu)}: "
            f"{'; '.join(said)}.{_beyond_look_ups(own[used < HALF], evidence)}"
        )
    return "\n\n".join(lines)


def _beyond_look_ups(rows, evidence):
    """A sentence about each naive block that look-ups do not slow down, with what ncu counted of it at full size."""
    found = evidence.facts["counters"]
    found = found[(found["kernel"] == "naive") & (found["dtype"] == "float") & found["profiled_ns"].notna()]
    said = []
    for row in rows.to_dict("records"):
        words = f"Look-ups are not what slows {row['choice']} down"
        own = found[(found["platform"] == row["platform"]) & (found["block_x"] == row["block_x"])]
        for counted in own[own["block_y"] == row["block_y"]].head(1).to_dict("records"):
            parts = [
                f"{name} {rounded(counted[column])}\u00a0%"
                for name, column in (
                    ("hits in the first cache", "l1_hit_percent"),
                    ("hits in the second", "l2_hit_percent"),
                    ("the second cache busy", "l2_percent"),
                    ("memory busy", "dram_percent"),
                )
                if pd.notna(counted[column])
            ]
            words += f"; ncu counted at n = {counted['n']:,}: {', '.join(parts)}" if parts else ""
        said.append(f" {words}.")
    return "".join(said)


def few_blocks(evidence: Evidence) -> str:
    """Why more tiles per block cost speed at a small product: how many blocks are left, on each GPU."""
    rows = evidence.of("task3").gpu
    rows = rows[(rows["kernel"] == "multi_tile") & (rows["dtype"] == "float") & (rows["status"] == "ok")]
    rows = rows[(rows["n"] == rows["p"]) & (rows["n"] == rows["m"]) & (rows["tile"] == 32)]
    lines = []
    for gpu in evidence.gpus:
        own = rows[rows["platform"] == gpu.name]
        own = own[own["n"] == own["n"].min()].sort_values("ntb", kind="stable")
        sms = gpu.device["gpu"]["sms"]
        blocks = own["grid_x"] * own["grid_y"]
        if len(own) < 2 or blocks.iloc[-1] >= sms:
            continue
        before, after = own.loc[own["gflops"].idxmax()], own.iloc[-1]
        if before["ntb"] == after["ntb"]:
            continue
        lines.append(
            f"At {tables.shape_text(before)}, NTB {before['ntb']} reaches {rounded(before['gflops'])} GFLOP/s and NTB "
            f"{after['ntb']} {rounded(after['gflops'])} on {_label(evidence, gpu)}: "
            f"{before['grid_x'] * before['grid_y']} "
            f"blocks have become {after['grid_x'] * after['grid_y']}, and there are {sms} multiprocessors."
        )
    return "\n\n".join(lines)


def largest_rates(evidence: Evidence) -> str:
    """How the rate changes with n up to the largest product, and how many rows of blocks share what they read of B."""
    lines = []
    for gpu in evidence.gpus:
        probes = evidence.facts["maximum_size"]
        probes = probes[(probes["platform"] == gpu.name) & (probes["kernel"] == "naive") & probes["time_ms"].notna()]
        rates = {int(n): 2e-6 * n**3 / ms for n, ms in zip(probes["timed_n"], probes["time_ms"])}
        held = evidence.facts["occupancy"]
        held = held[(held["platform"] == gpu.name) & (held["kernel"] == "naive") & (held["dtype"] == "float")]
        held = held[(held["block_x"] == 128) & (held["block_y"] == 8)]
        if not rates or held.empty:
            continue
        beside = evidence.of("task1a").gpu
        beside = beside[(beside["platform"] == gpu.name) & (beside["kernel"] == "naive") & (beside["status"] == "ok")]
        beside = beside[(beside["n"] == beside["p"]) & (beside["n"] == beside["m"]) & (beside["block_x"] == 128)]
        rates = {int(n): rate for n, rate in zip(beside["n"], beside["gflops"])} | rates
        at_once = int(held["active_blocks"].iloc[0]) * gpu.device["gpu"]["sms"]
        shown = sorted(rates)[-4:]
        said = _listed([f"{rounded(rates[n])} GFLOP/s at n = {n:,}" for n in shown])
        rows = _listed([rounded(at_once * 128 / n) for n in shown])
        lines.append(
            f"On {_label(evidence, gpu)} the naive kernel makes {said}. {at_once} blocks of 128 × 8 run at once; these "
            f"are {rows} rows of blocks. Blocks of one column read the same part of B, which the L2 cache has to fetch "
            "once for all rows that run together; with less than one row, each row fetches it again. That is "
            "arithmetic: what the "
            "L2 cache fetches was not counted."
        )
    return "\n\n".join(lines)


def missing_roofs(evidence: Evidence) -> str:
    """Which roofs of each GPU were tried and not measured, and why; what lies below them is not judged by them."""
    lines = []
    for gpu in evidence.gpus:
        rows = evidence.facts["bandwidth"]
        rows = rows[(rows["platform"] == gpu.name) & (rows["status"] != "ok")]
        said = [
            f"{row['quantity'].replace('_', ' ')} in {row['dtype']} ({row['status']}: {plain(row['message'])})"
            for row in rows.to_dict("records")
        ]
        if said:
            words = f"**On {_label(evidence, gpu)} {_count(len(said), 'roof')} could not be measured:**"
            lines.append(f"{words} {'; '.join(said)}.")
    return "\n\n".join(lines)


def profiled(table: pd.DataFrame, evidence: Evidence) -> str:
    """What ncu's counters at full size say of each GPU in a sentence or two; `table` is that of tables.profiled."""
    lines = []
    for platform, rows in table.groupby("platform", sort=False):
        words = [f"On {plain(evidence.labels[platform])} ncu profiled {_count(len(rows), 'product')}"]
        if rows["issue_percent"].notna().any():
            busy, idle = rows.loc[rows["issue_percent"].idxmax()], rows.loc[rows["issue_percent"].idxmin()]
            said = (
                f"The schedulers issue in {rounded(busy['issue_percent'])}\u00a0% of the cycles of "
                f"{_named(busy)}, and in "
                f"{rounded(idle['issue_percent'])}\u00a0% of those of {_named(idle)}"
            )
            if idle["waits"]:
                said += f", whose warps wait most for: {idle['waits']} (warps per instruction issued)"
            words.append(said)
        if rows["matrices_moved"].notna().any():
            most = rows.loc[rows["matrices_moved"].idxmax()]
            words.append(
                f"Memory moves {rounded(most['matrices_moved'])} times the three matrices for "
                f"{_named(most)}, more than "
                "for any other"
            )
        lines.append(f"{'. '.join(words)}.")
    return "\n\n".join(lines)


def _named(row):
    return f"`{row['kernel']}`" + (f" ({row['choice']})" if row["choice"] else "") + f" in {row['dtype']}"


def largest_products(evidence: Evidence, published: pd.DataFrame) -> str:
    """How long the largest products take: at source a's own n, and in the fastest kernel at the largest n."""
    source = published[(published["place"] == "Table 3") & (published["kernel"] == "naive")]
    lines = []
    for gpu in evidence.gpus:
        probes = evidence.facts["maximum_size"]
        probes = probes[(probes["platform"] == gpu.name) & probes["time_ms"].notna()]
        said = []
        for row in source.to_dict("records"):
            here = probes[(probes["kernel"] == "naive") & (probes["timed_n"] == row["n"])]
            for ms in here["time_ms"].head(1):
                said.append(
                    f"At source a's own n = {row['n']:,} the naive kernel takes {rounded(ms / 1000)} s, and took "
                    f"{rounded(row['value'] / 1000)} s there: {_times(row['value'] / ms)} the speed"
                )
        last = probes.sort_values("timed_n").groupby("kernel", sort=False).tail(1).set_index("kernel")
        for name, row in last.iterrows():
            if name == "naive" or "naive" not in last.index or row["timed_n"] <= last.loc["naive", "timed_n"]:
                continue
            fits = row["allocatable_n"]
            whole = "the largest n that fits" if row["timed_n"] == fits else f"of {fits:,} that would fit"
            slow = last.loc["naive"]
            said.append(
                f"`{name}` multiplies n = {row['timed_n']:,}, {whole}, in {rounded(row['time_ms'] / 1000)} "
                "s; the naive "
                f"kernel would take {rounded(slow['predicted_ms'] / 1000)} s for n = "
                f"{slow['allocatable_n']:,}, so it was "
                f"timed at n = {slow['timed_n']:,}"
            )
        if said:
            lines.append(f"On {_label(evidence, gpu)}: {'. '.join(said)}.")
    return "\n\n".join(lines)


def conclusion(evidence: Evidence, ladder: pd.DataFrame, limits: pd.DataFrame, verdicts: pd.DataFrame) -> str:
    """What the study says on half a page, two paragraphs for each GPU; every sentence comes from its tables."""
    paragraphs = []
    for gpu in evidence.gpus:
        own = tables.largest_square(ladder)
        own = own[(own["platform"] == gpu.name) & (own["dtype"] == "float")]
        limit = limits[limits["platform"] == gpu.name]
        first = [*_of_threads(evidence, gpu, limit), *_of_tiles(evidence, gpu, own, limit, verdicts)]
        last = [*_of_ladder(evidence, own, limit, gpu), *_of_study(evidence, gpu, verdicts)] if first else []
        if first:
            paragraphs.append(f"**{_label(evidence, gpu)}.** {'. '.join(first)}.")
        if last:
            paragraphs.append(f"{'. '.join(last)}.")
    return "\n\n".join(paragraphs)


def _of_threads(evidence, gpu, limits):
    """Sentences about one thread per element: blocks, double, and the largest product."""
    rows = tables.climb(evidence, "task1a")
    rows = rows[(rows["platform"] == gpu.name) & (rows["kernel"] == "naive") & (rows["n"] == rows["p"])]
    rows = rows[(rows["n"] == rows["m"]) & (rows["n"] == rows["n"].max())]
    if len(rows) > 1:
        best, worst = rows.loc[rows["gflops"].idxmax()], rows.loc[rows["gflops"].idxmin()]
        words = (
            f"With one thread per element, a block of {best['choice']} is best and one of {worst['choice']} makes "
            f"{rounded(100 * worst['gflops'] / best['gflops'])}\u00a0% of its rate"
        )
        lines = [row["lines_per_100"] / 100 for row in (worst, best)]
        if lines[0] > lines[1]:
            words += (
                f", since a warp looks up {rounded(lines[0])} cache lines for a multiply-add, not {rounded(lines[1])}"
            )
        yield words
    naive = limits[limits["kernel"] == "naive"].set_index("dtype")
    if {"float", "double"} <= set(naive.index):
        words = f"Double takes {_times(naive.loc['float', 'gflops'] / naive.loc['double', 'gflops'])} as long as float"
        sectors = naive.loc["double", "sectors_per_100"] / naive.loc["float", "sectors_per_100"]
        yield words + (f", for {_times(sectors)} the sectors" if pd.notna(sectors) else "")
    found = evidence.facts["maximum_size"]
    found = found[(found["platform"] == gpu.name) & (found["kernel"] == "naive")]
    for row in found.tail(1).to_dict("records"):
        share = rounded(100 * row["allocatable_n"] / row["theoretical_n"], 4)
        yield f"The largest matrices that fit have n = {row['allocatable_n']:,}, {share}\u00a0% of the theory"


def _of_tiles(evidence, gpu, ladder, limits, verdicts):
    """Sentences about tiles in shared memory, several per block, and edges."""
    own, limit = ladder.set_index("kernel"), limits[limits["dtype"] == "float"].set_index("kernel")
    if {"naive", "tiled"} <= set(own.index):
        gain = own.loc["naive", "time_ms"] / own.loc["tiled", "time_ms"]
        source = verdicts.loc[verdicts["id"] == "tiles-gain-square", "published"]
        words = f"Tiles in shared memory make the product {_times(gain)} as fast as the best naive kernel"
        yield words + "".join(f"; source a found {_times(figure)}" for figure in source[:1])
    shares = [
        f"{limit.loc[name, 'limited_by']} for `{name}` ({rounded(limit.loc[name, 'limit_percent'])}\u00a0% of its roof)"
        for name in ("naive", "tiled", "multi_tile")
        if name in limit.index and limit.loc[name, "limited_by"]
    ]
    if shares:
        yield f"What limits most is {_listed(shares)}"
    if {"tiled", "multi_tile"} <= set(own.index) & set(limit.index):
        row = own.loc["multi_tile"]
        gain = own.loc["tiled", "time_ms"] / row["time_ms"]
        words = f"Several tiles per block ({row['choice']}) are {_times(gain)} as fast as one"
        name = "hardware_wavefronts_per_100"
        counted = [limit.loc[kernel, ["wavefronts_per_100", name]] for kernel in ("tiled", "multi_tile")]
        which = name if all(pd.notna(each[name]) for each in counted) else "wavefronts_per_100"
        before, after = (each[which] for each in counted)
        if pd.notna(before) and pd.notna(after):
            words += (
                f"; 100 multiply-adds of a warp take {rounded(after)} passes of shared memory, not {rounded(before)}"
            )
        yield words
    edges = evidence.of("rectangular").gpu
    edges = edges[(edges["platform"] == gpu.name) & (edges["kernel"] == "tiled") & (edges["status"] == "ok")]
    edges = edges[(edges["dtype"] == "float") & (edges["tile"] == 32)]
    ragged = edges[edges["n"] % 32 != 0]
    if len(ragged) and len(whole := edges[edges["n"] % 32 == 0]):
        lost = 100 * (whole["gflops"].max() / ragged["gflops"].max() - 1)
        yield f"Edges that fill no tile cost {rounded(lost)}\u00a0% of the rate" if lost > 0.1 else "Edges cost nothing"


def _of_ladder(evidence, ladder, limits, gpu):
    """Sentences about the fastest kernels."""
    made = tables.made_of_short(ladder, evidence).to_numpy()
    kernels, library = ladder[~ladder["anchor"] & ~made], ladder[ladder["anchor"]]
    limit = limits[limits["dtype"] == "float"].set_index("kernel")
    if kernels.empty or library.empty:
        return
    best, sgemm = kernels.loc[kernels["time_ms"].idxmin()], library.loc[library["time_ms"].idxmin()]
    words = f"The fastest kernel on the CUDA cores, `{best['kernel']}`, makes {rounded(best['gflops'] / 1000)} TFLOP/s"
    words += f", {rounded(100 * sgemm['time_ms'] / best['time_ms'])}\u00a0% of cuBLAS"
    if best["kernel"] in limit.index and limit.loc[best["kernel"], "limited_by"]:
        row = limit.loc[best["kernel"]]
        words += f"; what limits it most is {row['limited_by']} ({rounded(row['limit_percent'])}\u00a0% of its roof)"
    yield words
    for row in ladder[made].sort_values("gflops").tail(1).to_dict("records"):
        yield (
            f"Floats made of short numbers on the tensor cores come to {rounded(row['gflops'] / 1000)} TFLOP/s "
            f"(`{row['kernel']}`)"
        )


def _of_study(evidence, gpu, verdicts):
    """Sentences about the claims, and how sure the times are."""
    found = verdicts.loc[verdicts["platform"] == gpu.name, "verdict"].value_counts()
    holds, fails = (found.get(verdict, 0) for verdict in (claims.HOLDS, claims.FAILS))
    if found.empty:
        return
    yield (
        f"Of the {found.sum()} claims of the five sources {holds} hold on this machine, {fails} do not, and "
        f"{found.sum() - holds - fails} cannot be tested here"
    )
    rows = evidence.gpu[(evidence.gpu["platform"] == gpu.name) & (evidence.gpu["runs"] > 1)]
    if len(rows):
        agree = 100 * (rows["run_high_ms"] <= 1.01 * rows["run_low_ms"]).mean()
        yield (
            f"Times are sure: in {rounded(agree)}\u00a0% of {_count(len(rows), 'point')} the runs agree within 1\u00a0%"
            if agree > 90
            else f"In {rounded(agree)}\u00a0% of {_count(len(rows), 'point')} the runs agree within 1\u00a0%"
        )


def _filled(sentence, functions):
    """A sentence with its figures, as a list: empty if a figure is not known, a note if the sentence cannot be made."""
    sentence = " ".join(sentence.split())
    functions = {name: _without_range(function) for name, function in functions.items()}
    said = []
    # A quotient by a count of zero is not known.
    with (
        notes.piece(f"Sentence: {sentence[:60]}…", said.append),
        contextlib.suppress(claims.Untestable, ZeroDivisionError),
    ):
        condition = re.match(r"\{only if (.+?)\} ?", sentence)
        if not condition or evaluate(condition[1], functions):
            words = sentence[condition.end() :] if condition else sentence
            said.append(re.sub(r"\{(.+?)\}", lambda part: _figure(evaluate(part[1], functions)), words))
    return said


def _figure(value):
    return plain(value) if isinstance(value, str) else rounded(value)


def _without_range(function):
    """The same function of an expression with plain numbers, because a sentence has no use for their ranges."""

    def found(*arguments, **where):
        value = function(*arguments, **where)
        if isinstance(value, claims.Choice):
            return value.words
        return value.value if isinstance(value, claims.Spread) else value

    return found


def configuration(evidence: Evidence) -> str:
    """The resolved config of every machine, collapsed."""
    parts = []
    for platform in evidence.everyone:
        text = json.dumps(platform.config, indent=1)
        parts.append(
            f"<details><summary>Resolved config: {plain(platform.label)}</summary>\n\n```\n{text}\n```\n\n</details>"
        )
    return "\n\n".join(parts)
