// The product of matrices of floats that are kept as sums of 2-byte parts: what `float_from_half` and `float_from_bf16`
// share. Each of them says in its own file how it splits a float, and why.
//
// A block of 3 warp groups computes tiles of 128 x TILE_M results. Warp group 0 only fetches: one thread keeps a ring
// of STAGES stages filled by TMA; a stage holds one part of 64 of k of A and of B. Warp groups 1 and 2 multiply 64 rows
// each.
//
//            columns of C
//         +----- TILE_M -----+            ring:  [low part of A | of B] [high part of A | of B] [low ...
//   rows  | 64 x TILE_M: warp group 1            a stage is free again after its last product
//         +------------------+
//         | 64 x TILE_M: warp group 2            per thread: TILE_M / 2 sums (tensor cores),
//         +------------------+                               TILE_M / 2 totals (CUDA cores)
//
// A tensor core adds with about 25 bits and truncates. So it only ever sums 64 of k, smallest products first; then the
// sums are added ("promoted") to a total in float, rounded to nearest. Sums and totals take TILE_M registers per
// thread, so TILE_M is at most 192. While one group adds, the other keeps the tensor cores busy: a token (two named
// barriers) goes from group to group, and only its owner starts products. It is passed on before the last two are
// started. (Without the token 2 % slower at 8192^3; passed on four products early 2 % slower, none early the same.)
//
// Two blocks of a cluster work one below the other and need the same B: each fetches half of its panels for both
// (multicast). On an H200 that gains nothing measurable (within 1 %): the L2 cache delivers what single blocks ask for.
//
// What the machine code shows, 192 columns, two parts: a loop of 330 instructions per 64 of k, of them 12 HGMMA (64 x
// 192 x 16), 96 FMUL and 96 FFMA to scale and promote, 13 LDS; 168 registers at the launch, 232 (223 in use) after
// setmaxnreg, no spills, no wait between products. Three parts: 287 instructions, 24 HGMMA, 96 FADD. Shared memory is
// the narrowest place by arithmetic (not measured): products read 85 bytes per cycle and TMA writes 36, of 128.
//
// In memory a row of A's parts holds, for each 64 of k, the 64 first parts, then the 64 second parts, ...; the rows of
// B's parts are arranged in the same way. Unused k are zero.
#pragma once
#include "barriers.cuh"
#include "cluster.cuh"
#include "launches.cuh"
#include "ring.cuh"
#include "shared_memory.cuh"
#include "tensor_copy.cuh"
#include "tile_order.cuh"
#include "warp_groups.cuh"
#include "wgmma.cuh"

constexpr int PROMOTION = 64;  // of k that a tensor core may sum; 128 bytes of a part, the width of the swizzle

/// Elements from one row of scales to the next (a row: the same 64 of k): tiles may read past the last.
__host__ __device__ constexpr int scale_pitch(int count) { return 256 * ceil_div(count, 256) + 256; }

/// Where the scale of a row of A, or of a column of B, lies: those that one thread needs are neighbours, so that it
/// loads 2 rows or 4 columns at once. (wgmma gives it rows r and r + 8, and columns c, c + 1, c + 8, c + 9 of each 16.)
__device__ __forceinline__ int place_of_row(int row) { return (row & ~15) | (row & 7) << 1 | (row >> 3 & 1); }
__device__ __forceinline__ int place_of_column(int column)
{
    return (column & ~15) | (column & 6) << 1 | (column >> 3 & 1) << 1 | (column & 1);
}

template <int TILE_M, int STAGES, bool SCALED>
struct PartsLayout {
    static constexpr int A_BYTES = 128 * PROMOTION * 2;
    static constexpr int PANEL_BYTES = PROMOTION * 128;  // 64 columns
    static constexpr int STAGE_BYTES = A_BYTES + TILE_M / 64 * PANEL_BYTES;
    static constexpr int SLOTS = STAGES + 1;  // of scales: a slot outlives its stages by one promotion
    static constexpr int SLOT_BYTES = SCALED ? (128 + TILE_M) * 4 : 0;
    static constexpr int BARRIERS_AT = STAGES * STAGE_BYTES + SLOTS * SLOT_BYTES;
};

/// Which parts (0 the highest) are multiplied, the smallest products first, and in which order the parts are fetched.
/// 2 parts make 3 products, 3 parts make 6.
template <int PARTS>
struct Products;

template <>
struct Products<2> {  // 1 0, 0 1, 0 0
    static constexpr int COUNT = 3;
    static __device__ constexpr int fetched(int i) { return 1 - i; }
    static __device__ constexpr int a(int i) { return i == 0 ? 1 : 0; }
    static __device__ constexpr int b(int i) { return i == 1 ? 1 : 0; }
    static __device__ constexpr bool last_of_a_part(int i) { return i == 1 || i == 2; }
};

template <>
struct Products<3> {  // 2 0, 0 2, 1 1, 1 0, 0 1, 0 0
    static constexpr int COUNT = 6;
    static __device__ constexpr int fetched(int i) { return i == 0 ? 2 : i == 1 ? 0 : 1; }
    static __device__ constexpr int a(int i) { return i == 0 ? 2 : i == 2 || i == 3 ? 1 : 0; }
    static __device__ constexpr int b(int i) { return i == 1 ? 2 : i == 2 || i == 4 ? 1 : 0; }
    static __device__ constexpr bool last_of_a_part(int i) { return i == 1 || i == 4 || i == 5; }
};

/// Four neighbours of a row of floats, in one load if all rows are aligned (`whole`); zeros past its end.
__device__ __forceinline__ float4 read_four(const float* row, int start, int count, bool whole)
{
    if (whole && start + 3 < count) return *reinterpret_cast<const float4*>(row + start);
    float4 value = make_float4(0, 0, 0, 0);
    if (start < count) value.x = row[start];
    if (start + 1 < count) value.y = row[start + 1];
    if (start + 2 < count) value.z = row[start + 2];
    if (start + 3 < count) value.w = row[start + 3];
    return value;
}

/// Signals, once per warp, to the fetching threads of all blocks that write to a stage that it may be overwritten.
template <int CLUSTER>
__device__ __forceinline__ void release(unsigned barrier, int lane)
{
    if (lane < CLUSTER) {
        if constexpr (CLUSTER == 1) arrive(barrier);
        else arrive_in_block(barrier, lane);
    }
}

/// @tparam T        __half or __nv_bfloat16: the type of the parts
/// @tparam PARTS    parts per float: 2 or 3
/// @tparam TILE_M   columns of C per block: 64, 128 or 192
/// @tparam STAGES   of the ring, more than PARTS
/// @tparam CLUSTER  blocks, one below the other, that share B: 1 or 2
/// @tparam SCALED   whether each 64 of k of a row of A and of a column of B have a factor
template <typename T, int PARTS, int TILE_M, int STAGES, int CLUSTER, bool SCALED>
__device__ __forceinline__ void multiply_parts(const TensorMap& a_parts, const TensorMap& b_parts,
                                               const float* a_scales, const float* b_scales, float* C, int n, int p,
                                               int m, int band)
{
    static_assert(TILE_M == 64 || TILE_M == 128 || TILE_M == 192, "sums and totals take TILE_M registers per thread");
    static_assert(STAGES > PARTS, "the parts of 64 of k are in use together");
    static_assert(CLUSTER == 1 || CLUSTER == 2, "one block or two");
    using Layout = PartsLayout<TILE_M, STAGES, SCALED>;
    using List = Products<PARTS>;
    constexpr int PANELS = TILE_M / 64;
    constexpr int CONSUMER_WARPS = 8;
    constexpr int STEPS = PROMOTION / 16;  // wgmma per product

    extern __shared__ unsigned char raw[];
    unsigned char* const shared = raw + ((1024 - (shared_address(raw) & 1023)) & 1023);
    const unsigned base = shared_address(shared);
    const unsigned full = base + Layout::BARRIERS_AT;
    const unsigned empty = full + 8 * STAGES;
    unsigned char* const slots = shared + STAGES * Layout::STAGE_BYTES;

    const unsigned rank = CLUSTER == 1 ? 0 : rank_in_cluster();
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            make_barrier(full + 8 * s, 1);
            make_barrier(empty + 8 * s, CONSUMER_WARPS * CLUSTER);
        }
        publish_barriers();
    }
    if constexpr (CLUSTER == 1) __syncthreads();
    else cluster_sync();
    wait_for_earlier_launches();

    const int blocks_k = ceil_div(p, PROMOTION);
    const int tile_rows = ceil_div(n, 128 * CLUSTER);
    const int tile_columns = ceil_div(m, TILE_M);
    const int tiles = tile_rows * tile_columns;
    const int first_tile = blockIdx.x / CLUSTER;
    const int stride = gridDim.x / CLUSTER;

    if (threadIdx.x < 128) {
        give_registers<40>();
        if (threadIdx.x == 0) {
            prefetch_map(a_parts);
            prefetch_map(b_parts);
            Place<STAGES> place;
            int slot = 0;
            for (int index = first_tile; index < tiles; index += stride) {
                const Tile tile = tile_in_bands(index, tile_rows, tile_columns, band);
                const int row = (tile.row * CLUSTER + rank) * 128;
                const int column = tile.column * TILE_M;
                for (int k = 0; k < blocks_k; ++k) {
                    #pragma unroll
                    for (int i = 0; i < PARTS; ++i) {
                        const unsigned to = base + place.stage * Layout::STAGE_BYTES;
                        const unsigned barrier = full + 8 * place.stage;
                        const int along_k = (k * PARTS + List::fetched(i)) * PROMOTION;
                        wait_for(empty + 8 * place.stage, place.parity ^ 1);
                        arrive_and_expect(barrier, Layout::STAGE_BYTES + (i == 0 ? Layout::SLOT_BYTES : 0));
                        load_box(to, a_parts, row, along_k, barrier);
                        #pragma unroll
                        for (int panel = 0; panel < PANELS; ++panel) {
                            const unsigned panel_to = to + Layout::A_BYTES + panel * Layout::PANEL_BYTES;
                            if constexpr (CLUSTER == 1)
                                load_box(panel_to, b_parts, along_k, column + 64 * panel, barrier);
                            else if ((i * PANELS + panel) % CLUSTER == rank)
                                load_box_for(3, panel_to, b_parts, along_k, column + 64 * panel, barrier);
                        }
                        if constexpr (SCALED) {
                            if (i == 0) {
                                const unsigned slot_to = shared_address(slots) + slot * Layout::SLOT_BYTES;
                                const float* rows = a_scales + static_cast<long long>(k) * scale_pitch(n) + row;
                                const float* columns = b_scales + static_cast<long long>(k) * scale_pitch(m) + column;
                                load_run(slot_to, rows, 128 * 4, barrier);
                                load_run(slot_to + 128 * 4, columns, TILE_M * 4, barrier);
                                slot = slot + 1 == Layout::SLOTS ? 0 : slot + 1;
                            }
                        }
                        place.next();
                    }
                }
            }
        }
    } else {
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

        for (int index = first_tile; index < tiles; index += stride) {
            const Tile tile = tile_in_bands(index, tile_rows, tile_columns, band);
            #pragma unroll
            for (int i = 0; i < TILE_M / 2; ++i)
                total[i] = 0;

            for (int k = 0; k < blocks_k; ++k) {
                Place<STAGES> places[PARTS];  // by part, not by order of fetching
                Descriptor a[PARTS], b[PARTS];
                #pragma unroll
                for (int i = 0; i < PARTS; ++i) {
                    const int part = List::fetched(i);
                    const unsigned at = base + place.stage * Layout::STAGE_BYTES;
                    a[part] = rows_along_k<128>(at + consumer * 64 * 128);
                    b[part] = rows_across_k<Layout::PANEL_BYTES>(at + Layout::A_BYTES);
                    places[part] = place;
                    if (i < 2) wait_for(full + 8 * place.stage, place.parity);
                    place.next();
                }
                named_sync(1 + consumer, 256);  // take the token
                pin(sums);
                begin_products();
                #pragma unroll
                for (int i = 0; i < List::COUNT; ++i) {
                    if (PARTS == 3 && i == 2) {  // the first product to need part 1
                        wait_for(full + 8 * places[1].stage, places[1].parity);
                        begin_products();
                    }
                    #pragma unroll
                    for (int step = 0; step < STEPS; ++step) {
                        if (i == List::COUNT - 1 && step == STEPS - 2)
                            named_arrive(1 + (consumer ^ 1), 256);  // pass it on
                        Wgmma<T>::multiply(sums, a[List::a(i)] + step * 32 / 16, b[List::b(i)] + step * 2048 / 16,
                                           i > 0 || step > 0);
                    }
                    if (List::last_of_a_part(i)) commit_products();
                }
                if constexpr (PARTS == 3) {
                    wait_for_products<2>();
                    release<CLUSTER>(empty + 8 * places[2].stage, lane);
                }
                wait_for_products<1>();
                release<CLUSTER>(empty + 8 * places[1].stage, lane);
                wait_for_products<0>();
                release<CLUSTER>(empty + 8 * places[0].stage, lane);
                pin(sums);

                if constexpr (SCALED) {
                    const float* const scales = reinterpret_cast<const float*>(slots + slot * Layout::SLOT_BYTES);
                    const float* const a_scale = scales + (own_row & ~15) + 2 * (lane / 4);
                    const float* const b_scale = scales + 128 + 4 * (lane % 4);
                    const float2 row_scale = *reinterpret_cast<const float2*>(a_scale);
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
                } else {
                    #pragma unroll
                    for (int i = 0; i < TILE_M / 2; ++i)
                        total[i] += sums[i];
                }
            }

            const int row = (tile.row * CLUSTER + rank) * 128 + own_row;
            const int first_column = tile.column * TILE_M + own_column;
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (row + 8 * half < n) {
                    float* const to = C + static_cast<long long>(row + 8 * half) * m + first_column;
                    if (m % 2 == 0) {
                        #pragma unroll
                        for (int j = 0; j < TILE_M / 8; ++j)
                            if (first_column + 8 * j < m)
                                *reinterpret_cast<float2*>(to + 8 * j) =
                                    make_float2(total[4 * j + 2 * half], total[4 * j + 2 * half + 1]);
                    } else {
                        #pragma unroll
                        for (int j = 0; j < TILE_M / 8; ++j) {
                            if (first_column + 8 * j < m) to[8 * j] = total[4 * j + 2 * half];
                            if (first_column + 8 * j + 1 < m) to[8 * j + 1] = total[4 * j + 2 * half + 1];
                        }
                    }
                }
            }
        }
        if (consumer == 0) named_sync(1, 256);  // take the token that was passed last
    }
    if constexpr (CLUSTER > 1) cluster_sync();  // a block whose neighbour still arrives at its barriers must not end
}
