"""Statuses, kinds and verdicts are enumerations, and what lists their words beside them has the same ones."""

import ast
import re

import pytest

from tilewise import ROOT
from tilewise.report.claims import Verdict
from tilewise.study import columns
from tilewise.study.kernel import Kind
from tilewise.study.schema import SCHEMAS, read_yaml
from tilewise.study.status import LASTING, NOT_BUILT, RIGHT, Accuracy, FaultKind, Origin, Status

#: Columns, and whose words they hold.
COLUMNS = {"status": Status, "cpu_status": Status, "origin": Origin, "verdict": Accuracy}


def test_the_columns_of_statuses_and_verdicts_say_all_words_and_no_others():
    assert re.findall(r"\w+_?\w*", columns.COLUMNS["status"].meaning.replace(" or ", " ")) == list(Status)
    assert [word for word in Accuracy if re.search(rf"\b{word}\b", columns.COLUMNS["verdict"].meaning)] == list(
        Accuracy
    )
    assert all(re.search(rf"\b{word}\b", columns.COLUMNS["origin"].meaning) for word in Origin)
    readme = (ROOT / "README.md").read_text()
    said = re.search(r"in `status` and `message`: ([^.]*)\.", readme)[1]
    assert set(re.findall(r"`(\w+)`", said)) == {*Status} - {Status.OK, Status.NOT_TIMED}


def test_the_kinds_of_kernels_are_those_of_the_schema():
    entry = read_yaml(SCHEMAS / "registry.schema.yaml")["additionalProperties"]["properties"]["kind"]
    assert entry["enum"] == list(Kind) and entry["description"] == f"{', '.join([*Kind][:-1])} or {[*Kind][-1]}"


def test_every_kind_of_fault_has_a_column_but_those_that_are_remarks():
    assert {kind.column for kind in FaultKind} == {*columns.FAULTS, "unused_reads", ""}
    remarks = {kind for kind in FaultKind if kind.is_remark}
    named = {FaultKind.UNUSED, FaultKind.ENDED, FaultKind.UNORDERED, FaultKind.UNFENCED_REUSE, FaultKind.SAME_VALUE}
    assert remarks == named
    assert {kind for kind in FaultKind if kind.column not in columns.FAULTS} == remarks


def test_what_is_right_or_lasts_are_statuses():
    assert {*NOT_BUILT, *LASTING, *RIGHT} == {*Status} - {Status.OUT_OF_MEMORY, Status.TIMEOUT, Status.ERROR}


@pytest.mark.parametrize("path", sorted((ROOT / "workflow").rglob("*.py")), ids=lambda path: path.stem)
def test_no_other_file_writes_these_words_into_a_row_or_compares_a_column_with_them(path):
    """Nothing says `{"status": "ok"}`, `row["status"] == "ok"` or `status = "ok"`, which nothing checks."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        pairs = []
        if isinstance(node, ast.Dict):
            pairs = [(key.value, value) for key, value in zip(node.keys, node.values) if isinstance(key, ast.Constant)]
        elif isinstance(node, ast.Compare):
            pairs = [(_named(node.left), other) for other in node.comparators]
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            pairs = [(_named(target), node.value) for target in targets]
        for name, value in pairs:
            wrong = [each for each in ast.walk(value) if isinstance(each, ast.Constant) and each.value in _words(name)]
            assert not wrong, f"{path}:{node.lineno}: {name} is '{wrong[0].value}'; write it as an enumeration"


def _named(node):
    """The column or variable that an expression is about."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return node.slice.value
    return getattr(node, "id", getattr(node, "attr", ""))


def _words(name):
    return set(COLUMNS.get(name, {"of_claim": Verdict, "verdict": [*Accuracy, *Verdict]}.get(name, ())))
