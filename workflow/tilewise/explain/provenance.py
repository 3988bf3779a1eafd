"""Tables of the runs: machines, cards and sources; verification, and variation between runs and between cards."""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from tilewise.evidence import Evidence, Platform
from tilewise.explain.number_format import rounded
from tilewise.explain.timings import CASE, LOWERED, describe, short_card, with_words
from tilewise.study import builds, columns
from tilewise.study.kernel import Kernel
from tilewise.study.status import Status

#: A point differs from card to card if its times are further apart, in %.
CARDS_DIFFER = 3
#: The largest usual difference, in ms, between the launch times of two machines (docs/comparing.md).
LAUNCH_MS = 0.0025


def by_card(platforms: Iterable[Platform]) -> pd.DataFrame:
    """Measurements of each card with each commit: the tasks and number of its rows in measurements.csv.

    The rows of CPU loops have no card.
    """
    rows = []
    for platform in platforms:
        measured = platform.measurements.fillna({"gpu_uuid": "", "node": "", "commit": ""})
        for (uuid, node, commit), own in measured.groupby(["gpu_uuid", "node", "commit"], sort=False):
            where = {"platform": platform.name, "card": short_card(uuid), "node": node, "commit": commit}
            rows.append(where | {"tasks": ", ".join(own["task"].unique()), "points": len(own)})
    return columns.set_types(pd.DataFrame(rows, columns=["platform", "card", "node", "commit", "tasks", "points"]))


def overheads(platforms: Iterable[Platform]) -> dict[str, float]:
    """Name of a platform -> its measured launch overhead in µs; platforms without a measurement are left out."""
    found = {each.name: each.facts["overhead"]["overhead_us"].median() for each in platforms}
    return {name: overhead for name, overhead in found.items() if pd.notna(overhead)}


def provenance(evidence: Evidence) -> pd.DataFrame:
    """The origin of all numbers: one row per fact, one column per platform."""
    facts = {evidence.labels[each.name]: _facts(each, evidence.kernels) for each in evidence.gpus_first}
    return pd.DataFrame(facts).rename_axis("fact").reset_index()


def _facts(platform: Platform, kernels: Mapping[str, Kernel]) -> dict[str, str]:
    device = platform.device
    cpu, gpu = device.cpu, device.gpu
    facts = {
        "platform": platform.name,
        "measured": f"{device.captured}{', kept in the repository' if platform.recorded else ', this run'}",
        "GPU": "none: CUDA kernels ran on the CPU emulator and were not timed",
    }
    if gpu:
        peak, cards = gpu["peak_gflops"] or {}, len(platform.own_cards)
        further = len({*platform.cards["gpu_uuid"]} - {*platform.own_cards}) if len(platform.cards) else 0
        facts |= {
            "GPU": f"{gpu['name']}, {gpu['sms']} SMs, compute capability {gpu['compute_capability']}",
            "clocks": f"SM {gpu['sm_clock_mhz']} MHz, memory {gpu['memory_clock_mhz']} MHz",
            "GPU memory": f"{gpu['memory_bytes'] / 2**30:.1f} GiB, {gpu['memory_bandwidth_gb_s']:.0f} GB/s",
            "L2 cache": f"{gpu['l2_bytes'] / 2**20:.0f} MiB",
            "peak at that clock": ", ".join(f"{name} {value / 1000:.1f} TFLOP/s" for name, value in peak.items()),
            "driver": str(gpu["driver"]),
            "power limit": f"{gpu['power_limit_w']:.0f} W" if gpu.get("power_limit_w") else "unknown",
            "GPU's UUID": f"{cards} cards, see What each card measured" if cards > 1 else gpu.get("uuid", "unknown"),
        }
        if further:
            facts["further cards"] = f"{further}, which repeated some of the tasks"
    for overhead in overheads([platform]).values():
        facts["overhead of an isolated time"] = f"{overhead:.1f} µs"
    facts["CPU"] = f"{cpu['name']}, {cpu['cores']} cores, {cpu['memory_gib']} GiB"
    if device.node:
        facts["node"] = device.node
    others = {name for name in platform.measurements["processor"] if name} - {cpu["name"]}
    if others:
        facts["CPU of some loops"] = ", ".join(sorted(others))
    facts["host compiler"] = str(device.host_compiler)
    facts |= {name.replace("_", " "): str(version) for name, version in device.versions.items() if version}
    if platform.recorded:
        edited = ", ".join(_edited(platform, kernels))
        facts["kernels"] = f"edited since: {edited}" if edited else "as measured, by the hash of every source"
    commits = platform.commits
    several = len(commits) > 1
    facts["commit"] = "; ".join(f"{state} ({_some(own)})" if several else state for state, own in commits.items())
    if platform.tuner_commits:
        facts["commit of the tuner's variants"] = "; ".join(platform.tuner_commits)
    return facts


def _some(tasks: Sequence[str]) -> str:
    """The names of a few tasks, or how many they are; measurements.csv has the commit of each row."""
    return ", ".join(tasks) if len(tasks) <= 5 else f"{len(tasks)} tasks"


def _edited(platform: Platform, kernels: Mapping[str, Kernel]) -> list[str]:
    """Names of the kernels whose source or parameters differ from those that were measured on a platform."""
    edited = set()
    for row in platform.measurements.to_dict("records"):
        kernel = kernels.get(row["kernel"])
        # A row without a hash is of a point that was never built.
        if kernel is None or not kernel.source or not row["build_sha256"] or kernel.name in edited:
            continue
        instances = row["instances"].split(columns.BETWEEN_INSTANCES)
        lacking = any(pd.isna(row.get(name)) for name in kernel.columns)
        if lacking or builds.sha256_of(kernel, instances, platform.device) != row["build_sha256"]:
            edited.add(kernel.name)
    return sorted(edited)


def every_point(evidence: Evidence) -> pd.DataFrame:
    """The points of all machines, `without_wanted_refusals`."""
    points = pd.concat([evidence.gpu, evidence.cpu, evidence.emulated], ignore_index=True)
    return without_wanted_refusals(points, evidence)


def without_wanted_refusals(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The rows except launches that a task makes to see them refused."""
    tasks = {name: entry for platform in evidence.shown_platforms for name, entry in platform.config["tasks"].items()}
    wanted = [name for name, entry in tasks.items() if entry.get("method") == "launch_limits"]
    return rows[~(rows["task"].isin(wanted) & (rows["status"] == Status.INVALID_LAUNCH))]


def failures(evidence: Evidence) -> pd.DataFrame:
    """Every point that is not ok, with its cause.

    A kernel that a machine cannot run at all has one row per task, element type and cause, with the number of its
    `points`; every other row is one point.
    """
    rows = every_point(evidence)
    rows = describe(rows[rows["status"] != Status.OK], evidence)
    same = ["platform", "task", "kernel", "dtype", "status", "message"]
    points = rows.groupby(same, sort=False)["status"].transform("size")
    rows = rows.assign(points=points.where(rows["status"] == Status.UNSUPPORTED, 1).astype("Int64"))
    rows[["shape", "choice"]] = rows[["shape", "choice"]].mask(rows["points"] > 1, "")
    rows = rows[(rows["points"] == 1) | ~rows.duplicated(same)]
    return rows[[*same[:4], "shape", "choice", *same[4:], "points"]].reset_index(drop=True)


def not_emulated(evidence: Evidence) -> pd.DataFrame:
    """The kernels that the CPU emulator does not run, with the reason; empty if no platform of the run is emulated."""
    emulated = any(not platform.has_gpu for platform in evidence.platforms)
    kernels = [kernel for kernel in evidence.kernels.values() if emulated and not kernel.emulated]
    rows = [{"kernel": kernel.name, "title": kernel.title, "reason": kernel.reason} for kernel in kernels]
    return pd.DataFrame(rows, columns=["kernel", "title", "reason"])


def verification(evidence: Evidence) -> pd.DataFrame:
    """Correct points of each kernel and dtype, and the largest error relative to its rounding bound."""
    rows = every_point(evidence)
    groups = rows.assign(verified=rows["status"] == Status.OK).groupby(["platform", "kernel", "dtype"], sort=False)
    return groups.agg(
        points=("status", "size"),
        verified=("verified", "sum"),
        largest_bound_ratio=("bound_ratio", "max"),
        largest_relative_error=("relative_error", "max"),
    ).reset_index()


def checks(evidence: Evidence) -> pd.DataFrame:
    """What was verified on each machine, and what may have disturbed its times: one column per machine."""
    points = every_point(evidence)
    found = {evidence.labels[each.name]: _checks(each, points, evidence) for each in evidence.gpus_first}
    return pd.DataFrame(found).rename_axis("fact").reset_index()


def _checks(platform: Platform, points: pd.DataFrame, evidence: Evidence) -> dict[str, str]:
    own = points[points["platform"] == platform.name]
    right = own[own["status"] == Status.OK]
    found = {"products verified": f"{len(right):,} of {len(own):,}"}
    if right["bound_ratio"].notna().any():
        worst = right[right["bound_ratio"] == right["bound_ratio"].max()]
        single = ", where every element is a single product, rounded once" * bool((worst["p"] == 1).all())
        found["largest error"] = f"{rounded(100 * worst['bound_ratio'].iloc[0], '%')} % of its rounding bound{single}"
    causes = own["status"].value_counts().drop(Status.OK, errors="ignore")
    found["other points"] = ", ".join(f"{count:,} {status}" for status, count in causes.items()) or "none"
    if platform.has_gpu:
        own = own[evidence.on_gpu(own["kernel"])]
        if (own["runs"] > 1).any():
            apart = describe(own, evidence)["between_percent"].dropna()
            within = [f"{rounded(100 * (apart <= most).mean(), '%')} % within {most} %" for most in (1, 2)]
            words = f"{', '.join(within)} of {len(apart):,} points; the farthest apart are "
            found["runs that agree"] = f"{words}{rounded(apart.max(), '%')} %"
        if own["sm_clock_mhz"].notna().any():
            found["lowered clocks"] = _lowered(own[own["sm_clock_mhz"].notna()], platform.device.gpu["sm_clock_mhz"])
        found["other users of the GPU at the start"] = "; ".join(platform.device.gpu.get("busy") or []) or "none known"
    known = platform.measurements["alone"].dropna().astype(bool)
    if not known.all():
        found["measured beside other work"] = f"{(~known).sum():,} of {len(known):,} points; see the column alone"
    return found


def _lowered(own: pd.DataFrame, highest: int) -> str:
    """At how many points the clock was below the highest, to which percentages of a peak refer, and the lowest."""
    slow = own[own["sm_clock_min_mhz"].fillna(own["sm_clock_mhz"]) < LOWERED * highest]
    words = f"{len(slow):,} of {len(own):,} points below {100 * LOWERED:.0f} % of {highest:,} MHz"
    return words + f", down to {rounded(slow['sm_clock_mhz'].min(), 'MHz')} MHz" * (len(slow) > 0)


def cards_differ(evidence: Evidence) -> pd.DataFrame:
    """The points whose times differ by more than CARDS_DIFFER from card to card, the largest differences first.

    low_ms, high_ms, low_mhz and high_mhz are the extremes of time and clock, `why` is the reason if one is known.
    """
    found = _by_point(evidence)
    found = found[found["cards_percent"] > CARDS_DIFFER]
    words = [f"the clock: {low:.0f} to {high:.0f} MHz" for low, high in zip(found["low_mhz"], found["high_mhz"])]
    # The product of time and clock is the number of cycles: the clock explains what that leaves of the difference.
    explained = found["high_cycles"] / found["low_cycles"] - 1 <= found["cards_percent"] / 200
    launches = found["high_ms"] - found["low_ms"] <= LAUNCH_MS
    why = pd.Series(words, found.index, "str").where(explained, "")
    found = found.assign(why=why.mask(launches, "no more apart than launches on two machines"))
    found = with_words(found.drop(columns=["low_cycles", "high_cycles"]), evidence)
    return found.sort_values("cards_percent", ascending=False, kind="stable", ignore_index=True)


def with_cards(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Rows with cards_percent, the variation of their point's times in these tasks between cards.

    It is empty where one card measured a point.
    """
    found, keys = _by_point(evidence.select_tasks(*rows["task"].unique())), [*CASE, *evidence.choice]
    return rows.merge(found[[*keys, "cards_percent"]], how="left", on=keys).set_axis(rows.index)


def on_all_cards(own: pd.DataFrame, evidence: Evidence, wanted: list[str]) -> pd.DataFrame:
    """The columns `wanted` of some rows of GPUs, followed by those of further cards in the same tasks."""
    others = [gpu.cards.loc[gpu.cards["task"].isin(own["task"])] for gpu in evidence.gpus if len(gpu.cards)]
    return columns.set_types(pd.concat([own, *others], ignore_index=True).reindex(columns=wanted))


def _by_point(evidence: Evidence) -> pd.DataFrame:
    """One row per point that a known card measured, in any task: how many cards did, and the extremes of the times."""
    keys = [*CASE, *evidence.choice]
    own = evidence.gpu[(evidence.gpu["status"] == Status.OK) & (evidence.gpu["gpu_uuid"].fillna("") != "")]
    rows = on_all_cards(own, evidence, [*keys, "gpu_uuid", "time_ms", "sm_clock_mhz"])
    groups = rows.assign(cycles=rows["time_ms"] * rows["sm_clock_mhz"]).groupby(keys, sort=False, dropna=False)
    found = groups.agg(
        card_count=("gpu_uuid", "nunique"),
        low_ms=("time_ms", "min"),
        high_ms=("time_ms", "max"),
        low_mhz=("sm_clock_mhz", "min"),
        high_mhz=("sm_clock_mhz", "max"),
        low_cycles=("cycles", "min"),
        high_cycles=("cycles", "max"),
    ).reset_index()
    return found.assign(cards_percent=(100 * (found["high_ms"] / found["low_ms"] - 1)).where(found["card_count"] > 1))
