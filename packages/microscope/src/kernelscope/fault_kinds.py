"""The kinds of faults and of remarks."""

from enum import StrEnum


class FaultKind(StrEnum):
    """A kind of fault: its column in traffic.csv (empty for a remark without a column) and its message.

    cuda/tracer/faults.def lists those that the tracer itself finds.
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
