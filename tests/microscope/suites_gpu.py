"""Run the kernels of suites.py on a GPU under the four tools of compute-sanitizer and print a table for docs/suites.md.

`python tests/microscope/suites_gpu.py FOLDER LOG` takes the same clones. What a tool says of a kernel is a line of LOG
at once, and what LOG holds is not run again: a run that was stopped goes on, and `--minutes` stops one. The table is of
what LOG holds. Of Indigo's graphs it takes one. It needs compute-sanitizer on PATH, and no history of the clones.
"""

import json
import pickle
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from sanitizer import FOUND, JUDGES, MICROSCOPE, TOOLS, watched
from suites import BESIDE, CLEAN, FALSE, INDIGO, NAMED, NOT_RUN, SUITES, Case, Outcome, Run, clone_of, parser, traced

from kernelscope.calls import Library, program_of
from kernelscope.emulator import LaunchError
from kernelscope.launch import Array, Value
from kernelscope.tracer import Tracer
from tilewise import UserError
from tilewise.nvidia.nvrtc import cubin_of

GRAPH = f"{INDIGO}, power_law_200n_1000e"
LAUNCHED = Path(__file__).with_name("launched.py")


def run_of(case: Case) -> Run:
    """The one run of a case that is compared; of Indigo that on one graph."""
    return next(each for each in case.runs if len(case.runs) == 1 or each.row == GRAPH)


def judged(case: Case, architecture: str) -> list[dict[str, Any]]:
    """What the microscope and the tools say of a case, an entry of the log each; one if it does not run, with why."""
    one = run_of(case)
    entry = {"suite": one.row, "name": case.name, "faulty": bool(case.kinds)}
    with tempfile.TemporaryDirectory() as folder:
        try:
            library = case.built(folder, [one])
            prepared = Path(folder, "prepared")
            prepared.write_bytes(pickle.dumps(of_run(library, one, architecture)))
        except (UserError, LaunchError) as error:
            return [entry | {"tool": NOT_RUN, "verdict": NOT_RUN, "message": str(error).removeprefix(f"{folder}/")}]
        own = traced(case, library, one)
        said = {MICROSCOPE: (verdict_of(own), own.why)}
        said |= {tool: watched(tool, [LAUNCHED, prepared]) for tool in TOOLS}
    return [entry | {"tool": tool, "verdict": found, "message": why} for tool, (found, why) in said.items()]


def verdict_of(outcome: Outcome) -> str:
    """The microscope's verdict as one of a tool; of a faulty kernel, only a fault of the kind of its label counts."""
    return FOUND if outcome.column in (NAMED, FALSE, BESIDE) else CLEAN


def of_run(library: Library, one: Run, architecture: str) -> tuple:
    """A run as launched.py takes it: arrays, variables and launches, each with a cubin. Raises UserError."""
    values = one.given(library) if callable(one.given) else one.given
    tracer = Tracer(library.path, library.source)
    program = program_of(library, tracer, one.calls, library.read(values), library.read(one.variables), {}, 0)
    arrays = {
        each.name: (
            each.bytes,
            program.first[each.name].tobytes() if each.name in program.first else None,
            list(program.pointers.get(each.name, ())),
        )
        for each in program.operands
    }
    variables = {name: bytes(tracer.emulator.variable(name)) for name in one.variables}
    launches = []
    for launch in program.launches:
        path = library.source.path
        cubin, entry = cubin_of(path, path.name, launch.instance, architecture)
        how = launch.grid, launch.block, launch.dynamic_shared_bytes, launch.cooperative
        launches.append((cubin, entry["symbol"], *how, [packed(argument) for argument in launch.arguments]))
    return arrays, variables, launches


def packed(argument: Array | Value) -> tuple[bytes, list[tuple[int, str]]]:
    """An argument as bytes, and where in them addresses of arrays are to stand."""
    if isinstance(argument, Array):
        return bytes(8), [(0, argument.name)]
    return argument.data, list(argument.pointers)


def table(entries: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Two rows per suite: faulty kernels, of which a tool reports so many, and right ones."""
    yield f"| kernels | {' | '.join(JUDGES)} | any of the four |"
    yield f"| --- |{' ---: |' * (len(JUDGES) + 1)}"
    found: dict[tuple[str, bool], dict[str, dict[str, str]]] = {}
    for each in entries:
        kernels = found.setdefault((each["suite"], each["faulty"]), {})
        kernels.setdefault(each["name"], {})[each["tool"]] = each["verdict"]
    for (suite, faulty), kernels in sorted(found.items()):
        whole = [said for said in kernels.values() if set(said) >= set(JUDGES)]
        counts = [sum(said[tool] == FOUND for said in whole) for tool in JUDGES]
        counts.append(sum(any(said[tool] == FOUND for tool in TOOLS) for said in whole))
        what = f"{len(whole)} faulty, reported" if faulty else f"{len(whole)} right, accused"
        yield f"| {suite}: {what} | {' | '.join(map(str, counts))} |"


def main() -> None:
    """Run what the log lacks and print the table of what it holds."""
    asked = parser(__doc__)
    asked.add_argument("log", type=Path, metavar="LOG")
    asked.add_argument("--minutes", type=float, help="begin no kernel after so long; by default all are run")
    asked.add_argument("--arch", default="sm_90a", help="what to compile for; by default sm_90a")
    told = asked.parse_args()
    if not shutil.which("compute-sanitizer"):
        sys.exit("compute-sanitizer is not on PATH; it is in the bin folder of a CUDA toolkit")
    seconds = None if told.minutes is None else 60 * told.minutes
    entries = [json.loads(line) for line in told.log.read_text().splitlines()] if told.log.exists() else []
    known = {(each["suite"], each["name"]) for each in entries}
    cases = [case for name in told.suite for case in SUITES[name][2](clone_of(name, told.folder))]
    todo = [case for case in cases if not case.is_left_out and (run_of(case).row, case.name) not in known]
    with ProcessPoolExecutor(told.workers) as workers, told.log.open("a") as log:
        running = [workers.submit(judged, case, told.arch) for case in todo]
        try:
            for number, done in enumerate(as_completed(running, seconds), 1):
                entries += done.result()
                log.write("".join(json.dumps(each) + "\n" for each in done.result()))
                log.flush()
                print(f"\r{number} of {len(todo)} ", end="", file=sys.stderr, flush=True)
        except TimeoutError:
            workers.shutdown(cancel_futures=True)
        except KeyboardInterrupt:
            workers.shutdown(cancel_futures=True)
            sys.exit(f"stopped; {told.log} holds what was run")
    print("\n".join(table(entries)))


if __name__ == "__main__":
    main()
