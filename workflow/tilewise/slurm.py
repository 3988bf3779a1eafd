"""What the config says about Slurm, as the resources that Snakemake's Slurm executor reads.

Without that executor the resources mean nothing: the same rules run on this machine.
"""

import functools

#: The executor's name of each setting; `--gpus` and its model come from `_gpus` below.
RESOURCES = {
    "account": "slurm_account",
    "partition": "slurm_partition",
    "qos": "qos",
    "constraint": "constraint",
    "gres": "gres",
    "gpu_model": "gpu_model",
    "extra": "slurm_extra",
}


def cpu_job(config):
    """Resources of a job that needs no GPU, by name: the settings of the config's `slurm`."""
    return {RESOURCES[key]: value for key, value in _settings(config).items()}


def gpu_job(config, platforms):
    """Resources of a job on a platform's own nodes, by name, each a function of the wildcards.

    The settings of the platform's `slurm` go before those of the config's.
    """
    settings = {name: _settings(config) | _settings(platform) for name, platform in platforms.items()}
    asked = {key for keys in settings.values() for key in keys}
    resources = {name: functools.partial(_setting, settings, key) for key, name in RESOURCES.items() if key in asked}
    return resources | {"gpu": functools.partial(_gpus, settings, platforms)}


def _settings(place):
    return place.get("slurm") or {}  # `slurm:` with nothing but comments below is null


def _setting(settings, key, wildcards):
    return settings[wildcards.platform].get(key)


def _gpus(settings, platforms, wildcards):
    """GPUs to ask for with --gpus: one, unless the platform spells it --gres or has none."""
    mine = settings[wildcards.platform]
    on_gpu = platforms[wildcards.platform]["backend"] == "gpu"
    return int("gres" not in mine and (on_gpu or "gpu_model" in mine))
