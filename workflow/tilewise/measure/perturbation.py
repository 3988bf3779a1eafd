"""Perturb inputs and outputs between timed runs, so that a kernel cannot reuse earlier results.

A kernel that keeps C, skips what it did before, or relies on what its last run left in a workspace is right when it is
verified and fast when it is timed. So between timed runs, at random moments, something changes: a few elements of A or
B, with C left as it was, or all of them, or C, the workspaces, the addresses. The next product is then verified, on
rows and columns that are chosen after the run. The same code for NumPy arrays and, on a GPU, for CuPy's.
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewise.study import verify
from tilewise.study.precision import PRECISIONS, bytes_of_product, result_of

#: What an array that holds no result yet is filled with: NaN in every floating-point type.
BLANK = 0xFF
#: How many rows and how many columns of a product are verified, those of the change included; and how many elements
#: change at once at most.
LINES = 3
#: Elements of an operand that a check of lines takes at a time: a few pieces are checked sooner than many.
PIECE = 1 << 24
#: Changes of a few elements of A, and as many of B, before other changes come again: a kernel that compares a share f
#: of its operands with those of its last run is not found with a probability of at most f to this power, squared.
FEW_CHANGED = 4
#: Products of up to so many multiply-adds are verified whole, of a batch of up to so many.
SMALL, SMALL_BATCH = 1 << 22, 8
#: Perturbations and their checks take at most this part of the time of a timing; the first few come in any case.
PRICE, FIRST_FEW = 0.06, 4
#: Operands are multiples of 1 / GRID, as random floats are: more digits would not fit into a scheme's two halves.
GRID = 2**23
#: Further runs after the timing: these in any case, and one of each kind of change if a run is shorter than this.
FURTHER, SHORT_S = 2, 0.01


@dataclass(frozen=True)
class Change:
    """What changes before a run. operands: "" (nothing), "A" or "B" (a few elements), "all"; output: what C is
    overwritten with, "" (nothing), "NaN", "zeros" or "plausible" numbers, whole or in `part`; whether the workspaces
    are overwritten; whether the arrays are `moved` to other addresses."""

    operands: str = ""
    output: str = ""
    part: bool = False
    workspaces: bool = False
    moved: bool = False

    def __str__(self) -> str:
        """In words, after "after"."""
        words = [f"a change of {'all operands' if self.operands == 'all' else f'elements of {self.operands}'}"]
        words = words if self.operands else []
        words += [f"{self.output} in {'a part of ' * self.part}C"] if self.output else []
        words += ["workspaces overwritten"] * self.workspaces + ["arrays at other addresses"] * self.moved
        return " and ".join(words) or "no change"


def deck(chance: random.Random) -> list[Change]:
    """A change of every kind in random order, and a combination."""

    def part() -> bool:
        return chance.random() < 0.5

    def output() -> str:
        return chance.choice(["NaN", "zeros", "plausible"])

    def maybe(word: str) -> str:
        return word if part() else ""

    found = [
        *[Change("A"), Change("B")] * FEW_CHANGED,
        Change("all"),
        Change(output=output(), part=True),
        Change(output=output()),
        Change(maybe("all"), maybe(output()), part(), workspaces=True),
        # A moved C that is right already would reveal nothing, so something else changes, too.
        chance.choice([Change("all", moved=True), Change(output=output(), part=part(), moved=True)]),
        Change(chance.choice(["A", "B", "all"]), maybe(output()), part(), part(), part()),
    ]
    chance.shuffle(found)
    return found


# ---- The arrays ------------------------------------------------------------------------------------------------------


class Arrays:
    """A, B, C and what C should be, for the shape and dtype at hand; jobs that share them come in a row.

    There are two sets of values for A and B, which no kernel sees; `use` writes one of them into the arrays. `places`
    are the arrays at one or two addresses; `seen` is a copy of C. Products of up to `whole_gflop` are verified whole.
    `room(size)` says whether another `size` bytes of memory may be used, `free()` frees what the arrays before held.
    """

    def __init__(
        self,
        xp: Any,
        config: Any,
        whole_gflop: float = math.inf,
        room: Callable[[int], bool] = lambda size: True,
        free: Callable[[], None] = lambda: None,
    ):
        self.xp, self.whole_gflop, self.room, self.free = xp, whole_gflop, room, free
        self.seed, self.rows = config["seed"], config["verification"]["rows"]
        self.chance = random.SystemRandom()  # a seed could be foreseen
        self.forget()

    def forget(self) -> None:
        """Drop all arrays."""
        self.shape: tuple[str, int, int, int, int] = ("", 0, 0, 0, 0)  # dtype, n, p, m, batch
        self.lying: Sequence[verify.Lying] = ()
        self.A: Any = None
        self.B: Any = None
        self.C: Any = None
        self.seen: Any = None
        self.places: list[tuple[Any, Any, Any]] = []
        self.sets: list[tuple[Any, Any]] = []
        self.reference: tuple[Any, Any] | None = None
        self._replaced: list[tuple[Any, tuple[int, int], Any]] = []
        self._concerned: tuple[list[int], list[int], int] = [], [], 0
        self._overwritten: tuple[range, range] | None = None

    def prepare(
        self,
        dtype: str,
        n: int,
        p: int,
        m: int,
        batch: int = 1,
        *,
        lying: Sequence[verify.Lying] = (verify.ROWS,) * 3,
        wanted: verify.Wanted = verify.PLAIN,
    ) -> None:
        """Make the operands of a shape, unless they are there; A and B have the first set. Those of a batch lie one
        below the other. `lying` is how A, B and C lie in memory, `wanted` what the kernel at hand is to compute."""
        xp, self.wanted = self.xp, wanted
        if (self.shape, self.lying) != ((dtype, n, p, m, batch), lying):
            self.forget()
            self.free()
            self.sets = [tuple(verify.operands(xp, dtype, n, p, m, self.seed + k, batch)) for k in range(2)]
            self.seen = xp.empty((batch * n, m), result_of(dtype).stored)
            size = batch * bytes_of_product(dtype, n, p, m)
            if batch > 1 or 2 * n * p * m <= self.whole_gflop * 1e9:
                self.reference = verify.reference(*self.sets[0], dtype, batch)
            for _ in range(1 + self.room(size)):
                A, B = (xp.empty_like(matrix) for matrix in self.sets[0])
                each = zip((A, B, xp.empty_like(self.seen)), lying)
                self.places.append(tuple(verify.laid(*matrix) for matrix in each))
            self.shape, self.lying = (dtype, n, p, m, batch), lying
        self.restore()

    def restore(self) -> None:
        """Give A and B the first set as it was made, at the first addresses."""
        while self._replaced:
            matrix, at, value = self._replaced.pop()
            matrix[at] = value
        self.place = 0
        self.A, self.B, self.C = self.places[0]
        self.use(0)

    def use(self, number: int) -> None:
        """Write a set of values into A and B."""
        self.number = number
        for matrix, values in zip((self.A, self.B), self.sets[number]):
            self.xp.copyto(matrix, values)

    def see(self) -> None:
        """Copy C as it is now."""
        self.xp.copyto(self.seen, self.C)

    def check(self) -> verify.Check:
        """Verify C as it is now; A and B are as `restore` made them."""
        return self._check(self.C)

    def check_seen(self) -> verify.Check:
        """Verify the copy of C."""
        return self._check(self.seen)

    def _check(self, C: Any) -> verify.Check:
        assert not (self.number or self._replaced)
        dtype, _, p, _, _ = self.shape
        if self.reference:
            return verify.check(C, *self.reference, dtype, p, self.wanted)
        seed = self.chance.getrandbits(64)
        return verify.check_rows(*self.sets[0], C, dtype, self.rows, seed, self.wanted)

    # ---- Perturbed ----

    def perturb(self, change: Change, spaces: Sequence[Sequence[Any]] = (), finite: bool = False) -> None:
        """Make a change. `spaces` are the workspaces of each place; a kernel that multiplies C by 0 takes only `finite`
        numbers there."""
        self._concerned, self._overwritten = ([], [], self.chance.randrange(self.shape[-1])), None
        if change.moved and len(self.places) > 1:
            before = self.C
            self.place = 1 - self.place
            self.A, self.B, self.C = self.places[self.place]
            self.xp.copyto(self.C, before)
            self.use(self.number)
        if change.operands == "all":
            self.use(1 - self.number)
        elif change.operands:
            for _ in range(self.chance.randint(1, LINES)):
                self._replace("AB".index(change.operands))
        if change.output:
            self._overwrite(change.output, change.part, finite)
        if change.workspaces and spaces:
            for space in spaces[self.place]:
                space.fill(BLANK)

    def _replace(self, which: int) -> None:
        """Change an element of A (0) or B (1), by more than storing C hides, but by little more: a much larger
        one would make the errors of its row larger, too."""
        dtype, n, p, m, _ = self.shape
        rows, columns, matrix = self._concerned  # all in one matrix of a batch
        precision, sets, arrays = PRECISIONS[dtype], self.sets[self.number], (self.A, self.B)
        height, width = ((n, p), (p, m))[which]
        hidden = precision.result_roundoff * p**0.5  # by storing the result; the usual error hides no element
        row, column = self.chance.randrange(height), self.chance.randrange(width)
        at = matrix * height + row, column
        old = sets[which][at].item()
        if precision.exact:
            count = precision.largest - precision.least + 1
            new = precision.least + (old - precision.least + self.chance.randint(1, count - 1)) % count
        else:
            number = float(precision.wide(np, np.asarray([old], precision.stored))[0])
            size = round(max(1, 8 * hidden) * self.chance.uniform(0.5, 1) * GRID) / GRID
            new = precision.narrow(np, np.asarray([-size if number > 0 else size], np.float32))[0].item()
        self._replaced.append((sets[which], at, old))
        sets[which][at] = arrays[which][at] = new
        (rows if which == 0 else columns).append(row if which == 0 else column)

    def _overwrite(self, output: str, part: bool, finite: bool) -> None:
        """Overwrite C, or a rectangle of it."""
        (rows, top), (columns, left) = (self._range(side) if part else (side, 0) for side in self.C.shape)
        target = self.C[top : top + rows, left : left + columns]
        self._overwritten = range(top, top + rows), range(left, left + columns)
        if output == "NaN":
            verify.poison(target, self.shape[0], finite)
        elif output == "zeros":
            target.fill(0)
        else:  # C's own numbers, at other places
            self.see()
            start = self.chance.randrange(len(self.seen))
            first = min(rows, len(self.seen) - start)
            target[:first] = self.seen[start : start + first, ::-1][:, :columns]
            target[first:] = self.seen[: rows - first, ::-1][:, :columns]

    def _range(self, side: int) -> tuple[int, int]:
        """The length and the begin of a part of a side, not of all if that has a half."""
        length = self.chance.randint(1, max(1, side // 2))
        return length, self.chance.randrange(side - length + 1)

    def check_lines(self) -> verify.Check:
        """Verify rows and columns of C: one that the last change concerns and some at random, chosen now; all of a
        small product."""
        _, n, p, m, batch = self.shape
        if batch <= SMALL_BATCH and n * p * m <= SMALL:
            checks = (self._lines(matrix, range(n), ()) for matrix in range(batch))
            return next((found for found in checks if not found.ok), verify.Check(True, 0, 0, "all rows checked"))
        rows, columns, matrix = self._concerned
        if self._overwritten and not (rows or columns):
            row, column = (self.chance.choice(lines) for lines in self._overwritten)
            rows, columns, matrix = [row % n], [column], row // n
        return self._lines(matrix, self._filled(rows, n), self._filled(columns, m))

    def _filled(self, lines: Sequence[int], side: int) -> list[int]:
        """The given lines, and random ones up to LINES: one shape, for which a GPU loads its code once."""
        return [*lines, *(self.chance.randrange(side) for _ in range(LINES - len(lines)))]

    def _lines(self, matrix: int, rows: Sequence[int], columns: Sequence[int]) -> verify.Check:
        """The check of rows and columns of a matrix of the batch, against float64."""
        dtype, n, p, _, _ = self.shape
        A, B = (values[matrix * side :][:side] for values, side in zip(self.sets[self.number], (n, p)))
        C = self.C[matrix * n :][:n]
        for name, lines, thin, large, out in (
            ("rows", rows, A, B, C),
            ("columns", columns, B.T, A.T, C.T),
        ):
            # All columns cross the rows, which are all of a small product, and those of a C that is given.
            if not lines or (name == "columns" and not self.wanted.plain):
                continue
            if lines != range(len(thin)):
                thin, out = (self.xp.stack([all_lines[line] for line in lines]) for all_lines in (thin, out))
            product, magnitude = verify.product_of_lines(thin, large, dtype, PIECE)
            computed = verify.fetched(out)
            numbers = [matrix * n + line for line in lines]
            found = verify.check(computed, product, magnitude, dtype, p, self.wanted, np.asarray(numbers))
            if not found.ok:
                which = f"{name} {', '.join(map(str, lines))}: " if len(lines) == LINES else ""
                return replace(found, message=which + found.message)
        return verify.Check(True, 0, 0, "random rows and columns checked")


# ---- The runs --------------------------------------------------------------------------------------------------------


class Perturbed:
    """A product that is timed, with perturbations between its runs.

    `launch(stream)` makes a product. `between_runs()` is called before each timed run, when the run before has ended.
    `perturb(change)` makes a change, `verified()` checks the product; both return when they are done. `clock()` is in
    seconds. After the first product that is wrong nothing more changes.
    """

    def __init__(
        self,
        launch: Callable[[int], None],
        perturb: Callable[[Change], None],
        verified: Callable[[], verify.Check],
        clock: Callable[[], float] = time.monotonic,
    ):
        self.launch, self.perturb, self.verified = launch, perturb, verified
        self.clock, self.chance = clock, random.SystemRandom()
        self.begin, self.spent_s, self.changes = clock(), 0.0, 0
        self._wrong: verify.Check | None = None
        self._deck, self._new = deck(self.chance), True  # whether these kinds of change are the first
        self._runs, self._next = 0, self.chance.randint(1, 2)  # run 0 is no timed one
        self._last: Change | None = None  # the change whose product is not verified yet

    def between_runs(self) -> None:
        """Verify the product after the last change, and make the next change if it is due."""
        due = self._runs >= self._next
        if self._wrong is None and (self._last or due):
            start = self.clock()
            if self._last:
                self._verify(f"after {self._last}")
            affordable = self.changes < FIRST_FEW or self.spent_s < PRICE * (start - self.begin)
            if due and affordable and self._wrong is None:
                self._change()
            self.spent_s += self.clock() - start
        if due:
            self._next = self._runs + self.chance.randint(1, 1 + self._runs // 2)
        self._runs += 1

    def _change(self) -> None:
        if not self._deck:
            self._deck, self._new = deck(self.chance), False
        self._last = self._deck.pop()
        self.perturb(self._last)
        self.changes += 1

    def _verify(self, when: str) -> None:
        found, self._last = self.verified(), None
        if not found.ok:
            self._wrong = replace(found, message=f"{when}: {found.message}")

    def settle(self) -> verify.Check | None:
        """Verify the product of the last run; the first product that was wrong, or None. After this, and until the
        next run, others may use the arrays."""
        if self._wrong is None:
            self._verify(f"after {self._last}" if self._last else "the last one")
        return self._wrong

    def finish(self, wait: Callable[[], Any]) -> verify.Check | None:
        """The first product that was wrong, of those that were timed and of further runs, one for each kind of change
        that did not come yet; None if all were right. `wait` returns when what was launched is done."""
        wait()
        self.settle()
        kinds = self._deck if self._new else []
        self._deck, self._new = [*deck(self.chance)[: max(0, FURTHER - len(kinds))], *kinds], True
        runs, short = 0, True
        while self._wrong is None and self._deck and (runs < FURTHER or short):
            self._change()
            start = self.clock()
            self.launch(0)
            wait()
            short, runs = self.clock() - start < SHORT_S, runs + 1
            self._verify(f"after {self._last}")
        return self._wrong
