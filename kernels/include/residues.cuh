// A whole number by its residues, and back: the arithmetic of double_from_int8.cu.
//
// By the Chinese remainder theorem a whole number below P / 2 in size, where P is the product of COUNT pairwise coprime
// moduli, is told by its residues, and residues of a sum of products are the sums of products of residues. Moduli are at
// most 256, so a residue is a byte.
//
// Splitting: x + 2^63 is 8 bytes, and its residue that of the sum of byte i times (2^(8 i) modulo p), two dp4a; the rest
// is one multiplication by 2^32 / p. Up to 16 moduli |x| is at most 2^62; with 17 and 18 a ninth byte makes it 2^70.
//
// Joining: x = sum of weight[t] * residue[t], modulo P, with weight[t] = 1 modulo p[t] and 0 modulo the others. Weights
// are cut into pieces of 40 bits, so that a sum of COUNT products of a piece and a byte is exact in a double; the
// multiple of P that is too much follows from the first piece, and the pieces of the rest, made to overlap no more, are
// added so that the result is the double nearest to x. S. Boldo, G. Melquiond, Emulation of FMA and correctly rounded
// sums: proved algorithms using rounding to odd, IEEE Trans. Comp. 57 (2008).
#pragma once

constexpr int MOST_MODULI = 18;

/// The largest numbers up to 256 that are pairwise coprime.
__host__ __device__ constexpr unsigned modulus(int t)
{
    constexpr unsigned char below_256[MOST_MODULI] = {0,   255, 253, 251, 247, 241, 239, 233, 229,
                                                      227, 223, 217, 211, 199, 197, 193, 191, 181};
    return t == 0 ? 256 : below_256[t];
}

// ---- Splitting ------------------------------------------------------------------------------------------------------

/// Bits of the largest number that is split.
__host__ __device__ constexpr int split_bits(int count) { return count <= 16 ? 62 : 70; }

/// Signed residues are from -shift to p - 1 - shift.
__host__ __device__ constexpr unsigned residue_shift(unsigned p) { return p / 2; }

/// What the residues modulo p of a number of 8 or 9 bytes need.
struct Weights {
    unsigned p, inverse;       // 2^32 / p, rounded up
    unsigned low, high;        // 2^(8 i) modulo p, 4 bytes each
    unsigned ninth;            // 2^64 modulo p
    unsigned from_8, from_9;   // to take out 2^63 or 2^71, and to make the residue signed
    unsigned for_sums, below;  // the multiple of p from 2^31 on, and 2^32 / p, rounded down
};
struct AllWeights {
    Weights of[MOST_MODULI];
};
__host__ __device__ constexpr AllWeights all_weights()
{
    AllWeights all = {};
    for (int t = 0; t < MOST_MODULI; ++t) {
        const unsigned p = modulus(t);
        Weights& w = all.of[t];
        unsigned power = 1;
        unsigned powers[10] = {};
        for (int i = 0; i < 10; ++i) {
            powers[i] = power % p;
            power = power % p * 256 % p;
        }
        w.p = p;
        w.inverse = static_cast<unsigned>((1ull << 32) / p + 1);
        for (int i = 0; i < 4; ++i) {
            w.low |= powers[i] << 8 * i;
            w.high |= powers[4 + i] << 8 * i;
        }
        w.ninth = powers[8];
        w.from_8 = (p - powers[7] * 128 % p) % p + residue_shift(p);
        w.from_9 = (p - powers[8] * 128 % p) % p + residue_shift(p);
        w.for_sums = static_cast<unsigned>(((1ull << 31) + p - 1) / p * p);
        w.below = static_cast<unsigned>(p == 1 ? 0 : (1ull << 32) / p);
    }
    return all;
}
__constant__ const AllWeights residue_weights = all_weights();

/// |x| = mantissa * 2^exponent, exactly, of a finite double.
struct Magnitude {
    unsigned long long mantissa;
    int exponent;
};
__device__ __forceinline__ Magnitude magnitude(double x)
{
    const unsigned long long bits = static_cast<unsigned long long>(__double_as_longlong(x)) & ~(1ull << 63);
    const int field = static_cast<int>(bits >> 52);
    const unsigned long long fraction = bits & ((1ull << 52) - 1);
    return {field ? fraction | 1ull << 52 : fraction, (field ? field : 1) - 1075};
}
/// The exponent field of infinities and NaN.
__device__ __forceinline__ bool is_finite(double x)
{
    return (static_cast<unsigned long long>(__double_as_longlong(x)) >> 52 & 0x7ff) != 0x7ff;
}
/// The least e with |x| < 2^e; x is not zero.
__device__ __forceinline__ int exponent_of(Magnitude x) { return 64 - __clzll(x.mantissa) + x.exponent; }

/// |x| 2^e, rounded up; it is less than 2^63.
__device__ __forceinline__ unsigned long long scaled_up(Magnitude x, int e)
{
    const int shift = x.exponent + e;
    if (x.mantissa == 0) return 0;
    if (shift >= 0) return x.mantissa << shift;
    return shift < -60 ? 1 : (x.mantissa + ((1ull << -shift) - 1)) >> -shift;
}

/// A number to be split: 2^63 or 2^71 more than x, and how large |x| is (2^62 if it is larger).
struct Shifted {
    unsigned long long low;
    unsigned ninth;
    unsigned long long size;
};
/// x 2^e, rounded to the nearest whole number (a half away from zero).
template <bool NINE>
__device__ __forceinline__ Shifted shifted(double x, int e)
{
    const Magnitude own = magnitude(x);
    const int shift = own.exponent + e;
    unsigned long long low = 0, high = 0;
    if (own.mantissa != 0) {
        if (shift < 0) {
            if (shift >= -60) low = (own.mantissa + (1ull << (-shift - 1))) >> -shift;
        } else if (NINE && shift > 0) {
            low = shift < 64 ? own.mantissa << shift : 0;
            high = shift < 64 ? own.mantissa >> (64 - shift) : own.mantissa << (shift - 64);
        } else {
            low = own.mantissa << shift;
        }
    }
    const unsigned long long size = high || low >> 62 ? 1ull << 62 : low;
    if (x < 0) {
        high = ~high + (low == 0);
        low = ~low + 1;
    }
    if (NINE) return {low, static_cast<unsigned>(high + 128) & 0xff, size};
    return {low + (1ull << 63), 0, size};
}

/// The signed residue of the number modulo w.p, as a byte.
template <bool NINE>
__device__ __forceinline__ unsigned residue(const Shifted& x, const Weights& w)
{
    const unsigned start = NINE ? w.from_9 + x.ninth * w.ninth : w.from_8;
    const unsigned sum =
        __dp4a(static_cast<unsigned>(x.low), w.low, __dp4a(static_cast<unsigned>(x.low >> 32), w.high, start));
    return (sum - __umulhi(sum, w.inverse) * w.p - residue_shift(w.p)) & 0xff;
}

/// The residue from 0 to w.p - 1 of a sum of at most 2^17 products of signed residues. A sum of 2^17 times 128 * 128
/// leaves 32 bits, but only modulo 256, which divides 2^32.
__device__ __forceinline__ unsigned residue_of_sum(int sum, const Weights& w)
{
    const unsigned positive = static_cast<unsigned>(sum) + w.for_sums;
    const unsigned left = positive - __umulhi(positive, w.below) * w.p;  // less than 2 p
    return min(left, left - w.p);
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

/// The pieces in which weights and P are cut, the first first: piece k has the bits from LOW[k] up.
template <int COUNT>
struct Pieces {
    static constexpr int BITS = product_of_moduli(COUNT).bits();
    static constexpr int NUMBER = (BITS + PIECE_BITS - 1) / PIECE_BITS;
    static_assert(NUMBER == 3 || NUMBER == 4, "13 to 18 moduli");

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

/// A byte as a double, without the slow instruction of conversion.
__device__ __forceinline__ double double_of_byte(unsigned byte)
{
    return __dadd_rn(__hiloint2double(0x43300000, static_cast<int>(byte)), -0x1p52);
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
/// a + b = sum + error, exactly. D. E. Knuth, The Art of Computer Programming, volume 2, section 4.2.2.
__device__ __forceinline__ double two_sum(double a, double b, double& error)
{
    const double sum = __dadd_rn(a, b), of_b = __dadd_rn(sum, -a);
    error = __dadd_rn(__dadd_rn(a, -__dadd_rn(sum, -of_b)), __dadd_rn(b, -of_b));
    return sum;
}
/// The double nearest to a + b + c + d, each at most half of the last bit of the one before (or of its unit, if that one
/// is zero), so that c + d, and what the sums of the others lose, have room in few bits.
__device__ __forceinline__ double nearest_sum(double a, double b, double c, double d)
{
    double of_small, of_middle, of_sum, left;
    const double small = two_sum(c, d, of_small);
    const double middle = two_sum(b, small, of_middle);
    const double sum = two_sum(a, middle, of_sum);
    const double next = two_sum(of_sum, __dadd_rn(of_middle, of_small), left);
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
    else return nearest_sum(sums[0], sums[1], sums[2], sums[3]);
}

/// x 2^e, rounded once. |x| is 0 or from 1 to 2^142, so what the first of two steps leaves is a normal number, unless the
/// result is 0 or infinite anyway.
__device__ __forceinline__ double times_power(double x, int e)
{
    const int first = max(-1020, min(1020, e / 2)), second = max(-1020, min(1020, e - e / 2));
    return x * __longlong_as_double(static_cast<long long>(1023 + first) << 52) *
           __longlong_as_double(static_cast<long long>(1023 + second) << 52);
}
