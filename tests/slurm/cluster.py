"""A private Slurm, and a run of the study on it, for the tests in this folder."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
from clones import package_path
from waiting import has_ended, wait_until

from tilewise.nvidia.gpus import VISIBLE

SCRIPT = Path(__file__).with_name("slurm.sh")


class Cluster:
    """A Slurm of nodes with two GPUs, red and blue-80gb; `environment` is that of a user who is logged in to it.

    `options` are those of slurm.sh. No GPU of this machine is visible in jobs.
    """

    def __init__(self, folder, **options):
        self.folder = folder
        path = f"{folder}/bin:{os.environ['PATH']}"
        own = {"PATH": path, "CPUS": "16", "OWNER": str(os.getpid()), VISIBLE: ""}
        self.environment = os.environ | own | options

    def script(self, action, *arguments):
        subprocess.run([SCRIPT, action, self.folder, *arguments], env=self.environment, check=True, timeout=120)

    def __call__(self, *command):
        """Run one of Slurm's commands; returns what it prints."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout.strip()

    def jobs(self):
        """Every job since the start, by id: its state and its comment, which holds the rule's name."""
        lines = self("squeue", "-h", "--states=all", "-o", "%i|%T|%k").splitlines()
        jobs = sorted((int(number), state, comment) for number, state, comment in (line.split("|") for line in lines))
        return {number: (state, comment) for number, state, comment in jobs}

    def running(self):
        """Ids of the jobs that run or wait."""
        return [number for number, (state, _) in self.jobs().items() if state in ("RUNNING", "PENDING", "COMPLETING")]

    def signal(self, job, how):
        """Send a signal to every process of a job of this Slurm; another Slurm may have a job with the same number."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):  # it may end while the test looks
                variables = process.environ()
                ours = f"{self.folder}/bin" in variables.get("PATH", "").split(":")
                if ours and variables.get("SLURM_JOB_ID") == str(job):
                    process.send_signal(how)

    def end(self, daemon, how):
        """End a daemon, by SIGTERM as its service does or SIGKILL like a crash; its port is free when this returns."""
        process = int((self.folder / f"{daemon}.pid").read_text())
        os.kill(process, how)
        wait_until(lambda: has_ended(process), message=f"the end of {daemon}")


class Run:
    """One `snakemake --cores 1 --profile slurm` in a clone, started in the background."""

    def __init__(self, cluster, clone, *arguments, python=sys.executable, **environment):
        self.cluster, self.clone = cluster, clone
        self.before = set(cluster.jobs())
        self.began = time.time()
        self.log = clone / f"snakemake.{len(list(clone.glob('snakemake.*.out')))}.out"
        command = [python, "-m", "snakemake", "--cores", "1", "--profile", "slurm", *arguments]
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                command,
                cwd=clone,
                env=cluster.environment | {"PYTHONPATH": package_path(clone), "PYTHONFAULTHANDLER": "1"} | environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
            )

    @property
    def output(self):
        return self.log.read_text()

    def failures(self):
        """What the run said of each job that failed, by its name: the cause, and where its logs are."""
        return dict(re.findall(r"^(\S.*) failed:\n((?:.*\n)+?\(.*\))$", self.output, re.MULTILINE))

    @property
    def snakemakes_log(self):
        """What Snakemake wrote of the clone's runs, whatever was on the screen."""
        return "".join(path.read_text() for path in sorted((self.clone / ".snakemake/log").glob("*.log")))

    def jobs(self):
        """The jobs that this run submitted, by id, once Slurm has released their resources."""

        def mine():
            return {number: job for number, job in self.cluster.jobs().items() if number not in self.before}

        wait_until(lambda: all(state != "COMPLETING" for state, _ in mine().values()), message="the end of all jobs")
        return mine()

    def ends(self, status=0, seconds=1800):
        """Wait for the end; returns the run if its exit status is the expected one.

        A run that does not end fails with its output and with the place of each of its threads.
        """
        try:
            assert (self.process.wait(seconds) == 0) == (status == 0), self.output
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait(60)
            raise AssertionError(self.output) from None
        finally:
            self.stop()
        self.seconds = time.time() - self.began
        return self

    def stop(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def seconds_of_polls(self):
        """Seconds in which no job was left and Snakemake had not looked yet."""
        lines = self.cluster("squeue", "-h", "--states=all", "-o", "%i|%S|%e").splitlines()
        mine = [line.split("|")[1:] for line in lines if int(line.split("|")[0]) not in self.before]
        spans = [tuple(time.mktime(time.strptime(when, "%Y-%m-%dT%H:%M:%S")) for when in span) for span in mine]
        remote = "probe|build|measure|trace"
        seen = re.findall(rf"^\[(.*)\]\nFinished jobid: \d+ \(Rule: (?:{remote})\)", self.snakemakes_log, re.MULTILINE)
        looks = sorted({time.mktime(time.strptime(when, "%a %b %d %H:%M:%S %Y")) for when in seen})
        waits = {}
        for look in looks:
            ended = max((end for _, end in spans if end <= look), default=look)
            if not any(start < look and end > ended for start, end in spans):
                waits.setdefault(ended, look - ended)
        return sum(waits.values())
