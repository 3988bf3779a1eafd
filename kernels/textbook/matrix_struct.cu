// C = A B through shared memory, written with a matrix struct instead of pointers and offsets.
//
// The idea: a matrix is described by where it begins, how large it is, and how far apart its rows lie (the stride).
// Then a part of a matrix is a matrix too: it begins elsewhere and keeps the stride. So the current tile of A, the
// current tile of B and the block's tile of C are all views, cut off at the edges of their matrix, and the same code
// multiplies parts of larger arrays. Each view takes registers for a stride and two sizes; a comparison with tiled.cu,
// which uses the same algorithm, shows how much that costs.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: block (TILE, TILE); grid (ceil(m / TILE), ceil(n / TILE)).

/// @tparam T  the element; const if the matrix is only read
template <typename T>
struct Matrix {
    T* elements;
    int rows, columns;
    long long stride;  // elements from one row to the next

    /// The element, or 0 beyond the edges.
    __device__ T get(int row, int column) const
    {
        return row < rows && column < columns ? elements[row * stride + column] : T(0);
    }

    /// Stores the element; beyond the edges it stores nothing.
    __device__ void set(int row, int column, T value) const
    {
        if (row < rows && column < columns) elements[row * stride + column] = value;
    }

    /// The part that begins at (row, column), at most height x width. It is a view: nothing is copied.
    __device__ Matrix part(int row, int column, int height, int width) const
    {
        return {elements + row * stride + column, min(height, rows - row), min(width, columns - column), stride};
    }
};

/// Computes this block's tile of C = A B. The caller provides the shared memory for the tiles.
template <typename T, int TILE>
__device__ void multiply(Matrix<const T> A, Matrix<const T> B, Matrix<T> C, T (&tile_a)[TILE][TILE], T (&tile_b)[TILE][TILE])
{
    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const int row = blockIdx.y * TILE;
    const int col = blockIdx.x * TILE;

    T sum = 0;
    for (int start = 0; start < A.columns; start += TILE) {
        tile_a[ty][tx] = A.part(row, start, TILE, TILE).get(ty, tx);
        tile_b[ty][tx] = B.part(start, col, TILE, TILE).get(ty, tx);
        __syncthreads();  // both tiles are complete

        #pragma unroll
        for (int k = 0; k < TILE; ++k)
            sum += tile_a[ty][k] * tile_b[k][tx];
        __syncthreads();  // every thread is done with them
    }
    C.part(row, col, TILE, TILE).set(ty, tx, sum);
}

/// @tparam T     the element: float, double or int
/// @tparam TILE  width of a tile; a block has TILE * TILE threads
template <typename T, int TILE>
__global__ void matrix_struct(const T* A, const T* B, T* C, int n, int p, int m)
{
    static_assert(TILE * TILE <= 1024, "a block has at most 1024 threads");
    __shared__ T tile_a[TILE][TILE];
    __shared__ T tile_b[TILE][TILE];
    multiply<T, TILE>({A, n, p, p}, {B, p, m, m}, {C, n, m, m}, tile_a, tile_b);
}

/// The product of sub-matrices of larger arrays: it multiplies what lies inside the borders of A and B, and stores the
/// result inside the border of C. The border of C itself does not change.
/// @tparam BORDER  rows and columns left out on every side
template <typename T, int TILE, int BORDER>
__global__ void matrix_struct_inside(const T* A, const T* B, T* C, int n, int p, int m)
{
    __shared__ T tile_a[TILE][TILE];
    __shared__ T tile_b[TILE][TILE];
    const int height = n - 2 * BORDER, depth = p - 2 * BORDER, width = m - 2 * BORDER;
    multiply<T, TILE>(
        Matrix<const T>{A, n, p, p}.part(BORDER, BORDER, height, depth),
        Matrix<const T>{B, p, m, m}.part(BORDER, BORDER, depth, width),
        Matrix<T>{C, n, m, m}.part(BORDER, BORDER, height, width), tile_a, tile_b);
}
