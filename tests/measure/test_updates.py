"""A study verifies C = alpha A B + beta C, of a C that begins before every launch as the entry says, and the errors of
a type or of a declared scheme: on the emulator, and while a GPU times it."""

import dataclasses
from pathlib import Path

import pytest
from builders import work_of

from tilewise.measure import task as measure
from tilewise.measure.backends import Setting
from tilewise.measure.backends.emulator import Backend
from tilewise.measure.job import conditions
from tilewise.study import registry
from tilewise.study.points import point

KERNELS = registry.load(Path(__file__).parent / "updates")
WRONG = {
    "without_beta": "",
    "split_k_uncleared": "exceed the rounding bound",
    "leading_wrong": "exceed the rounding bound",
    "bfloat16_inside": "as accurate as bfloat16: is there a conversion?",
}


def check(rows):
    for name in KERNELS:
        status, message = rows[name]
        assert status == ("incorrect" if name in WRONG else "ok"), (name, message)
        assert WRONG.get(name, "") in message, (name, message)
        assert ("conversion" in message) == (name == "bfloat16_inside"), (name, message)


def test_on_the_emulator(tmp_path, device, config):
    points = [point("t", name, "float", 20, p, 35) for name in KERNELS for p in (32, 4096)]
    work = work_of(points, KERNELS, device, config, tmp_path)
    backend = Backend(Setting(device, config, work.samples))
    rows = [(job.kernel.name, job.point.p, backend.once(job)) for job in work.jobs()]
    for p in (32, 4096):
        check({name: (row["status"], row["message"]) for name, at, row in rows if at == p})


def test_a_row_depends_on_what_is_wanted(config):
    at = point("t", "update", "float", 4, 5, 6)
    plan = KERNELS["update"].plan(at)
    asked = [
        conditions(at, dataclasses.replace(KERNELS["update"], **changes), plan, "gpu", config)
        for changes in (
            {},
            {"alpha": 1.0},
            {"beta": 1.0},
            {"initial": "zeros"},
            {"accuracy": {"scheme": "tf32"}},
            {"ld": {"A": 8}},
        )
    ]
    assert all(one != other for number, one in enumerate(asked) for other in asked[:number])


@pytest.mark.gpu(alone=True)
def test_while_a_gpu_times_them(gpu, config, tmp_path, built_for_gpu):
    """Of thousands of short runs and batches, and of products of which random rows are checked."""
    settings = config | {"timing": config["timing"] | {"min_time_s": 0.02, "timeout_s": 1}}
    settings |= {"verification": config["verification"] | {"full_limit_gflop": {"gpu": 1, "cpu": 1}}}
    points = [point("t", name, "float", n, p, n) for name in KERNELS for n, p in ((40, 32), (250, 4096), (1024, 1024))]
    work = work_of(points, KERNELS, gpu, settings, tmp_path, built_for_gpu(points, KERNELS, gpu))
    rows, _ = measure.measure_task(work)
    for _, some in rows.groupby("n"):
        check({row.kernel: (row.status, row.message) for row in some.itertuples()})
