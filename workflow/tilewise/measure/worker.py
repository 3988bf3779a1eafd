"""The process that runs jobs: `python -m tilewise.measure.worker FD` reads them from stdin and writes each row to FD.

It prints nothing else to FD; NVBench's log goes to stdout. It may die at any job: `tilewise.measure.task` replaces it.
"""

import itertools
import json
import os
import pickle
import select
import sys

from tilewise.files import collect_rarely, end_with_parent
from tilewise.measure import backends
from tilewise.study.jobs import Row


def main() -> None:
    """Run the jobs of stdin."""
    # A worker whose task is killed would go on measuring during the run that continues the task.
    end_with_parent()
    collect_rarely()
    reader = select.poll()
    reader.register(int(sys.argv[1]), 0)
    if reader.poll(0):  # the task was killed before the signal was requested: no process reads the answers
        sys.exit("the task that started this worker is gone")
    request = pickle.load(sys.stdin.buffer)
    answers = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8")

    def write(what: dict) -> None:
        answers.write(json.dumps(what, default=float) + "\n")
        answers.flush()

    jobs_done = itertools.count()

    def answer(row: Row | None, index: int | None = None) -> None:
        """Write the row of the next job, or of the job at `index`; without a row, announce the job at `index`."""
        write({"index": next(jobs_done) if index is None else index, "row": row})

    write({"started": True})  # from now on a job's time counts
    jobs, how = request.pop("jobs"), request.pop("how")
    setting = backends.Setting(**request)
    for name, some in itertools.groupby(jobs, key=lambda job: job.backend):
        getattr(backends.open_backend(name, setting), how)(list(some), answer)


if __name__ == "__main__":
    main()
