"""Find the GPUs of the study. No other module calls nvidia-smi or interprets CUDA_VISIBLE_DEVICES.

GPUs are numbered as nvidia-smi numbers them, which is the order of the PCI bus. CUDA's own default puts the fastest
first, an order that only CUDA knows; so whatever measures is shown its GPU by UUID.
"""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilewise import UserError

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
#: Fields of nvidia-smi for all drivers of the study, and those that only newer drivers have.
_ASKED, _LATER = "index,uuid,name,driver_version,mig.mode.current", ",compute_cap"


@dataclass(frozen=True)
class Gpu:
    """A GPU as nvidia-smi describes it; `divided` by MIG, it can only be used in parts. Old drivers do not name its
    compute capability."""

    index: int
    uuid: str
    name: str
    driver: str
    divided: bool
    capability: str = ""

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.name}{', divided by MIG' * self.divided})"

    @property
    def model(self) -> str:
        """The name of a platform that measures it, such as nvidia-h200."""
        return model(self.name)


def model(name: str) -> str:
    """The name of a platform that measures GPUs of this name, such as nvidia-h200."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


class Machine(NamedTuple):
    """A machine as a platform: its name, its backend (gpu or emulator), how many GPUs measure, a line about those that
    do not, which is empty if there are none, and the compute capability of those that do."""

    name: str
    backend: str
    gpus: int
    remark: str
    capability: str = ""


def installed() -> list[Gpu]:
    """All GPUs of the machine; none if nvidia-smi is missing or finds no driver."""
    found = []
    for line in _answer(_ASKED + _LATER) or _answer(_ASKED):
        index, uuid, name, driver, mig, *later = (cell.strip() for cell in line.split(","))
        found.append(Gpu(int(index), uuid, name, driver, mig == "Enabled", *later))
    return found


def _answer(fields: str) -> list[str]:
    try:
        query = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, encoding="utf-8")
    except OSError:
        return []
    return answer.stdout.splitlines() if answer.returncode == 0 else []


def visible(here: Sequence[Gpu] | None = None) -> list[Gpu]:
    """The GPUs that CUDA_VISIBLE_DEVICES shows, in its order; `here` are those of the machine, if they are known.

    As in CUDA, an entry that is no GPU hides all after it: "", -1 and NoDevFiles hide every GPU. Raises UserError for a
    MIG instance, for the beginning of several UUIDs, and if all that is shown is divided by MIG.
    """
    here = installed() if here is None else here
    asked = os.environ.get(VISIBLE)
    shown = list(here) if asked is None else []
    for word in (asked or "").split(","):
        gpu = _named(word.strip(), here)
        if gpu is None:
            break
        if gpu not in shown:
            shown.append(gpu)
    if shown and all(gpu.divided for gpu in shown):
        raise UserError(
            f"{_listed(shown)}: MIG divides every visible GPU, and the study measures whole ones; turn MIG off "
            f"(`nvidia-smi -mig 0` as root), or hide all GPUs to use the emulator (`{VISIBLE}=`)"
        )
    return shown


def _named(word: str, here: Sequence[Gpu]) -> Gpu | None:
    """The GPU that an entry of CUDA_VISIBLE_DEVICES names, by its number or the beginning of its UUID."""
    if word.startswith("MIG-"):
        raise UserError(
            f"{VISIBLE}: {word} is a MIG instance, and the study measures whole GPUs; ask for a whole GPU, turn MIG "
            f"off (`nvidia-smi -mig 0` as root), or hide all GPUs to use the emulator (`{VISIBLE}=`)"
        )
    found = [gpu for gpu in here if word == str(gpu.index)]
    found += [gpu for gpu in here if word.startswith("GPU-") and gpu.uuid.startswith(word)]
    if len(found) > 1:
        uuids = " and of ".join(gpu.uuid for gpu in found)
        raise UserError(f"{VISIBLE}: {word} is the beginning of {uuids}; give more digits")
    return found[0] if found else None


def of_model(name: str, seen: Sequence[Gpu] | None = None) -> list[Gpu]:
    """The visible GPUs of a model, by the name that nvidia-smi gives it, without those that MIG divides."""
    return [gpu for gpu in (visible() if seen is None else seen) if gpu.name == name and not gpu.divided]


def of_platform(platform: str) -> list[Gpu]:
    """The visible GPUs that a platform measures: those of the model that it is named after, or else of the first one.

    Raises UserError if no GPU is visible.
    """
    seen = visible()
    whole = [gpu for gpu in seen if not gpu.divided]
    if not whole:
        asked = os.environ.get(VISIBLE)
        cause = "nvidia-smi finds none" if asked is None else f"{VISIBLE} is '{asked}'"
        raise UserError(
            f"the platform's backend is gpu, but no GPU is visible here ({cause}); is there a GPU, and its driver "
            f"(525 or newer)? To choose among several, set {VISIBLE} to numbers or UUIDs of `nvidia-smi -L`"
        )
    first = next((gpu for gpu in whole if gpu.model == platform), whole[0])
    return of_model(first.name, seen)


def this_machine() -> Machine:
    """This machine as a platform, named after its first visible GPU; without one it is `emulator`."""
    here = installed()
    seen = visible(here)
    first = next((gpu for gpu in seen if not gpu.divided), None)
    if first is None:
        asked = os.environ.get(VISIBLE)
        hidden = f"{VISIBLE} is '{asked}' and hides {_listed(here)}: kernels run on the CPU emulator" if here else ""
        return Machine("emulator", "emulator", 0, hidden)
    measured = of_model(first.name, seen)
    remark = _left_out(first, [gpu for gpu in seen if gpu not in measured])
    return Machine(first.model, "gpu", len(measured), remark, first.capability)


@contextlib.contextmanager
def show_only(uuid: str) -> Iterator[None]:
    """Show this process and its children one GPU alone, for the block."""
    before = {name: os.environ.get(name) for name in (VISIBLE, ORDER)}
    os.environ |= {VISIBLE: uuid, ORDER: "PCI_BUS_ID"}
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _left_out(first: Gpu, others: Sequence[Gpu]) -> str:
    """A line about the visible GPUs that a platform of the model of `first` does not measure; empty without any."""
    if not others:
        return ""
    models = dict.fromkeys(gpu.name for gpu in others if not gpu.divided)
    ways = [f"{VISIBLE}={','.join(str(gpu.index) for gpu in of_model(name, others))}" for name in models]
    return (
        f"this run measures {first.name}; a platform has GPUs of one model, so {_listed(others)} "
        f"{'is' if len(others) == 1 else 'are'} left out"
        + (f"; to measure {'that' if len(others) == 1 else 'those'}, set {' or '.join(ways)}" if ways else "")
    )


def _listed(gpus: Sequence[Gpu]) -> str:
    return ", ".join(map(str, gpus))
