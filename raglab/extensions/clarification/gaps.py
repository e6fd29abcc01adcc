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
    FAR,
    TIME,
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
    TASKS,
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
STRAY, BARE_STRAY, UNTYPED = 0.34, 0.5, 2.2
SURE = 0.6  # share of the known words of a question that sentences must name
FEW = 4  # sentences among which a user may choose; more are no choice
_PER = re.compile(r"(?<!\w)(?:per|each|par|chaque) (\w+)")
ANAPHOR = 1  # words beside its time that a clause may name which goes on about the sentence before
# kinds that a document states few values of
FEW_VALUES = frozenset({"phone", "email", "url", "quantity", "time"})
LONGEST, SHOWN = 120, 90  # characters of a value, and of a sentence that is offered


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
    role = _role_gap(parsed, text, topic, documents, pack)
    paged = None if is_bare(text) or role is not None else page_gap(parsed, documents, pack, least)
    if paged is not None:
        return (paged,)
    results = (
        role,
        intent_gap(parsed, topic, documents, least),
        _statement_gap(parsed, topic, documents, hits, pack),
        part_gap(parsed, text, topic, documents, least),
    )
    return tuple(gap for gap in results if gap is not None)


def _role_gap(
    parsed: ParsedQuestion, text: str, topic: Sequence[str], documents: Sequence[Chunk], pack: Pack
) -> QuestionGap | None:
    """Whom a role alone, or a question whom to turn to, means.

    `the tenant`, `who do I contact at Acme?`.
    """
    is_lookup = parsed.known("intent") in {None, "lookup"} and not wanted_kinds(text) - {"name"}
    roles = _roles(documents) if is_lookup and not is_denied(text) else []
    if len({value_key(role.value) for role in roles}) < 2:
        return None
    is_who, is_alone = expression("who").search(text) is not None, is_bare(text)
    is_contact = is_who and expression("contact").search(text) is not None
    # Roles are told apart by their endings, `lessor` and `lessee`: words are compared whole.
    own = {role: frozenset(map(_genderless, split_words(plain(role.label)))) for role in roles}
    words = frozenset(map(_genderless, topic))
    known = [role for role in (*pack.roles.values(), pack.vague_role) if role is not None]
    is_person = (
        expression("people").search(text)
        or whole_words([term for role in known for term in role.asked]).search(text)
        or any(words & label for label in own.values())
    )
    if not (is_contact or (is_person and (is_who or is_alone))):
        return None
    named = [role for role, label in own.items() if words and words <= label]
    is_whole = any(len(own[role] & words) == len(stems(role.label)) for role in named)
    if not is_alone and (is_whole or not (named or is_contact)):
        return None
    if is_contact and topic and not named:
        spoken = [stem(word) for word in topic]
        named = [role for role in roles if shared_stems(spoken, stems(f"{role.label} {role.text}"))]
        if len(named) == 1 or not (named or _only_names(topic, documents)):
            return None
    listed = named if len(named) > 1 else [*named, *(role for role in roles if role not in named)]
    field = _field(topic, [role.label for role in listed], "person")
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


def _only_names(topic: Sequence[str], documents: Sequence[Chunk]) -> bool:
    """Whether the words of a topic are those that name the documents.

    `who do I contact at Acme?`.
    """
    titles = " ".join(
        " ".join((*chunk.tags.values(), chunk.source, *chunk.section[:1])) for chunk in documents
    )
    return names_all(topic, titles)


def _statement_gap(
    parsed: ParsedQuestion,
    topic: Sequence[str],
    documents: Sequence[Chunk],
    hits: Sequence[Chunk],
    pack: Pack,
) -> QuestionGap | None:
    """Which of several statements of one kind is meant, or as of when."""
    text, scope = plain(parsed.question), parsed.known("date_scope")
    kinds = wanted_kinds(text)
    if parsed.known("intent") in {"why", "define", "procedure", "compare", "check", *TASKS} or not (
        topic or kinds
    ):
        return None
    ranked = candidates(text, topic, documents, hits, field_synonyms(parsed, pack))
    good = as_good(ranked)
    is_alike = len({each.statement.text for each in good}) == 1
    if topic and good and good[0].score < (ENOUGH * FAR if is_alike else ENOUGH):
        return None
    # where nothing but a kind is named, what is printed by itself, and kinds of few values
    good = [
        each
        for each in good
        if good[0].words or each.statement.form != "sentence" or each.statement.kind in FEW_VALUES
    ]
    if not good or not _is_covered(parsed, topic, good[0], documents):
        return None
    if not kinds:
        good = [each for each in good if each.statement.kind == good[0].statement.kind]
    gap = _time_gap(text, good, ranked, topic, documents, scope) if kinds else None
    gap = gap or _listed_gap(parsed, topic, good, documents, pack)
    return _keyed(gap, parsed, topic, good, documents, pack)


def _listed_gap(
    parsed: ParsedQuestion,
    topic: Sequence[str],
    good: Sequence[ScoredStatement],
    documents: Sequence[Chunk],
    pack: Pack,
) -> QuestionGap | None:
    """The gap between statements as good, but for those that a question is set against."""
    text, scope = plain(parsed.question), parsed.known("date_scope")
    listed = [each.statement for each in good]
    needed = frozenset(stem(word) for word in topic if not is_kind_word(word))
    # A sentence has no name of its own: the question must say of what it wants which kind of value,
    # or name what the value is of.
    is_kind = bool(wanted_kinds(text)) or all(
        needed and needed == shared_stems(needed, stems(each.label)) for each in listed
    )
    is_alike = len({each.text for each in listed}) == 1
    known = shared_stems(needed, _printed(documents))
    is_clear = is_kind and (is_alike or len(good[0].words & needed) >= SURE * len(known))
    is_few = is_clear and len(listed) <= (FEW if needed else MOST)
    files = {documents[each.place].document for each in listed}
    if ((is_clear and not is_few) or len(listed) > 2 * MOST) and 1 < len(files) <= MOST:
        return _by_document(listed, " ".join(topic) or listed[0].kind, documents, scope)
    if not is_few and any(each.form == "sentence" for each in listed):
        return None
    listed = in_time(listed, scope, documents)
    met = meeting(text, listed, documents)
    # Those that meet it are offered alone where they are an answer; where they leave words over,
    # they come first.
    strays = [
        unaccounted(parsed, topic, each, documents, pack) for each in good if each.statement in met
    ]
    if strays and all(strays):
        met = sorted(listed, key=lambda each: each not in met)
    # the others are cells without a value
    n_valued = sum(bool(values_in(each.value)) for each in met)
    if len({value_key(each.value) for each in met}) < 2 or n_valued > 2 * MOST:
        return None
    # `What does the X2 Max weigh?` names a column whole, and one sentence that tells its values
    # apart is told by them.
    is_named = is_alike and listed[0].form == "sentence" and _tells_apart(text, met)
    if is_named or named_column(text, met):
        return None
    return _by_axis(met, topic, documents, scope)


def _printed(documents: Sequence[Chunk]) -> frozenset[str]:
    """Stems of the words that documents print."""
    return frozenset(word for chunk in documents for word in stems(chunk.full_text))


def _is_covered(
    parsed: ParsedQuestion,
    topic: Sequence[str],
    best: ScoredStatement,
    documents: Sequence[Chunk],
) -> bool:
    """Whether the best statement names enough of a question that is of the documents' matter.

    A word that they lack counts for less. A name or figure that they lack is of another matter.
    """
    text, spoken = plain(parsed.question), frozenset(map(stem, topic))
    printed = _printed(documents)
    known = shared_stems(spoken, printed)
    words = re.findall(r"\w+", parsed.question)
    # `Yachtmaster` is no yacht; a question that is written in capitals names nothing by them
    is_titled = 2 * sum(word[:1].isupper() for word in words) > len(words)
    names = {stem(plain(word)) for word in words[1:] if re.search(r"\d", word) or word[0].isupper()}
    if not is_titled and (names & spoken) - printed:
        return False
    own = stems(f"{best.statement.name} {best.statement.text} {best.statement.lead}")
    if known < spoken and best.words and not shared_stems(best.words, own):
        return False  # what stands above a value says too little of it
    stray = BARE_STRAY if is_bare(text) else STRAY
    stray *= 1.0 if wanted_kinds(text) else UNTYPED
    least = ENOUGH * (len(known) + stray * len(spoken - known))
    return all(map(is_kind_word, topic)) or len(best.words) >= least


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
    """As of when, or in which case, the only value that a question means holds.

    Its text or another version gives others.
    """
    best = good[0].statement
    if len({value_key(each.statement.value) for each in good}) > 1:
        return None
    beside = _beside(best, documents)
    changes = [each for each in beside if _is_change(each) and not _is_meant(text, best, each)]
    changes = changes or _later(good[0], ranked, topic, documents)
    changed = in_time([best, *changes], scope, documents)
    if len(changed) > 1:
        texts = [f"{best.name} {best.heading} {best.text} {best.table}"]
        return _gap("date_scope", f"{_field(topic, texts, best.kind)}:date", changed)
    variants = [
        each
        for each in beside
        if best.form == each.form == "sentence"
        and _is_open(text, best, each)
        and not _is_meant(text, best, each, 2)
    ]
    variants = in_time([best, *variants], scope, documents)
    if len(variants) > 1:
        return _by_axis(variants, topic, documents, scope)
    versions = other_versions(good[0], ranked, documents) if scope is None else []
    field = _field(topic, [best.label], "")
    return _by_document([best, *versions], field, documents, scope) if versions else None


def _beside(best: Statement, documents: Sequence[Chunk]) -> list[Statement]:
    """Other values of its kind in the sentence of a statement and in those next to it."""
    if best.form not in {"sentence", "line"}:
        return []
    every = [
        each._replace(place=best.place)
        for each in statements([documents[best.place]])
        if each.heading == best.heading
    ]
    texts = list(dict.fromkeys(each.text for each in every))
    at = texts.index(best.text)
    return list(
        dict.fromkeys(
            each
            for each in every
            if each.text in texts[max(0, at - 1) : at + 2]
            and each.kind == best.kind
            and value_key(each.value) != value_key(best.value)
        )
    )


def _is_change(beside: Statement) -> bool:
    """Whether a value beside another is the same thing's at another time.

    `Pay is £9 an hour. Until May it was £8.`: a clause of the next sentence names a time and hardly
    anything else. It says its time at its start or by a date, `For trips from 1 May on it is £5`.
    """
    is_whole = len(own_values(beside)) == 1 and (
        TIME.match(plain(beside.text))
        or any(value.kind == "date" for value in values_in(beside.text))
    )
    name = beside.text if is_whole else f"{beside.label} {beside.head}"
    return _is_dated(name) and len(_core(beside, ())) <= ANAPHOR


def _later(
    best: ScoredStatement,
    ranked: Sequence[ScoredStatement],
    topic: Sequence[str],
    documents: Sequence[Chunk],
) -> list[Statement]:
    """The sentence that gives the value of a row or line at another time."""
    row, document = best.statement, documents[best.statement.place].document
    known = (*topic, *stems(row.name))
    later = [
        each.statement
        for each in ranked
        if (each.statement.form, each.statement.kind) == ("sentence", row.kind)
        and row.form != "sentence"
        and each.words >= best.words
        and documents[each.statement.place].document == document
        and TIME.search(plain(each.statement.text))
        and shared_stems(best.words, stems(f"{each.statement.label} {each.statement.head}"))
        and len(_core(each.statement, known)) <= ANAPHOR
        and value_key(each.statement.value) not in value_key(row.value)
    ]
    return later[:1]


def _is_open(text: str, best: Statement, beside: Statement) -> bool:
    """Whether no word of a question in plain letters tells a value from another in its passage."""
    words = frozenset(map(stem, topic_words(text)))
    words -= shared_stems(words, stems(best.heading))
    if beside.text != best.text:
        met = [shared_stems(words, stems(side.text)) for side in (best, beside)]
        return met[0] == met[1] and (bool(met[0]) or not words)
    # what begins a sentence is said of all its values: half of it names none of them
    first, later = sorted((best, beside), key=lambda side: best.text.find(side.value))
    names = [frozenset(map(stem, topic_words(plain(side.name)))) for side in (first, later)]
    is_named = 2 * len(shared_stems(names[0], stems(text))) > len(names[0])
    own = names[1] - names[0] | {*stems(first.head)} - names[1]
    return not is_named and not shared_stems(words, own)


def _is_meant(text: str, best: Statement, beside: Statement, matches: int = 1) -> bool:
    """Whether so many words of a question name a value in a sentence, and none the value beside."""
    words = [stem(word) for word in topic_words(text)]
    own, beyond = ({*stems(f"{side.label} {side.head}")} for side in (best, beside))
    return (
        best.text == beside.text
        and len(shared_stems(words, frozenset(own - beyond))) >= matches
        and not shared_stems(words, frozenset(beyond - own))
    )


def _tells_apart(text: str, listed: Sequence[Statement]) -> bool:
    """Whether a question in plain letters has words that only some of these values go by."""
    words = [stem(word) for word in (*topic_words(text), *_PER.findall(text))]
    names = [frozenset(stems(f"{statement.label} {statement.head}")) for statement in listed]
    return any(
        0 < sum(any(meets(word, statement) for statement in own) for own in names) < len(names)
        for word in words
    )


def _by_axis(
    listed: list[Statement],
    topic: Sequence[str],
    documents: Sequence[Chunk],
    scope: str | None = None,
) -> QuestionGap | None:
    """The gap by what tells statements apart: their labels, else their times or documents."""
    field = _field(topic, [f"{each.name} {each.heading}" for each in listed], listed[0].kind)
    cores = [_core(each, topic) for each in listed]
    if len(set(cores)) > 1:
        # of one label what holds the latest
        alike = [
            [each for each, own in zip(listed, cores, strict=True) if own == core]
            for core in dict.fromkeys(cores)
        ]
        listed = [in_time(each, "newest", documents)[0] for each in alike]
        if all(each.kind == "name" for each in listed):
            return _gap("implicit_entity", f"{field}:role", listed)
        return _gap("field_type", field, listed)
    if len({documents[each.place].document for each in listed}) > 1:
        return _by_document(listed, field, documents, scope)
    by_head = len({value_key(each.label) for each in listed}) == 1
    if all(_is_dated(each.head if by_head else each.label) for each in listed):
        return _gap("date_scope", f"{field}:date", listed, by_head=by_head)
    return _gap("field_type", field, listed, by_head=by_head)


def _field(topic: Sequence[str], texts: Sequence[str], kind: str) -> str:
    """What is open, by the words of a topic that all of some texts have, else by all; or a kind."""
    return " ".join(shared_topic(topic, texts) or topic) or kind


def _is_dated(name: str) -> bool:
    """Whether a name says when something holds."""
    forms = (TIME, expression("newer"), expression("older"))
    return any(form.search(plain(name)) for form in forms)


def _core(statement: Statement, topic: Sequence[str]) -> frozenset[str]:
    """What a label says beside the topic and the time."""
    label, bare = statement.label, plain(statement.label)
    for form in (TIME, expression("newer"), expression("older")):
        bare = form.sub(" ", bare)
    dates = " ".join(value.text for value in values_in(label) if value.kind in {"date", "number"})
    own = frozenset(word for word in stems(bare) if not word.isdigit()).difference(stems(dates))
    return own - shared_stems(own, [stem(word) for word in topic])


def _by_document(
    listed: Sequence[Statement], field: str, documents: Sequence[Chunk], scope: str | None
) -> QuestionGap | None:
    """Which document is meant, or which version: by what their tags tell apart."""
    first: dict[str, Statement] = {}
    for statement in listed:
        first.setdefault(documents[statement.place].document, statement)
    own = {name: documents[each.place] for name, each in first.items()}
    tags = {name: chunk.tags for name, chunk in own.items()}
    stamps = {name: version_stamp(chunk) for name, chunk in own.items()}
    is_dated = (
        len({of.get("product", "") for of in tags.values()}) == 1
        and len(set(stamps.values())) == len(stamps)
        and all(any(stamp) for stamp in stamps.values())
    )
    if len(first) == 1 or (is_dated and scope is not None):
        return None  # the question names a time, of which no version is
    # a role carries over to the next portfolio, a file's name does not
    names = document_roles(tags)
    order = [*first]
    if is_dated:
        order.sort(key=lambda name: stamps[name], reverse=True)
        names = {name: name for name in order} | {order[-1]: "oldest", order[0]: "newest"}
    readings = tuple(
        GapReading(names[name], first[name].text, title_of(own[name])) for name in order
    )[:MOST]
    if is_dated:
        return QuestionGap("date_scope", f"{field}:date", readings, "newest")
    return QuestionGap("document", f"{field}:document", readings, "first")


def title_of(chunk: Chunk) -> str:
    """Title of a document by its tags or its outermost heading; its file name where it has none."""
    return chunk.tags.get("title") or " ".join(chunk.section[:1]) or chunk.file_name


def _gap(
    kind: GapKind, field: str, listed: Sequence[Statement], *, by_head: bool = False
) -> QuestionGap | None:
    """A gap whose readings are statements, each under the name that tells it from the others.

    A sentence has no name of its own: it goes by its heading, where no other stands under that, and
    is shown whole.
    """
    names = [each.head if by_head else each.label for each in listed]
    for part in ("name", "heading", "text"):
        if len(set(map(value_key, names))) < len(names):
            names = [getattr(each, part) for each in listed]
    headings = Counter(value_key(each.heading) for each in listed)
    texts = Counter(each.text for each in listed)
    readings: dict[str, GapReading] = {}
    for name, each in zip(names, listed, strict=True):
        own, shown = name, ""
        if each.form == "sentence":
            is_shared = texts[each.text] > 1  # shown is what tells its values apart
            shown = f"{name}: {each.value}" if is_shared else _short(each.text, each.value)
            own = each.heading if headings[value_key(each.heading)] == 1 and each.heading else name
        if own:
            readings.setdefault(value_key(own), GapReading(own[:LONGEST], each.text, shown))
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
