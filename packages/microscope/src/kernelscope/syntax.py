"""The syntax of C++ text, as tree-sitter reads it."""

import re

import tree_sitter_cpp
from tree_sitter import Language, Node, Parser

CPP = Language(tree_sitter_cpp.language())


def parse(text: str) -> Node:
    """The root of a text as tree-sitter reads it."""
    return Parser(CPP).parse(text.encode()).root_node


def nodes_of(node: Node, kind: str) -> list[Node]:
    """The nodes of a kind within one, in their order."""
    found = [node] if node.type == kind else []
    return found + [each for child in node.children for each in nodes_of(child, kind)]


def text_of(node: Node | None) -> str:
    """The source text with single blanks instead of runs of whitespace; "" for None."""
    return " ".join(node.text.decode().split()) if node and node.text else ""


def declarators(node: Node) -> list[Node]:
    """The declarators of a declaration: names with `*`, `[4]`, `(int x)` or `= 3`."""
    return node.children_by_field_name("declarator")


def name_of(declarator: Node) -> str:
    """The name in a declarator; "" if it has none."""
    name = nested_declarators(declarator)[-1]
    return "" if name.type.endswith("_declarator") else text_of(name)


def is_function(declarator: Node) -> bool:
    """Whether a declarator is one of a function, not of a variable or of a pointer to a function."""
    *around, name = nested_declarators(declarator)
    return name.type == "operator_cast" or any(each.type == "function_declarator" for each in around[-1:])


def nested_declarators(declarator: Node) -> list[Node]:
    """A declarator, the one inside it, and so on to the name, which an abstract one lacks."""
    chain = [declarator]
    while chain[-1].type.endswith("_declarator"):
        others = (each for each in chain[-1].named_children if re.search("declarator|identifier|name", each.type))
        inner = chain[-1].child_by_field_name("declarator") or next(others, None)
        if not inner:
            break
        chain.append(inner)
    return chain
