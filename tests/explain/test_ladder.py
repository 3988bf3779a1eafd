"""What docs/ladder.md and the heads of the ladder's kernels say of measurements agrees with the recorded run."""

import dataclasses
import os
import re
import subprocess
import sys

import pandas as pd
import pytest

from tilewise import RECORDED, ROOT
from tilewise.evidence import load_evidence
from tilewise.explain import by_size, climb, ladder

DOCS = "docs/ladder.md"
#: The heads quote experiments on several cards: so much they may differ from the recorded run.
HEADS = 0.02


@pytest.fixture(scope="module")
def evidence():
    return ladder.evidence()


@pytest.fixture(scope="module")
def rungs(evidence):
    """The rungs of a ladder at its largest product, by kernel."""
    return {
        task: climb.rungs(climb.climb(evidence, task), evidence).set_index("kernel") for task in (F, "ladder_double")
    }


F = "ladder_float"
BF16, FLOATS = {"task": "ladder_short", "dtype": "bfloat16"}, {"task": "float_accuracy"}
DOUBLES = {"task": "double_accuracy"}


class Recorded:
    """What statements ask of the recorded run."""

    def __init__(self, evidence, rungs):
        self.evidence, self.rungs = evidence, rungs

    def of(self, kernel, column, task=F):
        """A column of a rung."""
        return self.rungs[task].loc[kernel, column]

    def row(self, kernel, n=8192, p=None, m=None, **where):
        """The fastest row that fits."""
        where = {"task": F, "kernel": kernel, "n": n, "p": p or n, "m": m or n, "status": "ok"} | where
        rows = self.evidence.gpu
        for name, value in where.items():
            rows = rows[(rows[name] == value).fillna(False).astype(bool)]
        return rows.sort_values("time_ms").iloc[0]

    def rate(self, kernel, *shape, **where):
        """TFLOP/s."""
        return self.row(kernel, *shape, **where)["gflops"] / 1000

    def ghz(self, kernel, *shape, **where):
        return self.row(kernel, *shape, **where)["sm_clock_mhz"] / 1000

    def at_clock(self, kernel, *shape, **where):
        """TFLOP/s that the tensor cores can reach in bfloat16 or half at the clock of a row."""
        peak = self.roof("tensor_rate", "bfloat16", "datasheet")
        return peak / self.evidence.gpus[0].device.gpu["sm_clock_mhz"] * 1000 * self.ghz(kernel, *shape, **where)

    def roof(self, quantity, dtype, column="measured"):
        rows = self.evidence.facts["bandwidth"].set_index(["quantity", "dtype"])
        return rows.loc[(quantity, dtype), column] / 1000

    def on_cards(self, kernel, n):
        """The rates in TFLOP/s at which every card multiplied a cube, the recorded one too."""
        [gpu] = self.evidence.gpus
        rows = pd.concat([gpu.measurements, gpu.cards])
        rows = rows[(rows["kernel"] == kernel) & (rows["n"] == n) & (rows["p"] == n) & (rows["m"] == n)]
        return 2e-9 * n**3 / rows["time_ms"]

    def per_joule(self, kernel):
        """GFLOP of a joule in double."""
        rows = self.evidence.facts["energy"]
        return rows[(rows["kernel"] == kernel) & (rows["dtype"] == "double")]["gflop_per_joule"].iloc[0]

    def batched(self, dtype):
        """The best share of the library's rate at 8 products of 1024."""
        rows = by_size.batches(self.evidence)
        return rows[(rows["batch"] == 8) & (rows["dtype"] == dtype) & ~rows["anchor"]]["percent_of_anchor"].max() / 100

    def error(self, kernel, p=8192, operands="mixed"):
        """The error in the Frobenius norm over SGEMM's."""
        rows = self.evidence.facts["accuracy"]
        rows = rows[(rows["kernel"] == kernel) & (rows["p"] == p) & (rows["operands"] == operands)]
        row = rows[rows["origin"] == "measured"].iloc[0]
        return row["relative_error"] / row["sgemm_relative_error"]


def _of_library(kernel, *shape, library="cublas", **where):
    return lambda r: r.rate(kernel, *shape, **where) / r.rate(library, *shape, **where)


def _from_bytes(n):
    """DGEMM's rate; that of double_from_int8 with 15 moduli, and its share of DGEMM's, by norms and accurately."""

    def dgemm(r):
        return r.rate("cublas", n, **DOUBLES)

    def own(accurate):
        return lambda r: r.rate("double_from_int8", n, moduli=15, accurate=accurate, **DOUBLES)

    def share(accurate):
        return lambda r: own(accurate)(r) / dgemm(r)

    return [dgemm, own(0), share(0), own(1), share(1)]


#: Statements of docs/ladder.md as they stand there; each number in braces is what its function makes of the record.
STATED = {
    "Multiply-adds alone reach {63.2} TFLOP/s": [lambda r: r.roof("multiply_add_rate", "float")],
    "cuBLAS's bfloat16 reached {684} to {806} at 8192³ on different cards": [
        lambda r: r.on_cards("cublas_bf16", 8192).min(),
        lambda r: r.on_cards("cublas_bf16", 8192).max(),
    ],
    "for 100 multiply-adds it executes {34} other instructions (ncu), and {1.36} warps per issued instruction wait": [
        lambda r: r.of("register_tile", "others_per_100"),
        lambda r: r.of("register_tile", "stall_long_scoreboard"),
    ],
    "In `vector_loads`, {1.43} times as fast, these are {16} and {0.87}; passes of shared memory ({33} and {34} per "
    "100 multiply-adds) and resident warps ({16}) are the same": [
        lambda r: r.of("vector_loads", "gain"),
        lambda r: r.of("vector_loads", "others_per_100"),
        lambda r: r.of("vector_loads", "stall_long_scoreboard"),
        lambda r: r.of("register_tile", "wavefronts_per_100"),
        lambda r: r.of("vector_loads", "wavefronts_per_100"),
        lambda r: r.of("vector_loads", "warps"),
    ],
    "bank conflicts fall from {40} to {4} % of the passes, and these from {34} to {21}": [
        lambda r: r.of("vector_loads", "conflict_percent"),
        lambda r: r.of("warp_tile", "conflict_percent"),
        lambda r: r.of("vector_loads", "wavefronts_per_100"),
        lambda r: r.of("warp_tile", "wavefronts_per_100"),
    ],
    "`pipelined` reaches {87} % of its ceiling, `warp_tile` {73} %": [
        lambda r: r.of("pipelined", "percent_of_ceiling"),
        lambda r: r.of("warp_tile", "percent_of_ceiling"),
    ],
    "results, and {92} % of the instructions are multiply-adds": [lambda r: r.of("pipelined", "multiply_add_percent")],
    "(parameter `walk`): {49.8} at 4096³ in pairs of rows, {49.1} row by row": [
        lambda r: r.rate("pipelined", 4096, walk=79),
        lambda r: r.rate("pipelined", 4096, walk=80),
    ],
    "{592} in bfloat16 and {309} in TF32 on another card, so `mma_sync` is at {0.76} and {0.61} of that ceiling": [
        lambda r: 592,
        lambda r: 309,
        lambda r: r.rate("mma_sync", **BF16) / 592,
        lambda r: r.rate("mma_sync", **BF16 | {"dtype": "tf32"}) / 309,
    ],
    "multiply-adds and 16-byte loads: {94.6} % of {2165} instructions are multiply-adds": [
        lambda r: r.of("tma_ring", "multiply_add_percent"),
        lambda r: r.of("tma_ring", "instructions"),
    ],
    "(128 × 128 × 8, 8 × 8) reaches {24.2} of the {33.5} TFLOP/s of the vector units": [
        lambda r: r.of("pipelined", "gflops", "ladder_double") / 1000,
        lambda r: r.evidence.gpus[0].device.gpu["peak_gflops"]["double"] / 1000,
    ],
    "the rate of the vector units, and {66} with 16 × 8 × 4, 8 or 16": [lambda r: r.roof("tensor_rate", "double")],
    "ncu at 4096³: {4.0} warps per issued instruction wait for a load, {0.6} at its two barriers, and the schedulers "
    "issue in {38} % of the cycles": [
        lambda r: r.of("dmma", "stall_long_scoreboard", "ladder_double"),
        lambda r: r.of("dmma", "stall_barrier", "ladder_double"),
        lambda r: r.of("dmma", "issue_percent", "ladder_double"),
    ],
    "in the recorded run to {1.31} GHz with `wgmma` and {1.40} GHz with cuBLAS": [
        lambda r: r.ghz("wgmma", **BF16),
        lambda r: r.ghz("cublas_bf16", **BF16),
    ],
    "can reach {708} and {757}, so `clusters` is at {0.95} of what this clock allows": [
        lambda r: r.at_clock("wgmma", **BF16),
        lambda r: r.at_clock("clusters", **BF16),
        lambda r: r.rate("clusters", **BF16) / r.at_clock("clusters", **BF16),
    ],
    "raises the rate at 4096³ from {0.86} of cuBLAS to {0.96}": [
        _of_library("warp_specialised", 4096, library="cublas_bf16", **BF16),
        _of_library("clusters", 4096, library="cublas_bf16", **BF16),
    ],
    "`clusters` reaches {809} in a process that NVBench ends after some 35 runs, before the clock falls, and {715} "
    "in one of 600": [
        lambda r: (
            r.rate("clusters", **BF16) * r.row("clusters", **BF16)["time_ms"] / r.row("clusters", **BF16)["run_low_ms"]
        ),
        lambda r: r.rate("clusters", **BF16),
    ],
    "still {1.8} to {1.9} times as fast as cuBLAS": [
        _of_library("mma_sync", 1100, library="cublas_bf16", **BF16),
        _of_library("wgmma", 1100, library="cublas_bf16", **BF16),
    ],
    "`float_from_half` runs at {1.49} GHz in the recorded run": [lambda r: r.ghz("float_from_half", **FLOATS)],
    "can reach {806} TFLOP/s; its three products, over the whole time with the splitting, are {680}": [
        lambda r: r.at_clock("float_from_half", **FLOATS),
        lambda r: 3 * r.rate("float_from_half", **FLOATS),
    ],
    "It is {4.4} times as fast as SGEMM there": [_of_library("float_from_half", **FLOATS)],
    "its error is {35} times SGEMM's": [lambda r: r.error("three_tf32")],
    "it reaches {0.83} of `float_from_half`'s rate at 8192³, {0.89} at 4096³, {0.79} at 1100³ and {0.74} at 1024³": [
        _of_library("float_always", n, library="float_from_half", **FLOATS) for n in (8192, 4096, 1100, 1024)
    ],
    "at 8192³ the clock falls from {1.98} to {1.49} GHz": [
        lambda r: r.evidence.gpus[0].device.gpu["sm_clock_mhz"] / 1000,
        lambda r: r.ghz("wgmma_int8", task="ladder_int8"),
    ],
    "| 1024 | {48.0} | {19.0}: {0.40} | {16.1}: {0.34} |": _from_bytes(1024),
    "| 1100 | {39.3} | {16.0}: {0.41} | {14.0}: {0.36} |": _from_bytes(1100),
    "| 4096 | {56.0} | {64.4}: {1.15} | {58.9}: {1.05} |": _from_bytes(4096),
    "| 8192 | {58.0} | {74.2}: {1.28} | {69.2}: {1.19} |": _from_bytes(8192),
    "13 moduli reach {78.6}, 14 reach {73.8}, 16 reach {65.1}, 17 reach {62.2} and 18 reach {59.6}": [
        lambda r, moduli=moduli: r.rate("double_from_int8", moduli=moduli, accurate=1, **DOUBLES)
        for moduli in (13, 14, 16, 17, 18)
    ],
    "norm is {3.0}e-15 there (DGEMM: {4.1}e-15)": [
        lambda r: r.row("double_from_int8", moduli=15, **DOUBLES)["relative_error"] * 1e15,
        lambda r: r.row("cublas", **DOUBLES)["relative_error"] * 1e15,
    ],
    "A joule yields {98} GFLOP, and {79} in DGEMM": [
        lambda r: r.per_joule("double_from_int8"),
        lambda r: r.per_joule("cublas"),
    ],
    "with 55 bits it reaches {13.3}, {30.3} and {27.8} TFLOP/s at 1024³, 4096³ and 8192³": [
        lambda r, n=n: r.rate("cublas_emulated", n, **DOUBLES) for n in (1024, 4096, 8192)
    ],
    "`batched_ring` reaches {1.07} of cuBLAS's strided batched call at 8 × 1024³ in float, and `batched_wgmma` {0.976} "
    "in bfloat16": [
        lambda r: r.batched("float"),
        lambda r: r.batched("bfloat16"),
    ],
}
#: Statements of heads: kernel -> as above.
HEAD = {
    "register_tile": {"8192^3: 16.3 TFLOP/s and {26.2}, 0.32 and {0.51} of cuBLAS": ["register_tile"]},
    "vector_loads": {"8192^3: {37.4} TFLOP/s, {0.73} of cuBLAS": ["vector_loads"]},
    "warp_tile": {"8192^3: {40.0} TFLOP/s, {0.78} of cuBLAS": ["warp_tile"]},
    "pipelined": {"{50.6}, {0.988}, with TILE_K 32 and ORDER 79": ["pipelined"]},
    "async_copies": {"{46.3}, {0.90}, with TILE_K 32": ["async_copies"]},
    "tma_ring": {
        "{56.9} TFLOP/s at 8192^3, {1.11} of cuBLAS": ["tma_ring"],
        "{55.9}, {1.09}, at 4096^3": ["tma_ring", 4096],
    },
    "transposing_ring": {
        "{55.7} TFLOP/s at 8192^3": ["transposing_ring"],
        "{55.4}, {1.08} of cuBLAS, at m = 1024": ["transposing_ring", 8192, 8192, 1024],
    },
    "stream_k": {
        "{57.2} TFLOP/s at 8192^3, {1.12} of cuBLAS": ["stream_k"],
        "{56.5}, {1.10}, at 4096^3": ["stream_k", 4096],
        "{37.5}, {1.11}, at 1024^3": ["stream_k", 1024],
        "{51.1}, {1.12}, for n = m = 1024 and p = 8192": ["stream_k", 1024, 8192, 1024],
        "{54.2}, {1.06}, for m = 1024": ["stream_k", 8192, 8192, 1024],
        "those of 128 x 192 10 %: {36.7}, {1.10}": ["stream_k", 1100],
    },
    "dmma_pipelined": {
        "k 8, 5 stages {56.5} TFLOP/s, cuBLAS 56.3: {1.00}": ["dmma_pipelined", 8192],
        "4096^3 the same {57.8}, cuBLAS 55.6: {1.04}": ["dmma_pipelined", 4096],
        "4 stages {50.9}, cuBLAS 47.9: {1.06}": ["dmma_pipelined", 1024],
        "4 stages {58.1}, cuBLAS 56.2: {1.03}, for n = m = 1024": ["dmma_pipelined", 1024, 8192, 1024],
        "5 stages {39.6}, cuBLAS 39.4: {1.01}": ["dmma_pipelined", 1100],
    },
    "dmma": {"{24.0}, 19.0 and 19.6 with the others at 8192^3": ["dmma"]},
    "float_from_half": {
        "counted: {227} TFLOP/s at 8192^3 ({4.4} times": ["float_from_half"],
        "{204} at 4096 ({4.0} times)": ["float_from_half", 4096],
        "{81} at 1024 ({2.4} times)": ["float_from_half", 1024],
    },
    "float_from_bf16": {
        "counted: {127} TFLOP/s at 8192^3 ({2.5} times": ["float_from_bf16"],
        "{119} at 4096 ({2.3} times)": ["float_from_bf16", 4096],
        "{71} at 1024 ({2.1} times)": ["float_from_bf16", 1024],
    },
    "three_tf32": {
        "counted: {124} TFLOP/s at 8192^3 ({2.4} times": ["three_tf32"],
        "{130} at 4096": ["three_tf32", 4096],
    },
    "clusters": {"becomes 0.96 to 1.01 at 4096^3 and 1.01 to {1.03} at 8192^3": ["clusters"]},
    "mma_sync": {
        "bfloat16 {448}, {0.64}": ["mma_sync"],
        "{455}, {0.60}": ["mma_sync", 4096],
        "{192}, {0.77}": ["mma_sync", 1024],
    },
}
#: The recorded runs whose shares the table of causes has, in the order of its columns.
RUNS = ("nvidia-h200", "nvidia-h100-80gb-hbm3")
#: What the table's lines are about: the products of a line, as it begins, and whether a row is one of them.
CAUSES = {
    "bfloat16 and int8, 16³ to 768³ and 512 × 128 × 512": lambda r: (
        r.dtype in ("bfloat16", "int8") and r.n == r.m <= 768 and r.p <= r.n and r.n % 16 == 0
    ),
    "half, up to 1024³": lambda r: r.dtype == "half" and r.n <= 1024,
    "n odd: float to 2047³, double to 1025³, TF32 to 1023³, bfloat16 to 509³": lambda r: r.n % 2 == 1,
    "double, 64³ to 768³": lambda r: r.dtype == "double" and r.n % 2 == 0 and r.n <= 768,
    "float, 256³ to 512³ and 512 × 128 × 512": lambda r: (
        r.dtype == "float" and r.n == r.m <= 512 and r.p <= r.n and r.n % 2 == 0
    ),
    "float and bfloat16, C of 128 × 128 and 512 × 512, long sums": lambda r: r.n == r.m <= 512 and r.p > r.n,
    "TF32, 128³ to 8192³": lambda r: r.dtype == "tf32" and r.n % 2 == 0,
    "bfloat16, half and double, 1536³": lambda r: r.dtype in ("bfloat16", "half", "double") and r.n == r.m == 1536,
    "int8, 4096³": lambda r: r.dtype == "int8" and r.n == 4096,
    "bfloat16, 16384 × 2048 × 512": lambda r: r.dtype == "bfloat16" and (r.n, r.p, r.m) == (16384, 2048, 512),
    "float, 2048 × 512 × 2048 and 2048 × 8192 × 2048": lambda r: r.dtype == "float" and r.n == r.m == 2048 != r.p,
    "float and bfloat16, C of 64 rows or columns": lambda r: min(r.n, r.m) == 64 < max(r.n, r.m),
}
UNEXPLAINED = "Not explained: double at 2048³ on the H100 (0.94)."


def _text(path):
    """A file in one line, without the marks of comments."""
    return " ".join(re.sub(r"^//", "", path.read_text(), flags=re.MULTILINE).split())


def _numbers(statement):
    return [(float(number), len(number.partition(".")[2])) for number in re.findall(r"\{([\d.]+)\}", statement)]


def test_the_tables_of_the_ladders_page_are_those_of_the_recorded_run(evidence):
    """`python -m tilewise.explain.ladder` after a run was recorded."""
    text = ladder.FILE.read_text()
    assert ladder.with_tables(text, evidence) == text
    assert text.count("<!-- rates: ") == 7 and text.count("<!-- errors: ") == 1


def test_the_tables_are_the_same_on_every_processor():
    """With AVX-512 and without it, NumPy's exp and BLAS's sums differ in their last bits."""
    older = {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL", "OPENBLAS_CORETYPE": "Nehalem"}
    check = (
        "from tilewise.explain.ladder import *; text = FILE.read_text(); assert with_tables(text, evidence()) == text"
    )
    environment = os.environ | older | {"PYTHONPATH": str(ROOT / "workflow")}
    done = subprocess.run([sys.executable, "-c", check], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_another_record_has_other_tables(evidence):
    faster = evidence.gpu["kernel"] == "stream_k"
    rows = evidence.gpu.assign(
        time_ms=evidence.gpu["time_ms"].where(~faster, evidence.gpu["time_ms"] / 2),
        gflops=evidence.gpu["gflops"].where(~faster, evidence.gpu["gflops"] * 2),
    )
    text = ladder.with_tables(ladder.FILE.read_text(), dataclasses.replace(evidence, gpu=rows))
    changed = [line for line in text.splitlines() if line not in ladder.FILE.read_text().splitlines()]
    assert [line[:12] for line in changed] == ["| `stream_k`"] and "113 (2.21)" in changed[0]


@pytest.mark.parametrize("statement", STATED)
def test_the_ladders_page_states_what_was_recorded(statement, evidence, rungs):
    assert re.sub(r"[{}]", "", statement) in _text(ROOT / DOCS), "the page no longer says so"
    said, made = _numbers(statement), STATED[statement]
    assert len(said) == len(made)
    for (number, digits), make in zip(said, made):
        found = make(Recorded(evidence, rungs))
        assert abs(found - number) <= 0.5001 * 10**-digits, f"{number} is {found:.{digits + 2}f}"


@pytest.mark.parametrize(("kernel", "statement"), [(kernel, each) for kernel, own in HEAD.items() for each in own])
def test_the_head_of_a_kernel_states_what_was_recorded(kernel, statement, evidence, rungs):
    assert re.sub(r"[{}]", "", statement) in _text(ROOT / f"kernels/ladder/{kernel}.cu"), "the head no longer says so"
    name, *shape = HEAD[kernel][statement]
    task = {
        "dmma": "ladder_double",
        "dmma_pipelined": "ladder_double",
        "clusters": "ladder_short",
        "mma_sync": "ladder_short",
    }
    where = {"task": task.get(name, F)} if name not in ("float_from_half", "float_from_bf16", "three_tf32") else FLOATS
    where |= {"dtype": {"ladder_double": "double", "ladder_short": "bfloat16"}.get(where["task"], "float")}
    library = "cublas_bf16" if where["dtype"] == "bfloat16" else "cublas"
    recorded = Recorded(evidence, rungs)
    rate = recorded.rate(name, *shape, **where)
    share = rate / recorded.rate(library, *shape, **where)
    for number, digits in _numbers(statement):
        found = rate if number > 5 else share
        assert abs(found - number) <= max(HEADS * number, 0.5001 * 10**-digits), f"{rate:.1f} TFLOP/s, {share:.2f}"


@pytest.fixture(scope="module")
def slow():
    """Shares of the library's rate below 0.95 that the best own kernel reaches: by run and line of the table of causes,
    which is None for what the table does not have."""
    found = {}
    rows = by_size.at_every_size(load_evidence([RECORDED / run for run in RUNS]))
    for row in rows[rows["percent_of_anchor"] < 95].itertuples():
        [cause, *more] = [products for products, holds in CAUSES.items() if holds(row)] or [None]
        assert not more, row
        found.setdefault((row.platform, cause), []).append(row.percent_of_anchor / 100)
    return found


def test_every_product_at_which_the_library_is_faster_has_its_cause_and_its_share(slow):
    lines = [re.split(r" ?\| ?", line) for line in ladder.FILE.read_text().splitlines() if line.startswith("|")]
    stated = {line[1]: line[2:4] for line in lines}
    for products in CAUSES:
        cells = []
        for run in RUNS:
            shares = sorted({f"{share:.2f}" for share in slow.get((run, products), [])})
            cells.append(" to ".join(dict.fromkeys([shares[0], shares[-1]])) if shares else "")
        assert stated.get(products) == cells, products


def test_what_has_no_cause_is_said(slow):
    assert UNEXPLAINED in _text(ladder.FILE)
    unexplained = {run: [f"{share:.2f}" for share in shares] for (run, cause), shares in slow.items() if cause is None}
    assert unexplained == {"nvidia-h100-80gb-hbm3": ["0.94"]}
