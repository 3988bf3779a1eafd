"""Parse kernel arguments: `float[64x64]:random`, `int:64`, `data.npy`, or NumPy values."""

import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from kernelscope.declarations import Parameter
from kernelscope.errors import UserError
from kernelscope.launch import Value

#: The element types by their names in C++ and CUDA; messages show the first ones of each line.
TYPES = {
    name: np.dtype(code)
    for code, names in {
        "?": "bool",
        "i1": "char int8 int8_t",
        "u1": "uchar uint8 uint8_t",
        "i2": "short int16 int16_t",
        "u2": "ushort uint16 uint16_t",
        "i4": "int int32 int32_t",
        "u4": "unsigned uint uint32 uint32_t",
        "i8": "int64 int64_t long longlong",
        "u8": "uint64 uint64_t size_t ulong ulonglong",
        ml_dtypes.float8_e4m3fn: "e4m3 __nv_fp8_e4m3",
        ml_dtypes.float8_e5m2: "e5m2 __nv_fp8_e5m2",
        "f2": "half __half float16",
        ml_dtypes.bfloat16: "bfloat16 __nv_bfloat16",
        "f4": "float float32",
        "f8": "double float64",
    }.items()
    for name in names.split()
}
SHOWN = "bool char uchar short ushort int unsigned int64 uint64 e4m3 e5m2 half bfloat16 float double"
#: What an array may hold at first; nothing: no thread may read it before one has written it.
CONTENTS = ("random", "zero", "ramp")
EXAMPLES = "'float[4096]:random', 'int:64' or 'data.npy'"
_FORM = re.compile(
    r"(?P<const>const\s+)?(?P<type>[A-Za-z_]\w*(?:::\w+)*(?:\s+\w+)*(?:<[^\[\]]*>)?)\s*(?:\[(?P<shape>[^\]]*)\])?\s*(?::(?P<what>.*))?",
    re.DOTALL,
)


@dataclass(frozen=True)
class GivenArray:
    """An array that a kernel is given. `make` makes what it holds at first, None: nothing; a kernel must leave one
    that is `const` as it is. `pointers` as of a Value."""

    dtype: np.dtype
    shape: tuple[int, ...]
    make: Callable[[], np.ndarray] | None
    const: bool = False
    pointers: tuple[tuple[int, str], ...] = ()


Given = GivenArray | Value | int | float
Structs = Callable[[], Mapping[str, np.dtype]]


def read_argument(name: str, value: Any, folder: Path, seed: int, structs: Structs = dict) -> Given:
    """The value of an argument: text as above, a NumPy array or value, or a number, whose type is the parameter's.

    Files lie in `folder`; `structs` makes further types by their names. Random are reals in [-1, 1) and whole numbers
    from 0 to 99. Raises UserError for a type that is not known, and for a size, a number or a file that does not fit.
    """
    place = f"argument {name}"
    if isinstance(value, np.ndarray) and value.ndim:
        return _of_numpy(place, value)
    if isinstance(value, np.ndarray | np.generic):
        return _value(np.asarray(value), str(value.dtype))
    if isinstance(value, bool | int | float):
        return value
    if not isinstance(value, str):
        raise UserError(f"{place}: a {type(value).__name__}; give {EXAMPLES}, a number, or an array of NumPy")
    text = value.strip()
    if (number := _number(text)) is not None:
        return number
    if text.endswith(".npy") and ":" not in text:
        const = text.startswith("const ")
        read = load(place, folder, text.removeprefix("const ").strip())
        return GivenArray(read.dtype, read.shape, lambda: read, const)
    form = _FORM.fullmatch(text)
    if not form:
        raise UserError(f"{place}: '{text}' is not understood; write for example {EXAMPLES}")
    dtype, width = _type(place, form["type"], structs)
    what = form["what"].strip() if form["what"] is not None else None
    if form["shape"] is None and dtype.names:
        raise UserError(f"{place}: give the fields of a struct, for example --arg '{name}.{dtype.names[0]}=...'")
    if form["shape"] is None:
        return _scalar(place, form["type"], dtype, width, what)
    shape = _shape(place, form["shape"]) + ((width,) if width > 1 else ())
    make: Callable[[], np.ndarray] | None
    if not what:
        make = None
    elif what in CONTENTS:
        make = lambda: _contents(what, dtype, shape, np.random.default_rng([seed, *name.encode()]))  # noqa: E731
    elif what.endswith(".npy"):
        read = fit_shape(place, load(place, folder, what), dtype, shape, what)
        make = lambda: read  # noqa: E731
    else:
        near = difflib.get_close_matches(what, CONTENTS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(CONTENTS)} and files such as data.npy"
        raise UserError(f"{place}: '{what}' is nothing that an array can hold; {hint}")
    return GivenArray(dtype, shape, make, bool(form["const"]))


def load(place: str, folder: Path, file: str) -> np.ndarray:
    """The array in a .npy file. Raises UserError if there is none."""
    path = folder / file
    try:
        return _plain(place, np.load(path, allow_pickle=False))
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*.npy")], n=1)
        hint = f"did you mean {near[0]}?" if near else "numpy.save writes one"
        raise UserError(f"{place}: there is no file {path}; {hint}") from None
    except (OSError, ValueError, EOFError):
        raise UserError(f"{place}: {path} is no array of numbers; numpy.save writes one") from None


def fit_shape(place: str, array: np.ndarray, dtype: np.dtype, shape: tuple[int, ...], file: str = "it") -> np.ndarray:
    """An array in this shape. Raises UserError if it has another type, whose bytes mean others, or size."""
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:
        array = array.view(dtype)  # how NumPy writes bfloat16
    if array.size != math.prod(shape) or array.dtype != dtype:
        held, wanted = (f"{d} {' x '.join(map(str, s))}" for d, s in ((array.dtype, array.shape), (dtype, shape)))
        raise UserError(f"{place}: {file} has {held}, and it is to be {wanted}; change one of the two")
    return array.reshape(shape)


def by_parameter(name: str, number: int | float, size: int, kind: str) -> Value:
    """A number of the type that a parameter has. Raises UserError if it is not one of a number, or too small."""
    place = f"argument {name}"
    if kind == "p":
        raise UserError(
            f"{place}: {number}; the function takes a pointer there: give an array, such as 'float[64]:zero'"
        )
    if kind == "o":
        remedy = f"say its type, such as 'half:1.0', or give its fields, such as --arg '{name}.x=1.0'"
        raise UserError(f"{place}: the function takes a struct of {size} B there; {remedy}")
    if kind == "f":
        return _value(np.asarray(number, f"f{size}"), f"f{size}")
    signed = "i" if number < 0 else "u"
    return _value(
        _exactly(place, number, np.dtype(f"{signed}{size}"), f"a whole number of {size} B"), f"{signed}{size}"
    )


def _plain(place: str, array: np.ndarray) -> np.ndarray:
    """A copy of an array as C++ would have it. Raises UserError if it holds no numbers."""
    if array.dtype.hasobject or array.dtype.kind not in "biufcV" or not array.size:
        raise UserError(f"{place}: an array of {array.size} elements of type {array.dtype}; give numbers")
    return np.atleast_1d(np.array(array, array.dtype.newbyteorder("="), order="C"))


def _of_numpy(place: str, array: np.ndarray) -> GivenArray:
    held = _plain(place, array)
    return GivenArray(held.dtype, held.shape, lambda: held, not array.flags.writeable)


def _number(text: str) -> int | float | None:
    if text in ("true", "false"):
        return int(text == "true")
    for read in (lambda: int(text, 0), lambda: float(text)):
        try:
            return read()
        except ValueError:
            continue
    return None


def element_type(text: str) -> tuple[np.dtype, int] | None:
    """The type of an element of this name, and how many make a vector, such as 4 of float4; None for another name."""
    name = " ".join(text.split()).replace("long long", "longlong")
    name = re.sub(r"^unsigned (?=\w)", "u", re.sub(r"^signed ", "", name))
    if name in TYPES:
        return TYPES[name], 1
    vector = re.fullmatch(r"([a-z]\w*?)([1-4])", name)
    return (TYPES[vector[1]], int(vector[2])) if vector and vector[1] in TYPES else None


def example(parameter: Parameter, template: Mapping[str, str], elements: int = 64, holds: str = "random") -> str:
    """A value for a parameter of a function, as `read_argument` reads it, with the arguments of its template by name;
    "" for a struct."""
    words = re.sub(
        r"\b(?:const|volatile|__restrict__|__restrict|struct)\b|&|__attribute__\(\(\w+\)\)", " ", parameter.type
    )
    name = " ".join(re.sub(r"\w+", lambda word: template.get(word[0], word[0]), words).split())
    if parameter.is_pointer:
        return f"{'uchar' if name == 'void' else name}[{elements}]" + (f":{holds}" if holds else "")
    if not (found := element_type(name)):
        return ""
    dtype, width = found
    if width > 1 or (dtype.itemsize <= 2 and dtype.kind not in "biu"):
        return f"{name}:{','.join('1' * width)}"
    return "true" if dtype.kind == "b" else str(elements) if dtype.kind in "iu" else "1.0"


def _type(place: str, text: str, structs: Structs) -> tuple[np.dtype, int]:
    if found := element_type(text):
        return found
    if (own := structs().get(re.sub(r"^struct ", "", " ".join(text.split())))) is not None:
        return own, 1
    near = difflib.get_close_matches(" ".join(text.split()), TYPES, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UserError(
        f"{place}: '{text}' is no type; {hint}there are {', '.join(SHOWN.split())}, and vectors such as float4"
    )


def _shape(place: str, text: str) -> tuple[int, ...]:
    sizes = text.replace(" ", "").split("x")
    if not all(re.fullmatch(r"[1-9]\d{0,11}", size) for size in sizes):
        raise UserError(f"{place}: '[{text}]' is no size; write for example [4096] or [64x64]")
    return tuple(map(int, sizes))


def _scalar(place: str, type_name: str, dtype: np.dtype, width: int, what: str | None) -> Value:
    numbers = [_number(part.strip()) for part in what.split(",")] if what else []
    if len(numbers) != width or None in numbers:
        wanted = ",".join("1234"[:width])
        raise UserError(
            f"{place}: '{what or ''}' is no value of type {type_name}; write for example '{type_name}:{wanted}', or "
            f"'{type_name}[64]:random' for an array"
        )
    held = np.stack([_exactly(place, number, dtype, type_name) for number in numbers if number is not None])
    return _value(held, type_name) if width == 1 else Value(held.tobytes(), "o", type_name)


def _exactly(place: str, number: int | float, dtype: np.dtype, what: str) -> np.ndarray:
    """A number as an array of no dimension; whole numbers must fit."""
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        if not (bounds.min <= number <= bounds.max and number == int(number)):
            raise UserError(f"{place}: {number} is not {what}: it must be whole, {bounds.min} to {bounds.max}")
        number = int(number)
    return np.asarray(number).astype(dtype)


def _value(held: np.ndarray, type_name: str) -> Value:
    is_float = held.dtype.kind == "f" and held.itemsize >= 4
    kind = "i" if held.dtype.kind in "biu" else "f" if is_float else "o"
    return Value(held.tobytes(), kind, type_name)


def _contents(what: str, dtype: np.dtype, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    if dtype.fields:  # a pointer is null
        made = np.zeros(shape, dtype)
        for name, (field, *_) in dtype.fields.items():
            if not field.metadata:
                inner, more = field.subdtype or (field, ())
                made[name] = _contents(what, inner, shape + more, random)
        return made
    if what == "zero":
        return np.zeros(shape, dtype)
    if what == "ramp":
        return np.arange(math.prod(shape)).astype(dtype).reshape(shape)
    if dtype.kind in "biu":
        return random.integers(0, 2 if dtype.kind == "b" else 100, shape).astype(dtype)
    return (2 * random.random(shape) - 1).astype(dtype)
