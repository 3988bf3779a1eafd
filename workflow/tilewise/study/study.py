"""A study: the validated config together with the registry, and what the rules need to know of both."""

import dataclasses
import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path

from tilewise import ROOT, UserError
from tilewise.files import digest
from tilewise.measure.backends import emulator
from tilewise.study import points, registry, slurm
from tilewise.study.schema import validate

#: Names of rules that a task cannot have too.
RULES = "all probe target build measure maximum_size collect occupancy trace counters show_task overview page".split()


def this_machine():
    """Name and backend of this machine as a platform: its first GPU (`nvidia-h200`, gpu), or (`emulator`, emulator)."""
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True)
        if answer.returncode == 0 and answer.stdout.strip():
            return re.sub(r"[^a-z0-9]+", "-", answer.stdout.splitlines()[0].lower()).strip("-"), "gpu"
    return "emulator", "emulator"


class Study:
    """What a config asks for.

    tasks: names in the order of the config; platforms: dict from name to its settings, each with a `backend` (gpu or
    emulator); kernels: the registry. The methods that take `wildcards` are input functions of Snakemake's rules. Paths
    are relative: they are the same in a clone that was moved, where nothing needs to be made anew.
    `cpu_job` and `gpu_job` are the resources of a job under Slurm. `remote`: jobs run elsewhere, so that this machine
    says nothing about the platforms. `cores`: those that Snakemake may use. `reserved`: names that no task can have.
    Raises UserError for anything in the config or the registry that cannot work.
    """

    def __init__(
        self, config, source="config/config.yaml", folder=registry.KERNELS, remote=False, cores=None, reserved=()
    ):
        validate(config, "config", source)
        self.config = config
        self.cores = cores
        self.kernels = registry.load(folder)
        self.tasks = list(config["tasks"])
        taken = {*reserved, *RULES} & set(self.tasks)
        if taken:
            raise UserError(f"{source}: tasks.{min(taken)}: the study has a rule or table of that name; choose another")
        if config["platforms"] == "auto" and remote:
            raise UserError(
                "platforms: 'auto' is the machine that Snakemake runs on, but the jobs run on a cluster; "
                "config/cluster.yaml names the cluster's platforms, and --configfile replaces it: give both, "
                "as in --configfile config/cluster.yaml config/quick.yaml"
            )
        if config["platforms"] == "auto":
            name, backend = this_machine()
            self.platforms = {name: {"backend": backend}}
        else:
            self.platforms = config["platforms"]
        for name in ("l1", "l2"):
            level = config["trace"]["cache_lines"][name]
            if level["bytes"] < level["ways"] * 64:
                raise UserError(
                    f"{source}: trace.cache_lines.{name}: {level['bytes']} bytes do not hold a set of {level['ways']} "
                    "lines of 64 B; give more bytes or fewer ways"
                )
        for name, platform in self.platforms.items():
            if platform["backend"] == "emulator" and (ROOT / "report" / "recorded" / name).is_dir():
                raise UserError(
                    f"{source}: platforms.{name}: a recorded run has that name; choose another for an emulator"
                )
        self.cpu_job = slurm.cpu_job(config)
        self.gpu_job = slurm.gpu_job(config, self.platforms)
        self._points = {task: self.points(task) for task in self.tasks}

    def points(self, task, backend="gpu"):
        """The points of a task on a backend."""
        return points.expand(self.config, self.kernels, task, backend)

    def with_method(self, method):
        """Names of the tasks that a method serves."""
        return [task for task in self.tasks if self.config["tasks"][task].get("method", "sweep") == method]

    def instances(self, name):
        """The template instances of a kernel that any task asks for, sorted: what the build rule compiles."""
        kernel = self.kernels[name]
        return sorted({kernel.instance(p) for task in self.tasks for p in self._points[task] if p.kernel == name})

    def instances_of(self, wildcards):
        """`instances` for a rule with the wildcard kernel."""
        return self.instances(wildcards.kernel)

    def source_of(self, wildcards):
        """Path of the kernel's source."""
        return os.path.relpath(self.kernels[wildcards.kernel].path)

    def builds_of(self, wildcards):
        """The build folders that a task of a platform launches from."""
        names = sorted({p.kernel for p in self._points[wildcards.task] if self.kernels[p.kernel].source})
        return [f"results/{wildcards.platform}/build/{name}" for name in names]

    def facts_of(self, wildcards):
        """What a task's method writes beside the measurements; nothing for a plain sweep."""
        method = self.config["tasks"][wildcards.task].get("method", "sweep")
        return [] if method == "sweep" else f"results/{wildcards.platform}/{method}/{wildcards.task}.csv"

    def cuda_builds_of(self, wildcards):
        """The build folders of all CUDA kernels of a platform."""
        used = {p.kernel for points in self._points.values() for p in points}
        names = sorted(name for name in used if self.kernels[name].kind == "cuda")
        return [f"results/{wildcards.platform}/build/{name}" for name in names]

    def cuda_sources(self):
        """Paths of all CUDA kernels of the registry."""
        return [os.path.relpath(kernel.path) for kernel in self.kernels.values() if kernel.kind == "cuda"]

    def traced_points(self, shapes):
        """Every CUDA kernel with every choice of parameters that a sweep asks for, at those of `shapes` it is for."""
        found = {}
        for task in self.with_method("sweep"):
            for point, shape in itertools.product(self._points[task], shapes):
                kernel = self.kernels[point.kernel]
                point = dataclasses.replace(point, task="trace", **shape)
                if kernel.kind == "cuda" and kernel.unmet(point) is None:
                    found[point] = None
        return list(found)

    def loop_sources(self):
        """Paths of all CPU loops of the registry."""
        return [os.path.relpath(kernel.path) for kernel in self.kernels.values() if kernel.kind == "host"]

    def emulator_sources(self):
        """Paths of what the emulator and the tracer are made of."""
        return sorted(os.path.relpath(path) for path in emulator.FOLDER.iterdir())

    def emulator_of(self, wildcards):
        """The same for a platform whose builds are the emulator's."""
        return self.emulator_sources() if self.backend_of(wildcards) == "emulator" else []

    def loop_points(self):
        """Every CPU loop with every choice of parameters at its shapes of up to trace.cache_lines.largest_bytes."""
        found = {}
        for task in self.with_method("sweep"):
            for point in self._points[task]:
                itemsize = registry.DTYPES[point.dtype][1].itemsize
                elements = point.n * point.p + point.p * point.m + point.n * point.m
                small = elements * itemsize <= self.config["trace"]["cache_lines"]["largest_bytes"]
                if self.kernels[point.kernel].kind == "host" and small:
                    # One of the element types of a width: they lie alike.
                    found.setdefault((point.kernel, itemsize, point.n, point.p, point.m, point.tile), point)
        return list(found.values())

    def conditions_of(self, wildcards):
        """A digest of what a task's rows depend on beside builds and machine: Snakemake reruns it when that changes."""
        points = self.points(wildcards.task, self.backend_of(wildcards))
        method = self.config["tasks"][wildcards.task].get("method", "sweep")
        keys = [
            "seed",
            "timing",
            "verification",
            "cpu",
            "emulator",
            *(["maximum_size"] if method == "maximum_size" else []),
        ]
        settings = [self.config[key] for key in keys]
        return digest([method, points, settings, self._entries({point.kernel for point in points})])

    def conditions_of_trace(self):
        """The same for what is counted, and for the occupancy."""
        points = [self._points[task] for task in self.with_method("sweep")]
        return digest([points, self.config["trace"], self._entries(self.kernels)])

    def _entries(self, names):
        """What the registry says of some kernels, without what is there for readers only."""
        return [dataclasses.replace(self.kernels[name], title="", folder="") for name in sorted(names)]

    def cores_of(self, wildcards):
        """Cores for a measuring job: all of them, so that nothing runs beside it; one where it has nothing to time."""
        backend, task = self.backend_of(wildcards), wildcards.get("task")
        points = self.points(task, backend) if task else []
        timed = backend == "gpu" or any(self.kernels[point.kernel].kind != "cuda" for point in points)
        return self.cores if timed else 1

    def counters_of(self, wildcards):
        """The hardware's counters of the rule's platform, or of all, where somebody has asked for them."""
        mine = wildcards.get("platform")
        files = [Path(f"results/{name}/counters.csv") for name in ([mine] if mine else self.platforms)]
        return [str(file) for file in files if file.is_file()]

    def backend_of(self, wildcards):
        """The platform's backend: gpu or emulator."""
        return self.platforms[wildcards.platform]["backend"]
