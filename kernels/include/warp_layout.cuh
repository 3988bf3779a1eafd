// Who computes what within a warp that owns a rectangle of C.
#pragma once

/// 32 lanes stand 8 rows by 4 columns. A lane's results are not one rectangle but squares of HEIGHT x WIDTH, one from
/// every copy of this pattern; neighbouring lanes then read neighbouring 16 bytes, and lanes of one row (of one
/// column) read the same ones, which shared memory hands out at once.
///
///        4 columns of lanes        the same again, 4 * WIDTH further right
///      +----+----+----+----+       +----+----+----+----+
///      |  0 |  1 |  2 |  3 |       |  0 |  1 |  2 |  3 |
///      |  4 |  5 |  6 |  7 |       |  4 |  5 |  6 |  7 |     HEIGHT x WIDTH results per square
///       ...                         ...
///      | 28 | 29 | 30 | 31 |       | 28 | 29 | 30 | 31 |
///
/// @tparam TILE_M  columns of the block's tile
/// @tparam ROWS    rows of results per thread; a warp owns 8 * ROWS rows
/// @tparam COLS    columns of results per thread; a warp owns 4 * COLS columns
/// @tparam WIDTH   elements in 16 bytes: columns of a square
/// @tparam HEIGHT  rows of a square
template <int TILE_M, int ROWS, int COLS, int WIDTH, int HEIGHT = WIDTH>
struct WarpLayout {
    static constexpr int LANE_ROWS = 8, LANE_COLS = 4;
    static constexpr int WARP_N = LANE_ROWS * ROWS, WARP_M = LANE_COLS * COLS;
    static_assert(TILE_M % WARP_M == 0, "warps cover the tile's columns");
    static_assert(ROWS % HEIGHT == 0 && COLS % WIDTH == 0, "a thread's results are whole squares");

    int first_row, first_col;  // of the thread, within the block's tile

    __device__ __forceinline__ explicit WarpLayout(int thread)
    {
        const int warp = thread / 32, lane = thread % 32;
        first_row = warp / (TILE_M / WARP_M) * WARP_N + lane / LANE_COLS * HEIGHT;
        first_col = warp % (TILE_M / WARP_M) * WARP_M + lane % LANE_COLS * WIDTH;
    }
    /// The tile's row of the thread's i-th row, and the tile's column of its j-th.
    __device__ __forceinline__ int row(int i) const
    {
        return first_row + i / HEIGHT * (LANE_ROWS * HEIGHT) + i % HEIGHT;
    }
    __device__ __forceinline__ int col(int j) const
    {
        return first_col + j / WIDTH * (LANE_COLS * WIDTH) + j % WIDTH;
    }
};
