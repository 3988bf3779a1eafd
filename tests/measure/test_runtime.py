"""The CUDA runtime beside the driver."""

from tilewise.nvidia import runtime


def test_without_a_runtime_library_there_is_none(monkeypatch):
    monkeypatch.setattr(runtime, "_cudart", lambda: "libcudart_is_not_here.so")
    assert runtime.library() is None
