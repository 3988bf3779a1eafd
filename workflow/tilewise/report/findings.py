"""What the data says, in sentences: functions from evidence to Markdown, so that every sentence fits its numbers."""

import contextlib
import html
import json
import re
from collections.abc import Iterable
from typing import Any

import pandas as pd

from tilewise.report import claims, tables
from tilewise.report.data import Evidence, Platform
from tilewise.study import columns
from tilewise.study.expressions import evaluate

_COUNTS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def plain(words: Any) -> str:
    """Words from results or from the config, such as a title, so that they cannot become markup in Markdown."""
    return html.escape(" ".join(str(words).split()))


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
    commit = (gpu.device["commit"] or "unknown")[:10]  # a copy without git's history has no commit
    return (
        f"they were recorded on an {plain(gpu.device['gpu']['name'])} at {_when(gpu)} (`{gpu.name}`, commit `{commit}`)"
    )


def _count(number, noun):
    words = _COUNTS[number - 1] if 0 < number <= len(_COUNTS) else f"{number:,}"
    return f"{words} {noun}{'' if number == 1 else 's'}"


def _times(ratio):
    return f"{ratio:.3g}×" if ratio < 1000 else f"{ratio:,.0f}×"


def _rounded(value: float) -> str:
    """A number as a person says it: 0.4, 5.4, 54, 540."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


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
        said = f"**{_rounded(best['gflops'] / 1000)} TFLOP/s** (`{best['kernel']}`)"
        compared = [f"{_rounded(best['gflops'] / naive['gflops'])} times as fast"]
        if pd.notna(best["percent_of_anchor"]):
            compared.append(f"{best['percent_of_anchor']:.0f} % of the rate of NVIDIA's own library")
        peak = (gpu.device["gpu"]["peak_gflops"] or {}).get("float")
        if peak:
            compared.append(f"{100 * best['gflops'] / peak:.0f} % of the peak of the chip's float units")
        lines.append(
            f"On {_label(evidence, gpu)}, the textbook's kernel multiplies {naive['n']:,} × {naive['n']:,} matrices of "
            f"floats at **{_rounded(naive['gflops'] / 1000)} TFLOP/s**, and the fastest one of this study at {said}: "
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
        f" Floats made of short numbers on the tensor cores come to {_rounded(row['gflops'] / 1000)} TFLOP/s "
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
            f"**It asks memory for less.** For 100 multiply-adds, a warp of `naive` makes {_rounded(naive[asked])} "
            f"requests to caches and shared memory; one of `{best['kernel']}` makes {_rounded(best[asked])}. What it "
            "has loaded stays in registers and serves many sums."
        )
    if best[share] > naive[share]:
        points.append(
            f"**It spends its instructions on arithmetic.** {naive[share]:.0f} % of the instructions in `naive`'s loop "
            f"are multiply-adds, and {best[share]:.0f} % in `{best['kernel']}`'s. A scheduler issues one instruction "
            "per cycle, so every other one costs a multiply-add."
        )
    least = own.loc[own[near].idxmin()] if own[near].notna().any() else None
    if least is not None and best[near] > least[near]:
        points.append(
            f"**It waits less.** `{least['kernel']}` reaches {least[near]:.0f} % of the rate that its own loop allows, "
            f"`{best['kernel']}` {best[near]:.0f} %. In the rest of the time no multiply-add is ready."
        )
    if not points:
        return ""
    where = f" on {plain(evidence.labels[platform])}" if len(climbed) > 1 else ""
    count = (
        "One reason, measured:" if len(points) == 1 else f"{_count(len(points), 'reason').capitalize()}, each measured:"
    )
    return "\n".join([f"**Why{where}?** {count}", "", *(f"{i}. {point}" for i, point in enumerate(points, 1))])


def conclusion(evidence: Evidence, rungs: pd.DataFrame, ladder: pd.DataFrame, verdicts: pd.DataFrame) -> str:
    """What a reader takes home, from the data: the ladder's largest steps, and how the claims did."""
    points = []
    for gpu in evidence.gpus:
        ends = _ends(evidence, rungs, gpu)
        if not ends:
            continue
        naive, best, own = ends
        steps = own[own["gain"].notna()].sort_values("gain", ascending=False, kind="stable").head(3)
        gains = [f"`{row['kernel']}` ({_rounded(row['gain'])} times)" for row in steps.to_dict("records")]
        where = _label(evidence, gpu)
        gain = _rounded(best["gflops"] / naive["gflops"])
        points.append(
            f"On {where}, from `naive` to `{best['kernel']}` the rate grows {gain} times. The largest steps, each over "
            f"the fastest kernel before it, are {_listed(gains)}."
        )
        lost = own[own["gain"] < 1]
        if len(lost):
            names = _listed([f"`{name}`" for name in lost["kernel"]])
            points.append(f"Not every idea pays on every chip: {names} did not beat the fastest kernel before.")
    for platform in evidence.readers:
        found = verdicts.loc[verdicts["platform"] == platform.name, "verdict"].value_counts()
        hold, fail = found.get(claims.HOLDS, 0), found.get(claims.FAILS, 0)
        if hold + fail:
            points.append(
                f"Of the {hold + fail} published claims that could be tested on {_label(evidence, platform)}, {hold} "
                f"hold{'s' if hold == 1 else ''}."
            )
    return "\n".join(f"- {point}" for point in points)


def summary(evidence: Evidence, ladder: pd.DataFrame, verified: pd.DataFrame, failed: pd.DataFrame) -> str:
    """The study in a few points: the kernels of each GPU at the largest float product, then checks and failures."""
    points = []
    for gpu in evidence.gpus:
        points += _ladder_points(ladder[ladder["platform"] == gpu.name], _label(evidence, gpu))
    total, right = int(verified["points"].sum()), int(verified["verified"].sum())
    worst = verified.loc[verified["points"] == verified["verified"], "largest_bound_ratio"].max()
    sentence = f"{right:,} of {total:,} points were verified"
    if pd.notna(worst):
        sentence += f"; the largest error is {100 * worst:.4g} % of its rounding bound"
    points.append(f"{sentence}.")
    points += company(evidence)
    points += _faults(evidence.facts["traffic"])
    wrong = failed[failed["status"] == "incorrect"]
    if len(wrong):
        points.append(f"**{_count(len(wrong), 'product').capitalize()} came out wrong**; see What failed and why.")
    if len(failed):
        counts = failed.groupby("status", sort=False)["points"].sum().sort_values(ascending=False, kind="stable")
        kinds = ", ".join(f"{count} {status}" for status, count in counts.items())
        points.append(f"{_count(int(counts.sum()), 'point').capitalize()} did not give a time or a product ({kinds}).")
    return "\n".join(f"- {point}" for point in points)


def _faults(traffic: pd.DataFrame) -> list[str]:
    """What the emulator found wrong in kernels, and which it did not search at any shape."""
    by_kernel = traffic.groupby("kernel", sort=False)[list(columns.FAULTS)].sum(min_count=1)
    points, where = [], "see What the kernels ask of memory"
    faulty = by_kernel[(by_kernel > 0).any(axis=1)]
    if len(faulty):
        kinds = (
            (kernel, [columns.heading(name) for name in faulty if row[name] > 0])
            for kernel, row in faulty.fillna(0).iterrows()  # some faults may not have been searched for
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
            f"{1 / rows['faster'].median():.2g} times the other's time. {apart} "
            f"{'differs' if len(changed) == 1 else 'differ'} by more than the spread."
        )
        if len(changed):
            most, least = changed.loc[changed["faster"].idxmax()], changed.loc[changed["faster"].idxmin()]
            said += (
                f" The range is from {least['faster']:.2g} times as fast (`{least['kernel']}`, {least['dtype']}, "
                f"{least['shape']}) to {most['faster']:.2g} times (`{most['kernel']}`, {most['dtype']}, "
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
            f"{fast['rate_percent'] - slow['rate_percent']:.2g} % of the median rate. The slowest is "
            f"{plain(slow['gpu_uuid'])} on {plain(slow['node'] or slow['platform'])}, at {slow['rate_percent']:.4g} %."
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
        steps.append(f"{name}{choice} {row['time_ms']:,.4g} ms")
    shape = next(iter(rows.values()))["shape"]
    points = [f"**{label}**, float, {shape}: {', '.join(steps)}."]
    own = [row for name, row in rows.items() if not row["anchor"]]
    if not own:
        return points
    fastest = min(own, key=lambda row: row["time_ms"])
    sentence = f"The fastest kernel of the study is `{fastest['kernel']}`"
    if fastest["choice"]:
        sentence += f" with {fastest['choice']}"
    if pd.notna(fastest["speedup_over_naive"]) and fastest["kernel"] != "naive":
        sentence += f", {_times(fastest['speedup_over_naive'])} the speed of the best naive kernel"
    if pd.notna(fastest["percent_of_anchor"]):
        sentence += f" and {fastest['percent_of_anchor']:.0f}\u00a0% of cuBLAS"
    if pd.notna(fastest["percent_of_peak"]):
        sentence += f"; it reaches {fastest['percent_of_peak']:.0f}\u00a0% of the chip's vector peak"
    points.append(f"{sentence}.")
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
            words = f"`{row['kernel']}` {row['gflops'] / 1000:.3g} TFLOP/s, {_times(row['gflops'] / sgemm['gflops'])}"
            if pd.notna(row["percent_of_peak"]):
                words += f" cuBLAS's and {row['percent_of_peak']:.0f}\u00a0% of the peak of the float units"
            said.append(f"{words}, with {_times(row['relative_error'] / sgemm['relative_error'])} its error")
        lines.append(
            f"On {_label(evidence, gpu)}, at {sgemm['shape']}, cuBLAS's SGEMM makes {sgemm['gflops'] / 1000:.3g} "
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
    rows = rows[rows["gflop_per_joule"].notna()]
    lines = []
    for gpu in evidence.gpus:
        own = rows[rows["platform"] == gpu.name]
        library = own[(own["dtype"] == "float") & own["kernel"].isin(evidence.libraries)]
        kernels = own[(own["dtype"] == "float") & ~own["kernel"].isin(evidence.libraries)]
        if len(library) and len(kernels):
            best, sgemm = kernels.loc[kernels["gflop_per_joule"].idxmax()], library.iloc[0]
            lines.append(
                f"On {_label(evidence, gpu)}, a product of floats costs {sgemm['joules_per_product']:.3g} J in cuBLAS "
                f"({sgemm['gflop_per_joule']:,.3g} GFLOP/J) and {best['joules_per_product']:.3g} J in "
                f"`{best['kernel']}` ({best['gflop_per_joule']:,.3g} GFLOP/J, at {best['watts']:,.0f} W)."
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
            lines.append(
                f"Source a found that double is {claim:g}\u00a0% slower than float, each with its best block, and that "
                f"another block is best for double. On {_label(evidence, gpu)} double takes {more:.1f}\u00a0% "
                f"longer; the best block is {own.loc['float', 'choice']} for float and "
                f"{own.loc['double', 'choice']} for double."
            )
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
                f"In the median, {shares.median():.0f}\u00a0% of the variants are within 5\u00a0% of the best."
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
                    f"{largest['gain_percent']:.1f}\u00a0% (`{largest['kernel']}`, {largest['dtype']}, "
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
            f"{longer[chosen].median():.3g} times as long ({longer[chosen].min():.3g} to {longer[chosen].max():.3g})"
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
        functions = claims.Machine(evidence, platform).functions() | {"platform": evidence.labels[platform.name]}
        with contextlib.suppress(claims.Untestable):
            lines.append(_filled(" ".join(sentence.split()), functions))
    return "\n\n".join(lines)


def rung(
    evidence: Evidence, rows: pd.DataFrame, rungs: pd.DataFrame, kernel: str, *sentences: str, dtype: str = "float"
) -> str:
    """A paragraph about one rung of a ladder for each GPU that climbed it: its rate, then sentences with their figures.

    `rows` and `rungs` are those of `tables.climb` and `tables.rungs`. Braces hold expressions as in report/claims.yaml.
    There are further functions: this(column), last(column) of the fastest rung before, rung(kernel, column), and
    row(column, **conditions) of any row at the same shape. A sentence without its figures is left out.
    """
    lines = []
    for gpu in evidence.gpus:
        own = rungs[(rungs["platform"] == gpu.name) & (rungs["dtype"] == dtype)].set_index("kernel", drop=False)
        if kernel not in own.index:
            continue
        functions = claims.Machine(evidence, gpu).functions() | _of_rungs(own, rows, kernel)
        this = own.loc[kernel]
        words = f"**{_label(evidence, gpu)}:** " if len(evidence.gpus) > 1 else ""
        words += f"**{this['gflops'] / 1000:.3g}\u00a0TFLOP/s**"
        if this["before"]:
            words += f", {_times(this['gain'])} the rate of `{this['before']}`"
        if pd.notna(this["percent_of_anchor"]):
            words += f", {this['percent_of_anchor']:.3g}\u00a0% of cuBLAS"
        said = [f"{words}."]
        for sentence in sentences:
            with contextlib.suppress(claims.Untestable):
                said.append(_filled(" ".join(sentence.split()), functions))
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
            roof = claims.Machine(evidence, gpu).roof("multiply_add_rate", dtype).value
            if on_vector_units:
                shares["of the rate that multiply-adds alone reach"] = 100 * best["gflops"] / roof
        peak = (gpu.device["gpu"]["peak_gflops"] or {}).get(dtype)
        if peak and on_vector_units:
            shares["of the datasheet's peak"] = 100 * best["gflops"] / peak
        words = [f"{share:.3g}\u00a0% {of}" for of, share in shares.items()]
        clocks = own["sm_clock_mhz"].dropna()
        held = f" The clock held {clocks.min():,.0f} to {clocks.max():,.0f} MHz over all rungs." if len(clocks) else ""
        rate = f"{best['gflops'] / 1000:.3g}\u00a0TFLOP/s"
        lines.append(
            f"On {_label(evidence, gpu)} the fastest is `{best['kernel']}` with {rate}: {', '.join(words)}.{held}"
        )
    return "\n\n".join(lines)


def _filled(sentence, functions):
    def figure(part):
        value = evaluate(part[1], functions)
        value = value.value if isinstance(value, claims.Spread) else value
        return plain(value) if isinstance(value, str) else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"

    return re.sub(r"\{(.+?)\}", figure, sentence)


def configuration(evidence: Evidence) -> str:
    """The resolved config of every machine, collapsed."""
    parts = []
    for platform in evidence.everyone:
        text = json.dumps(platform.config, indent=1)
        parts.append(
            f"<details><summary>Resolved config: {plain(platform.label)}</summary>\n\n```\n{text}\n```\n\n</details>"
        )
    return "\n\n".join(parts)
