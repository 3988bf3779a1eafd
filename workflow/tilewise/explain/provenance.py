"""Tables of the runs: machines, cards, sources, durations, and verification."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from tilewise.evidence import Evidence, Platform
from tilewise.explain.timings import describe, short_card
from tilewise.study import builds, columns
from tilewise.study.columns import SHAPE
from tilewise.study.kernel import Kernel
from tilewise.study.status import Status


def cards(evidence: Evidence) -> pd.DataFrame:
    """Comparison of the cards of one model: one row per platform of this run whose model another platform has too.

    At each point that all of them measured, a card's rate is divided by the median over the cards; the row has the
    median of these quotients. It is without rows if every card is of another model.
    """
    gpus = [platform for platform in evidence.platforms if platform.has_gpu]
    rows = []
    for _, same in itertools.groupby(sorted(gpus, key=_model), key=_model):
        platforms = {platform.name: platform for platform in same}
        timed = evidence.gpu[evidence.gpu["platform"].isin(platforms)]
        # A point that two parameters of an older registry told apart may occur twice.
        point = timed.groupby(["task", "kernel", "dtype", *SHAPE, *evidence.choice], dropna=False).ngroup()
        rates = 1 / timed.pivot_table(index=point, columns="platform", values="time_ms", aggfunc="median").dropna()
        if len(platforms) > 1 and set(platforms) <= set(rates) and len(rates):
            shares = 100 * rates.div(rates.median(axis=1), axis=0).median()
            clocks = timed[timed["time_ms"].notna()].groupby("platform")["sm_clock_mhz"].median()
            for name, each in platforms.items():
                card = (name, each.device.node, each.device.gpu.get("uuid", ""))
                rows.append((*card, len(rates), clocks[name], shares[name]))
    names = ["platform", "node", "gpu_uuid", "compared", "sm_clock_mhz", "rate_percent"]
    return columns.set_types(pd.DataFrame(rows, columns=names))


def _model(platform: Platform) -> str:
    return platform.device.gpu["name"]


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
    words = [f"{state} ({_some(tasks)})" for state, tasks in commits.items()] if len(commits) > 1 else commits
    facts["commit"] = "; ".join(words)
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
    """The points of all machines, without launches that a task makes to see them refused."""
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
    names = ["platform", "task", "kernel", "dtype", "shape", "choice", "status", "message"]
    rows = rows[names].assign(points=pd.array([1] * len(rows), dtype="Int64"))
    cannot = rows["status"] == Status.UNSUPPORTED
    same = [name for name in names if name not in ("shape", "choice")]
    points = rows[cannot].groupby(same, sort=False)["points"].transform("size")
    grouped = rows[cannot].assign(points=points.astype("Int64")).drop_duplicates(same)
    grouped = grouped.assign(**{name: grouped[name].where(grouped["points"] == 1, "") for name in ("shape", "choice")})
    return pd.concat([rows[~cannot], grouped]).sort_index(kind="stable").reset_index(drop=True)


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
