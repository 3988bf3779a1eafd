"""`tilewise grade` blames mistakes on the teacher, the student or the machine, whoever made them, and has a remedy."""

import csv
import os
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tilewise import ROOT
from tilewise.__main__ import main
from tilewise.grade import marking

pytestmark = pytest.mark.usefixtures("without_gpu")

PLAIN = (ROOT / "examples/hand-ins/right_plain.cu").read_text(encoding="utf-8")
BEGIN = "        float sum = 0.0f;"


@pytest.fixture
def hand_ins(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "good.cu").write_text(PLAIN, encoding="utf-8")
    return folder


def graded(folder: Path, task: str = "naive") -> dict[str, dict[str, str]]:
    output = folder.parent / "out"
    assert main(["grade", str(folder), "--task", task, "--output", str(output)]) == 1
    with (output / "grades.csv").open(encoding="utf-8", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


# ---- Of the teacher -------------------------------------------------------------------------------------------------

TASKS = {
    "unknown name": ("measures.a", "measures: {a: sectors_per_requst <= 4}"),
    "syntax": ("measures.a", "measures: {a: sectors_per_request <=}"),
    "division by zero": ("measures.a", "measures: {a: global_load_sectors / (itemsize - 8) < 3}"),
    "division by a count that may be 0": ("measures.a", "measures: {a: 1 / shared_bank_conflicts < 3}"),
    "type": ("measures.a", "measures: {a: sectors_per_request <= '4'}"),
    "text in an expression": ("measures.a", """measures: {a: 'sectors_per_request <= "4"'}"""),
    "no condition": ("measures.a", "measures: {a: global_load_sectors + 1}"),
    "number as condition": ("measures.a", "measures: {a: 3}"),
    "measures without a value": ("measures", "measures: "),
    "block of a word": ("blocks.0", "blocks: [16y16]"),
    "block of 0": ("blocks.0", "blocks: ['0x16']"),
    "too many threads": ("blocks", "blocks: [64x64]"),
    "blocks no list": ("blocks", "blocks: 16x16"),
    "no block": ("blocks", "blocks: []"),
    "no shape": ("shapes", "shapes: []"),
    "shape that takes hours": ("shapes", "shapes: [4000x4000x4000]"),
    "measured that takes hours": ("measured", "measured: 4000x4000x4000"),
    "tiles of a word": ("ntb", "ntb: two"),
    "threshold of a type": ("threshold", """threshold: 'time_ms <= "3"'"""),
    "threshold divided by 0": ("threshold", "threshold: time_ms / (reference_ms - reference_ms) < 2"),
    "threshold a number": ("threshold", "threshold: 3"),
    "threshold without reference": ("threshold", "threshold: reference_ms < 3"),
    "reference a list": ("reference", "reference: [naive]"),
    "unknown keys of two types": ("own", "1: 2, zz: 3"),
}


@pytest.mark.parametrize(("key", "text"), TASKS.values(), ids=TASKS)
def test_a_wrong_task_is_refused_before_a_hand_in_is_marked(
    hand_ins: Path, monkeypatch, capsys, key: str, text: str
) -> None:
    task = hand_ins.parent / "own.yaml"
    task.write_text(f"own: {{{text}}}\n", encoding="utf-8")
    monkeypatch.setattr("tilewise.grade.run_apart", lambda *_: pytest.fail("a hand-in is marked"))
    output = hand_ins.parent / "out"
    assert main(["grade", str(hand_ins), "--task", str(task), "--output", str(output)]) == 2
    said = capsys.readouterr().err
    place = f"{task}: {'own' if key == 'own' else f'own.{key}'}: "
    assert said.startswith(f"tilewise: {place}") and said.count("\n") == 1
    assert not output.exists()


def test_a_measure_without_a_value_for_one_kernel_leaves_it_unmarked(hand_ins: Path) -> None:
    # The study's naive kernel needs no shared memory, and this one does.
    begin = "    if (row < n"
    text = PLAIN.replace(begin, "    __shared__ float held[16][16]; held[threadIdx.y][threadIdx.x] = 0;\n" + begin)
    (hand_ins / "shared.cu").write_text(text, encoding="utf-8")
    task = hand_ins.parent / "own.yaml"
    task.write_text("own: {measures: {a: '1 / max(0, 1 - shared_store_requests) > 0'}}\n", encoding="utf-8")
    rows = graded(hand_ins, str(task))
    assert {name: (row["verdict"], row["mistakes"]) for name, row in rows.items()} == {
        "good": ("passed", ""),
        "shared": ("unmarked", "not_marked"),
    }
    assert "measures.a" in rows["shared"]["hint"]
    suite = ElementTree.parse(hand_ins.parent / "out/junit.xml").getroot().find("testsuite")
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")


def test_two_hand_ins_of_one_name_and_an_output_that_is_a_file_are_refused(hand_ins: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("tilewise.grade.run_apart", lambda *_: pytest.fail("a hand-in is marked"))
    output = hand_ins.parent / "file"
    output.write_text("kept", encoding="utf-8")
    assert main(["grade", str(hand_ins), "--task", "naive", "--output", str(output)]) == 2
    assert output.read_text(encoding="utf-8") == "kept" and str(output) in capsys.readouterr().err
    (hand_ins / "good").mkdir()
    assert main(["grade", str(hand_ins), "--task", "naive", "--output", str(hand_ins.parent / "out")]) == 2
    assert "two hand-ins of good" in capsys.readouterr().err


# ---- Of the student -------------------------------------------------------------------------------------------------


def test_links_are_named_and_only_those_to_files_of_the_folder_are_marked(hand_ins: Path) -> None:
    outside = hand_ins.parent / "outside.cu"
    outside.write_text(PLAIN, encoding="utf-8")
    (hand_ins / "folder").mkdir()
    links = {
        "inside.cu": "good.cu",
        "out.cu": str(outside),
        "out_relative.cu": "../outside.cu",
        "folder/out.cu": str(outside),
        "to_a_folder": "..",
        "dangling.cu": "nowhere.cu",
        "circle.cu": "circle.cu",
    }
    for name, target in links.items():
        (hand_ins / name).symlink_to(target)
    rows = graded(hand_ins)
    assert {name for name, row in rows.items() if row["verdict"] == "passed"} == {"good", "inside"}
    assert {row["mistakes"] for name, row in rows.items() if name not in ("good", "inside")} == {"refused"}
    for name in ("out", "out_relative", "folder", "to_a_folder"):
        assert "symbolic link to" in rows[name]["hint"] and "out of the hand-in's folder" in rows[name]["hint"]
    assert "symbolic link to nowhere.cu" in rows["dangling"]["hint"] and "No such file" in rows["dangling"]["hint"]
    assert "circle of links" in rows["circle"]["hint"]


def test_files_that_are_no_text_are_named_and_stop_no_other(hand_ins: Path) -> None:
    os.mkfifo(hand_ins / "pipe.cu")
    (hand_ins / "utf16.cu").write_text(PLAIN, encoding="utf-16")
    (hand_ins / "UPPER.CU").write_text(PLAIN, encoding="utf-8")
    (hand_ins / "two\nlines.cu").write_text(PLAIN, encoding="utf-8")
    Path(os.fsdecode(bytes(hand_ins) + b"/\xff.cu")).write_text(PLAIN, encoding="utf-8")
    rows = graded(hand_ins)
    assert {name: row["mistakes"] for name, row in rows.items()} == {
        "?": "refused",
        "UPPER": "",
        "good": "",
        "pipe": "refused",
        "two?lines": "refused",
        "utf16": "refused",
    }
    assert "no plain file" in rows["pipe"]["hint"] and "UTF-8" in rows["utf16"]["hint"]
    assert "rename" in rows["two?lines"]["hint"]


def test_an_error_is_named_by_its_class_not_by_its_words(hand_ins: Path) -> None:
    texts = {
        "hand-in": PLAIN.replace("float sum", "hand_in sum"),
        "words": PLAIN.replace(BEGIN, f'static_assert(sizeof(int) == 3, "a plain file of a hand-in"); {BEGIN}'),
        "asm": PLAIN.replace(BEGIN, f'{BEGIN} asm volatile("unknown.f32 %0;" : "+f"(sum));'),
        "include": '#include "/etc/passwd"\n' + PLAIN,
    }
    for name, text in texts.items():
        (hand_ins / f"{name}.cu").write_text(text, encoding="utf-8")
    rows = graded(hand_ins)
    assert {name: (row["verdict"], row["mistakes"]) for name, row in rows.items()} == {
        "good": ("passed", ""),
        "hand-in": ("failed", "does_not_compile"),
        "words": ("failed", "does_not_compile"),
        "asm": ("failed", "not_emulated"),
        "include": ("failed", "refused"),
    }


@pytest.mark.slow
def test_a_wrong_line_of_options_gets_a_question(hand_ins: Path) -> None:
    asked = {
        "block=0x0": "block",
        "block=ab": "block",
        "block=64x64": "block",
        "kernel=absent": "kernel",
        "arguments=A,B": "6 parameters",
        "arguments=A,B,C,n,p,q": "'q'",
        "arguments=A,B,C,n/0,p,m": "n/0",
        "arguments=A,B,C,1.5,p,m": "1.5",
        "argument=A,B,C,n,p,m": "argument",
    }
    for number, option in enumerate(asked):
        (hand_ins / f"option{number}.cu").write_text(f"{PLAIN}// tilewise: {option}\n", encoding="utf-8")
    rows = graded(hand_ins)
    for number, (option, words) in enumerate(asked.items()):
        row = rows[f"option{number}"]
        assert row["mistakes"] == "question" and words in row["hint"], option


def test_arguments_in_a_line_have_the_types_of_the_parameters(hand_ins: Path) -> None:
    kernel = (
        PLAIN.replace("int n", "size_t n").replace("int m)", "int m, float alpha)").replace("= sum", "= alpha * sum")
    )
    assert kernel.count("alpha") == 2
    (hand_ins / "option.cu").write_text(f"{kernel}// tilewise: arguments=A,B,C,n,p,m,1.0\n", encoding="utf-8")
    assert main(["grade", str(hand_ins), "--task", "naive", "--output", str(hand_ins.parent / "out")]) == 0


# ---- Of the machine, and of Tilewise itself -------------------------------------------------------------------------


FULL_DISK = """#!/bin/sh
case "$PWD" in *tilewise-grade-*) echo 'as: No space left on device' >&2; exit 1;; esac
exec GXX "$@"
"""


def test_a_failure_of_the_machine_is_no_fault_of_the_hand_in(hand_ins: Path, monkeypatch) -> None:
    compiler = hand_ins.parent / "bin/g++"
    compiler.parent.mkdir()
    compiler.write_text(FULL_DISK.replace("GXX", str(shutil.which("g++"))), encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(compiler.parent), prepend=os.pathsep)
    row = graded(hand_ins)["good"]
    assert (row["verdict"], row["mistakes"]) == ("unmarked", "not_marked")
    assert "No space left on device" in row["hint"]


def test_a_defect_of_tilewise_is_no_fault_of_the_hand_in(monkeypatch) -> None:
    monkeypatch.setattr(marking, "mark", lambda *_: 1 // 0)
    [mistake] = marking.findings_of(dict.fromkeys(("file", "root", "name", "task", "naive"), "any"))["mistakes"]
    assert mistake["name"] == "not_marked" and "ZeroDivisionError" in mistake["words"]
