"""What a kernel meets while it is timed: spoiled arrays and other operands, between runs that it cannot foresee.

A kernel that keeps C, skips what it did before, or relies on what its last run left in a workspace is right when it is
verified and fast when it is timed. So now and then, between two timed runs, C is spoiled and the operands change, while
the workspaces still hold what was made of the old ones. After one more run C and the workspaces are spoiled: a kernel
that skips the work because it knows the operands is found then. One of the products before is kept for a check. What
this does not find is a kernel that compares all of its operands with those of its last run.
"""

import random
from collections.abc import Callable

#: The first surprise comes after one of the first so many timed runs: NVBench makes more.
EARLY = 3


class Surprises:
    """A launch with surprises; it is called as the launch is, with a stream.

    `mark(stream)` notes what was launched so far, `ended()` says whether that has ended. In a batch it has not, and
    then nothing happens: the runs before would meet the surprise, too. `look()` keeps the product of the last run,
    `spoil(changed)` spoils C; it also changes the operands if `changed`, and otherwise spoils the workspaces. Both may
    not return before they are done, and may not use the stream that is timed.
    """

    def __init__(
        self,
        launch: Callable[[int], None],
        mark: Callable[[int], None],
        ended: Callable[[], bool],
        look: Callable[[], None],
        spoil: Callable[[bool], None],
    ):
        self.launch, self.mark, self.ended, self.look, self.spoil = launch, mark, ended, look, spoil
        self._random = random.SystemRandom()  # a seed could be foreseen
        self._calls = self._count = 0
        self._next = self._random.randint(1, EARLY)  # the run, run 0 is no timed one, that a surprise follows

    def __call__(self, stream: int) -> None:
        if self._calls == self._next + 1:
            changed = self._count % 2 == 0
            come = self.ended()
            if come:
                self._count += 1
                if self._random.random() * self._count < 1:  # each product may be the one that is kept
                    self.look()
                self.spoil(changed)
            self._next = self._calls if come and changed else 2 * self._calls + self._random.randrange(self._calls)
        self.launch(stream)
        if self._calls == self._next:
            self.mark(stream)
        self._calls += 1
