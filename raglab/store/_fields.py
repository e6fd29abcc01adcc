"""Typed fields of a record: each returns the value or stops with place, rule, what came and remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from raglab.store._errors import Where, input_error, shown

Record = Mapping[str, Any]


def text_of(record: Record, key: str, where: Where, *, blank: bool = False) -> str:
    """String of a required field; blank only where `blank` allows it."""
    if key not in record:
        raise input_error(where, f"the field {key} is required", f"add {key}", f"only {_names(record)}")
    value = record[key]
    if not isinstance(value, str):
        raise input_error(where, f"{key} must be a string", f"write {key} in quotes", shown(value))
    if not blank and not value.strip():
        raise input_error(where, f"{key} must not be blank", f"fill {key}", shown(value))
    return value


def optional_text(record: Record, key: str, where: Where) -> str | None:
    """String of an optional field; None where it is absent or null."""
    return None if record.get(key) is None else text_of(record, key, where, blank=True)


def texts_of(record: Record, key: str, where: Where) -> tuple[str, ...]:
    """Strings of an optional list; empty where it is absent or null."""
    value = record.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise input_error(where, f"{key} must be a list of strings", "put it in square brackets", shown(value))
    for item in value:
        if not isinstance(item, str) or not item.strip():
            rule = f"{key} must be a list of strings that are not blank"
            raise input_error(where, rule, "correct or remove the item", shown(item))
    return tuple(value)


def whole_of(record: Record, key: str, where: Where, least: int) -> int | None:
    """Integer of an optional field, at least `least`; None where it is absent or null."""
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        rule = f"{key} must be an integer of at least {least}"
        raise input_error(where, rule, f"write {key} as a number without quotes or point", shown(value))
    return value


def tags_of(record: Record, where: Where) -> dict[str, str]:
    """Strings by name of the optional field `tags`."""
    value = record.get("tags")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise input_error(where, "tags must be an object of strings", 'write {"domain": "home", …}', shown(value))
    return {key: text_of(value, key, where, blank=True) for key in value}


def records_of(record: Record, key: str, where: Where) -> list[Record]:
    """Objects of a required list."""
    if key not in record:
        raise input_error(where, f"the field {key} is required", f"add {key}", f"only {_names(record)}")
    value = record[key]
    if not isinstance(value, list):
        raise input_error(where, f"{key} must be a list of objects", "put them in square brackets", shown(value))
    for item in value:
        if not isinstance(item, dict):
            raise input_error(where, f"{key} must be a list of objects", "correct or remove the item", shown(item))
    return value


def only_keys(record: Record, known: Sequence[str], where: Where, remedy: str) -> None:
    """Stop at a key that nobody reads."""
    for key in record:
        if key not in known:
            raise input_error(where, f"keys must be among {', '.join(known)}", remedy, shown(key))


def _names(record: Record) -> str:
    return shown(", ".join(record)) if record else "no field"


def flat_name(name: str) -> str:
    """A title or id that can stand as a file name in `file#page`: slashes and `#` percent-encoded.

    Example:
      >>> flat_name("AC/DC")
      'AC%2FDC'
    """
    return name.replace("/", "%2F").replace("\\", "%5C").replace("#", "%23")
