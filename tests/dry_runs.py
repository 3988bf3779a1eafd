"""A server of dry runs: `python dry_runs.py`, started in a clone, answers each line on stdin, the options of one.

Importing Snakemake takes longer than a dry run of a small study, so it is imported once, and each run is a fork.
"""

import os
import shlex
import sys

import snakemake.cli

from tilewise import preflight, rules  # noqa: F401  what the rules import
from tilewise.report import figures, tables  # noqa: F401

for line in sys.stdin:
    child = os.fork()
    if not child:
        output = os.open("dry_run.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.argv[1:] = shlex.split(line)
        snakemake.cli.main(["--dry-run", *sys.argv[1:]])  # which ends the process
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
