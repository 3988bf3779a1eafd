"""Fixtures of the tests of `tilewise grade`."""

import pytest


@pytest.fixture
def without_gpu(monkeypatch) -> None:
    """A machine whose GPUs are hidden: nothing is timed."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
