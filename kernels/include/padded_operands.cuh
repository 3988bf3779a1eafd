// Copies of operands with a pitch that TMA takes: a multiple of 16 bytes.
#pragma once
#include "launches.cuh"
#include "tile_order.cuh"

/// out (rows x pitch) = in (rows x cols), zeros beyond column `cols`. Launch: block (256); any grid along x.
template <typename T>
__global__ void pad(const T* in, T* out, int rows, int cols, int pitch)
{
    wait_for_earlier_launches();
    for (int row = blockIdx.x; row < rows; row += gridDim.x)
        for (int col = threadIdx.x; col < pitch; col += blockDim.x)
            out[static_cast<long long>(row) * pitch + col] =
                col < cols ? in[static_cast<long long>(row) * cols + col] : T(0);
}

/// Copies A (n x p) and B (p x m) to rows of a multiple of 8 elements, zeros beyond: TMA needs a pitch of a multiple of
/// 16 bytes. A thread loads all its elements before it stores the first: one trip to memory, not sixteen.
/// Launch: block (32, 8); grid (ceil(max(p, m) / 128), ceil(max(n, p) / 32), 2).
template <typename T>
__global__ void __launch_bounds__(256)
pad_operands(const T* A, const T* B, T* a_padded, T* b_padded, int n, int p, int m)
{
    wait_for_earlier_launches();
    const bool is_a = blockIdx.z == 0;
    const auto source = reinterpret_cast<const unsigned short*>(is_a ? A : B);
    const auto target = reinterpret_cast<unsigned short*>(is_a ? a_padded : b_padded);
    const int rows = is_a ? n : p;
    const int columns = is_a ? p : m;
    const int pitch = 8 * ceil_div(columns, 8);
    const int row = blockIdx.y * 32 + threadIdx.y;
    const int column = blockIdx.x * 128 + threadIdx.x;
    unsigned short values[4][4] = {};
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j)
            if (row + 8 * i < rows && column + 32 * j < columns)
                values[i][j] = source[static_cast<long long>(row + 8 * i) * columns + column + 32 * j];
    }
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j)
            if (row + 8 * i < rows && column + 32 * j < pitch)
                target[static_cast<long long>(row + 8 * i) * pitch + column + 32 * j] = values[i][j];
    }
}
