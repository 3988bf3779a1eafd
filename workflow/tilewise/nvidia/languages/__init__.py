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
from tilewise.study.kernel import LANGUAGES, Kernel, Kind, Language


@dataclass(frozen=True)
class Compiler:
    """A compiler of the kernels of one kind.

    `others` are the packages that it needs besides the language's own, `module` is what the compiler imports. The
    `extra` has all packages.
    """

    kind: Kind
    others: tuple[str, ...]
    module: str
    extra: str
    compile: Callable[[Kernel, str, list[str], str], tuple[bytes, dict[str, Any]]]

    @property
    def language(self) -> Language:
        """The language of the kind."""
        return LANGUAGES[self.kind]

    @property
    def packages(self) -> tuple[str, ...]:
        """The Python packages that it needs."""
        return self.language.package, *self.others

    @property
    def install(self) -> str:
        """The line that installs it."""
        return f"`pip install -r requirements/{self.extra}.txt`"

    @property
    def version(self) -> str:
        """The name of its package, with the version."""
        return f"{self.language.package} {_version(self.language.package)}"

    def missing(self) -> str:
        """The reason why its kernels cannot be compiled here; empty if they can."""
        absent = next((package for package in self.packages if not _version(package)), "")
        return absent and (
            f"the Python package {absent} is missing: {self.install}, then run with `--forcerun measure`"
        )

    def prepare(self) -> None:
        """Import the compiler, so that the time of a compilation is without it. Raises UserError if that fails."""
        try:
            importlib.import_module(self.module)
        except Exception as error:  # of packages whose versions do not fit
            raise UserError(
                f"{self.language.name} cannot be imported: {error}; install it again: {self.install}"
            ) from None

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
                raise MachineError(f"the compiler of {self.language.name} cannot go on: {full}; {REMEDIES}") from None
            # cuTile's errors as text end with a place in the source, which is unknown if tileiras fails.
            said = str(getattr(error, "message", error)).strip().splitlines() or [type(error).__name__]
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


COMPILERS: Mapping[Kind, Compiler] = {
    compiler.kind: compiler
    for compiler in (
        Compiler(Kind.TRITON, (), "triton.compiler", "triton", triton.compile_cubin),
        Compiler(Kind.GLUON, (), "triton.experimental.gluon", "triton", triton.compile_cubin),
        Compiler(Kind.NUMBA, ("nvidia-nvvm", "nvidia-nvjitlink"), "numba.cuda", "languages", numba.compile_cubin),
        Compiler(Kind.CUTILE, ("nvidia-cuda-tileiras",), "cuda.tile", "languages", cutile.compile_cubin),
        Compiler(Kind.WARP, (), "warp", "languages", warp.compile_cubin),
        Compiler(Kind.CUTE, (), "cutlass.cute", "languages", cute.compile_cubin),
    )
}
