"""The models of what kernels compute, by the names that the registry gives them in `accuracy.scheme`."""

import functools
from collections.abc import Callable, Mapping

import numpy as np

from reference import double_always, float_always, residues, tensor_core
from tilewise.study.kernel import Kernel

#: The scheme of a kernel that makes a chain of fused multiply-adds on the CUDA cores.
CHAIN = "chain"
#: The scheme that is chosen for each part of a product.
BY_NEED = "float_always"
#: A (n x p) B (p x m) of floats, in float32, bit for bit.
MODELS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    **{name: functools.partial(tensor_core.product, scheme=scheme) for name, scheme in tensor_core.SCHEMES.items()},
    BY_NEED: lambda A, B: float_always.multiply(A, B)[0],
    CHAIN: tensor_core.chain,
}
#: The schemes of doubles that are made of residues, modulo numbers that fit a byte, always or where they suffice.
RESIDUES, RESIDUES_BY_NEED = "residues", "double_always"


def multiply(kernel: Kernel, parameters: Mapping[str, int], A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """A (n x p) B (p x m) as this kernel computes it, bit for bit; its entry names a scheme."""
    if kernel.accuracy["scheme"] == RESIDUES:
        return residues.product(A, B, parameters["moduli"])
    if kernel.accuracy["scheme"] == RESIDUES_BY_NEED:
        return double_always.multiply(A, B, parameters["tile_m"], parameters["cluster_blocks"])
    return MODELS[kernel.accuracy["scheme"]](A, B)
