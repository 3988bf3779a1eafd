"""The command `tilewise`: what a kernel does to memory (trace), and what its machine code is made of (machine-code)."""

import argparse
import contextlib
import math
import re
import signal
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from tilewise import KERNELS, ROOT, UserError
from tilewise.compile import cpp
from tilewise.compile.cpp import shown
from tilewise.microscope import request
from tilewise.microscope.described import add_options, find_kernel, option_type
from tilewise.microscope.emulator import LaunchError
from tilewise.microscope.formats import FORMATS, Report
from tilewise.microscope.multiplication import trace_point
from tilewise.microscope.product import Convention
from tilewise.study import registry, tuning
from tilewise.study.columns import COLUMNS

WHOLE_NUMBER = option_type("whole number", int)
CAPABILITY = option_type("compute capability (such as 9.0)", str, re.compile(r"\d+\.\d[af]?").fullmatch)
SECONDS = option_type("number of seconds", float, lambda value: 0 < value < math.inf)
TOLERANCE = option_type("tolerance (such as 1e-5)", float, lambda value: 0 <= value < math.inf)
MATRICES = option_type(
    "list of matrices (wanted: A,B,C or some of them)", lambda text: tuple(text.split(",")), set("ABC").issuperset
)


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
        lines, status = options.run(options, given)
    except (UserError, LaunchError) as error:
        print(f"tilewise: {error}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return status


def trace(options: argparse.Namespace, given: dict[str, int]) -> tuple[list[str], int]:
    """The faults and the traffic of a kernel as lines, and 1 if there is a fault, else 0."""
    # What a kernel prints is no part of what a program reads.
    with contextlib.redirect_stdout(sys.stdout if options.format == "text" else sys.stderr):
        report = request.report(options, given) if request.is_meant(options) else _product(options, given)
    return FORMATS[options.format](report), 0 if report.ok else 1


def _product(options: argparse.Namespace, given: dict[str, int]) -> Report:
    """What is found in a kernel that is a product of A and B."""
    kernel, point = find_kernel(options, given)
    cpp.check()
    convention = Convention(options.columns, options.short_sums)
    row, found = trace_point(kernel, point, limit=options.limit, convention=convention)
    product = kernel.plan(point).product
    assert product is not None  # a CUDA kernel has one
    threads = "x".join(map(str, product.block if product.block[2] > 1 else product.block[:2]))
    title = f"{point.kernel} {point.dtype} {point.n}x{point.p}x{point.m}, blocks of {threads} threads"
    at = {"kernel": point.kernel, "dtype": point.dtype, **point.shape, "block": product.block, **dict(point.parameters)}
    return Report(title, at, row, found)


def machine_code(options: argparse.Namespace, given: dict[str, int]) -> tuple[list[str], int]:
    """The instructions of the multiply-add loop of a point's machine code as lines, by kind; and 0."""
    from tilewise.explain import machine_code as reader  # not every installation has what it needs

    kernel, point = find_kernel(options, given)
    row = reader.examine(kernel, point, options.capability)
    lines = [
        f"{row['instance']} for {row['architecture']}: {row['registers']} registers, {row['spill_bytes']} B spilled"
    ]
    if "instructions" not in row:
        return [*lines, "  no loop with multiply-adds"], 0
    total = row["instructions"]
    lines.append(f"  {'innermost multiply-add loop: instructions':50}{total:>8,d}")
    counts = {f"  {row['multiply_add']}": row["multiply_add_instructions"]}
    counts |= {f"  {COLUMNS[name].meaning}": row[name] for name in (*reader.OPCODES, "other")}
    for words, count in counts.items():
        if count:
            lines.append(f"  {words:52}{count:>8,d}{count / total:>8.1%}")
    lines.append(f"  {COLUMNS['reused_operands'].meaning:50}{row['reused_operands']:>8,d}")
    return lines, 0


def _tuned(options: argparse.Namespace) -> int:
    """`tilewise tuned`: print the tuner's choices, or write them into the registry; returns the exit status."""
    from tilewise import evidence  # pandas and what comes with it: a second that the microscope does not need

    try:
        found = evidence.choices(options.folder, registry.load())
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
        "written, barriers that not all threads reach, and wrong results. Exit status: 0 without a fault, 1 with one, "
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
        type=CAPABILITY,
        default="9.0",
        metavar="X.Y",
        help="compute capability to compile for (9.0); a kernel that is not in the registry may want 9.0a",
    )
    tracing.add_argument(
        "--limit",
        type=SECONDS,
        default=120.0,
        metavar="SECONDS",
        help="give the kernel up after so many seconds of computing (120)",
    )
    tracing.add_argument(
        "--columns",
        type=MATRICES,
        default=(),
        metavar="B",
        help="those of A, B and C that lie in memory column after column, such as A,B,C (none)",
    )
    tracing.add_argument(
        "--short-sums",
        action="store_true",
        help="it keeps sums of half or bfloat16 in that type, not in float",
    )
    tracing.add_argument(
        "--format", choices=FORMATS, default="text", help="text, json, or github: annotations of a pull request (text)"
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
    request.add_options(tracing, TOLERANCE)
    for command, shape in ((tracing, (33, 35, 70)), (reading, (4096, 4096, 4096))):
        add_options(command, shape)
    own = {option for command in (tracing, reading) for action in command._actions for option in action.option_strings}
    named = dict.fromkeys(word.split("=")[0] for word in words if re.match(r"--[A-Za-z_]", word))
    parameters = [option.removeprefix("--") for option in named if option not in own]
    for name in parameters:
        for command in (tracing, reading):
            command.add_argument(f"--{name}", type=WHOLE_NUMBER, dest=f"parameter {name}", help=argparse.SUPPRESS)
    return parser, parameters


if __name__ == "__main__":
    sys.exit(main())
