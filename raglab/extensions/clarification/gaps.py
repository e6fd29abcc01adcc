"""Gaps (shore): what a question leaves out of its documents, by what these offer (S5.1).

Candidates are the statements of the documents: of the kind that is asked for, by how much of the
question's topic their labels, heads and headings name. The best and those as good are the readings.
Several values under several labels leave the field open, one label at several times the date,
people under several roles the person, a heading alone what is to be done with it, no topic the
part.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from raglab.extensions.clarification.document_roles import document_roles
from raglab.extensions.clarification.gap_candidates import (
    DISTANT_WEIGHT,
    TIME_PATTERN,
    ScoredStatement,
    as_good,
    candidates,
    field_synonyms,
    in_time,
    is_denied,
    meeting,
    named_column,
    other_versions,
    own_topic,
    own_values,
    unaccounted,
    version_stamp,
)
from raglab.extensions.clarification.language_words import (
    expression,
    meets,
    plain,
    shared_stems,
    stem,
    stems,
    whole_words,
)
from raglab.extensions.clarification.part_gaps import (
    ENOUGH,
    MOST,
    intent_gap,
    names_all,
    page_gap,
    part_gap,
)
from raglab.extensions.clarification.question_parsing import (
    QUESTION_TASKS,
    is_bare,
    is_kind_word,
    shared_topic,
    topic_words,
    wanted_kinds,
)
from raglab.extensions.clarification.statements import Statement, statements, value_key
from raglab.extensions.clarification.value_kinds import values_in
from raglab.live.clarifier import (
    MIN_FIELD_CONFIDENCE,
    GapKind,
    GapReading,
    ParsedQuestion,
    QuestionGap,
)
from raglab.values import Chunk
from raglab.words.packs import GENERIC, Pack
from raglab.words.tokeniser import split_words

# weight of a word that documents lack, in a sentence and in a bare name; where no kind is asked for
STRAY_WEIGHT, BARE_STRAY_WEIGHT, UNTYPED_FACTOR = 0.34, 0.5, 2.2
SURE_SHARE = 0.6  # share of the known words of a question that sentences must name
MAX_SENTENCES = 4  # sentences among which a user may choose; more are no choice
_PER_UNIT = re.compile(r"(?<!\w)(?:per|each|par|chaque) (\w+)")
MAX_EXTRA_WORDS = (
    1  # words beside its time that a clause may name which goes on about the sentence before
)
# kinds that a document states few values of
RARE_KINDS = frozenset({"phone", "email", "url", "quantity", "time"})
MAX_VALUE_LENGTH, MAX_SENTENCE_LENGTH = (
    120,
    90,
)  # characters of a value, and of a sentence that is offered


def find_gaps(
    parsed: ParsedQuestion,
    documents: Sequence[Chunk],
    hits: Sequence[Chunk] = (),
    /,
    *,
    pack: Pack = GENERIC,
    least: float = MIN_FIELD_CONFIDENCE,
) -> tuple[QuestionGap, ...]:
    r"""What a question leaves out of the documents it is asked of, in order of asking back.

    Args:
      parsed: the question.
      documents: passages of the documents.
      hits: the passages that are nearest to the question.
      pack: names of fields and roles.
      least: confidence below which a field of the question is missing.

    Source: rule S5.1.

    Example:
      >>> from raglab.extensions.clarification.question_parsing import parse_question
      >>> text = (
      ...     "Fees\n| Deposit | Amount |\n|---|---|\n| Pet deposit | £250 |\n| Key deposit | £50 |"
      ... )
      >>> (gap,) = find_gaps(parse_question("What is the deposit?"), [Chunk("a", text, "a.md", 1)])
      >>> gap.kind, gap.field, [reading.value for reading in gap.readings]
      ('field_type', 'deposit', ['Pet deposit', 'Key deposit'])
    """
    if not documents:
        return ()
    text = plain(parsed.question)
    topic = own_topic(text, documents)
    role_gap = _role_gap(parsed, text, topic, documents, pack)
    page_scope_gap = (
        None if is_bare(text) or role_gap is not None else page_gap(parsed, documents, pack, least)
    )
    if page_scope_gap is not None:
        return (page_scope_gap,)
    found_gaps = (
        role_gap,
        intent_gap(parsed, topic, documents, least),
        _statement_gap(parsed, topic, documents, hits, pack),
        part_gap(parsed, text, topic, documents, least),
    )
    return tuple(gap for gap in found_gaps if gap is not None)


def _role_gap(
    parsed: ParsedQuestion, text: str, topic: Sequence[str], documents: Sequence[Chunk], pack: Pack
) -> QuestionGap | None:
    """Whom a role alone, or a question whom to turn to, means.

    `the tenant`, `who do I contact at Acme?`.
    """
    # A question for an amount or a date has its own gap, even where it names a role.
    is_lookup = parsed.known("intent") in {None, "lookup"} and not wanted_kinds(text) - {"name"}
    role_statements = _roles(documents) if is_lookup and not is_denied(text) else []
    if len({value_key(role_statement.value) for role_statement in role_statements}) < 2:
        return None
    is_asking_who = expression("who").search(text) is not None
    is_alone = is_bare(text)
    is_contact = is_asking_who and expression("contact").search(text) is not None
    # Roles are told apart by their endings, `lessor` and `lessee`: words are compared whole.
    words_by_role = {
        role_statement: frozenset(map(_genderless, split_words(plain(role_statement.label))))
        for role_statement in role_statements
    }
    topic_forms = frozenset(map(_genderless, topic))
    pack_roles = [
        role_statement
        for role_statement in (*pack.roles.values(), pack.vague_role)
        if role_statement is not None
    ]
    # A role of the pack counts by the words it is asked with, a role of the documents by its label.
    is_person = (
        expression("people").search(text)
        or whole_words(
            [role_term for role_statement in pack_roles for role_term in role_statement.asked]
        ).search(text)
        or any(topic_forms & label_words for label_words in words_by_role.values())
    )
    if not (is_contact or (is_person and (is_asking_who or is_alone))):
        return None
    named_roles = [
        role_statement
        for role_statement, label_words in words_by_role.items()
        if topic_forms and topic_forms <= label_words
    ]
    # In a longer sentence a whole label is no gap: the question says which role it means.
    is_label_whole = any(
        len(words_by_role[role_statement] & topic_forms) == len(stems(role_statement.label))
        for role_statement in named_roles
    )
    if not is_alone and (is_label_whole or not (named_roles or is_contact)):
        return None
    if is_contact and topic and not named_roles:
        # Whom to turn to is often said by the matter, so the words beside a role count too.
        topic_stems = [stem(word) for word in topic]
        named_roles = [
            role_statement
            for role_statement in role_statements
            if shared_stems(topic_stems, stems(f"{role_statement.label} {role_statement.text}"))
        ]
        if len(named_roles) == 1 or not (named_roles or _only_names(topic, documents)):
            return None
    # With one named role or none, all are offered: the reader may mean another.
    listed_roles = (
        named_roles
        if len(named_roles) > 1
        else [
            *named_roles,
            *(
                role_statement
                for role_statement in role_statements
                if role_statement not in named_roles
            ),
        ]
    )
    field_name = _field(topic, [role_statement.label for role_statement in listed_roles], "person")
    return _gap("implicit_entity", f"{field_name}:role", listed_roles)


def _roles(documents: Sequence[Chunk]) -> list[Statement]:
    """Statements of who holds a role, the first of each."""
    roles_by_label: dict[str, Statement] = {}
    for statement in statements(documents):
        if statement.form == "role" and statement.kind == "name":
            roles_by_label.setdefault(value_key(statement.label), statement)
    return list(roles_by_label.values())


def _genderless(word: str) -> str:
    """A word without the endings of gender and number: `louées`, `loué`."""
    return word.removesuffix("s").rstrip("e")


def _only_names(topic: Sequence[str], documents: Sequence[Chunk]) -> bool:
    """Whether the words of a topic are those that name the documents.

    `who do I contact at Acme?`.
    """
    document_names = " ".join(
        " ".join((*chunk.tags.values(), chunk.source, *chunk.section[:1])) for chunk in documents
    )
    return names_all(topic, document_names)


def _statement_gap(
    parsed: ParsedQuestion,
    topic: Sequence[str],
    documents: Sequence[Chunk],
    hits: Sequence[Chunk],
    pack: Pack,
) -> QuestionGap | None:
    """Which of several statements of one kind is meant, or as of when."""
    text = plain(parsed.question)
    date_scope = parsed.known("date_scope")
    asked_kinds = wanted_kinds(text)
    if parsed.known("intent") in {
        "why",
        "define",
        "procedure",
        "compare",
        "check",
        *QUESTION_TASKS,
    } or not (topic or asked_kinds):
        return None
    ranked_candidates = candidates(text, topic, documents, hits, field_synonyms(parsed, pack))
    best_candidates = as_good(ranked_candidates)
    is_alike = len({candidate.statement.text for candidate in best_candidates}) == 1
    if (
        topic
        and best_candidates
        and best_candidates[0].score < (ENOUGH * DISTANT_WEIGHT if is_alike else ENOUGH)
    ):
        return None
    # where nothing but a kind is named, what is printed by itself, and kinds of few values
    best_candidates = [
        candidate
        for candidate in best_candidates
        if best_candidates[0].words
        or candidate.statement.form != "sentence"
        or candidate.statement.kind in RARE_KINDS
    ]
    if not best_candidates or not _is_covered(parsed, topic, best_candidates[0], documents):
        return None
    if not asked_kinds:
        best_candidates = [
            candidate
            for candidate in best_candidates
            if candidate.statement.kind == best_candidates[0].statement.kind
        ]
    statement_gap = (
        _time_gap(text, best_candidates, ranked_candidates, topic, documents, date_scope)
        if asked_kinds
        else None
    )
    statement_gap = statement_gap or _listed_gap(parsed, topic, best_candidates, documents, pack)
    return _keyed(statement_gap, parsed, topic, best_candidates, documents, pack)


def _listed_gap(
    parsed: ParsedQuestion,
    topic: Sequence[str],
    best_candidates: Sequence[ScoredStatement],
    documents: Sequence[Chunk],
    pack: Pack,
) -> QuestionGap | None:
    """The gap between statements as good, but for those that a question is set against."""
    text = plain(parsed.question)
    date_scope = parsed.known("date_scope")
    listed_statements = [statement.statement for statement in best_candidates]
    needed_stems = frozenset(
        stem(topic_word) for topic_word in topic if not is_kind_word(topic_word)
    )
    # A sentence has no name of its own: the question must say of what it wants which kind of value,
    # or name what the value is of.
    is_kind_clear = bool(wanted_kinds(text)) or all(
        needed_stems and needed_stems == shared_stems(needed_stems, stems(statement.label))
        for statement in listed_statements
    )
    is_alike = len({statement.text for statement in listed_statements}) == 1
    printed_needed = shared_stems(needed_stems, _printed(documents))
    is_clear = is_kind_clear and (
        is_alike or len(best_candidates[0].words & needed_stems) >= SURE_SHARE * len(printed_needed)
    )
    is_few = is_clear and len(listed_statements) <= (MAX_SENTENCES if needed_stems else MOST)
    listed_documents = {documents[statement.place].document for statement in listed_statements}
    if ((is_clear and not is_few) or len(listed_statements) > 2 * MOST) and 1 < len(
        listed_documents
    ) <= MOST:
        return _by_document(
            listed_statements, " ".join(topic) or listed_statements[0].kind, documents, date_scope
        )
    if not is_few and any(statement.form == "sentence" for statement in listed_statements):
        return None
    listed_statements = in_time(listed_statements, date_scope, documents)
    met_statements = meeting(text, listed_statements, documents)
    # Those that meet it are offered alone where they are an answer; where they leave words over,
    # they come first.
    stray_words = [
        unaccounted(parsed, topic, statement, documents, pack)
        for statement in best_candidates
        if statement.statement in met_statements
    ]
    if stray_words and all(stray_words):
        met_statements = sorted(
            listed_statements, key=lambda statement: statement not in met_statements
        )
    # the others are cells without a value
    n_valued = sum(bool(values_in(statement.value)) for statement in met_statements)
    if len({value_key(statement.value) for statement in met_statements}) < 2 or n_valued > 2 * MOST:
        return None
    # `What does the X2 Max weigh?` names a column whole, and one sentence that tells its values
    # apart is told by them.
    is_named = (
        is_alike and listed_statements[0].form == "sentence" and _tells_apart(text, met_statements)
    )
    if is_named or named_column(text, met_statements):
        return None
    return _by_axis(met_statements, topic, documents, date_scope)


def _printed(documents: Sequence[Chunk]) -> frozenset[str]:
    """Stems of the words that documents print."""
    return frozenset(printed_stem for chunk in documents for printed_stem in stems(chunk.full_text))


def _is_covered(
    parsed: ParsedQuestion,
    topic: Sequence[str],
    best_candidate: ScoredStatement,
    documents: Sequence[Chunk],
) -> bool:
    """Whether the best statement names enough of a question that is of the documents' matter.

    A word that they lack counts for less. A name or figure that they lack is of another matter.
    """
    text = plain(parsed.question)
    topic_stems = frozenset(map(stem, topic))
    printed_stems = _printed(documents)
    known_stems = shared_stems(topic_stems, printed_stems)
    question_words = re.findall(r"\w+", parsed.question)
    # `Yachtmaster` is no yacht; a question that is written in capitals names nothing by them
    is_titled = 2 * sum(question_word[:1].isupper() for question_word in question_words) > len(
        question_words
    )
    name_stems = {
        stem(plain(question_word))
        for question_word in question_words[1:]
        if re.search(r"\d", question_word) or question_word[0].isupper()
    }
    if not is_titled and (name_stems & topic_stems) - printed_stems:
        return False
    statement_stems = stems(
        f"{best_candidate.statement.name} {best_candidate.statement.text} "
        f"{best_candidate.statement.lead}"
    )
    if (
        known_stems < topic_stems
        and best_candidate.words
        and not shared_stems(best_candidate.words, statement_stems)
    ):
        return False  # what stands above a value says too little of it
    stray_weight = BARE_STRAY_WEIGHT if is_bare(text) else STRAY_WEIGHT
    stray_weight *= 1.0 if wanted_kinds(text) else UNTYPED_FACTOR
    required_words = ENOUGH * (len(known_stems) + stray_weight * len(topic_stems - known_stems))
    return all(map(is_kind_word, topic)) or len(best_candidate.words) >= required_words


def _keyed(
    gap: QuestionGap | None,
    parsed: ParsedQuestion,
    topic: Sequence[str],
    best_candidates: Sequence[ScoredStatement],
    documents: Sequence[Chunk],
    pack: Pack,
) -> QuestionGap | None:
    """The gap, under all words of the topic where no reading accounts for all.

    What was learned of less is not it.
    """
    if gap is None or not all(
        unaccounted(parsed, topic, candidate, documents, pack) for candidate in best_candidates
    ):
        return gap
    field_name, *field_axis = gap.field.partition(":")
    denied_suffix = ":not" if is_denied(plain(parsed.question)) else ""
    return gap._replace(field="".join((" ".join(topic) or field_name, *field_axis, denied_suffix)))


def _time_gap(
    text: str,
    best_candidates: Sequence[ScoredStatement],
    ranked_candidates: Sequence[ScoredStatement],
    topic: Sequence[str],
    documents: Sequence[Chunk],
    date_scope: str | None,
) -> QuestionGap | None:
    """As of when, or in which case, the only value that a question means holds.

    Its text or another version gives others.
    """
    best_statement = best_candidates[0].statement
    if len({value_key(neighbour.statement.value) for neighbour in best_candidates}) > 1:
        return None
    neighbours = _beside(best_statement, documents)
    time_changes = [
        neighbour
        for neighbour in neighbours
        if _is_change(neighbour) and not _is_meant(text, best_statement, neighbour)
    ]
    time_changes = time_changes or _later(best_candidates[0], ranked_candidates, topic, documents)
    timed_statements = in_time([best_statement, *time_changes], date_scope, documents)
    if len(timed_statements) > 1:
        statement_texts = [
            (
                f"{best_statement.name} {best_statement.heading} "
                f"{best_statement.text} {best_statement.table}"
            )
        ]
        return _gap(
            "date_scope",
            f"{_field(topic, statement_texts, best_statement.kind)}:date",
            timed_statements,
        )
    variants = [
        neighbour
        for neighbour in neighbours
        if best_statement.form == neighbour.form == "sentence"
        and _is_open(text, best_statement, neighbour)
        and not _is_meant(text, best_statement, neighbour, 2)
    ]
    variants = in_time([best_statement, *variants], date_scope, documents)
    if len(variants) > 1:
        return _by_axis(variants, topic, documents, date_scope)
    version_statements = (
        other_versions(best_candidates[0], ranked_candidates, documents)
        if date_scope is None
        else []
    )
    field_name = _field(topic, [best_statement.label], "")
    return (
        _by_document([best_statement, *version_statements], field_name, documents, date_scope)
        if version_statements
        else None
    )


def _beside(best_statement: Statement, documents: Sequence[Chunk]) -> list[Statement]:
    """Other values of its kind in the sentence of a statement and in those next to it."""
    if best_statement.form not in {"sentence", "line"}:
        return []
    heading_statements = [
        statement._replace(place=best_statement.place)
        for statement in statements([documents[best_statement.place]])
        if statement.heading == best_statement.heading
    ]
    sentence_texts = list(dict.fromkeys(statement.text for statement in heading_statements))
    best_position = sentence_texts.index(best_statement.text)
    return list(
        dict.fromkeys(
            statement
            for statement in heading_statements
            if statement.text in sentence_texts[max(0, best_position - 1) : best_position + 2]
            and statement.kind == best_statement.kind
            and value_key(statement.value) != value_key(best_statement.value)
        )
    )


def _is_change(neighbour: Statement) -> bool:
    """Whether a value beside another is the same thing's at another time.

    `Pay is £9 an hour. Until May it was £8.`: a clause of the next sentence names a time and hardly
    anything else. It says its time at its start or by a date, `For trips from 1 May on it is £5`.
    """
    is_whole = len(own_values(neighbour)) == 1 and (
        TIME_PATTERN.match(plain(neighbour.text))
        or any(text_value.kind == "date" for text_value in values_in(neighbour.text))
    )
    text = neighbour.text if is_whole else f"{neighbour.label} {neighbour.head}"
    return _is_dated(text) and len(_core(neighbour, ())) <= MAX_EXTRA_WORDS


def _later(
    best_candidate: ScoredStatement,
    ranked_candidates: Sequence[ScoredStatement],
    topic: Sequence[str],
    documents: Sequence[Chunk],
) -> list[Statement]:
    """The sentence that gives the value of a row or line at another time."""
    row_statement = best_candidate.statement
    row_document = documents[best_candidate.statement.place].document
    known_words = (*topic, *stems(row_statement.name))
    later_statements = [
        candidate.statement
        for candidate in ranked_candidates
        if (candidate.statement.form, candidate.statement.kind) == ("sentence", row_statement.kind)
        and row_statement.form != "sentence"
        and candidate.words >= best_candidate.words
        and documents[candidate.statement.place].document == row_document
        and TIME_PATTERN.search(plain(candidate.statement.text))
        and shared_stems(
            best_candidate.words, stems(f"{candidate.statement.label} {candidate.statement.head}")
        )
        and len(_core(candidate.statement, known_words)) <= MAX_EXTRA_WORDS
        and value_key(candidate.statement.value) not in value_key(row_statement.value)
    ]
    return later_statements[:1]


def _is_open(text: str, best_statement: Statement, neighbour: Statement) -> bool:
    """Whether no word of a question in plain letters tells a value from another in its passage."""
    question_stems = frozenset(map(stem, topic_words(text)))
    question_stems -= shared_stems(question_stems, stems(best_statement.heading))
    if neighbour.text != best_statement.text:
        shared_by_side = [
            shared_stems(question_stems, stems(statement.text))
            for statement in (best_statement, neighbour)
        ]
        return shared_by_side[0] == shared_by_side[1] and (
            bool(shared_by_side[0]) or not question_stems
        )
    # what begins a sentence is said of all its values: half of it names none of them
    earlier_statement, later_statement = sorted(
        (best_statement, neighbour), key=lambda statement: best_statement.text.find(statement.value)
    )
    name_stems = [
        frozenset(map(stem, topic_words(plain(statement.name))))
        for statement in (earlier_statement, later_statement)
    ]
    is_named = 2 * len(shared_stems(name_stems[0], stems(text))) > len(name_stems[0])
    distinguishing_stems = (
        name_stems[1] - name_stems[0] | {*stems(earlier_statement.head)} - name_stems[1]
    )
    return not is_named and not shared_stems(question_stems, distinguishing_stems)


def _is_meant(
    text: str, best_statement: Statement, neighbour: Statement, min_matches: int = 1
) -> bool:
    """Whether so many words of a question name a value in a sentence, and none the value beside."""
    question_stems = [stem(word) for word in topic_words(text)]
    best_stems, neighbour_stems = (
        {*stems(f"{statement.label} {statement.head}")} for statement in (best_statement, neighbour)
    )
    return (
        best_statement.text == neighbour.text
        and len(shared_stems(question_stems, frozenset(best_stems - neighbour_stems)))
        >= min_matches
        and not shared_stems(question_stems, frozenset(neighbour_stems - best_stems))
    )


def _tells_apart(text: str, listed: Sequence[Statement]) -> bool:
    """Whether a question in plain letters has words that only some of these values go by."""
    question_stems = [
        stem(question_stem) for question_stem in (*topic_words(text), *_PER_UNIT.findall(text))
    ]
    stems_by_name = [
        frozenset(stems(f"{listed_item.label} {listed_item.head}")) for listed_item in listed
    ]
    return any(
        0
        < sum(
            any(meets(question_stem, listed_item) for listed_item in name_stems)
            for name_stems in stems_by_name
        )
        < len(stems_by_name)
        for question_stem in question_stems
    )


def _by_axis(
    listed_statements: list[Statement],
    topic: Sequence[str],
    documents: Sequence[Chunk],
    date_scope: str | None = None,
) -> QuestionGap | None:
    """The gap by what tells statements apart: their labels, else their times or documents."""
    field_name = _field(
        topic,
        [f"{statement.name} {statement.heading}" for statement in listed_statements],
        listed_statements[0].kind,
    )
    label_cores = [_core(statement, topic) for statement in listed_statements]
    if len(set(label_cores)) > 1:
        # of one label what holds the latest
        groups_by_core = [
            [
                statement
                for statement, own_core in zip(listed_statements, label_cores, strict=True)
                if own_core == label_core
            ]
            for label_core in dict.fromkeys(label_cores)
        ]
        listed_statements = [
            in_time(statement, "newest", documents)[0] for statement in groups_by_core
        ]
        if all(statement.kind == "name" for statement in listed_statements):
            return _gap("implicit_entity", f"{field_name}:role", listed_statements)
        return _gap("field_type", field_name, listed_statements)
    if len({documents[statement.place].document for statement in listed_statements}) > 1:
        return _by_document(listed_statements, field_name, documents, date_scope)
    is_by_head = len({value_key(statement.label) for statement in listed_statements}) == 1
    if all(
        _is_dated(statement.head if is_by_head else statement.label)
        for statement in listed_statements
    ):
        return _gap("date_scope", f"{field_name}:date", listed_statements, is_by_head=is_by_head)
    return _gap("field_type", field_name, listed_statements, is_by_head=is_by_head)


def _field(topic: Sequence[str], statement_texts: Sequence[str], kind: str) -> str:
    """What is open, by the words of a topic that all of some texts have, else by all; or a kind."""
    return " ".join(shared_topic(topic, statement_texts) or topic) or kind


def _is_dated(statement_name: str) -> bool:
    """Whether a name says when something holds."""
    time_patterns = (TIME_PATTERN, expression("newer"), expression("older"))
    return any(time_pattern.search(plain(statement_name)) for time_pattern in time_patterns)


def _core(statement: Statement, topic: Sequence[str]) -> frozenset[str]:
    """What a label says beside the topic and the time."""
    label = statement.label
    bare_label = plain(statement.label)
    for time_pattern in (TIME_PATTERN, expression("newer"), expression("older")):
        bare_label = time_pattern.sub(" ", bare_label)
    date_text = " ".join(
        value.text for value in values_in(label) if value.kind in {"date", "number"}
    )
    label_stems = frozenset(
        label_stem for label_stem in stems(bare_label) if not label_stem.isdigit()
    ).difference(stems(date_text))
    return label_stems - shared_stems(label_stems, [stem(label_stem) for label_stem in topic])


def _by_document(
    listed_statements: Sequence[Statement],
    field_name: str,
    documents: Sequence[Chunk],
    date_scope: str | None,
) -> QuestionGap | None:
    """Which document is meant, or which version: by what their tags tell apart."""
    first_by_document: dict[str, Statement] = {}
    for statement in listed_statements:
        first_by_document.setdefault(documents[statement.place].document, statement)
    chunk_by_document = {
        document_name: documents[each.place] for document_name, each in first_by_document.items()
    }
    tags_by_document = {
        document_name: chunk.tags for document_name, chunk in chunk_by_document.items()
    }
    version_stamps = {
        document_name: version_stamp(chunk) for document_name, chunk in chunk_by_document.items()
    }
    is_dated = (
        len({document_tags.get("product", "") for document_tags in tags_by_document.values()}) == 1
        and len(set(version_stamps.values())) == len(version_stamps)
        and all(any(version) for version in version_stamps.values())
    )
    if len(first_by_document) == 1 or (is_dated and date_scope is not None):
        return None  # the question names a time, of which no version is
    # a role carries over to the next portfolio, a file's name does not
    offered_names = document_roles(tags_by_document)
    ordered_documents = [*first_by_document]
    if is_dated:
        ordered_documents.sort(
            key=lambda document_name: version_stamps[document_name], reverse=True
        )
        offered_names = {document_name: document_name for document_name in ordered_documents} | {
            ordered_documents[-1]: "oldest",
            ordered_documents[0]: "newest",
        }
    readings = tuple(
        GapReading(
            offered_names[document_name],
            first_by_document[document_name].text,
            title_of(chunk_by_document[document_name]),
        )
        for document_name in ordered_documents
    )[:MOST]
    if is_dated:
        return QuestionGap("date_scope", f"{field_name}:date", readings, "newest")
    return QuestionGap("document", f"{field_name}:document", readings, "first")


def title_of(chunk: Chunk) -> str:
    """Title of a document by its tags or its outermost heading; its file name where it has none."""
    return chunk.tags.get("title") or " ".join(chunk.section[:1]) or chunk.file_name


def _gap(
    kind: GapKind, field_name: str, listed: Sequence[Statement], *, is_by_head: bool = False
) -> QuestionGap | None:
    """A gap whose readings are statements, each under the name that tells it from the others.

    A sentence has no name of its own: it goes by its heading, where no other stands under that, and
    is shown whole.
    """
    reading_names = [statement.head if is_by_head else statement.label for statement in listed]
    for attribute in ("name", "heading", "text"):
        if len(set(map(value_key, reading_names))) < len(reading_names):
            reading_names = [getattr(statement, attribute) for statement in listed]
    heading_counts = Counter(value_key(statement.heading) for statement in listed)
    text_counts = Counter(statement.text for statement in listed)
    readings: dict[str, GapReading] = {}
    for reading_name, statement in zip(reading_names, listed, strict=True):
        offered_name = reading_name
        shown_text = ""
        if statement.form == "sentence":
            is_shared = text_counts[statement.text] > 1  # shown is what tells its values apart
            shown_text = (
                f"{reading_name}: {statement.value}"
                if is_shared
                else _short(statement.text, statement.value)
            )
            offered_name = (
                statement.heading
                if heading_counts[value_key(statement.heading)] == 1 and statement.heading
                else reading_name
            )
        if offered_name:
            readings.setdefault(
                value_key(offered_name),
                GapReading(offered_name[:MAX_VALUE_LENGTH], statement.text, shown_text),
            )
    offered_readings = tuple(readings.values())[:MOST]
    return (
        QuestionGap(kind, field_name[:MAX_VALUE_LENGTH], offered_readings, "first")
        if len(offered_readings) > 1
        else None
    )


def _short(text: str, value_text: str) -> str:
    """A sentence as it is offered: around its value where it is long."""
    if len(text) <= MAX_SENTENCE_LENGTH:
        return text
    window_start = max(
        0, min(text.find(value_text) - MAX_SENTENCE_LENGTH // 2, len(text) - MAX_SENTENCE_LENGTH)
    )
    window_end = window_start + MAX_SENTENCE_LENGTH
    return (
        f"{'…' if window_start else ''}{text[window_start:window_end].strip()}"
        f"{'…' if window_end < len(text) else ''}"
    )
