"""The words of the accuracy gate and of the grades: kinds of operands, tests, grades."""

from enum import StrEnum

#: Graded operands span this many powers of ten.
DECADES = 12
#: The gate's kinds of operands, in words.
MEANING = {
    "mixed": "normally distributed, so of both signs",
    "positive": "their magnitudes",
    "scattered": "each element times a random power of two from 2⁻⁸ to 2²",
    "along_rows_and_columns": f"rows of A and columns of B grow over {DECADES} powers of ten",
    "along_k": f"both grow along k over {DECADES} powers of ten",
    "opposed_along_k": f"along k, A grows and B falls over {DECADES} powers of ten",
    "steep_along_k": f"the same within each 64 of k: A grows and B falls over {DECADES} powers of ten",
}
#: The tests for grades of operands, or with results, that are no normal numbers.
SPECIAL = ("denormals", "infinite", "not a number")
#: The first test of the field, over sizes, the fourth, over powers of two, and that of GEMMul8's authors, over phi.
CURVE, SPREAD, WIDE = "curve", "spread", "wide"
#: The parameter on which errors depend; the others only decide how fast a kernel is.
ROUNDING = "moduli"


class Grade(StrEnum):
    """From the best to the worst."""

    A = "A"
    B = "B"
    C = "C"
    NONE = "none"
