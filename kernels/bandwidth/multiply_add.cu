// C[i] = sum of eight chains x = x * a + b, each p steps long: how fast can the device calculate?
//
// The idea: after two loads everything happens in registers, so only the arithmetic units limit the speed. Each step of
// a chain has to wait for the step before it. Eight chains that do not depend on each other keep the units busy during
// that wait. a and b come from memory; otherwise the compiler would compute the sums itself. With a = b = 1 the result
// is known exactly: the chains begin at 0 to 7, so C[i] = 28 + 8 p.
//
// C is n x m, row-major; the kernel reads only the first element of A and of B. It does 16 * n * m * p operations.
// Launch: block (block_x, 1); grid (ceil(m / block_x), n).

/// @tparam T  the element: float, double or int
template <typename T>
__global__ void multiply_add(const T* A, const T* B, T* C, int n, int p, int m)
{
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= m) return;

    constexpr int CHAINS = 8;
    const T a = A[0], b = B[0];
    T x[CHAINS];
    #pragma unroll
    for (int c = 0; c < CHAINS; ++c) x[c] = c;
    #pragma unroll 16
    for (int step = 0; step < p; ++step)
        #pragma unroll
        for (int c = 0; c < CHAINS; ++c) x[c] = x[c] * a + b;

    T sum = 0;
    #pragma unroll
    for (int c = 0; c < CHAINS; ++c) sum += x[c];
    C[static_cast<long long>(blockIdx.y) * m + col] = sum;
}
