"""Calls of any kernel as the command line describes them, by options or by a YAML file of the same keys."""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewise import UserError
from tilewise.compile.cpp import shown
from tilewise.microscope.calls import Call, trace
from tilewise.microscope.formats import Report
from tilewise.study.schema import read_yaml, validate

#: The options of a kernel that is no product, of a YAML file the keys, and those that only a product has.
DESCRIBING = ("function", "arg", "variable", "expect", "tolerance")
LAUNCH = ("grid", "block", "cluster", "shared", "cooperative")
OF_PRODUCTS = (
    *("name", "dtype", "shape", "covers", "arguments", "template", "columns", "short_sums"),
    *("alpha", "beta", "initial", "ld", "reads_c", "scheme"),
)


def add_options(command: argparse.ArgumentParser, number: Any) -> None:
    """Add the options of a kernel that is no product; `number` is the type of one that is no less than 0."""
    own = command.add_argument_group(
        "a kernel that is no product of A and B",
        "FILE is the .cu file, or a YAML file with these options as keys; docs/microscope.md shows one.",
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


def report(options: argparse.Namespace, parameters: Mapping[str, int]) -> Report:
    """The Report of the calls that the options describe. Raises what `trace` raises, and UserError for options that
    have no meaning here, `parameters` among them."""
    for name in OF_PRODUCTS:
        if getattr(options, name) not in (None, False, ()):
            what = f"--{name.replace('_', '-')}"
            raise UserError(f"{what} is for products of A and B; take it out, or --function, --arg and --expect")
    for name, value in parameters.items():
        raise UserError(f"--{name}: there is no such option; template arguments are a part of --function 'f<{value}>'")
    if options.file.suffix in (".yaml", ".yml"):
        return _of_file(options)
    if options.block is None:
        raise UserError(f"{shown(options.file)}: how many threads has a block? Say it, for example --block 256")
    return trace(
        options.file,
        options.function,
        options.grid or 1,
        options.block,
        _pairs("arg", options.arg),
        shared=options.dynamic_shared or 0,
        cluster=options.cluster,
        cooperative=options.cooperative,
        variables=_pairs("variable", options.variable),
        expect=_pairs("expect", options.expect),
        tolerance=options.tolerance or 0.0,
        limit=options.limit,
    )


def _of_file(options: argparse.Namespace) -> Report:
    for name in (*DESCRIBING, "grid", "block", "cluster", "dynamic_shared", "cooperative"):
        if getattr(options, name):
            what = f"--{name.replace('_', '-')}"
            raise UserError(f"{what}: {shown(options.file)} says what is launched; change it there")
    path: Path = options.file
    told = read_yaml(path)
    validate(told, "launches", shown(path))
    alone = {name: told[name] for name in ("function", *LAUNCH) if name in told}
    if bool(alone) == ("launches" in told) or ("block" not in alone and "launches" not in told):
        raise UserError(f"{shown(path)}: describe one launch by function, grid and block, or several by launches")
    calls = [Call(**call) for call in told.get("launches", ())] or alone.pop("function", None)
    source = path.parent / told.get("file", f"{path.stem}.cu")
    try:
        return trace(
            source,
            calls,
            **({} if "launches" in told else alone),
            arguments=told.get("arg"),
            variables=told.get("variable"),
            expect=told.get("expect"),
            tolerance=float(told.get("tolerance", 0.0)),
            limit=options.limit,
            folder=path.parent,
        )
    except UserError as error:
        if re.match(r"\S+:\d+: ", str(error)) or str(error).startswith(shown(source)):  # it names a place in a source
            raise
        raise UserError(f"{shown(path)}: {error}") from None


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
