"""What can go wrong on a cluster, tried on a real Slurm: no point is measured twice, no table is ever half written.

Every test stops one task of six points in the middle, then lets it end, by itself or in a further run.
"""

import shutil
import signal
import time

import pandas as pd
import pytest
import yaml
from clones import measured, snakemake
from waiting import wait_until

pytestmark = pytest.mark.slow
CSV, JOURNAL = "results/emulated/tasks/task1a.csv", "results/emulated/journal/task1a.jsonl"
BLOCKS = ["8x128", "16x64", "32x32", "64x16", "128x8", "16x16"]
SWEEP = {"kernel": "naive", "dtype": "float", "shapes": "square", "block": BLOCKS}


@pytest.fixture(scope="module")
def probed_and_built(emulated, tmp_path_factory):
    """A clone in which everything but the measuring is done."""
    clone = emulated(
        tmp_path_factory.mktemp("faults") / "clone",
        {"emulated": {"gpu_model": "red"}},
        emulator={"shapes": [{"n": 640, "p": 640, "m": 640}]},
        tasks={"task1a": {"title": "six slow points", "sweeps": [SWEEP]}},
    )
    done = snakemake(clone, "--configfile", "config/cluster.yaml", "--", "results/emulated/device.json")
    assert done.returncode == 0, done.stderr
    return clone


@pytest.fixture
def clone(probed_and_built, tmp_path):
    return shutil.copytree(probed_and_built, tmp_path / "clone", symlinks=True)


def in_the_middle(run, points=2):
    """Wait until so many points or more are measured; returns the id of the run's job."""
    wait_until(
        lambda: len(measured(run.clone / JOURNAL)) >= points or run.process.poll() is not None, 240, "measured points"
    )
    assert not (run.clone / CSV).exists()
    [job] = set(run.cluster.running()) - run.before
    return job


def whole(clone):
    """Every point is in the table, and was measured once."""
    assert list(pd.read_csv(clone / CSV).status) == ["ok"] * len(BLOCKS)
    keys = measured(clone / JOURNAL)
    assert len(keys) == len(set(keys)) == len(BLOCKS)
    return True


def names(run, job, state):
    """The run says once which rule and task failed, its Slurm job, how that ended, and where a log is."""
    assert run.output.count("measure task1a on emulated failed") == 1
    said = run.failures()["measure task1a on emulated"]
    return f"SLURM-job '{job}' failed" in said and state in said and f"{job}.log" in said


@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.exhaustive)])
def test_a_cancelled_job_is_named_and_a_stopped_snakemake_takes_its_job_along_and_says_how_to_go_on(
    cluster, clone, start, how
):
    run = start(clone, "--retries", "0", "--", CSV)
    job = in_the_middle(run)
    cluster("scancel", str(job))
    run.ends(status=1)
    assert names(run, job, "CANCELLED")
    assert not (clone / CSV).exists()
    run = start(clone, "--", CSV)
    job = in_the_middle(run, 4)
    run.process.send_signal(how)
    run.ends(status=1, seconds=300)
    assert run.output.endswith("stopped; the same command continues this run\n")
    wait_until(lambda: cluster.jobs()[job][0] == "CANCELLED", message=f"the end of {cluster.jobs()}")
    assert not (clone / CSV).exists()
    start(clone, "--", CSV).ends()
    assert whole(clone)


def test_a_job_over_its_time_limit_is_named_and_submitted_again(cluster, clone, start):
    run = start(clone, "--", CSV)
    job = in_the_middle(run)
    cluster.signal(job, signal.SIGSTOP)  # otherwise it ends before Slurm looks, which it does twice per minute
    cluster("scontrol", "update", f"JobId={job}", "EndTime=now+5")  # Slurm refuses a `now` of the second before
    run.ends()
    assert [state for state, _ in run.jobs().values()] == ["TIMEOUT", "COMPLETED"]
    assert whole(clone)


def test_a_job_whose_node_dies_is_submitted_again(cluster, clone, start):
    run = start(clone, "--", CSV)
    job = in_the_middle(run)
    node = cluster("sinfo", "-h", "-o", "%n")
    cluster.end("slurmd", signal.SIGKILL)
    cluster("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    cluster.signal(job, signal.SIGKILL)
    cluster.script("daemon", "slurmd")  # ReturnToService=2: the node is up again as soon as its slurmd is
    run.ends()
    assert [state for state, _ in run.jobs().values()] == ["NODE_FAIL", "COMPLETED"]
    assert whole(clone)


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.exhaustive)])
def test_slurmctld_restarts_in_the_middle(cluster, clone, start, how):
    run = start(clone, "--", CSV)
    job = in_the_middle(run)
    cluster.end("slurmctld", how)
    time.sleep(3)
    cluster.script("daemon", "slurmctld")
    run.ends()
    assert {number: state for number, (state, _) in run.jobs().items()} == {job: "COMPLETED"}
    assert whole(clone)


def test_after_a_killed_snakemake_the_next_ones_job_waits_for_the_one_that_runs_on(cluster, clone, start):
    run = start(clone, "--", CSV)
    job = in_the_middle(run)
    cluster.signal(job, signal.SIGSTOP)  # otherwise it may end before the next one looks
    run.stop()
    run = start(clone, "--", CSV)
    wait_until(lambda: set(cluster.running()) - run.before, 60, "the second job")
    cluster.signal(job, signal.SIGCONT)
    run.ends()
    assert whole(clone)


def test_a_row_tells_whether_it_was_alone_and_a_setting_gives_it_the_whole_node(cluster, clone, start):
    neighbour = int(cluster("sbatch", "--parsable", "--output=/dev/null", "--time=10", "--mem=100", "--wrap=sleep 600"))
    wait_until(lambda: cluster.jobs()[neighbour][0] == "RUNNING", message="the neighbour")
    run = start(clone, "--", CSV)
    job = in_the_middle(run)
    run.ends()
    rows = pd.read_csv(clone / CSV)
    assert list(rows.alone) == [False] * len(BLOCKS)
    assert set(rows.slurm_job) == {job}
    assert set(rows.node) == {cluster("sinfo", "-h", "-o", "%n")}

    settings = clone / "config/cluster.yaml"
    config = yaml.safe_load(settings.read_text())
    config["platforms"]["emulated"]["slurm"]["exclusive"] = "node"
    settings.write_text(yaml.safe_dump(config))
    shutil.rmtree(clone / "results/emulated/journal")
    (clone / CSV).unlink()
    run = start(clone, "--", CSV)
    wait_until(lambda: set(cluster.running()) - run.before, 60, "the job")
    [job] = set(cluster.running()) - run.before
    assert cluster.jobs()[job][0] == "PENDING"
    cluster("scancel", str(neighbour))
    run.ends()
    assert "OverSubscribe=NO" in cluster("scontrol", "show", "job", str(job))
    assert list(pd.read_csv(clone / CSV).alone) == [True] * len(BLOCKS)
