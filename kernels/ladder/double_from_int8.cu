// C = A B with double's accuracy from exact products of bytes: past the double peak of the chip.
//
// The idea (K. Ozaki, Y. Uchino, T. Imamura, Ozaki scheme II, arXiv 2504.08009 and 2508.03984; the authors' program is
// GEMMul8): multiply each row of A and each column of B by a power of two and round to whole numbers of some 50 bits.
// Their product is a matrix of whole numbers, below P / 2 in size, and such a number is told by its remainders modulo 15
// small coprime numbers whose product is P. A remainder fits a byte, and the remainders of a product of matrices come
// from the product of the remainders, which tensor cores compute exactly, at 30 times the rate of double. The only
// rounding is that of the operands, once, and that of the result.
//
//              modulo 256     A mod 256  x  B mod 256   -->  C mod 256
//   A, B  -->  modulo 255     A mod 255  x  B mod 255   -->  C mod 255   -->  C
//              ...                      ...                      ...
//
// How far to scale: sums of products must stay below P / 2. ACCURATE = 0: by the norms of rows and columns, after
// Cauchy and Schwarz; ACCURATE = 1: one more product of bytes, of the operands rounded up to 6 bits, bounds the sums of
// |a| |b| themselves, which leaves one or two bits more, many more where rows and columns differ in size along k.
//
// Steps, one launch each: sizes of 256 of k; [a bound of 6 bits of each element; their product, of which the largest of
// each row and column is kept]; exponents of all rows and columns; residues of both operands, read once, B turned; all
// products, with the residue of each sum in the last step, so that no 32-bit integers reach memory; C of its residues.
//
// Out of range: an element that is infinite or not a number, or that keeps less than 8 bits; or, if an eighth of the
// nonzeros of a row of A or a column of B, and at least four, keep less than 48 - log2 p bits, so that their rounding
// would weigh 32 times as much as the rounding bound of a sum of p doubles. Its row or column of C is NaN. Fewer small
// elements pass, since random operands have some: each is off by at most half a unit of the last of the bits that the
// largest of its row has (45 to 62), which shows only where the other operand is zero, or as small, at all of the larger
// ones. Rows and columns may differ in size by as much as doubles can. Sums of more than 2^17 products do not fit 32
// bits: the registry refuses them.
//
// What it costs at 8192^3 with 15 moduli, accurate, in ms on an H200: sizes 0.50, bounds 0.38, the product that bounds
// 0.83, splitting 1.72, 15 products of bytes 11.96, at 1,380 TOPS, joining 0.78. A DGEMM takes 20. Splitting reads
// 1.07 GB and writes 2.0 GB, joining reads 1.0 GB and writes 0.5 GB: at 1.8 TB/s, less than half of what the memory
// could do. Memory beside A, B and C: 3 * 15 bytes per element.
//
// A is n x p, B is p x m, C is n x m, all row-major. In workspaces rows of bytes have a multiple of 16.
// Launch: product and bound: see int8_product.cuh. The others: block 256, grids as in the registry.
#include "int8_product.cuh"
#include "residues.cuh"

namespace {

constexpr int CHUNK = 256;           // of k: what a block reads of a row of A or a column of B
constexpr int LINES = 32;            // rows of A, or columns of B, per block
constexpr int SIZE_BITS = 16;        // of an element, where the norm is taken
constexpr int BOUND_BITS = 6;        // of an element, where the product is bounded by one of bytes
constexpr int REFUSED = 1 << 20;     // an exponent that stands for infinities and NaN
constexpr int LEAST_BITS = 8;        // what each element must keep
constexpr int FEW_BITS = 48;         // what all but an eighth must keep, in sums of one product
constexpr int MARK_SHIFT = 48;       // of the exponent, in a chunk's size
constexpr int EXPONENT_OFFSET = 4096;
using Size = unsigned long long;     // of a chunk: (exponent + offset) << 48 | sum of squares; 0 if all is zero
using Count = unsigned long long;    // of a line: few bits << 24 | nonzeros
constexpr Size REFUSED_SIZE = ~Size(0);
constexpr Count LOST = Count(1) << 20;

__device__ __forceinline__ int pitch_of(int count) { return 16 * ceil_div(count, 16); }

/// |x| is below this if few of its bits are kept.
__device__ __forceinline__ Size few_bits(int p) { return Size(1) << (FEW_BITS - 1 - (32 - __clz(p - 1))); }

/// Whether too many elements of a row or a column keep too few bits.
__device__ __forceinline__ bool is_out_of_range(Count count)
{
    const Count few = count >> 24, nonzero = count & 0xffffff;
    return few >= LOST || (few >= 4 && 8 * few >= nonzero);
}

/// The sum of squares of |x| 2^(SIZE_BITS - e), each rounded up.
template <int COUNT>
__device__ __forceinline__ Size sum_of_squares(const double (&x)[COUNT], int e)
{
    Size sum = 0;
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const Size size = scaled_up(magnitude(x[i]), SIZE_BITS - e);
        sum += size * size;
    }
    return sum;
}
/// The least e with |x| < 2^e for all, REFUSED if one is not finite, -REFUSED if all are zero.
template <int COUNT>
__device__ __forceinline__ int largest_exponent(const double (&x)[COUNT])
{
    int largest = -REFUSED;
    #pragma unroll
    for (int i = 0; i < COUNT; ++i)
        if (x[i] != 0) largest = max(largest, is_finite(x[i]) ? exponent_of(magnitude(x[i])) : REFUSED);
    return largest;
}
__device__ __forceinline__ Size packed(int e, Size sum)
{
    return e == -REFUSED ? 0 : e == REFUSED ? REFUSED_SIZE : Size(e + EXPONENT_OFFSET) << MARK_SHIFT | sum;
}

/// The exponent e by which a line is multiplied, from that of its largest element and from a bound of its sums: they are
/// at most `size` if elements count in 2^(own - bits), so that 4^f size may reach what P allows for the line.
template <int MODULI>
__device__ __forceinline__ int scaling(int own, double size, int bits)
{
    constexpr double most = ProductOfModuli<MODULI>::value * 0.5 * (1 - 0x1p-20);
    constexpr int LIMIT = split_bits(MODULI);
    if (own == REFUSED) return REFUSED;
    if (own == -REFUSED) return 0;
    const double share = size > 0 ? most / size : most;
    const int power = static_cast<int>(__double_as_longlong(share) >> 52) - 1023;  // share is normal
    return min(power / 2 + bits, LIMIT) - own;
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
/// Reads 32 of k from column `column` of B, zeros beyond its edges.
__device__ __forceinline__ void read_column(double (&x)[32], const double* B, int k, int column, int p, int m)
{
    const double* const from = B + static_cast<long long>(k) * m + column;
    #pragma unroll
    for (int i = 0; i < 32; ++i)
        x[i] = column < m && k + i < p ? from[static_cast<long long>(i) * m] : 0;
}

/// Four bytes in a word, the first in the lowest.
__device__ __forceinline__ unsigned word_of(unsigned a, unsigned b, unsigned c, unsigned d)
{
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

}  // namespace

/// Sizes of 256 of k of 32 rows of A or columns of B: sizes[chunk][line].
/// Launch: block 256; grid (ceil(p / 256), ceil(n / 32) + ceil(m / 32)).
__global__ void __launch_bounds__(256)
double_from_int8_sizes(const double* A, const double* B, Size* a_sizes, Size* b_sizes, int n, int p, int m)
{
    __shared__ int exponents[8][32];
    __shared__ Size sums[8][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int blocks_a = ceil_div(n, LINES);
    if (blockIdx.y < blocks_a) {
        #pragma unroll 1
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
            int largest = largest_exponent(x);
            #pragma unroll
            for (int distance = 1; distance < 32; distance *= 2)
                largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
            Size sum = largest < REFUSED ? sum_of_squares(x, largest) : 0;
            #pragma unroll
            for (int distance = 1; distance < 32; distance *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
            if (lane == 0 && row < n) a_sizes[static_cast<long long>(blockIdx.x) * n + row] = packed(largest, sum);
        }
    } else {
        const int column = (blockIdx.y - blocks_a) * LINES + lane;
        double x[32];
        read_column(x, B, blockIdx.x * CHUNK + 32 * warp, column, p, m);
        exponents[warp][lane] = largest_exponent(x);
        __syncthreads();
        int largest = -REFUSED;
        #pragma unroll
        for (int w = 0; w < 8; ++w) largest = max(largest, exponents[w][lane]);
        sums[warp][lane] = largest < REFUSED ? sum_of_squares(x, largest) : 0;
        __syncthreads();
        if (warp == 0 && column < m) {
            Size sum = 0;
            #pragma unroll
            for (int w = 0; w < 8; ++w) sum += sums[w][lane];
            b_sizes[static_cast<long long>(blockIdx.x) * m + column] = packed(largest, sum);
        }
    }
}

/// Exponents of all rows of A and columns of B from the sizes of their chunks: those to scale by, or, if ACCURATE, those
/// of the largest elements. Clears what is counted later.
/// Launch: block 256; grid ceil((n + m) / 256).
template <int MODULI, bool ACCURATE>
__global__ void __launch_bounds__(256)
double_from_int8_exponents(const Size* a_sizes, const Size* b_sizes, int* exponents, Count* counts, int* largest_sums,
                           int n, int p, int m)
{
    const int line = blockIdx.x * 256 + threadIdx.x;
    if (line >= n + m) return;
    const Size* const sizes = line < n ? a_sizes + line : b_sizes + (line - n);
    const long long pitch = line < n ? n : m;
    int own = -REFUSED;
    for (int chunk = 0; chunk < ceil_div(p, CHUNK); ++chunk) {
        const Size size = sizes[chunk * pitch];
        if (size == REFUSED_SIZE) own = REFUSED;
        else if (size != 0) own = max(own, static_cast<int>(size >> MARK_SHIFT) - EXPONENT_OFFSET);
    }
    counts[line] = 0;
    if (ACCURATE) {
        exponents[line] = own;
        largest_sums[line] = 0;
        return;
    }
    Size sum = 0;
    for (int chunk = 0; chunk < ceil_div(p, CHUNK) && own < REFUSED; ++chunk) {
        const Size size = sizes[chunk * pitch];
        if (size == 0) continue;
        const int shift = 2 * (own - (static_cast<int>(size >> MARK_SHIFT) - EXPONENT_OFFSET));
        const Size squares = size & ((Size(1) << MARK_SHIFT) - 1);
        sum += shift > 62 ? 1 : (squares + ((Size(1) << shift) - 1)) >> shift;
    }
    exponents[line] = scaling<MODULI>(own, static_cast<double>(sum), SIZE_BITS);
}

/// Bytes that are no less than the elements: |x| 2^(BOUND_BITS - e), rounded up; B's turned, rows along k.
/// Launch: block 256; grid (ceil(p / 256), ceil(n / 32) + ceil(m / 32)).
__global__ void __launch_bounds__(256)
double_from_int8_bounds(const double* A, const double* B, const int* exponents, signed char* a_bounds,
                        signed char* b_bounds, int n, int p, int m)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int blocks_a = ceil_div(n, LINES);
    const int pitch = pitch_of(p);
    const auto bound = [](double x, int e) {
        return e == REFUSED || e == -REFUSED ? 0u : static_cast<unsigned>(scaled_up(magnitude(x), BOUND_BITS - e));
    };
    if (blockIdx.y < blocks_a) {
        const int k = blockIdx.x * CHUNK + warp % 2 * 128 + 4 * lane;
        #pragma unroll 1
        for (int round = 0; round < LINES / 4; ++round) {
            const int row = blockIdx.y * LINES + 4 * round + warp / 2;
            if (row >= n || k >= pitch) continue;
            const int e = exponents[row];
            double x[4];
            read_four(x, A, row, k, n, p);
            *reinterpret_cast<unsigned*>(a_bounds + static_cast<long long>(row) * pitch + k) =
                word_of(bound(x[0], e), bound(x[1], e), bound(x[2], e), bound(x[3], e));
        }
    } else {
        const int column = (blockIdx.y - blocks_a) * LINES + lane;
        const int k = blockIdx.x * CHUNK + 32 * warp;
        if (column >= m) return;
        const int e = exponents[n + column];
        double x[32];
        read_column(x, B, k, column, p, m);
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            unsigned word[4];
            #pragma unroll
            for (int w = 0; w < 4; ++w) {
                const double* const four = x + 16 * half + 4 * w;
                word[w] = word_of(bound(four[0], e), bound(four[1], e), bound(four[2], e), bound(four[3], e));
            }
            if (k + 16 * half < pitch)
                *reinterpret_cast<uint4*>(b_bounds + static_cast<long long>(column) * pitch + k + 16 * half) =
                    make_uint4(word[0], word[1], word[2], word[3]);
        }
    }
}

/// The largest sum of each row and of each column of the product of the bounds. Parameters as of multiply_bytes.
template <int TILE_M, int STAGES, int CLUSTER, int BAND>
__global__ void __launch_bounds__(384, 1)
double_from_int8_largest(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                         int* largest_sums, int n, int p, int m)
{
    multiply_bytes<TILE_M, STAGES, CLUSTER, BAND>(
        map_a, map_b, 1, n, p, m, [&](const int (&sums)[TILE_M / 2], PlaceOfSums at) {
            int of_row[2] = {0, 0};
            #pragma unroll
            for (int j = 0; j < TILE_M / 8; ++j) {
                #pragma unroll
                for (int v = 0; v < 2; ++v) {
                    const int column = at.column + 8 * j + v;
                    // Rows past A's and B's edges are zeros in the maps, so their sums are.
                    const int upper = sums[4 * j + v], lower = sums[4 * j + 2 + v];
                    of_row[0] = max(of_row[0], upper);
                    of_row[1] = max(of_row[1], lower);
                    int of_column = max(upper, lower);
                    #pragma unroll
                    for (int distance = 4; distance < 32; distance *= 2)
                        of_column = max(of_column, __shfl_xor_sync(0xffffffffu, of_column, distance));
                    if (threadIdx.x % 32 < 4 && column < m) atomicMax(&largest_sums[n + column], of_column);
                }
            }
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                #pragma unroll
                for (int distance = 1; distance < 4; distance *= 2)
                    of_row[half] = max(of_row[half], __shfl_xor_sync(0xffffffffu, of_row[half], distance));
                if (threadIdx.x % 4 == 0 && at.row + 8 * half < n)
                    atomicMax(&largest_sums[at.row + 8 * half], of_row[half]);
            }
        });
}

/// Exponents to scale by, from those of the largest elements and the largest sums of the bounds.
/// Launch: block 256; grid ceil((n + m) / 256).
template <int MODULI>
__global__ void __launch_bounds__(256)
double_from_int8_bounded(const int* largest_sums, int* exponents, int lines)
{
    const int line = blockIdx.x * 256 + threadIdx.x;
    if (line < lines)
        exponents[line] = scaling<MODULI>(exponents[line], static_cast<double>(largest_sums[line]), BOUND_BITS);
}

/// Residues of both operands for all moduli: a_residues[modulus][row][k], b_residues[modulus][column][k]; counts the
/// elements of each line that keep few bits.
/// Launch: block 256; grid (ceil(p / 256), ceil(n / 32) + ceil(m / 32)).
template <int MODULI>
__global__ void __launch_bounds__(256)
double_from_int8_split(const double* A, const double* B, const int* exponents, Count* counts, signed char* a_residues,
                       signed char* b_residues, int n, int p, int m)
{
    constexpr bool NINE = split_bits(MODULI) > 62;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int blocks_a = ceil_div(n, LINES);
    const int pitch = pitch_of(p);
    const auto counted = [enough = few_bits(p)](double x, const Shifted& own) {
        const bool lost = own.size < Size(1) << (LEAST_BITS - 1), few = own.size < enough;
        return x == 0 ? Count(0) : Count(1) | (few ? Count(1) << 24 : 0) | (lost ? LOST << 24 : 0);
    };
    if (blockIdx.y < blocks_a) {
        const int k = blockIdx.x * CHUNK + warp % 2 * 128 + 4 * lane;
        #pragma unroll 1
        for (int round = 0; round < LINES / 4; ++round) {
            const int row = blockIdx.y * LINES + 4 * round + warp / 2;
            if (row >= n) break;
            const int e = exponents[row];
            double x[4];
            read_four(x, A, row, k, n, p);
            Shifted own[4];
            Count count = 0;
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (e == REFUSED) x[i] = 0;
                own[i] = shifted<NINE>(x[i], e);
                count += counted(x[i], own[i]);
            }
            #pragma unroll
            for (int distance = 1; distance < 32; distance *= 2) count += __shfl_xor_sync(0xffffffffu, count, distance);
            if (lane == 0) atomicAdd(&counts[row], count);
            if (k >= pitch) continue;
            signed char* to = a_residues + static_cast<long long>(row) * pitch + k;
            #pragma unroll
            for (int t = 0; t < MODULI; ++t) {
                const Weights& w = residue_weights.of[t];
                *reinterpret_cast<unsigned*>(to) = word_of(residue<NINE>(own[0], w), residue<NINE>(own[1], w),
                                                           residue<NINE>(own[2], w), residue<NINE>(own[3], w));
                to += static_cast<long long>(n) * pitch;
            }
        }
    } else {
        const int column = (blockIdx.y - blocks_a) * LINES + lane;
        const int k = blockIdx.x * CHUNK + 32 * warp;
        if (column >= m || k >= pitch) return;
        const int e = exponents[n + column];
        Shifted own[32];
        Count count = 0;
        {
            double x[32];
            read_column(x, B, k, column, p, m);
            #pragma unroll
            for (int i = 0; i < 32; ++i) {
                if (e == REFUSED) x[i] = 0;
                own[i] = shifted<NINE>(x[i], e);
                count += counted(x[i], own[i]);
            }
        }
        atomicAdd(&counts[n + column], count);
        signed char* to = b_residues + static_cast<long long>(column) * pitch + k;
        #pragma unroll 1
        for (int t = 0; t < MODULI; ++t) {
            const Weights w = residue_weights.of[t];
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                unsigned word[4];
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const Shifted* const four = own + 16 * half + 4 * i;
                    word[i] = word_of(residue<NINE>(four[0], w), residue<NINE>(four[1], w), residue<NINE>(four[2], w),
                                      residue<NINE>(four[3], w));
                }
                if (k + 16 * half < pitch)
                    *reinterpret_cast<uint4*>(to + 16 * half) = make_uint4(word[0], word[1], word[2], word[3]);
            }
            to += static_cast<long long>(m) * pitch;
        }
    }
}

/// The products of the residues for all moduli; of each sum the residue is kept: c_residues[modulus][row][column].
/// Parameters as of multiply_bytes.
template <int MODULI, int TILE_M, int STAGES, int CLUSTER, int BAND>
__global__ void __launch_bounds__(384, 1)
double_from_int8(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                 signed char* c_residues, int n, int p, int m)
{
    const int pitch = pitch_of(m);
    multiply_bytes<TILE_M, STAGES, CLUSTER, BAND>(
        map_a, map_b, MODULI, n, p, m, [&](const int (&sums)[TILE_M / 2], PlaceOfSums at) {
            const Weights w = residue_weights.of[at.product];
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = at.row + 8 * half;
                if (row >= n) continue;
                signed char* const to = c_residues + (static_cast<long long>(at.product) * n + row) * pitch + at.column;
                #pragma unroll
                for (int j = 0; j < TILE_M / 8; ++j)
                    if (at.column + 8 * j < pitch)  // also the columns past m, which the next launch reads
                        *reinterpret_cast<unsigned short*>(to + 8 * j) =
                            static_cast<unsigned short>(residue_of_sum(sums[4 * j + 2 * half], w) |
                                                        residue_of_sum(sums[4 * j + 2 * half + 1], w) << 8);
            }
        });
}

namespace {

/// Adds four neighbours' residues for the moduli from T on.
template <int MODULI, int T = 0>
__device__ __forceinline__ void add_residues(double (&sums)[4][Pieces<MODULI>::NUMBER], const signed char* from,
                                             long long next)
{
    const unsigned word = *reinterpret_cast<const unsigned*>(from);
    #pragma unroll
    for (int i = 0; i < 4; ++i) add_residue<MODULI, T>(sums[i], double_of_byte(word >> 8 * i & 0xff));
    if constexpr (T + 1 < MODULI) add_residues<MODULI, T + 1>(sums, from + next, next);
}

}  // namespace

/// C from its residues and the exponents of its rows and columns.
/// Launch: block (32, 8); grid (ceil(m / 128), ceil(n / 8)).
template <int MODULI>
__global__ void __launch_bounds__(256)
double_from_int8_join(const signed char* c_residues, const int* exponents, const Count* counts, double* C, int n, int m)
{
    const int column = (blockIdx.x * 32 + threadIdx.x) * 4, row = blockIdx.y * 8 + threadIdx.y;
    if (row >= n || column >= m) return;
    const long long pitch = pitch_of(m);
    double sums[4][Pieces<MODULI>::NUMBER] = {};
    add_residues<MODULI>(sums, c_residues + row * pitch + column, n * pitch);

    const int own = exponents[row];
    const bool refused = own == REFUSED || is_out_of_range(counts[row]);
    double result[4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        result[i] = 0;
        if (column + i < m) {
            const int e = exponents[n + column + i];
            result[i] = refused || e == REFUSED || is_out_of_range(counts[n + column + i])
                            ? __longlong_as_double(0x7fffffffffffffffll)
                            : times_power(joined<MODULI>(sums[i]), -(own + e));
        }
    }
    double* const to = C + static_cast<long long>(row) * m + column;
    if (m % 4 == 0) {
        *reinterpret_cast<double2*>(to) = make_double2(result[0], result[1]);
        *reinterpret_cast<double2*>(to + 2) = make_double2(result[2], result[3]);
    } else {
        #pragma unroll
        for (int i = 0; i < 4; ++i)
            if (column + i < m) to[i] = result[i];
    }
}
