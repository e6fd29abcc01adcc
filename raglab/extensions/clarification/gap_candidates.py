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
from raglab.extensions.clarification.value_kinds import RANGE_JOINT, values_in
from raglab.live.clarifier import ParsedQuestion
from raglab.values import Chunk
from raglab.words.numerals import dates_in
from raglab.words.packs import GENERIC, Pack
from raglab.words.tokeniser import split_words

# what a word counts for, by where it stands
LABEL_WEIGHT, HEAD_WEIGHT, TEXT_WEIGHT, HEADING_WEIGHT, DISTANT_WEIGHT, RANK_WEIGHT = (
    1.0,
    0.9,
    0.7,
    0.6,
    0.5,
    0.1,
)
EQUAL_SHARE = 0.97  # of the best score, with which another statement is as likely
BOUND_PREFIX = 4  # letters by which bounds are of one kind
OPPOSED_FACTOR = (
    0.5  # of its score, for a statement that holds before or after what a question names
)
# Lists of words that are opposed: what a statement says of one side is no answer about the other.
OPPOSED_LISTS = (
    ("larger", "smaller"),
    ("starting", "ending"),
    ("during", "once_over"),
    ("ahead", "once_over"),
    ("weekday", "weekend"),
)
MEASURE_KINDS = frozenset({"amount", "percentage", "duration", "quantity", "number"})
KIND_WORD_WEIGHT = 0.25  # weight of a word that says what kind of value is meant
SUM_KINDS = frozenset(
    {"amount", "percentage"}
)  # kinds that `deposit`, `limit` and their like are of
# what follows is not what it is
_SPECIFIER = re.compile(r"\s(?:for|of|on|in|to|under|per|pour|de|du|des|d'|en|par|sur)\b")
YEAR_PATTERN = re.compile(r"(?:19|20)\d\d")
_FIGURE = re.compile(r"\d+(?:[.,]\d+)?")
_THOUSANDS = re.compile(r"(?<=\d)[., '](?=\d{3}(?!\d))")
_SMALL_FIGURE = re.compile(r"(?<![\w.,])\d{1,3}(?![\w.,:%])")  # a figure that is no year
# lists of words before a measure that is the end of a range
_BOUND_LISTS = ("above", "at_least", "below", "at_most")
TIME_PATTERN = re.compile(
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
    tags_by_chunk = [chunk.tags for chunk in documents]
    document_names = _words(
        chunk_tags.get(tag_name, "")
        for chunk_tags in tags_by_chunk
        for tag_name in ("product", "vendor")
    )
    title_words = _words(f"{chunk.document} {chunk.tags.get('title', '')}" for chunk in documents)
    called_words = re.findall(rf"(\w+) (?:{'|'.join(entries('holders'))})(?!\w)", text)
    # words by which versions are told apart: of a date, of now, of before where there are several
    time_lists = ("newer", "older") if len(set(map(version_stamp, documents))) > 1 else ("newer",)
    time_words = _words(
        (
            *(text[named_date.start : named_date.end] for named_date in dates_in(text)),
            *(
                time_match[0]
                for list_name in time_lists
                for time_match in expression(list_name).finditer(text)
            ),
        )
    )
    time_words |= title_words & {*called_words}  # `the Acme contract`
    topic_without_times = tuple(
        topic_word for topic_word in topic_words(text) if topic_word not in time_words
    )
    return (
        tuple(topic_word for topic_word in topic_without_times if topic_word not in document_names)
        or topic_without_times
    )


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
    asked_kinds = wanted_kinds(text)
    asked_units = wanted_units(text)
    stem_weights = _weights(topic, documents)
    is_kind_alone = all(map(is_kind_word, topic))
    if not is_kind_alone and not stem_weights:
        return []
    fitting = [
        statement
        for statement in statements(documents)
        if (statement.kind in asked_kinds if asked_kinds else statement.kind != "text")
        and (not asked_units or any(asked_unit in statement.value for asked_unit in asked_units))
    ]
    if is_kind_alone:
        synonym_pattern = whole_words(synonyms)
        fitting = [
            statement
            for statement in fitting
            if synonym_pattern.search(
                plain(f"{statement.label} {statement.head} {statement.heading}")
            )
        ] or fitting
    hit_ranks = {
        chunk.chunk_id: 1.0 - hit_rank / (len(hits) + 1.0) for hit_rank, chunk in enumerate(hits)
    }
    siblings: dict[tuple[int, str, str], list[Statement]] = {}
    for statement in fitting:
        siblings.setdefault((statement.place, statement.text, statement.kind), []).append(statement)
    scored = []
    for statement in fitting:
        chunk = documents[statement.place]
        topic_share, named_words = _share(
            statement,
            stem_weights,
            chunk,
            siblings[statement.place, statement.text, statement.kind],
        )
        topic_share *= OPPOSED_FACTOR if _opposed(text, statement, OPPOSED_LISTS[2:]) else 1.0
        if topic_share > 0.0 or not stem_weights:
            score = (
                topic_share + RANK_WEIGHT * hit_ranks.get(chunk.chunk_id, 0.0)
                if stem_weights
                else 1.0
            )
            scored.append(ScoredStatement(statement, score, named_words))
    return sorted(scored, key=lambda candidate: -candidate.score)


def _weights(topic: Sequence[str], documents: Sequence[Chunk]) -> dict[str, float]:
    """Stems of the topic that the documents have, the rarer the heavier."""
    chunk_stems = [stems(chunk.full_text) for chunk in documents]
    weights = {}
    for topic_word in topic:
        topic_stem = stem(topic_word)
        n_chunks = sum(
            any(meets(topic_stem, chunk_stem) for chunk_stem in stems_of_chunk)
            for stems_of_chunk in chunk_stems
        )
        if n_chunks:
            kind_factor = KIND_WORD_WEIGHT if is_kind_word(topic_word) else 1.0
            weights[topic_stem] = kind_factor * (1.0 + math.log(len(chunk_stems) / n_chunks))
    return weights


def needed_words(topic: Sequence[str]) -> frozenset[str]:
    """Stems of a topic that an answer must name.

    Those that do not only say what kind of value is meant.
    """
    return frozenset(
        stem(topic_word) for topic_word in topic if not is_kind_word(topic_word)
    ) or frozenset(stem(topic_word) for topic_word in topic)


def _share(
    statement: Statement,
    stem_weights: Mapping[str, float],
    chunk: Chunk,
    siblings: Sequence[Statement],
) -> tuple[float, frozenset[str]]:
    """Share of the topic that a statement names, by where its words stand; and those of its words.

    Args:
      siblings: of its sentence and kind. What a clause says of one value it does not say of the
        next.
    """
    is_shared = statement.form == "sentence" and len(siblings) > 1
    sibling_text = " ".join(
        f"{sibling.head} {sibling.label}"
        for sibling in siblings
        if sibling.value != statement.value
    )
    table_name = "" if statement.head else statement.table
    own_stems = frozenset(stems(statement.text)).difference(
        stems(sibling_text) if is_shared else ()
    )
    weighted_places = (
        (LABEL_WEIGHT, stems(statement.label)),
        (HEAD_WEIGHT, stems(statement.head)),
        (DISTANT_WEIGHT if is_shared else TEXT_WEIGHT, own_stems),
        (
            HEADING_WEIGHT,
            stems(" ".join((statement.lead, table_name, statement.heading, *chunk.section))),
        ),
    )
    place_weights = {
        topic_stem: next(
            (
                place_weights
                for place_weights, place_stems in weighted_places
                if shared_stems([topic_stem], place_stems)
            ),
            0.0,
        )
        for topic_stem in stem_weights
    }
    if all(map(is_kind_word, stem_weights)):
        # Where all that is asked for is a kind of value, no place that names it says more.
        place_weights = {
            topic_stem: float(place_weight > 0.0)
            for topic_stem, place_weight in place_weights.items()
        }
    named_weight = sum(
        stem_weight * place_weights[topic_stem] for topic_stem, stem_weight in stem_weights.items()
    )
    named_stems = frozenset(
        topic_stem for topic_stem, place_weight in place_weights.items() if place_weight
    )
    return named_weight / (sum(stem_weights.values()) or 1.0), named_stems


def as_good(ranked: Sequence[ScoredStatement]) -> list[ScoredStatement]:
    """The best candidates and those as likely, one for each value under a name.

    Rows and lines before sentences.
    """
    if not ranked:
        return []
    best_candidate = ranked[0]
    best_words = ranked[0].words
    score_bar = EQUAL_SHARE * max(best_candidate.score - RANK_WEIGHT, 0.0)
    near_best = [
        candidate
        for candidate in ranked
        if candidate.score >= score_bar and candidate.words >= best_words
    ]
    printed_ones = [candidate for candidate in near_best if candidate.statement.form != "sentence"]
    near_best = printed_ones if printed_ones and best_words else near_best
    # A heading that names the topic alone is of all that stands under it: a row that repeats it
    # means no more than others.
    heading_stems = frozenset(stems(best_candidate.statement.heading))
    if best_words and len(shared_stems(best_words, heading_stems)) == len(best_words) == len(
        heading_stems
    ):
        heading_rows = (best_candidate.statement.heading, "row")
        near_best += [
            candidate
            for candidate in ranked
            if (candidate.statement.heading, candidate.statement.form) == heading_rows
        ]
    by_value: dict[tuple[str, str], ScoredStatement] = {}
    for candidate in near_best:
        value_name = value_key(candidate.statement.name), value_key(candidate.statement.value)
        by_value.setdefault(value_name, candidate)
    # proposed first is what the question names by its label
    return sorted(
        by_value.values(),
        key=lambda candidate: not shared_stems(candidate.words, stems(candidate.statement.label)),
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
    ranked_candidates = candidates(text, topic, documents, hits, field_synonyms(parsed, pack))
    best_candidates = as_good(ranked_candidates)
    timed_statements = in_column(
        parsed, [candidate.statement for candidate in best_candidates], documents
    )
    best_candidates = [
        candidate for candidate in best_candidates if candidate.statement in timed_statements
    ]
    is_single = len({value_key(candidate.statement.value) for candidate in best_candidates}) == 1
    is_single = is_single or all(
        unmet(text, candidate.statement, documents) for candidate in best_candidates
    )
    is_dated = parsed.known("date_scope") is not None
    if (
        not best_candidates
        or not is_single
        or (not is_dated and other_versions(best_candidates[0], ranked_candidates, documents))
    ):
        return None
    best_candidates = [
        candidate
        for candidate in best_candidates
        if not unaccounted(parsed, topic, candidate, documents, pack)
    ]
    if not best_candidates or best_candidates[0].statement.form != "sentence":
        return best_candidates[0] if best_candidates else None
    # A value's own clause must name some of the topic. Labels of several values in a sentence run
    # into each other: a single word does not tell which is meant.
    needed_stems = needed_words(topic)
    statement = best_candidates[0].statement
    is_named = not needed_stems or shared_stems(needed_stems, stems(statement.label))
    return (
        best_candidates[0]
        if is_named and (len(needed_stems) > 1 or len(own_values(statement)) == 1)
        else None
    )


def own_values(statement: Statement) -> frozenset[str]:
    """Values of its kind in the text of a statement."""
    text_values = values_in(statement.text)
    return frozenset(
        value_key(text_value.text)
        for text_value in text_values
        if text_value.kind == statement.kind
    )


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
    statement = candidate.statement
    is_sum = expression("amount").fullmatch
    chunk = documents[statement.place]
    label_text = plain(f"{statement.label} {statement.head}")
    tag_texts = map(str, chunk.tags.values())
    context_text = " ".join(
        (statement.lead, statement.heading, statement.table, *chunk.section, *tag_texts)
    )
    question = plain(parsed.question)
    text = plain(statement.text)
    stray_words = {"not"} if is_denied(question) > is_denied(text) else set()
    # The largest limit is not the limit of the large one.
    size_words = {
        size_match[0]
        for list_name in OPPOSED_LISTS[0]
        for size_match in expression(list_name).finditer(question)
    }
    stray_words |= {
        size_word for size_word in size_words if topic_words(size_word) and size_word not in text
    }
    if whole_words(field_synonyms(parsed, pack)).search(f"{label_text} {plain(context_text)}"):
        return frozenset(stray_words)
    head_stem = [
        stem(topic_word)
        for topic_word in split_words(_SPECIFIER.split(label_text)[0])
        if is_sum(topic_word)
    ][-1:]
    is_other_sum = bool(head_stem) and not any(
        meets(stem(topic_word), head_stem[0]) for topic_word in topic if is_sum(topic_word)
    )
    context_stems = frozenset((*candidate.words, *stems(context_text)))
    label_stems = stems(label_text)
    # What a measure is of, a 10 m boat, is told by the column `9 m to 12 m` of a row that is named.
    is_row = frozenset(stems(question)) >= frozenset(stems(statement.label))
    if is_row and _spans(statement.head) and not unmet(question, statement, documents):
        following_words = [
            split_words(question[measure.end :])[:1] for measure in values_in(question)
        ]
        context_stems |= {
            stem(topic_word) for following in following_words for topic_word in following
        }
    for topic_word in topic:
        is_met = bool(shared_stems([stem(topic_word)], context_stems))
        if is_sum(topic_word):
            is_any_sum = not head_stem and statement.kind in SUM_KINDS
            is_any_sum = is_any_sum and (
                is_met or expression("paid").fullmatch(topic_word) is not None
            )
            is_met = not is_other_sum and (
                is_any_sum or bool(shared_stems([stem(topic_word)], label_stems))
            )
        elif is_kind_word(topic_word):
            is_met = is_met or statement.kind in wanted_kinds(topic_word)
        stray_words |= set() if is_met else {topic_word}
    return frozenset(stray_words)


def is_denied(text: str) -> bool:
    """Whether a text in plain letters sets something aside: `whom should I not call?`."""
    return expression("forbidding").search(text) is not None


def named_column(text: str, listed: Sequence[Statement]) -> list[Statement]:
    """Of several columns, statements of the only one whose head has own words of a question."""
    question_terms = _terms(text)
    column_heads = {plain(statement.head) for statement in listed} - {""}
    terms_by_head = {head: shared_stems(_terms(head), question_terms) for head in column_heads}
    distinct_heads = [
        head
        for head, head_words in terms_by_head.items()
        if head_words.difference(
            *(terms_by_head[rival_head] for rival_head in terms_by_head if rival_head != head)
        )
    ]
    if len(terms_by_head) < 2 or len(distinct_heads) != 1:
        return []
    return [statement for statement in listed if plain(statement.head) == distinct_heads[0]]


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
    asked_kinds = wanted_kinds(text)
    fitting_statements = [statement for statement in listed if statement.kind in asked_kinds] or [
        *listed
    ]
    fitting_statements = in_time(fitting_statements, parsed.known("date_scope"), documents)
    fitting_statements = meeting(text, fitting_statements, documents) or fitting_statements
    return named_column(text, fitting_statements) or fitting_statements


def other_versions(
    best_candidate: ScoredStatement,
    ranked: Sequence[ScoredStatement],
    documents: Sequence[Chunk],
) -> list[Statement]:
    """What other versions of a document state under as much of the topic.

    Dated documents of one product.
    """
    best_chunk = documents[best_candidate.statement.place]
    named_stems = shared_stems(best_candidate.words, stems(best_candidate.statement.label))
    return [
        candidate.statement
        for candidate in ranked
        if named_stems
        and (chunk := documents[candidate.statement.place]).document != best_chunk.document
        and chunk.tags.get("product", "") == best_chunk.tags.get("product", "") != ""
        and version_stamp(chunk) != version_stamp(best_chunk)
        and candidate.statement.kind == best_candidate.statement.kind
        and candidate.statement.form in {"row", "line"}
        and named_stems <= shared_stems(best_candidate.words, stems(candidate.statement.label))
        and value_key(candidate.statement.value) != value_key(best_candidate.statement.value)
    ]


def version_stamp(chunk: Chunk) -> tuple[str, str]:
    """Version and date of a document by its tags, else its year."""
    stamp = chunk.tags.get("version", ""), chunk.tags.get("date", "")
    return stamp if any(stamp) else (document_year(chunk), "")


def is_field_alone(
    parsed: ParsedQuestion, documents: Sequence[Chunk], pack: Pack = GENERIC
) -> bool:
    """Whether a question asks for a field of the pack and nothing that tells its values apart."""
    field_name = parsed.known("target_field") or ""
    text = plain(parsed.question)
    field = pack.fields.get(field_name)
    if field is None or is_denied(text):
        return bool(field_name) and not is_denied(text)
    field_pattern = whole_words((*field.asked, *pack.own_words(field_name)))
    asked_kinds = wanted_kinds(text)
    field_kind = field.reading and field.reading.kind
    is_kind_fitting = (
        not asked_kinds or field_kind is None or field_kind in asked_kinds or bool(field.names)
    )
    remaining_words = split_words(field_pattern.sub(" ", " ".join(own_topic(text, documents))))
    return is_kind_fitting and all(
        is_kind_word(remaining_word) or not stems(remaining_word)
        for remaining_word in remaining_words
    )


def field_synonyms(parsed: ParsedQuestion, pack: Pack) -> tuple[str, ...]:
    """Expressions by which documents name the field of a question, as the pack gives them."""
    pack_field = pack.fields.get(parsed.known("target_field") or "")
    return () if pack_field is None or pack_field.reading is None else pack_field.reading.labels


# --- times


def in_time(
    listed: list[Statement], scope: str | None, documents: Sequence[Chunk]
) -> list[Statement]:
    """Statements of the time that a question names, all where it names none.

    A document's new column is of its year.
    """
    if scope is not None and scope[:4].isdigit():
        dated_statements = [
            statement
            for statement in listed
            if scope[:4] in f"{statement.name} {statement.heading} {statement.text}"
        ]
        if dated_statements or any(
            document_year(documents[statement.place]) != scope[:4] for statement in listed
        ):
            return dated_statements or listed
        scope = "newest"
    if scope not in {"newest", "oldest"}:
        return listed
    newer_list, expired_list = ("newer", "held") if scope == "newest" else ("older", "holds")
    statement_names = [f"{statement.head} {statement.label}" for statement in listed]
    marked_statements = [
        statement
        for statement, statement_name in zip(listed, statement_names, strict=True)
        if expression(newer_list).search(plain(statement_name))
    ]
    if marked_statements:
        return marked_statements
    statement_years = [
        max(YEAR_PATTERN.findall(statement_name), default="") for statement_name in statement_names
    ]
    if not all(statement_years):
        own_chunks = [documents[statement.place] for statement in listed]
        is_one = len({chunk.tags.get("product", "") for chunk in own_chunks}) == 1
        statement_years = [document_year(chunk) for chunk in own_chunks if is_one]
    if len(set(statement_years)) > 1:
        extreme_year = (max if scope == "newest" else min)(statement_years)
        return [
            statement
            for statement, year in zip(listed, statement_years, strict=True)
            if year == extreme_year
        ]
    expired_pattern = expression(expired_list)
    return [
        statement for statement in listed if not expired_pattern.search(plain(_clause(statement)))
    ] or listed


def unmet(text: str, statement: Statement, documents: Sequence[Chunk]) -> frozenset[str]:
    """Words of a question that a statement is set against.

    The other side of it, another number, year or kind.

    Args:
      text: of the question in plain letters.
    """
    statement_name = _full_name(statement)
    unmet_words = _opposed(text, statement, OPPOSED_LISTS)
    statement_spans = [*_spans(statement_name), *_spans(statement.value)]
    for unit, lower_bound, upper_bound in _spans(text):
        spans_of_unit = [
            statement_span for statement_span in statement_spans if statement_span[0] == unit
        ]
        if spans_of_unit and not any(
            span_low <= lower_bound and upper_bound <= span_high
            for _, span_low, span_high in spans_of_unit
        ):
            unmet_words.add(
                f"{upper_bound if lower_bound == -math.inf else lower_bound:g} {unit}".strip()
            )
    manner_match = expression("manner").match(text)
    count_match = expression("count").search(text)
    if manner_match and statement.kind in {"date", "name", *MEASURE_KINDS} - {"number"}:
        unmet_words.add(manner_match[0])
    if count_match and statement.kind == "duration" and expression("duration").search(text) is None:
        unmet_words.add(count_match[0])  # of guests, not of nights
    time_text = " ".join(
        value.text for value in values_in(text) if value.kind in {"date", "number"}
    )
    unmet_words |= {
        year for year in YEAR_PATTERN.findall(time_text) if _is_untimely(statement, year, documents)
    }
    return frozenset(unmet_words | _unstated(text, statement, documents))


def _unstated(text: str, statement: Statement, documents: Sequence[Chunk]) -> set[str]:
    """Limits of a question in plain letters that a statement does not state.

    A unit, a bound, a figure.
    """
    statement_text = plain(f"{_full_name(statement)} {statement.text} {statement.table}")
    unit_adjectives = dict(unit_entry.split("=") for unit_entry in entries("unit_words"))
    unstated_words = {
        limit_match[0]
        for limit_match in expression("bound").finditer(text)
        if limit_match[0][:BOUND_PREFIX] not in statement_text
    }
    for limit_match in expression("unit").finditer(text):
        unit_word = limit_match[0].split()[-1]
        is_stated = whole_words(
            [f"{unit_word}s?", unit_adjectives.get(unit_word, unit_word)]
        ).search(statement_text)
        unstated_words |= set() if is_stated else {limit_match[0]}
    # compared as measures
    if {unit_word for unit_word, _, _ in _spans(text)} & {
        unit_word for unit_word, _, _ in _spans(statement_text)
    }:
        return unstated_words
    # whose other passages may name what a figure is of
    document_text = _document_text(documents[statement.place], documents)
    return unstated_words.union(_SMALL_FIGURE.findall(text)).difference(
        re.findall(r"\d+", document_text)
    )


def _document_text(chunk: Chunk, documents: Sequence[Chunk]) -> str:
    """Text of all passages of a passage's document."""
    return " ".join(
        passage.full_text for passage in documents if passage.document == chunk.document
    )


def _full_name(statement: Statement) -> str:
    name = f"{statement.heading} {statement.label} {statement.head}"
    return f"{name} {statement.text}" if statement.form == "sentence" else name


def _opposed(text: str, statement: Statement, opposed_pairs: Sequence[tuple[str, str]]) -> set[str]:
    """Words of a question in plain letters to which a statement's name has the other of a pair."""
    opposed_words: set[str] = set()
    for opposed_pair in opposed_pairs:
        words_by_side = {
            list_name: side_words
            for list_name in opposed_pair
            if (side_words := _matches(list_name, text))
        }
        statement_name = plain(_full_name(statement)) if words_by_side else ""
        stated_sides = {
            list_name for list_name in opposed_pair if expression(list_name).search(statement_name)
        }
        if stated_sides and not words_by_side.keys() & stated_sides:
            opposed_words = opposed_words.union(*words_by_side.values())
    return opposed_words


@lru_cache(maxsize=1 << 6)
def _matches(key: str, text: str) -> frozenset[str]:
    return frozenset(match[0] for match in expression(key).finditer(text))


def meeting(text: str, listed: Sequence[Statement], documents: Sequence[Chunk]) -> list[Statement]:
    """Statements that are not set against a question in plain letters.

    Where every one is, those of no other year.
    """
    unmet_by_statement = {statement: unmet(text, statement, documents) for statement in listed}
    met_statements = [statement for statement in listed if not unmet_by_statement[statement]]
    return met_statements or [
        statement
        for statement in listed
        if not any(map(YEAR_PATTERN.fullmatch, unmet_by_statement[statement]))
    ]


@lru_cache(maxsize=1 << 12)
def _spans(text: str) -> tuple[tuple[str, float, float], ...]:
    """Measures of a text: the unit, '' of an age or a bare number, with the least and the most."""
    measure_spans: list[tuple[str, float, float]] = []
    previous_end = 0
    for text_value in values_in(text):
        figure_values = [
            float(figure_text.replace(",", "."))
            for figure_text in _FIGURE.findall(_THOUSANDS.sub("", text_value.text))
        ]
        if (
            text_value.kind not in MEASURE_KINDS
            or not figure_values
            or YEAR_PATTERN.fullmatch(text_value.text)
        ):
            continue
        unit_stem = stem(
            re.sub(r"[\d.,\s-]+", "", expression("aged").sub("", plain(text_value.text)))
        )
        lower_bound, upper_bound, text_before = (
            min(figure_values),
            max(figure_values),
            plain(text[: text_value.start]),
        )
        bound_lists = {
            name
            for name in _BOUND_LISTS
            if any(
                bound_match.end() == len(text_before)
                for bound_match in expression(name).finditer(text_before)
            )
        }
        if (
            measure_spans
            and measure_spans[-1][0] in {unit_stem, ""}
            and RANGE_JOINT.fullmatch(text[previous_end : text_value.start])
        ):
            lower_bound = measure_spans.pop()[1]
        elif bound_lists & {"below", "at_most"}:
            lower_bound = -math.inf
            upper_bound = (
                math.nextafter(upper_bound, -math.inf) if "below" in bound_lists else upper_bound
            )
        elif bound_lists:
            lower_bound = (
                math.nextafter(lower_bound, math.inf) if "above" in bound_lists else lower_bound
            )
            upper_bound = math.inf
        measure_spans.append((unit_stem, lower_bound, upper_bound))
        previous_end = text_value.end
    return tuple(measure_spans)


def _is_untimely(statement: Statement, year: str, documents: Sequence[Chunk]) -> bool:
    """Whether a statement holds at another time than a year, or its document has other years."""
    clause_text = f"{_clause(statement)} {statement.value if statement.kind == 'date' else ''}"
    clause_years = YEAR_PATTERN.findall(clause_text)
    plain_clause = plain(clause_text)
    if clause_years:
        is_until = expression("held").search(plain_clause) and year < max(clause_years)
        is_since = expression("holds").search(plain_clause) and min(clause_years) < year
        return not (year in clause_years or is_until or is_since)
    chunk = documents[statement.place]
    dated_texts = [statement.heading, statement.text, *map(str, chunk.tags.values())]
    # what a document says of the years to come is no later version's
    if document_year(chunk) < year:
        dated_texts.append(_document_text(chunk, documents))
    return not any(year in dated_text for dated_text in dated_texts)


def _clause(statement: Statement) -> str:
    """What a text says of a value itself.

    Its label and head, the whole of it where they name no time.
    """
    text = f"{statement.head} {statement.label}"
    return (
        text if statement.form != "sentence" or TIME_PATTERN.search(plain(text)) else statement.text
    )


def outdated(chunk: Chunk, chunks: Sequence[Chunk], today: str) -> tuple[str, str]:
    """Why a document may not hold today.

    `passed` with the day of its end, `replaced` with its later version, or ''.
    """
    own_statements = statements(
        [passage for passage in chunks if passage.document == chunk.document]
    )
    end_dates = [
        f"{end_date.year}-{end_date.month or 12:02d}-{end_date.day or 31:02d}"
        for statement in own_statements
        if statement.kind == "date" and expression("expiring").search(plain(statement.text))
        for end_date in dates_in(statement.value)
    ]
    if end_dates and max(end_dates) < today:
        return "passed", max(end_dates)
    related_passages = [
        passage
        for passage in chunks
        if all(
            passage.tags.get(tag_name) == chunk.tags.get(tag_name)
            for tag_name in ("product", "doc_type")
        )
        and passage.tags.get("date", "") <= today
    ]
    is_tagged = chunk.tags.get("product") and chunk.tags.get("doc_type")
    newest_passage = max([chunk, *(related_passages if is_tagged else ())], key=version_stamp)
    is_later = version_stamp(newest_passage) > version_stamp(chunk)
    return (
        ("replaced", newest_passage.tags.get("title") or newest_passage.file_name)
        if is_later
        else ("", "")
    )


def document_year(chunk: Chunk) -> str:
    """Year of a document by its tags, its title or its file, '' where they name none."""
    tagged_year = (chunk.tags.get("version") or chunk.tags.get("date") or "")[:4]
    named_years = YEAR_PATTERN.findall(" ".join((*chunk.section[:1], chunk.document)))
    return tagged_year or (named_years[0] if named_years else "")
