"""Run the microscope on four suites of labelled kernels by others and print, in Markdown, the tables of docs/suites.md.

`python tests/microscope/suites.py FOLDER` takes clones of the repositories in SUITES, each in FOLDER under its own
name. Nothing of them is in this repository: what the kernels are launched with is here, the kernels are there.
"""

import argparse
import ctypes
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kernelscope import Call, build, trace
from kernelscope.calls import Library
from kernelscope.emulator import LaunchError
from kernelscope.fault_kinds import FaultKind
from kernelscope.syntax import parse
from tilewise import UserError

SAMPLES, SCOR, INDIGO, GPUVERIFY = "compute-sanitizer's samples", "ScoR", "Indigo", "GPUVerify"
PLAIN, TOGETHER = f"{SCOR}, data as plain memory", f"{INDIGO}, all together"
COLUMNS = NAMED, MISSED, CLEAN, FALSE, BESIDE, REFUSED, NOT_RUN = (
    "named", "missed", "clean", "false", "beside", "refused", "not run",
)  # fmt: skip
RACE, BOUNDS, ANY = {FaultKind.RACE}, {FaultKind.OUT_OF_BOUNDS}, set(FaultKind)


@dataclass(frozen=True)
class Run:
    """The launches of one row of the table: calls, and what they are given, by names or made when it is built."""

    row: str
    calls: list[Call]
    given: Mapping[str, Any] | Callable[[Library], Mapping[str, Any]]
    variables: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A kernel's text, the kinds of faults that its label stands for, none if it is right, and its launches."""

    name: str
    text: str
    kinds: set[FaultKind]
    runs: list[Run]
    headers: Mapping[str, str] = field(default_factory=dict)
    #: The column in which it counts if it is not as labelled, and why, where that is known.
    known: tuple[str, str] | None = None

    @property
    def is_left_out(self) -> bool:
        """Whether it is known that it cannot run."""
        return self.known is not None and self.known[0] == NOT_RUN

    def built(self, folder: str, runs: Iterable[Run]) -> Library:
        """What these runs launch, built of the case's files, which are written into a folder. Raises UserError."""
        path = Path(folder, "kernel.cu")
        for name, text in {path.name: self.text, **self.headers}.items():
            Path(folder, name).write_text(text)
        return build(path, *dict.fromkeys(call.function for each in runs for call in each.calls))


@dataclass(frozen=True)
class Outcome:
    """In which column of the table a run counts, and why if it is not as its label says."""

    row: str
    name: str
    column: str
    why: str = ""


def run(case: Case) -> list[Outcome]:
    """Build a case once and trace its launches, unless it is left out."""
    if case.is_left_out:
        return [Outcome(each.row, case.name, *case.known) for each in case.runs]
    with tempfile.TemporaryDirectory() as folder:
        try:
            library = case.built(folder, case.runs)
        except UserError as error:
            return [refused(case, each, error) for each in case.runs]
        return [traced(case, library, each) for each in case.runs]


def traced(case: Case, library: Library, one: Run) -> Outcome:
    """Trace one run and compare it with the label."""
    try:
        given = one.given(library) if callable(one.given) else one.given
        report = trace(library, one.calls, given, variables=one.variables)
    except (UserError, LaunchError) as error:
        return refused(case, one, error)
    faults = [fault for fault in report.faults if not fault.is_remark]
    if any(fault.kind in case.kinds for fault in faults):
        return Outcome(one.row, case.name, NAMED)
    if not case.kinds and not faults:
        return Outcome(one.row, case.name, CLEAN)
    if case.known:
        return Outcome(one.row, case.name, *case.known)
    says = f"line {faults[0].line}: {faults[0].kind.words}: {faults[0].text}" if faults else "nothing is found"
    return Outcome(one.row, case.name, MISSED if case.kinds else FALSE, says)


def refused(case: Case, one: Run, error: Exception) -> Outcome:
    """The outcome of a run that the microscope refuses."""
    said = re.sub(r"^\S*/", "", str(error))
    known = [why for words, why in REFUSALS.items() if re.search(words, said)]
    return Outcome(one.row, case.name, REFUSED, known[0] if known else said)


#: What marks a function of the GPU's.
DEVICE = re.compile(rb"__(?:global|device)__")


def for_a_gpu(text: str) -> str:
    """A file with blanks where it has functions of the host, which NVRTC refuses; lines keep their numbers."""
    # The same length keeps the places: those in the text that tree-sitter reads are those in the text itself.
    readable = re.sub(r"__(?:global|device|host)__", " " * 10, text).replace("<<<", " < ").replace(">>>", " > ")
    kept, end = bytearray(text.encode()), 0
    for node in parse(readable).children:
        body = node.child_by_field_name("body")
        if node.type == "function_definition" and body and not DEVICE.search(kept, end, body.start_byte):
            kept[node.start_byte : node.end_byte] = re.sub(rb"[^\n]", b" ", kept[node.start_byte : node.end_byte])
        end = node.end_byte
    return kept.decode()


# The samples of compute-sanitizer -----------------------------------------------------------------------------------

#: cudaMemset is a kernel that runs before.
MEMSET = "__global__ void cuda_memset(char* to, int n) { for (int i = 0; i < n; ++i) to[i] = 0; }\n"
UNINITIALISED, DIVERGENCE = {FaultKind.UNINITIALISED}, {FaultKind.DIVERGENCE}
#: File, kernel, blocks, threads, arguments, bytes of the first one that are set to 0, and what is wrong.
SAMPLES_LAUNCHES: list[tuple[str, str, int, int, dict[str, Any], int, set[FaultKind]]] = [
    ("Initcheck/memset_error", "vectorAdd", 2, 32, {"v": "int[64]"}, 64, UNINITIALISED),
    ("Memcheck/memcheck_demo", "unaligned_kernel", 1, 1, {}, 0, {FaultKind.MISALIGNED, *BOUNDS}),  # both at once
    ("Memcheck/memcheck_demo", "out_of_bounds_kernel", 1, 1, {}, 0, BOUNDS),
    ("Racecheck/block_error", "sumKernel", 1, 128, {"data_in": "int[128]", "sum_out": "int[1]"}, 512, RACE),
    ("Racecheck/warp_error", "sumKernel", 1, 64, {"data_in": "int[64]", "sum_out": "int[1]"}, 256, RACE),
    (
        "Suppressions/suppressions_initcheck_demo", "mult", 1, 123,
        {"a": "int[123]", "b": "int[123]", "size": 123}, 491, UNINITIALISED,
    ),
    ("Synccheck/divergent_threads", "myKernel", 1, 64, {"data_in": "int[1008]", "sum_out": "int[1]"}, 0, DIVERGENCE),
    ("Synccheck/illegal_syncwarp", "myKernel", 1, 32, {"sum_out": "int[1]"}, 0, DIVERGENCE),
]  # fmt: skip
#: What a microscope that follows CUDA's rules for threads that have ended does not name.
ENDED = "the threads that skip the barrier end, and a GPU does not wait for them: that is a remark"
NO_KERNEL, NVTX = "it has no kernel: a call of CUDA's API fails", "its subject is NVTX, an API of the host"
SAMPLES_LEFT_OUT = {
    "Suppressions/suppressions_demo": NO_KERNEL,
    **{f"{name}/{name}": NVTX for name in ("NvtxMemoryPool", "NvtxNaming", "NvtxPermissions")},
}


def samples(clone: Path) -> Iterator[Case]:
    """The samples of compute-sanitizer, as their mains launch them."""
    for name, kernel, blocks, threads, given, bytes_set, kinds in SAMPLES_LAUNCHES:
        calls = [Call(kernel, blocks, threads, list(given))]
        more = {}
        if bytes_set:
            calls.insert(0, Call("cuda_memset", 1, 1, [next(iter(given)), "bytes_set"]))
            more = {"bytes_set": bytes_set}
        text = for_a_gpu((clone / f"{name}.cu").read_text())
        known = (MISSED, ENDED) if name == "Synccheck/divergent_threads" else None
        yield Case(f"{name}: {kernel}", f"{text}\n{MEMSET}", kinds, [Run(SAMPLES, calls, given | more)], known=known)
    for name, why in SAMPLES_LEFT_OUT.items():
        yield Case(name, "", set(), [Run(SAMPLES, [], {})], known=(NOT_RUN, why))


# ScoR ---------------------------------------------------------------------------------------------------------------

#: Why a race of volatile data is missed.
STRONG = (
    "the data are volatile, what CUDA's memory model calls strong accesses do not race with each other, and there is "
    "no lock or flag on one of the two sides, of which something could be said"
)


def scor(clone: Path) -> Iterator[Case]:
    """The microbenchmarks of ScoR as they are, then with data that are not volatile."""
    for path in sorted((clone / "microbenchmarks/src").glob("*.cu")):
        text = for_a_gpu(path.read_text())
        threads = re.search(r"#define TPERBLK\s+(\d+)", text)
        blocks = re.search(r"#define NBLOCKS\s+(\d+)", text)
        assert threads and blocks, path
        calls = [Call("kmain", int(blocks[1]), int(threads[1]))]
        kinds = RACE if path.stem.startswith("race") else set()
        given = {"data": "unsigned[1]:zero"}
        yield Case(path.stem, text, kinds, [Run(SCOR, calls, given)], known=(MISSED, STRONG))
        yield Case(path.stem, text.replace("kmain(volatile ", "kmain("), kinds, [Run(PLAIN, calls, given)])


# Indigo -------------------------------------------------------------------------------------------------------------

#: What a word in a file's name plants.
PLANTED = {"atomicBug": RACE, "guardBug": RACE, "raceBug": RACE, "syncBug": RACE, "boundsBug": BOUNDS}


def indigo(clone: Path) -> Iterator[Case]:
    """The codes that IndigoSuite generates, as their main launches them on each graph, the small ones first."""
    graphs = sorted((clone / "indigo/input").glob("*.egr"), key=lambda path: (path.stat().st_size, path.name))
    given = {f"{INDIGO}, {path.stem}": of_graph(path) for path in graphs}
    for path in sorted((clone / "indigo/indigo_sources").glob("*/*.cu")):
        text = for_a_gpu(path.read_text()).replace('#include "indigo_cuda.h"', "")
        # A node has a thread, a warp or a block of its own.
        nodes_per_block = 1 if "_block" in path.stem else 2 if "_warp" in path.stem else 64
        kinds = set().union(*(PLANTED[word] for word in path.stem.split("_") if word in PLANTED))
        runs = [
            Run(row, [Call("test_kernel", own["numv"] // nodes_per_block + 1, 64)], own) for row, own in given.items()
        ]
        yield Case(path.stem, text, kinds, runs)


def of_graph(path: Path) -> dict[str, Any]:
    """What Indigo's main makes of a graph."""
    nodes, edges, *lists = np.fromfile(path, np.int32)
    random = ctypes.CDLL(None)
    random.srand(1)  # as in a program that has not called it
    data = [[random.rand() % int(size) for _ in range(max(nodes, edges) - 1)] for size in (nodes, edges)]
    return {
        "nindex": np.array(lists[: nodes + 1], np.int32),
        "nlist": np.array(lists[nodes + 1 :], np.int32),
        "data1": np.array([0, *data[0]], np.int32),
        "data2": np.array([0, *data[1]], np.int32),
        "numv": int(nodes),
    }


def together(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Each code of Indigo once: a fault counts that is named on one graph, and a right code that is clean on all."""
    by_name: dict[str, list[Outcome]] = {}
    for each in outcomes:
        by_name.setdefault(each.name, []).append(each)
    order = [REFUSED, FALSE, NAMED, MISSED, CLEAN]
    found = (min(own, key=lambda each: order.index(each.column)) for own in by_name.values())
    return [Outcome(TOGETHER, each.name, each.column, each.why) for each in found]


# GPUVerify ----------------------------------------------------------------------------------------------------------

#: GPUVerify's own cuda.h as far as it runs: contracts are assertions, and what only helps a proof is left out.
GPUVERIFY_HEADER = """#include <cooperative_groups.h>
#define synchronize(group) (group).sync()
#define __requires(...) assert((__VA_ARGS__))
#define __assume(...) assert((__VA_ARGS__))
#define __assert(...) assert((__VA_ARGS__))
#define __ensures(...)
#define __requires_fresh_array(...)
#define __invariant(...) true
#define __global_invariant(...) true
#define __implies(a, b) (!(a) || (b))
#define __enabled() true
#define __all(a) (a)
#define __uniform_bool(a) true
#define __distinct_int(a) true
#define __other_int(a) ((int)(a) + 1)
#define __no_read(a) true
#define __ptr_offset_bytes(a) 0
#define __read_implies(...) true
#define __write_implies(...) true
"""
UNSET = "a local variable without a value is copied into the result; GPUVerify looks for races"
UNWRITTEN = "shared memory is read that no thread has written; GPUVerify takes it as any value"
IN_STEP = (
    "right only while the lanes of a warp run in step, which no GPU since Volta promises; today the race is real, and "
    "the message says what it relied on"
)
ONE_VALUE = (
    "several threads write to one place what they have read from shared memory that no thread has written; that is one "
    "value here, as the message says, and nothing says that it always is"
)
#: Kernels that do not run, and right ones that are accused.
KNOWN: dict[str, tuple[str, str]] = {
    "annotation_tests/test_axiom": (NOT_RUN, "its axiom, that blockIdx.x is 16, holds for no launch"),
    "cooperative_groups/fail/divergence_thread_block": (MISSED, ENDED),
    "memcpy/arrayofstruct": (BESIDE, UNSET),
    "misc/fail/miscfail2": (NOT_RUN, "the label is of a loop's invariant that the proof lacks"),
    "misc/fail/miscfail7": (NOT_RUN, "the label is of a pointer that the proof cannot tell from null"),
    "pointertests/test_copy_between_memory_spaces": (FALSE, ONE_VALUE),
    **{f"warpsync/{name}": (FALSE, IN_STEP) for name in ("2d", "intragroup_scan", "scan_warp", "shuffle")},
    **dict.fromkeys(["localarrayaccess", "misc/pass/misc1", "scope"], (BESIDE, UNWRITTEN)),
}
#: What refusals mean, by words of theirs; kernels that are refused for one reason share a line.
REFUSALS = {
    "is a variable of the host": "a variable of the host in the kernel's file, which NVRTC refuses, too",
    "too much shared data": "the header's size makes it need more shared memory than CUDA allows",
    "'(curand|init)_test' declared void": "the emulator has no cuRAND",
    "points to a function": "an argument that is a pointer to a function, which a program of the host has only from a "
    "variable of the kernel's file",
    "declared, but nowhere defined": "a function without a body, which no compiler for a GPU takes",
}
#: Numbers, and values of constants, without which a fault that a label stands for does not happen.
NUMBERS = {"function_pointers/basic_assignment_fail": {"i": 0}}
CONSTANTS = {"globalarray/fail": {"A": "int[8]:zero"}}
#: Most threads of a grid; none of the kernels needs more of them to be wrong.
MOST_THREADS = 4096


def gpuverify(clone: Path) -> Iterator[Case]:
    """GPUVerify's tests, by the label and the options in the first two lines of a file."""
    for path in sorted((clone / "testsuite/CUDA").rglob("kernel.cu")):
        name = str(path.parent.relative_to(clone / "testsuite/CUDA"))
        text = path.read_text()
        label, options, *_ = text.splitlines()
        _, _, verdict = label.partition(":")
        known = KNOWN.get(name)
        if verdict in ("BUGLE_ERROR", "CLANG_ERROR"):
            known = (NOT_RUN, f"GPUVerify has no verdict on it: {verdict}")
        defines = "".join(f"#define {word} {value}\n" for word, value in re.findall(r"-D(\w+)=(\w+)", options))
        # Its cuda.h is not CUDA's, and NVRTC has memcpy and memset by their own names only.
        own = re.sub(r'^(#include [<"]cuda\.h[>"]|#define (memcpy|memset)\(.*)', "", text, flags=re.MULTILINE)
        own = own.replace(label, '#include "gpuverify.h"', 1)
        kernel = re.search(r"__global__\s+void\s+(\w+)", own)
        block = cut(sizes(options, "blockDim"), 1024)
        grid = cut(sizes(options, "gridDim"), MOST_THREADS // math.prod(block))
        function = kernel[1] if kernel else ""
        call = Call(function, grid, block, cooperative="grid_group" in text)
        numbers = wanted(text, block) | NUMBERS.get(name, {})
        runs = [Run(GPUVERIFY, [call], partial(any_values, function, numbers), CONSTANTS.get(name, {}))]
        yield Case(name, own, ANY if verdict else set(), runs, {"gpuverify.h": GPUVERIFY_HEADER + defines}, known)


def sizes(options: str, name: str) -> list[int]:
    """The sizes in an option such as `--blockDim=[8,8]`."""
    found = re.search(rf"--{name}=(\[[\d,]+\]|\d+)", options)
    return [int(size) for size in re.findall(r"\d+", found[1])] if found else [1]


def cut(whole: list[int], most: int) -> list[int]:
    """Sizes of which the largest is halved until their product is no more than `most`."""
    while math.prod(whole) > most:
        largest = whole.index(max(whole))
        whole = [size // 2 if i == largest else size for i, size in enumerate(whole)]
    return whole


def wanted(text: str, block: list[int]) -> dict[str, int]:
    """The numbers that a kernel requires, or with which GPUVerify reports that it fails."""
    text = text.replace("blockDim.x", str(block[0]))
    return {name: int(value) for name, value in re.findall(r"(?:__requires\(|^//)(\w+) ==? (\d+)", text, re.MULTILINE)}


def any_values(function: str, numbers: Mapping[str, int], library: Library) -> dict[str, Any]:
    """Arrays of random numbers for pointers, and for numbers those that are wanted, or 1."""
    names = [parameter.name for parameter in library.declared[function].parameters]
    types = library.layouts.parameters[library.instance(function)]
    return {name: of_type(name, dtype, numbers.get(name, 1), 1 << 19) for name, dtype in zip(names, types)}


def of_type(name: str, dtype: np.dtype, number: int, size: int) -> Any:
    """Something of a type: an array for a pointer, a dict of its fields for a struct, or the number."""
    if dtype.metadata:
        if dtype.metadata["to"] is None:
            raise UserError(f"{name} points to a function")
        return random_array(dtype.metadata["to"], size)
    if dtype.fields:
        fields = {
            f"{key}[{i}]" if inner.shape else key: inner.subdtype[0] if inner.subdtype else inner
            for key, (inner, *_) in dtype.fields.items()
            for i in range(math.prod(inner.shape))
        }
        return {key: of_type(key, inner, number, 1 << 13) for key, inner in fields.items()}
    return number


def random_array(dtype: np.dtype, size: int) -> np.ndarray:
    """An array of whole numbers from 0 to 99, also in the fields of structs; pointers are null."""
    made = np.zeros(size, dtype)
    for key in dtype.names or [...]:
        own = made[key]
        if own.dtype.kind in "biuf" and not own.dtype.metadata:
            own[...] = np.random.default_rng(1).integers(0, 100, own.shape)
    return made


# The tables ---------------------------------------------------------------------------------------------------------

#: By the name that --suite takes: its title, where GitHub has it, and what makes its cases.
SUITES: dict[str, tuple[str, str, Callable[[Path], Iterator[Case]]]] = {
    "samples": (SAMPLES, "NVIDIA/compute-sanitizer-samples", samples),
    "scor": (SCOR, "csl-iisc/ScoR", scor),
    "gpuverify": (GPUVERIFY, "mc-imperial/gpuverify", gpuverify),
    "indigo": (INDIGO, "JohnJacobsonIII/HiRace-Artifact-SC24", indigo),
}


def table(outcomes: Iterable[Outcome]) -> list[str]:
    """A row per row of launches, with how many count in which column."""
    rows: dict[str, Counter[str]] = {}
    for each in outcomes:
        rows.setdefault(each.row, Counter())[each.column] += 1
    head = f"| suite | {' | '.join(COLUMNS)} |", f"| --- |{' ---: |' * len(COLUMNS)}"
    return [*head, *(f"| {row} | {' | '.join(str(own[each]) for each in COLUMNS)} |" for row, own in rows.items())]


def reasons(outcomes: Iterable[Outcome]) -> list[str]:
    """What is not as labelled, with the kernels of one reason in a line."""
    lines: list[str] = []
    by_reason: dict[tuple[str, str, str], list[str]] = {}
    for each in outcomes:
        if each.column not in (NAMED, CLEAN):
            by_reason.setdefault((each.row, each.column, each.why), []).append(each.name)
    for row in dict.fromkeys(row for row, *_ in by_reason):
        lines += ["", f"### {row}", ""]
        for column in COLUMNS:
            own = {why: names for (each, found, why), names in by_reason.items() if (each, found) == (row, column)}
            for why, names in own.items():
                lines.append(f"- {column}, {len(names)}: {why}: {', '.join(f'`{name}`' for name in names)}.")
    return lines


def commit(clone: Path) -> str:
    """The commit of a clone with its day."""
    told = subprocess.run(["git", "-C", clone, "log", "-1", "--format=%h of %cs"], capture_output=True, text=True)
    return told.stdout.strip() or "no clone of git"


def parser(about: str | None) -> argparse.ArgumentParser:
    """A parser of which suites are to run, on how many cores."""
    made = argparse.ArgumentParser(description=(about or "").split("\n\n")[0])
    made.add_argument("folder", type=Path, metavar="FOLDER", help="has the clones of the suites")
    made.add_argument("--suite", nargs="+", choices=SUITES, default=list(SUITES), help="by default all")
    made.add_argument("--workers", type=int, default=os.cpu_count(), help="by default one per core")
    return made


def clone_of(suite: str, folder: Path) -> Path:
    """The clone of a suite's repository in a folder; the process ends if it is not there."""
    _, repository, _ = SUITES[suite]
    clone = folder / repository.split("/")[1]
    if not clone.is_dir():
        sys.exit(f"{clone} is not there; clone {repository} of GitHub into it")
    return clone


def main() -> None:
    """Run the suites that are asked for, each on all its kernels, and print what came out."""
    told = parser(__doc__).parse_args()
    chosen = [SUITES[name] for name in told.suite]
    clones = {SUITES[name][0]: clone_of(name, told.folder) for name in told.suite}
    found: list[Outcome] = []
    with ProcessPoolExecutor(told.workers) as workers:
        for title, _, cases_of in chosen:
            cases, own = list(cases_of(clones[title])), []
            for number, outcomes in enumerate(workers.map(run, cases), 1):
                own += outcomes
                print(f"\r{title}: {number} of {len(cases)} ", end="", file=sys.stderr, flush=True)
            print(file=sys.stderr)
            rows = list(dict.fromkeys(each.row for each in own))
            found += sorted(own, key=lambda each: rows.index(each.row))
            found += together(own) if title == INDIGO else []
    print("| suite | repository | commit |\n| --- | --- | --- |")
    for title, repository, _ in chosen:
        print(f"| {title} | {repository} | {commit(clones[title])} |")
    print("\n".join(["", *table(found)]))
    # On one graph many faults of Indigo cannot be seen: only those that are seen on none are listed.
    print("\n".join(reasons(each for each in found if not each.row.startswith(INDIGO) or each.row == TOGETHER)))


if __name__ == "__main__":
    main()
