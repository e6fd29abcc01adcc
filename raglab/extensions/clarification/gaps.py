"""Gaps (shore): what a question leaves out of its documents, by what these offer (S5.1).

Candidates are the statements of the documents: of the kind that is asked for, by how much of the
question's topic their labels, heads and headings name. The best and those as good are the readings.
Several values under several labels leave the field open, one label at several times the date,
people under several roles the person, a heading alone what is to be done with it, no topic the
part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from raglab.extensions.clarification.contents import contents
from raglab.extensions.clarification.document_roles import document_roles
from raglab.extensions.clarification.gap_candidates import (
    FAR,
    TIME,
    YEARS,
    ScoredStatement,
    as_good,
    candidates,
    clear_statement,
    document_year,
    field_synonyms,
    in_time,
    is_denied,
    meeting,
    named_column,
    needed_words,
    other_versions,
    own_topic,
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
from raglab.extensions.clarification.question_parsing import (
    TASKS,
    is_bare,
    is_kind_word,
    shared_topic,
    topic_words,
    wanted_kinds,
    wanted_units,
)
from raglab.extensions.clarification.replies import CONTENTS, DOCUMENT, PAGE_SCOPE
from raglab.extensions.clarification.statements import Statement, heading_of, statements, value_key
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

MOST = 6  # readings of a gap
ENOUGH = 0.5  # share of the topic that the best statement must name
# weight of a word that documents lack, in a sentence and in a bare name; where no kind is asked for
STRAY, BARE_STRAY, UNTYPED = 0.34, 0.5, 2.2
SURE = 0.6  # share of the known words of a question that sentences must name
FEW = 4  # sentences among which a user may choose; more are no choice
_PER = re.compile(r"(?<!\w)(?:per|each|par|chaque) (\w+)")
_STEP = re.compile(r"(?:step|etape) (\d{1,3})")
ANAPHOR = 1  # words beside its time that a clause may name which goes on about the sentence before
# cosine of what says the same in other words; how much is compared
NEAR, NEAR_PASSAGES, NEAR_TEXTS = 0.55, 3, 24
# kinds that a document states few values of
FEW_VALUES = frozenset({"phone", "email", "url", "quantity", "time"})
LONGEST, SHOWN = 120, 90  # characters of a value, and of a sentence that is offered


Nearness = Callable[[str, Sequence[str]], Sequence[float]]


def find_gaps(
    parsed: ParsedQuestion,
    documents: Sequence[Chunk],
    hits: Sequence[Chunk] = (),
    /,
    *,
    pack: Pack = GENERIC,
    least: float = MIN_FIELD_CONFIDENCE,
    nearness: Nearness | None = None,
) -> tuple[QuestionGap, ...]:
    r"""What a question leaves out of the documents it is asked of, in order of asking back.

    Args:
      parsed: the question.
      documents: passages of the documents.
      hits: the passages that are nearest to the question.
      pack: names of fields and roles.
      least: confidence below which a field of the question is missing.
      nearness: nearness of texts to the question by an encoder, in [-1, 1]; None compares by words
        alone.

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
    cited = _cited_gap(parsed, documents)
    if cited is not None:
        return (cited,)
    role = _role_gap(parsed, text, topic, documents, pack)
    paged = None if is_bare(text) or role is not None else _page_gap(parsed, documents, pack, least)
    if paged is not None:
        return (paged,)
    results = (
        role,
        _intent_gap(parsed, topic, documents, least),
        _statement_gap(parsed, topic, documents, hits, pack),
        _part_gap(parsed, text, topic, documents, least),
    )
    gaps = tuple(gap for gap in results if gap is not None)
    if gaps or nearness is None or clear_statement(parsed, documents, hits, pack) is not None:
        return gaps
    near = _near_gap(parsed, topic, hits, pack, nearness)
    return () if near is None else (near,)


def _page_gap(
    parsed: ParsedQuestion, documents: Sequence[Chunk], pack: Pack, least: float
) -> QuestionGap | None:
    """Where to look for a field a pack says is on some page (case 1 of the source document)."""
    name = parsed.known("target_field", least) or ""
    field = pack.fields.get(name)
    if field is None or not field.on_a_page or parsed.known("page_scope", least) is not None:
        return None
    kinds = wanted_kinds(plain(parsed.question))
    own = "name" if field.names else None if field.reading is None else field.reading.kind
    if parsed.known("intent", least) not in {None, "lookup"} or (
        kinds and own is not None and own not in kinds
    ):
        return None
    pages = {chunk.page for chunk in documents} - {None}
    scopes = ["1"] if 1 in pages else []
    files = dict.fromkeys(chunk.source for chunk in documents)
    if any(contents([chunk for chunk in documents if chunk.source == source]) for source in files):
        scopes.append(CONTENTS)
    readings = tuple(GapReading(value) for value in (*scopes, DOCUMENT))
    return QuestionGap(PAGE_SCOPE, name, readings, "usual") if len(readings) > 1 else None


def _intent_gap(
    parsed: ParsedQuestion, topic: Sequence[str], documents: Sequence[Chunk], least: float
) -> QuestionGap | None:
    """What to do with a part that is named and nothing more: `the warranty section`."""
    text = plain(parsed.question)
    # `excess?` asks for a value, whatever heading it stands under.
    is_open = parsed.known("intent", least) is None or is_bare(text, cited=True)
    if not is_open or not topic or all(map(is_kind_word, topic)):
        return None
    named = [heading for heading in _headings(documents) if _names_all(topic, heading)]
    if not named or not (is_bare(text, cited=True) or expression("about").search(text)):
        return None
    heading = min(named, key=len)
    return QuestionGap(
        "intent", " ".join(topic), tuple(GapReading(task, heading) for task in TASKS), "first"
    )


def _headings(documents: Iterable[Chunk]) -> list[str]:
    """Headings of passages, innermost, in order, each once."""
    return list(dict.fromkeys(heading for chunk in documents if (heading := heading_of(chunk))))


def _names_all(topic: Sequence[str], text: str) -> bool:
    own = stems(text)
    return all(any(meets(stem(word), name) for name in own) for word in topic)


def _role_gap(  # noqa: PLR0911 - a way out for each case
    parsed: ParsedQuestion, text: str, topic: Sequence[str], documents: Sequence[Chunk], pack: Pack
) -> QuestionGap | None:
    """Whom a role alone, or a question whom to turn to, means.

    `the tenant`, `who do I contact at Acme?`.
    """
    if (
        parsed.known("intent") not in {None, "lookup"}
        or is_denied(text)
        or wanted_kinds(text) - {"name"}
    ):
        return None
    roles = _roles(documents)
    if len({value_key(role.value) for role in roles}) < 2:
        return None
    who = expression("who").search(text) is not None
    own = {role: frozenset(map(_genderless, split_words(plain(role.label)))) for role in roles}
    bare_topic = frozenset(map(_genderless, topic))
    terms = [
        *(term for role in pack.roles.values() for term in role.asked),
        *(pack.vague_role.asked if pack.vague_role else ()),
    ]
    person = expression("people").search(text) is not None or bool(
        terms and whole_words(terms).search(text)
    )
    person = person or any(bare_topic & words for words in own.values())
    contact = who and expression("contact").search(text) is not None
    if not ((is_bare(text) and person) or contact or (who and person)):
        return None
    # Roles are told apart by their endings, `lessor` and `lessee`: words are compared whole.
    named = [statement for statement, words in own.items() if topic and words >= bare_topic]
    exact = [
        statement
        for statement in named
        if len(own[statement] & bare_topic) == len(stems(statement.label))
    ]
    if exact and not is_bare(text):
        return None
    if not contact and not named and not is_bare(text):
        return None
    if contact and topic and not named:
        known = [
            role
            for role in roles
            if shared_stems(map(stem, topic), stems(f"{role.label} {role.text}"))
        ]
        if len(known) == 1 or (not known and not _only_names(topic, documents)):
            return None
        named = known
    listed = named if len(named) > 1 else [*named, *(role for role in roles if role not in named)]
    if contact:
        listed = _people_first(listed, documents)
    field = (
        " ".join(shared_topic(topic, [statement.label for statement in listed]) or topic)
        or "person"
    )
    return _gap("implicit_entity", f"{field}:role", listed)


def _roles(documents: Sequence[Chunk]) -> list[Statement]:
    """Statements of who holds a role, the first of each."""
    roles: dict[str, Statement] = {}
    for statement in statements(documents):
        if statement.form == "role" and statement.kind == "name":
            roles.setdefault(value_key(statement.label), statement)
    return list(roles.values())


def _genderless(word: str) -> str:
    """A word without the endings of gender and number: `louées`, `loué`."""
    return word.removesuffix("s").rstrip("e")


def _people_first(roles: Sequence[Statement], documents: Sequence[Chunk]) -> list[Statement]:
    """Roles in order, those that the maker of its document holds last.

    An organisation is no person to turn to.
    """
    return sorted(
        roles,
        key=lambda role: (
            value_key(role.value) == value_key(documents[role.place].tags.get("vendor", ""))
        ),
    )


def _only_names(topic: Sequence[str], documents: Sequence[Chunk]) -> bool:
    """Whether the words of a topic are those that name the documents.

    `who do I contact at Acme?`.
    """
    titles = " ".join(
        " ".join((*chunk.tags.values(), chunk.source, *chunk.section[:1])) for chunk in documents
    )
    return _names_all(topic, titles.replace("-", " "))


def _statement_gap(  # noqa: PLR0911 - a way out for each case
    parsed: ParsedQuestion,
    topic: Sequence[str],
    documents: Sequence[Chunk],
    hits: Sequence[Chunk],
    pack: Pack,
) -> QuestionGap | None:
    """Which of several statements of one kind is meant, or as of when."""
    text = plain(parsed.question)
    if parsed.known("intent") in {"why", "define", "procedure", "compare", "check", *TASKS} or (
        not topic and not wanted_kinds(text)
    ):
        return None
    ranked = candidates(text, topic, documents, hits, field_synonyms(parsed, pack))
    good = as_good(ranked)
    is_alike = len({candidate.statement.text for candidate in good}) == 1
    if not good or (topic and good[0].score < (ENOUGH * FAR if is_alike else ENOUGH)):
        return None
    needed = frozenset(stem(word) for word in topic if not is_kind_word(word))
    # where nothing but a kind is named, what is printed by itself, and kinds of few values
    if not good[0].words:
        good = [
            candidate
            for candidate in good
            if candidate.statement.form != "sentence" or candidate.statement.kind in FEW_VALUES
        ]
    known = _known_words(topic, documents)
    if not _is_covered(parsed, topic, good, needed, known, documents):
        return None
    if not wanted_kinds(text):
        good = [each for each in good if each.statement.kind == good[0].statement.kind]
    scope = parsed.known("date_scope")
    dated = _time_gap(text, good, ranked, topic, documents, scope) if wanted_kinds(text) else None
    if dated is not None:
        return _keyed(dated, parsed, topic, good, documents, pack)
    # A sentence has no name of its own: the question must say of what it wants which kind of value,
    # or name what the value is of.
    is_kind = bool(wanted_kinds(text)) or all(
        needed and needed == shared_stems(needed, stems(each.statement.label)) for each in good
    )
    is_clear = is_kind and (is_alike or len(good[0].words & needed) >= SURE * len(needed & known))
    is_few = is_clear and len(good) <= (FEW if needed else MOST)
    files = {documents[candidate.statement.place].document for candidate in good}
    if ((is_clear and not is_few) or len(good) > 2 * MOST) and 1 < len(files) <= MOST:
        return _keyed(
            _by_document(
                [each.statement for each in good],
                " ".join(topic) or good[0].statement.kind,
                documents,
                scope,
            ),
            parsed,
            topic,
            good,
            documents,
            pack,
        )
    if not is_few and any(candidate.statement.form == "sentence" for candidate in good):
        return None
    return _listed_gap(parsed, topic, good, documents, pack)


def _listed_gap(
    parsed: ParsedQuestion,
    topic: Sequence[str],
    good: Sequence[ScoredStatement],
    documents: Sequence[Chunk],
    pack: Pack,
) -> QuestionGap | None:
    """The gap between statements as good, but for those that a question is set against."""
    text, scope = plain(parsed.question), parsed.known("date_scope")
    listed = in_time([candidate.statement for candidate in good], scope, documents)
    met = meeting(text, listed, documents)
    # Those that meet it are offered alone where they are an answer; where they leave words over,
    # they come first.
    strays = [
        unaccounted(parsed, topic, each, documents, pack) for each in good if each.statement in met
    ]
    if strays and all(strays):
        met = sorted(listed, key=lambda each: each not in met)
    # the others are cells without a value
    n_valued = sum(bool(values_in(statement.value)) for statement in met)
    if len({value_key(statement.value) for statement in met}) < 2 or n_valued > 2 * MOST:
        return None
    # `What does the X2 Max weigh?` names a column whole, and one sentence that tells its values
    # apart is told by them.
    is_alike = len({candidate.statement.text for candidate in good}) == 1
    if named_column(text, met) or (
        is_alike and good[0].statement.form == "sentence" and _tells_apart(text, met)
    ):
        return None
    return _keyed(_by_axis(met, topic, documents, scope), parsed, topic, good, documents, pack)


def _known_words(topic: Iterable[str], documents: Sequence[Chunk]) -> frozenset[str]:
    """Stems of a topic that the documents have."""
    return shared_stems(
        map(stem, topic), [word for chunk in documents for word in stems(chunk.full_text)]
    )


def _is_covered(
    parsed: ParsedQuestion,
    topic: Sequence[str],
    good: Sequence[ScoredStatement],
    needed: frozenset[str],
    known: frozenset[str],
    documents: Sequence[Chunk],
) -> bool:
    """Whether the best statements name enough of a question that is of the documents' matter.

    A word that they lack counts for less. A name or figure that they lack is of another matter.

    Args:
      needed: stems that say more than a kind of value.
      known: stems of the topic that the documents have.
    """
    if not good:
        return False
    text, strays = plain(parsed.question), frozenset(map(stem, topic)) - known
    words = re.findall(r"\w+", parsed.question)
    capitals = [word[:1].isupper() for word in words]
    names = {
        stem(plain(word))
        for word, is_capital in zip(words[1:], capitals[1:], strict=True)
        if is_capital or any(map(str.isdigit, word))
    }
    printed = {word for chunk in documents for word in stems(chunk.full_text)}
    topic_stems = frozenset(map(stem, topic))
    # `Yachtmaster` is no yacht; a question that is written in capitals names nothing by them
    if 2 * sum(capitals) <= len(words) and (names & topic_stems) - printed:
        return False
    first = good[0].statement
    own = stems(f"{first.name} {first.text} {first.lead}")
    if strays and good[0].words and not shared_stems(good[0].words, own):
        return False  # what stands above a value says too little of it
    stray = BARE_STRAY if is_bare(text) else STRAY
    weight = len(known) + stray * (1.0 if wanted_kinds(text) else UNTYPED) * len(strays)
    return not needed or len(good[0].words) >= ENOUGH * weight


def _keyed(
    gap: QuestionGap | None,
    parsed: ParsedQuestion,
    topic: Sequence[str],
    good: Sequence[ScoredStatement],
    documents: Sequence[Chunk],
    pack: Pack,
) -> QuestionGap | None:
    """The gap, under all words of the topic where no reading accounts for all.

    What was learned of less is not it.
    """
    if gap is None or not all(
        unaccounted(parsed, topic, candidate, documents, pack) for candidate in good
    ):
        return gap
    name, *axis = gap.field.partition(":")
    denied = ":not" if is_denied(plain(parsed.question)) else ""
    return gap._replace(field="".join((" ".join(topic) or name, *axis, denied)))


def _time_gap(
    text: str,
    good: Sequence[ScoredStatement],
    ranked: Sequence[ScoredStatement],
    topic: Sequence[str],
    documents: Sequence[Chunk],
    scope: str | None,
) -> QuestionGap | None:
    """As of when the only value that a question means holds.

    Its text or another version gives others.
    """
    changed = in_time(_changes(good, documents), scope, documents)
    if len(changed) > 1:
        field = " ".join(
            shared_topic(topic, [f"{changed[0].name} {changed[0].heading} {changed[0].text}"])
            or topic
        )
        return _gap("date_scope", f"{field or changed[0].kind}:date", changed)
    best = good[0]
    later = [
        each.statement
        for each in ranked
        if (each.statement.form, each.statement.kind) == ("sentence", best.statement.kind)
        and best.statement.form != "sentence"
        and each.words >= best.words
        and documents[each.statement.place].document == documents[best.statement.place].document
        and TIME.search(plain(each.statement.text))
        and shared_stems(best.words, stems(f"{each.statement.label} {each.statement.head}"))
        and len(_core(each.statement, (*topic, *stems(best.statement.name)))) <= ANAPHOR
        and value_key(each.statement.value) not in value_key(best.statement.value)
    ]
    if later and len(good) == 1:
        field = " ".join(topic) or best.statement.kind
        return _gap(
            "date_scope", f"{field}:date", in_time([best.statement, *later[:1]], scope, documents)
        )
    variants = in_time(_variants(text, good, documents), scope, documents)
    if len(variants) > 1:
        return _by_axis(variants, topic, documents, scope)
    is_single = len({value_key(candidate.statement.value) for candidate in good}) == 1
    versions = other_versions(good[0], ranked, documents) if is_single and scope is None else []
    if not versions:
        return None
    field = " ".join(shared_topic(topic, [good[0].statement.label]) or topic)
    return _by_document([good[0].statement, *versions], field, documents, scope)


def _near_gap(
    parsed: ParsedQuestion,
    topic: Sequence[str],
    hits: Sequence[Chunk],
    pack: Pack,
    nearness: Nearness,
) -> QuestionGap | None:
    """Which of several values in a sentence or table is meant, if near the question."""
    text = plain(parsed.question)
    kinds, units = wanted_kinds(text), wanted_units(text)
    near = hits[:NEAR_PASSAGES]
    matches = [
        statement
        for statement in statements(near)
        # A value that the question gives is not what it asks for, and a bare number says too little
        # by itself.
        if statement.kind in kinds - {"number"}
        and statement.value not in parsed.question
        and (not units or any(unit in statement.value for unit in units))
    ]
    if not matches or parsed.known("intent") not in {None, "lookup"}:
        return None
    texts = list(dict.fromkeys(f"{statement.heading}: {statement.text}" for statement in matches))[
        :NEAR_TEXTS
    ]
    cosines = nearness(parsed.question, texts)
    at = max(range(len(texts)), key=lambda place: (cosines[place], -place))
    if cosines[at] < NEAR:
        return None
    best = next(
        statement for statement in matches if f"{statement.heading}: {statement.text}" == texts[at]
    )
    listed = [
        statement
        for statement in matches
        if statement.text == best.text
        or (
            "sentence" not in {statement.form, best.form}
            and (statement.place, statement.heading) == (best.place, best.heading)
        )
    ]
    listed = in_time(listed, parsed.known("date_scope"), near)
    if (
        _tells_apart(text, listed)
        or not 1 < len({value_key(statement.value) for statement in listed}) <= MOST
    ):
        return None
    good = [
        ScoredStatement(each, 0.0, shared_stems(map(stem, topic), stems(each.text)))
        for each in listed
    ]
    return _keyed(_by_axis(listed, topic, near), parsed, topic, good, near, pack)


def _tells_apart(text: str, listed: Sequence[Statement]) -> bool:
    """Whether a question in plain letters has words that only some of these values go by."""
    words = [stem(word) for word in (*topic_words(text), *_PER.findall(text))]
    names = [frozenset(stems(f"{statement.label} {statement.head}")) for statement in listed]
    return any(
        0 < sum(any(meets(word, statement) for statement in own) for own in names) < len(names)
        for word in words
    )


def _changes(good: Sequence[ScoredStatement], documents: Sequence[Chunk]) -> list[Statement]:
    """The only value a question means, with the values its text gives for it at another time.

    `Pay is £9 an hour. Until May it was £8.`: a clause of the next sentence names a time and hardly
    anything else.
    """
    best = good[0].statement
    if (
        best.form not in {"sentence", "line"}
        or len({value_key(statement.statement.value) for statement in good}) > 1
    ):
        return []
    place = best.place
    order = [
        statement
        for statement in statements([documents[place]])
        if statement.heading == best.heading
    ]
    texts = list(dict.fromkeys(statement.text for statement in order))
    at = texts.index(best.text) if best.text in texts else -1
    near = set(texts[max(0, at - 1) : at + 2]) if at >= 0 else set()
    results = [best]
    for statement in order:
        if (
            statement.text not in near
            or statement.kind != best.kind
            or value_key(statement.value) == value_key(best.value)
        ):
            continue
        # A sentence of its own says its time at its start or by a date, `For trips from 1 May on it
        # is £5`.
        alone = (
            sum(each.text == statement.text and each.kind == statement.kind for each in order) == 1
        )
        whole = alone and (
            TIME.match(plain(statement.text))
            or any(value.kind == "date" for value in values_in(statement.text))
        )
        name = plain(statement.text if whole else f"{statement.label} {statement.head}")
        if (TIME.search(name) or _is_version(name)) and len(_core(statement, ())) <= ANAPHOR:
            results.append(statement._replace(place=place))
    return list(dict.fromkeys(results)) if len(results) > 1 else []


def _variants(
    text: str, good: Sequence[ScoredStatement], documents: Sequence[Chunk]
) -> list[Statement]:
    """The only value a question means, with those that its passage gives beside it.

    In the same sentence or the next, where no word of the question tells them apart.
    """
    best = good[0].statement
    if best.form != "sentence" or len({value_key(each.statement.value) for each in good}) > 1:
        return []
    every = [
        each._replace(place=best.place)
        for each in statements([documents[best.place]])
        if each.heading == best.heading and each.form == "sentence"
    ]
    texts = list(dict.fromkeys(each.text for each in every))
    at = texts.index(best.text) if best.text in texts else 0
    words = frozenset(map(stem, topic_words(text)))
    words -= shared_stems(words, stems(best.heading))
    results = [best]
    for each in every:
        if each.kind != best.kind or value_key(each.value) == value_key(best.value):
            continue
        if each.text == best.text:
            # what begins a sentence is said of all its values: half of it names none of them
            first, later = sorted((best, each), key=lambda side: best.text.find(side.value))
            names = [frozenset(map(stem, topic_words(plain(side.name)))) for side in (first, later)]
            is_named = 2 * len(shared_stems(names[0], stems(text))) > len(names[0])
            own = names[1] - names[0] | {*stems(first.head)} - names[1]
            is_open = not is_named and not shared_stems(words, own)
        else:
            met = [shared_stems(words, stems(side.text)) for side in (best, each)]
            is_open = met[0] == met[1] and (bool(met[0]) or not words)
            is_open = is_open and each.text in texts[max(0, at - 1) : at + 2]
        if is_open:
            results.append(each)
    return list(dict.fromkeys(results)) if len(results) > 1 else []


def _by_axis(
    listed: list[Statement],
    topic: Sequence[str],
    documents: Sequence[Chunk],
    scope: str | None = None,
) -> QuestionGap | None:
    """The gap by what tells statements apart: their labels, else their times or documents."""
    cores = {statement: _core(statement, topic) for statement in listed}
    field = (
        " ".join(
            shared_topic(topic, [f"{statement.name} {statement.heading}" for statement in listed])
            or topic
        )
        or listed[0].kind
    )
    if len(set(cores.values())) > 1:
        current = _current(listed, cores, documents)
        if all(statement.kind == "name" for statement in current):
            return _gap("implicit_entity", f"{field}:role", _people_first(current, documents))
        return _gap("field_type", field, current)
    if len({documents[statement.place].document for statement in listed}) > 1:
        return _by_document(listed, field, documents, scope)
    by_head = len({value_key(statement.label) for statement in listed}) == 1
    if (
        by_head and len({value_key(statement.head) for statement in listed}) == 1
    ):  # another cell of their rows tells them apart
        return _gap("field_type", field, listed)
    dated = all(
        TIME.search(name := plain(statement.head if by_head else statement.label))
        or _is_version(name)
        for statement in listed
    )
    return _gap(
        "date_scope" if dated else "field_type",
        f"{field}:date" if dated else field,
        listed,
        by_head=by_head,
    )


def _is_version(name: str) -> bool:
    return (
        expression("newer").search(name) is not None or expression("older").search(name) is not None
    )


def _core(statement: Statement, topic: Sequence[str]) -> frozenset[str]:
    """What a label says beside the topic and the time."""
    label = statement.label
    for value in reversed(values_in(label)):
        label = (
            f"{label[: value.start]} {label[value.end :]}"
            if value.kind in {"date", "number"}
            else label
        )
    bare = expression("older").sub(" ", expression("newer").sub(" ", TIME.sub(" ", plain(label))))
    own = frozenset(word for word in stems(bare) if not word.isdigit())
    return own - shared_stems(own, [stem(word) for word in topic])


def _current(
    listed: Sequence[Statement],
    cores: Mapping[Statement, frozenset[str]],
    documents: Sequence[Chunk],
) -> list[Statement]:
    """Of statements of one label the latest alone."""
    best: dict[frozenset[str], Statement] = {}
    for statement in listed:
        known = best.get(cores[statement])
        if known is None or _when(statement, documents) > _when(known, documents):
            best[cores[statement]] = statement
    return list(best.values())


def _when(statement: Statement, documents: Sequence[Chunk]) -> tuple[bool, str, bool]:
    """How late a statement holds.

    Whether it is called new, its latest year or that of its document.
    """
    name = plain(f"{statement.head} {statement.label}")
    newer, older = expression("newer").search(name), expression("older").search(name)
    return (
        older is None,
        max(YEARS.findall(name), default=document_year(documents[statement.place])),
        newer is not None,
    )


def _by_document(
    listed: Sequence[Statement], field: str, documents: Sequence[Chunk], scope: str | None
) -> QuestionGap | None:
    """Which document is meant, or which version: by what their tags tell apart."""
    first: dict[str, Statement] = {}
    for statement in listed:
        first.setdefault(documents[statement.place].document, statement)
    tags = {name: documents[statement.place].tags for name, statement in first.items()}
    stamps = {name: version_stamp(documents[statement.place]) for name, statement in first.items()}
    products = {tag.get("product", "") for tag in tags.values()}
    is_dated = (
        len(products) == 1
        and len(set(stamps.values())) == len(stamps)
        and all(any(stamp) for stamp in stamps.values())
    )
    if is_dated and scope is not None:
        return None  # the question names a time, of which no version is
    if is_dated:
        order = sorted(first, key=lambda name: stamps[name], reverse=True)
        readings = tuple(
            GapReading(
                "newest" if at == 0 else "oldest" if at == len(order) - 1 else name,
                first[name].text,
                title_of(name, documents),
            )
            for at, name in enumerate(order)
        )
        return QuestionGap("date_scope", f"{field}:date", readings[:MOST], "newest")
    # a role carries over to the next portfolio, a file's name does not
    roles = document_roles(tags)
    readings = tuple(
        GapReading(roles[name], statement.text, title_of(name, documents))
        for name, statement in first.items()
    )
    return (
        QuestionGap("document", f"{field}:document", readings[:MOST], "first")
        if len(readings) > 1
        else None
    )


def title_of(document: str, chunks: Sequence[Chunk]) -> str:
    """Title of a document, by its tags or its outermost heading.

    Its file name where it has none.
    """
    own = next(chunk for chunk in chunks if chunk.document == document)
    return own.tags.get("title") or (own.section[0] if own.section else "") or own.file_name


def _cited_gap(parsed: ParsedQuestion, documents: Sequence[Chunk]) -> QuestionGap | None:
    """Under which heading a step is meant, where several number their steps.

    `what does step 4 say?`.
    """
    match = _STEP.fullmatch(parsed.known("page_scope") or "")
    if match is None:
        return None
    item = re.compile(rf"(?m)^\s{{0,8}}{match[1]}[.)]\s")
    headings = list(
        dict.fromkeys(heading_of(chunk) for chunk in documents if item.search(chunk.text))
    )
    readings = tuple(GapReading(heading, heading) for heading in headings if heading)[:MOST]
    return QuestionGap(PAGE_SCOPE, "part", readings, "first") if len(readings) > 1 else None


def _part_gap(
    parsed: ParsedQuestion,
    text: str,
    topic: Sequence[str],
    documents: Sequence[Chunk],
    least: float,
) -> QuestionGap | None:
    """Which part is meant, where a question asks what is said.

    Of no topic, or of one that many parts speak of.
    """
    if (
        parsed.known("page_scope", least) is not None
        or parsed.known("date_scope", least) is not None
    ):
        return None
    if not (
        expression("wide").search(text) or parsed.known("intent", least) in {*TASKS}
    ) or wanted_kinds(text):
        return None
    if topic:
        bare = expression("wide").sub(" ", expression("summarise").sub(" ", text))
        return _topic_gap(parsed, own_topic(bare, documents) or topic, documents)
    titles = tuple({value_key(chunk.tags.get("title", "")) for chunk in documents})
    # the headings of other passages
    above = {chunk.section[0] for chunk in documents if len(chunk.section) > 1}
    headings = [heading for heading in _headings(documents) if heading not in above]
    headings = [
        heading
        for heading in headings
        if not any(title.endswith(value_key(heading)) for title in titles)
    ]
    if 1 < len(headings) <= MOST:
        return QuestionGap(
            PAGE_SCOPE, "part", tuple(GapReading(heading, heading) for heading in headings), "first"
        )
    pages = sorted({chunk.page for chunk in documents if chunk.page is not None})
    readings = tuple(GapReading(str(page)) for page in pages)[:MOST]
    return QuestionGap(PAGE_SCOPE, "part", readings, "first") if len(readings) > 1 else None


def _topic_gap(
    parsed: ParsedQuestion, topic: Sequence[str], documents: Sequence[Chunk]
) -> QuestionGap | None:
    """Which part is meant, where a question of no document asks widely about a topic.

    `tell me about renewals`.

    A heading that names the topic, and it alone, is the part that is meant.
    """
    needed = needed_words(topic)
    words = {chunk.chunk_id: shared_stems(needed, stems(chunk.full_text)) for chunk in documents}
    known = frozenset[str]().union(*words.values())
    if parsed.documents or not known or len(known) < ENOUGH * len(needed):
        return None
    most = max(map(len, words.values()))
    speaking = [chunk for chunk in documents if len(words[chunk.chunk_id]) == most]
    headings = _headings(speaking)
    if sum(_names_all(topic, heading) for heading in headings) == 1:
        return None
    readings = tuple(GapReading(heading, heading) for heading in headings)[:MOST]
    return QuestionGap(PAGE_SCOPE, "part", readings, "first") if len(readings) > 1 else None


def _gap(
    kind: GapKind, field: str, listed: Sequence[Statement], *, by_head: bool = False
) -> QuestionGap | None:
    """A gap whose readings are statements, each under the name that tells it from the others.

    A sentence has no name of its own: it goes by its heading, where no other stands under that, and
    is shown whole.
    """
    names = [statement.head if by_head else statement.label for statement in listed]
    for part in ("name", "heading", "text"):
        if len({value_key(name) for name in names}) < len(names):
            names = [getattr(statement, part) for statement in listed]
    headings = [value_key(statement.heading) for statement in listed]
    shared = {
        text
        for text in (each.text for each in listed)
        if sum(each.text == text for each in listed) > 1
    }
    readings: dict[str, GapReading] = {}
    for name, statement in zip(names, listed, strict=True):
        is_sentence = statement.form == "sentence"
        own = (
            statement.heading
            if is_sentence
            and statement.heading
            and headings.count(value_key(statement.heading)) == 1
            else name
        )
        text = _short(statement.text, statement.value) if is_sentence else ""
        if statement.text in shared and is_sentence:  # what tells values of one sentence apart
            text = f"{name}: {statement.value}"
        if own and value_key(own) not in readings:
            readings[value_key(own)] = GapReading(own[:LONGEST], statement.text, text)
    results = tuple(readings.values())[:MOST]
    return QuestionGap(kind, field[:LONGEST], results, "first") if len(results) > 1 else None


def _short(text: str, value: str) -> str:
    """A sentence as it is offered: around its value where it is long."""
    if len(text) <= SHOWN:
        return text
    start = max(0, min(text.find(value) - SHOWN // 2, len(text) - SHOWN))
    return (
        f"{'…' if start else ''}{text[start : start + SHOWN].strip()}"
        f"{'…' if start + SHOWN < len(text) else ''}"
    )
