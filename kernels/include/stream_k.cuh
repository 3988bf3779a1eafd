// Which steps of which tiles a block computes, so that all blocks end together.
#pragma once
#include "launches.cuh"
#include "tile_order.cuh"
#include "vectors.cuh"

/// Steps first .. last - 1 of one tile of C.
struct Segment {
    int tile, first, last;
};

/// `blocks` blocks share `tiles` tiles of `steps` steps. As many whole waves as possible are dealt out tile by tile,
/// so that blocks at work at one time are at the same k and meet in L2. The tiles that are left, laid end to end, are
/// cut into equal pieces, each of which begins in the middle of a tile and ends in the middle of another:
///
///      worker    0         1         2         3
///      steps   |─────────|─────────|─────────|─────────|
///      tiles   |    0         |    1         |    2    ...
///
/// The worker that has a tile's first step owns it; later workers have a share of it. Nothing is cut if that would
/// shorten the last wave by less than 12 steps, about as long as the shares take to be stored and added. If tiles
/// are fewer than blocks, each is cut into at most 24 pieces of about four steps or more; if not, a piece may have one.
struct Schedule {
    int steps, workers, waves, left, cut_tiles;

    __device__ __forceinline__ Schedule(int tiles, int steps, int blocks) : steps(steps)
    {
        const int idle = blocks - tiles % blocks;  // blocks without a tile in the last wave
        const bool cut = tiles % blocks > 0 && static_cast<long long>(idle) * steps >= 12ll * blocks;
        workers = min(blocks, cut ? tiles * min(24, (steps + 3) / 4) : tiles);
        waves = tiles / workers;
        left = tiles % workers;
        cut_tiles = cut ? left : 0;
    }
    /// The first of a worker's steps among those of the cut tiles.
    __device__ __forceinline__ long long begin_of(int worker) const
    {
        return static_cast<long long>(cut_tiles) * steps * worker / workers;
    }
    /// The worker that has a cut tile's first step.
    __device__ __forceinline__ int owner_of(int cut_tile) const
    {
        const long long first = static_cast<long long>(cut_tile) * steps;
        int worker = static_cast<int>(static_cast<long long>(cut_tile) * workers / cut_tiles);
        while (begin_of(worker + 1) <= first) ++worker;
        while (begin_of(worker) > first) --worker;
        return worker;
    }
};

/// One worker's way through the schedule.
struct Work : Schedule {
    int worker, wave = 0, last_wave;
    long long step, end;  // my piece of the cut tiles

    __device__ __forceinline__ Work(int tiles, int steps, int blocks, int worker)
        : Schedule(tiles, steps, blocks), worker(worker), last_wave(waves + (cut_tiles == 0 && worker < left)),
          step(begin_of(worker)), end(begin_of(worker + 1))
    {
    }
    __device__ __forceinline__ bool done() const { return wave == last_wave && step >= end; }
    __device__ __forceinline__ Segment next()
    {
        if (wave < last_wave) return {wave++ * workers + worker, 0, steps};
        Segment segment;
        const int cut_tile = static_cast<int>(step / steps);
        segment.tile = waves * workers + cut_tile;
        segment.first = static_cast<int>(step - static_cast<long long>(cut_tile) * steps);
        const long long left = end - step;
        segment.last = left < steps - segment.first ? segment.first + static_cast<int>(left) : steps;
        step += segment.last - segment.first;
        return segment;
    }
};

/// What the consumers must know of a segment.
struct Note {
    int first_row, first_col;  // of the tile
    int steps;                 // of k, in stages
    bool owner;                // it begins with the tile's first step
    bool last;                 // no segment follows
};

/// Adds to the tiles of C what later workers have left of them, in their order: the sum is the same in every run.
/// TILE_N * TILE_M / 2048 blocks per tile.
template <typename T, int TILE_N, int TILE_M, int TILE_K, int BAND, bool ALIGNED_C>
__global__ void __launch_bounds__(256) add_shares(T* C, const T* shares, int n, int p, int m, int blocks)
{
    wait_for_earlier_launches();
    constexpr int WIDTH = Vector<T>::size, VECTORS = 8 / WIDTH;  // elements of a vector; vectors per thread
    constexpr int SLICES = TILE_N * TILE_M / (8 * 256);          // blocks per tile
    static_assert(8 * 256 * SLICES == TILE_N * TILE_M, "every thread adds equally many");
    const int tiles_n = ceil_div(n, TILE_N), tiles_m = ceil_div(m, TILE_M), steps = ceil_div(p, TILE_K);
    const int tile = blockIdx.x / SLICES;
    const Schedule schedule(tiles_n * tiles_m, steps, blocks);
    if (tile >= schedule.cut_tiles) return;  // all waves are whole
    int other = schedule.owner_of(tile) + 1;
    const long long end = static_cast<long long>(tile + 1) * steps;
    if (schedule.begin_of(other) >= end) return;  // one worker has done it all

    const Tile place = tile_in_bands(schedule.waves * schedule.workers + tile, tiles_n, tiles_m, BAND);
    const int row = place.row, col = place.column;
    const int first = (blockIdx.x % SLICES * VECTORS * 256 + threadIdx.x) * WIDTH;  // of the tile's elements
    Vector<T> sums[VECTORS];
    #pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        const int e = first + v * 256 * WIDTH;
        sums[v] = load_within(C, row * TILE_N + e / TILE_M, col * TILE_M + e % TILE_M, n, m, ALIGNED_C);
    }
    for (; schedule.begin_of(other) < end; ++other) {
        if (schedule.begin_of(other) == schedule.begin_of(other + 1)) continue;  // fewer steps than workers
        #pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            const Vector<T> share =
                load_vector(shares + static_cast<long long>(other) * (TILE_N * TILE_M) + first + v * 256 * WIDTH);
            #pragma unroll
            for (int e = 0; e < WIDTH; ++e) sums[v].element[e] += share.element[e];
        }
    }
    #pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        const int e = first + v * 256 * WIDTH;
        store_within(C, row * TILE_N + e / TILE_M, col * TILE_M + e % TILE_M, n, m, ALIGNED_C, sums[v]);
    }
}
