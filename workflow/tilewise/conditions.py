"""Dependencies of a rule's outputs in addition to its input files.

These are `params`: when one changes, Snakemake runs the rule again.
"""

import dataclasses
import functools
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelscope.files import digest
from tilewise import ROOT
from tilewise.measure import counters, job, probe
from tilewise.rules import Study
from tilewise.study.points import Point

#: The suffixes of the project's files that hold text; compiled modules and packed samples are no condition of anything.
_TEXT = {".py", ".yaml", ".csv", ".json", ".md", ".j2", ".css", ".js", ".cff", ".def"}


class Conditions:
    """Digests of what the rules' outputs depend on, except sources and machine, as functions of the wildcards."""

    def __init__(self, study: Study):
        self.study = study

    def of_machine(self, wildcards: Any) -> str:
        """The description of a machine: the packages here, and libraries that take the place of installed ones."""
        return digest([probe.packages(), os.environ.get("LD_PRELOAD", "")])

    def of_task(self, wildcards: Any) -> str:
        """A task: what its rows depend on."""
        where, method = self.study.backend_of(wildcards), self.study.method(wildcards.task)
        config = self.study.config
        in_turns = where == "gpu" and config["tasks"][wildcards.task].get("in_turns")
        found: list[Any] = [method.name, config["duel"] if in_turns else method.settings(config, where)]
        for point in self.study.points_on(wildcards.platform, wildcards.task):
            kernel = self.study.kernels[point.kernel]
            found.append(job.conditions(point, kernel, kernel.plan(point), where, self.study.config))
            found.append(job.limits(job.backend_of(kernel, where), where, self.study.config))
            found.append(method.entry_conditions(kernel))
            found.append(self._target(point.kernel, wildcards))
        return digest(found)

    def of_tuning(self, task: str) -> str:
        """A tuning: its entry and its kernels' spaces, because expanding all points of a space would take seconds."""
        its, kernels = (
            self.study.config["tasks"][task]["sweeps"],
            [self.study.kernels[name] for name in self.study.tuned[task]],
        )
        entries = [
            [kernel.space, kernel.space_requires, kernel.requires, kernel.needs, *kernel.as_run] for kernel in kernels
        ]
        keys = ("seed", "shapes", "timing", "verification", "emulator")
        settings = self.study.method(task).settings(self.study.config, "gpu")
        return digest([its, entries, settings, [self.study.config[key] for key in keys]])

    def of_drawing(self, wildcards: Any) -> str:
        """A task's table and figure: its entry, the limit of noise, and what draws them."""
        config = self.study.config
        return digest([config["tasks"][wildcards.task], config["timing"]["max_noise_percent"], drawing_digest()])

    def of_overview(self, wildcards: Any) -> str:
        """The tables and figures over all tasks: what draws them. The resolved config is an input."""
        return drawing_digest()

    def of_page(self, wildcards: Any) -> str:
        """The pages: the same with their sections, template and style, and the variants that were tuned."""
        return digest(
            [
                drawing_digest(),
                _contents("report/sections", "report/template", "CITATION.cff"),
                _contents(*(f"report/{each}.{kind}" for each in ("story", "assignment") for kind in ("md", "yaml"))),
                self._variants(),
            ]
        )

    def of_config(self, wildcards: Any) -> str:
        """The resolved config of a platform."""
        return digest(self.study.resolved(wildcards))

    def _variants(self) -> str:
        """All tables of variants. As inputs of the pages they would make a report tune again after an edit of a
        kernel."""
        tables = (path for name in self.study.platforms for path in Path(f"results/{name}/tune").glob("*.csv"))
        return digest([[str(path), path.read_text(errors="replace")] for path in sorted(tables)])

    def _target(self, name: str, wildcards: Any) -> Any:
        """The values of a kernel's entry that decide whether it compiles for, and runs on, a platform."""
        kernel = self.study.kernels[name]
        if self.study.backend_of(wildcards) == "gpu":
            return kernel.needs
        return [kernel.emulated, kernel.reason]

    def of_occupancy(self, wildcards: Any) -> str:
        """The occupancy: for every choice of a CUDA kernel, the launch of its product."""
        if self.study.backend_of(wildcards) == "emulator":
            return ""  # nothing is known of registers there
        found = set()
        for point in set(self.study.timed_on(wildcards.platform, "sweep")):
            launch = self.study.kernels[point.kernel].plan(point).product
            if launch:
                choice = point.kernel, point.dtype, point.parameters
                found.add((*choice, launch.instance, launch.block, launch.dynamic_shared_bytes))
        targets = [self._target(name, wildcards) for name in self.study.used(wildcards.platform)]
        return digest([sorted(found), targets])

    def of_trace(self, wildcards: Any) -> str:
        """Conditions of counts made without a GPU."""
        shapes = self.study.config["trace"]
        traced = [point for points in self.study.traced for point in points]
        loops = [dataclasses.replace(point, task="") for point in self.study.loop_points()]
        left_out = [[kernel.name, kernel.reason] for kernel in self.study.kernels.values() if not kernel.emulated]
        return digest(
            [traced, loops, shapes["limit_s"], shapes["cache_lines"], self._entries([*traced, *loops]), left_out]
        )

    def of_counters(self, wildcards: Any) -> str:
        """Conditions of hardware counters at full size."""
        return digest(
            counters.full_size_points(self.study.config, self.study.kernels, self.study.choices_of(wildcards))
        )

    def of_code(self, wildcards: Any) -> str:
        """The machine code that is read: the instances that make a product, and what compiles them."""
        products = {
            (p.kernel, p.dtype, self.study.kernels[p.kernel].plan(p).product)
            for p in self.study.cuda_points(wildcards.platform)
        }
        instances = sorted({(*names, launch.instance) for *names, launch in products if launch})
        return digest([instances, self.study.backend_of(wildcards) == "emulator" and self.study.config["machine_code"]])

    def _entries(self, points: Sequence[Point]) -> list[Any]:
        """The values of the entries that affect how the kernels of these points run."""
        return [self.study.kernels[name].as_run for name in sorted({point.kernel for point in points})]


@functools.cache
def drawing_digest() -> str:
    """A digest of the project's own files that tables and figures are made from: code, registry, published and recorded
    results, and claims."""
    code = "workflow/tilewise", "packages/microscope/src", "workflow/schemas"
    data = "report/published", "report/recorded", "report/claims.yaml", "kernels/registry.yaml", "kernels/tuned.yaml"
    return _contents(*code, *data)


def _contents(*names: str) -> str:
    """A digest of files of the project, and of those of its folders, by their names and contents."""
    found = hashlib.sha256()
    for place in (ROOT / name for name in names):
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file() and path.suffix in _TEXT:
                found.update(f"{path.relative_to(ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()
