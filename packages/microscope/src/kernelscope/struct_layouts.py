"""Offsets and types of the fields of a kernel's structs, from g++'s debug information."""

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from elftools.dwarf.die import DIE
from elftools.elf.elffile import ELFFile

from kernelscope import ptx
from kernelscope.argument_values import TYPES
from kernelscope.cpp import preprocess, run_compiler

#: How DWARF encodes numbers, as NumPy names their kinds.
_ENCODINGS = {2: "b", 4: "f", 5: "i", 6: "i", 7: "u", 8: "u", 16: "u"}
_QUALIFIERS = ("DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type", "DW_TAG_restrict_type")
_STRUCTS = ("DW_TAG_structure_type", "DW_TAG_class_type", "DW_TAG_union_type")
_POINTERS = ("DW_TAG_pointer_type", "DW_TAG_reference_type", "DW_TAG_rvalue_reference_type")


@dataclass(frozen=True)
class Layouts:
    """The types of functions' parameters, by instance and in their order, and the structs and the variables by their
    names. A pointer is of type uint64, with what it points to as `to` in its metadata, None if that has no size."""

    parameters: Mapping[str, Sequence[np.dtype]]
    structs: Mapping[str, np.dtype]
    variables: Mapping[str, np.dtype]


def layouts(included: str, instances: Sequence[str], options: Sequence[Any]) -> Layouts:
    """The Layouts of a CUDA file, which the text `included` includes, that g++ compiles with these `options`. Raises
    UserError if it does not."""
    lines = [f"auto emulator_signature_{i} = &{name.removesuffix('<>')};\n" for i, name in enumerate(instances)]
    with tempfile.TemporaryDirectory() as folder:
        source, compiled = Path(folder, "layouts.cpp"), Path(folder, "layouts.o")
        # As ordinary variables: pyelftools does not read the places of thread-local ones.
        text = f"#undef __shared__\n#define __shared__\n{included}{''.join(lines)}"
        text = preprocess(text, options)
        source.write_text(ptx.rewrite(text, own=["<stdin>"]) if ptx.ASM.search(text) else text, encoding="utf-8")
        # With their -O: g++ 15 takes no header that was precompiled with another one.
        run_compiler([*options, "-g2", "-w", "-fpreprocessed", "-c", source, "-o", compiled])
        with open(compiled, "rb") as file:
            top = [unit.get_top_DIE() for unit in ELFFile(file).get_dwarf_info().iter_CUs()]
            variables = dict(_below(top, ("DW_TAG_variable",)))
            read = _Reader()
            found = {}
            for number, instance in enumerate(instances):
                function = variables[f"emulator_signature_{number}"]
                while function.tag != "DW_TAG_subroutine_type":
                    function = function.get_DIE_from_attribute("DW_AT_type")
                taken = [each for each in function.iter_children() if each.tag == "DW_TAG_formal_parameter"]
                found[instance] = [read.type_of(each) for each in taken]
            structs = {name: read.layout(die) for name, die in _below(top, _STRUCTS)}
            own = {name: read.type_of(die) for name, die in variables.items() if "DW_AT_type" in die.attributes}
    return Layouts(found, {name: dtype for name, dtype in structs.items() if dtype.names}, own)


def place_in(dtype: np.dtype, path: str) -> tuple[int, np.dtype]:
    """Offset and type of what `path`, such as `.rows[2].data`, names in a struct. Raises LookupError if it names
    nothing."""
    offset = 0
    for field, index in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        if field:
            if not dtype.fields or field not in dtype.fields:
                there = f"; there are {', '.join(dtype.names)}" if dtype.names else ""
                raise LookupError(f"there is no field {field}{there}")
            dtype, start = dtype.fields[field][:2]
            offset += start
        else:
            element, shape = dtype.subdtype or (dtype, ())
            if not shape or int(index) >= shape[0]:
                raise LookupError(f"there is no element [{index}]; there are {shape[0] if shape else 'none'}")
            dtype = np.dtype((element, shape[1:])) if shape[1:] else element
            offset += int(index) * dtype.itemsize
    return offset, dtype


class _Reader:
    """Reads types of DWARF; each struct once."""

    def __init__(self) -> None:
        self.known: dict[int, np.dtype] = {}

    def type_of(self, die: DIE) -> np.dtype:
        return self.layout(die.get_DIE_from_attribute("DW_AT_type"))

    def layout(self, die: DIE) -> np.dtype:
        while die.tag in _QUALIFIERS and _name(die) not in TYPES and "DW_AT_type" in die.attributes:
            die = die.get_DIE_from_attribute("DW_AT_type")
        if die.offset not in self.known:
            self.known[die.offset] = _pointer(None)  # of a struct that points to itself
            self.known[die.offset] = self._layout(die)
        return self.known[die.offset]

    def _layout(self, die: DIE) -> np.dtype:
        size = _number(die, "DW_AT_byte_size")
        if _name(die) in TYPES:
            return TYPES[_name(die)]
        if die.tag in _POINTERS:
            return _pointer(self._pointed_to(die))
        if die.tag == "DW_TAG_base_type" and (kind := _ENCODINGS.get(_number(die, "DW_AT_encoding"))):
            return np.dtype(bool if kind == "b" else f"{kind}{size}")
        if die.tag == "DW_TAG_enumeration_type":
            return np.dtype(f"u{size}")
        if die.tag == "DW_TAG_array_type":
            ranges = [each for each in die.iter_children() if each.tag == "DW_TAG_subrange_type"]
            sizes = (_number(each, "DW_AT_count") or _number(each, "DW_AT_upper_bound", -1) + 1 for each in ranges)
            # The upper bound of an array of no elements is 2⁶⁴ - 1.
            return np.dtype((self.type_of(die), tuple(size % 2**64 for size in sizes)))
        if die.tag in _STRUCTS:
            fields = self._fields(die)
            named = {"names": list(fields), "formats": [each for each, _ in fields.values()]}
            offsets = [offset for _, offset in fields.values()]
            layout: Any = {**named, "offsets": offsets, "itemsize": size}
            return np.dtype(layout if fields else f"V{size}")
        return np.dtype(f"V{size}")

    def _pointed_to(self, die: DIE) -> np.dtype | None:
        if "DW_AT_type" not in die.attributes:
            return None
        to = self.layout(die.get_DIE_from_attribute("DW_AT_type"))
        return to if to.itemsize else None

    def _fields(self, die: DIE) -> dict[str, tuple[np.dtype, int]]:
        """The fields of a struct, those that it inherits and those of its parts without a name among them."""
        fields: dict[str, tuple[np.dtype, int]] = {}
        for child in die.iter_children():
            is_part = child.tag == "DW_TAG_inheritance"
            if not is_part and (child.tag != "DW_TAG_member" or "DW_AT_external" in child.attributes):
                continue
            if "DW_AT_bit_size" in child.attributes:
                continue
            dtype, start = self.type_of(child), _number(child, "DW_AT_data_member_location")
            if is_part or not _name(child):
                fields |= {name: (each[0], start + each[1]) for name, each in (dtype.fields or {}).items()}
            else:
                fields[_name(child)] = dtype, start
        return fields


def _pointer(to: np.dtype | None) -> np.dtype:
    return np.dtype("u8", metadata={"to": to})


def _name(die: DIE) -> str:
    attribute = die.attributes.get("DW_AT_name")
    return attribute.value.decode() if attribute else ""


def _number(die: DIE, name: str, default: int = 0) -> int:
    attribute = die.attributes.get(name)
    return attribute.value if attribute and isinstance(attribute.value, int) else default


def _below(dies: Sequence[DIE], tags: Sequence[str], scope: str = "") -> list[tuple[str, DIE]]:
    """All of these kinds by their names, in namespaces, too."""
    found: list[tuple[str, DIE]] = []
    for die in dies:
        for child in die.iter_children():
            if child.tag in tags:
                found.append((f"{scope}{_name(child)}", child))
            elif child.tag == "DW_TAG_namespace":
                found += _below([child], tags, f"{scope}{_name(child)}::" if _name(child) else scope)
    return found
