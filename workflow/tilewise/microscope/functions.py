"""The declarations of a CUDA file: its __global__ functions with their templates and parameters, and its variables.

Functions are read after g++'s preprocessor, so that macros, conditions and comments are as the compiler sees them.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewise import UserError
from tilewise.compile.cpp import include_options, preprocess, shown
from tilewise.study.sources import EMULATOR_HEADERS, INCLUDE, code_of, files_of

_HEADS = ("cuda_emulator.h", "cuda_fp16.h", "cuda_bf16.h")
_WORDS = re.compile(
    r"""^[ \t]*\#[ \t]*(?:line[ \t]+)?\d+[ \t]+"(?P<file>(?:\\.|[^"\\\n])*)"[^\n]*$"""
    r"""|R"(?P<tag>[^()\s\\]{0,16})\((?:.|\n)*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
    r"""|::|[A-Za-z_]\w*|\.?\d(?:[\w.']|(?<=[eE])[+-])*|[^\w\s]""",
    re.MULTILINE,
)
_OPEN, _CLOSE = "([{<", ")]}>"
#: Where a GPU has a function or a variable.
_SPACES = ("__global__", "__device__", "__host__", "__constant__", "__shared__", "__managed__")
#: Words before a function's name that are followed by parentheses of their own.
_ATTRIBUTES = (
    "__attribute__",
    "__attribute",
    "alignas",
    "__declspec",
    "__cluster_dims__",
    "__launch_bounds__",
    "__maxnreg__",
    "__block_size__",
)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a template or a function: the words of its type, its name and its default, "" if it has none."""

    type: tuple[str, ...]
    name: str
    default: str = ""


@dataclass(frozen=True)
class Function:
    """A __global__ function with its namespaces (`ns::mine`), and what it says in __cluster_dims__ and in
    __launch_bounds__, if it does."""

    name: str
    template: tuple[Parameter, ...]
    parameters: tuple[Parameter, ...]
    cluster: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Variable:
    """A variable as it is declared: its place, the words of its declaration without those of the other variables there,
    and whether it has an initial value."""

    name: str
    file: Path
    line: int
    words: tuple[str, ...]
    has_value: bool


def check_file(path: Path) -> None:
    """Raise UserError if a source file is not there, or has a name that no compiler takes."""
    if '"' in str(path) or "\n" in str(path):
        raise UserError(f"{path}: no compiler takes a file of that name; choose another")
    try:
        there = path.is_file()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    if not there:
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*.cu") if p.is_file()], n=1)
        hint = f"; did you mean {path.with_name(near[0])}?" if near else ""
        raise UserError(f"there is no file {path}{hint}")


def functions(path: Path) -> dict[str, Function]:
    """The __global__ functions that a file, or a file that it includes in quotes, defines or declares, by name.

    Raises UserError if a file is no text, or the preprocessor fails, or there is no compiler; and for code of the host,
    as refuse_host_code does.
    """
    own = {str(file.resolve()) for file in files_of(path)}
    head = "".join(f'#include "{name}"\n' for name in _HEADS)
    head += "".join(f"#undef {word}\n" for word in ("__cluster_dims__", "__launch_bounds__", *_SPACES))
    head += "".join(f"#define {word} {word}\n" for word in _SPACES)
    for file in files_of(path):
        if code_of(file).startswith("\ufeff"):
            raise UserError(f"{shown(file)}:1: begins with a byte order mark, which NVRTC refuses; save it without one")
    text = f'{head}#include "{path.name}"\n'
    try:
        done = preprocess(text, [*include_options(path), f"-I{INCLUDE}", f"-I{EMULATOR_HEADERS}"])
    except UserError as error:
        raise UserError(without_header(str(error))) from None
    found: dict[str, Function] = {}
    words = list(_own_words(done, own))
    for function in _found([word for word, *_ in words]):
        found.setdefault(function.name, function)  # the first declaration has the defaults
    _refuse_words(words)
    refuse_host_code(words)
    return found


def named(declared: Iterable[str], name: str) -> str | None:
    """The function of that name, in a namespace perhaps, if there is only one."""
    found = [each for each in declared if each == name] or [each for each in declared if each.split("::")[-1] == name]
    return found[0] if len(found) == 1 else None


def without_header(message: str) -> str:
    """What a compiler says, with who lacks a header if it lacks one."""
    where, _, what = message.partition(": ")
    if what.startswith("cuda.h: No such file"):
        remedy = "typedef struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; } CUtensorMap;"
        return f"{where}: NVRTC does not take <cuda.h>, a header of the host; declare a tensor map as `{remedy}`"
    if header := re.fullmatch(r"(.*): No such file or directory", what):
        known = re.match(r"cuda|mma\.h|cooperative_groups|nv/|cub/|thrust/|cute/|cutlass/", header[1])
        who = "the emulator has no" if known else "neither NVRTC nor the emulator has a"
        return f"{where}: {who} header <{header[1]}>"
    return message


def as_written(paths: Iterable[Path]) -> dict[str, Function]:
    """The __global__ functions of some files by name, read without the preprocessor: quick, and right as far as no
    macro stands in for their words."""
    found: dict[str, Function] = {}
    for path in paths:
        text = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", " ", _without_comments(path), flags=re.MULTILINE)
        for function in _found([word[0] for word in _WORDS.finditer(text)]):
            found.setdefault(function.name, function)
    return found


def variables(paths: Iterable[Path], space: str) -> list[Variable]:
    """The variables that some files declare with a word such as __shared__, read without the preprocessor."""
    found = []
    for path in paths:
        text = _without_comments(path)
        matches = list(_WORDS.finditer(text))
        words = [match[0] for match in matches]
        for at in (at for at, word in enumerate(words) if word == space):
            begin = end = at
            while begin and words[begin - 1] not in (";", "{", "}"):
                begin -= 1
            while end < len(words) and words[end] != ";":
                end = _closing(words, end) + 1 if words[end] in ("{", "(", "[") else end + 1
            for part in _parts(words[at + 1 : end]):
                name, has_value = _declared(_without_attributes(part))
                if name:
                    line = 1 + text.count("\n", 0, matches[words.index(name, at)].start())
                    found.append(Variable(name, path, line, (*words[begin : at + 1], *part), has_value))
    return found


def _declared(words: list[str]) -> tuple[str, bool]:
    """The name in a declaration of one variable, "" if there is none, and whether it has an initial value."""
    if "{" in words and {"struct", "union", "class"} & {*words[: words.index("{")]}:
        words = words[_closing(words, words.index("{")) + 1 :]
    end = next((at for at, word in enumerate(words) if word in ("=", "[", "{", "(")), len(words))
    names = [word for word in words[:end] if re.match(r"[A-Za-z_]", word)]
    outside = [word for word, depth in zip(words, _depths(words)) if not depth]
    return names[-1] if names else "", "=" in outside or "{" in outside


def alignments(words: Sequence[str]) -> list[int]:
    """The bytes that declarations ask for by alignas, __align__ and aligned."""
    asked: list[int] = []
    for at, word in enumerate(words):
        if "align" in word:
            inside = [each for each in words[at + 1 : at + 4] if each != "("]
            asked += map(int, filter(str.isdigit, inside[:1]))
    return asked


def words_of(path: Path) -> list[str]:
    """The words of a file as it is written."""
    return [match[0] for match in _WORDS.finditer(_without_comments(path))]


def _without_comments(path: Path) -> str:
    """The text of a file with blanks for its comments."""
    kept = re.compile(r"//[^\n]*|/\*.*?\*/|(\"(?:\\.|[^\"\\\n])*\")", re.DOTALL)
    return kept.sub(lambda found: found[1] or re.sub(r"[^\n]", " ", found[0]), code_of(path))


def _own_words(text: str, own: set[str]) -> Iterator[tuple[str, str, int]]:
    """The words of a preprocessed text that come from the files `own`, each with its file and line."""
    inside, file, line, counted = False, "", 0, 0
    for word in _WORDS.finditer(text):
        if word["file"] is not None:
            file = re.sub(r"\\(.)", r"\1", word["file"])
            inside = str(Path(file).resolve()) in own
            marked = re.search(r"\d+", word[0])
            line, counted = int(marked[0]) - 1 if marked else 0, word.end()
        elif inside:
            line, counted = line + text.count("\n", counted, word.start()), word.start()
            yield word[0], file, line


def _refuse_words(words: Sequence[tuple[str, str, int]]) -> None:
    """Raise UserError, with file and line, for words that NVRTC refuses where they stand and g++ takes."""
    plain = ["", *(word for word, *_ in words)]
    for at, (word, file, line) in enumerate(words, 1):
        before = [other for other in plain[max(0, at - 3) : at] if other not in _SPACES][-1:]
        if word == "alignas" and before and before[0] in ("extern", "static"):
            what = f"alignas after {before[0]}; write it first, or __align__"
        elif word in ("__device__", "__host__") and plain[at - 1] == "]" and plain[at - 2] != "]":
            what = f"{word} of a lambda; leave it out: a lambda in a kernel is the GPU's"
        else:
            continue
        raise UserError(f"{shown(file)}:{line}: NVRTC refuses {what}")


def refuse_host_code(words: Sequence[tuple[str, str, int]]) -> None:
    """Raise UserError, with file and line, for what NVRTC refuses in a file: a function that a GPU cannot call, because
    it is not __device__, and a variable of a namespace that is none of a GPU's memories, unless it is constant."""
    scopes: list[str] = []  # of each open brace: a namespace, a class, or what is skipped
    declared: set[str] = set()  # the words of declarations that say __device__
    plain = [word for word, *_ in words]
    begin = at = 0
    while at < len(words):
        word = plain[at]
        if word == "}":
            scopes = scopes[:-1]
            begin = at + 1
        elif word in ("public", "private", "protected") and plain[at + 1 : at + 2] == [":"]:
            begin = at + 2
        elif word in ("{", ";"):
            head = _without_attributes(plain[begin:at])
            is_class = bool({"struct", "class", "union", "enum"} & {*head}) and head[-1] not in _BEFORE_BODY
            if word == "{" and "=" in head and "operator" not in head:  # what a variable begins with
                at = _closing(plain, at) + 1
                continue
            if word == "{" and ("namespace" in head or (head[:1] == ["extern"] and "(" not in head)):
                scopes.append("namespace")
            elif word == "{" and is_class:
                scopes.append("class")
            else:
                if {"__device__", "__global__"} & {*head}:
                    declared |= {*head}
                elif kind := _of_host(head, word, scopes):
                    name, file, line = _named_in(words[begin:at], head)
                    if name not in declared:
                        other = "" if kind == "function" else ", __constant__ or const"
                        raise UserError(
                            f"{shown(file)}:{line}: '{name}' is a {kind} of the host, which NVRTC refuses; mark it "
                            f"__device__{other}"
                        )
                if word == "{":
                    at = _closing(plain, at)
            begin = at + 1
        at += 1


#: The last words before the body of a function.
_BEFORE_BODY = (")", "const", "noexcept", "override")


def _without_attributes(head: list[str]) -> list[str]:
    """A declaration's words without its template and without attributes that have parentheses."""
    kept: list[str] = []
    at = 0
    while at < len(head):
        has_more = head[at] == "template" or head[at] in (*_ATTRIBUTES, "__align__", "decltype")
        if has_more and head[at + 1 : at + 2] in (["<"], ["("]):
            at = _closing(head, at + 1)
        elif head[at : at + 2] == ["[", "["]:
            at = _closing(head, at)
        else:
            kept.append(head[at])
        at += 1
    return kept


def _of_host(head: Sequence[str], ends: str, scopes: Sequence[str]) -> str:
    """What a declaration is if it is for the host: a function with its body, or a variable of a namespace; else ""."""
    if not head:
        return ""
    if ends == "{":
        return "function" if "(" in head else ""
    inside = scopes and scopes[-1] != "namespace"
    if inside or {*_SPACES, "const", "constexpr", "extern", "friend", "operator"} & {*head}:
        return ""
    before = head[: head.index("=")] if "=" in head else head
    others = ("using", "typedef", "struct", "class", "union", "enum", "namespace", "static_assert", "asm", "template")
    if head[0] in others or "(" in before or sum(bool(re.match(r"[A-Za-z_]", word)) for word in before) < 2:
        return ""
    return "variable"


def _named_in(words: Sequence[tuple[str, str, int]], head: Sequence[str]) -> tuple[str, str, int]:
    """The name that a declaration is about, with its file and line."""
    end = next((head.index(sign) for sign in ("(", "=", "[") if sign in head), len(head))
    name = next(word for word in reversed(head[:end]) if re.match(r"[A-Za-z_]", word))
    return next(each for each in words if each[0] == name)


def _found(words: Sequence[str]) -> Iterator[Function]:
    scopes: list[str | None] = []  # the namespaces around, None for other braces
    template: tuple[Parameter, ...] = ()
    at = 0
    while at < len(words):
        word = words[at]
        if word == "{":
            scopes.append(_namespace(words, at))
        elif word == "}":
            scopes = scopes[:-1]
        elif word == "template" and words[at + 1 : at + 2] == ["<"]:
            end = _closing(words, at + 1)
            template = tuple(map(_parameter, _parts(words[at + 2 : end])))
            at = end
        elif word == "__global__":
            name, open_at = _name(words, at + 1)
            if name:
                end = _closing(words, open_at)
                around = [scope for scope in scopes if scope]
                parameters = tuple(map(_parameter, _parts(words[open_at + 1 : end])))
                says = (_said(attribute, words, at, open_at) for attribute in ("__cluster_dims__", "__launch_bounds__"))
                yield Function("::".join([*around, name]), template, parameters, *says)
                at = end
            template = ()
        elif word == ";":
            template = ()
        at += 1


def _said(attribute: str, words: Sequence[str], at: int, open_at: int) -> tuple[str, ...]:
    """What stands in an attribute of the function whose __global__ is at `at`."""
    start = at
    while start and words[start - 1] not in (";", "}", "{"):
        start -= 1
    head = words[start:open_at]
    if attribute not in head:
        return ()
    begin = head.index(attribute) + 1
    return tuple(" ".join(part) for part in _parts(head[begin + 1 : _closing(head, begin)]))


def _namespace(words: Sequence[str], brace: int) -> str | None:
    """The namespace that a brace opens, such as `a::b`; None for any other brace, and for one without a name."""
    start = brace
    while start and (words[start - 1] == "::" or re.match(r"[A-Za-z_]", words[start - 1])):
        start -= 1
        if words[start] == "namespace":
            return "".join(word for word in words[start + 1 : brace] if word != "inline") or None
    return None


def _name(words: Sequence[str], at: int) -> tuple[str, int]:
    """A function's name and where its parameters open; "" if it is none, such as a declaration of a friend."""
    while at + 1 < len(words) and words[at] not in (";", "{"):
        if words[at] in _ATTRIBUTES and words[at + 1] == "(":
            at = _closing(words, at + 1)
        elif words[at] == "[":
            at = _closing(words, at)
        elif re.match(r"[A-Za-z_]", words[at]) and words[at + 1] == "(":
            return words[at], at + 1
        at += 1
    return "", at


def _closing(words: Sequence[str], start: int) -> int:
    """Where the bracket that opens at `start` closes."""
    for at, depth in enumerate(_depths(words[start:])):
        if at and not depth:
            return start + at - 1
    return len(words)


def _parts(words: Sequence[str]) -> list[list[str]]:
    """The words between the commas that no bracket encloses."""
    parts: list[list[str]] = [[]]
    for word, depth in zip(words, _depths(words)):
        if word == "," and not depth:
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def _depths(words: Sequence[str]) -> Iterator[int]:
    """How many brackets are open before each word, and after the last. `<` and `>` are brackets outside of others."""
    opened: list[str] = []
    for word in words:
        yield len(opened)
        if word in _OPEN and (word != "<" or not opened or opened[-1] == "<"):
            opened.append(word)
        elif word in _CLOSE and opened and (word != ">" or opened[-1] == "<"):
            while len(opened) > 1 and word != ">" and opened[-1] == "<":  # it was a comparison
                opened.pop()
            opened.pop()
    yield len(opened)


def _parameter(words: Sequence[str]) -> Parameter:
    declared, default = list(words), ""
    if "=" in declared:
        equals = declared.index("=")
        declared, default = declared[:equals], " ".join(declared[equals + 1 :])
    if "[" in declared:  # an array of a parameter
        declared = declared[: declared.index("[")]
    name = ""
    if len(declared) > 1 and re.match(r"[A-Za-z_]", declared[-1]):
        name = declared.pop()
    return Parameter(tuple(declared), name, default)
