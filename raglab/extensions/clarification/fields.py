"""Field extraction (shore): a target field's value over the scoped pages, and the figures of a page (S5.10).

Only what the pages print is read: sentences, headings of sections and table rows. Tags and the document's title, which
stand before each chunk's text as its heading path, fill nothing. Where no rule matches the value is None, which is the
signal `failure` of the learned defaults; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from raglab.characters import unaccented
from raglab.extensions.clarification.field_rules import (
    SUM,
    ChunkReading,
    aside_value,
    column_in_question,
    is_old_and_new,
    openings,
    role_value,
    total_value,
)
from raglab.extensions.clarification.labelled_values import (
    begins_with_label,
    labelled_value,
    stems,
    telling_stems,
    timing,
)
from raglab.extensions.clarification.learned_values import (
    RuleValue,
    ValueCandidate,
    candidates,
    features,
    lead_of,
    learned_value,
)
from raglab.extensions.clarification.typed_values import fold, is_whole, name_in_sentence, typed_values
from raglab.languages import LANGUAGES
from raglab.packs import (
    GENERIC,
    FieldPattern,
    FieldReading,
    FigureKind,
    Figures,
    Pack,
    ValueKind,
    compile_expression,
)
from raglab.text import STOP_WORDS, Piece, pieces, split_words
from raglab.values import Chunk

_SHARE = re.compile(r"^\d+(?:[.,]\d+)?\s?%")
_STEM = 5


class _Figure(NamedTuple):
    """A figure with the words of its row, those of its table, and whether it is general, or one of an old and a new."""

    value: str
    sentence: str
    place: int
    label: frozenset[str]
    context: frozenset[str]
    general: bool
    timed: bool = False


def read_figure(
    kind: FigureKind, pages: Sequence[ChunkReading], about: str, terms: Figures
) -> Iterator[tuple[str, str, int]]:
    """The figure that `about` names, from a table's row, else from a sentence.

    A figure is named if its label and its table's heads have at least half of those words of `about` that occur in any
    of them. The most shared words win, and of two labels the one that says no more than the other; different figures
    that are left are open, and none is taken. Without `about` the general figure is taken, or the only one.
    """
    stages = [_row_figures(kind, pages, about, terms), _sentences(kind, pages, terms)]
    if kind == "inner":  # what an inner ceiling is called differs from paper to paper
        stages.append(_row_figures("each", pages, about, terms))
    for found in stages:
        left = _matching_figures(found, _figure_stems(about, terms))
        if left:
            if len({one.value for one in left}) == 1:
                yield left[0].value, left[0].sentence, left[0].place
            return


def _matching_figures(found: Sequence[_Figure], wanted: frozenset[str]) -> list[_Figure]:
    """Figures that the wanted words leave; none where they name none."""
    if not wanted:
        return [one for one in found if one.general][:1] or list(found)
    known = wanted & frozenset().union(*(one.label | one.context for one in found))
    ranks = [(len(known & one.label), len(known & one.context), one.timed) for one in found]
    best = [one for one, rank in zip(found, ranks, strict=True) if rank == max(ranks)]
    plain = [one for one in best if not any(other.label < one.label for other in best)]
    return [one for one in plain if known & one.label and 2 * len(known & (one.label | one.context)) >= len(known)]


def _row_figures(kind: FigureKind, pages: Sequence[ChunkReading], about: str, terms: Figures) -> list[_Figure]:
    """Figures of table rows, in order."""
    found = []
    for page in pages:
        said = " ".join(piece.text for piece in page.stated if piece.kind == "prose")
        for piece in page.stated:
            if piece.kind != "row":
                continue
            amounts = [(n, _cell_amount(cell)) for n, cell in enumerate(piece.cells) if n and _is_figure(cell)]
            fit = [(n, value) for n, value in amounts if _fits(kind, piece, n, page.section, said, terms)]
            label = " ".join(cell for cell in piece.cells if not _is_figure(cell))
            value, timed = _column_amount(fit, piece.heads, about, label, said, terms)
            if value:
                context = _figure_stems(f"{page.section} {' '.join(piece.heads)}", terms)
                general = _states(terms.general, label)
                found.append(
                    _Figure(value, piece.text, page.place, _figure_stems(label, terms), context, general, timed)
                )
    return found


def _states(expression: str, text: str) -> bool:
    return compile_expression(expression).search(text) is not None


def _fits(kind: FigureKind, piece: Piece, n: int, section: str, said: str, terms: Figures) -> bool:
    """Whether the n-th cell of a row is a figure of the kind."""
    cell = piece.cells[n]
    head = piece.heads[n] if piece.heads else ""
    row = " ".join(part for part in piece.cells if not _is_figure(part))
    # What is deducted says so beside the figure; where nothing beside it tells, the section's heading does.
    deducted = any(_states(terms.deducted, text) for text in (head, row, cell))
    if not (deducted or _states(terms.ceiling, head) or _states(terms.ceiling, row)):
        deducted = _states(terms.deducted, section) and not _states(terms.ceiling, section)
    if kind == "deducted":
        return deducted
    context = f"{section} {head} {row}"
    is_ceiling = _states(terms.ceiling, context) or _states(terms.ceiling, said) or is_old_and_new(piece.heads[1:])
    if deducted or _states(terms.price, section) or not is_ceiling:
        return False
    if kind == "inner":
        return _states(terms.inner, context) or (_states(terms.inner, said) and not _states(terms.inner, head))
    # A column for the total makes the others those for each event; without one the row tells.
    totals = [_states(terms.total, each) for each in piece.heads]
    if kind == "total":
        return _states(terms.total, cell) or (totals[n] if any(totals) else _states(terms.total, row))
    if _states(terms.total, cell) or _states(terms.total, head) or (_states(terms.total, row) and not any(totals)):
        return False
    single = [_states(terms.each, one) for one in piece.heads]
    return single[n] if any(single) else True


def _column_amount(
    amounts: Sequence[tuple[int, str]], heads: Sequence[str], about: str, label: str, said: str, terms: Figures
) -> tuple[str, bool]:
    """The amount of the column that `about` names, "" where it is open, and whether there is an old and a new one."""
    if not amounts:
        return "", False
    over = [heads[n] if heads else "" for n, _ in amounts]
    if is_old_and_new(over):
        return amounts[column_in_question(over, about, label=label, said=said)][1], True
    if len({value for _, value in amounts}) == 1:
        return amounts[0][1], False
    wanted = _figure_stems(about, terms)
    shared = [len(wanted & _figure_stems(head, terms)) for head in over]
    return (amounts[shared.index(max(shared))][1] if shared.count(max(shared)) == 1 else ""), False


def _sentences(kind: FigureKind, pages: Sequence[ChunkReading], terms: Figures) -> list[_Figure]:
    """Figures of sentences, in order."""
    said = terms.sentences.get(kind)
    if said is None:
        return []
    return [
        _Figure(
            match["value"],
            piece.text,
            page.place,
            _figure_stems(f"{page.section} {piece.text}", terms),
            frozenset(),
            _states(terms.general, piece.text),
        )
        for page in pages
        for piece in page.stated
        if piece.kind == "prose"
        for match in [compile_expression(said).search(piece.text)]
        if match
    ]


def _is_figure(cell: str) -> bool:
    """Whether a cell holds a sum of money or begins with a share."""
    return bool(SUM.search(cell) or _SHARE.search(cell))


def _cell_amount(cell: str) -> str:
    """The sum that a cell states; the whole cell where it is a share or a time with a sum."""
    match = SUM.search(cell)
    if match is None or (match.start() and cell[0].isdigit()):
        return cell
    return match[0]


def _figure_stems(text: str, terms: Figures) -> frozenset[str]:
    """First letters of the words that say what a figure is of; capital letters alone (`Class C`) count as words."""
    plain = unaccented(text)
    letters = set(re.findall(r"(?<![\w'’])[A-Z](?![\w'’])", plain))
    kept = {word[:_STEM] for word in split_words(plain) if len(word) > 1 and word not in STOP_WORDS | terms.own_words}
    return frozenset(kept | letters)


_PATH_JOINT = " > "
_ARTICLE = re.compile(r"^(?:The|Le|La|Les)\s+")
_NO_NAME = frozenset(
    """A An And Any As At By Each For If In It No Not Of On Our The This To We You Your Ce Cette Il Elle Nous Un
    Une""".split()  # noqa: SIM905
)


class Extraction(NamedTuple):
    """What was read of a field.

    value: as printed, None where no rule matched. sentence: the sentence or table row that states it, as `sentences`
    gives it, "" with None. chunk: position in what was given, -1 with None. page: of that chunk. confidence: share of
    the field's values that were right on labelled documents, in [0, 1]; 0 with None. reason: why a server read nothing,
    None where rules read, or where it read.
    """

    value: str | None
    sentence: str
    chunk: int
    page: int | None
    confidence: float
    reason: str | None = None


NOTHING = Extraction(None, "", -1, None, 0.0)


def extract(field: str, chunks: Sequence[Chunk], *, about: str = "", pack: Pack = GENERIC) -> Extraction:
    """Value of a field, with the sentence that states it; a value of None where no rule matches.

    The strongest pattern wins, then the first chunk, then the first sentence. Several figures are told apart by
    `about`; where it names none, only a general one or the single one is taken. Where `about` turns to another matter
    (the tax on a price, the night line) only what stands beside that word is taken.

    Args:
      field: one of `pack.readings`. chunks: of the scoped pages, best first. about: words of the question that narrow
        the field. pack: whose rules read it.

    Raises:
      ValueError: a field without a rule.

    Source: rule S5.10.

    Example:
      >>> extract("phone", [Chunk("a#1", "To reserve, call 0800 123 456.", "a.md", 1)]).value
      '0800 123 456'
    """
    rule = pack.readings.get(field)
    if rule is None:
        msg = (
            f"a field must have a rule in the pack {pack.name}, got {field!r}; name one of {', '.join(pack.readings)}."
        )
        raise ValueError(msg)
    pages = [read_chunk(n, chunk) for n, chunk in enumerate(chunks)]
    found = rule_value(field, pack, pages, about)
    by_rule = NOTHING if found is None else _extraction(found, chunks, rule.confidence)
    fitted = pack.field_model
    model = None if fitted is None else fitted.kinds.get(rule.kind or "text")
    if fitted is None or model is None or field not in model.classes or timing(about):  # it knows figures in force
        return by_rule
    read, seen = seen_values(rule.kind or "text", tuple(pages), pack)
    if found != read.get(field):  # the question's words told one value from another
        return by_rule
    choice = learned_value(model, field, seen, telling_stems(rule, about, own_words(field, pack)))
    if choice is None:
        return by_rule
    one = choice.candidate
    words = fitted.words.get(rule.kind or "text")
    if choice.lead < fitted.margin or (
        words is not None and lead_of(words, field, seen, one.value.key) < fitted.words_margin
    ):
        return NOTHING
    if found is not None and _is_same(rule.kind, one.value.text, found.text):
        return _extraction(found, chunks, fitted.confidence)
    return _extraction(RuleValue(one.value.text, one.sentence, one.chunk), chunks, fitted.confidence)


def _extraction(value: RuleValue, chunks: Sequence[Chunk], confidence: float) -> Extraction:
    return Extraction(value.text, value.sentence, value.chunk, chunks[value.chunk].page, confidence)


def rule_value(field: str, pack: Pack, pages: Sequence[ChunkReading], about: str = "") -> RuleValue | None:
    """What the rules of a field read of pages; None where none does. Arguments as in `extract`."""
    found = next(_preferred_values(field, pack, pages, about), None)
    if found is None:
        return None
    value, sentence, place = found
    if pack.readings[field].kind == "organisation" or pack.fields[field].names:
        value = _with_article(value, sentence, pages)
    return RuleValue(value, sentence, place)


@lru_cache(maxsize=256)
def seen_values(
    kind: ValueKind, pages: tuple[ChunkReading, ...], pack: Pack
) -> tuple[Mapping[str, RuleValue], Sequence[tuple[ValueCandidate, Mapping[str, float]]]]:
    """What the rules of the fields of a kind read of pages, by field; and every value of the kind with its features."""
    fields = [field for field, reading in pack.readings.items() if reading.kind == kind]
    read = {field: value for field in fields if (value := rule_value(field, pack, pages)) is not None}
    return read, [(one, features(one, kind, pack, read)) for one in candidates(kind, pages, read)]


def own_words(field: str, pack: Pack) -> frozenset[str]:
    """Stems of the words that name a field and tell no value of it from another."""
    return stems(pack.own_words(field))


def _with_article(name: str, sentence: str, pages: Sequence[ChunkReading]) -> str:
    """A name at the start of its sentence, with the article that it has there if that is its own.

    It is if the name has it inside sentences too, or ends in the form of a firm, which takes none in English.
    """
    article = _ARTICLE.match(sentence)
    if article is None or not sentence.startswith(name, article.end()):
        return name
    inside = re.compile(rf"[^\W\d_],? {re.escape(article[0] + name)}")
    own = article[0].startswith("The") and fold(name).rstrip(".").rpartition(" ")[2] in LANGUAGES.values.firms
    return article[0] + name if own or any(inside.search(page.text) for page in pages) else name


def _preferred_values(
    field: str, pack: Pack, pages: Sequence[ChunkReading], about: str
) -> Iterator[tuple[str, str, int]]:
    """Values in the order in which they are preferred."""
    rule, names = pack.readings[field], pack.fields[field].names
    if rule.aside is not None:
        turned = aside_value(rule.aside, pages, about)
        if turned is not None:
            yield from turned
            return
    if rule.figure is not None:
        yield from read_figure(rule.figure, pages, about, pack.figures)
    if rule.role is not None:
        yield from role_value(rule.role, pages)
    if rule.total is not None:
        yield from total_value(rule.total, pages, about)
    worded = list(_worded_values(rule, pages, about, names=names))
    if rule.kind is not None and rule.kind != "date" and worded:  # of many dates the strongest pattern tells
        left = _without_rivals(rule, worded, telling_stems(rule, about, own_words(field, pack)))
        place = None if left or not rule.labels else labelled_value(rule, pages, about, own_words(field, pack))
        if place is not None:
            left = [one for one in worded if _is_same(rule.kind, one[0], place.value.text)]
        yield from left
        return
    yield from worded
    if rule.labels:
        place = labelled_value(rule, pages, about, own_words(field, pack))
        if place is not None and not (rule.no_value is not None and _states(rule.no_value, place.value.text)):
            yield place.value.text, place.sentence, place.chunk


def _without_rivals(
    rule: FieldReading, found: Sequence[tuple[str, str, int]], wanted: frozenset[str]
) -> Sequence[tuple[str, str, int]]:
    """Values that patterns read, none where they differ and the question's words tell none of them.

    A sentence that the reading rules out, or that says what held before, is no rival.
    """
    first = found[0][0]
    found = [found[0], *(one for one in found[1:] if not _of_another_matter(rule, one[1]))]
    if all(_is_same(rule.kind, value, first) for value, _, _ in found):
        return found
    said = [wanted & stems((sentence,)) for _, sentence, _ in found]
    most = max(map(len, said))
    told = [one for one, words in zip(found, said, strict=True) if most and len(words) == most]
    return told if told and all(_is_same(rule.kind, value, told[0][0]) for value, _, _ in told) else ()


def _of_another_matter(rule: FieldReading, sentence: str) -> bool:
    """Whether a sentence states what the reading rules out, or what held before."""
    return (rule.without is not None and _states(rule.without, sentence)) or timing(sentence) == "former"


def _is_same(kind: ValueKind | None, one: str, other: str) -> bool:
    """Whether two values are one, spelt in two ways or once in full."""
    small, large = sorted((fold(one).rstrip("."), fold(other).rstrip(".")), key=len)
    if kind in {"person", "organisation"} and set(small.split()) <= set(re.split(r"[ ,]+", large)):
        return True
    return re.search(rf"(?<![^\W_]){re.escape(small)}(?![^\W_])", large) is not None or _key(kind, one) == _key(
        kind, other
    )


def _key(kind: ValueKind | None, value: str) -> str:
    """The same for two spellings of a value."""
    typed = [one for one in typed_values(kind, value) if one.whole] if kind is not None else []
    return typed[0].key if len(typed) == 1 else fold(value)


def _worded_values(
    rule: FieldReading, pages: Sequence[ChunkReading], about: str, *, names: bool
) -> Iterator[tuple[str, str, int]]:
    """Values by the patterns of sentences, then of headings, the strongest first."""
    for pattern in rule.prose:
        if not _silent(pattern, about):
            texts = ((page, piece.text) for page in pages for piece in page.stated)
            yield from _pattern_values(rule, pattern, texts, names=names)
    for pattern in rule.headings:
        yield from _pattern_values(rule, pattern, ((page, page.printed) for page in pages), names=names)


def _pattern_values(
    rule: FieldReading, pattern: FieldPattern, texts: Iterator[tuple[ChunkReading, str]], *, names: bool
) -> Iterator[tuple[str, str, int]]:
    expression = compile_expression(pattern.match, case=True)
    for page, text in texts:
        headed = pattern.under is None or _states(pattern.under, page.section)
        opening = None if headed else openings(page.text).get(text)
        if not headed and (opening is None or not _states(pattern.under or "", opening.label)):
            continue
        if pattern.without is not None and _states(pattern.without, text):
            continue
        for match in expression.finditer(text):
            value = _on_its_line(_clean(rule, match, names=names), page.text)
            value = name_in_sentence(value) if rule.kind == "organisation" else value
            if value and opening is not None and _said_before(rule.kind, opening.said, value, page.language):
                continue
            if value and is_whole(rule.kind, text, *_printed_span(match, value), page.language):
                yield value, text, page.place


def _said_before(kind: ValueKind | None, before: str, value: str, language: str) -> bool:
    """Whether what stands before a sentence, under the same words, states another value of the kind."""
    if kind is None or kind == "text":
        return False
    keys = {one.key for one in typed_values(kind, value, language)}
    return any(one.key not in keys for one in typed_values(kind, before, language))


def _on_its_line(value: str, text: str) -> str:
    """A value up to the end of its line, where the next line is a pair of its own: a line break in prose is a blank."""
    if " " not in value or value in text:
        return value
    spot = re.search(r"\s+".join(map(re.escape, value.split())), text)
    if spot is None:
        return value
    start = 0
    for line in spot[0].splitlines(keepends=True):
        start += len(line)
        following = text[spot.start() + start :].partition("\n")[0]
        if line.endswith("\n") and begins_with_label(following):
            return spot[0][:start].strip()
    return value


def _printed_span(match: re.Match[str], value: str) -> tuple[int, int]:
    """Where a value stands in its sentence; a year that was added stands elsewhere and is no part of the span."""
    start, end = match.span("value")
    at = match.string.find(value, start, end)
    return (start, end) if at < 0 else (at, at + len(value))


def _silent(pattern: FieldPattern, about: str) -> bool:
    """Whether the question rules a pattern out."""
    lacks = pattern.asked is not None and not _states(pattern.asked, about)
    return lacks or (pattern.unasked is not None and _states(pattern.unasked, about))


def _clean(rule: FieldReading, match: re.Match[str], *, names: bool) -> str:
    """The value without an article; "" for what is no value of the field; names: whether it is somebody's name."""
    # inside a sentence an article with a capital belongs to the name
    value = (match["value"] if match.start("value") else _ARTICLE.sub("", match["value"])).strip()
    year = match.groupdict().get("year")
    if year and not re.search(r"\d{4}$", value):
        return f"{value} {year}"
    if names:
        value = re.sub(r"(?:\s(?:of|de|des|du|&))+$", "", value)
        if _ARTICLE.sub("", value).split(" ", 1)[0] in _NO_NAME:
            return ""
    return "" if rule.no_value is not None and _states(rule.no_value, value) else value


@lru_cache(maxsize=4096)
def _text_pieces(text: str) -> tuple[Piece, ...]:
    first, _, rest = text.partition("\n")
    if _PATH_JOINT in first and first.rstrip().endswith("?") and rest.strip():  # a heading may be a question
        return (Piece(first.strip(), "heading"), *pieces(rest))
    return tuple(pieces(text))


def read_chunk(place: int, chunk: Chunk) -> ChunkReading:
    """A chunk's pieces apart from its heading path, and the section's own heading."""
    parts = _text_pieces(chunk.text)
    head = parts[0].text if parts and parts[0].kind == "heading" else ""
    printed = head.partition(_PATH_JOINT)[2]
    stated: tuple[Piece, ...] = tuple(piece for piece in parts if piece.kind != "heading")
    language = chunk.tags.get("lang", "")
    return ChunkReading(place, printed or head, printed, stated, chunk.text, bool(head), language, chunk.page == 1)
