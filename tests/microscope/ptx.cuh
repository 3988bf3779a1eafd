// Inline PTX as people write it around shared memory, for asynchrony.cu and hostile.cu.
#pragma once

__device__ __forceinline__ unsigned number(const void* shared) { return static_cast<unsigned>(__cvta_generic_to_shared(shared)); }
__device__ __forceinline__ void copy(void* to, const void* from, int bytes = 4)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(number(to)), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ __forceinline__ void expect(unsigned long long* b, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(number(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait_for(unsigned long long* b, int parity)
{
    asm volatile("{\n.reg .pred p;\nL: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra L;\n}"
                 ::"r"(number(b)), "r"(parity) : "memory");
}
__device__ __forceinline__ void bulk(void* to, const void* from, int bytes, unsigned long long* b)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(number(to)), "l"(from), "r"(bytes), "r"(number(b)) : "memory");
}
