"""The ladder under the microscope: every rung is clean and right at a ragged shape of two tiles each way, and mistakes
in what it leaves to the hardware are found. A mutant is the text of a kernel in which one string is replaced."""

import dataclasses

import pytest
from builders import KERNELS, trace

from tilewise.study.sources import INCLUDE

RING = {"tile_n": 128, "tile_m": 256, "tile_k": 16, "stages": 3, "walk": 69}
PARTS = {"tile_m": 64, "stages": 4, "cluster_blocks": 1, "band": 4}
#: Element type, shape and parameters of a kernel; its name is the first word. Sums are long enough to go round a ring.
RUNGS = {
    "pipelined": (
        "float",
        (67, 37, 131),
        {"tile_n": 64, "tile_m": 64, "tile_k": 8, "thread_n": 8, "thread_m": 4, "walk": 0},
    ),
    "async_copies": (
        "float",
        (67, 36, 132),
        {"tile_n": 64, "tile_m": 64, "tile_k": 8, "stages": 3, "thread_n": 8, "thread_m": 4},
    ),
    "tma_ring": ("float", (131, 101, 260), RING),
    "transposing_ring": ("float", (131, 101, 260), RING),
    "stream_k": ("float", (131, 101, 260), RING | {"band": 4}),
    "stream_k of 12 columns": ("float", (131, 100, 200), RING | {"tile_m": 192, "band": 4}),
    "dmma": ("double", (67, 37, 131), {"mma_rows": 16, "mma_k": 16}),
    "dmma_pipelined": (
        "double",
        (131, 36, 70),
        {
            "tile_n": 64,
            "tile_m": 64,
            "tile_k": 16,
            "warp_n": 32,
            "warp_m": 32,
            "mma_k": 16,
            "stages": 3,
            "blocks_per_sm": 1,
        },
    ),
    "dmma_ring": (
        "double",
        (131, 71, 70),
        {"tile_n": 64, "tile_m": 64, "warp_n": 32, "warp_m": 16, "stages": 3, "band": 4},
    ),
    "dmma_ring with shares": (
        "double",
        (130, 520, 70),
        {"tile_n": 64, "tile_m": 64, "warp_n": 32, "warp_m": 16, "stages": 3, "band": 4},
    ),
    "mma_sync": (
        "half",
        (67, 200, 72),
        {"tile_n": 64, "tile_m": 64, "tile_k": 64, "warp_n": 32, "warp_m": 64, "stages": 3, "blocks_per_sm": 1},
    ),
    "wgmma": ("half", (131, 264, 72), {"tile_m": 64, "stages": 3}),
    "warp_specialised": ("bfloat16", (131, 261, 67), {"tile_m": 64, "stages": 2}),
    "clusters": ("half", (131, 136, 136), {"tile_m": 64, "stages": 3, "cluster_blocks": 1, "band": 4}),
    "clusters of two": (
        "half",
        (260, 264, 72),
        {"tile_m": 64, "stages": 3, "cluster_blocks": 2, "band": 4},
    ),
    "wgmma_turns": ("half", (260, 264, 264), {"tile_m": 64, "stages": 3, "cluster_blocks": 1, "band": 4}),
    "wgmma_turns of two": ("bfloat16", (389, 261, 131), {"tile_m": 64, "stages": 3, "cluster_blocks": 2, "band": 4}),
    "wgmma_tf32": ("tf32", (131, 72, 261), {"tile_n": 64, "stages": 3, "band": 4}),
    "wgmma_int8": ("int8", (131, 520, 72), {"tile_m": 64, "stages": 3, "cluster_blocks": 1, "band": 4}),
    "wgmma_int8 of two": ("int8", (260, 521, 72), {"tile_m": 64, "stages": 3, "cluster_blocks": 2, "band": 4}),
    "wgmma_int8_turns": ("int8", (260, 520, 264), {"tile_m": 64, "stages": 3, "cluster_blocks": 1, "band": 4}),
    "wgmma_int8_turns of two": ("int8", (389, 521, 131), {"tile_m": 64, "stages": 3, "cluster_blocks": 2, "band": 4}),
    "transposing_int8": ("int8", (131, 528, 272), {"tile_n": 64, "stages": 3, "band": 4}),
    "transposing_int8 of copies": ("int8", (131, 520, 270), {"tile_n": 64, "stages": 3, "band": 4}),
    "double_from_int8": (
        "double",
        (35, 72, 40),
        {"moduli": 13, "tile_m": 64, "stages": 3, "cluster_blocks": 1, "band": 4},
    ),
    "double_from_int8 of two": (
        "double",
        (131, 131, 35),
        {"moduli": 16, "tile_m": 64, "stages": 2, "cluster_blocks": 2, "band": 4},
    ),
    "double_always": ("double", (35, 264, 40), {"tile_m": 64, "stages": 3, "cluster_blocks": 1, "band": 4}),
    "double_always of two": ("double", (131, 261, 35), {"tile_m": 64, "stages": 2, "cluster_blocks": 2, "band": 4}),
    "float_from_half of two": ("float", (131, 389, 67), PARTS | {"cluster_blocks": 2}),
    "three_tf32": ("float", (131, 69, 67), {"products": 3, "tile_m": 64, "stages": 3, "band": 4}),
    "float_from_bf16": ("float", (131, 69, 67), PARTS),
    "float_from_half": ("float", (131, 389, 67), PARTS),
    "float_always": ("float", (131, 389, 67), {"tile_m": 64, "stages": 5, "band": 4, "exact_m": 64}),
}

FULL, FREE = "wait_for(full + 8 * place.stage, place.parity);", "wait_for(empty + 8 * place.stage, place.parity ^ 1);"
MUTANTS = [  # the kernel, the old text, the new text, the kind of fault
    ("async_copies", "wait_for_copy_groups<STAGES - 2>();", "", "asynchrony"),
    ("wgmma", FULL, "", "asynchrony"),
    ("wgmma", "wait_for_products<1>();", "wait_for_products<2>();", "race"),
    ("wgmma", "__syncthreads();  // in both", "// in both", "race"),
    ("wgmma", "make_barrier(full + 8 * s, 1);", "make_barrier(full + 8 * s, 2);", "deadlock"),
    ("wgmma", "arrive_and_expect(barrier, STAGE_BYTES);", "arrive_and_expect(barrier, STAGE_BYTES + 16);", "deadlock"),
    ("wgmma", "publish_barriers();", "", "asynchrony"),
    ("warp_specialised", "% 32 == 0) arrive(previous);", "% 128 < 8 && consumer == 0) arrive(previous);", "race"),
    ("warp_specialised", "make_barrier(empty + 8 * s, 8);", "make_barrier(empty + 8 * s, 9);", "deadlock"),
    ("warp_specialised", "wait_for_products<1>();", "wait_for_products<2>();", "race"),
    ("warp_specialised", FREE, "", "asynchrony"),
    ("clusters", "show_to_async_proxy();", "", "asynchrony"),
    ("clusters", "PARTS * PANELS % OUTS == 0 ? OUTS - 1 : 0", "OUTS - 1", "race"),
    ("clusters", "wait_for_store_reads<", "if (false) wait_for_store_reads<", "race"),
    ("clusters of two", "if constexpr (CLUSTER > 1) cluster_sync();  // a", "// a", "asynchrony"),
    ("clusters of two", "else cluster_sync();", "else __syncthreads();", "asynchrony"),
    ("clusters of two", "load_box_for(3, ", "load_box_for(1, ", "deadlock"),
    ("clusters of two", "(TURNS ? 4 : 8) * CLUSTER);", "8);", "asynchrony"),
    ("clusters of two", "arrive_in_block(previous, lane)", "arrive_in_block(previous, rank)", "asynchrony"),
    ("clusters of two", "wait_for_products<1>();", "wait_for_products<2>();", "race"),
    ("wgmma_turns", "place.skip(steps);", "", "deadlock"),
    ("wgmma_turns", "(tile_number / 2 + consumer + 1) % 2", "(tile_number / 2 + consumer) % 2", "deadlock"),
    ("transposing_int8", "warp ^ own_k % 8", "warp", "incorrect"),
    ("tma_ring", "__syncthreads();  // the barriers exist", "", "race"),
    ("float_always", "show_to_async_proxy();", "", "unfenced_reuse"),
    (
        "float_always",
        "Layout::SLOT_BYTES);\n                    const unsigned slot_to",
        "0);\n                    const unsigned slot_to",
        "deadlock",
    ),
    ("float_always", "__syncthreads();  // the group's words are zero", "", "race"),
    ("double_from_int8", "(size.squares) - size", "(size.squares) + 4 - size", "incorrect"),
    ("double_always", "if (k >= pitch) return;", "if (k >= p - 4) return;", "incorrect"),
]


@pytest.mark.parametrize("name", RUNGS)
def test_rung(name):
    dtype, shape, choice = RUNGS[name]
    row, faults = trace(KERNELS[name.split()[0]], dtype, shape, **choice)
    assert not faults, [str(fault) for fault in faults]
    assert row["global_load_sectors"] > 0


def test_sixteen_blocks_share_the_sums_of_a_tile():
    values = {"tile_n": 32, "tile_m": 32, "tile_k": 16, "thread_n": 4, "thread_m": 4, "stages": 4, "walk": 0}
    _, faults = trace(KERNELS["split_sums"], "float", (20, 544, 24), **values)
    [fault] = faults  # the fragments of the step after the last, two per thread
    assert (fault.kind, fault.count) == ("unused", 16 * 64 * 2)


def traced_mutant(folder, name, old, new, header=""):
    """The file in which `old` is replaced, and the faults: the rung's own text or, if named, a header's, which is found
    beside the kernel before that of kernels/include."""
    kernel = KERNELS[name.split()[0]]
    own = folder / kernel.source
    own.parent.mkdir(parents=True)
    own.write_text(kernel.path.read_text())
    path = own.parent / header if header else own
    text = (INCLUDE / header if header else kernel.path).read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    dtype, shape, choice = RUNGS[name]
    _, faults = trace(dataclasses.replace(kernel, folder=folder), dtype, shape, **choice)
    return path, faults


BYTES, TRANSPOSED = "int8_product.cuh", "transposed_product.cuh"
HEADER_MUTANTS = [  # as MUTANTS, in a header
    (BYTES, "wgmma_int8", "wait_for(full + 8 * place.stage, place.parity);", "", "asynchrony"),
    (BYTES, "wgmma_int8", "wait_for(empty + 8 * place.stage, place.parity ^ 1);", "", "asynchrony"),
    (BYTES, "wgmma_int8", "wait_for_products<1>();", "wait_for_products<2>();", "race"),
    (BYTES, "wgmma_int8", "wait_for_products<0>();", "", "asynchrony"),
    (BYTES, "wgmma_int8", "begin_products();", "", "asynchrony"),
    (BYTES, "wgmma_int8 of two", "load_box_for(3, ", "load_box_for(1, ", "deadlock"),
    (BYTES, "wgmma_int8_turns", "place.skip(steps);", "", "deadlock"),
    (BYTES, "wgmma_int8_turns", "(tile_number / 2 + consumer + 1) % 2", "(tile_number / 2 + consumer) % 2", "deadlock"),
    (BYTES, "wgmma_int8 of two", "if constexpr (CLUSTER > 1) cluster_sync();  // a", "// a", "asynchrony"),
    (TRANSPOSED, "transposing_int8", "show_to_async_proxy();", "", "unfenced_reuse"),
    (TRANSPOSED, "transposing_int8", "wait_for_products<1>();", "wait_for_products<2>();", "race"),
    (TRANSPOSED, "wgmma_tf32", "show_to_async_proxy();", "", "unfenced_reuse"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "header, name, old, new, kind", HEADER_MUTANTS, ids=[f"{m[1]}-{m[4]}-{m[2][:30]}" for m in HEADER_MUTANTS]
)
def test_mutant_of_what_rungs_share(tmp_path, header, name, old, new, kind):
    _, faults = traced_mutant(tmp_path, name, old, new, header)
    found = [fault for fault in faults if fault.kind == kind]
    assert found, [str(fault) for fault in faults]
    place = f"{KERNELS[name.split()[0]].path.name}:"
    assert any(place in str(fault) for fault in found), "the message names the line of the kernel"


DOUBLES_MUTANTS = [  # as MUTANTS, in double_parts.cuh
    ("double_from_int8", "magnitudes_of[warp][lane] = sums.magnitudes;\n        __sync", "race"),
    ("double_always", "elements.x[lane][warp * (SPLIT_K / 8) + i] = x[i];\n    }\n    __sync", "race"),
    ("double_from_int8 of two", "< pitch)  // also", "uninitialised"),
]


@pytest.mark.slow
@pytest.mark.parametrize("name, old, kind", DOUBLES_MUTANTS, ids=[f"{m[0]}-{m[2]}" for m in DOUBLES_MUTANTS])
def test_mutant_of_what_doubles_share(tmp_path, name, old, kind):
    new = old.replace("__sync", "if (p < 0) __sync").replace("< pitch)", "< m - 32)")
    _, faults = traced_mutant(tmp_path, name, old, new, "double_parts.cuh")
    assert kind in {fault.kind for fault in faults}, [str(fault) for fault in faults]


@pytest.mark.slow
@pytest.mark.parametrize("name, header", [("tma_ring", "ring_product.cuh"), ("float_from_half", "parts.cuh")])
def test_what_is_read_is_fenced_before_tma_overwrites_it(tmp_path, name, header):
    fence = "show_to_async_proxy();"
    assert (INCLUDE / header).read_text().count(fence) == 1
    _, faults = traced_mutant(tmp_path, name, fence, "", header)
    assert {fault.kind for fault in faults} == {"unfenced_reuse"}
    assert all("overwrites" in str(fault) and "with no fence.proxy.async between" in str(fault) for fault in faults)


@pytest.mark.slow
@pytest.mark.parametrize("name, old, new, kind", MUTANTS, ids=[f"{m[0]}-{m[3]}-{m[2][:30]}" for m in MUTANTS])
def test_mutant(tmp_path, name, old, new, kind):
    path, faults = traced_mutant(tmp_path, name, old, new)
    found = [fault for fault in faults if fault.kind == kind]
    assert found, [str(fault) for fault in faults]
    assert any(str(path) in str(fault) for fault in found), "the message names the line of the kernel"
