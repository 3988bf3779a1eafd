// Barriers at which threads arrive first and wait later: of a block, of a cluster, and of the grid.
#include "ends.h"
#include "scheduler.h"

#include <utility>

namespace emulator {
namespace {

struct Place {
    const char* file = nullptr;
    int line = 0;
};

// One of `blocks` blocks from `first` on.
struct BlocksBarrier {
    const char* name;
    unsigned first_thread, end_thread;
    unsigned needed;  // how many threads must arrive, whether they have ended or not; 0: those that have not
    unsigned arrived, phase;
    std::vector<unsigned> phases;  // of each thread's last arrival, counted from 1
    std::vector<Place> open;       // of an arrival after which it has not waited yet
    Known coming, known;           // what those who arrived show
    Known here, there;             // that they arrived at all

    BlocksBarrier(const char* name, unsigned first, unsigned blocks, unsigned needed)
        : name(name),
          first_thread(first * slots_of_block),
          end_thread((first + blocks) * slots_of_block),
          needed(needed),
          arrived(0),
          phase(0),
          phases(blocks * slots_of_block),
          open(blocks * slots_of_block)
    {}
    unsigned place(unsigned thread) const { return thread - first_thread; }
};
std::vector<BlocksBarrier> blocks_barriers;  // of each block, of each cluster, and then of the grid

void look_at_barrier(BlocksBarrier& b)
{
    if (b.arrived < b.needed) return;
    for (unsigned t = b.first_thread; t < b.end_thread; ++t)
        if ((alive[t / 32] >> t % 32 & 1) && b.phases[b.place(t)] <= b.phase)
            return;  // who has ended is not waited for
    ++b.phase;
    b.arrived = 0;
    b.known = b.coming;
    b.there = b.here;
    wake(&b);
}

BlocksBarrier& barrier_of_block() { return blocks_barriers[block_rank()]; }
BlocksBarrier& barrier_of_cluster() { return blocks_barriers[cluster_blocks + block_rank() / cluster_size]; }
BlocksBarrier& barrier_of_grid(const char* file, int line)
{
    if (!cooperative)
        watch::trap(thread_name(current->thread) +
                        " synchronises the grid in a launch that is not cooperative; a GPU ends it there "
                        "(`cooperative` of the registry, --cooperative)",
                    file, line);
    if (cluster_blocks != grid_blocks()) {
        current->file = file;
        current->line = line;
        stop(End::waits, 0);
    }
    return blocks_barriers.back();
}

void arrive_at(BlocksBarrier& b, bool relaxed, const char* file, int line)
{
    const unsigned self = b.place(current->thread);
    if (b.open[self].file)
        watch::divergence(thread_name(current->thread) + " arrives twice at " + b.name + ", with no wait between", file,
                          line);
    if (!relaxed) watch::release(b.coming);
    watch::finished(b.here, current->thread);
    b.phases[self] = b.phase + 1;
    b.open[self] = {file, line};
    ++b.arrived;
    look_at_barrier(b);
}

void wait_at(BlocksBarrier& b, const char* file, int line, const void* pc)
{
    const unsigned self = b.place(current->thread), mine = b.phases[self];
    if (!b.open[self].file)
        watch::divergence(thread_name(current->thread) + " waits at " + b.name + ", at which it has not arrived", file,
                          line);
    b.open[self] = {};
    const Why why = [](const void* object, std::uint64_t) {
        const auto& b = *static_cast<const BlocksBarrier*>(object);
        const unsigned all = b.needed ? b.needed : live_threads(b.first_thread, b.end_thread);
        return b.name + (", at which " + std::to_string(b.arrived)) + " of " + std::to_string(all) +
               " threads have arrived";
    };
    // Who comes last goes on with the others, so that what its warp does next is one request.
    if (mine <= b.phase) sleep_for(&b, why, 0, file, line, pc, true);
    while (mine > b.phase) sleep_for(&b, why, 0, file, line, pc);
    watch::acquire(b.known);
    if (b.phases.size() > slots_of_block) watch::meet(b.there);  // a block by itself meets no other
}
}  // namespace

void block_arrive(const char* file, int line) { arrive_at(barrier_of_block(), false, file, line); }
void block_wait(const char* file, int line) { wait_at(barrier_of_block(), file, line, nullptr); }
void cluster_arrive(bool relaxed, const char* file, int line) { arrive_at(barrier_of_cluster(), relaxed, file, line); }
void cluster_wait(const char* file, int line, const void* pc) { wait_at(barrier_of_cluster(), file, line, pc); }
void grid_arrive(const char* file, int line) { arrive_at(barrier_of_grid(file, line), false, file, line); }
void grid_wait(const char* file, int line) { wait_at(barrier_of_grid(file, line), file, line, nullptr); }

void start_blocks_barriers()
{
    blocks_barriers.clear();
    for (unsigned rank = 0; rank < cluster_blocks; ++rank)
        blocks_barriers.emplace_back("the block's barrier", rank, 1, 0);
    for (unsigned rank = 0; rank < cluster_blocks; rank += cluster_size)
        blocks_barriers.emplace_back("the cluster's barrier", rank, cluster_size, 0);
    // CUDA's barrier of the grid counts whole blocks; a thread that has ended does not arrive for it.
    if (cluster_blocks == grid_blocks())
        blocks_barriers.emplace_back("the grid's barrier", 0, cluster_blocks,
                                     cluster_blocks * blockDim.x * blockDim.y * blockDim.z);
}

void ends_at_blocks_barriers(unsigned thread)
{
    const std::size_t rank = thread / slots_of_block;
    const std::size_t of_cluster = cluster_blocks + rank / cluster_size;
    for (std::size_t own : {rank, of_cluster, blocks_barriers.size() - 1}) {
        BlocksBarrier& b = blocks_barriers[own];
        if (thread < b.first_thread || thread >= b.end_thread) continue;
        if (b.arrived) look_at_barrier(b);
        const Place place = std::exchange(b.open[b.place(thread)], {});
        if (place.file && own != of_cluster)
            watch::divergence(thread_name(thread) + " arrives at " + b.name + ", and ends without waiting there",
                              place.file, place.line);
    }
}

}  // namespace emulator
