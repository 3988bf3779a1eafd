"""What a run shows: its arithmetic, lines in a pipe, a bar in a terminal, and the cause of a failure."""

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
from pathlib import Path
from types import SimpleNamespace

import pyte
import pytest
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.registry import LoggerPluginRegistry

import snakemake_logger_plugin_tilewise as plugin
from tilewise import files, progress
from tilewise.measure.rows import told

SETTINGS = dict.fromkeys(["dryrun", "verbose", "printshellcmds", "debug_dag", "quiet", "stdout", "nocolor"])
ROW = {"status": "ok", "message": "", "time_ms": 12.345, "gflops": 98765.4, "noise": 0.0123, "bound_ratio": 0.004}


def measuring(folder, task="task1a", seconds=10.0):
    return progress.Job("measure", {"platform": "emulator", "task": task}, seconds, Path(folder) / f"{task}.log")


def event(kind, level=logging.INFO, text="", **details):
    record = logging.LogRecord("snakemake", level, "", 0, text, (), None)
    record.__dict__ |= {"event": kind} | details
    return record


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run of two builds and two tasks, with expected times of 60 s."""
    builds = [progress.Job("build", {"platform": "emulator", "kernel": name}, 10.0) for name in ("naive", "tiled")]
    jobs = dict(enumerate([*builds, measuring(tmp_path), measuring(tmp_path, "task2a", 30.0)]))
    run = progress.Run(jobs, cores=2, report="results/report.html")
    monkeypatch.setattr(progress, "_run", [run])
    return run


@pytest.fixture
def handler(monkeypatch):
    """The plugin as Snakemake makes it, with a pipe for a screen, whose text is `handler.stream.getvalue()`."""
    monkeypatch.setattr(plugin, "PAUSE_S", 0.2)
    monkeypatch.setattr(plugin, "LOOK_S", 0.02)
    monkeypatch.delenv(files.SHOWN, raising=False)
    handler = plugin.LogHandler(SimpleNamespace(**SETTINGS), None)
    handler.stream = io.StringIO()
    yield handler
    os.environ.pop(files.SHOWN, None)


# ---- How far, and how long ------------------------------------------------------------------------------------------


def test_a_tasks_log_tells_its_points_also_those_of_the_journal(run):
    task = run.jobs[2]
    task.log.write_text("10:00:00 9/9 of an earlier run: ok\n")
    run.start([2])
    assert not run.look() and task.points == 0
    head = "10:00:01 10 points, 4 of them from the journal\n"
    task.log.write_text(f"{head}10:00:02 1/6 naive float 8x8x8: ok, 3 ms\n10:00")
    os.utime(task.log, ns=(1, 1))
    assert run.look() and (task.done, task.points) == (1, 6)
    assert task.now == "naive float 8x8x8: ok, 3 ms" and task.seconds == 6
    with task.log.open("a") as log:
        log.write(":03 2/6 tiled float 8x8x8: ok\n")
    assert run.look() and task.done == 2
    assert run.at_work() == ["task1a 2/6 tiled float 8x8x8: ok"]


def test_the_time_left_is_as_expected_at_first_and_then_as_seen(run):
    assert run.share == 0 and run.left(now=run.began) == pytest.approx(30), "60 s on two cores"
    run.start(range(4))
    run.finish(0)
    run.finish(1)
    assert run.share == pytest.approx(1 / 3)
    # Everything takes ten times as long as expected: the rest, 40 s, nearly so too.
    assert 250 < run.left(now=run.began + 200) < 400
    run.finish(2)
    run.finish(3)
    assert run.share == 1 and run.left() == 0


@pytest.mark.parametrize(
    ("seconds", "words"), [(5, "less than a minute left"), (360, "about 6 min left"), (7300, "about 2 h 2 min left")]
)
def test_a_time_left_in_words(seconds, words):
    assert progress.in_words(seconds) == words


def test_expected_times_come_from_the_last_run_or_a_recorded_one(tmp_path):
    def measure(recorded=None):
        return progress.expected("measure", {"platform": "here", "task": "task3"}, [], 10, recorded, tmp_path)

    def page():
        return progress.expected("page", {}, ["results/report.html"], root=tmp_path)

    start = progress.START_S
    assert measure() == start + 10 * progress.SECONDS["measure"] and measure(50.0) == start + 50
    (tmp_path / "results/here/facts").mkdir(parents=True)
    row = "platform,task,wall_s,timed_s,points,remembered\nhere,task3,30,20,20,10\n"
    (tmp_path / "results/here/facts/task3.csv").write_text(row)
    assert measure() == measure(50.0) == start + 30, "3 s for each point that was measured"
    assert page() == progress.SECONDS["page"]
    noted = tmp_path / ".snakemake/metadata/cmVzdWx0cy9yZXBvcnQuaHRtbA=="
    noted.parent.mkdir(parents=True)
    noted.write_text(json.dumps({"starttime": 100.0, "endtime": 107.5}))
    assert page() == 7.5


def test_a_finished_point_in_a_line():
    assert told(ROW) == "ok, 12.35 ms, 98,765.4 GFLOP/s, noise 1.2 %, error 0.004 of its bound"
    failed = {"status": "timeout", "message": "not done\nafter 5 s", "time_ms": None}
    assert told(failed) == "timeout: not done after 5 s"


# ---- A pipe ---------------------------------------------------------------------------------------------------------


def test_the_plugin_is_found_and_is_every_runs():
    assert LoggerPluginRegistry().get_plugin("tilewise").log_handler is plugin.LogHandler


def test_in_a_pipe_a_line_tells_the_point_without_escape_codes(run, handler, tmp_path):
    handler.emit(event(None, text="Building DAG of jobs..."))
    handler.emit(event(LogEvent.JOB_STARTED, jobs=[2]))
    run.jobs[2].log.write_text("10:00:00 10 points, 0 of them from the journal\n10:00:01 5/10 naive float 8x8x8: ok\n")
    for _ in range(200):
        if "5/10" in handler.stream.getvalue():
            break
        handler.screen.ended.wait(0.05)
    handler.emit(event(None, logging.WARNING, "job 3 pends: Priority"))
    for number in run.jobs:
        handler.emit(event(LogEvent.JOB_FINISHED, job_id=number))
    handler.close()
    handler.close()
    said = handler.stream.getvalue()
    point, warning, last = [line for line in said.splitlines() if "8x8x8" in line or "task1a" not in line]
    assert point.startswith("0:0") and " 8 %, " in point and point.endswith(" left: task1a 5/10 naive float 8x8x8: ok")
    assert warning == "job 3 pends: Priority"
    assert last.startswith("done in 0:0") and last.endswith(f"; the report is {Path.cwd() / 'results/report.html'}")
    assert "\x1b" not in said and "\r" not in said


def test_a_failure_ends_with_its_cause_before_its_log(run, handler, tmp_path):
    run.jobs[2].log.write_text("10:00:01 1/9 a: ok\n\ntilewise: kernels/a.cu:7: 'zero' is not declared; correct it\n")
    handler.emit(event(LogEvent.JOB_STARTED, jobs=[2, 3]))
    handler.emit(event(LogEvent.JOB_ERROR, logging.ERROR, "Error in rule measure", jobid=2))
    handler.emit(event(LogEvent.ERROR, logging.ERROR, "RuleException:\nCalledProcessError in file x, line 3"))
    handler.close()
    *_, name, cause, log = handler.stream.getvalue().splitlines()
    assert name == "measure task1a on emulator failed:"
    assert cause == "kernels/a.cu:7: 'zero' is not declared; correct it"
    assert log == f"(its log: {run.jobs[2].log})"
    assert "done in" not in handler.stream.getvalue() and "CalledProcess" not in handler.stream.getvalue()


def test_faults_of_kernels_are_told_at_once_and_remarks_are_not(run, handler, tmp_path):
    run.jobs[4] = progress.Job("trace", {}, 10.0, tmp_path / "trace.log")
    fault, remark = "a.cu:7: error: race: two threads", "a.cu:9: remark: read before it was written: thread 0"
    run.jobs[4].log.write_text(f"{remark}\n{fault}\n")
    handler.emit(event(LogEvent.JOB_STARTED, jobs=[4]))
    handler.emit(event(LogEvent.JOB_FINISHED, job_id=4))
    handler.close()
    assert fault in handler.stream.getvalue() and "remark" not in handler.stream.getvalue()


def test_a_failure_on_this_machine_does_not_hide_one_of_a_submitted_job(run, handler):
    run.jobs[2].log.write_text("\ntilewise: a.cu:1: wrong; correct it\n")
    run.jobs[3].submitted = True
    for number in (2, 3):
        handler.emit(event(LogEvent.JOB_ERROR, logging.ERROR, jobid=number))
    handler.emit(event(LogEvent.ERROR, logging.ERROR, "RuleException:\nCalledProcessError in file x, line 3"))
    handler.emit(event(None, logging.ERROR, "Slurm job 7 ended as TIMEOUT: measure task2a; run again"))
    handler.close()
    said = handler.stream.getvalue()
    assert "a.cu:1: wrong" in said and said.splitlines()[-1].startswith("Slurm job 7 ended") and "Called" not in said


def test_a_bug_ends_with_the_end_of_its_traceback_and_a_kill_with_snakemakes_words(run, handler, tmp_path):
    run.jobs[2].log.write_text('Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 7\n')
    for number in (2, 3):
        handler.emit(event(LogEvent.JOB_ERROR, logging.ERROR, jobid=number))
    handler.emit(event(LogEvent.ERROR, logging.ERROR, "RuleException:\ndied with <Signals.SIGKILL: 9>."))
    handler.close()
    said = handler.stream.getvalue()
    assert 'task1a on emulator failed:\nFile "a.py", line 1\nKeyError: 7\n' in said
    assert "task2a on emulator failed:\ndied with <Signals.SIGKILL: 9>.\n" in said


def test_an_interrupted_run_says_how_to_go_on(run, handler):
    handler.emit(event(LogEvent.JOB_ERROR, logging.ERROR, jobid=2))
    handler.emit(event(LogEvent.ERROR, logging.ERROR, "RuleException:\nCommand 'x' died with <Signals.SIGINT: 2>."))
    handler.emit(event(None, logging.ERROR, "At least one job did not complete successfully."))
    handler.close()
    assert handler.stream.getvalue().splitlines()[-1] == "stopped; the same command goes on where this run was"


def test_without_a_run_snakemakes_words_are_shown(handler, monkeypatch):
    monkeypatch.setattr(progress, "_run", [])
    wrapped = 'WorkflowError in file "x", line 3:\nconfig/config.yaml: unknown key\n  File "x", line 3, in <module>'
    for record in (event(None, text="Building DAG of jobs..."), event(None, text="Nothing to be done")):
        handler.emit(record)
    handler.emit(event(LogEvent.ERROR, logging.ERROR, wrapped))
    handler.close()
    assert handler.stream.getvalue().splitlines() == ["Nothing to be done", "config/config.yaml: unknown key"]


def test_a_dry_run_looks_as_snakemakes_own(monkeypatch, capsys):
    monkeypatch.delenv(files.SHOWN, raising=False)
    asked = SimpleNamespace(**SETTINGS | {"dryrun": True, "stdout": True, "quiet": set(), "show_failed_logs": False})
    plugin.LogHandler(asked, None).emit(event(None, text="Building DAG of jobs..."))
    assert "Building DAG of jobs..." in capsys.readouterr().out and files.SHOWN not in os.environ


# ---- A script -------------------------------------------------------------------------------------------------------


SCRIPT = """
import logging, os, sys
from tilewise import UserError, files
with files.script(sys.argv[1]):
    logging.getLogger("tilewise.measure.task").info("1/2 a point")
    os.write(1, b"a library's words\\n")
    raise UserError("a.cu:1: wrong; correct it")
"""


@pytest.mark.parametrize("shown", [True, False])
def test_a_script_tells_its_log_and_leaves_the_screen_to_the_logger(tmp_path, shown):
    log = tmp_path / "logs/task.log"
    variables = {name: value for name, value in os.environ.items() if name != files.SHOWN}
    variables |= {"PYTHONPATH": os.pathsep.join(sys.path)} | ({files.SHOWN: "1"} if shown else {})
    done = subprocess.run([sys.executable, "-c", SCRIPT, log], env=variables, capture_output=True, text=True)
    assert done.returncode == 1
    said, told = done.stdout + done.stderr, log.read_text()
    assert told.splitlines()[0].endswith(" 1/2 a point")
    assert progress.cause(log) == "a.cu:1: wrong; correct it" and told.count("wrong") == 1
    assert (said == "") == shown == ("a library's words" in told)
    assert shown or ("a library's words" in said and "wrong" in said)


# ---- A terminal -----------------------------------------------------------------------------------------------------

#: A run of twelve tasks and twenty builds at once, whose points have long names.
SHOW = """
import logging, pathlib, sys, time
from types import SimpleNamespace
import snakemake_logger_plugin_tilewise as plugin
from snakemake_interface_logger_plugins.common import LogEvent
from tilewise import progress
from test_progress import SETTINGS, event, measuring
jobs = [measuring(sys.argv[1], f"task{number}") for number in range(12)]
jobs += [progress.Job("build", {"kernel": f"kernel_{number}"}, 5.0) for number in range(20)]
run = progress.Run(dict(enumerate(jobs)), report="results/report.html")
progress._run.append(run)
handler = plugin.LogHandler(SimpleNamespace(**SETTINGS), None)
handler.emit(event(LogEvent.JOB_STARTED, jobs=list(run.jobs)))
for job in jobs[:12]:
    job.log.write_text("10:00:00 4 points, 0 of them from the journal\\n")
for point in range(1, 5):
    for job in jobs[:12]:
        with job.log.open("a") as log:
            log.write(f"10:00:01 {point}/4 multi_tile float 8192x8192x8192 {'tile=32 ' * 20}: ok, [bold] 1 ms\\n")
    time.sleep(0.35)
handler.emit(event(None, logging.WARNING, "a warning above the bar"))
for number in run.jobs:
    handler.emit(event(LogEvent.JOB_FINISHED, job_id=number))
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


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (200, 5)])
def test_in_a_terminal_the_bar_and_its_tasks_take_a_few_lines_of_one_screen(tmp_path, width, height):
    shots, scrolled = watch([sys.executable, "-c", SHOW, str(tmp_path)], width, height)
    assert len(shots) > 3
    bars = [shot for shot in shots if any("━" in line for line in shot)]
    assert bars and all(sum("━" in line for line in shot) == 1 for shot in bars), "there is one bar"
    rows = max(sum(bool(line) for line in shot) for shot in bars)
    assert rows <= min(height, plugin.LINES + 3), "bar, tasks, how many more, and the warning"
    assert any("4/4 multi_tile" in line or "3/4 multi_tile" in line for shot in bars for line in shot)
    assert any(line.strip().startswith("and ") and line.endswith(" more") for shot in bars for line in shot)
    last = " ".join(filter(None, shots[-1]))
    assert "a warning above the bar" in last and "done in 0:0" in last and "report.html" in last.replace(" ", "")
    assert "━" not in last and scrolled == 0, "nothing is left of the bar, and nothing has left the screen"
