"""The study through the profile, on a real Slurm."""

import os
import re

import pandas as pd
import pytest
from clones import keep_tasks, opened
from waiting import wait_until

QUICK = ("--configfile", "config/cluster.yaml", "config/quick.yaml")


#: Of the quick study: a task that takes a GPU, and one of CPU loops.
TASKS = ("task3", "loop_orders")


@pytest.fixture(scope="module")
def small(cluster, emulated, tmp_path_factory):
    """A clone after a study of two tasks, and the run."""
    from cluster import Run

    clone = emulated(tmp_path_factory.mktemp("slurm") / "clone", {"emulated": {"gres": "gpu:1"}})
    keep_tasks(clone, *TASKS)
    return clone, Run(cluster, clone, *QUICK, "--tilewise-keep-successful-logs").ends()


@pytest.mark.slow
def test_a_study_takes_a_job_per_task_and_a_few_minutes(small, record_property):
    clone, run = small
    polls = run.seconds_of_polls()
    record_property("note", f"two tasks through Slurm: {run.seconds:.0f} s, {polls:.0f} s of it waiting for polls")
    # Beside other tests (pytest -n) it may take far longer; one that hangs ends after 1800 s.
    assert polls < 60 and (run.seconds < 360 or "PYTEST_XDIST_WORKER" in os.environ)
    jobs = run.jobs()
    assert {state for state, _ in jobs.values()} == {"COMPLETED"}
    assert len(jobs) == len(TASKS) + 3, "each task, the probe, the trace and the occupancy"
    comments = " ".join(comment for _, comment in jobs.values())
    assert all(rule in comments for rule in ("probe", "trace", "occupancy", "measure"))
    assert not any(rule in comments for rule in ("collect", "show", "overview", "page"))
    rows = pd.read_csv(clone / "results/emulated/measurements.csv")
    emulated = ~rows.message.fillna("").str.startswith("not emulated")
    assert set(rows.task) == set(TASKS)
    assert set(rows[emulated].status) <= {"ok", "timeout"}
    assert set(rows.platform) == {"emulated"}
    assert (clone / "results/report.html").is_file()


@pytest.mark.slow
def test_measuring_jobs_have_a_gpu_of_their_own_and_the_others_none(cluster, small):
    _, run = small
    spans = []
    for number, (_, comment) in run.jobs().items():
        facts = dict(re.findall(r"(\w+)=(\S+)", cluster("scontrol", "show", "job", str(number))))
        loops = re.search("emulated_loop_orders$", comment)  # the task of the CPU alone
        on_gpu = not loops and re.search("measure|probe|occupancy", comment) is not None
        assert facts.get("TresPerNode") == ("gres:gpu:1" if on_gpu else None)
        if on_gpu:
            spans.append((facts["StartTime"], facts["EndTime"]))
    for moment, _ in spans:
        assert sum(start <= moment < end for start, end in spans) <= 2, "more jobs than GPUs"


@pytest.mark.slow
def test_jobs_ask_for_what_they_need(cluster, small):
    """Minutes as little as the task took where it was recorded, with a margin, and a core if nothing is timed."""
    _, run = small
    loops = 0
    for number, (_, comment) in run.jobs().items():
        facts = dict(re.findall(r"(\w+)=(\S+)", cluster("scontrol", "show", "job", str(number))))
        hours, minutes, _ = map(int, facts["TimeLimit"].split(":"))
        assert 5 <= 60 * hours + minutes <= 30, comment
        loops += facts["NumCPUs"] == "8"
        if re.search("probe|task3", comment):
            assert (facts["NumCPUs"], facts["MinMemoryNode"]) == ("1", "1000M")
    assert loops == 1, "the task of CPU loops"


@pytest.mark.slow
def test_the_page_names_nodes_and_what_was_counted_was_counted_once(small):
    clone, run = small
    assert sum("trace" in comment for _, comment in run.jobs().values()) == 1
    rows = pd.read_csv(clone / "results/emulated/measurements.csv")
    assert set(rows.loc[rows.status == "ok", "slurm_job"]) <= set(run.jobs())
    assert re.search(r'[">]node["<\n]', opened(clone / "results/report.html"))


@pytest.mark.slow
def test_rerunning_a_task_submits_only_its_own_job(small, start):
    clone, _ = small
    run = start(clone, *QUICK, "--forcerun", "measure", "--", "task3").ends()
    [(state, comment)] = run.jobs().values()
    assert state == "COMPLETED"
    assert "measure" in comment
    assert (clone / "results/emulated/tables/task3.csv").is_file()


@pytest.mark.slow
def test_platforms_run_side_by_side_and_all_spellings_of_a_gpu_are_served(cluster, emulated, start, tmp_path):
    task = {"title": "small", "sweeps": [{"kernel": "tiled", "dtype": "float", "shapes": "square", "tile": 8}]}
    platforms = {
        "red": {"gpu_model": "red"},
        "blue": {"gpu_model": "blue-80gb", "partition": "main"},
        "both": {"gres": "gpu:red:1,gpu:blue-80gb:1", "constraint": "blue-80gb", "extra": "--nice=5"},
    }
    clone = emulated(tmp_path / "clone", platforms, tasks={"task4": task})
    run = start(clone, "--", *(f"results/{name}/tasks/task4.csv" for name in platforms)).ends()
    assert len(run.jobs()) == 6, "a probe and a task on each"
    asked = {}
    for number, (state, comment) in run.jobs().items():
        assert state == "COMPLETED"
        if "measure" in comment:
            [name] = (name for name in platforms if name in comment)
            asked[name] = cluster("scontrol", "show", "job", str(number))
    assert "TresPerJob=gres:gpu:red:1" in asked["red"]
    assert "TresPerJob=gres:gpu:blue-80gb:1" in asked["blue"]
    assert "TresPerNode=gres:gpu:red:1,gres:gpu:blue-80gb:1" in asked["both"]
    assert "Features=blue-80gb" in asked["both"] and "Nice=5" in asked["both"]
    for name in platforms:
        assert set(pd.read_csv(clone / f"results/{name}/tasks/task4.csv").platform) == {name}


def test_the_login_nodes_own_platform_is_refused(emulated, start, tmp_path):
    clone = emulated(tmp_path / "clone", {"emulated": {}})
    run = start(clone, "--configfile", "config/quick.yaml").ends(status=1)
    assert "--configfile config/cluster.yaml config/quick.yaml" in run.output
    assert not run.jobs()


def test_a_gpu_that_the_cluster_lacks_is_reported(emulated, start, tmp_path):
    clone = emulated(tmp_path / "clone", {"emulated": {"gpu_model": "green"}})
    run = start(clone, *QUICK, "--retries", "0", "--", "results/emulated/device.json").ends(status=1)
    wait_until(lambda: "rule probe" in run.snakemakes_log)
    assert "Requested node configuration is not available" in run.output
