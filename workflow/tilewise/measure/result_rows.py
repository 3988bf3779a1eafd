"""Build result rows from verifications, timings and failures."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kernelscope.cpp import display_path
from tilewise import UserError
from tilewise.study.jobs import Job, Row
from tilewise.study.kernel import Kernel
from tilewise.study.status import Status
from tilewise.study.verify import Check, fetched

#: CUDA's words for an access that a kernel must not make. The last stand for other failures, too.
_OF_ACCESSES = ("illegal memory access", "misaligned address", "unspecified launch failure")


def verification_columns(job: Job, found: Check, note: str = "", also: str = "") -> Row:
    """The status, message and errors of a verified job; its message ends with the notes of its launches and `also`."""
    words = [found.message or note, *dict.fromkeys(launch.note for launch in job.launches), also]
    return {
        "status": Status.OK if found.ok else Status.INCORRECT,
        "message": "; ".join(filter(None, words)),
        "relative_error": found.relative_error,
        "bound_ratio": found.bound_ratio,
    }


def shares(kernel: Kernel, workspaces: Mapping[str, Any]) -> str:
    """Shares of the ways in which a kernel made its last product, from the bytes of its workspaces; "" for a kernel
    without ways."""
    if not kernel.shares:
        return ""
    space = workspaces[kernel.shares["workspace"]]
    counts = fetched(space).view(np.uint64)[: len(kernel.shares["of"])]
    percent = 100 * counts / max(1, int(counts.sum()))
    return ", ".join(f"{way}: {share:.3g} %" for share, way in zip(percent, kernel.shares["of"]) if share)


def timing(times_ms: Sequence[float], job: Job) -> Row:
    """Statistics of samples: times in ms, noise as a fraction, rate in GFLOP/s of 2 n p m operations."""
    q1, median, q3 = (float(q) for q in np.percentile(times_ms, [25, 50, 75]))
    return {
        "samples": len(times_ms),
        "time_ms": median,
        "time_min_ms": float(min(times_ms)),
        "time_q1_ms": q1,
        "time_q3_ms": q3,
        "noise": float(np.std(times_ms) / np.mean(times_ms)) if len(times_ms) > 1 else None,
        "gflops": 2 * job.point.multiply_adds / median / 1e6,
    }


def median_run(runs: Sequence[Row]) -> Row:
    """Merge the rows of several runs of a point: the row of the run with the middle median, with the range of all runs.

    If any run failed, return the failed run.
    """
    wrong = [row for row in runs if row["status"] != Status.OK]
    timed = sorted((row for row in runs if row.get("time_ms") is not None), key=lambda row: row["time_ms"])
    if wrong or not timed:
        return (wrong or list(runs))[0]
    row = timed[(len(timed) - 1) // 2]
    batched = next((each["batch_ms"] for each in runs if each.get("batch_ms") is not None), None)
    between = {"runs": len(timed), "run_low_ms": timed[0]["time_ms"], "run_high_ms": timed[-1]["time_ms"]}
    return row | between | {"batch_ms": batched}


def failed_row(job: Job, status: Status, message: Any) -> Row:
    """The row of a job that could not be run."""
    return job.row | {"status": status, "message": f"{message}{_hint(job.kernel, str(message))}"}


def _hint(kernel: Kernel, message: str) -> str:
    """How to find the access that a GPU does not name, if the message is about one and the emulator runs the kernel."""
    if not kernel.source or not kernel.emulated or not any(words in message for words in _OF_ACCESSES):
        return ""
    return f"; `tilewise trace {display_path(kernel.path)}`, with a small --shape, names a faulty access"


def message_of(error: Exception) -> str:
    """The message of an exception."""
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"


def row_or_failure(job: Job, run: Callable[[], Row]) -> Row:
    """The row of a run, or a row with the error: other points of the same process still run."""
    try:
        return run()
    except Exception as error:
        return failed_row(job, Status.ERROR, message_of(error))
