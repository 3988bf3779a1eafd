"""`float_always` on the emulator against its model, to the last bit; and the model against what it promises: right for
all operands, not finite only where a chain of multiply-adds is not."""

import functools

import numpy as np
import pytest
from builders import KERNELS, product, work_of
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelscope.compile import build
from kernelscope.emulator import Emulator
from reference import float_always, tensor_core
from reference.float_always import EXACT, SIX_PRODUCTS, THREE_PRODUCTS
from tilewise.measure.backends import Setting
from tilewise.measure.backends.emulator import Backend
from tilewise.study import points

KERNEL = KERNELS["float_always"]
CHOICE = {"tile_m": 64, "stages": 5, "band": 4, "exact_m": 64}
CHOICES = [CHOICE, CHOICE | {"tile_m": 128, "exact_m": 128}, CHOICE | {"tile_m": 192, "stages": 4, "exact_m": 256}]
SHAPES = [(130, 200, 70), (130, 201, 72), (20, 64, 30), (5, 33, 9), (260, 129, 131), (9, 2200, 7), (3, 4, 66)]


def plain(rng, x):
    return x


def some(share, value):
    """Some elements are set to a value."""
    return lambda rng, x: np.where(rng.random(x.shape) < share, np.float32(value), x)


def powers(low, high):
    return lambda rng, x: x * np.exp2(rng.integers(low, high + 1, x.shape)).astype(np.float32)


def one(value):
    """One element is set to a value."""

    def changed(rng, x):
        x = x.copy()
        x[tuple(rng.integers(x.shape))] = value
        return x

    return changed


def line(factor):
    """One row or column is multiplied."""

    def changed(rng, x):
        x, axis = x.copy(), rng.integers(2)
        np.moveaxis(x, axis, 0)[rng.integers(x.shape[axis])] *= np.float32(factor)
        return x

    return changed


def identity(rng, x):
    return np.eye(*x.shape, dtype=np.float32)[rng.permutation(x.shape[0])]


#: Functions of (rng, normally distributed floats).
KINDS = {
    "plain": plain,
    "positive": lambda rng, x: np.abs(x),
    "sparse": some(0.97, 0),
    "identity": identity,
    "blocks of zeros": lambda rng, x: x * (np.arange(x.shape[1]) // 70 % 2).astype(np.float32),
    "log-normal": lambda rng, x: np.exp(3 * x),
    "graded": lambda rng, x: x * np.exp2(np.linspace(-40, 40, x.shape[1])).astype(np.float32),
    "powers": powers(-24, 24),
    "tiny": powers(-149, -100),
    "all powers": powers(-140, 126),
    "line": line(1e6),
    "large": lambda rng, x: x * np.float32(1e18),
    "very large": lambda rng, x: x * np.float32(1e19),
    "spike": one(1e4),
    "huge": one(3.4e38),
    "infinite": one(np.inf),
    "minus infinite": some(0.01, -np.inf),
    "nan": one(np.nan),
    "zero": lambda rng, x: 0 * x,
    "small integers": lambda rng, x: np.round(3 * x),
}
kinds = st.sampled_from(sorted(KINDS))
seeds = st.integers(0, 2**32 - 1)


def operands(shape, kind_a, kind_b, seed):
    rng, (n, p, m) = np.random.default_rng(seed), shape
    with np.errstate(all="ignore"):
        A, B = (
            KINDS[kind](rng, rng.standard_normal(sides).astype(np.float32)).astype(np.float32)
            for kind, sides in ((kind_a, (n, p)), (kind_b, (p, m)))
        )
    return np.ascontiguousarray(A), np.ascontiguousarray(B)


def not_fused(A, B):
    """A chain of multiply-adds that round twice, as the emulator's CPU may make them."""
    total = np.zeros((len(A), B.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for k in range(A.shape[1]):
            total = total + A[:, k, None] * B[None, k]
    return total


@functools.cache
def library(folder):
    at = [points.point("t", KERNEL.name, "float", *shape, **choice) for shape in SHAPES for choice in CHOICES]
    instances = sorted({name for point in at for name in KERNEL.plan(point).instances})
    return Emulator(build(KERNEL, instances, folder / "kernel.so"))


def emulated(folder, A, B, choice):
    C = np.full((len(A), B.shape[1]), np.nan, np.float32)
    at = points.point("t", KERNEL.name, "float", *A.shape, B.shape[1], **choice)
    product(KERNEL, at, library(folder), A, B, C)
    return C


def of_tiles(ways, shape, tile_m):
    """Which elements of C are of exact tiles."""
    exact = (ways == EXACT).any(axis=2)
    return np.kron(exact, np.ones((float_always.GROUP_ROWS, tile_m), bool))[: shape[0], : shape[2]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("by_need")


# ---- The kernel ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@given(choice=st.sampled_from(CHOICES), kind_a=kinds, kind_b=kinds, seed=seeds)
@settings(max_examples=settings().max_examples // 4, deadline=None)  # seconds each: 10 in CI, 25 in `make test-all`
def test_the_kernel_is_the_model_to_the_last_bit(folder, shape, choice, kind_a, kind_b, seed):
    """What is made in float is compared with the emulator's own way to add."""
    A, B = operands(shape, kind_a, kind_b, seed)
    with np.errstate(all="ignore"):
        wanted, ways = float_always.multiply(A, B, choice["tile_m"])
        exact = of_tiles(ways, shape, choice["tile_m"])
        wanted = np.where(exact, not_fused(A, B), wanted)
    assert np.array_equal(emulated(folder, A, B, choice), wanted, equal_nan=True)


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: f"tile_m={choice['tile_m']}")
@pytest.mark.parametrize("column", [3, 69])
def test_all_columns_of_a_tile_have_what_one_of_them_needs(folder, choice, column):
    """One uneven column makes its whole tile bfloat16, also those 64 columns that meet nothing else uneven."""
    A, B = operands((130, 200, 70), "plain", "plain", 1)
    B[10, column] = 1e4
    wanted, _ = float_always.multiply(A, B, choice["tile_m"])
    assert np.array_equal(emulated(folder, A, B, choice), wanted)


def test_its_rows_say_the_share_of_each_way(tmp_path, device, config):
    at = [points.point("t", KERNEL.name, "float", n, p, m, **CHOICE) for n, p, m in ((5, 64, 9), (5, 9, 9))]
    work = work_of(at, {KERNEL.name: KERNEL}, device, config, tmp_path)
    rows = [Backend(Setting(device, config, work.samples)).once(job) for job in work.jobs()]
    assert [row["status"] for row in rows] == ["ok", "ok"], rows
    assert rows[0]["message"] == "emulated: verified, not timed; three products of halves: 100 %"
    assert rows[1]["message"].endswith("; float on the CUDA cores: 100 %")


# ---- The model -------------------------------------------------------------------------------------------------------


@given(
    shape=st.tuples(st.integers(1, 140), st.sampled_from([1, 2, 3, 4, 31, 33, 65, 100, 300]), st.integers(1, 70)),
    kind_a=kinds,
    kind_b=kinds,
    seed=seeds,
)
@settings(max_examples=120, deadline=None)
def test_all_operands_are_multiplied_as_well_as_by_a_chain(shape, kind_a, kind_b, seed):
    """Within float's rounding bound, but for what underflows; NaN and infinite only where a chain is, or where it
    overflows on the way."""
    A, B = operands(shape, kind_a, kind_b, seed)
    with np.errstate(all="ignore"):
        C, _ = float_always.multiply(A, B, 64)
        chain = tensor_core.chain(A, B)
        wide_a, wide_b = A.astype(np.float64), B.astype(np.float64)
        exact, magnitude = wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b)
        p = shape[1]
        bound = p * 2.0**-24 / (1 - p * 2.0**-24) * magnitude + p * 2.0**-149
        error = np.abs(C - exact)
    finite = np.isfinite(chain)
    assert np.isfinite(C[finite]).all(), "no NaN that a chain would not give"
    assert (error[finite] <= bound[finite]).all(), (error[finite] / bound[finite]).max()
    overflowed = ~finite & np.isfinite(C)
    assert (magnitude[overflowed] > 3.4e38).all(), "what a chain does not hold"
    assert np.array_equal(C[~np.isfinite(C)], chain[~np.isfinite(C)], equal_nan=True)


@pytest.mark.parametrize(
    ("kind_a", "kind_b", "way"),
    [
        ("plain", "plain", THREE_PRODUCTS),
        ("positive", "plain", THREE_PRODUCTS),
        ("large", "plain", THREE_PRODUCTS),
        ("zero", "plain", THREE_PRODUCTS),
        ("plain", "sparse", SIX_PRODUCTS),
        ("identity", "plain", SIX_PRODUCTS),
        ("powers", "plain", SIX_PRODUCTS),
        ("log-normal", "plain", SIX_PRODUCTS),
        ("huge", "plain", EXACT),
        ("plain", "nan", EXACT),
        ("infinite", "zero", EXACT),
        ("tiny", "plain", EXACT),
        ("very large", "very large", EXACT),
    ],
)
def test_operands_go_the_way_they_need(kind_a, kind_b, way):
    A, B = operands((64, 64, 64), kind_a, kind_b, 7)
    with np.errstate(all="ignore"):
        _, ways = float_always.multiply(A, B)
    assert ways.ravel().tolist() == [way]


def test_one_column_costs_its_own_block_of_k():
    A, B = operands((64, 640, 64), "plain", "plain", 8)
    A[:, 100] *= np.float32(1e6)
    assert np.flatnonzero(float_always.multiply(A, B)[1].ravel() == SIX_PRODUCTS).tolist() == [1]


def test_large_products_of_even_operands_are_nearly_all_halves():
    A, B = operands((512, 2048, 384), "plain", "plain", 9)
    assert (float_always.ways(A, B, 192) == THREE_PRODUCTS).mean() > 0.99
    assert (float_always.ways(A, B, 192)[:, :, :1] == THREE_PRODUCTS).shape == (4, 2, 1)


@pytest.mark.parametrize("name", ["identity", "small integers"])
def test_what_a_chain_makes_exactly_is_exact(name):
    """A permutation times anything, and integers."""
    A, B = operands((100, 100, 90), name, "plain" if name == "identity" else name, 5)
    assert np.array_equal(float_always.multiply(A, B)[0], (A.astype(np.float64) @ B).astype(np.float32))


def test_the_constants_are_the_kernels():
    """The certainty of the head: what halves lose of small elements, against the least sum of magnitudes."""
    text = "".join(KERNEL.code)
    for words in (
        f"LARGE_WITHIN = {float_always._LARGE_WITHIN};",
        f"LEAST = {float_always._LEAST};",
        "MOST = 127 + 99;",
        "PRODUCT = 2 * 127 + 124;",
    ):
        assert words in text
    assert (float_always._MOST, float_always._PRODUCT) == (127 + 99, 2 * 127 + 124)
    lost, least = 2 * 31 * 2.0**-39, 2.0 ** -(2 * (float_always._LARGE_WITHIN + 1))
    assert lost / least < 2.0**-22
