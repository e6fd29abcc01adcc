"""Whether two texts agree where numbers may differ in last digits, as between two processors."""

from __future__ import annotations

import re
from itertools import zip_longest

# measurements differ in the fifth digit (rule S0.7), what is made of them in the fourth
RELATIVE = 3e-4
NOISE = 1e-6  # what float32 leaves of a difference of two equal numbers
# of a number shown to four decimals; more decimals are given no more than their own last one
LEAST_UNIT = 1e-4
# what one unit of the last shown decimal may make of the value, where that is coarser
MOST_OF_A_VALUE = 0.005

# A number with a point or an exponent that is no part of a name, a version or a date; counts have
# neither and are text.
_NUMBER = re.compile(
    r"(?<![\w.])[-+−]?(?:\d[\d,]*\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]\d+)(?!\w|\.\d)"
)
_GAPS = re.compile(r"[ \t]+|(?<=-)-+")  # columns and rules are as wide as their longest number


def difference(one, other):
    """First place where two texts say something else, in words; '' where they say the same.

    Numbers with decimals may differ by three ten-thousandths of themselves, and by one unit in the
    last decimal shown, so that a value on the edge of two roundings is the same on either side:
    where that unit is at most 0.0001, or half a percent of the value. All else must be equal but
    for the blanks between columns.
    """
    for here, there in zip_longest(one.splitlines(), other.splitlines(), fillvalue="(no line)"):
        if not _alike(here.rstrip(), there.rstrip()):
            return f"{here!r} is not {there!r}"
    return ""


def _alike(here, there):
    if here == there:
        return True
    frames = (_GAPS.sub(" ", _NUMBER.sub("#", line)).strip() for line in (here, there))
    if len({*frames}) > 1:
        return False
    pairs = zip(_NUMBER.findall(here), _NUMBER.findall(there), strict=True)
    return all(_near(first, second) for first, second in pairs)


def _near(first, second):
    one, other = _value(first), _value(second)
    size, unit = max(abs(one), abs(other)), max(_unit(first), _unit(second))
    rounding = unit if unit <= max(LEAST_UNIT, MOST_OF_A_VALUE * size) else 0.0
    # a hair more, since the difference of two decimals is not exact
    return abs(one - other) <= 1.001 * max(RELATIVE * size, rounding, NOISE)


def _value(number):
    return float(number.replace(",", "").replace("−", "-"))


def _unit(number):
    """One unit in the last decimal shown."""
    digits, _, exponent = number.lower().partition("e")
    return float(10.0 ** (int(exponent or 0) - len(digits.partition(".")[2])))
