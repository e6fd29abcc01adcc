"""The one error of the doors: a file that cannot be taken as it is, and what to do about it."""

from __future__ import annotations

from typing import NamedTuple

_SHOWN_CHARACTERS = 80


class InputError(ValueError):
    """A file, line or field breaks a rule; the message names place, rule, what came and the remedy."""


class Where(NamedTuple):
    """Place in the input, as far as it is known.

    file: path as the caller gave it. line: from 1. id: of the record, or the way to it inside one
    JSON document, such as `data[3].title`.
    """

    file: str
    line: int | None = None
    id: str | None = None


def input_error(where: Where, rule: str, remedy: str, came: str | None = None) -> InputError:
    """Error with one message: file, line, id, rule, what came, remedy.

    Args:
      where: the place; parts that are None are left out.
      rule: what must hold.
      remedy: what the person can do.
      came: what was found instead, already shortened (see `shown`).

    Example:
      >>> str(input_error(Where("a.jsonl", 3), "query must be a string", "quote it", shown(7)))
      'a.jsonl, line 3: query must be a string, got 7; quote it.'
    """
    line = "" if where.line is None else f", line {where.line}"
    record = "" if where.id is None else f", id {_short(where.id)}"
    seen = "" if came is None else f", got {came}"
    return InputError(f"{where.file}{line}{record}: {rule}{seen}; {remedy}.")


def shown(value: object) -> str:
    """The value as a message shows it: its repr, at most 80 characters.

    Example:
      >>> shown("x" * 1000)[-6:]
      'xxx...'
    """
    if isinstance(value, str):
        return _short(repr(value[: _SHOWN_CHARACTERS + 1]))
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    return _short(repr(value))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
