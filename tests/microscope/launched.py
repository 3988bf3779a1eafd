"""Launch on a GPU what suites_gpu.py has prepared, in a process that compute-sanitizer watches: `launched.py FILE`.

Thousands of such processes run; tilewise.nvidia.launcher would load CuPy in each, which takes longer than a launch.
"""

import ctypes
import pickle
import sys
from pathlib import Path
from typing import Any

from cuda.bindings import driver

Pointers = list[tuple[int, str]]  # the bytes of an address in something, and the array that it is of


def done(answer: tuple) -> Any:
    """What a call of the driver returns in addition to its error code, with which the process ends if it is one."""
    code, *values = answer
    if code != driver.CUresult.CUDA_SUCCESS:
        sys.exit(f"{code.name}")
    return values[0] if values else None


def addressed(data: bytes, pointers: Pointers, places: dict[str, Any]) -> Any:
    """A copy of some bytes with the addresses of arrays in it."""
    held = ctypes.create_string_buffer(data, len(data))
    for at, name in pointers:
        ctypes.c_uint64.from_buffer(held, at).value = int(places[name])
    return held


def main(file: str) -> None:
    """Allocate the arrays, write what they hold at first, and launch each function."""
    arrays, variables, launches = pickle.loads(Path(file).read_bytes())
    done(driver.cuInit(0))
    done(driver.cuCtxSetCurrent(done(driver.cuDevicePrimaryCtxRetain(done(driver.cuDeviceGet(0))))))
    places = {name: done(driver.cuMemAlloc(size)) for name, (size, _, _) in arrays.items()}
    for name, (size, data, pointers) in arrays.items():
        if data is not None:
            done(driver.cuMemcpyHtoD(places[name], addressed(data, pointers, places), size))
    for cubin, symbol, grid, block, shared, cooperative, arguments in launches:
        module = done(driver.cuModuleLoadData(cubin))
        for name, data in variables.items():
            done(driver.cuMemcpyHtoD(done(driver.cuModuleGetGlobal(module, name.encode())), data, len(data)))
        held = [addressed(data, pointers, places) for data, pointers in arguments]
        parameters = (ctypes.c_void_p * len(held))(*map(ctypes.addressof, held))
        launch = driver.cuLaunchCooperativeKernel if cooperative else driver.cuLaunchKernel
        # The one takes an array of further options, which the other has no place for.
        more = () if cooperative else (0,)
        function = done(driver.cuModuleGetFunction(module, symbol.encode()))
        done(launch(function, *grid, *block, shared, 0, ctypes.addressof(parameters), *more))
    done(driver.cuCtxSynchronize())


if __name__ == "__main__":
    main(sys.argv[1])
