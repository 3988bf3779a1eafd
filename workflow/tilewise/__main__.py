"""The command `tilewise`: what a kernel does to memory (trace), and what its machine code is made of (machine-code)."""

import argparse
import contextlib
import difflib
import math
import re
import signal
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tilewise import KERNELS, ROOT, UserError
from tilewise.build import cpp
from tilewise.build.cpp import shown
from tilewise.build.emulator import LaunchError
from tilewise.build.functions import Function, functions
from tilewise.count.trace import SCHEDULES, Convention, lacking, trace_point
from tilewise.study import registry, tuning
from tilewise.study.columns import COLUMNS
from tilewise.study.device import MAX_THREADS_PER_BLOCK, numbers
from tilewise.study.expressions import FUNCTIONS, evaluate
from tilewise.study.kernel import DEFAULT_ARGUMENTS, POINT_NAMES, Kernel, LaunchEntry
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS

TABLE = {
    "global_load_requests": "global loads: requests of a warp",
    "global_load_sectors": "  32-byte sectors",
    "sectors_per_request": "  sectors per request",
    "global_store_requests": "global stores: requests of a warp",
    "global_store_sectors": "  32-byte sectors",
    "shared_load_wavefronts": "shared loads: wavefronts",
    "shared_store_wavefronts": "shared stores: wavefronts",
    "shared_bank_conflicts": "  bank conflicts, loads and stores",
    "flop_per_byte": "FLOP per byte that loads ask for",
    "flop_per_byte_moved": "FLOP per byte moved",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status: 0, 1 if the kernel has a fault, 2 if the command is wrong."""
    if arguments is None:
        # A kernel may run for ever, and then only the default action stops it; nor is `| head` worth a traceback.
        for number in (signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser, parameters = _parser(words)
    options = parser.parse_args(words)
    if options.command == "tuned":
        return _tuned(options)
    given = {name: value for name in parameters if (value := getattr(options, f"parameter {name}")) is not None}
    try:
        kernel, point = find_kernel(options, given)
        lines, status = options.run(kernel, point, options)
    except (UserError, LaunchError) as error:
        print(f"tilewise: {error}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return status


def trace(kernel: Kernel, point: Point, options: argparse.Namespace) -> tuple[list[str], int]:
    """The faults and the traffic of a point as lines, and 1 if there is a fault, else 0."""
    cpp.check()
    row, found = trace_point(
        kernel, point, limit=options.limit, convention=Convention(options.columns, options.short_sums)
    )
    faults = [fault for fault in found if not fault.is_remark]
    n, p, m = options.shape
    product = kernel.plan(point).product
    assert product is not None  # a CUDA kernel has one
    block = "x".join(map(str, product.block if product.block[2] > 1 else product.block[:2]))
    lines = [str(fault) for fault in found]
    lines.append(f"{kernel.name} {options.dtype} {n}x{p}x{m}, blocks of {block} threads")
    for column, words_of in TABLE.items():
        value = row.get(column)
        text = "-" if value is None else f"{value:,d}" if isinstance(value, int) else f"{value:.2f}"
        lines.append(f"  {words_of:36}{text:>16}")
    count = f"{len(faults) or 'no'} fault{'' if len(faults) == 1 else 's'}"
    lines += [*lacking(), f"{count} in {', '.join(SCHEDULES)} order of threads"]
    return lines, 1 if faults else 0


def machine_code(kernel: Kernel, point: Point, options: argparse.Namespace) -> tuple[list[str], int]:
    """The instructions of the multiply-add loop of a point's machine code as lines, by kind; and 0."""
    from tilewise.count import machine_code as reader  # not every installation has what it needs

    row = reader.examine(kernel, point, options.capability)
    lines = [
        f"{row['instance']} for {row['architecture']}: {row['registers']} registers, {row['spill_bytes']} B spilled"
    ]
    if "instructions" not in row:
        return [*lines, "  no loop with multiply-adds"], 0
    total = row["instructions"]
    lines.append(f"  {'innermost multiply-add loop: instructions':50}{total:>8,d}")
    counts = {f"  {row['multiply_add']}": row["multiply_add_instructions"]}
    counts |= {f"  {COLUMNS[name].meaning}": row[name] for name in (*reader.KINDS, "other")}
    for words, count in counts.items():
        if count:
            lines.append(f"  {words:52}{count:>8,d}{count / total:>8.1%}")
    lines.append(f"  {COLUMNS['reused_operands'].meaning:50}{row['reused_operands']:>8,d}")
    return lines, 0


def _tuned(options: argparse.Namespace) -> int:
    """`tilewise tuned`: print the tuner's choices, or write them into the registry; returns the exit status."""
    from tilewise.report import data  # pandas and what comes with it: a second that the microscope does not need

    try:
        found = data.choices(options.folder, registry.load())
        if options.write:
            print(f"written into {shown(tuning.write(found, KERNELS))}; see what changed with `git diff`")
        else:
            print(tuning.text(found), end="")
    except UserError as error:
        print(f"tilewise: {error}", file=sys.stderr)
        return 2
    return 0


def _parser(words: Iterable[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """The parser, and the names of the parameters among its options: every name in `words` that is not its own."""
    parser = argparse.ArgumentParser(
        prog="tilewise",
        description="Tilewise is a reproducible study of CUDA matrix multiplication: `make report` in its folder "
        "measures this machine and renders results/report.html. This command looks at one kernel, without a GPU.",
        epilog="`tilewise trace --help` tells the options. docs/microscope.md shows what it finds.",
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    parser.add_argument("--version", action="version", version=f"tilewise {project['version']}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    epilog = (
        "Each parameter of the kernel is an option too: those of its entry in registry.yaml, or, without one, the "
        "integers of its template in lower case. For template <typename T, int TILE, int NTB> these are --tile 16 "
        "--ntb 3."
    )
    tracing = commands.add_parser(
        "trace",
        allow_abbrev=False,
        help="count what a kernel asks of memory, and find its faults, without a GPU",
        description="Run one kernel, such as f(const T* A, const T* B, T* C, int n, int p, int m), on the CPU "
        "emulator; count what it asks of memory; report races, accesses out of bounds, reads of what was never "
        "written, barriers that not all threads reach, and wrong products. Exit status: 0 without a fault, 1 with one, "
        "2 if it cannot run.",
        epilog=epilog,
    )
    reading = commands.add_parser(
        "machine-code",
        allow_abbrev=False,
        help="count the instructions of a kernel's multiply-add loop, without a GPU",
        description="Compile one kernel for a GPU, which need not be here, and count the instructions of its innermost "
        "loop with the most multiply-adds, by kind. Exit status: 0, or 2 if it does not compile.",
        epilog=epilog,
    )
    reading.add_argument(
        "--capability",
        type=_capability,
        default="9.0",
        metavar="X.Y",
        help="compute capability to compile for (9.0); a kernel that is not in the registry may want 9.0a",
    )
    tracing.add_argument(
        "--limit",
        type=_seconds,
        default=120.0,
        metavar="SECONDS",
        help="give the kernel up after so many seconds of computing (120)",
    )
    tracing.add_argument(
        "--columns",
        type=_matrices,
        default=(),
        metavar="B",
        help="those of A, B and C that lie in memory column after column, such as A,B,C (none)",
    )
    tracing.add_argument(
        "--short-sums",
        action="store_true",
        help="it keeps sums of half or bfloat16 in that type, not in float",
    )
    keeping = commands.add_parser(
        "tuned",
        help="show the choices of the tuner, and keep them in the registry",
        description="Print what `snakemake --cores all tune` chose on a machine, as lines of kernels/tuned.yaml, from "
        "which sweeps with `tuned: true` take their parameters. Exit status: 0, or 2 if nothing was chosen.",
    )
    keeping.add_argument("folder", type=Path, help="results of a machine, such as results/nvidia-h200")
    keeping.add_argument("--write", action="store_true", help="write them into kernels/tuned.yaml")
    tracing.set_defaults(run=trace)
    reading.set_defaults(run=machine_code)
    for command, shape in ((tracing, (33, 35, 70)), (reading, (4096, 4096, 4096))):
        _add_kernel(command, shape)
    own = {option for command in (tracing, reading) for action in command._actions for option in action.option_strings}
    named = dict.fromkeys(word.split("=")[0] for word in words if re.match(r"--[A-Za-z_]", word))
    parameters = [option.removeprefix("--") for option in named if option not in own]
    for name in parameters:
        for command in (tracing, reading):
            command.add_argument(f"--{name}", type=_whole, dest=f"parameter {name}", help=argparse.SUPPRESS)
    return parser, parameters


def _add_kernel(command: argparse.ArgumentParser, shape: tuple[int, int, int]) -> None:
    """Add the options that say which kernel, and at which point; `shape` is the default."""
    command.add_argument("file", type=Path, help="the .cu file")
    command.add_argument("--dtype", default="float", choices=PRECISIONS, help="element type (float)")
    text = "x".join(map(str, shape))
    command.add_argument(
        "--shape", type=_sizes(3), default=shape, metavar="NxPxM", help=f"A is n x p, B p x m ({text})"
    )
    command.add_argument(
        "--block", type=_sizes(2, 3), metavar="XxY", help="threads of a block, 32 along x in 32x8; XxYxZ too"
    )
    other = command.add_argument_group("a kernel that is not in the registry")
    other.add_argument("--name", help="the kernel's name (the file's)")
    other.add_argument(
        "--covers", type=_sizes(2), metavar="RxC", help="rows and columns of C per block (one per thread)"
    )
    other.add_argument("--grid", metavar="X,Y,Z", help="blocks, in place of --covers, such as 'ceil_div(m,64),n'")
    other.add_argument("--cluster", metavar="X,Y,Z", help="blocks of a cluster (what its __cluster_dims__ says)")
    other.add_argument(
        "--arguments",
        help=f"what it is called with ({','.join(DEFAULT_ARGUMENTS)}), such as n,m,p,float:1.0,A,B,float:0.0,C",
    )
    other.add_argument("--template", help="template arguments, such as dtype,tile (what the file's template takes)")
    other.add_argument("--dynamic-shared", type=int, metavar="BYTES", help="dynamic shared memory of a block")
    other.add_argument("--reads-c", action="store_true", help="it reads C, as alpha * sum + beta * C does")


def _whole(text: str) -> int:
    return int(text)


def _matrices(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not set(names) <= set("ABC"):
        raise ValueError
    return names


_matrices.__name__ = "list of matrices (wanted: A,B,C or some of them)"


def _capability(text: str) -> str:
    if not re.fullmatch(r"\d+\.\d[af]?", text):
        raise ValueError
    return text


_capability.__name__ = "compute capability (such as 9.0)"


_whole.__name__ = "whole number"  # argparse: invalid whole number value


def _positive(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise ValueError
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError
    return value


_seconds.__name__ = "number of seconds"


def _sizes(*counts: int) -> Callable[[str], tuple[int, ...]]:
    def sizes(text: str) -> tuple[int, ...]:
        values = tuple(_positive(word) for word in text.split("x"))
        if len(values) not in counts:
            raise ValueError
        return values

    sizes.__name__ = f"size (wanted: {'x'.join(['64'] * counts[0])})"
    return sizes


# ---- The kernel ------------------------------------------------------------------------------------------------------


def find_kernel(options: argparse.Namespace, given: dict[str, int]) -> tuple[Kernel, Point]:
    """The kernel of a file and the point to trace: as the registry has it, or as the options say.

    `given` are the parameters on the command line. Raises UserError if the file is not there, is not understood, or a
    parameter is missing or cannot be.
    """
    path = options.file
    if '"' in str(path) or "\n" in str(path):
        raise UserError(f"{path}: no compiler takes a file of that name; choose another")
    try:
        there = path.is_file()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    if not there:
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*.cu") if p.is_file()], n=1)
        hint = f"; did you mean {path.with_name(near[0])}?" if near else ""
        raise UserError(f"there is no file {path}{hint}")
    defaults: dict[str, int] = {}
    registered = _registered(path)
    if registered:
        kernel = registered
        for option in ("covers", "grid", "cluster", "arguments", "template", "dynamic_shared", "reads_c"):
            if getattr(options, option):
                place = shown(kernel.folder / "registry.yaml")
                raise UserError(f"--{option.replace('_', '-')}: {kernel.name} has it from {place}; change it there")
    else:
        kernel, defaults = _described(path, options, given)
    if options.dtype not in kernel.dtypes:
        raise UserError(f"--dtype: {kernel.name} is not for {options.dtype}; it takes {', '.join(kernel.dtypes)}")
    own = [name for name in kernel.parameters if name != "block"]
    for name in given:
        if name not in own:
            takes = ", ".join(f"--{own_name}" for own_name in own) or "no parameter"
            raise UserError(f"--{name}: {kernel.name} does not take it; it takes {takes}")
    choice = defaults | given
    for name in own:
        least = kernel.least.get(name, 1)
        if name not in choice:
            example = {"ntb": 3}.get(name, 16)
            raise UserError(f"{shown(path)}: {kernel.name} needs --{name}, for example --{name} {example}")
        if choice[name] < least:
            raise UserError(f"--{name}: {choice[name]}; {kernel.name} takes whole numbers of at least {least}")
    parameters = _block(kernel, options) | {name: choice[name] for name in own}
    n, p, m = options.shape
    point = Point("trace", kernel.name, options.dtype, n, p, m, tuple(parameters.items()))
    try:
        unmet = kernel.unmet(point)
        if not unmet:
            kernel.plan(point)
    except UserError as error:
        if registered:
            raise
        # The entry is made of options: name these, not a registry that is not there.
        raise UserError(str(error).replace(f"{kernel.folder / 'registry.yaml'}: {kernel.name}.", "--")) from None
    if unmet:
        raise UserError(f"{shown(path)}: {kernel.name} requires {unmet}; choose other sizes")
    return kernel, point


def _block(kernel: Kernel, options: argparse.Namespace) -> dict[str, int]:
    """The columns of the parameter `block`, if the kernel has it."""
    if "block" not in kernel.parameters:
        if options.block is not None:
            raise UserError(f"--block: {kernel.name} does not take it; its block follows from its other parameters")
        return {}
    if options.block is None:
        raise UserError(f"{shown(options.file)}: {kernel.name} needs --block, for example --block 32x8")
    if math.prod(options.block) > MAX_THREADS_PER_BLOCK:
        size = "x".join(map(str, options.block))
        raise UserError(f"--block: {size} is more than {MAX_THREADS_PER_BLOCK} threads; for example --block 32x8")
    x, y, *z = options.block
    if z and kernel.launches[0].block[2:] != tuple(z):
        raise UserError(f"--block: {kernel.name} takes threads along x and y, for example --block 32x8")
    return {"block_x": x, "block_y": y}


def _registered(path: Path) -> Kernel | None:
    """The registry's kernel of this file, from the folder that the file is in or the one above it; or None."""
    for folder in path.resolve().parents[:2]:
        if (folder / "registry.yaml").is_file():
            kernels = registry.load(folder).values()
            found = next((k for k in kernels if k.kind == "cuda" and k.path.resolve() == path.resolve()), None)
            if found:
                return found
    return None


def _described(path: Path, options: argparse.Namespace, given: dict[str, int]) -> tuple[Kernel, dict[str, int]]:
    """A kernel as the command line describes it, and the values that its template has for parameters not given."""
    declared = functions(path)
    wanted = options.name or path.stem
    name = _named(declared, wanted)
    if not name and not options.name and len(declared) == 1:
        [name] = declared
    if not name:
        hint = f"it has {', '.join(declared)}; name one with --name" if declared else "it has none"
        raise UserError(f"{shown(path)}: there is no __global__ function '{wanted}'; {hint}")
    known = {*POINT_NAMES, *numbers(None), *FUNCTIONS, "dtype", "block_x", "block_y"}
    defaults: dict[str, int] = {}
    if options.template is not None:
        template = tuple(_split(options.template))
    else:
        template, defaults = _template(declared[name], f"{shown(path)}: ", known)
    own = [word for part in template for word in re.findall(r"[A-Za-z_]\w*", part)]
    parameters = tuple(dict.fromkeys(word for word in own if word not in known))
    block: tuple[str | int, ...] = ("tile", "tile")
    if options.block or "tile" not in given:
        block = ("block_x", "block_y", *(options.block or ())[2:])
        parameters += ("block",)
    launch = LaunchEntry(
        function=name,
        template=template,
        block=block,
        covers=options.covers or (block[1], block[0]),
        grid=tuple(_split(options.grid or "")),
        # As in its template, the names of numbers are options in lower case.
        cluster=tuple(_split(options.cluster)) if options.cluster else tuple(map(str.lower, declared[name].cluster)),
        dynamic_shared_bytes=options.dynamic_shared or 0,
        arguments=_arguments(options.arguments) if options.arguments else DEFAULT_ARGUMENTS,
    )
    kernel = Kernel(
        name=name,
        title=name,
        kind="cuda",
        dtypes=tuple(PRECISIONS),
        source=path.name,
        parameters=parameters,
        least=dict.fromkeys(parameters, -(2**31)),  # whatever its template takes
        launches=(launch,),
        reads_c=options.reads_c,
        folder=path.resolve().parent,
    )
    return kernel, defaults


def _named(declared: Iterable[str], name: str) -> str | None:
    """The function of that name, in a namespace perhaps, if there is only one."""
    found = [each for each in declared if each == name] or [each for each in declared if each.split("::")[-1] == name]
    return found[0] if len(found) == 1 else None


def _split(text: str) -> list[str]:
    """The parts of a list whose commas are not those of a function's arguments."""
    return [word.strip() for word in re.split(r",(?![^()]*\))", text) if word.strip()]


def _arguments(text: str) -> tuple:
    """--arguments as the registry has them: `float:1.0` is {float: 1.0}."""
    return tuple({w.split(":")[0].strip(): w.split(":", 1)[1]} if ":" in w else w for w in _split(text))


_INTEGERS = {"int", "unsigned", "signed", "long", "short", "char", "bool", "size_t", "uint", "const"}


def _template(function: Function, place: str, known: Iterable[str]) -> tuple[tuple[str, ...], dict[str, int]]:
    """The template arguments of a kernel, from its template parameters, and the defaults that are whole numbers."""
    template: list[str] = []
    defaults: dict[str, int] = {}
    for parameter in function.template:
        option = parameter.name.lower()
        if parameter.type[0] in ("typename", "class"):
            template.append("dtype")
            continue
        words = [word for word in parameter.type if word not in ("std", "::")]
        integer = all(word in _INTEGERS or re.fullmatch(r"u?int\d+_t", word) for word in words)
        if not integer or not option or option in known:
            raise UserError(
                f"{place}what is the template argument '{option}' of {function.name}? Say it with --template, a list "
                "in its order of dtype, numbers, and names of your own such as tile, which become options"
            )
        template.append(option)
        default = re.sub(r"(?<=\d)[uUlL]+\b", "", parameter.default)
        default = {"false": "0", "true": "1"}.get(default, default)
        with contextlib.suppress(UserError, ArithmeticError, TypeError, ValueError):
            value = evaluate(default, {}) if default else None
            if isinstance(value, int):
                defaults[option] = int(value)
    return tuple(template), defaults


if __name__ == "__main__":
    sys.exit(main())
