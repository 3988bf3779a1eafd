"""What goes by another way than loads and stores of the LSU pipe is counted by itself: cp.async, ldmatrix, TMA, and
what the blocks of a cluster move between them."""
# ruff: noqa: E501 (statements of inline PTX)

import pytest
from builders import trace

from tilewise.study.kernel import Kernel, LaunchEntry

TEXT = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
#define ME (static_cast<int>(threadIdx.x))
__device__ __forceinline__ unsigned number(const void* shared) { return static_cast<unsigned>(__cvta_generic_to_shared(shared)); }
__device__ __forceinline__ unsigned there(const void* shared, unsigned rank)
{
    unsigned at;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(number(shared)), "r"(rank));
    return at;
}
__global__ void mine(const float* A, const float* B, float* C, int n, int p, int m)
{
    __shared__ alignas(128) float s[256];
    __shared__ unsigned long long full;
    const cg::cluster_group cluster = cg::this_cluster();
    const unsigned rank = cluster.block_rank(), other = 1 - rank;
    if (ME == 0)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\\nfence.mbarrier_init.release.cluster;" ::"r"(number(&full)) : "memory");
    for (int e = ME; e < 256; e += 32) s[e] = e;
    asm volatile("fence.proxy.async;" ::: "memory");
    cluster.sync();
    BODY
    cluster.sync();
}
"""
EXPECT = (
    'asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(number(&full)), "r"({}) : "memory");'
)
WAIT = """asm volatile("{{\\n.reg .pred p;\\nL: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;\\n@!p bra L;\\n}}"
    ::"r"(number(&full)) : "memory");""".replace("{{", "{").replace("}}", "}")
BULK = "cp.async.bulk.shared::cluster.{}.mbarrier::complete_tx::bytes"
FULL = '"r"(number(&full))'
BODIES = {  # what a block does; what is counted for the two blocks of the launch, beside nothing
    "cp.async": (
        'asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\\ncp.async.wait_all;" ::"r"(number(s + 4 * ME)), "l"(A + 4 * ME) : "memory");',
        {"async_load_requests": 2, "async_load_sectors": 32},
    ),
    "ldmatrix": (
        "unsigned r; "
        'asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(number(s + 4 * (ME % 8))) : "memory");',
        {"matrix_load_requests": 2},
    ),
    "a bulk load": (
        "if (ME == 0) {"
        + EXPECT.format(256)
        + f'asm volatile("{BULK.format("global")} [%0], [%1], 256, [%2];" ::"r"(number(s)), "l"(A), {FULL} : "memory"); }}'
        + WAIT,
        {"tma_load_requests": 2, "tma_load_sectors": 16},
    ),
    "a bulk store": (
        "if (ME == 0 && rank == 0) asm volatile("
        '"cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;\\ncp.async.bulk.commit_group;\\ncp.async.bulk.wait_group 0;"'
        '::"l"(C), "r"(number(s)) : "memory");',
        {"tma_store_requests": 1, "tma_store_sectors": 8},
    ),
    "multicast": (
        "if (ME == 0) {"
        + EXPECT.format(256)
        + f'if (rank == 0) asm volatile("{BULK.format("global")}.multicast::cluster [%0], [%1], 256, [%2], %3;"'
        + f'::"r"(number(s)), "l"(A), {FULL}, "h"(static_cast<unsigned short>(3)) : "memory"); }}'
        + WAIT,
        {"tma_load_requests": 1, "tma_load_sectors": 8, "multicast_sectors": 8},
    ),
    "a load from the other block": (
        "const float* theirs = cluster.map_shared_rank(s, other); assert(theirs[ME] == ME);",
        {"cluster_load_sectors": 8},
    ),
    "stores to the other block": (
        "cluster.map_shared_rank(s, other)[2 * ME] = 1; "
        'asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there(s + 64 + ME, other)), "f"(1.0f) : "memory");',
        {"cluster_store_sectors": 2 * 8 + 2 * 4},
    ),
    "st.async": (
        "if (ME == 0) "
        + EXPECT.format(128)
        + "cluster.sync();"
        + 'asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"'
        + '::"r"(there(s + 8 * ME, other)), "r"(ME), "r"(there(&full, other)) : "memory");'
        + WAIT,
        {"cluster_store_sectors": 64},
    ),
    "a copy between blocks": (
        "if (ME == 0) "
        + EXPECT.format(512)
        + "cluster.sync();"
        + f'if (ME == 0) asm volatile("{BULK.format("shared::cta")} [%0], [%1], 512, [%2];"'
        + '::"r"(there(s + 128, other)), "r"(number(s)), "r"(there(&full, other)) : "memory");'
        + WAIT,
        {"cluster_store_sectors": 32},
    ),
}
WAYS = {name for _, counted in BODIES.values() for name in counted}
BY_TOTAL = {
    "global_load_requests": ("async_load_requests", "tma_load_requests"),
    "global_load_sectors": ("async_load_sectors", "tma_load_sectors"),
    "global_store_requests": ("tma_store_requests",),
    "global_store_sectors": ("tma_store_sectors",),
}


@pytest.mark.parametrize("what", BODIES)
def test_counts(tmp_path, what):
    body, counted = BODIES[what]
    (tmp_path / "mine.cu").write_text(TEXT.replace("BODY", body))
    launch = LaunchEntry(function="mine", block=("32",), grid=("2",), cluster=("2",))
    kernel = Kernel("mine", "mine", "cuda", ("float",), "mine.cu", launches=(launch,), folder=tmp_path)
    row, faults = trace(kernel, "float", (4, 64, 64))
    found = [str(fault) for fault in faults if fault.kind != "incorrect"]
    assert not found
    assert {name: row[name] for name in WAYS} == dict.fromkeys(WAYS, 0) | counted
    for total, parts in BY_TOTAL.items():  # and nothing else goes to global memory
        assert row[total] == sum(counted.get(part, 0) for part in parts), total
    assert row["shared_load_requests"] == counted.get("matrix_load_requests", 0)
