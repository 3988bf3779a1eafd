"""Compile Warp's kernels to cubins, by its ahead-of-time compilation of modules.

An instance is `tiled<float, 64, 64, 16, 0, 128>`: the element type, whole numbers, and the threads of a block. The
function of that name in the kernel's file is called with Warp's type of the elements and of their sums, and the
numbers, and returns the kernel. Warp passes its launch's bounds and its arrays as structs, which the registry spells.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelscope.element_types import ARRAY_NAMES
from tilewise.study.kernel import Kernel


def compile_cubin(kernel: Kernel, function: Any, words: Sequence[str], capability: str) -> tuple[bytes, dict[str, Any]]:
    """Compile one instance; the entry has the symbol and the dynamic shared bytes."""
    import warp

    warp.config.quiet = True
    element, *numbers, threads = words
    stored = getattr(warp, ARRAY_NAMES[element])
    summed = warp.float64 if stored is warp.float64 else warp.float32
    made = function(stored, summed, *map(int, numbers))
    made.module.options["block_dim"] = int(threads)
    arch = int(capability.replace(".", ""))
    with tempfile.TemporaryDirectory() as folder:
        [cubin] = warp.compile_aot_module(made.module, arch=arch, module_dir=folder, use_ptx=False, strip_hash=True)
        [facts] = Path(folder).glob("*.meta")
        [(name, shared_bytes)] = json.loads(facts.read_text(encoding="utf-8")).items()
        return cubin.read_bytes(), {"symbol": name.removesuffix("_smem_bytes"), "dynamic_shared_bytes": shared_bytes}
