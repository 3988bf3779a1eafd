// A ring of stages in shared memory, which some warps fill and others read.
#pragma once
#include "barriers.cuh"
#include "shared_memory.cuh"

/// A place in a ring of STAGES stages, and the parity of the stages' barriers on this round.
template <int STAGES>
struct Place {
    int stage = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void next()
    {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
    __device__ __forceinline__ void skip(int stages)
    {
        const int to = stage + stages;
        stage = to % STAGES;
        parity ^= to / STAGES & 1;
    }
};

/// Each stage has two barriers: `full` opens when its tiles have come, `empty` when every consumer has read them.
///
///      producer:  wait empty ── copy ─────────────► full opens
///      consumer:  wait full ─── read ── arrive ───► empty opens
///
/// @tparam STAGES       stages of the ring
/// @tparam STAGE_BYTES  bytes per stage
template <int STAGES, int STAGE_BYTES>
struct Ring : Place<STAGES> {
    using Place<STAGES>::stage;
    static constexpr int ALIGNMENT = 1024;  // what the widest swizzle of TMA asks for
    static constexpr int BYTES = STAGES * STAGE_BYTES + ALIGNMENT + 16 * STAGES;
    static_assert(STAGE_BYTES % ALIGNMENT == 0, "every stage keeps the alignment");

    unsigned tiles, barriers;  // addresses

    /// `memory`: BYTES bytes of dynamic shared memory. Rounded up here: a declared alignment is not kept.
    __device__ __forceinline__ explicit Ring(const void* memory)
        : tiles((shared_address(memory) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT),
          barriers(tiles + STAGES * STAGE_BYTES)
    {
    }
    __device__ __forceinline__ unsigned full() const { return barriers + 16 * stage; }
    __device__ __forceinline__ unsigned empty() const { return barriers + 16 * stage + 8; }
    __device__ __forceinline__ unsigned tile() const { return tiles + stage * STAGE_BYTES; }

    /// One thread makes the barriers, for so many arrivals; __syncthreads() must follow.
    __device__ __forceinline__ void make(int producers, int consumers)
    {
        for (stage = 0; stage < STAGES; ++stage) {
            make_barrier(full(), producers);
            make_barrier(empty(), consumers);
        }
        stage = 0;
        publish_barriers();
    }
};
