"""Compile every CUDA kernel for every architecture with the installed NVRTC, and write docs/architectures.md.

`make architectures` does so with those of CUDA 12 and 13. It needs no GPU.
"""

import dataclasses
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kernelscope.files import atomic_path, read_text
from kernelscope.yaml_input import read_yaml
from tilewise import ROOT, exit_on_user_error
from tilewise.compile import build
from tilewise.nvidia import nvrtc
from tilewise.study import registry
from tilewise.study.device import Device
from tilewise.study.kernel import Kernel, Kind
from tilewise.study.points import Point
from tilewise.study.sweeps import Reading, Target, expand, gpu_of_choices

#: The compute capabilities of the table, each with cards that have it.
CAPABILITIES = {
    "7.0": "V100",
    "7.5": "RTX 2080 Ti, T4",
    "8.0": "A100",
    "8.6": "RTX 3090, A40",
    "8.9": "RTX 4090, L40S",
    "9.0": "H100, H200",
    "10.0": "B200",
    "12.0": "RTX 5090",
}
PAGE = ROOT / "docs" / "architectures.md"


class Compiled(NamedTuple):
    """A kernel's product, compiled for an architecture: its registers, the bytes that all its functions spill, the most
    shared memory of a block, and the reason why a GPU cannot run it, or the compiler's error."""

    kernel: str
    dtype: str
    capability: str
    target: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    unsupported: str
    error: str

    @property
    def cell(self) -> str:
        """What the table has of it."""
        if self.unsupported:
            return ""
        spills = f" + {self.spill_bytes} B" if self.spill_bytes else ""
        return "**error**" if self.error else f"{self.registers}{spills}"


def points(config: Mapping[str, Any], kernels: Mapping[str, Kernel], capability: str) -> list[Point]:
    """The first point of every CUDA kernel and element type in a config, with the choices of a GPU of this compute
    capability that is not tuned; of a type that the config leaves out, the point of another one, if the kernel takes
    it."""
    target = Target(gpu=gpu_of_choices("", kernels, capability))
    tasks = [name for name, task in config["tasks"].items() if task.get("method", "sweep") in ("sweep", "batches")]
    found: dict[tuple[str, str], Point] = {}
    for task in tasks:
        for point in expand(config, kernels, task, target, Reading(batches=True)):
            found.setdefault((point.kernel, point.dtype), point)
    asked = []
    for kernel in (kernel for kernel in kernels.values() if kernel.kind == Kind.CUDA):
        own = [found[kernel.name, dtype] for dtype in kernel.dtypes if (kernel.name, dtype) in found]
        asked += [dataclasses.replace(own[0], dtype=dtype) for dtype in kernel.dtypes if own]
    return [found.get((each.kernel, each.dtype), each) for each in asked if not kernels[each.kernel].unmet(each)]


def compile_all(
    asked: Iterable[Point], kernels: Mapping[str, Kernel], capability: str, workers: int = 1
) -> list[Compiled]:
    """Compile all launches of some points for GPUs of a compute capability."""
    found, asked = [], list(asked)
    with tempfile.TemporaryDirectory() as folder:
        device = Device.from_capability(capability)
        made = build.build(build.instances(asked, kernels), kernels, device, folder, workers)
    for point in asked:
        plan, built = kernels[point.kernel].plan(point), made[point.kernel]
        entries = {launch.instance: built["instances"][launch.instance] for launch in plan.launches}
        errors = [entry["error"] for entry in entries.values() if "error" in entry]
        launched = [(launch.dynamic_shared_bytes, entries[launch.instance]) for launch in plan.launches]
        assert plan.product is not None  # a CUDA kernel has one
        found.append(
            Compiled(
                point.kernel,
                point.dtype,
                capability,
                kernels[point.kernel].target(capability),
                entries[plan.product.instance].get("registers", 0),
                sum(entry.get("spill_bytes", 0) for entry in entries.values()),
                max(dynamic + entry.get("shared_bytes", 0) for dynamic, entry in launched),
                built["unsupported"],
                *(errors or [""])[:1],
            )
        )
    return found


def undeclared(found: Iterable[Compiled]) -> list[str]:
    """A line for each kernel that does not compile for an architecture that its `needs` in the registry allow."""
    return [
        f"kernels/registry.yaml: {each.kernel}.needs: {each.dtype} for {each.target}: {each.error}; name what it needs"
        for each in found
        if each.error
    ]


def section(found: Iterable[Compiled], compiler: str) -> str:
    """The part of the page about one compiler: the table of counts, that of registers, and the reasons."""
    found = list(found)
    capabilities = [each for each in CAPABILITIES if each in {one.capability for one in found}]
    lines = [f"## {compiler}", "", "| for | cards | compiled | of them with spills | unsupported | errors |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    for capability in capabilities:
        here = [each for each in found if each.capability == capability]
        fine = [each for each in here if not each.error and not each.unsupported]
        spilled, errors = sum(each.spill_bytes > 0 for each in fine), sum(bool(each.error) for each in here)
        counts = (len(fine), spilled, len(here) - len(fine) - errors, errors)
        names = "sm_" + capability.replace(".", "")
        lines.append(f"| {names} | {CAPABILITIES[capability]} | {' | '.join(map(str, counts))} |")
    cells = {(each.kernel, each.dtype, each.capability): each.cell for each in found}
    lines += ["", f"| kernel | type | {' | '.join(capabilities)} |", f"| --- | --- |{' --- |' * len(capabilities)}"]
    for kernel, dtype in dict.fromkeys((each.kernel, each.dtype) for each in found):
        row = (cells[kernel, dtype, capability] for capability in capabilities)
        lines.append(f"| `{kernel}` | {dtype} | {' | '.join(row)} |")
    reasons: dict[str, dict[str, None]] = {}
    for each in found:
        if each.unsupported:
            reasons.setdefault(each.unsupported, {})[f"`{each.kernel}`"] = None
    lines += ["", *(f"- {reason}: {', '.join(names)}." for reason, names in reasons.items())]
    return "\n".join(lines) + "\n"


def write(text: str, page: Path = PAGE) -> None:
    """Replace the page's section of the same CUDA version, or add the section."""
    head, *sections = re.split(r"^(?=## )", read_text(page), flags=re.MULTILINE)
    cuda = text.split(".")[0]
    kept = [each for each in sections if each.split(".")[0] != cuda]
    with atomic_path(page) as temporary:
        parts = (part.rstrip() for part in sorted([*kept, text]))
        temporary.write_text("\n\n".join([head.rstrip(), *parts]) + "\n", encoding="utf-8")


def main(workers: int) -> int:
    """Compile for all capabilities of the table that the installed compiler takes, and write its section."""
    kernels = registry.load()
    config = read_yaml(ROOT / "config" / "config.yaml")
    taken = [each for each in CAPABILITIES if not nvrtc.cannot_compile(each)]
    found = [one for each in taken for one in compile_all(points(config, kernels, each), kernels, each, workers)]
    write(section(found, nvrtc.compiler().upper()))
    wrong = undeclared(found)
    print("\n".join(wrong) or f"{PAGE.relative_to(ROOT)}: {len(found)} builds by {nvrtc.compiler()}")
    return bool(wrong)


if __name__ == "__main__":
    with exit_on_user_error():
        sys.exit(main(int(sys.argv[1])))
