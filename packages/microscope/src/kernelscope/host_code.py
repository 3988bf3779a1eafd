"""Whole CUDA files: their host code is left out, so that what is left is what a GPU runs."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tree_sitter import Node

from kernelscope.argument_values import element_type
from kernelscope.sources import EMULATOR_HEADERS, HOST_HEADERS, CudaFile, code_of, has_host_code
from kernelscope.syntax import declarators, is_function, name_of, parse, text_of

_SKIPPED = re.compile(
    r"""//(?:\\\n|[^\n])*|/\*.*?\*/|R"([^()\s\\]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL
)
_INSIDE = r"\([^()]*(?:\([^()]*\)[^()]*)*\)"
#: CUDA's words, which C++ has not.
_WORDS = re.compile(
    rf"\b__(?:launch_bounds|cluster_dims|align|maxnreg)__\s*{_INSIDE}|\b__restrict\b"
    r"|\b__(?:global|device|host|constant|shared|managed|restrict|forceinline|noinline|grid_constant)__"
)
_LAUNCH = re.compile(r"<<\s*<([^;]*?)>>\s*>(?=\s*\()", re.DOTALL)
_OF_GPU = re.compile(r"__(?:global|device|constant|managed|shared)__")
#: CUDA's words before what tree-sitter takes for the begin of a declaration.
_BEFORE = re.compile(rf"(?:__\w+__(?:\s*{_INSIDE})?\s*)+\Z")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\n|[^\n])*)", re.MULTILINE)
_CLASSES = ("struct_specifier", "class_specifier", "union_specifier")
_LISTS = ("declaration_list", "preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif", "linkage_specification")
#: nvcc includes <cuda_runtime.h>, and with it the C library's headers, in every file.
_AS_NVCC = (
    "#include <cstdint>\n#include <cfloat>\n#include <climits>\n#include <cuda_device_runtime_api.h>\n"
    "#define INFINITY __builtin_huge_valf()\n"
    '#define NAN __builtin_nanf("")\n#define M_PI 3.14159265358979323846\n'
)


@dataclass(frozen=True)
class Item:
    """A declaration outside of functions, where it begins and ends in the text, and whether a GPU has it."""

    node: Node
    begin: int
    end: int
    is_gpu: bool


def readable(text: str) -> str:
    """A CUDA file of the same length as C++ that tree-sitter reads: no comments and words of CUDA's, and a launch
    `f<<<a, b>>>(c)` as the call `f(a, b)(c)`."""

    def blank(found: re.Match[str]) -> str:
        ends = found[0][0] if found[0][0] in "\"'" else " "
        return ends + _blank(found[0][1:-1]) + ends if found[0][0] != "'" else found[0]

    plain = _SKIPPED.sub(blank, text).encode("ascii", "replace").decode()
    plain = _WORDS.sub(lambda word: _blank(word[0]), plain)
    return _LAUNCH.sub(
        lambda launch: (
            f"({_blank(launch[0][1 : launch.start(1) - launch.start()])}{launch[1]})"
            f"{_blank(launch[0][launch.end(1) - launch.start() + 1 :])}"
        ),
        plain,
    )


def items(text: str) -> list[Item]:
    """The declarations of a CUDA file outside of functions, in their order."""
    return list(_items(parse(readable(text)), text))


def as_included(source: CudaFile) -> str:
    """C++ text that includes a CUDA file: without its host code and its host's headers, if it has a `main` or a launch;
    lines keep their places."""
    if not has_host_code(code_of(source.path)):
        return f'#include "{source.path.name}"\n'
    paths = [path.resolve() for path in source.files]
    left = dict(zip(paths, for_gpu(*map(code_of, paths)), strict=True))
    return f'{_AS_NVCC}{_inlined(source.path.resolve(), source, left)}\n#line 1 "<stdin>"\n'


def left_out(source: CudaFile) -> list[str]:
    """The headers of a whole file that neither lie beside it nor are known to the emulator."""
    names = [name for path in source.files for name in _INCLUDE.findall(code_of(path))]
    beside = {path.name for path in source.files}
    return sorted({name for name in names if Path(name).name not in beside and not _is_known(name, source.includes)})


def _inlined(path: Path, source: CudaFile, left: dict[Path, str]) -> str:
    """The text of a file for a GPU, with the files in quotes that it includes first, each once; `left` are the texts of
    those that are not included yet."""
    done = [f'#line 1 "{path}"']
    for number, line in enumerate(left.pop(path).split("\n"), 1):
        header = _INCLUDE.match(line)
        places = [folder / header[1] for folder in (path.parent, *source.includes)] if header else []
        if beside := next((place.resolve() for place in places if place.is_file()), None):
            done += [_inlined(beside, source, left), f'#line {number + 1} "{path}"'] if beside in left else [""]
        else:
            done.append("" if header and not _is_known(header[1], source.includes) else line)
    return "\n".join(done)


def _is_known(header: str, includes: Sequence[Path]) -> bool:
    return any((folder / header).is_file() for folder in (HOST_HEADERS, EMULATOR_HEADERS, *includes))


def for_gpu(*texts: str) -> list[str]:
    """Texts of CUDA, the files of one program, with blanks for functions and variables of the host, and for what only
    they use."""
    found = [(number, item) for number, text in enumerate(texts) for item in items(text)]
    bodies = {name: body for text in texts for name, body in DEFINE.findall(text)}

    def words_of(some: Iterable[tuple[int, Item]]) -> set[str]:
        own = (texts[number][item.begin : item.end] for number, item in some)
        return {word for text in own for word in re.findall(r"\w+", text)}

    kept = [place for place in found if place[1].is_gpu]
    words = words_of(kept)
    others = {
        (number, item): _names(item.node)
        for number, item in found
        if not item.is_gpu and _may_be_used(item, texts[number])
    }
    while True:
        new = [place for place, names in others.items() if place not in kept and (not names or names & words)]
        used = words_of(new) | {word for name in words & bodies.keys() for word in re.findall(r"\w+", bodies[name])}
        if not new and used <= words:
            break
        kept, words = kept + new, words | used
    away = [(number, (item.begin, item.end)) for number, item in found if (number, item) not in kept]
    away += [(number, place) for number, item in kept for place in _members_of_host(item.node, texts[number])]
    left = list(texts)
    for number, (begin, end) in away:
        left[number] = left[number][:begin] + _blank(left[number][begin:end]) + left[number][end:]
    return left


def types_of(text: str) -> dict[str, str]:
    """The types of numbers by the names that a text gives them: by typedef, using or #define."""
    named = re.findall(r"\btypedef\s+([\w ]+?)\s+(\w+)\s*;", text)
    named += [(held, name) for name, held in re.findall(r"\busing\s+(\w+)\s*=\s*([\w ]+?)\s*;", text)]
    named += [(body.strip(), name) for name, body in DEFINE.findall(text)]
    return {name: held for held, name in named if element_type(held) and not element_type(name)}


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _items(node: Node, text: str) -> Iterator[Item]:
    for child in node.named_children:
        if child.type in _LISTS:
            yield from _items(child, text)
        elif child.type == "namespace_definition":
            yield from (item for body in child.children_by_field_name("body") for item in _items(body, text))
        elif not child.type.startswith("preproc_") and child.type not in ("comment", "ERROR", "string_literal"):
            begin = _begin(text, child)
            yield Item(child, begin, child.end_byte, bool(_OF_GPU.search(text, begin, _head_end(child))))


def _begin(text: str, node: Node) -> int:
    before = _BEFORE.search(text, max(0, node.start_byte - 400), node.start_byte)
    return before.start() if before else node.start_byte


def _head_end(node: Node) -> int:
    """Where what says whose it is ends: at a function's body; a class is a GPU's if one of its members is."""
    inner = _inner(node)
    body = inner.child_by_field_name("body") if inner.type == "function_definition" else None
    return body.start_byte if body else node.end_byte


def _inner(node: Node) -> Node:
    while node.type == "template_declaration" and node.named_children:
        node = node.named_children[-1]
    return node


def _names(node: Node) -> set[str]:
    """What a declaration declares, and the words by which it is used."""
    inner = _inner(node)
    found = {text_of(inner.child_by_field_name("name"))} | {name_of(each) for each in declarators(inner)}
    for each in inner.named_children:
        if each.type in (*_CLASSES, "enum_specifier"):
            found |= _names(each)
        if each.type == "enumerator_list":
            found |= {text_of(one.child_by_field_name("name")) for one in each.named_children}
    return found - {""}


def _may_be_used(item: Item, text: str) -> bool:
    """Whether code of a GPU may use what is not marked as its own: classes, types and constants, also names of
    namespaces."""
    inner, own = _inner(item.node), text[item.begin : item.end]
    if inner.type in (
        "function_definition",
        "static_assert_declaration",
        "template_instantiation",
        "expression_statement",
    ):
        return inner.type == "function_definition" and "constexpr" in own[: _head_end(item.node) - item.begin]
    if inner.type in ("using_declaration", "namespace_alias_definition"):
        return "std" not in own
    if inner.type == "declaration":
        is_constant = {"const", "constexpr"} & {text_of(child) for child in inner.children}
        return bool(is_constant) and not any(map(is_function, declarators(inner)))
    return True


def _members_of_host(node: Node, text: str) -> Iterator[tuple[int, int]]:
    """Where the functions of a class stand that no GPU has."""
    for child in node.named_children:
        if child.type in ("function_definition", "declaration", "field_declaration"):
            functions = [each for each in declarators(child) if is_function(each)]
            begin = _begin(text, child)
            is_default = any(each.type.endswith("method_clause") for each in child.children)
            is_member = node.type in ("field_declaration_list", "template_declaration")
            if functions and is_member and not is_default and not _OF_GPU.search(text, begin, _head_end(child)):
                yield begin, child.end_byte
        elif child.type in (*_CLASSES, "field_declaration_list", "template_declaration"):
            yield from _members_of_host(child, text)
