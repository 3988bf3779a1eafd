"""The config files of the command line: Snakemake reads them before the Snakefile, and does not name their mistakes."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from tilewise import UserError
from tilewise.study.schema import read_yaml


def check(arguments: Sequence[str] | None = None) -> None:
    """Raise UserError, with file and line, for a --configfile that cannot be read; Snakemake's message has neither.

    `arguments` are those of Snakemake, by default this process's own.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--configfile", "--configfiles", nargs="+", default=[])
    parser.add_argument("--profile")
    options = parser.parse_known_args(arguments)[0]
    for path in options.configfile or (["config/cluster.yaml"] if options.profile == "slurm" else []):
        read(path)


def read(path: Path | str) -> None:
    """Raise UserError, with file and line, if a file is not a config that Snakemake can read."""
    if not Path(path).suffix and not Path(path).exists():
        raise UserError(f"{path} was taken for a config file; name targets before --configfile, or after `--`")
    if not isinstance(read_yaml(path), dict):
        raise UserError(f"{path}: a config holds keys with values, such as `seed: 524`; see config/quick.yaml")
