"""A server of runs, which `clones.Forks` starts: it answers each line on stdin, a command as typed.

A command is `snakemake …` or `tilewise …`. Importing Snakemake takes longer than a run of a small study, so it is
imported once, and each run is a fork.
"""

import contextlib
import gc
import importlib
import json
import os
import shlex
import sys
import traceback
from pathlib import Path

import snakemake.cli

import tilewise.__main__
from tilewise.study import registry

OUTPUT, MODULES, PID = Path("run.out"), Path("modules.json"), Path("run.pid")


def run(program: str, *options: str) -> int:
    """Run a command line in a child, whose words are in OUTPUT and whose number is in PID; returns its exit status."""
    child = os.fork()
    if not child:
        PID.write_text(str(os.getpid()))
        output = os.open(OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.argv[1:] = options
        status: int | str | None = 1
        try:
            status = tilewise.__main__.main(options) if program == "tilewise" else snakemake.cli.main(list(options))
        except SystemExit as ended:
            status = ended.code
            if isinstance(status, str):
                print(status, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            if program == "modules":
                MODULES.write_text(json.dumps(sorted(sys.modules)))
            sys.stdout.flush()
            os._exit(status if isinstance(status, int) else bool(status))  # without the seconds of a tidy end
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    # Most of a run is its imports, which are the same each time.
    run("modules", "--cores", "1", "--dry-run")
    for name in json.loads(MODULES.read_text()):
        with contextlib.suppress(ImportError):  # those that Snakemake makes up
            importlib.import_module(name)
    registry.load()  # a run parses only what was edited since
    gc.collect()
    gc.freeze()  # the pages of the children stay those of the parent
    print("ready", flush=True)
    for line in sys.stdin:
        print(run(*shlex.split(line)), flush=True)
