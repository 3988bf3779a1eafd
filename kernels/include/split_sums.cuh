// Sums that the blocks of a cluster share, each over its part of k.
#pragma once
#include "cluster.cuh"
#include "shared_memory.cuh"
#include "vectors.cuh"

constexpr int MOST_PARTS = 16;  // blocks of a cluster of a Hopper GPU; others take 8

/// 16 bytes of the shared memory of the cluster's block `rank`, at an address of this block's.
/// PTX ISA: mapa, ld.shared::cluster.
__device__ __forceinline__ void load_from_block(Vector<float>& to, unsigned address, unsigned rank)
{
    asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %4, %5;\n"
                 "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n}"
                 : "=f"(to.element[0]), "=f"(to.element[1]), "=f"(to.element[2]), "=f"(to.element[3])
                 : "r"(address), "r"(rank) : "memory");
}
__device__ __forceinline__ void load_from_block(Vector<double>& to, unsigned address, unsigned rank)
{
    asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %2, %3;\n"
                 "ld.shared::cluster.v2.f64 {%0, %1}, [remote];\n}"
                 : "=d"(to.element[0]), "=d"(to.element[1]) : "r"(address), "r"(rank) : "memory");
}

/// The first of the `steps` steps that part `part` of `parts` computes; the next part begins where it ends.
__device__ __forceinline__ int first_of_part(int steps, int part, int parts)
{
    return static_cast<int>(static_cast<long long>(steps) * part / parts);
}

/// Adds the results of all blocks of a cluster (1, 1, parts) in the order of the parts. Each of THREADS threads has VECTORS
/// vectors of results, `result(v)`; in block `part` it calls `store(v, sum)` for every parts-th v. Further threads of the
/// block must call cluster_sync() twice.
/// @param shared_memory  VECTORS * THREADS * 16 bytes, which no thread of the block uses any more
template <typename T, int VECTORS, int THREADS, typename Result, typename Store>
__device__ __forceinline__ void add_parts(unsigned char* shared_memory, int thread, int part, int parts, Result&& result,
                                          Store&& store)
{
    auto* results = reinterpret_cast<Vector<T>*>(shared_memory);
    #pragma unroll
    for (int v = 0; v < VECTORS; ++v) results[v * THREADS + thread] = result(v);
    cluster_sync();
    for (int v = part; v < VECTORS; v += parts) {
        Vector<T> shares[MOST_PARTS];
        #pragma unroll
        for (int other = 0; other < MOST_PARTS; ++other)
            if (other < parts) load_from_block(shares[other], shared_address(&results[v * THREADS + thread]), other);
        #pragma unroll
        for (int other = 1; other < MOST_PARTS; ++other)
            #pragma unroll
            for (int e = 0; e < Vector<T>::size; ++e)
                if (other < parts) shares[0].element[e] += shares[other].element[e];
        store(v, shares[0]);
    }
    cluster_sync();  // a block's shared memory is there until all have read it
}
