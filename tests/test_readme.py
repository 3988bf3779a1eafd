"""The README's example of a user's own kernel works: added as the README says, it is right and has no faults."""

import re

import yaml
from builders import trace

from tilewise import ROOT
from tilewise.study import registry

README = (ROOT / "README.md").read_text()


def block(language, holding):
    """The README's code block in a language that contains a text."""
    return next(text for text in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if holding in text)


def test_the_example_kernel_works_as_the_readme_says(tmp_path):
    (tmp_path / "two_rows.cu").write_text(block("cuda", "two_rows"))
    (tmp_path / "registry.yaml").write_text(block("yaml", "two elements per thread"))
    kernel = registry.load(tmp_path)["two_rows"]
    sweep = yaml.safe_load(block("yaml", "kernel: two_rows"))[0]
    assert sweep["kernel"] == kernel.name and sweep["dtype"] in kernel.dtypes
    x, y = (int(size) for size in sweep["block"].split("x"))
    for dtype in kernel.dtypes:
        row, faults = trace(kernel, dtype, (33, 35, 70), block_x=x, block_y=y)
        assert not faults, faults[0]
        assert row["races"] == row["out_of_bounds"] == 0
