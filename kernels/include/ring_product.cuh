// What the consumers of a ring do: 8 warps of 64 rows of results each, 8 x COLS per thread: COLS is 4, 8, 12 or 16.
#pragma once
#include "barriers.cuh"
#include "shared_memory.cuh"
#include "tensor_copy.cuh"
#include "vectors.cuh"
#include "walk.cuh"
#include "warp_layout.cuh"

/// The thread's number, read anew: what is computed from it is computed here and not kept in registers all along.
/// PTX ISA: Special Registers: %tid.
__device__ __forceinline__ int thread_read_anew()
{
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

/// A stage holds A's tile transposed (TILE_K x TILE_N), then B's (TILE_K x TILE_M). While the fragments of one k are
/// multiplied, those of the next are on their way, across the stages too.
/// @tparam TILE_N, TILE_M  rows and columns of C per block, 256 * 8 * COLS results
/// @tparam TILE_K          steps of k per stage
/// @tparam ORDER           of the multiply-adds: see Walk
template <int TILE_N, int TILE_M, int TILE_K, int ORDER>
struct RingProduct {
    static constexpr int THREADS = 256;
    static constexpr int ROWS = 8, COLS = TILE_N * TILE_M / THREADS / ROWS;  // results per thread
    static constexpr int A_BYTES = TILE_N * TILE_K * 4, B_BYTES = TILE_K * TILE_M * 4;
    using Layout = WarpLayout<TILE_M, ROWS, COLS, 4>;
    static_assert(COLS % 4 == 0 && TILE_N * TILE_M == THREADS * ROWS * COLS, "the consumers' results fill the tile");
    static_assert(TILE_N % Layout::WARP_N == 0, "warps cover the tile's rows");
    static_assert(TILE_N <= 256 && TILE_M <= 256, "a box has at most 256 elements along each side");
    static_assert(TILE_K % 2 == 0, "two sets of fragments take turns");

    const Layout mine;
    float a[2][ROWS / 4][4], b[2][COLS / 4][4];  // fragments of this k and of the next
    float sums[ROWS][COLS];

    __device__ __forceinline__ explicit RingProduct(int thread) : mine(thread) {}

    __device__ __forceinline__ void clear()
    {
        #pragma unroll
        for (int i = 0; i < ROWS; ++i)
            #pragma unroll
            for (int j = 0; j < COLS; ++j) sums[i][j] = 0.0f;
    }
    __device__ __forceinline__ void load_fragments(unsigned tile, int k)
    {
        #pragma unroll
        for (int v = 0; v < COLS / 4; ++v)
            load_16_bytes(b[k % 2][v], tile + mine.first_col * 4 + A_BYTES + (k * TILE_M + v * 16) * 4);
        #pragma unroll
        for (int v = 0; v < ROWS / 4; ++v)
            load_16_bytes(a[k % 2][v], tile + mine.first_row * 4 + (k * TILE_N + v * 32) * 4);
    }
    /// Before the first step: the first fragments. Each step loads those of the step after it; so the producer ends
    /// with one stage more, which nobody uses: cheaper than a test in every step.
    template <typename Stages>
    __device__ __forceinline__ void begin(const Stages& ring)
    {
        wait_for_without_loop(ring.full(), ring.parity);
        load_fragments(ring.tile(), 0);
    }
    /// One stage: TILE_K times ROWS x COLS multiply-adds per thread, in the order of Walk. Each thread gives the stage
    /// back by itself, behind a fence: TMA will overwrite it through another proxy than that of loads, and no barrier
    /// orders the one before the other. PTX ISA: Async proxy.
    template <typename Stages>
    __device__ __forceinline__ void step(Stages& ring)
    {
        const unsigned tile = ring.tile(), empty = ring.empty();
        #pragma unroll
        for (int k = 0; k < TILE_K; ++k) {
            if (k < TILE_K - 1) {
                load_fragments(tile, k + 1);
            } else {
                ring.next();
                show_to_async_proxy();
                arrive(empty);
                begin(ring);
            }
            #pragma unroll
            for (int t = 0; t < ROWS * COLS; ++t) {
                const int i = Walk<ROWS, COLS, ORDER>::row(k, t), j = Walk<ROWS, COLS, ORDER>::col(k, t);
                sums[i][j] += a[k % 2][i / 4][i % 4] * b[k % 2][j / 4][j % 4];
            }
        }
    }
    /// The results, within C's edges.
    template <bool ALIGNED>
    __device__ __forceinline__ void store(float* C, int first_row, int first_col, int n, int m) const
    {
        const Layout place(thread_read_anew());
        #pragma unroll
        for (int i = 0; i < ROWS; ++i)
            #pragma unroll
            for (int v = 0; v < COLS / 4; ++v)
                store_within(C, first_row + place.row(i), first_col + place.col(v * 4), n, m, ALIGNED, quad(i, v));
    }
    /// The same number, by a way that the compiler does not see through (gridDim.z is 1, so the selector is 0x3210).
    /// A store of 16 bytes takes four consecutive registers. Without this copy the sums would have that order during
    /// the whole product, and too many multiply-adds would read one register bank: 0.86 to 0.91 of the issue slots
    /// would be used; with it, 0.93 are. PTX ISA: Data Movement and Conversion Instructions: prmt.
    __device__ __forceinline__ static float copy_of(float value)
    {
        float copy;
        asm("prmt.b32 %0, %1, %1, %2;" : "=f"(copy) : "f"(value), "r"(gridDim.z + 0x320F));
        return copy;
    }
    __device__ __forceinline__ Vector<float> quad(int i, int v) const
    {
        Vector<float> c;
        #pragma unroll
        for (int e = 0; e < 4; ++e) c.element[e] = copy_of(sums[i][v * 4 + e]);
        return c;
    }
};
