"""Inline PTX for g++: `asm` statements become calls of the interpreter in cuda/ptx.

The text is rewritten after the preprocessor, so that macros may make the statements. Its line markers keep the names of
files and the numbers of lines.
"""

import ast
import json
import re
from collections.abc import Sequence

from kernelscope.cpp import display_path
from kernelscope.errors import CompileError, NotEmulated

#: Whether a source file has something to rewrite.
ASM = re.compile(r"\b(?:asm|__asm__|__asm)\b|#\s*include\s*<(?:mma\.h|cuda_pipeline|cuda/|cooperative_groups)")

_TOKENS = re.compile(
    r"""(?P<marker>^[ \t]*\#[ \t]*(?:line[ \t]+)?(?P<line>\d+)[ \t]+"(?P<file>[^"\n]*)"(?P<flags>[^\n]*)$)"""
    r"""|(?P<raw>R"(?P<tag>[^()\s\\]{0,16})\((?:.|\n)*?\)(?P=tag)")"""
    r"""|(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
    r"""|(?P<asm>\b(?:asm|__asm__|__asm)\b(?:\s*\b(?:volatile|__volatile__|__volatile)\b)?\s*(?=\())""",
    re.MULTILINE,
)
_PIECE = re.compile(r"""R"(?P<tag>[^()\s\\]{0,16})\((?:.|\n)*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""")
_SIGN = re.compile(_PIECE.pattern + r"|[()\[\]{}:,]")
_OPERAND = re.compile(r"""\s*(?P<constraint>"[^"]*")\s*\((?P<value>(?:.|\n)*)\)\s*$""")
_CONSTRAINTS = "hrlfdnqbC"


def rewrite(text: str, own: Sequence[str] = ()) -> str:
    """`text`, a preprocessed translation unit, with each asm statement as a call of the interpreter.

    Statements of system headers and of the files `own` are left as they are. Raises UserError, with file and line, for
    a statement that is none of CUDA's.
    """
    done: list[str] = []
    sources: list[tuple[str, str, int]] = []
    at, base, base_at, file, system = 0, 1, 0, "", False
    while found := _TOKENS.search(text, at):
        done.append(text[at : found.end()])
        at = found.end()
        if found["marker"]:
            file, base, base_at = found["file"], int(found["line"]) - 1, found.end()
            system = bool(re.search(r"\b3\b", found["flags"])) or file in own
        elif found["asm"] is not None and not system:
            line = base + text.count("\n", base_at, found.start())
            end = _closing(text, at)
            inside = text[at + 1 : end]
            done[-1] = done[-1][: -len(found[0])]
            try:
                source, call = _call(inside, len(sources), text[: found.start()] if "wgmma" in inside else "")
            except (ValueError, SyntaxError) as error:
                raise NotEmulated(
                    f"{display_path(file)}:{line}: the emulator does not understand this asm statement: {error}"
                ) from None
            if source is not None:
                sources.append((source, file, line))
            done.append(call + "\n" * (found[0].count("\n") + inside.count("\n")))
            at = end + 1
    done.append(text[at:])
    rows = "".join(f"    {{{json.dumps(source)}, {json.dumps(name)}, {line}}},\n" for source, name, line in sources)
    table = f"\nextern const emulator::ptx::Source emulator_ptx_sources[] = {{\n{rows}    {{nullptr, nullptr, 0}}}};\n"
    return "".join(done) + table


def _closing(text: str, start: int) -> int:
    """Where the parenthesis that opens at `start` closes."""
    depth = 0
    for found in _SIGN.finditer(text, start):
        depth += (found[0] in "([{") - (found[0] in ")]}")
        if not depth:
            return found.start()
    raise CompileError("an asm statement has no end")


def _split(text: str, separator: str) -> list[str]:
    """Split at a separator, `:` or `,`, outside of brackets and strings."""
    parts, depth, begin = [], 0, 0
    for found in _SIGN.finditer(text):
        depth += (found[0] in "([{") - (found[0] in ")]}")
        if found[0] == separator and not depth:
            parts.append(text[begin : found.start()])
            begin = found.end()
    return [*parts, text[begin:]]


def _literal(text: str) -> str:
    """The value of adjacent string literals."""
    value, at = "", 0
    while text[at:].strip():
        piece = _PIECE.search(text, at)
        if piece is None or text[at : piece.start()].strip():
            raise ValueError("its text is not a string")
        literal = piece[0]
        if literal.startswith("R"):
            value += literal[literal.index("(") + 1 : literal.rindex(")")]
        else:
            value += ast.literal_eval(literal)
        at = piece.end()
    return value


def _call(inside: str, number: int, before: str) -> tuple[str | None, str]:
    """The text of PTX of a statement, and the C++ that stands for it; `before` is what stands before one of wgmma. None
    stands for an empty text."""
    text, *sections = _split(inside, ":")
    text = _literal(text)
    operands = []
    for section, part in enumerate(sections[:2]):
        for operand in _split(part, ",") if part.strip() else []:
            found = _OPERAND.match(operand)
            if not found:
                named = operand.strip().startswith("[")
                why = " has a name, which NVRTC refuses; write its number" if named else ""
                raise ValueError(f"operand `{operand.strip()}`{why}")
            constraint = ast.literal_eval(found["constraint"])
            letter = constraint.strip("=+&%")
            if len(letter) != 1 or letter not in _CONSTRAINTS:
                raise ValueError(f'constraint "{constraint}"')
            operands.append((section == 0, "+" in constraint, letter, found["value"]))
    if not text.strip():
        return None, "do {} while (0)"
    # Only where an instruction has a predicate may an output stay without a value.
    mark = "" if "@" in text else "[[gnu::uninitialized]] "
    code = [f"{mark}::std::uint64_t emulator_values[{max(1, len(operands))}];"]
    # What wgmma writes, or reads of A, it does later: the interpreter knows these registers by their addresses. Sums
    # that pass through its wait or its fence are not read there. A parameter that is a copy is no register of the
    # caller's.
    placed = "wgmma." in text
    for index, (output, both, letter, value) in enumerate(operands):
        if not output or (both and not placed):
            code.append(f"::emulator::ptx::put<'{letter}'>(emulator_values[{index}], ({value}));")
    outputs = sum(output for output, *_ in operands)
    places = [
        f"::emulator::ptx::place({value})"
        if output
        else f"::emulator::ptx::input({value})"
        if letter in "rf" and placed and not _is_copy(value.strip(), before)
        else "{}"
        for output, _, letter, value in operands
    ]
    code.append(f"::emulator::ptx::Place emulator_places[] = {{{', '.join(places)}}};" if placed else "")
    more = f", emulator_places, {outputs}" if placed else ""
    code.append(f"::emulator::ptx::run({number}, emulator_values, {len(operands)}{more});")
    for index, (output, _, letter, value) in enumerate(operands):
        if output and not placed:
            code.append(f"::emulator::ptx::take<'{letter}'>(emulator_values[{index}], ({value}));")
    joined = " ".join(code).replace("\n", " ")
    return text, f"do {{ {joined} }} while (0)"


def _is_copy(name: str, before: str) -> bool:
    """Whether a function `before` has a parameter of this name that is no reference."""
    return name.isidentifier() and bool(re.search(rf"[(,]\s*(?:[\w:]+\s+)+{name}\s*[,)]", before))
