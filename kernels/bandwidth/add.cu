// C = A + B, element by element: how fast does memory deliver data?
//
// The idea: each element needs two loads, one store and a single addition, so the arithmetic units are idle. The arrays
// are much larger than every cache, so only the device's memory can serve them. A thread handles eight elements that
// lie a block's width apart, so that neighbouring threads read neighbouring elements. It loads all eight before it
// stores the first. The compiler cannot arrange this by itself, because it must assume that C overlaps A. With only a
// few loads under way at a time, memory would not be busy (on an H200, 3.7 TB/s instead of 4.3).
//
// A, B and C are n x m, row-major; p is not used. The kernel moves 3 * n * m * sizeof(T) bytes.
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
