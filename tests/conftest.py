"""What the tests share: the study's own config and registry, and a copy of the repository to run Snakemake in."""

import pytest
import yaml
from clones import copy_repository

from tilewise import ROOT, registry
from tilewise.emulator import EMULATED_LIMITS


@pytest.fixture(scope="session")
def config():
    """The study as config/config.yaml tells it."""
    return yaml.safe_load((ROOT / "config/config.yaml").read_text())


@pytest.fixture(scope="session")
def kernels():
    """The registry."""
    return registry.load()


@pytest.fixture(scope="session")
def device(config):
    """device.json of a machine without a GPU, as far as the measurements read it."""
    return {
        "platform": "emulator",
        "backend": "emulator",
        "gpu": None,
        "limits": EMULATED_LIMITS | {"memory_bytes": config["emulator"]["memory_bytes"]},
        "versions": {},
        "cpu": {},
        "host_compiler": "g++",
    }


@pytest.fixture
def clone(tmp_path):
    """A fresh copy of the repository for one test."""
    return copy_repository(tmp_path / "clone")
