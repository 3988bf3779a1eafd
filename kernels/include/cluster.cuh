// Blocks of a cluster, which can reach each other's shared memory.
#pragma once

/// PTX ISA: Special Registers: %cluster_ctarank.
__device__ __forceinline__ unsigned rank_in_cluster()
{
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/// Waits for all threads of the cluster. PTX ISA: barrier.cluster.
__device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Arrives at the same mbarrier in the block of that rank. PTX ISA: mapa, mbarrier.arrive.
__device__ __forceinline__ void arrive_in_block(unsigned barrier, unsigned rank)
{
    asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier), "r"(rank) : "memory");
}
