// C = A B in float, from short products wherever their accuracy is guaranteed, and on the CUDA cores elsewhere.
//
// The idea: float_from_half is fast, but 22 bits of the largest of 64 elements are not 24 bits of each, and an infinity,
// or an element far larger than its neighbours, makes it NaN. So the device looks at the operands while it splits them,
// and decides, for each 64 of k of a tile of C, by which scheme they are multiplied:
//
//      all rows of A and columns of B there are even          three products of halves     22 bits
//      some are not: zeros beside numbers, wide ranges        six products of bfloat16     24 bits
//      not finite, products past 2^124, below 2^-110          the whole tile in float on the CUDA cores, as SGEMM
//
// Even: more than half of the 64 elements are at least 1/32 of the largest (or all are zero). Then, in every row and
// column that meet, at one k at least both elements are that large, so that what halves lose of the small ones, 2^-39 of
// the largest, is less than 2^-22 of the sum of magnitudes: a certainty, not an average. Random numbers are even, a
// sparse matrix, a permutation, a column 10^6 times the others are not. Should a result overflow all the same, its tile
// is made in float, too. Sums of up to 32 products are all made in float: there 22 bits exceed float's rounding bound.
//
//      split    A, B ──► halves and factors where even, else bfloat16; what is known of 128 rows or 64 columns
//      decide   what meets, or stands in a tile with, what is not even ──► bfloat16, too; the plan of each tile of C
//      product  the plan, tile by tile, on tensor cores
//      exact    the tiles that the plan, or an overflow, leaves
//
// No launch depends on what the host knows but the shape. What it costs beside float_from_half, if all is even: two
// launches that find nothing to do, and a word per tile and 32 blocks of k.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: split: block 256; grid (ceil(p / 64), ceil(n / 128) + ceil(m / 128)). decide: the same, and as many rows more as
//         all tiles of C need, a block each. product: as float_from_half, CLUSTER 1. exact: block 384; grid
//         (ceil(m / EXACT_M), ceil(n / 128)), as transposing_ring. Only exact if p <= 32.
#include "async_copy.cuh"
#include "launches.cuh"
#include "parts_by_block.cuh"
#include "ring_product.cuh"
#include "split_by_need.cuh"
#include "transposed_copy.cuh"

/// Splits 64 of k of 128 rows of A, or of 128 columns of B: into halves where all rows, or all columns of a group, are
/// even, else into bfloat16. Words of what is known: for each 64 of k, of 128 rows of A, and of 64 columns of B.
__global__ void __launch_bounds__(256)
float_always_split(const float* A, const float* B, unsigned short* a_halves, unsigned short* b_halves,
                   unsigned short* a_wide, unsigned short* b_wide, float* a_scales, float* b_scales, unsigned* a_known,
                   unsigned* b_known, unsigned long long* shares, int n, int p, int m)
{
    wait_for_earlier_launches();
    __shared__ uint4 largest_of[8][32];
    __shared__ unsigned large_of[8][32];
    __shared__ unsigned exponent_of_group, known_of_group;
    const Share mine(n);
    const int count = min(SPLIT_K, p - mine.k_block * SPLIT_K);
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x < 3) shares[threadIdx.x] = 0;
    if (threadIdx.x == 0) exponent_of_group = known_of_group = 0;

    float4 values[ROUNDS];
    bool tiny = false;
    #pragma unroll
    for (int i = 0; i < ROUNDS; ++i) {
        values[i] = mine.read(A, B, i, n, p, m);
        tiny = tiny || is_tiny(values[i].x) || is_tiny(values[i].y) || is_tiny(values[i].z) || is_tiny(values[i].w);
    }

    if (mine.of_a) {
        unsigned exponents[ROUNDS];
        unsigned known = tiny ? TINY : 0, most = 0;
        #pragma unroll
        for (int i = 0; i < ROUNDS; ++i) {
            const float4 v = values[i];
            unsigned largest = max(max(magnitude(v.x), magnitude(v.y)), max(magnitude(v.z), magnitude(v.w)));
            #pragma unroll
            for (int distance = 1; distance < 16; distance *= 2)
                largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
            exponents[i] = largest >> 23;
            most = max(most, exponents[i]);
            int large = is_large(v.x, exponents[i]) + is_large(v.y, exponents[i]) + is_large(v.z, exponents[i]) +
                        is_large(v.w, exponents[i]);
            #pragma unroll
            for (int distance = 1; distance < 16; distance *= 2)
                large += __shfl_xor_sync(0xffffffffu, large, distance);
            if (!is_even(largest, large, count)) known |= UNEVEN;
        }
        __syncthreads();  // the group's words are zero
        if (mine.lane % 16 == 0) atomicMax(&exponent_of_group, most);
        if (known) atomicOr(&known_of_group, known);
        __syncthreads();
        known = known_of_group;
        if (threadIdx.x == 0)
            a_known[static_cast<long long>(mine.k_block) * ceil_div(n, SPLIT_COUNT) + blockIdx.y] =
                known | exponent_of_group;
        #pragma unroll
        for (int i = 0; i < ROUNDS; ++i) {
            const int row = mine.first + 2 * i;
            if (row >= n) continue;
            if (known & UNEVEN) {
                write_bfloat16s(values[i], mine.place(a_wide, nullptr, i, 3, n, p, m), SPLIT_K);
                continue;
            }
            const float scale = factor(exponents[i]);
            write_halves(values[i], make_float4(scale, scale, scale, scale), mine.place(a_halves, nullptr, i, 2, n, p, m),
                         SPLIT_K);
            if (mine.lane % 16 == 0)
                a_scales[static_cast<long long>(mine.k_block) * scale_pitch(n) + place_of_row(row)] =
                    inverse_factor(exponents[i]);
        }
        return;
    }

    uint4 largest = make_uint4(0, 0, 0, 0);
    #pragma unroll
    for (int i = 0; i < ROUNDS; ++i) {
        largest.x = max(largest.x, magnitude(values[i].x));
        largest.y = max(largest.y, magnitude(values[i].y));
        largest.z = max(largest.z, magnitude(values[i].z));
        largest.w = max(largest.w, magnitude(values[i].w));
    }
    largest_of[mine.warp][mine.lane] = largest;
    tiny = __syncthreads_or(tiny);
    #pragma unroll
    for (int w = 0; w < 8; ++w) {
        const uint4 other = largest_of[w][mine.lane];
        largest.x = max(largest.x, other.x);
        largest.y = max(largest.y, other.y);
        largest.z = max(largest.z, other.z);
        largest.w = max(largest.w, other.w);
    }
    unsigned large = 0;  // of four columns, a byte each
    #pragma unroll
    for (int i = 0; i < ROUNDS; ++i)
        large += is_large(values[i].x, largest.x >> 23) + (is_large(values[i].y, largest.y >> 23) << 8) +
                 (is_large(values[i].z, largest.z >> 23) << 16) + (is_large(values[i].w, largest.w >> 23) << 24);
    large_of[mine.warp][mine.lane] = large;
    __syncthreads();
    large = 0;
    #pragma unroll
    for (int w = 0; w < 8; ++w) large += large_of[w][mine.lane];
    const bool even = is_even(largest.x, large & 255, count) && is_even(largest.y, large >> 8 & 255, count) &&
                      is_even(largest.z, large >> 16 & 255, count) && is_even(largest.w, large >> 24, count);
    const unsigned uneven_lanes = __ballot_sync(0xffffffffu, !even);
    const bool uneven = uneven_lanes >> (mine.lane & 16) & 0xffff;
    unsigned most = max(max(largest.x, largest.y), max(largest.z, largest.w)) >> 23;
    #pragma unroll
    for (int distance = 1; distance < 16; distance *= 2)
        most = max(most, __shfl_xor_sync(0xffffffffu, most, distance));
    const int group = mine.first / GROUP, groups = ceil_div(m, GROUP);
    if (mine.warp == 0 && mine.lane % 16 == 0 && group < groups)
        b_known[static_cast<long long>(mine.k_block) * groups + group] =
            most | (uneven ? UNEVEN : 0) | (tiny ? TINY : 0);
    const float4 scale = make_float4(factor(largest.x >> 23), factor(largest.y >> 23), factor(largest.z >> 23),
                                     factor(largest.w >> 23));
    #pragma unroll
    for (int i = 0; i < ROUNDS; ++i) {
        unsigned short* const to = mine.place(nullptr, uneven ? b_wide : b_halves, i, uneven ? 3 : 2, n, p, m);
        if (to && uneven) write_bfloat16s(values[i], to, mine.next_after(m));
        if (to && !uneven) write_halves(values[i], scale, to, mine.next_after(m));
    }
    if (mine.warp == 0 && !uneven) {
        const unsigned exponents[4] = {largest.x >> 23, largest.y >> 23, largest.z >> 23, largest.w >> 23};
        #pragma unroll
        for (int j = 0; j < 4; ++j)
            if (mine.first + j < m)
                b_scales[static_cast<long long>(mine.k_block) * scale_pitch(m) + place_of_column(mine.first + j)] =
                    inverse_factor(exponents[j]);
    }
}

/// Splits what the first split has as halves and what meets something that is not even, or is in a tile with it, into
/// bfloat16, too; the last rows of blocks plan a tile of C each.
/// @tparam TILE_M  columns of C per tile
template <int TILE_M>
__global__ void __launch_bounds__(256)
float_always_decide(const float* A, const float* B, unsigned short* a_wide, unsigned short* b_wide,
                    const unsigned* a_known, const unsigned* b_known, unsigned* plans, int n, int p, int m)
{
    wait_for_earlier_launches();
    const int groups_a = ceil_div(n, SPLIT_COUNT), groups_b = ceil_div(m, GROUP);
    const int blocks_k = gridDim.x, splits = groups_a + ceil_div(m, SPLIT_COUNT);
    if (blockIdx.y < splits) {
        const Share mine(n);
        const unsigned* const own = (mine.of_a ? a_known : b_known) +
                                    static_cast<long long>(mine.k_block) * (mine.of_a ? groups_a : groups_b);
        const unsigned* const others = (mine.of_a ? b_known : a_known) +
                                       static_cast<long long>(mine.k_block) * (mine.of_a ? groups_b : groups_a);
        const int group = mine.of_a ? blockIdx.y : mine.first / GROUP;
        bool met = false;
        for (int i = threadIdx.x; i < (mine.of_a ? groups_b : groups_a); i += 256) met = met || others[i] & UNEVEN;
        if (!mine.of_a) {  // all columns of a tile have one scheme
            const int first_of_tile = group - group % (TILE_M / GROUP);
            #pragma unroll
            for (int i = first_of_tile; i < first_of_tile + TILE_M / GROUP; ++i)
                met = met || (i < groups_b && own[i] & UNEVEN);
        }
        if (!__syncthreads_or(met) || group >= (mine.of_a ? groups_a : groups_b) || own[group] & UNEVEN) return;
        #pragma unroll
        for (int i = 0; i < ROUNDS; ++i)
            if (unsigned short* const to = mine.place(a_wide, b_wide, i, 3, n, p, m))
                write_bfloat16s(mine.read(A, B, i, n, p, m), to, mine.next_after(m));
        return;
    }

    const int tile_columns = ceil_div(m, TILE_M);
    const int tile = (blockIdx.y - splits) * gridDim.x + blockIdx.x;
    if (tile >= groups_a * tile_columns) return;
    const int row = tile / tile_columns, first_group = tile % tile_columns * (TILE_M / GROUP);
    unsigned* const plan = plans + static_cast<long long>(tile) * plan_words(p);
    bool exact = false;
    for (int first = 0; first < blocks_k; first += 256) {
        const int k = first + threadIdx.x;
        bool wide = false;
        if (k < blocks_k) {
            const unsigned a = a_known[static_cast<long long>(k) * groups_a + row];
            unsigned known = a, most = 0;
            #pragma unroll
            for (int i = 0; i < TILE_M / GROUP; ++i) {
                if (first_group + i >= groups_b) continue;
                const unsigned b = b_known[static_cast<long long>(k) * groups_b + first_group + i];
                known |= b;
                most = max(most, b & 255);
            }
            wide = known & UNEVEN;
            exact = exact || (a & 255) == 255 || most == 255 || (a & 255) + most >= PRODUCT || (wide && known & TINY);
        }
        const unsigned word = __ballot_sync(0xffffffffu, wide);
        if (threadIdx.x % 32 == 0 && k < blocks_k) plan[1 + k / 32] = word;
    }
    exact = __syncthreads_or(exact);
    if (threadIdx.x == 0) plan[0] = exact ? PLANNED_EXACT : 0;
}

/// The tiles that are planned so, by three products of halves or six of bfloat16 for each 64 of k. A tile in which a
/// result is not finite is planned for `float_always_exact`.
/// @tparam TILE_M  columns of C per block: 64, 128 or 192
/// @tparam STAGES  of the ring that TMA fills
/// @tparam BAND    rows of tiles per band, for the L2 cache
template <int TILE_M, int STAGES, int BAND>
__global__ void __launch_bounds__(384, 1)
float_always(const __grid_constant__ TensorMap a_halves, const __grid_constant__ TensorMap b_halves,
             const __grid_constant__ TensorMap a_wide, const __grid_constant__ TensorMap b_wide, const float* a_scales,
             const float* b_scales, unsigned* plans, unsigned long long* shares, float* C, int n, int p, int m)
{
    static_assert(TILE_M == 64 || TILE_M == 128 || TILE_M == 192, "sums and totals take TILE_M registers per thread");
    static_assert(STAGES > 3, "the parts of 64 of k are in use together");
    using Layout = PartsLayout<TILE_M, STAGES, true>;
    extern __shared__ unsigned char raw[];
    unsigned char* const shared = raw + ((1024 - (shared_address(raw) & 1023)) & 1023);
    const unsigned base = shared_address(shared);
    const unsigned full = base + Layout::BARRIERS_AT;
    const unsigned empty = full + 8 * STAGES;
    unsigned char* const slots = shared + STAGES * Layout::STAGE_BYTES;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            make_barrier(full + 8 * s, 1);
            make_barrier(empty + 8 * s, 8);
        }
        publish_barriers();
    }
    __syncthreads();
    wait_for_earlier_launches();

    const int blocks_k = ceil_div(p, PROMOTION);
    const int tile_rows = ceil_div(n, 128), tile_columns = ceil_div(m, TILE_M);
    const int tiles = tile_rows * tile_columns;

    if (threadIdx.x < 128) {
        give_registers<40>();
        if (threadIdx.x == 0) {
            prefetch_map(a_halves);
            prefetch_map(b_halves);
            Place<STAGES> place;
            int slot = 0;
            for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
                const Tile tile = tile_in_bands(index, tile_rows, tile_columns, BAND);
                const unsigned* const plan =
                    plans + (static_cast<long long>(tile.row) * tile_columns + tile.column) * plan_words(p);
                if (plan[0] & PLANNED_EXACT) continue;
                const int row = tile.row * 128, column = tile.column * TILE_M;
                unsigned wide = 0, coming = plan[1];
                int wide_blocks = 0;
                for (int k = 0; k < blocks_k; ++k) {
                    if (k % 32 == 0) {
                        wide = coming;
                        wide_blocks += __popc(wide);
                        coming = k + 32 < blocks_k ? plan[2 + k / 32] : 0;
                    }
                    if (wide >> k % 32 & 1) {
                        fetch_block<3, TILE_M, STAGES>(a_wide, b_wide, place, base, full, empty, row, column, k, 0);
                        continue;
                    }
                    const unsigned barrier = full + 8 * place.stage;
                    fetch_block<2, TILE_M, STAGES>(a_halves, b_halves, place, base, full, empty, row, column, k,
                                                   Layout::SLOT_BYTES);
                    const unsigned slot_to = shared_address(slots) + slot * Layout::SLOT_BYTES;
                    load_run(slot_to, a_scales + static_cast<long long>(k) * scale_pitch(n) + row, 128 * 4, barrier);
                    load_run(slot_to + 128 * 4, b_scales + static_cast<long long>(k) * scale_pitch(m) + column,
                             TILE_M * 4, barrier);
                    slot = slot + 1 == Layout::SLOTS ? 0 : slot + 1;
                }
                const unsigned long long results = static_cast<unsigned long long>(min(128, n - row)) *
                                                   min(TILE_M, m - column);
                atomicAdd(shares, results * (blocks_k - wide_blocks));
                atomicAdd(shares + 1, results * wide_blocks);
            }
        }
        return;
    }

    take_registers<232>();
    const int consumer = warp_group() - 1;
    const int lane = threadIdx.x % 32;
    // Within the tile; and the row 8 below, and the next column, in each 8 columns.
    const int own_row = 64 * consumer + threadIdx.x % 128 / 32 * 16 + lane / 4;
    const int own_column = 2 * (lane % 4);
    Place<STAGES> place;
    int slot = 0;
    float sums[TILE_M / 2] = {};
    float total[TILE_M / 2];
    if (consumer == 1) named_arrive(1, 256);  // the token is first with consumer 0

    for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
        const Tile tile = tile_in_bands(index, tile_rows, tile_columns, BAND);
        unsigned* const plan =
            plans + (static_cast<long long>(tile.row) * tile_columns + tile.column) * plan_words(p);
        if (uniform(plan[0]) & PLANNED_EXACT) continue;
        #pragma unroll
        for (int i = 0; i < TILE_M / 2; ++i) total[i] = 0;
        unsigned wide = 0, coming = plan[1];
        for (int k = 0; k < blocks_k; ++k) {
            if (k % 32 == 0) {
                wide = uniform(coming);
                coming = k + 32 < blocks_k ? plan[2 + k / 32] : 0;
            }
            if (wide >> k % 32 & 1) {
                multiply_block<__nv_bfloat16, 3, TILE_M, STAGES>(sums, place, base, full, empty, consumer, lane);
                #pragma unroll
                for (int i = 0; i < TILE_M / 2; ++i) total[i] += sums[i];
                continue;
            }
            multiply_block<__half, 2, TILE_M, STAGES>(sums, place, base, full, empty, consumer, lane);
            const float* const scales = reinterpret_cast<const float*>(slots + slot * Layout::SLOT_BYTES);
            const float* const b_scale = scales + 128 + 4 * (lane % 4);
            const float2 row_scale =
                *reinterpret_cast<const float2*>(scales + (own_row & ~15) + 2 * (lane / 4));
            #pragma unroll
            for (int j = 0; j < TILE_M / 16; ++j) {
                const float4 scale = *reinterpret_cast<const float4*>(b_scale + 16 * j);
                const float of_column[4] = {scale.x, scale.y, scale.z, scale.w};
                // 2 columns of the upper row, 2 of the lower, and again 8 columns on.
                #pragma unroll
                for (int i = 0; i < 8; ++i)
                    total[8 * j + i] = fmaf(sums[8 * j + i] * of_column[i / 4 * 2 + i % 2],
                                            i / 2 % 2 == 0 ? row_scale.x : row_scale.y, total[8 * j + i]);
            }
            // By the rules, only a fence orders these loads before the copy that will overwrite the slot.
            show_to_async_proxy();
            slot = slot + 1 == Layout::SLOTS ? 0 : slot + 1;
        }

        const int row = tile.row * 128 + own_row;
        const int first_column = tile.column * TILE_M + own_column;
        bool finite = true;
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (row + 8 * half >= n) continue;
            float* const to = C + static_cast<long long>(row + 8 * half) * m + first_column;
            if (m % 2 == 0) {
                #pragma unroll
                for (int j = 0; j < TILE_M / 8; ++j) {
                    if (first_column + 8 * j >= m) continue;
                    const float2 pair = make_float2(total[4 * j + 2 * half], total[4 * j + 2 * half + 1]);
                    finite = finite && max(magnitude(pair.x), magnitude(pair.y)) < INFINITE;
                    *reinterpret_cast<float2*>(to + 8 * j) = pair;
                }
            } else {
                #pragma unroll
                for (int i = 0; i < TILE_M / 4; ++i) {
                    if (first_column + i / 2 * 8 + i % 2 >= m) continue;
                    const float one = total[i / 2 * 4 + 2 * half + i % 2];
                    finite = finite && magnitude(one) < INFINITE;
                    to[i / 2 * 8 + i % 2] = one;
                }
            }
        }
        if (!finite) atomicOr(plan, OVERFLOWED);
    }
    if (consumer == 0) named_sync(1, 256);  // take the token that was passed last
}

/// The tiles that are planned so, or all, in float on the CUDA cores: as transposing_ring.
/// @tparam TILE_M     columns of a planned tile
/// @tparam EXACT_M    columns of C per block: 64, 128, 192 or 256
/// @tparam STAGES     of the ring
/// @tparam ALIGNED_A  whether rows of A begin at multiples of 16 bytes
/// @tparam ALIGNED_C  whether rows of B and C do; else threads copy B, since there is no tensor map of it
template <int TILE_M, int EXACT_M, int STAGES, bool ALIGNED_A, bool ALIGNED_C>
__global__ void __launch_bounds__(384, 1)
float_always_exact(const float* A, const float* B, const __grid_constant__ TensorMap b_map, float* C,
                   const unsigned* plans, unsigned long long* shares, int n, int p, int m, int all)
{
    wait_for_earlier_launches();
    constexpr int TILE_N = 128, TILE_K = 16;
    using Product = RingProduct<TILE_N, EXACT_M, TILE_K, 7>;
    using Copy = TransposedCopy<TILE_N, TILE_K, ALIGNED_A>;
    extern __shared__ unsigned char shared_memory[];
    const int first_row = blockIdx.y * TILE_N;
    const int first_col = blockIdx.x * EXACT_M;
    const int last_col = min(first_col + EXACT_M, m) - 1;
    const int tile_columns = ceil_div(m, TILE_M);
    bool wanted = all;
    for (int column = first_col / TILE_M; column <= last_col / TILE_M && !wanted; ++column)
        wanted = plans[(static_cast<long long>(blockIdx.y) * tile_columns + column) * plan_words(p)];
    if (!wanted) return;
    Ring<STAGES, Product::A_BYTES + Product::B_BYTES> ring(shared_memory);

    const int steps = (p + TILE_K - 1) / TILE_K;
    if (threadIdx.x == 0) {
        ring.make(Copy::THREADS, Product::THREADS);
        const unsigned long long results = static_cast<unsigned long long>(min(TILE_N, n - first_row)) *
                                           (last_col + 1 - first_col);
        if (!all) atomicAdd(shares + 2, results * ceil_div(p, PROMOTION));
        else if (blockIdx.x == 0 && blockIdx.y == 0) shares[0] = shares[1] = 0, shares[2] = 1;
    }
    __syncthreads();  // the barriers exist

    if (threadIdx.x >= Product::THREADS) {
        give_registers<56>();
        Copy copy;
        copy.fetch(A, first_row, 0, n, p);
        for (int step = 0; step < steps; ++step) {
            wait_for_without_loop(ring.empty(), ring.parity ^ 1);
            if (ALIGNED_C) {
                if (threadIdx.x == Product::THREADS) {
                    expect(ring.full(), Product::B_BYTES);
                    load_box(ring.tile() + Product::A_BYTES, b_map, step * TILE_K, first_col, ring.full());
                }
                copy.put(ring.tile());
            } else {
                auto* const to = reinterpret_cast<float*>(shared_memory + (ring.tile() - shared_address(shared_memory)) +
                                                          Product::A_BYTES);
                for (int at = threadIdx.x % 128 * 4; at < TILE_K * EXACT_M; at += 128 * 4)
                    copy_within_async(to + at, B, step * TILE_K + at / EXACT_M, first_col + at % EXACT_M, p, m, false);
                close_copy_group();
                copy.put(ring.tile());
                wait_for_copy_groups<0>();
            }
            arrive(ring.full());  // each thread for the rows that it stored
            ring.next();
            copy.fetch(A, first_row, (step + 1) * TILE_K, n, p);  // zeros after the last step
        }
        wait_for_without_loop(ring.empty(), ring.parity ^ 1);
        arrive(ring.full());  // the stage after the last
    } else {
        take_registers<224>();
        Product product(threadIdx.x);
        product.clear();
        product.begin(ring);
        for (int step = 0; step < steps; ++step) product.step(ring);
        product.template store<ALIGNED_C>(C, first_row, first_col, n, m);
    }
}
