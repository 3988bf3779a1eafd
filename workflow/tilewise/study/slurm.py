"""Slurm: the config's settings as resources of Snakemake's Slurm executor, and which of its jobs failed.

Without that executor the resources have no effect: the same rules run on this machine.
"""

import functools
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Settings = Mapping[str, Any]
LOGS = Path("logs/slurm")  # slurm-logdir of the profile
STARTED = time.time()
#: The executor's name for each setting; `_gpus` below decides on `--gpus`.
RESOURCES = {
    "account": "slurm_account",
    "partition": "slurm_partition",
    "qos": "qos",
    "constraint": "constraint",
    "gres": "gres",
    "gpu_model": "gpu_model",
    "extra": "slurm_extra",
}


def cpu_job(config: Settings) -> dict[str, Any]:
    """Resources of a job that does not need a GPU, by name: the settings of the config's `slurm`."""
    return {RESOURCES[key]: value for key, value in _settings(config).items()}


def gpu_job(config: Settings, platforms: Mapping[str, Settings]) -> dict[str, Any]:
    """Resources of a job on a platform's own nodes, by name; each is a function of the wildcards.

    The settings of the platform's `slurm` take precedence over those of the config's.
    """
    settings = {name: _settings(config) | _settings(platform) for name, platform in platforms.items()}
    asked = {key for keys in settings.values() for key in keys}
    resources = {name: functools.partial(_setting, settings, key) for key, name in RESOURCES.items() if key in asked}
    return resources | {"gpu": functools.partial(_gpus, settings, platforms)}


def _settings(place: Settings) -> dict[str, Any]:
    return place.get("slurm") or {}  # `slurm:` with only comments below it is null


def _setting(settings: Mapping[str, Settings], key: str, wildcards: Any) -> Any:
    return settings[wildcards.platform].get(key)


def _gpus(settings: Mapping[str, Settings], platforms: Mapping[str, Settings], wildcards: Any) -> int:
    """GPUs to ask for with --gpus: one, unless the platform asks for it with --gres or has no GPU."""
    mine = settings[wildcards.platform]
    on_gpu = platforms[wildcards.platform]["backend"] == "gpu"
    return int("gres" not in mine and (on_gpu or "gpu_model" in mine))


def await_controller(attempts: int = 360, pause_s: float = 5) -> None:
    """Make the executor wait for a Slurm controller that does not answer, for example while it restarts.

    The executor asks the controller for MinJobAge before it looks at the jobs. Without an answer it switches from
    squeue to sacct. On a cluster without accounting it then forgets its jobs and waits for ever (executor 2.8.0).
    """
    import snakemake_executor_plugin_slurm as executor

    ask = executor.get_min_job_age

    def patiently() -> Any:
        for _ in range(attempts):
            age = ask()
            if age is not None:
                return age
            time.sleep(pause_s)

    executor.get_min_job_age = patiently


def failures(folder: Path | str = LOGS, since: float = STARTED) -> str:
    """One line for each Slurm job that failed in this run: its id and state, its rules, and its log.

    The executor keeps only the logs of failed jobs, under their ids. Snakemake's own message about a failed group does
    not say why it failed.
    """
    logs = [path for path in Path(folder).rglob("*.log") if path.stat().st_mtime >= since]
    ended = {path: _state(path.stem) for path in sorted(logs, key=lambda path: path.stat().st_mtime)}
    return "\n".join(_failure(path, state) for path, state in ended.items() if state != "COMPLETED")


def _failure(path: Path, state: str) -> str:
    text = path.read_text(errors="replace")
    rules = re.findall(r"^(?:local)?rule (\w+):$(?:\n    .*)*?\n    wildcards: (.*)$", text, re.MULTILINE)
    names = dict.fromkeys(f"{rule} ({wildcards})" for rule, wildcards in rules) or [path.parent.name]
    return f"Slurm job {path.stem} ended as {state}: {'; '.join(names)}; its log is {path}"


def _state(job: str) -> str:
    """Slurm's word for how a job ended. Slurm remembers it only for some minutes."""
    query = ["squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job}"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return "FAILED"
    return answer.stdout.strip() or "FAILED"
