"""Kinds of faults in several shapes: each faulty kernel of kinds.cu is named at its line, its right twin is clean."""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from urllib.parse import unquote

import jsonschema
import numpy as np
import pytest

from kernelscope import Call, build, trace
from kernelscope.cli import main
from kernelscope.formats import FORMATS

FILE = Path(__file__).with_name("kinds.cu")
LINES = FILE.read_text().splitlines()
PARTS = re.findall(r"^__global__ void (\w+)\(([^)]*)\)", FILE.read_text().split("// ---- What a CPU")[0], re.MULTILINE)
#: What each parameter is given, by its name.
GIVEN = {
    "in": "float[64]:ramp",
    "out": "float[64]",
    "found": "int[64]",
    "tiles": "half[4096]:zero",
    "sums": "float[128]",
    "wide": "double[64]",
    "total": "float[1]:zero",
    "count": "int[1]:zero",
    "lock": "int[1]:zero",
    "flag": "unsigned[1]:zero",
}
#: Words of a message, and the kind, by a word in a kernel's name; else the fault is a lost update.
UNSET = "depend on the local variable"
KINDS = dict.fromkeys(("sum_of_floats", "count_of", "element_of"), ("uninitialised", UNSET))
KINDS |= {
    "barrier_0": ("invalid", "others wait at __syncthreads(), which is barrier 0 of all threads"),
    "exit_before": ("ended", "has ended; a GPU does not wait for it"),
    "wgmma_of_copies": ("asynchrony", "with no fence.proxy.async between"),
    "wgmma_waited_for": ("asynchrony", "a sum of the product (wgmma)"),
    "wgmma_scaled": ("asynchrony", "with no wgmma.fence between"),
    "wgmma_cleared": ("asynchrony", "with no wgmma.fence between"),
    "fragment_loaded": ("asynchrony", "with no wgmma.fence between"),
    "overwritten": ("asynchrony", "a register of A's fragment, which the product (wgmma)"),
    "setmaxnreg": ("deadlock", "registers per thread, of which the block has no more"),
    "spin": ("stopped", "waits here for a change that no thread of the grid makes"),
    "wgmma_of_all_warps": ("divergence", "a product is one operation of the four warps of a group"),
}
CONVERSIONS = "conversions", "implicit_conversions"


@pytest.fixture(scope="module")
def library():
    return build(FILE, *(name for name, _ in PARTS), "least_by_minus_one", "shifts", *CONVERSIONS)


@pytest.mark.slow
@pytest.mark.parametrize("name, parameters", PARTS, ids=[name for name, _ in PARTS])
def test_kind(name, parameters, library):
    names = re.findall(r"(\w+)(?:,|$)", parameters)
    kind, words = next((KINDS[word] for word in KINDS if word in name), ("race", "that update is lost"))
    blocks = 1 if kind == "uninitialised" else 2
    threads = 384 if "setmaxnreg" in name else 128 if "wgmma" in name else 40 if "ticket" in name else 64
    report = trace(library, Call(name, blocks, threads), {each: GIVEN[each] for each in names}, limit=60)
    if not name.endswith("_faulty"):
        assert not report.faults, str(report)
        return
    begin = next(number for number, line in enumerate(LINES) if f" {name}(" in line)
    wanted = next(number for number, line in enumerate(LINES[begin:], begin + 1) if line.endswith(("FAULT", "REMARK")))
    found = [fault for fault in report.faults if fault.kind == kind and words in fault.text]
    assert found and report.ok == LINES[wanted - 1].endswith("REMARK"), str(report)
    assert any(fault.line == wanted or f"line {wanted})" in fault.text for fault in found), str(report)


def test_the_least_integer_divided_by_minus_one_wraps_around(library):
    least, wide = -(2**31), -(2**63)
    given = {"least": np.int32([least, least]), "others": np.int64([wide, -1]), "results": "int64[2]"}
    right = {"least": np.int32([least, 0]), "results": np.int64([wide, 0])}
    report = trace(library, Call("least_by_minus_one", 1, 1), given, expect=right)
    assert report.ok, str(report)
    report = trace(library, Call("least_by_minus_one", 1, 1), given | {"others": np.int64([wide, 0])})
    assert "divides by zero" in report.faults[0].text


def test_shifts_and_conversions_are_those_of_a_gpu(library):
    right = np.int32([0, 0, -1, 1, 0, 3 | 8, 0, 0])
    report = trace(library, Call("shifts", 1, 1), {"shifted": "int[8]", "by": 32}, expect={"shifted": right})
    assert report.ok, str(report)
    most, least = 2**31 - 1, -(2**31)
    given = {"converted": "int64[10]", "large": np.float32(1e10), "nan": np.float32("nan"), "wide": np.float64(1e300)}
    right = np.int64([most, least, 0, 0, 2**32 - 1, -(2**63), 1000002, -1, 255, 0])
    report = trace(library, Call("conversions", 1, 1), given, expect={"converted": right})
    assert report.ok and not report.faults, str(report)


def test_an_implicit_conversion_out_of_range_is_a_remark(library):
    given = {"converted": "int[2]", "large": np.float32(1e10), "small": np.float64(-7.9)}
    report = trace(library, Call("implicit_conversions", 1, 1), given)
    line = next(number for number, line in enumerate(LINES, 1) if "beyond = large" in line)
    assert report.ok and [(fault.kind, fault.line) for fault in report.faults] == [("converted", line)], str(report)
    assert "converts 1e+10 to 'int'" in report.faults[0].text
    report = trace(library, Call("implicit_conversions", 1, 1), given | {"large": np.float32(2**30)})
    assert not report.faults, str(report)


RACE = """__global__ void mine(float* out)
{
    BEFORE
    out[0] = threadIdx.x; AFTER
}
"""
WORDS = ["--block", "64", "--arg", "out=float[1]"]


def said(tmp_path, capsys, *options, before="", after=""):
    """Exit status and output of the command for a kernel with a race."""
    (tmp_path / "mine.cu").write_text(RACE.replace("BEFORE", before).replace("AFTER", after))
    status = main([str(tmp_path / "mine.cu"), *WORDS, *options])
    return status, capsys.readouterr().out


@pytest.mark.parametrize(
    "options, comments, by",
    [
        (["--allow", "race"], {}, "--allow race"),
        (["--allow", "race:4"], {}, "--allow race:4"),
        ([], {"after": "// kernelscope: allow race"}, "the comment in line 4"),
        ([], {"before": "// kernelscope: allow divergence, race"}, "the comment in line 3"),
    ],
)
def test_what_is_allowed_is_listed_and_does_not_count(tmp_path, capsys, options, comments, by):
    status, out = said(tmp_path, capsys, *options, **comments)
    assert status == 0 and "mine.cu:4: allowed: race: " in out and f"({by})" in out and "no faults in" in out, out
    assert said(tmp_path, capsys, "--allow", "divergence")[0] == 1
    assert said(tmp_path, capsys, "--allow", "race:3")[0] == 1
    assert said(tmp_path, capsys, "--allow", "rice")[0] == 2


def test_yaml_allows_kinds(tmp_path, capsys):
    said(tmp_path, capsys)
    (tmp_path / "mine.yaml").write_text('block: 64\narg: {out: "float[1]"}\nallow: ["race:4"]\n')
    assert main([str(tmp_path / "mine.yaml")]) == 0 and "(allow: race:4)" in capsys.readouterr().out


def closed(required, **properties):
    """The schema of an object with no other properties, as all are in SARIF 2.1.0 but property bags."""
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


#: What SARIF 2.1.0 requires of the objects that the microscope writes. No package of this environment has the
#: standard's own schema. Names, types, required properties and values are those of the standard.
TEXT, WHOLE = {"type": "string"}, {"type": "integer", "minimum": 1}
MESSAGE = closed(["text"], text=TEXT)
PHYSICAL = closed(
    ["artifactLocation"],
    artifactLocation=closed([], uri={"type": "string", "format": "uri-reference"}),
    region=closed(["startLine"], startLine=WHOLE),
)
LOCATION = closed([], physicalLocation=PHYSICAL, message=MESSAGE)
LOCATIONS = {"type": "array", "items": LOCATION}
SUPPRESSION = closed(["kind"], kind={"enum": ["inSource", "external"]}, justification=TEXT)
RESULT = closed(
    ["message"],
    ruleId=TEXT,
    level={"enum": ["none", "note", "warning", "error"]},
    message=MESSAGE,
    locations=LOCATIONS,
    relatedLocations=LOCATIONS | {"uniqueItems": True},
    suppressions={"type": "array", "uniqueItems": True, "items": SUPPRESSION},
    occurrenceCount=WHOLE,
)
RULES = {"type": "array", "uniqueItems": True, "items": closed(["id"], id=TEXT, shortDescription=MESSAGE)}
TOOL = closed(["driver"], driver=closed(["name"], name=TEXT, rules=RULES))
SARIF = closed(
    ["version", "runs"],
    **{"$schema": {"type": "string", "format": "uri"}, "version": {"enum": ["2.1.0"]}},
    runs={"type": "array", "items": closed(["tool"], tool=TOOL, results={"type": "array", "items": RESULT})},
)


@pytest.mark.parametrize("options", [[], ["--allow", "race"], ["--grid", "0"], ["--expect", "no=no.npy"]])
@pytest.mark.parametrize("before", ["", "undeclared();"])
def test_sarif_is_as_the_standard_has_it(tmp_path, capsys, options, before):
    log = json.loads(said(tmp_path, capsys, "--format", "sarif", *options, before=before)[1])
    jsonschema.Draft7Validator(SARIF).validate(log)
    assert log["runs"][0]["results"]


def test_a_name_of_a_file_is_a_uri_in_sarif(tmp_path, capsys):
    (tmp_path / "of 100%.cu").write_text(RACE.replace("BEFORE", "").replace("AFTER", ""))
    main([str(tmp_path / "of 100%.cu"), *WORDS, "--format", "sarif"])
    [result] = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.endswith("/of%20100%25.cu") and unquote(uri) == str(tmp_path / "of 100%.cu")


#: Trace a file in every format.
EVERY_FORMAT = """
import sys
from kernelscope.cli import main
for form in sys.argv[1].split():
    print(flush=True)
    main([*sys.argv[2:], "--format", form])
"""


@pytest.mark.slow
def test_three_traces_are_equal_to_the_byte_in_every_format(tmp_path):
    (tmp_path / "mine.cu").write_text(RACE.replace("BEFORE", "float x; out[1] += x;").replace("AFTER", ""))
    command = [sys.executable, "-c", EVERY_FORMAT, " ".join(FORMATS), "mine.cu", "--grid", "2", *WORDS]
    outs = set()
    for seed in "012":  # of Python's hashes, which order its sets
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed}
        outs.add(subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=True).stdout)
    [out] = outs
    assert out.count(b"mine.cu") >= 2 * len(FORMATS)


def test_sarif_has_both_sides_of_a_race_and_refusals(tmp_path, capsys):
    status, out = said(tmp_path, capsys, "--format", "sarif")
    [run] = json.loads(out)["runs"]
    [result] = run["results"]
    assert status == 1 and (result["ruleId"], result["level"]) == ("race", "error")
    for place in (result["locations"][0], result["relatedLocations"][0]):
        assert place["physicalLocation"]["region"]["startLine"] == 4
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["race"]
    status, out = said(tmp_path, capsys, "--format", "sarif", before="undeclared();")
    [result] = json.loads(out)["runs"][0]["results"]
    assert status == 2 and result["ruleId"] == "refused" and "undeclared" in result["message"]["text"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 3


def test_junit_has_a_failure_or_an_error(tmp_path, capsys):
    [suite] = ElementTree.fromstring(said(tmp_path, capsys, "--format", "junit")[1])
    [failure] = suite.iter("failure")
    assert suite.get("failures") == "1" and failure.get("type") == "race" and "mine.cu:4" in str(failure.text)
    [suite] = ElementTree.fromstring(said(tmp_path, capsys, "--format", "junit", before="undeclared();")[1])
    assert suite.get("errors") == "1" and len(list(suite.iter("error"))) == 1


def test_the_other_side_of_a_race_is_fields(tmp_path, capsys):
    [fault] = json.loads(said(tmp_path, capsys, "--format", "json")[1])["faults"]
    other = fault["other"]
    assert (other["line"], other["block"], other["writes"]) == (4, [0, 0], True) and other["thread"] != fault["thread"]
    refused = json.loads(said(tmp_path, capsys, "--format", "json", before="undeclared();")[1])["refused"]
    assert refused["line"] == 3
