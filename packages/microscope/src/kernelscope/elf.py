"""Read the symbols of object files and shared libraries."""

import functools
import re
import struct
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from kernelscope.cpp import tool

#: An entry of the symbol table (Elf64_Sym): the name's place, type, section, value and size.
_ENTRY = struct.Struct("<IBxHQQ")
#: Types of symbols: STT_OBJECT and STT_TLS.
_VARIABLE, _THREAD_LOCAL = 1, 6
#: Indices of no section: SHN_LORESERVE and those above.
_FIRST_RESERVED = 0xFF00


@dataclass(frozen=True)
class Symbol:
    """A variable: its mangled name, its offset and its size in bytes, whether it is thread-local, and the section that
    defines it with its alignment in bytes; "" and 0 if it is defined elsewhere."""

    name: str
    offset: int
    size: int
    thread_local: bool
    section: str
    alignment: int


def symbols(path: Path | str) -> list[Symbol]:
    """The variables in the symbol table of a file."""
    found = []
    with open(path, "rb") as file:
        elf = ELFFile(file)
        section = functools.cache(elf.get_section)
        for name, kind, index, offset, size in _table(elf):
            if kind in (_VARIABLE, _THREAD_LOCAL):
                where = ("", 0)
                if 0 < index < _FIRST_RESERVED:
                    where = section(index).name, section(index)["sh_addralign"]
                found.append(Symbol(name, offset, size, kind == _THREAD_LOCAL, *where))
    return found


def runs_first(path: Path | str) -> bool:
    """Whether an object file has code that gives a variable its value before anything else runs."""
    with open(path, "rb") as file:
        # What a sanitizer adds is named by numbers.
        own = re.compile(r"_GLOBAL__(sub_)?I_(?!\d+_\d+$)")
        return any(own.match(name) for name, *_ in _table(ELFFile(file)))


def _table(elf: ELFFile) -> Iterator[tuple[str, int, int, int, int]]:
    """The name, type, section's index, value and size of each symbol; elftools takes eight times as long."""
    table = elf.get_section_by_name(".symtab")
    assert isinstance(table, SymbolTableSection)  # g++ always writes one
    names = table.stringtable.data()
    for at, info, index, value, size in _ENTRY.iter_unpack(table.data()):
        yield names[at : names.index(0, at)].decode(), info & 15, index, value, size


def demangled(names: Iterable[str]) -> dict[str, str]:
    """The C++ names of symbols: `_ZZ5tiledIfLi16EEvPKT_E1s` is `void tiled<float, 16>(float const*)::s`."""
    names = list(names)
    command = [tool("c++filt"), "--no-verbose"]
    answer = subprocess.run(command, input="\n".join(names), capture_output=True, encoding="utf-8", check=True).stdout
    return dict(zip(names, answer.splitlines(), strict=True))
