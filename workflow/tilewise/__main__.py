"""The command `tilewise`: one kernel without a GPU, and the parts and the results of a study."""

import argparse
import contextlib
import dataclasses
import json
import math
import re
import signal
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import shtab

from kernelscope import cli, cpp
from kernelscope.cli import option_type
from kernelscope.cpp import display_path
from kernelscope.emulator import LaunchError
from kernelscope.formats import Report, refusal
from tilewise import KERNELS, ROOT, UserError, evidence, grade, inventory
from tilewise.files import collect_rarely
from tilewise.measure.machine_code import examine
from tilewise.nvidia.sass import OPCODES
from tilewise.recorded import commands as recorded
from tilewise.study import registry, tuning
from tilewise.study.columns import COLUMNS
from tilewise.study.sources import INCLUDE
from tilewise.traced.multiplication import trace_point
from tilewise.traced.product import Convention
from tilewise.traced.select import add_options, find_kernel

CAPABILITY = option_type("compute capability (such as 9.0)", str, re.compile(r"\d+\.\d[af]?").fullmatch)
TOLERANCE = option_type("tolerance (such as 1e-5)", float, lambda value: 0 <= value < math.inf)
KIND = option_type("kind (tasks, kernels or claims)", str, {"tasks", "kernels", "claims"}.__contains__)
MATRICES = option_type(
    "list of matrices (wanted: A,B,C or some of them)", lambda text: tuple(text.split(",")), set("ABC").issuperset
)
#: The options of a kernel that is a product.
OF_PRODUCTS = (
    *("name", "dtype", "shape", "covers", "arguments", "template", "columns", "short_sums"),
    *("alpha", "beta", "initial", "ld", "reads_c", "scheme"),
)
#: How argparse's name of a kernel's parameter begins, which may have the name of an option.
PARAMETER = "parameter "


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status: 0, 1 if the kernel has a fault, 2 if the command is wrong."""
    if arguments is None:
        # A kernel may run for ever, and then only the default action stops it; nor is `| head` worth a traceback.
        for number in (signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        collect_rarely()
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser(words).parse_args(words)
    named = {key.removeprefix(PARAMETER): value for key, value in vars(options).items() if key.startswith(PARAMETER)}
    given = {name: value for name, value in named.items() if value is not None}
    try:
        lines, status = options.run(options, given)
    except (UserError, LaunchError) as error:
        print(f"tilewise: {error}", file=sys.stderr)
        for line in refusal(getattr(options, "format", "text"), str(error)):
            print(line)
        return 2
    print("\n".join(lines))
    return status


def trace(options: argparse.Namespace, given: dict[str, int]) -> tuple[list[str], int]:
    """The faults and the traffic of a kernel as lines, and 1 if there is a fault, else 0."""
    return cli.run_trace(options, lambda: _call(options, given) if cli.is_meant(options) else _product(options, given))


def _call(options: argparse.Namespace, given: dict[str, int]) -> Report:
    """What is found in a kernel that is no product. Raises UserError for options that are for products."""
    for name in OF_PRODUCTS:
        if getattr(options, name) not in (None, False, ()):
            what = f"--{name.replace('_', '-')}"
            raise UserError(f"{what} is for products of A and B; take it out, or --function, --arg and --expect")
    for name, value in given.items():
        raise UserError(f"--{name}: there is no such option; template arguments are a part of --function 'f<{value}>'")
    return cli.report(options)


def _product(options: argparse.Namespace, given: dict[str, int]) -> Report:
    """What is found in a kernel that is a product of A and B."""
    kernel, point = find_kernel(options, given)
    cpp.check()
    scheme = "short_sums" if options.short_sums else kernel.wanted.scheme
    convention = Convention(
        options.columns or kernel.column_major, dataclasses.replace(kernel.wanted, scheme=scheme), bool(kernel.ld)
    )
    row, found = trace_point(kernel, point, limit=options.limit, convention=convention)
    product = kernel.plan(point).product
    assert product is not None  # a CUDA kernel has one
    threads = "x".join(map(str, product.block if product.block[2] > 1 else product.block[:2]))
    times = f"{point.batch} times " if point.batch > 1 else ""
    title = f"{point.kernel} {point.dtype} {times}{point.n}x{point.p}x{point.m}, blocks of {threads} threads"
    at = {"kernel": point.kernel, "dtype": point.dtype, **point.shape, "block": product.block, **dict(point.parameters)}
    return Report(title, at, row, found)


def machine_code(options: argparse.Namespace, given: dict[str, int]) -> tuple[list[str], int]:
    """The instructions of the multiply-add loop of a point's machine code as lines, by kind; and 0."""
    kernel, point = find_kernel(options, given)
    row = examine(kernel, point, options.capability)
    lines = [
        f"{row['instance']} for {row['architecture']}: {row['registers']} registers, {row['spill_bytes']} B spilled"
    ]
    if "instructions" not in row:
        return [*lines, "  no loop with multiply-adds"], 0
    total = row["instructions"]
    lines.append(f"  {'innermost multiply-add loop: instructions':50}{total:>8,d}")
    counts = {f"  {row['multiply_add']}": row["multiply_add_instructions"]}
    counts |= {f"  {COLUMNS[name].meaning}": row[name] for name in (*OPCODES, "other")}
    for words, count in counts.items():
        if count:
            lines.append(f"  {words:52}{count:>8,d}{count / total:>8.1%}")
    lines.append(f"  {COLUMNS['reused_operands'].meaning:50}{row['reused_operands']:>8,d}")
    return lines, 0


def tuned(options: argparse.Namespace, given: dict[str, int]) -> tuple[list[str], int]:
    """The tuner's choices as lines of tuned.yaml, or where they were written; and 0."""
    found = evidence.choices(options.folder, registry.load())
    if options.write:
        return [f"written into {display_path(tuning.write(found, KERNELS))}; see what changed with `git diff`"], 0
    return tuning.text(found).splitlines(), 0


def list_study(options: argparse.Namespace, given: dict[str, int]) -> tuple[list[str], int]:
    """The tasks, kernels and claims as lines, or as one of JSON; and 0."""
    found = inventory.everything()
    found = {kind: found[kind] for kind in options.kinds or found}
    return [json.dumps(found)] if options.json else list(inventory.list_lines(found)), 0


def status(options: argparse.Namespace, given: dict[str, int]) -> tuple[list[str], int]:
    """The state of the results as lines, or as one of JSON; and 1 if a point is not right, else 0."""
    found = inventory.status(options.folder)
    if options.junit:
        inventory.write_junit(options.folder, options.junit)
    wrong = any(task["not_right"] for tasks in found["platforms"].values() for task in tasks.values())
    return [json.dumps(found)] if options.json else list(inventory.status_lines(found)), int(wrong)


def write_assignment(options: argparse.Namespace, given: dict[str, int]) -> tuple[list[str], int]:
    """Where source a's assignment was written, with or without its answers; and 0."""
    from tilewise.report import render  # takes a second, which the other commands do not need

    file = options.output or Path("results") / ("questions.html" if options.questions else "answers.html")
    render.write_assignment(file, answers=not options.questions)
    return [f"written: {display_path(file)}"], 0


def _value_of_parameter(text: str) -> int:
    """The value of an option that the command lacks, and which is therefore a parameter of the kernel."""
    try:
        return int(text)
    except ValueError:
        words = f"'{text}' is not a whole number; an unknown option is a kernel parameter (--help lists the others)"
        raise argparse.ArgumentTypeError(words) from None


def _parser(words: Iterable[str]) -> argparse.ArgumentParser:
    """The parser; a kernel's parameters are those options in `words` that a command does not have."""
    parser = argparse.ArgumentParser(
        prog="tilewise",
        description="Tilewise is a reproducible study of CUDA matrix multiplication: `make report` in its folder "
        "measures this machine and renders results/report.html. This command examines one kernel without a GPU, and "
        "lists the parts and the results of a study.",
        epilog="`tilewise trace --help` lists the options. docs/microscope.md shows what it finds.",
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    parser.add_argument("--version", action="version", version=f"tilewise {project['version']}")
    shtab.add_argument_to(parser)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    of_kernels = _add_commands_on_kernels(commands)
    _add_commands_on_runs(commands)
    recorded.add(commands)
    grade.add(commands)
    for option in dict.fromkeys(word.split("=")[0] for word in words if re.match(r"--[A-Za-z_]", word)):
        for command in of_kernels:
            with contextlib.suppress(argparse.ArgumentError):  # the command has an option of this name
                name = PARAMETER + option.removeprefix("--")
                command.add_argument(option, type=_value_of_parameter, dest=name, help=argparse.SUPPRESS)
    return parser


def _add_commands_on_kernels(commands: Any) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """Add what examines one kernel to the subparsers; returns both commands."""
    epilog = (
        "Each parameter of the kernel is an option too: those of its entry in registry.yaml, or, without one, the "
        "integers of its template in lower case. For template <typename T, int TILE, int NTB> these are --tile 16 "
        "--ntb 3."
    )
    tracing = commands.add_parser(
        "trace",
        allow_abbrev=False,
        help="count a kernel's memory accesses, and find its faults, without a GPU",
        description="Run one kernel, such as f(const T* A, const T* B, T* C, int n, int p, int m), on the CPU "
        "emulator; count its memory accesses; report races, accesses out of bounds, reads of what was never "
        "written, barriers that not all threads reach, and wrong results. Exit status: 0 without a fault, 1 with one, "
        "2 if it cannot run.",
        epilog=epilog,
    )
    tracing.add_argument(
        "--columns",
        type=MATRICES,
        default=(),
        metavar="B",
        help="those of A, B and C that lie in memory column after column, such as A,B,C (none)",
    )
    tracing.add_argument(
        "--short-sums", action="store_true", help="it keeps sums of half or bfloat16 in that type, not in float"
    )
    cli.add_options(tracing, TOLERANCE)
    cli.add_run_options(tracing)
    add_options(tracing, (33, 35, 70))
    tracing.set_defaults(run=trace, include=[INCLUDE])
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
    add_options(reading, (4096, 4096, 4096))
    reading.set_defaults(run=machine_code)
    return tracing, reading


def _add_commands_on_runs(commands: Any) -> None:
    """Add what lists and writes the parts and the results of a study to the subparsers."""
    keeping = commands.add_parser(
        "tuned",
        help="show the choices of the tuner, and keep them in the registry",
        description="Print what `snakemake --cores all tune` chose on a machine, as lines of kernels/tuned.yaml, from "
        "which sweeps with `tuned: true` take their parameters. Exit status: 0, or 2 if nothing was chosen.",
    )
    keeping.add_argument("folder", type=Path, help="results of a machine, such as results/nvidia-h200")
    keeping.add_argument("--write", action="store_true", help="write them into kernels/tuned.yaml")
    keeping.set_defaults(run=tuned)
    listing = commands.add_parser(
        "list",
        help="list the tasks, the kernels and the claims, with their titles",
        description="List the tasks of config/config.yaml, the kernels of the registry and the claims of the sources.",
    )
    listing.add_argument("kinds", nargs="*", metavar="KIND", type=KIND, help="tasks, kernels or claims (all)")
    listing.set_defaults(run=list_study)
    showing = commands.add_parser(
        "status",
        help="show which tasks of a run are finished, and which points are not right",
        description="Show how far a run is. Exit status: 0 if all points are right, 1 if not, 2 without results.",
    )
    showing.add_argument("folder", nargs="?", type=Path, default=Path("results"), help="folder of a run (results)")
    showing.add_argument("--junit", type=Path, metavar="FILE", help="write the points as a JUnit file, too")
    showing.set_defaults(run=status)
    for command in (listing, showing):
        command.add_argument("--json", action="store_true", help="as JSON")
    setting = commands.add_parser(
        "assignment",
        help="write the assignment of source a as a page, with the answers or, to hand it out, without",
        description="Write the seven tasks of source a as one page: its numbers, those of the recorded runs, an "
        "empty column, and the answers. No run is needed. Exit status: 0, or 2 if it cannot be written.",
    )
    setting.add_argument("--questions", action="store_true", help="leave the answers out, for a hand-out")
    setting.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="(results/questions.html with --questions, else results/answers.html)",
    )
    setting.set_defaults(run=write_assignment)


if __name__ == "__main__":
    sys.exit(main())
