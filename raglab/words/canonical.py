"""Canonical forms (algebra): one written form of a value, a moment and a number.

JSON, digests over it, UTC (S0.5), decimals that tell a value from its threshold (S0.2, S0.7).

Every id and hash of raglab is a digest of canonical JSON, so that equal values have equal names in
every process.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Container, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any


def canonical_json(
    value: object,
    *,
    ensure_ascii: bool = False,
    allow_nan: bool = True,
    default: Callable[[Any], object] | None = None,
) -> str:
    """JSON with sorted keys and no white space: equal values have equal texts.

    Args:
      ensure_ascii: whether other characters are escaped, as in files that any reader must take.
      allow_nan: whether NaN and infinities are written, which are no JSON.
      default: makes JSON of what is none; as in `json.dumps`.

    Raises:
      TypeError: a value is no JSON, and `default` makes none of it.
      ValueError: a number is not finite where `allow_nan` is false.

    Example:
      >>> canonical_json({"b": [1, 0.5], "a": "é"})
      '{"a":"é","b":[1,0.5]}'
    """
    return json.dumps(
        value,
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=ensure_ascii,
        allow_nan=allow_nan,
        default=default,
    )


def merged_rows(
    base: Mapping[str, Any], overriding: Mapping[str, Any], replaced_keys: Container[str] = ()
) -> dict[str, Any]:
    """A mapping with the entries of another put over it, mapping by mapping.

    Args:
      replaced_keys: keys whose mapping stands for the other one as a whole.

    Example:
      >>> merged_rows({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
      {'a': {'b': 3, 'c': 2}}
    """
    merged_mapping = dict(base)
    for entry_key, value in overriding.items():
        is_nested = isinstance(value, Mapping) and isinstance(
            merged_mapping.get(entry_key), Mapping
        )
        merged_mapping[entry_key] = (
            merged_rows(merged_mapping[entry_key], value, replaced_keys)
            if is_nested and entry_key not in replaced_keys
            else value
        )
    return merged_mapping


def digest(text: str, digits: int = 64) -> str:
    """First hex digits of the SHA-256 of a text; half of a surrogate pair counts as it stands.

    Args:
      digits: 12 for ids that people read, 16 for fingerprints, 64 for contents.

    Example:
      >>> digest("raglab", 12)
      'b4d8643b8172'
    """
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]


def instant(now: datetime) -> datetime:
    """A moment that can be compared; one without a zone is UTC.

    Raises:
      ValueError: no datetime.

    Example:
      >>> instant(datetime(2026, 1, 5, 9)) == datetime(2026, 1, 5, 9, tzinfo=UTC)
      True
    """
    if not isinstance(now, datetime):
        msg = f"now must be a datetime, got {now!r}; use datetime.now(UTC)."
        raise ValueError(msg)  # noqa: TRY004 - a ValueError at the door, as everywhere
    return now if now.utcoffset() is not None else now.replace(tzinfo=UTC)


def utc_text(now: datetime) -> str:
    """A moment as logs keep it: UTC, to the microsecond, so that its text sorts as time does.

    Example:
      >>> utc_text(datetime(2026, 1, 5, 9))
      '2026-01-05T09:00:00.000000+00:00'
    """
    return instant(now).astimezone(UTC).isoformat(timespec="microseconds")


# of a measurement in words: encoders on two machines agree that far, and not much further (rule
# S0.7)
SHOWN_DECIMALS = 4


MAX_DECIMALS = 17  # tell any two floats of magnitude 1 apart


def decimals(value: float, compared_value: float | None = None) -> str:
    """A number in words, with four decimals, or more if it would read like the one beside it.

    Zeros at the end say that the number was rounded; a number of at most four decimals comes
    without them.

    Args:
      compared_value: what the same sentence compares it with; NaN for nothing.

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
    for n_decimals in range(SHOWN_DECIMALS, MAX_DECIMALS + 1):
        rounded_text = _rounded_text(value, n_decimals)
        if compared_value is None or not math.isfinite(compared_value) or value == compared_value:
            return rounded_text
        if float(rounded_text) != float(_rounded_text(compared_value, n_decimals)):
            return rounded_text
    return repr(value)  # apart in the last bits only


def percent(value: float) -> str:
    """Share as a percentage; a dash where there is none.

    Example:
      >>> percent(0.125), percent(float("nan"))
      ('12.5 %', '–')
    """
    return "–" if math.isnan(value) else f"{100 * value:.1f} %"


def _rounded_text(number: float, n_decimals: int) -> str:
    rounded_text = f"{number:.{n_decimals}f}"
    rounded_text = rounded_text.removeprefix("-") if float(rounded_text) == 0.0 else rounded_text
    # what arithmetic leaves in the last bits, as in 100 * 0.27, is no rounding worth showing
    is_exact = math.isclose(float(rounded_text), number, rel_tol=1e-12, abs_tol=0.0)
    return rounded_text.rstrip("0").rstrip(".") if is_exact else rounded_text
