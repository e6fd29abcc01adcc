"""Record fields (shore): field values of a record, each typed, or an `InputError`.

The error names place and remedy.

They are read by hand: 14 to 22 µs a chunk, where a model of pydantic takes 26 to 32 µs and its
errors name no remedy; with models for each kind of record and a table of remedies it would be
longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from raglab.store.files import InputError, Where, input_error, shown_value

MAX_NAME = 1000  # characters of an id, a source, a label, an entity, or the name of a tag or key
MAX_INTEGER = 2**31 - 1  # pages and options become 32-bit numbers
_KEYS_SHOWN = 10  # that nobody reads, in a message

_ERRORS_SHOWN = 3  # that a message names after the first

Record = Mapping[str, Any]
Item = TypeVar("Item")
Result = TypeVar("Result")


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


def optional_integer(record: Record, key: str, where: Where, least: int) -> int | None:
    """Integer of an optional field, from `least` to `MAX_INTEGER`.

    None where it is absent or null.
    """
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        rule = f"{key} must be an integer of at least {least}"
        raise input_error(
            where, rule, f"write {key} as a number without quotes or point", shown_value(value)
        )
    if value > MAX_INTEGER:
        raise input_error(
            where, f"{key} must be at most {MAX_INTEGER}", f"correct {key}", "a larger one"
        )
    return value


def optional_tags(record: Record, where: Where) -> dict[str, str]:
    """Strings by name of the optional field `tags`; the optional field `title` is a tag too."""
    value = record.get("tags")
    title = optional_text(record, "title", where)
    stated = {} if title is None else {"title": title}
    if value is None:
        return stated
    if not isinstance(value, dict):
        raise input_error(
            where,
            "tags must be an object of strings",
            'write {"domain": "home", …}',
            shown_value(value),
        )
    tags = {key: required_text(value, key, where, blank=True) for key in value}
    if title is not None and tags.get("title", title) != title:
        titles = f"{shown_value(title)} and {shown_value(tags['title'])}"
        raise input_error(
            where, "a title must be stated once, as field or as tag", "take one away", titles
        )
    return tags | stated


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


def check_size(
    where: Where, what: str, size: int, most: int = MAX_NAME, unit: str = "characters"
) -> None:
    """Stop at what is longer, or has more parts, than a chunk or a case may have."""
    if size > most:
        raise input_error(where, f"{what} must have at most {most} {unit}", "shorten it", str(size))


def note_place(first: dict[str, Where], name: str, where: Where, rule: str) -> None:
    """Note where an id comes first; stop where it came before."""
    if name in first:
        line = first[name].line
        value = f"{shown_value(name)} again" + (f" (first on line {line})" if line else "")
        raise input_error(where, rule, "rename or remove one", value)
    first[name] = where


def read_each(items: Iterable[Item], read: Callable[[Item], Result], what: str) -> list[Result]:
    """What each item is read as.

    Args:
      read: gives the result of an item, or an InputError.
      what: the items are, in messages.

    Raises:
      InputError: items break a rule: the first is named whole, the next few by place and value, all
        are counted.
    """
    results: list[Result] = []
    errors: list[InputError] = []
    n_items = n_errors = 0
    for item in items:
        n_items += 1
        try:
            results.append(read(item))
        except InputError as error:
            n_errors += 1
            if len(errors) <= _ERRORS_SHOWN:  # no more are held than a message names
                errors.append(error)
    if n_errors == 1:
        raise errors[0]
    if errors:
        following = "; ".join(str(error).rpartition("; ")[0] for error in errors[1:])
        msg = (
            f"{str(errors[0])[:-1]}; {n_errors:,} of {n_items:,} {what} break a rule, next "
            f"{following}."
        )
        raise InputError(msg) from errors[0]
    return results


def _field_names(record: Record) -> str:
    return shown_value(", ".join(record)) if record else "no field"


def flat_name(name: str) -> str:
    """A title or id that can stand as a file name in `file#page`: slashes and `#` percent-encoded.

    Example:
      >>> flat_name("AC/DC")
      'AC%2FDC'
    """
    return name.replace("/", "%2F").replace("\\", "%5C").replace("#", "%23")
