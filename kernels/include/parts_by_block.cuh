// The product of floats that are kept as sums of short parts, in which each 64 of k of a tile have a scheme of their
// own: two halves and three products, or three bfloat16 and six. What `float_always` adds to include/parts.cuh, whose
// picture, ring, token and promotion are the same; its head explains them.
//
// A bit for each 64 of k of a tile says which scheme it is: 32 of them in a word, which the fetching thread and both
// consumers read. A stage has the same bytes in both; a block of bfloat16 takes one stage more, and no factors.
#pragma once
#include "parts.cuh"

/// What a launch has decided about a tile of C: word 0 is not zero if it is made in float on the CUDA cores instead
/// (tensor cores would overflow, or lose bits), the others have a bit for each 64 of k, set for bfloat16. That a result
/// overflowed has a bit of its own: other warps may still have to read what was planned.
constexpr unsigned PLANNED_EXACT = 1, OVERFLOWED = 2;
__host__ __device__ constexpr int plan_words(int p) { return 1 + ceil_div(ceil_div(p, PROMOTION), 32); }

/// A word of a plan, equal in all threads of a warp; the shuffle shows the compiler that it is uniform.
__device__ __forceinline__ unsigned uniform(unsigned word) { return __shfl_sync(0xffffffffu, word, 0); }

/// The products of 64 of k, on 64 rows and TILE_M columns, into `sums`. Takes and passes on the token.
template <typename T, int PARTS, int TILE_M, int STAGES>
__device__ __forceinline__ void multiply_block(float (&sums)[TILE_M / 2], Place<STAGES>& place, unsigned base,
                                               unsigned full, unsigned empty, int consumer, int lane)
{
    using Layout = PartsLayout<TILE_M, STAGES, true>;
    using List = Products<PARTS>;
    constexpr int STEPS = PROMOTION / 16;  // wgmma per product
    Place<STAGES> places[PARTS];           // by part, not by order of fetching
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
            if (i == List::COUNT - 1 && step == STEPS - 2) named_arrive(1 + (consumer ^ 1), 256);  // pass it on
            Wgmma<T>::multiply(sums, a[List::a(i)] + step * 32 / 16, b[List::b(i)] + step * 2048 / 16,
                               i > 0 || step > 0);
        }
        if (List::last_of_a_part(i)) commit_products();
    }
    if constexpr (PARTS == 3) {
        wait_for_products<2>();
        release<1>(empty + 8 * places[2].stage, lane);
    }
    wait_for_products<1>();
    release<1>(empty + 8 * places[1].stage, lane);
    wait_for_products<0>();
    release<1>(empty + 8 * places[0].stage, lane);
    pin(sums);
}

/// Starts the copies of 64 of k of A and B, part by part; those of halves with their factors.
template <int PARTS, int TILE_M, int STAGES>
__device__ __forceinline__ void fetch_block(const TensorMap& a_parts, const TensorMap& b_parts, Place<STAGES>& place,
                                            unsigned base, unsigned full, unsigned empty, int row, int column, int k,
                                            unsigned more_bytes)
{
    using Layout = PartsLayout<TILE_M, STAGES, true>;
    #pragma unroll
    for (int i = 0; i < PARTS; ++i) {
        const unsigned to = base + place.stage * Layout::STAGE_BYTES;
        const unsigned barrier = full + 8 * place.stage;
        const int along_k = (k * PARTS + Products<PARTS>::fetched(i)) * PROMOTION;
        wait_for(empty + 8 * place.stage, place.parity ^ 1);
        arrive_and_expect(barrier, Layout::STAGE_BYTES + (i == 0 ? more_bytes : 0));
        load_box(to, a_parts, row, along_k, barrier);
        #pragma unroll
        for (int panel = 0; panel < TILE_M / 64; ++panel)
            load_box(to + Layout::A_BYTES + panel * Layout::PANEL_BYTES, b_parts, along_k, column + 64 * panel, barrier);
        place.next();
    }
}
