"""The kinds of faults and of remarks, from cuda/tracer/faults.def."""

import re
from enum import EnumMeta, StrEnum
from typing import TYPE_CHECKING

from kernelscope.sources import EMULATOR

_LISTED = re.compile(r'^(?:FAULT|COMPARED)\((\w+), "(\w*)", "(.*)"\)$', re.MULTILINE)

if TYPE_CHECKING:

    class _Meta(EnumMeta):
        def __getattr__(cls, name: str) -> "FaultKind": ...

else:
    _Meta = EnumMeta


class FaultKind(StrEnum, metaclass=_Meta):
    """A kind of fault: its column of traffic.csv (empty for a remark) and its words."""

    _ignore_ = "_name _column _words"

    column: str
    words: str

    for _name, _column, _words in _LISTED.findall((EMULATOR / "tracer/faults.def").read_text(encoding="utf-8")):
        vars()[_name.upper()] = _name, _column, _words

    def __new__(cls, name: str, column: str, words: str) -> "FaultKind":
        kind = str.__new__(cls, name)
        kind._value_, kind.column, kind.words = name, column, words
        return kind

    @property
    def is_remark(self) -> bool:
        """Whether it is no fault after all."""
        return self == FaultKind.UNUSED or not self.column
