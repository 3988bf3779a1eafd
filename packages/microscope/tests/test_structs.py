"""Structs with pointers as arguments, and arrays of structs, given field by field."""

import re
from pathlib import Path

import numpy as np
import pytest

from kernelscope import Call, build, trace
from kernelscope.cli import main
from kernelscope.errors import UserError

FILE = Path(__file__).with_name("structs.cu")
LINES = FILE.read_text().splitlines()
ROW = np.arange(32, dtype=np.float32)
VIEW = {
    "rows": 4,
    "columns": 8,
    "data": "float[32]",
    "row[0]": ROW,
    "row[1]": "const float[32]:ramp",
    "scale": {"by": 2.5, "count": "short[1]"},
}
NODES = {
    "nodes": "list::Node[3]:zero",
    "nodes[0].next": 2,
    "nodes[2].next": -1,
    "nodes[0].value": 1.5,
    "nodes[2].more.y": 4,
    "nodes[0].parent": "const list::Node[1]:ramp",
    "nodes[2].parent": "list::Node[2]:zero",
    "out": "float[32]",
}
VIEWS = {
    "n": 2,
    "all": "View<int>[2]",
    "all[0].rows": 8,
    "all[0].data": "int[8]",
    "all[1].rows": 5,
    "all[1].data": "int[5]",
}
CLEAN = {  # arguments, and what is expected
    "scaled<float>": ({"view": VIEW}, {"view.data": 3.5 * ROW, "view.scale.count": np.int16([8])}),
    "hidden": ({"h.p": "int[32]"}, {"h.p": np.full(32, 42, np.int32)}),
    "views": (VIEWS, {"all[0].data": np.zeros(8, np.int32), "all[1].data": np.ones(5, np.int32)}),
    "sums": (NODES, {"out": np.full(32, 5.5, np.float32)}),
}
FAULTY = {  # arguments, and words of the message
    "scaled_out_of_bounds<float>": (
        {"view": VIEW | {"data": "float[30]"}},
        "thread (30, 0) of block (0, 0) writes element 30 of view.data, which has 30",
    ),
    "hidden_race": ({"h.p": "int[16]"}, "writes h.p[0] of global memory, which thread (0, 0) writes at line"),
    "null": ({"view.rows": 1}, "thread (0, 0) of block (0, 0) writes address 0x0, which is no part of any array"),
}


VARIABLES = {
    "filter": {"n": 30, "in": "float[30]:ramp", "weight[1]": 0.5},
    "buffer": "float[30]",
    "nodes_of_the_file": "list::Node[2]:zero",
    "nodes_of_the_file[1].more.y": 3,
}


@pytest.fixture(scope="module")
def library():
    return build(FILE, *CLEAN, *FAULTY, "by_variables", "by_variables_out_of_bounds")


@pytest.mark.parametrize("name", CLEAN)
def test_clean(name, library):
    arguments, expect = CLEAN[name]
    report = trace(library, Call(name, 1, 32), arguments, expect=expect, tolerance=1e-6)
    assert report.ok and not report.faults, str(report)
    for array, right in expect.items():
        assert np.array_equal(report.arrays[array], right)


@pytest.mark.parametrize("name", FAULTY)
def test_faulty(name, library):
    arguments, words = FAULTY[name]
    report = trace(library, Call(name, 1, 32), arguments)
    wanted = next(i for i, line in enumerate(LINES, 1) if f" {name.split('<')[0]}(" in line)
    wanted = next(i for i, line in enumerate(LINES[wanted - 1 :], wanted) if "// FAULT" in line)
    said = [str(fault) for fault in report.faults]
    assert any(words in text and f":{wanted}" in text for text in said), said


def test_variables_that_hold_structs_and_pointers(library):
    expect = {"buffer": 2 * np.arange(30, dtype=np.float32) + 3.5}
    report = trace(library, Call("by_variables", 1, 32), variables=VARIABLES, expect=expect)
    assert report.ok and not report.faults, str(report)
    report = trace(library, Call("by_variables_out_of_bounds", 1, 32), variables=VARIABLES)
    assert any("element 30 of filter.in, which has 30" in fault.text for fault in report.faults), str(report)


@pytest.mark.parametrize(
    "variables, message",
    [
        ({"filter.m": 3}, "argument filter.m: there is no field m; there are n, scale, in, weight"),
        ({"filter.in": 3}, "argument filter.in: the struct has a pointer there: give an array"),
        ({"filter": "list::Node[1]:zero"}, "the variable filter has 32 B, and is given"),
        ({"filtre.n": 3}, "no __constant__ or __device__ variable 'filtre'; it uses"),
        ({"buffer": 3}, "argument buffer: the struct has a pointer there: give an array"),
    ],
)
def test_what_fits_no_variable_is_refused(variables, message, library):
    with pytest.raises(UserError, match=re.escape(message)):
        trace(library, Call("by_variables", 1, 32), variables=VARIABLES | variables)


def test_on_the_command_line(capsys):
    words = ["--function", "views", "--block", "32", *(f"--arg={name}={value}" for name, value in VIEWS.items())]
    assert main([str(FILE), *words]) == 0
    assert "no faults" in capsys.readouterr().out


def test_in_a_file(tmp_path, capsys):
    (tmp_path / "views.yaml").write_text(f"""file: {FILE}
function: views
block: 32
arg:
  n: 2
  all: "View<int>[2]"
  all[0]: {{rows: 8, data: "int[8]"}}
  all[1].rows: 5
  all[1].data: "int[5]"
""")
    assert main([str(tmp_path / "views.yaml")]) == 0
    assert "no faults" in capsys.readouterr().out


WRONG = [  # the function, arguments, and the message
    ("hidden", {"h.q": "int[4]"}, "argument h.q: there is no field q; there are p"),
    ("hidden", {"h.p": 5}, "argument h.p: the struct has a pointer there: give an array, such as 'float[64]:zero'"),
    ("hidden", {"g.p": "int[4]"}, "argument g.p: no function that is launched has a parameter g"),
    ("scaled<float>", {"view.rows": "int[4]"}, "argument view.rows: an array, where the struct has no pointer but i"),
    ("scaled<float>", {"view.rows": "int64:4"}, "argument view.rows: int64 has 8 B, and int32 is there"),
    ("scaled<float>", {"view.scale": 4}, "argument view.scale: a struct of 16 B is there; give its parts"),
    ("scaled<float>", {"view.row[2]": "float[4]"}, "argument view.row[2]: there is no element [2]; there are 2"),
    ("views", {"n": 1, "all.rows": 5}, "argument all: the function takes a pointer there; give the array first: "),
    ("views", {"n": 1, "all": "View<float>[1]", "all[1].rows": 5}, "there is no element [1]; there are 1"),
    (
        "hidden",
        {},
        "hidden has the parameters h; nothing is given for h; for example --arg 'h.p=...', of a struct each",
    ),
    (
        "hidden",
        {"h": 5},
        "the function takes a struct of 8 B there; say its type, such as 'half:1.0', or give its field",
    ),
    ("sums", NODES | {"nodes": "Nodes[1]"}, "argument nodes: 'Nodes' is no type; "),
]


@pytest.mark.parametrize("name, arguments, message", WRONG, ids=[message for _, _, message in WRONG])
def test_what_fits_no_field_is_refused(name, arguments, message, library):
    with pytest.raises(UserError) as error:
        trace(library, Call(name, 1, 32), arguments)
    assert message in str(error.value)
