"""Calls of tilewise.matmul, timed as a user makes them."""

import dataclasses

import pytest
from builders import work_of

from tilewise import UserError
from tilewise.measure.methods import METHODS, calls
from tilewise.study import columns


@pytest.fixture
def work(device, config, kernels, tmp_path):
    """The Work of the task on a GPU."""
    return work_of([], kernels, dataclasses.replace(device, platform="nvidia-h200", backend="gpu"), config, tmp_path)


def test_each_type_and_size_is_a_row_and_one_that_fails_costs_itself(work, monkeypatch):
    class Backend:
        def called(self, dtype, n):
            if (dtype, n) == ("double", 1024):
                raise UserError("the driver refuses it")
            return {"kernel": "cublas", "call_us": 1.0 * n, "cupy_us": 2.0 * n, "samples": 7, "status": "ok"}

    monkeypatch.setattr(calls, "open_backend", lambda name, setting: Backend())
    measured, facts = METHODS["calls"].run(work)
    assert measured.empty and list(facts.columns) == columns.column_names("calls", [])
    assert len(facts) == len(calls.CALLED_TYPES) * len(calls.CALLED_SIZES)
    wrong = facts[facts.status != "ok"]
    assert wrong[["dtype", "n", "status", "message"]].to_numpy().tolist() == [
        ["double", 1024, "error", "the driver refuses it"]
    ]
    right = facts[facts.status == "ok"]
    assert (right.cupy_us == 2 * right.n).all() and (facts.n == facts.p).all()


def test_an_emulator_calls_nothing(tmp_path, device, config, kernels):
    measured, facts = METHODS["calls"].run(work_of([], kernels, device, config, tmp_path))
    assert measured.empty and facts.empty and list(facts.columns) == columns.column_names("calls", [])


def test_what_decides_the_choice_makes_the_rows_stale():
    names = {path.name for path in METHODS["calls"].sources()}
    assert {"tuned.yaml", "registry.yaml", "measurements.csv", "sizes.csv", "stream_k.cu", "tensor_copy.cuh"} <= names


@pytest.mark.gpu(alone=True)
def test_calls_on_this_gpu(tmp_path, gpu, config, kernels, monkeypatch):
    monkeypatch.setattr(calls, "CALLED_SIZES", (64, 1100))
    _, facts = METHODS["calls"].run(work_of([], kernels, gpu, config, tmp_path))
    assert set(facts.status) == {"ok"}, facts.message.tolist()
    assert (facts.call_us > 1).all() and (facts.cupy_us > 1).all() and (facts.bound_ratio <= 1).all()
