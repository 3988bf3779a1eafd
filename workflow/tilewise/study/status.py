"""Enumerations for row status and accuracy verdict.

It imports nothing heavy: the screen of a run shows statuses from the first second.
"""

from enum import StrEnum, auto


class Status(StrEnum):
    """The outcome of a point."""

    OK = auto()
    INCORRECT = auto()
    INVALID_LAUNCH = auto()
    OUT_OF_MEMORY = auto()
    COMPILE_ERROR = auto()
    TIMEOUT = auto()
    UNSUPPORTED = auto()
    NOT_TIMED = auto()
    ERROR = auto()


#: A point that cannot be run, because there is no build of it.
NOT_BUILT = (Status.COMPILE_ERROR, Status.UNSUPPORTED)
#: Outcomes of a kernel after which its duel begins anew without it.
ENDS_A_DUEL = (Status.ERROR, Status.OUT_OF_MEMORY)
#: Outcomes that another run would repeat; what ended by accident is tried again.
LASTING = (Status.OK, Status.INCORRECT, Status.INVALID_LAUNCH, Status.COMPILE_ERROR)
#: Points that went as they should: measured, refused on purpose, or impossible on the device, which the tables say. A
#: sweep's launch that the device refuses is a finding, too.
RIGHT = (Status.OK, Status.NOT_TIMED, Status.UNSUPPORTED, Status.INVALID_LAUNCH)


class Accuracy(StrEnum):
    """The verdict of the accuracy gate, the best first."""

    PASSES = auto()
    REFUSES = auto()
    FAILS = auto()
