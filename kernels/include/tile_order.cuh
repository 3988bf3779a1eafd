// In which order blocks walk over the tiles of C.
#pragma once

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

struct Tile {
    int row, column;  // in tiles
};

/// Tile number `index` if the tiles are walked in bands of `height` rows of tiles, down each column of the band. Tiles
/// that are computed at the same time then share rows of A and columns of B, and both stay in the L2 cache; in a plain
/// order they would lie in one long row.
__device__ __forceinline__ Tile tile_in_bands(int index, int rows, int columns, int height)
{
    const int band = index / (height * columns);
    const int first = band * height;
    const int own_height = min(height, rows - first);
    const int within = index - band * height * columns;
    return {first + within % own_height, within / own_height};
}
