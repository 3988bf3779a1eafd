"""Local variables without a value, which g++ marks."""

import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

_MARKS = re.compile(r'\[([^\[\]\n]+):(\d+):\d+\] (\S+) = \.DEFERRED_INIT \([^"\n]*&"([^"\n]*)"')
#: What g++ makes of emulator::unset(): a further name of the variable.
_ASSUMED = re.compile(r'__asm__\("" : "=\w" (?:\[[^\]]*\] )?(\S+) : "0" (?:\[[^\]]*\] )?(\S+?)\);')


def marked_variables(dump: str) -> list[list[Any]]:
    """Name, file, line, whether a register holds it, and the function, of each variable that g++ marks, from its dump
    of a translation unit; none of a register that nothing reads."""
    found: dict[tuple[str, str, int, bool, str], None] = {}
    for part in re.split(r"^;; Function ", dump, flags=re.MULTILINE)[1:]:
        function = part.partition("\n")[0]
        further = {held: name for name, held in _ASSUMED.findall(part)}
        for file, line, target, name in _MARKS.findall(part):
            in_register = bool(re.fullmatch(r"\w*_\d+(?:\(D\))?", target))
            target = further.get(target, target)
            # The name comes first, for which `re` looks ten times as fast as for a place without a word before it.
            uses = re.finditer(rf"{re.escape(target)}(?<!\w{re.escape(target)})(?!\w)", part)
            if not in_register or len(list(itertools.islice(uses, 2))) > 1:
                found.setdefault((name.removesuffix("[0]"), file, int(line), in_register, function))
    return [list(variable) for variable in found]


def assembler(variables: Sequence[Sequence[Any]]) -> str:
    """Assembler text with the variables, as `Tracer.unset` reads them."""
    return (
        '.section .rodata.emulator_unset,"a"\n.globl emulator_unset\n.protected emulator_unset\n'
        f"emulator_unset: .asciz {json.dumps(json.dumps(list(variables)))}\n"
    )
