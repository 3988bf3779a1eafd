// Runs a grid on one CPU core, cluster after cluster: what Python calls.
#include "ends.h"
#include "scheduler.h"
#include "shared_window.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace emulator {

std::string message, printed;

namespace {

// What the kernel is called with. Copied, because a kernel that is watched may read only what lies in its own library.
constexpr std::size_t most_parameters = 1024, slot_bytes = 64;  // a tensor map's alignment
alignas(slot_bytes) char values[32 << 10];                      // CUDA takes 32,764 bytes
void* addresses[most_parameters];

}  // namespace
}  // namespace emulator

/// Runs the grid. Blocks, and the threads of a block between barriers, run in ascending order, or in descending order
/// (`blocks_reversed`, `reverse`), or, if `seed` is not 0, threads in a random order that depends on it alone.
/// `arguments` are the addresses of the kernel's arguments. `blocks`, if not null, holds the numbers (counted along x,
/// y, then z) of the `block_count` blocks to run, with all of their clusters; otherwise all of the grid's run.
/// `cluster`, which divides `grid`, says how many blocks run together, unless all_together says that all do; only if
/// the launch `is_cooperative` may the grid meet at a barrier. Returns 1, or 0 if the run was given up.
EMULATOR_EXPORT int emulator_run(const emulator::Instance* instance, const unsigned* block, const unsigned* grid,
                                 const unsigned* cluster, void* const* arguments, int reverse, int blocks_reversed,
                                 std::uint64_t seed, const std::uint64_t* blocks, std::uint64_t block_count,
                                 int all_together, int is_cooperative)
{
    using namespace emulator;
    blockDim = {block[0], block[1], block[2]};
    gridDim = {grid[0], grid[1], grid[2]};
    char* slot = values;
    for (unsigned i = 0; i < instance->parameter_count; ++i) {
        const std::size_t size = instance->parameters[i].size, slots = (size + slot_bytes - 1) / slot_bytes;
        if (i == most_parameters || slot + slots * slot_bytes > values + sizeof values) std::abort();
        addresses[i] = std::memcpy(slot, arguments[i], size);
        slot += slots * slot_bytes;
    }
    emulator::seed = seed;
    clusterDim = {cluster[0], cluster[1], cluster[2]};
    cluster_size = cluster[0] * cluster[1] * cluster[2];
    cooperative = is_cooperative;
    cluster_blocks = all_together ? grid_blocks() : cluster_size;
    if (cluster_blocks > most_cluster_blocks) std::abort();
    threads_of_block = block[0] * block[1] * block[2];
    slots_of_block = (threads_of_block + 31) / 32 * 32;
    wgmma_of_warp = cluster_blocks * slots_of_block;
    copies_of_barrier = wgmma_of_warp + wgmma_of_warp / 32;
    stores = copies_of_barrier + 64;
    workers = stores + 1;
    order.clear();
    for (unsigned rank = 0; rank < cluster_blocks; ++rank)
        for (unsigned t = 0; t < threads_of_block; ++t) order.push_back(rank * slots_of_block + t);
    if (reverse) std::reverse(order.begin(), order.end());
    cluster_index.resize(cluster_blocks);
    abandoned = false;
    descending = reverse;
    message.clear();
    shared_window = window();
    const dim3 clusters(grid[0] / cluster[0], grid[1] / cluster[1], grid[2] / cluster[2]);
    std::uint64_t count = std::uint64_t(clusters.x) * clusters.y * clusters.z;
    std::vector<std::uint64_t> some;  // numbers of the clusters that have one of `blocks`
    for (std::uint64_t i = 0; blocks && i < block_count; ++i) {
        const std::uint64_t row = blocks[i] / grid[0], x = blocks[i] % grid[0] / cluster[0],
                            y = row % grid[1] / cluster[1];
        const std::uint64_t number = x + clusters.x * (y + clusters.y * (row / grid[1] / cluster[2]));
        if (std::find(some.begin(), some.end(), number) == some.end()) some.push_back(number);
    }
    if (blocks) count = some.size();
    if (all_together) count = 1;
    catch_signals();
    for (std::uint64_t i = 0; i < count && !abandoned; ++i) {
        const std::uint64_t start = blocks ? some[i] : blocks_reversed ? count - 1 - i : i;
        for (unsigned place = 0; place < cluster_blocks; ++place) {
            const std::uint64_t number = start + place / cluster_size, row = number / clusters.x;
            const unsigned rank = place % cluster_size;
            cluster_index[place] = {unsigned(number % clusters.x) * cluster[0] + rank % cluster[0],
                                    unsigned(row % clusters.y) * cluster[1] + rank / cluster[0] % cluster[1],
                                    unsigned(row / clusters.y) * cluster[2] + rank / cluster[0] / cluster[1]};
        }
        blockIdx = cluster_index[0];
        if (seed) shuffle(order);
        alive.assign(wgmma_of_warp / 32, 0);
        for (unsigned thread : order) alive[thread / 32] |= 1u << thread % 32;
        start_blocks_barriers();
        start_tiles();
        watch::block_starts();
        if (beside.block_starts) beside.block_starts();
        run_cluster(instance->thread, addresses);
        if (beside.block_ends && !abandoned) beside.block_ends();
        watch::block_ends();
    }
    current = nullptr;
    release_signals();
    if (abandoned) forget_fibers();
    return !abandoned;
}

/// Why the last run was given up, if nobody watched it; else "".
EMULATOR_EXPORT const char* emulator_message() { return emulator::message.c_str(); }

/// What the threads have printed since the last call; `size`: its bytes.
EMULATOR_EXPORT const char* emulator_printed(std::uint64_t* size)
{
    static std::string text;
    text = std::exchange(emulator::printed, {});
    *size = text.size();
    return text.data();
}
