// Tiles of 64 to 512 threads (cooperative_groups.h), whose warps meet.
#include "scheduler.h"

#include <algorithm>

namespace emulator {
namespace {

constexpr unsigned most_warps = 16, tiles_of_block = 32;

struct Tile {
    unsigned warps = 0, arrived = 0;
    Collective kind{};
    unsigned detail = 0;
    std::uint64_t coming[most_warps] = {}, brought[most_warps] = {};
    Known arrivals, known;
};
std::vector<Tile> tiles;  // of each block 16 of 64 threads, 8 of 128, 4 of 256, 2 of 512

std::string called(Collective kind)
{
    static const char* const names[] = {"sync()", "any()",    "all()",
                                        "shfl()", "reduce()", "a scan"};  // as in Collective
    return names[int(kind)];
}

// The threads that the running thread's tile waits for. Lane 0 arrives for its warp: if it has ended, or the block has
// no such warp, the others wait for ever.
unsigned wanted(unsigned warps)
{
    const unsigned of_block = slots_of_block / 32, first = thread_in_block() / 32 / warps * warps;
    unsigned threads = 0;
    for (unsigned warp = first; warp < first + warps; ++warp) {
        const std::uint32_t lanes = warp < of_block ? alive[of_block * block_rank() + warp] : 0;
        threads += lanes & 1 ? __builtin_popcount(lanes) : 32;
    }
    return threads;
}

}  // namespace

void meet_in_tile(unsigned size, Collective kind, unsigned detail, std::uint64_t value, std::uint64_t* of_warps,
                  const char* file, int line)
{
    const unsigned warp = thread_in_block() / 32, warps = size / 32;
    Tile& tile = tiles[tiles_of_block * block_rank() + tiles_of_block - 2048 / size + warp / warps];
    const std::string who = thread_name(thread_number()), of_tile = " its tile of " + std::to_string(size) + " threads";
    if (tile.arrived && tile.kind != kind)
        watch::divergence(who + " is at " + called(kind) + " of" + of_tile + ", another warp of the tile at " +
                              called(tile.kind),
                          file, line);
    else if (tile.arrived && tile.detail != detail)
        watch::divergence(who + " asks" + of_tile + " for the value of thread " + std::to_string(detail) +
                              ", another warp of the tile for that of thread " + std::to_string(tile.detail),
                          file, line);
    tile.warps = warps;
    tile.kind = kind;
    tile.detail = detail;
    if (kind == Collective::sync) watch::release(tile.arrivals);  // CUDA promises an order of nothing else
    if (thread_in_block() % 32 == 0) tile.coming[warp % warps] = value;
    const bool complete = ++tile.arrived == wanted(warps);
    if (complete) {
        tile.arrived = 0;
        tile.known = tile.arrivals;
        std::copy(tile.coming, tile.coming + warps, tile.brought);
    }
    const Why why = [](const void* object, std::uint64_t) {
        const Tile& tile = *static_cast<const Tile*>(object);
        return called(tile.kind) + " of a tile of " + std::to_string(32 * tile.warps) + " threads, to which " +
               std::to_string(tile.arrived) + " have come";
    };
    sleep_for(&tile, why, 0, file, line, nullptr, complete);
    if (kind == Collective::sync) watch::acquire(tile.known);
    std::copy(tile.brought, tile.brought + warps, of_warps);
}

void start_tiles() { tiles.assign(tiles_of_block * cluster_blocks, {}); }

}  // namespace emulator
