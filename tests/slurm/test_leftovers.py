"""A test run that is killed leaves no Slurm behind."""

import subprocess
import sys
import tempfile
from pathlib import Path

from waiting import has_ended, wait_until

HERE = Path(__file__).parent
STARTS = f"""
import sys, time
sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]
from cluster import Cluster
Cluster(sys.argv[1]).script("start")
print("up", flush=True)
time.sleep(600)
"""


def test_the_daemons_end_with_the_process_that_started_them(installed):
    # Not in tmp_path, because munge wants a socket that every user can reach.
    folder = Path(tempfile.mkdtemp(prefix="tilewise-slurm-"))
    owner = subprocess.Popen([sys.executable, "-c", STARTS, folder], stdout=subprocess.PIPE, text=True)
    assert owner.stdout.readline() == "up\n"
    daemons = [int(path.read_text()) for path in folder.glob("*.pid")]
    assert len(daemons) == 3 and not any(map(has_ended, daemons))
    owner.kill()
    owner.wait()
    wait_until(lambda: all(map(has_ended, daemons)), 60, "the end of the daemons")
    wait_until(lambda: not folder.exists(), 30, "the end of their folder")
