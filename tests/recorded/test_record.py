"""`tilewise record`: a run comes back as it was, and what is planted is refused by name."""

import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic
import yaml

from tilewise import RECORDED, ROOT
from tilewise.__main__ import main
from tilewise.evidence import load_platform
from tilewise.recorded import check
from tilewise.study import builds, columns, registry
from tilewise.study.device import read as read_device

HOST, USER = "gpu-node-17", "alice"
NAME = "nvidia-h200"
HASHED = ("measurements.csv", "instructions.csv", "facts/sizes.csv", "facts/batches.csv")


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True).stdout.strip()


def has_history():
    try:
        return git("rev-parse", "--is-shallow-repository") == "false"
    except (OSError, subprocess.CalledProcessError):
        return False


pytestmark = [pytest.mark.slow, pytest.mark.skipif(not has_history(), reason="this copy lacks git's history")]


def table(folder, name):
    return pd.read_csv(f"{folder}/{name}", dtype=dict.fromkeys(["commit", "changes", "node", "build_sha256"], str))


def edited(folder, edit, name="measurements.csv"):
    """Let `edit` change the rows of a file of a run, or replace them."""
    rows = table(folder, name)
    changed = edit(rows)
    (rows if changed is None else changed).to_csv(f"{folder}/{name}", index=False)


def hashed(folder, name, kernels):
    """Give the rows of a file the hashes of their kernels."""
    device = read_device(folder / "device.json")
    kinds = {name: Path(name).stem for name in HASHED}
    rows = columns.read(folder / name, kinds.get(name, "tune"), registry.parameters(kernels))
    hashes = [builds.row_sha256(row, kernels[row["kernel"]], device) for row in rows.to_dict("records")]
    rows.assign(build_sha256=hashes).to_csv(folder / name, index=False)


def make_run(folder, **gpu):
    """Results of the whole study at the commit of this clone, with the names of a machine and a user in them.

    `gpu` are facts of another GPU than an H200.
    """
    head = git("rev-parse", "--short=10", "HEAD")
    with check.sources(head) as tree, pytest.MonkeyPatch.context() as patch:
        kernels = registry.load(tree / "kernels")
        patch.setattr(synthetic, "KERNELS", kernels)
        study = yaml.safe_load((tree / "config/config.yaml").read_text())
        synthetic.write(folder, study=study, with_traffic=True, **{"name": "NVIDIA H200"} | gpu)
        for name in (*HASHED, "tune/register_tile.csv"):
            hashed(folder, name, kernels)
    edited(folder, lambda rows: rows[rows["status"] == "ok"], "facts/calls.csv")

    def as_measured(rows):
        sizes = rows[["n", "p", "m"]].astype(float).prod(axis=1)
        largest = rows["task"] == "task1c"
        for name in (name for name in rows if name.startswith("time_")):
            rows.loc[largest, name] = 2e-6 * sizes / 6000
        times = rows["time_ms"]
        rows["time_min_ms"] = rows[["time_min_ms", "time_q1_ms"]].min(axis=1)
        refused = rows["status"] == "invalid_launch"
        rows.loc[refused, "message"] = f"/home/{USER}/tilewise/kernels/x.cu: refused on {HOST}"
        changes = dict.fromkeys(["changes", "alone", "processor"])
        return rows.assign(gflops=2e-6 * sizes / times, commit=head, node=HOST, slurm_job=4711, **changes)

    edited(folder, as_measured)
    with_commits = [*folder.glob("facts/*.csv"), *folder.glob("tune/*.csv"), folder / "accuracy.csv"]
    for path in with_commits:
        if "commit" in table(path.parent, path.name):
            edited(path.parent, lambda rows: rows.assign(commit=head), path.name)
    machine = json.loads((folder / "device.json").read_text())
    (folder / "device.json").write_text(json.dumps(machine | {"node": HOST, "slurm_job": "4711"}))
    samples = folder / "samples/task1a/nvbench-0.json-bin"
    samples.mkdir(parents=True)
    np.arange(100, dtype=np.float32).tofile(samples / "0.bin")
    (folder / "samples/task1a/nvbench-0.json").write_text("{}")
    (folder / "samples/task1a/worker.log").write_text(f"/home/{USER}/tilewise on {HOST}")
    return folder


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("run") / NAME)


@pytest.fixture
def results(whole_run, tmp_path):
    return Path(shutil.copytree(whole_run, tmp_path / "results" / NAME))


@pytest.fixture(scope="module")
def made(whole_run, tmp_path_factory):
    into = tmp_path_factory.mktemp("made")
    assert main(["record", str(whole_run), "--into", str(into)]) == 0
    return into / NAME


@pytest.fixture
def recorded(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "recorded" / NAME))


def test_a_run_comes_back_as_it_was_without_what_is_private(whole_run, made, capsys):
    assert main(["record", "--check", str(made)]) == 0
    assert capsys.readouterr().out == f"{made}: right\n"
    before, after = (load_platform(folder, recorded=True) for folder in (whole_run, made))
    place = ["node", "slurm_job", "message"]
    pd.testing.assert_frame_equal(before.measurements.drop(columns=place), after.measurements.drop(columns=place))
    for name, facts in before.facts.items():
        pd.testing.assert_frame_equal(facts, after.facts[name])
    assert before.config == after.config and before.device.gpu == after.device.gpu
    kept = [path for path in made.rglob("*") if path.suffix in (".csv", ".json", ".md")]
    assert len(kept) > 30 and not [path for path in kept if re.search(rf"{HOST}|{USER}|\b4711\b", path.read_text())]
    assert set(after.measurements["node"]) == {after.device.node} == {"machine 1"}
    refused = after.measurements[after.measurements["status"] == "invalid_launch"]
    assert set(refused["message"]) == {"x.cu: refused on machine 1"}
    described = json.loads((made / "ro-crate-metadata.json").read_text())["@graph"]
    assert {path.name for path in kept} - {"ro-crate-metadata.json"} <= {entity.get("name") for entity in described}
    # Digit by digit: a number that was read and written again may differ in its last.
    lines = [(folder / "facts/bandwidth.csv").read_text() for folder in (whole_run, made)]
    assert lines[0].splitlines() == lines[1].splitlines()


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        pytest.param("nvidia-gh200-480gb", {"name": "NVIDIA GH200 480GB"}, marks=pytest.mark.exhaustive),
        ("nvidia-l4", {"name": "NVIDIA L4", "compute_capability": "8.9"}),
    ],
)
def test_a_run_of_a_card_that_made_no_record_is_accepted_as_it_is(name, gpu, tmp_path, capsys):
    assert main(["record", str(make_run(tmp_path / name, **gpu)), "--into", str(tmp_path / "kept")]) == 0
    assert main(["record", "--check", "--into", str(tmp_path / "kept")]) == 0, capsys.readouterr().out
    assert capsys.readouterr().out.endswith(f"{tmp_path / 'kept' / name}: right\n")


def test_what_is_private_is_taken_out_of_any_text_and_nothing_else_is(results, tmp_path, capsys):
    """Of JSON with escapes, and on a machine whose name is that of a column."""
    private = f"/home/jürgen/bin/python on\ntask\n/home/{USER}/run.py"
    device = results / "device.json"
    machine = json.loads(device.read_text())
    device.write_text(json.dumps(machine | {"node": "task", "gpu": machine["gpu"] | {"note": private}}))
    edited(results, lambda rows: rows.assign(node="task"))
    assert main(["record", str(results), "--into", str(tmp_path / "kept")]) == 0, capsys.readouterr().out
    kept = tmp_path / "kept" / NAME / "device.json"
    found = json.loads(kept.read_text())
    assert (found["node"], found["gpu"]["note"]) == ("machine 1", "python on\nmachine 1\nrun.py")
    kept.write_text(json.dumps(found | {"gpu": found["gpu"] | {"note": private}}))
    assert main(["record", "--check", str(kept.parent)]) == 1
    said = capsys.readouterr().out
    assert "private: device.json: '/home/jürgen/bin/python'" in said and f"'/home/{USER}/run.py'" in said


def test_samples_are_an_archive_beside_the_run_that_git_ignores(whole_run, made, recorded, tmp_path):
    with tarfile.open(made / "samples.tar.xz") as archive:
        assert archive.getnames() == [f"samples/task1a/nvbench-0.json{end}" for end in ("", "-bin/0.bin")]
        assert {member.mtime for member in archive} == {0}
    subprocess.run(["sha256sum", "--check", "--quiet", "samples.sha256"], cwd=made, check=True)
    assert subprocess.run(["git", "check-ignore", RECORDED / NAME / "samples.tar.xz"], cwd=ROOT).returncode == 0
    (recorded / "samples.tar.xz").unlink()
    assert check.check(recorded) == [], "it may be elsewhere"
    assert main(["record", str(whole_run), "--into", str(tmp_path)]) == 0
    same = [folder / "samples.tar.xz" for folder in (made, tmp_path / NAME)]
    assert same[0].read_bytes() == same[1].read_bytes()


def test_the_entry_has_the_cards_and_machines_of_a_run_that_was_resumed(results, tmp_path):
    def elsewhere(rows):
        later = rows["task"] == "task3"
        rows["gpu_uuid"] = rows["grid_x"].notna().map({True: "GPU-aaaa1111-2", False: None})
        rows.loc[later & rows["grid_x"].notna(), "gpu_uuid"] = "GPU-bbbb2222-3"
        rows.loc[later, "node"] = "another-node"

    edited(results, elsewhere)
    assert main(["record", str(results), "--into", str(tmp_path / "kept")]) == 0
    entry = (tmp_path / "kept" / NAME / "README.md").read_text()
    assert "| bbbb2222 | machine 2 | task3 |" in entry and re.search(r"\| aaaa1111 \| machine 1 \| task1a, ", entry)
    assert git("rev-parse", "--short=10", "HEAD") in entry


def test_the_tuner_ran_before_the_commit_that_has_its_choices(results, tmp_path, capsys):
    edited(results, lambda rows: rows.assign(commit="0123456789"), "tune/register_tile.csv")
    assert main(["record", str(results), "--into", str(tmp_path / "kept")]) == 0
    entry = (tmp_path / "kept" / NAME / "README.md").read_text()
    assert re.search(r"Measured by commit `\w{10}` from", entry)
    assert "measured by commit `0123456789`." in entry
    edited(results, put("build_sha256", "1" * 64, n=8192), "tune/register_tile.csv")
    assert main(["record", str(results), "--into", str(tmp_path / "kept")]) == 1
    assert re.search(r"hashes: tune: \d+ rows of register_tile are of other sources", capsys.readouterr().out)


def put(column, value, **where):
    """An edit that sets a column of the rows with some values; `value` may be a function of the column."""

    def edit(rows):
        chosen = pd.Series(True, rows.index)
        for name, wanted in where.items():
            chosen &= rows[name] == wanted
        assert chosen.any()
        rows.loc[chosen, column] = value(rows.loc[chosen, column]) if callable(value) else value

    return edit


def faster(rows):
    """Times and rates that agree with each other, and with no H200."""
    chosen = (rows["kernel"] == "tiled") & (rows["dtype"] == "float") & (rows["n"] == 8192) & (rows["tile"] == 32)
    times = [name for name in rows if name.startswith("time_")]
    rows.loc[chosen, times] /= 9
    rows.loc[chosen, "gflops"] *= 9


def without_task(folder):
    """A task is gone from everywhere, also from the config that says what was asked for."""
    (folder / "facts/task2b.csv").unlink()
    edited(folder, lambda rows: rows[rows["task"] != "task2b"])
    config = json.loads((folder / "config.json").read_text())
    del config["tasks"]["task2b"]
    (folder / "config.json").write_text(json.dumps(config))


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def replaced(path, pattern, by, count=0):
    """Replace a pattern in a file."""
    path.write_text(re.sub(pattern, by, path.read_text(), count=count))


def remove(path):
    path.unlink()


def linked(path, to):
    """Put a link in the place of a file."""
    path.unlink()
    path.symlink_to(to)


#: Damaged files are those of test_damage.py; here one stands for all.
PLANTED = {
    "hash": (
        lambda run: edited(run, put("build_sha256", "1" * 64, kernel="naive", task="task1a", n=1024, block_x=16)),
        r"hashes: measurements.csv: \d rows of naive are of other sources",
    ),
    "hash of the machine code": (
        lambda run: edited(run, put("build_sha256", "1" * 64, kernel="dmma"), "instructions.csv"),
        "hashes: instructions: .* of dmma",
    ),
    "hash of a library": (
        lambda run: edited(run, put("build_sha256", "1" * 64, kernel="cublas", task="task1a", n=1024)),
        r"hashes: measurements.csv: \d rows of cublas are of other sources or another library",
    ),
    "rate above the roof": (
        lambda run: edited(run, faster),
        r"possible: .* tiled float 8192x8192x8192 .*: its rate is above the roof \(.*; the roof 76,935\)",
    ),
    "rate that is not that of the time": (
        lambda run: edited(run, put("gflops", lambda rate: rate * 1.001, kernel="tiled", dtype="float")),
        "possible: .*its rate is not that of its time",
    ),
    "times out of order": (
        lambda run: edited(run, put("time_q1_ms", lambda time: time * 2, kernel="kij", task="cpu")),
        "possible: .*contradict each other",
    ),
    "task": (without_task, "whole: it lacks the tasks task2b of the study"),
    "point": (
        lambda run: edited(run, lambda rows: rows[~((rows["kernel"] == "tiled") & (rows["tile"] == 8))]),
        r"files: .*/measurements.csv: it has 15 rows of task2a, which has measured 20 since",
    ),
    "a point too many": (
        lambda run: edited(run, put("n", 12345, task="task1a", kernel="naive", n=1024)),
        r"possible: measurements.csv: task1a naive float 12345x1024x1024 .*its rate is not that of its time",
    ),
    "setting": (
        lambda run: (run / "config.json").write_text((run / "config.json").read_text().replace("524", "525")),
        "whole: config.json: 'seed' is not as in config/config.yaml",
    ),
    "missing file": (lambda run: (run / "occupancy.csv").unlink(), "files: occupancy.csv: there is no such file"),
    "missing facts": (
        lambda run: (run / "facts/energy.csv").unlink(),
        "files: facts/energy.csv: there is no such file",
    ),
    "damaged file": (lambda run: cut(run / "traffic.csv"), r"files: .*/traffic.csv: "),
    "a config of no tasks": (
        lambda run: (run / "config.json").write_text('{"tasks": ["task1a"]}'),
        r"files: .*/config.json: this is not a config of tasks",
    ),
    "a config of an unknown method": (
        lambda run: (run / "config.json").write_text('{"tasks": {"task1a": {"method": "magic"}}}'),
        "whole: it lacks the tasks ",
    ),
    "a column of no schema": (
        lambda run: edited(run, lambda rows: rows.assign(mood=1), "facts/energy.csv"),
        "files: facts/energy.csv: its sha256 differs from that in ro-crate-metadata.json",
    ),
    "table of no run": (
        lambda run: (run / "notes.csv").write_text("a,b\n"),
        "files: notes.csv: a recorded run has no such file",
    ),
    "file of no run": (
        lambda run: (run / "notes.txt").write_text("hello"),
        "files: notes.txt: a recorded run has no such file",
    ),
    "status": (
        lambda run: edited(run, put("status", "incorrect", kernel="tiled", tile=8, dtype="float", n=1024)),
        "statuses: measurements.csv: task2a tiled float 1024x1024x1024 .*: 'incorrect'",
    ),
    "no status": (
        lambda run: edited(run, put("status", "great", kernel="tiled", tile=8, dtype="float", n=1024)),
        "statuses: .*: 'great'",
    ),
    "beside other work": (
        lambda run: edited(run, lambda rows: rows.assign(alone=rows["task"] != "task3")),
        "alone: task3: 144 of 144 points were measured beside other processes",
    ),
    "two commits": (
        lambda run: edited(run, put("commit", "0123456789", task="task3")),
        r"commit: it was measured by 2 states of the sources: \w{10} \(.*\); 0123456789 \(task3\)",
    ),
    "a commit with changes": (
        lambda run: edited(run, put("changes", "kernels/textbook/naive.cu", task="task1a")),
        r"commit: task1a: measured by no commit: \w{10} with changes in kernels/textbook/naive.cu",
    ),
    "an unknown commit": (
        lambda run: edited(run, put("commit", "0123456789")),
        "commit: this clone does not have the commit 0123456789",
    ),
    "path": (
        lambda run: edited(run, put("message", "see /home/bob/kernels/x.cu", status="invalid_launch")),
        "private: measurements.csv: '/home/bob/kernels/x.cu'",
    ),
    "name of a machine": (
        lambda run: edited(run, put("node", "bobs-pc", task="task3")),
        "private: measurements.csv: names of machines or jobs: bobs-pc",
    ),
    "samples": (
        lambda run: cut(run / "samples.tar.xz"),
        "files: samples.sha256: this is not the sha256 of samples.tar.xz",
    ),
    "a hash in the crate": (
        lambda run: replaced(run / "ro-crate-metadata.json", r'"sha256": "[0-9a-f]{8}', '"sha256": "00000000'),
        "files: accuracy.csv: its sha256 differs from that in ro-crate-metadata.json",
    ),
    "no crate": (lambda run: (run / "ro-crate-metadata.json").unlink(), "files: ro-crate-metadata.json: there is no"),
    "another platform": (
        lambda run: edited(run, put("platform", "nvidia-b200", task="task3")),
        "whole: device.json and measurements.csv: the platform is 'nvidia-b200', not 'nvidia-h200'",
    ),
    "another platform's device": (
        lambda run: replaced(run / "device.json", NAME, "nvidia-b200"),
        "whole: device.json and measurements.csv: the platform is 'nvidia-b200'",
    ),
    "a sweep without end": (
        lambda run: replaced(run / "config.json", r'"tasks": {', '"tasks": {"mine": {"sizes": [1, 1000000000]}, '),
        "whole: config.json: the tasks mine are not as in config/config.yaml",
    ),
    "a setting of no study": (
        lambda run: replaced(run / "config.json", r'"tasks": {', '"mood": 1, "tasks": {', 1),
        "whole: config.json: 'mood' is not as in config/config.yaml of the run's commit",
    ),
    "no size": (
        lambda run: edited(run, put("n", None, task="task2a", kernel="tiled", tile=8)),
        r"hashes: measurements.csv: \d+ rows of tiled are of other sources",
    ),
    "a size of nothing": (
        lambda run: edited(run, put("n", 0, task="task2a", kernel="tiled", tile=8)),
        r"possible: .*: task2a tiled float 0x\d+x\d+ block_x=8 block_y=8 tile=8: its rate is not that of its time",
    ),
    "an unknown element type": (
        lambda run: edited(run, put("dtype", "quad", task="task2a", kernel="tiled", tile=8)),
        "hashes: measurements.csv: 5 rows of tiled are of other sources",
    ),
    "no hash": (
        lambda run: edited(run, put("build_sha256", None, kernel="tiled", tile=8)),
        r"hashes: measurements.csv: \d+ rows of tiled are of other sources",
    ),
    "no rows": (
        lambda run: edited(run, lambda rows: rows.head(0)),
        "commit: measurements.csv: no rows, or most measured by no commit",
    ),
    "a link to a device": (
        lambda run: linked(run / "facts/energy.csv", "/dev/zero"),
        "files: .*/facts/energy.csv: it cannot be read: it is a device or a pipe",
    ),
    "a link to itself": (
        lambda run: linked(run / "measurements.csv", "measurements.csv"),
        "files: .*/measurements.csv: it cannot be read",
    ),
    "a folder instead of a file": (
        lambda run: (remove(run / "README.md"), (run / "README.md").mkdir()),
        "files: .*/README.md: it cannot be read: it is a folder",
    ),
    "a pipe": (
        lambda run: os.mkfifo(run / "pipe.csv"),
        "files: .*/pipe.csv: it cannot be read: it is a device or a pipe",
    ),
    "a hash that is no text": (
        lambda run: (run / "samples.sha256").write_bytes(b"\xff\xfe"),
        "files: samples.sha256: this is not the sha256 of samples.tar.xz",
    ),
}


#: What leaves the rest of a run as it is, and so is planted in one folder, where each is named; the others alone.
TOGETHER = [
    [
        "hash",
        "hash of the machine code",
        "hash of a library",
        "rate above the roof",
        "a point too many",
        "setting",
        "a sweep without end",
        "status",
        "beside other work",
        "two commits",
        "path",
        "name of a machine",
        "samples",
        "a column of no schema",
        "table of no run",
        "file of no run",
    ],
    [
        "times out of order",
        "a setting of no study",
        "no status",
        "no hash",
        "a commit with changes",
        "another platform",
        "a hash in the crate",
        "a hash that is no text",
    ],
]
ALONE = [[name] for name in PLANTED if not any(name in names for names in TOGETHER)]


@pytest.mark.parametrize("names", TOGETHER + ALONE, ids=", ".join)
def test_what_is_planted_in_a_recorded_folder_is_refused_by_name(names, recorded, capsys):
    for name in names:
        plant, _ = PLANTED[name]
        plant(recorded)
    assert main(["record", "--check", str(recorded)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{recorded}: refused"
    for name in names:
        _, said = PLANTED[name]
        assert [line for line in lines if re.match(f"  refused: {said}", line)], (name, lines)
    refused = {line.split()[1] for line in lines if line.startswith("  refused: ")}
    assert sorted(refused) == sorted(line.split()[2] for line in lines if line.startswith("  remedy of "))


def test_a_run_of_two_commits_is_not_recorded_and_the_old_one_stays(results, tmp_path, capsys):
    into = tmp_path / "kept"
    assert main(["record", str(results), "--into", str(into)]) == 0
    before = {path: path.read_bytes() for path in into.rglob("*") if path.is_file()}
    capsys.readouterr()
    edited(results, put("commit", "0123456789", task="task3"))
    edited(results, put("build_sha256", "1" * 64, kernel="multi_tile", task="task3"))
    assert main(["record", str(results), "--into", str(into)]) == 1
    said = capsys.readouterr().out
    assert said.startswith(f"{results}: not recorded\nrefused: ") and "0123456789 (task3)" in said
    assert "rows of multi_tile are of other sources" in said
    assert {path: path.read_bytes() for path in into.rglob("*") if path.is_file()} == before
    assert [path.name for path in into.iterdir()] == [NAME], "nothing is left over"


def test_damaged_results_are_named_where_they_lie(results, tmp_path, capsys):
    for name in ("facts/energy.csv", "accuracy.csv"):
        cut(results / name)
        assert main(["record", str(results), "--into", str(tmp_path / "kept")]) == 2
        said = f"{results}/{name}: the last line is cut short; delete the file and run again"
        assert capsys.readouterr().err == f"tilewise: {said}\n"


def test_a_study_that_this_version_does_not_read_is_not_blamed_on_the_run(recorded, monkeypatch, capsys):
    monkeypatch.delitem(check.METHODS, "energy")  # the run's commit has a task of a method that vanished since
    assert main(["record", "--check", str(recorded)]) == 1
    head, refused, remedy = capsys.readouterr().out.splitlines()
    assert head == f"{recorded}: refused" and remedy.startswith("  remedy of commit: ")
    words = r"this version does not read kernels and config of the commit \w{10} \(config: tasks.energy.method: .*\);"
    assert re.match(
        rf"  refused: commit: {words} check the run by its own version: `git switch --detach \w{{10}}`", refused
    )


def test_the_recorded_runs_are_right(capsys):
    assert main(["record", "--check"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["record", "{empty}"], "{empty}: it has no device.json, so it is not a run"),
        (["record", "--check", "{empty}"], "{empty}: it has no device.json, so it is not a run"),
        (
            ["record", "{begun}"],
            "{begun}: this run is not finished, it has no config.json yet; `make report` continues",
        ),
        (["record"], "record: name the folder of one run"),
        (["record", "--check", "--into", "{empty}"], "{empty}: no run is recorded there"),
        (["record", "{made}", "--into", "{made}/.."], "{made}: this is recorded already"),
    ],
)
def test_bad_input_is_one_message(words, said, made, tmp_path, capsys):
    (tmp_path / "begun").mkdir()
    shutil.copy(made / "device.json", tmp_path / "begun")
    (tmp_path / "empty").mkdir()
    places = {"empty": tmp_path / "empty", "made": made, "begun": tmp_path / "begun"}
    assert main([word.format(**places) for word in words]) == 2
    assert capsys.readouterr().err.startswith(f"tilewise: {said.format(**places)}")
