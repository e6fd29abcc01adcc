"""Decimals (algebra): numbers in words, exact enough to tell value from threshold (S0.2, S0.7)."""

from __future__ import annotations

import math

# of a measurement in words: encoders on two machines agree that far, and not much further (rule
# S0.7)
DECIMALS = 4


MOST_DECIMALS = 17  # tell any two floats of magnitude 1 apart


def decimals(value: float, beside: float | None = None) -> str:
    """A number in words, with four decimals, or more if it would read like the one beside it.

    Zeros at the end say that the number was rounded; a number of at most four decimals comes
    without them.

    Args:
      beside: what the same sentence compares it with; NaN for nothing.

    Example:
      >>> decimals(0.66254), decimals(0.62), decimals(27.0), decimals(0.00001)
      ('0.6625', '0.62', '27', '0.0000')
      >>> decimals(0.69996, 0.7), decimals(0.7, 0.69996)
      ('0.69996', '0.7')
      >>> decimals(float("nan")), decimals(float("-inf"))
      ('missing', '−∞')
    """
    if math.isnan(value):
        return "missing"
    if math.isinf(value):
        return "∞" if value > 0.0 else "−∞"
    for places in range(DECIMALS, MOST_DECIMALS + 1):
        text = _rounded_text(value, places)
        if beside is None or not math.isfinite(beside) or value == beside:
            return text
        if float(text) != float(_rounded_text(beside, places)):
            return text
    return repr(value)  # apart in the last bits only


def percent(value: float) -> str:
    """Share as a percentage; a dash where there is none.

    Example:
      >>> percent(0.125), percent(float("nan"))
      ('12.5 %', '–')
    """
    return "–" if math.isnan(value) else f"{100 * value:.1f} %"


def _rounded_text(value: float, places: int) -> str:
    text = f"{value:.{places}f}"
    text = text.removeprefix("-") if float(text) == 0.0 else text
    # what arithmetic leaves in the last bits, as in 100 * 0.27, is no rounding worth showing
    exact = math.isclose(float(text), value, rel_tol=1e-12, abs_tol=0.0)
    return text.rstrip("0").rstrip(".") if exact else text
