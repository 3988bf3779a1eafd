"""Run CUDA kernels on the CPU: the same .cu files, compiled by g++ against kernels/emulator/cuda_emulator.h."""

import _ctypes
import ctypes
import json
import math
import re
import subprocess
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewise import KERNELS, UserError
from tilewise.build.cpp import beside, compile_library, shown, tool
from tilewise.study.device import DEFAULT_SHARED_BYTES, EMULATED_LIMITS
from tilewise.study.launch import NUMBERS, Argument, Array, Launch, Number, TensorMap, Three, Workspace
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS
from tilewise.study.registry import Kernel
from tilewise.study.sources import INCLUDE, code_of

FOLDER = KERNELS / "emulator"
#: The scheduler, which every library has.
RUNTIME = FOLDER / "cuda_emulator.cpp"
#: A block has at most this many threads along z, on every device so far.
MAX_BLOCK_Z = 64


class LaunchError(Exception):
    """A launch that a device would refuse; the message begins with the CUDA error's own name."""


# ---- Compiling -------------------------------------------------------------------------------------------------------


def build(
    kernel: Kernel,
    instances: Sequence[str],
    output: Path | str,
    flags: Iterable[Any] = (),
    runtime: Path = RUNTIME,
) -> Path:
    """Compile a kernel with all its instances into one shared library at `output`; returns the path.

    `instances` are C++ names such as `tiled<float, 32>`, of any functions of the file. `runtime` is the scheduler, as
    source or object. Raises UserError if the kernel does not compile, or if an instance's static shared memory passes
    CUDA's limit, which is a compile error there.
    """
    # The runtime before the flags: libraries among these serve it too. Sections, so that the linker drops kernels that
    # are never launched and their shared memory with them.
    own = [*beside(kernel.path), f"-I{INCLUDE}", f"-I{FOLDER}", "-fno-strict-aliasing", "-fno-extern-tls-init"]
    sections = ["-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"]
    compile_library(_wrapper(kernel, instances), output, [*own, *sections, runtime, *flags])
    for instance, used in static_shared_bytes(shared_arrays(output), instances).items():
        if used > DEFAULT_SHARED_BYTES:
            Path(output).unlink()
            raise UserError(
                f"{kernel.path}: {instance} uses too much shared data: {used} B where CUDA allows "
                f"{DEFAULT_SHARED_BYTES} B of static shared memory; use smaller tiles, or `extern __shared__` with "
                "dynamic_shared_bytes in the registry"
            )
    return Path(output)


def _wrapper(kernel: Kernel, instances: Sequence[str]) -> str:
    """C++ text that includes the kernel, unchanged, and makes each instance callable as a thread of a grid."""
    # `extern __shared__` arrays of any name are one and the same memory, as large as a block can have.
    text = "\n".join(code_of(path) for path in kernel.files)
    names = sorted(set(re.findall(r"\bextern\s+__shared__\b[^;]*?(\w+)\s*\[\s*\]", text)))
    labels = "".join(rf".globl {name}\n.hidden {name}\n.type {name}, @tls_object\n{name}:\n" for name in names)
    size = EMULATED_LIMITS["shared_bytes_per_block_optin"]
    dynamic = rf'asm(".pushsection .tbss,\"awT\",@nobits\n.balign 256\n{labels}.zero {size}\n.popsection");'
    used = set(re.findall(r"\w+", " ".join(instances)))
    headers = sorted({p.header for p in PRECISIONS.values() if p.header and p.cpp in used})
    functions = [f"&{name.removesuffix('<>')}" for name in instances]
    rows = ",\n".join(f"    emulator::instance(emulator::thread<{name}>, {name})" for name in functions)
    visible = 'extern "C" __attribute__((visibility("default"))) const'
    return "\n".join(
        [
            '#include "cuda_emulator.h"',
            *(f'#include "{header}"' for header in headers),
            f'#include "{kernel.path.name}"',
            dynamic if names else "",
            f"{visible} emulator::Instance emulator_instances[] = {{",
            f"{rows}}};",
            f"{visible} char emulator_names[] =",
            f"    {json.dumps(chr(10).join(instances))};",
            f"{visible} char emulator_entry[] =",
            f"    {json.dumps(f'{shown(kernel.path)}: {kernel.name}')};",
            "",
        ]
    )


# ---- Shared memory ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedArray:
    """A __shared__ array: the instance it belongs to (None: to no kernel alone), its name, where it begins in the
    library's TLS segment and its size, both in bytes. The dynamic array has size 0, for the launch decides."""

    owner: str | None
    name: str
    offset: int
    size: int


def shared_arrays(library: Path | str) -> list[SharedArray]:
    """All SharedArrays of a library, by its symbol table."""
    found = []
    for symbol, offset, size in _thread_locals(library):
        if not symbol.startswith(_GUARD):
            owner = re.match(r"(?:void )?(\w+(?:<.*>)?)\(.*\)::", symbol)
            found.append(SharedArray(owner and owner[1], symbol.rsplit("::", 1)[-1], offset, size))
    return found


def guards(library: Path | str) -> list[int]:
    """Where in the TLS segment g++ notes that an array was constructed; its elements need not be, but have a class."""
    return [offset for symbol, offset, _ in _thread_locals(library) if symbol.startswith(_GUARD)]


_GUARD = "guard variable for "


def _thread_locals(library: Path | str) -> list[tuple[str, int, int]]:
    """Name, offset and size of what lies in the library's TLS segment, but for the emulator's own."""
    command = [tool("nm"), "-C", "-f", "sysv", str(library)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = []
    for line in listing.splitlines():
        # `tiled<float, 16>(float const*, ...)::tile_a|0000000000000400|   b  |        TLS|0000000000000400|     |.tbss`
        cells = [cell.strip() for cell in line.rsplit("|", 6)]
        if len(cells) == 7 and cells[3] == "TLS" and not cells[0].startswith("emulator::"):
            found.append((cells[0], int(cells[1], 16), int(cells[4] or "0", 16)))
    return found


def arrays_of(arrays: Iterable[SharedArray], instance: str, instances: Iterable[str]) -> list[SharedArray]:
    """Those of the SharedArrays that an instance may use: all but the ones of the other `instances`."""
    others = {_plain(name) for name in instances} - {_plain(instance)}
    return [array for array in arrays if array.owner is None or _plain(array.owner) not in others]


def _plain(instance: str) -> str:
    """An instance's name as it is written and as nm prints it, made equal: `f<32u, true>` is `f<32,1>`."""
    plain = re.sub(r"\([\w ]+\)(?=-?\d)|(?<=\d)[ul]+\b|<>$|\s", "", instance)
    return re.sub(r"\btrue\b", "1", re.sub(r"\bfalse\b", "0", plain))


def static_shared_bytes(arrays: Iterable[SharedArray], instances: Sequence[str]) -> dict[str, int]:
    """Bytes of static shared memory of a block, for each instance."""
    arrays = list(arrays)
    return {name: sum(array.size for array in arrays_of(arrays, name, instances)) for name in instances}


# ---- Running ---------------------------------------------------------------------------------------------------------


class _Parameter(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("kind", ctypes.c_char)]


class _Instance(ctypes.Structure):
    _fields_ = [
        ("thread", ctypes.c_void_p),
        ("parameters", ctypes.POINTER(_Parameter)),
        ("parameter_count", ctypes.c_uint32),
    ]


#: What a parameter of a kernel can be, as cuda_emulator.h says it.
KINDS = {"p": "a pointer", "i": "an integer", "f": "a floating-point number", "o": "a struct"}


class Emulator:
    """A kernel compiled by `build`, ready to launch. One launch at a time: it holds Python's lock while it runs.

    `static_shared_bytes` holds the bytes of a block by instance, `parameters` the size and the kind (a key of KINDS) of
    each parameter by instance.
    """

    def __init__(self, path: Path | str) -> None:
        self.library = ctypes.PyDLL(str(path))
        # Closed when no longer used: else a library that is built again at this path would not be loaded.
        weakref.finalize(self, _ctypes.dlclose, self.library._handle)
        self.entry = self._text("emulator_entry")
        self.instances = self._text("emulator_names").split("\n")
        self._instances = (_Instance * len(self.instances)).in_dll(self.library, "emulator_instances")
        self.parameters = {
            name: [(p.size, p.kind.decode()) for p in held.parameters[: held.parameter_count]]
            for name, held in zip(self.instances, self._instances)
        }
        self.shared = shared_arrays(path)
        self.static_shared_bytes = static_shared_bytes(self.shared, self.instances)

    def _text(self, symbol: str) -> str:
        return ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(self.library, symbol))).decode()

    def check(self, launch: Launch, limits: Mapping[str, Any] = EMULATED_LIMITS) -> None:
        """Raise LaunchError if a device of `limits` would refuse the launch, and UserError if its function cannot be
        called with its arguments, or if the emulator cannot do what it asks for."""
        if launch.cluster != (1, 1, 1):
            raise UserError(
                f"{self.entry}: the emulator has no clusters; give the entry `emulated: false` with the reason"
            )
        _check_arguments(self.entry, launch, self.parameters[launch.instance])
        check_launch(launch, self.static_shared_bytes[launch.instance], limits)

    def launch(
        self,
        launch: Launch,
        arrays: Mapping[str, np.ndarray | int],
        limits: Mapping[str, Any] = EMULATED_LIMITS,
        reverse: bool = False,
        seed: int = 0,
        blocks: Iterable[Three] = (),
    ) -> bool:
        """Run one launch; `arrays` holds A, B, C and the workspaces by name, as C-contiguous arrays or as addresses.

        Between barriers the threads of a block run in ascending order, or descending (`reverse`), or in a random one
        (`seed` other than 0). `blocks`, triples (x, y, z), are those to run; all by default. Returns whether it ran to
        its end: the tracer gives up some. Raises, with all arrays untouched, what `check` raises.
        """
        self.check(launch, limits)
        held = [_packed(argument, arrays) for argument in launch.arguments]
        addresses = (ctypes.c_void_p * max(1, len(held)))(*(ctypes.addressof(value) for value in held))
        triple = ctypes.c_uint * 3
        across, down, _ = launch.grid
        numbers = [x + across * (y + down * z) for x, y, z in blocks]
        return bool(
            self.library.emulator_run(
                ctypes.byref(self._instances[self.instances.index(launch.instance)]),
                triple(*launch.block),
                triple(*launch.grid),
                addresses,
                ctypes.c_int(reverse),
                ctypes.c_uint64(seed),
                (ctypes.c_uint64 * len(numbers))(*numbers) if numbers else None,
                ctypes.c_uint64(len(numbers)),
            )
        )


def run(
    libraries: Mapping[str, Emulator],
    launches: Sequence[Launch],
    workspaces: Iterable[Workspace],
    operands: Mapping[str, np.ndarray],
    limits: Mapping[str, Any] = EMULATED_LIMITS,
    **order: Any,
) -> None:
    """C (n x m) = A (n x p) B (p x m), C in place, by launches of a kernel in their order, each from its instance's
    library.

    `operands` are A, B and C by name, C-contiguous and of the stored type of the point's precision; `order` goes to
    Emulator.launch. Workspaces begin as bytes 0xFF. Raises what Emulator.check raises for any of the launches, with C
    untouched.
    """
    for launch in launches:
        libraries[launch.instance].check(launch, limits)
    arrays = dict(operands) | {space.name: np.full(space.bytes, 0xFF, np.uint8) for space in workspaces}
    for launch in launches:
        libraries[launch.instance].launch(launch, arrays, limits, **order)


def product(
    kernel: Kernel,
    point: Point,
    library: Emulator,
    A: np.ndarray,
    B: np.ndarray,
    C: np.ndarray,
    device: Mapping[str, Any] | None = None,
    **order: Any,
) -> None:
    """The product of a point, by all launches of its kernel: `run` for the emulated device, or for `device`."""
    limits = EMULATED_LIMITS if device is None else device["limits"]
    spaces = kernel.workspaces_at(point, device)
    libraries = dict.fromkeys(library.instances, library)
    run(libraries, kernel.at(point, device), spaces, {"A": A, "B": B, "C": C}, limits, **order)


def _packed(argument: Argument, arrays: Mapping[str, np.ndarray | int]) -> Any:
    """An argument as ctypes holds it."""
    if isinstance(argument, Number):
        return argument.packed()
    assert isinstance(argument, Array)  # check has refused the rest
    array = arrays[argument.name]
    return ctypes.c_void_p(array if isinstance(array, int) else array.ctypes.data)


def _check_arguments(entry: str, launch: Launch, parameters: Sequence[tuple[int, str]]) -> None:
    place = f"{entry}: {launch.instance}"
    remedy = "; correct its `arguments` (--arguments of `tilewise trace`)"
    if len(launch.arguments) != len(parameters):
        raise UserError(
            f"{place}: the function has {len(parameters)} parameters, but the launch gives it "
            f"{len(launch.arguments)} arguments{remedy}"
        )
    for number, (argument, (size, kind)) in enumerate(zip(launch.arguments, parameters), 1):
        if isinstance(argument, TensorMap):
            raise UserError(
                f"{place}: argument {number} is a tensor map, which the emulator does not have; give the entry "
                "`emulated: false` with the reason"
            )
        if isinstance(argument, Array):
            given, said = (ctypes.sizeof(ctypes.c_void_p), "p"), f"the array {argument.name}"
        else:
            floating = argument.type in ("float", "double")
            given = ctypes.sizeof(NUMBERS[argument.type]), "f" if floating else "i"
            said = f"a number of type {argument.type}"
        if given != (size, kind):
            raise UserError(
                f"{place}: argument {number} is {said}, but the function takes {KINDS[kind]} of {size} B there{remedy}"
            )


def check_launch(launch: Launch, static_shared_bytes: int, limits: Mapping[str, Any]) -> None:
    """Raise LaunchError if a device of these limits refuses the launch, with the error that CUDA 13 gives."""
    threads = math.prod(launch.block)
    sizes = launch.block[:2] if launch.block[2] == 1 else launch.block
    if not 0 < threads <= limits["max_threads_per_block"]:
        raise LaunchError(
            f"cudaErrorInvalidValue: a block of {' x '.join(map(str, sizes))} = {threads} threads; "
            f"the device allows {limits['max_threads_per_block']}"
        )
    if launch.block[2] > MAX_BLOCK_Z:
        raise LaunchError(
            f"cudaErrorInvalidValue: a block of {launch.block[2]} threads along z; the device allows {MAX_BLOCK_Z}"
        )
    for axis, blocks, most in zip("xyz", launch.grid, limits["max_grid"]):
        if not 0 < blocks <= most:
            raise LaunchError(
                f"cudaErrorInvalidValue: a grid of {blocks} blocks along {axis}; the device allows {most}"
            )
    shared = static_shared_bytes + launch.dynamic_shared_bytes
    if shared > limits["shared_bytes_per_block_optin"]:
        raise LaunchError(
            f"cudaErrorInvalidValue: {shared} B of shared memory per block; "
            f"the device allows {limits['shared_bytes_per_block_optin']} B"
        )
