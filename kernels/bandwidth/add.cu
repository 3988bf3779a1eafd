// C = A + B, element by element: how fast does memory deliver?
//
// The idea: two loads, one store and a single addition an element leave the arithmetic idle, and arrays much larger than
// every cache leave only the device's memory to serve them. A thread takes four elements, a block's width apart, so that
// its eight loads are under way together and neighbouring threads still read neighbouring elements.
//
// A, B and C are n x m, row-major; p is not used. 3 * n * m * sizeof(T) bytes are moved.
// Launch: block (block_x, 1); grid (ceil(m / (4 * block_x)), n).

/// @tparam T  the element: float, double or int
template <typename T>
__global__ void add(const T* A, const T* B, T* C, int n, int p, int m)
{
    const long long row = static_cast<long long>(blockIdx.y) * m;
    const int first = 4 * blockIdx.x * blockDim.x + threadIdx.x;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int col = first + i * blockDim.x;
        if (col < m) C[row + col] = A[row + col] + B[row + col];
    }
}
