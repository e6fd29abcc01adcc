"""Readers of questions and fields take time that grows with a text, not with its square; see `test_long_texts`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from extensions.clarification.field_variants import PACK as VARIANTS
from raglab.extensions.clarification import (
    contents,
    fields,
    labelled_values,
    missing_fields,
    question_parsing,
    question_vocabulary,
    typed_values,
)
from raglab.packs import VALUE_KINDS
from reading_time import READER_LIMIT, alarm, slow
from test_long_texts import EXCESS, PACK, chunk

VOCABULARY = question_vocabulary.build_vocabulary([chunk(f"**Storm cover**: {EXCESS}")], pack=PACK)
READINGS = [name for name, field in PACK.fields.items() if field.reading is not None]


def every_field(passage: str) -> object:
    """Read every field that has a rule."""
    return [fields.extract(name, [chunk(passage)], about="what is it?", pack=PACK) for name in READINGS]


def every_label(passage: str) -> object:
    """Read fields by their labels, which stand before the text."""
    text = f"Helpline, notice period, deposit, team lead, supplier, start date: {passage}"
    return [fields.extract(name, [chunk(text)], about="what is it?", pack=VARIANTS) for name in VARIANTS.readings]


def contents_in_lines(passage: str) -> object:
    """Read a table of contents of many lines."""
    lines = "\n".join(passage[at : at + 300] for at in range(0, len(passage), 300))
    return contents.contents([chunk(f"Contents\n{lines}")])


READERS: dict[str, Callable[[str], object]] = {
    "parsed question": lambda text: question_parsing.parse(text, VOCABULARY),
    "vocabulary": lambda text: question_vocabulary.build_vocabulary([chunk(text)], pack=PACK),
    "figures": lambda text: question_vocabulary.figures([chunk(text)], pack=PACK),
    "parties": lambda text: question_vocabulary.parties([chunk(text)], pack=PACK),
    "scoped question": lambda text: missing_fields.scope_question(text, [chunk(EXCESS)], None, PACK),
    "document date": lambda text: missing_fields.document_date(chunk(text)),
    "contents": lambda text: contents.contents_pages("claims", [chunk(text)], pack=PACK),
    "page kind": lambda text: contents.page_kind([chunk(text)], pack=PACK),
    "fields": every_field,
    "labelled fields": every_label,
    "values by kind": lambda text: [typed_values.typed_values(kind, text) for kind in VALUE_KINDS],
    "line without marks": labelled_values.plain_line,
    "lines of contents": contents_in_lines,
}


@pytest.mark.full
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_takes_any_long_text_in_no_time(reader: str) -> None:
    """Of every kind."""
    with alarm():
        assert slow(READERS[reader], READER_LIMIT) == {}
