// A transposed copy of an array.
#pragma once
#include "launches.cuh"

/// out (cols x pitch) = in (rows x cols) transposed; what lies beyond column `rows` of out is not written.
/// Launch: block (32, 8); grid (ceil(rows / 64), ceil(cols / 32)).
__global__ void transpose(const float* in, float* out, int rows, int cols, int pitch)
{
    wait_for_earlier_launches();
    __shared__ float tile[32][65];  // the odd pitch spreads a column over all banks
    const int first_row = blockIdx.x * 64, first_col = blockIdx.y * 32;
    #pragma unroll
    for (int r = 0; r < 64; r += 8) {
        const int row = first_row + r + threadIdx.y, col = first_col + threadIdx.x;
        if (row < rows && col < cols)
            tile[threadIdx.x][r + threadIdx.y] = in[static_cast<long long>(row) * cols + col];
    }
    __syncthreads();  // the tile is complete
    #pragma unroll
    for (int c = 0; c < 32; c += 8) {
        const int col = first_col + c + threadIdx.y;
        #pragma unroll
        for (int r = 0; r < 64; r += 32) {
            const int row = first_row + r + threadIdx.x;
            if (row < rows && col < cols)
                out[static_cast<long long>(col) * pitch + row] = tile[c + threadIdx.y][r + threadIdx.x];
        }
    }
}
