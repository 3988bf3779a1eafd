"""What a run shows: how far it is, lines in a pipe, a bar in a terminal, the cause of a failure, and how it ended."""

import fcntl
import io
import json
import logging
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from types import SimpleNamespace

import pyte
import pytest
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.registry import LoggerPluginRegistry

import snakemake_logger_plugin_tilewise as plugin
from tilewise import outcome, progress, stopping
from tilewise.measure.row_summary import row_summary
from tilewise.outcome import BESIDE

SETTINGS = dict.fromkeys(["dryrun", "verbose", "printshellcmds", "debug_dag", "quiet", "stdout", "nocolor"])
ROW = {"status": "ok", "message": "", "time_ms": 12.345, "gflops": 98765.4, "noise": 0.0123, "bound_ratio": 0.004}
POINT = ROW | {"kernel": "naive", "dtype": "float", "n": 8, "p": 8, "m": 8}
COUNTS = {"measure": 2, "page": 1}


def event(kind, level=logging.INFO, text="", **details):
    record = logging.LogRecord("snakemake", level, "", 0, text, (), None)
    record.__dict__ |= {"event": kind} | details
    return record


def starts(number, task="task1a", rule="measure", local=True):
    wildcards = {"platform": "emulator", "task": task} if rule == "measure" else {}
    files = {"input": [], "output": [], "log": ["the.log"]}
    return event(LogEvent.JOB_INFO, jobid=number, rule_name=rule, wildcards=wildcards, local=local, **files)


def fails(number, message=None, *more):
    return event(LogEvent.JOB_ERROR, logging.ERROR, jobid=number, rule_msg=message, log=["the.log", *more])


def job(task="task1a", began=None):
    found = progress.Job("measure", {"platform": "emulator", "task": task})
    found.began = found.began if began is None else began
    return found


def add_points(count, task="task1a", **values):
    line = json.dumps({"key": "k", "row": POINT | values})
    with open(f"results/emulator/journal/{task}.jsonl", "a") as journal:
        journal.write(f"\n{line}\n" * count)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty clone, whose tasks have ten points each that take 30 s together."""
    monkeypatch.chdir(tmp_path)
    tasks = {("measure", "emulator", task): (30.0, 10) for task in ("task1a", "task2a")}
    monkeypatch.setattr(progress, "EXPECTED", tasks | {("page", "", ""): (20.0, 0)})
    monkeypatch.setattr(stopping, "_received", [])
    monkeypatch.setattr(stopping, "install_signal_handlers", lambda: None)
    monkeypatch.setattr(sys, "argv", ["snakemake"])
    (tmp_path / "results/emulator/journal").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def handler(monkeypatch):
    """The plugin as Snakemake makes it, with a pipe for a screen, whose text is `handler.stream.getvalue()`."""
    monkeypatch.setattr(plugin, "PAUSE_S", 0.2)
    monkeypatch.setattr(plugin, "LOOK_S", 0.02)
    handler = plugin.LogHandler(SimpleNamespace(**SETTINGS), None)
    handler.console.file = handler.stream = io.StringIO()
    handler.emit(event(LogEvent.WORKFLOW_STARTED))
    return handler


def ended(handler):
    """The lines that were shown, once the run has ended."""
    handler.close()
    handler.close()
    return handler.stream.getvalue().splitlines()


# ---- How far, and how long ------------------------------------------------------------------------------------------


def test_a_tasks_journal_tells_its_points_beside_those_of_an_earlier_run():
    add_points(4)
    task = job()
    assert (task.done, task.points, task.now) == (0, 6, "")
    add_points(1)
    with open("results/emulator/journal/task1a.jsonl", "a") as journal:
        journal.write('{"key": "half a li')
    task.look()
    assert (task.done, task.points) == (1, 6)
    assert task.now == " naive float 8x8x8: ok, 12.35 ms, 98,765.4 GFLOP/s, noise 1.2 %, error 0.004 of its bound"


def test_the_time_left_follows_the_pace_of_parallel_jobs_and_is_not_said_before_it_is_known():
    run = progress.Run(COUNTS)
    run.began = 0
    assert run.look(0) == (0, ""), "two tasks and a page"
    run.jobs |= {number: job(task, began=0) for number, task in enumerate(("task1a", "task2a"))}
    assert run.look(1)[1] == ""
    assert run.look(2.5) == (pytest.approx(5 / 80), "about 1 min left"), "both are at work"
    looks = [run.look(seconds) for seconds in range(0, 60, 5)]
    assert looks == sorted(looks, key=lambda look: look[0]), "the bar does not go back"
    for number in (0, 1):
        run.finished.append(run.jobs.pop(number))
    assert run.look(600) == (0.75, "about 3 min left"), "ten times as slow as expected: the page too"


def test_the_time_in_which_all_jobs_wait_in_slurm_is_no_pace():
    run = progress.Run(COUNTS)
    run.began = run.looked = 0
    run.finished.append(job("task1a"))
    run.jobs[0] = job("task2a", began=0)
    run.jobs[0].waits = True
    left = {run.look(seconds)[1] for seconds in range(0, 3600, 60)}
    run.jobs[0].waits = False
    assert left | {run.look(3600)[1]} == {"about 1 min left"}


def test_the_trace_reports_its_points(monkeypatch, folder):
    monkeypatch.setattr(progress, "EXPECTED", {("trace", "", ""): (60.0, 20)})
    (folder / "results/journal").mkdir()
    run = progress.Run({"trace": 1})
    assert (run.look(run.began), run.seconds()) == ((0, ""), 60)
    run.jobs[0] = progress.Job("trace", {})
    line = json.dumps({"key": "k", "row": POINT | {"status": "ok", "traffic": {"races": 0}, "faults": []}})
    (folder / "results/journal/trace.jsonl").write_text(f"\n{line}\n" * 5)
    assert run.look(run.began)[0] == 0.25
    assert run.at_work(1)[0].startswith("trace 5/20 naive float 8x8x8: ok")
    (folder / "results/journal/trace.jsonl").write_text(f"\n{line}\n" * 20)
    assert progress.Job("trace", {}).points == 20, "a kernel was edited since: all is traced again"


def test_a_long_job_whose_points_nobody_knows_is_not_forgotten(monkeypatch, folder):
    monkeypatch.setattr(progress, "EXPECTED", {("measure_tune", "emulator", ""): (20.0, 0)})
    run = progress.Run({"measure_tune": 1})
    run.jobs[0] = progress.Job("measure_tune", {"platform": "emulator"})
    run.jobs[0].began = 0
    assert run.look(10)[0] == 0.5
    assert run.look(100)[0] == 0.9, "it is not done yet"
    assert run.at_work(1) == ["tune"]
    add_points(7, "tune")
    assert run.look(100)[0] == 0.9
    assert run.at_work(1)[0].startswith("tune 7 naive float 8x8x8: ok")


def test_the_task_whose_journal_grew_last_is_shown_first():
    run = progress.Run(COUNTS)
    run.jobs |= {number: job(task) for number, task in enumerate(("task1a", "task2a"))}
    for task, other in (("task1a", "task2a"), ("task2a", "task1a"), ("task1a", "task2a")):
        add_points(1, task)
        run.look(run.began)
        assert run.at_work(1) == [str(next(job for job in run.jobs.values() if job.task == task)), "and 1 more"]
        assert run.at_work(2)[1].startswith(f"{other} ")


def test_a_job_that_slurm_has_not_started_is_not_at_work_and_its_time_does_not_run(handler):
    handler.run = run = progress.Run(COUNTS)
    run.jobs[0] = job(began=run.began - 100)
    handler.emit(event(None, text="jobs that wait in Slurm: 1: Priority", waiting={0: "Priority"}))
    assert run.look(time.time())[0] == 0 and run.at_work(1) == []
    handler.emit(event(None, text="", waiting={}))
    assert run.at_work(1) == ["task1a 0/10"] and run.look(time.time())[0] < 0.01
    assert ended(handler)[0] == "jobs that wait in Slurm: 1: Priority"


def test_a_finished_point_in_a_line():
    assert row_summary(ROW) == "ok, 12.35 ms, 98,765.4 GFLOP/s, noise 1.2 %, error 0.004 of its bound"
    failed = {"status": "timeout", "message": "not done\nafter 5 s", "time_ms": None}
    assert row_summary(failed) == "timeout: not done after 5 s"


# ---- A pipe ---------------------------------------------------------------------------------------------------------


def test_the_plugin_is_found_and_is_every_runs():
    assert LoggerPluginRegistry().get_plugin("tilewise").log_handler is plugin.LogHandler


def test_in_a_pipe_a_line_tells_the_point_without_escape_codes(handler, folder):
    (folder / "results/report.html").touch()
    handler.emit(event(LogEvent.RUN_INFO, stats=COUNTS | {"total": 3}))
    handler.emit(starts(0))
    add_points(5)
    for _ in range(200):
        if "5/10" in handler.stream.getvalue():
            break
        time.sleep(0.05)
    handler.emit(event(None, logging.WARNING, "the disk is nearly full"))
    handler.emit(event(LogEvent.JOB_FINISHED, job_id=0))
    *_, point, warning, last = ended(handler)
    assert point.startswith("0:00:0") and "task1a 5/10 naive float 8x8x8: ok, 12" in point
    assert warning == "the disk is nearly full"
    assert last.startswith("done in 0:00:0") and last.endswith(
        f"; the report is {folder / 'results/report.html'}{BESIDE}"
    )
    assert "\x1b" not in handler.stream.getvalue() and "\r" not in handler.stream.getvalue()


def test_a_run_says_at_its_start_how_long_it_takes(handler):
    handler.emit(event(LogEvent.RUN_INFO, stats=COUNTS | {"total": 3}))
    assert ended(handler)[0] == "this run is about 1 min of work"


@pytest.mark.parametrize("slurms", [False, True])
def test_a_failure_is_told_once_with_its_cause_and_its_log(handler, folder, slurms):
    handler.emit(event(LogEvent.RUN_INFO, stats=COUNTS | {"total": 3}))
    (folder / "slurm.log").touch()
    for number, more in enumerate(([], ["slurm.log"])):  # it was tried again, with one more log
        handler.emit(starts(0))
        (folder / "the.log").write_text("10:00:01 1/9 a: ok\n\ntilewise: kernels/a.cu:7: 'zero' is not declared\n")
        handler.emit(event(LogEvent.ERROR, logging.ERROR, "RuleException:\nCalledProcessError in file x, line 3"))
        handler.emit(fails(0, f"SLURM-job '{number}' failed." if slurms else None, *more))
    handler.emit(event(LogEvent.ERROR, logging.ERROR, "At least one job did not complete successfully."))
    assert ended(handler)[1:] == [
        "measure task1a on emulator failed:",
        *(["SLURM-job '0' failed."] if slurms else []),
        "kernels/a.cu:7: 'zero' is not declared",
        "(the.log; docs/cluster.md explains Slurm's answers)" if slurms else "(the.log)",
        "1 failed, see above; the same command continues this run",
    ]


def test_a_bug_shows_the_end_of_its_traceback_a_kill_snakemakes_words_and_slurm_its_own(handler, folder):
    handler.emit(event(LogEvent.RUN_INFO, stats=COUNTS | {"total": 3}))
    handler.emit(starts(0))
    (folder / "the.log").write_text('Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 7\n')
    handler.emit(fails(0))
    (folder / "the.log").write_text("")
    handler.emit(starts(1, "task2a"))
    handler.emit(event(LogEvent.ERROR, logging.ERROR, "RuleException:\ndied with <Signals.SIGKILL: 9>."))
    handler.emit(fails(1))
    handler.emit(starts(2, rule="page", local=False))
    handler.emit(fails(2, "SLURM sbatch failed. The error message was 'invalid partition'.\n    sbatch call: sbatch"))
    said = "\n".join(ended(handler))
    assert 'task1a on emulator failed:\nFile "a.py", line 1\nKeyError: 7\n' in said
    assert "task2a on emulator failed:\nRuleException:\ndied with <Signals.SIGKILL: 9>.\n" in said
    assert "page failed:\nSLURM sbatch failed. The error message was 'invalid partition'.\n(the.log; docs" in said


def test_a_stopped_run_says_so_at_once_and_how_to_go_on_and_calls_nothing_failed(handler, monkeypatch):
    handler.emit(event(LogEvent.RUN_INFO, stats=COUNTS | {"total": 3}))
    handler.emit(starts(0))
    monkeypatch.setattr(stopping, "_received", [2])
    handler.emit(event(LogEvent.ERROR, logging.ERROR, "RuleException:\nCommand 'x' died with <Signals.SIGINT: 2>."))
    handler.emit(fails(0))
    assert ended(handler)[1:] == [
        "stopping: what was measured is kept",
        "stopped; the same command continues this run",
    ]


def test_a_run_with_nothing_to_do_names_the_page(handler, folder):
    (folder / "results/report.html").touch()
    handler.emit(event(None, text="Nothing to be done (all requested files are present and up to date)."))
    assert ended(handler) == [f"nothing to be done; the report is {folder / 'results/report.html'}{BESIDE}"]


def test_before_a_run_and_without_one_snakemakes_words_are_shown(handler):
    handler.begun = False
    handler.emit(event(None, text="Assuming unrestricted shared filesystem usage."))
    handler.emit(event(None, text="Unlocked working directory."))
    handler.emit(event(LogEvent.ERROR, logging.ERROR, "MissingRuleException: no rule"))
    assert ended(handler) == ["Unlocked working directory.", "MissingRuleException: no rule"]


def test_a_target_that_does_not_exist_is_answered_with_the_tasks(handler, monkeypatch):
    monkeypatch.setattr(progress, "EXPECTED", {("measure", "fast", "task3"): (5.0, 2), ("trace", "", ""): (9.0, 0)})
    words = "MissingRuleException:\nNo rule to produce Task3 (if you use input functions make sure that they ...)."
    handler.emit(event(LogEvent.ERROR, logging.ERROR, words, exception="MissingRuleException"))
    tasks = "The tasks are task3; other targets are files in results/."
    assert ended(handler) == ["there is no target Task3; did you mean task3?", tasks]
    for target, hint in {
        "results/fast/x.csv": "",
        "results/fast/tables/tsk3.csv": "; did you mean results/fast/tables/task3.csv?",
        "results/other/tables/task3.csv": "",  # a platform that there is not
        "batches": "; this run's config leaves this task out: type it without --configfile",
    }.items():
        said = outcome.unknown_target_message(f"No rule to produce {target} (if", ["task3"]).splitlines()
        assert said == [f"there is no target {target}{hint}", tasks]


def test_an_error_of_no_job_is_told(handler):
    handler.emit(event(LogEvent.RUN_INFO, stats=COUNTS | {"total": 3}))
    handler.emit(event(LogEvent.ERROR, logging.ERROR, "WorkflowError: the scheduler is lost"))
    assert ended(handler)[1:] == ["WorkflowError: the scheduler is lost"]


def test_a_page_that_lacks_a_piece_is_no_failed_job(handler, folder):
    (folder / "results/notes.json").write_text('["figure task3: no rows"]')
    handler.emit(event(LogEvent.RUN_INFO, stats={"outcome": 1, "total": 1}))
    handler.emit(starts(0, rule="outcome"))
    handler.emit(fails(0))
    handler.emit(event(LogEvent.ERROR, logging.ERROR, "At least one job did not complete successfully."))
    assert ended(handler)[1:] == [
        "the report lacks a piece: figure task3: no rows",
        "ended after 0:00:00 with exit status 1",
    ]


def test_a_dry_run_looks_as_snakemakes_own(capsys):
    handler = plugin.LogHandler(SimpleNamespace(**SETTINGS | {"dryrun": True, "stdout": True}), None)
    assert not handler.has_filter and not handler.has_formatter, "Snakemake adds its own"
    handler.emit(event(None, text="Building DAG of jobs..."))
    assert "Building DAG of jobs..." in capsys.readouterr().out


# ---- How it ended ---------------------------------------------------------------------------------------------------


def test_the_end_of_a_run_counts_what_is_not_right_and_repeats_the_pages_notes(handler, folder):
    rows = ["naive,ok", "mine,incorrect", "mine,incorrect", "big,timeout", "dmma,unsupported", "wide,invalid_launch"]
    (folder / "results/emulator/measurements.csv").write_text("\n".join(["kernel,status", *rows]))
    (folder / "results/old").mkdir()
    (folder / "results/old/measurements.csv").write_text("kernel,status\nmine,incorrect\n")
    (folder / "results/notes.json").write_text('["figure task3: no rows"]')
    assert ended(handler) == [
        "3 of 6 points are not right: mine incorrect (2), big timeout (1); see What failed and why in the report",
        "the report lacks a piece: figure task3: no rows",
        "nothing to be done",
    ]


def test_faults_of_kernels_are_told_at_once_and_not_those_on_purpose_or_remarks(handler, folder, monkeypatch):
    monkeypatch.setattr(outcome, "ON_PURPOSE", {"kernels/wrong.cu"})
    race, remark = "a.cu:7: error: race: two threads", "a.cu:9: remark: read before it was written: thread 0"
    order = "b.cu: error: result depends on the order of threads"
    (folder / "logs").mkdir()
    (folder / "logs/trace.log").write_text(
        f"{remark}\nkernels/wrong.cu:3: error: race\n{race}\na.cu:8: error: more\n{order}\n"
    )
    handler.emit(event(LogEvent.RUN_INFO, stats={"trace": 1, "total": 1}))
    handler.emit(starts(0, rule="trace"))
    handler.emit(event(LogEvent.JOB_FINISHED, job_id=0))
    assert ended(handler)[1:3] == [f"{race} (all faults: logs/trace.log)", f"{order} (all faults: logs/trace.log)"]


# ---- A script -------------------------------------------------------------------------------------------------------


SCRIPT = """
import logging, os, sys
from tilewise import UserError, files
with files.script(sys.argv[1]):
    logging.getLogger("tilewise.measure.task").info("1/2 a point")
    os.write(1, b"a library's words\\n")
    raise UserError("a.cu:1: wrong; correct it")
"""


def test_a_script_tells_its_log_and_leaves_the_screen_to_snakemake(tmp_path):
    log = tmp_path / "logs/task.log"
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", SCRIPT, log], env=variables, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (1, "")
    first, *rest = log.read_text().splitlines()
    assert first.endswith(" 1/2 a point") and rest == ["a library's words", "", "tilewise: a.cu:1: wrong; correct it"]
    assert outcome.cause(log) == "a.cu:1: wrong; correct it"
    assert outcome.cause(log, since=time.time() + 9) == "", "the log of an earlier run"


# ---- A terminal -----------------------------------------------------------------------------------------------------

#: A run of twelve tasks and twenty builds at once, whose points have long names.
SHOW = """
import logging, pathlib, sys, time
from types import SimpleNamespace
import snakemake_logger_plugin_tilewise as plugin
from snakemake_interface_logger_plugins.common import LogEvent
from tilewise import progress
from test_progress import SETTINGS, add_points, event, starts
sys.argv[1:] = []
progress.EXPECTED |= {("measure", "emulator", f"task{number}"): (10, 4) for number in range(12)}
handler = plugin.LogHandler(SimpleNamespace(**SETTINGS), None)
handler.emit(event(LogEvent.WORKFLOW_STARTED))
handler.emit(event(LogEvent.RUN_INFO, stats={"measure": 12, "build": 20, "total": 32}))
for number in range(32):
    handler.emit(starts(number, f"task{number}", "measure" if number < 12 else "build"))
for point in range(4):
    for number in range(12):
        add_points(1, f"task{number}", kernel="multi_tile " * 20, message="[bold]")
    time.sleep(0.35)
handler.emit(event(None, logging.WARNING, "a warning above the bar"))
for number in range(32):
    handler.emit(event(LogEvent.JOB_FINISHED, job_id=number))
pathlib.Path("results/report.html").touch()
handler.close()
"""


def watch(command, width, height):
    """The screens of a command in a terminal of so many columns and lines, as a list of their lines."""
    process, terminal = pty.fork()
    if not process:
        # Not execv: readline, which pytest loads, puts LINES and COLUMNS behind os.environ's back.
        without = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}
        shown = {"TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(sys.path)}
        os.execve(command[0], command, without | shown)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    screen, shots = pyte.HistoryScreen(width, height, history=1000), []
    stream = pyte.ByteStream(screen)
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the command has ended
            break
        if not data:
            break
        stream.feed(data)
        shots.append([line.rstrip() for line in screen.display])
    os.waitpid(process, 0)
    return shots, len(screen.history.top)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (200, 7)])
def test_in_a_terminal_the_bar_and_its_tasks_take_a_few_lines_of_one_screen(width, height):
    shots, scrolled = watch([sys.executable, "-c", SHOW], width, height)
    assert len(shots) > 3
    bars = [shot for shot in shots if any("━" in line for line in shot)]
    assert bars and all(sum("━" in line for line in shot) == 1 for shot in bars), "there is one bar"
    rows = max(sum(bool(line) for line in shot) for shot in bars)
    assert rows <= min(height, plugin.LINES + 4), "how long, bar, tasks, how many more, and the warning"
    assert any("4/4 multi_tile" in line or "3/4 multi_tile" in line for shot in bars for line in shot)
    assert any(line.strip().startswith("and ") and line.endswith(" more") for shot in bars for line in shot)
    last = " ".join(filter(None, shots[-1]))
    assert "a warning above the bar" in last and "done in 0:00:0" in last and "report.html" in last.replace(" ", "")
    assert "━" not in last and scrolled == 0, "nothing is left of the bar, and nothing has left the screen"
