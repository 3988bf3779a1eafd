"""What the microscope counts and finds, rule by rule, on kernels made for them."""

import pytest
from builders import kernel_of, memory_faults, trace

SHARED = [  # one warp loads shared[index]; wavefronts and conflicts by element type
    ("threadIdx.x", "float", 1, 0),
    ("0", "float", 1, 0),  # a broadcast is free
    ("threadIdx.x * 2", "float", 2, 1),
    ("threadIdx.x * 32", "float", 32, 31),
    ("threadIdx.x * 33", "float", 1, 0),
    ("threadIdx.x", "double", 2, 0),  # one half-warp at a time
    ("threadIdx.x * 16", "double", 32, 30),
    ("threadIdx.x * 17", "double", 2, 0),
    ("threadIdx.x / 2", "double", 1, 0),  # but a whole warp if pairs of lanes read the same element
    ("threadIdx.x % 16", "double", 2, 0),
]


@pytest.mark.parametrize("index, dtype, wavefronts, conflicts", SHARED)
def test_shared_wavefronts(tmp_path, index, dtype, wavefronts, conflicts):
    body = f"""    __shared__ T shared[1056];
    for (int i = threadIdx.x; i < 1056; i += 32) shared[i] = A[0];
    __syncthreads();
    C[threadIdx.x] = shared[{index}];"""
    row, faults = trace(kernel_of(tmp_path, body), dtype, (1, 1, 32), block_x=32, block_y=1)
    assert (row["shared_load_requests"], row["shared_load_wavefronts"]) == (1, wavefronts)
    stores = row["shared_store_wavefronts"]
    assert stores == 33 * (2 if dtype == "double" else 1)
    assert row["shared_bank_conflicts"] == conflicts
    assert not memory_faults(faults)


def test_vectors_are_one_access(tmp_path):
    body = """    __shared__ float4 shared[32];
    shared[threadIdx.x] = reinterpret_cast<const float4*>(A)[threadIdx.x];
    __syncthreads();
    const float4 mine = shared[31 - threadIdx.x];
    C[threadIdx.x] = mine.x + mine.y + mine.z + mine.w;"""
    row, faults = trace(kernel_of(tmp_path, body), "float", (1, 128, 32), block_x=32, block_y=1)
    assert (row["global_load_requests"], row["global_load_sectors"]) == (1, 16)
    assert (row["shared_load_requests"], row["shared_load_wavefronts"], row["shared_bank_conflicts"]) == (1, 4, 0)
    assert not memory_faults(faults)


def test_structs_are_copied_in_pieces(tmp_path):
    """float3 as three loads of 4 bytes, like a GPU: all three touch the same 12 sectors."""
    body = """    struct Row { T x, y, z; };
    const Row row = reinterpret_cast<const Row*>(A)[threadIdx.x];
    C[threadIdx.x] = row.x + row.y + row.z;"""
    row, faults = trace(kernel_of(tmp_path, body), "float", (1, 96, 32), block_x=32, block_y=1)
    assert (row["global_load_requests"], row["global_load_sectors"]) == (3, 36)
    assert not memory_faults(faults)


def test_a_misaligned_warp_touches_one_sector_more(tmp_path):
    row, _ = trace(
        kernel_of(tmp_path, "    C[threadIdx.x] = A[threadIdx.x + 1];"), "float", (1, 33, 32), block_x=32, block_y=1
    )
    assert (row["global_load_requests"], row["global_load_sectors"], row["global_store_sectors"]) == (1, 5, 4)


def test_a_partial_warp_is_a_request(tmp_path):
    body = "    if (threadIdx.x % 2) C[threadIdx.x] = A[threadIdx.x];"
    row, _ = trace(kernel_of(tmp_path, body), "float", (1, 40, 40), block_x=40, block_y=1)
    assert (row["global_load_requests"], row["global_load_sectors"]) == (2, 5)


FAULTS = [  # body, kind, a part of the message
    (
        "C[0] = A[0];",
        "race",
        "thread (1, 0) of block (0, 0) writes C[0, 0] of global memory, which thread (0, 0) writes at line 4",
    ),
    ("if (threadIdx.x == 0) C[1] = C[0] = A[0]; else if (threadIdx.x == 5) C[2] = C[1];", "race", "reads C[0, 1]"),
    (
        "C[threadIdx.x] = C[threadIdx.x] + 1;",
        "uninitialised",
        "thread (0, 0) of block (0, 0) reads C[0, 0], which no thread has written",
    ),
    ("C[threadIdx.x] = A[1 << 20];", "out_of_bounds", "reads element 1048576 of A, which has 1 x 1 = 1"),
    (
        "C[threadIdx.x] = reinterpret_cast<const T*>(64)[threadIdx.x];",
        "out_of_bounds",
        "reads address 0x40, which is no part of any array",
    ),
    (
        "__shared__ T s[64]; C[threadIdx.x] = s[threadIdx.x];",
        "uninitialised",
        "reads s[0], which no thread of the block has written",
    ),
    (
        "__shared__ T s[64]; s[threadIdx.x] = A[0]; C[threadIdx.x] = s[63 - threadIdx.x];",
        "race",
        "thread (32, 0) of block (0, 0) writes s[32] of shared memory, which thread (31, 0) reads at line 4, "
        "with no __syncthreads() between",
    ),
    (
        "__shared__ T s[63]; s[threadIdx.x] = A[0]; __syncthreads(); C[threadIdx.x] = s[threadIdx.x / 2];",
        "out_of_bounds",
        "thread (63, 0) of block (0, 0) uses index 63 of an array of type 'float [63]'",
    ),
    (
        "__shared__ T s[63]; T* t = s; t[threadIdx.x + p - 1] = A[0]; C[threadIdx.x] = t[threadIdx.x];",
        "out_of_bounds",
        "writes s[63], past its end",
    ),
    (
        "extern __shared__ T ours[]; ours[threadIdx.x] = A[0]; C[threadIdx.x] = ours[threadIdx.x];",
        "out_of_bounds",
        "thread (0, 0) of block (0, 0) writes ours[0], past its end",
    ),
    (
        "__shared__ T s[64]; T* t = s; t[-(int)threadIdx.x] = A[0]; C[threadIdx.x] = 0;",
        "out_of_bounds",
        "writes s[-1], before its begin",
    ),
    (
        "const float2 pair = *reinterpret_cast<const float2*>(A + threadIdx.x); C[threadIdx.x] = pair.x + pair.y;",
        "misaligned",
        "thread (1, 0) of block (0, 0) reads A[0, 1] as 8 bytes, whose address must be a multiple of that",
    ),
    (
        "if (threadIdx.x < 32) __syncthreads(); C[threadIdx.x] = 0;",
        "ended",
        "thread (0, 0) of block (0, 0) waits here, thread (63, 0) has ended",
    ),
    (
        "if (threadIdx.x < 32)\n__syncthreads(); else\n__syncthreads(); C[threadIdx.x] = 0;",
        "divergence",
        "waits here, thread (32, 0) waits at line 6",
    ),
]


@pytest.mark.parametrize("body, kind, message", FAULTS, ids=[f"{f[1]}-{i}" for i, f in enumerate(FAULTS)])
def test_fault(tmp_path, body, kind, message):
    _, faults = trace(
        kernel_of(tmp_path, body), "float", (1, 4 if kind == "misaligned" else 1, 64), block_x=64, block_y=1
    )
    assert kind in {fault.kind for fault in memory_faults(faults)}
    assert any(message in str(fault) for fault in faults), [str(fault) for fault in faults]
    first = memory_faults(faults)[0]
    assert (first.file, first.block) == (str(tmp_path / "mine.cu"), (0, 0))
    assert first.line in (4, 5)


BLOCKS = [  # what each of two blocks of one thread does; whether it is a race
    ("C[blockIdx.x] = A[0];", None),
    ("C[0] = A[0];", "block (1, 0) writes C[0, 0] of global memory, which thread (0, 0) of block (0, 0) writes"),
    ("if (blockIdx.x) C[1] = C[0]; else C[0] = A[0];", "block (1, 0) reads C[0, 0] of global memory, which thread"),
    ("const_cast<T*>(A)[0] = n; C[blockIdx.x] = 2;", "block (1, 0) writes A[0, 0]"),
    (
        "if (blockIdx.x) const_cast<T*>(A)[0] = 1; C[blockIdx.x] = A[0];",
        "block (1, 0) writes A[0, 0] of global memory, which thread (0, 0) of block (0, 0) reads",
    ),
]


@pytest.mark.parametrize("body, message", BLOCKS)
def test_race_between_blocks(tmp_path, body, message):
    kernel = kernel_of(tmp_path, f"    {body}", covers=(1, 1))
    _, faults = trace(kernel, "float", (1, 1, 2), block_x=1, block_y=1)
    if message is None:
        assert not memory_faults(faults)
    else:
        assert any(f.kind == "race" and message in str(f) and "blocks run in any order" in str(f) for f in faults), (
            faults
        )


WARPS = "__shared__ T s[64]; s[threadIdx.x] = A[0]; {} C[threadIdx.x] = s[threadIdx.x ^ {}];"


@pytest.mark.parametrize(
    "barrier, other, clean",
    [("", 1, False), ("__syncwarp();", 1, True), ("__syncwarp();", 32, False), ("__syncthreads();", 32, True)],
)
def test_barrier_of_a_warp(tmp_path, barrier, other, clean):
    """__syncwarp() orders the lanes of a warp, not the warps of a block."""
    _, faults = trace(kernel_of(tmp_path, WARPS.format(barrier, other)), "float", (1, 1, 64), block_x=64, block_y=1)
    assert ("race" in {fault.kind for fault in faults}) != clean


def test_order_of_threads(tmp_path):
    """A result that depends on the order is reported, even if the tracer finds nothing wrong with the accesses."""
    body = "    const_cast<T*>(A)[0] = threadIdx.x; __syncthreads(); C[threadIdx.x] = A[0];"
    _, faults = trace(kernel_of(tmp_path, body), "float", (1, 1, 64), block_x=64, block_y=1)
    assert {"race", "order"} <= {fault.kind for fault in faults}
    assert any("C[0, 0] is 63.0 in ascending and 0.0 in reverse order" in str(fault) for fault in faults)


def test_wrong_product(tmp_path):
    _, faults = trace(kernel_of(tmp_path, "    C[threadIdx.x] = 7;"), "float", (1, 1, 64), block_x=64, block_y=1)
    assert [fault.kind for fault in faults] == ["incorrect"]
    assert "C[0, " in str(faults[0])
    assert "is 7, should be" in str(faults[0])
