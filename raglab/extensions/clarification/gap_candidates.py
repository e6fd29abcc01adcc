"""Gap candidates (shore): statements a question may mean, by topic share and when they hold.

The topic share is how much of the topic of the question they name.

A candidate is of the kind that is asked for. What names more of the topic, nearer to the value, is
likelier; a time or a version that the question names leaves those of others out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
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
    names = {
        word
        for chunk in documents
        for tag in ("product", "vendor")
        for word in split_words(plain(chunk.tags.get(tag, "")))
    }
    times = _time_words(text, documents)
    titles = {
        word
        for chunk in documents
        for word in split_words(
            plain(f"{chunk.document} {chunk.tags.get('title', '')}".replace("-", " "))
        )
    }
    called = re.findall(rf"(\w+) (?:{'|'.join(entries('holders'))})(?!\w)", text)
    times |= titles & {*called}  # `the Acme contract`
    topic = tuple(word for word in topic_words(text) if word not in times)
    return tuple(word for word in topic if word not in names) or topic


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
    weight = _weights(topic, documents)
    if any(not is_kind_word(word) for word in topic) and not weight:
        return []
    matches = [
        statement
        for statement in statements(documents)
        if (statement.kind in kinds if kinds else statement.kind != "text")
    ]
    if units:
        matches = [
            statement for statement in matches if any(unit in statement.value for unit in units)
        ]
    called = whole_words(synonyms) if synonyms else None
    if called is not None and all(map(is_kind_word, topic)):
        named = [
            statement
            for statement in matches
            if called.search(plain(f"{statement.label} {statement.head} {statement.heading}"))
        ]
        matches = named or matches
    rank = {chunk.chunk_id: 1.0 - place / (len(hits) + 1.0) for place, chunk in enumerate(hits)}
    parts: dict[tuple[int, str, str], list[Statement]] = {}
    for statement in matches:
        parts.setdefault((statement.place, statement.text, statement.kind), []).append(statement)
    results = []
    for statement in matches:
        beside = parts[statement.place, statement.text, statement.kind]
        share, words = _share(statement, weight, documents[statement.place], beside)
        share *= OTHER_SIDE if _opposed(text, statement, OPPOSED[2:]) else 1.0
        if share > 0.0 or not weight:
            score = (
                share + RANK * rank.get(documents[statement.place].chunk_id, 0.0) if weight else 1.0
            )
            results.append(ScoredStatement(statement, score, words))
    return sorted(results, key=lambda candidate: -candidate.score)


def _weights(topic: Sequence[str], documents: Sequence[Chunk]) -> dict[str, float]:
    """Stems of the topic that the documents have, the rarer the heavier."""
    texts = [frozenset(stems(chunk.full_text)) for chunk in documents]
    weight = {}
    for word in topic:
        own = stem(word)
        number = sum(any(meets(own, name) for name in text) for text in texts)
        if number:
            weight[own] = (LIGHT if is_kind_word(word) else 1.0) * (
                1.0 + math.log(len(texts) / number)
            )
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
    of_siblings = frozenset(
        word
        for each in siblings
        if each.value != statement.value
        for word in (*stems(each.head), *stems(each.label))
    )
    table = "" if statement.head else statement.table
    places = (
        (LABEL, stems(statement.label)),
        (HEAD, stems(statement.head)),
        (
            FAR if several else TEXT,
            [word for word in stems(statement.text) if not several or word not in of_siblings],
        ),
        (HEADING, stems(" ".join((statement.lead, table, statement.heading, *chunk.section)))),
    )
    total, words = 0.0, set()
    # Where all that is asked for is a kind of value, no place that names it says more than another.
    is_kind = all(is_kind_word(own) for own in weight)
    for own, heavy in weight.items():
        met = next(
            (worth for worth, names in places if any(meets(own, name) for name in names)), 0.0
        )
        total += heavy * (float(met > 0.0) if is_kind else met)
        words |= {own} if met else set()
    whole = sum(weight.values())
    return (total / whole if whole else 0.0), frozenset(words)


def as_good(ranked: Sequence[ScoredStatement]) -> list[ScoredStatement]:
    """The best candidates and those as likely, one for each value under a name.

    Rows and lines before sentences.
    """
    if not ranked:
        return []
    bar = AS_GOOD * (ranked[0].score - RANK) if ranked[0].score > RANK else 0.0
    near = [
        candidate
        for candidate in ranked
        if candidate.score >= bar and candidate.words >= ranked[0].words
    ]
    printed = [candidate for candidate in near if candidate.statement.form != "sentence"]
    near = printed if printed and ranked[0].words else near
    # A heading that names the topic alone is of all that stands under it: a row that repeats it
    # means no more than others.
    heading, words = ranked[0].statement.heading, ranked[0].words
    own = frozenset(stems(heading))
    if words and len(shared_stems(words, own)) == len(words) == len(own):
        beside = [
            each
            for each in ranked
            if (each.statement.heading, each.statement.form) == (heading, "row")
        ]
        near = [*near, *(each for each in beside if each not in near)]
    distinct: dict[tuple[str, str], ScoredStatement] = {}
    for candidate in near:
        distinct.setdefault(
            (value_key(candidate.statement.name), value_key(candidate.statement.value)), candidate
        )
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
    timed = in_column(parsed, [candidate.statement for candidate in good], documents)
    good = [candidate for candidate in good if candidate.statement in timed]
    is_single = len({value_key(candidate.statement.value) for candidate in good}) == 1
    is_single = is_single or all(unmet(text, candidate.statement, documents) for candidate in good)
    is_dated = parsed.known("date_scope") is not None
    if not good or not is_single or (not is_dated and other_versions(good[0], ranked, documents)):
        return None
    good = [
        candidate
        for candidate in good
        if not unaccounted(parsed, topic, candidate, documents, pack)
    ]
    if not good:
        return None
    known, best = needed_words(topic), good[0]
    # A value's own clause must name some of the topic. Labels of several values in a sentence run
    # into each other: a single word does not tell which is meant.
    is_own = not known or bool(shared_stems(known, stems(best.statement.label)))
    is_own = is_own and (len(known) > 1 or len(_siblings(best.statement, documents)) == 1)
    return best if is_own or best.statement.form != "sentence" else None


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
    above = " ".join(
        (
            statement.lead,
            statement.heading,
            statement.table,
            *chunk.section,
            *map(str, chunk.tags.values()),
        )
    )
    synonyms = field_synonyms(parsed, pack)
    is_called = bool(synonyms) and whole_words(synonyms).search(f"{own} {plain(above)}") is not None
    head = [stem(word) for word in split_words(_OF.split(own)[0]) if is_sum(word)][-1:]
    is_other = bool(head) and not any(meets(stem(word), head[0]) for word in topic if is_sum(word))
    question, text = plain(parsed.question), plain(statement.text)
    strays = {"not"} if is_denied(question) > is_denied(text) else set()
    # The largest limit is not the limit of the large one.
    sizes = [
        match[0] for key in ("larger", "smaller") for match in expression(key).finditer(question)
    ]
    strays |= {size for size in sizes if topic_words(size) and size not in text}
    around, named = frozenset((*candidate.words, *stems(above))), frozenset(stems(own))
    # What a measure is of, a 10 m boat, is told by the column `9 m to 12 m` of a row that is named.
    is_row = frozenset(stems(question)) >= frozenset(stems(statement.label))
    if is_row and _spans(statement.head) and not unmet(question, statement, documents):
        around |= {
            stem(word)
            for value in values_in(question)
            for word in split_words(question[value.end :])[:1]
        }
    for word in () if is_called else topic:
        is_named = bool(shared_stems([stem(word)], around))
        if is_sum(word):
            is_any = (
                not head
                and statement.kind in SUMS
                and (is_named or expression("paid").fullmatch(word))
            )
            is_named = not is_other and (bool(is_any) or bool(shared_stems([stem(word)], named)))
        elif not is_named and is_kind_word(word):
            is_named = statement.kind in wanted_kinds(word)
        strays |= set() if is_named else {word}
    return frozenset(strays)


def _time_words(text: str, documents: Sequence[Chunk]) -> frozenset[str]:
    """Words of a question by which versions are told apart.

    Of a date, of now, of before where there are several.
    """
    times = [text[date.start : date.end] for date in dates_in(text)]
    keys = ("newer", "older") if len(set(map(version_stamp, documents))) > 1 else ("newer",)
    times += [match[0] for key in keys for match in expression(key).finditer(text)]
    return frozenset(split_words(" ".join(times)))


def is_denied(text: str) -> bool:
    """Whether a text in plain letters sets something aside: `whom should I not call?`."""
    return expression("forbidding").search(text) is not None


def named_column(text: str, listed: Sequence[Statement]) -> list[Statement]:
    """Of several columns, statements of the only one whose head, or own words, a question has."""
    words = frozenset(split_words(text))
    heads = {statement: frozenset(split_words(plain(statement.head))) for statement in listed}
    distinct = frozenset(heads.values()) - {frozenset()}
    whole = [head for head in distinct if head <= words]
    named = max(whole, key=len, default=frozenset())
    # `the peak and the off-peak price`
    if len(distinct) < 2 or any(not head <= named for head in whole):
        return []
    if frozenset.intersection(*distinct) >= named:
        question_stems = stems(text)
        own = {head: shared_stems(stems(" ".join(head)), question_stems) for head in distinct}
        apart = [
            head
            for head in distinct
            if own[head] - frozenset().union(*(own[rival] for rival in distinct - {head}))
        ]
        if len(apart) != 1:
            return []
        (named,) = apart
    return [statement for statement in listed if heads[statement] == named]


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


def _siblings(statement: Statement, documents: Sequence[Chunk]) -> frozenset[str]:
    """Values of a kind in the text of one of them."""
    beside = statements([documents[statement.place]])
    return frozenset(
        value_key(each.value)
        for each in beside
        if (each.text, each.kind) == (statement.text, statement.kind)
    )


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
    if name not in pack.fields or is_denied(text):
        return bool(name) and not is_denied(text)
    topic = " ".join(own_topic(text, documents))
    own = whole_words((*pack.fields[name].asked, *pack.own_words(name)))
    kinds, reading = wanted_kinds(text), pack.fields[name].reading
    fits = (
        reading is None
        or reading.kind is None
        or not kinds
        or reading.kind in kinds
        or pack.fields[name].names
    )
    return fits and all(
        is_kind_word(word) or not stems(word) for word in split_words(own.sub(" ", topic))
    )


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
    if scope in {"newest", "oldest"}:
        form = expression("newer" if scope == "newest" else "older")
        marked = [
            statement
            for statement in listed
            if form.search(plain(f"{statement.head} {statement.label}"))
        ]
        years = {
            statement: max(numbers)
            for statement in listed
            if (numbers := YEARS.findall(f"{statement.head} {statement.label}"))
        }
        if years and not marked and len(years) == len(listed):
            end = (max if scope == "newest" else min)(years.values())
            marked = [statement for statement in listed if years[statement] == end]
        stamps = {each: document_year(documents[each.place]) for each in listed}
        if (
            not marked
            and len({documents[each.place].tags.get("product", "") for each in listed}) == 1
        ):
            end = (max if scope == "newest" else min)(stamps.values(), default="")
            marked = (
                [each for each in listed if stamps[each] == end]
                if len(set(stamps.values())) > 1
                else []
            )
        passed = expression("held" if scope == "newest" else "holds")
        remaining = [
            statement for statement in listed if not passed.search(plain(_clause(statement)))
        ]
        return marked or remaining or listed
    return listed


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
    words |= (
        {way[0]} if way and statement.kind in {"date", "name", *MEASURES} - {"number"} else set()
    )
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
    limits = {match[0]: match[0].split()[-1] for match in expression("unit").finditer(text)}
    words = {
        limit
        for limit, unit in limits.items()
        if not whole_words([f"{unit}s?", adjectives.get(unit, unit)]).search(own)
    }
    words |= {
        match[0] for match in expression("bound").finditer(text) if match[0][:BOUND] not in own
    }
    # compared as measures
    if {unit for unit, _, _ in _spans(text)} & {unit for unit, _, _ in _spans(own)}:
        return words
    # whose other passages may name what a figure is of
    document = documents[statement.place].document
    texts = " ".join(chunk.full_text for chunk in documents if chunk.document == document)
    return words | {
        figure for figure in _SMALL.findall(text) if figure not in re.findall(r"\d+", texts)
    }


def _full_name(statement: Statement) -> str:
    name = f"{statement.heading} {statement.label} {statement.head}"
    return f"{name} {statement.text}" if statement.form == "sentence" else name


def _opposed(text: str, statement: Statement, pairs: Sequence[tuple[str, str]]) -> set[str]:
    """Words of a question in plain letters to which a statement's name has the other of a pair."""
    words, name = set(), plain(_full_name(statement))
    for pair in pairs:
        sides = {key: matches for key in pair if (matches := _matches(key, text))}
        stated = {key for key in pair if expression(key).search(name)} if sides else set()
        words |= {
            word for key in sides if stated and not sides.keys() & stated for word in sides[key]
        }
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
        ends = {key: {match.end() for match in expression(key).finditer(before)} for key in _BOUNDS}
        bound = {key for key in _BOUNDS if len(before) in ends[key]}
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
    holds = _holds_in(
        f"{_clause(statement)} {statement.value if statement.kind == 'date' else ''}", year
    )
    if holds is not None or year in f"{statement.heading} {statement.text}":
        return holds is False
    chunk = documents[statement.place]
    own = document_year(chunk)
    texts = [*map(str, chunk.tags.values())]
    if "" < own < year:  # what a document says of the years to come is no later version's
        texts += [passage.full_text for passage in documents if passage.document == chunk.document]
    if not own:  # what no passage says of a year
        texts += [passage.full_text for passage in documents if passage.document == chunk.document]
    return not any(year in text for text in texts)


def _holds_in(clause: str, year: str) -> bool | None:
    """Whether what a clause says of its time includes a year; None where it names none."""
    years, text = YEARS.findall(clause), plain(clause)
    if not years or year in years:
        return bool(years) or None
    until = expression("held").search(text) is not None and year < max(years)
    return until or (expression("holds").search(text) is not None and min(years) < year)


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
    same = [
        passage
        for passage in chunks
        if all(
            passage.tags.get(name, "") == chunk.tags.get(name) != ""
            for name in ("product", "doc_type")
        )
    ]
    newest = max(
        [chunk, *(passage for passage in same if passage.tags.get("date", "") <= today)],
        key=version_stamp,
    )
    is_later = version_stamp(newest) > version_stamp(chunk)
    return ("replaced", newest.tags.get("title") or newest.file_name) if is_later else ("", "")


def document_year(chunk: Chunk) -> str:
    """Year of a document by its tags, its title or its file, '' where they name none."""
    tagged = (chunk.tags.get("version") or chunk.tags.get("date") or "")[:4]
    names = YEARS.findall(" ".join((*chunk.section[:1], chunk.document)))
    return tagged or (names[0] if names else "")
