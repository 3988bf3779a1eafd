// In which order a thread visits the results of its tile: the same sums, but other registers are read at one time.
#pragma once

/// A multiply-add reads three registers; the register file delivers two per cycle, one of even and one of odd number.
/// The third must have been kept by the instruction before (`.reuse` in the machine code), so neighbours on the way
/// should share a row or a column. What the compiler makes of a way also depends on where it begins: so that is a
/// parameter too, and the machine code decides.
///
///     way 0, serpentine      way 4, pairs of rows    way 5, row by row
///       ──────────►            ┌┐ ┌┐ ┌┐ ┌►             ──────────►
///       ◄──────────            ┘└─┘└─┘└─┘              ──────────►
///
/// @tparam ROWS, COLS  results per thread
/// @tparam ORDER       16 * way + flips: 1 and 2, at even k begin with the last row, the last column; 4 and 8, at odd k
template <int ROWS, int COLS, int ORDER>
struct Walk {
    static constexpr int WAY = ORDER / 16;
    static_assert(WAY == 0 || WAY == 4 || WAY == 5, "one of the three ways");
    static_assert(WAY != 4 || ROWS % 2 == 0, "rows come in pairs");

    __device__ static constexpr int row(int k, int t)
    {
        const int pair = t / (2 * COLS), within = t % (2 * COLS);
        const int i = WAY == 4 ? pair * 2 + (within / 2 % 2 ? 1 - within % 2 : within % 2) : t / COLS;
        return ORDER >> k % 2 * 2 & 1 ? ROWS - 1 - i : i;
    }
    __device__ static constexpr int col(int k, int t)
    {
        const int pair = t / (2 * COLS), within = t % (2 * COLS);
        const int j = WAY == 4   ? (pair % 2 ? COLS - 1 - within / 2 : within / 2)
                      : WAY == 0 ? (t / COLS % 2 ? COLS - 1 - t % COLS : t % COLS)
                                 : t % COLS;
        return ORDER >> k % 2 * 2 & 2 ? COLS - 1 - j : j;
    }
};
