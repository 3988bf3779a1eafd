"""What Snakemake's rules need: the validated config together with the registry and the methods."""

import dataclasses
import functools
import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelscope.files import read_text
from tilewise import KERNELS, ROOT, UserError
from tilewise.compile import build
from tilewise.measure import counters
from tilewise.measure.methods import METHODS, Method
from tilewise.measure.task import Work
from tilewise.nvidia import gpus
from tilewise.study import registry, slurm, sweeps
from tilewise.study.device import Device
from tilewise.study.kernel import Kind
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS
from tilewise.study.schema import validate
from tilewise.study.sweeps import ANY_GPU, Target

#: Folders of results/ and of a run, whose names no platform and no task can have.
FOLDERS = {"figures", "journal", "logs", "report", "results", "samples", "tables", "tasks"}


def rule_names() -> set[str]:
    """The names of the workflow's rules, which no task can have too."""
    files = [ROOT / "Snakefile", ROOT / "workflow" / "Snakefile", *(ROOT / "workflow" / "rules").glob("*.smk")]
    return {name for file in files for name in re.findall(r"^rule (\w+):", read_text(file), re.MULTILINE)}


class Study:
    """A validated config with its expanded platforms, tasks and points.

    tasks: names in the order of the config; tunings: names of the tasks that run only on request, which `tasks`
    lacks; tuned: the kernels of each tuning; platforms: name -> settings, each with a `backend` (gpu or emulator);
    kernels: the registry; gpus: how many of this machine measure, at least 1; remark: a line about those that do not,
    or ""; profiled: how many launches ncu would read. Methods that take `wildcards` are functions for Snakemake. Paths
    are relative: they are the same in a clone that was moved, where nothing needs to be made again.

    remote: jobs run elsewhere, so that this machine says nothing about the platforms; cores: those that Snakemake may
    use; reserved: names that no task can have; source: the file of a place in the config, for messages. Raises
    UserError for anything in the config or the registry that cannot work, unless it is `checked`: the run has checked
    the config of a script, and of a job under Slurm, when it started.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        source: Callable[[str], str] = lambda place: "config/config.yaml",
        folder: Path = KERNELS,
        remote: bool = False,
        cores: int | None = None,
        reserved: Sequence[str] = (),
        checked: bool = False,
    ):
        if isinstance(config.get("tasks"), Mapping):  # a task that a second config file sets to null is left out
            config = {**config, "tasks": {name: task for name, task in config["tasks"].items() if task is not None}}
        if not checked:
            validate(config, "config", source)
        self.config = config
        self.cores = cores
        self.kernels = registry.load(folder, checked)
        self.tunings = [task for task in config["tasks"] if self.method(task).on_request]
        self.tasks = [task for task in config["tasks"] if task not in self.tunings]

        self._source = source
        self.platforms, self.gpus, self.remark = self._find_platforms(remote)
        self._refuse_names(reserved)
        self.points = functools.cache(self._points)
        self.profiled = 0
        if not checked:
            self._check_cache_lines()
            for task in self.tasks:
                self.method(task).check(self.points(task), self.kernels, self._at(f"tasks.{task}"))
            self.profiled = len(counters.cross_check_points(self.config, self.kernels))
            self.profiled += len(counters.full_size_points(config, self.kernels))
        self.tuned = {task: sweeps.tuned_kernels(config, self.kernels, task) for task in self.tunings}
        if not checked:
            named = {point.kernel for task in self.tasks for point in self.points(task)}
            sweeps.check_unswept(self.kernels, named.union(*self.tuned.values()))
            self._refuse_second_tuning()

    def _at(self, place: str) -> str:
        """A place in the config as messages name it."""
        return f"{self._source(place)}: {place}"

    def _find_platforms(self, remote: bool) -> tuple[dict[str, dict[str, Any]], int, str]:
        """The platforms of the config, the GPUs of this machine that measure, and a remark about others."""
        named = self.config["platforms"]
        if named == "auto" and remote:
            raise UserError(
                "platforms: 'auto' is the machine that Snakemake runs on, but the jobs run on a cluster; "
                "config/cluster.yaml names the cluster's platforms, and --configfile replaces it: give both, "
                "as in --configfile config/cluster.yaml config/quick.yaml"
            )
        if named == "auto":
            here = gpus.this_machine()
            capability = {"capability": here.capability} if here.capability else {}
            return {here.name: {"backend": here.backend} | capability}, max(1, here.gpus), here.remark
        platforms = slurm.spread(named)
        on_gpu = not remote and any(platform["backend"] == "gpu" for platform in platforms.values())
        return platforms, max(1, gpus.this_machine().gpus) if on_gpu else 1, ""

    def _refuse_names(self, reserved: Sequence[str]) -> None:
        """UserError for a task or a platform with a name that the study needs for something else."""
        if taken := {*reserved, *rule_names(), *FOLDERS} & set(self.config["tasks"]):
            place = self._at(f"tasks.{min(taken)}")
            raise UserError(f"{place}: the study has a rule, a table or a folder of that name; choose another")
        for name, platform in self.platforms.items():
            place = self._at(f"platforms.{name}")
            if name in FOLDERS:
                raise UserError(f"{place}: results/ has a folder of that name; choose another")
            if platform["backend"] == "emulator" and (ROOT / "report" / "recorded" / name).is_dir():
                raise UserError(f"{place}: a recorded run has that name; choose another for an emulator")

    def _check_cache_lines(self) -> None:
        """UserError for a cache that is smaller than one of its sets."""
        for name in ("l1", "l2"):
            level = self.config["trace"]["cache_lines"][name]
            if level["bytes"] < level["ways"] * 64:
                raise UserError(
                    f"{self._at(f'trace.cache_lines.{name}')}: {level['bytes']} bytes do not hold a set of "
                    f"{level['ways']} lines of 64 B; give more bytes or fewer ways"
                )

    def _refuse_second_tuning(self) -> None:
        """UserError for a kernel that two tasks tune."""
        for task, other in itertools.combinations(self.tunings, 2):
            twice = [name for name in self.tuned[task] if name in self.tuned[other]]
            if twice:
                raise UserError(
                    f"{self._at(f'tasks.{other}')}: {twice[0]} is tuned by {task} already, and has one table of "
                    "variants; name it in one of the two"
                )

    # ---- Tasks and their points -------------------------------------------------------------------------------------

    def method(self, task: str) -> Method:
        """The method of a task."""
        return METHODS[self.config["tasks"][task].get("method", "sweep")]

    def _points(self, task: str, target: Target = ANY_GPU) -> list[Point]:
        """The points of a task for a target; `points` keeps them."""
        return sweeps.expand(self.config, self.kernels, task, target, self.method(task).reading)

    def points_on(self, platform: str, task: str) -> list[Point]:
        """The points of a task on a platform."""
        return self.points(task, Target(self.platforms[platform]["backend"], self._gpu(platform)))

    def choices_of(self, wildcards: Any) -> str:
        """The GPU whose choices a platform takes from the registry, or empty for the first there."""
        return self._gpu(wildcards.platform)

    def _gpu(self, platform: str) -> str:
        capability = self.platforms.get(platform, {}).get("capability", "")
        return sweeps.gpu_of_choices(platform, self.kernels, capability)

    def timed_on(self, platform: str, method: str = "", only_timed: bool = True) -> list[Point]:
        """The points of all tasks, or of those of a method, as a platform would have them if it had a GPU."""
        tasks = self.with_method(method) if method else self.tasks
        target = Target(gpu=self._gpu(platform), only_timed=only_timed)
        return [point for task in tasks for point in self.points(task, target)]

    def with_method(self, method: str) -> list[str]:
        """Names of the tasks of a method, without tunings."""
        return [task for task in self.tasks if self.method(task).name == method]

    def instances_on(self, platform: str, *tasks: str) -> dict[str, list[str]]:
        """The template instances that a platform launches in any task, for each kernel that some `tasks` launch."""
        kernels = {name: self.kernels[name] for name in self.used(platform, *tasks)}
        points = itertools.chain.from_iterable(
            self.method(task).launched(point, self.kernels[point.kernel])
            for task in self.tasks
            for point in self.points_on(platform, task)
            if point.kernel in kernels
        )
        return build.instances(points, kernels)

    def used(self, platform: str, *tasks: str) -> list[str]:
        """Names of the kernels with a source that tasks run on a platform."""
        names = {point.kernel for task in tasks or self.tasks for point in self.points_on(platform, task)}
        return sorted(name for name in names if self.kernels[name].source)

    def work(self, task: str, device: Device, params: Any, workers: int) -> Work:
        """The Work of a task, whose kernels are built by `workers` processes; `params` are those of the rule."""
        platform, points = device.platform, self.points_on(device.platform, task)
        wanted = build.instances(points, self.kernels) if task in self.tunings else self.instances_on(platform, task)
        builds = build.build(wanted, self.kernels, device, params.builds, workers)
        samples, journal = Path(params.samples), Path(params.journal)
        return Work(task, points, self.kernels, builds, device, self.config, samples, journal)

    # ---- Inputs of rules --------------------------------------------------------------------------------------------

    def files_of_task(self, task: str) -> list[str]:
        """Outputs of a task on every platform: its table and its figure, and the results that they are drawn from."""
        drawn = [
            f"results/{name}/{file}"
            for name in self.platforms
            for file in (f"tables/{task}.csv", f"figures/{task}.svg")
        ]
        return drawn + [path for name in self.platforms for path in self._results(name, task)]

    def results_of(self, wildcards: Any) -> list[str]:
        """Inputs of a task's table and figure."""
        return self._results(wildcards.platform, wildcards.task)

    def _results(self, platform: str, task: str) -> list[str]:
        if task in self.tunings:
            return [f"results/{platform}/tune/{name}.csv" for name in self.tuned[task]]
        return [f"results/{platform}/{kind}/{task}.csv" for kind in ("tasks", "facts")]

    def sources_of(self, wildcards: Any) -> list[str]:
        """The files that a task measures with: the sources of its kernels, and those of its method."""
        files = (os.path.relpath(path) for path in self.method(wildcards.task).sources())
        return [*self.files_of(self.used(wildcards.platform, wildcards.task)), *files]

    def files_of(self, names: Iterable[str]) -> list[str]:
        """The source files of some kernels."""
        files = (path for name in names for path in self.kernels[name].files)
        return [os.path.relpath(path) for path in dict.fromkeys(files)]

    def cuda_sources_of(self, wildcards: Any) -> list[str]:
        """The source files of all CUDA kernels of a platform."""
        return self.files_of(name for name in self.used(wildcards.platform) if self.kernels[name].kind == Kind.CUDA)

    def files_of_kind(self, kind: Kind) -> list[str]:
        """The source files of all kernels of a kind."""
        return self.files_of(name for name, kernel in self.kernels.items() if kernel.kind == kind)

    def counters_of(self, wildcards: Any) -> list[str]:
        """The hardware's counters of the rule's platform, or of all, if requested."""
        mine = wildcards.get("platform")
        files = [Path(f"results/{name}/counters.csv") for name in ([mine] if mine else self.platforms)]
        return [str(file) for file in files if file.is_file()]

    def instructions_of(self, wildcards: Any) -> list[str]:
        """The instructions.csv of the rule's platform or of all; of an emulator only if it exists."""
        mine = wildcards.get("platform")
        files = {name: Path(f"results/{name}/instructions.csv") for name in ([mine] if mine else self.platforms)}
        on_gpu = {name for name in files if self.platforms[name]["backend"] == "gpu"}
        return [str(file) for name, file in files.items() if name in on_gpu or file.is_file()]

    # ---- What is counted --------------------------------------------------------------------------------------------

    def traced_points(self, shapes: Sequence[Mapping[str, int]]) -> list[Point]:
        """Every CUDA kernel with every choice of parameters that a sweep asks for on any platform, except for
        sweeps that are only timed, and every faulty kernel, at those of `shapes` that it takes.

        If it takes none of them, at the smallest that it takes, with two blocks along each dimension if it can have
        them; and if there is none either, at the first of `shapes`, so that the table says that it was not traced.
        """
        found: dict[Point, None] = {}
        swept = (point for platform in self.platforms for point in self.timed_on(platform, "sweep", only_timed=False))
        asked = [dataclasses.replace(point, task="trace") for point in swept]
        asked += [Point("trace", name, k.dtypes[0], 1, 1, 1) for name, k in self.kernels.items() if k.faulty]
        for point in dict.fromkeys(dataclasses.replace(p, n=1, p=1, m=1) for p in asked):
            kernel = self.kernels[point.kernel]
            if kernel.kind == Kind.CUDA:
                at = [dataclasses.replace(point, n=shape["n"], p=shape["p"], m=shape["m"]) for shape in shapes]
                taken = [each for each in at if kernel.unmet(each) is None]
                own = None if taken or not kernel.emulated else sweeps.at_smallest_shape(point, kernel, blocks=2)
                found |= dict.fromkeys(taken or [own or at[0]])
        return list(found)

    def counted_points(self) -> list[Point]:
        """Traced kernels at the shapes of trace.counted, whose traffic is counted, with rows and columns rounded up to
        full blocks, so that nothing beyond an edge counts."""
        found = []
        for point in self.traced_points(self.config["trace"]["counted"]):
            kernel = self.kernels[point.kernel]
            sizes = kernel.covered(point) if len(kernel.launches) == 1 else []  # of others, every block is run
            rows, cols = sizes or (1, 1)
            full = dataclasses.replace(point, n=rows * -(-point.n // rows), m=cols * -(-point.m // cols))
            found.append(point if kernel.unmet(full) else full)
        return found

    @functools.cached_property
    def traced(self) -> tuple[list[Point], list[Point]]:
        """The points that the trace examines for faults, and further ones of which it only counts the accesses."""
        examined = self.traced_points(self.config["trace"]["shapes"])
        asked = self.counted_points() + counters.cross_check_points(self.config, self.kernels)
        counted, known = dict.fromkeys(dataclasses.replace(point, task="trace") for point in asked), set(examined)
        return examined, [point for point in counted if point not in known]

    def cuda_points(self, platform: str) -> list[Point]:
        """Every point of a CUDA kernel, as a platform would have them if it had a GPU."""
        return [point for point in self.timed_on(platform) if self.kernels[point.kernel].kind == Kind.CUDA]

    def loop_points(self) -> list[Point]:
        """Every CPU loop with every choice of parameters at its shapes of up to trace.cache_lines.largest_bytes."""
        found: dict[tuple, Point] = {}
        for task in self.with_method("sweep"):
            for point in self.points(task):
                itemsize = PRECISIONS[point.dtype].itemsize
                elements = point.n * point.p + point.p * point.m + point.n * point.m
                small = elements * itemsize <= self.config["trace"]["cache_lines"]["largest_bytes"]
                if self.kernels[point.kernel].kind == Kind.HOST and small:
                    # One of the element types of a width: they lie alike.
                    key = point.kernel, itemsize, *point.shape.values(), point.parameters
                    found.setdefault(key, point)
        return list(found.values())

    def resolved(self, wildcards: Any) -> dict[str, Any]:
        """The config of a platform's run, without the settings of Slurm and of the exit status: for the report."""
        config = {name: value for name, value in self.config.items() if name not in ("slurm", "strict")}
        return config | {"platforms": {wildcards.platform: {"backend": self.backend_of(wildcards)}}}

    def needs_gpu(self, wildcards: Any) -> bool:
        """Whether a task's job needs its platform's own node: whether anything in it runs on a GPU, or on the
        emulator of one."""
        asked = self.points_on(wildcards.platform, wildcards.task) if wildcards.get("task") else []
        return not asked or any(self.kernels[point.kernel].on_gpu for point in asked)

    def backend_of(self, wildcards: Any) -> str:
        """The platform's backend: gpu or emulator."""
        return self.platforms[wildcards.platform]["backend"]
