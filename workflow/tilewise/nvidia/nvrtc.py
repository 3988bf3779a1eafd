"""Compile CUDA C++ to cubins with NVRTC, which needs neither a driver nor a GPU."""

import importlib.metadata
import io
import re
import threading
from pathlib import Path
from typing import Any

from kernelscope.files import REMEDIES, refusal
from kernelscope.sources import HOST_HEADERS, code_of
from tilewise import MachineError, UserError
from tilewise.nvidia import toolkits
from tilewise.study.architectures import TOOLKITS, compiles
from tilewise.study.builds import STANDARD
from tilewise.study.kernel import Kernel
from tilewise.study.sources import INCLUDE

#: What ptxas says if it runs wgmma instructions one after the other: the kernel would be a fraction as fast.
SERIALISED = re.compile(r"^.*\(C75(?:08|10)\).*$", re.MULTILINE)

#: Two threads cannot import cuda.core at the same time: one of them finds half of it.
_IMPORT = threading.Lock()


def compiler() -> str:
    """The compiler's name and version. Raises UserError if it is not installed."""
    try:
        with _IMPORT:
            import cuda.core  # noqa: F401
    except ImportError:
        raise UserError(
            "the CUDA compiler (the Python packages cuda-core and nvidia-cuda-nvrtc) is missing; run "
            "`pip install -r requirements/compiler.txt`, on a machine with a GPU `pip install -r "
            "requirements/$(python -m tilewise.nvidia.toolkits).txt`"
        ) from None
    toolkit = toolkits.installed()
    return f"nvrtc {importlib.metadata.version(toolkit.nvrtc)}" if toolkit else "nvrtc"


def cannot_compile(capability: str) -> str:
    """The reason why the installed toolkit cannot compile for a compute capability; empty if it can."""
    toolkit = toolkits.installed()
    if toolkit is None or compiles(toolkit, capability):
        return ""
    others = (other for other in TOOLKITS if compiles(other, capability))
    remedies = [
        f"; {other.name} does: `pip install -r requirements/{other.requirements}.txt` in a new environment"
        for other in others
    ]
    return f"{toolkit.name} does not compile for compute capability {capability}{''.join(remedies[:1])}"


def compile_cubin(kernel: Kernel, instance: str, capability: str) -> tuple[bytes, dict[str, Any]]:
    """Compile one template instance for a compute capability such as "9.0", for which `cannot_compile` is empty.

    Returns the cubin and its entry for `build`: symbol, registers, static shared bytes and spill bytes.
    Raises UserError with the compiler's first error.
    """
    return cubin_of(kernel.path, str(kernel.source), instance, kernel.target(capability))


def cubin_of(path: Path, name: str, instance: str, arch: str) -> tuple[bytes, dict[str, Any]]:
    """Compile one instance of a CUDA file for a target such as "sm_90"; returns and raises as `compile_cubin`.

    `name` is what line numbers in the machine code are of. For a target such as "compute_90" the code is PTX, which the
    driver compiles, and the numbers are those of sm_90; it needs a driver.
    """
    compiler()
    from cuda.core import Program

    if arch.startswith("compute_"):
        _, facts = cubin_of(path, name, instance, arch.replace("compute_", "sm_"))
        program = Program(code_of(path), "c++", _options(path, name, arch))
        return bytes(program.compile("ptx", name_expressions=(instance,)).code) + b"\0", facts
    log = io.StringIO()
    try:
        program = Program(code_of(path), "c++", _options(path, name, arch, ptxas_options=["-v"]))
        code = program.compile("cubin", name_expressions=(instance,), logs=log)
    except Exception as error:  # cuda.core wraps NVRTC's log into exceptions of several classes
        if full := refusal(str(error)):
            raise MachineError(f"the CUDA compiler cannot go on: {full}; {REMEDIES}") from None
        raise UserError(f"{path}: {instance} does not compile for {arch}: {_first_error(str(error))}") from None
    serialised = SERIALISED.search(log.getvalue())
    if serialised:
        raise UserError(f"{path}: {instance} for {arch}: {serialised[0].strip()}")
    symbol = code.symbol_mapping[instance]
    mangled = symbol.decode() if isinstance(symbol, bytes) else symbol
    return bytes(code.code), {"symbol": mangled} | _resources(log.getvalue(), mangled)


def _options(path: Path, name: str, arch: str, **more: Any) -> Any:
    from cuda.core import ProgramOptions

    folders = [path.parent, INCLUDE, HOST_HEADERS, *_toolkit()]
    # NVRTC keeps what it compiled if there is a driver; but then its log says nothing of registers.
    return ProgramOptions(
        arch=arch,
        std=STANDARD,
        name=name,
        include_path=[str(folder) for folder in folders],
        pre_include="cuda_runtime.h",  # as nvcc does, unasked
        lineinfo=True,
        no_cache=True,
        **more,
    )


def assemble(ptx: str, arch: str) -> bytes:
    """The cubin of a PTX program for a target such as "sm_90", by the linker of the package nvidia-nvjitlink."""
    from cuda.core import Program, ProgramOptions

    return bytes(Program(ptx, "ptx", ProgramOptions(arch=arch)).compile("cubin").code)


def _toolkit() -> list[Path]:
    """The folders of CUDA's own headers, such as cuda_bf16.h and those of its C++ library, as far as they are here."""
    from cuda.pathfinder import find_nvidia_header_directory

    folders = (find_nvidia_header_directory(name) for name in ("cudart", "nvcc", "cccl"))  # nvcc: crt/mma.h of CUDA 12
    return [Path(folder) for folder in folders if folder]


def _resources(log: str, symbol: str) -> dict[str, int]:
    """Registers, static shared bytes and spill bytes of a kernel in ptxas's verbose log, which has all of the file."""
    _, _, own = log.rpartition(f"Compiling entry function '{symbol}'")
    own, _, _ = own.partition("Compiling entry function")

    def number(pattern: str) -> int:
        found = re.search(pattern, own)
        return int(found[1]) if found else 0

    return {
        "registers": number(r"Used (\d+) registers"),
        "shared_bytes": number(r"(\d+) bytes smem"),
        "spill_bytes": number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
    }


def _first_error(log: str) -> str:
    """The first line of a compiler's log that names an error, without the path before it."""
    lines = [line.strip() for line in log.splitlines() if re.search("error|fatal", line) and "NVRTC_ERROR" not in line]
    return lines[0] if lines else log.strip().splitlines()[-1]
