"""Every column of every file and table, once: its name, type, unit, heading and meaning, and which files hold it.

CSVs are written and read by this list, tables take their headings from it, and docs/columns.md is made of it. The
parameters of the kernels have a column each, named like them; their names come from the registry.
"""

import functools
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewise import UserError
from tilewise.files import remedy

if TYPE_CHECKING:
    import pandas as pd  # takes half a second to load, which a command has not


@dataclass(frozen=True)
class Column:
    """A column: `type` is text, whole, number or flag; `unit` is empty for what has none."""

    name: str
    type: str
    unit: str
    heading: str
    meaning: str

    @property
    def pandas(self) -> str:
        """The type that pandas holds it in; sizes and counts may be missing, and text is then empty."""
        return {"text": "str", "whole": "Int64", "number": "float64", "flag": "boolean"}[self.type]


#: name | type | unit | heading | meaning
_COLUMNS = """
platform | text | | machine | the machine, named like its folder under results/
task | text | | task | the task of the config
kernel | text | | kernel | its entry in the registry
dtype | text | | type | the element type
n | whole | | n | rows of A and of C
p | whole | | p | columns of A and rows of B
m | whole | | m | columns of B and of C
block_x | whole | | block x | threads of a block along x, of the launch that makes the product
block_y | whole | | block y | threads of a block along y
grid_x | whole | | grid x | blocks of the grid along x
grid_y | whole | | grid y | blocks of the grid along y
status | text | | status | ok, incorrect, invalid_launch, out_of_memory, compile_error, timeout, unsupported or error
message | text | | cause | why the status is not ok; else how the product was verified or launched
samples | whole | | samples | isolated runs
time_ms | number | ms | ms | median of the isolated runs, all launches of the kernel together
time_min_ms | number | ms | fastest, ms | the fastest run
time_q1_ms | number | ms | first quartile, ms | a quarter of the runs is faster
time_q3_ms | number | ms | third quartile, ms | a quarter of the runs is slower
noise | number | | noise | standard deviation of the runs divided by their mean
batch_ms | number | ms | batched, ms | mean time of a run among many without pauses between them; of runs below 10 ms
gflops | number | GFLOP/s | GFLOP/s | 2 n p m divided by time_ms
sm_clock_mhz | number | MHz | clock, MHz | median clock of the multiprocessors during the runs
sm_clock_min_mhz | number | MHz | lowest clock, MHz | the lowest of these clocks
runs | whole | | runs | processes that timed the point; the row is that of the one whose median is the middle one
run_low_ms | number | ms | fastest run, ms | the least of their medians
run_high_ms | number | ms | slowest run, ms | the largest of their medians
gpu_uuid | text | | GPU | the GPU that ran the point
node | text | | node | the machine that ran the point, as Slurm calls it
slurm_job | text | | Slurm job | the number of the Slurm job that ran the point
processor | text | | processor | the processor of the node
alone | flag | | alone | whether no other process used the GPU and no other Slurm job the node; empty if nobody knows
commit | text | | commit | the commit of the clone when the point was measured; empty in a copy without git's history
changes | text | | changes | files of kernels, workflow and config that differed from the commit, new ones too
registers | whole | | registers per thread | registers of a thread
shared_bytes | whole | B | shared memory, B | shared memory of a block, static and dynamic
relative_error | number | | relative error | error of C against float64, in the Frobenius norm
bound_ratio | number | | error / bound | the largest quotient of an element's error and its rounding bound
build_sha256 | text | | build | hash of the sources, instances and options of the build

operands | text | | operands | the kind of A and B
origin | text | | origin | measured, or predicted from a few rows and columns by the model of the tensor cores
claimed | flag | | claimed | whether the registry claims the accuracy of SGEMM for such operands and sums so long
worst_error | number | | worst element | the largest error of an element, relative to the magnitudes that it sums
sgemm_relative_error | number | | SGEMM, relative error | the relative error of cuBLAS's SGEMM on the same operands
sgemm_worst_error | number | | SGEMM, worst element | the worst element of cuBLAS's SGEMM on the same operands
loop_difference | number | | from the CPU loop | how far C is from what the CPU's loop kij makes, in the Frobenius norm
verdict | text | | verdict | passes: no error is larger than SGEMM's; refuses: whole rows or columns are NaN; fails

counted_products | whole | | products | products in the time that the energy counter was watched
energy_s | number | s | time, s | that time
joules | number | J | J | what the whole board took in it, by NVML's counter
joules_per_product | number | J | J per product | the same for one product
watts | number | W | W | the same for one second
gflop_per_joule | number | GFLOP/J | GFLOP/J | 10⁹ operations per joule

memory_total_bytes | whole | B | memory, B | the device's memory
memory_free_bytes | whole | B | free memory, B | the part of it that was not in use
theoretical_n | whole | | largest n in theory | the largest n whose three matrices are not larger than the memory
allocatable_n | whole | | largest n allocated | the largest n whose three matrices could be allocated
predicted_ms | number | ms | predicted, ms | what the product at allocatable_n would take, at the rate of a smaller one
budget_s | number | s | budget, s | maximum_size.budget_s of the config
timed_n | whole | | n timed | the largest n whose product takes no longer than the budget
rows_checked | whole | | rows checked | rows of C that were verified

order | text | | order | the kernels in the order in which a fresh process runs them
position | whole | | call | place in the order, from 1
step | text | | step | a step of the call; `total` is the whole
ms | number | ms | ms | time of the step
repeat | whole | | repeat | number of the fresh process, from 1

threads | whole | | threads | threads of a block
limit_raised | flag | | limit raised | whether the kernel's limit of dynamic shared memory was raised before the launch
outcome | text | | outcome | launched or refused
error | text | | runtime | the CUDA runtime's name of the error
error_text | text | | error text | the runtime's words for it
driver_error | text | | driver | the CUDA driver's name of the error
c_untouched | flag | | C untouched | whether C is as it was before the launch

overhead_us | number | µs | overhead, µs | median isolated time of an empty kernel of one thread

quantity | text | | quantity | what was measured or published
measured | number | | measured | its value here
datasheet | number | | datasheet | its value in the datasheet
unit | text | | unit | the unit of both

active_blocks | whole | | computed | blocks that a multiprocessor holds at a time, by NVIDIA's rules
occupancy | number | | occupancy | fraction of a multiprocessor's warps that they fill
limiter | text | | limited by | the resource that does not allow more blocks
api_active_blocks | whole | | CUDA says | the same number from CUDA's own interface
chosen | flag | | chosen | whether it is the choice: of `dynamic_tile`, or of the tuner for a class of shapes

shape_class | text | | class | the class of shapes for which a choice is made
spill_bytes | whole | B | spills, B | bytes that a thread moves to and from local memory for want of registers
screen_ms | number | ms | a few runs, ms | median of the few runs that every variant has
registered | flag | | registry | whether it is the choice that the registry had when it was tuned

global_load_requests | whole | | load requests | requests of warps to global memory
global_load_sectors | whole | | load sectors | sectors of 32 bytes that these touch
global_load_lines | whole | | load lines | cache lines of 128 bytes that these touch, each looked up once per request
global_store_requests | whole | | store requests | requests of warps that write global memory
global_store_sectors | whole | | store sectors | sectors of 32 bytes that these touch
sectors_per_request | number | | sectors / request | sectors per request of global loads
shared_load_requests | whole | | load requests | requests of warps to shared memory
shared_load_wavefronts | whole | | load wavefronts | passes that shared memory needs for these loads
shared_store_requests | whole | | store requests | requests of warps that write shared memory
shared_store_wavefronts | whole | | store wavefronts | passes that shared memory needs for these stores
shared_bank_conflicts | whole | | bank conflicts | wavefronts of loads and stores beyond the fewest possible
flop_per_byte | number | FLOP/B | asked for | 2 n p m operations per byte that global loads ask for
async_load_requests | whole | | cp.async requests | those of the load requests that cp.async makes
async_load_sectors | whole | | cp.async sectors | those of the load sectors that cp.async loads
tma_load_requests | whole | | TMA rows | those of the load requests that TMA makes, one per row of a box
tma_load_sectors | whole | | TMA sectors | those of the load sectors that TMA loads
tma_store_requests | whole | | TMA rows stored | those of the store requests that TMA makes, one per row of a box
tma_store_sectors | whole | | TMA sectors stored | those of the store sectors that TMA stores
multicast_sectors | whole | | multicast sectors | sectors that TMA brings to a further block
matrix_load_requests | whole | | ldmatrix requests | those of the shared load requests that ldmatrix makes
cluster_load_sectors | whole | | cluster load sectors | sectors in the memory of another block that loads touch
cluster_store_sectors | whole | | cluster store sectors | those that stores and copies between blocks touch
flop_per_byte_moved | number | FLOP/B | moved | 2 n p m operations per byte of the sectors that are loaded and stored
races | whole | | races | accesses that race
out_of_bounds | whole | | out of bounds | accesses outside all arrays
uninitialised | whole | | uninitialised | reads of memory that was never written
divergence | whole | | divergence | barriers that not all threads reach
misaligned | whole | | misaligned | accesses at an address that their size does not divide
asynchrony | whole | | asynchrony | asynchronous work that is not waited for, or shown to no unit
deadlocks | whole | | deadlocks | runs in which no thread can go on
traps | whole | | traps | runs that __trap() or an assertion ended
order_dependent | whole | | order-dependent | elements of C that depend on the order of threads
incorrect | whole | | incorrect | products that are wrong
stopped | whole | | stopped | runs that did not come to their end
unused_reads | whole | | unused reads | reads of shared memory before it was written, on which no result depends

l1_hit_percent | number | % | L1 hits, % | sectors that the first cache has when asked
l2_hit_percent | number | % | L2 hits, % | sectors that the second cache has when asked
l2_sectors | whole | | L2 sectors | sectors of 32 bytes that the second cache is asked for or given
dram_read_bytes | whole | B | from memory, B | bytes read from the GPU's memory
dram_written_bytes | whole | B | to memory, B | bytes written to the GPU's memory
l1_percent | number | % | L1, % | the busiest part of the first cache and shared memory, as a share of its peak
l2_percent | number | % | L2, % | the same of the second cache
dram_percent | number | % | memory, % | the same of the GPU's memory
issue_percent | number | % | issue slots, % | cycles in which a scheduler issues an instruction
active_warps_percent | number | % | achieved occupancy, % | active warps, of those that a multiprocessor holds
executed_instructions | whole | | instructions | instructions of warps
profiled_ns | whole | ns | profiled, ns | the time of the profiled run, whose caches were empty
stall_long_scoreboard | number | | long scoreboard | warps that wait for global or local memory
stall_short_scoreboard | number | | short scoreboard | warps that wait for shared memory or special functions
stall_barrier | number | | barrier | warps that wait at a barrier of the block
stall_mio_throttle | number | | mio throttle | warps that wait since the queue of shared memory and the like is full
stall_lg_throttle | number | | lg throttle | warps that wait since the queue of global memory is full
stall_tex_throttle | number | | tex throttle | warps that wait since the queue of textures is full
stall_math_pipe_throttle | number | | math pipe throttle | warps that wait since the unit that calculates is busy
stall_gmma | number | | gmma | warps that wait for a product of a warp group
stall_wait | number | | wait | warps that wait the fixed time of the instruction before
stall_not_selected | number | | not selected | warps that wait since another one was chosen
stall_selected | number | | selected | warps that issue one
stall_no_instruction | number | | no instruction | warps that wait for the next instruction to be fetched
stall_branch_resolving | number | | branch resolving | warps that wait for the target of a branch
stall_dispatch_stall | number | | dispatch stall | warps that wait since the dispatcher holds them back
stall_imc_miss | number | | imc miss | warps that wait for a constant
stall_drain | number | | drain | warps that wait at their end, for stores
stall_membar | number | | membar | warps that wait at a memory fence
stall_sleeping | number | | sleeping | warps that wait asleep

instance | text | | instance | the C++ template instance of the launch that makes the product
architecture | text | | compiled for | the architecture that the machine code is for
multiply_add | text | | multiply-add | the loop's multiply-add instruction
instructions | whole | | instructions | instructions of the innermost loop with the most multiply-adds
multiply_add_instructions | whole | | multiply-adds | those of them that are multiply-adds
multiply_add_share | number | | share | multiply_add_instructions divided by instructions
shared_loads_128 | whole | | shared, 16 B | loads from shared memory, 16 bytes per thread
shared_loads_64 | whole | | shared, 8 B | loads from shared memory, 8 bytes
shared_loads_32 | whole | | shared, 4 B | loads from shared memory, up to 4 bytes
matrix_loads | whole | | matrices | loads of matrices from shared memory (ldmatrix)
shared_stores | whole | | shared stores | stores to shared memory
global_loads_128 | whole | | global, 16 B | loads from global memory, 16 bytes per thread
global_loads_64 | whole | | global, 8 B | loads from global memory, 8 bytes
global_loads_32 | whole | | global, 4 B | loads from global memory, up to 4 bytes
async_copies | whole | | cp.async | copies to shared memory beside the registers
tensor_copies | whole | | TMA | copies of whole tiles or rows (TMA)
global_stores | whole | | global stores | stores to global memory
spills | whole | | spills | loads and stores of what registers do not hold
synchronisation | whole | | barriers | barriers, waits and fences
moves | whole | | moves | moves, reads of constants and special registers
control | whole | | control | branches, and instructions that do nothing
integer | whole | | integer | addresses, indexes and conditions
arithmetic | whole | | arithmetic | other floating-point arithmetic, conversions
other | whole | | other | everything else
reused_operands | whole | | reused operands | operands that multiply-adds keep for the next one
spill_bytes | whole | B | spills, B | bytes that the whole function stores and loads since registers do not suffice

element_bytes | whole | B | element, B | size of an element; the type makes no difference
multiply_adds | whole | | multiply-adds | multiply-adds that were counted, after as many that filled the caches
l1_lines | whole | | L1 lines | lines that these fetched into the first cache
l2_lines | whole | | L2 lines | lines that these fetched from beyond the second cache

wall_s | number | s | wall time, s | the time of the whole task
timed_s | number | s | timing, s | the part of it during which NVBench timed kernels
points | whole | | points | points of the task
remembered | whole | | from the journal | points that an earlier run had measured

source | text | | source | the letter of the source
place | text | | place | the table or section of the source
device | text | | device | the source's device
value | number | | value | the published figure
note | text | | note | a remark
"""
#: Columns of the report's tables that follow from those above.
_DERIVED = """
shape | text | | (n, m, p) | the shape, as source a writes it; C is n x m
choice | text | | choice | what the sweep chose
block | text | | block | threads of a block
grid | text | | grid | blocks of the grid
spread_percent | number | % | spread, % | interquartile range divided by the median
between_percent | number | % | between runs, % | from the fastest to the slowest run, divided by the median run
at_end | text | | at the end | parameters of the best whose value is the least or the largest that ran
unstable | flag | | unstable | whether the noise is above the config's limit
best | flag | | best | the fastest of its kernel, type and shape
points_ran | text | | points that ran | how many of the points ran
runner_up | text | | choice | the second fastest choice
gap_percent | number | % | slower by, % | how much slower the runner-up is than the best
decided | flag | | beyond the spread | whether the quartile ranges of the two stay apart
published_block | text | | block | the published block
published_grid | text | | grid | the published grid
published_ms | number | ms | ms | the published time
published_cpu_ms | number | ms | CPU ms | the published time of the CPU loop
cpu_ms | number | ms | CPU ms | time of the kij loop on the same machine
cpu_status | text | | CPU status | its status
ratio | number | x | published / measured | published time divided by measured time
ratio_cpu | number | x | CPU | the same for the CPU loop
percent_of_anchor | number | % | % of cuBLAS | percentage of the library's rate on that processor in that type
emulator | text | | emulator | the status of the same kernel with the same parameters on the emulator
published | number | | value | the published figure
percent_of_peak | number | % | of the peak | rate as a percentage of the device's peak
peak_gflops | number | GFLOP/s | peak | the device's peak in the element type
naive_ms | number | ms | naive, ms | time of the best naive kernel
speedup_over_naive | number | x | than naive | time of the best naive kernel divided by this one's
speedup_over_cpu | number | x | than the CPU loop | time of the CPU loop divided by this one's
published_speedup_over_cpu | number | x | published, than the CPU | the same for the published times
verified | whole | | verified | points that are right
largest_bound_ratio | number | | error / bound | the largest of them
largest_relative_error | number | | relative error | the largest of them
ns_per_multiply_add | number | ns | ns per multiply-add | time per multiply-add
l1_lines_per_multiply_add | number | | into the first cache | lines per multiply-add
l2_lines_per_multiply_add | number | | from beyond the second | lines per multiply-add
alone_ms | number | ms | kernel alone, warm | time of the kernel by itself
rate_percent | number | % | of the median, % | rate as a percentage of the median of the cards of its model
compared | whole | | points compared | points that every card of the model has measured
percent_of_limit | number | % | % of the limit | percentage of what the device allows a block
percent_of_datasheet | number | % | % of the datasheet | measured value as a percentage of the datasheet's
occupancy_percent | number | % | occupancy, % | occupancy in percent
count | text | | count | what is counted
launches | whole | | compared | launches that were compared
equal | whole | | equal | launches in which both counts are equal
largest_difference_percent | number | % | largest difference, % | the largest of the differences
counted | whole | | emulator | the emulator's count
hardware | whole | | ncu | the hardware's count
difference_percent | number | % | difference, % | how much more the emulator counted
variants | whole | | all | variants that were tried
failed | whole | | failed | those that did not compile, could not be launched or were incorrect
spilled | whole | | spill | those that ran but have spills
within_percent | whole | | within 5 % | those whose rate is at least 95 % of the best
registry_gflops | number | GFLOP/s | GFLOP/s | rate of the choice that the registry had
rank | whole | | rank | place of the variant among those of its shape, by rate, from 1
percent_of_best | number | % | % of the best | percentage of the best variant's rate at that shape
gain_percent | number | % | gain, % | how much faster the best is than the registry's choice
fact | text | | fact | what is known about the machine
anchor | flag | | library | whether the kernel is a library, to which the others are compared
anchor_ms | number | ms | library, ms | time of the library of the same processor and element type
work | number | | multiply-adds | n p m
warps | whole | | warps | warps that a multiprocessor holds at a time
waves | number | | waves | blocks of the grid, divided by the blocks that the device holds at a time
multiply_add_percent | number | % | multiply-adds, % | the part of the loop's instructions that are multiply-adds
others_per_100 | number | | others per 100 | other instructions of the loop per 100 multiply-adds
accesses_per_100 | number | | memory per 100 | loads, stores and copies of the loop per 100 multiply-adds
shared_bytes_per_multiply_add | number | B | shared, B | bytes that the loop reads from shared memory per multiply-add
global_bytes_per_multiply_add | number | B | global, B | bytes that the loop loads from global memory per multiply-add
reused_per_multiply_add | number | | reused | operands per multiply-add that the one before has kept (the reuse cache)
wavefronts_per_100 | number | | wavefronts per 100 | passes of shared memory per 100 multiply-adds of a warp
lines_per_100 | number | | lines per 100 | cache lines looked up for global loads, per 100 multiply-adds of a warp
sectors_per_100 | number | | sectors per 100 | sectors that global loads touch, per 100 multiply-adds of a warp
profiled_ms | number | ms | profiled, ms | the time of the profiled run, whose caches were empty
dram_gb | number | GB | GB | bytes read from the GPU's memory and written to it
matrices_moved | number | x | x the matrices | these bytes, divided by those of the three matrices
waits | text | | waits | where most warps of a scheduler wait, and how many, per instruction issued
dram_bytes_each | number | B | memory, B | bytes that memory moves per multiply-add of a warp, by ncu
l2_bytes_each | number | B | L2, B | bytes that the second cache moves per multiply-add of a warp, by ncu
hardware_wavefronts_per_100 | number | | wavefronts per 100, ncu | wavefronts_per_100 by the hardware's counters
shared_percent | number | % | of shared memory, % | the share of shared memory's passes that a run takes
limited_by | text | | limited by | the resource of whose roof it uses most; latency if it uses at most half of each
limit_percent | number | % | share, % | how much of that roof it uses
second_limit | text | | then by | the resource of whose roof it uses most after that one
second_percent | number | % | share, % | how much of that roof it uses
conflict_percent | number | % | conflicts, % | bank conflicts as a percentage of these passes
ceiling_gflops | number | GFLOP/s | ceiling | the rate that the loop's share of multiply-adds allows
percent_of_ceiling | number | % | % of the ceiling | rate as a percentage of the ceiling
before | text | | before | the fastest of the kernels before this one
other_machine | text | | other machine | the machine that is compared with the one in the column `platform`
other_ms | number | ms | other ms | time of the same point on the other machine
faster | number | x | times as fast | time on the other machine divided by the time on this one
faster_low | number | x | from | the least quotient within the ranges of both times
faster_high | number | x | to | the largest quotient within the ranges of both times
changed | flag | | beyond the spread | whether the ranges of both times lie apart: of their runs, or else quartiles
gain | number | x | than before | rate divided by that of the fastest kernel before
title | text | | title | the kernel in words
reason | text | | reason | why the emulator does not run it
searched | text | | searched | at how many shapes the emulator searched the kernel for faults, or why it did not
"""


def _parsed(text: str) -> dict[str, Column]:
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if line.strip()]
    return {row[0]: Column(*row) for row in rows}


COLUMNS = _parsed(_COLUMNS) | _parsed(_DERIVED)
#: Names that a parameter cannot have.
FIXED = frozenset(COLUMNS)
#: What goes other ways than plain loads and stores, and has counters of its own.
_BY_WAY = (
    "async_load_requests async_load_sectors tma_load_sectors tma_store_sectors matrix_load_requests "
    "cluster_load_sectors cluster_store_sectors"
)
#: What a row was measured with. Facts have these columns if their task has no rows in measurements.csv.
_SOURCE = "commit changes"
#: What ncu reads at full size.
_FULL_SIZE = (
    "l1_hit_percent l2_hit_percent l2_sectors dram_read_bytes dram_written_bytes l1_percent l2_percent dram_percent "
    "issue_percent active_warps_percent executed_instructions profiled_ns "
    + " ".join(name for name in COLUMNS if name.startswith("stall_"))
)
#: Columns that joined after runs had been recorded, by file.
LATER = {
    "measurements": frozenset(
        f"gpu_uuid node slurm_job processor alone sm_clock_min_mhz runs run_low_ms run_high_ms {_SOURCE}".split()
    ),
    **dict.fromkeys(("tune", "bandwidth", "energy"), frozenset(_SOURCE.split())),
    "accuracy": frozenset(f"loop_difference {_SOURCE}".split()),
    "counters": frozenset([*_FULL_SIZE.split(), *_BY_WAY.split()]),
    "traffic": frozenset(
        "order_dependent incorrect stopped asynchrony deadlocks traps unused_reads status message "
        f"global_load_lines {_BY_WAY} tma_load_requests tma_store_requests multicast_sectors".split()
    ),
}
#: The columns of traffic.csv that count faults.
FAULTS = tuple(
    "races out_of_bounds uninitialised divergence misaligned order_dependent incorrect stopped asynchrony deadlocks "
    "traps".split()
)
#: What makes two rows the same product.
SHAPE = ["n", "p", "m"]
_POINT = "kernel dtype n p m block_x block_y *"
#: The columns without which nobody knows what a row is about.
NAMING = frozenset("platform task kernel dtype n p m status quantity element_bytes instance source".split())
#: The columns that name a measured point, beside its parameters.
POINT = ("task", *_POINT.split()[:-1])
#: The files under results/<platform>/ and report/, by name, with their columns; `*` stands for the parameters.
FILES = {
    "measurements": "platform task kernel dtype n p m block_x block_y grid_x grid_y * status message samples time_ms "
    "time_min_ms time_q1_ms time_q3_ms noise batch_ms gflops sm_clock_mhz gpu_uuid node slurm_job processor alone "
    "sm_clock_min_mhz runs run_low_ms run_high_ms registers shared_bytes relative_error bound_ratio build_sha256 "
    f"{_SOURCE}",
    "sweep": "platform task wall_s timed_s points remembered",
    "maximum_size": "platform kernel dtype memory_total_bytes memory_free_bytes theoretical_n allocatable_n "
    "predicted_ms budget_s timed_n time_ms rows_checked",
    "cold_start": "platform order position kernel dtype n p m step ms repeat status message",
    "launch_limits": "platform kernel dtype n p m block_x block_y threads shared_bytes limit_raised outcome error "
    "error_text driver_error c_untouched",
    "tune": "platform task kernel dtype n p m shape_class block_x block_y * status message registers spill_bytes "
    "shared_bytes screen_ms samples time_ms noise sm_clock_mhz gflops registered chosen build_sha256 "
    f"{_SOURCE}",
    "bandwidth": f"platform quantity dtype measured datasheet unit samples noise status message {_SOURCE}",
    "overhead": f"platform overhead_us samples noise sm_clock_mhz gpu_uuid status message {_SOURCE}",
    "accuracy": f"platform {_POINT} operands origin claimed relative_error worst_error "
    f"sgemm_relative_error sgemm_worst_error verdict status message loop_difference {_SOURCE}",
    "energy": f"platform {_POINT} counted_products energy_s joules joules_per_product watts gflops gflop_per_joule "
    f"status message {_SOURCE}",
    "occupancy": "platform kernel dtype block_x block_y * threads registers shared_bytes active_blocks occupancy "
    "limiter api_active_blocks",
    "tile_choice": "platform kernel dtype tile threads registers shared_bytes active_blocks occupancy limiter chosen",
    "traffic": f"{_POINT} global_load_requests global_load_sectors global_store_sectors sectors_per_request "
    "shared_load_wavefronts shared_bank_conflicts flop_per_byte races out_of_bounds global_store_requests "
    "shared_load_requests shared_store_requests shared_store_wavefronts flop_per_byte_moved uninitialised divergence "
    "misaligned order_dependent incorrect stopped asynchrony deadlocks traps unused_reads status message "
    f"global_load_lines {_BY_WAY} tma_load_requests tma_store_requests multicast_sectors",
    "counters": f"{_POINT} global_load_requests global_load_sectors global_store_requests global_store_sectors "
    "shared_load_requests shared_store_requests shared_load_wavefronts shared_store_wavefronts shared_bank_conflicts "
    f"{_FULL_SIZE} {_BY_WAY}",
    "instructions": "kernel dtype instance architecture multiply_add instructions multiply_add_instructions "
    "multiply_add_share shared_loads_128 shared_loads_64 shared_loads_32 matrix_loads shared_stores global_loads_128 "
    "global_loads_64 global_loads_32 async_copies tensor_copies global_stores spills synchronisation moves control "
    "integer arithmetic other reused_operands registers spill_bytes build_sha256",
    "cache_lines": "kernel element_bytes n p m * multiply_adds l1_lines l2_lines",
    "published": "source place device quantity kernel dtype n p m block_x block_y grid_x grid_y * value unit note",
}
#: The files among them that describe a platform or, if they are counts, do not depend on one.
WHOLE = ("occupancy", "tile_choice", "traffic", "counters", "instructions", "cache_lines")
#: The methods of tasks: each writes the file of its name, as facts/<task>.csv; `tune` writes tune/<kernel>.csv.
METHODS = tuple(name for name in FILES if name not in ("measurements", "published", *WHOLE))


def of(file: str, parameters: Iterable[str]) -> list[str]:
    """The columns of a file of FILES, with those of the `parameters` in their place."""
    return [name for word in FILES[file].split() for name in (parameters if word == "*" else [word])]


def choice(parameters: Iterable[str]) -> list[str]:
    """The columns that say what a sweep chose."""
    return ["block_x", "block_y", *parameters]


def parameters_of(names: Iterable[str]) -> list[str]:
    """Those of a table's columns that are parameters of kernels: all that the list does not have."""
    return [name for name in names if name not in COLUMNS]


def counts() -> list[str]:
    """The columns that both the emulator and the hardware count, in the order of the hardware's file."""
    counted = [name for name in FILES["counters"].split() if name not in _POINT.split()]
    return [name for name in counted if name in FILES["traffic"].split()]


def heading(name: str) -> str:
    """The words above a column of a table; a parameter has its name."""
    return COLUMNS[name].heading if name in COLUMNS else name


def is_words(name: str) -> bool:
    """Whether a column holds words, which are aligned left; numbers are aligned right."""
    return name in COLUMNS and COLUMNS[name].type in ("text", "flag")


def typed(table: "pd.DataFrame") -> "pd.DataFrame":
    """The same table with every column in its type; a column that is not in the list is a parameter, a whole number.

    Raises UserError with the first column that holds something else.
    """
    changed = {}
    for name, now in zip(table, table.dtypes):
        kind = COLUMNS[name].pandas if name in COLUMNS else "Int64"
        if now.name == kind and not (kind == "str" and table[name].hasnans):
            continue
        try:
            changed[name] = table[name].astype(kind)
        except (TypeError, ValueError):
            raise UserError(f"the column '{name}' does not hold what it should ({kind})") from None
        if kind == "str":
            changed[name] = changed[name].fillna("")
    if not changed:
        return table
    return type(table)({name: changed.get(name, table[name]) for name in table}, index=table.index)


def frame(rows: Iterable[Mapping[str, Any]], file: str, parameters: Sequence[str] = ()) -> "pd.DataFrame":
    """Rows as a DataFrame with the columns of a file."""
    import pandas as pd

    return typed(pd.DataFrame(list(rows), columns=of(file, parameters)))


def empty(file: str, parameters: Sequence[str] = ()) -> "pd.DataFrame":
    """A DataFrame with the columns of a file and no rows."""
    return _empty(file, tuple(parameters)).copy()


@functools.cache
def _empty(file: str, parameters: tuple[str, ...]) -> "pd.DataFrame":
    return frame([], file, parameters)


def read(path: Path | str, file: str, parameters: Sequence[str] = (), partly: bool = False) -> "pd.DataFrame":
    """A CSV with the columns of a file; without rows if there is no file.

    A parameter that it lacks, because it was recorded before a kernel had it, is empty; one that no kernel has today
    stays. Raises UserError if another column is missing: `partly` allows that, except of those that name the rows.
    """
    import pandas as pd

    path = Path(path)
    if not path.exists():
        return empty(file, parameters)
    text = {name: "str" for name, column in COLUMNS.items() if column.type == "text"}
    try:
        content = path.read_bytes()
        table = pd.read_csv(io.BytesIO(content), dtype=text)
    except (ValueError, OSError) as error:
        raise UserError(f"{path}: this is not a table ({str(error).strip()}); {remedy(path)}") from None
    if not content.endswith(b"\n"):
        raise UserError(f"{path}: the last line is cut short; {remedy(path)}")
    missing = [name for name in of(file, ()) if name not in table and name not in LATER.get(file, ())]
    missing = [name for name in missing if name in NAMING or not partly]
    if missing:
        raise UserError(f"{path}: the column '{missing[0]}' is missing; {remedy(path)}")
    wanted = of(file, parameters)
    table = table.reindex(columns=[*wanted, *(name for name in table if name not in wanted)])
    try:
        return typed(table)
    except UserError as error:
        raise UserError(f"{path}: {error}; {remedy(path)}") from None


_WHERE = {
    "measurements": "`results/<platform>/measurements.csv`, and `tasks/<task>.csv` with one task. One row per point.",
    "tune": "`results/<platform>/tune/<kernel>.csv`. One row per variant and shape; `gflops` is of `time_ms`, which "
    "the best few have, or else of `screen_ms`.",
    "sweep": "`results/<platform>/facts/<task>.csv` of a task without a `method`. One row.",
    "accuracy": "`results/<platform>/accuracy.csv`, and `facts/<task>.csv` of a task with `method: accuracy`. One row "
    "per point, kind of operands and origin.",
    "published": "`report/published/*.csv`. One row per published figure.",
    "cache_lines": "`results/<platform>/cache_lines.csv`. One row per CPU loop, element size and shape.",
    "instructions": "`results/<platform>/instructions.csv`. One row per template instance that makes a product, "
    "of its innermost loop with the most multiply-adds; an instruction is counted once, as if each branch ran. "
    "Multiply-adds are those of the tensor cores (DMMA, HMMA, HGMMA) in a kernel that uses them, else FFMA, DFMA or "
    "IMAD.",
    "counters": "`results/<platform>/counters.csv`. One row per launch that ncu counted; what lies behind the bank "
    "conflicts is read at full size alone. A stall is how many warps of a scheduler are in that state, per instruction "
    "issued.",
    "traffic": "`results/<platform>/traffic.csv`. One row per point that the emulator ran or was to run. Faults are "
    "empty if the point was only counted, or was not run: its message says why.",
    "occupancy": "`results/<platform>/occupancy.csv`. One row per kernel, element type and choice of parameters.",
    "tile_choice": "`results/<platform>/tile_choice.csv`. One row per element type and tile width of `dynamic_tile`.",
}
_INTRODUCTION = """# Columns

Every column of every file, with its unit and its meaning. This page is made by `python -m tilewise.study.columns`.
C (n x m) = A (n x p) B (p x m). Every parameter of a kernel in `kernels/registry.yaml` has a column of its own, named
like the parameter; the column is empty in the rows of other kernels. An empty cell means that nothing was measured.
"""


def markdown() -> str:
    """docs/columns.md: the columns of every file, then those that only the report's tables have."""
    parts = [_INTRODUCTION]
    for file in FILES:
        where = _WHERE.get(file, f"`results/<platform>/facts/<task>.csv` of a task with `method: {file}`.")
        parts.append(f"## {file}\n\n{where}\n\n{_markdown_table(FILES[file].split())}")
    where = "`results/<platform>/tables/*.csv` also have columns that follow from those above."
    parts.append(f"## Tables of the report\n\n{where}\n\n{_markdown_table(_parsed(_DERIVED))}")
    return "\n".join(parts)


def _markdown_table(names: Iterable[str]) -> str:
    lines = ["| column | type | unit | meaning |", "| --- | --- | --- | --- |"]
    for name in names:
        if name == "*":
            lines.append("| one per parameter | whole | | the value of the kernel's parameter of that name |")
            continue
        column = COLUMNS.get(name, Column(name, "whole", "", name, "the parameter of that name"))
        meaning = column.meaning.replace("|", "\\|")
        lines.append(f"| `{name}` | {column.type} | {column.unit}{' ' * bool(column.unit)}| {meaning} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
