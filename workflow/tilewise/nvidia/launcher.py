"""Load and launch the study's kernels through cuda.bindings, with CuPy's arrays and streams.

CuPy can launch neither clusters nor tensor maps. The arguments of a launch are packed once, so that a launch itself
costs no more on the host than CuPy's does.
"""

import contextlib
import ctypes
import functools
import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda.bindings import driver
from cupy.cuda import runtime

from kernelscope.element_types import ELEMENT_TYPES
from kernelscope.launch import Array, Launch, TensorMap, Value
from kernelscope.limits import DEFAULT_SHARED_BYTES, PORTABLE_CLUSTER_BLOCKS
from tilewise import UserError
from tilewise.study.jobs import Job
from tilewise.study.precision import PRECISIONS

_FUNCTION = driver.CUfunction_attribute
#: The types of a tensor map by element type. TMA copies bytes, and has no signed ones; it rounds to TF32.
_TENSOR_TYPES = {name: element.array_name.upper() for name, element in ELEMENT_TYPES.items()}
_TENSOR_TYPES |= {"int8": "UINT8", "tf32": "TFLOAT32"}
_SWIZZLE_NAMES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


class CudaError(Exception):
    """An error of the CUDA driver: its name, and the driver's words for it."""

    def __init__(self, code: Any):
        self.name = code.name
        _, text = driver.cuGetErrorString(code)
        super().__init__(f"{self.name}: {text.decode() if text else 'unknown error'}")


def driver_result(answer: tuple) -> Any:
    """The results of a driver call without its error code. Raises CudaError."""
    code, *values = answer
    if code != driver.CUresult.CUDA_SUCCESS:
        raise CudaError(code)
    return values[0] if len(values) == 1 else values


@dataclass(frozen=True)
class Function:
    """A kernel that is loaded: its handle, registers and bytes of local memory of a thread, bytes of static shared
    memory, and the sizes in bytes of its parameters, which drivers from 550 on say."""

    handle: Any
    registers: int
    local_bytes: int
    static_shared_bytes: int
    parameter_bytes: tuple[int, ...]


def load(file: str, symbol: str) -> Function:
    """The function of a cubin; loaded once per process and GPU. Raises CudaError."""
    return _loaded(file, symbol, runtime.getDevice())


@functools.cache
def _loaded(file: str, symbol: str, device: int) -> Function:
    runtime.free(0)  # makes the context that CuPy uses, and makes it current
    module = driver_result(driver.cuModuleLoadData(Path(file).read_bytes()))
    handle = driver_result(driver.cuModuleGetFunction(module, symbol.encode()))
    return Function(
        handle,
        driver_result(driver.cuFuncGetAttribute(_FUNCTION.CU_FUNC_ATTRIBUTE_NUM_REGS, handle)),
        driver_result(driver.cuFuncGetAttribute(_FUNCTION.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, handle)),
        driver_result(driver.cuFuncGetAttribute(_FUNCTION.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, handle)),
        _parameter_bytes(handle),
    )


def _parameter_bytes(handle: Any) -> tuple[int, ...]:
    sizes: list[int] = []
    with contextlib.suppress(RuntimeError):  # by cuda.bindings: the driver has no such function
        while (answer := driver.cuFuncGetParamInfo(handle, len(sizes)))[0] == driver.CUresult.CUDA_SUCCESS:
            sizes.append(int(answer[2]))
    return tuple(sizes)


def allow_shared(function: Function, dynamic_shared_bytes: int) -> None:
    """Raise a function's limit of dynamic shared memory, if a launch needs more than a block gets without asking."""
    if dynamic_shared_bytes + function.static_shared_bytes > DEFAULT_SHARED_BYTES:
        name = _FUNCTION.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        driver_result(driver.cuFuncSetAttribute(function.handle, name, dynamic_shared_bytes))


def active_blocks(entry: Mapping, threads: int, dynamic_shared_bytes: int) -> int:
    """The blocks of a compiled kernel that a multiprocessor holds at a time, by CUDA itself; `entry` is of `build`."""
    function = load(entry["file"], entry["symbol"])
    allow_shared(function, dynamic_shared_bytes)
    return driver_result(
        driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function.handle, threads, dynamic_shared_bytes)
    )


class Product:
    """All launches of a job, bound to arrays: call it with the address of a stream.

    `addresses` maps A, B, C and the workspaces to their places in device memory. Raises CudaError if the driver refuses
    to load a kernel or to grant it shared memory, UserError if the registry's arguments are not the function's, or if
    the kernel takes matrices that lie otherwise than row after row, unless the arrays `lie` so.
    """

    def __init__(self, job: Job, addresses: Mapping[str, int], raise_limit: bool = True, lie: bool = False):
        if (job.kernel.column_major or job.kernel.ld) and not lie:
            raise UserError(f"{job.kernel.name}: a kernel with column_major or ld is for sweeps and the tuner only")
        self.functions = [load(*job.files[launch.instance]) for launch in job.launches]
        self._kept: list[Any] = []  # the packed arguments
        self._calls = []
        for function, launch in zip(self.functions, job.launches):
            if raise_limit:
                allow_shared(function, launch.dynamic_shared_bytes)
            packed = [_packed(argument, addresses) for argument in launch.arguments]
            _check_parameters(job, launch, function, [size for _, _, size in packed])
            pointers = (ctypes.c_void_p * len(packed))(*(address for _, address, _ in packed))
            self._kept += [*(value for value, _, _ in packed), pointers]
            self._calls.append((_configured(launch, function), function.handle, ctypes.addressof(pointers)))
        self._stream: int | None = None

    def __call__(self, stream: int = 0) -> None:
        if stream != self._stream:
            for config, _, _ in self._calls:
                config.hStream = driver.CUstream(stream)
            self._stream = stream
        for config, handle, arguments in self._calls:
            (code,) = driver.cuLaunchKernelEx(config, handle, arguments, 0)
            if code != driver.CUresult.CUDA_SUCCESS:
                raise CudaError(code)

    def launch_times(self, repeats: int = 5) -> list[float]:
        """Median ms of each launch of the product, on the current device's default stream."""
        marks = [[runtime.eventCreate() for _ in range(len(self._calls) + 1)] for _ in range(repeats)]
        for events in marks:
            runtime.eventRecord(events[0], 0)
            for event, (config, handle, arguments) in zip(events[1:], self._calls):
                driver_result(driver.cuLaunchKernelEx(config, handle, arguments, 0))
                runtime.eventRecord(event, 0)
        runtime.deviceSynchronize()
        times = [[runtime.eventElapsedTime(*pair) for pair in itertools.pairwise(events)] for events in marks]
        for event in itertools.chain.from_iterable(marks):
            runtime.eventDestroy(event)
        return [statistics.median(each) for each in zip(*times)]

    def facts(self, job: Job) -> dict[str, int]:
        """Columns that the loaded kernel reports, for the launch that makes the product."""
        name = job.product.instance if job.product else None
        [(function, launch)] = [pair for pair in zip(self.functions, job.launches) if pair[1].instance == name][-1:]
        shared = function.static_shared_bytes + launch.dynamic_shared_bytes
        return {"registers": function.registers, "shared_bytes": shared, "local_bytes": function.local_bytes}


def whole_call(job: Job, arrays: Mapping[str, Any], first: bool) -> Iterator[str]:
    """One call from host to host, as in source b: yields the name of each step when it is done.

    `arrays` are A, B and C in the memory of the host; `first` says whether the process has no context yet.
    """
    if first:
        runtime.free(0)
        yield "context"
    sizes = {name: array.nbytes for name, array in arrays.items()} | {s.name: s.bytes for s in job.workspaces}
    addresses = {name: runtime.malloc(size) for name, size in sizes.items()}
    yield "allocate"
    for name in "ABC" if job.kernel.wanted.begins else "AB":
        runtime.memcpy(addresses[name], arrays[name].ctypes.data, sizes[name], runtime.memcpyHostToDevice)
    yield "copy_in"
    for launch in job.launches:
        load(*job.files[launch.instance])
    yield "load"
    Product(job, addresses)()
    runtime.deviceSynchronize()
    yield "kernel"
    runtime.memcpy(arrays["C"].ctypes.data, addresses["C"], sizes["C"], runtime.memcpyDeviceToHost)
    yield "copy_out"
    for address in addresses.values():
        runtime.free(address)
    yield "free"


def _configured(launch: Launch, function: Function) -> Any:
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
    config.sharedMemBytes = launch.dynamic_shared_bytes
    config.numAttrs = 0
    attributes = []
    if launch.cooperative:
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        attribute.value.cooperative = 1
        attributes.append(attribute)
    if launch.dependent:
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        attributes.append(attribute)
    if launch.cluster != (1, 1, 1):
        x, y, z = launch.cluster
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = x, y, z
        attributes.append(attribute)
        if x * y * z > PORTABLE_CLUSTER_BLOCKS:
            name = _FUNCTION.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            driver_result(driver.cuFuncSetAttribute(function.handle, name, 1))
    if attributes:
        config.attrs, config.numAttrs = attributes, len(attributes)
    return config


def _packed(argument: Any, addresses: Mapping[str, int]) -> tuple[Any, int, int]:
    """An argument as the driver takes it: an object to keep, the address of its value, and the size of that."""
    if isinstance(argument, TensorMap):
        tensor = tensor_map(argument, addresses[argument.array])
        return tensor, int(tensor.getPtr()), 128
    if isinstance(argument, Value):
        held = ctypes.create_string_buffer(argument.data, len(argument.data))
        for place, name in argument.pointers:
            ctypes.c_void_p.from_buffer(held, place).value = addresses[name]
        return held, ctypes.addressof(held), len(held)
    value: Any = ctypes.c_void_p(addresses[argument.name]) if isinstance(argument, Array) else argument.packed()
    return value, ctypes.addressof(value), ctypes.sizeof(value)


def tensor_map(tensor: TensorMap, address: int) -> Any:
    """The description of an array for TMA, whose dimensions begin with the innermost. Raises CudaError."""
    itemsize = PRECISIONS[tensor.dtype].itemsize
    extents = tensor.shape[::-1]
    pitches = [itemsize * extents[0]]
    for extent in extents[1:-1]:
        pitches.append(pitches[-1] * extent)
    wide, narrow = driver.cuuint64_t, driver.cuuint32_t
    return driver_result(
        driver.cuTensorMapEncodeTiled(
            getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TENSOR_TYPES[tensor.dtype]}"),
            len(extents),
            address,
            [wide(extent) for extent in extents],
            [wide(pitch) for pitch in pitches[: len(extents) - 1]],
            [narrow(size) for size in tensor.box[::-1]],
            [narrow(size) for size in (tensor.strides or (1,) * len(extents))[::-1]],
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLE_NAMES[tensor.swizzle]}"),
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )


def _check_parameters(job: Job, launch: Launch, function: Function, sizes: Sequence[int]) -> None:
    if function.parameter_bytes and list(function.parameter_bytes) != list(sizes):
        raise UserError(
            f"{job.kernel.folder / 'registry.yaml'}: {job.kernel.name}.arguments: {launch.instance} takes "
            f"parameters of {', '.join(map(str, function.parameter_bytes))} B, the entry gives "
            f"{', '.join(map(str, sizes))} B; correct the list, or the types of its numbers"
        )
