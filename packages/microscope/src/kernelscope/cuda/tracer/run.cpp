// A run: what the scheduler and Python say of its launches, blocks and threads.
#include "accesses.h"
#include "races.h"

#include <cstring>
#include <sys/mman.h>

namespace emulator {
namespace tracer {
namespace {
std::vector<int> last_ended;  // thread of each block of the cluster, or -1
}
}  // namespace tracer

namespace watch {

using namespace tracer;

void block_starts()
{
    start_clock_of_block();
    last_ended.assign(cluster_blocks, -1);
    if (shared_cells.size() < cluster_blocks * block_cells) shared_cells.resize(cluster_blocks * block_cells);
    start_remote();
    start_units();
    start_updates();
    for (unsigned rank = 0; watching && rank < cluster_blocks; ++rank)
        std::fill_n(reinterpret_cast<std::uint32_t*>(shared_begin + rank * window_alignment), (shared_bytes + 3) / 4,
                    poison);
    count_block();
}

void thread_runs(unsigned thread)
{
    settle_update();
    running = thread;
    if (cluster_blocks > 1) last_barrier = last_barriers[rank_of(thread)];
    if (counting) count_thread(thread);
}

void thread_ends(unsigned thread)
{
    last_ended[rank_of(thread)] = thread;
    if (cluster_blocks > 1) take(heard[rank_of(thread)], known[thread]);
}

void barrier_releases(const std::vector<Fiber*>& fibers)
{
    if (counting) count_requests();
    ++clock_now;
    const Fiber& first = *fibers[0];
    const unsigned rank = rank_of(first.thread);
    last_barrier = last_barriers[rank] = clock_now;
    share_what_units_did(fibers);
    Fault fault = new_fault(Kind::divergence);
    set_block(fault.block, cluster_index[rank]);
    fault.file = first.file;
    fault.line = first.line;
    fault.other_thread = in_words(first.thread);
    if (last_ended[rank] >= 0) {
        Fault remark = fault;
        remark.kind = Kind::ended;
        remark.thread = in_words(last_ended[rank]);
        report(remark);
    }
    for (const Fiber* fiber : fibers)
        if (fiber->line != first.line || fiber->column != first.column || std::strcmp(fiber->file, first.file) != 0) {
            fault.thread = in_words(fiber->thread);
            fault.other_line = fiber->line;
            if (fiber->line == first.line) fault.which = Case::same_line;
            report(fault);
            return;
        }
    for (const Fiber* fiber : fibers)
        if (fiber->round != first.round) {
            fault.thread = in_words(fiber->thread);
            fault.which = Case::other_round;
            report(fault);
            return;
        }
}

void warp_goes_on()
{
    if (counting) count_meeting();
}

void block_ends()
{
    if (counting) count_requests();
    if (is_undecided) decide();
    settle_update();
    if (watching && !abandoned) examine_ends();
}

}  // namespace watch
}  // namespace emulator

using namespace emulator;
using namespace emulator::tracer;

/// Before a run, which is one launch or several. `count` is whether to count traffic, `watch` whether to look for races
/// and reads of what was never written, `stop` whether to give up at the first fault, `unwritten` the 4 bytes that
/// shared memory holds everywhere when a block begins. Forgets all earlier runs, except what they left in the kernel's
/// variables if it is the same program that launches `again`.
EMULATOR_EXPORT void tracer_prepare(int count, int watch, int stop, int again, std::uint32_t unwritten)
{
    poison = unwritten;
    counting = count;
    watching = watch;
    stopping = stop;
    for (Array& array : arrays)
        if (array.cells) madvise(array.cells, units(array.bytes) * sizeof(Cell), MADV_DONTNEED);  // zero again
    if (!again) restore_variables();
    forget_traffic();
    faults.clear();
    start_clock();
}

/// Before each launch of a run. `places` (bytes from the window's begin) and `sizes` (bytes) are those of the shared
/// arrays that the kernel may use.
EMULATOR_EXPORT void tracer_launch(const std::uint64_t* places, const std::uint64_t* sizes, int shared_arrays)
{
    start_clock_of_launch();
    start_covered();
    shared_bytes = 0;
    for (int k = 0; k < shared_arrays; ++k) shared_bytes = std::max(shared_bytes, places[k] + sizes[k]);
    block_cells = units(shared_bytes) + 1;
    shared_cells.assign(block_cells, Cell{});
    shared_owner.assign(units(shared_bytes) + 1, -1);
    shared_array_begin.assign(places, places + shared_arrays);
    shared_array_bytes.assign(sizes, sizes + shared_arrays);
    for (int k = 0; k < shared_arrays; ++k)
        std::fill(shared_owner.begin() + cell_at(places[k]), shared_owner.begin() + units(places[k] + sizes[k]), k);
}
