"""Values as Java writes them."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from math import copysign, inf, isfinite, nan


def java_double(value: float) -> str:
    """Return a number as Java's Double.toString writes it."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        # In this range repr does not use the scientific notation, which it uses below 1e-4 and from 1e16.
        return repr(value)
    digits, _, exponent = f"{value:.16e}".partition("e")
    shortest = next(text for size in range(1, 18) if float(text := f"{value:.{size}e}") == value or size == 17)
    digits, _, exponent = shortest.partition("e")
    return f"{digits}E{int(exponent)}"


def java_fixed(value: float, digits: int) -> str:
    """Return a number as Java's `%.4f` writes it, with `digits` digits after the point. A half is rounded away from
    zero."""
    if not isfinite(value):
        return java_double(value)
    return f"{Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP):f}"


def java_ratio(amount: float, by: float) -> float:
    """Return a quotient as Java's doubles have it: a division by zero results in NaN or Infinity."""
    if by:
        return amount / by
    return nan if amount == 0 else copysign(inf, amount)
