// Results of tensor cores, written from registers as 2-byte elements.
#pragma once
#include "mma.cuh"
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

/// Writes the sums of a warp group's 64 x 64 results, 32 per thread, as 2-byte elements into a buffer in shared memory, in
/// the order that TMA expects of rows of 128 bytes: a row's pieces of 16 bytes are swizzled.
/// @param warp, lane  of the thread in its group and in its warp
template <typename T>
__device__ __forceinline__ void write_panel(unsigned buffer, const float* sums, int warp, int lane)
{
    const int row = warp * 16 + lane % 16;
    #pragma unroll
    for (int j = 0; j < 4; ++j) {  // 16 columns each
        const float* const s = sums + j * 8;
        store_matrices(buffer + row * 128 + (((2 * j + lane / 16) ^ (row & 7)) * 16), Short<T>::pack(s[0], s[1]),
                       Short<T>::pack(s[2], s[3]), Short<T>::pack(s[4], s[5]), Short<T>::pack(s[6], s[7]));
    }
}
