"""The command `tilewise`: `tilewise trace kernels/mine.cu --shape 64x64x64` finds what a kernel does to memory."""

import argparse
import difflib
import re
import signal
import sys
from pathlib import Path

from tilewise import UserError
from tilewise.build.cpp import shown
from tilewise.count.trace import SCHEDULES, trace
from tilewise.measure.backends.emulator import LaunchError
from tilewise.study import registry
from tilewise.study.points import Point
from tilewise.study.registry import DTYPES, MAX_THREADS_PER_BLOCK, Kernel

TABLE = {
    "global_load_requests": "global loads: requests of a warp",
    "global_load_sectors": "  32-byte sectors",
    "sectors_per_request": "  sectors a request",
    "global_store_requests": "global stores: requests of a warp",
    "global_store_sectors": "  32-byte sectors",
    "shared_load_wavefronts": "shared loads: wavefronts",
    "shared_store_wavefronts": "shared stores: wavefronts",
    "shared_bank_conflicts": "  bank conflicts, loads and stores",
    "flop_per_byte": "FLOP per byte that loads ask for",
    "flop_per_byte_moved": "FLOP per byte moved",
}


def main(arguments=None):
    """Run a command line; returns the exit status: 0, 1 where the kernel has a fault, 2 where the command is wrong."""
    if arguments is None:
        # A kernel may run for ever, and then only the default action stops it; nor is `| head` worth a traceback.
        for number in (signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
    options = _parser().parse_args(arguments)
    try:
        kernel, choice = find_kernel(options)
        row, faults = trace(kernel, options.dtype, options.shape, **choice)
    except (UserError, LaunchError) as error:
        print(f"tilewise: {error}", file=sys.stderr)
        return 2
    n, p, m = options.shape
    lines = [str(fault) for fault in faults]
    lines.append(f"{kernel.name} {options.dtype} {n}x{p}x{m}, blocks of {row['block_x']}x{row['block_y']} threads")
    for column, words in TABLE.items():
        value = row[column]
        text = "-" if value is None else f"{value:,d}" if isinstance(value, int) else f"{value:.2f}"
        lines.append(f"  {words:36}{text:>16}")
    count = f"{len(faults) or 'no'} fault{'' if len(faults) == 1 else 's'}"
    lines.append(f"{count} in {', '.join(SCHEDULES)} order of threads")
    print("\n".join(lines))
    return 1 if faults else 0


def _parser():
    parser = argparse.ArgumentParser(prog="tilewise", description=__doc__.split(": ", 1)[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    tracing = commands.add_parser(
        "trace",
        help="count what a kernel asks of memory, and find its faults, without a GPU",
        description="Run one kernel f(const T* A, const T* B, T* C, int n, int p, int m) on the CPU emulator; count "
        "what it asks of memory; report races, accesses out of bounds, reads of what was never written, barriers that "
        "not all threads reach, and wrong products. Exit status: 0 without a fault, 1 with one, 2 where it cannot run.",
    )
    tracing.add_argument("file", type=Path, help="the .cu file")
    tracing.add_argument("--dtype", default="float", choices=DTYPES, help="element type (float)")
    tracing.add_argument(
        "--shape", type=_sizes(3), default=(33, 35, 70), metavar="NxPxM", help="A is n x p, B p x m (33x35x70)"
    )
    tracing.add_argument("--tile", type=_positive, help="the parameter tile")
    tracing.add_argument("--ntb", type=_positive, help="the parameter ntb")
    tracing.add_argument("--block", type=_sizes(2), metavar="XxY", help="threads of a block, 32 along x in 32x8")
    other = tracing.add_argument_group("a kernel that is not in the registry")
    other.add_argument("--name", help="the kernel's name (the file's)")
    other.add_argument("--covers", type=_sizes(2), metavar="RxC", help="rows and columns of C a block (one a thread)")
    other.add_argument("--template", help="template arguments, such as dtype,tile (what the file's template takes)")
    other.add_argument(
        "--dynamic-shared", type=int, default=0, metavar="BYTES", help="dynamic shared memory of a block"
    )
    return parser


def _positive(text):
    value = int(text)
    if value <= 0:
        raise ValueError
    return value


_positive.__name__ = "positive number"  # argparse: invalid positive number value


def _sizes(count):
    def sizes(text):
        values = tuple(_positive(word) for word in text.split("x"))
        if len(values) != count:
            raise ValueError
        return values

    sizes.__name__ = f"size (wanted: {'x'.join(['64'] * count)})"
    return sizes


def find_kernel(options):
    """The kernel of a file and its parameters: as the registry has it, or as the options say.

    Raises UserError where the file is not there, is not understood, or a parameter is missing or cannot be.
    """
    path = options.file
    if not path.is_file():
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*.cu")], n=1)
        hint = f"; did you mean {path.with_name(near[0])}?" if near else ""
        raise UserError(f"there is no file {path}{hint}")
    kernel = _registered(path) or _described(path, options)
    if options.dtype not in kernel.dtypes:
        raise UserError(f"--dtype: {kernel.name} is not for {options.dtype}; it takes {', '.join(kernel.dtypes)}")
    given = {"tile": options.tile, "ntb": options.ntb}
    choice = {name: given[name] for name in ("tile", "ntb") if name in kernel.parameters}
    for name, value in choice.items():
        if value is None:
            example = {"tile": 16, "ntb": 3}[name]
            raise UserError(f"{shown(path)}: {kernel.name} needs --{name}, for example --{name} {example}")
    if "block" in kernel.parameters:
        if options.block is None:
            raise UserError(f"{shown(path)}: {kernel.name} needs --block, for example --block 32x8")
        x, y = options.block
        if x * y > MAX_THREADS_PER_BLOCK:
            raise UserError(f"--block: {x}x{y} is more than {MAX_THREADS_PER_BLOCK} threads; for example --block 32x8")
        choice |= {"block_x": x, "block_y": y}
    unmet = kernel.unmet(Point("trace", kernel.name, options.dtype, *options.shape, **choice))
    if unmet:
        raise UserError(f"{shown(path)}: {kernel.name} requires {unmet}; choose other sizes")
    return kernel, choice


def _registered(path):
    """The registry's kernel of this file, from the folder that the file is in; or None."""
    folder = path.resolve().parent
    if not (folder / "registry.yaml").is_file():
        return None
    kernels = registry.load(folder).values()
    return next((k for k in kernels if k.kind == "cuda" and k.path.resolve() == path.resolve()), None)


def _described(path, options):
    """A kernel as the command line describes it."""
    text = path.read_text()
    name = options.name or path.stem
    found = re.search(rf"(?:template\s*<([^>]*)>\s*)?__global__\s+[\w\s()]*?\b{name}\s*\(", text)
    if not found:
        there = re.findall(r"__global__\s+[\w\s()]*?\b(\w+)\s*\(\s*(?:const\b|\w+\s*\*)", text)
        hint = f"it has {', '.join(there)}; name one with --name" if there else "it has none"
        raise UserError(f"{shown(path)}: there is no __global__ function '{name}'; {hint}")
    if options.template is not None:
        template = tuple(word.strip() for word in options.template.split(",") if word.strip())
    else:
        words = [p.split("=")[0].split() for p in (found[1] or "").split(",") if p.strip()]
        template = tuple("dtype" if kind[0] in ("typename", "class") else kind[-1].lower() for kind in words)
    unknown = [word for word in template if word not in ("dtype", "tile", "ntb")]
    if unknown:
        raise UserError(
            f"{shown(path)}: what is the template argument '{unknown[0]}' of {name}? Say it with --template, a list of "
            "dtype, tile, ntb in the order of the template"
        )
    parameters = tuple(word for word in ("tile", "ntb") if word in template)
    if options.block or not options.tile:
        parameters += ("block",)
        block = ("block_x", "block_y")
    else:
        block = (options.tile, options.tile)
    covers = options.covers or (block[1], block[0])
    return Kernel(
        name=name,
        title=name,
        kind="cuda",
        dtypes=tuple(DTYPES),
        source=path.name,
        template=template,
        parameters=parameters,
        block=block,
        covers=covers,
        dynamic_shared_bytes=options.dynamic_shared,
        folder=path.resolve().parent,
    )


if __name__ == "__main__":
    sys.exit(main())
