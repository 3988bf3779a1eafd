"""The microscope and compute-sanitizer: the recorded table and the comparison made from it.

test_constructs.py and test_people.py check, where each kernel is traced, that the microscope agrees with the table.
"""

import sanitizer
import test_constructs
import test_people


def test_every_kernel_has_a_verdict_of_the_microscope():
    traced = {(file.name, name) for name, file in test_constructs.NAMES.items()}
    traced |= {(test_people.FILE.name, name) for name in test_people.BEGINS}
    assert {key for key, tools in sanitizer.by_kernel().items() if "microscope" in tools} == traced


def test_the_microscope_finds_every_mistake_and_no_other():
    for (file, kernel), tools in sanitizer.by_kernel().items():
        assert (tools["microscope"]["verdict"] == sanitizer.CLEAN) == kernel.startswith("clean"), (file, kernel)


def test_every_difference_has_a_reason():
    differ = {
        kernel
        for (_, kernel), tools in sanitizer.by_kernel().items()
        if set(sanitizer.TOOLS) <= set(tools) and kernel.startswith("clean") == sanitizer.is_accused(tools)
    }
    explained = [name for names in sanitizer.WHY.values() for name in names.split()]
    assert sorted(explained) == sorted(differ)


def test_the_comparison_has_a_line_for_each_kernel():
    text = sanitizer.page()
    assert all(text.count(f": `{kernel}` |") == 1 for _, kernel in sanitizer.by_kernel())
