"""Log rows (shore): columns of a log's tables, and their values as every database holds them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from raglab.store.files import InputError
from raglab.store.log_chain import REMEDY, Row

LONGEST_NAME = 200  # characters of a name
# bytes in UTF-8 of a text that is found by its value: PostgreSQL's index holds 2,704 in all
LONGEST_LISTED = 2_000
LONGEST_TEXT = 16 * 2**20  # bytes in UTF-8 of any other text, and of JSON
LONGEST_TIME = 40
_MOST_WHOLE = 2**63


class Column(NamedTuple):
    """A column: kind is one of name (a short text), text, json, whole, number.

    unique: no value twice. missing: may be null. listed: found fast by its value, in the order of
    events.
    """

    name: str
    kind: str
    unique: bool = False
    missing: bool = False
    listed: bool = False


class EventTable(NamedTuple):
    """A table of events, which have a number `seq` and a time `at`.

    Or, with a key, of values that are written over.

    key: the column that tells such values apart. without: columns of a row, JSON unpacked, as they
    are when its texts are forgotten; the same of a row whose texts are. None where it has no texts.
    since: first version of a log's schema that has the table; an older log has no rows of it until
    it is written to.
    """

    name: str
    columns: tuple[Column, ...]
    key: str | None = None
    without: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    since: int = 1


def encode_row(row: Mapping[str, Any], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Row as every database can hold it.

    JSON as text with every digit, whole numbers and numbers as what they are.

    Args:
      kinds: by column, see `Column`; `listed` for a text that is found by its value, `time` for a
        moment as text.

    Raises:
      ValueError: a value that one of the databases could not hold, or not as it is: a text that is
        no Unicode, that has a NUL or is too long, a whole number beyond 64 bits, a number that is
        not finite.
    """
    return {name: _encode(name, value, kinds[name]) for name, value in row.items()}


def _encode(name: str, value: Any, kind: str) -> Any:  # noqa: ANN401 - a value of a column
    if kind == "json":
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if value is None:
        return None
    if kind in _TYPES:
        return _encode_number(name, value, kind)
    if not isinstance(value, str):
        msg = f"{name} must be a text, got {type(value).__name__}; pass a str."
        raise ValueError(msg)  # noqa: TRY004 - a ValueError at the door, as everywhere
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        msg = (
            f"{name} must be a text in Unicode, got {value!a:.80}; take out the half of a pair of "
            "surrogates."
        )
        raise ValueError(msg) from None
    if "\0" in value:
        msg = f"{name} must be a text without NUL, got {value!a:.80}; take it out."
        raise ValueError(msg)
    limit, unit = _LIMITS[kind]
    length = len(value) if unit == "characters" else size
    if length > limit:
        msg = f"{name} must be at most {limit} {unit}, got {length} {unit}; shorten it."
        raise ValueError(msg)
    return value


_LIMITS = {
    "name": (LONGEST_NAME, "characters"),
    "time": (LONGEST_TIME, "characters"),
    "listed": (LONGEST_LISTED, "bytes in UTF-8"),
    "text": (LONGEST_TEXT, "bytes in UTF-8"),
    "json": (LONGEST_TEXT, "bytes in UTF-8"),
}
_TYPES: dict[str, Any] = {"whole": (int,), "number": (float, int)}  # all others are texts
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


# a value of a column
def _encode_number(name: str, value: Any, kind: str) -> int | float:  # noqa: ANN401
    if kind == "whole":
        if not isinstance(value, int) or not -_MOST_WHOLE <= value < _MOST_WHOLE:
            msg = f"{name} must be a whole number of 64 bits, got {value!r:.80}; correct it."
            raise ValueError(msg)
        return int(value)  # a boolean is none for PostgreSQL
    if not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        msg = (
            f"{name} must be a finite number, got {value!r:.80}; leave it out where it is not "
            "known."
        )
        raise ValueError(msg)
    return float(value)


def can_stand(value: object, kind: str) -> bool:
    """Whether a column may hold a value that is looked for.

    What none can, each database refuses in its own words.
    """
    if kind in _TYPES:
        return isinstance(value, int | float) and -_MOST_WHOLE <= value < _MOST_WHOLE
    return isinstance(value, str) and _UNSTORABLE.search(value) is None


def _finite(text: str) -> float:
    """Number of JSON, which `encode_row` writes where it is finite alone."""
    value = float(text)
    if abs(value) <= sys.float_info.max:
        return value
    msg = f"{text:.20}, which is no finite number"
    raise ValueError(msg)


_JSON = json.JSONDecoder(parse_constant=_finite)
_JSON_OF_LARGE = json.JSONDecoder(parse_constant=_finite, parse_float=_finite)
_LARGE = re.compile(r"[0-9][eE]\+?[0-9]{3}")  # only such a number may be beyond a float


def _decode_json(text: str) -> Any:  # noqa: ANN401 - a value of JSON
    decoder = _JSON if _LARGE.search(text) is None else _JSON_OF_LARGE
    return decoder.decode(text)


def decode_row(row: Row, form: RowForm) -> dict[str, Any]:
    """Row with values of JSON columns as they were.

    Raises:
      ValueError: one is no JSON, or holds a number that is not finite.
    """
    try:
        return {**row, **{name: _decode_json(row[name]) for name in form.packed if name in row}}
    except (ValueError, TypeError, RecursionError) as error:
        msg = (
            f"JSON columns of a log must hold JSON, got {error}; its tables were altered, take a "
            "copy of before."
        )
        raise ValueError(msg) from None


def read_row(
    table: str, names: Sequence[str], values: Sequence[object], form: RowForm
) -> dict[str, Any]:
    """Row of some columns of a table, JSON unpacked.

    Raises:
      InputError: a value of another type than its column's, or a number that is not finite.
      ValueError: JSON that is none.
    """
    row = dict(zip(names, values, strict=True))
    of_kind = all(map(isinstance, values, (form.types[name] for name in names)))
    if not (of_kind and all(is_storable(row[name]) for name in form.numbers if name in row)):
        name = next(
            name
            for name in names
            if not (isinstance(row[name], form.types[name]) and is_storable(row[name]))
        )
        raise altered_value(table, name, row[name])
    return decode_row(row, form)


def is_storable(value: object) -> bool:
    """Whether a value is no number, or a finite one, as every database can hold it."""
    return not isinstance(value, float) or abs(value) <= sys.float_info.max


def altered_value(table: str, name: str, value: object) -> InputError:
    """Error of a value that no log of ours holds."""
    shown = f"{value!r:.80} as {name} of {table}"
    return InputError(
        f"rows of a log must be as they were written, got {shown}; its tables were altered, "
        f"{REMEDY}."
    )


class RowForm(NamedTuple):
    """What is known of a table's rows.

    kinds: by column, as `encode_row` takes them; types: that its stored values may have. without:
    of `EventTable`. event: whether its rows are events. packed: columns of JSON. numbers: of
    numbers.
    """

    kinds: Mapping[str, str]
    types: Mapping[str, tuple[type, ...]]
    without: Callable[[Mapping[str, Any]], dict[str, Any]] | None
    event: bool
    packed: tuple[str, ...]
    numbers: tuple[str, ...]


def row_form(table: EventTable) -> RowForm:
    """Form of a table's rows: kinds of all columns, number and time among those of events."""
    first = {} if table.key is not None else {"seq": "whole", "at": "time"}
    kinds = {
        column.name: "listed" if column.listed and column.kind == "text" else column.kind
        for column in table.columns
    }
    kinds = first | kinds
    missing = {column.name for column in table.columns if column.missing}
    types = {
        name: (*_TYPES.get(kind, (str,)), *((type(None),) if name in missing else ()))
        for name, kind in kinds.items()
    }
    packed = tuple(name for name, kind in kinds.items() if kind == "json")
    numbers = tuple(name for name, kind in kinds.items() if kind == "number")
    return RowForm(kinds, types, table.without, table.key is None, packed, numbers)


def stored_without(form: RowForm, row: Row) -> Row | None:
    """Row as stored, without its texts; None where its table has none.

    Raises:
      ValueError: JSON that is none. KeyError, TypeError, AttributeError: values of another form.
    """
    if form.without is None:
        return None
    return {**row, **encode_row(form.without(decode_row(row, form)), form.kinds)}
