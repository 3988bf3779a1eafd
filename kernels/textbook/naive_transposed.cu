// C = A B, one thread per element of C, but threadIdx.x is the row: naive.cu with x and y of a thread exchanged.
//
// The idea: the cost of a memory access depends on which addresses the 32 threads of a warp use at the same time. Here
// neighbouring threads compute elements of neighbouring rows. They read elements of A that lie a whole row (p elements)
// apart, and write elements of C that lie m elements apart. So each access falls into its own memory segment and moves
// 32 B for one element. In naive.cu the same threads read one element of A and a contiguous piece of B. The arithmetic
// is the same; only the order of the threads differs.
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
