"""Build the kernels of the study, each into a folder of its own with a manifest that tells what is in it."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewise import UserError
from tilewise.build import cuda, emulator, triton
from tilewise.build.cpp import beside, compile_library
from tilewise.files import digest, processes, read_json, replacing, write_json
from tilewise.study.points import Point
from tilewise.study.registry import Kernel

HOST_FLAGS = ("-O3",)
Device = Mapping[str, Any]


def target(device: Device) -> dict[str, Any]:
    """The part of device.json that a build depends on: the backend, the compute capability, the host's compiler."""
    gpu = device["gpu"] and {"compute_capability": device["gpu"]["compute_capability"]}
    return {"backend": device["backend"], "gpu": gpu, "host_compiler": device["host_compiler"]}


def manifests(builds: Mapping[str, Path | str]) -> dict[str, dict]:
    """What manifest.json tells of each build, by the kernel's name; `builds` maps that name to the build's folder."""
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


def build(kernel: Kernel, instances: Sequence[str], device: Device, folder: Path | str) -> dict[str, Any]:
    """Compile all `instances` (template instances such as `tiled<float, 32>`) of a kernel into `folder`.

    `device` is the content of device.json, or its `target`. Writes manifest.json beside the binaries and returns its
    content: for each instance its sha256 (of sources, options and target), and for a cubin its file, symbol, registers,
    static shared bytes and spill bytes, or the `error` of an instance that does not compile while others do. A kernel
    that this machine cannot run has a manifest that says why. Raises UserError if none compiles.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    entries: dict[str, dict] = {name: {"sha256": source_sha256(kernel, name, device)} for name in instances}
    manifest = {"kernel": kernel.name, "unsupported": unsupported(kernel, device), "instances": entries}
    if manifest["unsupported"]:
        pass
    elif kernel.launched and device["backend"] == "gpu":
        _build_cubins(kernel, entries, device["gpu"]["compute_capability"], folder)
    else:
        library = f"{kernel.name}.so"
        if kernel.kind == "host":
            _build_host(kernel, instances, folder / library)
        else:
            emulator.build(kernel, instances, folder / library)
        for name, entry in entries.items():
            entry |= {"file": library, "symbol": symbol_of(name)}
    write_json(manifest, folder / "manifest.json")
    return manifest


# ---- Variants --------------------------------------------------------------------------------------------------------


def build_variants(
    wanted: Mapping[str, Sequence[str]],
    kernels: Mapping[str, Kernel],
    device: Device,
    folders: Mapping[str, Path | str],
    workers: int,
) -> dict[str, dict]:
    """Compile many instances of several kernels, each for itself, by so many processes at a time; manifests by kernel.

    `wanted` maps kernels to instances, `folders` maps them to where the binaries and manifest.json go. A binary is
    named by what it was made of; one that is there already is not made again, so that what a kill left is used. An
    instance that does not compile has an `error` in the manifest, even if all have it.
    """
    found: dict[str, dict] = {}
    todo = []
    for name, instances in wanted.items():
        kernel, folder = kernels[name], Path(folders[name])
        folder.mkdir(parents=True, exist_ok=True)
        why = unsupported(kernel, device)
        entries: dict[str, dict] = {each: {"sha256": source_sha256(kernel, each, device)} for each in instances}
        found[name] = {"kernel": name, "unsupported": why, "instances": entries}
        if not why:
            todo += [(kernel, each, device, folder, entry["sha256"]) for each, entry in entries.items()]
    with processes(workers, "built variants", "run again with fewer cores: what was built is kept") as pool:
        futures = [pool.submit(_variant, *each) for each in todo]
        for (kernel, instance, *_), future in zip(todo, futures):
            found[kernel.name]["instances"][instance] |= future.result()
    for name, manifest in found.items():
        write_json(manifest, Path(folders[name]) / "manifest.json")
    return found


def _variant(kernel: Kernel, instance: str, device: Device, folder: Path, sha256: str) -> dict[str, Any]:
    """What a manifest tells of one instance, which is compiled unless `folder` has it; by a process of the pool."""
    emulated = device["backend"] == "emulator"
    made_by = device["host_compiler"] if emulated else cuda.compiler()
    name = f"{symbol_of(instance)}-{digest([sha256, made_by])[:16]}"
    known = folder / f"{name}.json"
    if known.is_file():
        with contextlib.suppress(UserError):  # cut short by a crash of the machine
            return read_json(known)
    try:
        if emulated:
            entry: dict[str, Any] = {"file": f"{name}.so", "symbol": symbol_of(instance)}
            emulator.build(kernel, [instance], folder / entry["file"])
        else:
            cubin, facts = cuda.compile_cubin(kernel, instance, device["gpu"]["compute_capability"])
            entry = facts | {"file": f"{name}.cubin"}
            with replacing(folder / entry["file"]) as temporary:
                temporary.write_bytes(cubin)
    except UserError as error:
        entry = {"error": str(error)}
    write_json(entry, known)
    return entry


def symbol_of(instance: str) -> str:
    """A C name and file name for a template instance: `tiled<float, 32>` -> `tiled_float_32`."""
    return re.sub(r"\W+", "_", instance.replace("-", "minus")).strip("_")


def _build_cubins(kernel: Kernel, entries: dict[str, dict], capability: str, folder: Path) -> None:
    errors = []
    for instance, entry in entries.items():
        try:
            compiler = triton if kernel.kind == "triton" else cuda
            cubin, facts = compiler.compile_cubin(kernel, instance, capability)
        except UserError as error:
            entry["error"] = str(error)
            errors.append(error)
            continue
        name = f"{symbol_of(instance)}.cubin"
        (folder / name).write_bytes(cubin)
        entry |= facts | {"file": name}
    if entries and len(errors) == len(entries):
        raise errors[0]


def _build_host(kernel: Kernel, instances: Sequence[str], output: Path) -> None:
    lines = [f'#include "{kernel.path.name}"']
    for instance in instances:
        [element] = re.findall(r"<(\w+)", instance)[:1]
        arguments = f"const {element}* A, const {element}* B, {element}* C, int n, int p, int m"
        call = f"void {symbol_of(instance)}({arguments}) {{ {instance}(A, B, C, n, p, m); }}"
        lines.append(f'extern "C" __attribute__((visibility("default"))) {call}')
    compile_library("\n".join(lines) + "\n", output, [*HOST_FLAGS, *beside(kernel.path)])
