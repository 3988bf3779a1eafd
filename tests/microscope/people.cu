// Products as people write them: one mistake in each, which is found at the line marked FAULT, and none in those that are
// called clean. Blocks of 16 x 16 threads.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>

namespace cg = cooperative_groups;

#define TILE 16
#define ME (threadIdx.y * TILE + threadIdx.x)
#define KERNEL(name) __global__ void name(const float* __restrict__ A, const float* __restrict__ B, float* C, int n, int p, int m)
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

// ---- Clean -------------------------------------------------------------------------------------------------------------

KERNEL(clean_two_buffers_one_barrier)
{
    __shared__ float As[2][TILE][TILE], Bs[2][TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float acc = 0.f;
    int tiles = CEIL_DIV(p, TILE);
    float a = row < n && tx < p ? A[row * p + tx] : 0.f, b = col < m && ty < p ? B[ty * m + col] : 0.f;
    for (int t = 0; t < tiles; t++) {
        As[t & 1][ty][tx] = a;
        Bs[t & 1][ty][tx] = b;
        __syncthreads();
        int k0 = (t + 1) * TILE;
        a = row < n && k0 + tx < p ? A[row * p + k0 + tx] : 0.f;
        b = col < m && k0 + ty < p ? B[(k0 + ty) * m + col] : 0.f;
        #pragma unroll
        for (int k = 0; k < TILE; k++) acc += As[t & 1][ty][k] * Bs[t & 1][k][tx];
    }
    if (row < n && col < m) C[row * m + col] = acc;
}
KERNEL(clean_warp_per_element)
{
    int self = threadIdx.y * TILE + threadIdx.x, lane = self % 32, warp = self / 32;
    for (int e = warp; e < TILE * TILE; e += 8) {
        int row = blockIdx.y * TILE + e / TILE, col = blockIdx.x * TILE + e % TILE;
        if (row >= n || col >= m) continue;
        float acc = 0.f;
        for (int k = lane; k < p; k += 32) acc += A[row * p + k] * B[k * m + col];
        for (int d = 16; d > 0; d >>= 1) acc += __shfl_down_sync(0xffffffff, acc, d);
        if (lane == 0) C[row * m + col] = acc;
    }
}
KERNEL(clean_group_reduce)
{
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    for (int e = warp.meta_group_rank(); e < TILE * TILE; e += warp.meta_group_size()) {
        int row = blockIdx.y * TILE + e / TILE, col = blockIdx.x * TILE + e % TILE;
        if (row >= n || col >= m) continue;
        float acc = 0.f;
        for (int k = warp.thread_rank(); k < p; k += warp.size()) acc += A[row * p + k] * B[k * m + col];
        acc = cg::reduce(warp, acc, cg::plus<float>());
        if (warp.thread_rank() == 0) C[row * m + col] = acc;
    }
}
KERNEL(clean_named_barriers_of_producers)
{
    __shared__ float Bs[2][TILE];
    int tx = threadIdx.x, ty = threadIdx.y, col = blockIdx.x * TILE + tx;
    if (ty < 2) {  // a warp that produces
        for (int k = 0; k < p; ++k) {
            if (k >= 2) asm volatile("bar.sync %0, 256;" ::"r"(3 + k % 2) : "memory");
            if (ty == 0) Bs[k % 2][tx] = col < m ? B[k * m + col] : 0.f;
            asm volatile("bar.arrive %0, 256;" ::"r"(1 + k % 2) : "memory");
        }
        asm volatile("bar.sync %0, 256;" ::"r"(3 + p % 2) : "memory");
        asm volatile("bar.sync %0, 256;" ::"r"(3 + (p + 1) % 2) : "memory");
    } else {
        float acc[2] = {0, 0};
        int rows[2] = {(int)blockIdx.y * TILE + ty - 2, (int)blockIdx.y * TILE + ty + 12};
        for (int k = 0; k < p; ++k) {
            asm volatile("bar.sync %0, 256;" ::"r"(1 + k % 2) : "memory");
            for (int r = 0; r < 2; ++r)
                if (rows[r] < n) acc[r] += A[rows[r] * p + k] * Bs[k % 2][tx];
            asm volatile("bar.arrive %0, 256;" ::"r"(3 + k % 2) : "memory");
        }
        if (rows[0] < n && col < m) C[rows[0] * m + col] = acc[0];
        if (ty < 4 && rows[1] < n && col < m) C[rows[1] * m + col] = acc[1];
    }
}
KERNEL(clean_async_copies)
{
    __shared__ float a[3][TILE][TILE], b[3][TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx, tiles = CEIL_DIV(p, TILE);
    float acc = 0.f;
    auto fetch = [&](int t) {
        if (t < tiles) {
            bool ina = row < n && t * TILE + tx < p, inb = col < m && t * TILE + ty < p;
            __pipeline_memcpy_async(&a[t % 3][ty][tx], ina ? &A[row * p + t * TILE + tx] : A, 4, ina ? 0 : 4);
            __pipeline_memcpy_async(&b[t % 3][ty][tx], inb ? &B[(t * TILE + ty) * m + col] : B, 4, inb ? 0 : 4);
        }
        __pipeline_commit();
    };
    fetch(0);
    fetch(1);
    for (int t = 0; t < tiles; t++) {
        __pipeline_wait_prior(1);
        __syncthreads();
        fetch(t + 2);
        for (int k = 0; k < TILE; k++) acc += a[t % 3][ty][k] * b[t % 3][k][tx];
    }
    if (row < n && col < m) C[row * m + col] = acc;
}
KERNEL(clean_swizzled_tile)
{
    __shared__ __align__(128) float s[TILE * TILE * 2];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float acc = 0.f;
    for (int t = 0; t < CEIL_DIV(p, TILE); t++) {
        s[ty * TILE + (tx ^ ty)] = row < n && t * TILE + tx < p ? __ldg(&A[row * p + t * TILE + tx]) : 0.f;
        s[TILE * TILE + ty * TILE + (tx ^ ty)] = col < m && t * TILE + ty < p ? __ldg(B + (t * TILE + ty) * m + col) : 0.f;
        __syncthreads();
        for (int k = 0; k < TILE; k++) acc = fmaf(s[ty * TILE + (k ^ ty)], s[TILE * TILE + k * TILE + (tx ^ k)], acc);
        __syncthreads();
    }
    if (row < n && col < m) C[row * m + col] = acc;
}
KERNEL(clean_float4_where_aligned)
{
    int row = blockIdx.y * TILE + threadIdx.y, col0 = blockIdx.x * TILE;
    int col = col0 + threadIdx.x;
    if (row >= n || col >= m) return;
    float acc = 0.f;
    int k = 0;
    const float* a = A + row * p;
    for (; k < p && (reinterpret_cast<size_t>(a + k) & 15); ++k) acc += a[k] * B[k * m + col];
    for (; k + 3 < p; k += 4) {
        float4 v = reinterpret_cast<const float4*>(a + k)[0];
        acc += v.x * B[k * m + col] + v.y * B[(k + 1) * m + col] + v.z * B[(k + 2) * m + col] + v.w * B[(k + 3) * m + col];
    }
    for (; k < p; ++k) acc += a[k] * B[k * m + col];
    C[row * m + col] = acc;
}
KERNEL(clean_last_warp_finishes)
{
    __shared__ float part[2][TILE][TILE];
    __shared__ int count[8];
    int self = threadIdx.y * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    if (self < 8) count[self] = 0;
    __syncthreads();
    float acc[2] = {0, 0};
    if (row < n && col < m)
        for (int k = 0; k < p; ++k) acc[k & 1] += A[row * p + k] * B[k * m + col];
    part[0][threadIdx.y][threadIdx.x] = acc[0];
    part[1][threadIdx.y][threadIdx.x] = acc[1];
    if (self % 32 == 0) atomicAdd(&count[0], 1);
    __syncthreads();
    if (row < n && col < m) C[row * m + col] = part[0][threadIdx.y][threadIdx.x] + part[1][threadIdx.y][threadIdx.x] + (count[0] - 8);
}
KERNEL(clean_wmma)
{
    using namespace nvcuda;
    __shared__ half a[TILE * TILE], b[TILE * TILE];
    __shared__ float c[TILE * TILE];
    int self = threadIdx.y * TILE + threadIdx.x, tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
    wmma::fill_fragment(acc, 0.f);
    for (int t = 0; t < CEIL_DIV(p, TILE); t++) {
        a[self] = __float2half(row < n && t * TILE + tx < p ? A[row * p + t * TILE + tx] : 0.f);
        b[self] = __float2half(col < m && t * TILE + ty < p ? B[(t * TILE + ty) * m + col] : 0.f);
        __syncthreads();
        if (self < 32) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
            wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
            wmma::load_matrix_sync(fa, a, TILE);
            wmma::load_matrix_sync(fb, b, TILE);
            wmma::mma_sync(acc, fa, fb, acc);
        }
        __syncthreads();
    }
    if (self < 32) wmma::store_matrix_sync(c, acc, TILE, wmma::mem_row_major);
    __syncthreads();
    float exact = 0.f;
    if (row < n && col < m) {
        for (int k = 0; k < p; ++k) exact += A[row * p + k] * B[k * m + col];
        C[row * m + col] = fabsf(exact - c[self]) < 0.05f ? exact : c[self];
    }
}
KERNEL(clean_ballot_and_popc)
{
    int self = threadIdx.y * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    unsigned inside = __ballot_sync(0xffffffff, row < n && col < m);
    if (!(inside >> (self % 32) & 1)) return;
    float acc = 0.f;
    for (int k = 0; k < p; ++k) {
        float b = B[k * m + col];
        acc += __shfl_sync(inside, A[row * p + k], self % 32) * b;
    }
    C[row * m + col] = acc;
}
KERNEL(clean_register_tile_2x2)
{
    __shared__ float As[8][32], Bs[8][32];
    int tx = threadIdx.x, ty = threadIdx.y, self = ty * TILE + tx;
    int row0 = blockIdx.y * 32, col0 = blockIdx.x * 32;
    if (row0 >= n || col0 >= m) return;
    float acc[2][2] = {};
    for (int k0 = 0; k0 < p; k0 += 8) {
        int r = self / 8, k = self % 8, c = self % 32, kb = self / 32;
        As[k][r] = row0 + r < n && k0 + k < p ? A[(row0 + r) * p + k0 + k] : 0.f;
        Bs[kb][c] = col0 + c < m && k0 + kb < p ? B[(k0 + kb) * m + col0 + c] : 0.f;
        __syncthreads();
        for (int k = 0; k < 8; ++k) {
            float2 a = *reinterpret_cast<float2*>(&As[k][2 * ty]), b = *reinterpret_cast<float2*>(&Bs[k][2 * tx]);
            acc[0][0] += a.x * b.x; acc[0][1] += a.x * b.y; acc[1][0] += a.y * b.x; acc[1][1] += a.y * b.y;
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j)
            if (row0 + 2 * ty + i < n && col0 + 2 * tx + j < m) C[(row0 + 2 * ty + i) * m + col0 + 2 * tx + j] = acc[i][j];
}

// ---- Faulty ------------------------------------------------------------------------------------------------------------

KERNEL(race_no_second_barrier)
{
    __shared__ float As[TILE][TILE], Bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float acc = 0.f;
    for (int t = 0; t < CEIL_DIV(p, TILE); t++) {
        As[ty][tx] = row < n && t * TILE + tx < p ? A[row * p + t * TILE + tx] : 0.f;  // FAULT
        Bs[ty][tx] = col < m && t * TILE + ty < p ? B[(t * TILE + ty) * m + col] : 0.f;
        __syncthreads();
        for (int k = 0; k < TILE; k++) acc += As[ty][k] * Bs[k][tx];
    }
    if (row < n && col < m) C[row * m + col] = acc;
}
KERNEL(divergence_return_before_barrier)
{
    __shared__ float As[TILE][TILE], Bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    if (row >= n || col >= m) return;
    float acc = 0.f;
    for (int t = 0; t < CEIL_DIV(p, TILE); t++) {
        As[ty][tx] = t * TILE + tx < p ? A[row * p + t * TILE + tx] : 0.f;
        Bs[ty][tx] = t * TILE + ty < p ? B[(t * TILE + ty) * m + col] : 0.f;
        __syncthreads();  // FAULT
        for (int k = 0; k < TILE; k++) acc += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    C[row * m + col] = acc;
}
KERNEL(out_of_bounds_only_row_checked)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < n) {
        float acc = 0.f;
        for (int k = 0; k < p; ++k) acc += A[row * p + k] * B[k * m + col];  // FAULT
        C[row * m + col] = acc;
    }
}
KERNEL(race_one_buffer_for_two)
{
    __shared__ float As[2][TILE][TILE], Bs[2][TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float acc = 0.f;
    int tiles = CEIL_DIV(p, TILE);
    auto load = [&](int buffer, int t) {
        As[buffer][ty][tx] = row < n && t * TILE + tx < p ? A[row * p + t * TILE + tx] : 0.f;  // FAULT
        Bs[buffer][ty][tx] = col < m && t * TILE + ty < p ? B[(t * TILE + ty) * m + col] : 0.f;
    };
    load(0, 0);
    __syncthreads();
    for (int t = 0; t < tiles; t++) {
        if (t + 1 < tiles) load(t & 1, t + 1);
        for (int k = 0; k < TILE; k++) acc += As[t & 1][ty][k] * Bs[t & 1][k][tx];
        __syncthreads();
    }
    if (row < n && col < m) C[row * m + col] = acc;
}
KERNEL(misaligned_float4_of_ragged_rows)
{
    int row = blockIdx.y * TILE + threadIdx.y, col = (blockIdx.x * TILE + threadIdx.x) * 4;
    if (row >= n || col + 3 >= m) return;
    float4 acc = make_float4(0, 0, 0, 0);
    for (int k = 0; k < p; ++k) {
        float4 b = *reinterpret_cast<const float4*>(&B[k * m + col]);  // FAULT
        float a = A[row * p + k];
        acc.x += a * b.x; acc.y += a * b.y; acc.z += a * b.z; acc.w += a * b.w;
    }
    C[row * m + col] = acc.x; C[row * m + col + 1] = acc.y; C[row * m + col + 2] = acc.z; C[row * m + col + 3] = acc.w;
}
KERNEL(uninitialised_split_k_into_c)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= m) return;
    for (int half = 0; half < 2; ++half) {
        float acc = 0.f;
        for (int k = half * (p / 2); k < (half ? p : p / 2); ++k) acc += A[row * p + k] * B[k * m + col];
        atomicAdd(&C[row * m + col], acc);  // FAULT
    }
}
KERNEL(race_volatile_reduction)
{
    volatile __shared__ float sums[256];
    int lane = threadIdx.x % 32, self = threadIdx.y * TILE + threadIdx.x;
    sums[self] = self < p ? A[self] * B[self * m] : 0.f;
    __syncthreads();
    if (self < 128) sums[self] += sums[self + 128];
    __syncthreads();
    if (self < 64) sums[self] += sums[self + 64];
    __syncthreads();
    if (self < 32) {
        for (int d = 32; d; d /= 2) sums[self] += sums[self + d];  // FAULT
    }
    if (self == 0) C[blockIdx.y * m + blockIdx.x] = sums[0] + lane;
}
KERNEL(asynchrony_copy_not_committed)
{
    __shared__ float a[TILE][TILE], b[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float acc = 0.f;
    for (int t = 0; t < CEIL_DIV(p, TILE); t++) {
        __pipeline_memcpy_async(&a[ty][tx], &A[min(row, n - 1) * p + min(t * TILE + tx, p - 1)], 4, row < n && t * TILE + tx < p ? 0 : 4);
        __pipeline_memcpy_async(&b[ty][tx], &B[min(t * TILE + ty, p - 1) * m + min(col, m - 1)], 4, 0);
        __pipeline_wait_prior(0);
        __syncthreads();
        for (int k = 0; k < TILE; k++) acc += a[ty][k] * b[k][tx];  // FAULT
        __syncthreads();
    }
    if (row < n && col < m) C[row * m + col] = acc;
}
KERNEL(asynchrony_wait_one_too_few)
{
    __shared__ float a[2][TILE][TILE], b[2][TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx, tiles = CEIL_DIV(p, TILE);
    float acc = 0.f;
    auto fetch = [&](int t) {
        __pipeline_memcpy_async(&a[t & 1][ty][tx], &A[min(row, n - 1) * p + min(t * TILE + tx, p - 1)], 4, row < n && t * TILE + tx < p ? 0 : 4);
        __pipeline_memcpy_async(&b[t & 1][ty][tx], &B[min(t * TILE + ty, p - 1) * m + min(col, m - 1)], 4, 0);
        __pipeline_commit();
    };
    fetch(0);
    for (int t = 0; t < tiles; t++) {
        if (t + 1 < tiles) fetch(t + 1);
        __pipeline_wait_prior(1);  // also behind the last tile, for which nothing is fetched ahead
        __syncthreads();
        for (int k = 0; k < TILE; k++) acc += a[t & 1][ty][k] * b[t & 1][k][tx];  // FAULT
        __syncthreads();
    }
    if (row < n && col < m) C[row * m + col] = acc;
}
KERNEL(divergence_trip_count_per_thread)
{
    __shared__ float bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float acc = 0.f;
    int tiles = CEIL_DIV(p, TILE) + (ty == 3 ? 1 : 0);
    for (int t = 0; t < tiles; t++) {
        bs[ty][tx] = col < m && t * TILE + ty < p ? B[(t * TILE + ty) * m + col] : 0.f;
        __syncthreads();
        for (int k = 0; k < TILE && t * TILE + k < p && row < n; k++) acc += A[row * p + t * TILE + k] * bs[k][tx];
        __syncthreads();  // FAULT
    }
    if (row < n && col < m) C[row * m + col] = acc;
}
KERNEL(race_flag_of_thread_0)
{
    __shared__ int limit;
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    if (threadIdx.x == 0 && threadIdx.y == 0) limit = p;
    float acc = 0.f;
    for (int k = 0; k < limit && row < n && col < m; ++k) acc += A[row * p + k] * B[k * m + col];  // FAULT
    if (row < n && col < m) C[row * m + col] = acc;
}
KERNEL(race_syncwarp_for_a_block)
{
    __shared__ float As[TILE][TILE], Bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float acc = 0.f;
    for (int t = 0; t < CEIL_DIV(p, TILE); t++) {
        As[ty][tx] = row < n && t * TILE + tx < p ? A[row * p + t * TILE + tx] : 0.f;
        Bs[ty][tx] = col < m && t * TILE + ty < p ? B[(t * TILE + ty) * m + col] : 0.f;
        __syncwarp();
        for (int k = 0; k < TILE; k++) acc += As[ty][k] * Bs[k][tx];  // FAULT
        __syncthreads();
    }
    if (row < n && col < m) C[row * m + col] = acc;
}
KERNEL(divergence_shuffle_in_branch)
{
    int lane = (threadIdx.y * TILE + threadIdx.x) % 32, warp = (threadIdx.y * TILE + threadIdx.x) / 32;
    int row = blockIdx.y * TILE + warp, col = blockIdx.x * TILE;
    if (row >= n || col >= m) return;
    float acc = 0.f;
    for (int k = lane; k < p; k += 32) acc += A[row * p + k] * B[k * m + col];
    if (lane < p) {
        for (int d = 16; d; d /= 2)
            if (lane < d) acc += __shfl_down_sync(0xffffffff, acc, d);  // FAULT
    }
    if (lane == 0) C[row * m + col] = acc;
}
KERNEL(incorrect_only_one_column_per_block)
{
    int lane = (threadIdx.y * TILE + threadIdx.x) % 32, warp = (threadIdx.y * TILE + threadIdx.x) / 32;
    for (int row = blockIdx.y * TILE + warp; row < min(n, (int)(blockIdx.y + 1) * TILE); row += 8)
        for (int col = blockIdx.x * TILE; col < min(m, (int)(blockIdx.x + 1) * TILE); ++col) {
            float acc = 0.f;
            for (int k = lane; k < p; k += 32) acc += A[row * p + k] * B[k * m + col];
            for (int d = 8; d; d /= 2) acc += __shfl_xor_sync(0xffffffff, acc, d);
            if (lane == 0) C[row * m + col] = acc;
        }
}
KERNEL(out_of_bounds_local_array)
{
    int row = (blockIdx.y * TILE + threadIdx.y), col = blockIdx.x * TILE + threadIdx.x;
    float part[4] = {0, 0, 0, 0};
    if (row >= n || col >= m) return;
    for (int k = 0; k < p; ++k) part[k % 5] += A[row * p + k] * B[k * m + col];  // FAULT
    C[row * m + col] = part[0] + part[1] + part[2] + part[3];
}
KERNEL(out_of_bounds_one_past_the_row_of_a_tile)
{
    __shared__ float As[TILE][TILE], Bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float acc = 0.f;
    for (int t = 0; t < CEIL_DIV(p, TILE); t++) {
        As[ty][tx] = row < n && t * TILE + tx < p ? A[row * p + t * TILE + tx] : 0.f;
        Bs[ty][tx] = col < m && t * TILE + ty < p ? B[(t * TILE + ty) * m + col] : 0.f;
        __syncthreads();
        for (int k = 0; k <= TILE; k++) acc += As[ty][k] * Bs[k][tx];  // FAULT
        __syncthreads();
    }
    if (row < n && col < m) C[row * m + col] = acc;
}
KERNEL(out_of_bounds_prefetch_behind_the_end)
{
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    if (row >= n || col >= m) return;
    float acc = 0.f, next = B[col];
    for (int k = 0; k < p; ++k) {
        float b = next;
        next = B[(k + 1) * m + col];  // FAULT
        acc += A[row * p + k] * b;
    }
    C[row * m + col] = acc;
}
KERNEL(race_shared_memory_used_twice)
{
    __shared__ float raw[TILE * TILE];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float acc = 0.f;
    for (int t = 0; t < CEIL_DIV(p, TILE); t++) {
        if (t) __syncthreads();
        raw[ty * TILE + tx] = col < m && t * TILE + ty < p ? B[(t * TILE + ty) * m + col] : 0.f;
        __syncthreads();
        for (int k = 0; k < TILE && row < n && t * TILE + k < p; k++) acc += A[row * p + t * TILE + k] * raw[k * TILE + tx];
    }
    raw[ty * TILE + tx] = acc;  // FAULT
    __syncthreads();
    if (row < n && col < m) C[row * m + col] = raw[ty * TILE + tx];
}
KERNEL(misaligned_float2_store)
{
    int row = blockIdx.y * TILE + threadIdx.y, col = (blockIdx.x * TILE + threadIdx.x) * 2 + 1;
    if (row >= n || col + 1 >= m) return;
    float2 acc = {0, 0};
    for (int k = 0; k < p; ++k) {
        acc.x += A[row * p + k] * B[k * m + col];
        acc.y += A[row * p + k] * B[k * m + col + 1];
    }
    reinterpret_cast<float2*>(C + row * m + col)[0] = acc;  // FAULT
}
KERNEL(race_tile_of_a_group)
{
    __shared__ float sums[TILE * TILE];
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<16>(block);
    int self = block.thread_rank();
    sums[self] = self;
    tile.sync();
    float other = sums[self ^ 16];  // FAULT
    block.sync();
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    if (row < n && col < m) C[row * m + col] = other;
}
KERNEL(race_wmma_without_barrier)
{
    using namespace nvcuda;
    __shared__ half a[TILE * TILE], b[TILE * TILE];
    __shared__ float c[TILE * TILE];
    int self = threadIdx.y * TILE + threadIdx.x, tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
    wmma::fill_fragment(acc, 0.f);
    for (int t = 0; t < CEIL_DIV(p, TILE); t++) {
        a[self] = __float2half(row < n && t * TILE + tx < p ? A[row * p + t * TILE + tx] : 0.f);
        b[self] = __float2half(col < m && t * TILE + ty < p ? B[(t * TILE + ty) * m + col] : 0.f);
        if (self < 32) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
            wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
            wmma::load_matrix_sync(fa, a, TILE);  // FAULT
            wmma::load_matrix_sync(fb, b, TILE);
            wmma::mma_sync(acc, fa, fb, acc);
        }
        __syncthreads();
    }
    if (self < 32) wmma::store_matrix_sync(c, acc, TILE, wmma::mem_row_major);
    __syncthreads();
    if (row < n && col < m) C[row * m + col] = c[self];
}
KERNEL(out_of_bounds_wmma_leading_dimension)
{
    using namespace nvcuda;
    __shared__ half a[TILE * TILE];
    int self = threadIdx.y * TILE + threadIdx.x;
    a[self] = __float2half(0.f);
    __syncthreads();
    if (self < 32) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
        wmma::load_matrix_sync(fa, a, TILE + 8);  // FAULT
        if (fa.x[0] != half(0)) C[0] = 1;
    }
}
KERNEL(incorrect_accumulator_not_cleared)
{
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float acc;
    if (row >= n || col >= m) return;
    for (int k = 0; k < p; ++k) acc += A[row * p + k] * B[k * m + col];
    C[row * m + col] = acc;
}
KERNEL(uninitialised_halo_of_a_tile)
{
    __shared__ float bs[TILE][TILE + 1];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float acc = 0.f;
    for (int t = 0; t < CEIL_DIV(p, TILE); t++) {
        if (t * TILE + ty < p && tx > 0) bs[ty][tx] = col < m ? B[(t * TILE + ty) * m + col] : 0.f;
        __syncthreads();
        for (int k = 0; k < TILE && row < n && t * TILE + k < p; k++) acc += A[row * p + t * TILE + k] * bs[k][tx];  // FAULT
        __syncthreads();
    }
    if (row < n && col < m) C[row * m + col] = acc;
}
KERNEL(race_blocks_share_a_row_of_c)
{
    int row = blockIdx.y * (TILE - 1) + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    if (row >= n || col >= m) return;
    float acc = 0.f;
    for (int k = 0; k < p; ++k) acc += A[row * p + k] * B[k * m + col];
    C[row * m + col] = acc;  // FAULT
}
__device__ unsigned int arrived;
KERNEL(race_last_block_without_fence)
{
    __shared__ bool last;
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float acc = 0.f;
    for (int k = 0; k < p && row < n && col < m; ++k) acc += A[row * p + k] * B[k * m + col];
    if (row < n && col < m) C[row * m + col] = acc;
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) last = atomicAdd(&arrived, 1) == gridDim.x * gridDim.y - 1;
    __syncthreads();
    if (last && threadIdx.y == 0)
        for (int i = threadIdx.x; i < n * m; i += TILE) C[i] = C[i] * 1.0f;  // FAULT
}
KERNEL(out_of_bounds_negative_index)
{
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    if (row >= n || col >= m) return;
    float acc = 0.f;
    for (int k = p; k >= 0; --k) acc += A[row * p + k - 1] * B[(k - 1) * m + col];  // FAULT
    C[row * m + col] = acc;
}
KERNEL(race_transposed_store_through_shared)
{
    __shared__ float tile[TILE][TILE + 1];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float acc = 0.f;
    for (int k = 0; k < p && row < n && col < m; ++k) acc += A[row * p + k] * B[k * m + col];
    tile[tx][ty] = acc;
    float out = tile[ty][tx];  // FAULT
    __syncthreads();
    if (row < n && col < m) C[row * m + col] = out - out + acc;
}
KERNEL(out_of_bounds_dynamic_memory)
{
    extern __shared__ float memory[];
    float* as = memory;
    float* bs = memory + TILE * TILE;
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float acc = 0.f;
    for (int t = 0; t < CEIL_DIV(p, TILE); t++) {
        as[ty * TILE + tx] = row < n && t * TILE + tx < p ? A[row * p + t * TILE + tx] : 0.f;
        bs[ty * TILE + tx] = col < m && t * TILE + ty < p ? B[(t * TILE + ty) * m + col] : 0.f;  // FAULT
        __syncthreads();
        for (int k = 0; k < TILE; k++) acc += as[ty * TILE + k] * bs[k * TILE + tx];
        __syncthreads();
    }
    if (row < n && col < m) C[row * m + col] = acc;
}
struct Pair { float value; int index; };
KERNEL(race_struct_in_shared_memory)
{
    __shared__ Pair pairs[TILE];
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    if (threadIdx.y == 0) pairs[threadIdx.x] = {1.f, (int)threadIdx.x};
    __syncthreads();
    if (threadIdx.y == 1) pairs[threadIdx.x].value += pairs[(threadIdx.x + 1) % TILE].value;  // FAULT
    __syncthreads();
    if (row < n && col < m) C[row * m + col] = pairs[threadIdx.x].value;
}
KERNEL(race_bytes_of_a_word)
{
    __shared__ unsigned char flags[256];
    int self = threadIdx.y * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    flags[self] = 1;
    unsigned all = reinterpret_cast<unsigned*>(flags)[self / 4];  // FAULT
    __syncthreads();
    if (row < n && col < m) C[row * m + col] = all;
}
KERNEL(trap_assertion_of_a_thread)
{
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    assert(row < n);  // FAULT
    if (row < n && col < m) C[row * m + col] = 0;
}
KERNEL(divergence_barrier_in_a_loop_over_own_rows)
{
    __shared__ float bs[TILE];
    int tx = threadIdx.x, ty = threadIdx.y, col = blockIdx.x * TILE + tx;
    for (int row = blockIdx.y * TILE + ty; row < n; row += 1000) {
        float acc = 0.f;
        for (int k = 0; k < p; ++k) {
            if (ty == 0) bs[tx] = col < m ? B[k * m + col] : 0.f;
            __syncthreads();  // FAULT
            acc += A[row * p + k] * bs[tx];
            __syncthreads();
        }
        if (col < m) C[row * m + col] = acc;
    }
}
KERNEL(race_third_reader)
{
    __shared__ float s;
    if (ME == 0) s = 1;
    __syncthreads();
    float v = 0;
    if (ME == 40) v = s;
    if (ME < 2) v = s;
    __syncwarp();
    if (ME == 0) s = 2;  // FAULT
    __syncthreads();
    C[0] = v;
}
KERNEL(race_reader_between_lanes)
{
    __shared__ float s[8];
    if (ME < 8) s[ME] = 1;
    __syncthreads();
    float v = 0;
    if (ME == 7 || ME == 100 || ME == 3 || ME == 5) v = s[4];
    __syncwarp();
    if (ME == 5) s[4] = 2;  // FAULT
    __syncthreads();
    C[0] = v;
}
KERNEL(race_counter_read_plainly)
{
    __shared__ int count;
    if (ME == 0) count = 0;
    __syncthreads();
    atomicAdd(&count, 1);
    int seen = count;  // FAULT
    __syncthreads();
    if (ME == 0) C[blockIdx.y * m + blockIdx.x] = seen;
}
KERNEL(misaligned_dynamic_offset)
{
    __shared__ char raw[1024];
    for (int i = ME; i < 1024; i += 256) raw[i] = 0;
    __syncthreads();
    float4 v = *reinterpret_cast<float4*>(raw + 4 + 16 * (ME % 32));  // FAULT
    if (ME == 0) C[blockIdx.y * m + blockIdx.x] = v.x;
}
KERNEL(out_of_bounds_half_as_float)
{
    __shared__ half h[64];
    if (ME < 64) h[ME] = __float2half(1.f);
    __syncthreads();
    float v = reinterpret_cast<float*>(h)[ME % 64];  // FAULT
    if (ME == 0) C[blockIdx.y * m + blockIdx.x] = v;
}
KERNEL(race_write_after_shuffle)
{
    __shared__ float s[256];
    s[ME] = A[ME];
    float other = __shfl_xor_sync(0xffffffff, s[ME], 1);
    s[ME ^ 1] = other;  // FAULT
    __syncthreads();
    if (ME == 0) C[blockIdx.y * m + blockIdx.x] = s[3];
}
KERNEL(race_in_place_row_of_c)
{
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    if (row >= n || col >= m) return;
    C[row * m + col] = 1.0f;
    __syncthreads();
    if (col > 0) C[row * m + col] += C[row * m + col - 1];  // FAULT
}
KERNEL(asynchrony_waits_for_the_wrong_parity)
{
    __shared__ alignas(16) float tile[64];
    __shared__ unsigned long long full;
    unsigned bar = __cvta_generic_to_shared(&full), to = __cvta_generic_to_shared(tile);
    if (ME == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(bar) : "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(bar) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(to), "l"(A), "r"(bar) : "memory");
    }
    __syncthreads();
    asm volatile("{\n.reg .pred p;\nL: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 1;\n@!p bra L;\n}" ::"r"(bar) : "memory");
    C[blockIdx.y * m + blockIdx.x] = tile[ME % 64];  // FAULT
}
KERNEL(race_bulk_store_source_reused)
{
    __shared__ alignas(16) float tile[64];
    unsigned from = __cvta_generic_to_shared(tile);
    if (ME < 64) tile[ME] = 1;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (ME == 0 && blockIdx.x == 0 && blockIdx.y == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(C), "r"(from) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
    __syncthreads();
    if (ME < 64) tile[ME] = 2;  // FAULT
}
KERNEL(asynchrony_no_proxy_fence)
{
    __shared__ alignas(16) float tile[64];
    unsigned from = __cvta_generic_to_shared(tile);
    if (ME < 64) tile[ME] = 1;
    __syncthreads();
    if (ME == 0 && blockIdx.x == 0 && blockIdx.y == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(C), "r"(from) : "memory");  // FAULT
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
    }
}
KERNEL(deadlock_named_barrier_counts)
{
    if (ME < 64) asm volatile("bar.sync 1, 128;" ::: "memory");  // FAULT
    C[0] = n;
}
KERNEL(divergence_syncthreads_in_warps)
{
    if (ME / 32 % 2) __syncthreads();  // FAULT
    if (ME == 0) C[blockIdx.y * m + blockIdx.x] = 0;
}
KERNEL(out_of_bounds_column_of_last_tile)
{
    __shared__ float Bs[TILE][TILE];
    int col = blockIdx.x * TILE + threadIdx.x;
    for (int t = 0; t < p; t += TILE) {
        Bs[threadIdx.y][threadIdx.x] = B[min(t + (int)threadIdx.y, p - 1) * m + col];  // FAULT
        __syncthreads();
    }
    if (ME == 0) C[blockIdx.y * m + blockIdx.x] = Bs[0][0];
}
KERNEL(asynchrony_wgmma_without_fence)
{
    __shared__ alignas(1024) half tile[64 * 64];
    for (int i = ME; i < 64 * 64; i += 256) tile[i] = __float2half(0.f);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    unsigned at = __cvta_generic_to_shared(tile);
    unsigned long long d = (at & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
    float c[4] = {0, 0, 0, 0};
    if (ME < 128) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"  // FAULT
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "l"(d), "l"(d));
        asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    if (ME == 0) C[blockIdx.y * m + blockIdx.x] = c[0];
}
