"""What CUDA has for few kernels computes what it should, is traced, and is at fault where it is used wrongly."""

import math
from pathlib import Path

import numpy as np
import pytest

from kernelscope import Call, build, trace

FILE = Path(__file__).with_name("vocabulary.cu")
LINES = FILE.read_text().splitlines()
ME = np.arange(64, dtype=np.float32)
VECTORS = np.arange(512, dtype=np.float32)
RANDOM = np.random.default_rng(7).integers(0, 2**64, (2, 64), dtype=np.uint64)
COMPLEX = np.random.default_rng(8).standard_normal((2, 32, 2)).astype(np.float32)
OUT = {"out": "float[64]"}
FLAG = {"data": "float[2]", "tickets": "unsigned[1]:zero"}
COMPLETED = ("completed<true>", 1, 64, {"out": "float[128]"}, {})
#: Function, grid, block, arguments, other arguments of `trace`; what is expected at the end.
CLEAN = [
    (
        *("sums_of_vectors", 2, 64, {"in": VECTORS, "sums": "float[8]:zero", "pairs": "float[4]:zero"}, {}),
        {
            "sums": VECTORS.reshape(64, 8).sum(axis=0),
            "pairs": [VECTORS[::4].sum(), VECTORS[1::4].sum() + 128, 128, 256],
        },
    ),
    ("sums_of_copies", 3, 64, {"sums": "float[64]:zero"}, {}, {"sums": np.full(64, 3)}),
    ("completed_by_a_lambda", 1, 64, {"out": "int32[64]"}, {}, {"out": np.full(64, 2)}),
    ("in_turn<false>", 3, 32, {"turn": "int32[1]:zero", "out": "int32[1]:zero"}, {}, {"out": [7]}),
    ("in_turn<true>", 2, 32, {"turn": "int32[1]:zero", "out": "int32[1]:zero"}, {}, {"out": [3]}),
    ("carry_at_the_start", 3, 64, {"out": "uint32[192]"}, {}, {"out": np.zeros(192)}),
    ("arrived_and_waited", 1, 64, OUT, {}, {"out": 2 + ME[::-1]}),
    (
        *("arrived_in_grid", 2, 64, {"data": "float[128]", "out": "float[128]"}, {"cooperative": True}),
        {"out": np.arange(128)[::-1]},
    ),
    (*COMPLETED, {"out": np.repeat([2016, 4032], 64)}),
    (
        *("met_in_device", 2, 64, {"data": "float[128]", "out": "float[128]"}, {"cooperative": True}),
        {"out": np.arange(128)[::-1]},
    ),
    ("flag_in_shared_memory", 1, 64, OUT, {}, {"out": np.full(64, 5)}),
    ("tiles", 1, 64, {**OUT, "size": 8}, {}, {"out": np.full(64, 8)}),
    ("spans<true>", 1, 64, {"in": VECTORS[:128], **OUT, "n": 128}, {}, {"out": 17 + 2 * (4 * ME + 1)}),
    ("told_by_a_flag<true>", 2, 1, {**FLAG, "out": "float[1]"}, {}, {"out": [3]}),
    ("placed", 1, 64, {"points": "float[128]", **OUT}, {}, {"out": ME}),
    (
        *("lengths", 1, 1, {"x": np.float32([1, 2, 2]), "y": np.float64([2, 3, 6]), "out": "double[8]"}, {}),
        {"out": [3, 7, 1 / 3, 1 / 7, 7, 3, 1, 5]},
    ),
]
#: Function, grid, block, arguments; the kind of fault, and the function whose next line with FAULT has it, if another.
FAULTY = [
    ("sums_of_vectors_of_their_block", 2, 1, {"pairs": "float[2]:zero"}, "race", ""),
    ("vector_read_plainly", 1, 64, {"sums": "float[4]:zero", "out": "float[1]"}, "race", ""),
    ("vector_in_shared_memory", 1, 1, {"out": "float[1]"}, "trap", ""),
    ("written_after_arrival", 1, 64, OUT, "race", "between_arrival_and_wait"),
    ("arrived_twice", 1, 64, OUT, "divergence", ""),
    ("arrived_and_left", 1, 64, OUT, "divergence", ""),
    ("arrived_in_grid_and_left", 1, 64, OUT, "divergence", ""),
    ("completed<false>", 1, 64, {"out": "float[128]"}, "race", "operator()"),
    ("tiles", 1, 64, {**OUT, "size": 64}, "trap", ""),
    ("spans<false>", 1, 64, {"in": VECTORS[:128], **OUT, "n": 128}, "out_of_bounds", "sum_of"),
    ("told_by_a_flag<false>", 2, 1, {**FLAG, "out": "float[1]"}, "race", ""),
    ("placed_outside", 1, 64, {"points": "float[128]"}, "out_of_bounds", ""),
    ("length_of_what_is_not_there", 1, 1, {"x": "float[3]:ramp", "out": "float[1]"}, "out_of_bounds", ""),
]
OTHERS = ["carries", "complex_numbers", "approximated", "functions"]


@pytest.fixture(scope="module")
def library():
    return build(FILE, *dict.fromkeys([case[0] for case in CLEAN + FAULTY] + OTHERS))


@pytest.mark.slow
@pytest.mark.parametrize("name, grid, block, arguments, others, expect", CLEAN, ids=[case[0] for case in CLEAN])
def test_clean(name, grid, block, arguments, others, expect, library):
    report = trace(library, Call(name, grid, block, **others), arguments)
    assert report.ok and not report.faults, str(report)
    for array, right in expect.items():
        assert np.allclose(report.arrays[array], right, rtol=1e-6, atol=0), report.arrays[array]


@pytest.mark.parametrize("name, grid, block, arguments, kind, where", FAULTY, ids=[case[0] for case in FAULTY])
def test_faulty(name, grid, block, arguments, kind, where, library):
    report = trace(library, Call(name, grid, block, cooperative="grid" in name), arguments)
    begin = next(k for k, line in enumerate(LINES) if f" {where or name.split('<')[0]}(" in line)
    wanted = next(k for k, line in enumerate(LINES[begin:], begin + 1) if "// FAULT" in line)
    found = [(fault.kind, fault.line == wanted or f":{wanted}" in fault.text) for fault in report.faults]
    assert (kind, True) in found and {each for each, _ in found} == {kind} and not report.ok, str(report)


def test_an_atomic_operation_on_a_vector_is_one_request(library):
    arguments = {"in": VECTORS, "sums": "float[8]:zero", "pairs": "float[4]:zero"}
    assert trace(library, Call("sums_of_vectors", 2, 64), arguments).traffic["global_store_requests"] == 4 * 4


def test_complex_numbers(library):
    a, b = COMPLEX @ [1, 1j]
    given = {"a": COMPLEX[0].ravel(), "b": COMPLEX[1].ravel(), "out": "float[64]", "lengths": "double[32]"}
    report = trace(library, Call("complex_numbers", 1, 32), given)
    right = a * b + a / b - np.conj(a * b + a)
    assert report.ok and np.allclose(report.arrays["out"].reshape(32, 2) @ [1, 1j], right, rtol=1e-5), str(report)
    assert np.allclose(report.arrays["lengths"], abs(a), rtol=1e-6), str(report)


def test_carries(library):
    a, b = RANDOM
    given = {"a": a, "b": b} | dict.fromkeys(("sums", "differences", "products"), "uint64[64]")
    report = trace(library, Call("carries", 1, 32), given)
    assert report.ok, str(report)

    def numbers(words):
        return [int(low) | int(high) << 64 for low, high in words.reshape(-1, 2)]

    pairs = list(zip(numbers(a), numbers(b)))
    assert numbers(report.arrays["sums"]) == [(x + y) % 2**128 for x, y in pairs]
    assert numbers(report.arrays["differences"]) == [(x - y) % 2**128 for x, y in pairs]
    assert numbers(report.arrays["products"]) == [x % 2**64 * (y % 2**64) for x, y in pairs]


def test_approximated_functions_of_ptx(library):
    x = np.linspace(-3, 3, 32, dtype=np.float32)
    report = trace(library, Call("approximated", 1, 32), {"x": x, "out": "float[128]", "n": 32})
    assert report.ok and np.allclose(
        report.arrays["out"].reshape(4, 32), [np.tanh(x), np.sin(x), np.cos(x), np.ones(32)], atol=1e-6
    )


def test_functions_that_c_lacks(library):
    x = np.array([4e-19, 0.001, 0.5, 1, 4.9, 5.1, 12, 30])
    turn = np.arange(2000) * np.pi / 1000

    def inverse(a):
        low, high = -1.0, 27.0
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if math.erfc(middle) > a else (low, middle)
        return low

    right = np.array(
        [
            [*(math.exp(a * a) * math.erfc(a) for a in x[:-1]), 0.018795888861416751],  # erfc(30) is no double
            [inverse(a / 40) for a in x],
            [math.erfc(a / math.sqrt(2)) / 2 for a in x],
            [-math.sqrt(2) * inverse(a / 40) for a in x],
            [np.mean(np.exp(a * np.cos(turn))) for a in x],
            [np.mean(np.exp(a * np.cos(turn)) * np.cos(turn)) for a in x],
            *(1 / np.sqrt(x), 10**x),
            [np.mean(np.cos(a * np.sin(turn))) for a in x],
            *(np.sin(x), np.cos(x)),
        ]
    )
    given = {"x": x.astype(np.float32), "y": x, "out": f"double[{22 * 8}]", "n": 8}
    report = trace(library, Call("functions", 1, 8), given)
    of_floats, of_doubles = report.arrays["out"].reshape(2, 11, 8)
    assert report.ok and np.allclose(of_doubles, right, rtol=1e-10, atol=1e-15), of_doubles / right - 1
    assert np.allclose(of_doubles[:4], right[:4], rtol=1e-10, atol=0), of_doubles[:4] / right[:4] - 1  # the tails
    assert np.allclose(of_floats, right, rtol=3e-5, atol=1e-6), of_floats / right - 1
