"""The declarations of a CUDA file: its __global__ functions with their templates and parameters, and its variables.

tree-sitter reads them after g++'s preprocessor, so that macros, conditions and comments are as the compiler sees them.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tree_sitter import Node, Query, QueryCursor

from kernelscope.cpp import display_path, preprocess
from kernelscope.errors import UserError
from kernelscope.expressions import whole_numbers
from kernelscope.sources import CudaFile
from kernelscope.syntax import CPP, declarators, is_function, name_of, nested_declarators, nodes_of, parse, text_of

_WANTED = Query(
    CPP,
    """[(attribute_specifier) (attribute_declaration)] @attribute
    [(struct_specifier) (class_specifier) (union_specifier)] @class
    (type_identifier) @type
    (declaration) @declaration
    (expression_statement) @statement
    (assignment_expression) @assignment""",
)
#: Where a GPU has a function or a variable.
SPACES = ("__global__", "__device__", "__host__", "__constant__", "__shared__", "__managed__")
#: CUDA's words as attributes, which they are in its own headers, too: so the text is C++.
_WORDS = "".join(
    [f"#undef {word}\n#define {word} __attribute__(({word}))\n" for word in SPACES]
    + [
        f"#undef {word}\n#define {word}(...) __attribute__(({word}(__VA_ARGS__)))\n"
        for word in ("__launch_bounds__", "__cluster_dims__", "__maxnreg__", "alignas")
    ]
)
_LITERALS = ("number_literal", "char_literal", "true", "false", "null")
_MARKER = re.compile(r'^# (\d+) "((?:\\.|[^"\\\n])*)"[^\n]*\n', re.MULTILINE)
#: What tree-sitter does not read: a directive between two statements, and an attribute behind a variable's name.
HASH_LINE = re.compile(r"^[ \t]*#[^\n]*", re.MULTILINE)
_BEHIND = re.compile(r"__attribute__\s*\(\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)\)(?=\s*[;=,])")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a template or a function: the words before its name, its name and its default; "" if it has
    none; and whether it is a pointer or an array."""

    type: str
    name: str
    default: str
    is_pointer: bool = False


@dataclass(frozen=True)
class Function:
    """A __global__ function with its namespaces (`ns::mine`), and the arguments of its __cluster_dims__,
    __launch_bounds__ and __maxnreg__, if any."""

    name: str
    template: tuple[Parameter, ...]
    parameters: tuple[Parameter, ...]
    cluster: tuple[str, ...]
    bounds: tuple[str, ...]
    registers: tuple[str, ...]


@dataclass(frozen=True)
class Variable:
    """A variable as it is declared: where a GPU has it, such as `__shared__`, its name and its place, the alignment in
    bytes that it asks for, 0 if it asks for none, and whether it has an initial value."""

    space: str
    name: str
    file: str
    line: int
    alignment: int
    has_value: bool


@dataclass(frozen=True)
class Declarations:
    """Declarations of a file and its includes: functions by name, variables in their order, and constants that are
    whole numbers."""

    functions: Mapping[str, Function]
    variables: Sequence[Variable]
    numbers: Mapping[str, int]


@dataclass(frozen=True)
class Tree:
    """The preprocessed lines of a file and of those that it includes in quotes, as tree-sitter reads them: the text,
    its root, the nodes of each kind in _WANTED, and the file and the number of each line."""

    text: str
    root: Node
    nodes: Mapping[str, Sequence[Node]]
    places: Sequence[tuple[str, int]]


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


def find_function(declared: Iterable[str], name: str) -> str | None:
    """The function of that name, in a namespace perhaps, if there is only one."""
    found = [each for each in declared if each == name] or [each for each in declared if each.split("::")[-1] == name]
    return found[0] if len(found) == 1 else None


def tree_of(source: CudaFile, included: str, options: Sequence[Any]) -> Tree:
    """The Tree of a file, which the text `included` includes, as g++ with these `options` sees it. Raises UserError if
    a file is no text, or the preprocessor fails, or there is no compiler."""
    own = {str(file.resolve()) for file in source.files}
    _, *parts = _MARKER.split(preprocess(_WORDS + included, options))
    names = {name: re.sub(r"\\(.)", r"\1", name) for name in parts[1::3]}
    inside = {name for name, file in names.items() if str(Path(file).resolve()) in own}
    lines: list[str] = []
    places: list[tuple[str, int]] = []
    for first, name, part in zip(parts[::3], parts[1::3], parts[2::3]):
        if name in inside:
            new = part.removesuffix("\n").split("\n")
            places += [(names[name], line) for line in range(int(first), int(first) + len(new))]
            lines += new
    text = _BEHIND.sub(r"[[\1]]", HASH_LINE.sub("", "\n".join(lines)))
    root = parse(text)
    return Tree(text, root, _captured(root), places)


def _captured(node: Node) -> dict[str, list[Node]]:
    """The nodes of each kind in _WANTED within one, in their order."""
    found = QueryCursor(_WANTED).captures(node)
    return {kind: sorted(nodes, key=lambda each: each.start_byte) for kind, nodes in found.items()}


def declarations(tree: Tree) -> Declarations:
    """The declarations of a file."""
    functions: dict[str, Function] = {}
    for node in _marked(tree, "__global__"):
        for each in declarators(node):
            # Neither an instance nor a specialisation; the first declaration has the defaults.
            if is_function(each) and re.fullmatch(r"\w+", name_of(each)):
                function = _function(node, each)
                first = functions.setdefault(function.name, function)
                if any(not parameter.name for parameter in first.parameters):
                    functions[function.name] = replace(first, parameters=function.parameters)
    numbers = _numbers(tree)
    asked: dict[str, int] = {}  # the alignments that classes ask for
    for node in tree.nodes.get("class", ()):
        if name := node.child_by_field_name("name"):
            asked[text_of(name)] = max(asked.get(text_of(name), 0), _alignment(node, asked, numbers))
    variables = [
        Variable(
            space,
            name_of(each),
            *tree.places[each.start_point.row],
            _alignment(node, asked, numbers),
            has_value=each.type == "init_declarator",
        )
        for space in SPACES[1:]
        for node in _marked(tree, space)
        for each in declarators(node)
        if not is_function(each)
    ]
    return Declarations(functions, variables, numbers)


def assignments(tree: Tree) -> dict[tuple[str, int], bool]:
    """Whether it assigns nothing but a literal, which is one value whatever the data, by file and number of each line
    that assigns."""
    found: dict[tuple[str, int], bool] = {}
    for node in tree.nodes.get("assignment", ()):
        file, line = tree.places[node.start_point.row]
        sign = node.child_by_field_name("operator")
        is_literal = _is_literal(node.child_by_field_name("right")) and text_of(sign) == "="
        found[display_path(file), line] = is_literal and found.get((display_path(file), line), True)
    return found


def _is_literal(node: Node | None) -> bool:
    if node is not None and node.type == "unary_expression":
        node = node.child_by_field_name("argument")
    return node is not None and node.type in _LITERALS


def unused_exchanges(tree: Tree) -> set[tuple[str, int]]:
    """File and number of each line with an atomic exchange whose result nothing uses, and whose new value is no
    literal."""
    found = set()
    for node in tree.nodes.get("statement", ()):
        call = node.named_children[0] if node.named_children else None
        function = call.child_by_field_name("function") if call is not None and call.type == "call_expression" else None
        if function is not None and re.search(r"\batomicExch\w*$|[.>]exchange$", text_of(function)):
            listed = call.child_by_field_name("arguments") if call is not None else None
            if listed is not None and any(map(_is_literal, listed.named_children)):
                continue
            file, line = tree.places[node.start_point.row]
            found.add((display_path(file), line))
    return found


@dataclass(frozen=True)
class Uses:
    """The lines of a function that read the elements of one of its arrays, that write them, and that read an array into
    which they are copied, as into a shared tile."""

    reads: frozenset[int]
    writes: frozenset[int]
    copies: frozenset[int]


def uses(text: str, function: str, parameter: int) -> Uses:
    """The Uses of the array that is a parameter of a function, by its number, in a source."""
    reads, writes, copies = set[int](), set[int](), set[int]()
    for node in nodes_of(parse(text), "function_definition"):
        heads = nodes_of(node, "function_declarator")[:1]
        named = [each.name for head in heads for each in _parameters(head)]
        if not heads or name_of(heads[0]) != function.rsplit("::", 1)[-1] or parameter >= len(named):
            continue
        name, into, targets = named[parameter], set[str](), set[tuple[int, int]]()
        for each in nodes_of(node, "assignment_expression"):
            left, right = each.child_by_field_name("left"), each.child_by_field_name("right")
            if left and right and left.type == "subscript_expression":
                targets.add((left.start_byte, left.end_byte))
                if name in map(text_of, nodes_of(right, "identifier")):
                    into.add(_base(left))
        for each in nodes_of(node, "subscript_expression"):
            is_target, line = (each.start_byte, each.end_byte) in targets, each.start_point.row + 1
            if _base(each) == name:
                (writes if is_target else reads).add(line)
            elif _base(each) in into and not any(a <= each.start_byte and each.end_byte <= b for a, b in targets):
                copies.add(line)
    return Uses(frozenset(reads), frozenset(writes), frozenset(copies))


def _base(node: Node) -> str:
    """The name of the array of a subscript, however many it has."""
    while node.type == "subscript_expression" and (inner := node.child_by_field_name("argument")):
        node = inner
    return text_of(node)


def place_of(tree: Tree, where: Node | int) -> str:
    """The place of a node, or of a line of the text, as `file:line`."""
    file, line = tree.places[where if isinstance(where, int) else where.start_point.row]
    return f"{display_path(file)}:{line}"


def attributes(node: Node) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The attributes of a declaration, each with its arguments."""
    for child in node.named_children:
        if child.type.startswith("attribute_"):
            yield from _in_attribute(child)
        elif child.type.endswith("declarator"):
            yield from attributes(child)


def _in_attribute(node: Node) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The attributes in `__attribute__((a, b(1)))`, or in `[[a, b(1)]]`."""
    for inside in node.named_children if node.type == "attribute_specifier" else [node]:
        for each in inside.named_children:
            name, *said = each.named_children or [each]
            arguments = said[-1].named_children if said else []
            yield text_of(each.child_by_field_name("name") or name), tuple(map(text_of, arguments))


def _marked(tree: Tree, word: str) -> Iterator[Node]:
    """The declarations with a word such as __global__."""
    for attribute in tree.nodes.get("attribute", ()):
        if any(name == word for name, _ in _in_attribute(attribute)):
            node = attribute.parent
            while node and node.type not in ("declaration", "function_definition", "field_declaration"):
                node = node.parent
            if node:
                yield node


def _function(node: Node, declarator: Node) -> Function:
    template = node.parent if node.parent and node.parent.type == "template_declaration" else None
    says = dict(attributes(node))
    return Function(
        "::".join([*scopes(node), name_of(declarator)]),
        _parameters(template),
        _parameters(next(each for each in nested_declarators(declarator) if each.type == "function_declarator")),
        says.get("__cluster_dims__", ()),
        says.get("__launch_bounds__", ()),
        says.get("__maxnreg__", ()),
    )


def scopes(node: Node) -> list[str]:
    """The namespaces and classes around a declaration that have a name, from the outermost."""
    names: list[str] = []
    while node := node.parent:  # type: ignore[assignment]
        if node.type in ("namespace_definition", "struct_specifier", "class_specifier", "union_specifier"):
            names = [*filter(None, [text_of(node.child_by_field_name("name"))]), *names]
    return names


def _parameters(node: Node | None) -> tuple[Parameter, ...]:
    """The parameters of a template or of a function's declarator."""
    listed = node.child_by_field_name("parameters") if node else None
    return tuple(_parameter(each) for each in listed.named_children if text_of(each) != "void") if listed else ()


def _parameter(node: Node) -> Parameter:
    default = node.child_by_field_name("default_value") or node.child_by_field_name("default_type")
    if declarator := node.child_by_field_name("declarator"):
        before = [child for child in node.children if child.end_byte <= declarator.start_byte]
        kinds = {each.type.removeprefix("abstract_") for each in nested_declarators(declarator)}
        is_pointer = bool(kinds & {"pointer_declarator", "array_declarator"})
        return Parameter(" ".join(map(text_of, before)), name_of(declarator), text_of(default), is_pointer)
    if "type_parameter" not in node.type and "template" not in node.type:
        return Parameter(text_of(node), "", "")
    named = node.named_children[-1] if node.type.startswith("template") else node
    names = [text_of(child) for child in named.named_children if child.type == "type_identifier" and child != default]
    return Parameter(text_of(node.children[0]), "".join(names[:1]), text_of(default))


def _numbers(tree: Tree) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in tree.nodes.get("declaration", ()):
        is_constant = {"const", "constexpr"} & {text_of(child) for child in node.children}
        if is_constant and node.parent and node.parent.type in ("translation_unit", "declaration_list"):
            for each in declarators(node):
                value = whole_numbers([text_of(each.child_by_field_name("value"))], found)
                found |= dict.fromkeys([name_of(each)], value[0]) if value else {}
    return found


def _alignment(node: Node, classes: Mapping[str, int], numbers: Mapping[str, int]) -> int:
    """The most bytes that a declaration asks for, itself or by a class that it names."""
    inside = _captured(node)
    asked = [classes.get(text_of(name), 0) for name in inside.get("type", ())]
    for attribute in inside.get("attribute", ()):
        for name, said in _in_attribute(attribute):
            asked += whole_numbers(said, numbers) if "align" in name else []
    return max(asked, default=0)
