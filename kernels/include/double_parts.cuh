// How double_from_int8.cu and double_always.cu make doubles into whole numbers and their residues, and back. The head of
// double_from_int8.cu explains the scheme.
#pragma once
#include "int8_product.cuh"
#include "residues.cuh"

constexpr int CHUNK = 256;           // of k: what a block measures of a row of A or a column of B
constexpr int SPLIT_K = 128;         // of k: what a block splits of them
constexpr int LINES = 32;            // rows of A, or columns of B, per block
constexpr int SIZE_BITS = 16;        // of an element, where the norm is taken
constexpr int LEAST_EXPONENT = -1000;
constexpr int REFUSED = 1 << 20;     // an exponent that stands for infinities and NaN
constexpr int LEAST_BITS = 8;        // what each element must keep
constexpr int FEW_BITS = 48;         // what all but an eighth must keep, in sums of one product
constexpr int EXPONENT_OFFSET = 4096, EXPONENT_SHIFT = 51, SUM_SHIFT = 41, SUM_CUT = 15;
/// Of a chunk: (exponent + offset) << 51 | sum of magnitudes >> 15 << 41 | sum of squares; 0 if all is zero.
using Size = unsigned long long;
using Count = unsigned long long;    // of a line: few bits << 24 | nonzeros
constexpr Size REFUSED_SIZE = ~Size(0);
constexpr Count LOST = Count(1) << 20;

__device__ __forceinline__ int pitch_of(int count) { return 16 * ceil_div(count, 16); }

/// The pitch of residues of C, whose columns have an order of their own among 64: see write_residues_of_sums.
__device__ __forceinline__ int result_pitch(int m) { return 64 * ceil_div(m, 64); }

/// |x| is below this if few of its bits are kept.
__device__ __forceinline__ double few_bits(int p)
{
    return static_cast<double>(1ull << (FEW_BITS - 1 - (32 - __clz(p - 1))));
}
/// Whether too many elements of a row or a column keep too few bits.
__device__ __forceinline__ bool is_out_of_range(Count count)
{
    const Count few = count >> 24, nonzero = count & 0xffffff;
    return few >= LOST || (few >= 4 && 8 * few >= nonzero);
}

/// The largest of some doubles, infinities and NaN among them.
struct Largest {
    unsigned high = 0;  // the high word of |x|, which is at least 1 for numbers but 0

    __device__ __forceinline__ void add(double x)
    {
        const unsigned word = static_cast<unsigned>(__double2hiint(x)) & 0x7fffffffu;
        high = max(high, word | (x != 0));
    }
    /// The least e with |x| < 2^e for all, at least LEAST_EXPONENT; REFUSED if one is not finite, -REFUSED if all are 0.
    __device__ __forceinline__ int exponent() const
    {
        if (high == 0) return -REFUSED;
        const int field = static_cast<int>(high >> 20);
        return field == 0x7ff ? REFUSED : max(field - 1022, LEAST_EXPONENT);
    }
};

/// Sums over some elements, each |x| 2^(SIZE_BITS - e), rounded up to a whole number.
struct Sums {
    Size squares = 0;
    unsigned magnitudes = 0;

    template <int COUNT>
    __device__ __forceinline__ void add(const double (&x)[COUNT], int e)
    {
        const double power = PowerOfTwo::double_of(SIZE_BITS - e);
        #pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const unsigned size = static_cast<unsigned>(__double2loint(__fma_ru(fabs(x[i]), power, 0x1p52)));
            squares += static_cast<Size>(size) * size;
            magnitudes += size;
        }
    }
    __device__ __forceinline__ Size packed(int e) const
    {
        return e == -REFUSED  ? 0
               : e == REFUSED ? REFUSED_SIZE
                              : Size(e + EXPONENT_OFFSET) << EXPONENT_SHIFT | Size(magnitudes >> SUM_CUT) << SUM_SHIFT |
                                    squares;
    }
};

/// The bits of the largest element of a line that are kept, from the line's norm: the sum of squares in units of
/// 4^(own exponent - SIZE_BITS), of which 4^f times may reach what P allows for the line.
template <int MODULI>
__device__ __forceinline__ int kept_bits(double squares)
{
    constexpr double most = ProductOfModuli<MODULI>::value * 0.5 * (1 - 0x1p-20);
    const int power = static_cast<int>(__double_as_longlong(most / squares) >> 52) - 1023;
    return min(power / 2 + SIZE_BITS, split_bits(MODULI));
}

/// Reads 4 of k from row `row` of A, zeros beyond its edges.
__device__ __forceinline__ void read_four(double (&x)[4], const double* A, int row, int k, int n, int p)
{
    const double* const from = A + static_cast<long long>(row) * p + k;
    if (p % 2 == 0 && row < n) {
        #pragma unroll
        for (int e = 0; e < 4; e += 2) {
            const double2 two = k + e < p ? *reinterpret_cast<const double2*>(from + e) : make_double2(0, 0);
            x[e] = two.x;
            x[e + 1] = two.y;
        }
    } else {
        #pragma unroll
        for (int e = 0; e < 4; ++e) x[e] = row < n && k + e < p ? from[e] : 0;
    }
}
/// Reads COUNT of k from column `column` of B, zeros beyond its edges.
template <int COUNT>
__device__ __forceinline__ void read_column(double (&x)[COUNT], const double* B, int k, int column, int p, int m)
{
    const double* const from = B + static_cast<long long>(k) * m + column;
    #pragma unroll
    for (int i = 0; i < COUNT; ++i)
        x[i] = column < m && k + i < p ? from[static_cast<long long>(i) * m] : 0;
}

/// Sizes of 256 of k of 32 rows of A or columns of B: sizes[chunk][line].
/// Launch: block 256; grid (ceil(p / 256), ceil(n / 32) + ceil(m / 32)).
__device__ __forceinline__ void measure_lines(const double* A, const double* B, Size* a_sizes, Size* b_sizes, int n, int p,
                                              int m)
{
    __shared__ unsigned largest_of[8][32], magnitudes_of[8][32];
    __shared__ Size squares_of[8][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int blocks_a = ceil_div(n, LINES);
    if (blockIdx.y < blocks_a) {
        #pragma unroll 2
        for (int round = 0; round < LINES / 8; ++round) {
            const int row = blockIdx.y * LINES + 8 * round + warp;
            double x[8];
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                double four[4];
                read_four(four, A, row, blockIdx.x * CHUNK + 128 * half + 4 * lane, n, p);
                #pragma unroll
                for (int e = 0; e < 4; ++e) x[4 * half + e] = four[e];
            }
            Largest largest;
            #pragma unroll
            for (int i = 0; i < 8; ++i) largest.add(x[i]);
            largest.high = __reduce_max_sync(0xffffffffu, largest.high);
            const int e = largest.exponent();
            Sums sums;
            if (abs(e) < REFUSED) sums.add(x, e);
            sums.magnitudes = __reduce_add_sync(0xffffffffu, sums.magnitudes);
            #pragma unroll
            for (int distance = 1; distance < 32; distance *= 2)
                sums.squares += __shfl_xor_sync(0xffffffffu, sums.squares, distance);
            if (lane == 0 && row < n) a_sizes[static_cast<long long>(blockIdx.x) * n + row] = sums.packed(e);
        }
    } else {
        const int column = (blockIdx.y - blocks_a) * LINES + lane;
        double x[32];
        read_column(x, B, blockIdx.x * CHUNK + 32 * warp, column, p, m);
        Largest largest;
        #pragma unroll
        for (int i = 0; i < 32; ++i) largest.add(x[i]);
        largest_of[warp][lane] = largest.high;
        __syncthreads();
        #pragma unroll
        for (int w = 0; w < 8; ++w) largest.high = max(largest.high, largest_of[w][lane]);
        const int e = largest.exponent();
        Sums sums;
        if (abs(e) < REFUSED) sums.add(x, e);
        squares_of[warp][lane] = sums.squares;
        magnitudes_of[warp][lane] = sums.magnitudes;
        __syncthreads();
        if (warp == 0 && column < m) {
            #pragma unroll
            for (int w = 1; w < 8; ++w) {
                sums.squares += squares_of[w][lane];
                sums.magnitudes += magnitudes_of[w][lane];
            }
            b_sizes[static_cast<long long>(blockIdx.x) * m + column] = sums.packed(e);
        }
    }
}

/// A line's largest exponent, REFUSED or -REFUSED; its sum of magnitudes, rounded down, in units of
/// 2^(exponent - SIZE_BITS), and its sum of squares, rounded up, in units of the square of that.
struct LineSize {
    int exponent;
    double squares, magnitudes;
};
/// The size of a line of p elements from those of its chunks, `pitch` apart.
__device__ __forceinline__ LineSize line_size(const Size* chunks, long long pitch, int p)
{
    constexpr int BATCH = 8;  // reads under way together
    int own = -REFUSED;
    Size squares = 0, magnitudes = 0;
    for (int first = 0; first < ceil_div(p, CHUNK); first += BATCH) {
        Size sizes[BATCH];
        #pragma unroll
        for (int i = 0; i < BATCH; ++i) sizes[i] = first + i < ceil_div(p, CHUNK) ? chunks[(first + i) * pitch] : 0;
        #pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            if (sizes[i] == REFUSED_SIZE) own = REFUSED;
            if (sizes[i] == 0 || own == REFUSED) continue;
            const int e = static_cast<int>(sizes[i] >> EXPONENT_SHIFT) - EXPONENT_OFFSET;
            Size own_squares = sizes[i] & ((Size(1) << SUM_SHIFT) - 1);
            Size own_magnitudes = (sizes[i] >> SUM_SHIFT & ((1 << (EXPONENT_SHIFT - SUM_SHIFT)) - 1)) << SUM_CUT;
            const int shift = abs(own - e);
            Size& smaller = own < e ? squares : own_squares;
            smaller = shift > 31 ? smaller != 0 : (smaller + ((Size(1) << 2 * shift) - 1)) >> 2 * shift;
            (own < e ? magnitudes : own_magnitudes) >>= min(shift, 63);
            own = max(own, e);
            squares += own_squares;
            magnitudes += own_magnitudes;
        }
    }
    return {own, static_cast<double>(squares), static_cast<double>(magnitudes)};
}

/// The lowest bytes of four words in a word, the first in the lowest.
__device__ __forceinline__ unsigned word_of(unsigned a, unsigned b, unsigned c, unsigned d)
{
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

/// The part of A, or of B, that a block splits; its elements are SPLIT_K of k of its lines, in shared memory.
struct Part {
    bool of_a;
    int first, count;  // rows of A, or columns of B
};
struct Elements {
    alignas(16) double x[LINES][SPLIT_K + 2];  // + 2: columns are written without conflicts of more than two
};
/// Reads the block's part, zeros beyond the edges. All 256 threads call it.
__device__ __forceinline__ Part read_part(Elements& elements, const double* A, const double* B, int n, int p, int m)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, k = blockIdx.x * SPLIT_K;
    const int blocks_a = ceil_div(n, LINES);
    const bool of_a = blockIdx.y < blocks_a;
    const int first = (of_a ? blockIdx.y : blockIdx.y - blocks_a) * LINES;
    if (of_a) {
        double x[LINES / 8][4];
        #pragma unroll
        for (int i = 0; i < LINES / 8; ++i) read_four(x[i], A, first + 8 * i + warp, k + 4 * lane, n, p);
        #pragma unroll
        for (int i = 0; i < LINES / 8; ++i)
            #pragma unroll
            for (int e = 0; e < 4; e += 2)
                *reinterpret_cast<double2*>(&elements.x[8 * i + warp][4 * lane + e]) = make_double2(x[i][e], x[i][e + 1]);
    } else {
        double x[SPLIT_K / 8];
        read_column(x, B, k + warp * (SPLIT_K / 8), first + lane, p, m);
        #pragma unroll
        for (int i = 0; i < SPLIT_K / 8; ++i) elements.x[lane][warp * (SPLIT_K / 8) + i] = x[i];
    }
    __syncthreads();
    return {of_a, first, min(LINES, (of_a ? n : m) - first)};
}

/// Four neighbours' residues, a byte each.
template <bool WIDE>
__device__ __forceinline__ unsigned residues_of(const Whole<WIDE> (&numbers)[4], const Modulus& modulus)
{
    return word_of(residue(numbers[0], modulus), residue(numbers[1], modulus), residue(numbers[2], modulus),
                   residue(numbers[3], modulus));
}

/// How many elements are not zero, and how many of those keep few bits, or almost none.
struct Kept {
    double enough;
    unsigned counts = 0;  // nonzeros, few << 10, lost << 20

    template <bool WIDE>
    __device__ __forceinline__ void add(double x, const Whole<WIDE>& number)
    {
        const double size = number.size();
        counts += x == 0 ? 0 : 1 + (size < enough ? 1 << 10 : 0) + (size < 1 << (LEAST_BITS - 1) ? 1 << 20 : 0);
    }
    __device__ __forceinline__ Count count() const
    {
        return (counts & 0x3ff) | Count(counts >> 10 & 0x3ff) << 24 | (counts >> 20 ? LOST << 24 : 0);
    }
};

/// The residues of a thread's sums of a tile: c_residues[modulus][row][place]. The thread's 16 of 64 columns lie
/// together: columns 8 j + 2 t + v at place 16 t + 2 j + v.
template <int COUNT>
__device__ __forceinline__ void write_residues_of_sums(const int (&sums)[COUNT], PlaceOfSums at, signed char* c_residues,
                                                       int n, int m)
{
    const Modulus modulus = moduli.of[at.product];
    const int pitch = result_pitch(m), t = threadIdx.x % 4;
    #pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = at.row + 8 * half;
        if (row >= n) continue;
        signed char* const to =
            c_residues + (static_cast<long long>(at.product) * n + row) * pitch + at.column - 2 * t + 16 * t;
        #pragma unroll
        for (int j = 0; j < COUNT / 4; j += 8) {
            unsigned word[4];
            #pragma unroll
            for (int w = 0; w < 4; ++w) {
                const int* const four = sums + 4 * (j + 2 * w) + 2 * half;
                word[w] = word_of(residue_of_sum(four[0], modulus), residue_of_sum(four[1], modulus),
                                  residue_of_sum(four[4], modulus), residue_of_sum(four[5], modulus));
            }
            if (at.column + 8 * j < pitch)  // also columns past m, which join_rows reads
                *reinterpret_cast<uint4*>(to + 8 * j) = make_uint4(word[0], word[1], word[2], word[3]);
        }
    }
}

/// Adds four residues for the moduli from T on.
template <int MODULI, int T = 0>
__device__ __forceinline__ void add_residues(double (&sums)[4][Pieces<MODULI>::NUMBER], const signed char* from,
                                             long long next)
{
    const unsigned word = *reinterpret_cast<const unsigned*>(from) ^ 0x80808080u;
    #pragma unroll
    for (int i = 0; i < 4; ++i) add_residue<MODULI, T>(sums[i], double_of_byte(word >> 8 * i & 0xff));
    if constexpr (T + 1 < MODULI) add_residues<MODULI, T + 1>(sums, from + next, next);
}

/// Eight rows of four columns of C per thread, from the residues and the exponents of lines: NaN where one is REFUSED.
/// Results of tiles that are not `wanted`(row, column) stay as they are. Block 256; grid (ceil(m / 1024), ceil(n / 8)).
template <int MODULI, typename Exponent, typename Wanted>
__device__ __forceinline__ void join_rows(const signed char* c_residues, double* C, int n, int m, Exponent&& exponent,
                                          Wanted&& wanted)
{
    const int place = (blockIdx.x * 256 + threadIdx.x) * 4;
    const int first = place / 64 * 64 + place % 64 / 16 * 2 + place % 16 * 4;  // columns first, + 1, + 8, + 9
    const long long pitch = result_pitch(m);
    if (place >= pitch) return;
    int others[4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int column = first + i / 2 * 8 + i % 2;
        others[i] = column < m ? exponent(n + column) : 0;
    }
    #pragma unroll 1
    for (int row = blockIdx.y * 8; row < min(n, static_cast<int>(blockIdx.y) * 8 + 8); ++row) {
        if (!wanted(row, first)) continue;
        double sums[4][Pieces<MODULI>::NUMBER] = {};
        add_residues<MODULI>(sums, c_residues + row * pitch + place, n * pitch);
        const int own = exponent(row);
        double result[4];
        #pragma unroll
        for (int i = 0; i < 4; ++i)
            result[i] = own == REFUSED || others[i] == REFUSED
                            ? __longlong_as_double(0x7fffffffffffffffll)
                            : times_power(joined<MODULI>(sums[i]), -(own + others[i]));
        double* const to = C + static_cast<long long>(row) * m + first;
        #pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const int column = first + 4 * i;
            if (m % 2 == 0) {
                if (column < m) *reinterpret_cast<double2*>(to + 4 * i) = make_double2(result[i], result[i + 1]);
            } else {
                if (column < m) to[4 * i] = result[i];
                if (column + 1 < m) to[4 * i + 1] = result[i + 1];
            }
        }
    }
}
