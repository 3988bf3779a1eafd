"""Variables of a compiled kernel: __device__ variables, and __shared__ arrays with their offsets in shared memory."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from kernelscope.cpp import display_path
from kernelscope.declarations import Variable
from kernelscope.elf import Symbol, demangled
from kernelscope.errors import CompileError

#: The system keeps the first bytes of the window through which a block of Hopper sees its shared memory. The arrays are
#: aligned behind them, relative to their end: so no array is aligned to more than these bytes, whatever it asks for.
RESERVED_SHARED_BYTES = 1024
#: Between two guarded arrays: a multiple of every alignment. Of few arrays all stay within the 256 KiB that a
#: descriptor of wgmma reaches.
GUARD_BYTES = 4096
#: Where dynamic shared memory begins, unless it asks for more.
DYNAMIC_ALIGNMENT = 16


@dataclass(frozen=True)
class SharedArray:
    """A __shared__ array: the instance it belongs to (None: to no kernel alone), its name, where g++ has it in the
    library's TLS segment, its size and the alignment that it asks for, in bytes. The dynamic array has size 0, for the
    launch decides."""

    owner: str | None
    name: str
    offset: int
    size: int
    alignment: int


@dataclass(frozen=True)
class Variables:
    """The variables of a kernel that lie in a GPU's memory, by symbol: of each __shared__ one its name in C++ and the
    alignment that it asks for, in bytes; of each __device__ or __constant__ one its name in C++. `constant` are the
    names that were declared __constant__, `dynamic` the symbols of the shared ones that are `extern`."""

    shared: Mapping[str, tuple[str, int]]
    device: Mapping[str, str]
    constant: Sequence[str]
    dynamic: Sequence[str] = ()

    @classmethod
    def from_symbols(cls, declared: Sequence[Variable], symbols: Sequence[Symbol]) -> "Variables":
        """Those of an object file, by its symbols and by what its source declares. Raises CompileError for a __shared__
        variable with an initial value."""
        shared = {symbol.name: symbol for symbol in symbols if symbol.thread_local}
        _refuse_initial_values(declared, [symbol for symbol in symbols if symbol.section.startswith(".tdata")])
        device = [each.name for each in symbols if re.match(r"\.(bss|data(?!\.rel\.ro))", each.section)]
        dynamic = sorted(symbol.name for symbol in shared.values() if not symbol.section)
        plain = demangled([*shared, *device])
        asked = {
            name: (plain[name], symbol.alignment if symbol.section else _alignment_of_extern(plain[name], declared))
            for name, symbol in shared.items()
        }
        constant = sorted({each.name for each in declared if each.space == "__constant__"})
        return cls(asked, {name: plain[name] for name in device}, constant, dynamic)

    def assembler(self) -> str:
        """Assembler text with what an object file lacks of shared memory: the `extern` arrays, and what all are.

        No array is the first of the TLS segment: g++ 13 and newer come to what they keep there themselves, such as
        whether an array was constructed, by the address of the segment's begin.
        """
        label = ".globl {0}\n.hidden {0}\n.type {0}, @tls_object\n{0}: .zero 1\n"
        words = json.dumps(json.dumps([self.shared, self.device, self.constant]))
        return (
            f'.section .tdata,"awT",@progbits\n{label.format("emulator_first")}'
            f'.section .tbss,"awT",@nobits\n{"".join(map(label.format, self.dynamic))}'
            '.section .rodata.emulator_shared,"a"\n.globl emulator_shared\n.protected emulator_shared\n'
            f'emulator_shared: .asciz {words}\n.section .note.GNU-stack,"",@progbits\n'
        )

    def arrays(self, symbols: Iterable[Symbol]) -> list[SharedArray]:
        """All SharedArrays of a library, in the order of their declarations."""
        found = []
        for symbol in symbols:
            plain, alignment = self.shared.get(symbol.name, ("", 0))
            if plain and not plain.startswith("guard variable for "):
                owner = re.match(r"(?:void )?((?:\w+::)*\w+(?:<.*>)?)\(.*\)::", plain)
                name = plain.rsplit("::", 1)[-1]
                found.append(SharedArray(owner and owner[1], name, symbol.offset, symbol.size, alignment))
        return sorted(found, key=lambda array: -array.offset)  # g++ writes the last declaration first

    def in_global_memory(self, symbols: Iterable[Symbol]) -> list[Symbol]:
        """The __device__ variables of a library, each under its name in C++."""
        own = (symbol for symbol in symbols if symbol.name in self.device and symbol.size)
        return [replace(symbol, name=self.device[symbol.name]) for symbol in own]


def _refuse_initial_values(declared: Iterable[Variable], with_value: Sequence[Symbol]) -> None:
    for each in declared:
        # A struct may have a value that its declaration does not show.
        has_value = each.has_value or any(f"{len(each.name)}{each.name}" in symbol.name for symbol in with_value)
        if each.space == "__shared__" and has_value:
            what = f"the __shared__ variable '{each.name}' has an initial value, which CUDA refuses"
            raise CompileError(f"{display_path(each.file)}:{each.line}: {what}")


def _alignment_of_extern(name: str, declared: Iterable[Variable]) -> int:
    """What an `extern __shared__` array asks for; no symbol tells it."""
    own = [each.alignment for each in declared if each.space == "__shared__" and each.name == name.rsplit("::", 1)[-1]]
    return max([DYNAMIC_ALIGNMENT, *own])


def arrays_of(arrays: Iterable[SharedArray], instance: str, instances: Iterable[str]) -> list[SharedArray]:
    """Those of the SharedArrays that an instance may use: all but the ones of the other `instances`."""
    others = {_plain(name) for name in instances} - {_plain(instance)}
    return [array for array in arrays if array.owner is None or _plain(array.owner) not in others]


@cache
def _plain(instance: str) -> str:
    """An instance's name as it is written and as c++filt prints it, made equal: `f<32u, true>` is `f<32,1>`."""
    plain = re.sub(r"\([\w ]+\)(?=-?\d)|(?<=\d)[ul]+\b|<>$|\s", "", instance)
    return re.sub(r"\btrue\b", "1", re.sub(r"\bfalse\b", "0", plain))


def places_of(arrays: Sequence[SharedArray], guarded: bool = False) -> list[int]:
    """Where in the window of a block each of its SharedArrays begins, in bytes, as NVIDIA's linker lays them out.

    Static arrays come in the order of their declarations, each at a multiple of its alignment from the end of what is
    reserved; then dynamic memory, which all `extern` arrays share. If `guarded`, there are GUARD_BYTES between two of
    them, so that an index that leaves one does not come to the next.
    """
    end, places = 0, {}
    for array in arrays:
        if array.size:
            places[array] = -(-end // array.alignment) * array.alignment
            end = places[array] + array.size
    dynamic = [array for array in arrays if not array.size]
    most = max((array.alignment for array in dynamic), default=1)
    places |= dict.fromkeys(dynamic, -(-end // most) * most)
    rank = {place: number for number, place in enumerate(sorted({*places.values()}))}
    guard = GUARD_BYTES * guarded
    return [RESERVED_SHARED_BYTES + places[array] + guard * rank[places[array]] for array in arrays]


def static_shared_bytes(arrays: Iterable[SharedArray], instances: Sequence[str]) -> dict[str, int]:
    """Bytes of static shared memory of a block, for each instance."""
    arrays, used = list(arrays), {}
    for name in instances:
        own = [array for array in arrays_of(arrays, name, instances) if array.size]
        ends = (place + array.size - RESERVED_SHARED_BYTES for place, array in zip(places_of(own), own))
        used[name] = max(ends, default=0)
    return used
