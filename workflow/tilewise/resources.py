"""Resources of the rules' jobs: cores, memory, time, and a GPU."""

from collections.abc import Callable, Sequence
from typing import Any

from tilewise.rules import Study
from tilewise.study import durations, slurm
from tilewise.study.precision import bytes_of_product


class JobResources:
    """Resources of jobs on this machine or a cluster. Methods that take `wildcards` are functions for Snakemake."""

    def __init__(self, study: Study):
        self.study = study

    def cores_of(self, wildcards: Any) -> int | None:
        """Cores for a measuring job.

        A job that times the CPU takes all of them, so that nothing else runs meanwhile. Jobs that time a GPU come in
        pairs, which share what `cores_without_gpu` leaves: one starts and compiles while the other holds the GPU
        (`measure.lease`). A job that times nothing takes one.
        """
        backend, task = self.study.backend_of(wildcards), wildcards.get("task")
        asked = self.study.points_on(wildcards.platform, task) if task else []
        times_host = bool(task) and backend == "gpu" and self.study.method(task).times_host
        if times_host or any(not self.study.kernels[point.kernel].on_gpu for point in asked):
            return self.study.cores
        if backend == "gpu":
            return self.study.cores and max(1, (self.study.cores - self.cores_without_gpu()) // (2 * self.study.gpus))
        return 1

    def cores_without_gpu(self) -> int:
        """Cores for a job that needs no GPU: an eighth of them if a GPU is measured meanwhile, else all."""
        cores, backends = self.study.cores or 1, (each["backend"] for each in self.study.platforms.values())
        return max(1, cores // 8) if "gpu" in backends else cores

    def expected(self) -> dict[tuple[str, str, str], tuple[float, int]]:
        """Seconds and points, by rule, platform and task, of the jobs that take more than a second.

        0 points: their number is unknown. A tuning's would have to be expanded, which takes seconds.
        """
        found = {
            ("trace", "", ""): (durations.TRACE_S, sum(map(len, self.study.traced))),
            ("page", "", ""): (durations.PAGE_S, 0),
        }
        for name in self.study.platforms:
            found |= {(rule, name, ""): (seconds, 0) for rule, seconds in durations.RULES_S.items()}
            found |= {(f"measure_{task}", name, ""): (durations.TUNE_S, 0) for task in self.study.tunings}
            for task in self.study.tasks:
                seconds = durations.TASK_START_S + self._seconds(name, task)
                found["measure", name, task] = seconds, self._journal_rows(name, task)
        return found

    def seconds_of(self, wildcards: Any) -> float:
        """The duration of a task with its builds, from recorded runs."""
        return self._seconds(wildcards.platform, wildcards.task)

    def _seconds(self, platform: str, task: str) -> float:
        asked, backend = self.study.points_on(platform, task), self.study.platforms[platform]["backend"]
        builds = durations.BUILD_S * len(self.study.used(platform, task))
        return builds + durations.estimate_seconds(asked, self.study.method(task).points_per_point, backend)

    def _journal_rows(self, platform: str, task: str) -> int:
        """The most rows that the journal of a task can have."""
        asked = self.study.points_on(platform, task)
        repeats = self.study.config["timing"]["repeats"] if self.study.platforms[platform]["backend"] == "gpu" else 1
        timed = sum(self.study.kernels[point.kernel].on_gpu for point in asked)
        repeated = self.study.method(task).name == "sweep" and not self.study.config["tasks"][task].get("in_turns")
        return len(asked) + (repeats - 1) * timed if repeated else len(asked)

    def measuring_job(self, seconds: float | Callable[[Any], float]) -> dict[str, Any]:
        """Resources of a job that measures, on a platform's own node if it needs a GPU."""
        return slurm.gpu_job(self.study.config, self.study.platforms, seconds, self.study.needs_gpu, measures=True)

    def cpus_of(self, wildcards: Any) -> int:
        """Cores to ask Slurm for; one where kernels are emulated."""
        if not self.study.needs_gpu(wildcards):
            return slurm.LOOP_CORES
        return slurm.GPU_CORES if self.study.backend_of(wildcards) == "gpu" else 1

    def probed_before(self, wildcards: Any) -> Sequence[str]:
        """The device.json of the platforms whose nodes the probe has to leave out."""
        others: Sequence[str] = self.study.platforms[wildcards.platform].get("apart_from", [])
        return [f"results/{name}/device.json" for name in others]

    def memory_of(self, wildcards: Any, attempt: int = 1) -> int:
        """MB of the host's memory for a job: 4 GB for Python and CUDA, 1 GB where kernels are emulated; for a product
        on the CPU also its matrices, as stored and in float64 to verify them. Twice as much for a second try."""
        products, emulated = [0.0], self.study.backend_of(wildcards) == "emulator"
        for point in self.study.points_on(wildcards.platform, wildcards.task) if wildcards.get("task") else ():
            if not self.study.kernels[point.kernel].on_gpu or emulated:
                elements = point.n * point.p + point.p * point.m + point.n * point.m
                products.append(bytes_of_product(point.dtype, *point.shape.values()) + elements * 3 * 8)
        return attempt * ((1000 if emulated else 4000) + int(max(products) / 1e6))

    def length_of(self, wildcards: Any, **_: Any) -> int:
        """The duration of a task, in s."""
        return int(self.seconds_of(wildcards))
