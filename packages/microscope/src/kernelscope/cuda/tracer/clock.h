// Time: what happened at the same time, and who knows what others did before.
#pragma once

#include "memory.h"

#include <algorithm>
#include <unordered_map>

#pragma GCC visibility push(hidden)
namespace emulator::tracer {

// What threads know of blocks that ran before: by a block's start, up to when.
using KnownBlocks = std::unordered_map<std::uint32_t, std::uint32_t>;

extern std::uint32_t clock_now, launch_start, block_start;  // of the clock; all blocks of a cluster start together
extern std::uint32_t last_barrier;                          // of the running thread's block
extern std::vector<std::uint32_t> last_barriers;            // of each block of the cluster
extern int launches;                                        // those that have begun
extern std::vector<Known> known;                            // of each thread: what it learned since the last barrier
extern std::vector<std::uint32_t> proxy_fenced[2];          // by space: when each thread last showed it to the units
extern std::vector<KnownBlocks> known_blocks;               // of each thread
extern bool knows_blocks;                                   // whether any of them knows one
extern std::vector<std::pair<std::uint32_t, uint3>> starts_of_blocks;
extern unsigned running;          // thread
extern std::vector<Known> heard;  // of each block of a cluster: what any of its threads knew at the end
/// Of each thread: the blocks of its cluster that it knows to have started, as bits.
extern std::vector<std::uint32_t> met;

inline unsigned rank_of(unsigned thread) { return thread / slots_of_block; }

void take(Known& to, const Known& from);
void take(KnownBlocks& to, const KnownBlocks& from);
Known& row_of(unsigned thread);  // of `known`, as long as there are workers
/// When the block, or the first one of the cluster, began that ran at that time.
std::uint32_t start_of_block(std::uint32_t stamp);

/// Whether a block that ran before did something at that time that the running thread does not know.
bool unknown_of_another_block(std::uint32_t stamp);

/// Whether the running thread knows some of what the block that ran at that time did.
bool knows_of_block(std::uint32_t stamp);

/// Whether nothing orders what `thread` (or a unit) did at that time and what the running thread does now.
inline bool at_the_same_time(std::uint32_t stamp, unsigned thread, Space space)
{
    if (stamp < block_start) return space == global && stamp >= launch_start && unknown_of_another_block(stamp);
    // A barrier of the block shows what its threads did, but of others and of units only what one of them knew.
    if (thread == running) return false;
    if (stamp < last_barrier && thread < wgmma_of_warp && (cluster_blocks == 1 || rank_of(thread) == rank_of(running)))
        return false;
    const Known& row = known[running];
    return row.size() <= thread || row[thread] < stamp;
}

uint3 block_at(std::uint32_t stamp, unsigned thread);

void start_clock();  // of a run
void start_clock_of_launch();
void start_clock_of_block();
/// All these threads know now which work of units, and of other blocks, any of them has waited for.
void share_what_units_did(const std::vector<Fiber*>& fibers);

}  // namespace emulator::tracer
#pragma GCC visibility pop
