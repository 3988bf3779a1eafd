"""GPUs as compilers see them: what each compute capability has, and which toolkit compiles for it with which driver.

Nothing here needs a package that Python lacks: make reads it before there is an environment (nvidia/toolkits.py).
"""

from collections.abc import Collection
from typing import NamedTuple


class Toolkit(NamedTuple):
    """A release of CUDA: the file of requirements/ with its packages, the package with its NVRTC, the oldest driver
    that takes its code, and the compute capabilities that its NVRTC compiles for."""

    major: int
    requirements: str
    nvrtc: str
    driver: int
    capabilities: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"CUDA {self.major}"


#: Oldest first. Those of capability 5 and 6, which NVRTC 12.9 takes too, are older than the study.
TOOLKITS = (
    Toolkit(
        *(12, "gpu12", "nvidia-cuda-nvrtc-cu12", 525),
        ("7.0", "7.2", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.1", "10.3", "12.0", "12.1"),
    ),
    Toolkit(
        *(13, "gpu", "nvidia-cuda-nvrtc", 580),
        ("7.5", "8.0", "8.6", "8.7", "8.8", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1"),
    ),
)


class Need(NamedTuple):
    """Something that a kernel may need of a GPU: its name in messages, the compute capability that had it first, and
    that which has it no more; `specific` code runs on one architecture alone (sm_90a); `instead`: what has taken its
    place, by the first number of the capability."""

    name: str
    since: str
    until: str = ""
    specific: bool = False
    instead: tuple[tuple[int, str], ...] = ()

    def met_by(self, capability: str) -> bool:
        """Whether a GPU of this compute capability has it. A capability that is not known has what older ones have."""
        return _order(self.since) <= _order(capability) and not (
            self.until and _order(self.until) <= _order(capability)
        )

    @property
    def where(self) -> str:
        """The compute capabilities that have it."""
        return f"{self.since} alone" if self.until else f"{self.since} or later"


#: What `needs` of the registry may name. Sources: PTX ISA 9.0, "Target ISA Notes" of each instruction; the CUDA C++
#: Programming Guide's table of features by compute capability.
NEEDS = {
    "bfloat16": Need("arithmetic in bfloat16", "8.0"),
    "cp.async": Need("cp.async", "8.0"),
    "mma.sync": Need("mma.sync of 16 x 8 x 16", "8.0"),
    "mma.sync.f64": Need("mma.sync of 16 x 8 doubles", "9.0"),
    "tma": Need("TMA", "9.0"),
    "clusters": Need("clusters of blocks", "9.0"),
    "setmaxnreg": Need("setmaxnreg", "9.0", specific=True),
    "wgmma": Need("wgmma", "9.0", "10.0", True, ((10, "tcgen05"), (11, "tcgen05"), (12, "mma.sync"))),
}


#: The most bytes of shared memory of a block, by compute capability, that a launch may ask for.
SHARED_BYTES = {"7.0": 98304, "7.2": 98304, "7.5": 65536, "8.0": 166912, "8.7": 166912} | {
    **dict.fromkeys(("8.6", "8.8", "8.9", "12.0", "12.1"), 101376),
    **dict.fromkeys(("9.0", "10.0", "10.1", "10.3", "11.0"), 232448),
}
#: Compute capabilities whose clusters have up to 16 blocks, if the launch allows it; all others have up to 8. Sources:
#: NVIDIA's tuning guides for Hopper and for Blackwell, which names the B200.
LARGE_CLUSTERS = ("9.0", "10.0", "10.3")
#: The entry of kernels/tuned.yaml whose choices take at most 101,376 B of shared memory: for GPUs that are not tuned
#: and have less than an H200.
SMALL_CHOICES = "shared-99-kib"


def has_little_shared_memory(capability: str) -> bool:
    """Whether a block of such a GPU has less shared memory than an H200's."""
    return SHARED_BYTES.get(nearest_known(capability), 0) < SHARED_BYTES["9.0"]


def known() -> list[str]:
    """The compute capabilities for which some toolkit compiles, oldest first."""
    return sorted({each for toolkit in TOOLKITS for each in toolkit.capabilities}, key=_order)


def lacks(needs: Collection[str], capability: str) -> str:
    """What a GPU of this compute capability lacks of the `needs`, as a sentence; empty if it has all."""
    missing = [NEEDS[name] for name in needs if not NEEDS[name].met_by(capability)]
    major, specific = int(capability.split(".")[0]), [name for name in needs if NEEDS[name].specific]
    if not missing and specific and target((), capability).startswith("compute_"):
        return f"no toolkit of the study has specific code, as {specific[0]} needs, for compute capability {capability}"
    if not missing:
        return ""
    found = [f"{need.name} ({need.where})" for need in missing]
    words = " and ".join([*[", ".join(found[:-1])] * (len(found) > 1), found[-1]])
    places = [
        f"{place} takes the place of {need.name}" for need in missing for of, place in need.instead if of == major
    ]
    return "; ".join([f"this GPU, of compute capability {capability}, lacks {words}", *places])


def target(needs: Collection[str], capability: str) -> str:
    """What to compile for, such as "sm_90": the GPU's architecture, with its specific instructions ("sm_90a") for a
    kernel that needs them. The capability may name them itself ("9.0a").

    For a capability that no toolkit knows it is the nearest older one: of its family ("sm_120"), whose machine code
    runs on it, or else of an older family as PTX ("compute_121"), which the driver compiles.
    """
    specific = any(NEEDS[name].specific for name in needs)
    nearest = nearest_known(capability)
    if nearest == capability or capability[-1] in "af":
        return f"sm_{capability.replace('.', '')}{'a' * (specific and capability[-1] not in 'af')}"
    if nearest.split(".")[0] == capability.split(".")[0]:
        return f"sm_{nearest.replace('.', '')}{'f' * specific}"
    return f"compute_{nearest.replace('.', '')}"


def nearest_known(capability: str) -> str:
    """The capability itself if some toolkit knows it, else the newest older one; of those older than all, itself."""
    if capability in (all_known := known()) or capability[-1] in "af":
        return capability
    return next((each for each in reversed(all_known) if _order(each) < _order(capability)), capability)


def compiles(toolkit: Toolkit, capability: str) -> bool:
    """Whether a toolkit compiles for a GPU of this capability, if only for the nearest older one that is known."""
    return nearest_known(capability.rstrip("af")) in toolkit.capabilities


def _order(capability: str) -> tuple[int, ...]:
    return tuple(map(int, capability.rstrip("af").split(".")))
