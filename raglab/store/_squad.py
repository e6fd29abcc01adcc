"""SQuAD 2.0 JSON: paragraphs as chunks, questions as cases.

Splits keep whole articles together: articles in the order of the SHA-256 of their titles, the first 30 % are `tune`,
the next 45 % `certify`, the rest `report`, each border rounded to a whole article. From three articles on every split
has at least one; 16 articles are 5, 7 and 4. Adding an article may move others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple

from raglab.store._errors import Where, input_error, shown
from raglab.store._fields import Record, flat_name, records_of, text_of
from raglab.values import Case, Chunk


class _Paragraph(NamedTuple):
    article: str
    number: int
    record: Record
    where: Where


def is_squad(document: object) -> bool:
    """Whether a JSON document has SQuAD's outer form."""
    return isinstance(document, dict) and "data" in document


def squad_chunks(document: Record, file: str) -> Iterator[Chunk]:
    """One chunk a paragraph: source = article's title, page = number of the paragraph from 1, tag domain = title."""
    for article, number, record, where in _paragraphs(document, file):
        text = text_of(record, "context", where)
        yield Chunk(f"{article}#{number}-{number}", text, article, number, tags={"domain": article})


def squad_cases(document: Record, file: str) -> Iterator[tuple[Where, Case]]:
    """One case a question: `refuse` where it is impossible, else `ok` with its paragraph as the expected source.

    answer: the first answer's text. extra: article and paragraph, which a `refuse` case would else not name.
    """
    paragraphs = tuple(_paragraphs(document, file))
    splits = article_splits(paragraph.article for paragraph in paragraphs)
    for article, number, record, place in paragraphs:
        for n, question in enumerate(records_of(record, "qas", place)):
            where = place._replace(id=f"{place.id}.qas[{n}]")
            impossible = question.get("is_impossible", False)
            if not isinstance(impossible, bool):
                rule = "is_impossible must be true or false"
                raise input_error(where, rule, "write it without quotes", shown(impossible))
            yield (
                where,
                Case(
                    id=text_of(question, "id", where),
                    query=text_of(question, "question", where, blank=True),
                    expect_status="refuse" if impossible else "ok",
                    expect_sources=() if impossible else (f"{article}#{number}",),
                    answer=None if impossible else _answer(question, where),
                    split=splits[article],
                    extra={"article": article, "paragraph": number},
                ),
            )


def article_splits(articles: Iterable[str]) -> dict[str, str]:
    """Split of each article, by the order of the titles' SHA-256.

    Example:
      >>> sorted(article_splits(["Normans", "Force", "Warsaw"]).values())
      ['certify', 'report', 'tune']
    """
    order = sorted(set(articles), key=lambda title: sha256(title.encode()).hexdigest())
    tune, certify = (3 * len(order) + 5) // 10, (3 * len(order) + 2) // 4
    return {
        title: "tune" if place < tune else "certify" if place < certify else "report"
        for place, title in enumerate(order)
    }


def _paragraphs(document: Record, file: str) -> Iterator[_Paragraph]:
    for a, article in enumerate(records_of(document, "data", Where(file, id="data"))):
        where = Where(file, id=f"data[{a}]")
        title = flat_name(text_of(article, "title", where))
        for p, paragraph in enumerate(records_of(article, "paragraphs", where)):
            yield _Paragraph(title, p + 1, paragraph, Where(file, id=f"data[{a}].paragraphs[{p}]"))


def _answer(question: dict[str, Any] | Record, where: Where) -> str:
    answers = records_of(question, "answers", where)
    if not answers:
        rule = "a question that is not impossible must have an answer"
        raise input_error(where, rule, "add an answer or set is_impossible", "an empty list")
    return text_of(answers[0], "text", where)
