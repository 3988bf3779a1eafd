"""Which columns each table of the report shows, in which order and under which groups.

The words above a column come from `tilewise.study.columns`, unless a table needs others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tilewise.report.data import Evidence
from tilewise.study import columns

#: A column -> (group above the heading, heading).
Headings = dict[str, tuple[str, str]]


@dataclass(frozen=True)
class Layout:
    """Groups of columns with the words above each group; `headings` replaces the words above single columns.

    `*` stands for the columns of a table that no list names: the parameters of its kernels, or the steps of a call,
    whose headings are `others` of their names.
    """

    groups: tuple[tuple[str, str], ...]
    headings: Mapping[str, str]
    others: Callable[[str], str]

    def of(self, table: pd.DataFrame) -> Headings:
        """Those columns of the layout that a table has, with their groups and headings."""
        own = columns.parameters_of(table)
        found = {}
        for group, names in self.groups:
            for word in names.split():
                for name in own if word == "*" else [word]:
                    words = self.others(name) if word == "*" else columns.heading(name)
                    found[name] = (group, self.headings.get(name, words))
        return {name: heads for name, heads in found.items() if name in table}


def layout(*groups: tuple[str, str], others: Callable[[str], str] = str, **headings: str) -> Layout:
    """A Layout with its replaced headings as keywords."""
    return Layout(groups, headings, others)


def _step(name: str) -> str:
    return name.removesuffix("_ms").replace("_", " ")


_SOURCE_A = "Published: RTX 2080 Ti"
_HERE = "Measured"
LAYOUTS = {
    "winners": layout(
        ("", "shape platform kernel"),
        (_SOURCE_A, "published_block published_grid published_ms published_cpu_ms"),
        (_HERE, "block grid time_ms batch_ms samples spread_percent between_percent sm_clock_mhz cpu_ms"),
        ("Best", "at_end"),
        ("Published / measured", "ratio ratio_cpu"),
        ("", "percent_of_anchor"),
        ("This machine", "emulator"),
        published_ms="GPU ms",
        time_ms="GPU ms",
        ratio="GPU",
    ),
    "sweep": layout(
        ("", "shape platform kernel dtype * block grid"),
        ("Published", "published_ms"),
        (_HERE, "time_ms batch_ms samples spread_percent between_percent sm_clock_mhz gflops bound_ratio"),
        ("Best", "at_end"),
        ("Ratio", "ratio percent_of_anchor"),
        ("This machine", "emulator"),
    ),
    "cpu": layout(
        ("", "shape kernel dtype * platform"),
        ("Published: host of source a", "published_ms"),
        (_HERE, "time_ms spread_percent gflops"),
        ("Ratio", "ratio percent_of_anchor"),
        percent_of_anchor="% of NumPy's BLAS",
    ),
    "maximum_size": layout(
        ("", "quantity platform"),
        (_SOURCE_A, "published"),
        (_HERE, "measured"),
        ("Ratio", "ratio"),
        ("", "note"),
        measured="value",
        ratio="measured / published",
    ),
    "choices": layout(
        ("", "shape platform kernel dtype points_ran"),
        ("Best", "choice time_ms spread_percent between_percent at_end"),
        ("Runner-up", "runner_up gap_percent decided"),
    ),
    "ladder": layout(
        ("", "shape platform kernel dtype"),
        ("Best", "choice time_ms gflops sm_clock_mhz"),
        ("Share, %", "percent_of_peak percent_of_anchor"),
        ("Times faster", "speedup_over_naive speedup_over_cpu published_speedup_over_cpu"),
        percent_of_anchor="of cuBLAS",
    ),
    "limited_by": layout(
        ("", "kernel platform dtype shape choice"),
        (_HERE, "time_ms gflops sm_clock_mhz"),
        ("Per 100 multiply-adds of a warp", "wavefronts_per_100 hardware_wavefronts_per_100 lines_per_100"),
        ("Share of its roof", "limited_by limit_percent second_limit second_percent"),
        wavefronts_per_100="wavefronts",
        hardware_wavefronts_per_100="by ncu",
        lines_per_100="lines in L1",
        limit_percent="%",
        second_percent="%",
    ),
    "profiled": layout(
        ("", "kernel platform dtype shape choice profiled_ms"),
        ("Schedulers, %", "issue_percent active_warps_percent"),
        ("Hits, %", "l1_hit_percent l2_hit_percent"),
        ("From and to memory", "dram_gb matrices_moved dram_percent l2_percent"),
        ("", "wavefronts_per_100 waits"),
        issue_percent="issue",
        active_warps_percent="active warps",
        l1_hit_percent="L1",
        l2_hit_percent="L2",
        dram_percent="busy, %",
        l2_percent="L2 busy, %",
    ),
    "cards": layout(("", "platform node gpu_uuid compared sm_clock_mhz rate_percent")),
    "platforms": layout(
        ("", "shape kernel dtype choice"),
        ("Time", "platform time_ms other_machine other_ms"),
        ("Times as fast", "faster faster_low faster_high"),
        ("", "changed"),
        faster="here",
    ),
    "failures": layout(("", "platform task kernel dtype shape choice points status message")),
    "verification": layout(
        ("", "platform kernel dtype"),
        ("Points", "points verified"),
        ("Largest", "largest_bound_ratio largest_relative_error"),
        points="all",
    ),
    "cache_lines": layout(
        ("", "shape platform kernel dtype"),
        (_HERE, "ns_per_multiply_add spread_percent"),
        ("Counted: lines per multiply-add", "l1_lines_per_multiply_add l2_lines_per_multiply_add"),
    ),
    "traffic": layout(
        ("", "kernel dtype choice shape"),
        ("Global memory", "global_load_requests global_load_sectors sectors_per_request global_store_sectors"),
        ("Shared memory", "shared_load_wavefronts shared_bank_conflicts"),
        ("FLOP per byte", "flop_per_byte flop_per_byte_moved"),
        ("Faults", f"searched {' '.join(columns.FAULTS)}"),
        ("Remark", "unused_reads"),
    ),
    "instructions": layout(
        ("", "kernel platform dtype instance multiply_add instructions"),
        ("Of these", "multiply_add_instructions multiply_add_percent"),
        ("Shared loads", "shared_loads_128 shared_loads_64 shared_loads_32 matrix_loads"),
        ("Global loads and copies", "global_loads_128 global_loads_64 global_loads_32 async_copies tensor_copies"),
        ("Stores", "shared_stores global_stores spills"),
        ("Others", "synchronisation integer arithmetic moves control other"),
        ("Of the kernel", "reused_per_multiply_add registers gflops ceiling_gflops percent_of_ceiling"),
        shared_loads_128="16 B",
        shared_loads_64="8 B",
        shared_loads_32="4 B",
        global_loads_128="16 B",
        global_loads_64="8 B",
        global_loads_32="4 B",
        shared_stores="shared",
        global_stores="global",
        multiply_add_percent="%",
    ),
    "rungs": layout(
        ("", "kernel platform"),
        (_HERE, "gflops gain percent_of_anchor sm_clock_mhz"),
        (
            "Machine code",
            "multiply_add_percent ceiling_gflops percent_of_ceiling others_per_100 reused_per_multiply_add",
        ),
        ("Bytes per multiply-add", "global_bytes_per_multiply_add shared_bytes_per_multiply_add"),
        ("Shared memory, counted", "wavefronts_per_100 conflict_percent"),
        ("Occupancy", "registers warps waves"),
        ("", "choice"),
        percent_of_anchor="% of cuBLAS",
        global_bytes_per_multiply_add="global",
        shared_bytes_per_multiply_add="shared",
    ),
    "tuning": layout(
        ("", "platform kernel dtype shape_class shape"),
        ("Variants", "variants failed spilled within_percent"),
        ("Best", "choice gflops"),
        ("Registry's choice", "registry_gflops gain_percent"),
        ("", "percent_of_anchor"),
        choice="parameters",
    ),
    "not_emulated": layout(("", "kernel title reason")),
    "cold_start": layout(
        ("", "order platform position kernel"),
        ("Published: V100", "published_ms"),
        ("Measured, ms", "* alone_ms"),
        published_ms="whole call, ms",
        others=_step,
    ),
    "launch_limits": layout(
        ("", "kernel platform block threads shared_bytes limit_raised percent_of_limit outcome"),
        ("Error", "error driver_error"),
        ("", "c_untouched"),
    ),
    "accuracy": layout(
        ("", "p kernel platform origin operands"),
        ("Error, Frobenius norm", "relative_error sgemm_relative_error"),
        ("Error, worst element", "worst_error sgemm_worst_error"),
        ("", "verdict claimed status message"),
        relative_error="kernel",
        sgemm_relative_error="SGEMM",
        worst_error="kernel",
        sgemm_worst_error="SGEMM",
    ),
    "energy": layout(
        ("", "shape platform kernel dtype choice"),
        ("Again and again", "counted_products energy_s gflops watts"),
        ("Energy", "joules_per_product gflop_per_joule"),
        ("", "status message"),
    ),
    "bandwidth": layout(
        ("", "quantity platform dtype measured datasheet percent_of_datasheet unit status message"),
        message="note",
    ),
    "overhead": layout(
        ("", "platform overhead_us samples noise sm_clock_mhz status message"),
        message="note",
    ),
    "occupancy": layout(
        ("", "kernel platform dtype choice"),
        ("Of a block", "threads registers shared_bytes"),
        ("Blocks per multiprocessor", "active_blocks api_active_blocks"),
        ("", "occupancy_percent limiter"),
    ),
    "agreement": layout(
        ("", "kernel dtype count"),
        ("Launches", "launches equal"),
        ("", "largest_difference_percent"),
    ),
    "counted": layout(("", "kernel dtype choice shape count counted hardware difference_percent")),
    "durations": layout(("", "platform task points remembered wall_s timed_s")),
}


def _some(name: str, kept: str) -> Layout:
    """The layout of this name with these columns alone."""
    whole, names = LAYOUTS[name], set(kept.split())
    groups = ((group, " ".join(word for word in words.split() if word in names)) for group, words in whole.groups)
    return Layout(tuple(each for each in groups if each[1]), whole.headings, whole.others)


#: Of tables of many columns those that carry the message; the others are in the fold, and a kernel's parameters are one
#: column of words.
BRIEF = {
    "winners": _some(
        "winners",
        "shape platform kernel published_block published_ms published_cpu_ms block time_ms spread_percent "
        "between_percent cpu_ms at_end ratio ratio_cpu percent_of_anchor",
    ),
    "sweep": layout(
        ("", "shape platform kernel dtype choice"),
        ("Published", "published_ms"),
        (_HERE, "time_ms spread_percent between_percent gflops bound_ratio"),
        ("Best", "at_end"),
        ("Ratio", "ratio percent_of_anchor"),
    ),
    "rungs": _some(
        "rungs",
        "kernel platform gflops gain percent_of_anchor multiply_add_percent ceiling_gflops percent_of_ceiling "
        "others_per_100 wavefronts_per_100 conflict_percent registers warps waves",
    ),
    "instructions": layout(
        ("", "kernel platform dtype multiply_add instructions multiply_add_instructions multiply_add_percent"),
        ("Of the kernel", "reused_per_multiply_add registers gflops ceiling_gflops percent_of_ceiling"),
        multiply_add_percent="%",
    ),
    "ladder": layout(
        ("", "shape platform kernel dtype choice"),
        ("Best", "time_ms gflops"),
        ("Share, %", "percent_of_peak percent_of_anchor"),
        ("Times faster", "speedup_over_naive"),
        percent_of_anchor="of cuBLAS",
    ),
    "limited_by": _some(
        "limited_by",
        "kernel platform dtype shape time_ms gflops wavefronts_per_100 hardware_wavefronts_per_100 lines_per_100 "
        "limited_by limit_percent second_limit second_percent",
    ),
    "traffic": _some(
        "traffic",
        "kernel dtype choice shape global_load_requests global_load_sectors sectors_per_request "
        "shared_load_wavefronts shared_bank_conflicts flop_per_byte flop_per_byte_moved races out_of_bounds",
    ),
    "profiled": _some(
        "profiled",
        "kernel platform dtype shape profiled_ms issue_percent l1_hit_percent l2_hit_percent dram_gb matrices_moved "
        "wavefronts_per_100 waits",
    ),
    "energy": _some(
        "energy", "shape platform kernel dtype gflops watts joules_per_product gflop_per_joule status message"
    ),
}


def of(layout: Any, table: pd.DataFrame) -> Headings:
    """The columns to show of a table; `layout` is a name in LAYOUTS, headings as they are, or None for all columns."""
    if layout is None:
        return {name: ("", name) for name in table}
    if isinstance(layout, str):
        return LAYOUTS[layout].of(table)
    return {name: heads for name, heads in layout.items() if name in table}


def claims(evidence: Evidence) -> Headings:
    """The layout of `claims.side_by_side`: two columns for each platform; `why` is shown below the claim."""
    layout = {"source": ("", "source"), "claim": ("", "claim, and why"), "published": ("", "published")}
    for platform in evidence.readers:
        layout[f"verdict {platform.name}"] = (evidence.labels[platform.name], "verdict")
        layout[f"measured {platform.name}"] = (evidence.labels[platform.name], "measured, with its range")
    return layout
