"""Enumerations for row status and accuracy verdict.

It imports nothing heavy: the screen of a run shows statuses from the first second.
"""

from enum import StrEnum, auto


class Status(StrEnum):
    """How a point ended."""

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


class FaultKind(StrEnum):
    """What a kernel does that it must not: its column of traffic.csv, "" for a remark that none counts, and its words.

    kernels/emulator/tracer/faults.def lists those that the tracer itself finds.
    """

    column: str
    words: str

    RACE = "race", "races", "race"
    OUT_OF_BOUNDS = "out_of_bounds", "out_of_bounds", "access out of bounds"
    UNINITIALISED = "uninitialised", "uninitialised", "read of what was never written"
    DIVERGENCE = "divergence", "divergence", "barrier that not all threads reach"
    MISALIGNED = "misaligned", "misaligned", "misaligned address"
    ORDER = "order", "order_dependent", "result depends on the order of threads"
    INCORRECT = "incorrect", "incorrect", "wrong product"
    WRONG = "wrong", "incorrect", "wrong result"
    STOPPED = "stopped", "stopped", "run that does not come to its end"
    ASYNCHRONY = "asynchrony", "asynchrony", "asynchronous work not waited for"
    INVALID = "invalid", "invalid", "invalid use of an instruction"
    DEADLOCK = "deadlock", "deadlocks", "deadlock"
    TRAP = "trap", "traps", "trap"
    UNUSED = "unused", "unused_reads", "read before it was written"
    ENDED = "ended", "", "lanes that have ended"
    UNORDERED = "unordered", "", "accesses without an order"
    UNFENCED_REUSE = "unfenced_reuse", "", "memory reused without a proxy fence"
    SAME_VALUE = "same_value", "", "one constant that several threads write"

    def __new__(cls, name: str, column: str, words: str) -> "FaultKind":
        kind = str.__new__(cls, name)
        kind._value_, kind.column, kind.words = name, column, words
        return kind

    @property
    def is_remark(self) -> bool:
        """Whether it is no fault after all."""
        return self == FaultKind.UNUSED or not self.column
