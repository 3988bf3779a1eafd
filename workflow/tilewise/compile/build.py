"""Compile the kernels of the study: cubins for a GPU, libraries for the emulator and the CPU's loops."""

import contextlib
import functools
import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kernelscope import cpp
from kernelscope.cpp import compile_library, include_options
from kernelscope.files import atomic_path, digest
from tilewise import MachineError, UserError
from tilewise.files import processes, read_json, write_json
from tilewise.nvidia import gpus, nvrtc
from tilewise.nvidia.languages import COMPILERS
from tilewise.study.builds import HOST_FLAGS, source_sha256
from tilewise.study.device import Device
from tilewise.study.kernel import Kernel, Kind
from tilewise.study.points import Point

LOG = logging.getLogger(__name__)
#: A library for the CPU holds at most this many instances: fewer start the compiler more often, more leave cores idle.
LIBRARY_INSTANCES = 16
#: What `build` made, by kernel: `unsupported`, the reason why the machine cannot run it or "", and `instances`. Each of
#: these has its `sha256` (of sources, options and target), and either the compiler's first `error` or the `file` and
#: the `symbol` in it; a cubin also `compile_s`, and of CUDA C++ `registers`, `shared_bytes` (static) and `spill_bytes`.
Builds = dict[str, dict[str, Any]]


def unsupported(kernel: Kernel, device: Device) -> str:
    """The reason why a kernel cannot run on this machine; empty if it can. `device` as in `build`."""
    if not kernel.launched:
        return ""
    if device.backend == "emulator":
        return "" if kernel.emulated else f"not emulated: {kernel.reason}"
    capability = device.gpu["compute_capability"]
    compiler = COMPILERS.get(kernel.kind)
    missing = compiler.missing() if compiler else nvrtc.cannot_compile(capability)
    return missing or kernel.cannot_run(capability)


def build(
    wanted: Mapping[str, Sequence[str]],
    kernels: Mapping[str, Kernel],
    device: Device,
    folder: Path | str,
    workers: int = 1,
) -> Builds:
    """Compile template instances (such as `tiled<float, 32>`) of several kernels for a device.

    `wanted` maps kernels to instances. The binaries of a kernel go into a folder of its name in `folder`; each is named
    after what it was compiled from and is never compiled twice, so a killed build goes on where it was. With one worker
    everything but other languages is compiled in this process. Raises UserError if the machine lacks a compiler.
    """
    found: Builds = {}
    todo: list[Unit] = []
    for name, instances in wanted.items():
        kernel, place = kernels[name], Path(folder, name)
        place.mkdir(parents=True, exist_ok=True)
        why = unsupported(kernel, device)
        entries: dict[str, dict] = {each: {"sha256": source_sha256(kernel, each, device)} for each in instances}
        found[name] = {"unsupported": why, "instances": entries}
        if not why:
            todo += _units(kernel, entries, device, place)
    # The compiler of another language may take memory of every GPU that it sees, on which other jobs measure.
    aside = any(unit.kernel.kind in COMPILERS for unit in todo)
    with contextlib.ExitStack() as stack:
        if aside or (workers > 1 and len(todo) > 1):
            stack.enter_context(gpus.show_only(""))
            pool = stack.enter_context(processes(workers, "built kernels", "run again with fewer cores"))
            built: Iterable[dict[str, dict]] = pool.map(_compile, todo)
        else:
            built = map(_compile, todo)
        for number, (unit, entries) in enumerate(zip(todo, built), 1):
            for instance, entry in entries.items():
                file = {"file": str(unit.path.parent / entry["file"])} if "file" in entry else {}
                found[unit.kernel.name]["instances"][instance] |= entry | file
            wrong = next((entry["error"] for entry in entries.values() if "error" in entry), None)
            LOG.info("built %d/%d %s: %s", number, len(todo), unit.kernel.name, wrong or ", ".join(entries))
    return found


def instances(points: Iterable[Point], kernels: Mapping[str, Kernel]) -> dict[str, list[str]]:
    """The template instances that some points launch, by kernel: of those kernels that are given and have a source."""
    found: dict[str, set[str]] = {}
    for point in points:
        kernel = kernels.get(point.kernel)
        if kernel and kernel.source:
            found.setdefault(kernel.name, set()).update(kernel.plan(point).instances)
    return {name: sorted(found[name]) for name in sorted(found)}


class Unit(NamedTuple):
    """The output of one compiler call: one cubin, or a library with several instances; `path` lacks its suffix."""

    kernel: Kernel
    instances: list[str]
    device: Device
    path: Path


def _units(kernel: Kernel, entries: Mapping[str, Mapping[str, str]], device: Device, folder: Path) -> Iterator[Unit]:
    """The calls of a compiler that some instances need; `entries` holds the sha256 of each."""
    instances, on_gpu = list(entries), kernel.launched and device.backend == "gpu"
    if on_gpu:
        compiler = COMPILERS.get(kernel.kind)
        made_by = compiler.version if compiler else nvrtc.compiler()
    else:
        made_by = digest([cpp.compiler(), cpp.version(), _emulator_sha256() if kernel.launched else ""])
    size = 1 if on_gpu else LIBRARY_INSTANCES
    for group in (instances[start : start + size] for start in range(0, len(instances), size)):
        content = digest([[entries[instance]["sha256"] for instance in group], made_by])[:16]
        yield Unit(kernel, group, device, folder / f"{symbol_of(group[0])}-{content}")


@functools.cache
def _emulator_sha256() -> str:
    """The hash of the emulator: its sources, the headers that a kernel finds there, and what compiles them."""
    from kernelscope.compile import sources  # takes 0.1 s, which only a build needs

    files = [*sources(), Path(__file__)]
    return digest([path.read_text(encoding="utf-8") for path in files])


def _compile(unit: Unit) -> dict[str, dict[str, Any]]:
    """The entries of a unit's instances. If one does not compile, each is compiled separately."""
    record = unit.path.with_name(f"{unit.path.name}.json")
    with contextlib.suppress(UserError, LookupError, TypeError):  # there is none, or a crash has cut it short
        known = read_json(record)
        if all((record.parent / known[instance]["file"]).is_file() for instance in unit.instances):
            return known
    try:
        entries = _compile_unit(unit)
    except MachineError:  # the kernel is not to blame
        raise
    except UserError as error:
        if len(unit.instances) == 1:
            return {unit.instances[0]: {"error": str(error)}}
        names = {each: unit.path.with_name(f"{unit.path.name}-{number}") for number, each in enumerate(unit.instances)}
        alone = (unit._replace(instances=[each], path=path) for each, path in names.items())
        return {instance: entry for each in alone for instance, entry in _compile(each).items()}
    write_json(entries, record)
    return entries


def _compile_unit(unit: Unit) -> dict[str, dict[str, Any]]:
    kernel, instances = unit.kernel, unit.instances
    if kernel.launched and unit.device.backend == "gpu":
        compiler = COMPILERS.get(kernel.kind)
        if compiler:
            compiler.prepare()
        start = time.perf_counter()
        compile_cubin = compiler.compile_cubin if compiler else nvrtc.compile_cubin
        cubin, facts = compile_cubin(kernel, instances[0], unit.device.gpu["compute_capability"])
        facts |= {"compile_s": time.perf_counter() - start}
        cubin_path = unit.path.with_name(f"{unit.path.name}.cubin")
        with atomic_path(cubin_path) as temporary:
            temporary.write_bytes(cubin)
        return {instances[0]: facts | {"file": cubin_path.name}}
    library = unit.path.with_name(f"{unit.path.name}.so")
    if kernel.kind == Kind.HOST:
        _build_host(kernel, instances, library)
    else:
        from kernelscope.compile import build  # as in _emulator_sha256

        build(kernel, instances, library)
    return {instance: {"file": library.name, "symbol": symbol_of(instance)} for instance in instances}


def symbol_of(instance: str) -> str:
    """A C name and file name for a template instance: `tiled<float, 32>` -> `tiled_float_32`."""
    return re.sub(r"\W+", "_", instance.replace("-", "minus")).strip("_")


def _build_host(kernel: Kernel, instances: Sequence[str], output: Path) -> None:
    lines = [f'#include "{kernel.path.name}"']
    for instance in instances:
        [element] = re.findall(r"<(\w+)", instance)[:1]
        arguments = f"const {element}* A, const {element}* B, {element}* C, int n, int p, int m"
        call = f"void {symbol_of(instance)}({arguments}) {{ {instance}(A, B, C, n, p, m); }}"
        lines.append(f'extern "C" __attribute__((visibility("default"))) {call}')
    compile_library("\n".join(lines) + "\n", output, [*HOST_FLAGS, *include_options(kernel.path)])
