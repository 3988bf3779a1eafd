"""The languages for kernels besides CUDA C++, by the registry's `kind`: one module of this package compiles each.

A language compiles ahead of time, on a machine without a GPU, to a cubin that the study launches like its own kernels.
"""

import importlib.metadata
from collections.abc import Mapping
from typing import Any, Protocol

from tilewise.compile import triton
from tilewise.study.kernel import Kernel, Kind


class Language(Protocol):
    """What a module offers to compile one language.

    DISTRIBUTION: the name of its Python package, on whose version a row depends.
    """

    DISTRIBUTION: str

    def missing(self) -> str:
        """Why its kernels cannot be compiled here; empty if they can."""

    def compile_cubin(self, kernel: Kernel, instance: str, capability: str) -> tuple[bytes, dict[str, Any]]:
        """Compile one instance for a compute capability such as "9.0".

        Returns the cubin and its entry for `build`. Raises UserError with the compiler's first error.
        """


LANGUAGES: Mapping[Kind, Language] = {Kind.TRITON: triton}
#: The Python packages of all languages.
DISTRIBUTIONS = tuple(dict.fromkeys(language.DISTRIBUTION for language in LANGUAGES.values()))


def compiler(kind: Kind) -> str:
    """The name and the version of what compiles a language."""
    name = LANGUAGES[kind].DISTRIBUTION
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return name
