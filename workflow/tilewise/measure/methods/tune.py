"""The method `tune`: every variant of a kernel's space is verified and timed in a few runs, the best few in turns.

A space is small enough to try all of it, so there is no search: a kernel's conditions prune it, and the variants are
built beforehand, for themselves. Each stage is in the journal, so that a stopped run goes on where it was.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kernelscope.files import digest
from tilewise.measure.journal import Journal
from tilewise.measure.methods.base import Method, Tables
from tilewise.measure.task import BRIEF_DUEL, Work, by_operands, run_in_turns, run_screened
from tilewise.study import columns, tuning
from tilewise.study.device import REGISTER_UNIT, WARP
from tilewise.study.jobs import Job, Row
from tilewise.study.points import Parameters, Point
from tilewise.study.status import NOT_BUILT, Status
from tilewise.study.sweeps import Reading, sweep_parameters

#: What variants compete for: a kernel, an element type and a class of shapes.
Contest = tuple[str, str, str]
#: The entries of instances, by kernel and instance.
Built = Mapping[str, Mapping[str, Mapping[str, Any]]]


class Tune(Method):
    """Its facts are all variants, one row per variant and shape; its measurements are those of the best few.

    On the emulator every variant is verified, and none is chosen.
    """

    name = "tune"
    reading = Reading(only_cuda=True, space=True)
    on_request = True

    def settings(self, config: Mapping[str, Any], backend: str) -> Any:
        return [config["tuning"], config["duel"] | BRIEF_DUEL]

    def run(self, work: Work) -> Tables:
        settings = work.config["tuning"]
        timing = work.config["timing"] | {"point_limit_s": settings["limit_s"]}
        work = work._replace(config={**work.config, "timing": timing}).briefly()
        jobs = work.jobs()
        built = {name: its["instances"] for name, its in work.builds.items()}
        queue = sorted(jobs, key=by_operands)
        with Journal(work.journal) as remembered:
            refused = {job.key: row for job in queue if (row := _refused(job, built, work.device.limits))}
            waiting = [job for job in queue if job.key not in refused]
            # A few runs are not a measurement: both are in one journal, under separate keys.
            keys = {job.key: digest(["screen", settings["runs"], job.key]) for job in waiting}
            screened = refused | run_screened(waiting, work, remembered, keys)
            best_few = _finalists(jobs, screened, work)
            finalists = [job for job in queue if job.point in best_few]
            measured, _ = run_in_turns(finalists, work, remembered)
        best = fastest_variants(finalists, measured)
        rows = [_variant(job, screened[job.key], measured.get(job.key), best, built, work) for job in jobs]
        found = [measured[job.key] for job in finalists]
        parameters = work.parameters
        return columns.frame(found, "measurements", parameters), columns.frame(rows, "tune", parameters)


def _refused(job: Job, built: Built, limits: Mapping[str, Any]) -> Row | None:
    """The row of a job that needs no run: it was not built, or a device of these limits refuses one of its launches."""
    if job.row["status"] in NOT_BUILT:
        return job.row
    for launch in job.launches:
        entry = built[job.kernel.name][launch.instance]
        shared = entry.get("shared_bytes", 0) + launch.dynamic_shared_bytes
        warps = -(-launch.threads // WARP)
        unit = -(-entry.get("registers", 0) * WARP // REGISTER_UNIT) * REGISTER_UNIT
        asked = [
            (launch.threads, limits["max_threads_per_block"], "threads per block"),
            (shared, limits["shared_bytes_per_block_optin"], "B of shared memory per block"),
            (warps * unit, limits.get("registers_per_sm", math.inf), "registers per block"),
        ]
        for wanted, allowed, words in asked:
            if wanted > allowed:
                message = f"not launched: {launch.instance} needs {wanted} {words}; the device allows {allowed}"
                return job.row | {"status": Status.INVALID_LAUNCH, "message": message}
    return None


def contest(point: Point) -> Contest:
    """The contest of a variant at a point."""
    return point.kernel, point.dtype, tuning.shape_class(point.shape)


def _finalists(jobs: Iterable[Job], screened: Mapping[str, Row], work: Work) -> set[Point]:
    """The points of the best few of each contest, and of the choice that the registry has."""
    jobs, few = list(jobs), work.config["tuning"]["finalists"]
    times = _mean_times(jobs, screened, "screen_ms")
    taken = {
        (place, each) for place, found in times.items() for each in sorted(found, key=lambda key: found[key])[:few]
    }
    taken |= {(place, each) for place, found in times.items() for each in found if is_registered(place, each, work)}
    return {job.point for job in jobs if (contest(job.point), job.point.parameters) in taken}


def fastest_variants(jobs: Iterable[Job], rows: Mapping[str, Row]) -> dict[Contest, Parameters]:
    """The fastest variant of each contest, by rows of measurements.csv under the jobs' keys."""
    times = _mean_times(list(jobs), rows, "time_ms")
    return {place: min(found, key=lambda key: found[key]) for place, found in times.items()}


def _mean_times(jobs: Sequence[Job], rows: Mapping[str, Row], column: str) -> dict[Contest, dict[Parameters, float]]:
    """The geometric mean of a variant's times over the shapes of its class; of those that are right at all of them."""
    logarithms: dict[Contest, dict[Parameters, dict[Point, float]]] = {}
    shapes: dict[Contest, set] = {}
    for job in jobs:
        row, place = rows[job.key], contest(job.point)
        shapes.setdefault(place, set()).add((job.point.n, job.point.p, job.point.m))
        if row["status"] == Status.OK and row.get(column):
            logarithms.setdefault(place, {}).setdefault(job.point.parameters, {})[job.point] = math.log(row[column])
    return {
        place: {each: sum(at.values()) / len(at) for each, at in found.items() if len(at) == len(shapes[place])}
        for place, found in logarithms.items()
        if any(len(at) == len(shapes[place]) for at in found.values())
    }


def is_registered(place: Contest, parameters: Parameters, work: Work) -> bool:
    """Whether a variant is what the registry has for this platform, or for the GPU whose choices it takes."""
    kernel, dtype, word = work.kernels[place[0]], place[1], place[2]
    return tuning.chosen(kernel.tuned, work.device.platform, dtype, word) == sweep_parameters(parameters)


def _variant(
    job: Job,
    screened: Row,
    measured: Row | None,
    best: Mapping[Contest, Parameters],
    built: Built,
    work: Work,
) -> Row:
    """The row of a variant: of its measurement if it has one, else of its few runs."""
    place, parameters = contest(job.point), job.point.parameters
    row = job.row | screened | (measured or {})
    spills = [built[job.kernel.name][launch.instance].get("spill_bytes", math.nan) for launch in job.launches]
    time_ms = row.get("time_ms") or screened.get("screen_ms")
    return row | {
        "shape_class": place[2],
        "screen_ms": screened.get("screen_ms"),
        "spill_bytes": None if math.isnan(sum(spills)) else sum(spills),
        "gflops": 2e-6 * job.point.multiply_adds / time_ms if time_ms and row["status"] == Status.OK else None,
        "registered": is_registered(place, parameters, work),
        "chosen": best.get(place) == parameters,
    }
