// What the files of the runtime, and whoever watches, know of the launch that runs.
#pragma once

#include "fibers.h"
#include "watch.h"

#pragma GCC visibility push(hidden)
namespace emulator {

extern unsigned threads_of_block, slots_of_block;  // the second rounded up to whole warps
extern std::vector<uint3> cluster_index;           // blockIdx of each block of the cluster that runs
extern std::vector<unsigned> order;                // in which the threads of a cluster start
extern std::vector<std::uint32_t> alive;           // the lanes of each warp that have not ended
extern bool abandoned, descending, cooperative;
extern std::uint64_t seed;            // of the order between barriers; 0: as they started
extern std::string message;           // why a run was given up that nobody watches
extern std::string printed;           // by the threads
extern std::vector<Fiber*> waiting;   // at their block's barrier
extern std::vector<Fiber*> sleeping;  // for something that another thread or a unit does
extern std::vector<Fiber*> asking;    // again and again

template <typename Items>
void shuffle(Items& items)
{
    for (std::size_t i = items.size(); i > 1; --i) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        std::swap(items[i - 1], items[(seed >> 33) % i]);
    }
}

std::uint64_t grid_blocks();
unsigned live_threads(unsigned first, unsigned end);  // of those with these numbers, whole warps

/// Runs the threads of a cluster, in their `order`, until all have ended or the launch is given up.
void run_cluster(Thread kernel, void* const* arguments);
/// After a launch that was given up: its fibers hang in the middle of their threads.
void forget_fibers();
/// Whether an address lies on the stack of any thread.
bool on_any_stack(std::uintptr_t address);
/// Gives up the launch in the middle of it: emulator_run returns.
void abandon();
/// The running thread waits at a place in the source, until `next` finds that it may go on.
void stay(Fiber* self, const char* file, int line);

// ---- blocks_barriers.cpp: the barriers of clusters and of the grid --------------------------------------------------

void start_blocks_barriers();
void ends_at_blocks_barriers(unsigned thread);

// ---- tiles.cpp: the barriers of tiles of more than a warp
// ------------------------------------------------------------

void start_tiles();

// ---- deadlock.cpp: who waits, in words ------------------------------------------------------------------------------

std::string thread_name(unsigned thread);
std::string where(const Fiber* fiber);
std::string what(const Fiber* fiber);
/// Nothing can go on any more: who waits, for what, and where those are who should have come.
void report_deadlock();

}  // namespace emulator
#pragma GCC visibility pop
