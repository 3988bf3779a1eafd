"""The best parameters by class of shapes, which kernels/tuned.yaml keeps.

A choice belongs to a GPU model, a kernel, an element type and a class of shapes. A GPU is named as its platform is,
such as `nvidia-h200`.
"""

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from kernelscope.files import atomic_path, read_text
from tilewise.study import schema
from tilewise.study.expressions import evaluate

TUNED = "tuned.yaml"
#: The values of a kernel's parameters by name, as a sweep of the config names them: `block` is text.
Choice = Mapping[str, Any]
#: By GPU, kernel, element type and class.
Choices = dict[str, dict[str, dict[str, dict[str, Choice]]]]

#: The classes of shapes, each with a condition on n, p and m; a shape is of the first class whose condition holds. They
#: differ in what limits them: few tiles of C cannot fill a chip (a chip of 132 multiprocessors has 144 tiles of 128 x
#: 128 at 1536 x 1536), long sums can fill it if they are cut, and sizes that are not multiples of 64 waste a part of
#: their last tiles, which matters if there are few. At 16384 x 16384 the order of the tiles matters more than below.
CLASSES = {
    "long": "n * m <= 1536 * 1536 and p >= 4 * max(n, m)",
    "small": "n * m <= 1536 * 1536 and n % 64 == 0 and m % 64 == 0",
    "small_ragged": "n * m <= 1536 * 1536",
    "narrow": "min(n, m) <= 1536",
    "medium": "n * m < 2 ** 25",
    "large": "n * m < 2 ** 27",
    "huge": "true",
}


def shape_class(shape: Mapping[str, int]) -> str:
    """The class of a shape, which maps n, p and m to sizes."""
    return next(name for name, condition in CLASSES.items() if evaluate(condition, shape))


def nearest(known: Mapping[str, Any], name: str) -> Any:
    """known[name], or the first entry for a GPU or class that has not been tuned."""
    return known[name] if name in known else next(iter(known.values()))


def chosen(tuned: Mapping[str, Any], gpu: str, dtype: str, word: str) -> Choice | None:
    """What a kernel's choices have for a GPU, an element type and a class of shapes, or else the nearest to it; None if
    no GPU has one for the type."""
    by_gpu = {name: types[dtype] for name, types in tuned.items() if dtype in types}
    return nearest(nearest(by_gpu, gpu), word) if by_gpu else None


def load(folder: Path | str, checked: bool = False) -> Choices:
    """Read tuned.yaml of a kernels folder; empty if there is none. Raises UserError if it is malformed, unless it was
    `checked`."""
    path = Path(folder) / TUNED
    return (schema.read(path, "tuned", checked, empty=True) if path.exists() else None) or {}


def choices_by_kernel(folder: Path | str, checked: bool = False) -> dict[str, dict[str, Any]]:
    """The registered choices, by kernel, then GPU, element type and class of shapes."""
    found: dict[str, dict[str, Any]] = {}
    for gpu, kernels in load(folder, checked).items():
        for name, types in kernels.items():
            found.setdefault(name, {})[gpu] = types
    return found


def merge(old: Choices, new: Choices) -> Choices:
    """The choices of `old` with those of `new` in their place; classes are in the order of CLASSES, largest first."""
    order = list(CLASSES)[::-1]
    found: Choices = {}
    for gpu in dict.fromkeys([*old, *new]):
        kernels = [known.get(gpu, {}) for known in (old, new)]
        for name in dict.fromkeys([*kernels[0], *kernels[1]]):
            types = [known.get(name, {}) for known in kernels]
            for dtype in dict.fromkeys([*types[0], *types[1]]):
                classes = types[0].get(dtype, {}) | types[1].get(dtype, {})
                ordered = {word: classes[word] for word in sorted(classes, key=order.index)}
                found.setdefault(gpu, {}).setdefault(name, {})[dtype] = ordered
    return found


def text(choices: Choices) -> str:
    """The choices as YAML, one line per class."""
    return yaml.safe_dump(choices, sort_keys=False, default_flow_style=None, width=math.inf) if choices else ""


def write(choices: Choices, folder: Path | str) -> Path:
    """Write the choices into a kernels folder's tuned.yaml, in addition to those there, and keep its comment."""
    path = Path(folder) / TUNED
    lines = read_text(path).splitlines() if path.exists() else []
    head = itertools.takewhile(lambda line: not line or line.startswith("#"), lines)
    content = "".join(f"{line}\n" for line in head) + text(merge(load(folder), choices))
    with atomic_path(path) as temporary:
        temporary.write_text(content, encoding="utf-8")
    return path
