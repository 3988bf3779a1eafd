"""Compile the kernels: to cubins by NVRTC for a GPU, to a shared library by g++ for the CPU loops and the emulator."""

import io
import json
import re
from pathlib import Path

from tilewise import UserError
from tilewise.build.cpp import compile_library
from tilewise.files import digest, write_json
from tilewise.measure.backends import emulator

STANDARD = "c++17"
HOST_FLAGS = ("-O3",)


def target(device):
    """The part of device.json that a build depends on: the backend, the compute capability, the host's compiler."""
    gpu = device["gpu"] and {"compute_capability": device["gpu"]["compute_capability"]}
    return {"backend": device["backend"], "gpu": gpu, "host_compiler": device["host_compiler"]}


def manifests(builds):
    """What manifest.json tells of each build, by the kernel's name; `builds` maps that name to the build's folder."""
    return {name: json.loads((Path(folder) / "manifest.json").read_text()) for name, folder in builds.items()}


def source_sha256(kernel, instance, device):
    """The hash that names a build, `build_sha256` in measurements.csv; it needs no compiler."""
    return digest([kernel.path.read_text(), instance, *_options(kernel, device)])


def _options(kernel, device):
    if kernel.kind == "host":
        return " ".join(HOST_FLAGS), device["host_compiler"]
    if device["backend"] == "emulator":
        return "emulator", device["host_compiler"]
    return _architecture(device["gpu"]["compute_capability"]), STANDARD


def _gpu(capability):
    return {"backend": "gpu", "gpu": {"compute_capability": capability}}


def _architecture(capability):
    return f"sm_{capability.replace('.', '')}"


def build(kernel, instances, device, folder):
    """Compile all `instances` (template instances such as `tiled<float, 32>`) of a kernel into `folder`.

    `device` is the content of device.json, or its `target`. Writes manifest.json beside the binaries and returns its
    content: for each instance its sha256 (of source, options and target), and for a cubin its file, symbol, registers,
    static shared bytes and spill bytes, or the `error` of an instance that does not compile where others do. Raises
    UserError where none compiles.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if kernel.kind == "host":
        manifest = _build_host(kernel, instances, device, folder)
    elif device["backend"] == "emulator":
        manifest = _build_emulated(kernel, instances, device, folder)
    else:
        manifest = _build_cubins(kernel, instances, device["gpu"]["compute_capability"], folder)
    write_json(manifest, folder / "manifest.json")
    return manifest


def symbol_of(instance):
    """A C name and file name for a template instance: `tiled<float, 32>` -> `tiled_float_32`."""
    return re.sub(r"\W+", "_", instance).strip("_")


def compile_cubin(kernel, instance, capability):
    """Compile one instance to a cubin with NVRTC, which needs neither a driver nor a GPU.

    `capability` is a compute capability such as "9.0". Returns (cubin bytes, entry of the manifest without its file).
    Raises UserError with the compiler's first error.
    """
    try:
        from cuda.core import Program, ProgramOptions
    except ImportError:
        raise UserError(
            "the CUDA compiler (the Python packages cuda-core and nvidia-cuda-nvrtc) is missing; run `make report` or "
            "`pip install -e .[gpu]`"
        ) from None
    arch = _architecture(capability)
    source = kernel.path.read_text()
    # Where there is a driver, NVRTC keeps what it compiled; but then its log says nothing of registers.
    options = ProgramOptions(
        arch=arch, std=STANDARD, name=kernel.source, ptxas_options=["-v"], lineinfo=True, no_cache=True
    )
    log = io.StringIO()
    try:
        code = Program(source, "c++", options).compile("cubin", name_expressions=(instance,), logs=log)
    except Exception as error:  # cuda.core wraps NVRTC's log into exceptions of several classes
        raise UserError(f"{kernel.path}: {instance} does not compile for {arch}: {_first_error(str(error))}") from None
    symbol = code.symbol_mapping[instance]
    return bytes(code.code), {
        "sha256": source_sha256(kernel, instance, _gpu(capability)),
        "symbol": symbol.decode() if isinstance(symbol, bytes) else symbol,
        **_resources(log.getvalue()),
    }


def _build_cubins(kernel, instances, capability, folder):
    entries, errors = {}, []
    for instance in instances:
        try:
            cubin, entry = compile_cubin(kernel, instance, capability)
        except UserError as error:
            entries[instance] = {"error": str(error), "sha256": source_sha256(kernel, instance, _gpu(capability))}
            errors.append(error)
            continue
        name = f"{symbol_of(instance)}.cubin"
        (folder / name).write_bytes(cubin)
        entries[instance] = entry | {"file": name}
    if len(errors) == len(entries):
        raise errors[0]
    return {"kernel": kernel.name, "target": capability, "instances": entries}


def _build_emulated(kernel, instances, device, folder):
    emulator.build(kernel, instances, folder / f"{kernel.name}.so")
    return _library_manifest(kernel, instances, device, "emulator")


def _build_host(kernel, instances, device, folder):
    lines = [f'#include "{kernel.path}"']
    for instance in instances:
        element = re.search(r"<(\w+)", instance)[1]
        arguments = f"const {element}* A, const {element}* B, {element}* C, int n, int p, int m"
        call = f"void {symbol_of(instance)}({arguments}) {{ {instance}(A, B, C, n, p, m); }}"
        lines.append(f'extern "C" __attribute__((visibility("default"))) {call}')
    compile_library("\n".join(lines) + "\n", folder / f"{kernel.name}.so", HOST_FLAGS)
    return _library_manifest(kernel, instances, device, " ".join(HOST_FLAGS))


def _library_manifest(kernel, instances, device, target):
    entries = {
        instance: {"sha256": source_sha256(kernel, instance, device), "symbol": symbol_of(instance)}
        for instance in instances
    }
    return {"kernel": kernel.name, "target": target, "library": f"{kernel.name}.so", "instances": entries}


def _resources(log):
    """Registers, static shared bytes and spill bytes of the kernel in ptxas's verbose log."""

    def number(pattern):
        found = re.search(pattern, log)
        return int(found[1]) if found else 0

    return {
        "registers": number(r"Used (\d+) registers"),
        "shared_bytes": number(r"(\d+) bytes smem"),
        "spill_bytes": number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
    }


def _first_error(log):
    """The first line of a compiler's log that names an error, without the path before it."""
    lines = [line.strip() for line in log.splitlines() if "error" in line and "NVRTC_ERROR" not in line]
    return lines[0] if lines else log.strip().splitlines()[-1]
