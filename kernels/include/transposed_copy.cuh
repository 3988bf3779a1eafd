// How the threads of a producer group transpose A's tile on its way into a ring.
#pragma once
#include "shared_memory.cuh"
#include "vectors.cuh"

/// A's share of a stage, brought by the 128 threads of the producer group: read along the rows, written transposed.
/// @tparam ALIGNED  whether 16 bytes can be read at once: p is a multiple of 4
template <int TILE_N, int TILE_K, bool ALIGNED>
struct TransposedCopy {
    static constexpr int THREADS = 128, ROWS = TILE_N / THREADS;  // rows per thread
    static_assert(TILE_N % THREADS == 0 && TILE_K % 4 == 0, "a thread brings whole rows, in vectors");
    Vector<float> coming[ROWS][TILE_K / 4];

    __device__ __forceinline__ void fetch(const float* A, int first_row, int start, int n, int p)
    {
        #pragma unroll
        for (int r = 0; r < ROWS; ++r)
            #pragma unroll
            for (int v = 0; v < TILE_K / 4; ++v)
                coming[r][v] = load_within(A, first_row + r * THREADS + static_cast<int>(threadIdx.x) % THREADS,
                                           start + v * 4, n, p, ALIGNED);
    }
    __device__ __forceinline__ void put(unsigned tile) const
    {
        #pragma unroll
        for (int r = 0; r < ROWS; ++r)
            #pragma unroll
            for (int k = 0; k < TILE_K; ++k)
                store_4_bytes(tile + (k * TILE_N + r * THREADS + threadIdx.x % THREADS) * 4,
                            coming[r][k / 4].element[k % 4]);
    }
};
