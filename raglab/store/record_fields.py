"""Record fields (shore): field values of a record, each typed, or an `InputError`.

The error names place and remedy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from raglab.store.files import Where, input_error, shown_value

_KEYS_SHOWN = 10  # that nobody reads, in a message

Record = Mapping[str, Any]


def required_text(record: Record, key: str, where: Where, *, blank: bool = False) -> str:
    """String of a required field; blank only where `blank` allows it."""
    if key not in record:
        raise input_error(
            where, f"the field {key} is required", f"add {key}", f"only {_field_names(record)}"
        )
    value = record[key]
    if not isinstance(value, str):
        raise input_error(
            where, f"{key} must be a string", f"write {key} in quotes", shown_value(value)
        )
    if not blank and not value.strip():
        raise input_error(where, f"{key} must not be blank", f"fill {key}", shown_value(value))
    return value


def optional_text(record: Record, key: str, where: Where) -> str | None:
    """String of an optional field; None where it is absent or null."""
    return None if record.get(key) is None else required_text(record, key, where, blank=True)


def optional_texts(record: Record, key: str, where: Where) -> tuple[str, ...]:
    """Strings of an optional list; empty where it is absent or null."""
    value = record.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise input_error(
            where,
            f"{key} must be a list of strings",
            "put it in square brackets",
            shown_value(value),
        )
    for item in value:
        if not isinstance(item, str) or not item.strip():
            rule = f"{key} must be a list of strings that are not blank"
            raise input_error(where, rule, "correct or remove the item", shown_value(item))
    return tuple(value)


def required_records(record: Record, key: str, where: Where) -> list[Record]:
    """Objects of a required list."""
    if key not in record:
        raise input_error(
            where, f"the field {key} is required", f"add {key}", f"only {_field_names(record)}"
        )
    value = record[key]
    if not isinstance(value, list):
        raise input_error(
            where,
            f"{key} must be a list of objects",
            "put them in square brackets",
            shown_value(value),
        )
    for item in value:
        if not isinstance(item, dict):
            raise input_error(
                where,
                f"{key} must be a list of objects",
                "correct or remove the item",
                shown_value(item),
            )
    return value


def only_keys(record: Record, known: Sequence[str], where: Where, remedy: str) -> None:
    """Stop at keys that nobody reads, and name them all."""
    if unknown := [key for key in record if key not in known]:
        more = f" and {len(unknown) - _KEYS_SHOWN} more" if len(unknown) > _KEYS_SHOWN else ""
        value = ", ".join(map(shown_value, unknown[:_KEYS_SHOWN])) + more
        raise input_error(where, f"keys must be among {', '.join(known)}", remedy, value)


def _field_names(record: Record) -> str:
    return shown_value(", ".join(record)) if record else "no field"
