"""Statuses, kinds and verdicts are enumerations, and what lists their words beside them has the same ones."""

import re

import pandas as pd

from kernelscope.fault_kinds import FaultKind
from kernelscope.yaml_input import read_yaml
from tilewise import RECORDED
from tilewise.study import columns
from tilewise.study.kernel import Kind
from tilewise.study.schema import SCHEMAS
from tilewise.study.status import LASTING, NOT_BUILT, RIGHT, Accuracy, Status

#: Columns, and whose words they hold.
COLUMNS = {"status": Status, "verdict": Accuracy}


def test_the_columns_of_statuses_and_verdicts_say_all_words_and_no_others():
    assert re.findall(r"\w+_?\w*", columns.COLUMNS["status"].meaning.replace(" or ", " ")) == list(Status)
    assert [word for word in Accuracy if re.search(rf"\b{word}\b", columns.COLUMNS["verdict"].meaning)] == list(
        Accuracy
    )


def test_the_kinds_of_kernels_are_those_of_the_schema():
    entry = read_yaml(SCHEMAS / "registry.schema.yaml")["additionalProperties"]["properties"]["kind"]
    assert entry["enum"] == list(Kind) and entry["description"] == f"{', '.join([*Kind][:-1])} or {[*Kind][-1]}"


def test_every_kind_of_fault_has_a_column_but_those_that_are_remarks():
    assert {kind.column for kind in FaultKind} == {*columns.FAULTS, "unused_reads", ""}
    remarks = {kind for kind in FaultKind if kind.is_remark}
    named = {FaultKind.UNUSED, FaultKind.ENDED, FaultKind.UNORDERED, FaultKind.UNFENCED_REUSE, FaultKind.SAME_VALUE}
    named |= {FaultKind.CONVERTED}
    assert remarks == named
    assert {kind for kind in FaultKind if kind.column not in columns.FAULTS} == remarks


def test_what_is_right_or_lasts_are_statuses():
    assert {*NOT_BUILT, *LASTING, *RIGHT} == {*Status} - {Status.OUT_OF_MEMORY, Status.TIMEOUT, Status.ERROR}


def test_recorded_runs_have_these_words_and_no_others():
    held = 0
    for path in RECORDED.glob("*/**/*.csv"):
        table = pd.read_csv(path, low_memory=False)
        for name in COLUMNS.keys() & set(table):
            assert set(table[name].dropna()) <= set(COLUMNS[name]), path
            held += 1
    assert held > 4
