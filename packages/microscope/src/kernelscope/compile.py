"""Compile CUDA kernels for the CPU: the same .cu files, by g++ against the headers in cuda/include."""

import hashlib
import json
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernelscope import (
    arithmetic,
    cpp,
    declarations,
    elf,
    expressions,
    host_code,
    loops,
    marks,
    ptx,
    refusals,
    shared_memory,
    syntax,
)
from kernelscope.cpp import FLAGS, display_path, run_compiler
from kernelscope.declarations import Declarations, Function, Tree, tree_of
from kernelscope.element_types import ELEMENT_TYPES
from kernelscope.errors import CompileError, MachineError, NotEmulated, UserError
from kernelscope.expressions import whole_numbers
from kernelscope.files import atomic_path, digest
from kernelscope.host_code import as_included, left_out
from kernelscope.limits import DEFAULT_SHARED_BYTES
from kernelscope.shared_memory import Variables, static_shared_bytes
from kernelscope.sources import (
    EMULATOR,
    EMULATOR_HEADERS,
    HOST_HEADERS,
    PACKAGE,
    CudaFile,
    code_of,
    emulator_files,
    has_host_code,
)
from kernelscope.struct_layouts import Layouts, layouts

#: Sections, so that the linker drops kernels that are never launched and their shared memory with them.
COMPILE = (
    *(flag for flag in FLAGS if flag != "-shared"),
    "-Og",  # half the time of -O2 to compile; what runs here is so small that it is no slower
    "-fno-strict-aliasing",  # a kernel reads floats as int4
    "-fno-extern-tls-init",
    *(["-mtls-dialect=trad"] if platform.machine() == "aarch64" else []),  # as on x86, by our own __tls_get_addr
    "-fstack-clash-protection",  # a thread that needs too much local memory meets the end of its stack
    "-ffunction-sections",
    "-fdata-sections",
    "-ftrack-macro-expansion=0",  # a message names the line that uses a macro
    "-fno-exceptions",
    "-Werror=vla",  # CUDA has no arrays of variable length
    f"-ffile-prefix-map={PACKAGE}={cpp.ANYWHERE}",
)
#: What a static libstdc++ brings is hidden: its unique symbols would keep a library loaded that is no longer used.
LINK = (
    "-Wl,-z,defs",
    "-Wl,--gc-sections,--undefined=emulator_shared,--undefined=emulator_first,--undefined=emulator_unset",
    "-Wl,--exclude-libs,ALL",
)

#: One access in the source is to be one access in the machine code, as nvcc has it: g++ must not join, split, copy or
#: vectorise them, nor drop them or move them to where a condition guards them or no longer does; test_microscope.py has
#: a kernel for each. Overflow wraps around, as it does on a GPU, and a loop without an end has none. Our own functions
#: stand in for the sanitizers' libraries. DWARF 4, because addr2line of binutils 2.40 takes version 5's file names for
#: those of the including file.
TRACED = [
    "-O2",
    "-gdwarf-4",
    "-g1",  # last: after -g1, -gdwarf-4 would ask for level 2, which describes variables and doubles g++'s time
    "-fsanitize=thread",
    "-fsanitize=bounds-strict",
    "-fsanitize=object-size",  # also of what a pointer to a variable of the thread's own leads to
    "-fsanitize=float-cast-overflow",  # of what arithmetic.py has not put into a call
    "--param=tsan-instrument-func-entry-exit=0",
    "--param=tsan-distinguish-volatile=1",
    "-fno-tree-sink",  # a load goes into the `if` that uses it
    "-fno-tree-dce",  # an unused load is removed
    "-fno-tree-dse",  # a store that a later one overwrites goes
    "-fno-tree-loop-im",  # a load of shared memory goes out of the `if` and the loop around it
    "-fno-hoist-adjacent-loads",  # both members are loaded where the source loads one
    "-fno-finite-loops",
    "-fno-aggressive-loop-optimizations",
    "-fwrapv",
    "-fno-tree-vectorize",
    "-fno-store-merging",
    "-fno-tree-loop-distribute-patterns",
    "-fno-tree-sra",
    "-fno-ipa-sra",
    "-fno-thread-jumps",
    "-fno-crossjumping",
    "-fno-tree-tail-merge",
    "-fno-split-paths",
    "-fno-ipa-icf",
    "-fno-gcse",  # this and the next only cost time: they come after the calls of the tracer are placed
    "-fno-schedule-insns2",
]

#: An uninitialised register holds no 0 by chance. g++ 11 lacks the flag: there only what lies on a thread's stack is
#: marked, by the scheduler. A second library has zeros there: unset.py compares the two.
MARKED, ZEROED = "-ftrivial-auto-var-init=pattern", "-ftrivial-auto-var-init=zero"

#: The folders of what a kernel is linked with: the runtime, the tracer, or what stands for it without tracing, and
#: the interpreter of inline PTX. Each is compiled once for all kernels.
PARTS = ("runtime", "tracer", "unwatched", "ptx")
#: How far g++ optimises each: more doubles the time of the first trace; what is hot says so itself. The interpreter of
#: PTX is hot throughout: its -O2 takes a fifth of the time off each trace.
LEVELS = {"runtime": "-Og", "tracer": "-O1", "unwatched": "-Og", "ptx": "-O2"}


def build(
    kernel: CudaFile,
    instances: Sequence[str],
    output: Path | str,
    flags: Sequence[Any] = (),
    watched: bool = False,
) -> Path:
    """Compile a kernel with all its instances into one shared library at `output`; returns the path.

    `instances` are C++ names such as `tiled<float, 32>`, of any functions of the file; `flags` follow COMPILE, and
    those that define a macro hold for the runtime, too; `watched`: with the tracer. Raises CompileError if the kernel
    does not compile, or if an instance's static shared memory passes CUDA's limit, which is a compile error there, and
    NotEmulated for what the emulator lacks.

    The library of a file below the current folder is kept like the objects of `compile_object`.
    """
    output = Path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    if not all(path.is_relative_to(Path.cwd()) for path in kernel.files):
        return _build(kernel, instances, output, flags, watched)
    name = f"{kernel.name}-{_digest(kernel, instances, flags, watched)[:24]}.so"
    library = cpp.make_once(name, lambda made: _build(kernel, instances, made, flags, watched))
    with atomic_path(output) as temporary:
        shutil.copyfile(library, temporary)
    return output


def build_traced(kernel: CudaFile, instances: Sequence[str], output: Path | str, zeroed: bool = False) -> Path:
    """Compile a kernel so that it can be traced: `build` with every access to memory watched. `zeroed`: variables
    without a value begin as zeros, where they are marked otherwise."""
    flags = [ZEROED if zeroed and flag == MARKED else flag for flag in _traced()]
    return build(kernel, instances, output, flags, watched=True)


def declarations_of(source: CudaFile) -> Declarations:
    """The declarations of a file, as `build_traced` sees them. Raises UserError if a file is no text, or the
    preprocessor fails, or there is no compiler."""
    return declarations.declarations(_tree(source))


def functions(source: CudaFile) -> Mapping[str, Function]:
    """The __global__ functions that a file, or a file that it includes in quotes, defines or declares, by name.

    Raises UserError as `declarations_of` does, and for what NVRTC refuses and g++ takes.
    """
    refusals.refuse_mark(source)
    tree = _tree(source)
    refusals.refuse(tree)
    return declarations.declarations(tree).functions


def assignments(source: CudaFile) -> dict[tuple[str, int], bool]:
    """Whether it assigns nothing but a literal, by file and number of each line that assigns."""
    return declarations.assignments(_tree(source))


def unused_exchanges(source: CudaFile) -> set[tuple[str, int]]:
    """File and number of each line with an atomic exchange whose result nothing uses."""
    return declarations.unused_exchanges(_tree(source))


def _tree(source: CudaFile) -> Tree:
    try:
        return tree_of(source, as_included(source), _options(source, _traced()))
    except MachineError:
        raise
    except UserError as error:
        raise without_header(error) from None


def layouts_of(source: CudaFile, instances: Sequence[str]) -> Layouts:
    """The Layouts of instances of a CUDA file."""
    return layouts(as_included(source), instances, _options(source, _traced()))


def _traced() -> list[str]:
    return [*TRACED, *([MARKED] if cpp.accepts_flag(MARKED) else [])]


def _options(source: CudaFile, flags: Sequence[Any]) -> list[Any]:
    """The flags with which a kernel is compiled, and its declarations are read."""
    return [
        *COMPILE,
        *cpp.prefix_maps(),
        *flags,
        *cpp.include_options(source.path),
        *(f"-I{folder}" for folder in source.includes),
        *_as_nvrtc(tuple(flags)),
        "-fpch-preprocess",
    ]


def missing_checks() -> list[str]:
    """Faults that traces with this compiler may miss, in a line; usually empty."""
    if cpp.accepts_flag(MARKED):
        return []
    what = "a read of an uninitialised variable may be missed; set CXX to g++ 12 or newer to find it"
    return [f"{cpp.version().splitlines()[0]} lacks {MARKED}: {what}"]


def _digest(kernel: CudaFile, instances: Sequence[str], flags: Sequence[Any], watched: bool) -> str:
    """The hash of all that goes into a library, which is the same in every clone."""
    files = [*((display_path(path), path) for path in kernel.files), *((path.name, path) for path in sources())]
    texts = [[name, hashlib.sha256(path.read_bytes()).hexdigest()] for name, path in files]
    made_by = cpp.compiler(), cpp.version()
    return digest([kernel.name, display_path(kernel.path), list(instances), list(flags), watched, texts, made_by])


def sources() -> list[Path]:
    """The files of the emulator, the headers that a kernel finds there, and the modules that compile with them."""
    modules = arithmetic, cpp, declarations, elf, expressions, host_code, loops, marks, ptx, shared_memory, syntax
    return [*emulator_files(), *(Path(module.__file__ or "") for module in (*modules, sys.modules[__name__]))]


def _build(kernel: CudaFile, instances: Sequence[str], output: Path, flags: Sequence[Any], watched: bool) -> Path:
    own = _options(kernel, flags)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as folder:
        names = "library.cpp", "library.o", "shared.s", "dump"
        source, compiled, shared, dump = (Path(folder, name) for name in names)
        has_ptx = any(ptx.ASM.search(code_of(path)) for path in kernel.files)
        objects = own_objects(watched, flags, has_ptx)
        try:
            read = declarations.declarations(tree_of(kernel, as_included(kernel), own))
            # The sanitizers name places by the names of line markers, which -ffile-prefix-map leaves alone.
            text = cpp.preprocess(_wrapper(kernel, instances, read), own)
            for place, sign in ((PACKAGE, cpp.ANYWHERE), (Path.cwd(), cpp.HERE)):
                text = re.sub(rf'^(# \d+ "){re.escape(str(place))}/', rf"\1{sign}/", text, flags=re.MULTILINE)
            rounds = loops.count_rounds if watched and loops.BARRIER.search(text) else str
            # Products read their registers later: another variable must not lie there then.
            kept = ["-fstack-reuse=none"] if "wgmma." in text else []
            ways = [rounds(arithmetic.as_on_a_gpu(text, cpp.ANYWHERE)), rounds(text), text]
            for way in dict.fromkeys(ways):
                source.write_text(ptx.rewrite(way, own=["<stdin>"]) if has_ptx else way, encoding="utf-8")
                # What tree-sitter has misread is compiled as it is.
                try:
                    run_compiler([*own, *kept, *_dumped(flags, dump), "-fpreprocessed", "-c", source, "-o", compiled])
                    break
                except UserError as error:
                    if way == text or isinstance(error, MachineError):
                        raise
        except MachineError:
            raise
        except UserError as error:
            raise _in_kernel(error, kernel, instances, source) from None
        if elf.runs_first(compiled):
            what = "a variable of the file gets its value by code that runs before any kernel"
            raise CompileError(f"{display_path(kernel.path)}: {what}, which CUDA refuses; give it a constant one")
        variables = Variables.from_symbols(read.variables, elf.symbols(compiled))
        marked = marks.marked_variables(dump.read_text(encoding="utf-8") if dump.exists() else "")
        shared.write_text(variables.assembler() + marks.assembler(marked), encoding="utf-8")
        library = Path(folder, output.name)
        try:
            run_compiler(["-shared", shared, compiled, *objects, *LINK, "-o", library])
        except MachineError:
            raise
        except UserError as error:
            raise CompileError(_undefined(str(error), kernel)) from None
        for instance, used in static_shared_bytes(variables.arrays(elf.symbols(library)), instances).items():
            if used > DEFAULT_SHARED_BYTES:
                raise CompileError(
                    f"{display_path(kernel.path)}: {instance} uses too much shared data: {used} B where CUDA allows "
                    f"{DEFAULT_SHARED_BYTES} B of static shared memory; use smaller tiles, or `extern __shared__`"
                )
        library.replace(output)
    return output


def _dumped(flags: Sequence[Any], dump: Path) -> list[str]:
    """The flag by which g++ writes what it marks, if it marks something."""
    return [f"-fdump-tree-optimized-lineno={dump}"] if MARKED in flags else []


def own_objects(watched: bool, flags: Iterable[Any] = (), has_ptx: bool = False) -> list[Path]:
    """The object files of the runtime, with the macros that `flags` define, and of the interpreter of PTX; those that
    are not there are compiled at the same time."""
    defined = [flag for flag in flags if str(flag).startswith("-D")]
    parts = [*(["ptx"] if has_ptx else []), "tracer" if watched else "unwatched", "runtime"]  # the longest first
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        return list(threads.map(lambda part: own_object(part, [] if part == "ptx" else defined), parts))


def own_object(part: str, flags: Sequence[str] = ()) -> Path:
    """The object file of one of PARTS; g++ takes some seconds for each, once."""
    sources, folders = sorted((EMULATOR / part).glob("*.cpp")), [EMULATOR_HEADERS, *(EMULATOR / name for name in PARTS)]
    return cpp.compile_object(part, sources, [LEVELS[part], *flags], folders)


#: Names of the host that g++ knows and NVRTC does not. The stand-in <cstdint> defines the first ones.
HIDDEN = """int8_t uint8_t int16_t uint16_t int32_t uint32_t int64_t uint64_t uintptr_t intptr_t intmax_t uintmax_t
    std rand srand exit abort system getenv atexit qsort bsearch strlen strcmp strncmp strcpy strncpy strcat strchr
    strstr memmove memcmp fprintf sprintf snprintf puts putchar fputs scanf fopen fclose fflush stdout stderr stdin
    realloc calloc alloca uchar __builtin_memcpy __builtin_memset""".split()
_LACKS = "nvrtc_lacks_"
#: A GPU has a heap for its threads. At a place that it has, a kernel makes an object in both.
_NO_HEAP = """#define EMULATOR_LACKS __attribute__((error("the emulator has no heap for malloc and new; use an array")))
extern "C" void* malloc(std::size_t) noexcept EMULATOR_LACKS;
void* operator new(std::size_t) EMULATOR_LACKS;
void* operator new[](std::size_t) EMULATOR_LACKS;
inline void* operator new(std::size_t, void* place) noexcept { return place; }
inline void* operator new[](std::size_t, void* place) noexcept { return place; }
#undef EMULATOR_LACKS
"""
#: What a kernel calls by the C library's names, so that it is watched, or shown as the kernel's own.
_WATCHED = """#define memcpy(...) emulator::copied(__VA_ARGS__)
#define memset(...) emulator::filled(__VA_ARGS__)
#define printf(...) emulator::print(__VA_ARGS__)
"""
#: Names that look as those of CUDA's own functions, types and variables do.
_CUDAS_OWN = r"__\w+|(?:tex|surf)(?:[123]D|Cubemap)\w*|\w+_sync|atomic\w+|(?:cooperative_groups|cuda|nvcuda)::\w+"


def _as_nvrtc(flags: tuple[Any, ...]) -> list[Any]:
    """Flags under which a kernel sees what NVRTC shows it: CUDA's vocabulary, stand-ins for headers of the host, and
    the emulator's own, and no others. The emulator itself needs the standard library: it is compiled before."""
    own = [*COMPILE, *flags, f"-I{EMULATOR_HEADERS}"]
    names = [name for name in cpp.macros("cuda_emulator.h", own) if not re.match(r"EMULATOR_|NULL\b|[^A-Z]", name)]
    hidden = [f"#undef {name}\n" for name in names] + [f"#define {name} {_LACKS}{name}\n" for name in HIDDEN]
    # g++ does not take `alignas` between other words of a declaration, as after __shared__.
    alignas = "#define alignas(...) __attribute__((aligned(emulator::alignment<__VA_ARGS__>())))\n"
    text = f'#include "cuda_emulator.h"\n{_NO_HEAP}{_WATCHED}{"".join(hidden)}{alignas}'
    folder = cpp.precompile_header("as_nvrtc.h", text, own)
    headers = [f"-I{place}" for place in (EMULATOR_HEADERS, HOST_HEADERS, folder)]
    return ["-nostdinc", "-nostdinc++", *headers, "-include", "as_nvrtc.h"]


def without_header(error: UserError) -> UserError:
    """An error with who lacks a header if the compiler lacks one; another error as it is."""
    where, _, what = str(error).partition(": ")
    if header := re.fullmatch(r"(.*): No such file or directory", what):
        known = re.match(r"cuda|cuComplex|mma\.h|cooperative_groups|nv/|cub/|thrust/|cute/|cutlass/", header[1])
        if known:
            return NotEmulated(f"{where}: the emulator has no header <{header[1]}>")
        return CompileError(f"{where}: neither NVRTC nor the emulator has a header <{header[1]}>")
    return error


def _in_kernel(error: UserError, kernel: CudaFile, instances: Sequence[str], source: Path) -> UserError:
    """A compiler's error in the text around a kernel, as one in the kernel, with what was left out of it."""
    found = _about_kernel(error, kernel, instances, source)
    if not has_host_code(code_of(kernel.path)):
        return found
    kind, headers = type(found), left_out(kernel)
    if lacking := [f"<{name}>" for name in headers if f"'{name.partition('/')[0]}" in str(error)]:
        kind = NotEmulated
        away = f"the emulator has no {' and no '.join(lacking)}; for a trace, replace what the kernel uses of it"
    else:
        named = "".join(f", <{name}>" for name in headers)
        away = f"left out as the host's: functions without __device__{named}"
    return kind(f"{found}; {away}")


def _about_kernel(error: UserError, kernel: CudaFile, instances: Sequence[str], source: Path) -> UserError:
    where, _, what = str(error).partition(": ")
    if where.startswith(display_path(EMULATOR_HEADERS / "cuda_emulator.h")) and "No such file" in what:
        return MachineError(
            "the compiler does not take the header that it has precompiled itself; delete the folder kernelscope in "
            "~/.cache (or $XDG_CACHE_HOME) and run again"
        )
    if (missing := without_header(error)) is not error:
        return missing
    if hidden := re.search(rf"{_LACKS}(\w+)", what):
        remedy = "; include <cstdint>" if hidden[1].endswith("_t") else ""
        return CompileError(f"{where}: '{hidden[1]}' is not defined; NVRTC does not define it either{remedy}")
    if unknown := re.match(rf"'({_CUDAS_OWN})' (?:was not declared|is not a member of|does not name a type)", what):
        what = f"the emulator has no '{unknown[1]}'; if it is a name of CUDA's, only a GPU runs this kernel"
        return CompileError(f"{where}: {what}")
    if re.match(r"'cuda(?:GridDep|TriggerProg)\w+' was not declared", what):
        remedy = "include <cuda_device_runtime_api.h>: NVRTC does not define it without, either"
        return CompileError(f"{where}: {what}; {remedy}")
    if lacking := re.search(r"declared with attribute error: (the emulator .*?)(?: \[-W|$)", what):
        return NotEmulated(f"{where}: {lacking[1]}")
    if not where.startswith((str(source), "<stdin>")):
        return error
    if "no matching function for call to 'instance(" in what:
        named = ", ".join(instances)
        return CompileError(
            f"{display_path(kernel.path)}: its functions have no instance {named}; give each its template's arguments"
        )
    hint = "; a bracket or a semicolon may be missing at its end" if what.startswith("expected") else ""
    return type(error)(f"{display_path(kernel.path)}: {what}{hint}")


def _undefined(message: str, kernel: CudaFile) -> str:
    """A linker's message about a name without a definition, as one about the kernel."""
    # binutils 2.47 puts the section between the line and the words.
    if not (said := re.search(r"(?:(\w[\w.-]*):(\d+):(?:\([^)]*\):)? )?undefined reference to `(.*)'", message)):
        return message
    file = next((display_path(path) for path in kernel.files if path.name == said[1]), display_path(kernel.path))
    where = f"{file}:{said[2]}" if said[2] else file
    return f"{where}: '{said[3]}' is declared, but nowhere defined; neither ptxas nor a GPU takes that"


def _wrapper(kernel: CudaFile, instances: Sequence[str], read: Declarations) -> str:
    """C++ text that includes the kernel, unchanged, and makes each instance callable as a thread of a grid."""
    used = set(re.findall(r"\w+", " ".join(instances)))
    headers = sorted({p.header for p in ELEMENT_TYPES.values() if p.header and p.cpp in used})
    functions = [f"&{name.removesuffix('<>')}" for name in instances]
    rows = ",\n".join(f"    emulator::instance(emulator::thread<{name}>, {name})" for name in functions)
    visible = 'extern "C" __attribute__((visibility("default"))) const'
    return "\n".join(
        [
            *(f'#include "{header}"' for header in headers),
            as_included(kernel),
            f"{visible} emulator::Instance emulator_instances[] = {{",
            f"{rows}}};",
            f"{visible} char emulator_names[] =",
            f"    {json.dumps(chr(10).join(instances))};",
            f"{visible} char emulator_entry[] =",
            f"    {json.dumps(f'{display_path(kernel.path)}: {kernel.name}')};",
            f"{visible} char emulator_attributes[] =",
            f"    {json.dumps(json.dumps(_attributes(read, instances)))};",
            "",
        ]
    )


def _attributes(read: Declarations, instances: Sequence[str]) -> dict[str, dict[str, list[int]]]:
    """What instances say of their launches, as far as it is arithmetic over numbers and their templates: the blocks of
    a `cluster` along x, y, z, `bounds`, of which the first are the most threads of a block and the least blocks of a
    multiprocessor, and the `registers` of a thread."""
    found: dict[str, dict[str, list[int]]] = {}
    for instance in instances:
        name, _, arguments = instance.partition("<")
        if function := read.functions.get(name):
            values = dict(zip((each.name for each in function.template), arguments.rstrip(">").split(",")))
            numbers = {key: value for key, text in values.items() for value in whole_numbers([text], read.numbers)}
            says = {"cluster": function.cluster, "bounds": function.bounds, "registers": function.registers}
            known = {key: whole_numbers(said, {**read.numbers, **numbers}) for key, said in says.items()}
            found[instance] = {key: value for key, value in known.items() if value}
    return found
