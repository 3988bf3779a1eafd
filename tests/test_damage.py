"""Each damaged input file yields one error message naming the file and the fix."""

import json
import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml
from builders import work_of
from clones import package_path
from snakemake.cli import parse_config
from snakemake.utils import update_config

from kernelscope.yaml_input import read_yaml
from tilewise import RECORDED, ROOT, UserError, checksums, configfiles, files, preflight, rules
from tilewise.evidence import PUBLISHED, load_platform, load_published
from tilewise.measure import task as measure
from tilewise.measure.journal import Journal
from tilewise.report import claims, tables
from tilewise.rules import Study
from tilewise.study import columns, registry
from tilewise.study import device as devices
from tilewise.study.points import point
from tilewise.study.schema import validate


def truncate(path):
    data = path.read_bytes()
    end = len(data) * 6 // 10
    if path.suffix == ".yaml":  # between two lines it may end and be valid, so it ends in the first word of one
        end = re.compile(rb"\n *(?=[^ #\n])").search(data, end).end() + 3
    path.write_bytes(data[:end])


def binary(path):
    path.write_bytes(bytes(range(256)) * 8)


def remove(path):
    path.unlink()


def folder(path):
    path.unlink()
    path.mkdir()


DAMAGES = {
    "truncated": truncate,
    "emptied": lambda path: path.write_bytes(b""),
    "binary": binary,
    "a number": lambda path: path.write_text("42\n"),
    "a list": lambda path: path.write_text("[1, 2]\n"),
    "missing": remove,
    "a folder": folder,
}


def study_of(path):
    configfiles.read(path)
    return Study(read_yaml(path), source=lambda _: str(path))


#: What is read: a name in the folder of `kept`, how it is read, and with which damages: every damage is there.
READ = {
    "config.yaml": (study_of, ("truncated", "a folder")),
    "quick.yaml": (
        lambda path: configfiles.check(["--cores", "1", "--configfile", str(path), "-n"]),
        ("binary", "missing"),
    ),
    "kernels/registry.yaml": (lambda path: registry.load(path.parent), ("a list", "binary")),
    "kernels/textbook/tiled.cu": (lambda path: registry.load(path.parents[1]), ("missing", "a folder")),
    "claims.yaml": (claims.load, ("emptied", "truncated")),
    "platform.json": (devices.read, ("a number", "emptied")),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder of all files that are read, undamaged."""
    place = tmp_path_factory.mktemp("whole")
    for name in ("config", "quick"):
        shutil.copy(ROOT / f"config/{name}.yaml", place)
    shutil.copy(ROOT / "report/claims.yaml", place)
    shutil.copytree(ROOT / "kernels", place / "kernels")
    shutil.copy(RECORDED / "nvidia-h200/device.json", place / "platform.json")
    return place


@pytest.mark.parametrize("name", READ)
def test_a_damaged_file_is_named(whole, tmp_path, name):
    read, damages = READ[name]
    for how in damages:
        place = shutil.copytree(whole, tmp_path / how)
        read(place / name)  # whole, it is read
        DAMAGES[how](place / name)
        before = sorted(path for path in place.rglob("*"))
        with pytest.raises(SystemExit) as ended, files.script(tmp_path / "log"):
            read(place / name)
        assert ended.value.code == 1
        assert sorted(path for path in place.rglob("*")) == before, "reading leaves everything as it was"
        message = (tmp_path / "log").read_text().strip()
        assert str(place / name) in message or name in message, message
        assert "\n" not in message and "Traceback" not in message and len(message) < 600, message
        assert ";" in message or ":" in message.partition(name)[2], "what is wrong, and the remedy"


#: Damages of a recorded run. At the start its hashes show any other; these are found where a run has none.
OF_A_RUN = {
    "device.json": ("truncated", "a list"),
    "config.json": ("binary", "emptied"),
    "measurements.csv": ("truncated", "a folder"),
    "facts/cold_start.csv": ("a number",),
    "tune/triton.csv": ("emptied",),
    "traffic.csv": ("binary",),
    "instructions.csv": ("a list",),
}


def test_a_damaged_recorded_file_is_named(tmp_path, kernels):
    run = shutil.copytree(RECORDED / "nvidia-h200", tmp_path / "nvidia-h200")
    for name, damages in OF_A_RUN.items():
        load_platform(run, recorded=True, kernels=kernels)
        for how in damages:
            DAMAGES[how](run / name)
            for recorded in (True, False):  # by its hash, and by what it holds
                with pytest.raises(UserError, match=f"^{run / name}: [^\n]+; [^\n]+$"):
                    load_platform(run, recorded=recorded, kernels=kernels)
            shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink()
            with pytest.raises(UserError, match=f"^{run / name}: there is no such file"):
                checksums.check_recorded(run)
            shutil.copy(RECORDED / "nvidia-h200" / name, run / name)
    lines = (run / "measurements.csv").read_text().splitlines(keepends=True)
    edits = {
        "a row removed": (lines[:-1], "rows of"),
        "a row doubled": ([*lines, lines[-1]], "1 rows repeat a point"),
        "marks of a merge": ([*lines, "<<<<<<< HEAD\n"], "this is a mark of a merge conflict"),
        "a size of many digits": (
            [lines[0], lines[1].replace(",1024,", f",{'1' * 23},", 1), *lines[2:]],
            "the column 'n' does not hold",
        ),
        "an endless time": (
            [lines[0], re.sub(r"\d+\.\d+", "inf", lines[1], count=1), *lines[2:]],
            "a time is not positive and finite",
        ),
        "a column of an older version": (
            [",".join(line.split(",")[:-1]) + "\n" for line in lines],
            "the column 'padded_multiply_adds' is missing; a run of another version of Tilewise is read by that",
        ),
    }
    for edit, words in edits.values():
        (run / "measurements.csv").write_text("".join(edit))
        for recorded, message in ((True, "its sha256 differs from that in ro-crate-metadata.json"), (False, words)):
            with pytest.raises(UserError, match=rf"^{run}/measurements.csv:[^\n]*{message}[^\n]*; [^\n]+$"):
                load_platform(run, recorded=recorded, kernels=kernels)


def linked_to_zeros(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def test_a_changed_published_figure_is_refused(tmp_path, kernels):
    folder = shutil.copytree(PUBLISHED, tmp_path / "published")
    load_published(folder, kernels)
    first = (PUBLISHED / "a.csv").read_text().splitlines(keepends=True)
    changes = {
        "a letter": lambda path: path.write_text(path.read_text().replace("3.628693", "3.6Z8693")),
        "negative": lambda path: path.write_text(path.read_text().replace("3.628693", "-3.628693")),
        "a row removed": lambda path: path.write_text("".join(first[:-1])),
        "a row doubled": lambda path: path.write_text("".join([*first, first[-1]])),
        "missing": remove,
        "a folder": DAMAGES["a folder"],
        "a link": linked_to_zeros,
    }
    for change in changes.values():
        change(folder / "a.csv")
        with pytest.raises(UserError, match=rf"^{folder}/a.csv: [^\n]+; [^\n]+$"):
            load_published(folder, kernels)
        shutil.rmtree(folder)
        shutil.copytree(PUBLISHED, folder)
    (folder / "f.csv").write_text((folder / "e.csv").read_text())
    with pytest.raises(UserError, match=r"f\.csv: remove this file: it has no sha256 in SHA256SUMS"):
        load_published(folder, kernels)


@pytest.mark.parametrize(
    ("field", "value"), [("gpu", []), ("gpu", {}), ("gpu", None), ("limits", "many"), ("platform", 5)]
)
def test_a_field_of_another_type_is_named(whole, tmp_path, field, value):
    path = tmp_path / "device.json"
    path.write_text(json.dumps(json.loads((whole / "platform.json").read_text()) | {field: value}))
    with pytest.raises(UserError, match=rf"^{path}: {field}[^\n]*; delete the file and run again"):
        devices.read(path)


UNREAD = "this is not JSON [^\n]*"
DEEP = "more than 50 lists and objects within each other"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("1" * 10_000, UNREAD),
        ("[" * 60 + "]" * 60, DEEP),
        ("[" * 5000 + "]" * 5000, f"({UNREAD}|{DEEP})"),  # Python 3.11 does not read it, Python 3.12 does
        ("[" * 1_000_000, UNREAD),
    ],
    ids=["of many digits", "deep", "deeper", "deepest"],
)
def test_a_device_that_python_cannot_read_is_named(tmp_path, value, why):
    path = tmp_path / "device.json"
    path.write_text(f'{{"gpu": {value}}}')
    with pytest.raises(UserError, match=rf"^{path}: {why}; delete the file and run again"):
        devices.read(path)


def test_tuned_parameters_are_blamed_on_their_file(whole, tmp_path):
    kernels = shutil.copytree(whole / "kernels", tmp_path / "kernels")
    (kernels / "tuned.yaml").write_text("nvidia-h200: {tiled: {float: {large: {tile: 0}}}}")
    with pytest.raises(UserError, match=r"tuned.yaml: nvidia-h200.tiled.float.large.tile: 0; tiled takes a whole"):
        registry.load(kernels)


SPOILT = {
    "bytes that are no text": b'\xff\xfe\x00{"key": "a"\n',
    "a number": b"42\n",
    "a list": b"[1, 2]\n",
    "an object without a key": b'{"row": {"status": "ok"}}\n',
    "an object without a row": b'{"key": "a"}\n',
    "a row that is a list": b'{"key": "a", "row": [1]}\n',
    "a row without its fields": b'{"key": "a", "row": {"n": 1}}\n',
    "a key that is a list": b'{"key": [1], "row": {"status": "ok"}}\n',
    "half a line": b'{"key": "a", "row": {"sta',
    "zeros": bytes(512) + b"\n",
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_line_of_a_journal_costs_no_other(tmp_path, name):
    path = tmp_path / "task.jsonl"
    good = [json.dumps({"key": key, "row": {"status": "ok", "n": 3}}).encode() + b"\n" for key in "xy"]
    path.write_bytes(good[0] + SPOILT[name] + b"\n" + good[1])
    with Journal(path) as journal:
        assert journal.rows == {key: {"status": "ok", "n": 3} for key in "xy"}
        journal.add("z", {"status": "ok"})
    with Journal(path) as journal:
        assert set(journal.rows) == set("xyz")
    assert path.read_bytes().startswith(good[0] + SPOILT[name]), "nothing is removed"


def test_a_row_that_lost_fields_is_measured_again(tmp_path, device, config, kernels):
    points = [point("t", "naive", "float", n, 5, 6, block_x=8, block_y=8) for n in (3, 4)]
    work = work_of(points, kernels, device, config, tmp_path)
    before, _ = measure.measure_task(work)
    lines = [json.loads(line) for line in work.journal.read_text().splitlines() if line]
    del lines[0]["row"]["bound_ratio"]
    work.journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    after, facts = measure.measure_task(work)
    assert after.equals(before) and facts.remembered[0] == 1


def test_a_folder_in_place_of_a_journal_is_named(tmp_path):
    (tmp_path / "task.jsonl").mkdir()
    with pytest.raises(UserError, match=r"task.jsonl: this is not a file; remove it"), Journal(tmp_path / "task.jsonl"):
        pass


def test_a_full_disk_is_named_and_what_is_whole_is_kept(tmp_path, monkeypatch):
    (tmp_path / "task.jsonl").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"task.jsonl: it cannot be written: No space left on device; make room"):
        monkeypatch.setattr(measure.Path, "is_file", lambda path: False)
        monkeypatch.setattr(measure.Path, "exists", lambda path: False)
        with Journal(tmp_path / "task.jsonl") as journal:
            journal.add("a", {"status": "ok"})
    monkeypatch.undo()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    table = columns.frame([], "sweep")
    files.write_csv(table, tmp_path / "table.csv")
    before = (tmp_path / "table.csv").read_text()
    monkeypatch.setattr(type(table), "to_csv", full)
    with pytest.raises(SystemExit), files.script(tmp_path / "log"):
        files.write_csv(table, tmp_path / "table.csv")
    said = (tmp_path / "log").read_text()
    assert "table.csv: it cannot be written: No space left on device; make room on the disk" in said
    assert (tmp_path / "table.csv").read_text() == before
    assert not list(tmp_path.glob(".table*")), "nothing is left behind"


@pytest.mark.parametrize("value", [".inf", "-.inf", ".nan", "1.0e+300", "0", "-1", "text", "[]"])
@pytest.mark.parametrize("key", ["min_time_s", "max_noise_percent", "point_limit_s"])
def test_a_limit_is_a_number_that_makes_sense(config, key, value):
    edited = config | {"timing": config["timing"] | {key: yaml.safe_load(value)}}
    with pytest.raises(UserError, match=f"^config: timing.{key}"):
        validate(edited, "config", "config")


@pytest.mark.parametrize("place", ["seed", "emulator.memory_bytes", "timing.min_samples", "cpu.samples"])
def test_a_count_is_not_endless(config, place):
    edited = json.loads(json.dumps(config))
    *keys, last = place.split(".")
    inner = edited[keys[0]] if keys else edited
    for value, says in ((10**300, "maximum"), (1e300, "not of type 'integer'"), (16.0, "not of type 'integer'")):
        inner[last] = value
        with pytest.raises(UserError, match=f"^config: {place}: .*{says}"):
            validate(edited, "config", "config")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seed: 1\nseed: 2\n", r"more.yaml:2: the key 'seed' occurs twice"),
        ("seed: [1\n", r"more.yaml:2: .*brackets"),
        ("seed: 1\nrepeats:\t1\n", r"more.yaml:2: .*found character '\\t' that cannot start any token; look at keys"),
        ("timing:\n\trepeats: 1\n", r"more.yaml:2: .*found character '\\t' that cannot start any token; look at"),
        ("seed: 2020-13-45\n", r"more.yaml:1: a malformed value of type timestamp: month must be"),
        ("? [a]\n: b\n", r"more.yaml:1: a key must be text"),
        ("- 1\n", r"more.yaml: a config holds keys with values"),
        ("", r"more.yaml: a config holds keys with values"),
        ("a: " + "[" * 3000, r"more.yaml:1: more than 50 lists and mappings within each other"),
        ("a: &a\n  b: *a\n", r"more.yaml:2: \*a stands within &a, so it has no end; write the values themselves"),
    ],
)
def test_a_broken_configfile_is_named(tmp_path, text, says):
    (tmp_path / "more.yaml").write_text(text)
    with pytest.raises(UserError, match=says) as raised:
        configfiles.check(["task3", "--configfile", str(tmp_path / "more.yaml")])
    assert len(str(raised.value).splitlines()) == 1


def test_json_may_be_indented_by_tabs(tmp_path):
    (tmp_path / "more.json").write_text('{\n\t"seed":\t1\n}\n')
    configfiles.check(["task3", "--configfile", str(tmp_path / "more.json")])


def test_a_target_that_is_taken_for_a_configfile_is_named():
    with pytest.raises(UserError, match="task3 was taken for a config file; name targets before --configfile"):
        configfiles.check(["--configfile", "config/quick.yaml", "task3"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--cores 0", "--cores 0: a run needs at least one; write a number from 1 on, or all"),
        ("-c0", "--cores 0: a run needs at least one"),
        ("--cores -1", "--cores -1: a run needs at least one"),
        ("-j0", "--jobs 0: a run needs at least one; write a number from 1 on, or unlimited"),
        ("--config seed", "--config seed: a value is missing; write a name with one"),
        ("--config timing.repeats=1", r"braces: --config 'timing={repeats: 1}'"),
        ("--config cpu.repeat_s.gpu=1", r"braces: --config 'cpu={repeat_s: {gpu: 1}}'"),
        (
            "--config timing={repeats: 1}",
            r"the shell divides words at blanks; .* example --config 'timing=",
        ),
        ("-C seed=0524", "--config seed=0524: 0524 is 340 in YAML"),
        ("--configfile /dev/zero", "/dev/zero: it cannot be read: it is a device or a pipe, not a file"),
        ("--configfile PIPE.yaml", "PIPE.yaml: it cannot be read: it is a device or a pipe, not a file"),
        ("--configfile LARGE.yaml", "LARGE.yaml: it cannot be read: it has 1000000000000 bytes, of which"),
    ],
)
def test_an_option_that_cannot_work_is_named_at_once(tmp_path, monkeypatch, options, says):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("PIPE.yaml")
    with open("LARGE.yaml", "wb") as large:  # without a block on the disk
        large.truncate(10**12)
    with pytest.raises(UserError, match=says) as raised:
        configfiles.check(["task3", *options.split()])
    assert len(str(raised.value).splitlines()) == 1


def test_options_that_work_are_taken():
    configfiles.check("--cores all -j unlimited --config strict=true seed=3 -- task3".split())
    configfiles.check(["-c4", "-j", "8", "--config", "timing={repeats: 1}"])
    configfiles.check(["--cores", "--dry-run"])


def settled(tmp_path, config, words=(), **files):
    """A config under config files and words of --config, as Snakemake merges them, and where its values come from."""
    paths = [tmp_path / f"{name}.yaml" for name in files]
    for path, text in zip(paths, files.values()):
        path.write_text(text)
    merged = json.loads(json.dumps(config))
    for layer in (*map(read_yaml, paths), parse_config(words)):
        update_config(merged, layer)
    settings = SimpleNamespace(configfiles=paths, config_args=list(words))
    return merged, configfiles.settle(merged, [*paths, ROOT / "config/config.yaml"], settings)


@pytest.mark.parametrize(
    ("word", "place", "value"),
    [
        ("strict=true", "strict", True),
        ("strict=True", "strict", True),
        ("seed=5", "seed", 5),
        ("timing={repeats: 1}", "timing.repeats", 1),
        ('machine_code={capability: "9.0"}', "machine_code.capability", "9.0"),
        ("cpu={repeat_s: {gpu: 0.5}}", "cpu.repeat_s.gpu", 0.5),
    ],
)
def test_values_of_the_command_line_have_their_types(tmp_path, config, word, place, value):
    merged, source = settled(tmp_path, config, [word])
    validate(merged, "config", source)
    for key in place.split("."):
        merged = merged[key]
    assert merged == value and type(merged) is type(value)
    assert source(place) == "--config" and source("energy.seconds") == os.path.relpath(ROOT / "config/config.yaml")


def test_a_config_file_with_one_key_replaces_one_value(tmp_path, config):
    merged, source = settled(tmp_path, config, one="timing: {repeats: 1}\n")
    assert merged == config | {"timing": config["timing"] | {"repeats": 1}}
    assert source("timing.repeats").endswith("one.yaml") and source("timing.timeout_s").endswith("config.yaml")


@pytest.mark.parametrize(
    ("words", "files", "says"),
    [
        (["timing={repeats: x}"], {}, "--config: timing.repeats: 'x' is not of type 'integer'"),
        (["timing={repaets: 1}"], {"one": "seed: 3\n"}, "--config: timing: unknown key 'repaets'"),
        (["seed=3"], {"one": "timing: {repeats: x}\n"}, "one.yaml: timing.repeats: 'x' is not"),
        ([], {"one": "timing: 5\n", "two": "seed: 3\n"}, "one.yaml: timing: 5 is not of type 'object'"),
        ([], {"one": "tasks: {tpyo: null}\n"}, "one.yaml: tasks.tpyo: there is no such task to leave out; `tile"),
        (["tasks={tsak3: null}"], {}, "--config: tasks.tsak3: .*did you mean 'task3'"),
    ],
)
def test_a_mistake_is_blamed_on_the_file_that_has_it(tmp_path, config, words, files, says):
    with pytest.raises(UserError, match=says):
        Study(*settled(tmp_path, config, words, **files))


@pytest.mark.parametrize("name", ["report", "results", "figures", "checks", "claims", "measure"])
def test_a_task_or_platform_is_not_called_like_a_folder_or_a_table(config, name):
    tasks = config["tasks"] | {name: config["tasks"]["task3"]}
    with pytest.raises(UserError, match=rf"config.yaml: tasks.{name}: the study has a rule, a table or a fold"):
        Study(config | {"tasks": tasks}, reserved={*tables.TABLES, *tables.PAGE_FIGURES})
    if name in rules.FOLDERS:
        with pytest.raises(UserError, match=rf"config.yaml: platforms.{name}: results/ has a folder of that name"):
            Study(config | {"platforms": {name: {"backend": "emulator"}}})


@pytest.mark.parametrize(("what", "says"), [("file", "a file, not a folder"), ("link", "a link to nothing.here")])
def test_results_that_cannot_be_a_folder_are_named(tmp_path, monkeypatch, what, says):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "results"
    path.symlink_to("nothing.here") if what == "link" else path.touch()
    with pytest.raises(UserError, match=f"results: this is {says}"):
        files.check_writable(".", "results")


PRINTS = """
import logging, pathlib
from tilewise.files import script
with script("log"):
    print("16 × 64")
    logging.getLogger("tilewise").info("µs")
    pathlib.Path("made").write_text("mine")
"""


@pytest.mark.parametrize("closed", ["", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("locale", [{}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_a_script_prints_every_letter_into_its_log_whatever_is_closed(tmp_path, closed, locale):
    (tmp_path / "prints.py").write_text(PRINTS, encoding="utf-8")
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "prints.py"]
    environment = os.environ | locale | {"PYTHONPATH": package_path(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=60)
    assert done.returncode == 0 and not done.stdout + done.stderr, done.stderr
    said = (tmp_path / "log").read_text(encoding="utf-8")
    assert "16 × 64\n" in said and " µs\n" in said and (tmp_path / "made").read_text() == "mine"


def test_a_folder_of_another_user_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(files.os, "access", lambda path, mode: path != tmp_path)  # as root, all is allowed
    files.check_writable(str(tmp_path / "results"), "/")
    with pytest.raises(UserError, match=f"{tmp_path}: it belongs to {tmp_path.owner()}, and you cannot write there"):
        files.check_writable(str(tmp_path))


def test_files_are_as_open_to_others_as_the_umask_says(tmp_path):
    """Two users of a group work in one clone with a umask of 002; another one keeps all to herself with 077."""
    for umask, mode in ((0o002, 0o664), (0o077, 0o600)):
        before = os.umask(umask)
        try:
            files.write_json({}, tmp_path / f"{umask}.json")
        finally:
            os.umask(before)
        assert (tmp_path / f"{umask}.json").stat().st_mode & 0o777 == mode


def test_published_and_claims_are_checked_before_a_run(kernels, monkeypatch, tmp_path):
    preflight.check(kernels, remote=True)
    folder = shutil.copytree(PUBLISHED, tmp_path / "published")
    rows = (folder / "a.csv").read_text().splitlines(keepends=True)
    (folder / "a.csv").write_text("".join(row for row in rows if "Table 3" not in row))
    monkeypatch.setattr(load_published, "__defaults__", (folder, None))
    with pytest.raises(UserError, match=r"a\.csv: its sha256 differs from that in SHA256SUMS"):
        preflight.check(kernels, remote=True)
    monkeypatch.undo()
    entries = claims.load()
    entries[3]["quantity"] = "time(kernle='naive')"
    monkeypatch.setattr(claims, "load", lambda: entries)
    with pytest.raises(UserError, match=rf"report/claims.yaml: {entries[3]['id']}.quantity: .*kernle"):
        preflight.check(kernels, remote=True)
