// C = A B, one thread per element of C: the textbook kernel.
//
// The idea: the n*m elements of C do not depend on each other. So each element gets its own thread, which walks along a
// row of A and down a column of B. The threads do not share what they load: a thread loads every operand from global
// memory each time it uses it, which makes two loads for each multiply-add.
//
// threadIdx.x runs along a row of C. So neighbouring threads of a warp read neighbouring elements of B and the same
// element of A. The hardware serves such reads with few memory transactions (it "coalesces" them). The block may have
// any shape; the block shapes of task 1 show how much that choice matters.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: block (block_x, block_y); grid (ceil(m / block_x), ceil(n / block_y)).

/// @tparam T  the element: float, double or int
template <typename T>
__global__ void naive(const T* A, const T* B, T* C, int n, int p, int m)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= m) return;  // the last blocks reach over the edge of C

    // 64-bit offsets: from n = 46341 on, n*n no longer fits into an int.
    const T* a = A + static_cast<long long>(row) * p;
    T sum = 0;
    for (int k = 0; k < p; ++k)
        sum += a[k] * B[static_cast<long long>(k) * m + col];
    C[static_cast<long long>(row) * m + col] = sum;
}
