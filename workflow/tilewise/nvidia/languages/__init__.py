"""The languages for kernels besides CUDA C++, by the registry's `kind`: a module of this package compiles each.

A language compiles ahead of time, on a machine without a GPU, to a cubin that the study launches like its own kernels.
"""

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelscope.files import REMEDIES, refusal
from tilewise import MachineError, UserError
from tilewise.nvidia.languages import cute, cutile, numba, triton, warp
from tilewise.study.kernel import Kernel, Kind


@dataclass(frozen=True)
class Language:
    """What compiles one language: its name, the Python packages that it needs, and the extra that has them.

    A row depends on the version of the first of the `packages`; `module` is what its compiler imports.
    """

    name: str
    packages: tuple[str, ...]
    module: str
    extra: str
    compile: Callable[[Kernel, str, list[str], str], tuple[bytes, dict[str, Any]]]

    @property
    def package(self) -> str:
        """The Python package that is the language."""
        return self.packages[0]

    @property
    def install(self) -> str:
        """The line that installs it."""
        return f"`pip install -r requirements/{self.extra}.txt`"

    @property
    def compiler(self) -> str:
        """The name and the version of the compiler."""
        return f"{self.package} {_version(self.package)}"

    def missing(self) -> str:
        """Why its kernels cannot be compiled here; empty if they can."""
        absent = next((package for package in self.packages if not _version(package)), "")
        return absent and (
            f"the Python package {absent} is missing: {self.install}, then run with `--forcerun measure`"
        )

    def prepare(self) -> None:
        """Import the compiler, so that the time of a compilation is without it. Raises UserError if that fails."""
        try:
            importlib.import_module(self.module)
        except Exception as error:  # of packages whose versions do not fit
            raise UserError(f"{self.name} cannot be imported: {error}; install it again: {self.install}") from None

    def compile_cubin(self, kernel: Kernel, instance: str, capability: str) -> tuple[bytes, dict[str, Any]]:
        """Compile one instance, such as `matmul<float, 64>`, for a compute capability such as "9.0".

        Returns the cubin and its entry for `build`. Raises UserError with the compiler's last line.
        """
        name, _, words = instance.partition("<")
        place = f"{kernel.path}: {instance}"
        self.prepare()
        try:
            module = _module(kernel)
            function = getattr(module, name)
        except Exception as error:  # whatever the user's module does
            raise UserError(f"{place}: {kernel.source} cannot be read: {error}") from None
        try:
            return self.compile(kernel, function, words.removesuffix(">").split(", "), capability)
        except UserError as error:
            raise UserError(f"{place}: {error}") from None
        except Exception as error:  # of MLIR, LLVM, ptxas and their like
            if full := refusal(str(error)):
                raise MachineError(f"the compiler of {self.name} cannot go on: {full}; {REMEDIES}") from None
            said = str(error).strip().splitlines() or [type(error).__name__]
            target = capability.replace(".", "")
            raise UserError(f"{place} does not compile for sm_{target}: {said[-1]}") from None


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _module(kernel: Kernel) -> Any:
    spec = importlib.util.spec_from_file_location(f"tilewise_kernel_{kernel.path.stem}", kernel.path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LANGUAGES: Mapping[Kind, Language] = {
    Kind.TRITON: Language("Triton", ("triton",), "triton.compiler", "triton", triton.compile_cubin),
    Kind.GLUON: Language("Gluon", ("triton",), "triton.experimental.gluon", "triton", triton.compile_cubin),
    Kind.NUMBA: Language(
        "Numba", ("numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink"), "numba.cuda", "languages", numba.compile_cubin
    ),
    Kind.CUTILE: Language(
        "cuTile", ("cuda-tile", "nvidia-cuda-tileiras"), "cuda.tile", "languages", cutile.compile_cubin
    ),
    Kind.WARP: Language("Warp", ("warp-lang",), "warp", "languages", warp.compile_cubin),
    Kind.CUTE: Language("CuTe DSL", ("nvidia-cutlass-dsl",), "cutlass.cute", "languages", cute.compile_cubin),
}
