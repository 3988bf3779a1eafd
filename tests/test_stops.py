"""Stopped at any moment and started again, a run ends as if nothing had happened, and no two runs work side by side."""

import contextlib
import getpass
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

import pandas as pd
import psutil
import pytest
import synthetic
import yaml
from clones import SMALL_TRACE, copy_repository, measured, snakemake, started, variables
from waiting import wait_until

from tilewise import ROOT

pytestmark = pytest.mark.slow
ROWS = "results/emulator/measurements.csv"
#: Columns that differ from run to run.
TIMES = "samples time_ms time_min_ms time_q1_ms time_q3_ms noise gflops run_low_ms run_high_ms".split()
WORKER = "tilewise.measure.worker"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)


def small_study(folder):
    """A clone of a study with two short tasks on the emulator."""
    clone = copy_repository(folder, recorded=False)
    path = clone / "config/config.yaml"
    config = yaml.safe_load(path.read_text())
    config["tasks"] = {
        "task1a": {
            "title": "naive",
            "sweeps": [{"kernel": "naive", "dtype": "float", "shapes": "square", "block": ["32x8", "16x16", "8x32"]}],
        },
        "cpu": {"title": "loops", "sweeps": [{"kernel": "kij", "dtype": ["float", "int32"], "shapes": "in_cache"}]},
    }
    config["emulator"]["shapes"] = [{"n": n, "p": 160, "m": 160} for n in (100, 120, 140)]
    config["cpu"] |= {"repeat_s": {"gpu": 0.1, "emulator": 0.1}}
    config["trace"] |= SMALL_TRACE
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return clone


def ours(clone, names=("snakemake", WORKER)):
    """The processes that work for a clone, Snakemake first: the ids of it, of what runs scripts, and of workers."""
    here = [process for process in psutil.process_iter(["cwd", "cmdline"]) if process.info["cwd"] == str(clone)]
    return sorted(p.pid for p in here if any(name in word for name in names for word in p.info["cmdline"] or []))


def rows(clone):
    return pd.read_csv(clone / ROWS).drop(columns=TIMES)


@pytest.mark.parametrize("kills", [12, pytest.param(30, marks=pytest.mark.exhaustive)])
def test_any_kills_at_any_time_leave_the_rows_of_an_undisturbed_run(tmp_path, kills):
    undisturbed = small_study(tmp_path / "undisturbed")
    begin = time.monotonic()
    done = snakemake(undisturbed, ROWS)
    assert done.returncode == 0, done.stderr
    length = time.monotonic() - begin
    seed = int(os.environ.get("TILEWISE_SEED", random.SystemRandom().randrange(10**6)))
    print(f"TILEWISE_SEED={seed}")
    chance = random.Random(seed)
    clone = small_study(tmp_path / "disturbed")
    killed = 0
    while killed < kills:
        run = started(clone, ROWS, "--keep-going")
        pause, names = min(length / 2, 6), ["snakemake", WORKER]
        while killed < kills and run.poll() is None:
            time.sleep(chance.uniform(0, pause))
            victim, how = chance.choice(ours(clone, names) or [0]), chance.choice(SIGNALS)
            all_at_once = chance.random() < 0.1
            if victim in ours(clone, [WORKER]):
                names = ["snakemake"]  # a point whose worker is killed twice in a run is an error
            with contextlib.suppress(ProcessLookupError):
                if victim:
                    os.killpg(run.pid, how) if all_at_once else os.kill(victim, how)
                    killed += 1
                    pause = 0.5
        if killed == kills:
            run.kill()
        run.wait()
        if (clone / ROWS).exists():  # else the rest of the kills would meet a finished run
            for task in ("task1a", "cpu"):
                (clone / f"results/emulator/tasks/{task}.csv").unlink(missing_ok=True)
                (clone / f"results/emulator/journal/{task}.jsonl").unlink(missing_ok=True)
    done = snakemake(clone, ROWS)
    assert done.returncode == 0, f"seed {seed}: {done.stdout}{done.stderr}"
    pd.testing.assert_frame_equal(rows(clone), rows(undisturbed), obj=f"seed {seed}: rows")
    for journal in (clone / "results/emulator/journal").glob("*.jsonl"):
        keys = measured(journal)
        assert len(keys) == len(set(keys)), f"seed {seed}: a point of {journal.name} was measured twice"


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A small study whose machine is known already, and whose trace takes longer than another run needs to start."""
    folder = small_study(tmp_path_factory.mktemp("stops") / "clone")
    path = folder / "config/config.yaml"
    config = yaml.safe_load(path.read_text())
    config["tasks"]["ladder_float"] = synthetic.config()["tasks"]["ladder_float"]
    config |= {name: synthetic.config()[name] for name in ("shapes", "trace")}
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    assert snakemake(folder, "results/emulator/device.json").returncode == 0
    return folder


TRAFFIC = "results/traffic.csv"


@pytest.fixture
def tracing(clone):
    """A function that starts a run, and returns it when its trace is at work."""
    runs = []

    def start():
        (clone / TRAFFIC).unlink(missing_ok=True)
        (clone / "logs/trace.log").unlink(missing_ok=True)
        (clone / "results/journal/trace.jsonl").unlink(missing_ok=True)  # what stopped traces have kept
        runs.append(started(clone, TRAFFIC))
        wait_until((clone / "logs/trace.log").exists, message="the trace")
        return runs[-1]

    yield start
    for run in runs:
        run.kill()
        run.wait()


@pytest.mark.parametrize(
    ("whom", "how"),
    [
        pytest.param(os.killpg, signal.SIGINT, id="Ctrl-C"),
        pytest.param(os.killpg, signal.SIGHUP, id="a terminal that is closed"),
        pytest.param(os.kill, signal.SIGTERM, id="kill"),
        pytest.param(os.kill, signal.SIGINT, marks=pytest.mark.exhaustive),
        pytest.param(os.kill, signal.SIGHUP, marks=pytest.mark.exhaustive),
        pytest.param(os.killpg, signal.SIGTERM, marks=pytest.mark.exhaustive),
    ],
)
def test_a_stopped_run_ends_in_seconds_with_the_same_words(clone, tracing, whom, how):
    run = tracing()
    whom(run.pid, how)
    said, _ = run.communicate(timeout=20)
    lines = said.splitlines()[-2:]
    assert lines == ["stopping: what was measured is kept", "stopped; the same command continues this run"]
    assert run.returncode and "Traceback" not in said and "failed" not in said
    assert not ours(clone) and not (clone / TRAFFIC).exists()


def moments(usual, *others):
    """Moments of a stop, in s: one behaviour at many, of which the `others` are for `make test-all`."""
    return [*usual, *(pytest.param(after_s, marks=pytest.mark.exhaustive) for after_s in others)]


@pytest.mark.parametrize("after_s", moments([3], 4, 5))
def test_a_run_that_is_stopped_while_it_starts_says_so_too(clone, after_s):
    run = started(clone, TRAFFIC)
    time.sleep(after_s)
    os.killpg(run.pid, signal.SIGINT)
    assert run.wait(20) and not ours(clone)


@pytest.mark.parametrize("after_s", moments([0.1, 0.6], 0.3, 1.0, 1.5))
def test_a_job_that_is_stopped_while_it_imports_says_nothing(clone, after_s):
    """A terminal sends Ctrl-C to the job's Python as well."""
    (clone / TRAFFIC).unlink(missing_ok=True)
    run = started(clone, TRAFFIC)
    assert any("this run is" in line for line in run.stdout), "the first job begins"
    time.sleep(after_s)
    os.killpg(run.pid, signal.SIGINT)
    said, _ = run.communicate(timeout=20)
    assert said.splitlines()[-2:] == [
        "stopping: what was measured is kept",
        "stopped; the same command continues this run",
    ]
    assert "Traceback" not in said and not ours(clone)


IN_A_TASK = """
import asyncio, os, signal
from tilewise import stopping

async def of_snakemake():
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(0)

async def run():
    task = asyncio.create_task(of_snakemake())
    await asyncio.sleep(20)

stopping.install_signal_handlers()
asyncio.run(run())
"""


def test_a_stop_within_a_task_of_asyncio_has_no_traceback():
    ended = subprocess.run([sys.executable, "-c", IN_A_TASK], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + signal.SIGINT, "", "")


IN_ANOTHER_THREAD = """
import signal, threading
from tilewise import stopping

def receive():
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    threading.Event().wait()

stopping.install_signal_handlers()
stopping.install_signal_handlers()  # as when the run starts
timer = threading.Timer(0.5, receive)
timer.daemon = True
timer.start()
threading.Semaphore(0).acquire()
"""


def test_a_signal_that_another_thread_receives_wakes_the_main_thread():
    run = subprocess.Popen([sys.executable, "-c", IN_ANOTHER_THREAD])
    try:
        assert run.wait(60) == 128 + signal.SIGTERM
    finally:
        run.kill()


AFTER_A_RUN = """
import signal
from tilewise import stopping

stopping.install_signal_handlers()
stopping.remove_signal_handlers()
signal.raise_signal(signal.SIGTERM)
"""


def test_after_a_run_a_signal_ends_the_process_at_once():
    ended = subprocess.run([sys.executable, "-c", AFTER_A_RUN], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGTERM, "", "")


def test_a_signal_after_the_last_words_has_no_traceback(clone):
    run = started(clone, "results/emulator/device.json", "--forcerun", "probe")
    assert any("done in" in line for line in run.stdout)
    run.terminate()
    said, _ = run.communicate(timeout=20)
    assert "Traceback" not in said and "SystemExit" not in said


def test_a_second_run_is_refused_in_words_and_a_killed_one_takes_its_scripts_along(clone, tracing):
    run = tracing()
    os.killpg(run.pid, signal.SIGSTOP)  # on a busy machine its trace may be shorter than the second one's start
    second = snakemake(clone, TRAFFIC)
    assert second.returncode == 1
    assert f"{getpass.getuser()}'s process {run.pid} on {socket.gethostname()} works on the same files" in second.stderr
    assert not any(word in second.stderr for word in ("Traceback", "--unlock", "done in"))
    assert snakemake(clone, TRAFFIC, "--dry-run").returncode == 0, "a look is allowed"
    os.killpg(run.pid, signal.SIGCONT)
    run.kill()
    run.wait()
    wait_until(lambda: not ours(clone), 20, "the end of the script")
    assert snakemake(clone, "results/emulator/device.json", "--forcerun", "probe").returncode == 0


def test_what_a_killed_run_left_unfinished_is_made_again_without_advice(clone, tracing):
    run = tracing()
    (clone / TRAFFIC).write_text("half a li")
    run.kill()
    run.wait()
    done = snakemake(clone, TRAFFIC, "--dry-run")
    assert done.returncode == 0 and "rule trace" in done.stdout, done.stdout + done.stderr


HEAD = "with script(snakemake.log[0]):"


@pytest.fixture
def page(tmp_path):
    """A function that starts to render the page of a finished run, after some work."""
    clone = copy_repository(tmp_path / "clone", recorded=False)
    synthetic.write(clone / "results/emulator", "emulator", with_traffic=True)
    (clone / "results/report.html").write_text("the old page")

    def run(work):
        script = (ROOT / "workflow/scripts/page.py").read_text()
        begin = f"{HEAD}\n    Path({str(tmp_path / 'begun')!r}).touch()\n    {work}"
        (clone / "workflow/scripts/page.py").write_text(script.replace(HEAD, begin))
        return started(clone, "--allowed-rules", "page", "--", "results/report.html")

    return run, clone / "results/report.html", tmp_path / "begun"


def test_the_old_page_stays_if_the_new_one_fails(page):
    run, path, _ = page
    said, _ = run("import tilewise; raise tilewise.UserError('no evidence')").communicate(timeout=400)
    assert "no evidence" in said and "Traceback" not in said
    assert path.read_text() == "the old page"
    rendering = run("pass")
    said, _ = rendering.communicate(timeout=400)
    assert rendering.returncode == 0, said
    assert "<h1" in path.read_text()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_old_page_stays_if_rendering_is_stopped(page, how):
    run, path, begun = page
    rendering = run("import time; time.sleep(60)")
    wait_until(begun.exists, message="the page's script")
    os.killpg(rendering.pid, how)
    said, _ = rendering.communicate(timeout=30)
    assert rendering.returncode and path.read_text() == "the old page"
    assert "Traceback" not in said
    assert how == signal.SIGKILL or said.endswith("stopped; the same command continues this run\n"), said
    files = {name.name for name in path.parent.iterdir() if name.is_file()}
    assert files <= {"report.html", ".run.lock", ".run.lock.owner"}, "nothing is left behind"


def test_a_clone_may_lie_anywhere(tmp_path):
    clone = small_study(tmp_path / """a "b" c's ü""")
    shutil.copy(ROOT / "Makefile", clone)
    (clone / ".venv").symlink_to(sys.prefix)
    made = ["-o", ".venv/run", "-o", ".venv/run-gpu", "-o", ".venv/run-gpu12"]
    pipes = {"cwd": clone, "env": variables(clone), "capture_output": True, "text": True}
    plan = subprocess.run(["make", "-n", "CORES=2", *made, "report"], **pipes)
    [command] = [line for line in plan.stdout.splitlines() if "snakemake" in line]
    targets = "results/emulator/tasks/task1a.csv results/emulator/tasks/cpu.csv results/emulator/cache_lines.csv"
    command = f'PATH="$PWD/.venv/bin:$PATH"; echo "The page is $PWD"; {command.removesuffix("all")}{targets}'
    done = subprocess.run(["sh", "-c", command], **pipes)
    assert done.returncode == 0 and str(clone) in done.stdout, done.stderr
    assert set(pd.read_csv(clone / "results/emulator/tasks/task1a.csv").status) == {"ok"}
    assert pd.read_csv(clone / "results/traffic.csv").races.notna().any()
    traced = "-m tilewise trace kernels/textbook/naive.cu --shape 33x35x70 --block 32x8"
    done = subprocess.run([sys.executable, *traced.split()], **pipes)
    assert done.returncode == 0 and "naive" in done.stdout, done.stderr
