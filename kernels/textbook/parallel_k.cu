// C = A B with a thread per product instead of a thread per element: a fault on purpose.
//
// The idea: of the three loops, those over i and j write different elements of C, so their steps may run at the same
// time. The steps of k all add to the same element. Here they run at the same time too: threads read the same old value
// of C, each adds its product, and the last one to write wins. The study never times this kernel; the memory microscope
// runs it and reports the races. Kernels that do split k (ladder/stream_k.cu) add the parts one after the other.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: block (8, 8); grid (ceil(m / 8), n): threadIdx.x is the column, threadIdx.y a step of k of eight.

/// @tparam T  the element: float
template <typename T>
__global__ void parallel_k(const T* A, const T* B, T* C, int n, int p, int m)
{
    const int row = blockIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= m) return;

    T* sum = C + static_cast<long long>(row) * m + col;
    *sum = 0;
    for (int k = threadIdx.y; k < p; k += blockDim.y)
        *sum += A[static_cast<long long>(row) * p + k] * B[static_cast<long long>(k) * m + col];
}
