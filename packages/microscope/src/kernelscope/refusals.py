"""Refuse code that g++ accepts and NVRTC rejects: host code and misplaced specifiers."""

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernelscope.cpp import display_path
from kernelscope.declarations import SPACES, Tree, attributes, place_of, scopes
from kernelscope.errors import CompileError
from kernelscope.sources import CudaFile, code_of
from kernelscope.syntax import declarators, is_function, name_of, nested_declarators, text_of

_OF_LAMBDA = re.compile(r"(?<!\])\]\s*__attribute__\(\((__device__|__host__)\)\)")


def refuse_mark(source: CudaFile) -> None:
    """Raise CompileError for a file that begins with a byte order mark, or includes one that does."""
    for file in source.files:
        if code_of(file).startswith("\ufeff"):
            raise CompileError(
                f"{display_path(file)}:1: begins with a byte order mark, which NVRTC refuses; save it without one"
            )


def refuse(tree: Tree) -> None:
    """Raise CompileError, with file and line, for a function that a GPU cannot call, because it is not __device__; for
    a variable of a namespace or a class that is in none of a GPU's memories, unless it is constant; for a lambda
    outside of functions; and for words that NVRTC does not take where they stand."""
    if word := _OF_LAMBDA.search(tree.text):
        what = f"{word[1]} of a lambda; leave it out: a lambda in a kernel is the GPU's"
        raise CompileError(f"{place_of(tree, tree.text.count(chr(10), 0, word.start()))}: NVRTC refuses {what}")
    for node in tree.nodes.get("declaration", ()):
        before = ""
        for child in node.children:
            if before and child.type == "attribute_specifier" and "alignas" in text_of(child):
                what = f"alignas after {before}; write it first, or __align__"
                raise CompileError(f"{place_of(tree, node)}: NVRTC refuses {what}")
            before = before or ("" if child.type.startswith("attribute_") else text_of(child))
    if not tree.root.has_error:  # else who knows what is a function
        _refuse_host_code(tree)


def _refuse_host_code(tree: Tree) -> None:
    known: set[str] = set()  # what an earlier declaration has said to be the GPU's
    for node in _outside_of_functions(tree.root):
        if node.type == "lambda_expression":
            raise CompileError(
                f"{place_of(tree, node)}: NVRTC refuses a lambda outside of a function; move it into one"
            )
        is_device = ({*SPACES} - {"__host__"}) & {name for name, _ in attributes(node)}
        around = [] if node.parent and node.parent.type == "friend_declaration" else scopes(node)
        for each in declarators(node):
            name = re.sub("<.*>", "", "::".join([*around, name_of(each)]))
            if is_device:
                known.add(name)
            elif (kind := _of_host(node, each)) and name not in known:
                remedy = f"mark it __device__{', __constant__ or const' if kind == 'variable' else ''}"
                what = f"'{name_of(each)}' is a {kind} of the host, which NVRTC refuses; {remedy}"
                raise CompileError(f"{place_of(tree, each)}: {what}")


def _outside_of_functions(node: Node) -> Iterator[Node]:
    """What stands in no body of a function: declarations, and lambdas."""
    for child in node.named_children:
        if child.type in ("function_definition", "declaration", "field_declaration", "lambda_expression"):
            yield child
        if child.type not in ("compound_statement", "trailing_return_type"):
            yield from _outside_of_functions(child)


def _of_host(node: Node, declarator: Node) -> str:
    """What a declaration without a word of CUDA's is if it is for the host: a function or a variable; else ""."""
    kinds = {child.type for child in (*node.children, *declarator.children)}
    if is_function(declarator):
        is_guide = "trailing_return_type" in kinds and not node.child_by_field_name("type")
        return "" if is_guide or kinds & {"default_method_clause", "delete_method_clause"} else "function"
    words = {text_of(child) for child in node.children}
    is_member, is_template = (
        node.type == "field_declaration",
        node.parent and node.parent.type == "template_declaration",
    )
    if is_template or "constexpr" in words or (is_member and "static" not in words):
        return ""
    pointers = [
        each for each in nested_declarators(declarator) if each.type in ("pointer_declarator", "reference_declarator")
    ]
    return "" if "const" in ({text_of(each) for each in pointers[-1].children} if pointers else words) else "variable"
