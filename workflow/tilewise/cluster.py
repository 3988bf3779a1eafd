"""How this study uses Slurm: the executor of snakemake-executor-plugin-slurm, with what a run of minutes needs.

It asks for the time that the tasks of a job need together, looks often, tells why a job cannot start, submits again
only what may end otherwise, waits for the job of a run that was killed, and says of each failure the rule, task and
cause.
"""

import getpass
import json
import re
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import snakemake_executor_plugin_slurm as plugin
from snakemake.iocontainers import ResourceList
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry

from tilewise.files import MESSAGE, digest, write_json

#: Seconds between two looks at the jobs. The plugin's own pauses grow to three minutes, longer than most jobs here.
LOOK_S = 10
#: Seconds for which a reason that cannot pass has to last: Slurm may give it for a moment while it is reconfigured.
STUCK_S = 8
#: Ends that another try may spare; everything else ends in the same way again.
PASSING = ("BOOT_FAIL", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
#: Refusals of sbatch that pass by themselves.
REFUSED_FOR_NOW = r"SubmitJobLimit|MaxSubmitJobs|contact slurm controller|timed out|[Tt]emporarily|try again"
#: Where a run keeps what it submitted, for the next one if it is killed.
SUBMITTED = Path(".snakemake/slurm")

_CONFIG = "config/cluster.yaml"
_COMPARE = f"compare {_CONFIG} with what the nodes have: sinfo -o '%P %N %G %f %c %m'"
_ACCOUNT = f"correct `account` and `partition` in {_CONFIG}; sacctmgr show assoc user=$USER lists yours"
_QOS = f"correct `qos` in {_CONFIG}; sacctmgr show qos format=name,maxwall,maxtres lists them"
_LESS_TIME = f"set `max_minutes` in {_CONFIG} to the limit; sinfo -o '%P %l' shows a partition's"
_LESS = f"ask for less: `max_minutes` in {_CONFIG}, or set-resources in slurm/config.yaml"
#: Reasons for which Slurm lets a job wait although nothing but a change of its settings helps, and what to do.
STUCK = {
    r"PartitionTimeLimit|AssocMaxWallDurationPerJobLimit|QOSMaxWallDurationPerJobLimit": _LESS_TIME,
    r"BadConstraints|PartitionNodeLimit|InvalidFeature|NodeNotAvail.*Invalid": _COMPARE,
    r"InvalidAccount|AccountNotAllowed|AssocNotAllowed": _ACCOUNT,
    r"InvalidQOS|QOSNotAllowed": _QOS,
    r"(Assoc|QOS)(Max|Min)\w*Per(Job|Node)\w*|QOSMin\w+|MaxMemPerLimit": _LESS,
    r"JobHeld(User|Admin)|.*RequeuedHeld": "somebody holds the job: ask who, or scontrol release it and run again",
    r"DependencyNeverSatisfied|ReservationDeleted|InvalidLicense": f"correct `extra` in {_CONFIG}",
}
#: The same for what sbatch says when it refuses a job.
REFUSED = {
    r"[Ii]nvalid account|account .* appears to be invalid": _ACCOUNT,
    r"[Ii]nvalid partition": f"correct `partition` in {_CONFIG}; sinfo -s lists them",
    r"[Ii]nvalid qos|QOS": _QOS,
    r"[Ii]nvalid feature|node configuration is not available|generic resource|[Ii]nvalid constraint": _COMPARE,
    r"time limit|Requested partition configuration": _LESS_TIME,
}
#: What to do about a job that Slurm ended, which it has tried twice.
ENDED = {
    "TIMEOUT": f"run again, which goes on after the last point; `max_minutes` in {_CONFIG} caps the time",
    "OUT_OF_MEMORY": "set more mem_mb for the rule with set-resources in slurm/config.yaml",
    "NODE_FAIL": "run again; if a node fails often, leave it out with `extra: --exclude=NODE`",
    "CANCELLED": "run again, which goes on after the last point",
}


def minutes(seconds: float, attempt: int = 1, most: int | None = None) -> int:
    """The time to ask for: three times what the tasks took where they were recorded, five minutes to start, twice as
    much for a second try, and no more than `most`."""
    asked = attempt * (5 + -(-3 * seconds // 60))
    return int(min(asked, most or asked))


def use() -> None:
    """Let Snakemake submit to Slurm through this module's executor."""
    plugin.get_min_job_age = patiently(plugin.get_min_job_age)
    ExecutorPluginRegistry().get_plugin("slurm").executor = Executor


def patiently(ask: Callable[[], Any], attempts: int = 360, pause_s: float = 5) -> Callable[[], Any]:
    """A function that asks until there is an answer, for a Slurm controller that restarts.

    The executor asks the controller for MinJobAge before it looks at the jobs. Without an answer it switches from
    squeue to sacct. On a cluster without accounting it then forgets its jobs and waits for ever (executor 2.8.0).
    """

    def asking() -> Any:
        for _ in range(attempts):
            age = ask()
            if age is not None:
                return age
            time.sleep(pause_s)

    return asking


class Executor(plugin.Executor):
    """The plugin's executor, as the module says."""

    #: One line for each job that failed and was not saved by a second try, by its first output.
    failed: ClassVar[dict[str, str]] = {}

    def __post_init__(self, *arguments: Any, **options: Any) -> None:
        super().__post_init__(*arguments, **options)
        self._failed_nodes: set[str] = _Unchanged(self._failed_nodes)
        self.earlier = still_there()
        self.stuck_since: dict[str, float] = {}

    # ---- Submitting -------------------------------------------------------------------------------------------------

    def get_account_arg(self, job: Any) -> Iterator[str]:
        """The account of the settings, or else Slurm's own default; the plugin would look for one in old jobs."""
        return super().get_account_arg(job) if job.resources.get("slurm_account") else iter([""])

    def run_job(self, job: Any) -> None:
        """Submit a job, unless one of an earlier run still works on the same files: then wait for that one."""
        number = next((n for n, entry in self.earlier.items() if set(entry["outputs"]) & set(_outputs(job))), None)
        if number is None:
            self._size(job)
            super().run_job(job)
            return
        self.logger.warning(
            f"Slurm job {number} of an earlier run still works on {_names(_parts(job))}; waiting for it"
        )
        self._report_job_submission_threadsafe(SubmittedJobInfo(job, number, {"earlier": self.earlier.pop(number)}))

    def _size(self, job: Any) -> None:
        """Give a job the time that its parts need one after the other, unless a setting fixes it."""
        if job.resources.get("runtime"):
            return
        parts = [part.resources for part in _parts(job)]
        seconds = sum(resources.get("seconds") or 0 for resources in parts)
        most = min(filter(None, (resources.get("max_minutes") for resources in parts)), default=None)
        sized = {**dict(job.resources.items()), "runtime": minutes(seconds, job.attempt, most)}
        job._resources = sized if job.is_group() else ResourceList(fromdict=sized)

    def report_job_submission(self, job_info: SubmittedJobInfo, register_job: bool = True) -> None:
        """Also remember the job for a run that comes after this one was killed."""
        super().report_job_submission(job_info, register_job)
        if job_info.external_jobid and "earlier" not in job_info.aux:
            job = job_info.job
            write_json({"outputs": _outputs(job), "work": _work(job)}, SUBMITTED / f"{job_info.external_jobid}.json")

    # ---- Looking ----------------------------------------------------------------------------------------------------

    @property
    def next_seconds_between_status_checks(self) -> float:
        """At most LOOK_S, whatever the plugin says."""
        return min(super().next_seconds_between_status_checks, LOOK_S)

    @next_seconds_between_status_checks.setter
    def next_seconds_between_status_checks(self, value: float) -> None:
        self._next_seconds_between_status_checks = value

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncIterator[SubmittedJobInfo]:
        """Look at the jobs; yields those that still wait or run."""
        awaited = [job for job in active_jobs if "earlier" in job.aux]
        states = _squeue("%T") if awaited else None
        for job in awaited:
            state = "RUNNING" if states is None else states.get(job.external_jobid, "GONE")
            if state in _AT_WORK:
                yield job
            elif state == "COMPLETED" and job.aux["earlier"]["work"] == _work(job.job):
                self.report_job_success(job)
            else:
                _forget(job)
                self._job_submission_executor.submit(self.run_job, job.job)
        ours = [job for job in active_jobs if "earlier" not in job.aux]
        stuck = self._stuck({job.external_jobid for job in ours})
        for job in [job for job in ours if job.external_jobid in stuck]:
            subprocess.run(["scancel", job.external_jobid], capture_output=True)
            self.report_job_error(job, reason=stuck[job.external_jobid])
        async for job in super().check_active_jobs([job for job in ours if job.external_jobid not in stuck]):
            yield job

    def _stuck(self, numbers: set[str]) -> dict[str, str]:
        """Why some of the jobs cannot start, by their numbers."""
        reasons = (_squeue("%r", "--states=PENDING") or {}) if numbers else {}
        lasting = {n: why for n, why in reasons.items() if n in numbers and remedy(why, STUCK)}
        now = time.monotonic()
        self.stuck_since = {n: self.stuck_since.get(n, now) for n in lasting}
        return {n: why for n, why in lasting.items() if now - self.stuck_since[n] >= STUCK_S}

    # ---- Ends -------------------------------------------------------------------------------------------------------

    def report_job_success(self, job_info: SubmittedJobInfo) -> None:
        _forget(job_info)
        self.failed.pop(_outputs(job_info.job)[0], None)
        super().report_job_success(job_info)

    def report_job_error(
        self, job_info: SubmittedJobInfo, msg: str | None = None, reason: str = "", **options: Any
    ) -> None:
        """Say which rule and task failed, and why; `reason` is for a job that could not start. A job that would end in
        the same way again is not submitted again."""
        job, number = job_info.job, job_info.external_jobid
        _forget(job_info)
        if reason:
            line = f"Slurm job {number} cannot start: {_names(_parts(job))}: {reason}: {remedy(reason, STUCK)}"
            passing = False
        elif number is None:
            refusal = _refusal(msg or "")
            advice = remedy(refusal, REFUSED)
            line = f"Slurm refuses {_names(_parts(job))}: {refusal}{f'; {advice}' if advice else ''}"
            passing = re.search(REFUSED_FOR_NOW, refusal) is not None
        else:
            found = re.search(r"status is: '(\w+)'", msg or "")
            state = found[1] if found else "FAILED"
            line = failure(
                number, state, [(name, output) for name, output in _steps(job)], job_info.aux["slurm_logfile"]
            )
            passing = state in PASSING
        if passing and job.restart_times > job.attempt - 1:
            line += "; it is submitted again"
        else:
            job.attempt = job.restart_times + 1
        self.failed[_outputs(job)[0]] = line
        self.logger.warning(line)
        self.workflow.scheduler.error_callback(job)


class _Unchanged(set):
    """The nodes that the user excludes. The plugin adds each on which a job failed because the node went down. But
    Slurm itself uses no node that is down, and if only that node fits, no second try could ever start."""

    def add(self, node: str) -> None:
        """Nothing."""


#: States of a job that is not at its end.
_AT_WORK = (
    "PENDING",
    "CONFIGURING",
    "RUNNING",
    "COMPLETING",
    "SUSPENDED",
    "REQUEUED",
    "RESIZING",
    "STOPPED",
    "SIGNALING",
)


def still_there(folder: Path | str = SUBMITTED) -> dict[str, dict[str, Any]]:
    """What earlier runs submitted and Slurm has not ended, by the job's number: its `outputs` and its `work`."""
    records = {path.stem: path for path in Path(folder).glob("*.json")}
    states = _squeue("%T") if records else {}
    if states is None:  # nobody can tell
        return {}
    found = {}
    for number, path in sorted(records.items()):
        if states.get(number) in _AT_WORK:
            found[number] = json.loads(path.read_text())
        else:
            path.unlink(missing_ok=True)
    return found


def failure(number: str, state: str, steps: Sequence[tuple[str, str]], log: Path | str) -> str:
    """The line about a job that Slurm ended: its number and state, the steps that did not finish, the cause, its log.

    `steps` are names and first outputs of what it was to do.
    """
    path = Path(log)
    text = path.read_text(errors="replace") if path.is_file() else ""
    errors = "\n".join(re.findall(r"^ *Error in rule .*(?:\n {4,}.*)*", text, re.MULTILINE))
    named = [name for name, output in steps if output in errors] if state == "FAILED" else []
    named = named or [name for name, output in steps if not Path(output).exists()] or [name for name, _ in steps]
    why = cause(text) if state == "FAILED" else ENDED.get(state, "")
    place = f"its log is {path}" if path.is_file() else "it left no log"
    return "; ".join([f"Slurm job {number} ended as {state}: {'; '.join(named)}{f': {why}' if why else ''}", place])


def cause(text: str) -> str:
    """Why a job failed, from its log: what Tilewise said, or else the last error of Python, or else the last line."""
    said = re.findall(rf"^{re.escape(MESSAGE)}(.*)$", text, re.MULTILINE)
    raised = re.findall(r"^((?:\w+\.)*\w*(?:Error|Exception): (?!At least one job).*)$", text, re.MULTILINE)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (said or raised or lines or ["it said nothing"])[-1]


def remedy(words: str, remedies: Mapping[str, str]) -> str | None:
    """What to do about a reason, from a table whose keys are patterns."""
    return next((advice for pattern, advice in remedies.items() if re.search(pattern, words)), None)


def _refusal(message: str) -> str:
    """What sbatch or the plugin says of a job that was not submitted, in one line."""
    found = re.search(r"The error message was '(.*?)'\.\n", message, re.DOTALL)
    words = found[1] if found else message.removeprefix("Job submission failed with exception: ")
    words = re.sub(r"\b(sbatch|srun): (error: )?|Batch job submission failed: ", "", words)
    return "; ".join(line.strip().rstrip(".") for line in words.splitlines() if line.strip())


def _squeue(form: str, *options: str) -> dict[str, str] | None:
    """What squeue says of this user's jobs, by their numbers; None if it does not answer."""
    query = ["squeue", "--noheader", f"--user={getpass.getuser()}", f"--format=%i|{form}"]
    try:
        answer = subprocess.run([*query, *(options or ["--states=all"])], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode:
        return None
    return dict(line.split("|", 1) for line in answer.stdout.splitlines())  # type: ignore[misc]


def _forget(job_info: SubmittedJobInfo) -> None:
    (SUBMITTED / f"{job_info.external_jobid}.json").unlink(missing_ok=True)


def _parts(job: Any) -> list[Any]:
    """The jobs of a group in the order of their first outputs, or the job itself."""
    return sorted(job.jobs, key=lambda part: str(part.output[0])) if job.is_group() else [job]


def _outputs(job: Any) -> list[str]:
    return [str(path) for part in _parts(job) for path in part.output]


def _name(part: Any) -> str:
    wildcards = ", ".join(f"{name}={value}" for name, value in part.wildcards_dict.items())
    return f"{part.rule.name} ({wildcards})" if wildcards else part.rule.name


def _names(parts: Iterable[Any]) -> str:
    return "; ".join(map(_name, parts))


def _steps(job: Any) -> list[tuple[str, str]]:
    return [(_name(part), str(part.output[0])) for part in _parts(job)]


def _work(job: Any) -> str:
    """A digest of what a job does: if that of an earlier one is equal, its results are what this run wants."""
    made = set(_outputs(job))
    return digest(
        [
            [
                part.rule.name,
                part.wildcards_dict,
                dict(part.params.items()),
                {str(path): Path(path).stat().st_mtime_ns for path in part.input if str(path) not in made},
            ]
            for part in _parts(job)
        ]
    )


def failures() -> str:
    """One line for each job that failed in this run."""
    return "\n".join(Executor.failed.values())
