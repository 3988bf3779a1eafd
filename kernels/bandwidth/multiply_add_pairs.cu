// C[i] = sum of eight chains of pairs x = x * a + b: how fast can the device calculate with numbers of two bytes?
//
// The idea: the CUDA cores multiply and add two neighbouring halves, or two bfloat16, by one instruction, HFMA2. As in
// multiply_add.cu everything happens in registers, and eight chains per thread keep the units busy. But bfloat16 counts
// exactly only up to 256. So b changes its sign after every 16 steps: with a = b = 1 the chains climb 16 up and then as
// much down, and the result is known exactly after any number of steps. The chains begin at 0 to 7, and both numbers of
// a pair are the same, so that C[i] = 2 * (28 + 8 * 16) after an odd number of turns of 16 steps, and 56 after an even.
//
// C is n x m, row-major; the kernel reads only the first element of A and of B. p is a multiple of 16. It does
// 32 * n * m * p operations.
// Launch: block (block_x, 1); grid (ceil(m / block_x), n).
#include <cuda_bf16.h>
#include <cuda_fp16.h>

/// Two numbers of a type in one register.
template <typename T>
struct PairOf;
template <>
struct PairOf<__half> {
    using Type = __half2;
};
template <>
struct PairOf<__nv_bfloat16> {
    using Type = __nv_bfloat162;
};

/// @tparam T  the element: __half or __nv_bfloat16
template <typename T>
__global__ void multiply_add_pairs(const T* A, const T* B, T* C, int n, int p, int m)
{
    using Pair = typename PairOf<T>::Type;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= m) return;

    constexpr int CHAINS = 8, TURN = 16;
    const Pair a(A[0], A[0]);
    const Pair up(B[0], B[0]), down(-B[0], -B[0]);
    Pair x[CHAINS];
    #pragma unroll
    for (int c = 0; c < CHAINS; ++c) x[c] = Pair(T(static_cast<float>(c)), T(static_cast<float>(c)));
    #pragma unroll 2  // once up and once down
    for (int step = 0; step < p; step += TURN) {
        const Pair b = step & TURN ? down : up;
        #pragma unroll
        for (int i = 0; i < TURN; ++i)
            #pragma unroll
            for (int c = 0; c < CHAINS; ++c) x[c] = __hfma2(x[c], a, b);
    }

    Pair sum = x[0];
    #pragma unroll
    for (int c = 1; c < CHAINS; ++c) sum += x[c];  // up to 156, which bfloat16 holds
    C[static_cast<long long>(blockIdx.y) * m + col] = sum.x + sum.y;
}
