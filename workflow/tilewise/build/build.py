"""Compile the kernels of the study, each into a folder with a manifest that lists its binaries."""

import contextlib
import functools
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tilewise import UserError
from tilewise.build import cpp, cuda, emulator, triton
from tilewise.build.cpp import beside, compile_library
from tilewise.files import digest, processes, read_json, replacing, write_json
from tilewise.study.points import Point
from tilewise.study.registry import Kernel
from tilewise.study.sources import EMULATOR, HOST_HEADERS

LOG = logging.getLogger(__name__)
HOST_FLAGS = ("-O3",)
#: A library for the CPU holds at most this many instances: fewer start the compiler more often, more leave cores idle.
LIBRARY_INSTANCES = 16
Device = Mapping[str, Any]


def manifests(builds: Mapping[str, Path | str]) -> dict[str, dict]:
    """The content of manifest.json by kernel; `builds` maps a kernel's name to its build folder."""
    return {name: _manifest(Path(folder)) for name, folder in builds.items()}


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = read_json(folder / "manifest.json")
    except UserError as error:
        raise UserError(f"{str(error).partition(';')[0]}; delete the folder {folder} and run again") from None
    if not {"kernel", "unsupported", "instances"} <= set(manifest):
        raise UserError(f"{folder / 'manifest.json'}: fields are missing; delete the folder {folder} and run again")
    return manifest


def unsupported(kernel: Kernel, device: Device) -> str:
    """Why a kernel cannot run on this machine at all; empty if it can. `device` as in `build`."""
    if not kernel.launched:
        return ""
    if device["backend"] == "emulator":
        return "" if kernel.emulated else f"not emulated: {kernel.reason}"
    if kernel.kind == "triton" and (why := triton.missing()):
        return why
    capability = device["gpu"]["compute_capability"]
    have = tuple(map(int, capability.split(".")))
    if kernel.capability and have < tuple(map(int, kernel.capability.split("."))):
        return f"it needs compute capability {kernel.capability}; this GPU has {capability}"
    if kernel.architecture and kernel.architecture[-1] in "af":
        own = kernel.architecture.rstrip("af")
        if own != capability.replace(".", ""):
            return f"its sm_{kernel.architecture} code runs only on GPUs of sm_{own}; this one has {capability}"
    return ""


def source_sha256(kernel: Kernel, instance: str, device: Device) -> str:
    """The hash of an instance: of its sources, with all that they include, its options and its target. It needs no
    compiler."""
    source, *headers = kernel.code
    return digest([source, *([headers] if headers else []), instance, *_options(kernel, device)])


def row_sha256(kernel: Kernel, point: Point, device: Device) -> str:
    """`build_sha256` of a point's row: that of its instances."""
    return sha256_of(kernel, kernel.instances(point), device)


def sha256_of(kernel: Kernel, instances: Sequence[str], device: Device) -> str:
    """The hash of an instance, or of the hashes of several, in their order."""
    hashes = [source_sha256(kernel, instance, device) for instance in instances]
    return hashes[0] if len(hashes) == 1 else digest(hashes)


def _options(kernel: Kernel, device: Device) -> tuple[str, str]:
    if kernel.kind == "host":
        return " ".join(HOST_FLAGS), device["host_compiler"]
    if device["backend"] == "emulator":
        return "emulator", device["host_compiler"]
    if kernel.kind == "triton":
        return cuda.architecture(kernel, device["gpu"]["compute_capability"]), "triton"
    return cuda.architecture(kernel, device["gpu"]["compute_capability"]), cuda.STANDARD


def build(
    wanted: Mapping[str, Sequence[str]],
    kernels: Mapping[str, Kernel],
    device: Device,
    folders: Mapping[str, Path | str],
    workers: int = 1,
) -> dict[str, dict[str, Any]]:
    """Compile template instances (such as `tiled<float, 32>`) of several kernels; returns a manifest per kernel.

    `wanted` maps kernels to instances, `folders` maps them to where the binaries and manifest.json go. A binary is named
    by what it was compiled from and is never compiled twice, so a killed build goes on where it was. A manifest has
    `unsupported`, the reason why this machine cannot run the kernel or "", and `instances`: for each its sha256 (of
    sources, options and target) and its file and symbol, for a cubin also registers, static shared bytes and spill
    bytes; or the compiler's first `error`. With one worker everything is compiled in this process. Raises UserError if
    the machine lacks a compiler.
    """
    found: dict[str, dict] = {}
    todo: list[Unit] = []
    for name, instances in wanted.items():
        kernel, folder = kernels[name], Path(folders[name])
        folder.mkdir(parents=True, exist_ok=True)
        why = unsupported(kernel, device)
        entries: dict[str, dict] = {each: {"sha256": source_sha256(kernel, each, device)} for each in instances}
        found[name] = {"kernel": name, "unsupported": why, "instances": entries}
        if not why:
            todo += _units(kernel, entries, device, folder)
    with contextlib.ExitStack() as stack:
        if workers > 1 and len(todo) > 1:
            pool = stack.enter_context(processes(workers, "built kernels", "run again with fewer cores"))
            built: Iterable[dict[str, dict]] = pool.map(_compile, todo)
        else:
            built = map(_compile, todo)
        for number, (unit, entries) in enumerate(zip(todo, built), 1):
            for instance, entry in entries.items():
                found[unit.kernel.name]["instances"][instance] |= entry
            wrong = next((entry["error"] for entry in entries.values() if "error" in entry), None)
            LOG.info("%d/%d %s: %s", number, len(todo), unit.kernel.name, wrong or f"{len(entries)} instances")
    for name, manifest in found.items():
        write_json(manifest, Path(folders[name]) / "manifest.json")
    return found


def instances(points: Iterable[Point], kernels: Mapping[str, Kernel]) -> dict[str, list[str]]:
    """The template instances that some points need, by kernel; kernels without a source have none."""
    found: dict[str, set[str]] = {}
    for point in points:
        if kernels[point.kernel].source:
            found.setdefault(point.kernel, set()).update(kernels[point.kernel].instances(point))
    return {name: sorted(found[name]) for name in sorted(found)}


class Unit(NamedTuple):
    """What one call of a compiler makes: one cubin, or a library with several instances; `path` lacks its suffix."""

    kernel: Kernel
    instances: list[str]
    device: Device
    path: Path


def _units(kernel: Kernel, entries: Mapping[str, Mapping[str, str]], device: Device, folder: Path) -> Iterator[Unit]:
    """The calls of a compiler that some instances need; `entries` holds the sha256 of each."""
    instances, on_gpu = list(entries), kernel.launched and device["backend"] == "gpu"
    if on_gpu:
        made_by = "triton" if kernel.kind == "triton" else cuda.compiler()
    else:
        made_by = digest([cpp.compiler(), cpp.version(), _emulator_sha256() if kernel.launched else ""])
    size = 1 if on_gpu else LIBRARY_INSTANCES
    for group in (instances[start : start + size] for start in range(0, len(instances), size)):
        content = digest([[entries[instance]["sha256"] for instance in group], made_by])[:16]
        yield Unit(kernel, group, device, folder / f"{symbol_of(group[0])}-{content}")


@functools.cache
def _emulator_sha256() -> str:
    """The hash of the emulator: its sources, the headers that a kernel finds there, and the modules that use them."""
    files = (path for folder in (EMULATOR, HOST_HEADERS) for path in sorted(folder.rglob("*")) if path.is_file())
    return digest([path.read_text() for path in [*files, *sorted(Path(__file__).parent.glob("*.py"))]])


def _compile(unit: Unit) -> dict[str, dict[str, Any]]:
    """What a manifest says about a unit's instances. If one does not compile, each is compiled separately."""
    record = unit.path.with_name(f"{unit.path.name}.json")
    if record.is_file():
        with contextlib.suppress(UserError):  # cut short by a crash of the machine
            return read_json(record)
    try:
        entries = _compile_unit(unit)
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
    if kernel.launched and unit.device["backend"] == "gpu":
        compiler = triton if kernel.kind == "triton" else cuda
        cubin, facts = compiler.compile_cubin(kernel, instances[0], unit.device["gpu"]["compute_capability"])
        with replacing(unit.path.with_name(f"{unit.path.name}.cubin")) as temporary:
            temporary.write_bytes(cubin)
        return {instances[0]: facts | {"file": f"{unit.path.name}.cubin"}}
    library = unit.path.with_name(f"{unit.path.name}.so")
    if kernel.kind == "host":
        _build_host(kernel, instances, library)
    else:
        emulator.build(kernel, instances, library)
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
    compile_library("\n".join(lines) + "\n", output, [*HOST_FLAGS, *beside(kernel.path)])
