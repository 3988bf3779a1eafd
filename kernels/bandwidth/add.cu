// C = A + B, element by element: how fast does memory deliver?
//
// The idea: two loads, one store and a single addition an element leave the arithmetic idle, and arrays much larger than
// every cache leave only the device's memory to serve them. A thread takes eight elements, a block's width apart, so that
// neighbouring threads read neighbouring elements. It loads all of them before it stores the first: the compiler could
// not do so by itself, since for all it knows C overlaps A, and with few loads under way memory is left waiting (on an
// H200, 3.7 TB/s in place of 4.3).
//
// A, B and C are n x m, row-major; p is not used. 3 * n * m * sizeof(T) bytes are moved.
// Launch: block (block_x, 1); grid (ceil(m / (8 * block_x)), n).

/// @tparam T  the element: float, double or int
template <typename T>
__global__ void add(const T* A, const T* B, T* C, int n, int p, int m)
{
    constexpr int ELEMENTS = 8;
    const long long row = static_cast<long long>(blockIdx.y) * m;
    const int first = ELEMENTS * blockIdx.x * blockDim.x + threadIdx.x;

    T sums[ELEMENTS];
    #pragma unroll
    for (int i = 0; i < ELEMENTS; ++i) {
        const int col = first + i * blockDim.x;
        if (col < m) sums[i] = A[row + col] + B[row + col];
    }
    #pragma unroll
    for (int i = 0; i < ELEMENTS; ++i) {
        const int col = first + i * blockDim.x;
        if (col < m) C[row + col] = sums[i];
    }
}
