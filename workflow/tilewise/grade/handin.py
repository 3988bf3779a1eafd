"""Read a hand-in: its kernel without the host's code, the roles of its parameters, and the host's launch of it."""

import errno
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kernelscope.expressions import Unknown, split
from kernelscope.host_code import DEFINE, for_gpu, items, types_of
from kernelscope.host_launches import HostLaunch, launches
from kernelscope.host_values import Expression, Host
from kernelscope.sources import EMULATOR_HEADERS, HOST_HEADERS
from tilewise import UserError

#: Bytes of a source file: more is no hand-in.
LARGEST = 1 << 20
_LEXED = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*(?:#|%:|\?\?=)[ \t]*(\w*)[ \t]*([^\n]*)$", re.MULTILINE)


class Refused(UserError):
    """A hand-in whose files cannot be taken."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: its type without const and `*`, its name, and whether it is a (const) pointer."""

    type: str
    name: str
    pointer: bool
    const: bool


@dataclass(frozen=True)
class HandIn:
    """A kernel of a hand-in: its text without comments, its own text, its parameters, its template's, the names of the
    file, its launches by the host, and the options in a line `// tilewise: ...`."""

    name: str
    text: str
    body: str
    parameters: tuple[Parameter, ...]
    template: tuple[Parameter, ...]
    host: Host
    launches: tuple[HostLaunch, ...]
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def numbers(self) -> Mapping[str, int]:
        """The constants of the file that are whole numbers."""
        return self.host.constants

    @property
    def qualified(self) -> str:
        """The kernel's name with those of the namespaces around it."""
        around: list[str] = []
        for m in re.finditer(r"\bnamespace\s+([\w:]+)\s*\{|[{}]", self.text[: self.text.find(self.body)]):
            if m[0] == "}":
                around[-1:] = []
            else:
                around.append(m[1] or "")
        return "::".join([*filter(None, around), self.name])

    @cached_property
    def used(self) -> str:
        """The kernel's text, with the macros and the GPU's functions of the file that it uses, at any depth."""
        texts = dict(DEFINE.findall(self.text))
        texts |= {
            m[1]: self.text[each.begin : each.end]
            for each in items(self.text)
            if each.is_gpu and (m := re.search(r"\b(\w+)\s*\(", self.text[each.begin : each.end]))
        }
        found, words = self.body, set(re.findall(r"\w+", self.body))
        while new := words & texts.keys():
            found += "".join(texts.pop(name) for name in sorted(new))
            words = set(re.findall(r"\w+", found))
        return found

    def value(self, what: Expression) -> int:
        """The whole number that an expression of the host is; 0 if it is unknown."""
        return int(self.host.known(what) or 0)

    def written(self, what: Expression) -> Expression:
        """What a name of the host begins as; another expression as it is."""
        if what.text in what.scope.parameters and what.scope.caller:
            given = what.scope.parameters[what.text]
            return self.written(Expression(given, what.scope.caller, what.scope.called_at))
        held = self.host.definition(what.text, what.scope, what.at)
        return Expression(held.value, what.scope, held.at) if held and held.value else what

    def extents(self, launch: HostLaunch, number: int) -> list[Expression]:
        """The extents of a launch's grid, number 0, or of its block, 1; empty if they are unknown."""
        try:
            return launch.extents(self.host, number)
        except Unknown:
            return []

    def divisor(self, extent: Expression) -> int:
        """The number by which the host divides a size for an extent of the grid; 0 if it is unknown."""
        what = self.written(extent)
        found = re.fullmatch(r"\w+\s*\([^,]*,([^,]*)\)", what.text)
        found = found or re.search(r"/\s*(\([^()]*\)|[\w.]+)[^/]*$", what.text)
        text = re.sub(r"(?<=\d)\.0?f?\b", "", found[1]) if found else "0"
        return self.value(Expression(text, what.scope, what.at))


def read_text(path: Path, root: Path) -> str:
    """The text of a source file. Raises Refused for one that is empty, too large, unreadable or no plain file, and for
    a symbolic link that leads nowhere or out of `root`."""
    if not path.name.isprintable() or set(path.name) & {'"', "\\"}:
        raise Refused(f"{path.name!r}: no compiler takes a file of that name; rename it")
    link = f"{path.name}: is a symbolic link to {path.readlink()}, " if path.is_symlink() else ""
    try:
        real = Path(os.path.realpath(path, strict=True))
        if not real.is_relative_to(root.resolve()):
            raise Refused(f"{link or f'{path.name}: '}which leads out of the hand-in's folder; hand in the file itself")
        if not real.is_file():
            raise Refused(f"{path.name}: is no plain file; hand in a .cu file")
        if (size := real.stat().st_size) > LARGEST:
            raise Refused(f"{path.name}: {size / 1e6:.0f} MB; a hand-in has at most {LARGEST / 1e6:.0f} MB")
        text = real.read_bytes().decode("utf-8", errors="replace").removeprefix("\ufeff").replace("\r\n", "\n")
    except OSError as error:
        if not link:
            raise Refused(f"{path.name}: cannot be read: {error.strerror}") from None
        what = "a circle of links" if error.errno == errno.ELOOP else "a file that cannot be opened"
        raise Refused(f"{link}{what}: {error.strerror}; hand in the file itself") from None
    if "\0" in text:
        raise Refused(f"{path.name}: is no text in UTF-8; save it as such")
    if not text.strip():
        raise Refused(f"{path.name}: is empty")
    return text


def copy_device_code(path: Path, root: Path, into: Path) -> None:
    """Write the GPU's part of a file, and of the files that it includes from `root`, into a folder, line by line at the
    same place. Raises Refused for an include of anything outside `root`."""
    texts: dict[Path, str] = {}
    _collect(path, root, texts)
    for name, text in zip(texts, for_gpu(*texts.values()), strict=True):
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        (into / name).write_text(text, encoding="utf-8")


def _collect(path: Path, root: Path, texts: dict[Path, str]) -> None:
    """Add a file, without comments and without includes of what is not there, and the files that it includes to
    `texts`, by their paths in `root`."""
    place = path.resolve().relative_to(root.resolve())
    if place in texts:
        return
    texts[place] = text = plain(read_text(path, root))
    for directive in reversed([*_DIRECTIVE.finditer(text)]):
        word, options = directive[1], directive[2].strip()
        if word in ("line", "embed", "import", "ident") or re.match(r"pragma\s+(?!unroll|once)", f"{word} {options}"):
            text = _blank(text, directive.start(), directive.end())
        if not word.startswith("include"):
            continue
        line = text.count("\n", 0, directive.start()) + 1
        named = re.fullmatch(r'<([\w./+ -]+)>|"([\w./+ -]+)"', options)
        name = (named[1] or named[2]) if named else ""
        if not name or name.startswith("/") or ".." in Path(name).parts or word != "include":
            raise Refused(f"{path.name}:{line}: #{word} {options}: only files of the hand-in's own folder are included")
        header = path.parent / name
        if any((folder / name).is_file() for folder in (HOST_HEADERS, EMULATOR_HEADERS)):
            continue
        if named and named[2] and header.is_file():
            if not header.resolve().is_relative_to(root.resolve()):
                raise Refused(f"{path.name}:{line}: #include {options}: it leads out of the hand-in's folder")
            _collect(header, root, texts)
        else:
            text = _blank(text, directive.start(), directive.end())
    texts[place] = text


def plain(text: str) -> str:
    """A source without comments, each directive in one line, and every line where it was."""
    text = re.sub(r"(?:[^\n]*\\\n)+[^\n]*", lambda m: m[0].replace("\\\n", "") + "\n" * m[0].count("\\\n"), text)
    return _LEXED.sub(lambda m: m[0] if m[0][0] in "\"'" else " " + "\n" * m[0].count("\n"), text)


def _blank(text: str, start: int, end: int) -> str:
    return text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]


def sizes(text: str) -> tuple[int, ...]:
    """The numbers of a shape or a block such as 33x35x70."""
    return tuple(map(int, str(text).split("x")))


def kernels(raw: str) -> list[HandIn]:
    """The kernels of a file's text that have at least one pointer or struct as parameter."""
    text = plain(raw)
    options = dict(
        pair.partition("=")[::2] for line in re.findall(r"//\s*tilewise:([^\n]*)", raw) for pair in line.split()
    )
    types = types_of(text)
    host = Host(text)
    launched = launches(host)
    found = []
    for item in (text[each.begin : each.end] for each in items(text) if each.is_gpu):
        head = re.sub(r"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)", " ", item)
        kernel = re.match(r"(?:[^{;]*?)__global__\s+[\w\s]*?\b(\w+)\s*\(((?:[^()]|\([^()]*\))*)\)\s*\{", head)
        if not kernel:
            continue
        of_template = re.search(r"template\s*<(.*?)>\s*(?:\w+\s+)*__global__", head, re.DOTALL)
        template = (
            tuple(_parameter(each.partition("=")[0], {}) for each in split(of_template[1])) if of_template else ()
        )
        parameters = tuple(_parameter(each, types) for each in split(kernel[2]))
        if parameters:
            own = tuple(each for each in launched if each.function == kernel[1])
            found.append(HandIn(kernel[1], text, item, parameters, template, host, own, options))
    return found


def _parameter(text: str, types: Mapping[str, str]) -> Parameter:
    text = re.sub(r"\b(?:__restrict__|__restrict|restrict|volatile|struct|__grid_constant__)\b", " ", text)
    name = (re.findall(r"\w+", re.sub(r"\[.*?\]", "", text)) or [""])[-1]
    is_const = "const" in text.split("*")[0].split()
    words = [w for w in re.findall(r"\w+", re.sub(r"\[.*?\]", "", text))[:-1] if w != "const"]
    kind = " ".join(words)
    return Parameter(types.get(kind, kind), name, "*" in text or "[" in text, is_const)
