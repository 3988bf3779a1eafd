// Arrays of bytes as wgmma and TMA take them: along k, with rows of a multiple of 16 bytes. The study's call of cuBLAS
// compiles it alone.
#pragma once
#include "launches.cuh"

/// out (cols x pitch) = in (rows x cols) transposed, zeros from column `rows` of out on; pitch is a multiple of 16.
///
///      in:  4 rows x 4 bytes per thread        tile: 128 columns of in, each as 32 words of 4 rows
///
/// A thread turns blocks of 4 x 4 bytes in registers; the tile's words are permuted by XOR, so that neither the writes
/// (a warp: 32 columns, one word) nor the reads (one column, 32 words) meet in a bank.
/// Launch: block 256; grid (ceil(pitch / 128), ceil(cols / 128)).
__global__ void __launch_bounds__(256)
turn_bytes(const signed char* in, signed char* out, int rows, int cols, int pitch)
{
    wait_for_earlier_launches();
    __shared__ unsigned tile[128 * 32];
    const int first_row = blockIdx.x * 128, first_col = blockIdx.y * 128;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    #pragma unroll
    for (int round = 0; round < 4; ++round) {
        const int group = warp + 8 * round;  // of 4 rows
        unsigned word[4];
        #pragma unroll
        for (int r = 0; r < 4; ++r) {
            const int row = first_row + 4 * group + r, col = first_col + 4 * lane;
            const signed char* const from = in + static_cast<long long>(row) * cols + col;
            word[r] = 0;
            if (row < rows && col < cols) {
                if (cols % 4 == 0) {
                    word[r] = *reinterpret_cast<const unsigned*>(from);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e)
                        if (col + e < cols) word[r] |= static_cast<unsigned>(static_cast<unsigned char>(from[e])) << 8 * e;
                }
            }
        }
        // Pairs of bytes of rows 0 and 1, and of rows 2 and 3; then four bytes of a column.
        const unsigned low01 = __byte_perm(word[0], word[1], 0x5140), high01 = __byte_perm(word[0], word[1], 0x7362);
        const unsigned low23 = __byte_perm(word[2], word[3], 0x5140), high23 = __byte_perm(word[2], word[3], 0x7362);
        unsigned* const to = tile + 4 * lane * 32 + (group ^ lane);
        to[0] = __byte_perm(low01, low23, 0x5410);
        to[32] = __byte_perm(low01, low23, 0x7632);
        to[64] = __byte_perm(high01, high23, 0x5410);
        to[96] = __byte_perm(high01, high23, 0x7632);
    }
    __syncthreads();  // the tile is complete
    #pragma unroll
    for (int round = 0; round < 16; ++round) {
        const int column = warp + 8 * round, k = first_row + 4 * lane;
        if (first_col + column < cols && k < pitch)
            *reinterpret_cast<unsigned*>(out + static_cast<long long>(first_col + column) * pitch + k) =
                tile[column * 32 + (lane ^ column / 4)];
    }
}

/// out (rows x pitch) = in (rows x cols), zeros from column `cols` on; pitch is a multiple of 16.
/// Launch: block 256; grid (rows, ceil(pitch / 4096)).
__global__ void __launch_bounds__(256) pad_bytes(const signed char* in, signed char* out, int cols, int pitch)
{
    wait_for_earlier_launches();
    const int col = (blockIdx.y * 256 + threadIdx.x) * 16;
    if (col >= pitch) return;
    const signed char* const from = in + static_cast<long long>(blockIdx.x) * cols;
    unsigned word[4];
    #pragma unroll
    for (int w = 0; w < 4; ++w) {
        word[w] = 0;
        #pragma unroll
        for (int e = 0; e < 4; ++e)
            if (col + 4 * w + e < cols)
                word[w] |= static_cast<unsigned>(static_cast<unsigned char>(from[col + 4 * w + e])) << 8 * e;
    }
    *reinterpret_cast<uint4*>(out + static_cast<long long>(blockIdx.x) * pitch + col) =
        make_uint4(word[0], word[1], word[2], word[3]);
}
