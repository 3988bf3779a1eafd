"""Vendor-specific operations."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tilewise.nvidia import card, gpus, languages, ncu, nvml, nvrtc, occupancy, sass
from tilewise.study.kernel import Kind


@dataclass(frozen=True)
class Vendor:
    """What all other modules need of a vendor; each function is described in the package of its vendor.

    library: the name of its library of matrix products; packages: the Python packages whose versions a device.json
    has; launched_by, library_versions, compiler_version: the versions, by their names in a device.json, on which a row
    depends: always, if it is the library's, if it is a kernel's; visible_by: the variable that hides GPUs; standard:
    the language of its kernels; backend, launcher, matmul: modules that need a GPU and its packages, for
    `import_module`; instructions: the columns of instructions.csv that count kinds of them.
    """

    library: str
    packages: Sequence[str]
    launched_by: Sequence[str]
    library_versions: Sequence[str]
    compiler_version: str
    visible_by: str
    standard: str
    backend: str
    launcher: str
    matmul: str
    instructions: Sequence[str]
    # Which GPUs there are
    this_machine: Callable[[], gpus.Machine]
    visible: Callable[[], list[gpus.Gpu]]
    of_model: Callable[[str], list[gpus.Gpu]]
    only: Callable[[str], AbstractContextManager[None]]
    describe: Callable[[str], tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]
    processes: Callable[[str], list[int] | None]
    # What compiles for them
    compiler: Callable[[], str]
    architecture: Callable[..., str]
    cannot_run: Callable[..., str]
    compile_cubin: Callable[..., tuple[bytes, dict[str, Any]]]
    languages: Mapping[Kind, languages.Language]
    # What explains a kernel
    occupancy: Callable[..., occupancy.Occupancy]
    active_blocks: Callable[[], Callable[..., int]]
    main_loop: Callable[..., dict[str, Any]]
    profiler: Callable[[], str]
    count: Callable[..., list[tuple[Any, dict[str, Any]]]]


VENDOR = Vendor(
    library="cuBLAS",
    packages=(
        *("cupy-cuda13x", "cuda-core", "cuda-bench", "nvidia-cuda-nvrtc"),
        *dict.fromkeys(language.package for language in languages.LANGUAGES.values()),
    ),
    launched_by=("cuda_driver", "cuda-bench"),
    library_versions=("cublas", "cuda_runtime"),
    compiler_version="nvrtc",
    visible_by=gpus.VISIBLE,
    standard=nvrtc.STANDARD,
    backend="tilewise.nvidia.backend",
    launcher="tilewise.nvidia.launcher",
    matmul="tilewise.nvidia.matmul",
    instructions=(*sass.OPCODES, "other"),
    this_machine=gpus.this_machine,
    visible=gpus.visible,
    of_model=gpus.of_model,
    only=gpus.only,
    describe=card.describe,
    processes=nvml.processes,
    compiler=nvrtc.compiler,
    architecture=nvrtc.architecture,
    cannot_run=nvrtc.cannot_run,
    compile_cubin=nvrtc.compile_cubin,
    languages=languages.LANGUAGES,
    occupancy=occupancy.occupancy,
    active_blocks=occupancy.active_blocks,
    main_loop=sass.main_loop_of,
    profiler=ncu.find_ncu,
    count=ncu.count,
)
