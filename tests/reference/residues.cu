// The functions of residues.cuh, one number per thread.
#include "residues.cuh"

/// r[t][i]: the signed residue of x[i] 2^e[i], rounded, modulo number t.
template <int COUNT>
__global__ void split(const double* x, const int* e, signed char* r, int count)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const auto own = Whole<(split_bits(COUNT) > 53)>::nearest(x[i], PowerOfTwo(e[i]));
    for (int t = 0; t < COUNT; ++t) r[t * count + i] = static_cast<signed char>(residue(own, moduli.of[t]));
}

/// r[t][i]: the residue of a sum, made positive.
__global__ void of_sums(const int* sums, unsigned char* r, int count)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    for (int t = 0; t < MOST_MODULI; ++t) {
        const int residue = static_cast<signed char>(residue_of_sum(sums[i], moduli.of[t]));
        r[t * count + i] = static_cast<unsigned char>(residue < 0 ? residue + static_cast<int>(modulus(t)) : residue);
    }
}

template <int COUNT, int T = 0>
__device__ void add_all(double (&sums)[Pieces<COUNT>::NUMBER], const signed char* r, int count)
{
    add_residue<COUNT, T>(sums, double_of_byte(static_cast<unsigned char>(r[T * count]) ^ 0x80));
    if constexpr (T + 1 < COUNT) add_all<COUNT, T + 1>(sums, r, count);
}
/// x[i]: the number whose residues are r[t][i], times 2^e[i].
template <int COUNT>
__global__ void join(const signed char* r, const int* e, double* x, int count)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    double sums[Pieces<COUNT>::NUMBER] = {};
    add_all<COUNT>(sums, r + i, count);
    x[i] = times_power(joined<COUNT>(sums), e[i]);
}
