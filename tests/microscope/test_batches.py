"""Kernels that make many products at once: on the emulator, at sizes that are no multiples of a tile."""

import dataclasses

import numpy as np
import pytest
from builders import KERNELS, product
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelscope.compile import build
from kernelscope.emulator import Emulator
from tilewise import UserError
from tilewise.measure.job import conditions
from tilewise.study import verify
from tilewise.study.points import point
from tilewise.study.precision import PRECISIONS
from tilewise.study.sweeps import Reading, expand
from tilewise.traced.multiplication import trace_point

#: By kernel and type, small tiles and few stages; what its rows divide by decides which launches it has.
CHOICES = {
    ("batched_ring", "float"): {"tile_n": 128, "tile_m": 192, "tile_k": 16, "stages": 3, "walk": 7},
    ("batched_wgmma", "bfloat16"): {"tile_m": 64, "stages": 3, "band": 8},
    ("batched_wgmma", "half"): {"tile_m": 128, "stages": 2, "band": 8},
}
SHAPES = [(33, 35, 70), (130, 40, 200), (1, 8, 8), (129, 65, 257)]


def batch_of(kernel, dtype, shape, batch):
    """A point of a batch."""
    return dataclasses.replace(point("t", kernel, dtype, *shape, **CHOICES[kernel, dtype]), batch=batch)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """A function that compiles a kernel for some points once."""
    folder, made = tmp_path_factory.mktemp("batches"), {}

    def library(kernel, dtype):
        if (kernel, dtype) not in made:
            points = [batch_of(kernel, dtype, shape, 2) for shape in (*SHAPES, (8, 7, 8), (8, 8, 7), (8, 7, 7))]
            instances = dict.fromkeys(i for at in points for i in KERNELS[kernel].plan(at).instances)
            file = build(KERNELS[kernel], list(instances), folder / f"{kernel}_{dtype}.so")
            made[kernel, dtype] = Emulator(file)
        return made[kernel, dtype]

    return library


@pytest.mark.slow
@pytest.mark.parametrize("kernel, dtype", CHOICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_product_of_a_batch_is_right_and_has_no_fault(kernel, dtype, shape):
    row, faults = trace_point(KERNELS[kernel], batch_of(kernel, dtype, shape, 3))
    faults = [fault for fault in faults if not fault.kind.is_remark]  # sums of 8 products fill half of a stage of 16
    assert not faults, faults[0]
    assert row["races"] == row["out_of_bounds"] == row["incorrect"] == 0


@pytest.mark.parametrize("kernel, dtype", CHOICES)
@given(batch=st.integers(1, 5), n=st.integers(1, 140), p=st.integers(1, 70), m=st.integers(1, 140))
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_batches_of_any_size_are_right(libraries, kernel, dtype, batch, n, p, m):
    at = batch_of(kernel, dtype, (n, p, m), batch)
    A, B = verify.operands(np, dtype, n, p, m, 1, batch)
    C = np.empty((batch * n, m), PRECISIONS[dtype].stored)
    verify.poison(C, dtype)
    product(KERNELS[kernel], at, libraries(kernel, dtype), A, B, C)
    assert verify.check(C, *verify.reference(A, B, dtype, batch), dtype, p).ok


@pytest.mark.parametrize("kernel, dtype", CHOICES)
def test_what_is_not_a_number_stays_in_its_own_product(libraries, kernel, dtype):
    """A tile beyond the last row of a matrix has zeros, not what the next matrix begins with."""
    n, p, m = 33, 40, 72
    at = batch_of(kernel, dtype, (n, p, m), 3)
    A, B = verify.operands(np, dtype, n, p, m, 1, 3)
    for matrix, rows in ((A, n), (B, p)):
        verify.poison(matrix[rows : 2 * rows], dtype)
    C = np.empty((3 * n, m), PRECISIONS[dtype].stored)
    product(KERNELS[kernel], at, libraries(kernel, dtype), A, B, C)
    found = PRECISIONS[dtype].wide(np, C)
    assert np.isnan(found[n : 2 * n]).all() and np.isfinite(found[:n]).all() and np.isfinite(found[2 * n :]).all()


def test_a_single_product_is_the_row_that_it_was(config):
    """What a row depends on does not mention a batch of one."""
    one = point("t", "naive", "float", 3, 4, 5, block_x=8, block_y=4)
    eight = dataclasses.replace(one, kernel="cublas", parameters=(), batch=8)
    assert "batch" not in one.columns() and eight.columns()["batch"] == 8
    asked = conditions(one, KERNELS["naive"], KERNELS["naive"].plan(one), "gpu", config)
    assert "batch" not in repr(asked)
    assert one.label() == "naive float 3x4x5 block=8x4" and eight.label() == "cublas float 8 times 3x4x5"
    assert eight.multiply_adds == 8 * 60


def test_kernels_of_one_product_refuse_a_batch(config):
    kernel = KERNELS["stream_k"]
    at = dataclasses.replace(point("t", "stream_k", "float", 64, 64, 64), batch=2)
    assert kernel.unmet(at) == "batch == 1"
    sweep = {"kernel": "naive", "dtype": "float", "shapes": "batches", "block": "8x4"}
    tasks = {"t": {"title": "t", "sweeps": [sweep]}}
    with pytest.raises(UserError, match="naive requires batch == 1; choose other sizes"):
        expand(config | {"tasks": tasks}, KERNELS, "t", reading=Reading(batches=True))
    with pytest.raises(UserError, match=r"t\.sweeps\.0\.shapes: a shape with a batch is for a task with the method"):
        expand(config | {"tasks": tasks}, KERNELS, "t")


def test_the_task_has_every_batch_beside_the_library(config):
    found = expand(config, KERNELS, "batches", reading=Reading(batches=True))
    batches = {(at.batch, at.n, at.p, at.m) for at in found}
    assert batches == {(8, 1024, 1024, 1024), (64, 256, 256, 256), (512, 128, 128, 128)}
    for dtype, library in (("float", "cublas"), ("bfloat16", "cublas_bf16")):
        of_library = {(at.batch, at.n) for at in found if (at.kernel, at.dtype) == (library, dtype)}
        assert of_library == {(8, 1024), (64, 256), (512, 128)}
