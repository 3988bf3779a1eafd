"""The command `kernelscope`: calls of any kernel, described by options or by a YAML file of the same keys."""

import argparse
import contextlib
import logging
import math
import re
import signal
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kernelscope import __version__
from kernelscope.argument_values import TYPES
from kernelscope.calls import Call, build, trace
from kernelscope.compile import functions, layouts_of
from kernelscope.cpp import display_path
from kernelscope.declarations import Parameter, check_file, find_function
from kernelscope.emulator import LaunchError
from kernelscope.errors import UserError
from kernelscope.formats import FORMATS, Report, allow, refusal
from kernelscope.proposals import proposed
from kernelscope.sources import PACKAGE, Source, code_of, has_host_code
from kernelscope.yaml_input import check, read_yaml

#: The options that describe a call, of a YAML file the keys, and those that describe its launch.
DESCRIBING = ("function", "arg", "variable", "expect", "tolerance")
LAUNCH = ("grid", "block", "cluster", "shared", "cooperative")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status: 0, 1 if the kernel has a fault, 2 if it cannot run."""
    if arguments is None:
        # A kernel may run for ever, and then only the default action stops it; nor is `| head` worth a traceback.
        for number in (signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        logging.basicConfig(format="kernelscope: %(message)s", level=logging.INFO)
    options = _parser().parse_args(arguments)
    try:
        lines, status = run_trace(options, lambda: report(options))
    except (UserError, LaunchError) as error:
        print(f"kernelscope: {error}", file=sys.stderr)
        print(*refusal(options.format, str(error)), sep="\n", end="\n" if options.format != "text" else "")
        return 2
    print("\n".join(lines))
    return status


def run_trace(options: argparse.Namespace, make: Callable[[], Report]) -> tuple[list[str], int]:
    """The Report that `make` returns as lines in the format of the options, and 1 if there is a fault, else 0."""
    # What a kernel prints is no part of what a program reads.
    with contextlib.redirect_stdout(sys.stdout if options.format == "text" else sys.stderr):
        found = allow(make(), options.allow, "--allow")
    return FORMATS[options.format](found), 0 if found.ok else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kernelscope",
        allow_abbrev=False,
        description="Run a CUDA kernel on the CPU with every access to memory watched; count its accesses as the "
        "hardware would; report races, accesses out of bounds, reads of what was never written, barriers that not all "
        "threads reach, deadlocks, and wrong results. Exit status: 0 without a fault, 1 with one, 2 if it cannot run.",
    )
    parser.add_argument("--version", action="version", version=f"kernelscope {__version__}")
    parser.add_argument("file", type=Path, help="the .cu file, or a YAML file with these options as keys")
    parser.add_argument("--grid", metavar="XxY", help="blocks of the grid, such as 16, 4x2 or 4x2x2 (1)")
    parser.add_argument("--block", metavar="XxY", help="threads of a block, 32 along x in 32x8")
    parser.add_argument("--cluster", metavar="XxY", help="blocks of a cluster (what its __cluster_dims__ says)")
    parser.add_argument("--shared", type=int, default=0, metavar="BYTES", help="dynamic shared memory of a block (0)")
    parser.add_argument(
        "--cooperative", action="store_true", help="it is launched so that cg::this_grid().sync() works"
    )
    add_options(parser, option_type("tolerance (such as 1e-5)", float, lambda value: 0 <= value < math.inf))
    add_run_options(parser)
    parser.add_argument(
        "--include", "-I", action="append", default=[], type=Path, metavar="FOLDER", help="a folder of headers"
    )
    return parser


def option_type(
    name: str, read: Callable[[str], Any], holds: Callable[[Any], object] = lambda value: True
) -> Callable[[str], Any]:
    """A type of options for argparse, whose message is `invalid NAME value` for a text that does not hold."""

    def option(text: str) -> Any:
        value = read(text)
        if not holds(value):
            raise ValueError
        return value

    option.__name__ = name
    return option


def add_run_options(command: argparse.ArgumentParser) -> None:
    """Add the options of every trace: its limit and its format."""
    command.add_argument(
        "--limit",
        type=option_type("number of seconds", float, lambda value: 0 < value < math.inf),
        default=120.0,
        metavar="SECONDS",
        help="give the kernel up after so many seconds of computing (120)",
    )
    command.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="text, json, github (annotations of a pull request), sarif, or junit (text)",
    )
    command.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="KIND",
        help="list faults of this kind without counting them, such as race, or race:12 of line 12; a comment "
        "`// kernelscope: allow KIND` does so for its line and the next",
    )


def add_options(command: argparse.ArgumentParser, number: Any) -> None:
    """Add the options that describe a call; `number` is the type of one that is no less than 0."""
    own = command.add_argument_group(
        "what it is called with",
        "Or FILE is a YAML file with these options as keys.",
    )
    own.add_argument("--function", metavar="F", help="the function, such as scale or 'scale<float>' (the only one)")
    own.add_argument(
        "--arg",
        action="append",
        metavar="NAME=VALUE",
        help="what a parameter is given: 'float[64x64]:random', also zero, ramp, a .npy file or nothing (not written "
        "yet), 'const float[64]:ramp' if it must stay as it is, 'int:64', or 64 for a number of the parameter's type",
    )
    own.add_argument(
        "--variable", action="append", metavar="NAME=VALUE", help="what a __constant__ or __device__ variable holds"
    )
    own.add_argument("--expect", action="append", metavar="NAME=FILE.npy", help="what an array must hold at the end")
    own.add_argument(
        "--tolerance", type=number, metavar="T", help="an element may differ by T * (1 + |expected|) (0: not at all)"
    )


def is_meant(options: argparse.Namespace) -> bool:
    """Whether the options are about a kernel that is no product."""
    return options.file.suffix in (".yaml", ".yml") or any(getattr(options, name, None) for name in DESCRIBING)


def report(options: argparse.Namespace) -> Report:
    """The Report of the calls that the options describe. Raises what `trace` raises."""
    if options.file.suffix in (".yaml", ".yml"):
        return _of_file(options)
    if (options.block is None or not options.arg) and (found := _proposed(options)):
        raise UserError(found)
    if options.block is None:
        raise UserError(f"{display_path(options.file)}: how many threads has a block? Say it, for example --block 256")
    call = Call(
        options.function,
        options.grid or 1,
        options.block,
        shared=options.shared or 0,
        cluster=options.cluster,
        cooperative=options.cooperative,
    )
    arguments, variables, expect = (_pairs(name, getattr(options, name)) for name in ("arg", "variable", "expect"))
    return trace(
        build(options.file, call.function, includes=options.include),
        call,
        arguments,
        variables=variables,
        expect=expect,
        tolerance=options.tolerance or 0.0,
        limit=options.limit,
    )


def _proposed(options: argparse.Namespace) -> str:
    """What the host code of the file launches, as a message with command lines; "" if nothing has to be added."""
    check_file(options.file)
    if not has_host_code(code_of(options.file)):
        return ""
    source = Source(options.file, includes=tuple(options.include))
    if not (declared := functions(source)):
        raise UserError(f"{display_path(options.file)}: there is no __global__ function in it")
    name = find_function(declared, (options.function or "").partition("<")[0].strip())
    if options.block and name and not declared[name].parameters:
        return ""
    return proposed(source, declared, lambda instance, number: _fields(source, instance)[number], name)


@cache
def _fields(source: Source, instance: str) -> list[dict[str, Parameter]]:
    """The fields of each parameter of an instance that are numbers, or pointers to numbers."""
    return [
        {name: one for name, (held, *_) in (dtype.fields or {}).items() if (one := _field(name, held))}
        for dtype in layouts_of(source, [instance]).parameters[instance]
    ]


def _field(name: str, dtype: np.dtype) -> Parameter | None:
    """A field as a parameter is declared; None if it is neither a number nor a pointer to numbers."""
    element = dtype.metadata["to"] if dtype.metadata else dtype
    named = next((each for each, known in TYPES.items() if known == element), None) if element is not None else None
    return Parameter(named, name, "", bool(dtype.metadata)) if named else None


def _of_file(options: argparse.Namespace) -> Report:
    for name in (*DESCRIBING, *LAUNCH):
        if getattr(options, name):
            what = f"--{name.replace('_', '-')}"
            raise UserError(f"{what}: {display_path(options.file)} says what is launched; change it there")
    path: Path = options.file
    told = read_yaml(path)
    check(told, _schema(), display_path(path))
    alone = {name: told[name] for name in ("function", *LAUNCH) if name in told}
    if bool(alone) == ("launches" in told) or ("block" not in alone and "launches" not in told):
        raise UserError(
            f"{display_path(path)}: describe one launch by function, grid and block, or several by launches"
        )
    calls = [Call(**call) for call in told.get("launches", [alone])]
    source = path.parent / told.get("file", f"{path.stem}.cu")
    try:
        found = trace(
            build(source, *(call.function for call in calls), includes=options.include),
            calls,
            told.get("arg"),
            variables=told.get("variable"),
            expect=told.get("expect"),
            tolerance=float(told.get("tolerance", 0.0)),
            limit=options.limit,
            folder=path.parent,
        )
        return allow(found, told.get("allow", []), "allow:")
    except UserError as error:
        if re.match(r"\S+:\d+: ", str(error)) or str(error).startswith(
            display_path(source)
        ):  # it names a place in a source
            raise
        raise UserError(f"{display_path(path)}: {error}") from None


@cache
def _schema() -> dict[str, Any]:
    return read_yaml(PACKAGE / "launches.schema.yaml")


def _pairs(option: str, words: list[str] | None) -> dict[str, str]:
    """The values by name of an option that is given again and again."""
    found: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][\w:]*(\.\w+|\[\d+\])*", name.strip()):
            raise UserError(f"--{option} {word}: write NAME=VALUE, for example --{option} 'data=float[64]:random'")
        if name.strip() in found:
            raise UserError(f"--{option} {name.strip()} is given twice; take one out")
        found[name.strip()] = value
    return found


if __name__ == "__main__":
    sys.exit(main())
