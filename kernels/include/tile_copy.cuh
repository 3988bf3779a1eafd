// One thread's share of the copies of a tile into swizzled shared memory.
#pragma once
#include "async_copy.cuh"

/// A tile of ROWS x ROW_BYTES of a row-major array. Each thread copies COUNT pieces of COPY bytes, all in one column of
/// pieces, STEP rows apart: what differs between two of them is known at compile time, and a piece costs few
/// instructions besides the copy.
/// @tparam SWIZZLE  type with `static int chunk(int row)`: what is XORed to the number of each 16-byte chunk of that
/// row;
///                  made of bits of `row` alone, so that the part of a sum of rows without carries is the XOR of the
///                  parts
template <int ROWS, int ROW_BYTES, int COPY, int THREADS, typename SWIZZLE>
struct TileCopy {
    static constexpr int PIECES = ROW_BYTES / COPY;  // of a row
    static constexpr int STEP = THREADS / PIECES;    // rows that all threads copy together
    static constexpr int COUNT = ROWS / STEP;
    static_assert(THREADS % PIECES == 0 && ROWS % STEP == 0, "the same share for every thread");
    static_assert((STEP & (STEP - 1)) == 0, "a sum of rows has no carries");

    int row, byte;  // where the thread's first piece lies in the tile
    unsigned to;    // and where it goes, from the start of the tile in shared memory

    __device__ __forceinline__ explicit TileCopy(int thread)
        : row(thread / PIECES), byte(thread % PIECES * COPY),
          to(row * ROW_BYTES + ((byte / 16) ^ SWIZZLE::chunk(row)) * 16 + byte % 16) {}

    /// Piece `i`; `from` is where the thread's first piece lies in the array, whose rows are `pitch` bytes apart.
    __device__ __forceinline__ void copy(int i, unsigned tile, const char* from, long long pitch, bool inside) const
    {
        const unsigned target = tile + (to ^ (SWIZZLE::chunk(i * STEP) * 16)) + i * STEP * ROW_BYTES;
        copy_async<COPY>(target, from + i * STEP * pitch, inside);
    }
};
