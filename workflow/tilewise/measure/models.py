"""The models of what kernels compute, by the names that the registry gives them in `accuracy.scheme`."""

import functools
from collections.abc import Callable

import numpy as np

from tilewise.measure import by_need, tensor_core

#: The scheme of a kernel that makes a chain of fused multiply-adds on the CUDA cores.
CHAIN = "chain"
#: The scheme that is chosen for each part of a product.
BY_NEED = "float_always"
#: A (n x p) B (p x m) of floats, in float32, bit for bit.
MODELS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    **{name: functools.partial(tensor_core.product, scheme=scheme) for name, scheme in tensor_core.SCHEMES.items()},
    BY_NEED: lambda A, B: by_need.multiply(A, B)[0],
    CHAIN: tensor_core.chain,
}
