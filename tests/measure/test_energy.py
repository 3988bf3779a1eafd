"""Energy per product: what is counted, from a GPU that is played by a clock and a counter."""

import pytest
from builders import work_of

from tilewise import UserError
from tilewise.measure.methods import METHODS
from tilewise.measure.methods.energy import WARM_UP_S, columns_of, repeat_launches
from tilewise.study.points import point
from tilewise.study.sweeps import Target, expand


class Board:
    """Takes `each` seconds for a product, 700 W at work and 100 W else; its counter moves ten times per second."""

    def __init__(self, each):
        self.each, self.now, self.queued, self.done, self.mj = each, 0.0, 0, 0, [(0.0, 5e6)]

    def launch(self):
        self.queued += 1

    def wait(self):
        self.now += self.each * self.queued
        self.mj.append((self.now, self.mj[-1][1] + 700e3 * self.each * self.queued))
        self.done, self.queued = self.done + self.queued, 0

    def counter(self):
        before = max(mj for now, mj in self.mj if now <= int(self.now * 10) / 10)
        return int(before)

    def clock(self):
        return self.now


@pytest.mark.parametrize("each", [1e-5, 0.001, 0.25, 4])
def test_the_counter_is_read_around_seconds_of_the_same_product(each):
    board = Board(each)
    products, seconds, joules = repeat_launches(board.launch, board.wait, board.counter, 2, board.clock)
    assert seconds >= 2 and products * each == pytest.approx(seconds)
    assert board.done > products and board.done * each >= WARM_UP_S + 2, "it has run before the counter is read"
    assert joules == pytest.approx(700 * seconds, rel=0.1), "the counter moves in steps"


def test_the_columns_follow():
    at = point("t", "cublas", "float", 1000, 1000, 500)
    found = columns_of(at, products=10, seconds=2.0, joules=1000.0)
    assert found == {
        "counted_products": 10, "energy_s": 2.0, "joules": 1000.0, "joules_per_product": 100.0, "watts": 500.0,
        "gflops": 5.0, "gflop_per_joule": 0.01,
    }  # fmt: skip
    assert columns_of(at, 1, 2.0, 0.0)["gflop_per_joule"] is None, "a counter that does not move"


def test_without_a_gpu_the_rows_say_so(kernels, device, config, tmp_path):
    method = METHODS["energy"]
    points = expand(config, kernels, "energy", Target("emulator"), method.reading)
    method.check(points, kernels, "tasks.energy")
    points = [at for at in points if at.kernel in ("naive", "clusters")]
    measurements, rows = method.run(work_of(points, kernels, device, config, tmp_path))
    assert measurements.empty and len(rows) == 3 and (rows.n == 8192).all()
    assert set(rows.status) == {"not_timed"} and rows.message.str.contains("emulated").all() and rows.watts.isna().all()
    with pytest.raises(UserError, match=r"tasks.energy: kij runs on the CPU"):
        method.check([point("energy", "kij", "float", 8, 8, 8)], kernels, "tasks.energy")
