"""Slurm: the config's settings, and what a job needs, as resources of Snakemake's Slurm executor.

Without that executor the resources have no effect: the same rules run on this machine.
"""

import functools
import json
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Settings = Mapping[str, Any]
#: Cores to ask for: NVBench and the task take one each, and CUDA's own threads; NumPy's BLAS takes all that it gets.
GPU_CORES, LOOP_CORES = 4, 8
#: The executor's name for each setting; `gpus` below decides on `--gpus`, `_extra` on what else sbatch gets.
RESOURCES = {
    "account": "slurm_account",
    "partition": "slurm_partition",
    "qos": "qos",
    "constraint": "constraint",
    "gres": "gres",
    "gpu_model": "gpu_model",
}
#: What the Slurm plugin takes as `gres` and `gpu_model`. NVML's names have hyphens, and a gres may be a list: those are
#: this resource, a whole option of sbatch, which the executor of slurm/config.yaml passes on.
PLAIN, REQUEST = re.compile(r"[\w.]+(:[\w.]+)?(:\d+[TGM]?)?"), "sbatch_request"


def spread(platforms: Mapping[str, Settings]) -> dict[str, dict[str, Any]]:
    """Platforms with those that name `nodes` replaced by one platform per node.

    Of `gpu: {nodes: [node7, node8]}` become `gpu-node7` and `gpu-node8`, each with its `node`; of `gpu: {nodes: 2}`
    `gpu-1` and `gpu-2`, where the second has the first in `apart_from`: it takes another node.
    as their `model`.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, platform in platforms.items():
        nodes = platform.get("nodes")
        rest = {key: value for key, value in platform.items() if key != "nodes"}
        if nodes is None:
            found[name] = rest
        elif isinstance(nodes, int):
            names = [f"{name}-{number + 1}" for number in range(nodes)]
            found |= {each: rest | {"apart_from": names[:place]} for place, each in enumerate(names)}
        else:
            found |= {f"{name}-{node}".lower(): rest | {"node": node} for node in nodes}
    return found


def minutes(seconds: float, attempt: int = 1, most: int | None = None) -> int:
    """The time to ask for: three times what the work took where it was recorded, five minutes to start, twice as much
    for a second try, and no more than `most`."""
    asked = attempt * (5 + -(-3 * seconds // 60))
    return int(min(asked, most or asked))


def cpu_job(config: Settings, seconds: float) -> dict[str, Any]:
    """Resources of a job that does not need a GPU, by name: the settings of the config's `slurm`."""
    settings = _settings(config)
    resources = _named(settings)
    resources["runtime"] = lambda wildcards, attempt: minutes(seconds, attempt, settings.get("max_minutes"))
    return resources | ({"slurm_extra": shlex.join(_extra(settings))} if "extra" in settings else {})


def gpu_job(
    config: Settings,
    platforms: Mapping[str, Settings],
    seconds: float | Callable[[Any], float],
    needs_gpu: Callable[[Any], bool] = lambda wildcards: True,
    measures: bool = False,
) -> dict[str, Any]:
    """Resources of a job on a platform's own nodes, by name; each is a function of the wildcards.

    The settings of the platform's `slurm` take precedence over those of the config's. A job for which `needs_gpu` says
    no has the settings of the config's. `seconds` that it takes may depend on the wildcards. `measures`: it asks for
    the whole node if `exclusive` says so.
    """
    settings = {name: _settings(config) | _settings(platform) for name, platform in platforms.items()}
    without_gpu = {key: value for key, value in _settings(config).items() if key not in ("gres", "gpu_model")}

    def of(wildcards: Any) -> Settings:
        return settings[wildcards.platform] if needs_gpu(wildcards) else without_gpu

    def named(name: str, wildcards: Any) -> Any:
        return _named(of(wildcards)).get(name)

    def runtime(wildcards: Any, attempt: int) -> int:
        takes = seconds(wildcards) if callable(seconds) else seconds
        return minutes(takes, attempt, of(wildcards).get("max_minutes"))

    def gpus(wildcards: Any) -> int:
        """Those to ask for with --gpus: one, unless the platform asks for it with --gres or the job needs none."""
        on_gpu = platforms[wildcards.platform]["backend"] == "gpu" or "gpu_model" in of(wildcards)
        asked = "gres" in of(wildcards) or REQUEST in _named(of(wildcards))
        return int(needs_gpu(wildcards) and not asked and on_gpu)

    def extra(wildcards: Any) -> str | None:
        """Further options of sbatch: those of the settings, the whole node, and the node that the platform is about.

        Raises FileNotFoundError as long as another platform's node is not known; Snakemake asks again later.
        """
        mine, platform = of(wildcards), platforms[wildcards.platform]
        options = _extra(mine)
        if measures and mine.get("exclusive") == "node":
            options.append("--exclusive")
        if needs_gpu(wildcards) and "node" in platform:
            options.append(f"--nodelist={platform['node']}")
        elif needs_gpu(wildcards) and "apart_from" in platform:
            if measures:
                options.append(f"--nodelist={_node(wildcards.platform)}")
            elif platform["apart_from"]:
                options.append(f"--exclude={','.join(map(_node, platform['apart_from']))}")
        return shlex.join(options) or None  # a shell reads it

    asked = dict.fromkeys(name for each in settings.values() for name in _named(each))
    resources = {name: functools.partial(named, name) for name in asked}
    return resources | {"runtime": runtime, "gpu": gpus, "slurm_extra": extra}


def _settings(place: Settings) -> dict[str, Any]:
    return place.get("slurm") or {}  # `slurm:` with only comments below it is null


def _named(settings: Settings) -> dict[str, Any]:
    """What a job asks for with options that have a setting, as resources by the executor's names."""
    found = {RESOURCES[key]: value for key, value in settings.items() if key in RESOURCES}
    for name, option in (("gres", "--gres={}"), ("gpu_model", "--gpus={}:1")):
        if not PLAIN.fullmatch(found.get(name, "plain")):
            found[REQUEST] = option.format(found.pop(name))
    return found


def _extra(settings: Settings) -> list[str]:
    """The words of the setting `extra`; the schema refuses quotes and what else a shell acts on."""
    return settings.get("extra", "").split()


def _node(platform: str) -> str:
    """The node that a platform was probed on."""
    return json.loads(Path(f"results/{platform}/device.json").read_text(encoding="utf-8"))["node"]
