"""Read the config options of the command line. Snakemake reads them before the Snakefile and names no mistakes."""

import argparse
import os
import re
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from kernelscope.yaml_input import parse_yaml, read_yaml, suggest_name
from tilewise import UserError

#: The words that --cores and --jobs accept instead of a number.
EVERY = {"cores": "all", "jobs": "unlimited"}
#: What messages call the values of --config.
WORD = "--config"


def check(arguments: Sequence[str] | None = None) -> None:
    """Raise UserError for options of a run that cannot work: a number of cores or jobs below 1, a --config that is no
    name with a value, and a --configfile that cannot be read, with its file and line.

    `arguments` are those of Snakemake, by default this process's own.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--configfile", "--configfiles", nargs="+", default=[])
    parser.add_argument("--config", "-C", nargs="*", default=[])
    parser.add_argument("--cores", "-c", nargs="?")
    parser.add_argument("--jobs", "-j", nargs="?")
    parser.add_argument("--profile")
    options = parser.parse_known_args(arguments)[0]
    for name, every in EVERY.items():
        number = getattr(options, name)
        if re.fullmatch(r"-?\d+", number or "") and int(number) < 1:
            raise UserError(f"--{name} {number}: a run needs at least one; write a number from 1 on, or {every}")
    parse_values(options.config)
    for path in options.configfile or (["config/cluster.yaml"] if options.profile == "slurm" else []):
        read(path)


def read(path: Path | str) -> dict[str, Any]:
    """Read a config file. Raises UserError, with file and line, if Snakemake could not read it."""
    if not Path(path).suffix and not Path(path).exists():
        raise UserError(f"{path} was taken for a config file; name targets before --configfile, or after `--`")
    found = read_yaml(path)
    if not isinstance(found, dict):
        raise UserError(f"{path}: a config holds keys with values, such as `seed: 524`; see config/quick.yaml")
    return found


def parse_values(words: Sequence[str]) -> dict[str, Any]:
    """The values of --config by name, each as YAML has it: `strict=true`, `'timing={repeats: 1}'`.

    Snakemake takes all within braces for text. Raises UserError for a word that is no name with a value.
    """
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise UserError(f"{WORD} {word}: a value is missing; write a name with one, for example seed=524")
        if "." in name:
            outer, *inner = name.split(".")
            nested = text
            for key in reversed(inner):
                nested = f"{{{key}: {nested}}}"
            raise UserError(f"{WORD} {word}: a key within another is written in braces: {WORD} '{outer}={nested}'")
        try:
            found[name] = parse_yaml(text, f"{WORD} {word}")
        except UserError as error:
            if text.count("{") == text.count("}") and text.count("[") == text.count("]"):
                raise UserError(str(error).replace(f"{word}:1:", f"{word}:")) from None
            raise UserError(
                f"{WORD} {word}: a bracket stays open, because the shell divides words at blanks; put all of it into "
                f"quotes, for example {WORD} 'timing={{repeats: 1}}'"
            ) from None
    return found


class Source:
    """The origins of config values: layers with names, the later of which replace values of the earlier."""

    def __init__(self, layers: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        self.layers = layers

    def __call__(self, place: str) -> str:
        """The name of the layer that has the value at a place, such as timing.repeats; of all if none has it."""
        for name, data in reversed(self.layers):
            found: Any = data
            for key in place.split("."):
                if not isinstance(found, Mapping):
                    return name  # a value that replaces the whole
                if key not in found:
                    break
                found = found[key]
            else:
                return name
        return ", ".join(name for name, _ in self.layers)


def settle(config: MutableMapping[str, Any], files: Sequence[Path | str], settings: Any) -> Source:
    """Give the values of --config in `config` their types, and return where each value of it comes from.

    `files` are the config files of the workflow and of the command line, `settings` Snakemake's settings of the config.
    Raises UserError if a task is left out by `null` that no earlier layer has.
    """
    last = [*map(Path, settings.configfiles)]
    own = [path for path in map(Path, files) if path not in last]
    words = {name: value for name, value in parse_values(settings.config_args or []).items() if name in config}
    layers = [(os.path.relpath(path), read(path)) for path in (*own, *last)] + ([(WORD, words)] if words else [])
    known: dict[str, None] = {}
    for name, data in layers if own else ():
        tasks = data.get("tasks")
        named = tasks if isinstance(tasks, Mapping) else {}
        for task, entry in named.items() if data is not layers[0][1] else ():  # the first says what there is
            if entry is None and task not in known:
                near = suggest_name(task, known, "`tilewise list tasks` shows all")
                raise UserError(f"{name}: tasks.{task}: there is no such task to leave out; {near}")
        known |= dict.fromkeys(named)
    _update(config, words)
    return Source(layers)


def _update(config: MutableMapping[str, Any], values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, Mapping) and isinstance(config.get(name), MutableMapping):
            _update(config[name], value)
        else:
            config[name] = value
