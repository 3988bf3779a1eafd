"""Select the kernel and the point of a command line: from a file and the registry, or from options alone."""

import argparse
import math
import re
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import Any

from kernelscope.cli import option_type
from kernelscope.compile import functions
from kernelscope.cpp import display_path
from kernelscope.declarations import Function, check_file, find_function
from kernelscope.expressions import whole_numbers
from kernelscope.limits import MAX_THREADS_PER_BLOCK
from kernelscope.sources import Source
from tilewise import UserError
from tilewise.study import registry
from tilewise.study.device import EMULATED
from tilewise.study.expressions import FUNCTIONS
from tilewise.study.kernel import DEFAULT_ARGUMENTS, POINT_NAMES, Kernel, Kind, LaunchEntry
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS, SCHEMES
from tilewise.study.sources import INCLUDE

#: The options that the registry's entry answers for a kernel that has one.
OF_UNREGISTERED = (
    *("covers", "grid", "cluster", "arguments", "template", "shared", "cooperative"),
    *("alpha", "beta", "initial", "ld", "reads_c", "scheme"),
)


def add_options(command: argparse.ArgumentParser, shape: tuple[int, int, int]) -> None:
    """Add the options of the kernel and the point; `shape` is the default."""
    command.add_argument("file", type=Path, help="the .cu file")
    command.add_argument("--dtype", choices=PRECISIONS, help="element type (float)")
    text = "x".join(map(str, shape))
    command.add_argument("--shape", type=_sizes(3), metavar="NxPxM", help=f"A is n x p, B p x m ({text})")
    command.add_argument("--batch", type=_sizes(1), metavar="N", help="products at once, if it makes several (1)")
    command.set_defaults(default_shape=shape)
    command.add_argument(
        "--block", type=_sizes(2, 3, 1), metavar="XxY", help="threads of a block, 32 along x in 32x8; XxYxZ too"
    )
    other = command.add_argument_group("a kernel that is not in the registry")
    other.add_argument("--name", help="the kernel's name (the file's)")
    other.add_argument(
        "--covers", type=_sizes(2), metavar="RxC", help="rows and columns of C per block (one per thread)"
    )
    other.add_argument("--grid", metavar="X,Y,Z", help="blocks, instead of --covers, such as 4x2 or 'ceil_div(m,64),n'")
    other.add_argument("--cluster", metavar="X,Y,Z", help="blocks of a cluster (what its __cluster_dims__ says)")
    other.add_argument(
        "--arguments",
        help=f"what it is called with ({','.join(DEFAULT_ARGUMENTS)}), such as n,m,p,float:1.0,A,B,float:0.0,C",
    )
    other.add_argument("--template", help="template arguments, such as dtype,tile (what the file's template takes)")
    other.add_argument(
        "--shared", "--dynamic-shared", type=int, metavar="BYTES", help="dynamic shared memory of a block"
    )
    other.add_argument("--cooperative", action="store_true", help="it is launched so that cg::this_grid().sync() works")
    number = option_type("number", float, math.isfinite)
    other.add_argument("--alpha", type=number, help="it makes alpha A B + beta C; --arguments may use alpha (1)")
    other.add_argument("--beta", type=number, help="the same, of a C that begins with known numbers (0)")
    other.add_argument("--initial", choices=["zeros"], help="what C holds at first: zeros (what no product holds)")
    other.add_argument("--ld", metavar="A=L", help="leading dimensions of A, B, C, such as 'A=p+4,C=64' (no gaps)")
    other.add_argument("--reads-c", action="store_true", help="it reads C and multiplies it by 0")
    other.add_argument(
        "--scheme", choices=[name for name in SCHEMES if name != "short_sums"], help="how it rounds (as its type says)"
    )


def _sizes(*counts: int) -> Callable[[str], Any]:
    return option_type(
        f"size (wanted: {'x'.join(['64'] * counts[0])})",
        lambda text: tuple(map(int, text.split("x"))),
        lambda values: len(values) in counts and min(values) > 0,
    )


def find_kernel(options: argparse.Namespace, given: dict[str, int]) -> tuple[Kernel, Point]:
    """The kernel of a file and the point to trace: as the registry has it, or as the options say.

    `given` are the parameters on the command line. Raises UserError if the file is not there, is not understood, or a
    parameter is missing or cannot be.
    """
    path = options.file
    try:
        check_file(path)
    except UserError:
        named = registry.load().get(str(path))
        if named and named.kind == Kind.CUDA:
            raise UserError(
                f"there is no file {path}; the kernel of this name is in {display_path(named.path)}"
            ) from None
        raise
    defaults: dict[str, int] = {}
    registered = _registered(path, options.name)
    if registered:
        kernel = registered
        for option in OF_UNREGISTERED:
            if getattr(options, option) not in (None, False):
                place = display_path(kernel.folder / "registry.yaml")
                raise UserError(f"--{option.replace('_', '-')}: {kernel.name} has it from {place}; change it there")
    else:
        kernel, defaults = _described(path, options, given)
    dtype = options.dtype or "float"
    if dtype not in kernel.dtypes:
        raise UserError(f"--dtype: {kernel.name} is not for {dtype}; it takes {', '.join(kernel.dtypes)}")
    _check_scalars(kernel, dtype, options)
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
            raise UserError(f"{display_path(path)}: {kernel.name} needs --{name}, for example --{name} {example}")
        if choice[name] < least:
            raise UserError(f"--{name}: {choice[name]}; {kernel.name} takes whole numbers of at least {least}")
    parameters = _block(kernel, options) | {name: choice[name] for name in own}
    n, p, m = options.shape or options.default_shape
    [batch] = options.batch or [1]
    point = Point("trace", kernel.name, dtype, n, p, m, tuple(parameters.items()), batch)
    try:
        unmet = kernel.unmet(point)
        if not unmet:
            kernel.plan(point)
            kernel.lying(point)
    except UserError as error:
        if registered:
            raise
        # The entry comes from options: name these, not a registry that is not there.
        raise UserError(str(error).replace(f"{kernel.folder / 'registry.yaml'}: {kernel.name}.", "--")) from None
    if unmet:
        raise UserError(f"{display_path(path)}: {kernel.name} requires {unmet}; choose other sizes")
    return kernel, point


def _check_scalars(kernel: Kernel, dtype: str, options: argparse.Namespace) -> None:
    """Raise UserError for an alpha, a beta or a scheme that the element type does not have."""
    if PRECISIONS[dtype].exact and not (kernel.alpha.is_integer() and kernel.beta.is_integer()):
        raise UserError(
            f"--alpha, --beta: {kernel.alpha:g} and {kernel.beta:g}; a product of {dtype} takes whole numbers"
        )
    if options.scheme and dtype not in SCHEMES[options.scheme].dtypes:
        takes = ", ".join(SCHEMES[options.scheme].dtypes)
        raise UserError(f"--scheme {options.scheme}: it is one of {takes}, not of {dtype}")


def _block(kernel: Kernel, options: argparse.Namespace) -> dict[str, int]:
    """The columns of the parameter `block`, if the kernel has it."""
    if "block" not in kernel.parameters:
        if options.block is not None:
            raise UserError(f"--block: {kernel.name} does not take it; its block follows from its other parameters")
        return {}
    if options.block is None:
        raise UserError(f"{display_path(options.file)}: {kernel.name} needs --block, for example --block 32x8")
    if math.prod(options.block) > MAX_THREADS_PER_BLOCK:
        size = "x".join(map(str, options.block))
        raise UserError(f"--block: {size} is more than {MAX_THREADS_PER_BLOCK} threads; for example --block 32x8")
    x, y, *z = (*options.block, 1)[: max(2, len(options.block))]
    if z and kernel.launches[0].block[2:] != tuple(z):
        raise UserError(f"--block: {kernel.name} takes threads along x and y, for example --block 32x8")
    return {"block_x": x, "block_y": y}


def _registered(path: Path, name: str | None) -> Kernel | None:
    """The registry's kernel of this file and this name, from the folder that the file is in or the one above it; or
    None. Without a name it is the one that has the file's, or the only one. Raises UserError if there are others."""
    for folder in path.resolve().parents[:2]:
        if (folder / "registry.yaml").is_file():
            kernels = registry.load(folder).values()
            found = {k.name: k for k in kernels if k.kind == Kind.CUDA and k.path.resolve() == path.resolve()}
            if found and not name and len(found) > 1 and path.stem not in found:
                raise UserError(
                    f"{display_path(path)}: the registry has {', '.join(found)} of it; name one with --name"
                )
            if kernel := found.get(name or path.stem) or (None if name else next(iter(found.values()), None)):
                return kernel
    return None


def _described(path: Path, options: argparse.Namespace, given: dict[str, int]) -> tuple[Kernel, dict[str, int]]:
    """A kernel as the command line describes it, and the values that its template has for parameters not given."""
    declared = functions(Source(path, includes=(INCLUDE,)))
    wanted = options.name or path.stem
    name = find_function(declared, wanted)
    if not name and not options.name and len(declared) == 1:
        [name] = declared
    if not declared:
        raise UserError(f"{display_path(path)}: there is no __global__ function in it")
    if not name:
        hint = f"it has {', '.join(declared)}; name one with --name"
        raise UserError(f"{display_path(path)}: there is no __global__ function '{wanted}'; {hint}")
    own_count, usual_count = len(declared[name].parameters), len(DEFAULT_ARGUMENTS)
    if own_count != usual_count and not options.arguments and options.block is None:
        raise UserError(
            f"{display_path(path)}: {name} has {own_count} parameters, not the {usual_count} of a product; say by "
            f"--arguments what it is given, or trace it as any other kernel: kernelscope {display_path(path)}"
        )
    known = {*POINT_NAMES, *EMULATED.numbers(), *FUNCTIONS, "dtype", "block_x", "block_y"}
    defaults: dict[str, int] = {}
    if options.template is not None:
        template = tuple(_split(options.template))
    else:
        template, defaults = _template(declared[name], f"{display_path(path)}: ", known, vars(options))
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
        grid=tuple(_split(re.sub(r"(?<=\d)x(?=\d)", ",", options.grid or ""))),
        # As in its template, the names of numbers are options in lower case.
        cluster=tuple(_split(options.cluster)) if options.cluster else tuple(map(str.lower, declared[name].cluster)),
        dynamic_shared_bytes=options.shared or 0,
        arguments=_arguments(options.arguments) if options.arguments else DEFAULT_ARGUMENTS,
        cooperative=options.cooperative,
    )
    kernel = Kernel(
        name=name,
        title=name,
        kind=Kind.CUDA,
        dtypes=tuple(PRECISIONS),
        source=path.name,
        parameters=parameters,
        least=dict.fromkeys(parameters, -(2**31)),  # whatever its template takes
        launches=(launch,),
        alpha=1.0 if options.alpha is None else options.alpha,
        beta=options.beta or 0.0,
        initial=options.initial or "",
        column_major=tuple(getattr(options, "columns", ())),
        ld=_leading(options.ld or ""),
        reads_c=options.reads_c,
        batched=options.batch is not None,
        accuracy={"scheme": options.scheme} if options.scheme else {},
        folder=path.resolve().parent,
    )
    return kernel, defaults


def _leading(text: str) -> dict[str, str]:
    """--ld as the registry has it. Raises UserError for what is no list of A=..., B=... and C=...."""
    parts = (part.partition("=") for part in _split(text))
    found = {name.strip(): value for name, _, value in parts}
    if not {*found} <= {*"ABC"} or not all(found.values()):
        raise UserError(f"--ld {text}: write for example --ld A=64 or --ld 'A=p+4,C=m+4'")
    return found


def _split(text: str) -> list[str]:
    """The parts of a list whose commas are not those of a function's arguments."""
    return [word.strip() for word in re.split(r",(?![^()]*\))", text) if word.strip()]


def _arguments(text: str) -> tuple:
    """--arguments as the registry has them: `float:1.0` is {float: 1.0}."""
    return tuple({w.split(":")[0].strip(): w.split(":", 1)[1]} if ":" in w else w for w in _split(text))


_INTEGER_WORDS = {"int", "unsigned", "signed", "long", "short", "char", "bool", "size_t", "uint", "const"}


def _template(
    function: Function, place: str, known: Iterable[str], options: Container[str]
) -> tuple[tuple[str, ...], dict[str, int]]:
    """The template arguments of a kernel, from its template parameters, and the defaults that are whole numbers;
    `options` are the names of the command's own."""
    template: list[str] = []
    defaults: dict[str, int] = {}
    for parameter in function.template:
        option = parameter.name.lower()
        if parameter.type in ("typename", "class"):
            template.append("dtype")
            continue
        if option in options:
            raise UserError(
                f"{place}the template argument {parameter.name} of {function.name} has the name of an option; give it "
                "another one by --template, such as --template tile and --tile 16, or a value, such as --template 16"
            )
        words = re.findall(r"\w+", parameter.type.replace("std::", ""))
        integer = all(word in _INTEGER_WORDS or re.fullmatch(r"u?int\d+_t", word) for word in words)
        if not integer or not option or option in known:
            raise UserError(
                f"{place}what is the template argument '{option}' of {function.name}? Say it with --template, a list "
                "in its order of dtype, numbers, and names of your own such as tile, which become options"
            )
        template.append(option)
        defaults |= dict(zip([option], whole_numbers([parameter.default], {}), strict=False))
    return tuple(template), defaults
