"""Kernels timed in turns: the statistics, the journal, and on a GPU the timing."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from builders import work_of

from tilewise.measure import task as measure
from tilewise.measure.methods import METHODS
from tilewise.measure.turns import Turns
from tilewise.study import registry
from tilewise.study.points import point

KERNELS = Path(__file__).with_name("duel")
IN_TURNS = {"tasks": {"t": {"title": "t", "in_turns": True, "sweeps": []}}}


def drifting(factors, turns=12, spread=0.002, drift=0.1, seed=1):
    """Times of kernels whose true times are `factors`, on a card that slows down by `drift` over the turns."""
    chance = np.random.default_rng(seed)
    clock = np.linspace(1, 1 + drift, turns)[:, None]
    return np.array(factors) * clock * (1 + spread * chance.standard_normal((turns, len(factors))))


def test_ratios_are_those_of_the_kernels_whatever_the_clock_does():
    turns = Turns(drifting([1.0, 1.02, 1.0, 0.5]), default=0, best=2)
    equal, slower, faster = (turns.columns(index) for index in (2, 1, 3))
    assert equal["vs_default_low"] <= 1 <= equal["vs_default_high"]
    assert slower["vs_default_high"] < 1 and slower["vs_default"] == pytest.approx(1 / 1.02, abs=0.005)
    assert faster["vs_best"] == pytest.approx(2, abs=0.01)
    assert faster["vs_best_low"] < faster["vs_best"] < faster["vs_best_high"]
    assert turns.columns(0)["vs_default"] == turns.columns(0)["vs_default_low"] == 1
    # The interval of a time spans the drift; that of a ratio does not.
    assert slower["run_high_ms"] / slower["run_low_ms"] > 1.02
    assert slower["vs_default_high"] / slower["vs_default_low"] < 1.01


def test_intervals_narrow_with_the_turns_and_cover_the_truth():
    few, many = (Turns(drifting([1.0, 1.1], turns), 0, None).widest_percent() for turns in (10, 40))
    assert many < few
    covered = 0
    for seed in range(100):
        row = Turns(drifting([1.0, 1.1], 20, 0.01, seed=seed), 0, None).columns(1)
        covered += row["vs_default_low"] <= 1 / 1.1 <= row["vs_default_high"]
    assert covered >= 85, covered


def test_without_a_library_there_are_no_ratios():
    turns = Turns(drifting([1.0, 2.0]), None, None)
    assert set(turns.columns(0)) == {"run_low_ms", "run_high_ms"}
    assert turns.widest_percent() > 0


def test_the_journal_keeps_a_case_whole(monkeypatch, tmp_path, device, config, kernels):
    here = dataclasses.replace(
        device,
        platform="nvidia-h200",
        backend="gpu",
        gpu={"name": "NVIDIA H200", "driver": "580.1", "compute_capability": "9.0", "sms": 132},
    )
    ran = []

    def run_jobs(jobs, device, config, samples, how):
        ran.append((how, [job.point.label() for job in jobs]))
        for job in jobs[: 3 if len(ran) == 1 else None]:  # the first run is killed after three rows
            yield (
                job.key,
                job.row
                | {"status": "ok", "time_ms": 1.0, "gflops": 1.0, "turns": 10, "duel_s": 2.0, "gpu_uuid": "GPU-1"},
            )

    monkeypatch.setattr(measure, "run_jobs", lambda jobs, *rest: run_jobs(jobs, *rest) if jobs else [])
    first, second = ([point("t", name, "float", n, n, n) for name in ("cublas", "cublas_best")] for n in (64, 128))

    def run(points, **settings):
        del ran[1:]
        work = work_of(points, kernels, here, config | IN_TURNS | settings, tmp_path, builds={})
        return METHODS["sweep"].run(work)

    with pytest.raises(KeyError):  # the second case has one of its two rows
        run([*first, *second])
    rows, facts = run([*first, *second])
    assert ran[1] == ("duel", [each.label() for each in second]), "the first case is whole, the second is not"
    assert rows.turns.tolist() == [10] * 4 and facts.timed_s.tolist() == [4.0] and facts.remembered.tolist() == [2]
    run([*first, *second])
    assert len(ran) == 1, "nothing is left to be measured"
    run([*first, *second], duel=config["duel"] | {"least_turns": 11})
    assert len(ran[1][1]) == 4, "other turns, other rows"


@pytest.fixture
def duel(work):
    """A function that measures kernels of the folder `duel` beside cuBLAS in turns; returns their rows by label."""

    def measured(points, **settings):
        return measure.measure_in_turns(work(points, registry.load(KERNELS), **IN_TURNS, **settings))[0]

    return measured


def points_at(n, *products, libraries=("cublas", "cublas_best")):
    """cuBLAS's points, then those of `product` with these copies and shares of repeated sums."""
    at = ("float", n, n, n)
    ours = [point("t", "product", *at, copy=copy, more_percent=more) for copy, more in products]
    return [*(point("t", name, *at) for name in libraries), *ours]


@pytest.mark.gpu(alone=True)
def test_copies_are_equal_and_two_percent_are_seen(duel, config):
    for _ in range(3):
        settings = config["duel"] | {"load_turns": 1, "load_s": 0.1}
        rows = duel(points_at(1024, (0, 0), (1, 0), (0, 2)), duel=settings)
        assert set(rows.status) == {"ok"}, rows.message.tolist()
        assert rows.turns.nunique() == 1 and rows.turns[0] >= config["duel"]["least_turns"]
        library, best, one, copy, slower = (row for _, row in rows.iterrows())
        assert library.vs_default == 1 and best.algorithm and not one.algorithm
        assert copy.vs_default == pytest.approx(one.vs_default, rel=0.005)
        assert slower.vs_default_high < min(one.vs_default_low, copy.vs_default_low)
        assert one.vs_default / slower.vs_default == pytest.approx(1.02, abs=0.01)
        assert one.sustained_ms == pytest.approx(one.time_ms, rel=0.2) and one.sustained_mhz > 100


@pytest.mark.gpu(alone=True)
def test_a_kernel_with_a_fault_is_a_row_and_the_others_go_on(duel):
    at = ("float", 512, 512, 512)
    rows = duel([*points_at(512, (0, 0)), point("t", "beyond", *at), point("t", "kept", *at)])
    assert rows.status.tolist() == ["ok", "ok", "ok", "error", "incorrect"], rows.message.tolist()
    assert "illegal" in rows.message[3].lower() and "timed product" in rows.message[4]
    assert rows.vs_default[:3].notna().all() and rows.vs_default[3:].isna().all()
