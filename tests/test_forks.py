"""What stands in for Python when Snakemake runs a script, and the process whose forks run it."""

import json
import os
import signal
import subprocess
import sys

import pytest
from waiting import has_ended, wait_until

from tilewise import ROOT, forks

SCRIPT = """
import json, os, sys, threading
import tilewise.study.points
from pathlib import Path
Path("told.json").write_text(json.dumps({
    "words": sys.argv, "folder": os.getcwd(), "variable": os.environ.get("MINE"), "path": sys.path[0],
    "name": __name__, "parent": os.getppid(), "own": os.getpid(), "threads": threading.active_count()}))
print("said")
print("warned", file=sys.stderr)
"""


@pytest.fixture
def server(monkeypatch):
    """A server of this process; its command in place of Python."""
    monkeypatch.setattr(sys, "executable", sys.executable)
    monkeypatch.setenv(forks.ADDRESS, "")
    started = []
    popen = subprocess.Popen
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", lambda *words, **named: started.append(popen(*words, **named)))
        forks.begin()
    yield started[0]
    started[0].kill()
    started[0].wait()


def run(folder, text, **named):
    """Start a script with this text as Snakemake would."""
    folder.joinpath("a script's.py").write_text(text)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = f"""exec {sys.executable} "a script's.py" one 'two words'"""
    return subprocess.Popen(command, shell=True, cwd=folder, preexec_fn=_mind_hangups, **pipes | named)


def _mind_hangups():
    """Tests may run under nohup, whose children ignore this signal."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def test_a_script_meets_what_it_would_meet_in_a_python_of_its_own(server, tmp_path):
    script = run(tmp_path, SCRIPT, env=os.environ | {"MINE": "yes\n=no"})
    assert script.communicate(timeout=60) == ("said\n", "warned\n") and script.returncode == 0
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["words"] == ["a script's.py", "one", "two words"]
    assert (told["folder"], told["variable"], told["name"]) == (str(tmp_path), "yes\n=no", "__main__")
    assert told["parent"] == server.pid and told["own"] not in (script.pid, server.pid) and told["threads"] == 1


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("raise SystemExit(3)", 3),
        ("import no_such_module", 1),
        ("raise ValueError", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("import atexit, os; atexit.register(os._exit, 7)", 7),
    ],
)
def test_a_script_ends_as_it_would_on_its_own(server, tmp_path, text, status):
    script = run(tmp_path, text)
    said, _ = script.communicate(timeout=60)
    assert (script.returncode, said) == (status, "")


SLEEPS = """
import os, time
from pathlib import Path
Path("new").write_text(str(os.getpid()))
Path("new").rename("begun")
time.sleep(600)
"""


def begun(folder):
    """The process of the script that sleeps."""
    wait_until((folder / "begun").exists, message="the script")
    return int((folder / "begun").read_text())


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_script_ends_if_what_stands_for_it_is_killed(server, tmp_path, how):
    script = run(tmp_path, SLEEPS)
    process = begun(tmp_path)
    script.send_signal(how)
    assert script.wait(60) == -how
    wait_until(lambda: has_ended(process), message="the end of the script")
    assert run(tmp_path, "print('next')").communicate(timeout=60)[0] == "next\n", "the server goes on"


def test_scripts_run_side_by_side_and_are_interrupted_once(server, tmp_path):
    script = run(tmp_path, SLEEPS)
    process = begun(tmp_path)
    assert run(tmp_path, "print('second')").communicate(timeout=60)[0] == "second\n"
    for each in (script.pid, process, server.pid):  # as Ctrl-C reaches them all
        os.kill(each, signal.SIGINT)
    _, warned = script.communicate(timeout=60)
    assert warned.count("KeyboardInterrupt") == 1 and script.returncode


def test_scripts_end_with_the_server_and_later_ones_have_a_python_of_their_own(server, tmp_path):
    script = run(tmp_path, SLEEPS)
    process = begun(tmp_path)
    server.kill()
    server.wait()
    assert script.wait(60) == -signal.SIGKILL
    wait_until(lambda: has_ended(process), message="the end of the script")
    later = run(tmp_path, SCRIPT)
    assert later.communicate(timeout=60) == ("said\n", "warned\n") and later.returncode == 0
    assert f'"own": {later.pid}' in (tmp_path / "told.json").read_text()


def test_the_server_ends_with_the_process_that_began_it(tmp_path):
    text = f"""
import os, subprocess, sys
from tilewise import forks
popen = subprocess.Popen
subprocess.Popen = lambda *words, **named: print(popen(*words, **named).pid, flush=True)
forks.begin()
script = popen(f"exec {{sys.executable}} a.py", shell=True, cwd={str(tmp_path)!r})
script.wait()
"""
    (tmp_path / "a.py").write_text(SLEEPS)
    run = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    server, process = int(run.stdout.readline()), begun(tmp_path)
    run.kill()
    run.wait()
    wait_until(lambda: has_ended(server) and has_ended(process), message="the end of server and script")


SERVER = """
import os, sys
from pathlib import Path
from tilewise import forks
for script in sorted(Path("workflow/scripts").glob("*.py")):
    forks._import_for(str(script))
named = {"cupy", "cuda", "pynvml", "triton", "tilewise", "matplotlib"}
print(*sorted(named & {name.partition(".")[0] for name in sys.modules}), len(os.listdir("/proc/self/task")))
"""


def test_the_server_never_loads_what_may_begin_with_a_gpu(tmp_path):
    """A fork of a process that has a context cannot use CUDA; nor is it safe to fork one that has threads."""
    for name in ("cupy", "pynvml", "triton"):  # so that they can be imported here
        (tmp_path / f"{name}.py").touch()
    here = os.environ | forks.ALONE | {"PYTHONPATH": f"{tmp_path}:{ROOT / 'workflow'}"}
    done = subprocess.run([sys.executable, "-c", SERVER], cwd=ROOT, env=here, capture_output=True, text=True)
    assert done.stdout.split() == ["matplotlib", "tilewise", "1"], done.stderr


AHEAD = """
from tilewise.report import data
from tilewise.study import registry
print(registry._loaded.cache_info().misses, data._recorded.cache_info().misses > 0)
kernels = registry.load()
print(registry._loaded.cache_info().misses, len(kernels) > 30)
"""


def test_a_script_finds_read_what_all_scripts_read(server, tmp_path):
    said, warned = run(tmp_path, AHEAD).communicate(timeout=60)
    assert said.splitlines() == ["1 True", "1 True"], warned


def test_what_goes_wrong_ahead_the_script_tells(server, tmp_path):
    script = run(tmp_path, "from tilewise.study import registry\nregistry.load('nowhere')")
    _, warned = script.communicate(timeout=60)
    assert script.returncode == 1 and "nowhere/registry.yaml" in warned


def test_another_python_command_is_run_as_it_is(server):
    command = f"{sys.executable} -c 'import sys; print(sys.flags.isolated, *sys.argv)' word"
    assert subprocess.run(command, shell=True, capture_output=True, text=True).stdout == "0 -c word\n"
