// C = A B with double's accuracy from exact products of bytes: past the double peak of the chip.
//
// The idea (K. Ozaki, Y. Uchino, T. Imamura, Ozaki scheme II, arXiv 2504.08009 and 2508.03984; the authors' program is
// GEMMul8): multiply each row of A and each column of B by a power of two and round to whole numbers of some 50 bits.
// Their product is a matrix of whole numbers, below P / 2 in size, and such a number follows from its remainders modulo
// 14 small coprime numbers whose product is P. A remainder fits a byte, and the remainders of a product of matrices come
// from the product of the remainders, which tensor cores compute exactly, at 30 times the rate of double. The only
// rounding is that of the operands, once, and that of the result.
//
//              modulo 256     A mod 256  x  B mod 256   -->  C mod 256
//   A, B  -->  modulo 255     A mod 255  x  B mod 255   -->  C mod 255   -->  C
//              ...                      ...                      ...
//
// How far to scale: sums of products must stay below P / 2. After Cauchy and Schwarz they do if the product of the norms
// of a row and a column does. A bound by the largest elements, as cuBLAS has it, allows two bits less of normal numbers:
// 14 moduli keep as much here as 15 there. With 14, the error of normal operands is below DGEMM's: 0.32 in the root mean
// square and 1.1 at most, of 2^-53 of the sum of magnitudes at 16384^3, where DGEMM has 0.45 and 1.7; with 13, 5 and 15.
//
// Steps, one launch each: sizes of 256 of k; exponents of all rows and columns; residues of both operands, read once, B
// turned; all products, with the residue of each sum in the last step, so that no 32-bit integers reach memory; C from its
// residues.
//
// Out of range: an element that is infinite or not a number, or that keeps less than 8 bits; or, if an eighth of the
// nonzeros of a row of A or a column of B, and at least four, keep less than 48 - log2 p bits, so that their rounding
// would weigh 32 times as much as the rounding bound of a sum of p doubles. Its row or column of C is NaN. Fewer small
// elements pass, since random operands have some: each is off by at most half a unit of the last of the bits that the
// largest of its row has (45 to 62), which shows only where the other operand is zero, or as small, at all of the larger
// ones; double_always.cu tests for that. Rows and columns may differ in size by as much as doubles can. Sums of more
// than 2^17 products do not fit 32 bits: the registry refuses them.
//
// What it costs at 8192^3 in ms on an H200: sizes 0.27, exponents 0.02, splitting 0.83, 14 products of bytes 9.1, at
// 1,690 TOPS, joining 0.58: 11.4 alone, of which a DGEMM takes 18, and 12.7 under load, where power limits the products.
// In turns with cuBLAS 13.10's emulation of the same bits, alone and under load: 1.13 and 1.10 at 8192^3, 1.15 and 1.13
// at 4096^3, 1.18 and 1.12 at 16384^3; 2048^3 takes as long as a DGEMM. Sizes and splitting move 4.0 and 3.5 TB/s of the
// memory's 4.8; joining is limited by the double units, with 83 operations per result.
// What made it faster than 1,380 TOPS and 4.2 ms for the rest: residues of sums by a dp4a and three operations in floats
// instead of the high half of a product (10.0 -> 9.1 ms), 16 bytes per store of residues in an order of columns of their own;
// splitting by doubles' units instead of integers, and through shared memory, so that rows of B's residues are written
// whole (columns of 16 bytes per thread took 2.4 ms); norms instead of one more product. Memory beside A, B and C: 3 *
// 14 bytes per element.
//
// A is n x p, B is p x m, C is n x m, all row-major. In workspaces rows of bytes have a multiple of 16.
// Launch: product: see int8_product.cuh. The others: block 256 or 64, grids as in the registry.
#include "double_parts.cuh"
#include "launches.cuh"

/// Sizes of 256 of k of 32 rows of A or columns of B: sizes[chunk][line].
/// Launch: block 256; grid (ceil(p / 256), ceil(n / 32) + ceil(m / 32)).
__global__ void __launch_bounds__(256)
double_from_int8_sizes(const double* A, const double* B, Size* a_sizes, Size* b_sizes, int n, int p, int m)
{
    wait_for_earlier_launches();
    measure_lines(A, B, a_sizes, b_sizes, n, p, m);
}

/// Exponents by which all rows of A and columns of B are multiplied, from the sizes of their chunks. Clears what is
/// counted later.
/// Launch: block 64; grid ceil((n + m) / 64).
template <int MODULI>
__global__ void __launch_bounds__(64)
double_from_int8_exponents(const Size* a_sizes, const Size* b_sizes, int* exponents, Count* counts, int n, int p, int m)
{
    wait_for_earlier_launches();
    const int line = blockIdx.x * 64 + threadIdx.x;
    if (line >= n + m) return;
    const LineSize size = line < n ? line_size(a_sizes + line, n, p) : line_size(b_sizes + (line - n), m, p);
    counts[line] = 0;
    exponents[line] = size.exponent == REFUSED    ? REFUSED
                      : size.exponent == -REFUSED ? 0
                                                  : kept_bits<MODULI>(size.squares) - size.exponent;
}

/// Residues of both operands for all moduli: a_residues[modulus][row][k], b_residues[modulus][column][k]; counts the
/// elements of each line that keep few bits.
/// Launch: block 256; grid (ceil(p / 128), ceil(n / 32) + ceil(m / 32)).
template <int MODULI>
__global__ void __launch_bounds__(256)
double_from_int8_split(const double* A, const double* B, const int* exponents, Count* counts, signed char* a_residues,
                       signed char* b_residues, int n, int p, int m)
{
    wait_for_earlier_launches();
    __shared__ Elements elements;
    const Part part = read_part(elements, A, B, n, p, m);
    signed char* const residues = part.of_a ? a_residues : b_residues;
    const int pitch = pitch_of(p), lane = threadIdx.x % 32, k = blockIdx.x * SPLIT_K + 4 * lane;
    #pragma unroll 1
    for (int own = threadIdx.x / 32; own < part.count; own += 8) {
        const int line = part.first + own;
        const int e = exponents[part.of_a ? line : n + line];
        using Number = Whole<(split_bits(MODULI) > 53)>;
        const PowerOfTwo power(e == REFUSED ? 0 : e);
        Number numbers[4];
        Kept kept{few_bits(p)};
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const double x = e == REFUSED ? 0 : elements.x[own][4 * lane + i];
            numbers[i] = Number::nearest(x, power);
            kept.add(x, numbers[i]);
        }
        kept.counts = __reduce_add_sync(0xffffffffu, kept.counts);
        if (lane == 0) atomicAdd(&counts[part.of_a ? line : n + line], kept.count());
        if (k >= pitch) continue;
        signed char* to = residues + static_cast<long long>(line) * pitch + k;
        #pragma unroll
        for (int t = 0; t < MODULI; ++t) {
            *reinterpret_cast<unsigned*>(to) = residues_of(numbers, moduli.of[t]);
            to += static_cast<long long>(part.of_a ? n : m) * pitch;
        }
    }
}

/// The products of the residues for all moduli; of each sum the residue is kept: see write_residues_of_sums.
/// Parameters as of multiply_bytes.
template <int MODULI, int TILE_M, int STAGES, int CLUSTER, int BAND>
__global__ void __launch_bounds__(384, 1)
double_from_int8(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                 signed char* c_residues, int n, int p, int m)
{
    multiply_bytes<TILE_M, STAGES, CLUSTER, BAND>(
        map_a, map_b, MODULI, n, p, m, AllTiles(), [&](const int (&sums)[TILE_M / 2], PlaceOfSums at) {
            write_residues_of_sums(sums, at, c_residues, n, m);
        });
}

/// C from its residues and the exponents of its rows and columns.
/// Launch: block 256; grid (ceil(m / 1024), ceil(n / 8)).
template <int MODULI>
__global__ void __launch_bounds__(256)
double_from_int8_join(const signed char* c_residues, const int* exponents, const Count* counts, double* C, int n, int m)
{
    wait_for_earlier_launches();
    const auto exponent = [&](int line) { return is_out_of_range(counts[line]) ? REFUSED : exponents[line]; };
    join_rows<MODULI>(c_residues, C, n, m, exponent, AllTiles());
}
