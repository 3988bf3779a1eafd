// C^T = B^T A^T by wgmma with B^T in registers, where turning it costs nothing: the steps of a tile, and its results.
#pragma once
#include "barriers.cuh"
#include "ring.cuh"
#include "tensor_copy.cuh"
#include "wgmma_bytes.cuh"  // and wgmma.cuh

/// The products of one tile, of 64 columns of C per warp group, into `sums`. Fragments of the next step are loaded while
/// the products of this one run: two sets of registers, by turns. For that the two steps must be straight code: with a
/// branch between them, for odd numbers of steps, ptxas waits after each wgmma (C7513).
/// @tparam ROW_BYTES  of a stage's tile of A, which lies at its beginning
/// @tparam PIECES     fragments per step, of 4 registers each
/// @param steps    an even number; the last step may be of zeros
/// @param load     load(fragments, stage) reads the fragments of B^T from the stage at this address
/// @param multiply multiply(fragments, a, step) starts the products with A^T; step 0 overwrites the sums
template <int ROW_BYTES, int PIECES, typename Ring, typename Sums, typename Load, typename Multiply>
__device__ __forceinline__ void multiply_from_registers(Ring& ring, int steps, Sums& sums, Load&& load,
                                                        Multiply&& multiply)
{
    unsigned fragments[2][PIECES][4];
    unsigned previous = 0;
    const auto one_step = [&](unsigned (&own)[PIECES][4], int step) {
        wait_for(ring.full(), ring.parity);
        const unsigned stage = ring.tile();
        load(own, stage);
        show_to_async_proxy();  // what is read here, TMA will overwrite
        const Descriptor a = rows_along_k<ROW_BYTES>(stage);
        pin(sums);
        begin_products();
        multiply(own, a, step);
        commit_products();
        wait_for_products<1>();  // those of the step before are done: its stage is free
        pin(sums);
        if (step > 0) arrive(previous);
        previous = ring.empty();
        ring.next();
    };
    for (int step = 0; step < steps; step += 2) {
        one_step(fragments[0], step);
        one_step(fragments[1], step + 1);
    }
    wait_for_products<0>();
    pin(sums);
    arrive(previous);
}

/// Two neighbouring elements, which are stored at once.
template <typename T>
struct alignas(2 * sizeof(T)) Pair {
    T first, second;
};

/// Stores a thread's sums: sums[4 j + h + 2 e] is of row `row` + 8 j + h and of column `column` + e, which is even.
template <typename T, int COUNT>
__device__ __forceinline__ void store_column_pairs(const T (&sums)[COUNT], T* C, int row, int column, int n, int m)
{
    #pragma unroll
    for (int j = 0; j < COUNT / 4; ++j)
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int own_row = row + 8 * j + h;
            if (own_row >= n) continue;
            T* const to = C + static_cast<long long>(own_row) * m + column;
            const Pair<T> pair = {sums[4 * j + h], sums[4 * j + 2 + h]};
            if (m % 2 == 0) {
                if (column < m) *reinterpret_cast<Pair<T>*>(to) = pair;
            } else {
                if (column < m) to[0] = pair.first;
                if (column + 1 < m) to[1] = pair.second;
            }
        }
}
