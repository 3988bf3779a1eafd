"""Kernels that are right when they are verified and skip work afterwards are found: by the emulator, by the
perturbations of a timing that NumPy plays, and on a GPU."""

import dataclasses
import json
import pickle
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from builders import work_of
from reference import models, residues, tensor_core

from tilewise.measure import perturbation
from tilewise.measure import task as measure
from tilewise.measure.methods import METHODS
from tilewise.measure.perturbation import Arrays, Change, Perturbed, deck
from tilewise.study import registry, verify
from tilewise.study.points import Point, point
from tilewise.study.precision import PRECISIONS, SCHEMES, result_of

KERNELS = registry.load(Path(__file__).parent / "cheats")
#: Products of floats that are made of shorter numbers: the bound of the errors decides, not a perturbation. On the
#: emulator their sums are short; the GPU's test has long ones, which need a bound of the usual error, not of the worst.
SHORTER = ["bfloat16_inside", "half_inside", "tf32_inside"]
#: A right product, whose gain the flush of the cache has to take away.
CACHED = "stays_in_cache"
CHEATS = [name for name in KERNELS if name not in ("honest", CACHED, *SHORTER)]


def points_of(names, n, p, m):
    """A point of each kernel, of a batch if it makes one."""
    return [Point("t", name, "float", n, p, m, (), 4 if KERNELS[name].batched else 1) for name in names]


# ---- On the emulator -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def emulated(tmp_path_factory, device, config):
    """The rows of the emulator's study of all of these kernels, by name."""
    points = points_of(["honest", *CHEATS, *SHORTER], 20, 9, 35)
    settings = config | {"emulator": config["emulator"] | {"shapes": [*config["emulator"]["shapes"], points[0].shape]}}
    rows, _ = measure.measure_task(work_of(points, KERNELS, device, settings, tmp_path_factory.mktemp("cheats")))
    return rows.set_index("kernel")


@pytest.mark.parametrize("name", CHEATS + SHORTER)
def test_the_emulator_finds_kernels_that_skip_work(emulated, name):
    assert emulated.status[name] == "incorrect"
    at_once = name in ("skips_if_c_is_there", "skips_what_is_not_blank", *SHORTER)
    assert emulated.message[name].startswith("a further product, after ") != at_once


def test_the_emulator_lets_through_what_keeps_a_variable(emulated):
    assert emulated.status["honest"] == "ok" and emulated.bound_ratio["honest"] < 1


def test_there_are_many_families_of_cheats():
    assert len(CHEATS + SHORTER + [CACHED]) + len(HOSTS) > 20


# ---- While it is timed, by NumPy -------------------------------------------------------------------------------------


class Played:
    """Arrays, and a kernel `made(self)` that writes C.

    A run takes `run_s`, a change and a check `change_s` each.
    """

    def __init__(self, kernel, shape=(12, 9, 10), dtype="float", batch=1, run_s=1e-3, change_s=0.0, scheme=""):
        self.arrays = Arrays(np, {"seed": random.getrandbits(32), "verification": {"rows": 4}})
        self.arrays.prepare(dtype, *shape, batch, wanted=verify.Wanted(scheme=scheme))
        self.kernel, self.run_s, self.change_s, self.now, self.calls = kernel, run_s, change_s, 0.0, 0
        raw = np.full(4 * shape[1] * shape[2], perturbation.BLANK, np.uint8)
        self.raw, self.space = raw, raw.view(np.float32).reshape(shape[1:])
        self.waiting, self.changed, self.kept = [], [], {}
        self.batch = batch
        self.run = Perturbed(self.launch, self.perturb, self.verified, lambda: self.now)

    A, B, C = (property(lambda self, name=name: getattr(self.arrays, name)) for name in "ABC")

    def launch(self, stream):
        self.waiting.append(self.kernel)

    def wait(self):
        for kernel in self.waiting:
            kernel(self)
            self.calls += 1
            self.now += self.run_s
        self.waiting = []

    def perturb(self, change):
        assert not self.waiting, "no run meets another's operands"
        self.changed.append((self.calls, change))
        self.now += self.change_s
        self.arrays.perturb(change, [[self.raw]] * 2)

    def verified(self):
        assert not self.waiting, "the run that is looked at has ended"
        self.now += self.change_s
        return self.arrays.check_lines()

    def timed(self, isolated, batch):
        """The first product that is wrong, of all that a backend checks of so many runs; None if all are right."""
        self.arrays.C[...] = np.nan if self.arrays.C.dtype.kind == "f" else 99
        self.kernel(self)  # verified, which is right for all of these
        assert self.arrays.check().ok
        for _ in range(isolated):
            self.run.between_runs()
            self.run.launch(0)
            self.wait()
        for _ in range(batch):
            self.run.launch(0)
        if found := self.run.finish(self.wait):
            return found
        self.arrays.restore()
        self.launch(0)
        self.wait()
        found = self.arrays.check()
        return None if found.ok else found


def honest(at):
    n, p, m = at.arrays.shape[1:4]
    product = at.A.reshape(at.batch, n, p) @ at.B.reshape(at.batch, p, m)
    at.C[...] = product.reshape(at.C.shape)


def first(runs, otherwise):
    """A kernel that is honest in its first runs."""
    return lambda at: honest(at) if at.calls < runs else otherwise(at)


def unless_as_before(look, copies=False):
    """A kernel that leaves C, or copies what it kept, if what it looks at is as in its last run."""

    def kernel(at):
        seen = np.array(look(at))
        if not np.array_equal(at.kept.get("seen"), seen):
            honest(at)
            at.kept.update(seen=np.array(look(at)), C=at.C.copy())
        elif copies:
            at.C[...] = at.kept["C"]

    return kernel


def where(missing):
    """A kernel that writes where C seems to have no result."""

    def kernel(at):
        before = at.C.copy()
        honest(at)
        at.C[...] = np.where(missing(before), at.C, before)

    return kernel


def every_second(at):
    at.kept["runs"] = at.kept.get("runs", 0) + 1
    if at.kept["runs"] % 2:
        honest(at)


def one_late(at):
    honest(at)
    at.kept["before"], at.C[...] = at.C.copy(), at.kept.get("before", at.C)


def in_a_table(at):
    table, key = at.kept, float(at.A[0, 0])
    if key not in table:
        honest(at)
        table[key] = at.C.copy()
    at.C[...] = table[key]


def on_the_host(at):
    """By the addresses of the arrays."""
    key = at.A.ctypes.data, at.B.ctypes.data
    if key not in at.kept:
        honest(at)
        at.kept[key] = at.C.copy()
    at.C[...] = at.kept[key]


def to_the_first(at):
    at.kept.setdefault("C", at.C)
    kept = at.C.copy()
    honest(at)
    at.kept["C"][...] = at.C
    if at.kept["C"] is not at.C:
        at.C[...] = kept


def copying(at):
    at.space[...] = at.B
    at.C[...] = at.A @ at.space


def trusting(at):
    if np.isnan(at.space).any():
        at.space[...] = at.B
    at.C[...] = at.A @ at.space


def trusting_blindly(at):
    if "trusted" not in at.kept:
        at.kept["trusted"], at.space[...] = True, at.B
    at.C[...] = at.A @ at.space


def nothing(at):
    pass


def a_part(at):
    kept = at.C[2:].copy()
    honest(at)
    at.C[2:] = kept


def ends(at):
    kept = at.C[1:-1].copy()
    honest(at)
    at.C[1:-1] = kept


def half_a_sum(at):
    at.C[...] = at.A[:, : at.A.shape[1] // 2] @ at.B[: at.A.shape[1] // 2]


def erasing(at):
    at.A[...] = 0
    at.C[...] = 0


def not_there_yet(at):
    """What another stream would write, were it not still at work."""


SKIPPING = {
    "keeps C": lambda at: at.C.__setitem__(..., at.kept.setdefault("C", at.A @ at.B)),
    "leaves C": first(1, nothing),
    "leaves C after six runs": first(6, nothing),
    "computes a part": first(1, a_part),
    "computes the first and the last row": first(1, ends),
    "half of the sum": first(1, half_a_sum),
    "every second run": every_second,
    "one run late": one_late,
    "another stream": first(1, not_there_yet),
    "erases its operands": first(1, erasing),
    "a table by A's first element": in_a_table,
    "a table on the host": on_the_host,
    "writes to the first C": to_the_first,
    "leaves C that holds numbers": where(np.isnan),
    "leaves C that is neither NaN nor 0": where(lambda C: np.isnan(C) | (C == 0)),
    "A's first element": unless_as_before(lambda at: at.A[0, 0]),
    "an element of A, B and C": unless_as_before(lambda at: [at.A[0, 0], at.B[0, 0], at.C[0, 0]]),
    "a row and a column": unless_as_before(lambda at: [*at.A[0], *at.B[:, 0]]),
    "all of C": unless_as_before(lambda at: at.C),
    "all of C and A": unless_as_before(lambda at: [*at.C.flat, *at.A.flat]),
    "all of A": unless_as_before(lambda at: at.A, copies=True),
    "all of B": unless_as_before(lambda at: at.B, copies=True),
    "every eighth element": unless_as_before(lambda at: [*at.A.flat[::8], *at.B.flat[::8]], copies=True),
    "the addresses": unless_as_before(lambda at: [each.ctypes.data for each in (at.A, at.B, at.C)]),
    "trusts its workspace": trusting,
    "trusts its workspace blindly": trusting_blindly,
}
LENGTHS = [(1, 0), (3, 0), (8, 30), (40, 100)]


@pytest.fixture(params=["whole", "lines"])
def looked_at(request, monkeypatch):
    """Whether products are verified whole, as small ones are, or on a few lines, as large ones are."""
    if request.param == "lines":
        monkeypatch.setattr(perturbation, "SMALL", 0)
    return request.param


@pytest.mark.slow
@pytest.mark.parametrize("name", SKIPPING)
def test_a_kernel_that_skips_work_is_found_in_200_of_200_timings(name, looked_at):
    found = [Played(SKIPPING[name]).timed(*LENGTHS[trial % len(LENGTHS)]) for trial in range(200)]
    assert all(each is not None and not each.ok for each in found), found.count(None)


@pytest.mark.parametrize("kernel", [nothing, a_part, half_a_sum])
def test_a_kernel_that_begins_to_skip_work_later_is_found(kernel):
    for _ in range(5):
        assert Played(first(1000, kernel)).timed(5000, 0)


def test_a_part_of_a_batch_is_found(looked_at):
    def half(at):
        kept = at.C[24:].copy()
        honest(at)
        at.C[24:] = kept

    assert all(Played(first(1, half), batch=4).timed(8, 20) for _ in range(50))
    assert all(Played(first(1, half), batch=9).timed(8, 20) for _ in range(50))
    assert not any(Played(honest, batch=batch).timed(8, 20) for batch in (4, 9) for _ in range(50))


def test_what_compares_all_of_a_b_and_c_is_not_found():
    """Such a kernel is right, and pays for reading them: its rate says so (test_roofs.py)."""
    look = unless_as_before(lambda at: [*at.A.flat, *at.B.flat, *at.C.flat, at.C.ctypes.data])
    assert not any(Played(look).timed(40, 100) for _ in range(20))


def inside(dtype):
    """A kernel of floats that rounds its operands."""
    return lambda at: np.matmul(*(tensor_core.round_to(each, dtype) for each in (at.A, at.B)), out=at.C)


@pytest.mark.parametrize("dtype", ["bfloat16", "half", "tf32"])
@pytest.mark.parametrize("p", [100, 4096])
def test_a_product_of_shorter_numbers_is_found_in_200_of_200_timings(dtype, p):
    """Already when it is verified."""
    for _ in range(200):
        at = Played(inside(dtype), (12, p, 10))
        at.kernel(at)
        assert not at.arrays.check().ok


def rounded(dtype):
    """An honest kernel of a type, with sums in float."""

    def kernel(at):
        precision, result = PRECISIONS[dtype], result_of(dtype)
        A, B = (precision.wide(np, each) for each in (at.A, at.B))
        if dtype == "tf32":
            A, B = (tensor_core.round_to(each, "tf32") for each in (A, B))
        kind = np.int64 if precision.exact else np.float64 if dtype == "double" else np.float32
        at.C[...] = result.narrow(np, A.astype(kind) @ B.astype(kind))

    return kernel


RIGHT = {dtype: (dtype, rounded(dtype)) for dtype in PRECISIONS} | {
    "copying": ("float", copying),
    "chain": ("float", lambda at: at.C.__setitem__(..., tensor_core.chain(at.A, at.B))),
    **{
        name: ("float", lambda at, scheme=scheme: at.C.__setitem__(..., tensor_core.product(at.A, at.B, scheme)))
        for name, scheme in tensor_core.SCHEMES.items()
        if len(scheme.products) > 1
    },
    models.RESIDUES: ("double", lambda at: at.C.__setitem__(..., residues.product(at.A, at.B, 15))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("shape", [(12, 70, 10), (1, 64, 1), (9, 700, 3), (1, 1, 1), (5, 2, 3)])
def test_a_right_kernel_is_never_called_wrong(name, shape, looked_at):
    """The products and the sizes of the study's schemes are in docs; here each meets every kind of change."""
    dtype, kernel = RIGHT[name]
    for _ in range(3):
        at = Played(kernel, shape, dtype, scheme=name if name in SCHEMES and name != dtype else "")
        found = at.timed(12, 5)
        assert found is None, found.message


def test_changes_are_of_every_kind_and_at_moments_that_differ():
    """They become rarer, and none comes within a batch."""
    moments = set()
    for _ in range(40):
        at = Played(honest)
        assert at.timed(5000, 300) is None
        runs, changes = zip(*at.changed)
        assert runs[0] in (1, 2, 3) and len(set(runs)) == len(runs) and len(runs) < 60
        assert not [run for run in runs if 5001 < run < 5300]
        assert {"A", "B", "all", ""} == {change.operands for change in changes}
        assert {"NaN", "zeros", "plausible", ""} >= {change.output for change in changes} and any(changes)
        assert any(change.moved for change in changes) and any(change.workspaces for change in changes)
        assert any(change.part and change.output and not change.operands for change in changes)
        moments.add(runs)
    assert len(moments) > 30
    short = Played(honest)
    assert short.timed(2, 0) is None and len(short.changed) >= 14, "further runs meet what these have not met"
    slow = Played(honest, run_s=1)
    assert slow.timed(2, 0) is None and 2 <= len(slow.changed) <= 4


@pytest.mark.parametrize(("run_s", "runs"), [(1e-5, 20_000), (1e-3, 1000), (0.1, 20), (1.0, 5)])
def test_the_price_is_bounded(run_s, runs):
    """A change and a check take 4 ms: at most a tenth of the time, in addition to the first few changes; long products
    are run twice more."""
    at = Played(honest, run_s=run_s, change_s=2e-3)
    assert at.timed(runs, 0) is None
    few = perturbation.FIRST_FEW + len(deck(random.Random())) * (run_s < perturbation.SHORT_S) + perturbation.FURTHER
    changes_s = 4e-3 * len(at.changed)
    assert changes_s < 0.1 * run_s * runs + 4e-3 * few
    assert at.calls <= runs + 1 + (20 if run_s < perturbation.SHORT_S else perturbation.FURTHER)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_few_rows_of_a_large_product_are_checked_with_their_own_part_of_a_given_c(n):
    """More multiply-adds than those of a product that is verified whole, and fewer rows than a check draws."""
    wanted = verify.Wanted(beta=0.5)
    arrays = Arrays(np, {"seed": 1, "verification": {"rows": 4}}, whole_gflop=0)
    arrays.prepare("float", n, 2048, 4096, wanted=wanted)
    for which in "AB" * 4:
        arrays.perturb(Change(which))
        verify.begin(arrays.C, "float", wanted)
        arrays.C[...] = arrays.A.astype(float) @ arrays.B.astype(float) + 0.5 * arrays.C
        found = arrays.check_lines()
        assert found.ok, found.message


def test_a_change_is_what_it_says():
    arrays = Arrays(np, {"seed": 1, "verification": {"rows": 4}})
    arrays.prepare("float", 30, 20, 40)
    for change in [change for _ in range(20) for change in deck(random.Random())]:
        arrays.restore()
        assert (arrays.number, arrays.place) == (0, 0)
        before = arrays.A.copy(), arrays.B.copy(), arrays.A @ arrays.B
        arrays.C[...] = before[2]
        address, space = arrays.C.ctypes.data, np.zeros(8, np.uint8)
        arrays.perturb(change, [[space]] * 2)
        in_a, in_b, in_c = (np.sum(old != new) for old, new in zip(before, (arrays.A, arrays.B, arrays.C)))
        few = range(1, perturbation.LINES + 1)
        changed = {"": in_a == in_b == 0, "A": in_a in few and in_b == 0, "B": in_a == 0 and in_b in few}
        assert changed.get(change.operands, in_a > 500 and in_b > 700), change
        assert bool(in_c) == bool(change.output) and (in_c < arrays.C.size or not change.part), change
        assert (arrays.C.ctypes.data != address) == change.moved
        assert (space == perturbation.BLANK).all() == change.workspaces
        assert all(np.array_equal(*pair) for pair in zip((arrays.A, arrays.B), arrays.sets[arrays.number]))
    assert str(Change("A", "NaN", True, True, True)) == (
        "a change of elements of A and NaN in a part of C and workspaces overwritten and arrays at other addresses"
    )


# ---- On a GPU --------------------------------------------------------------------------------------------------------


def quick(config):
    """Settings with which a point is timed briefly."""
    return config | {"timing": config["timing"] | {"min_time_s": 0.02, "timeout_s": 1}}


@pytest.fixture
def points():
    """Of small products, which have thousands of runs and batches, and of one that takes longer; a batch of 4 has as
    many elements as the kernels' arrays have at most."""
    found = points_of(["honest", *CHEATS], 20, 9, 20) + points_of(["honest", *CHEATS], 250, 20_000, 250)
    return [dataclasses.replace(at, n=125, m=125) if at.batch > 1 and at.n > 125 else at for at in found]


@pytest.mark.gpu(alone=True)
def test_a_gpu_finds_all_cheats_while_it_times_them(gpu, config, tmp_path, built_for_gpu, points):
    work = work_of(points, KERNELS, gpu, quick(config), tmp_path, built_for_gpu(points, KERNELS, gpu))
    rows, _ = measure.measure_task(work)
    status = rows.set_index(["kernel", "p"]).status
    assert set(status[["honest"]]) == {"ok"}, rows.message.tolist()
    # The kernel that writes to the first C that it met may meet it when it has been freed.
    wrong = {"incorrect", "error"}
    assert set(status[CHEATS]) <= wrong, rows[~rows.status.isin(wrong)].to_string()
    assert set(status[[name for name in CHEATS if name != "writes_to_the_first_c"]]) == {"incorrect"}
    # At the larger size some are found earlier: what they kept is of the smaller one.
    first = rows[(rows.kernel != "honest") & (rows.p == 9)]
    assert first.message.str.startswith("the timed product, ").all(), first.message.tolist()
    assert rows.time_ms[rows.kernel != "honest"].isna().all()


@pytest.mark.gpu(alone=True)
def test_a_gpu_finds_all_cheats_while_it_screens_them(gpu, config, tmp_path, built_for_gpu, points):
    """A few runs of each, one of which is verified after a change: two sizes, each five times."""
    work = work_of(points, KERNELS, gpu, quick(config), tmp_path, built_for_gpu(points, KERNELS, gpu))
    found = {name: set() for name in KERNELS}
    for _ in range(5):
        for _, row in measure.run_jobs(work.jobs(), gpu, work.config, tmp_path, "screen"):
            found[row["kernel"]].add(row["status"])
    assert found["honest"] == {"ok"}
    assert all("incorrect" in found[name] for name in CHEATS), found


@pytest.mark.gpu(alone=True)
def test_a_gpu_finds_all_cheats_while_their_energy_is_measured(gpu, config, tmp_path, built_for_gpu):
    points = points_of(["honest", *CHEATS], 20, 9, 20)
    settings = config | {"energy": {"seconds": 0.1}}
    work = work_of(points, KERNELS, gpu, settings, tmp_path, built_for_gpu(points, KERNELS, gpu))
    _, rows = METHODS["energy"].run(work)
    status = rows.set_index("kernel").status
    assert status["honest"] in ("ok", "unsupported") and not (status[CHEATS] == "ok").any(), rows.to_string()


@pytest.mark.gpu(alone=True)
def test_a_product_of_shorter_numbers_is_no_product_of_floats(gpu, config, tmp_path, built_for_gpu):
    points = points_of(SHORTER, 512, 8192, 512)
    work = work_of(points, KERNELS, gpu, quick(config), tmp_path, built_for_gpu(points, KERNELS, gpu))
    rows, _ = measure.measure_task(work)
    assert set(rows.status) == {"incorrect"}, rows[["kernel", "status", "bound_ratio"]].to_string()


@pytest.mark.gpu(alone=True)
def test_a_policy_of_the_cache_gains_nothing(gpu, config, tmp_path, built_for_gpu):
    points = points_of(["honest", CACHED], 512, 512, 512)
    work = work_of(points, KERNELS, gpu, config, tmp_path, built_for_gpu(points, KERNELS, gpu))
    times = measure.measure_task(work)[0].set_index("kernel").time_ms
    assert times[CACHED] > 0.95 * times["honest"]


TIMED = """
import json, pickle, random, sys, time
from tilewise.measure.backends import Setting
from tilewise.measure.perturbation import Perturbed, deck
from tilewise.measure.backends import cuda as backend
from tilewise.measure.backends.operands import Operands

request, changes, spent, finish = pickle.load(sys.stdin.buffer), [], [], Perturbed.finish
jobs, how = request.pop("jobs"), request.pop("how")

def counted(self, wait):
    changes.append(self.changes)
    start = time.monotonic()
    found = finish(self, wait) if how == "with" else wait()
    spent.append(self.spent_s + time.monotonic() - start)
    return found

Perturbed.finish = counted
if how == "without":
    Perturbed.between_runs = lambda self: None
warm = Operands(request["config"])  # loads what a study loads once for tens of points
for job in jobs:
    warm.prepare(job.point.dtype, *job.point.shape.values())
    for change in (change for seed in range(5) for change in deck(random.Random(seed))):
        warm.perturb(change)
        warm.check_lines()
warm.forget()
rows = []
start = time.monotonic()
backend.Backend(Setting(**request)).measure(jobs, rows.append)
seconds = time.monotonic() - start
columns = [changes, spent, [row["status"] for row in rows], [row["time_ms"] for row in rows]]
print("\\nANSWER", json.dumps([seconds, *columns]))
"""


@pytest.mark.gpu(alone=True)
def test_the_price_of_perturbations_on_a_gpu(gpu, config, kernels, tmp_path, built_for_gpu, record_property):
    """What perturbations and their checks take of a worker's time, and how far they change the times: a worker without
    them measures the same points. How long a worker takes says nothing, because the number of NVBench's runs varies."""
    points = [point("t", "cublas", "float", n, n, n) for n in (64, 256, 1024, 2048, 4096, 8192)]
    points += [point("t", "naive", "float", n, n, n, block_x=32, block_y=8) for n in (1024, 4096)]
    points += [point("t", "cublas_bf16", "bfloat16", n, n, n) for n in (1024, 8192)]
    jobs = work_of(points, kernels, gpu, config, tmp_path, built_for_gpu(points, kernels, gpu)).jobs()
    prices, times = {}, {}
    for how in ("with", "without"):
        samples = tmp_path / how
        samples.mkdir()
        asked = {"jobs": jobs, "how": how, "device": gpu, "config": config, "samples": samples}
        log = samples / "worker.log"  # a file, in which the backend looks for NVBench's words
        with log.open("w") as file:
            done = subprocess.run([sys.executable, "-c", TIMED], input=pickle.dumps(asked), stdout=file, stderr=file)
        assert done.returncode == 0, log.read_text()
        answer = next(line for line in log.read_text().splitlines() if line.startswith("ANSWER"))
        seconds, changes, spent, status, times[how] = json.loads(answer.partition(" ")[2])
        assert set(status) == {"ok"}
        assert [count > 0 for count in changes] == [how == "with"] * len(points), "they come between NVBench's runs"
        prices[how] = sum(spent) / (seconds - sum(spent))
    slower = np.array(times["with"]) / np.array(times["without"]) - 1
    price = prices["with"] - prices["without"]
    record_property("note", f"price of perturbations: {price:.1%}; times differ by {np.round(100 * slower, 1)} %")
    assert 0 < price < 0.1, spent


HOSTS = ("a second stream", "a later launch", "a cache on the host")


@pytest.mark.gpu(alone=True)
@pytest.mark.parametrize("how", HOSTS)
def test_what_the_host_does_instead_is_found(gpu, config, tmp_path, built_for_gpu, monkeypatch, how):
    """A kernel of the registry cannot do it, what launches it could: make the product in a stream that is not timed,
    at the next launch, or copy it from a cache."""
    import cupy

    from tilewise.measure.backends import operands

    points = [point("t", "honest", "float", 250, 20_000, 250)]
    [job] = work_of(points, KERNELS, gpu, config, tmp_path, built_for_gpu(points, KERNELS, gpu)).jobs()
    second, bound = cupy.cuda.Stream(non_blocking=True), operands.bound

    def instead(job, A, B, C, arena=None):
        launch, facts, spaces = bound(job, A, B, C, arena)
        kept = []

        def elsewhere(stream):
            if how == "a second stream":
                launch(second.ptr)
            elif kept and how == "a later launch":
                kept.pop()  # every second time
            elif kept:
                with cupy.cuda.ExternalStream(stream):
                    cupy.copyto(C, kept[0])
            else:
                launch(stream)
                with cupy.cuda.ExternalStream(stream):
                    kept.append(C.copy())

        return elsewhere, facts, spaces

    arrays = operands.Operands(config)
    assert operands.verified(job, arrays)[1]["status"] == "ok"
    monkeypatch.setattr(operands, "bound", instead)
    launch, _, right, spaces = operands.verified(dataclasses.replace(job), arrays)
    if right:
        run = operands.perturbed(job, launch, arrays, spaces)
        found = operands.final_check(run, arrays)
        right = found.ok
    second.synchronize()
    assert not right
