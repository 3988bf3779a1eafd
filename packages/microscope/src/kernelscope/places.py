"""Map instructions of a traced kernel to source lines, using debug information."""

import re
import subprocess
from pathlib import Path

from kernelscope.cpp import display_path, tool
from kernelscope.sources import EMULATOR


class Places:
    """File and line of instructions, by their offset in a library; what stands for offset 0, and for an instruction
    that has no line, is `source`."""

    def __init__(self, library: Path | str, source: Path) -> None:
        self.library = library
        self.lines: dict[int, tuple[str, int | None]] = {0: (display_path(source), None)}
        self.callers: dict[int, str] = {}  # where the kernel calls the function that has an instruction

    def look_up(self, offsets: set[int]) -> None:
        """Learn file and line of instructions from the debug information."""
        unknown, emulator = sorted(offsets - set(self.lines)), display_path(EMULATOR)
        if not unknown:
            return
        command = [tool("addr2line"), "-a", "-i", "-f", "-e", str(self.library), *map(hex, unknown)]
        answer = subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout
        for chunk in re.split(r"^0x", answer, flags=re.MULTILINE)[1:]:
            offset, *frames = chunk.splitlines()
            # Innermost first: what the emulator's headers define was called from the kernel.
            lines = (frame.split(" (")[0].rsplit(":", 1) for frame in frames[1::2])
            places = [(name, file, line) for name, (file, line) in zip(frames[::2], lines, strict=True)]
            # <stdin> and library.cpp are the text around a kernel.
            others = re.compile(rf"{re.escape(emulator)}|.*(?:/c\+\+/|<stdin>$|library\.cpp$)")
            own = [at for at in places if not others.match(display_path(at[1]))]
            own = own or places[-1:]
            _, file, line = own[0]
            self.lines[int(offset, 16)] = display_path(file), int(line) if line.isdigit() else None
            # The kernel is the outermost of its functions; g++ may have cut it in two, of the same name.
            _, outer, at = next(place for place in own if place[0] == own[-1][0])
            if (outer, at) != (file, line):
                self.callers[int(offset, 16)] = f"{display_path(outer)}:{at}"

    def named(self, offset: int) -> str:
        """The line of an instruction as text: of the kernel, and of the function that it calls."""
        file, line = self.lines[offset]
        own = f"{file}:{line}"
        return f"{self.callers[offset]} ({own})" if offset in self.callers else own

    def at(self, offset: int, file: str) -> str:
        """The place as text, short if it is in `file`."""
        own, line = self.lines[offset]
        at = f"line {line}" if own == file else f"line {line} of {own}"
        return f"{at} (called at {self.callers[offset]})" if offset in self.callers else at
