"""Append-only JSON-lines file of finished rows, so that an interrupted task can resume."""

import contextlib
import json
import os
from pathlib import Path
from types import TracebackType

from kernelscope.files import REMEDIES
from tilewise import UserError
from tilewise.files import hold_lock
from tilewise.measure import environment
from tilewise.study.jobs import Row
from tilewise.study.status import LASTING


class Journal:
    """The rows of a task by key, those of earlier runs too.

    Used as a context, which holds the file alone: a second process waits a minute, then raises UserError.
    """

    def __init__(self, path: Path | str):
        self.path, self._open = Path(path), contextlib.ExitStack()
        self.rows: dict[str, Row] = {}

    def __enter__(self) -> "Journal":
        self._open.enter_context(hold_lock(self.path.with_suffix(".lock")))
        self.rows = _read(self.path)
        self._lines = self._open.enter_context(self.path.open("ab", buffering=0))
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.__exit__(kind, error, trace)

    def add(self, key: str, row: Row, lasting: bool = True) -> None:
        """Add a row with its environment; write it to the file if another run would repeat it.

        It survives a kill of this process, and if it is `lasting` also that of the machine, for which each row takes
        some milliseconds.
        """
        row = row | environment.columns(row.get("gpu_uuid"))
        self.rows[key] = row
        if row["status"] in LASTING:
            # The break before it ends a line that a kill may have cut short; empty lines are passed over.
            text = json.dumps({"key": key, "row": row}, default=float)  # JSON does not know NumPy's numbers
            try:
                left = memoryview(f"\n{text}\n".encode())
                while left:
                    left = left[self._lines.write(left) :]
                if lasting:
                    os.fsync(self._lines.fileno())
            except OSError as error:
                raise UserError(f"{self.path}: it cannot be written: {error.strerror}; {REMEDIES}") from error


def _read(path: Path) -> dict[str, Row]:
    """Rows by key. A line that a kill cut short, or that is damaged otherwise, is passed over."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: this is not a file; remove it and run again")
    rows: dict[str, Row] = {}
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        with contextlib.suppress(ValueError, TypeError, LookupError):
            entry = json.loads(line)
            key, row = entry["key"], entry["row"]
            if isinstance(key, str) and row["status"] in LASTING:
                rows[key] = row
    return rows
