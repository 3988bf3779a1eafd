"""Assemble struct arguments from their fields: `view.data`, `nodes[2].next`."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernelscope.argument_values import Given, GivenArray, by_parameter
from kernelscope.errors import UserError
from kernelscope.launch import Value
from kernelscope.struct_layouts import place_in


def root_of(path: str) -> str:
    """The parameter that a path begins with."""
    return re.split(r"[.\[]", path)[0]


def gather_fields(
    values: Mapping[str, Given],
    types: Callable[[], Mapping[str, np.dtype]],
    nowhere: str = "no function that is launched has a parameter",
) -> dict[str, Given]:
    """Put the values of fields into their struct, or array of structs, and return all values by name; arrays for
    pointers stay under their paths. `types` are those of the parameters by name; a field that is not given is 0.
    `nowhere` begins what is said of a name that is not among them.

    Raises UserError for what names no field, or does not fit it.
    """
    found = {path: value for path, value in values.items() if path == root_of(path)}
    inner = [path for path in values if path not in found]
    known = types() if inner else {}
    for root in dict.fromkeys(map(root_of, inner)):
        paths = [path for path in inner if root_of(path) == root]
        if root not in known:
            raise UserError(f"argument {paths[0]}: {nowhere} {root}")
        found[root] = _filled(root, found.get(root), known[root], {path: values[path] for path in paths})
        found |= {path: values[path] for path in paths if isinstance(values[path], GivenArray)}
    return found


def _filled(root: str, whole: Given | None, dtype: np.dtype, parts: Mapping[str, Given]) -> Given:
    """A struct, or an array of structs, with what is given for its fields."""
    if isinstance(whole, GivenArray):
        first = whole.make() if whole.make else np.zeros(whole.shape, whole.dtype)
        data, dtype = bytearray(first.tobytes()), np.dtype((whole.dtype, first.size))
    elif whole is not None and not isinstance(whole, Value):
        raise UserError(f"argument {root}: {whole}, and fields of it are given, too; take one out")
    else:
        data = bytearray(whole.data if whole else dtype.itemsize)
        if dtype.metadata:
            example = f"--arg '{root}=T[4]:zero', where T is the struct"
            raise UserError(f"argument {root}: the function takes a pointer there; give the array first: {example}")
        if len(data) != dtype.itemsize:
            raise UserError(f"argument {root}: it has {len(data)} B, and the function takes {dtype.itemsize} B there")
    pointers: list[tuple[int, str]] = []
    for path, value in parts.items():
        try:
            at, field = place_in(dtype, path.removeprefix(root))
        except LookupError as error:
            raise UserError(f"argument {path}: {error}") from None
        if isinstance(value, GivenArray):
            if not field.metadata:
                raise UserError(f"argument {path}: an array, where the struct has no pointer but {_said(field)}")
            pointers.append((at, path))
            continue
        held = value_of(path, value, field)
        data[at : at + len(held)] = held
    if not isinstance(whole, GivenArray):
        return Value(bytes(data), "o", f"struct of {dtype.itemsize} B", tuple(pointers))
    filled = np.frombuffer(bytes(data), whole.dtype).reshape(whole.shape)
    return GivenArray(whole.dtype, whole.shape, lambda: filled, whole.const, tuple(pointers))


def value_of(path: str, value: Any, field: np.dtype) -> bytes:
    """The bytes of a field that is no pointer."""
    if field.metadata and value == 0:
        return bytes(8)
    if field.metadata:
        raise UserError(f"argument {path}: the struct has a pointer there: give an array, such as 'float[64]:zero'")
    if isinstance(value, Value):
        if len(value.data) != field.itemsize:
            raise UserError(f"argument {path}: {value.type} has {len(value.data)} B, and {_said(field)} is there")
        return value.data
    if field.fields or field.subdtype:
        raise UserError(f"argument {path}: {_said(field)} is there; give its parts")
    if field.kind in "iub":
        return by_parameter(path, value, field.itemsize, "i").data
    return np.asarray(value).astype(field).tobytes()


def _said(field: np.dtype) -> str:
    return f"a struct of {field.itemsize} B" if field.fields else "an array" if field.subdtype else str(field)
