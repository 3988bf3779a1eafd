"""Read a kernel's machine code (SASS): the instructions of its innermost multiply-add loop, by kind.

nvdisasm (the Python package nvidia-cuda-nvdisasm) takes a cubin apart; it needs neither a GPU nor a driver. The control
flow follows from its labels and branches. A loop is a set of instructions that all lead to each other. Each of them is
counted once, as if every branch ran. A loop within it that copies is counted once too; one that only waits is left out.
"""

import contextlib
import re
import shutil
import statistics
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewise import UserError


class Unreadable(UserError):
    """Machine code that no nvdisasm of this machine reads."""


if TYPE_CHECKING:
    import networkx as nx  # of the extra `compiler`, like the rest of what reading machine code needs


@dataclass(frozen=True)
class Instruction:
    """One instruction: `FFMA` of `R26, R29.reuse, R13, R10`, with its modifiers (`LDS.128`), without its predicate."""

    opcode: str
    operands: str

    @property
    def name(self) -> str:
        """The opcode without its modifiers."""
        return self.opcode.split(".")[0]


#: Kind -> the opcodes, with their modifiers; the first that fits, after multiply-adds.
OPCODES = {
    "shared_loads_128": r"LDS\..*\b128\b.*",
    "shared_loads_64": r"LDS\..*\b64\b.*",
    "shared_loads_32": r"LDS(\..*)?",
    "matrix_loads": r"LDSM\b.*",
    "shared_stores": r"(STS|STSM|ATOMS)\b.*",
    "global_loads_128": r"(LDG|LD)\..*\b128\b.*",
    "global_loads_64": r"(LDG|LD)\..*\b64\b.*",
    "global_loads_32": r"(LDG|LD)\b.*",
    "async_copies": r"LDGSTS\b.*",
    "tensor_copies": r"(UTMA(LDG|STG|REDG|PF)|UBLK(CP|RED|PF))\b.*",
    "global_stores": r"(STG|ST|RED|REDG|ATOM|ATOMG)\b.*",
    "spills": r"(LDL|STL)\b.*",
    "synchronisation": r"(BAR|B2R|SYNCS|ARRIVES|U?CGABAR\w*|DEPBAR|LDGDEPBAR|WARPSYNC|WARPGROUP|WARPGROUPSET|FENCE"
    r"|MEMBAR|ERRBAR|CCTL\w*|ELECT|VOTE|VOTEU|NANOSLEEP|USETMAXREG|UTMACMDFLUSH|ACQBULK)\b.*",
    "moves": r"(U?MOV|CS2R\w*|S2U?R|R2UR|UR2R|R2P|P2R|U?LDC|LDCU|U?PRMT|U?SEL|FSEL|SHFL|IMAD\.MOV|UIMAD\.MOV)\b.*",
    "control": r"(BRA|BRX|BRXU|JMP|JMX|CALL|RET|EXIT|KILL|BSSY|BSYNC|BREAK|BMOV|YIELD|NOP)\b.*",
    "integer": r"(U?I(ADD|MAD|SETP|MNMX|ABS|DP|SCADD)|U?(LEA|P?LOP3?|SHF|SHL|SHR|BREV|FLO|POPC|BMSK|SGXT)|VI?(ADD|MNMX)"
    r"|VABSDIFF)\w*\b.*",
    "arithmetic": r"(U?[FDH]|MUFU|I2F|I2I)\w*\b.*",
}
#: The instruction that multiplies and adds on the CUDA cores, by element type; the others are calculated in float.
MULTIPLY_ADDS = {"double": ("DFMA",), "int32": ("IMAD",)}
FLOAT_MULTIPLY_ADDS = ("FFMA", "FFMA2", "HFMA2")
#: How ptxas writes a constant to a register with the units of another pipe: 0 * 0 + constant, or 0 * 0 + register.
_MOVE = re.compile(r"U?R\w+, -?U?RZ, U?RZ, .*")
_REGISTERS = re.compile(r"R\d+(, R\d+(\.reuse)?){3}")


def kind(instruction: Instruction) -> str:
    """The kind of an instruction that is not one of the loop's multiply-adds; `other` if it is none of OPCODES."""
    if instruction.name in ("HFMA2", "IMAD") and _MOVE.fullmatch(instruction.operands):
        return "moves"
    if instruction.name == "LDS" and instruction.operands.startswith("RZ,"):
        return "synchronisation"  # it loads into no register: ptxas writes it before a wait for cp.async
    return next((kind for kind, opcodes in OPCODES.items() if re.fullmatch(opcodes, instruction.opcode)), "other")


# ---- Control flow ----------------------------------------------------------------------------------------------------

#: A line with an instruction, which a predicate may guard: `    /*0250*/    @!P1 LDG.E R24, desc[UR6][R8.64] ;`.
_INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(@!?\w+\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_LABEL = re.compile(r"`\((\S+)\)")
#: Without a predicate, these are not followed by the next instruction, nor is a branch to a label alone.
_ENDS = ("BSYNC", "EXIT", "RET", "KILL", "BRX", "JMX")
#: Whether a predicate guards an instruction, and the instruction.
_Line = tuple[bool, Instruction]


def functions(text: str) -> dict[str, "nx.DiGraph"]:
    """The control-flow graph of each function in the output of `nvdisasm -c`, by the function's symbol.

    A node is an instruction, by its number in the function; its attribute `line` is the Instruction. Raises UserError
    if there is no function. nvdisasm draws graphs itself (-bbcfg), but not of the cubins of CUDA 12, whose ELF has
    another form.
    """
    names = set(re.findall(r"^\s+\.type\s+(\S+),@function$", text, re.MULTILINE))
    found: dict[str, tuple[list[_Line], dict[str, int]]] = {}
    lines, places = list[_Line](), dict[str, int]()
    for row in text.splitlines():
        if label := re.fullmatch(r"(\S+):", row):
            if label[1] in names:
                lines, places = found[label[1]] = [], {}
            places[label[1]] = len(lines)
        elif read := _INSTRUCTION.match(row):
            lines.append((bool(read[1]), Instruction(*read.group(2, 3))))
    if not found:
        raise UserError("nvdisasm found no function; is this a cubin?")
    return {name: _graph(*each) for name, each in found.items()}


def _graph(lines: Sequence[_Line], places: Mapping[str, int]) -> "nx.DiGraph":
    """The control-flow graph of a function of these lines; `places` has the number of the line after each label."""
    import networkx as nx

    graph, meeting = nx.DiGraph(), dict[str, str]()
    for place, (guarded, line) in enumerate(lines):
        graph.add_node(place, line=line)
        found = _LABEL.search(line.operands)
        label = found[1] if found else ""
        if line.name == "BSSY":  # where a later BSYNC of this register lets the threads meet
            meeting[line.operands.partition(",")[0]] = label
        to = {"BRA": label, "JMP": label, "BSYNC": meeting.get(line.operands, "")}.get(line.name, "")
        ends = line.name in _ENDS or line.operands == f"`({to})"
        following = ([places[to]] if to in places else []) + ([] if ends and not guarded else [place + 1])
        graph.add_edges_from((place, each) for each in following if each < len(lines))
    return graph


def loops(graph: "nx.DiGraph") -> list[frozenset[int]]:
    """The loops of a control-flow graph, each as the set of its nodes, those of the loops within it included.

    Strongly connected components, then those that remain without the nodes through which a loop is entered
    (B. Steensgaard, Sequentializing program dependence graphs for irreducible programs, 1993).
    """
    import networkx as nx

    found: list[frozenset[int]] = []
    waiting = [frozenset(graph)]
    while waiting:
        for nodes in map(frozenset, nx.strongly_connected_components(graph.subgraph(waiting.pop()))):
            if len(nodes) > 1 or graph.has_edge(*nodes, *nodes):
                found.append(nodes)
                entries = {to for start, to in graph.in_edges(nodes) if start not in nodes}
                waiting.append(nodes - (entries or nodes))
    return found


# ---- The multiply-add loop -------------------------------------------------------------------------------------------


def main_loop(graph: "nx.DiGraph", dtype: str) -> dict[str, Any]:
    """Instructions of the innermost loop with the most multiply-adds: counts by kind, as columns of instructions.csv.

    If the function uses tensor cores, their instructions are its multiply-adds; else those of the CUDA cores for the
    element type `dtype`. An IMAD is one if all of its operands are registers; a few of these calculate addresses. A
    function without such a loop has no counts.
    """
    whole = {loop: _code_of(graph, loop) for loop in loops(graph)}
    on_tensor_cores = any(_on_tensor_cores(line) for lines in whole.values() for line in lines)
    multiplies = _on_tensor_cores if on_tensor_cores else _on_cuda_cores(dtype)
    counts = {loop: sum(map(multiplies, lines)) for loop, lines in whole.items()}
    innermost = [loop for loop, count in counts.items() if count and not any(counts[i] for i in whole if i < loop)]
    if not innermost:
        return {}
    chosen = max(innermost, key=lambda loop: counts[loop])
    waiting = frozenset().union(*(loop for loop, lines in whole.items() if loop < chosen and _only_waits(lines)))
    # Without the loops that wait, the way back from them is no part of the loop either.
    shorter = loops(graph.subgraph(chosen - waiting))
    kept = [loop for loop in shorter if sum(map(multiplies, _code_of(graph, loop))) == counts[chosen]]
    lines = _code_of(graph, kept[0] if kept else chosen - waiting)
    found = [line for line in lines if multiplies(line)]
    kinds = Counter(kind(line) for line in lines if not multiplies(line))
    return {
        "multiply_add": statistics.mode(sorted(line.opcode for line in found)),
        "instructions": len(lines),
        "multiply_add_instructions": len(found),
        "multiply_add_share": len(found) / len(lines),
        **{name: kinds[name] for name in (*OPCODES, "other")},
        "reused_operands": sum(line.operands.count(".reuse") for line in found),
    }


def _code_of(graph: "nx.DiGraph", nodes: Iterable[int]) -> list[Instruction]:
    return [graph.nodes[node]["line"] for node in nodes]


def _on_tensor_cores(line: Instruction) -> bool:
    return re.fullmatch(r"[A-Z]+MMA", line.name) is not None


def _on_cuda_cores(dtype: str) -> Callable[[Instruction], bool]:
    names = MULTIPLY_ADDS.get(dtype, FLOAT_MULTIPLY_ADDS)

    def multiplies(line: Instruction) -> bool:
        if line.name == "IMAD" and not (line.opcode == "IMAD" and _REGISTERS.fullmatch(line.operands)):
            return False
        return line.name in names and not _MOVE.fullmatch(line.operands)

    return multiplies


def _only_waits(lines: Iterable[Instruction]) -> bool:
    """Whether a loop does nothing but wait, for a barrier or for another block."""
    kinds = {kind(line) for line in lines}
    return "synchronisation" in kinds and kinds <= {"synchronisation", "control", "integer", "moves"}


def disassemble(cubin: Path | str) -> str:
    """The code of a cubin's functions, as text for `functions`. Raises UserError if nvdisasm is missing, and
    Unreadable if neither the package's nor the nvdisasm on the PATH, which may be older, reads the cubin."""
    commands = [shutil.which("nvdisasm")]
    with contextlib.suppress(ImportError):
        from cuda.pathfinder import find_nvidia_binary_utility

        commands.insert(0, find_nvidia_binary_utility("nvdisasm"))
    found = list(filter(None, commands))
    if not found:
        raise UserError(
            "the disassembler nvdisasm (the Python package nvidia-cuda-nvdisasm) is missing; run "
            "`pip install -r requirements/compiler.txt`"
        )
    for command in found:
        done = subprocess.run([command, "-c", str(cubin)], capture_output=True, encoding="utf-8")
        if not done.returncode:
            return done.stdout
    raise Unreadable(f"{cubin}: nvdisasm cannot read it: {done.stderr.strip()[-500:]}")


def main_loop_of(cubin: Path | str, symbol: str, dtype: str) -> dict[str, Any]:
    """`main_loop` of a function of a cubin. Raises UserError if nvdisasm is missing, or cannot read the cubin."""
    return main_loop(functions(disassemble(cubin))[symbol], dtype)
