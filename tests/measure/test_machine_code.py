"""The instructions of multiply-add loops: from golden disassemblies that were read by hand, and from fresh cubins."""

import re
import shutil
from pathlib import Path

import networkx as nx
import pytest
import synthetic

from tilewise import RECORDED, UserError
from tilewise.__main__ import main
from tilewise.evidence import load_platform
from tilewise.measure import machine_code
from tilewise.nvidia import sass
from tilewise.nvidia.sass import Instruction, functions, kind, loops, main_loop
from tilewise.study import columns
from tilewise.study.points import point

#: `nvdisasm -c` of kernels of this study, compiled for sm_90 and sm_90a by NVRTC 13.0.
GOLDEN = Path(__file__).parent / "machine_code"


def golden(name):
    """The graph of the golden kernel, without those of its helpers."""
    [graph] = [graph for symbol, graph in functions((GOLDEN / f"{name}.sass").read_text()).items() if name in symbol]
    return graph


def between(first, last):
    """How many instructions lie from one address to another; each has 16 bytes."""
    return (last - first) // 16 + 1


# Read by hand: what the loop of each file is, from the address of its first instruction to that of its last.
LOOPS = {
    # .L_x_4: unrolled 16 times, two loads for each multiply-add; two more loops do the rest.
    "naive": (
        "float",
        between(0x0340, 0x08B0),
        {"multiply_add": "FFMA", "multiply_add_instructions": 16, "global_loads_32": 32}
        | {"shared_loads_32": 0, "control": 1, "reused_operands": 0},
    ),
    # .L_x_1: 32 k. A's row comes 16 bytes at a time, B's column does not. The HFMA2.MMA makes a zero.
    "tiled": (
        "float",
        between(0x0250, 0x0880),
        {"multiply_add": "FFMA", "multiply_add_instructions": 32, "shared_loads_128": 8, "shared_loads_32": 32}
        | {"shared_stores": 2, "global_loads_32": 2, "synchronisation": 2},
    ),
    # .L_x_5 to .L_x_4, with the copies of the next stage between; LDS RZ three times, LDGDEPBAR, DEPBAR and BAR.
    "dmma": (
        "double",
        between(0x1790, 0x1E20),
        {"multiply_add": "DMMA.16x8x16", "multiply_add_instructions": 8, "shared_loads_128": 16}
        | {"shared_loads_32": 0, "async_copies": 8, "synchronisation": 6},
    ),
    # 64 k in four steps of 16. Of its 90 instructions .L_x_31 only waits for a stage, and BB16 leads back from there.
    # TMA fetches two tiles, or one.
    "wgmma": (
        "bfloat16",
        90 - 2 - 1,
        {"multiply_add": "HGMMA.64x128x16.F32.BF16", "multiply_add_instructions": 4, "tensor_copies": 3}
        | {"shared_loads_128": 0, "arithmetic": 0},
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_golden(name):
    dtype, instructions, counts = LOOPS[name]
    found = main_loop(golden(name), dtype)
    assert found["instructions"] == instructions
    assert {kind: found[kind] for kind in counts} == counts
    assert found["multiply_add_share"] == counts["multiply_add_instructions"] / instructions
    kinds = [found[kind] for kind in (*sass.OPCODES, "other")]
    assert sum(kinds) + found["multiply_add_instructions"] == instructions
    assert found["other"] == found["spills"] == 0


def test_every_instruction_of_a_block_is_read():
    """The addresses of the golden text, which the reader does not look at, count the same instructions."""
    for path in GOLDEN.glob("*.sass"):
        text = path.read_text()
        graphs = functions(text)
        read = sum(map(len, graphs.values()))
        assert read == len(re.findall(r"/\*[0-9a-f]{4,}\*/", text)) > 100, path


@pytest.mark.parametrize(("compiled", "form"), [("tiled", 0x41), ("tiled_12", 0x33)])
def test_a_golden_cubin_reads_like_its_text(compiled, form):
    """CUDA 12 writes cubins in an older form of ELF; NVRTC 12.9 and 13.0 compile this loop alike."""
    assert (GOLDEN / f"{compiled}.cubin").read_bytes()[7] == form
    [(symbol, graph)] = functions(sass.disassemble(GOLDEN / f"{compiled}.cubin")).items()
    assert symbol.startswith("_Z5tiledIfLi32E")
    assert main_loop(graph, "float") == main_loop(golden("tiled"), "float")


BRANCHES = """
        .type           k,@function
k:
.text.k:
        /*0000*/                   BSSY B0, `(.L_x_1) ;
        /*0010*/               @P0 BRA `(.L_x_0) ;
        /*0020*/                   CALL.REL.NOINC `(helper) ;
        /*0030*/                   BSYNC B0 ;
.L_x_0:
        /*0040*/                   BRA.U UP0, `(.L_x_0) ;
        /*0050*/              @!P1 EXIT ;
        /*0060*/                   BRA `(.L_x_0) ;
.L_x_1:
        /*0070*/                   EXIT ;
        .type           helper,@function
helper:
        /*0080*/                   RET.REL.NODEC R2 `(k) ;
"""


def test_what_follows_an_instruction():
    """Threads that meet go on at the label of BSSY; a function that is called returns."""
    graphs = functions(BRANCHES)
    after = {place: sorted(graphs["k"].successors(place)) for place in graphs["k"]}
    assert after == {0: [1], 1: [2, 4], 2: [3], 3: [7], 4: [4, 5], 5: [6], 6: [4], 7: []}
    assert list(graphs["helper"].edges) == []


# ---- Loops -----------------------------------------------------------------------------------------------------------


def graph_of(edges, **code):
    """Blocks by name: a node each, or a chain of the instructions of its `code`."""
    graph, last = nx.DiGraph(), {}
    for block, text in code.items():
        lines = text.split(";")
        nodes = [block, *(f"{block} {number}" for number in range(1, len(lines)))]
        nx.add_path(graph, nodes)
        for node, line in zip(nodes, lines):
            graph.nodes[node]["line"] = Instruction(*f"{line.strip()} ".split(" ", 1))
        last[block] = nodes[-1]
    graph.add_edges_from((last.get(start, start), to) for start, to in map(str.split, edges))
    return graph


def test_loops_within_loops():
    graph = graph_of(["in outer", "outer a", "a a", "a b", "b c", "c b", "c outer", "outer out"])
    assert set(loops(graph)) == {frozenset(blocks) for blocks in ({"outer", "a", "b", "c"}, {"a"}, {"b", "c"})}


def test_a_loop_with_two_entries_is_one_loop():
    assert loops(graph_of(["in a", "in b", "a b", "b a", "b out"])) == [{"a", "b"}]


def test_a_function_that_is_one_loop_ends_the_search():
    assert loops(graph_of(["a b", "b a"])) == [{"a", "b"}]


def test_no_loop():
    graph = graph_of(["in out"], **{"in": "FFMA R0, R1, R2, R0"})
    assert loops(graph) == [] and main_loop(graph, "float") == {}


def test_the_innermost_loop_with_the_most_multiply_adds():
    """Neither the loop around it, which has more of them, nor the rest of an unrolled loop."""
    graph = graph_of(
        ["in outer", "outer k", "k k", "k rest", "rest rest", "rest outer", "outer out"],
        outer="FFMA R0, R1, R2, R0; FFMA R0, R1, R2, R0; FFMA R0, R1, R2, R0",
        k="LDS R1, [R9]; FFMA R0, R1, R2, R0; FFMA R0, R1.reuse, R3, R0",
        rest="FFMA R0, R1, R2, R0; LDS R1, [R9]; LDS R1, [R9]",
    )
    found = main_loop(graph, "float")
    assert (found["instructions"], found["multiply_add_instructions"], found["shared_loads_32"]) == (3, 2, 1)
    assert found["reused_operands"] == 1


def test_loops_within_it_that_copy_are_counted_and_those_that_wait_are_not():
    graph = graph_of(
        ["in k", "k copy", "copy copy", "copy wait", "wait wait", "wait k", "k out"],
        k="FFMA R0, R1, R2, R0; BRA `(.L_x_1)",
        copy="LDG.E R1, [R2]; STS [R3], R1; BRA `(.L_x_2)",
        wait="SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2; BRA `(.L_x_3)",
    )
    found = main_loop(graph, "float")
    assert found["instructions"] == 5
    assert (found["global_loads_32"], found["shared_stores"], found["synchronisation"]) == (1, 1, 0)


def test_the_way_back_from_waiting_is_no_part_of_the_loop():
    graph = graph_of(
        ["in k", "k rest", "k wait", "wait wait", "wait back", "back rest", "rest k", "rest out"],
        k="SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2; BRA `(.L_x_1)",
        wait="SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2; BRA `(.L_x_1)",
        back="BRA `(.L_x_2)",
        rest="FFMA R0, R1, R2, R0; BRA `(.L_x_3)",
    )
    assert main_loop(graph, "float")["instructions"] == 4


def test_a_loop_that_always_waits_is_a_loop():
    graph = graph_of(
        ["in k", "k wait", "wait wait", "wait k", "k out"],
        k="FFMA R0, R1, R2, R0; BRA `(.L_x_1)",
        wait="SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2; BRA `(.L_x_2)",
    )
    assert main_loop(graph, "float")["instructions"] == 2


def test_tensor_cores_come_before_the_sums_beside_them():
    graph = graph_of(
        ["in k", "k k", "k out"], k="HGMMA.64x64x16.F32 R24, gdesc[UR4]; FFMA R0, R1, R2, R0; FADD R0, R1, R0"
    )
    found = main_loop(graph, "float")
    assert (found["multiply_add"], found["multiply_add_instructions"]) == ("HGMMA.64x64x16.F32", 1)
    assert found["arithmetic"] == 2


@pytest.mark.parametrize(
    "opcode, operands, expected",
    [
        ("LDS.128", "R4, [R5]", "shared_loads_128"),
        ("LDS.64", "R4, [R5]", "shared_loads_64"),
        ("LDS.U8", "R4, [R5]", "shared_loads_32"),
        ("LDS", "RZ, [RZ]", "synchronisation"),
        ("LDSM.16.MT88.4", "R4, [R5]", "matrix_loads"),
        ("LDG.E.128.CONSTANT", "R4, desc[UR4][R2.64]", "global_loads_128"),
        ("LDG.E", "R4, desc[UR4][R2.64]", "global_loads_32"),
        ("LDGSTS.E.BYPASS.LTC128B.128", "[R1], desc[UR4][R2.64]", "async_copies"),
        ("LDGDEPBAR", "", "synchronisation"),
        ("UTMALDG.2D", "[UR16], [UR6]", "tensor_copies"),
        ("STG.E.128", "desc[UR4][R2.64], R4", "global_stores"),
        ("STL.128", "[R1], R4", "spills"),
        ("LDL", "R4, [R1]", "spills"),
        ("LDC.64", "R4, c[0x0][0x210]", "moves"),
        ("HFMA2.MMA", "R25, -RZ, RZ, 0, 0", "moves"),
        ("IMAD.MOV.U32", "R4, RZ, RZ, R5", "moves"),
        ("IMAD.U32", "R4, RZ, RZ, UR5", "moves"),
        ("IMAD.WIDE", "R4, R5, 0x4, R6", "integer"),
        ("PLOP3.LUT", "P0, PT, PT, PT, PT, 0x80, 0x0", "integer"),
        ("FADD", "R4, R5, R6", "arithmetic"),
        ("F2FP.BF16.F32.PACK_AB", "R4, R5, R6", "arithmetic"),
        ("FENCE.VIEW.ASYNC.S", "", "synchronisation"),
        ("BSSY", "B0, `(.L_x_12)", "control"),
        ("UNHEARDOF", "R4", "other"),
    ],
)
def test_kinds(opcode, operands, expected):
    assert kind(Instruction(opcode, operands)) == expected


# ---- Cubins ----------------------------------------------------------------------------------------------------------


def examined(kernels, name, dtype="float", shape=(4096, 4096, 4096), capability="9.0", **parameters):
    at = point("", name, dtype, *shape, **parameters)
    return machine_code.examine(kernels[name], at, capability)


TILE = {"tile_n": 128, "tile_m": 256, "tile_k": 16, "thread_n": 8, "thread_m": 16}


def test_a_pipelined_loop_has_what_its_tile_needs(kernels):
    """16 k of 8 x 16 results: a multiply-add each, and 24 floats per k, four at a time. And one step of the ring."""
    found = examined(kernels, "pipelined", **TILE, walk=0)
    assert (found["multiply_add"], found["architecture"]) == ("FFMA", "sm_90")
    assert found["multiply_add_instructions"] == 16 * 8 * 16
    assert found["shared_loads_128"] == 16 * (8 + 16) // 4
    assert found["multiply_add_share"] > 0.9
    assert found["reused_operands"] > found["multiply_add_instructions"] / 2
    assert found["spill_bytes"] == found["spills"] == found["other"] == 0


def test_a_producer_takes_the_copies_out_of_the_loop(kernels):
    ring = {"tile_n": 128, "tile_m": 256, "tile_k": 16, "stages": 4, "walk": 69}
    found = examined(kernels, "tma_ring", **ring)
    assert found["architecture"] == "sm_90a"
    assert found["multiply_add_instructions"] == 16 * 8 * 16
    assert found["global_loads_32"] == found["async_copies"] == found["shared_stores"] == found["tensor_copies"] == 0


@pytest.mark.parametrize("dtype, opcode", [("float", "FFMA"), ("double", "DFMA"), ("int32", "IMAD")])
def test_an_element_type_has_its_own_multiply_add(kernels, dtype, opcode):
    found = examined(kernels, "tiled", dtype, tile=16)
    assert found["multiply_add"] == opcode
    # A few IMADs of int32 calculate addresses.
    assert 16 <= found["multiply_add_instructions"] <= (18 if dtype == "int32" else 16)


def test_other_architectures(kernels):
    found = examined(kernels, "naive", capability="8.0", block_x=32, block_y=8)
    assert found["architecture"] == "sm_80" and found["global_loads_32"] == 2 * found["multiply_add_instructions"]
    with pytest.raises(UserError, match=r"compute capability 8\.0, lacks TMA .* and wgmma \(9\.0 alone\)"):
        examined(kernels, "wgmma", "bfloat16", capability="8.0", tile_m=128, stages=4)


def test_registers_that_do_not_suffice_are_spilled(kernels):
    """16 x 16 sums per thread in double need twice the registers that there are."""
    tile = {"tile_n": 128, "tile_m": 128, "tile_k": 8, "thread_n": 16, "thread_m": 16, "walk": 0}
    found = examined(kernels, "pipelined", "double", **tile)
    assert found["registers"] == 255 and found["spill_bytes"] > 0 and found["spills"] > 0


def test_the_table_has_a_row_per_instance(kernels, tmp_path):
    """Not per block or shape, which do not change the code; and it has the columns of its file."""
    points = [point("", "naive", "float", n, n, n, block_x=x, block_y=8) for n in (64, 128) for x in (32, 128)] + [
        point("", "tiled", "float", 64, 64, 64, tile=tile) for tile in (16, 32)
    ]
    builds = machine_code.compile_for("9.0", points, kernels, tmp_path, workers=2)
    rows = machine_code.table(points, kernels, builds, "9.0", workers=2)
    assert [row["instance"] for row in rows] == ["naive<float>", "tiled<float, 16>", "tiled<float, 32>"]
    frame = columns.frame(rows, "instructions")
    assert frame.notna().all(axis=None)
    assert list(frame["multiply_add_instructions"]) == [16, 16, 32]


def test_the_recorded_table_is_of_the_code_that_was_measured(kernels):
    """Every product of the recorded run has a row; its hash is that of the measured build if that is one instance."""
    folder = RECORDED / "nvidia-h200"
    platform = load_platform(folder, recorded=True, kernels=kernels)
    rows = platform.facts["instructions"].set_index(["kernel", "dtype", "instance"])
    assert rows.index.is_unique
    compared, measured = 0, set()
    for row in platform.measurements.to_dict("records"):
        kernel = kernels.get(row["kernel"])
        if kernel is None or kernel.kind != "cuda":
            continue
        read = rows.loc[(row["kernel"], row["dtype"], row["instance"])]
        measured.add(read.name)
        assert read["registers"] == row["registers"]
        assert read["architecture"] == row["architecture"]
        if row["instances"] == row["instance"]:
            assert read["build_sha256"] == row["build_sha256"], read.name
            compared += 1
    for facts in ("accuracy", "energy", "sizes", "batches", "grading"):  # whose rows are no points of a sweep
        for row in platform.facts[facts].to_dict("records"):
            kernel = kernels.get(row["kernel"])
            if kernel is not None and kernel.kind == "cuda":
                product = kernel.plan(synthetic.point_of(row, kernel)).product
                measured |= {(row["kernel"], row["dtype"], product.instance)} & set(rows.index)
    changed = {"wgmma_int8"}  # has had another template argument since
    assert {each for each in measured ^ set(rows.index) if each[0] not in changed} == set() and compared > 200


# ---- The command, and what can go wrong ------------------------------------------------------------------------------


def test_the_command(capsys, tmp_path):
    (tmp_path / "mine.cu").write_text(
        "template <typename T, int TILE> __global__ void mine(const T* A, const T* B, T* C, int n, int p, int m) {\n"
        "    T sum = 0;\n#pragma unroll 1\n    for (int k = 0; k < p; ++k) sum += A[k * TILE] * B[k];\n"
        "    C[threadIdx.x] = sum;\n}\n"
    )
    assert main(["machine-code", str(tmp_path / "mine.cu"), "--block", "32x8", "--tile", "4"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("mine<float, 4> for sm_90: ") and "0 B spilled" in said
    assert re.search(r"^ +FFMA +1 +\d+\.\d%$", said, re.MULTILINE)
    assert re.search(r"^ +loads from global memory, up to 4 bytes +2 ", said, re.MULTILINE)


def test_the_command_names_what_is_wrong(capsys, tmp_path):
    (tmp_path / "wrong.cu").write_text(
        "template <typename T> __global__ void wrong(const T* A, const T* B, T* C, int n, int p, int m) { nothing(); }"
    )
    assert main(["machine-code", str(tmp_path / "wrong.cu"), "--block", "32x8"]) == 2
    said = capsys.readouterr().err
    assert "does not compile for sm_90" in said and "nothing" in said and "Traceback" not in said


def test_a_file_that_is_no_cubin(tmp_path):
    (tmp_path / "some.cubin").write_text("not a cubin")
    with pytest.raises(UserError, match=r"some\.cubin: nvdisasm cannot read it"):
        sass.disassemble(tmp_path / "some.cubin")
    with pytest.raises(UserError, match="no function"):
        functions("")


def test_without_nvdisasm(monkeypatch):
    monkeypatch.setattr("cuda.pathfinder.find_nvidia_binary_utility", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError, match=r"nvidia-cuda-nvdisasm.* is missing; run"):
        sass.disassemble("any.cubin")
