"""FP8: conversions are those of ml_dtypes, products those of Hopper's tensor cores: of wgmma as microsoft/MMA-Sim has
them, of mma.sync as ptxas translates it, into two products of half."""

import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from kernelscope import Call, build, trace

FILE = Path(__file__).with_name("fp8.cu")
SHORT, WIDE = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
CODES = np.arange(256, dtype=np.uint8)
RNG = np.random.default_rng(58)
#: Of rows and columns, by KINDS of the kernels.
KINDS = [(SHORT, SHORT), (SHORT, WIDE), (WIDE, SHORT), (WIDE, WIDE)]


@pytest.fixture(scope="module")
def library():
    names = ["narrowed", "narrowed_faulty", "widened", "pairs", *(f"mma<{kind}>" for kind in range(4))]
    return build(FILE, *names, *(f"wgmma<{kind}, true>" for kind in range(3)), "wgmma<0, false>")


def is_nan(codes, dtype):
    return np.isnan(codes.view(dtype).astype(np.float32))


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_conversions_to_8_bits(library):
    exact = CODES.view(SHORT).astype(np.float32)
    exact = np.sort(exact[~np.isnan(exact)])
    middles = (exact[1:] + exact[:-1]) / 2
    edges = np.float32([448, 463, 464, 465, 1e9, 57344, 61439, 61440, 61441, np.inf, np.nan, 2**-17, 2**-18, 1e-30])
    x = np.concatenate([exact, middles, np.nextafter(middles, np.float32(1e9)), edges, -edges]).astype(np.float32)
    x = np.concatenate([x, RNG.standard_normal(500).astype(np.float32) * 2.0 ** RNG.integers(-18, 17, 500)], dtype="f4")
    codes = {name: f"uchar[{len(x)}]" for name in ("short_", "wide")} | {"open": f"uchar[{2 * len(x)}]", "n": len(x)}
    found = trace(library, Call("narrowed", -(-len(x) // 128), 128), {"x": x} | codes)
    assert found.ok, str(found)
    rounded = [x.astype(dtype).view(np.uint8) for dtype in (SHORT, WIDE)]
    largest = [x.clip(-most, most).astype(dtype).view(np.uint8) for dtype, most in ((SHORT, 448), (WIDE, 57344))]
    open_ = found.arrays["open"].reshape(2, -1)
    for codes, right, dtype in zip(
        (open_[0], open_[1], found.arrays["short_"], found.arrays["wide"]), rounded + largest, (SHORT, WIDE) * 2
    ):
        assert np.array_equal(is_nan(codes, dtype), is_nan(right, dtype))
        assert np.array_equal(codes[~is_nan(codes, dtype)], right[~is_nan(codes, dtype)])


def test_conversions_from_8_bits(library):
    given = {"short_": CODES, "wide": CODES, "out": "float[256]", "fours": "float[256]"}
    found = trace(library, Call("widened", 1, 256), given)
    assert found.ok, str(found)
    assert np.array_equal(found.arrays["out"], CODES.view(SHORT).astype(np.float32), equal_nan=True)
    assert np.array_equal(found.arrays["fours"], CODES.view(WIDE).astype(np.float32), equal_nan=True)


def test_pairs_by_ptx_are_those_of_the_header(library):
    x = RNG.standard_normal(64).astype(np.float32) * 100
    found = trace(library, Call("pairs", 1, 32), {"x": x, "out": "ushort[64]", "back": "half[128]"})
    two, back = found.arrays["out"].reshape(32, 2), found.arrays["back"].reshape(32, 2, 2)
    assert found.ok and np.array_equal(two[:, 0], two[:, 1]) and np.array_equal(back[:, 0], back[:, 1]), str(found)
    assert np.array_equal(two[:, 0].copy().view(SHORT).astype(np.float32), back[:, 0].ravel().astype(np.float32))


def test_an_array_of_fp8_is_an_argument(library):
    right = CODES.view(SHORT)[:64].astype(np.float32)
    given = {"x": right, "short_": "e4m3[64]", "wide": "__nv_fp8_e5m2[64]", "open": "uchar[128]", "n": 64}
    found = trace(library, Call("narrowed", 1, 64), given, expect={"short_": right.astype(SHORT)}, tolerance=1e-9)
    assert found.ok and found.arrays["short_"].dtype == SHORT, str(found)


def fused(a, b, c, kept, stored):
    """One sum of a tensor core: each product and `c` cut to `kept` bits below the largest exponent, the sum to `stored`
    bits of a float's fraction."""
    terms = [(x * y, exponent(x) + exponent(y)) for x, y in zip(a, b)] + [(c, exponent(c))]
    most = max(each for _, each in terms)
    total = math.ldexp(sum(math.trunc(math.ldexp(number, kept - most)) for number, _ in terms), most - kept)
    unit = stored - exponent(total)
    return math.ldexp(math.trunc(math.ldexp(total, unit)), -unit)


def exponent(number):
    return math.frexp(number)[1] - 1 if number else -126


def operands(n, kinds):
    scales = 2.0 ** RNG.integers(-3, 4, (n, 32))
    A = (RNG.standard_normal((n, 32)) * scales).astype(kinds[0])
    B = RNG.standard_normal((8, 32)).astype(kinds[1])
    C = (RNG.standard_normal((n, 8)) * 2.0 ** RNG.integers(-8, 8, (n, 8))).astype(np.float32)
    return A, B, C, {"rows": A.view(np.uint8).ravel(), "columns": B.view(np.uint8).ravel(), "C": C.ravel()}


def products(A, B, C, kept, stored):
    rows, columns = A.astype(float).tolist(), B.astype(float).tolist()
    return np.float32([fused(a, b, C[i, j], kept, stored) for i, a in enumerate(rows) for j, b in enumerate(columns)])


@pytest.mark.parametrize("kind", range(4))
def test_mma(library, kind):
    A, B, C, given = operands(16, KINDS[kind])
    lower = np.arange(32) % 4 < 2
    first = products(A[:, lower], B[:, lower], np.zeros_like(C), 25, 23).reshape(C.shape)
    right = C + products(A[:, ~lower], B[:, ~lower], first, 25, 23).reshape(C.shape)
    found = trace(library, Call(f"mma<{kind}>", 1, 32), given, expect={"C": right.ravel()})
    assert found.ok, str(found)


@pytest.mark.parametrize("kind", range(3))
def test_wgmma(library, kind):
    A, B, C, given = operands(64, KINDS[kind])
    found = trace(library, Call(f"wgmma<{kind}, true>", 1, 128), given, expect={"C": products(A, B, C, 13, 13)})
    assert found.ok, str(found)


@pytest.mark.parametrize("name", ["narrowed_faulty", "wgmma<0, false>"])
def test_faults(library, name):
    kind, words = ("asynchrony", "no wait") if "wgmma" in name else ("race", "race")
    given = operands(64, KINDS[0])[3] if "wgmma" in name else {"x": "float[128]:random", "short_": "uchar[64]"}
    found = trace(library, Call(name, 1, 128), given)
    line = next(k for k, line in enumerate(FILE.read_text().splitlines(), 1) if line.endswith(f"FAULT: {words}"))
    assert [(fault.kind, fault.line) for fault in found.faults] == [(kind, line)], str(found)
