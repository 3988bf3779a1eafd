// C = A B, one thread an element, but threadIdx.x is the row: naive.cu with one pair of letters exchanged.
//
// The idea: what a warp costs is decided by where its 32 threads look at the same moment. Here neighbouring threads
// stand in neighbouring rows, so they read A a whole row (p elements) apart and write C m elements apart: each access
// falls into a memory segment of its own and moves 32 B for one element. In naive.cu the same threads read one element
// of A and a contiguous piece of B. The arithmetic is the same; the order of the threads is all that differs.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: block (block_x rows, block_y columns); grid (ceil(m / block_y), ceil(n / block_x)).

/// @tparam T  the element: float, double or int
template <typename T>
__global__ void naive_transposed(const T* A, const T* B, T* C, int n, int p, int m)
{
    const int row = blockIdx.y * blockDim.x + threadIdx.x;
    const int col = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= n || col >= m) return;

    const T* a = A + static_cast<long long>(row) * p;
    T sum = 0;
    for (int k = 0; k < p; ++k)
        sum += a[k] * B[static_cast<long long>(k) * m + col];
    C[static_cast<long long>(row) * m + col] = sum;
}
