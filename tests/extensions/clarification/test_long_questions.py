"""Readers of questions and fields take time that grows with a text, not with its square.

See `test_long_texts`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from raglab.extensions.clarification import (
    contents,
    field_values,
    gaps,
    question_parsing,
    replies,
    statements,
    value_kinds,
)
from raglab.live.clarifier import GapReading, ReplyRequest
from reading_time import EXCESS, READER_LIMIT, alarm, slow
from reading_time import passage_of as chunk
from trades import INSURANCE as PACK

READINGS = [name for name, field in PACK.fields.items() if field.reading is not None]
ASKED = ReplyRequest(
    "What is the deposit?", "field_type", "deposit", (GapReading("Pet"), GapReading("Key")), "Pet"
)


def read_field(name, passage):
    """Read a field."""
    return field_values.read_value(name, [chunk(passage)], pack=PACK)


def contents_in_lines(passage):
    """Read a table of contents of many lines."""
    lines = "\n".join(passage[at : at + 300] for at in range(0, len(passage), 300))
    return contents.contents([chunk(f"Contents\n{lines}")])


def gaps_of(text):
    """Find gaps of a question in a document of the same text."""
    return gaps.find_gaps(question_parsing.parse_question(text), [chunk(text), chunk(EXCESS)])


READERS: dict[str, Callable[[str], object]] = {
    "parsed question": question_parsing.parse_question,
    "statements": lambda text: statements.statements([chunk(text)]),
    "values": value_kinds.values_in,
    "gaps": gaps_of,
    "replies": lambda text: replies.read_reply(
        text[:200], ASKED._replace(documents=(chunk(text),))
    ),
    "contents": lambda text: contents.contents_pages("claims", [chunk(text)], pack=PACK),
    "page kind": lambda text: contents.page_kind([chunk(text)], pack=PACK),
    **{f"field {name}": partial(read_field, name) for name in READINGS},
    "lines of contents": contents_in_lines,
}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_takes_any_long_text_in_no_time(reader):
    """Of every kind."""
    with alarm():
        assert slow(READERS[reader], READER_LIMIT) == {}
