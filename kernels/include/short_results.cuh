// Results of tensor cores, written from registers as 2-byte elements.
#pragma once
#include "short_numbers.cuh"

/// Writes the sums of a warp group (2 COUNT columns; see wgmma.cuh) as 2-byte elements, the rows and columns that
/// exist.
template <typename T, int COUNT>
__device__ __forceinline__ void store_rounded(const float (&sums)[COUNT], T* C, int row, int column, int n, int m)
{
    const auto target = reinterpret_cast<unsigned short*>(C);
    row += threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    column += 2 * (threadIdx.x % 4);
    #pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (row + 8 * half >= n) continue;
        unsigned short* const to = target + static_cast<long long>(row + 8 * half) * m + column;
        #pragma unroll
        for (int j = 0; j < COUNT / 4; ++j) {
            const unsigned pair = Short<T>::pack(sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]);
            if (m % 2 == 0) {
                if (column + 8 * j < m) *reinterpret_cast<unsigned*>(to + 8 * j) = pair;
            } else {
                if (column + 8 * j < m) to[8 * j] = static_cast<unsigned short>(pair);
                if (column + 8 * j + 1 < m) to[8 * j + 1] = static_cast<unsigned short>(pair >> 16);
            }
        }
    }
}
