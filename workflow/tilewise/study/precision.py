"""The element types: how operands are stored, how sums are kept, how a result is rounded, and what that may change.

Two measures of a rounding error follow. `Precision.growth` is the worst case of any operands and any order of the sum:
what exceeds it is wrong. `Precision.deviation` is the root mean square for the random operands of
`tilewise.study.verify`, uniform in [-1, 1): what exceeds it many times is not of this type.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from kernelscope.element_types import ELEMENT_TYPES, ElementType

#: Root mean squares for operands that are uniform in [-1, 1), so that a partial sum of k products is as large as
#: sqrt(k)/3. A number rounded to nearest is off by 0.4247 u of itself if its digits are random (the mean of 4^e / 3 x^2
#: over a binade), an operand by u/sqrt(7). A chain of p sums adds p such errors of its partial sums: 0.3 sqrt(p) u of
#: the result, whose expectation is 0, so the worst case's p and the sqrt(p) of N. J. Higham and T. Mary (SIAM J. Sci.
#: Comput. 41, A2815, 2019) do not appear; their "Sharper probabilistic backward error analysis" (2020) has this case.
OF_RESULT, OF_OPERAND, OF_CHAIN = 0.4247, 7**-0.5, 0.3
#: A sum that is cut towards zero loses 0.72 u of itself in the mean, and 3/4 of that on a Hopper tensor core, which
#: keeps two bits more: the errors add up as the partial sums do, to u p / sqrt(3) of the result for a cut per product.
OF_CUT = 0.7213 * 0.75 / 3**0.5
#: Element types whose products the tensor cores make wherever a GPU has them.
ON_TENSOR_CORES = frozenset({"half", "bfloat16", "tf32", "int8"})
#: Half the distance from 1 to the next float.
FLOAT_ROUNDOFF = 2.0**-24
#: A right product may exceed its deviation so many times: no order of a sum is four times worse than a chain.
MOST_DEVIATION = 4.0
#: The root mean square of few errors is uncertain: of N, by up to 1 + FEW / sqrt(N) times.
FEW = 4.0


@dataclass(frozen=True)
class Scheme:
    """The scheme of a kernel's products, if it differs from the element type's.

    `dtypes` are the types that it may be declared for. It makes a product of so many `products` in the type
    `short`, those of residues of as many as there are moduli. The other fields are those of a Precision.
    """

    dtypes: tuple[str, ...]
    input_roundoff: float = 0.0
    left_out: float = 0.0
    cuts: float = 0.0
    short: str = ""
    products: int = 1


#: The schemes by name. What two halves or two TF32 leave of a float is 2^-22 of it, what three bfloat16 leave 2^-24;
#: sums of promoted blocks are those of a chain. What residues leave of a double follows from the number of moduli, of
#: which 13 are the fewest. `short_sums` keeps the sums in the type of the elements.
SCHEMES = {
    "chain": Scheme(("float", "double")),
    "tf32": Scheme(("float",), 2.0**-11, cuts=1 / 8, short="tf32"),
    "half": Scheme(("float",), 2.0**-11, cuts=1 / 16, short="half"),
    "bfloat16": Scheme(("float",), 2.0**-8, cuts=1 / 16, short="bfloat16"),
    "three_tf32": Scheme(("float",), left_out=2.0**-21, cuts=3 / 8, short="tf32", products=3),
    "float_from_half": Scheme(("float",), left_out=2.0**-21, short="half", products=3),
    "float_from_bf16": Scheme(("float",), left_out=2.0**-22, short="bfloat16", products=6),
    "float_always": Scheme(("float",), left_out=2.0**-21, short="half", products=3),  # if all operands are even
    "residues": Scheme(("double",), left_out=2.0**-44, short="int8"),
    "double_always": Scheme(("double",), left_out=2.0**-50, short="int8", products=14),  # if all tiles pass its test
    "short_sums": Scheme(("half", "bfloat16")),
}


@dataclass(frozen=True, kw_only=True)
class Precision(ElementType):
    """The arithmetic of products in one element type.

    C may be of another type, `result` names its precision. Operands that are integers are random from `least` to
    `largest`. A kernel may round the operands (`input_roundoff`), it keeps its sums with `sum_roundoff`, and it rounds
    a sum when it stores it (`result_roundoff`, and at the smallest numbers `result_floor`). Roundoffs are relative:
    half the distance from 1 to the next number, or, for sums on tensor cores, the whole distance, because those cut;
    `cuts` is how often they do for each product. `left_out` is what a scheme leaves out of an operand. `poison`, as an
    integer of that size, has the bits of what no product contains: NaN, or the smallest integer; `finite_poison` those
    of the largest finite number, for kernels that read C and multiply it by 0.
    """

    sum_roundoff: float
    poison: int
    finite_poison: int
    input_roundoff: float = 0.0
    result_roundoff: float = 0.0
    result_floor: float = 0.0
    cuts: float = 0.0
    left_out: float = 0.0
    result: str = ""
    least: int = -9
    largest: int = 9

    def growth(self, p: int) -> float:
        """The largest error of a sum of p products, as a share of |A| |B|, before it is stored.

        Rounding of both operands and what a scheme leaves out of them, then gamma_p = p u / (1 - p u) for any order of
        the sum (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 3.1 and 3.5). 0 for
        integers.
        """
        unit, operand = self.sum_roundoff, self.input_roundoff + self.left_out
        gamma = p * unit / (1 - p * unit) if p * unit < 1 else math.inf
        return (1 + operand) ** 2 * (1 + gamma) - 1 if operand else gamma

    def deviation(self, p: int) -> float:
        """The root mean square error of a sum of p products of random operands, relative to that of the sums, before it
        is stored. 0 for integers.

        Of double it includes that of the reference, whose sums are doubles too.
        """
        operands = math.sqrt(2) * OF_OPERAND * math.hypot(self.input_roundoff, self.left_out)
        steps = self.sum_roundoff * math.hypot(OF_CHAIN * math.sqrt(p), OF_RESULT * math.sqrt(2))
        cut = OF_CUT * self.cuts * p * FLOAT_ROUNDOFF
        return math.hypot(operands, steps * (math.sqrt(2) if self.name == "double" else 1), cut)

    def by(self, scheme: str) -> "Precision":
        """The precision of kernels with a scheme of SCHEMES, if it is one for this type; "": the type's own."""
        if not scheme or self.name not in SCHEMES[scheme].dtypes:
            return self
        if scheme == "short_sums":  # each product and each sum is rounded
            return replace(self, sum_roundoff=2 * self.result_roundoff, cuts=0.0)
        own = SCHEMES[scheme]
        sums = 2 * FLOAT_ROUNDOFF if own.input_roundoff else self.sum_roundoff  # on tensor cores
        return replace(self, input_roundoff=own.input_roundoff, left_out=own.left_out, sum_roundoff=sums, cuts=own.cuts)


def _precision(name: str, sum_roundoff: float, poison: int, finite_poison: int, **more: Any) -> Precision:
    own = {"sum_roundoff": sum_roundoff, "poison": poison, "finite_poison": finite_poison, **more}
    return Precision(**vars(ELEMENT_TYPES[name]), **own)


#: The element types by name. half and bfloat16 are multiplied exactly and summed in float, which is what C is rounded
#: from; tf32 operands are floats that the kernel rounds to 10 bits. Sums on tensor cores are truncated. int8 is
#: multiplied and summed exactly in int32, which C holds: up to p = 2^17 - 1 no sum leaves its range.
PRECISIONS = {
    precision.name: precision
    for precision in (
        _precision("float", 2.0**-24, -1, 0x7F7FFFFF),
        _precision("double", 2.0**-53, -1, 0x7FEFFFFFFFFFFFFF),
        _precision("int32", 0.0, -(2**31), -(2**31)),
        _precision("int8", 0.0, -(2**7), -(2**7), result="int32", least=-128, largest=127),
        _precision("half", 2.0**-23, -1, 0x7BFF, result_roundoff=2.0**-11, result_floor=2.0**-25, cuts=1 / 16),
        _precision("bfloat16", 2.0**-23, -1, 0x7F7F, result_roundoff=2.0**-8, result_floor=2.0**-134, cuts=1 / 16),
        _precision("tf32", 2.0**-23, -1, 0x7F7FFFFF, input_roundoff=2.0**-11, cuts=1 / 8),
    )
}


def result_of(dtype: str) -> Precision:
    """The precision of C, if A and B are of the type `dtype`: int32 for int8, for others the type itself."""
    precision = PRECISIONS[dtype]
    return PRECISIONS[precision.result or dtype]


def bytes_of_product(dtype: str, n: int, p: int, m: int) -> int:
    """The bytes of A (n x p), B (p x m) and C (n x m)."""
    return PRECISIONS[dtype].itemsize * (n * p + p * m) + result_of(dtype).itemsize * n * m
