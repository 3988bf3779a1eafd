"""The languages besides CUDA C++: one table of what compiles them, and what a row depends on."""

import importlib.metadata

from tilewise.compile import languages
from tilewise.compile.build import unsupported
from tilewise.measure import probe
from tilewise.study import registry
from tilewise.study.device import Device
from tilewise.study.kernel import Kind

KERNELS = registry.load()
GPU = Device("h200", "gpu", gpu={"compute_capability": "9.0", "name": "H200", "driver": "580", "sms": 132})


def test_every_other_kind_of_source_has_a_compiler():
    assert set(languages.LANGUAGES) == set(Kind) - {Kind.CUDA, Kind.HOST, Kind.LIBRARY}


def test_a_device_has_the_versions_of_the_languages():
    assert set(languages.DISTRIBUTIONS) <= set(probe.PACKAGES)


def test_a_binary_is_of_one_version_of_its_compiler(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", {"triton": "3.9.0"}.__getitem__)
    assert languages.compiler(Kind.TRITON) == "triton 3.9.0"


def test_a_language_that_is_absent_costs_rows_with_the_line_that_installs_it(monkeypatch):
    for kind, language in languages.LANGUAGES.items():
        monkeypatch.setattr(language, "missing", lambda: "it is missing: `pip install it`")
        [kernel, *_] = [kernel for kernel in KERNELS.values() if kernel.kind == kind]
        assert unsupported(kernel, GPU) == "it is missing: `pip install it`"
