"""Checks before a run starts, so that it does not fail after an hour when it draws the page."""

from collections.abc import Collection, Mapping

from tilewise import RECORDED
from tilewise.compile import cpp
from tilewise.evidence import load_evidence, published
from tilewise.report import claims, headings, sections, specs
from tilewise.study.kernel import Kernel


def check(kernels: Mapping[str, Kernel], remote: bool, tasks: Collection[str] = ()) -> None:
    """Raise UserError if the page cannot be made from its sources, or if there is no suitable compiler.

    The jobs of a cluster are `remote`: they compile elsewhere. `tasks` are those of this run.
    """
    if not remote:
        cpp.check()
    headings.load()
    specs.check()
    entries = claims.load()
    published(kernels=kernels)
    if not any(RECORDED.glob("*/device.json")):
        return
    evidence = load_evidence([], kernels=kernels)  # the recorded runs
    claims.check(entries, evidence)
    # A study may have fewer tasks than the page describes; the recorded runs had all.
    sections.check(kernels, {*tasks, *evidence.tasks})
