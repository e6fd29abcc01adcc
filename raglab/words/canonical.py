"""Canonical forms (algebra): one written form of a value and of a moment.

JSON, digests over it, UTC (S0.5).

Every id and hash of raglab is a digest of canonical JSON, so that equal values have equal names in
every process.
"""

from __future__ import annotations

import json
from collections.abc import Callable
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
