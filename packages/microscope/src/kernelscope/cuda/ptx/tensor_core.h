// What the tensor cores of Hopper compute, bit for bit: the rules of tilewise's NumPy model, found by microsoft/MMA-Sim
// and checked there against an H200.
//
// An instruction of short numbers is one fused sum: products are exact, each is cut towards zero to 25 fractional bits
// below the largest exponent among the products and C, the sum of what is left is exact, and the result is cut to a
// float towards zero. wgmma of FP8 keeps 13 bits instead of 25, also of the result; mma.sync of FP8 is made of products
// of half. Of the sums kept as half, for which there is no model, the last step here rounds to the nearest half.
#pragma once

#include "../include/cuda_fp8.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

// Hot: the rest of the interpreter is optimised less, which halves the time of the first trace.
#pragma GCC push_options
#pragma GCC optimize("O3")

namespace emulator {

/// How an operand is stored, and the bits of its fraction that count.
enum class Short { half, bfloat16, tf32, e4m3, e5m2 };
constexpr int fraction_bits(Short kind)
{
    return kind == Short::bfloat16 ? 7 : kind == Short::e4m3 ? 3 : kind == Short::e5m2 ? 2 : 10;
}

constexpr int kept_bits = 25, kept_of_fp8 = 13;
constexpr int most_depth = 32, most_columns = 256;

/// significand * 2^(exponent - fraction_bits); or, if it is not finite, `special`.
struct Element {
    int significand, exponent;
    float value;
    bool special;
};

[[gnu::noinline]] inline Element element_of_fp8(bool is_e4m3, std::uint32_t bits)
{
    const int fraction = is_e4m3 ? 3 : 2, bias = is_e4m3 ? 7 : 15, sign = bits & 0x80 ? -1 : 1;
    const int exponent = (bits & 0x7f) >> fraction, mantissa = bits & ((1 << fraction) - 1);
    const float value = float_of_fp8(bits, is_e4m3);
    if (!std::isfinite(value)) return {0, -126, value, true};
    if (exponent) return {sign * (mantissa | 1 << fraction), exponent - bias, value, false};
    return {sign * mantissa, mantissa ? 1 - bias : -126, value, false};
}
inline Element element_of(Short kind, std::uint32_t bits)
{
    float value;
    if (kind == Short::half) {
        value = float_of_half(bits);
        const int mantissa = bits & 0x3ff, exponent = bits >> 10 & 0x1f, sign = bits & 0x8000 ? -1 : 1;
        if (exponent == 31) return {0, -126, value, true};
        if (exponent) return {sign * (mantissa | 0x400), exponent - 15, value, false};
        return {sign * mantissa, mantissa ? -14 : -126, value, false};
    }
    if (kind == Short::e4m3 || kind == Short::e5m2) return element_of_fp8(kind == Short::e4m3, bits);
    const int drop = kind == Short::bfloat16 ? 16 : 13, fraction = 23 - drop;
    if (kind == Short::bfloat16) bits <<= 16;
    bits &= ~((1u << drop) - 1);
    value = bits_of<float>(bits);
    const int mantissa = (bits & 0x7fffff) >> drop, exponent = bits >> 23 & 0xff, sign = bits >> 31 ? -1 : 1;
    if (exponent == 255) return {0, -126, value, true};
    if (exponent) return {sign * (mantissa | 1 << fraction), exponent - 127, value, false};
    return {sign * mantissa, -126, value, false};
}

/// One row of A and all of B, taken apart.
struct Row {
    int significand[most_depth], exponent[most_depth];
    float value[most_depth];
    bool zero, special;
};
struct Columns {
    int count, depth;
    Short kind, kind_of_rows;
    int kept = kept_bits;  // bits below the largest exponent
    bool special;
    alignas(32) int significand[most_depth][most_columns];
    alignas(32) int exponent[most_depth][most_columns];
    alignas(32) float value[most_depth][most_columns];

    void set(int k, int column, std::uint32_t bits, bool negated = false)
    {
        const Element e = element_of(kind, bits);
        significand[k][column] = negated ? -e.significand : e.significand;
        exponent[k][column] = e.exponent;
        value[k][column] = negated ? -e.value : e.value;
        special |= e.special;
    }
};
inline void set(Row& row, int k, Short kind, std::uint32_t bits, bool negated = false)
{
    const Element e = element_of(kind, bits);
    row.significand[k] = negated ? -e.significand : e.significand;
    row.exponent[k] = e.exponent;
    row.value[k] = negated ? -e.value : e.value;
    row.zero &= e.significand == 0;
    row.special |= e.special;
}

/// Towards zero, to 24 bits or what a subnormal number has.
inline float cut_to_float(double x)
{
    if (std::fabs(x) >= 0x1p-126)
        return static_cast<float>(bits_of<double>(bits_of<std::uint64_t>(x) & ~0x1fffffffull));
    float f = static_cast<float>(x);
    if (std::fabs(static_cast<double>(f)) > std::fabs(x)) f = std::nextafterf(f, 0);
    return f;
}
inline float round_to_half(double x)
{
    float f = cut_to_float(x);
    if (static_cast<double>(f) != x) f = bits_of<float>(bits_of<std::uint32_t>(f) | 1);  // rounds as x would
    return float_of_half(half_of(f));
}

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
#define EMULATOR_VECTORISED __attribute__((target_clones("avx2", "default")))
#else
#define EMULATOR_VECTORISED
#endif

// As std::max and std::min, which g++ calls in code that it optimises less.
[[gnu::always_inline]] inline int larger(int a, int b) { return a > b ? a : b; }
[[gnu::always_inline]] inline int smaller(int a, int b) { return a < b ? a : b; }

/// c[j] = a b[j] + c[j] for `count` columns from `first` on: one step of the instruction.
EMULATOR_VECTORISED inline void multiply_row(const Row& a, const Columns& b, float* c, bool to_half)
{
    constexpr int width = 64;
    const int kept = b.kept, left = kept - fraction_bits(b.kind_of_rows) - fraction_bits(b.kind);
    alignas(32) int largest[width], even[width], odd[width];
    for (int first = 0; first < b.count; first += width) {
        const int n = smaller(width, b.count - first);
        for (int j = 0; j < n; ++j) {
            std::uint32_t bits;
            std::memcpy(&bits, c + first + j, 4);
            const int exponent = bits >> 23 & 0xff;
            largest[j] = larger(exponent - 127, -126);
            even[j] = odd[j] = 0;
        }
        for (int k = 0; k < b.depth; ++k) {
            const int* exponent = b.exponent[k] + first;
            for (int j = 0; j < n; ++j) largest[j] = larger(largest[j], a.exponent[k] + exponent[j]);
        }
        for (int k = 0; k < b.depth; ++k) {
            const int own = a.significand[k], own_exponent = a.exponent[k];
            if (!own) continue;
            const int *significand = b.significand[k] + first, *exponent = b.exponent[k] + first;
            int* sum = k % 2 ? odd : even;
            for (int j = 0; j < n; ++j) {
                const int product = own * significand[j], sign = product >> 31;
                const unsigned magnitude = static_cast<unsigned>((product ^ sign) - sign) << left;
                const int away = smaller(largest[j] - own_exponent - exponent[j], 31);
                const int cut = magnitude >> away;
                sum[j] += (cut ^ sign) - sign;
            }
        }
        for (int j = 0; j < n; ++j) {
            std::uint32_t bits;
            std::memcpy(&bits, c + first + j, 4);
            const int exponent = bits >> 23 & 0xff;
            const std::uint32_t mantissa = exponent ? (bits & 0x7fffff) | 0x800000 : bits & 0x7fffff;
            const int away = smaller(largest[j] - larger(exponent - 127, -126), 31);
            const std::int64_t cut = (kept < 23 ? mantissa >> (23 - kept) : mantissa << (kept - 23)) >> away;
            const std::int64_t total = std::int64_t(even[j]) + odd[j] + (bits >> 31 ? -cut : cut);
            const double unit = bits_of<double>(static_cast<std::uint64_t>(1023 + largest[j] - kept) << 52);
            const double exact = static_cast<double>(total) * unit;
            c[first + j] = to_half ? round_to_half(exact) : cut_to_float(exact);
            if (kept < 23 && !to_half)
                c[first + j] = bits_of<float>(bits_of<std::uint32_t>(c[first + j]) & ~0u << (23 - kept));
        }
    }
}

/// The same if any operand is infinite or not a number.
inline void multiply_row_special(const Row& a, const Columns& b, float* c, bool to_half)
{
    for (int j = 0; j < b.count; ++j) {
        double plain = c[j];
        for (int k = 0; k < b.depth; ++k) plain += static_cast<double>(a.value[k]) * b.value[k][j];
        c[j] = std::isnan(plain) ? bits_of<float>(0x7fffffffu)
               : to_half         ? round_to_half(plain)
                                 : static_cast<float>(plain);
    }
}

inline void multiply(const Row& a, const Columns& b, float* c, bool to_half = false)
{
    bool special = a.special || b.special;
    for (int j = 0; j < b.count && !special; ++j) special = !std::isfinite(c[j]);
    if (special) {
        // Columns whose operands are finite go the other way: an infinity elsewhere is not theirs.
        float before[most_columns];
        std::copy(c, c + b.count, before);
        multiply_row_special(a, b, c, to_half);
        float plain[most_columns];
        std::copy(before, before + b.count, plain);
        multiply_row(a, b, plain, to_half);
        for (int j = 0; j < b.count; ++j)
            if (std::isfinite(c[j]) && std::isfinite(before[j])) c[j] = plain[j];
        return;
    }
    if (a.zero && std::all_of(c, c + b.count, [](float x) { return x == 0; })) return;
    multiply_row(a, b, c, to_half);
}

}  // namespace emulator

#pragma GCC pop_options
