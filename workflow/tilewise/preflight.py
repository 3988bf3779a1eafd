"""What a run looks at before it starts, so that it does not fail after an hour when it draws the page."""

from collections.abc import Mapping

from tilewise import UserError
from tilewise.build import cpp
from tilewise.files import remedy
from tilewise.report import claims, data, tables
from tilewise.study.kernel import Kernel


def check(kernels: Mapping[str, Kernel], remote: bool) -> None:
    """Raise UserError if no page can be made of the claims, the published and the recorded data, or if this machine has
    no compiler that can do; the jobs of a cluster are `remote` and compile elsewhere."""
    if not remote:
        cpp.check()
    entries, published = claims.load(), data.published(kernels=kernels)
    if not any(data.RECORDED.glob("*/device.json")):
        return
    evidence = data.load([], kernels=kernels)  # the recorded runs
    claims.check(entries, evidence)
    try:
        tables.maximum_size(evidence, published)
        tables.cold_start(evidence, published)
    except (LookupError, ValueError) as error:
        raise UserError(f"report/published: a figure is missing: {error}; {remedy(data.PUBLISHED)}") from None
