// WMMA: products of fragments that a warp holds. Which element a lane holds is as little known here as on a GPU.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace emulator {
/// All lanes of the warp: d = a b + c of m x n x k, each matrix row by row at `a`, ..., of which a lane brings and
/// takes `count / 32` elements from its number on.
void multiply_fragments(int m, int n, int k, int kind, bool half_sums, const float* a, const float* b, const float* c,
                        float* d, const char* file, int line);
/// All lanes of the warp come here; the matrix at `address` has rows (or columns) that are `pitch` bytes apart.
void whole_warp(const void* address, unsigned pitch, const char* file, int line);
/// Lane l holds what lane l ^ lanes_turned() would hold: not always the same, for on a GPU nobody knows which.
int lanes_turned();
}  // namespace emulator

namespace nvcuda::wmma {

struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
}  // namespace precision

template <typename T>
struct Stored {
    using type = T;
};
template <>
struct Stored<precision::tf32> {
    using type = float;
};

/// A lane holds elements l, l + 32, ... of the matrix, row by row, where l is its holder(). A fragment of A or B
/// of half has 16 elements per lane, as in CUDA's header, some of them copies; all others have each element once.
template <typename Use, int M, int N, int K, typename T, typename Layout = void>
struct fragment {
    static constexpr bool is_a = emulator::is_same<Use, matrix_a>, is_b = emulator::is_same<Use, matrix_b>;
    static constexpr int rows = is_b ? K : M, columns = is_a ? K : N, own = rows * columns / 32;
    static constexpr int num_elements = (is_a || is_b) && emulator::is_same<T, __half> ? 16 : own;
    static constexpr int num_storage_elements = num_elements;
    using element_type = T;
    using storage_element_type = typename Stored<T>::type;
    storage_element_type x[num_elements];
};

template <typename Fragment, typename T>
inline void fill_fragment(Fragment& f, T value)
{
    for (int i = 0; i < f.num_elements; ++i) f.x[i] = value;
}

inline int holder()
{
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32 ^ emulator::lanes_turned();
}

template <typename Use, int M, int N, int K, typename T, typename Layout, typename From>
__forceinline__ void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f, const From* from, unsigned pitch,
                                      EMULATOR_PLACE)
{
    emulator::whole_warp(from, pitch * sizeof(From), file, line);
    for (int i = 0; i < f.own; ++i) {
        const int e = holder() + 32 * i, row = e / f.columns, column = e % f.columns;
        const auto value = from[emulator::is_same<Layout, row_major> ? row * pitch + column : column * pitch + row];
        for (int copy = i; copy < f.num_elements; copy += f.own) f.x[copy] = value;
    }
}
template <int M, int N, int K, typename T, typename From>
__forceinline__ void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const From* from, unsigned pitch,
                                      layout_t layout, EMULATOR_PLACE)
{
    emulator::whole_warp(from, pitch * sizeof(From), file, line);
    for (int i = 0; i < f.own; ++i) {
        const int e = holder() + 32 * i, row = e / f.columns, column = e % f.columns;
        f.x[i] = from[layout == mem_row_major ? row * pitch + column : column * pitch + row];
    }
}
template <int M, int N, int K, typename T, typename To>
__forceinline__ void store_matrix_sync(To* to, const fragment<accumulator, M, N, K, T>& f, unsigned pitch,
                                       layout_t layout, EMULATOR_PLACE)
{
    emulator::whole_warp(to, pitch * sizeof(To), file, line);
    for (int i = 0; i < f.own; ++i) {
        const int e = holder() + 32 * i, row = e / f.columns, column = e % f.columns;
        to[layout == mem_row_major ? row * pitch + column : column * pitch + row] = f.x[i];
    }
}

template <int M, int N, int K, typename T, typename LA, typename LB, typename D, typename C>
inline void mma_sync(fragment<accumulator, M, N, K, D>& d, const fragment<matrix_a, M, N, K, T, LA>& a,
                     const fragment<matrix_b, M, N, K, T, LB>& b, const fragment<accumulator, M, N, K, C>& c,
                     EMULATOR_PLACE)
{
    constexpr bool bytes = sizeof(T) == 1 && emulator::is_same<D, int>;
    static_assert(bytes || emulator::is_same<T, __half> || emulator::is_same<T, __nv_bfloat16> ||
                      emulator::is_same<T, precision::tf32>,
                  "the emulator's fragments are of half, bfloat16, tf32, double or bytes");
    float own_a[32], own_b[32], own_c[32], own_d[32];
    for (int i = 0; i < a.own; ++i) own_a[i] = a.x[i];
    for (int i = 0; i < b.own; ++i) own_b[i] = b.x[i];
    for (int i = 0; i < c.own; ++i)
        own_c[i] = bytes ? 0.0f : static_cast<float>(c.x[i]);  // sums of 16 products of bytes are exact in a float
    constexpr int kind = emulator::is_same<T, __half> ? 0 : emulator::is_same<T, __nv_bfloat16> ? 1 : 2;
    emulator::multiply_fragments(M, N, K, kind, emulator::is_same<D, __half>, own_a, own_b, own_c, own_d, file, line);
    for (int i = 0; i < d.own; ++i) {
        if constexpr (bytes)
            d.x[i] = c.x[i] + static_cast<int>(own_d[i]);
        else
            d.x[i] = own_d[i];
    }
}

/// Of doubles there are 8 x 8 x 4: fused multiply-adds in the order of k.
template <typename LA, typename LB>
inline void mma_sync(fragment<accumulator, 8, 8, 4, double>& d, const fragment<matrix_a, 8, 8, 4, double, LA>& a,
                     const fragment<matrix_b, 8, 8, 4, double, LB>& b, const fragment<accumulator, 8, 8, 4, double>& c,
                     EMULATOR_PLACE)
{
    for (int i = 0; i < 2; ++i) {
        const int e = holder() + 32 * i, row = e / 8, column = e % 8;
        double sum = c.x[i];
        for (int k = 0; k < 4; ++k) {
            const double x = __shfl_sync(~0u, a.x[0], (4 * row + k) ^ emulator::lanes_turned(), 32, file, line);
            sum = fma(x, __shfl_sync(~0u, b.x[0], (8 * k + column) ^ emulator::lanes_turned(), 32, file, line), sum);
        }
        d.x[i] = sum;
    }
}

inline float __float_to_tf32(float a)
{
    const unsigned bits = __float_as_uint(a);
    return (bits & 0x7f800000) == 0x7f800000 ? a : __uint_as_float((bits + 0x1000) & 0xffffe000u);
}

}  // namespace nvcuda::wmma
using nvcuda::wmma::__float_to_tf32;
