"""Run CUDA kernels on the CPU: the same .cu files, compiled by g++ against kernels/emulator/cuda_emulator.h."""

import _ctypes
import ctypes
import json
import re
import subprocess
import weakref
from dataclasses import dataclass
from pathlib import Path

from tilewise import KERNELS, UserError
from tilewise.build.cpp import compile_library, tool

FOLDER = KERNELS / "emulator"

#: Limits of the emulated device, those of compute capability 9.0: threads, bytes, and blocks along x, y, z.
EMULATED_LIMITS = {
    "max_threads_per_block": 1024,
    "shared_bytes_per_block": 49152,
    "shared_bytes_per_block_optin": 232448,
    "max_grid": [2147483647, 65535, 65535],
}


class LaunchError(Exception):
    """A launch that a device would refuse; the message begins with the CUDA error's own name."""


class _Arguments(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_void_p) for name in "ABC"), *((name, ctypes.c_int) for name in "npm")]


def build(kernel, instances, output, flags=(), runtime=FOLDER / "cuda_emulator.cpp"):
    """Compile a kernel with all its template instances into one shared library at `output`; returns the path.

    `instances` are C++ names such as `tiled<float, 32>`. `runtime` is the scheduler, as source or object. Raises
    UserError where the kernel does not compile, or where an instance's static shared memory passes CUDA's limit, which
    is a compile error there.
    """
    # The runtime before the flags: libraries among these serve it too.
    compile_library(_wrapper(kernel, instances), output, [f"-I{FOLDER}", "-fno-extern-tls-init", runtime, *flags])
    most = EMULATED_LIMITS["shared_bytes_per_block"]
    for instance, used in static_shared_bytes(shared_arrays(output), instances).items():
        if used > most:
            Path(output).unlink()
            raise UserError(
                f"{kernel.path}: {instance} uses too much shared data: {used} B where CUDA allows {most} B of static "
                "shared memory; use smaller tiles, or `extern __shared__` with dynamic_shared_bytes in the registry"
            )
    return Path(output)


def _wrapper(kernel, instances):
    """C++ text that includes the kernel, unchanged, and makes each instance callable as a thread of a grid."""
    # `extern __shared__` arrays of any name are one and the same memory, as large as a block can have.
    names = sorted(set(re.findall(r"\bextern\s+__shared__\b[^;]*?(\w+)\s*\[\s*\]", kernel.path.read_text())))
    labels = "".join(rf".globl {name}\n.hidden {name}\n.type {name}, @tls_object\n{name}:\n" for name in names)
    size = EMULATED_LIMITS["shared_bytes_per_block_optin"]
    dynamic = rf'asm(".pushsection .tbss,\"awT\",@nobits\n.balign 256\n{labels}.zero {size}\n.popsection");'
    rows = ",\n".join(f"    emulator::thread<&{name.removesuffix('<>')}>" for name in instances)
    return "\n".join(
        [
            '#include "cuda_emulator.h"',
            f"#include {json.dumps(str(kernel.path.resolve()))}",
            dynamic if names else "",
            'extern "C" __attribute__((visibility("default"))) const emulator::Thread emulator_threads[] = {',
            f"{rows}}};",
            'extern "C" __attribute__((visibility("default"))) const char emulator_instances[] =',
            f"    {json.dumps(chr(10).join(instances))};",
            "",
        ]
    )


@dataclass(frozen=True)
class SharedArray:
    """A __shared__ array: the instance it belongs to (None: to no kernel alone), its name, where it begins in the
    library's TLS segment and its size, both in bytes. The dynamic array has size 0, for the launch decides."""

    owner: str | None
    name: str
    offset: int
    size: int


def shared_arrays(library):
    """All SharedArrays of a library, by its symbol table."""
    command = [tool("nm"), "-C", "-f", "sysv", str(library)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = []
    for line in listing.splitlines():
        # `tiled<float, 16>(float const*, ...)::tile_a|0000000000000400|   b  |        TLS|0000000000000400|     |.tbss`
        cells = [cell.strip() for cell in line.rsplit("|", 6)]
        if len(cells) == 7 and cells[3] == "TLS" and not cells[0].startswith("emulator::"):
            owner = re.match(r"(?:void )?(\w+(?:<.*>)?)\(.*\)::", cells[0])
            name = cells[0].rsplit("::", 1)[-1]
            found.append(SharedArray(owner and owner[1], name, int(cells[1], 16), int(cells[4] or "0", 16)))
    return found


def arrays_of(arrays, instance, instances):
    """Those of the SharedArrays that an instance may use: all but the ones of the other `instances`."""
    others = {name.removesuffix("<>") for name in instances} - {instance.removesuffix("<>")}
    return [array for array in arrays if array.owner not in others]


def static_shared_bytes(arrays, instances):
    """Bytes of static shared memory of a block, for each instance."""
    return {name: sum(array.size for array in arrays_of(arrays, name, instances)) for name in instances}


class Emulator:
    """A kernel compiled by `build`, ready to launch. One launch at a time: it holds Python's lock while it runs."""

    def __init__(self, path):
        self.library = ctypes.PyDLL(str(path))
        # Closed when no longer used: else a library built anew at this path would not be loaded.
        weakref.finalize(self, _ctypes.dlclose, self.library._handle)
        self.instances = ctypes.c_char.in_dll(self.library, "emulator_instances")
        self.instances = ctypes.string_at(ctypes.addressof(self.instances)).decode().split("\n")
        self.threads = (ctypes.c_void_p * len(self.instances)).in_dll(self.library, "emulator_threads")
        self.shared = shared_arrays(path)
        self.static_shared_bytes = static_shared_bytes(self.shared, self.instances)

    def launch(self, instance, geometry, A, B, C, n, p, m, limits=EMULATED_LIMITS, reverse=False, seed=0, blocks=()):
        """C (n x m) = A (n x p) B (p x m), C in place, all C-contiguous arrays of the instance's element type.

        Between barriers the threads of a block run in ascending order, or descending (`reverse`), or in a random one
        (`seed` other than 0). `blocks`, pairs (x, y), are those to run; all by default. Raises LaunchError, with C
        untouched, where the device of `limits` would refuse.
        """
        check_launch(geometry, self.static_shared_bytes[instance], limits)
        for name, array, shape in (("A", A, (n, p)), ("B", B, (p, m)), ("C", C, (n, m))):
            if array.shape != shape or array.dtype != C.dtype or not array.flags.c_contiguous:
                raise ValueError(f"{name} must be a C-contiguous {C.dtype} array of shape {shape}")
        arguments = _Arguments(A.ctypes.data, B.ctypes.data, C.ctypes.data, n, p, m)
        pair = ctypes.c_uint * 2
        numbers = [x + y * geometry.grid[0] for x, y in blocks]
        self.library.emulator_run(
            ctypes.c_void_p(self.threads[self.instances.index(instance)]),
            pair(*geometry.block),
            pair(*geometry.grid),
            ctypes.byref(arguments),
            ctypes.c_int(reverse),
            ctypes.c_uint64(seed),
            (ctypes.c_uint64 * len(blocks))(*numbers) if blocks else None,
            ctypes.c_uint64(len(blocks)),
        )


def check_launch(geometry, static_shared_bytes, limits):
    """Raise LaunchError where a device of these limits refuses the launch, with the error that CUDA 13 gives."""
    x, y = geometry.block
    if not 0 < x * y <= limits["max_threads_per_block"]:
        raise LaunchError(
            f"cudaErrorInvalidValue: a block of {x} x {y} = {x * y} threads; "
            f"the device allows {limits['max_threads_per_block']}"
        )
    for axis, blocks, most in zip("xy", geometry.grid, limits["max_grid"]):
        if not 0 < blocks <= most:
            raise LaunchError(
                f"cudaErrorInvalidValue: a grid of {blocks} blocks along {axis}; the device allows {most}"
            )
    shared = static_shared_bytes + geometry.dynamic_shared_bytes
    if shared > limits["shared_bytes_per_block_optin"]:
        raise LaunchError(
            f"cudaErrorInvalidValue: {shared} B of shared memory a block; "
            f"the device allows {limits['shared_bytes_per_block_optin']} B"
        )
