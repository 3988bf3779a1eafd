"""What the microscope and compute-sanitizer say of the small kernels in this folder, side by side.

report/recorded/sanitizer.csv has a row per kernel and tool. `python sanitizer.py` brings the microscope's rows up to
date, `python sanitizer.py --gpu` those of compute-sanitizer's tools; `python sanitizer.py --show` prints a comparison.
"""

import argparse
import csv
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from tilewise.nvidia.nvrtc import cubin_of
from tilewise.study.jobs import Job
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.traced.multiplication import Multiplication

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "report/recorded/sanitizer.csv"
#: Who judges a kernel.
JUDGES = MICROSCOPE, *TOOLS = "microscope", "memcheck", "racecheck", "synccheck", "initcheck"
TIMEOUT_S = 30
COLUMNS = ("file", "kernel", "tool", "verdict", "message")
#: Verdicts of a run: "clean"; "found", with a message of the tool's own; "failed", if CUDA itself ended the launch and
#: the tool says no more than that; "no end".
CLEAN, FOUND, FAILED, NO_END = "clean", "found", "failed", "no end"
#: The microscope's verdict if it has only a remark.
REMARK = "remark"
#: Lines of a tool before its first message.
NO_MESSAGE = ("COMPUTE-SANITIZER", "Target application", "ERROR SUMMARY", "RACECHECK SUMMARY")
#: Kinds of faults that tell nothing of a kernel that computes no product.
UNINTERESTING = ("incorrect", "order")

#: Why the two differ, and for which kernels. A test asks that these are all that differ.
WHY = {
    "racecheck looks at the shared memory of one block: not at that of a neighbour in the cluster, not at"
    " global memory": """
        faulty_exchange_by_relaxed_barrier faulty_lock_given_back_too_early faulty_write_after_read
        faulty_multicast_overwrites faulty_last_block_without_fence race_blocks_share_a_row_of_c
        race_last_block_without_fence race_counter_read_plainly race_in_place_row_of_c
        faulty_no_fence_between_blocks faulty_grid_written_again_between_blocks""",
    "racecheck does not report a plain access concurrent with an atomic operation": """
        faulty_atomic_and_plain faulty_byte_of_a_counter faulty_histogram_read_early""",
    "no tool checks the fences that asynchronous units need": """
        faulty_mbarrier_not_shown faulty_mbarrier_tile_not_fenced faulty_bulk_store_without_fence
        asynchrony_no_proxy_fence asynchrony_wgmma_without_fence faulty_bulk_copy_of_what_was_not_shown
        faulty_bulk_sum_onto_what_was_not_shown""",
    "no tool sees that a copy to global memory still reads its source": """
        faulty_bulk_store_not_waited_for race_bulk_store_source_reused""",
    "no tool sees that a copy has still to write global memory, or that a copy from there is not over": """
        faulty_bulk_store_read_back_beside_another faulty_bulk_store_twice faulty_source_of_a_copy_overwritten
        faulty_source_of_a_bulk_copy_overwritten""",
    "no tool checks that a block waits for its copies before it ends": """
        faulty_copy_not_waited_for_at_all faulty_bulk_copy_not_waited_for_at_all
        faulty_bulk_store_without_wait_at_all""",
    "memcheck checks whether an address belongs to an array, not to which one; here another array follows": """
        faulty_load_of_four_at_the_end""",
    "the H200 continues as if nothing were wrong: threads that have ended or are elsewhere count at its "
    "barriers, and a mask that names the wrong lanes has no effect; the result is undefined by the rules "
    "of CUDA": """
        faulty_mma_without_some_lanes faulty_shuffle_reads_lane_outside faulty_mask_without_caller faulty_two_masks
        divergence_return_before_barrier divergence_trip_count_per_thread divergence_shuffle_in_branch
        divergence_barrier_in_a_loop_over_own_rows divergence_syncthreads_in_warps
        faulty_shuffle_reads_lane_outside_the_living""",
    "synccheck does not follow the cluster's barrier": """
        faulty_vote_arrives_twice faulty_vote_never_arrives""",
    "initcheck looks at global memory only": """
        faulty_atomic_not_begun uninitialised_halo_of_a_tile faulty_sum_not_begun""",
    "no tool knows the right product": """
        incorrect_only_one_column_per_block incorrect_accumulator_not_cleared""",
    "no tool reports it, for an unknown reason: nvcc may have left out or moved an access on which little depends": """
        out_of_bounds_local_array out_of_bounds_prefetch_behind_the_end race_struct_in_shared_memory
        misaligned_dynamic_offset out_of_bounds_half_as_float race_write_after_shuffle faulty_address_past_registers
        faulty_misaligned_half_of_a_pair faulty_flag_between_warps_without_fence""",
    "a false report of racecheck, which does not follow a warp that meets in __syncwarp before one lane arrives at a "
    "barrier in shared memory for all, nor threads that meet at a named barrier": """
        clean_mbarrier clean_named_barriers_of_producers""",
    "a false report of initcheck, which does not see what cp.async.bulk writes to global memory": """
        clean_bulk_store_read_back clean_bulk_store_told_between_blocks""",
    "a false report of synccheck, which requires that each thread that arrives at a barrier of cuda::barrier "
    "waits there, too": """
        clean_pipeline_of_a_block clean_pipeline_of_producers_and_consumers clean_barrier_and_its_copies""",
}


def rows() -> list[dict[str, str]]:
    """The recorded rows."""
    with DATA.open(newline="") as file:
        return list(csv.DictReader(file))


def by_kernel() -> dict[tuple[str, str], dict[str, dict[str, str]]]:
    """The recorded rows by file and kernel, then by tool."""
    found: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    for row in rows():
        found.setdefault((row["file"], row["kernel"]), {})[row["tool"]] = row
    return found


def kinds(faults) -> str:
    """The verdict of the microscope on a kernel in words: the kinds of its faults."""
    found = {fault.kind for fault in faults if not fault.is_remark}
    return ", ".join(sorted(found - set(UNINTERESTING) or found)) or (REMARK if faults else CLEAN)


def recorded(file: str, kernel: str) -> str:
    """What the table has for `kinds`."""
    tools = by_kernel().get((file, kernel))
    assert tools, f"{kernel} is not in {DATA}; run `python tests/microscope/sanitizer.py`"
    return tools[MICROSCOPE]["verdict"]


def is_accused(tools: dict[str, dict[str, str]]) -> bool:
    """Whether compute-sanitizer, or the launch under it, says that something is wrong."""
    return any(tools[tool]["verdict"] != CLEAN for tool in TOOLS)


def page() -> str:
    """The comparison, in Markdown."""
    everything = by_kernel()
    both = {key: tools for key, tools in everything.items() if {*TOOLS} <= {*tools}}
    faulty = {key: tools for key, tools in both.items() if not key[1].startswith("clean")}
    clean = {key: tools for key, tools in both.items() if key not in faulty}
    named = [key for key, tools in faulty.items() if any(tools[tool]["verdict"] == FOUND for tool in TOOLS)]
    hang = [
        key for key, tools in faulty.items() if key not in named and any(tools[t]["verdict"] == NO_END for t in TOOLS)
    ]
    failed = [key for key, tools in faulty.items() if key not in named and key not in hang and is_accused(tools)]
    missed = [key for key, tools in faulty.items() if not is_accused(tools)]
    ours = [tools[MICROSCOPE]["verdict"] for tools in faulty.values()]
    seen = len(ours) - ours.count(CLEAN)
    accused = [key for key, tools in clean.items() if is_accused(tools)]
    false = sum(tools[MICROSCOPE]["verdict"] != CLEAN for tools in clean.values())
    lines = [
        "# The microscope and compute-sanitizer",
        "",
        f"The small kernels of `tests/microscope`, {len(clean)} clean and {len(faulty)} with one mistake each, ran on",
        "an H200 under the four tools of compute-sanitizer, compiled by the same NVRTC, at the same sizes. They are",
        "the microscope's own tests, which it passes, so the table shows only what the other tools see of them.",
        "The tools are those of CUDA 13.0 (version 2025.3.1). Version 2026.4.0 ran on 82 of the kernels: it finds",
        "three more mistakes (`faulty_write_after_read`, `faulty_multicast_overwrites`,",
        "`faulty_mbarrier_tile_not_fenced`), and reports the same false positives.",
        "",
        "| | the microscope | compute-sanitizer |",
        "| --- | --- | --- |",
        f"| mistakes found, of {len(faulty)} | {seen} | {len(named)} |",
        f"| the run hangs, without a report | {ours.count(NO_END)} | {len(hang)} |",
        f"| the launch fails, without a report | {ours.count(FAILED)} | {len(failed)} |",
        f"| mistakes missed | {len(faulty) - seen} | {len(missed)} |",
        f"| false positives among {len(clean)} clean kernels | {false} | {len(accused)} |",
        "",
        "Where they differ, and why:",
        "",
        *(f"- {why}: {', '.join(f'`{name}`' for name in names.split())}." for why, names in WHY.items()),
        "",
        f"All kernels. The {len(everything) - len(both)} kernels without an entry were written or renamed later, and",
        "have not run on a GPU.",
        "",
        "| kernel | the microscope | " + " | ".join(TOOLS) + " |",
        "| --- | --- |" + " --- |" * len(TOOLS),
    ]
    for (file, kernel), tools in everything.items():
        said = [tools[tool]["message"] or tools[tool]["verdict"] if tool in tools else "" for tool in TOOLS]
        lines.append(f"| {Path(file).stem}: `{kernel}` | {tools['microscope']['verdict']} | " + " | ".join(said) + " |")
    return "\n".join(lines) + "\n"


def watched(tool: str, command: Sequence[Path | str], *options: str) -> tuple[str, str]:
    """The verdict of a tool on a Python script that launches kernels, and its first message."""
    how = ["compute-sanitizer", "--tool", tool, "--report-api-errors", "no", "--print-limit", "1", *options]
    try:
        done = subprocess.run([*how, sys.executable, *command], capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return NO_END, ""
    return verdict(done.stdout, done.returncode, done.stderr)


def verdict(said: str, status: int, error: str) -> tuple[str, str]:
    """The verdict that a tool's output stands for, and its first message, without places."""
    if re.search(r"(?:ERROR|RACECHECK) SUMMARY: [1-9]", said):
        lines = [line.removeprefix("=========").strip() for line in said.splitlines() if line.startswith("=========")]
        message = next((line for line in lines if line and not line.startswith(NO_MESSAGE)), "")
        message = re.split(r" at | of size|: *$", message)[0].removesuffix(".")
        return FOUND, re.sub(r"Error: |Warning: |Potential | detected", "", message)
    return (FAILED, error.strip().splitlines()[-1] if error.strip() else "") if status else (CLEAN, "")


def launch(file: Path) -> None:
    """Launch what `judged` has prepared, in a process that a tool watches. Raises what CUDA says."""
    import cupy

    from tilewise.nvidia.launcher import Product

    cupy.cuda.set_allocator(None)  # CuPy's pool would hide from memcheck where an array ends
    job, factors = pickle.loads(file.read_bytes())
    arrays = dict(zip("AB", map(cupy.asarray, factors)))
    arrays["C"] = cupy.empty((job.point.n, job.point.m), np.float32)
    Product(job, {name: array.data.ptr for name, array in arrays.items()})()
    cupy.cuda.runtime.deviceSynchronize()


def judged(kernel: Kernel, point: Point) -> dict[str, tuple[str, str]]:
    """What each tool says of a kernel on this machine's GPU. Raises UserError if NVRTC refuses the kernel."""
    plan = kernel.plan(point)
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for instance in plan.instances:
            cubin, entry = cubin_of(kernel.path, str(kernel.source), instance, "sm_90a")
            path = Path(folder, f"{len(files)}.cubin")
            path.write_bytes(cubin)
            files[instance] = str(path), entry["symbol"]
        job = Job("", "cuda", kernel, point, {}, plan.launches, plan.product, plan.workspaces, files)
        prepared = Path(folder, "job")
        prepared.write_bytes(pickle.dumps((job, Multiplication(kernel, point).factors)))
        of_racecheck = ("--racecheck-report", "hazard")
        return {
            tool: watched(tool, [__file__, "--launch", prepared], *(of_racecheck if tool == "racecheck" else ()))
            for tool in TOOLS
        }


def of_microscope() -> Iterator[tuple[str, ...]]:
    """The microscope's rows."""
    import test_constructs
    import test_people

    with tempfile.TemporaryDirectory() as folder:
        libraries, people = test_constructs.built(Path(folder)), test_people.built(Path(folder))
        for name, file in test_constructs.NAMES.items():
            yield file.name, name, MICROSCOPE, kinds(test_constructs.traced(name, libraries)[1]), ""
        for name in test_people.BEGINS:
            yield test_people.FILE.name, name, MICROSCOPE, kinds(test_people.traced(name, people)), ""


def of_tools() -> Iterator[tuple[str, ...]]:
    """The rows of the four tools."""
    import test_constructs
    import test_people

    jobs = [(test_constructs.kernel_of(name), test_constructs.point_of(name)) for name in test_constructs.NAMES]
    jobs += [(test_people.kernel_of(name), test_people.point_of(name)) for name in test_people.BEGINS]
    with ProcessPoolExecutor() as workers:
        for number, ((kernel, _), found) in enumerate(zip(jobs, workers.map(judged, *zip(*jobs))), 1):
            yield from ((str(kernel.source), kernel.name, tool, *said) for tool, said in found.items())
            print(f"\r{number} of {len(jobs)} ", end="", file=sys.stderr, flush=True)


def main() -> None:
    """Bring one part of the table up to date, or print a comparison of the tools."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--gpu", action="store_true", help="the four tools' part, on this GPU; else the microscope's")
    parser.add_argument("--launch", type=Path, metavar="FILE", help="what --gpu runs under a tool")
    parser.add_argument("--show", action="store_true", help="print the comparison in Markdown")
    asked = parser.parse_args()
    if asked.show:
        return print(page(), end="")
    if asked.launch:
        return launch(asked.launch)
    before = rows()
    new = [dict(zip(COLUMNS, row)) for row in (of_tools() if asked.gpu else of_microscope())]
    found = {(row["file"], row["kernel"], row["tool"]): row for row in before + new}
    kernels = dict.fromkeys((row["file"], row["kernel"]) for row in new)
    keys = [(*each, tool) for each in kernels for tool in JUDGES]
    with DATA.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(found[key] for key in keys if key in found)


if __name__ == "__main__":
    main()
