// Copies of whole tiles by the tensor memory accelerator (TMA), which one thread starts.
// PTX ISA: Data Movement and Conversion Instructions: cp.async.bulk, cp.async.bulk.tensor.
#pragma once

/// What cuTensorMapEncodeTiled writes: base, sizes, pitch, box and swizzle of an array in global memory.
struct alignas(64) TensorMap {
    char bytes[128];
};

/// Brings the map into its cache before the first copy needs it. PTX ISA: prefetch.tensormap.
__device__ __forceinline__ void prefetch_map(const TensorMap& map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Starts the copy of the box whose first element is (row, column) into shared memory, zeros beyond the array's edges;
/// the mbarrier counts the bytes.
__device__ __forceinline__ void load_box(unsigned to, const TensorMap& map, int row, int column, unsigned barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];"
                 ::"r"(to), "l"(&map), "r"(barrier), "r"(column), "r"(row) : "memory");
}

/// The same into each block of the cluster that the mask names, at the same place (.multicast::cluster).
__device__ __forceinline__ void load_box_for(unsigned short blocks, unsigned to, const TensorMap& map, int row,
                                             int column, unsigned barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3, %4}], [%2], %5;"
                 ::"r"(to), "l"(&map), "r"(barrier), "r"(column), "r"(row), "h"(blocks) : "memory");
}

/// Starts the copy of a run of bytes; both addresses and the length are multiples of 16.
__device__ __forceinline__ void load_run(unsigned to, const void* from, unsigned bytes, unsigned barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

/// Starts the copy of a box from shared memory to (row, column); elements outside the array are not written.
__device__ __forceinline__ void store_box(const TensorMap& map, int row, int column, unsigned from)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
                 ::"l"(&map), "r"(from), "r"(column), "r"(row) : "memory");
}

/// Closes the group of the stores that this thread started since the last call. PTX ISA: cp.async.bulk.commit_group.
__device__ __forceinline__ void close_store_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/// Waits until all but the last PENDING groups have read their shared memory. PTX ISA: cp.async.bulk.wait_group.read.
template <int PENDING>
__device__ __forceinline__ void wait_for_store_reads()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

/// What this thread wrote to shared memory can be read by TMA and wgmma, and what it read can be overwritten by them.
/// PTX ISA: fence.proxy.async.
__device__ __forceinline__ void show_to_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
