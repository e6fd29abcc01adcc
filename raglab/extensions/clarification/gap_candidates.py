"""Gap candidates (shore): statements a question may mean, by topic share and when they hold.

The topic share is how much of the topic of the question they name.

A candidate is of the kind that is asked for. What names more of the topic, nearer to the value, is
likelier; a time or a version that the question names leaves those of others out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from raglab.extensions.clarification.language_words import (
    entries,
    expression,
    meets,
    plain,
    shared_stems,
    stem,
    stems,
    whole_words,
)
from raglab.extensions.clarification.question_parsing import (
    is_kind_word,
    topic_words,
    wanted_kinds,
    wanted_units,
)
from raglab.extensions.clarification.statements import Statement, statements, value_key
from raglab.extensions.clarification.value_kinds import RANGE, values_in
from raglab.live.clarifier import ParsedQuestion
from raglab.values import Chunk
from raglab.words.numerals import dates_in
from raglab.words.packs import GENERIC, Pack
from raglab.words.tokeniser import split_words

# what a word counts for, by where it stands
LABEL, HEAD, TEXT, HEADING, FAR, RANK = 1.0, 0.9, 0.7, 0.6, 0.5, 0.1
AS_GOOD = 0.97  # of the best score, with which another statement is as likely
BOUND = 4  # letters by which bounds are of one kind
OTHER_SIDE = 0.5  # of its score, for a statement that holds before or after what a question names
# Lists of words that are opposed: what a statement says of one side is no answer about the other.
OPPOSED = (
    ("larger", "smaller"),
    ("starting", "ending"),
    ("during", "once_over"),
    ("ahead", "once_over"),
    ("weekday", "weekend"),
)
MEASURES = frozenset({"amount", "percentage", "duration", "quantity", "number"})
LIGHT = 0.25  # weight of a word that says what kind of value is meant
SUMS = frozenset({"amount", "percentage"})  # kinds that `deposit`, `limit` and their like are of
# what follows is not what it is
_OF = re.compile(r"\s(?:for|of|on|in|to|under|per|pour|de|du|des|d'|en|par|sur)\b")
YEARS = re.compile(r"(?:19|20)\d\d")
_FIGURE, _THOUSANDS = re.compile(r"\d+(?:[.,]\d+)?"), re.compile(r"(?<=\d)[., '](?=\d{3}(?!\d))")
_SMALL = re.compile(r"(?<![\w.,])\d{1,3}(?![\w.,:%])")  # a figure that is no year
# lists of words before a measure that is the end of a range
_BOUNDS = ("above", "at_least", "below", "at_most")
TIME = re.compile(
    r"(?:19|20)\d\d|(?<!\w)(?:from|until|till|since|before|after|depuis|jusqu|avant|apres|a "
    r"partir|a compter)"
)


class ScoredStatement(NamedTuple):
    """A statement that a question may mean.

    How much of the topic it names, in [0, 1], and which of its words.
    """

    statement: Statement
    score: float
    words: frozenset[str]


def own_topic(text: str, documents: Sequence[Chunk]) -> tuple[str, ...]:
    """Words of a topic except those that only name the documents, product or vendor, or a time.

    Args:
      text: of the question in plain letters.
    """
    tags = [chunk.tags for chunk in documents]
    names = _words(of.get(name, "") for of in tags for name in ("product", "vendor"))
    titles = _words(f"{chunk.document} {chunk.tags.get('title', '')}" for chunk in documents)
    called = re.findall(rf"(\w+) (?:{'|'.join(entries('holders'))})(?!\w)", text)
    # words by which versions are told apart: of a date, of now, of before where there are several
    keys = ("newer", "older") if len(set(map(version_stamp, documents))) > 1 else ("newer",)
    times = _words(
        (
            *(text[date.start : date.end] for date in dates_in(text)),
            *(match[0] for key in keys for match in expression(key).finditer(text)),
        )
    )
    times |= titles & {*called}  # `the Acme contract`
    topic = tuple(word for word in topic_words(text) if word not in times)
    return tuple(word for word in topic if word not in names) or topic


def _words(texts: Iterable[str]) -> frozenset[str]:
    """Words of some texts in plain letters."""
    return frozenset(split_words(plain(" ".join(texts))))


def candidates(
    text: str,
    topic: Sequence[str],
    documents: Sequence[Chunk],
    hits: Sequence[Chunk] = (),
    synonyms: Sequence[str] = (),
) -> list[ScoredStatement]:
    """Statements of the kind a question asks for, best first, all naming some of its topic.

    Args:
      text: the question in plain letters.
      topic: its words.
      hits: passages nearest to the question, the nearest first.
      synonyms: expressions by which documents name what the question asks for.
    """
    kinds, units = wanted_kinds(text), wanted_units(text)
    weight, is_kind = _weights(topic, documents), all(map(is_kind_word, topic))
    if not is_kind and not weight:
        return []
    matches = [
        each
        for each in statements(documents)
        if (each.kind in kinds if kinds else each.kind != "text")
        and (not units or any(unit in each.value for unit in units))
    ]
    if is_kind:
        called = whole_words(synonyms)
        matches = [
            each
            for each in matches
            if called.search(plain(f"{each.label} {each.head} {each.heading}"))
        ] or matches
    rank = {chunk.chunk_id: 1.0 - place / (len(hits) + 1.0) for place, chunk in enumerate(hits)}
    parts: dict[tuple[int, str, str], list[Statement]] = {}
    for each in matches:
        parts.setdefault((each.place, each.text, each.kind), []).append(each)
    results = []
    for each in matches:
        chunk = documents[each.place]
        share, words = _share(each, weight, chunk, parts[each.place, each.text, each.kind])
        share *= OTHER_SIDE if _opposed(text, each, OPPOSED[2:]) else 1.0
        if share > 0.0 or not weight:
            score = share + RANK * rank.get(chunk.chunk_id, 0.0) if weight else 1.0
            results.append(ScoredStatement(each, score, words))
    return sorted(results, key=lambda candidate: -candidate.score)


def _weights(topic: Sequence[str], documents: Sequence[Chunk]) -> dict[str, float]:
    """Stems of the topic that the documents have, the rarer the heavier."""
    texts = [stems(chunk.full_text) for chunk in documents]
    weight = {}
    for word in topic:
        own = stem(word)
        number = sum(any(meets(own, name) for name in text) for text in texts)
        if number:
            light = LIGHT if is_kind_word(word) else 1.0
            weight[own] = light * (1.0 + math.log(len(texts) / number))
    return weight


def needed_words(topic: Sequence[str]) -> frozenset[str]:
    """Stems of a topic that an answer must name.

    Those that do not only say what kind of value is meant.
    """
    return frozenset(stem(word) for word in topic if not is_kind_word(word)) or frozenset(
        stem(word) for word in topic
    )


def _share(
    statement: Statement,
    weight: Mapping[str, float],
    chunk: Chunk,
    siblings: Sequence[Statement],
) -> tuple[float, frozenset[str]]:
    """Share of the topic that a statement names, by where its words stand; and those of its words.

    Args:
      siblings: of its sentence and kind. What a clause says of one value it does not say of the
        next.
    """
    several = statement.form == "sentence" and len(siblings) > 1
    beside = " ".join(
        f"{each.head} {each.label}" for each in siblings if each.value != statement.value
    )
    table = "" if statement.head else statement.table
    own = frozenset(stems(statement.text)).difference(stems(beside) if several else ())
    places = (
        (LABEL, stems(statement.label)),
        (HEAD, stems(statement.head)),
        (FAR if several else TEXT, own),
        (HEADING, stems(" ".join((statement.lead, table, statement.heading, *chunk.section)))),
    )
    worth = {
        word: next((worth for worth, names in places if shared_stems([word], names)), 0.0)
        for word in weight
    }
    if all(map(is_kind_word, weight)):
        # Where all that is asked for is a kind of value, no place that names it says more.
        worth = {word: float(met > 0.0) for word, met in worth.items()}
    total = sum(heavy * worth[word] for word, heavy in weight.items())
    words = frozenset(word for word, met in worth.items() if met)
    return total / (sum(weight.values()) or 1.0), words


def as_good(ranked: Sequence[ScoredStatement]) -> list[ScoredStatement]:
    """The best candidates and those as likely, one for each value under a name.

    Rows and lines before sentences.
    """
    if not ranked:
        return []
    best, words = ranked[0], ranked[0].words
    bar = AS_GOOD * max(best.score - RANK, 0.0)
    near = [each for each in ranked if each.score >= bar and each.words >= words]
    printed = [each for each in near if each.statement.form != "sentence"]
    near = printed if printed and words else near
    # A heading that names the topic alone is of all that stands under it: a row that repeats it
    # means no more than others.
    own = frozenset(stems(best.statement.heading))
    if words and len(shared_stems(words, own)) == len(words) == len(own):
        under = (best.statement.heading, "row")
        near += [each for each in ranked if (each.statement.heading, each.statement.form) == under]
    distinct: dict[tuple[str, str], ScoredStatement] = {}
    for each in near:
        key = value_key(each.statement.name), value_key(each.statement.value)
        distinct.setdefault(key, each)
    # proposed first is what the question names by its label
    return sorted(
        distinct.values(),
        key=lambda each: not shared_stems(each.words, stems(each.statement.label)),
    )


def clear_statement(
    parsed: ParsedQuestion, documents: Sequence[Chunk], hits: Sequence[Chunk], pack: Pack = GENERIC
) -> ScoredStatement | None:
    """The only statement that a question means, where it names most of its topic; else None.

    It may be one that does not meet the question, see `unmet`: then nothing else is an answer
    either.
    """
    text = plain(parsed.question)
    topic = own_topic(text, documents)
    if parsed.known("intent") not in {"lookup", None} or not wanted_kinds(text):
        return None
    ranked = candidates(text, topic, documents, hits, field_synonyms(parsed, pack))
    good = as_good(ranked)
    timed = in_column(parsed, [each.statement for each in good], documents)
    good = [each for each in good if each.statement in timed]
    is_single = len({value_key(each.statement.value) for each in good}) == 1
    is_single = is_single or all(unmet(text, each.statement, documents) for each in good)
    is_dated = parsed.known("date_scope") is not None
    if not good or not is_single or (not is_dated and other_versions(good[0], ranked, documents)):
        return None
    good = [each for each in good if not unaccounted(parsed, topic, each, documents, pack)]
    if not good or good[0].statement.form != "sentence":
        return good[0] if good else None
    # A value's own clause must name some of the topic. Labels of several values in a sentence run
    # into each other: a single word does not tell which is meant.
    known, statement = needed_words(topic), good[0].statement
    is_own = not known or shared_stems(known, stems(statement.label))
    return good[0] if is_own and (len(known) > 1 or len(own_values(statement)) == 1) else None


def own_values(statement: Statement) -> frozenset[str]:
    """Values of its kind in the text of a statement."""
    values = values_in(statement.text)
    return frozenset(value_key(each.text) for each in values if each.kind == statement.kind)


def unaccounted(
    parsed: ParsedQuestion,
    topic: Sequence[str],
    candidate: ScoredStatement,
    documents: Sequence[Chunk],
    pack: Pack,
) -> frozenset[str]:
    """Words of a question that neither a statement nor what it stands under says.

    It may be of another matter.

    What is asked for, a deposit or a limit, must be what the statement is of. A word for what is
    paid is met by any sum that is called nothing else, a word for another kind of value by a value
    of that kind.
    """
    statement, is_sum = candidate.statement, expression("amount").fullmatch
    chunk, own = documents[statement.place], plain(f"{statement.label} {statement.head}")
    tags = map(str, chunk.tags.values())
    above = " ".join((statement.lead, statement.heading, statement.table, *chunk.section, *tags))
    question, text = plain(parsed.question), plain(statement.text)
    strays = {"not"} if is_denied(question) > is_denied(text) else set()
    # The largest limit is not the limit of the large one.
    sizes = {match[0] for key in OPPOSED[0] for match in expression(key).finditer(question)}
    strays |= {size for size in sizes if topic_words(size) and size not in text}
    if whole_words(field_synonyms(parsed, pack)).search(f"{own} {plain(above)}"):
        return frozenset(strays)
    head = [stem(word) for word in split_words(_OF.split(own)[0]) if is_sum(word)][-1:]
    is_other = bool(head) and not any(meets(stem(word), head[0]) for word in topic if is_sum(word))
    around, named = frozenset((*candidate.words, *stems(above))), stems(own)
    # What a measure is of, a 10 m boat, is told by the column `9 m to 12 m` of a row that is named.
    is_row = frozenset(stems(question)) >= frozenset(stems(statement.label))
    if is_row and _spans(statement.head) and not unmet(question, statement, documents):
        behind = [split_words(question[value.end :])[:1] for value in values_in(question)]
        around |= {stem(word) for words in behind for word in words}
    for word in topic:
        is_met = bool(shared_stems([stem(word)], around))
        if is_sum(word):
            is_any = not head and statement.kind in SUMS
            is_any = is_any and (is_met or expression("paid").fullmatch(word) is not None)
            is_met = not is_other and (is_any or bool(shared_stems([stem(word)], named)))
        elif is_kind_word(word):
            is_met = is_met or statement.kind in wanted_kinds(word)
        strays |= set() if is_met else {word}
    return frozenset(strays)


def is_denied(text: str) -> bool:
    """Whether a text in plain letters sets something aside: `whom should I not call?`."""
    return expression("forbidding").search(text) is not None


def named_column(text: str, listed: Sequence[Statement]) -> list[Statement]:
    """Of several columns, statements of the only one whose head has own words of a question."""
    question = _terms(text)
    heads = {plain(each.head) for each in listed} - {""}
    own = {head: shared_stems(_terms(head), question) for head in heads}
    apart = [
        head
        for head, words in own.items()
        if words.difference(*(own[rival] for rival in own if rival != head))
    ]
    if len(own) < 2 or len(apart) != 1:
        return []
    return [each for each in listed if plain(each.head) == apart[0]]


def _terms(text: str) -> frozenset[str]:
    """Stems of a text, and its letters that stand alone: `zone B`."""
    return frozenset((*stems(text), *(word for word in split_words(plain(text)) if len(word) == 1)))


def in_column(
    parsed: ParsedQuestion, listed: Sequence[Statement], documents: Sequence[Chunk]
) -> list[Statement]:
    """Of the values of one row those that a question may mean.

    Of its kind, its time and the column that it names.
    """
    text = plain(parsed.question)
    kinds = wanted_kinds(text)
    fitting = [statement for statement in listed if statement.kind in kinds] or [*listed]
    fitting = in_time(fitting, parsed.known("date_scope"), documents)
    fitting = meeting(text, fitting, documents) or fitting
    return named_column(text, fitting) or fitting


def other_versions(
    best: ScoredStatement, scored: Sequence[ScoredStatement], documents: Sequence[Chunk]
) -> list[Statement]:
    """What other versions of a document state under as much of the topic.

    Dated documents of one product.
    """
    own, named = (
        documents[best.statement.place],
        shared_stems(best.words, stems(best.statement.label)),
    )
    return [
        each.statement
        for each in scored
        if named
        and (chunk := documents[each.statement.place]).document != own.document
        and chunk.tags.get("product", "") == own.tags.get("product", "") != ""
        and version_stamp(chunk) != version_stamp(own)
        and each.statement.kind == best.statement.kind
        and each.statement.form in {"row", "line"}
        and named <= shared_stems(best.words, stems(each.statement.label))
        and value_key(each.statement.value) != value_key(best.statement.value)
    ]


def version_stamp(chunk: Chunk) -> tuple[str, str]:
    """Version and date of a document by its tags, else its year."""
    stamp = chunk.tags.get("version", ""), chunk.tags.get("date", "")
    return stamp if any(stamp) else (document_year(chunk), "")


def is_field_alone(
    parsed: ParsedQuestion, documents: Sequence[Chunk], pack: Pack = GENERIC
) -> bool:
    """Whether a question asks for a field of the pack and nothing that tells its values apart."""
    name, text = parsed.known("target_field") or "", plain(parsed.question)
    field = pack.fields.get(name)
    if field is None or is_denied(text):
        return bool(name) and not is_denied(text)
    own = whole_words((*field.asked, *pack.own_words(name)))
    kinds, kind = wanted_kinds(text), field.reading and field.reading.kind
    fits = not kinds or kind is None or kind in kinds or bool(field.names)
    words = split_words(own.sub(" ", " ".join(own_topic(text, documents))))
    return fits and all(is_kind_word(word) or not stems(word) for word in words)


def field_synonyms(parsed: ParsedQuestion, pack: Pack) -> tuple[str, ...]:
    """Expressions by which documents name the field of a question, as the pack gives them."""
    field = pack.fields.get(parsed.known("target_field") or "")
    return () if field is None or field.reading is None else field.reading.labels


# --- times


def in_time(
    listed: list[Statement], scope: str | None, documents: Sequence[Chunk]
) -> list[Statement]:
    """Statements of the time that a question names, all where it names none.

    A document's new column is of its year.
    """
    if scope is not None and scope[:4].isdigit():
        dated = [each for each in listed if scope[:4] in f"{each.name} {each.heading} {each.text}"]
        if dated or any(document_year(documents[each.place]) != scope[:4] for each in listed):
            return dated or listed
        scope = "newest"
    if scope not in {"newest", "oldest"}:
        return listed
    key, passed = ("newer", "held") if scope == "newest" else ("older", "holds")
    names = [f"{each.head} {each.label}" for each in listed]
    marked = [
        each
        for each, name in zip(listed, names, strict=True)
        if expression(key).search(plain(name))
    ]
    if marked:
        return marked
    years = [max(YEARS.findall(name), default="") for name in names]
    if not all(years):
        own = [documents[each.place] for each in listed]
        is_one = len({chunk.tags.get("product", "") for chunk in own}) == 1
        years = [document_year(chunk) for chunk in own if is_one]
    if len(set(years)) > 1:
        end = (max if scope == "newest" else min)(years)
        return [each for each, year in zip(listed, years, strict=True) if year == end]
    form = expression(passed)
    return [each for each in listed if not form.search(plain(_clause(each)))] or listed


def unmet(text: str, statement: Statement, documents: Sequence[Chunk]) -> frozenset[str]:
    """Words of a question that a statement is set against.

    The other side of it, another number, year or kind.

    Args:
      text: of the question in plain letters.
    """
    name, words = _full_name(statement), _opposed(text, statement, OPPOSED)
    own = [*_spans(name), *_spans(statement.value)]
    for unit, low, high in _spans(text):
        known = [span for span in own if span[0] == unit]
        if known and not any(least <= low and high <= most for _, least, most in known):
            words.add(f"{high if low == -math.inf else low:g} {unit}".strip())
    way, count = expression("manner").match(text), expression("count").search(text)
    if way and statement.kind in {"date", "name", *MEASURES} - {"number"}:
        words.add(way[0])
    if count and statement.kind == "duration" and expression("duration").search(text) is None:
        words.add(count[0])  # of guests, not of nights
    times = " ".join(value.text for value in values_in(text) if value.kind in {"date", "number"})
    words |= {year for year in YEARS.findall(times) if _is_untimely(statement, year, documents)}
    return frozenset(words | _unstated(text, statement, documents))


def _unstated(text: str, statement: Statement, documents: Sequence[Chunk]) -> set[str]:
    """Limits of a question in plain letters that a statement does not state.

    A unit, a bound, a figure.
    """
    own = plain(f"{_full_name(statement)} {statement.text} {statement.table}")
    adjectives = dict(entry.split("=") for entry in entries("unit_words"))
    words = {
        match[0] for match in expression("bound").finditer(text) if match[0][:BOUND] not in own
    }
    for match in expression("unit").finditer(text):
        unit = match[0].split()[-1]
        is_stated = whole_words([f"{unit}s?", adjectives.get(unit, unit)]).search(own)
        words |= set() if is_stated else {match[0]}
    # compared as measures
    if {unit for unit, _, _ in _spans(text)} & {unit for unit, _, _ in _spans(own)}:
        return words
    # whose other passages may name what a figure is of
    texts = _document_text(documents[statement.place], documents)
    return words.union(_SMALL.findall(text)).difference(re.findall(r"\d+", texts))


def _document_text(chunk: Chunk, documents: Sequence[Chunk]) -> str:
    """Text of all passages of a passage's document."""
    return " ".join(each.full_text for each in documents if each.document == chunk.document)


def _full_name(statement: Statement) -> str:
    name = f"{statement.heading} {statement.label} {statement.head}"
    return f"{name} {statement.text}" if statement.form == "sentence" else name


def _opposed(text: str, statement: Statement, pairs: Sequence[tuple[str, str]]) -> set[str]:
    """Words of a question in plain letters to which a statement's name has the other of a pair."""
    words: set[str] = set()
    for pair in pairs:
        sides = {key: matches for key in pair if (matches := _matches(key, text))}
        name = plain(_full_name(statement)) if sides else ""
        stated = {key for key in pair if expression(key).search(name)}
        if stated and not sides.keys() & stated:
            words = words.union(*sides.values())
    return words


@lru_cache(maxsize=1 << 6)
def _matches(key: str, text: str) -> frozenset[str]:
    return frozenset(match[0] for match in expression(key).finditer(text))


def meeting(text: str, listed: Sequence[Statement], documents: Sequence[Chunk]) -> list[Statement]:
    """Statements that are not set against a question in plain letters.

    Where every one is, those of no other year.
    """
    words = {statement: unmet(text, statement, documents) for statement in listed}
    met = [statement for statement in listed if not words[statement]]
    return met or [
        statement for statement in listed if not any(map(YEARS.fullmatch, words[statement]))
    ]


@lru_cache(maxsize=1 << 12)
def _spans(text: str) -> tuple[tuple[str, float, float], ...]:
    """Measures of a text: the unit, '' of an age or a bare number, with the least and the most."""
    spans: list[tuple[str, float, float]] = []
    end = 0
    for value in values_in(text):
        figures = [
            float(figure.replace(",", "."))
            for figure in _FIGURE.findall(_THOUSANDS.sub("", value.text))
        ]
        if value.kind not in MEASURES or not figures or YEARS.fullmatch(value.text):
            continue
        unit = stem(re.sub(r"[\d.,\s-]+", "", expression("aged").sub("", plain(value.text))))
        low, high, before = min(figures), max(figures), plain(text[: value.start])
        bound = {
            key
            for key in _BOUNDS
            if any(match.end() == len(before) for match in expression(key).finditer(before))
        }
        if spans and spans[-1][0] in {unit, ""} and RANGE.fullmatch(text[end : value.start]):
            low = spans.pop()[1]
        elif bound & {"below", "at_most"}:
            low, high = -math.inf, math.nextafter(high, -math.inf) if "below" in bound else high
        elif bound:
            low, high = math.nextafter(low, math.inf) if "above" in bound else low, math.inf
        spans.append((unit, low, high))
        end = value.end
    return tuple(spans)


def _is_untimely(statement: Statement, year: str, documents: Sequence[Chunk]) -> bool:
    """Whether a statement holds at another time than a year, or its document has other years."""
    clause = f"{_clause(statement)} {statement.value if statement.kind == 'date' else ''}"
    years, text = YEARS.findall(clause), plain(clause)
    if years:
        until = expression("held").search(text) and year < max(years)
        since = expression("holds").search(text) and min(years) < year
        return not (year in years or until or since)
    chunk = documents[statement.place]
    texts = [statement.heading, statement.text, *map(str, chunk.tags.values())]
    # what a document says of the years to come is no later version's
    if document_year(chunk) < year:
        texts.append(_document_text(chunk, documents))
    return not any(year in each for each in texts)


def _clause(statement: Statement) -> str:
    """What a text says of a value itself.

    Its label and head, the whole of it where they name no time.
    """
    own = f"{statement.head} {statement.label}"
    return own if statement.form != "sentence" or TIME.search(plain(own)) else statement.text


def outdated(chunk: Chunk, chunks: Sequence[Chunk], today: str) -> tuple[str, str]:
    """Why a document may not hold today.

    `passed` with the day of its end, `replaced` with its later version, or ''.
    """
    own = statements([passage for passage in chunks if passage.document == chunk.document])
    ends = [
        f"{date.year}-{date.month or 12:02d}-{date.day or 31:02d}"
        for each in own
        if each.kind == "date" and expression("expiring").search(plain(each.text))
        for date in dates_in(each.value)
    ]
    if ends and max(ends) < today:
        return "passed", max(ends)
    alike = [
        passage
        for passage in chunks
        if all(passage.tags.get(name) == chunk.tags.get(name) for name in ("product", "doc_type"))
        and passage.tags.get("date", "") <= today
    ]
    is_tagged = chunk.tags.get("product") and chunk.tags.get("doc_type")
    newest = max([chunk, *(alike if is_tagged else ())], key=version_stamp)
    is_later = version_stamp(newest) > version_stamp(chunk)
    return ("replaced", newest.tags.get("title") or newest.file_name) if is_later else ("", "")


def document_year(chunk: Chunk) -> str:
    """Year of a document by its tags, its title or its file, '' where they name none."""
    tagged = (chunk.tags.get("version") or chunk.tags.get("date") or "")[:4]
    names = YEARS.findall(" ".join((*chunk.section[:1], chunk.document)))
    return tagged or (names[0] if names else "")
