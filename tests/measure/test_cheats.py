"""Kernels that are right when they are verified and skip work afterwards are found: by the emulator, by the surprises
of a timing that NumPy plays, and on a GPU."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from builders import work_of

from tilewise.measure import task as measure
from tilewise.measure.backends import Setting
from tilewise.measure.backends.emulator import Backend
from tilewise.measure.surprises import Surprises
from tilewise.study import registry
from tilewise.study.points import point

KERNELS = registry.load(Path(__file__).parent / "cheats")
CHEATS = [name for name in KERNELS if name != "honest"]


# ---- On the emulator -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def emulated(tmp_path_factory, device, config):
    """The rows of all of these kernels by name."""
    points = [point("t", name, "float", 20, 9, 35) for name in KERNELS]
    work = work_of(points, KERNELS, device, config, tmp_path_factory.mktemp("cheats"))
    backend = Backend(Setting(device, config, work.samples))
    return {job.kernel.name: backend.once(job) for job in work.jobs()}


@pytest.mark.parametrize("name", [name for name in CHEATS if name != "trusts_its_workspace"])
def test_the_emulator_finds_kernels_that_skip_work(emulated, name):
    assert emulated[name]["status"] == "incorrect" and emulated[name]["message"].startswith("a further product: ")


def test_the_emulator_lets_through_what_keeps_a_variable(emulated):
    assert emulated["honest"]["status"] == "ok" and emulated["honest"]["bound_ratio"] < 1


def test_on_the_emulator_no_workspace_outlives_its_run(emulated):
    assert emulated["trusts_its_workspace"]["status"] == "ok", "there is nothing to trust"


# ---- While it is timed, by NumPy -------------------------------------------------------------------------------------


class Played:
    """Arrays, a kernel `made(self)` that writes C, and a stream on which batches end late."""

    def __init__(self, kernel):
        rng = np.random.default_rng(1)
        self.sets = [(rng.random((5, 7)), rng.random((7, 3))) for _ in range(2)]
        self.A, self.B = (matrix.copy() for matrix in self.sets[0])
        self.number, self.C, self.space = 0, np.full((5, 3), np.nan), np.full((7, 3), np.nan)
        self.kernel, self.calls, self.waiting, self.marked, self.seen, self.spoiled = kernel, 0, [], 0, None, []
        self.batch = False
        self.run = Surprises(self.launch, self.mark, lambda: not self.waiting, self.look, self.spoil)

    def launch(self, stream):
        self.waiting.append(self.kernel)

    def wait(self):
        for kernel in self.waiting:
            kernel(self)
            self.calls += 1
        self.waiting = []

    def mark(self, stream):
        self.marked += 1

    def look(self):
        assert not self.waiting, "the run that is looked at has ended"
        self.seen = self.C.copy(), self.number

    def spoil(self, changed):
        assert not self.waiting, "no run meets another's operands"
        self.spoiled.append((self.calls, changed))
        self.C[...] = np.nan
        if changed:
            self.number = 1 - self.number
            self.A[...], self.B[...] = self.sets[self.number]
        else:
            self.space[...] = np.nan

    def right(self, C, number):
        return np.array_equal(C, self.sets[number][0] @ self.sets[number][1])

    def timed(self, isolated, batch):
        """Whether all is right that a backend checks of so many runs."""
        self.kernel(self)  # verified, which is right for all of these
        assert self.right(self.C, 0)
        self.spoil(False)
        for _ in range(isolated):
            self.run(0)
            self.wait()
        for _ in range(batch):
            self.run(0)
        self.wait()
        found = [self.right(self.C, self.number), self.seen is None or self.right(*self.seen)]
        for changed in (True, False):
            self.spoil(changed)
            self.run.launch(0)
            self.wait()
            found.append(self.right(self.C, self.number))
        return all(found)


def honest(at):
    at.C[...] = at.A @ at.B


def after(runs, otherwise):
    """A kernel that is honest in its first runs."""
    return lambda at: honest(at) if at.calls < runs else otherwise(at)


def keeping(at):
    at.kept = getattr(at, "kept", at.A @ at.B)
    at.C[...] = at.kept


def knowing(at):
    if getattr(at, "known", None) != at.A[0, 0]:
        at.known = at.A[0, 0]
        honest(at)


def copying(at):
    at.space[...] = at.B
    at.C[...] = at.A @ at.space


def trusting(at):
    if np.isnan(at.space).any():
        at.space[...] = at.B
    at.C[...] = at.A @ at.space


def trusting_blindly(at):
    if not hasattr(at, "trusted"):
        at.trusted, at.space[...] = True, at.B
    at.C[...] = at.A @ at.space


def nothing(at):
    pass


def a_part(at):
    at.C[:2] = (at.A @ at.B)[:2]


LENGTHS = [(1, 0), (3, 0), (8, 0), (40, 1000), (5000, 200)]


@pytest.mark.parametrize(("isolated", "batch"), LENGTHS)
def test_an_honest_kernel_is_right(isolated, batch):
    for _ in range(20):
        assert Played(honest).timed(isolated, batch)
        assert Played(copying).timed(isolated, batch), "it needs nothing that a run before it left"


SKIPPING = [keeping, knowing, trusting, trusting_blindly, after(1, nothing), after(1, a_part)]


@pytest.mark.parametrize("kernel", SKIPPING)
@pytest.mark.parametrize(("isolated", "batch"), LENGTHS)
def test_a_kernel_that_skips_work_is_found(kernel, isolated, batch):
    for _ in range(20):
        assert not Played(kernel).timed(isolated, batch)


@pytest.mark.parametrize("kernel", [nothing, a_part, keeping])
def test_a_kernel_that_begins_to_skip_work_later_is_found_if_that_gains_much(kernel):
    for _ in range(20):
        assert not Played(after(1000, kernel)).timed(100_000, 0)


def test_surprises_are_few_and_differ():
    """They come in pairs that become rarer, not in a batch, and not at the same runs each time."""
    found = []
    for _ in range(40):
        at = Played(honest)
        assert at.timed(5000, 300)
        *runs, last, very_last = at.spoiled[1:]
        assert (last, very_last) == ((5000 + 300, True), (5000 + 301, False))
        assert 8 < len(runs) < 30 and at.marked <= len(runs) + 1
        if len(runs) % 2:  # nothing waits before a batch's first run, but something does before its second
            assert runs.pop() == (5000, True)
        pairs = list(zip(runs[::2], runs[1::2]))
        assert all(second == (first[0] + 1, False) and first[1] for first, second in pairs)
        assert 2 <= runs[0][0] <= 4
        found.append((tuple(runs), at.seen[1]))
    assert len({runs for runs, _ in found}) > 5 and {number for _, number in found} == {0, 1}
    short = Played(honest)
    assert short.timed(2, 0) and [changed for _, changed in short.spoiled[-2:]] == [True, False]


# ---- On a GPU --------------------------------------------------------------------------------------------------------


@pytest.mark.gpu(alone=True)
def test_a_gpu_finds_all_cheats_while_it_times_them(gpu, config, tmp_path, built_for_gpu):
    """Of small products, which have thousands of runs and batches, and of one that takes longer."""
    settings = config | {"timing": config["timing"] | {"min_time_s": 0.02, "timeout_s": 1}}
    points = [point("t", name, "float", n, p, n) for name in KERNELS for n, p in ((20, 9), (250, 20_000))]
    work = work_of(points, KERNELS, gpu, settings, tmp_path, built_for_gpu(points, KERNELS, gpu))
    rows, _ = measure.measure_task(work)
    status = rows.set_index(["kernel", "n"]).status
    assert set(status[["honest"]]) == {"ok"}, rows.message.tolist()
    assert set(status[CHEATS]) == {"incorrect"}, rows[rows.status != "incorrect"].to_string()
    # At the larger size some are found earlier: what they kept is of the smaller one.
    assert rows.message[(rows.kernel != "honest") & (rows.n == 20)].str.startswith("the timed product").all()
    assert rows.time_ms[rows.kernel != "honest"].isna().all()


@pytest.mark.gpu(alone=True)
def test_a_product_that_another_stream_writes_is_not_there_in_time(gpu, config, tmp_path, built_for_gpu, monkeypatch):
    """What launches by a second stream returns before its product is made; a kernel of the registry cannot, a library
    could."""
    import cupy

    from tilewise.nvidia import operands

    points = [point("t", "honest", "float", 250, 20_000, 250)]
    [job] = work_of(points, KERNELS, gpu, config, tmp_path, built_for_gpu(points, KERNELS, gpu)).jobs()
    second = cupy.cuda.Stream(non_blocking=True)
    bound = operands.bound

    def elsewhere(*arguments):
        launch, facts, spaces = bound(*arguments)
        return lambda stream: launch(second.ptr), facts, spaces

    assert operands.verified(job, operands.Operands(config))[1]["status"] == "ok"
    monkeypatch.setattr(operands, "bound", elsewhere)
    _, row, right, _ = operands.verified(dataclasses.replace(job), operands.Operands(config))
    second.synchronize()
    assert not right and row["status"] == "incorrect"
