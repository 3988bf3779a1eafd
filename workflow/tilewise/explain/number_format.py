"""Round numbers to the digits that the page shows: one rule for tables, sentences, claims and figures."""

import math


def rounded(value: float, unit: str = "") -> str:
    """A number as text: three significant digits, and whole numbers and clocks (unit "MHz") whole.

    A ratio ("x" or "×") has at most two decimals; a percentage ("%") has none from 10 on, and one below and where it
    would round to 100. What would round to nothing is less than the last digit.
    """
    if not math.isfinite(value):
        return f"{value}".replace("inf", "∞")
    if unit == "MHz" or math.isclose(value, round(value), rel_tol=1e-12):
        return f"{value:,.0f}"
    decimals = 2 - math.floor(math.log10(abs(float(f"{value:.2e}"))))
    if unit in ("x", "×"):
        decimals = min(decimals, 2)
    if unit == "%":
        decimals = 1 if abs(value) < 9.95 or 99.5 <= abs(value) < 99.95 else 0
    if decimals < 0:
        return f"{round(value, decimals):,.0f}"
    if decimals > 6:
        return f"{value:.2e}"
    if abs(value) < 0.5 / 10**decimals:
        return f"<{1 / 10**decimals:g}"
    text = f"{value:,.{decimals}f}"
    # What was measured with fewer digits has no more of them.
    return text.rstrip("0") if unit not in ("x", "×", "%") and text.lstrip("-").startswith("0.") else text


def plus_minus(percent: float) -> str:
    """The words after a measured time: how far its runs lie from it, in %, rounded up."""
    tenths = math.ceil(round(10 * percent, 6))
    return f"± {tenths / 10:.1f} %" if tenths < 100 else f"± {math.ceil(percent):,} %"
