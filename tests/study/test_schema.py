"""YAML that is malformed, endless or not what a schema takes is refused at once, in one line with its place."""

import datetime
import json
import re
import time

import numpy as np
import pytest
import yaml

from kernelscope.element_types import ELEMENT_TYPES, ElementType
from kernelscope.launch import Number
from kernelscope.yaml_input import read_yaml
from tilewise import UserError
from tilewise.study import registry
from tilewise.study.points import point
from tilewise.study.precision import PRECISIONS, Precision
from tilewise.study.schema import SCHEMAS, validate

#: Each line repeats the one before nine times.
LAUGHS = "a: &a [x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi")
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name}\n  <<: [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi")
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seed: 1\na: &a\n  b: *a\n", r":3: \*a stands within &a, so it has no end; write the values themselves"),
        ("a: &a [*a]\n", r":1: \*a stands within &a"),
        ("a: &a\n  <<: *a\n", r":2: \*a stands within &a"),
        (LAUGHS, r":5: the aliases up to \*d repeat more than 10000 values; write the values themselves"),
        (MERGES, r":9: the aliases up to \*d repeat more than 10000 values"),
        ("[" * 100_000, r":1: more than 50 lists and mappings within each other"),
        ("".join(f"{' ' * n}a:\n" for n in range(3000)), r":51: more than 50 lists and mappings"),
        ("a: 1\nb: *c\n", r":2: found undefined alias"),
        ("a:\n\tb: 1\n", r":2: .*look at keys, indentation"),
        ("a: 1\na: 2\n", r":2: the key 'a' occurs twice"),
        ("? {a: 1}\n: 2\n", r":1: a key must be text"),
        ("a: 1\n---\nb: 2\n", r":2: expected a single document"),
        ("a: 1\nb: 2026-99-99\n", r":2: a malformed value of type timestamp: month must be"),
        ("a: !!int x\n", r":1: a malformed value of type int"),
        ("a: !!bool x\n", r":1: a malformed value of type bool"),
        ("a: !!timestamp x\n", r":1: a malformed value of type timestamp"),
        ("a: !!map [1]\n", r":1: .*expected a mapping node"),
        ("a: 1\nb: 0524\n", r":2: 0524 is 340 in YAML; leave out leading zeros and colons"),
        ("a: 5:24\n", r":1: 5:24 is 324 in YAML"),
        ("a: [1:30.5]\n", r":1: 1:30.5 is 90.5 in YAML"),
        ("a: " + "9" * 5000, r":1: a malformed value of type int"),
        ("a: !!python/object/apply:os.system [ls]\n", r":1: could not determine a constructor"),
        ("a: 1\nb: \x07\n", r":2: it has control characters"),
        ("a: 1\nb: é\n".encode("latin-1"), r":2: this is not text in UTF-8"),
        ("a: 1\n".encode("utf-16"), r":1: this is not text in UTF-8"),
    ],
)
def test_malformed_yaml_is_refused_at_once_with_its_line(tmp_path, text, says):
    file = tmp_path / "bad.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    begin = time.process_time()
    with pytest.raises(UserError) as error:
        read_yaml(file)
    assert re.match(re.escape(str(file)) + says, str(error.value)), error.value
    assert "\n" not in str(error.value)
    assert time.process_time() - begin < 2


def test_aliases_that_repeat_little_are_yaml_as_ever(tmp_path):
    file = tmp_path / "good.yaml"
    file.write_text("\ufeffa: &a {x: [1, 2]}\nb: [*a, *a]\nc:\n  <<: *a\n  y: 1\n")
    assert read_yaml(file) == {"a": {"x": [1, 2]}, "b": [{"x": [1, 2]}] * 2, "c": {"x": [1, 2], "y": 1}}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (datetime.date(2026, 1, 1), "seed: 2026-01-01 is of type date; if it is text, put it into quotes"),
        (b"x", "seed: b'x' is of type bytes"),
        ({1, 2}, "seed: {1, 2} is of type set"),
        ({1: 2}, "seed: the key 1 is not text; put it into quotes"),
        (float("nan"), "seed is not a finite number"),
        (524.0, "seed: 524.0 is not of type 'integer'"),
        (True, "seed: True is not of type 'integer'"),
        ("1" * 5000, "seed: '1{149} ... 1{100,149}' is not of type 'integer'"),
    ],
)
def test_a_value_of_another_type_is_named(config, value, says):
    with pytest.raises(UserError, match=f"^config.yaml: {says}"):
        validate(config | {"seed": value}, "config", "config.yaml")


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        ("platforms", 5, "5 is not of type 'object'; expected auto, or platforms by name"),
        ("platforms", "hundred", "'hundred' is not right; expected auto, or platforms by name"),
        ("platforms", {"a" * 300: {"backend": "gpu"}}, "the name 'aaa.*... is not right; expected a name of up to 50"),
        (
            "platforms",
            {"gpu": {"backend": "gpu", "nodes": "x"}},
            "'x' is not right; expected the names of nodes",
        ),
        (
            "tasks",
            {"a" * 300: {}},
            "the name 'aaa.*... is not right; expected a name of up to 50 letters in lower case",
        ),
        ("tasks", {"ab" * 20: {}}, "the name 'abab.*' is not right; .*not always the same"),
        ("tasks.task3.sweeps.0.kernel", 5, "5 is not right; expected one or more kernels of kernels/registry.yaml"),
        ("tasks.task3.sweeps.0.dtype", False, "False is not right; expected one or more element types"),
        ("tasks.task3.sweeps.0.block", "8", "'8' is not right; expected threads along x and y, as text"),
        ("tasks.bandwidth", {"title": "x", "method": "bandwidth", "sweeps": []}, ".*expected no `sweeps`: this method"),
        ("strict", "true", "'true' is not of type 'boolean'; expected true, or --config strict=true"),
    ],
)
def test_what_would_be_right_is_named(config, place, value, says):
    edited = json.loads(json.dumps(config))
    *outer, last = place.split(".")
    inner = edited
    for key in outer:
        inner = inner[int(key) if key.isdigit() else key]
    inner[last] = value
    asked = []
    with pytest.raises(UserError, match=f"^mine.yaml: {place}.*: {says}") as error:
        validate(edited, "config", lambda at: asked.append(at) or "mine.yaml")
    assert asked[0].startswith(place) and len(str(error.value)) < 300


@pytest.mark.parametrize("data", [None, 5, "text", [], [{}]])
def test_a_file_without_keys_is_refused(data):
    for name in ("config", "registry", "tuned"):
        with pytest.raises(UserError, match=r"^x.yaml: top level: .* is not of type 'object'"):
            validate(data, name, "x.yaml")


# Element types.

ENTRY = {"title": "mine", "kind": "cuda", "source": "mine.cu", "dtypes": ["float"], "block": [32], "grid": [1]}


def entry_of(tmp_path, **change):
    """The kernel of a registry with one entry."""
    (tmp_path / "mine.cu").write_text("__global__ void mine() {}")
    (tmp_path / "registry.yaml").write_text(yaml.safe_dump({"mine": ENTRY | change}))
    return registry.load(tmp_path)["mine"]


@pytest.fixture
def fp8(monkeypatch):
    """An element type that the study does not have."""
    fp8 = ElementType("fp8", "__nv_fp8_e4m3", np.dtype(np.uint8), "cuda_fp8.h")
    added = Precision(**vars(fp8), sum_roundoff=2.0**-23, poison=-1, finite_poison=0x7E)
    monkeypatch.setitem(ELEMENT_TYPES, "fp8", fp8)
    monkeypatch.setitem(PRECISIONS, "fp8", added)
    return added


def test_a_new_element_type_costs_no_edit_of_a_list(tmp_path, config, fp8):
    workspaces = {"w": {"shape": ["n"], "dtype": "fp8"}}
    (tmp_path / "tuned.yaml").write_text("some-gpu: {mine: {fp8: {large: {tile: 8}}}}")
    kernel = entry_of(
        tmp_path, dtypes=["fp8"], workspaces=workspaces, parameters=["tile"], arguments=["w", {"fp8": "tile"}]
    )
    at = point("t", "mine", "fp8", 1, 1, 1, tile=8)
    assert kernel.plan(at).launches[0].arguments[1] == Number("fp8", 8.0)
    assert [(space.dtype, space.bytes) for space in kernel.plan(at).workspaces] == [("fp8", 1)]
    tasks = {"t": {"title": "t", "sweeps": [{"kernel": "mine", "dtype": "fp8", "shapes": "square"}]}}
    validate(config | {"tasks": tasks}, "config", "config.yaml")


def test_a_type_that_is_none_is_refused_with_those_there_are(tmp_path):
    with pytest.raises(UserError, match=r"mine.dtypes.0: 'fp8' .*float, double, int32, int8, half, bfloat16 and tf32"):
        entry_of(tmp_path, dtypes=["fp8"])
    with pytest.raises(UserError, match=r"mine.arguments.0: {'fp8': 1} .*a number with its type, for example"):
        entry_of(tmp_path, arguments=[{"fp8": 1}])


def test_no_schema_lists_element_types():
    for path in SCHEMAS.glob("*.yaml"):
        assert "bfloat16" not in path.read_text(), path


@pytest.mark.parametrize(
    ("kind", "value", "given", "bits"),
    [
        ("half", 1.0, 1.0, 0x3C00),
        ("bfloat16", "n / 2", 0.5, 0x3F00),
        ("tf32", 1, 1.0, None),
        ("int32", "0 - n", -1, None),
        ("dtype", 2, 2.0, None),
    ],
)
def test_a_kernel_is_called_with_numbers_of_every_type(tmp_path, kind, value, given, bits):
    kernel = entry_of(tmp_path, arguments=[{kind: value}])
    [number] = kernel.plan(point("t", "mine", "float", 1, 1, 1)).launches[0].arguments
    assert number == Number("float" if kind == "dtype" else kind, given)
    assert number.packed().value == (given if bits is None else bits)


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("n * 2 ** 64 * 2", "must be a whole number of at most 18446744073709551616"),
        ({"int64": "0 - 2 ** 64"}, "must be a whole number of at least -9223372036854775808"),
        ({"float": "9" * 400}, "it must be a number"),
        ({"float": "1e300 * 1e300"}, "is inf .*it must be a number"),
        ({"half": "'a'"}, "it must be a number"),
    ],
)
def test_a_number_that_its_type_cannot_hold_is_refused(tmp_path, argument, says):
    kernel = entry_of(tmp_path, arguments=[argument])
    with pytest.raises(UserError, match=f"mine.arguments: .*{says}"):
        kernel.plan(point("t", "mine", "float", 1, 1, 1))


# Expressions of entries that no sweep names.


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"block": ["tlie"]}, "mine.block: 'tlie': 'tlie' is undefined; there are batch, itemsize, m, .*tile"),
        ({"block": ["tile +"]}, r"mine.block: 'tile \+' is not an expression"),
        ({"grid": ["'a'.ljust(20000000000)"]}, "mine.grid: .*is not an expression"),
        ({"dynamic_shared_bytes": "(tile"}, "mine.dynamic_shared_bytes: .*is not an expression"),
        ({"cluster": ["x"]}, "mine.cluster: 'x'"),
        ({"requires": ["n % tlie == 0"]}, "mine.requires: .*'tlie' is undefined"),
        ({"when": "sms > 1"}, "mine.when: .*'sms' is undefined"),
        ({"template": ["tile; 1"]}, "mine.template: 'tile; 1' is not an expression"),
        ({"arguments": ["A", "n *"]}, r"mine.arguments: 'n \*' is not an expression"),
        ({"arguments": [{"float": "x"}]}, "mine.arguments: 'x'"),
        ({"arguments": [{"tensor_map": "A", "box": [8, "x"]}]}, "mine.arguments: 'x'"),
        ({"workspaces": {"w": {"shape": ["x"], "dtype": "float"}}}, "mine.workspaces.w.shape: 'x'"),
        ({"workspaces": {"tile": {"shape": [1], "dtype": "float"}}}, "mine: 'tile' is a parameter already"),
        ({"space": {"tile": [8], "requires": ["x > 1"]}}, "mine.space.requires: .*'x' is undefined"),
        ({"space": {"tile": [10**20]}}, "mine.space.tile.0: .*maximum"),
    ],
)
def test_an_expression_is_checked_when_the_registry_is_read(tmp_path, change, says):
    with pytest.raises(UserError, match=says):
        entry_of(tmp_path, parameters=["tile"], **change)
