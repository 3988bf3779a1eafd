// The shared memory of another block of the cluster: it is there from the block's start to its end, and who touches it
// must know of both.
#include "accesses.h"

namespace emulator::tracer {
namespace {

struct Remote {
    Access access;
    std::uint32_t stamp;
    uint3 block;
};
// The last access of each thread to the memory of each other block of its cluster, numbered in it.
std::unordered_map<std::uint32_t, Remote> remote;

}  // namespace

void start_remote() { remote.clear(); }

[[gnu::noinline]] void examine_remote(const Access& access)
{
    const unsigned place = rank_at(access.address), rank = place % cluster_size;
    if (!(met[running] >> rank & 1)) {
        const Known& row = known[running];
        for (unsigned t = place * slots_of_block; t < (place + 1) * slots_of_block && t < row.size(); ++t)
            if (row[t]) met[running] |= 1u << rank;
        if (!(met[running] >> rank & 1)) {
            report(fault_of(Kind::asynchrony, access, Case::not_started));
            met[running] |= 1u << rank;
        }
    }
    remote[running << 5 | rank] = {access, clock_now, blockIdx};
}

// A block must know of every access to its memory before it ends.
void examine_ends()
{
    for (const auto& [key, last] : remote) {
        const unsigned thread = key >> 5, rank = rank_of(thread) / cluster_size * cluster_size + (key & 31);
        if (heard[rank].size() > thread && heard[rank][thread] >= last.stamp) continue;
        running = thread;
        blockIdx = last.block;
        report(fault_of(Kind::asynchrony, last.access, Case::may_have_ended));
    }
    remote.clear();
}

}  // namespace emulator::tracer
