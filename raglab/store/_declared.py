"""How tables of the audit log are declared, and what is JSON in a row, without knowing the database."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple


class Column(NamedTuple):
    """A column: kind is one of name (a short text), text, json, whole, number.

    unique: no value twice. missing: may be null. listed: found fast by its value, in the order of events.
    """

    name: str
    kind: str
    unique: bool = False
    missing: bool = False
    listed: bool = False


class Table(NamedTuple):
    """A table of events, which have a number `seq` and a time `at`; or, with a key, of values that are written over.

    key: the column that tells such values apart.
    """

    name: str
    columns: tuple[Column, ...]
    key: str | None = None


def packed(row: Mapping[str, Any], of_json: Collection[str]) -> dict[str, Any]:
    """Row with values of JSON columns as text, every digit kept.

    Raises:
      ValueError: a text that is no Unicode.
    """
    made = {key: _text(value) if key in of_json else value for key, value in row.items()}
    for key, value in made.items():
        try:
            value.encode() if isinstance(value, str) else None
        except UnicodeEncodeError:
            msg = f"{key} must be a text in Unicode, got {value!a:.80}; take out the half of a pair of surrogates."
            raise ValueError(msg) from None
    return made


def unpacked(row: Mapping[Any, Any], of_json: Collection[str]) -> dict[str, Any]:
    """Row with values of JSON columns as they were.

    Raises:
      ValueError: one is no JSON.
    """
    try:
        return {key: json.loads(value) if key in of_json else value for key, value in row.items()}
    except (ValueError, TypeError) as error:
        msg = f"JSON columns of a log must hold JSON, got {error}; its tables were altered, take a copy of before."
        raise ValueError(msg) from None


def _text(value: Any) -> str:  # noqa: ANN401 - any JSON value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
