"""The executor's decisions that need no Slurm: times, causes, remedies."""

import pytest

from tilewise import cluster

GROUP = """
tilewise: config/config.yaml: tasks.task2: no such kernel

[Sat Nov 21 20:42:14 2026]
Error in rule measure:
    message: None
    jobid: 0
    output: results/gpu/tasks/task2.csv, results/gpu/facts/task2.csv
    log: logs/gpu/measure/task2.log (check log file(s) for error details)

WorkflowError:
At least one job did not complete successfully.
"""


@pytest.mark.parametrize(
    ("seconds", "attempt", "most", "expected"),
    [(0, 1, None, 5), (1, 1, None, 6), (126, 1, None, 12), (126, 2, None, 24), (126, 2, 15, 15), (3600, 1, None, 185)],
)
def test_a_job_asks_for_three_times_what_was_recorded_and_no_more_than_the_setting(seconds, attempt, most, expected):
    assert cluster.minutes(seconds, attempt, most) == expected


def test_of_a_group_that_failed_only_the_step_that_did_is_named_with_its_cause(tmp_path):
    log = tmp_path / "7.log"
    log.write_text(GROUP)
    steps = [(f"measure (platform=gpu, task={name})", f"results/gpu/tasks/{name}.csv") for name in ("task1", "task2")]
    assert cluster.failure("7", "FAILED", steps, log) == (
        "Slurm job 7 ended as FAILED: measure (platform=gpu, task=task2): "
        f"config/config.yaml: tasks.task2: no such kernel; its log is {log}"
    )


def test_a_job_that_slurm_ended_names_what_it_had_not_finished(tmp_path):
    done = tmp_path / "task1.csv"
    done.touch()
    steps = [("measure (task=task1)", str(done)), ("measure (task=task2)", str(tmp_path / "task2.csv"))]
    line = cluster.failure("7", "TIMEOUT", steps, tmp_path / "7.log")
    assert line.startswith("Slurm job 7 ended as TIMEOUT: measure (task=task2): run again")
    assert line.endswith("; it left no log")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Traceback:\nModuleNotFoundError: No module named 'x'\nWorkflowError: At least one job did",
            "ModuleNotFoundError: No module named 'x'",
        ),
        ("/bin/sh: 1: /home/me/.venv/bin/python: not found\n", "/bin/sh: 1: /home/me/.venv/bin/python: not found"),
        ("", "it said nothing"),
    ],
)
def test_without_a_message_of_ours_the_cause_is_pythons_or_the_last_line(text, expected):
    assert cluster.cause(text) == expected


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("PartitionTimeLimit", "max_minutes"),
        ("QOSMaxWallDurationPerJobLimit", "max_minutes"),
        ("BadConstraints", "sinfo"),
        ("InvalidAccount", "account"),
        ("InvalidQOS", "qos"),
        ("QOSMaxCpuPerJobLimit", "less"),
        ("AssocMaxGRESPerJob", "less"),
        ("JobHeldAdmin", "release"),
    ],
)
def test_a_reason_that_cannot_pass_has_a_remedy(reason, words):
    assert words in (cluster.remedy(reason, cluster.STUCK) or "")


@pytest.mark.parametrize(
    "reason",
    ["Resources", "Priority", "PartitionDown", "AssocGrpCpuLimit", "QOSMaxJobsPerUserLimit", "ReqNodeNotAvail", "None",
     "BeginTime", "Dependency", "QOSMaxCpuPerUserLimit", "Licenses", "Reservation", "NodeDown"],
)  # fmt: skip
def test_a_reason_that_passes_is_waited_for(reason):
    assert cluster.remedy(reason, cluster.STUCK) is None


def test_a_controller_that_does_not_answer_is_waited_for():
    answers = iter([None, None, 300])
    assert cluster.patiently(lambda: next(answers), pause_s=0)() == 300


def test_the_executor_still_asks_as_patiently_expects():
    assert callable(cluster.plugin.get_min_job_age)
