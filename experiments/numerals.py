"""Numbers and dates as written.

raglab's own readers beside Babel, text2num, num2words and dateparser.

    pip install babel dateparser num2words text2num
    python experiments/numerals.py

Texts: the sentences, cells and heads of the bundled documents, the bundled questions, and the
labelled values of fields, each once, with the language of its document or case. dateparser has a
fixed base date and fixed languages, so that no clock and no locale decides. Agreement is of whole
texts: the same values in the same order, or the same dates.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from raglab import load_corpus
from raglab.extensions.graph_table.quantities import quantities_in
from raglab.words.claim_words import claim_words
from raglab.words.numerals import dates_in, number_word_value, plain_number, tables
from raglab.words.text import pieces

DATA = Path(__file__).resolve().parents[1] / "datasets" / "broker"
FIGURE = re.compile(
    r"(?<![\w.,/-])(?<!\d )\d{1,3}(?:[  \u202f]\d{3})+(?:,\d+)?(?![\w/-])|(?<![\w.,/-])\d+(?:[.,"
    r"]\d+)+(?![\w/-])"
)
YEAR = re.compile(r"\b(?:19|20)\d\d\b")
BASE = dt.datetime(2025, 1, 1)  # noqa: DTZ001 - a base without a zone, as dateparser takes it
EXAMPLES = 4

Values = tuple[object, ...]


class Text(NamedTuple):
    """A text and its language, `en` or `fr`."""

    text: str
    lang: str


def texts() -> list[Text]:
    """Every bundled text once, in order."""
    lang_by_text: dict[str, str] = {}
    for chunk in load_corpus(DATA).chunks:
        lang = chunk.tags.get("lang", "en")
        for piece in pieces(chunk.full_text):
            for text in (piece.text, *piece.cells, *piece.heads):
                lang_by_text.setdefault(text, lang)
    for name, field in (("cases.jsonl", "query"), ("fields.jsonl", "value")):
        for line in (DATA / name).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row.get(field):
                lang_by_text.setdefault(
                    row[field], row.get("lang", "fr" if " €" in row[field] else "en")
                )
    return [Text(text, lang) for text, lang in lang_by_text.items()]


def compared(
    name: str,
    some: list[Text],
    own_reader: Callable[[Text], Values],
    reference_reader: Callable[[Text], Values],
) -> None:
    """Print how often two readers agree, examples where they do not, and what each takes."""
    spent = [0.0, 0.0]
    differ: list[tuple[str, Values, Values]] = []
    for text in some:
        results = []
        for at, reader in enumerate((own_reader, reference_reader)):
            start = perf_counter()
            results.append(reader(text))
            spent[at] += perf_counter() - start
        if results[0] != results[1]:
            differ.append((text.text, results[0], results[1]))
    micro = [1e6 * seconds / max(1, len(some)) for seconds in spent]
    print(
        f"{name}: n {len(some):,}, agree {len(some) - len(differ):,}, µs a text {micro[0]:.0f} / "
        f"{micro[1]:.0f}"
    )
    for text, mine, its in differ[:: max(1, len(differ) // EXAMPLES)][:EXAMPLES]:
        print(f"    {text[:90]!r}: ours {mine}, theirs {its}")


def figures(every: list[Text]) -> Iterator[Text]:
    """Figures with a mark of thousands or decimals, with the text's language.

    Each once a language.
    """
    yield from dict.fromkeys(
        Text(match[0], text.lang) for text in every for match in FIGURE.finditer(text.text)
    )


def babel(text: Text) -> Values:
    """What Babel reads in the text's own language, as raglab writes it."""
    from babel.numbers import NumberFormatError, parse_decimal

    try:
        return (float(parse_decimal(text.text.replace(" ", "\u202f"), locale=text.lang)),)
    except NumberFormatError:
        return (None,)


def own_figure(text: Text) -> Values:
    """What raglab reads, without being told the language."""
    digits = plain_number(text.text)
    return (None if digits is None else float(digits),)


def own_values(text: Text) -> Values:
    """Values of all numbers of a text, in digits and in words, in order."""
    return tuple(word.key for word in claim_words(text.text) if word.kind == "number")


def text2num(text: Text) -> Values:
    """The same after text2num has put digits for words.

    A lone `one` or `un` is left, as raglab leaves it.
    """
    from text_to_num import alpha2digit

    return own_values(Text(alpha2digit(text.text, text.lang, threshold=2.0), text.lang))


def own_dates(text: Text) -> Values:
    """Dates with a year, day 1 where none is written."""
    return tuple((date.year, date.month, date.day or 1) for date in dates_in(text.text))


def dateparser(text: Text) -> Values:
    """The same by dateparser's search, in English and French."""
    from dateparser.search import search_dates

    dates = search_dates(
        text.text,
        languages=["en", "fr"],
        settings={
            "RELATIVE_BASE": BASE,
            "DATE_ORDER": "DMY",
            "REQUIRE_PARTS": ["month", "year"],
            "PREFER_DAY_OF_MONTH": "first",
        },
    )
    return tuple((date.year, date.month, date.day) for _, date in dates or ())


def generated(lang: str, upto: int = 10_000) -> tuple[int, int, list[str]]:
    """Of the numbers that num2words writes.

    How many there are, how many are read back, some that are not.
    """
    from num2words import num2words

    missed = []
    for value in range(2, upto):
        written = num2words(value, lang=lang)
        words = re.findall(r"[^\W\d_]+", written.lower())
        if number_word_value(words) != (value, len(words)):
            missed.append(written)
    return upto - 2, upto - 2 - len(missed), missed[:EXAMPLES]


def main() -> None:
    """Print every comparison."""
    every = texts()
    compared("figures with marks, Babel", list(figures(every)), own_figure, babel)
    named = {*tables().numbers, *tables().scales}
    worded = [text for text in every if named & set(re.findall(r"[^\W\d_]+", text.text.lower()))]
    compared("numbers in words, text2num", worded, own_values, text2num)
    for lang in ("en", "fr", "fr_BE", "fr_CH"):
        print(f"num2words {lang} read back: {generated(lang)}")
    dated = [text for text in every if YEAR.search(text.text)]
    compared("dates with a year, dateparser", dated, own_dates, dateparser)
    print(
        f"of {len(every):,} texts {sum(bool(quantities_in(text.text)) for text in every):,} state "
        "a quantity or a date"
    )


if __name__ == "__main__":
    main()
