// Barriers in shared memory (mbarriers), which count arrivals and bytes. An address is a 32-bit number
// (shared_address). PTX ISA: Parallel Synchronization and Communication Instructions: mbarrier.
#pragma once

/// A barrier that opens each time `arrivals` threads have arrived and all bytes announced to it have come.
/// PTX ISA: mbarrier.init.
__device__ __forceinline__ void make_barrier(unsigned barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Shows fresh barriers to the TMA unit and to the other blocks of the cluster. PTX ISA: fence.mbarrier_init.
__device__ __forceinline__ void publish_barriers()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// PTX ISA: mbarrier.arrive.
__device__ __forceinline__ void arrive(unsigned barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Arrives, and announces bytes that copies are going to bring. PTX ISA: mbarrier.arrive, .expect_tx.
__device__ __forceinline__ void arrive_and_expect(unsigned barrier, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/// Announces bytes without arriving. PTX ISA: mbarrier.expect_tx.
__device__ __forceinline__ void expect(unsigned barrier, unsigned bytes)
{
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/// Waits until the phase of this parity (0, 1, 0, ...) is over. PTX ISA: mbarrier.try_wait.
__device__ __forceinline__ void wait_for(unsigned barrier, unsigned parity)
{
    unsigned done;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    } while (!done);
}

/// The same, but the loop is hidden in the PTX: the compiler may unroll the loop around it.
__device__ __forceinline__ void wait_for_without_loop(unsigned barrier, unsigned parity)
{
    asm volatile("{\n"
                 ".reg .pred open;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 open, [%0], %1;\n"
                 "@open bra done;\n"
                 "bra again;\n"
                 "done:\n"
                 "}" ::"r"(barrier), "r"(parity) : "memory");
}
