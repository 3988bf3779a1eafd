"""Which CUDA packages fit the driver and the GPUs.

`python -m tilewise.nvidia.toolkits [CUDA [NAME]]` prints why, on the error stream, and the name of a file of
requirements/; NAME is that of the environment that is there. make runs it before there is one: it imports nothing that
Python lacks.
"""

import importlib.metadata
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tilewise import UserError
from tilewise.nvidia import gpus
from tilewise.study.architectures import TOOLKITS, Toolkit, compiles, nearest_known

#: The requirements of a machine without CUDA.
WITHOUT = "run"
ON_THE_EMULATOR = f"or hide the GPUs to run on the emulator (`{gpus.VISIBLE}= make quick`)"


def choose(seen: Sequence[gpus.Gpu], forced: str = "", compatible: bool = False, there: str = "") -> tuple[str, str]:
    """The requirements for the visible GPUs, of which the first and those of its model measure, and a line that says
    why.

    forced: 12 or 13, the CUDA to take all the same, or empty; compatible: CUDA's package of forward compatibility is in
    use, which makes up for a driver that is too old; there: the requirements of the environment that is there, which
    stays as long as it serves. Raises UserError if no CUDA fits, or the forced one does not.
    """
    wanted = [toolkit for toolkit in TOOLKITS if forced in ("", str(toolkit.major))]
    if not wanted:
        raise UserError(f"CUDA={forced}: write {' or '.join(f'CUDA={toolkit.major}' for toolkit in TOOLKITS)}")
    first = next((gpu for gpu in seen if not gpu.divided), None)
    if first is None and forced:
        return wanted[0].requirements, f"no GPU here: {wanted[0].name} packages, by CUDA={forced}"
    if first is None:
        return WITHOUT, "no GPU with a driver here: packages without CUDA"
    fitting = [toolkit for toolkit in TOOLKITS if not refusal(toolkit, first, compatible)]
    if not fitting:
        raise UserError(_no_toolkit(first))
    if not (possible := [toolkit for toolkit in fitting if toolkit in wanted]):
        raise UserError(f"{refusal(wanted[0], first, compatible)}; use CUDA={fitting[-1].major}")
    toolkit = next((each for each in possible if each.requirements == there), possible[-1])
    because = f"driver {first.driver}" + " with cuda-compat" * compatible
    newer = [other for other in TOOLKITS if other.major > toolkit.major and other.driver <= _major(first.driver)]
    if toolkit != possible[-1]:
        because += ", as in the environment that is there"
    elif newer and not forced:
        because += f", {first} of compute capability {first.capability}, for which {newer[0].name} does not compile"
    return toolkit.requirements, f"{because}: {toolkit.name} packages" + _remarks(toolkit, first, seen)


def refusal(toolkit: Toolkit, gpu: gpus.Gpu, compatible: bool = False) -> str:
    """The reason why a toolkit does not serve a GPU; empty if it does."""
    if _major(gpu.driver) < toolkit.driver and not compatible:
        return f"{toolkit.name} needs driver {toolkit.driver} or newer, and this is {gpu.driver}"
    if gpu.capability and not compiles(toolkit, gpu.capability):
        return f"{toolkit.name} does not compile for {gpu}, compute capability {gpu.capability}"
    return ""


def installed() -> Toolkit | None:
    """The toolkit of this environment's packages; None without them."""
    try:
        major = int(importlib.metadata.version("cuda-bindings").split(".")[0])
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((toolkit for toolkit in TOOLKITS if toolkit.major == major), None)


def check(gpu: gpus.Gpu) -> None:
    """Raise UserError if the installed toolkit does not serve a GPU."""
    toolkit = installed()
    why = refusal(toolkit, gpu, compatible()) if toolkit else ""
    if why:
        fitting = [other for other in TOOLKITS if not refusal(other, gpu)]
        if not fitting:
            raise UserError(_no_toolkit(gpu))
        raise UserError(
            f"{why}; `make quick CUDA={fitting[-1].major}` installs packages that do, elsewhere `pip install -r "
            f"requirements/{fitting[-1].requirements}.txt` in a new environment"
        )


def compatible() -> bool:
    """Whether LD_LIBRARY_PATH has a driver library that is not the driver's own: that of the package cuda-compat."""
    folders = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    return any("compat" in folder and Path(folder, "libcuda.so.1").exists() for folder in folders)


def _no_toolkit(gpu: gpus.Gpu) -> str:
    oldest, newest = TOOLKITS[0], TOOLKITS[-1]
    if _major(gpu.driver) < oldest.driver:
        return (
            f"driver {gpu.driver} is too old: {oldest.name} needs {oldest.driver} or newer, {newest.name} "
            f"{newest.driver}; install a newer driver, {ON_THE_EMULATOR}"
        )
    served = [toolkit for toolkit in TOOLKITS if compiles(toolkit, gpu.capability)]
    if served:  # only of a newer CUDA than the driver takes
        return f"{refusal(served[0], gpu)}, the oldest CUDA for {gpu}; install a newer driver, {ON_THE_EMULATOR}"
    return (
        f"no CUDA of the study compiles for {gpu}, compute capability {gpu.capability}: it is older than Volta (7.0); "
        f"use another GPU, {ON_THE_EMULATOR}"
    )


def _remarks(toolkit: Toolkit, first: gpus.Gpu, seen: Sequence[gpus.Gpu]) -> str:
    """Words on a GPU that is newer than the toolkits, and on other visible GPUs that this toolkit does not serve."""
    words = ""
    if first.capability and (nearest := nearest_known(first.capability)) != first.capability:
        words += f"; compute capability {first.capability} is newer than they are, and gets the code of {nearest}"
    for gpu in seen:
        others = [other for other in TOOLKITS if not refusal(other, gpu)]
        if gpu.name != first.name and refusal(toolkit, gpu) and others:
            words += f"; {gpu} needs `{gpus.VISIBLE}={gpu.index} make quick CUDA={others[-1].major}`"
    return words


def _major(driver: str) -> int:
    return int(driver.split(".")[0])


if __name__ == "__main__":
    try:
        forced, there = (*sys.argv[1:], "", "")[:2]
        requirements, why = choose(gpus.visible(), forced, compatible(), there)
    except UserError as error:
        raise SystemExit(str(error)) from None
    print(why, file=sys.stderr)
    print(requirements)
