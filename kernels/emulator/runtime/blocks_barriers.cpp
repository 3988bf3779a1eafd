// Barriers at which threads arrive first and wait later: of a block, of a cluster, and of the grid.
#include "ends.h"
#include "scheduler.h"

namespace emulator {
namespace {

// One of `blocks` blocks from `first` on.
struct BlocksBarrier {
    const char* name;
    unsigned first_thread, end_thread;
    unsigned needed;  // how many threads must arrive, whether they have ended or not; 0: those that have not
    unsigned arrived, phase;
    std::vector<unsigned> phases;  // of each thread's last arrival, counted from 1
    std::vector<bool> open;        // whether it has not waited since
    Known coming, known;           // what those who arrived show
    Known here, there;             // that they arrived at all
    const char* file = "";         // of the last arrival
    int line = 0;

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
    if (b.open[self])
        watch::divergence(thread_name(current->thread) + " arrives twice at " + b.name + ", with no wait between", file,
                          line);
    if (!relaxed) watch::release(b.coming);
    watch::finished(b.here, current->thread);
    b.phases[self] = b.phase + 1;
    b.open[self] = true;
    b.file = file;
    b.line = line;
    ++b.arrived;
    look_at_barrier(b);
}

void wait_at(BlocksBarrier& b, const char* file, int line, const void* pc)
{
    const unsigned self = b.place(current->thread), mine = b.phases[self];
    if (!b.open[self])
        watch::divergence(thread_name(current->thread) + " waits at " + b.name + ", at which it has not arrived", file,
                          line);
    b.open[self] = false;
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
    BlocksBarrier& of_block = blocks_barriers[rank];
    if (of_block.open[of_block.place(thread)])
        watch::divergence(thread_name(thread) + " arrives at " + of_block.name + ", and ends without waiting there",
                          of_block.file, of_block.line);
    for (std::size_t own : {rank, cluster_blocks + rank / cluster_size, blocks_barriers.size() - 1}) {
        BlocksBarrier& b = blocks_barriers[own];
        if (b.arrived && b.first_thread <= thread && thread < b.end_thread) look_at_barrier(b);
    }
}

}  // namespace emulator
