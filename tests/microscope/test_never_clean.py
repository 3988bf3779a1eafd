"""What a kernel does wrong is seen wherever it does it: of each kind a faulty kernel, and beside it a clean one."""

import dataclasses
from pathlib import Path

import pytest
from builders import trace
from test_microscope import kernel_of, kinds_of

from kernelscope import calls

PRODUCT = "C[threadIdx.x] = A[0] * B[threadIdx.x];"
AT = "const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(&bar));"
MAKE = f"""    __shared__ unsigned long long bar;
    {AT}
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at) : "memory");
    __syncthreads();
"""
#: One thread writes and arrives, a warp waits as WAIT says, and reads.
HANDED_OVER = (
    MAKE.replace("__syncthreads", "__shared__ T s[32];\n    __syncthreads")
    + """
    if (threadIdx.x == 32) {
        for (int k = 0; k < 32; ++k) s[k] = B[k];
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at) : "memory");
    }
    if (threadIdx.x < 32) {
        unsigned done = 0;
        WAIT asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
                          : "=r"(done) : "r"(at) : "memory");
        C[threadIdx.x] = A[0] * s[threadIdx.x];
    }"""
)
OVERWRITTEN = (
    MAKE
    + """    INVALIDATE
    if (threadIdx.x == 0) reinterpret_cast<char*>(&bar)[3] = 0;
    """
    + PRODUCT
)
INVALIDATE = """if (threadIdx.x == 0) asm volatile("mbarrier.inval.shared::cta.b64 [%0];" :: "r"(at) : "memory");"""
FRAGMENT = """    using namespace nvcuda;
    __shared__ float s[256];
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> f;
    wmma::fill_fragment(f, 1.0f);
    wmma::store_matrix_sync(s, f, 16, wmma::mem_row_major);
    SYNC
    C[threadIdx.x] = A[0] * B[threadIdx.x] * s[threadIdx.x];"""
LOADED = """    using namespace nvcuda;
    __shared__ float s[256];
    for (int k = threadIdx.x; k < 256; k += 32) s[k] = 1;
    SYNC
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> f;
    wmma::load_matrix_sync(f, s, 16, wmma::mem_row_major);
    C[threadIdx.x] = A[0] * B[threadIdx.x] * f.x[0];"""
BULK = (
    MAKE
    + """    __shared__ alignas(16) T s[32];
    if (threadIdx.x == 0) {
        asm volatile("fence.proxy.async;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], BYTES;" :: "r"(at) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], BYTES, [%2];"
                     :: "r"(static_cast<unsigned>(__cvta_generic_to_shared(s))), "l"(B), "r"(at) : "memory");
    }
    unsigned done = 0;
    for (int k = 0; !done && k < 1000; ++k)
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
                     : "=r"(done) : "r"(at) : "memory");
    """
    + PRODUCT
)
#: The memory that is copied to has been written before.
BULK_ONTO = BULK.replace("BYTES", "128").replace("    __shared__ alignas(16) T s[32];\n", "")
BULK_ONTO = "    __shared__ alignas(16) T s[32];\n    s[threadIdx.x] = 1;\n" + BULK_ONTO
PRODUCTS = """    __shared__ alignas(1024) half tile[64 * 64];
    for (int k = threadIdx.x; k < 64 * 64; k += 128) tile[k] = __float2half(0.f);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const auto at = __cvta_generic_to_shared(tile);
    const unsigned long long d = (at & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
    float c[4] = {0, 0, 0, 0};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int k = 0; k < 2; ++k)
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "l"(d), "l"(d));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    BEFORE
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    C[threadIdx.x] = A[0] * B[threadIdx.x] + c[2];"""
RING = "__shared__ T s[32], t[32]; T* q = FROM; t[threadIdx.x] = 1; __syncthreads(); " + PRODUCT
#: Each thread comes to as many barriers.
LOOPS = (
    """    int rounds[3] = {0, 1, 2}, more = 1;
    const auto meet = [&] { for (int i = 0; i < n; ++i) __syncthreads(); };
#pragma unroll
    for (int k : rounds)
        if (k == FIRST || k == 2) for (int i = 0; i < n; ++i) do __syncthreads(); while (i < 0); else --more;
    while (__syncthreads_or(more++ < n)) meet();
    """
    + PRODUCT
)
SETMAXNREG = 'asm volatile("setmaxnreg.%s.sync.aligned.u32 %d;"); '


def registers(*changes):
    return "".join(SETMAXNREG % change for change in changes)


CASES = {  # the clean body, the faulty one, the kind of its fault, words of its message, other arguments of kinds_of
    "memcpy of 12 bytes": (
        "T r[3]; memcpy(r, B + threadIdx.x / 3 * 3 % 30, 12); C[threadIdx.x] = A[0] * B[threadIdx.x];",
        "T r[3]; memcpy(r, B + threadIdx.x, 12); C[threadIdx.x] = A[0] * r[0];",
        "out_of_bounds",
        "reads element 32 of B",
        {},
    ),
    "memcpy of 5 bytes": (
        "memcpy(C + threadIdx.x, B + threadIdx.x, 4 * n); C[threadIdx.x] *= A[0];",
        "memcpy(C + threadIdx.x, B + threadIdx.x, 5); C[threadIdx.x] *= A[0];",
        "out_of_bounds",
        "reads element 32 of B",
        {},
    ),
    "memcpy of 32 bytes": (
        "__shared__ T s[256]; memcpy(s + threadIdx.x * 8, B, 32); __syncthreads(); "
        "C[threadIdx.x] = A[0] * B[threadIdx.x] + 0 * s[threadIdx.x];",
        "__shared__ T s[256]; memcpy(s + threadIdx.x * 4, B, 32); __syncthreads(); "
        "C[threadIdx.x] = A[0] * B[threadIdx.x] + 0 * s[threadIdx.x];",
        "race",
        "writes s[4] of shared memory, which thread (0, 0) writes",
        {},
    ),
    "memset of 6 bytes": (
        "__shared__ short s[96]; memset(s + threadIdx.x * 3, 0, 6); " + PRODUCT,
        "__shared__ short s[96]; memset(s + threadIdx.x * 2, 0, 6); " + PRODUCT,
        "race",
        "of shared memory",
        {},
    ),
    "memcpy between addresses that 16 does not divide": (
        "float4 v; memcpy(&v, A + 1, 16); C[threadIdx.x] = A[0] * B[threadIdx.x] + 0 * v.x;"
        "for (int k = 1; k < p; ++k) C[threadIdx.x] += A[k] * B[k * 32 + threadIdx.x];",
        "float4 v = *reinterpret_cast<const float4*>(A + 1); C[threadIdx.x] = v.x;",
        "misaligned",
        "as 16 bytes",
        {"shape": (1, 8, 32)},
    ),
    "from one shared array into the next": (
        RING.replace("FROM", "s; q[threadIdx.x * n] = 0"),
        RING.replace("FROM", "s; q[threadIdx.x + 32 * n] = 0"),
        "out_of_bounds",
        "past its end",
        {},
    ),
    "from one shared array into the one before": (
        RING.replace("FROM", "t; s[threadIdx.x] = 0"),
        RING.replace("FROM", "t; s[threadIdx.x] = q[(int)threadIdx.x - 32 * n]"),
        "out_of_bounds",
        "before its begin",
        {},
    ),
    "an operand is written": (
        PRODUCT + " __syncthreads(); if (threadIdx.x == 0) const_cast<T&>(A[0]) = A[0];",
        PRODUCT + " __syncthreads(); if (threadIdx.x == 0) const_cast<T&>(A[0]) = 7;",
        "incorrect",
        "when it is launched a second time; the first time changed A",
        {},
    ),
    "a counter is left behind": (
        PRODUCT + " if (threadIdx.x == 0) { seen += 1; if (seen == 1) seen = 0; }",
        "if (seen == 0) " + PRODUCT + " __syncthreads(); if (threadIdx.x == 0) seen = 1;",
        "incorrect",
        "when it is launched a second time; the first time changed seen",
        {"before": "__device__ int seen;"},
    ),
    "a second launch waits for ever": (
        "if (threadIdx.x == 0) { while (atomicAdd(&seen, n) < 0); } " + PRODUCT,
        "if (threadIdx.x == 0) { while (atomicExch(&seen, 1) != 0); } " + PRODUCT,
        "stopped",
        "when it is launched a second time; the first time changed seen",
        {"before": "__device__ int seen;"},
    ),
    "setmaxnreg with a number that ptxas refuses": (
        registers(("inc", 240)) + PRODUCT,
        registers(("inc", 33)) + PRODUCT,
        "trap",
        "runs setmaxnreg with 33 registers, which ptxas refuses",
        {"shape": (1, 1, 128), "threads": 128},
    ),
    "setmaxnreg by one warp": (
        registers(("inc", 240)) + PRODUCT,
        "if (threadIdx.x < 32) " + registers(("inc", 240)) + PRODUCT,
        "divergence",
        "not all warps of a warp group run the same setmaxnreg",
        {"shape": (1, 1, 128), "threads": 128},
    ),
    "setmaxnreg with more registers than there are": (
        f"if (threadIdx.x < 128) {{ {registers(('dec', 40))} }} else {{ {registers(('inc', 232))} }} {PRODUCT}",
        f"if (threadIdx.x < 128) {{ {registers(('dec', 96))} }} else {{ {registers(('inc', 232))} }} {PRODUCT}",
        "deadlock",
        "for 232 registers per thread",
        {"shape": (1, 1, 384), "threads": 384},
    ),
    "try_wait outside of a loop": (
        HANDED_OVER.replace("WAIT", "while (!done)"),
        HANDED_OVER.replace("WAIT", ""),
        "race",
        "writes s[",
        {"threads": 64},
    ),
    "two barriers on one line": (
        "__syncthreads(); if (n) __syncthreads(); else __syncthreads(); " + PRODUCT,
        "if (threadIdx.x < 16) __syncthreads(); else __syncthreads(); " + PRODUCT,
        "divergence",
        "thread (16, 0) at another barrier of this line",
        {},
    ),
    "two barriers of PTX on one line": (
        'asm volatile("bar.sync 0;"); asm volatile("bar.sync 0;"); ' + PRODUCT,
        'if (threadIdx.x < 16) asm volatile("bar.sync 0;"); else asm volatile("bar.sync 0;"); ' + PRODUCT,
        "divergence",
        "thread (16, 0) at another barrier of this line",
        {},
    ),
    "the same barrier in two rounds of a loop": (
        "for (int k = 0; k < 3; ++k) { if (k == n) continue; __syncthreads(); } " + PRODUCT,
        "for (int k = 0; k < 3; ++k) { if (k == (threadIdx.x < 16 ? 0 : 2)) continue; __syncthreads(); } " + PRODUCT,
        "divergence",
        "waits here, thread (16, 0) in another round of a loop around it",
        {},
    ),
    "the same barrier in two rounds of loops of all kinds": (
        LOOPS.replace("FIRST", "0"),
        LOOPS.replace("FIRST", "threadIdx.x / 16"),
        "divergence",
        "waits here, thread (16, 0) in another round of a loop around it",
        {},
    ),
    "__ldg of what the kernel has written": (
        "C[threadIdx.x] = A[0] * __ldg(B + threadIdx.x);",
        PRODUCT + " C[threadIdx.x] = __ldg(C + threadIdx.x);",
        "race",
        "as what no thread writes (__ldg, ld.global.nc), and line 5 writes it",
        {},
    ),
    "ld.global.nc of what the kernel writes later": (
        'T v; asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(A)); C[threadIdx.x] = v * B[threadIdx.x];',
        'T v; asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(B + threadIdx.x)); C[threadIdx.x] = A[0] * v;'
        " const_cast<T&>(B[threadIdx.x]) = v;",
        "race",
        "which line 5 reads as what no thread writes (__ldg, ld.global.nc)",
        {},
    ),
    "a fragment in shared memory is read without __syncwarp": (
        FRAGMENT.replace("SYNC", "__syncwarp();"),
        FRAGMENT.replace("SYNC", ""),
        "race",
        "of shared memory",
        {"before": "#include <mma.h>"},
    ),
    "a fragment is loaded without __syncwarp": (
        LOADED.replace("SYNC", "__syncwarp();"),
        LOADED.replace("SYNC", ""),
        "race",
        "of shared memory",
        {"before": "#include <mma.h>"},
    ),
    "a sum of wgmma is read before the wait": (
        PRODUCTS.replace("BEFORE", ""),
        PRODUCTS.replace("BEFORE", "C[threadIdx.x] = c[1];"),
        "asynchrony",
        "reads a sum of the product (wgmma) at line 14; nothing has waited for it",
        {"before": "#include <cuda_fp16.h>", "shape": (1, 1, 128), "threads": 128},
    ),
    "a sum of wgmma is written before the wait": (
        PRODUCTS.replace("BEFORE", ""),
        PRODUCTS.replace("BEFORE", "c[3] *= 2;"),
        "asynchrony",
        "a sum of the product (wgmma) at line 14; nothing has waited for it",
        {"before": "#include <cuda_fp16.h>", "shape": (1, 1, 128), "threads": 128},
    ),
    "before the begin of a local array": (
        "T r[40] = {1, 2}; T* q = r + n; q[-p] = 1; C[threadIdx.x] = A[0] * B[threadIdx.x] * q[-p];",
        "T r[40] = {1, 2}; T* q = r + n; q[-p * 50] = 1; C[threadIdx.x] = A[0] * B[threadIdx.x] * q[-p];",
        "out_of_bounds",
        "writes before the start of a local variable",
        {},
    ),
    "bytes of an mbarrier are overwritten": (
        OVERWRITTEN.replace("INVALIDATE", INVALIDATE),
        OVERWRITTEN.replace("INVALIDATE", ""),
        "race",
        "writes bar[3] of shared memory, where the mbarrier made at line 7 is still in use",
        {},
    ),
    "a barrier that no block has": (
        'asm volatile("bar.sync 15;" ::: "memory");' + PRODUCT,
        'asm volatile("bar.sync 16;" ::: "memory");' + PRODUCT,
        "invalid",
        "error: invalid use of an instruction: thread (0, 0): a block has 16 barriers, 0 to 15, not number 16",
        {},
    ),
    "a barrier of one warp and a half": (
        'asm volatile("bar.sync 1, 32;" ::: "memory");' + PRODUCT,
        'asm volatile("bar.sync 1, 48;" ::: "memory");' + PRODUCT,
        "invalid",
        "error: invalid use of an instruction: thread (0, 0): a barrier takes whole warps, not 48 threads",
        {},
    ),
    "a bulk copy of 100 bytes": (
        BULK.replace("BYTES", "112"),
        BULK.replace("BYTES", "100"),
        "invalid",
        "error: invalid use of an instruction: thread (0, 0): 16 does not divide the size of cp.async.bulk, 100 bytes",
        {},
    ),
    "a bulk copy onto what threads have written": (
        BULK_ONTO,
        BULK_ONTO.replace("fence.proxy.async", "fence.mbarrier_init.release.cluster"),
        "unfenced_reuse",
        "overwrites s[0] of shared memory, which thread (0, 0) writes at line",
        {},
    ),
    "another thread's local variable is read": (
        "__shared__ T s; T own = B[threadIdx.x]; if (threadIdx.x == 5) s = own; __syncthreads();"
        " C[threadIdx.x] = A[0] * own + (s - s);",
        "__shared__ T* s; T own = B[threadIdx.x]; if (threadIdx.x == 5) s = &own; __syncthreads();"
        " C[threadIdx.x] = A[0] * own + (*s - *s);",
        "out_of_bounds",
        "thread (0, 0) reads a local variable of another thread; on a GPU, the address refers to its own local memory",
        {},
    ),
    "lanes that have ended": (
        "if (threadIdx.x >= 16) return; C[threadIdx.x] = A[0] * B[threadIdx.x] * __shfl_sync(0xffff, 1, 0);",
        "if (threadIdx.x >= 16) return; C[threadIdx.x] = A[0] * B[threadIdx.x] * __shfl_sync(0xffffffff, 1, 0);",
        "ended",
        "remark: threads that have ended: the mask 0xffffffff names lanes 0xffff0000 of warp 0",
        {"shape": (1, 1, 16), "threads": 32},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("clean, faulty, kind, words, fields", CASES.values(), ids=CASES)
def test_the_faulty_one_is_named_and_the_clean_one_is_not(tmp_path, clean, faulty, kind, words, fields):
    fields = {"shape": (1, 1, 32)} | fields
    kinds, faults = kinds_of(tmp_path, clean, **fields)
    assert not kinds, faults
    (tmp_path / "faulty").mkdir()
    kinds, faults = kinds_of(tmp_path / "faulty", faulty, **fields)
    assert kind in kinds and any(words in fault for fault in faults), faults


@pytest.mark.parametrize("cooperative", [True, False])
def test_the_grid_meets_in_a_cooperative_launch_only(tmp_path, cooperative):
    body = f"cooperative_groups::this_grid().sync(); {PRODUCT}"
    kernel = kernel_of(tmp_path, body, before="#include <cooperative_groups.h>")
    [launch] = kernel.launches
    kernel = dataclasses.replace(kernel, launches=(dataclasses.replace(launch, cooperative=cooperative),))
    _, faults = trace(kernel, "float", (1, 1, 32), block_x=32, block_y=1)
    said = [str(fault) for fault in faults]
    assert [fault.kind for fault in faults] == ([] if cooperative else ["trap"]), said
    assert cooperative or "thread (0, 0) synchronises the grid in a launch that is not coop" in said[0]


@pytest.mark.parametrize("who", ["threadIdx.x % 2 == 0", "blockIdx.x == 0"])
def test_a_thread_that_ends_does_not_arrive_at_the_grid_s_barrier(tmp_path, who):
    text = f"""#include <cooperative_groups.h>
    __global__ void f(int* c)
    {{
        if ({who}) cooperative_groups::this_grid().sync();
        c[32 * blockIdx.x + threadIdx.x] = 1;
    }}
    """
    path = Path(tmp_path, "grid.cu")
    path.write_text(text)
    report = calls.trace(path, calls.Call("f", 2, 32, cooperative=True), {"c": "int[64]"})
    assert [fault.kind for fault in report.faults] == ["deadlock"], report.faults
    assert "the grid's barrier, at which 32 of 64 threads have arrived" in str(report.faults[0])


@pytest.mark.parametrize("meet", ["__syncthreads()", "cooperative_groups::this_grid().sync()"])
def test_an_atomic_operation_does_not_hide_the_plain_write_before_it(tmp_path, meet):
    """Thread 0 of the grid clears a counter that each block then adds to; only the grid's barrier orders the two."""
    path = Path(tmp_path, "counter.cu")
    path.write_text(
        f"""#include <cooperative_groups.h>
    __global__ void f(int* counter)
    {{
        if (cooperative_groups::this_grid().thread_rank() == 0) *counter = 0;
        {meet};
        if (threadIdx.x == 0) atomicAdd(counter, 1);
    }}
    """
    )
    report = calls.trace(path, calls.Call("f", 4, 32, cooperative=True), {"counter": "int[1]:zero"})
    assert {fault.kind for fault in report.faults} == (set() if "grid" in meet else {"race"}), report.faults
    assert "grid" in meet or 6 in [fault.line for fault in report.faults], "only the counter's writer comes first"


def test_a_volatile_store_reads_nothing(tmp_path):
    path = Path(tmp_path, "volatile.cu")
    path.write_text(
        "__global__ void f(volatile int* c, int* d) { c[threadIdx.x] = 1; atomicExch(d + threadIdx.x, 1); }"
    )
    report = calls.trace(path, calls.Call("f", 1, 32), {"c": "int[32]", "d": "int[32]:zero"})
    assert report.ok, report.faults
    report = calls.trace(path, calls.Call("f", 1, 32), {"c": "int[32]", "d": "int[32]"})
    assert [fault.kind for fault in report.faults] == ["uninitialised"], report.faults


def test_a_mask_without_its_own_lane_is_one_fault(tmp_path):
    """No remark beside it speaks of a mask that nobody wrote, or of lanes that have ended since."""
    body = f"__syncwarp(0x1ffff); {PRODUCT}"
    kinds, faults = kinds_of(tmp_path, body, shape=(1, 1, 32))
    assert kinds == {"divergence"}, faults
    assert "calls with the mask 0x1ffff, which does not name its own lane 17" in faults[0]


def test_a_block_without_whole_warps_has_no_lanes_that_ended(tmp_path):
    body = "C[threadIdx.x] = A[0] * B[threadIdx.x] * __shfl_sync(0xffffffff, 1, 0);"
    assert kinds_of(tmp_path, body, shape=(1, 1, 16), threads=16) == (set(), [])
