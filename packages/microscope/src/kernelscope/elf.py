"""Read the symbols of object files and shared libraries."""

import functools
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_ST_INFO_TYPE
from elftools.elf.sections import Symbol as Entry
from elftools.elf.sections import SymbolTableSection

from kernelscope.cpp import tool


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
    """The variables in the symbol table of a file; the same file is read once."""
    now = Path(path).stat()
    return [*_symbols(path, now.st_ino, now.st_mtime_ns, now.st_size)]


@functools.lru_cache(maxsize=16)  # a library of many kernels is loaded for each of them
def _symbols(path: Path | str, *state: int) -> list[Symbol]:
    """Those of a file in this state."""
    found = []
    with open(path, "rb") as file:
        elf = ELFFile(file)
        sections = [(section.name, section["sh_addralign"]) for section in elf.iter_sections()]
        for symbol in _of_kinds(elf, "STT_TLS", "STT_OBJECT"):
            kind, index = symbol["st_info"]["type"], symbol["st_shndx"]
            where = sections[index] if isinstance(index, int) else ("", 0)
            found.append(Symbol(symbol.name, symbol["st_value"], symbol["st_size"], kind == "STT_TLS", *where))
    return found


def runs_first(path: Path | str) -> bool:
    """Whether an object file has code that gives a variable its value before anything else runs."""
    with open(path, "rb") as file:
        # What a sanitizer adds is named by numbers.
        own = re.compile(r"_GLOBAL__(sub_)?I_(?!\d+_\d+$)")
        return any(own.match(symbol.name) for symbol in _of_kinds(ELFFile(file), "STT_FUNC"))


def _of_kinds(elf: ELFFile, *kinds: str) -> Iterator[Entry]:
    """The symbols of some kinds. They are few, and pyelftools takes 20 µs for each, so others are not parsed."""
    table = elf.get_section_by_name(".symtab")
    assert isinstance(table, SymbolTableSection)  # g++ always writes one
    entries = np.frombuffer(table.data(), dtype=np.uint8).reshape(-1, table["sh_entsize"])
    info = entries[:, 4]  # after the four bytes of the name, in files of 64 bits
    for index in np.flatnonzero(np.isin(info & 15, [ENUM_ST_INFO_TYPE[kind] for kind in kinds])):
        yield table.get_symbol(int(index))


def demangled(names: Iterable[str]) -> dict[str, str]:
    """The C++ names of symbols: `_ZZ5tiledIfLi16EEvPKT_E1s` is `void tiled<float, 16>(float const*)::s`."""
    names = list(names)
    command = [tool("c++filt"), "--no-verbose"]
    answer = subprocess.run(command, input="\n".join(names), capture_output=True, encoding="utf-8", check=True).stdout
    return dict(zip(names, answer.splitlines(), strict=True))
