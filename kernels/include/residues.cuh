// A whole number by its residues, and back: the arithmetic of double_from_int8.cu.
//
// By the Chinese remainder theorem a whole number below P / 2 in size, where P is the product of COUNT pairwise coprime
// moduli, follows from its residues, and residues of a sum of products are the sums of products of residues. Moduli are
// at most 256, so a residue is a byte: from -127 to 127, or from -128 modulo 256.
//
// Splitting: x - p rint(x / p), in doubles, whose units are otherwise idle here: 64 products per cycle and multiprocessor.
// Adding 1.5 2^52 rounds to a whole number and leaves it in the low word. Up to 14 moduli |x| is at most 2^53; with more
// it is a high and a low part, and at most 2^62.
//
// Residues of sums: the bytes of the sum times (2^(8 i) modulo p), one dp4a; what is left, below 2^18, in floats.
//
// Joining: x = sum of weight[t] * residue[t], modulo P, with weight[t] = 1 modulo p[t] and 0 modulo the others. Weights
// are cut into pieces of 40 bits, so that a sum of COUNT products of a piece and a byte is exact in a double; the
// multiple of P that is too much follows from the first piece, and the pieces of the rest, made to overlap no more, are
// added so that the result is the double nearest to x. S. Boldo, G. Melquiond, Emulation of FMA and correctly rounded
// sums: proved algorithms using rounding to odd, IEEE Trans. Comp. 57 (2008).
#pragma once

constexpr int MOST_MODULI = 16;

/// The largest numbers up to 256 that are pairwise coprime.
__host__ __device__ constexpr unsigned modulus(int t)
{
    constexpr unsigned char below_256[MOST_MODULI] = {0,   255, 253, 251, 247, 241, 239, 233,
                                                      229, 227, 223, 217, 211, 199, 197, 193};
    return t == 0 ? 256 : below_256[t];
}

// ---- Splitting ------------------------------------------------------------------------------------------------------

/// Bits of the largest number that is split.
__host__ __device__ constexpr int split_bits(int count) { return count <= 14 ? 53 : 62; }

/// What the residues modulo p of a double, and those of a sum, need.
struct Modulus {
    double p, inverse;
    double fold;                 // 2^26 modulo p, from -p / 2 to p / 2
    unsigned powers, from_sum;   // 2^(8 i) modulo p, a byte each; what dp4a starts from, see residue_of_sum
    float p_float, inverse_float, quotient;
};
constexpr float ROUND_FLOAT = 0x1.8p23f;
struct AllModuli {
    Modulus of[MOST_MODULI];
};
__host__ __device__ constexpr AllModuli all_moduli()
{
    AllModuli all = {};
    for (int t = 0; t < MOST_MODULI; ++t) {
        const unsigned p = modulus(t);
        Modulus& own = all.of[t];
        own.p = p;
        own.inverse = 1.0 / p;
        const unsigned fold = (1u << 26) % p;
        own.fold = fold > p / 2 ? static_cast<double>(fold) - p : static_cast<double>(fold);
        unsigned power = 1;
        for (int i = 0; i < 4; ++i) {
            own.powers |= power % p << 8 * i;
            power = power % p * 256 % p;
        }
        const unsigned base = ((1u << 23) / (256 * p) + 1) * 256 * p;  // a multiple of 256 p past 2^23
        const unsigned half_range = (1u << 31) % p;                   // by which the sum was made positive
        own.from_sum = 0x4b000000u + (base - (1u << 23)) + (p - half_range) % p;
        own.p_float = static_cast<float>(p);
        own.inverse_float = 1.0f / static_cast<float>(p);
        own.quotient = ROUND_FLOAT - static_cast<float>(base / p);
    }
    return all;
}
__constant__ const AllModuli moduli = all_moduli();

constexpr double ROUND = 0x1.8p52;  // added to a smaller number, it rounds it to a whole one

/// 2^e as a product of two doubles, for |e| up to 2044.
struct PowerOfTwo {
    double first, second;

    __device__ __forceinline__ explicit PowerOfTwo(int e) : first(double_of(e / 2)), second(double_of(e - e / 2)) {}
    __device__ __forceinline__ static double double_of(int e)
    {
        return __longlong_as_double(static_cast<long long>(1023 + e) << 52);
    }
};

/// A whole number to be split, of at most 2^53 in size.
template <bool WIDE>
struct Whole {
    double value;

    /// x 2^e, rounded to the nearest whole number, halves to even.
    __device__ __forceinline__ static Whole nearest(double x, PowerOfTwo e)
    {
        return {rint(__dmul_rn(__dmul_rn(x, e.first), e.second))};
    }
    __device__ __forceinline__ double size() const { return fabs(value); }
    __device__ __forceinline__ double below_2_53(const Modulus&) const { return value; }
};
/// The same of at most 2^62: high 2^26 + low.
template <>
struct Whole<true> {
    double high, low;

    __device__ __forceinline__ static Whole nearest(double x, PowerOfTwo e)
    {
        const double scaled = __dmul_rn(__dmul_rn(x, e.first), e.second);
        const double high = rint(__dmul_rn(scaled, 0x1p-26));
        return {high, rint(__fma_rn(high, -0x1p26, scaled))};
    }
    __device__ __forceinline__ double size() const { return fabs(__fma_rn(high, 0x1p26, low)); }
    /// A smaller number of the same residue.
    __device__ __forceinline__ double below_2_53(const Modulus& m) const { return __fma_rn(high, m.fold, low); }
};

/// The residue of the number, in the lowest byte. What 1 / p is rounded by shows in it by at most 1, and by nothing
/// modulo 255 and 256, where a byte has no place for 1 more.
template <bool WIDE>
__device__ __forceinline__ unsigned residue(const Whole<WIDE>& number, const Modulus& m)
{
    const double x = number.below_2_53(m);
    const double quotient = __dadd_rn(__fma_rn(x, m.inverse, ROUND), -ROUND);
    return static_cast<unsigned>(__double2loint(__dadd_rn(__fma_rn(-m.p, quotient, x), ROUND)));
}

/// The residue, in the lowest byte, of a sum of at most 2^17 products of residues. A sum of 2^17 times 128 * 128 leaves
/// 32 bits, but only modulo 256, which divides 2^32.
///
/// The dp4a makes the bits of a float: base + x, where x has the residue of the sum and is below 2^18, and base is a
/// multiple of 256 p past 2^23.
__device__ __forceinline__ unsigned residue_of_sum(int sum, const Modulus& m)
{
    const unsigned bits = __dp4a(static_cast<unsigned>(sum) ^ 1u << 31, m.powers, m.from_sum);
    const float x = __uint_as_float(bits);
    const float quotient = __fadd_rn(__fmaf_rn(x, m.inverse_float, m.quotient), -ROUND_FLOAT);
    return __float_as_uint(__fmaf_rn(-m.p_float, quotient, x));
}

// ---- Joining --------------------------------------------------------------------------------------------------------

/// Whole numbers up to 2^192, for constants.
struct Wide {
    unsigned digit[6];

    __host__ __device__ constexpr Wide times(unsigned factor) const
    {
        Wide result = {};
        unsigned long long carry = 0;
        for (int i = 0; i < 6; ++i) {
            carry += static_cast<unsigned long long>(digit[i]) * factor;
            result.digit[i] = static_cast<unsigned>(carry);
            carry >>= 32;
        }
        return result;
    }
    __host__ __device__ constexpr unsigned modulo(unsigned p) const
    {
        unsigned long long rest = 0;
        for (int i = 5; i >= 0; --i) rest = (rest << 32 | digit[i]) % p;
        return static_cast<unsigned>(rest);
    }
    __host__ __device__ constexpr int bits() const
    {
        for (int i = 191; i >= 0; --i)
            if (digit[i / 32] >> i % 32 & 1) return i + 1;
        return 0;
    }
    /// Bits from `first` to below `end`, at most 53, as a double that counts them with their weight.
    __host__ __device__ constexpr double part(int first, int end) const
    {
        double value = 0, unit = 1;
        for (int i = 0; i < first; ++i) unit *= 2;
        for (int i = first; i < end; ++i, unit *= 2)
            if (digit[i / 32] >> i % 32 & 1) value += unit;
        return value;
    }
};
/// The product of the first `count` moduli but for number `without`.
__host__ __device__ constexpr Wide product_of_moduli(int count, int without = -1)
{
    Wide product = {{1, 0, 0, 0, 0, 0}};
    for (int t = 0; t < count; ++t)
        if (t != without) product = product.times(modulus(t));
    return product;
}
/// 1 modulo number t, 0 modulo the others.
__host__ __device__ constexpr Wide weight_of(int count, int t)
{
    const Wide others = product_of_moduli(count, t);
    const unsigned rest = others.modulo(modulus(t));
    unsigned inverse = 1;
    while (rest * inverse % modulus(t) != 1) ++inverse;
    return others.times(inverse);
}

constexpr int PIECE_BITS = 40;

/// The pieces in which weights and P are cut, most significant first: piece k has the bits from low(k) up.
template <int COUNT>
struct Pieces {
    static constexpr int BITS = product_of_moduli(COUNT).bits();
    static constexpr int NUMBER = (BITS + PIECE_BITS - 1) / PIECE_BITS;
    static_assert(NUMBER == 3 || NUMBER == 4, "13 to 16 moduli");

    __host__ __device__ static constexpr int low(int k)
    {
        return BITS > PIECE_BITS * (k + 1) ? BITS - PIECE_BITS * (k + 1) : 0;
    }
    __host__ __device__ static constexpr double unit(int k)
    {
        double value = 1;
        for (int i = 0; i < low(k); ++i) value *= 2;
        return value;
    }
    __host__ __device__ static constexpr double of(const Wide& x, int k) { return x.part(low(k), BITS - PIECE_BITS * k); }
};
template <int COUNT, int T, int K>
struct WeightPiece {
    static constexpr double value = Pieces<COUNT>::of(weight_of(COUNT, T), K);
};
template <int COUNT, int K>
struct ProductPiece {
    static constexpr double value = Pieces<COUNT>::of(product_of_moduli(COUNT), K);
};
/// P as a double, to within its last bits.
template <int COUNT>
struct ProductOfModuli {
    static constexpr double value = Pieces<COUNT>::of(product_of_moduli(COUNT), 0) +
                                    Pieces<COUNT>::of(product_of_moduli(COUNT), 1);
    static constexpr double inverse = 1 / value;
};

/// The signed byte `byte` - 128 as a double, without the slow instruction of conversion.
__device__ __forceinline__ double double_of_byte(unsigned byte)
{
    return __dadd_rn(__hiloint2double(0x43300000, static_cast<int>(byte)), -(0x1p52 + 128));
}

/// sums[k] += piece k of weight T times the residue, for all pieces: exact.
template <int COUNT, int T, int K = 0>
__device__ __forceinline__ void add_residue(double (&sums)[Pieces<COUNT>::NUMBER], double residue)
{
    constexpr double piece = WeightPiece<COUNT, T, K>::value;
    sums[K] = __fma_rn(piece, residue, sums[K]);
    if constexpr (K + 1 < Pieces<COUNT>::NUMBER) add_residue<COUNT, T, K + 1>(sums, residue);
}
/// sums[k] -= q times piece k of P: exact.
template <int COUNT, int K = 0>
__device__ __forceinline__ void subtract_product(double (&sums)[Pieces<COUNT>::NUMBER], double q)
{
    constexpr double piece = ProductPiece<COUNT, K>::value;
    sums[K] = __fma_rn(-q, piece, sums[K]);
    if constexpr (K + 1 < Pieces<COUNT>::NUMBER) subtract_product<COUNT, K + 1>(sums, q);
}
/// Moves what is in piece K and counts in units of the piece before to that one, from the last piece on.
template <int COUNT, int K = Pieces<COUNT>::NUMBER - 1>
__device__ __forceinline__ void carry(double (&sums)[Pieces<COUNT>::NUMBER])
{
    if constexpr (K > 0) {
        constexpr double rounds = 0x1.8p52 * Pieces<COUNT>::unit(K - 1);
        const double over = __dadd_rn(__dadd_rn(sums[K], rounds), -rounds);
        sums[K] = __dadd_rn(sums[K], -over);
        sums[K - 1] = __dadd_rn(sums[K - 1], over);
        carry<COUNT, K - 1>(sums);
    }
}
/// a + b = sum + error, exactly, where a is 0 or |a| >= |b|. T. J. Dekker, Numer. Math. 18 (1971).
__device__ __forceinline__ double two_sum(double a, double b, double& error)
{
    const double sum = __dadd_rn(a, b);
    error = __dadd_rn(b, -__dadd_rn(sum, -a));
    return sum;
}
/// The double nearest to a + b + c, each at most half of the last bit of the one before (or of its unit, if that one is
/// zero), and to a `rest` smaller still, so that what the sums lose has room in few bits.
__device__ __forceinline__ double nearest_sum(double a, double b, double c, double rest)
{
    double of_middle, of_sum, left;
    const double middle = two_sum(b, c, of_middle);
    const double sum = two_sum(a, middle, of_sum);
    const double next = two_sum(of_sum, __dadd_rn(of_middle, rest), left);
    // Rounded to odd: what is left out shows in the last bit.
    long long bits = __double_as_longlong(next);
    if (left != 0 && !(bits & 1)) bits += (left > 0) == (next > 0) ? 1 : -1;
    return __dadd_rn(sum, __longlong_as_double(bits));
}
/// The double nearest to the number that the sums of all COUNT residues stand for: between -P / 2 and P / 2, and at least
/// 2^-21 P from both.
template <int COUNT>
__device__ __forceinline__ double joined(double (&sums)[Pieces<COUNT>::NUMBER])
{
    constexpr double inverse = ProductOfModuli<COUNT>::inverse;
    subtract_product<COUNT>(sums, rint(sums[0] * inverse));
    carry<COUNT>(sums);
    if constexpr (Pieces<COUNT>::NUMBER == 3) return nearest_sum(sums[0], sums[1], sums[2], 0);
    double of_small;
    const double small = two_sum(sums[2], sums[Pieces<COUNT>::NUMBER - 1], of_small);
    return nearest_sum(sums[0], sums[1], small, of_small);
}

/// x 2^e, rounded once. |x| is 0 or from 1 to 2^142, so what the first of two steps leaves is a normal number, unless the
/// result is 0 or infinite anyway.
__device__ __forceinline__ double times_power(double x, int e)
{
    if (abs(e) <= 1020 - 142) return x * PowerOfTwo::double_of(e);
    return x * PowerOfTwo::double_of(max(-1020, min(1020, e / 2))) * PowerOfTwo::double_of(max(-1020, min(1020, e - e / 2)));
}
