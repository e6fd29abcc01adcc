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
    base: Mapping[str, Any], stated: Mapping[str, Any], whole: Container[str] = ()
) -> dict[str, Any]:
    """A mapping with the entries of another put over it, mapping by mapping.

    Args:
      whole: keys whose mapping stands for the other one as a whole.

    Example:
      >>> merged_rows({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
      {'a': {'b': 3, 'c': 2}}
    """
    rows = dict(base)
    for key, value in stated.items():
        deep = isinstance(value, Mapping) and isinstance(rows.get(key), Mapping)
        rows[key] = merged_rows(rows[key], value, whole) if deep and key not in whole else value
    return rows


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
