// C = A B in double from products of bytes wherever a test of the operands finds them accurate, in double elsewhere.
//
// The idea: double_from_int8 is faster than the double units, but it keeps about 50 bits of the largest of a row: an
// infinity, or a sum in which small elements meet zeros, makes it NaN, or wrong. So the device bounds the error of
// every element of C before it multiplies, by one product of bytes more:
//
//      error of C[i][j]^2 ~ (a_unit[i]^2 |b[j]|^2 + b_unit[j]^2 |a[i]|^2) / 12       rounding of both operands
//      sum |a| |b|        >= sum floor(a) floor(b), in bytes                         the product
//
// where a unit is the last bit that a line keeps, and |.| a norm. A tile of C in which the root of the first exceeds
// 2^-53 of the second anywhere is multiplied in double on the tensor cores, as in dmma_ring.cu. DGEMM's own error is of
// that size: 0.1 to 0.5 of 2^-53 of the sum in the mean for random operands, and about 1 if one product dominates a sum.
// (Errors of equal elements are equal and do not average out, neither here nor in the sums of a DGEMM.)
// Rows and columns that have an infinity or a NaN fail the test, as do those whose products may overflow. Sums of up to
// 256 products are all made in double.
//
//      sizes, exponents    as double_from_int8, and what the test needs of each line
//      split               residues, and 7 bits of each element, rounded down
//      check               the product of those, the test ──► a plan: a word per tile
//      products, join      the tiles that pass
//      exact               the others
//
// No launch depends on what the host knows but the shape. What it costs beside double_from_int8: a fifteenth product of
// bytes (0.7 of 12.3 ms at 8192^3). Splitting and the check must not be in vain: the first launches look for lines of
// which a few elements are far larger than the rest, and if three quarters of the tiles have one, all is made in double
// at once. Operands that are all made in double then take 1.04 times as long as a DGEMM at 8192^3, 1.05 at 4096^3.
//
// A is n x p, B is p x m, C is n x m, all row-major. TMA wants rows of doubles of a multiple of 16 bytes: the maps of A
// and B are of padded copies (pad) if p or m is odd.
// Launches: sizes as of double_from_int8; exponents: block 64, grid ceil((n + m) / 64); split: as of double_from_int8;
//           check and product: see int8_product.cuh; join: block 256, grid (ceil(m / 1024), ceil(n / 8)); exact: see
//           dmma_tiles.cuh, grid of at most one block per multiprocessor. Only exact if p <= 256.
#include "dmma_tiles.cuh"
#include "double_parts.cuh"
#include "launches.cuh"
#include "padded_operands.cuh"

namespace {

constexpr int MODULI = 14;
constexpr int CHECK_BITS = 7;  // of an element, rounded down

/// A line: its exponent, the bits that its largest element keeps, and, relative to 2^exponent, the square of its unit
/// over 12, in units of 4^-53, and the square of its norm. The last two are infinite if the line is refused.
struct alignas(16) Line {
    int exponent, bits;
    float unit, norm;
};
/// The sum of two lines' exponents up to which no sum of 2^17 products leaves the range of doubles.
constexpr int MOST_EXPONENTS = 1023 - 17;

/// Word `row` * columns + `column` of the plan is not 0 if the tile, CLUSTER * 128 x TILE_M, is made in double.
template <int TILE_M, int CLUSTER>
struct Plan {
    const unsigned* words;
    int columns;  // of tiles

    __device__ __forceinline__ Plan(const unsigned* words, int m) : words(words), columns(ceil_div(m, TILE_M)) {}
    __device__ __forceinline__ bool by_bytes(int tile_row, int tile_column) const
    {
        return words[static_cast<long long>(tile_row) * columns + tile_column] == 0;
    }
    /// Whether any result of a tile of 128 x 128 is made in double.
    __device__ __forceinline__ bool has_doubles(int row, int column, int m) const
    {
        const int last = min(column + 127, m - 1);
        for (int c = column / TILE_M; c <= last / TILE_M; ++c)
            if (!by_bytes(row / (128 * CLUSTER), c)) return true;
        return false;
    }
};

/// What is known before operands are split: [0] and [1] count the rows of tiles and the columns of tiles that have a
/// doubtful line, then a word for each says whether it has one.
template <int TILE_M, int CLUSTER>
struct Doubtful {
    int rows, columns;  // of tiles

    __device__ __forceinline__ Doubtful(int n, int m) : rows(ceil_div(n, 128 * CLUSTER)), columns(ceil_div(m, TILE_M)) {}
    __device__ __forceinline__ int words() const { return 2 + rows + columns; }
    __device__ __forceinline__ void add(int* known, int n, int line) const
    {
        const bool of_a = line < n;
        const int group = of_a ? line / (128 * CLUSTER) : rows + (line - n) / TILE_M;
        if (atomicExch(&known[2 + group], 1) == 0) atomicAdd(&known[of_a ? 0 : 1], 1);
    }
    /// Whether so few tiles have no doubtful line that all are made in double at once.
    __device__ __forceinline__ bool all_in_double(const int* known) const
    {
        return 4ll * (rows - known[0]) * (columns - known[1]) < static_cast<long long>(rows) * columns;
    }
};

}  // namespace

/// Sizes of 256 of k of 32 rows of A or columns of B: sizes[chunk][line].
/// Launch: block 256; grid (ceil(p / 256), ceil(n / 32) + ceil(m / 32)).
template <int TILE_M, int CLUSTER>
__global__ void __launch_bounds__(256)
double_always_sizes(const double* A, const double* B, Size* a_sizes, Size* b_sizes, int* doubtful, int n, int p, int m)
{
    wait_for_earlier_launches();
    if (blockIdx.x == 0 && blockIdx.y == 0)
        for (int i = threadIdx.x; i < Doubtful<TILE_M, CLUSTER>(n, m).words(); i += 256) doubtful[i] = 0;
    measure_lines(A, B, a_sizes, b_sizes, n, p, m);
}

/// Scaling exponents of all lines, the numbers that the test needs, and the doubtful lines: those that would fail the
/// test against random lines of the same size. Clears the plans of all tiles and the counters.
template <int TILE_M, int CLUSTER>
__global__ void __launch_bounds__(64)
double_always_exponents(const Size* a_sizes, const Size* b_sizes, int* exponents, Line* lines, int* doubtful, unsigned* plans,
                         unsigned long long* shares, int n, int p, int m)
{
    wait_for_earlier_launches();
    const Doubtful<TILE_M, CLUSTER> doubts(n, m);
    const int line = blockIdx.x * 64 + threadIdx.x;
    if (line == 0) {
        shares[0] = static_cast<unsigned long long>(n) * m;
        shares[1] = 0;
    }
    for (int tile = line; tile < doubts.rows * doubts.columns; tile += gridDim.x * 64) plans[tile] = 0;
    if (line >= n + m) return;
    const LineSize size = line < n ? line_size(a_sizes + line, n, p) : line_size(b_sizes + (line - n), m, p);
    const bool refused = size.exponent == REFUSED, zero = size.exponent == -REFUSED;
    const int kept = refused || zero ? 0 : kept_bits<MODULI>(size.squares);
    exponents[line] = refused ? REFUSED : zero ? 0 : kept - size.exponent;
    const double unit = PowerOfTwo::double_of(2 * (53 - kept)) / 12;
    const double norm = size.squares * PowerOfTwo::double_of(-2 * SIZE_BITS);
    const double sum = size.magnitudes * PowerOfTwo::double_of(-SIZE_BITS);
    const float infinite = __int_as_float(0x7f800000);
    lines[line] = refused ? Line{0, 0, infinite, infinite}
                  : zero  ? Line{0, 0, 0, 0}
                          : Line{size.exponent, kept, static_cast<float>(unit), static_cast<float>(norm)};
    const double met = sum * sum / p;  // what the sum of products of magnitudes is expected to be
    if (refused || (!zero && met * met < unit * norm)) doubts.add(doubtful, n, line);
}

/// Residues of both operands for all moduli, and CHECK_BITS of each element: a_residues[modulus][row][k],
/// a_bytes[row][k], and the same of B with its columns as rows.
/// Launch: block 256; grid (ceil(p / 128), ceil(n / 32) + ceil(m / 32)).
template <int TILE_M, int CLUSTER>
__global__ void __launch_bounds__(256)
double_always_split(const double* A, const double* B, const int* exponents, const Line* lines, const int* doubtful,
                    signed char* a_residues, signed char* b_residues, signed char* a_bytes, signed char* b_bytes, int n,
                    int p, int m)
{
    wait_for_earlier_launches();
    if (Doubtful<TILE_M, CLUSTER>(n, m).all_in_double(doubtful)) return;
    __shared__ Elements elements;
    const Part part = read_part(elements, A, B, n, p, m);
    signed char* const residues = part.of_a ? a_residues : b_residues;
    signed char* const bytes = part.of_a ? a_bytes : b_bytes;
    const int pitch = pitch_of(p), lane = threadIdx.x % 32, k = blockIdx.x * SPLIT_K + 4 * lane;
    if (k >= pitch) return;
    #pragma unroll 1
    for (int own = threadIdx.x / 32; own < part.count; own += 8) {
        const int line = part.first + own;
        const int e = exponents[part.of_a ? line : n + line];
        const PowerOfTwo power(e == REFUSED ? 0 : e);
        const double to_byte = PowerOfTwo::double_of(CHECK_BITS - lines[part.of_a ? line : n + line].bits);
        Whole<false> numbers[4];
        unsigned byte[4];
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            numbers[i] = Whole<false>::nearest(e == REFUSED ? 0 : elements.x[own][4 * lane + i], power);
            // An element that was rounded up may have 2^CHECK_BITS.
            byte[i] = min(__double2loint(__fma_rz(numbers[i].size(), to_byte, 0x1p52)), (1 << CHECK_BITS) - 1);
        }
        const long long at = static_cast<long long>(line) * pitch + k;
        *reinterpret_cast<unsigned*>(bytes + at) = word_of(byte[0], byte[1], byte[2], byte[3]);
        signed char* to = residues + at;
        #pragma unroll
        for (int t = 0; t < MODULI; ++t) {
            *reinterpret_cast<unsigned*>(to) = residues_of(numbers, moduli.of[t]);
            to += static_cast<long long>(part.of_a ? n : m) * pitch;
        }
    }
}

/// The product of the bytes, and a plan of each tile. Parameters as of multiply_bytes.
template <int TILE_M, int STAGES, int CLUSTER, int BAND>
__global__ void __launch_bounds__(384, 1)
double_always_check(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                    const Line* lines, const int* doubtful, unsigned* plans, int n, int p, int m)
{
    wait_for_earlier_launches();  // multiply_bytes waits too, but later
    if (const Doubtful<TILE_M, CLUSTER> doubts(n, m); doubts.all_in_double(doubtful)) {
        for (int tile = blockIdx.x * 384 + threadIdx.x; tile < doubts.rows * doubts.columns; tile += gridDim.x * 384)
            plans[tile] = 1;
        return;
    }
    multiply_bytes<TILE_M, STAGES, CLUSTER, BAND>(
        map_a, map_b, 1, n, p, m, AllTiles(), [&](const int (&sums)[TILE_M / 2], PlaceOfSums at) {
            const Line none = {-MOST_EXPONENTS, 0, 0, 0};  // beyond the edges nothing fails
            const Line rows[2] = {at.row < n ? lines[at.row] : none, at.row + 8 < n ? lines[at.row + 8] : none};
            bool passes = true;
            #pragma unroll
            for (int j = 0; j < TILE_M / 8; ++j)
                #pragma unroll
                for (int v = 0; v < 2; ++v) {
                    const int column = at.column + 8 * j + v;
                    const Line other = column < m ? lines[n + column] : none;
                    #pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        const float least = static_cast<float>(sums[4 * j + 2 * half + v]) / (1 << 2 * CHECK_BITS);
                        // False for NaN, which infinite norms of both lines give with zeros.
                        passes = passes && rows[half].exponent + other.exponent <= MOST_EXPONENTS &&
                                 least * least >= rows[half].unit * other.norm + other.unit * rows[half].norm;
                    }
                }
            if (!__all_sync(0xffffffffu, passes) && threadIdx.x % 32 == 0)
                atomicOr(&plans[static_cast<long long>(at.row / (128 * CLUSTER)) * ceil_div(m, TILE_M) +
                                at.column / TILE_M], 1u);
        });
}

/// The products of the residues in the tiles that pass. Parameters as of multiply_bytes.
template <int TILE_M, int STAGES, int CLUSTER, int BAND>
__global__ void __launch_bounds__(384, 1)
double_always(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, const unsigned* plans,
              signed char* c_residues, int n, int p, int m)
{
    const Plan<TILE_M, CLUSTER> plan(plans, m);
    multiply_bytes<TILE_M, STAGES, CLUSTER, BAND>(
        map_a, map_b, MODULI, n, p, m, [&](int row, int column) { return plan.by_bytes(row, column); },
        [&](const int (&sums)[TILE_M / 2], PlaceOfSums at) { write_residues_of_sums(sums, at, c_residues, n, m); });
}

/// C of its residues in the tiles that pass.
template <int TILE_M, int CLUSTER>
__global__ void __launch_bounds__(256)
double_always_join(const signed char* c_residues, const int* exponents, const unsigned* plans, double* C, int n, int m)
{
    wait_for_earlier_launches();
    const Plan<TILE_M, CLUSTER> plan(plans, m);
    join_rows<MODULI>(c_residues, C, n, m, [&](int line) { return exponents[line]; },
                      [&](int row, int column) { return plan.by_bytes(row / (128 * CLUSTER), column / TILE_M); });
}

namespace {

/// A walk over every `stride`-th tile of 128 x 128 from `first` on, of those that have results to be made in double, or
/// of all. Each is one segment.
template <int TILE_M, int CLUSTER>
struct ExactTiles {
    static constexpr int BAND = 8;
    Plan<TILE_M, CLUSTER> plan;
    int n, p, m, tile, stride;
    bool all;

    __device__ __forceinline__ ExactTiles(const unsigned* plans, int n, int p, int m, bool all, int first, int stride)
        : plan(plans, m), n(n), p(p), m(m), tile(first - stride), stride(stride), all(all)
    {
        advance();
    }
    __device__ __forceinline__ Segment next()
    {
        const Segment segment = {tile, 0, ceil_div(p, DOUBLES_K)};
        advance();
        return segment;
    }
    __device__ __forceinline__ bool done() const { return tile >= ceil_div(n, 128) * ceil_div(m, 128); }
    __device__ __forceinline__ Tile place(int index) const
    {
        return tile_in_bands(index, ceil_div(n, 128), ceil_div(m, 128), BAND);
    }
    __device__ __forceinline__ void advance()
    {
        do tile += stride;
        while (!done() && !all && !plan.has_doubles(place(tile).row * 128, place(tile).column * 128, m));
    }
};

}  // namespace

/// The tiles that do not pass, or all, in double on the tensor cores; counts their results.
/// @tparam ALIGNED_C  whether rows of C begin at multiples of 16 bytes
template <int TILE_M, int CLUSTER, bool ALIGNED_C>
__global__ void __launch_bounds__(384, 1)
double_always_exact(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, const unsigned* plans,
                    unsigned long long* shares, double* C, int n, int p, int m, int all)
{
    wait_for_earlier_launches();
    constexpr int STAGES = 6;
    using Tiles = ExactTiles<TILE_M, CLUSTER>;
    if (all && blockIdx.x == 0 && threadIdx.x == 0) shares[0] = 0, shares[1] = static_cast<unsigned long long>(n) * m;
    // The threads share the block's tiles.
    Tiles mine(plans, n, p, m, all, blockIdx.x + threadIdx.x * gridDim.x, 384 * gridDim.x);
    const bool found = !mine.done();
    while (!all && !mine.done()) {
        const Tile place = mine.place(mine.next().tile);
        const unsigned long long results = static_cast<unsigned long long>(min(128, n - place.row * 128)) *
                                           min(128, m - place.column * 128);
        atomicAdd(&shares[0], 0 - results);
        atomicAdd(&shares[1], results);
    }
    if (!__syncthreads_or(found)) return;
    multiply_doubles<128, 128, 64, 32, STAGES, Tiles::BAND, ALIGNED_C>(
        A, B, C, nullptr, n, p, m, [&] { return Tiles(plans, n, p, m, all, blockIdx.x, gridDim.x); });
}
