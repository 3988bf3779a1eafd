"""Run CUDA kernels on the CPU: the same .cu files, compiled by g++ against kernels/emulator/cuda_emulator.h."""

import _ctypes
import contextlib
import ctypes
import hashlib
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tilewise import ROOT, UserError
from tilewise.build import cpp, functions, ptx
from tilewise.build.cpp import (
    ANYWHERE,
    FLAGS,
    beside,
    compile_object,
    compiler,
    macros,
    made_once,
    precompiled,
    preprocess,
    run_compiler,
    shown,
    tool,
    version,
)
from tilewise.files import digest, replacing
from tilewise.study.device import DEFAULT_SHARED_BYTES, EMULATED_LIMITS
from tilewise.study.expressions import evaluate
from tilewise.study.kernel import Kernel
from tilewise.study.launch import Argument, Array, Launch, Number, TensorMap, Three, Workspace
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS
from tilewise.study.sources import EMULATOR, HOST_HEADERS, INCLUDE, code_of

FOLDER = EMULATOR
#: A block has at most this many threads along z, on every device so far.
MAX_BLOCK_Z = 64


class LaunchError(Exception):
    """A launch that a device would refuse; the message begins with the CUDA error's own name."""


# ---- Compiling -------------------------------------------------------------------------------------------------------

#: Sections, so that the linker drops kernels that are never launched and their shared memory with them.
COMPILE = (
    *(flag for flag in FLAGS if flag != "-shared"),
    "-Og",  # half the time of -O2 to compile; what runs here is so small that it is no slower
    "-fno-strict-aliasing",  # a kernel reads floats as int4
    "-fno-extern-tls-init",
    "-fstack-clash-protection",  # a thread that needs too much local memory meets the end of its stack
    "-ffunction-sections",
    "-fdata-sections",
    "-ftrack-macro-expansion=0",  # a message names the line that uses a macro
    "-fno-exceptions",
    "-Werror=vla",  # CUDA has no arrays of variable length
    f"-ffile-prefix-map={ROOT}={ANYWHERE}",
)
#: What a static libstdc++ brings is hidden: its unique symbols would keep a library loaded that nobody uses any more.
LINK = ("-Wl,--gc-sections,--undefined=emulator_shared,--undefined=emulator_first", "-Wl,--exclude-libs,ALL")


def build(
    kernel: Kernel,
    instances: Sequence[str],
    output: Path | str,
    flags: Iterable[Any] = (),
    runtime: str = "cuda_emulator.cpp",
) -> Path:
    """Compile a kernel with all its instances into one shared library at `output`; returns the path.

    `instances` are C++ names such as `tiled<float, 32>`, of any functions of the file. `flags` are for the compiler,
    beside COMPILE; `runtime` is the scheduler's file in FOLDER. Raises UserError if the kernel does not compile, or if
    an instance's static shared memory passes CUDA's limit, which is a compile error there.

    The library of a file in the repository is kept like the objects of `compile_object`, for all clones.
    """
    output = Path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    if not all(path.is_relative_to(ROOT) for path in kernel.files):
        return _build(kernel, instances, output, flags, runtime)
    name = f"{kernel.name}-{_digest(kernel, instances, flags, runtime)[:24]}.so"
    library = made_once(name, lambda made: _build(kernel, instances, made, flags, runtime))
    with replacing(output) as temporary:
        shutil.copyfile(library, temporary)
    return output


def _digest(kernel: Kernel, instances: Sequence[str], flags: Iterable[Any], runtime: str) -> str:
    """The hash of all that a library is made of, which is the same in every clone."""
    emulators = (path for folder in (FOLDER, HOST_HEADERS) for path in sorted(folder.rglob("*")) if path.is_file())
    made_of = (cpp, functions, ptx, sys.modules[__name__])
    files = [*kernel.files, *emulators, *(Path(module.__file__ or "") for module in made_of)]
    texts = [[str(path.relative_to(ROOT)), hashlib.sha256(path.read_bytes()).hexdigest()] for path in files]
    made_by = compiler(), version()
    return digest([kernel.name, shown(kernel.path), list(instances), list(flags), runtime, texts, made_by])


def _build(kernel: Kernel, instances: Sequence[str], output: Path, flags: Iterable[Any], runtime: str) -> Path:
    own = [*COMPILE, *flags, *beside(kernel.path), *_as_nvrtc(tuple(flags))]
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as folder:
        source, compiled, shared = (Path(folder, name) for name in ("library.cpp", "library.o", "shared.s"))
        text, objects = _wrapper(kernel, instances), [own_object(runtime)]
        try:
            if any(ptx.ASM.search(code_of(path)) for path in kernel.files):
                text = ptx.rewritten(preprocess(text, [*own, "-fpch-preprocess"]), own=["<stdin>"])
                own.append("-fpreprocessed")
                objects.append(own_object("ptx.cpp"))
            source.write_text(text)
            run_compiler([*own, "-c", source, "-o", compiled])
        except UserError as error:
            raise UserError(_in_kernel(str(error), kernel, instances, source)) from None
        alignments, variables = _symbols(kernel, compiled)
        shared.write_text(_shared_memory(alignments, variables))
        library = Path(folder, output.name)
        run_compiler(["-shared", shared, compiled, *objects, *LINK, "-o", library])
        for instance, used in static_shared_bytes(_shared_arrays(_listed(library), alignments), instances).items():
            if used > DEFAULT_SHARED_BYTES:
                raise UserError(
                    f"{kernel.path}: {instance} uses too much shared data: {used} B where CUDA allows "
                    f"{DEFAULT_SHARED_BYTES} B of static shared memory; use smaller tiles, or `extern __shared__` with "
                    "dynamic_shared_bytes in the registry"
                )
        library.replace(output)
    return output


def own_object(source: str) -> Path:
    """The object file of one of the emulator's own sources, compiled once for all kernels; g++ takes some seconds."""
    return compile_object(FOLDER / source, ["-O3"] if source == "ptx.cpp" else [])


#: Names of the host that g++ knows and NVRTC does not. <cstdint> of kernels/include/nvrtc defines the first ones.
HIDDEN = """int8_t uint8_t int16_t uint16_t int32_t uint32_t int64_t uint64_t uintptr_t intptr_t intmax_t uintmax_t
    std rand srand exit abort system getenv atexit qsort bsearch strlen strcmp strncmp strcpy strncpy strcat strchr
    strstr fprintf sprintf snprintf puts putchar fputs scanf fopen fclose fflush stdout stderr stdin realloc calloc
    alloca uchar""".split()
_LACKS = "nvrtc_lacks_"
#: A GPU has a heap for its threads.
_NO_HEAP = """#define EMULATOR_LACKS __attribute__((error("the emulator has no heap for malloc and new; use an array")))
extern "C" void* malloc(std::size_t) noexcept EMULATOR_LACKS;
void* operator new(std::size_t) EMULATOR_LACKS;
void* operator new[](std::size_t) EMULATOR_LACKS;
#undef EMULATOR_LACKS
"""
#: Names that look as those of CUDA's own functions, types and variables do.
_CUDAS_OWN = (
    r"__\w+|(?:tex|surf)(?:[123]D|Cubemap)\w*|cyl_bessel\w*|\w+_sync|atomic\w+|(?:cooperative_groups|cuda|nvcuda)::\w+"
)


def _as_nvrtc(flags: tuple[Any, ...]) -> list[Any]:
    """Flags under which a kernel sees what NVRTC shows it: CUDA's vocabulary, the headers in kernels/include/nvrtc and
    the emulator's own, and no others. The emulator itself needs the standard library: it is compiled before."""
    own = [*COMPILE, *flags, f"-I{FOLDER}"]
    names = [name for name in macros("cuda_emulator.h", own) if not re.match(r"EMULATOR_|NULL\b|[^A-Z]", name)]
    hidden = [f"#undef {name}\n" for name in names] + [f"#define {name} {_LACKS}{name}\n" for name in HIDDEN]
    # g++ does not take `alignas` between other words of a declaration, as after __shared__.
    alignas = "#define alignas(...) __attribute__((aligned(emulator::alignment<__VA_ARGS__>())))\n"
    text = f'#include "cuda_emulator.h"\n{_NO_HEAP}{"".join(hidden)}{alignas}'
    folder = precompiled("as_nvrtc.h", text, own)
    headers = [f"-I{place}" for place in (INCLUDE, FOLDER, HOST_HEADERS, folder)]
    return ["-nostdinc", "-nostdinc++", *headers, "-include", "as_nvrtc.h"]


def _in_kernel(message: str, kernel: Kernel, instances: Sequence[str], source: Path) -> str:
    """A compiler's message about the text around a kernel, as one about the kernel."""
    where, _, what = message.partition(": ")
    if where.startswith(shown(FOLDER / "cuda_emulator.h")) and "No such file" in what:
        return (
            "the compiler does not take the header that it has precompiled itself; delete the folder tilewise in "
            "~/.cache (or $XDG_CACHE_HOME) and run again"
        )
    if (missing := functions.without_header(message)) != message:
        return missing
    if hidden := re.search(rf"{_LACKS}(\w+)", what):
        remedy = "; include <cstdint>" if hidden[1].endswith("_t") else ""
        return f"{where}: '{hidden[1]}' is not defined; NVRTC does not define it either{remedy}"
    if unknown := re.match(rf"'({_CUDAS_OWN})' (?:was not declared|is not a member of|does not name a type)", what):
        return f"{where}: the emulator has no '{unknown[1]}'; if it is a name of CUDA's, only a GPU runs this kernel"
    if lacking := re.search(r"declared with attribute error: (the emulator .*?)(?: \[-W|$)", what):
        return f"{where}: {lacking[1]}"
    if not where.startswith((str(source), "<stdin>")):
        return message
    if "no matching function for call to 'instance(" in what:
        named = ", ".join(instances)
        return f"{shown(kernel.path)}: its functions have no instance {named}; give each its template's arguments"
    hint = "; a bracket or a semicolon may be missing at its end" if what.startswith("expected") else ""
    return f"{shown(kernel.path)}: {what}{hint}"


def _wrapper(kernel: Kernel, instances: Sequence[str]) -> str:
    """C++ text that includes the kernel, unchanged, and makes each instance callable as a thread of a grid."""
    used = set(re.findall(r"\w+", " ".join(instances)))
    headers = sorted({p.header for p in PRECISIONS.values() if p.header and p.cpp in used})
    functions = [f"&{name.removesuffix('<>')}" for name in instances]
    rows = ",\n".join(f"    emulator::instance(emulator::thread<{name}>, {name})" for name in functions)
    visible = 'extern "C" __attribute__((visibility("default"))) const'
    return "\n".join(
        [
            *(f'#include "{header}"' for header in headers),
            f'#include "{kernel.path.name}"',
            f"{visible} emulator::Instance emulator_instances[] = {{",
            f"{rows}}};",
            f"{visible} char emulator_names[] =",
            f"    {json.dumps(chr(10).join(instances))};",
            f"{visible} char emulator_entry[] =",
            f"    {json.dumps(f'{shown(kernel.path)}: {kernel.name}')};",
            f"{visible} char emulator_attributes[] =",
            f"    {json.dumps(json.dumps(_attributes(kernel, instances)))};",
            "",
        ]
    )


def _attributes(kernel: Kernel, instances: Sequence[str]) -> dict[str, dict[str, list[int]]]:
    """What instances say of their launches, as far as it is arithmetic over numbers and their templates: the blocks of
    a `cluster` along x, y, z, and `bounds`, the first of which is the most threads of a block."""
    if not any(re.search(r"__cluster_dims__|__launch_bounds__", code_of(path)) for path in kernel.files):
        return {}
    found: dict[str, dict[str, list[int]]] = {}
    declared = functions.as_written(kernel.files)
    for instance in instances:
        name, _, arguments = instance.partition("<")
        if name not in declared:
            continue
        names = [parameter.name for parameter in declared[name].template]
        values = dict(zip(names, (word.strip() for word in arguments.rstrip(">").split(","))))
        numbers = {key: int(value) for key, value in values.items() if re.fullmatch(r"-?\d+", value)}
        for attribute in ("cluster", "bounds"):
            with contextlib.suppress(UserError, TypeError, ValueError, ArithmeticError):
                said = [expression.replace("/", "//") for expression in getattr(declared[name], attribute)]
                found.setdefault(instance, {})[attribute] = [int(evaluate(expression, numbers)) for expression in said]
    return found


# ---- Shared memory ---------------------------------------------------------------------------------------------------

#: The system keeps the first bytes of the window through which a block of Hopper sees its shared memory. The arrays are
#: aligned behind them, relative to their end: so no array is aligned to more than these bytes, whatever it asks for.
RESERVED_SHARED_BYTES = 1024
#: Where dynamic shared memory begins, unless it asks for more.
DYNAMIC_ALIGNMENT = 16


#: A symbol of a library: its mangled and its plain name, its offset and its size in bytes.
Symbol = tuple[str, str, int, int]


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


def _symbols(kernel: Kernel, compiled: Path) -> tuple[dict[str, tuple[int, bool]], list[str]]:
    """What an object file says of memory: its shared arrays by symbol, each with the alignment in bytes and whether the
    array is `extern`; and the symbols of its __device__ variables."""
    command = [tool("readelf"), "-W", "-S", "-s", str(compiled)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^ *\[ *(\d+)\] (\S+).*?(\d+)$", listing, re.MULTILINE)
    sections = {number: (name, int(alignment)) for number, name, alignment in rows}
    symbols = re.findall(r"^ *\d+: \S+ +\S+ TLS +\S+ +\S+ +(\w+) (\S+)$", listing, re.MULTILINE)
    objects = re.findall(r"^ *\d+: \S+ +\S+ OBJECT +\S+ +\S+ +(\d+) (\S+)$", listing, re.MULTILINE)
    for section, name in symbols:
        if section != "UND" and sections[section][0].startswith(".tdata"):
            _refuse_initial_value(kernel, name)
    variables = [name for section, name in objects if re.match(r"\.(bss|data(?!\.rel\.ro))", sections[section][0])]
    text = "\n".join(code_of(path) for path in kernel.files)
    alignments = {
        name: (_alignment_of_extern(name, text), True) if section == "UND" else (sections[section][1], False)
        for section, name in symbols
    }
    return alignments, variables


def _refuse_initial_value(kernel: Kernel, symbol: str) -> None:
    for path in kernel.files:
        for number, line in enumerate(code_of(path).splitlines(), 1):
            for name in re.findall(r"__shared__[^;]*?(\w+)\s*(?:\[[^;]*?\])?\s*[={]", line):
                if f"{len(name)}{name}" in symbol:
                    place = f"{shown(path)}:{number}"
                    raise UserError(
                        f"{place}: the __shared__ variable '{name}' has an initial value, which CUDA refuses"
                    )
    raise UserError(f"{shown(kernel.path)}: a __shared__ variable has an initial value, which CUDA refuses: {symbol}")


def _shared_memory(alignments: Mapping[str, tuple[int, bool]], variables: Sequence[str]) -> str:
    """Assembler text with what an object file lacks of shared memory: the `extern` arrays, and how all are aligned.

    No array is the first of the TLS segment: g++ 13 and newer come to what they keep there themselves, such as whether
    an array was constructed, by the address of the segment's begin.
    """
    extern = sorted(name for name, (_, is_extern) in alignments.items() if is_extern)
    labels = "".join(f".globl {name}\n.hidden {name}\n.type {name}, @tls_object\n{name}: .zero 1\n" for name in extern)
    words = json.dumps(json.dumps([alignments, variables]))
    return (
        '.section .tdata,"awT",@progbits\n.globl emulator_first\n.hidden emulator_first\n'
        ".type emulator_first, @tls_object\nemulator_first: .zero 1\n"
        f'.section .tbss,"awT",@nobits\n{labels}'
        '.section .rodata.emulator_shared,"a"\n.globl emulator_shared\n.protected emulator_shared\n'
        f'emulator_shared: .asciz {words}\n.section .note.GNU-stack,"",@progbits\n'
    )


def _alignment_of_extern(name: str, text: str) -> int:
    """What an `extern __shared__` array asks for by alignas or __align__; no symbol tells it. A struct, which may ask
    for it inside, is given the most that anything in the text asks for."""
    declared = re.findall(rf"\bextern\b[^;{{}}]*\b{_last_of(name)}\s*\[", text)
    if not declared and re.search(rf"\bextern\b[^;{{}}]*\b{_last_of(name)}\s*;", text):
        declared = [text]
    asked = (int(number) for part in declared for number in re.findall(r"(?:align\w*)\s*\(+\s*(\d+)\s*\)", part))
    return max(DYNAMIC_ALIGNMENT, *asked, 0)


def _last_of(mangled: str) -> str:
    """The name of a variable without the namespaces that it is in: `_ZN4mine6memoryE` is `memory`."""
    name, rest = mangled, mangled.removeprefix("_ZN") if mangled.startswith("_ZN") else ""
    while length := re.match(r"\d+", rest):
        end = length.end() + int(length[0])
        name, rest = rest[length.end() : end], rest[end:]
    return name


def _shared_arrays(
    symbols: Mapping[str, list[Symbol]], alignments: Mapping[str, tuple[int, bool]]
) -> list[SharedArray]:
    """All SharedArrays of a library, in the order of their declarations, by its symbol table and their alignments."""
    found = []
    for mangled, symbol, offset, size in symbols["TLS"]:
        if mangled in alignments and not symbol.startswith("guard variable for "):
            owner = re.match(r"(?:void )?((?:\w+::)*\w+(?:<.*>)?)\(.*\)::", symbol)
            name, alignment = symbol.rsplit("::", 1)[-1], alignments[mangled][0]
            found.append(SharedArray(owner and owner[1], name, offset, size, alignment))
    return sorted(found, key=lambda array: -array.offset)  # g++ writes the last declaration first


@dataclass(frozen=True)
class Variable:
    """A __device__ variable: its name, where it begins in the library, and its size in bytes."""

    name: str
    offset: int
    size: int


def _listed(library: Path | str) -> dict[str, list[Symbol]]:
    """A library's symbols of each kind: those of TLS, and OBJECT, its variables."""
    listings = []
    for options in ("-sW", "-sCW"):
        command = [tool("readelf"), options, str(library)]
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout.partition("'.symtab'")[2]
        # `  19: 0000000000000400   400 TLS     LOCAL  DEFAULT   19 tiled<float, 16>(float const*, ...)::tile_a`
        row = r"^ *\d+: (\w+) +(\w+) (TLS|OBJECT) +\w+ +\w+ +(?!UND)\w+ (.+)$"
        listings.append(re.findall(row, listing, re.MULTILINE))
    found: dict[str, list[Symbol]] = {"TLS": [], "OBJECT": []}
    for (value, size, kind, mangled), (*_, plain) in zip(*listings):
        found[kind].append((mangled, plain, int(value, 16), int(size, 0)))
    return found


def arrays_of(arrays: Iterable[SharedArray], instance: str, instances: Iterable[str]) -> list[SharedArray]:
    """Those of the SharedArrays that an instance may use: all but the ones of the other `instances`."""
    others = {_plain(name) for name in instances} - {_plain(instance)}
    return [array for array in arrays if array.owner is None or _plain(array.owner) not in others]


@cache
def _plain(instance: str) -> str:
    """An instance's name as it is written and as readelf prints it, made equal: `f<32u, true>` is `f<32,1>`."""
    plain = re.sub(r"\([\w ]+\)(?=-?\d)|(?<=\d)[ul]+\b|<>$|\s", "", instance)
    return re.sub(r"\btrue\b", "1", re.sub(r"\bfalse\b", "0", plain))


def places_of(arrays: Sequence[SharedArray]) -> list[int]:
    """Where in the window of a block each of its SharedArrays begins, in bytes, as NVIDIA's linker lays them out.

    Static arrays come in the order of their declarations, each at a multiple of its alignment from the end of what is
    reserved; then dynamic memory, which all `extern` arrays share.
    """
    end, places = 0, {}
    for array in arrays:
        if array.size:
            places[array] = -(-end // array.alignment) * array.alignment
            end = places[array] + array.size
    dynamic = [array for array in arrays if not array.size]
    most = max((array.alignment for array in dynamic), default=1)
    places |= dict.fromkeys(dynamic, -(-end // most) * most)
    return [RESERVED_SHARED_BYTES + places[array] for array in arrays]


def static_shared_bytes(arrays: Iterable[SharedArray], instances: Sequence[str]) -> dict[str, int]:
    """Bytes of static shared memory of a block, for each instance."""
    arrays, used = list(arrays), {}
    for name in instances:
        own = [array for array in arrays_of(arrays, name, instances) if array.size]
        ends = (place + array.size - RESERVED_SHARED_BYTES for place, array in zip(places_of(own), own))
        used[name] = max(ends, default=0)
    return used


# ---- Running ---------------------------------------------------------------------------------------------------------


class _Parameter(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("kind", ctypes.c_char),
        ("element_size", ctypes.c_uint32),
        ("element", ctypes.c_char),
    ]


class _Instance(ctypes.Structure):
    _fields_ = [
        ("thread", ctypes.c_void_p),
        ("parameters", ctypes.POINTER(_Parameter)),
        ("parameter_count", ctypes.c_uint32),
    ]


class Stopped(ctypes.Structure):
    """How a run ended before its end, as cuda_emulator.cpp says it: `how` is a number of HOW, `pc` the instruction's
    offset in the library, or 0, `last` that of its last access; `file` and `line` say where it waited last."""

    _fields_ = [
        ("how", ctypes.c_int32),
        ("thread", ctypes.c_uint32),
        ("block", ctypes.c_uint32 * 3),
        ("pc", ctypes.c_uint64),
        ("last", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("file", ctypes.c_char_p),
        ("line", ctypes.c_int32),
    ]


#: What a thread did that was stopped.
HOW = {
    1: "has not come to its end",
    2: "divides by zero; a GPU would go on with a number that means nothing",
    3: "needs more local memory than the 512 KiB that a GPU gives a thread: recursion without end, or large arrays",
    4: "reads or writes address {address:#x}, where nothing is",
    5: "comes to an instruction that ends it, such as where a function without `return` ends",
    6: "waits here for a change that no thread of its block makes; the emulator runs the blocks of a grid one after "
    "the other, and in neither order does an earlier block make it; of {together} it runs all together: choose a "
    "smaller shape",
    7: "waits here for a change that no thread of the grid makes",
}

#: How many blocks, and how many threads, the emulator runs together at most.
MOST_TOGETHER = {"blocks": 256, "threads": 8192}


def fits_together(launch: Launch) -> bool:
    """Whether the emulator can run all blocks of a launch together."""
    blocks = math.prod(launch.grid)
    return blocks <= MOST_TOGETHER["blocks"] and 32 * -(-launch.threads // 32) * blocks <= MOST_TOGETHER["threads"]


def how_of(stopped: "Stopped") -> str:
    """What a thread did that was stopped, in words."""
    most = " and ".join(f"{number:,d} {what}" for what, number in MOST_TOGETHER.items())
    return HOW[stopped.how].format(address=stopped.address, together=f"grids of up to {most}")


#: That of them by which another order of the blocks may help.
WAITS = 6

#: What a parameter of a kernel can be, as cuda_emulator.h says it.
KINDS = {"p": "a pointer", "i": "an integer", "f": "a floating-point number", "o": "a struct"}


def _text(library: ctypes.CDLL, symbol: str) -> str:
    return ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, symbol))).decode()


class Emulator:
    """A kernel compiled by `build`, ready to launch. One launch at a time: it holds Python's lock while it runs.

    `static_shared_bytes` holds the bytes of a block by instance, `parameters` the size and the kind (a key of KINDS) of
    each parameter by instance.
    """

    def __init__(self, path: Path | str) -> None:
        self.library = ctypes.PyDLL(str(path))
        # Closed when no longer used: else a library that is built again at this path would not be loaded.
        weakref.finalize(self, _ctypes.dlclose, self.library._handle)
        self.entry = _text(self.library, "emulator_entry")
        if hasattr(self.library, "emulator_ptx_unknown"):
            self.library.emulator_ptx_unknown.restype = ctypes.c_char_p
            if unknown := self.library.emulator_ptx_unknown().decode():
                raise UserError(shown(unknown))
        self.instances = _text(self.library, "emulator_names").split("\n")
        self._instances = (_Instance * len(self.instances)).in_dll(self.library, "emulator_instances")
        self.parameters = {
            name: [(p.size, p.kind.decode()) for p in held.parameters[: held.parameter_count]]
            for name, held in zip(self.instances, self._instances)
        }
        #: float or double for each parameter that points to one; else "".
        self.elements = {
            name: [
                {(b"f", 4): "float", (b"f", 8): "double"}.get((p.element, p.element_size), "") * (p.kind == b"p")
                for p in held.parameters[: held.parameter_count]
            ]
            for name, held in zip(self.instances, self._instances)
        }
        self.attributes = json.loads(_text(self.library, "emulator_attributes"))
        alignments, variables = json.loads(_text(self.library, "emulator_shared"))
        symbols = _listed(path)
        self.shared = _shared_arrays(symbols, alignments)
        self.thread_local_bytes = max((offset + size for _, _, offset, size in symbols["TLS"]), default=0) + 8
        self.variables = [
            Variable(name, at, size) for mangled, name, at, size in symbols["OBJECT"] if mangled in variables and size
        ]
        self.static_shared_bytes = static_shared_bytes(self.shared, self.instances)
        self.library.emulator_stopped.restype = ctypes.POINTER(Stopped)
        #: Seconds of computing that are left for all further launches; None: no limit.
        self.seconds_left: float | None = None

    def stopped(self) -> Stopped | None:
        """How the last launch ended, if a thread could not go on or the time was up."""
        found = self.library.emulator_stopped()[0]
        return found if found.how else None

    def check(self, launch: Launch, limits: Mapping[str, Any] = EMULATED_LIMITS) -> None:
        """Raise LaunchError if a device of `limits` would refuse the launch, and UserError if its function cannot be
        called with its arguments, or if the emulator cannot do what it asks for."""
        _check_arguments(self.entry, launch, self.parameters[launch.instance])
        attributes = self.attributes.get(launch.instance, {})
        bounds, cluster = (attributes.get(name, []) for name in ("bounds", "cluster"))
        if bounds and math.prod(launch.block) > bounds[0]:
            raise LaunchError(
                f"cudaErrorInvalidValue: a block of {math.prod(launch.block)} threads; the kernel's __launch_bounds__ "
                f"allow {bounds[0]}"
            )
        if cluster and tuple([*cluster, 1, 1][:3]) != launch.cluster:
            given = " x ".join(map(str, launch.cluster))
            raise UserError(
                f"{self.entry}: {launch.instance} has __cluster_dims__({', '.join(map(str, cluster))}), and the launch "
                f"is for clusters of {given} blocks; give the same in `cluster` of the registry or --cluster"
            )
        check_launch(launch, self.static_shared_bytes[launch.instance], limits)

    def check_elements(self, launch: Launch, types: Mapping[str, str]) -> None:
        """Raise UserError if a function takes a pointer to float or double where its launch gives it an array of
        another type; `types` are those of the arrays by name, in C++."""
        for number, (argument, element) in enumerate(zip(launch.arguments, self.elements[launch.instance]), 1):
            if isinstance(argument, Array) and element and types[argument.name] != element:
                raise UserError(
                    f"{self.entry}: {launch.instance}: argument {number} is the array {argument.name} of "
                    f"{types[argument.name]}, but the function takes a pointer to {element}; choose that element type "
                    f"(--dtype {element} of `tilewise trace`)"
                )

    def shared_of(self, launch: Launch) -> list[SharedArray]:
        """The shared arrays that a launch may use."""
        return arrays_of(self.shared, launch.instance, self.instances)

    def launch(
        self,
        launch: Launch,
        arrays: Mapping[str, np.ndarray | int],
        limits: Mapping[str, Any] = EMULATED_LIMITS,
        reverse: bool = False,
        blocks_reversed: bool | None = None,
        seed: int = 0,
        blocks: Iterable[Three] = (),
        together: bool = False,
    ) -> bool:
        """Run one launch; `arrays` holds A, B, C and the workspaces by name, as C-contiguous arrays or as addresses.

        Between barriers the threads of a block run in ascending order, or descending (`reverse`), or in a random one
        (`seed` other than 0); blocks in ascending or, by default as `reverse` says, in descending order. `blocks`,
        triples (x, y, z), are those to run; all by default. `together`: all blocks of the grid run at the same time if
        they are no more than MOST_TOGETHER; else, as always, those of a cluster. Returns whether it ran to its end:
        the tracer gives up some. Raises, with all arrays untouched, what `check` raises.
        """
        self.check(launch, limits)
        shared = self.shared_of(launch)
        integers = ctypes.c_uint64 * len(shared)
        self.library.emulator_place(
            integers(*(array.offset for array in shared)),
            integers(*places_of(shared)),
            ctypes.c_int(len(shared)),
            ctypes.c_uint64(self.thread_local_bytes),
        )
        self.library.emulator_limit(ctypes.c_double(self.seconds_left or 0.0))
        started = time.process_time()
        held = [_packed(argument, arrays) for argument in launch.arguments]
        addresses = (ctypes.c_void_p * max(1, len(held)))(*(ctypes.addressof(value) for value in held))
        triple = ctypes.c_uint * 3
        across, down, _ = launch.grid
        numbers = [x + across * (y + down * z) for x, y, z in blocks]
        ended = bool(
            self.library.emulator_run(
                ctypes.byref(self._instances[self.instances.index(launch.instance)]),
                triple(*launch.block),
                triple(*launch.grid),
                triple(*launch.cluster),
                addresses,
                ctypes.c_int(reverse),
                ctypes.c_int(reverse if blocks_reversed is None else blocks_reversed),
                ctypes.c_uint64(seed),
                (ctypes.c_uint64 * len(numbers))(*numbers) if numbers else None,
                ctypes.c_uint64(len(numbers)),
                ctypes.c_int(together and not numbers and fits_together(launch)),
            )
        )
        if self.seconds_left is not None:
            self.seconds_left = max(1e-3, self.seconds_left - (time.process_time() - started))
        self.library.emulator_message.restype = ctypes.c_char_p
        if message := self.library.emulator_message().decode():
            raise UserError(f"{shown(message)}")
        return ended


def run(
    libraries: Mapping[str, Emulator],
    launches: Sequence[Launch],
    workspaces: Iterable[Workspace],
    operands: Mapping[str, np.ndarray],
    limits: Mapping[str, Any] = EMULATED_LIMITS,
    **order: Any,
) -> None:
    """C (n x m) = A (n x p) B (p x m), C in place, by launches of a kernel in their order, each from its instance's
    library.

    `operands` are A, B and C by name, C-contiguous and of the stored type of the point's precision; `order` goes to
    Emulator.launch. Workspaces begin as bytes 0xFF. Raises what Emulator.check raises for any of the launches, with C
    untouched, and UserError for a thread that cannot go on.
    """
    for launch in launches:
        libraries[launch.instance].check(launch, limits)
    arrays = dict(operands) | {space.name: np.full(space.bytes, 0xFF, np.uint8) for space in workspaces}
    for launch in launches:
        library = libraries[launch.instance]
        if not library.launch(launch, arrays, limits, **order) and (stopped := library.stopped()):
            block, thread = tuple(stopped.block), thread_of(stopped.thread, launch)
            how = how_of(stopped)
            raise UserError(f"{library.entry}: {launch.instance}: thread {thread} of block {block} {how}")


def thread_of(number: int, launch: Launch) -> Three:
    """threadIdx of a thread by its number in a block, counted along x, y, then z."""
    x, y, _ = launch.block
    return number % x, number // x % y, number // (x * y)


def product(
    kernel: Kernel,
    point: Point,
    library: Emulator,
    A: np.ndarray,
    B: np.ndarray,
    C: np.ndarray,
    device: Mapping[str, Any] | None = None,
    **order: Any,
) -> None:
    """The product of a point, by all launches of its kernel: `run` for the emulated device, or for `device`."""
    limits = EMULATED_LIMITS if device is None else device["limits"]
    spaces = kernel.plan(point, device).workspaces
    libraries = dict.fromkeys(library.instances, library)
    run(libraries, kernel.plan(point, device).launches, spaces, {"A": A, "B": B, "C": C}, limits, **order)


def _packed(argument: Argument, arrays: Mapping[str, np.ndarray | int]) -> Any:
    """An argument as ctypes holds it."""
    if isinstance(argument, Number):
        return argument.packed()
    array = arrays[argument.name if isinstance(argument, Array) else argument.array]
    address = array if isinstance(array, int) else array.ctypes.data
    return ctypes.c_void_p(address) if isinstance(argument, Array) else _tensor_map(argument, address)


class _TensorMap(ctypes.Structure):
    """What ptx.cpp reads as TensorMap; the dimensions begin with the innermost."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("magic", "rank", "itemsize", "swizzle")),
        ("base", ctypes.c_uint64),
        ("shape", ctypes.c_uint64 * 5),
        ("pitch", ctypes.c_uint64 * 5),
        ("box", ctypes.c_uint16 * 5),
        ("step", ctypes.c_uint16 * 5),
        ("rest", ctypes.c_uint8 * 4),
    ]


def _tensor_map(tensor: TensorMap, address: int) -> _TensorMap:
    itemsize, shape = PRECISIONS[tensor.dtype].itemsize, tensor.shape[::-1]
    packed = _TensorMap(_MAP_MAGIC, len(shape), itemsize, tensor.swizzle, address)
    for d, extent in enumerate(shape):
        packed.shape[d] = extent
        packed.pitch[d] = itemsize * math.prod(shape[:d])
        packed.box[d] = tensor.box[::-1][d]
        packed.step[d] = tensor.strides[::-1][d] if tensor.strides else 1
    return packed


_MAP_MAGIC = 0x70616D54


def _check_arguments(entry: str, launch: Launch, parameters: Sequence[tuple[int, str]]) -> None:
    place = f"{entry}: {launch.instance}"
    remedy = "; correct its `arguments` (--arguments of `tilewise trace`)"
    if len(launch.arguments) != len(parameters):
        raise UserError(
            f"{place}: the function has {len(parameters)} parameters, but the launch gives it "
            f"{len(launch.arguments)} arguments{remedy}"
        )
    for number, (argument, (size, kind)) in enumerate(zip(launch.arguments, parameters), 1):
        if isinstance(argument, TensorMap):
            given, said = (ctypes.sizeof(_TensorMap), "o"), "a tensor map"
        elif isinstance(argument, Array):
            given, said = (ctypes.sizeof(ctypes.c_void_p), "p"), f"the array {argument.name}"
        else:
            given = ctypes.sizeof(argument.ctype), "o" if argument.is_struct else "i" if argument.whole else "f"
            said = f"a number of type {argument.type}"
        if given != (size, kind):
            raise UserError(
                f"{place}: argument {number} is {said}, but the function takes {KINDS[kind]} of {size} B there{remedy}"
            )


def check_launch(launch: Launch, static_shared_bytes: int, limits: Mapping[str, Any]) -> None:
    """Raise LaunchError if a device of these limits refuses the launch, with the error that CUDA 13 gives."""
    threads = math.prod(launch.block)
    sizes = launch.block[:2] if launch.block[2] == 1 else launch.block
    if not 0 < threads <= limits["max_threads_per_block"]:
        raise LaunchError(
            f"cudaErrorInvalidValue: a block of {' x '.join(map(str, sizes))} = {threads} threads; "
            f"the device allows {limits['max_threads_per_block']}"
        )
    if launch.block[2] > MAX_BLOCK_Z:
        raise LaunchError(
            f"cudaErrorInvalidValue: a block of {launch.block[2]} threads along z; the device allows {MAX_BLOCK_Z}"
        )
    for axis, blocks, most in zip("xyz", launch.grid, limits["max_grid"]):
        if not 0 < blocks <= most:
            raise LaunchError(
                f"cudaErrorInvalidValue: a grid of {blocks} blocks along {axis}; the device allows {most}"
            )
    shared = static_shared_bytes + launch.dynamic_shared_bytes
    if shared > limits["shared_bytes_per_block_optin"]:
        raise LaunchError(
            f"cudaErrorInvalidValue: {shared} B of shared memory per block; "
            f"the device allows {limits['shared_bytes_per_block_optin']} B"
        )
