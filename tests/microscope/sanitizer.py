"""What the microscope and compute-sanitizer say of the small kernels in this folder, side by side.

report/recorded/sanitizer.csv has a row per kernel and tool; docs/sanitizer.md is made of it. Run as a script, with a
log of compute-sanitizer or without, this file brings both up to date: see the docstring of `main`.
"""

import csv
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA, PAGE = ROOT / "report/recorded/sanitizer.csv", ROOT / "docs/sanitizer.md"
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
COLUMNS = ("file", "kernel", "tool", "verdict", "message")
#: Verdicts of a run: "clean"; "found", with a message of the tool's own; "failed", if CUDA itself ended the launch and
#: the tool says no more than that; "no end".
CLEAN, FOUND, FAILED, NO_END = "clean", "found", "failed", "no end"
#: Kinds of faults that tell nothing of a kernel that computes no product.
UNINTERESTING = ("incorrect", "order")

#: Why the two differ, and for which kernels. A test asks that these are all that differ.
WHY = {
    "racecheck looks at the shared memory of one block: not at that of a neighbour in the cluster, not at"
    " global memory": """
        faulty_exchange_by_relaxed_barrier faulty_lock_given_back_too_early faulty_write_after_read
        faulty_multicast_overwrites faulty_last_block_without_fence race_blocks_share_a_row_of_c
        race_last_block_without_fence race_counter_read_plainly race_in_place_row_of_c""",
    "racecheck does not report a plain access concurrent with an atomic operation": """
        faulty_atomic_and_plain faulty_byte_of_a_counter faulty_histogram_read_early""",
    "no tool checks the fences that asynchronous units need": """
        faulty_mbarrier_not_shown faulty_mbarrier_tile_not_fenced faulty_bulk_store_without_fence
        asynchrony_no_proxy_fence asynchrony_wgmma_without_fence""",
    "no tool sees that a copy to global memory still reads its source": """
        faulty_bulk_store_not_waited_for race_bulk_store_source_reused""",
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
    return ", ".join(sorted(found - set(UNINTERESTING) or found)) or CLEAN


def recorded(file: str, kernel: str) -> str:
    """What the table has for `kinds`."""
    tools = by_kernel().get((file, kernel))
    assert tools, f"{kernel} is not in {DATA}; run `PYTHONPATH=workflow python tests/microscope/sanitizer.py`"
    return tools["microscope"]["verdict"]


def is_accused(tools: dict[str, dict[str, str]]) -> bool:
    """Whether compute-sanitizer, or the launch under it, says that something is wrong."""
    return any(tools[tool]["verdict"] != CLEAN for tool in TOOLS)


def page() -> str:
    """The text of docs/sanitizer.md."""
    everything = by_kernel()
    both = {key: tools for key, tools in everything.items() if set(TOOLS) <= set(tools)}
    faulty = {key: tools for key, tools in both.items() if not key[1].startswith("clean")}
    clean = {key: tools for key, tools in both.items() if key not in faulty}
    named = [key for key, tools in faulty.items() if any(tools[tool]["verdict"] == FOUND for tool in TOOLS)]
    hang = [
        key for key, tools in faulty.items() if key not in named and any(tools[t]["verdict"] == NO_END for t in TOOLS)
    ]
    failed = [key for key, tools in faulty.items() if key not in named and key not in hang and is_accused(tools)]
    missed = [key for key, tools in faulty.items() if not is_accused(tools)]
    ours = [tools["microscope"]["verdict"] for tools in faulty.values()]
    seen = len(ours) - ours.count(CLEAN)
    accused = [key for key, tools in clean.items() if is_accused(tools)]
    false = sum(tools["microscope"]["verdict"] != CLEAN for tools in clean.values())
    lines = [
        "# The microscope and compute-sanitizer",
        "",
        "<!-- Made by tests/microscope/sanitizer.py of report/recorded/sanitizer.csv; do not edit. -->",
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


def _of_log(path: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Rows by kernel and tool of a log with a JSON object per line: `id` (what, kernel, type, tool), `exit`, `errors`,
    `summary`."""
    found = {}
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        what, kernel, _, tool = entry["id"]
        own = [error for error in entry["errors"] if not error.startswith("Target application")]
        message = own[0].split(" at __")[0].split(" of size")[0].removesuffix(".") if own else ""
        message = re.sub(r"Error: |Warning: |Potential | detected", "", message)
        if not own and re.match(r"RACECHECK SUMMARY: [1-9]", "".join(entry["summary"])):
            own, message = entry["summary"], "hazards"
        verdict = FOUND if own else NO_END if entry["exit"] == "hangs" else FAILED if entry["exit"] else CLEAN
        if what == "small":
            found[kernel, tool] = {"verdict": verdict, "message": message}
    return found


def main() -> None:
    """`PYTHONPATH=workflow python tests/microscope/sanitizer.py [LOG]`: the microscope's column, by all its kernels,
    and compute-sanitizer's from a log, or as it was."""
    import tempfile

    import test_constructs
    import test_people

    from tilewise.microscope.compile import build_traced

    before = {(row["kernel"], row["tool"]): row for row in rows()} if DATA.exists() else {}
    said = {**before, **(_of_log(Path(sys.argv[1])) if len(sys.argv) > 1 else {})}
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for file in [*test_constructs.FILES, test_people.FILE]:
            if people := file == test_people.FILE:
                names = list(test_people.BEGINS)
                built = build_traced(test_people.kernel_of(names[0]), names, Path(folder, "people.so"))
            else:
                names = [name for name, own in test_constructs.NAMES.items() if own == file]
                instances = [f"{name}<float>" for name in names]
                built = build_traced(test_constructs.kernel_of(names[0]), instances, Path(folder, f"{file.stem}.so"))
            for name in names:
                faults = test_people.traced(name, built) if people else test_constructs.traced(name, {file: built})[1]
                found.append([file.name, name, "microscope", kinds(faults), ""])
                for tool in TOOLS:
                    if row := said.get((name, tool)):
                        found.append([file.name, name, tool, row["verdict"], row["message"]])
    with DATA.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *found])
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
