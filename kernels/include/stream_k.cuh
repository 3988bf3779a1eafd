// Which steps of which tiles a block computes, so that all blocks end together.
#pragma once

/// Steps first .. last - 1 of one tile of C.
struct Segment {
    int tile, first, last;
};

/// `workers` blocks share `tiles` tiles of `steps` steps. As many whole waves as possible are dealt out tile by tile,
/// so that blocks at work at one time are at the same k and meet in L2. The tiles that are left, laid end to end, are
/// cut into equal pieces, each of which begins in the middle of a tile and ends in the middle of another:
///
///      worker    0         1         2         3
///      steps   |─────────|─────────|─────────|─────────|
///      tiles   |    0         |    1         |    2    ...
///
/// The worker that has a tile's first step owns it; later workers have a share of it.
struct Schedule {
    int steps, workers, waves, cut_tiles;

    __device__ __forceinline__ Schedule(int tiles, int steps, int workers)
        : steps(steps), workers(workers), waves(tiles / workers), cut_tiles(tiles % workers)
    {
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
    int worker, wave = 0;
    long long step, end;  // my piece of the cut tiles

    __device__ __forceinline__ Work(int tiles, int steps, int workers, int worker)
        : Schedule(tiles, steps, workers), worker(worker), step(begin_of(worker)), end(begin_of(worker + 1))
    {
    }
    __device__ __forceinline__ bool done() const { return wave == waves && step >= end; }
    __device__ __forceinline__ Segment next()
    {
        if (wave < waves) return {wave++ * workers + worker, 0, steps};
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
