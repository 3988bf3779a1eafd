"""CUDA on the CPU, with every access to memory watched: `build` a file, `trace` it, read the `Report`.

Importing this loads nothing heavy; the names of the API are loaded when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from kernelscope.errors import MachineError, UserError

if TYPE_CHECKING:
    from kernelscope.calls import Call, build, trace
    from kernelscope.emulator import LaunchError
    from kernelscope.formats import Report

__version__ = "1.0.0"
__all__ = ["Call", "LaunchError", "MachineError", "Report", "UserError", "build", "trace"]

_MODULES = {"Call": "calls", "build": "calls", "trace": "calls", "LaunchError": "emulator", "Report": "formats"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
