"""What the tests of measuring share: the GPU of this machine, and points that are measured on it."""

import pytest
from builders import work_of

from tilewise.measure import probe
from tilewise.measure import task as measure


@pytest.fixture(scope="session")
def gpu():
    """device.json of this machine."""
    return probe.capture("here", "gpu")


@pytest.fixture
def work(tmp_path, gpu, config, kernels, built_for_gpu):
    """A function that builds the kernels of some points and returns the Work of measuring them quickly."""

    def work(points, registry=kernels, limit_s=60, **settings):
        timing = config["timing"] | {"min_time_s": 0.01, "min_samples": 3, "point_limit_s": limit_s, "timeout_s": 0.5}
        everything = config | {"timing": timing} | settings
        builds = built_for_gpu(points, registry, gpu)
        return work_of(points, registry, gpu, everything, tmp_path, builds)

    return work


@pytest.fixture
def run(work):
    """A function that builds the kernels of some points, measures the points and returns their rows."""

    def measured(*arguments, **options):
        return measure.measure_task(work(*arguments, **options))[0]

    return measured
