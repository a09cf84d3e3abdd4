"""Write measured numbers for people, in one way on every surface.

Tests: tests/unit/protocol/test_numerals.py.
"""

from __future__ import annotations

import math

SMALLEST, LARGEST = 1e-6, 1e15


def significant(value: float, digits: int = 3) -> str:
    """Format a number with its significant digits, and large ones as whole numbers: 0.00012, 6.45, 12,346.

    No number has an exponent: readers of a status or a message do not expect one. Beyond what can be measured a number
    is only said to be so.
    """
    if not value or not math.isfinite(value):
        return "%g" % value
    if not SMALLEST <= abs(value) <= LARGEST:
        return ("less than 0.000001" if abs(value) < SMALLEST else "more than 10^15") if value > 0 else "less than 0"
    places = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    text = "{:,.{}f}".format(value, places)
    return text.rstrip("0").rstrip(".") if places else text
