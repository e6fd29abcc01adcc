"""Cells (shore): values of a table as a record has them, whatever wrote the table.

pandas keeps integers beside missing ones as floats, CSV holds texts alone, a driver of a database
gives UUIDs and decimals. Each function gives the value of a field, or the cell as it is where it is
no such value, which the model of the record then refuses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np

from raglab.arguments.plain_arrays import is_missing
from raglab.decision.answer_text import ANSWERS_KEY, listed_answers
from raglab.values import TAG_KEYS
from raglab.words.canonical import instant

# Texts of a cell that stand for no value: what pandas reads so, and what Python and pandas print.
MISSING_TEXTS = frozenset(
    ("nan", "NaN", "None", "null", "NULL", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaT")
)
LARGEST_NUMBER = 1e300  # number that a name or tag may be
_WHOLE_DIGITS = re.compile(r"\s*(\d{1,10})(\.0)?\s*", re.ASCII)
# a file ending, or a page, then a comma or bar, then more
_SEVERAL_FILES = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,4}(#\d+)?\s*[,|]\s*[^\s,|;]")


def whole_number(cell: Any) -> Any:  # noqa: ANN401 - any cell
    """Integer of a cell: 2, 2.0, and in a text their digits.

    Example:
      >>> whole_number(2.0), whole_number("2.0"), whole_number(2.5), whole_number("1_0")
      (2, 2, 2.5, '1_0')
    """
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    digits_match = _WHOLE_DIGITS.fullmatch(cell) if isinstance(cell, str) else None
    return cell if digits_match is None else int(digits_match[1])


def name_text(cell: Any) -> Any:  # noqa: ANN401 - any cell
    """Name of a cell: a text, a UUID's, or the digits of an integer."""
    value = cell if isinstance(cell, str) else whole_number(cell)
    is_whole = type(value) is int and abs(value) < LARGEST_NUMBER
    return str(value) if isinstance(value, UUID) or is_whole else cell


def listed(cell: Any) -> Any:  # noqa: ANN401 - any cell
    """List of a cell of several values: of one text a JSON list, or parts between semicolons.

    Example:
      >>> listed("a.md; b.md#2"), listed('["a.md"]'), listed(("a.md",))
      (['a.md', 'b.md#2'], ['a.md'], ['a.md'])
    """
    if isinstance(cell, str) and not cell.lstrip().startswith("["):
        return [part.strip() for part in cell.split(";") if part.strip()]
    list_items = json_cell(cell)
    if not isinstance(list_items, list | tuple | np.ndarray):
        return cell
    return [
        list_item.strip() if isinstance(list_item, str) else list_item for list_item in list_items
    ]


def listed_sources(cell: Any) -> Any:  # noqa: ANN401 - any cell
    """`listed`, and a text as it is that looks like several files with commas or bars between.

    Example:
      >>> listed_sources("a.md, b.md"), listed_sources("smith, 2020.pdf; b.md")
      ('a.md, b.md', ['smith, 2020.pdf', 'b.md'])
    """
    is_text = isinstance(cell, str) and not cell.lstrip().startswith("[")
    return cell if is_text and _SEVERAL_FILES.search(cell) else listed(cell)


def json_cell(cell: Any) -> Any:  # noqa: ANN401 - any cell
    """Value of a JSON text."""
    try:
        return json.loads(cell) if isinstance(cell, str) else cell
    except (ValueError, RecursionError):
        return cell


def json_value(cell: Any) -> Any:  # noqa: ANN401 - any JSON value
    """A cell as JSON holds it, arrays and numbers of NumPy among them.

    Raises:
      ValueError: it has no such value.
    """
    try:
        text = json.dumps(
            cell,
            ensure_ascii=False,
            allow_nan=False,
            default=lambda numpy_value: numpy_value.tolist(),
        )
        text.encode()
        return json.loads(text)
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        message = "must be a JSON value"
        raise ValueError(message) from error


def tag_text(cell: Any) -> Any:  # noqa: ANN401 - any cell
    """Text of a number: 2020.0, which pandas makes of 2020 beside a missing one, is 2020."""
    is_number = isinstance(cell, int | float) and not isinstance(cell, bool)
    if not is_number or not abs(cell) < LARGEST_NUMBER:
        return cell
    return str(whole_number(cell) if abs(cell) < 2**53 else cell)


def further_tag(cell: Any) -> str:  # noqa: ANN401 - any cell
    """Tag of a further column of chunks.

    Raises:
      ValueError: it is no text or number.
    """
    text = tag_text(cell)
    if not isinstance(text, str):
        message = "must be a text or a number to be a tag"
        raise ValueError(message)  # noqa: TRY004 - a fault of a cell, as of `json_value`
    return text


def utc_text(cell: Any) -> str:  # noqa: ANN401 - any cell
    """ISO text of a time in UTC, to the second; a time without a zone is in UTC.

    Raises:
      ValueError: it is no time.
    """
    try:
        cell_time = datetime.fromisoformat(cell) if isinstance(cell, str) else cell
        return instant(cell_time).astimezone(UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError) as error:
        message = "must be a time, or ISO text such as 2026-03-02T09:00:00+00:00"
        raise ValueError(message) from error


def group_texts(cell: Any) -> Any:  # noqa: ANN401 - any cell
    """Groups by name as texts; one whose value is missing is left out."""
    if not isinstance(cell, Mapping):
        return cell
    return {
        group_name: tag_text(group) for group_name, group in cell.items() if not is_missing(group)
    }


def gold_texts(cell: Any) -> Any:  # noqa: ANN401 - any cell
    """Gold answers as a list."""
    gold_answers = listed_answers(cell)
    return cell if gold_answers is None else list(gold_answers)


# How a cell of each field is read; cells of others stay as they are.
CELL_READERS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("expect_sources", "expect_sources_any", "selected_sources"), listed_sources),
    **dict.fromkeys(("entities", "section"), listed),
    **dict.fromkeys(("min_sources", "expect_option", "page", "depth", "rank"), whole_number),
    **dict.fromkeys(("id", "case_id", "hit_id", "arm"), name_text),
    **dict.fromkeys(("page_label", *TAG_KEYS), tag_text),
    "source": name_text,
    "tags": json_cell,
    "groups": group_texts,
    ANSWERS_KEY: gold_texts,
}
