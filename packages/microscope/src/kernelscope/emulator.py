"""Run compiled CUDA kernels on the CPU: load a library, check a launch as a device would, run it."""

import _ctypes
import ctypes
import json
import math
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelscope import elf
from kernelscope.cpp import display_path
from kernelscope.element_types import ELEMENT_TYPES
from kernelscope.errors import NotEmulated, UserError
from kernelscope.launch import Argument, Array, Launch, Number, TensorMap, Three, Value, Workspace
from kernelscope.limits import EMULATED_LIMITS
from kernelscope.shared_memory import SharedArray, Variables, arrays_of, places_of, static_shared_bytes

#: What a multiprocessor has, of 32 bits.
REGISTERS = 65536
#: A block has at most this many threads along z, on every device so far.
MAX_BLOCK_Z = 64


class LaunchError(Exception):
    """A launch that a device would refuse; the message begins with the CUDA error's own name."""


class _Parameter(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("kind", ctypes.c_char),
        ("element_size", ctypes.c_uint32),
        ("element", ctypes.c_char),
    ]


class _Instance(ctypes.Structure):
    _fields_ = [
        ("thread", ctypes.c_void_p),
        ("parameters", ctypes.POINTER(_Parameter)),
        ("parameter_count", ctypes.c_uint32),
    ]


class Stopped(ctypes.Structure):
    """How a run ended: `how` is an index of Emulator.ends, `pc` the instruction's offset in the library, or 0, `last`
    that of its last access; `file` and `line` say where it waited last."""

    _fields_ = [
        ("how", ctypes.c_int32),
        ("thread", ctypes.c_uint32),
        ("block", ctypes.c_uint32 * 3),
        ("pc", ctypes.c_uint64),
        ("last", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("file", ctypes.c_char_p),
        ("line", ctypes.c_int32),
    ]


#: What a thread did that was stopped, by the End of runtime/ends.h.
HOW = {
    "time": "has not come to its end",
    "division": "divides by zero; a GPU would go on with a number that means nothing",
    "stack": "needs more local memory than the 512 KiB that a GPU gives a thread: recursion without end, or "
    "large arrays",
    "address": "reads or writes address {address:#x}, where nothing is",
    "instruction": "comes to an instruction that ends it, such as where a function without `return` ends",
    "waits": "waits here for a change that no thread of its block makes; the emulator runs the blocks of a grid one "
    "after the other, and in neither order does an earlier block make it; of {together} it runs all together: choose a "
    "smaller shape",
    "never": "waits here for a change that no thread of the grid makes",
}

#: How many blocks, and how many threads, the emulator runs together at most.
MOST_TOGETHER = {"blocks": 256, "threads": 8192}


def fits_together(launch: Launch) -> bool:
    """Whether the emulator can run all blocks of a launch together."""
    blocks = math.prod(launch.grid)
    return blocks <= MOST_TOGETHER["blocks"] and 32 * -(-launch.threads // 32) * blocks <= MOST_TOGETHER["threads"]


def stop_message(how: str, stopped: "Stopped") -> str:
    """Describe the action of a stopped thread."""
    most = " and ".join(f"{number:,d} {what}" for what, number in MOST_TOGETHER.items())
    return HOW[how].format(address=stopped.address, together=f"grids of up to {most}")


#: What a parameter of a kernel can be, as cuda_emulator.h says it.
CODES = {"p": "a pointer", "i": "an integer", "f": "a floating-point number", "o": "a struct"}
#: The types of C++ that a parameter is said to point to, by kind and bytes; those of other kinds are not distinguished.
FLOATING = {(b"f", 4): "float", (b"f", 8): "double"}


@dataclass(frozen=True)
class Order:
    """How threads and blocks are ordered.

    Between barriers the threads of a block run in ascending order, or descending (`reverse`), or in a random one
    (`seed` other than 0); blocks in ascending or, by default as `reverse` says, in descending order. `together`: all
    blocks of the grid run at the same time if they are no more than MOST_TOGETHER; else, as always, those of a
    cluster. `guarded` as in places_of.
    """

    reverse: bool = False
    blocks_reversed: bool | None = None
    seed: int = 0
    together: bool = False
    guarded: bool = False


ASCENDING = Order()


class Emulator:
    """A kernel compiled by `build`, ready to launch. One launch at a time: it holds Python's lock while it runs.

    `static_shared_bytes` holds the bytes of a block by instance, `parameters` each parameter by instance.
    """

    def __init__(self, path: Path | str) -> None:
        self.library = ctypes.PyDLL(str(path))
        # Closed when no longer used: else a library that is built again at this path would not be loaded.
        weakref.finalize(self, _ctypes.dlclose, self.library._handle)
        symbols = elf.symbols(path)
        ends = [symbol.offset + symbol.size for symbol in symbols if symbol.thread_local and symbol.section]
        self.thread_local_bytes = max(ends, default=0) + 8
        # Before any function of the library: a static libstdc++ has variables of a thread, too, for its exceptions.
        self._place()
        self.entry = self.text("emulator_entry")
        if hasattr(self.library, "emulator_ptx_unknown"):
            self.library.emulator_ptx_unknown.restype = ctypes.c_char_p
            if unknown := self.library.emulator_ptx_unknown().decode():
                raise NotEmulated(display_path(unknown))
        self.instances = self.text("emulator_names").split("\n")
        self._instances = (_Instance * len(self.instances)).in_dll(self.library, "emulator_instances")
        self.parameters = {
            name: held.parameters[: held.parameter_count] for name, held in zip(self.instances, self._instances)
        }
        self.attributes = json.loads(self.text("emulator_attributes"))
        variables = Variables(*json.loads(self.text("emulator_shared")))
        self.shared = variables.arrays(symbols)
        self.variables, constant = variables.in_global_memory(symbols), variables.constant
        #: Those that a kernel may write, so that they hold what an earlier launch left there.
        self.written = [v for v in self.variables if v.name.rsplit("::", 1)[-1] not in constant]
        entry = next(symbol for symbol in symbols if symbol.name == "emulator_entry")
        self._begin = ctypes.addressof(ctypes.c_char.in_dll(self.library, "emulator_entry")) - entry.offset
        self.static_shared_bytes = static_shared_bytes(self.shared, self.instances)
        self.ends = self.text("emulator_ends").split()
        self.library.emulator_stopped.restype = ctypes.POINTER(Stopped)
        #: Seconds of computing that are left for all further launches; None: no limit.
        self.seconds_left: float | None = None
        #: Whether what a kernel prints is not shown.
        self.silent = False

    def text(self, symbol: str) -> str:
        """A text that the library exports."""
        return ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(self.library, symbol))).decode()

    def stopped(self) -> tuple[str, Stopped] | None:
        """How the last launch ended, as a key of HOW, and where, if a thread could not go on or the time was up."""
        found = self.library.emulator_stopped()[0]
        how = self.ends[found.how]
        return None if how == "reached" else (how, found)

    def check(self, launch: Launch, limits: Mapping[str, Any] = EMULATED_LIMITS) -> None:
        """Raise LaunchError if a device of `limits` would refuse the launch, and UserError if its function cannot be
        called with its arguments, or if the emulator cannot do what it asks for."""
        _check_arguments(self.entry, launch, self.parameters[launch.instance])
        attributes = self.attributes.get(launch.instance, {})
        bounds, cluster = (attributes.get(name, []) for name in ("bounds", "cluster"))
        if bounds and math.prod(launch.block) > bounds[0]:
            raise LaunchError(
                f"cudaErrorInvalidValue: a block of {math.prod(launch.block)} threads; the kernel's __launch_bounds__ "
                f"allow {bounds[0]}"
            )
        if cluster and tuple([*cluster, 1, 1][:3]) != launch.cluster:
            given = " x ".join(map(str, launch.cluster))
            raise UserError(
                f"{self.entry}: {launch.instance} has __cluster_dims__({', '.join(map(str, cluster))}), and the launch "
                f"is for clusters of {given} blocks; give the same in `cluster` of the registry or --cluster"
            )
        check_launch(launch, self.static_shared_bytes[launch.instance], limits)

    def _registers(self, launch: Launch) -> int:
        """How many registers a thread has when the launch starts: __maxnreg__, or as many as ptxas gives it so that the
        blocks of __launch_bounds__, by default the launch's own, fit on a multiprocessor."""
        attributes = self.attributes.get(launch.instance, {})
        bounds: list[int] = attributes.get("bounds") or [launch.threads]
        blocks = max([1, *bounds[1:2]])
        most: list[int] = attributes.get("registers") or [256]
        return min(*most, 256, REGISTERS // (32 * -(-bounds[0] // 32) * blocks)) // 8 * 8

    def check_elements(self, launch: Launch, types: Mapping[str, str]) -> None:
        """Raise UserError if a function takes a pointer to float or double where its launch gives it an array of
        another type; `types` are those of the arrays by name, in C++."""
        for number, (argument, parameter) in enumerate(zip(launch.arguments, self.parameters[launch.instance]), 1):
            element = FLOATING.get((parameter.element, parameter.element_size))
            if isinstance(argument, Array) and element and types[argument.name] != element:
                raise UserError(
                    f"{self.entry}: {launch.instance}: argument {number} is the array {argument.name} of "
                    f"{types[argument.name]}, but the function takes a pointer to {element}; choose that element type "
                    f"(--dtype {element}, or in --arg)"
                )

    def variable(self, name: str) -> memoryview:
        """The bytes of a __device__ or __constant__ variable; what is written there, all later launches find. Raises
        UserError if there is none of this name."""
        found = [v for v in self.variables if v.name == name or v.name.rsplit("::", 1)[-1] == name]
        if len(found) != 1:
            there = ", ".join(variable.name for variable in self.variables) or "none"
            raise UserError(
                f"{self.entry}: what is launched uses no __constant__ or __device__ variable '{name}'; it uses {there}"
            )
        return memoryview((ctypes.c_char * found[0].size).from_address(self._begin + found[0].offset)).cast("B")

    def shared_of(self, launch: Launch) -> list[SharedArray]:
        """The shared arrays that a launch may use."""
        return arrays_of(self.shared, launch.instance, self.instances)

    def launch(
        self,
        launch: Launch,
        arrays: Mapping[str, np.ndarray | int],
        limits: Mapping[str, Any] = EMULATED_LIMITS,
        order: Order = ASCENDING,
        blocks: Iterable[Three] = (),
    ) -> bool:
        """Run one launch; `arrays` holds A, B, C and the workspaces by name, as C-contiguous arrays or as addresses.

        `blocks`, triples (x, y, z), are those to run; all by default. Returns whether it ran to its end: the tracer
        gives up some. Raises, with all arrays untouched, what `check` raises.
        """
        self.check(launch, limits)
        shared = self.shared_of(launch)
        self._place([array.offset for array in shared], places_of(shared, order.guarded))
        self.library.emulator_limit(ctypes.c_double(self.seconds_left or 0.0))
        if hasattr(self.library, "emulator_registers"):
            self.library.emulator_registers(ctypes.c_uint(self._registers(launch)))
        started = time.process_time()
        held = [_packed(argument, arrays) for argument in launch.arguments]
        addresses = (ctypes.c_void_p * max(1, len(held)))(*(ctypes.addressof(value) for value in held))
        triple = ctypes.c_uint * 3
        across, down, _ = launch.grid
        numbers = [x + across * (y + down * z) for x, y, z in blocks]
        ended = bool(
            self.library.emulator_run(
                ctypes.byref(self._instances[self.instances.index(launch.instance)]),
                triple(*launch.block),
                triple(*launch.grid),
                triple(*launch.cluster),
                addresses,
                ctypes.c_int(order.reverse),
                ctypes.c_int(order.reverse if order.blocks_reversed is None else order.blocks_reversed),
                ctypes.c_uint64(order.seed),
                (ctypes.c_uint64 * len(numbers))(*numbers) if numbers else None,
                ctypes.c_uint64(len(numbers)),
                ctypes.c_int(order.together and not numbers and fits_together(launch)),
                ctypes.c_int(launch.cooperative),
            )
        )
        self._print(launch.instance.split("<")[0])
        if self.seconds_left is not None:
            self.seconds_left = max(1e-3, self.seconds_left - (time.process_time() - started))
        self.library.emulator_message.restype = ctypes.c_char_p
        if message := self.library.emulator_message().decode():
            raise UserError(f"{display_path(message)}")
        return ended

    def _place(self, offsets: Sequence[int] = (), places: Sequence[int] = ()) -> None:
        """Give the library memory for its thread_local variables, and each shared array a place in the window.

        `offsets` are those of the arrays among these variables.
        """
        integers = ctypes.c_uint64 * len(offsets)
        self.library.emulator_place(
            integers(*offsets),
            integers(*places),
            ctypes.c_int(len(offsets)),
            ctypes.c_uint64(self.thread_local_bytes),
        )

    def _print(self, name: str) -> None:
        """Show what the threads have printed, unless `silent`: line by line, each under the kernel's name, and with
        control characters as escapes, so that no terminal obeys it and nobody takes it for the tool's own words."""
        size = ctypes.c_uint64()
        self.library.emulator_printed.restype = ctypes.c_void_p
        text = ctypes.string_at(self.library.emulator_printed(ctypes.byref(size)), size.value)
        for line in text.decode(errors="backslashreplace").removesuffix("\n").split("\n") if text else ():
            if not self.silent:
                shows = (c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in line)
                print(f"{name} prints: {''.join(shows)}")


def run(
    libraries: Mapping[str, Emulator],
    launches: Sequence[Launch],
    workspaces: Iterable[Workspace],
    operands: Mapping[str, np.ndarray],
    limits: Mapping[str, Any] = EMULATED_LIMITS,
    order: Order = ASCENDING,
) -> dict[str, np.ndarray]:
    """C (n x m) = A (n x p) B (p x m), C in place, by launches of a kernel in their order, each from its instance's
    library.

    `operands` are A, B and C by name, C-contiguous and of the stored type of the point's precision; `order` goes to
    Emulator.launch. Workspaces that `operands` lacks begin as bytes 0xFF; all are returned by name. Raises what
    Emulator.check raises for any of the launches, with C untouched, and UserError for a thread that cannot go on.
    """
    for launch in launches:
        libraries[launch.instance].check(launch, limits)
    spaces = {
        space.name: operands[space.name] if space.name in operands else np.full(space.bytes, 0xFF, np.uint8)
        for space in workspaces
    }
    arrays = dict(operands) | spaces
    for launch in launches:
        library = libraries[launch.instance]
        if not library.launch(launch, arrays, limits, order) and (stopped := library.stopped()):
            how, at = stopped
            who = f"thread {thread_of(at.thread, launch)} of block {tuple(at.block)}"
            raise UserError(f"{library.entry}: {launch.instance}: {who} {stop_message(how, at)}")
    return spaces


def thread_of(number: int, launch: Launch) -> Three:
    """threadIdx of a thread by its number in a block, counted along x, y, then z."""
    x, y, _ = launch.block
    return number % x, number // x % y, number // (x * y)


def _packed(argument: Argument, arrays: Mapping[str, np.ndarray | int]) -> Any:
    """An argument as ctypes holds it."""
    if isinstance(argument, Number):
        return argument.packed()
    if isinstance(argument, Value):
        data = bytearray(argument.data)
        for at, name in argument.pointers:
            data[at : at + 8] = _address(arrays[name]).to_bytes(8, "little")
        return (ctypes.c_char * len(data)).from_buffer_copy(data)
    address = _address(arrays[argument.name if isinstance(argument, Array) else argument.array])
    return ctypes.c_void_p(address) if isinstance(argument, Array) else _tensor_map(argument, address)


def _address(array: np.ndarray | int) -> int:
    return array if isinstance(array, int) else array.ctypes.data


class _TensorMap(ctypes.Structure):
    """What ptx/copies.cpp reads as TensorMap; the dimensions begin with the innermost."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("magic", "rank", "itemsize", "swizzle")),
        ("base", ctypes.c_uint64),
        ("shape", ctypes.c_uint64 * 5),
        ("pitch", ctypes.c_uint64 * 5),
        ("box", ctypes.c_uint16 * 5),
        ("step", ctypes.c_uint16 * 5),
        ("to_tf32", ctypes.c_uint8),
        ("rest", ctypes.c_uint8 * 3),
    ]


def _tensor_map(tensor: TensorMap, address: int) -> _TensorMap:
    itemsize, shape = ELEMENT_TYPES[tensor.dtype].itemsize, tensor.shape[::-1]
    packed = _TensorMap(_MAP_MAGIC, len(shape), itemsize, tensor.swizzle, address)
    for d, extent in enumerate(shape):
        packed.shape[d] = extent
        packed.pitch[d] = itemsize * math.prod(shape[:d])
        packed.box[d] = tensor.box[::-1][d]
        packed.step[d] = tensor.strides[::-1][d] if tensor.strides else 1
    packed.to_tf32 = tensor.dtype == "tf32"
    return packed


_MAP_MAGIC = 0x70616D54


def _check_arguments(entry: str, launch: Launch, parameters: Sequence[_Parameter]) -> None:
    place = f"{entry}: {launch.instance}"
    remedy = "; correct its `arguments` (--arguments or --arg)"
    if len(launch.arguments) != len(parameters):
        raise UserError(
            f"{place}: the function has {len(parameters)} parameters, but the launch gives it "
            f"{len(launch.arguments)} arguments{remedy}"
        )
    for number, (argument, parameter) in enumerate(zip(launch.arguments, parameters), 1):
        if isinstance(argument, TensorMap):
            given, said = (ctypes.sizeof(_TensorMap), "o"), "a tensor map"
        elif isinstance(argument, Array):
            given, said = (ctypes.sizeof(ctypes.c_void_p), "p"), f"the array {argument.name}"
        elif isinstance(argument, Value):
            given, said = (len(argument.data), argument.kind), f"a value of type {argument.type}"
        else:
            given = ctypes.sizeof(argument.ctype), "o" if argument.is_struct else "i" if argument.whole else "f"
            said = f"a number of type {argument.type}"
        size, kind = parameter.size, parameter.kind.decode()
        if given != (size, kind):
            raise UserError(
                f"{place}: argument {number} is {said}, but the function takes {CODES[kind]} of {size} B there{remedy}"
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
