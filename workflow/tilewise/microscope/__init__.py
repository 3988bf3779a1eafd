"""CUDA on the CPU, with every access to memory watched: `build` a file, `trace` it, read the `Report`."""

from tilewise.microscope.calls import build, trace
from tilewise.microscope.formats import Report

__all__ = ["Report", "build", "trace"]
