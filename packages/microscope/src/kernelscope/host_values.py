"""Names of the host code of a CUDA file and their values, as far as they are constant."""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, floor, prod, sqrt

from tree_sitter import Node

from kernelscope.argument_values import element_type
from kernelscope.expressions import NOT_KNOWN, Number, Unknown, calculated, expression, split
from kernelscope.host_code import DEFINE, items, readable
from kernelscope.syntax import declarators, name_of, nodes_of, parse, text_of

#: How deep definitions may refer to each other, and how many are looked at: a chain of doublings has 2^40.
_DEPTH, _MOST = 40, 20_000
#: A program begins without arguments; a size from its command line is as free as a literal one.
_NO_ARGUMENTS = {"argc": "1"}
_OF_COMMAND_LINE = {"argc", "argv", "atoi", "atol", "atoll", "strtol", "strtoul", "stoi", "std", "NULL", "nullptr"}


def _power(base: Number, exponent: Number) -> Number:
    found = pow(float(base), float(exponent))
    return int(found) if found.is_integer() else found


_CALLS = {"ceil": ceil, "ceilf": ceil, "floor": floor, "sqrt": sqrt, "min": min, "max": max, "pow": _power}


@dataclass(frozen=True)
class Definition:
    """A name's type and value, as they are written, and where; the type is "" if the value is assigned later."""

    type: str
    value: str
    at: int


@dataclass(frozen=True)
class Scope:
    """The names of a function of the host and what its parameters are given, or of the file."""

    node: Node
    names: Mapping[str, Sequence[Definition]]
    parameters: Mapping[str, str] = field(default_factory=dict)
    caller: "Scope | None" = None
    called_at: int = 0


@dataclass(frozen=True)
class Expression:
    """An expression as it is written, and where."""

    text: str
    scope: Scope
    at: int


class Host:
    """The names in a text of CUDA, its host's functions among them. `smaller` values replace those of the text."""

    def __init__(self, text: str, smaller: Mapping[str, Number] | None = None) -> None:
        self.text, self.smaller = readable(text), smaller or {}
        self.root = parse(self.text)
        self.macros = {name: body.replace("\\\n", " ").strip() for name, body in DEFINE.findall(self.text)}
        self.file = Scope(self.root, _definitions(self.root, functions=False), _NO_ARGUMENTS)
        declared = items(text)
        self._gpu = [item.node for item in declared if item.is_gpu]
        of_host = [item.node for item in declared if not item.is_gpu]
        found = [each for node in of_host for each in nodes_of(node, "function_definition")]
        self.functions = {called(each): each for each in found}
        self.leaves: set[str] = set()  # the names with literal values that were looked at
        self._looked = 0

    @cached_property
    def of_gpu(self) -> set[str]:
        """The macros and constants of the file that code of the GPU uses."""
        bodies = self.macros | {name: held[0].value for name, held in self.file.names.items()}
        found: set[str] = set()
        for node in self._gpu:
            found |= set(re.findall(r"[A-Za-z_]\w*", text_of(node))) - set(_names_of_parameters(node))
        while new := {word for name in found & bodies.keys() for word in re.findall(r"\w+", bodies[name])} - found:
            found |= new
        return found & bodies.keys()

    @cached_property
    def constants(self) -> dict[str, int]:
        """The macros, constants and enumerators that are whole numbers, also those of functions, by name."""
        everywhere = Scope(self.root, _definitions(self.root))
        names = [name for name, held in everywhere.names.items() if re.search(r"\bconst|^enum", held[0].type)]
        found: dict[str, int] = {}
        for name in [*self.macros, *names]:
            value = self.known(Expression(name, everywhere, len(self.text)))
            found |= {name: value} if isinstance(value, int) else {}
        return found

    def leaf(self, name: str) -> Number | None:
        """The value of a name of `leaves`; None if it differs from place to place."""
        held = {
            each.value
            for scope in map(self.scope, self.functions.values())
            for each in scope.names.get(name, ())
            if each.value and each.type
        }
        return self.known(Expression(held.pop() if len(held) == 1 else name, self.file, len(self.text)))

    def scope(self, function: Node, depth: int = 0) -> Scope:
        """The names of a function, with what its first call gives its parameters."""
        name = called(function)
        for caller in self.functions.values() if depth < 8 else ():
            if caller == function:
                continue
            for call in nodes_of(caller, "call_expression"):
                if re.sub(r"<.*>$|^.*::", "", text_of(call.child_by_field_name("function"))) == name:
                    values = dict(zip(_names_of_parameters(function), arguments_of(call), strict=False))
                    return Scope(
                        function, _definitions(function), values, self.scope(caller, depth + 1), call.start_byte
                    )
        return Scope(function, _definitions(function), _NO_ARGUMENTS if name == "main" else {})

    def known(self, what: Expression) -> Number | None:
        """The value of an expression; None if it is not known."""
        try:
            return self.value(what.text, what.scope, what.at)
        except NOT_KNOWN:
            return None

    def value(self, text: str, scope: Scope, at: int, depth: int = 0) -> Number:
        """The number that an expression has at a place of a scope. Raises NOT_KNOWN."""
        self._looked += 1
        if depth > _DEPTH or self._looked > _MOST:
            raise Unknown

        def named(node: Node) -> Number:
            match node.type:
                case "identifier" | "qualified_identifier":
                    return self._named(text_of(node), scope, at, depth + 1)
                case "field_expression":
                    return self._member(node, scope, at, depth + 1)
                case "sizeof_expression":
                    return self._size(node, scope, at, depth + 1)
                case "call_expression":
                    return self._call(node, scope, at, depth + 1)
            raise Unknown

        return calculated(expression(text), named)

    def extents(self, text: str, scope: Scope, at: int, depth: int = 0) -> list[Expression]:
        """The parts of an expression of type dim3 or int. Raises Unknown."""
        if depth > _DEPTH:
            raise Unknown
        text = text.strip()
        if made := re.fullmatch(r"(?:dim3\s*)?[({](.*)[)}]", text, re.DOTALL):
            parts = split(made[1])
            if len(parts) > 1 or text.startswith("dim3"):
                return [Expression(part, scope, at) for part in parts or ["1"]]
        if (call := re.fullmatch(r"(\w+)\s*\((.*)\)", text, re.DOTALL)) and call[1] in self.functions:
            returned, inner = self._called(call[1], split(call[2]), scope, at)
            return self.extents(text_of(returned.named_children[0]), inner, returned.start_byte, depth + 1)
        if re.fullmatch(r"[A-Za-z_]\w*", text):
            if text in scope.parameters and scope.caller:
                return self.extents(scope.parameters[text], scope.caller, scope.called_at, depth + 1)
            if text not in self.smaller and (held := self.definition(text, scope, at)):
                found = self.extents(held.value or "dim3(1, 1, 1)", scope, held.at, depth + 1)
                for i, member in enumerate("xyz"):  # assigned one by one
                    if one := self.definition(f"{text}.{member}", scope, at):
                        found += [Expression("1", scope, at)] * (i + 1 - len(found))
                        found[i] = Expression(one.value, scope, one.at)
                return found
        return [Expression(text, scope, at)]

    def definition(self, name: str, scope: Scope, at: int) -> Definition | None:
        """The definition of a name that holds at a place: the last one before it with a value."""
        for names in (scope.names, self.file.names):
            before = [each for each in names.get(name, ()) if each.at < at or names is self.file.names]
            if before:
                return next(
                    (each for each in reversed(before) if each.value and each.type),
                    next((each for each in reversed(before) if each.value), before[-1]),
                )
        return None

    def _named(self, name: str, scope: Scope, at: int, depth: int) -> Number:
        if name in self.smaller:
            return self.smaller[name]
        if name in scope.parameters and scope.caller:
            return self.value(scope.parameters[name], scope.caller, scope.called_at, depth)
        if name in scope.parameters:
            return int(scope.parameters[name])
        held = self.definition(name, scope, at)
        text = held.value.strip() if held else self.macros.get(name, "")
        text = text[1:-1] if text.startswith("{") else text
        if not text:
            raise Unknown
        found = self.value(text, scope if held else self.file, held.at if held else at, depth)
        names = re.sub(r"\b(?:0x)?[\da-fA-F.]+[uUlLfF]*\b|\b\d[\de.+-]*f?", "", text)
        if not set(re.findall(r"[A-Za-z_]\w*", names)) - _OF_COMMAND_LINE:
            self.leaves.add(name)
        return found

    def _member(self, node: Node, scope: Scope, at: int, depth: int) -> Number:
        base, member = (text_of(node.child_by_field_name(name)) for name in ("argument", "field"))
        if member in ("x", "y", "z"):
            found = self.extents(base, scope, at, depth)
            one = [*found, *[Expression("1", scope, at)] * 2]["xyz".index(member)]
            return self.value(one.text, one.scope, one.at, depth)
        if (held := self.definition(f"{base}.{member}", scope, at)) and held.value:
            with contextlib.suppress(*NOT_KNOWN):  # what an option of the command line assigns
                return self.value(held.value, scope, held.at, depth)
        if base in scope.parameters and scope.caller:
            return self.value(f"{scope.parameters[base]}.{member}", scope.caller, scope.called_at, depth)
        if held := self.definition(base, scope, at):
            return self.value(self._member_defaults[held.type.split()[-1], member], self.file, at, depth)
        raise Unknown

    @cached_property
    def _member_defaults(self) -> dict[tuple[str, str], str]:
        """What members of structs begin as, by the struct's name and the member's."""
        return {
            (text_of(each.child_by_field_name("name")), name_of(named)): text_of(value)
            for each in [*nodes_of(self.root, "struct_specifier"), *nodes_of(self.root, "class_specifier")]
            for member in nodes_of(each, "field_declaration")
            for named in declarators(member)
            for value in member.children_by_field_name("default_value")
            if named.next_sibling and named.next_sibling.next_sibling == value
        }

    def length(self, name: str, scope: Scope, at: int, depth: int = 0) -> int:
        """The number of elements with which a vector of the host, or of thrust's, begins. Raises NOT_KNOWN."""
        if name in scope.parameters and scope.caller:
            return self.length(scope.parameters[name], scope.caller, scope.called_at, depth + 1)
        held = self.definition(name, scope, at)
        if depth > _DEPTH or not held or "vector<" not in held.type:
            raise Unknown
        if not held.value.startswith("("):  # of another vector
            return self.length(held.value, scope, held.at, depth + 1)
        return int(self.value(split(held.value[1:-1])[0], scope, held.at, depth + 1))

    def _size(self, node: Node, scope: Scope, at: int, depth: int) -> int:
        inside = re.sub(r"^sizeof\s*\(?\s*|\s*\)$", "", text_of(node))
        if (size := size_of_type(inside)) is not None:
            return size
        element = re.fullmatch(r"\*\s*(\w+)|(\w+)\s*\[[^\]]*\]", inside)
        if element and (held := self.definition(element[1] or element[2], scope, at)):
            size = size_of_type(re.sub(r"(?:\*|\[[^\]]*\])$", "", held.type))
            if size is not None:
                return size
        if held := self.definition(inside, scope, at):
            if array := re.fullmatch(r"(.*?)((?:\[[^\]]*\])+)", held.type):
                sizes = [self.value(each, scope, at, depth) for each in re.findall(r"\[([^\]]*)\]", array[2])]
                return int(prod(sizes)) * (size_of_type(array[1]) or 4)
            if (size := size_of_type(held.type)) is not None:
                return size
        raise Unknown

    def _call(self, node: Node, scope: Scope, at: int, depth: int) -> Number:
        texts = arguments_of(node)
        name = text_of(node.child_by_field_name("function")).removeprefix("std::").removeprefix("::")
        if (body := self.macros.get(name, "")).startswith("("):
            named, _, body = body[1:].partition(")")
            given = dict(zip([each.strip() for each in named.split(",")], texts))
            body = re.sub(r"\w+", lambda word: f"({given[word[0]]})" if word[0] in given else word[0], body)
            return self.value(body, scope, at, depth)
        if name in self.functions:
            returned, inner = self._called(name, texts, scope, at)
            return self.value(text_of(returned.named_children[0]), inner, returned.start_byte, depth)
        if vector := re.fullmatch(r"(\w+)\.size", name):
            return self.length(vector[1], scope, at, depth)
        values = [self.value(each, scope, at, depth) for each in texts]
        plain = re.sub(r"<.*>$", "", name)
        if plain in _CALLS and values:
            return _CALLS[plain](*values)  # type: ignore[operator]
        if (plain == "static_cast" or size_of_type(name) is not None) and len(values) == 1:
            return float(values[0]) if re.search("float|double", name) else int(values[0])
        raise Unknown

    def _called(self, name: str, texts: Sequence[str], scope: Scope, at: int) -> tuple[Node, Scope]:
        """What a function of the host returns first, and its scope in a call. Raises Unknown if it returns nothing."""
        function = self.functions[name]
        returned = nodes_of(function, "return_statement")
        if not returned or not returned[0].named_children:
            raise Unknown
        given = dict(zip(_names_of_parameters(function), texts, strict=False))
        return returned[0], Scope(function, _definitions(function), given, scope, at)


def size_of_type(text: str) -> int | None:
    """The bytes of a type in C++, None if it is not known."""
    plain = " ".join(re.sub(r"\b(?:const|volatile|static|struct|register)\b|__restrict__", "", text).split())
    if plain.endswith("*"):
        return 8
    found = element_type(plain)
    return found[0].itemsize * found[1] if found else None


def called(function: Node) -> str:
    """The name of a function."""
    return "".join(name_of(each) for each in declarators(function)[:1])


def arguments_of(call: Node) -> list[str]:
    """The arguments of a call, as they are written."""
    listed = call.child_by_field_name("arguments")
    return [text_of(each) for each in listed.named_children if each.type != "comment"] if listed else []


def _names_of_parameters(function: Node) -> list[str]:
    """The names of a function's parameters, in their order; "" for one without."""
    heads = nodes_of(function, "function_declarator")[:1]
    listed = heads[0].child_by_field_name("parameters") if heads else None
    names = [p.child_by_field_name("declarator") for p in listed.named_children] if listed else []
    return [name_of(each) if each else "" for each in names]


def _definitions(node: Node, functions: bool = True) -> dict[str, list[Definition]]:
    """The variables of a function, or of the file outside of functions, and what is assigned to them; enumerators."""
    found: dict[str, list[Definition]] = {}
    for each in nodes_of(node, "declaration"):
        if not functions and _in_function(each):
            continue
        named = declarators(each)
        words = " ".join(text_of(child) for child in each.children if child not in named and child.type not in ";,")
        for declarator in named:
            rest, name = text_of(declarator), name_of(declarator)
            sizes = "".join(re.findall(r"\[[^\]]*\]", rest.partition("=")[0]))
            value = declarator.child_by_field_name("value")
            if value is None and declarator.type == "function_declarator":
                value = declarator.child_by_field_name("parameters")
            star = "*" if "*" in rest.partition(name)[0] else ""
            found.setdefault(name, []).append(Definition(words + star + sizes, text_of(value), declarator.start_byte))
    for name, text, at in _enumerators(node):
        found.setdefault(name, []).append(Definition("enum", text, at))
    for each in nodes_of(node, "assignment_expression") if functions else ():
        left, right = each.child_by_field_name("left"), each.child_by_field_name("right")
        around = each.parent
        is_update = (
            around is not None and around.type == "for_statement" and around.child_by_field_name("update") == each
        )
        if left is not None and text_of(each.child_by_field_name("operator")) == "=" and not is_update:
            while right is not None and right.type == "assignment_expression":
                right = right.child_by_field_name("right")
            found.setdefault(text_of(left), []).append(Definition("", text_of(right), each.start_byte))
    for each in nodes_of(node, "call_expression") if functions else ():
        if re.match(r"cuda(?!Malloc$)", text_of(each.child_by_field_name("function"))):
            given = arguments_of(each)
            for name in (text[1:] for text in given if text.startswith("&")):  # CUDA says what it is
                is_pitch = "Pitch" in text_of(each) and name == given[1][1:]
                said = f"(({given[2]}) + 511) / 512 * 512" if is_pitch else "emulator_unknown"
                found.setdefault(name, []).append(Definition("auto", said, each.start_byte))
    return found


def _enumerators(node: Node) -> Iterator[tuple[str, str, int]]:
    """The enumerators within a node, each with its value as an expression and its place."""
    for listed in nodes_of(node, "enumerator_list"):
        before, after = "0", 0
        for each in nodes_of(listed, "enumerator"):
            if value := each.child_by_field_name("value"):
                before, after = text_of(value), 0
            yield text_of(each.child_by_field_name("name")), f"({before}) + {after}", each.start_byte
            after += 1


def _in_function(node: Node) -> bool:
    while node := node.parent:  # type: ignore[assignment]
        if node.type == "compound_statement":
            return True
    return False
