"""Part gaps (shore): which part of its documents a question leaves open, and what to do with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from raglab.extensions.clarification.contents import contents
from raglab.extensions.clarification.gap_candidates import needed_words, own_topic
from raglab.extensions.clarification.language_words import (
    expression,
    meets,
    plain,
    shared_stems,
    stem,
    stems,
)
from raglab.extensions.clarification.question_parsing import (
    QUESTION_TASKS,
    is_bare,
    is_kind_word,
    wanted_kinds,
)
from raglab.extensions.clarification.replies import CONTENTS_PAGES, DOCUMENT, PAGE_SCOPE
from raglab.extensions.clarification.statements import heading_of, value_key
from raglab.live.clarifier import GapReading, ParsedQuestion, QuestionGap
from raglab.values import Chunk
from raglab.words.packs import Pack

MOST = 6  # readings of a gap
ENOUGH = 0.5  # share of a topic that must be named


def page_gap(
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
    scopes = ["1"] if any(chunk.page == 1 for chunk in documents) else []
    files = {chunk.source for chunk in documents}
    if any(contents([chunk for chunk in documents if chunk.source == source]) for source in files):
        scopes.append(CONTENTS_PAGES)
    readings = tuple(GapReading(value) for value in (*scopes, DOCUMENT))
    return QuestionGap(PAGE_SCOPE, name, readings, "usual") if scopes else None


def intent_gap(
    parsed: ParsedQuestion, topic: Sequence[str], documents: Sequence[Chunk], least: float
) -> QuestionGap | None:
    """What to do with a part that is named and nothing more: `the warranty section`."""
    text = plain(parsed.question)
    is_about = expression("about").search(text) and parsed.known("intent", least) is None
    # `excess?` asks for a value, whatever heading it stands under.
    if all(map(is_kind_word, topic)) or not (is_about or is_bare(text, cited=True)):
        return None
    named = [heading for heading in _headings(documents) if names_all(topic, heading)]
    if not named:
        return None
    readings = tuple(GapReading(task, min(named, key=len)) for task in QUESTION_TASKS)
    return QuestionGap("intent", " ".join(topic), readings, "first")


def part_gap(
    parsed: ParsedQuestion,
    text: str,
    topic: Sequence[str],
    documents: Sequence[Chunk],
    least: float,
) -> QuestionGap | None:
    """Which part is meant, where a question asks what is said.

    Of no topic, or of one that many parts of no document that it names speak of.
    """
    scopes = (parsed.known(name, least) for name in ("page_scope", "date_scope"))
    is_wide = expression("wide").search(text) or parsed.known("intent", least) in QUESTION_TASKS
    if not is_wide or wanted_kinds(text) or any(scopes):
        return None
    if topic:
        bare = expression("wide").sub(" ", expression("summarise").sub(" ", text))
        names = _speaking(own_topic(bare, documents) or topic, documents)
        readings = tuple(
            GapReading(name, name) for name in names[: 0 if parsed.documents else MOST]
        )
    else:
        readings = _parts(documents)
    return QuestionGap(PAGE_SCOPE, "part", readings, "first") if len(readings) > 1 else None


def _parts(documents: Sequence[Chunk]) -> tuple[GapReading, ...]:
    """Parts of documents by their headings; their pages where these are none or too many."""
    titles = tuple(value_key(chunk.tags.get("title", "")) for chunk in documents)
    # the headings of other passages
    above = {chunk.section[0] for chunk in documents if len(chunk.section) > 1}
    names = [
        heading
        for heading in _headings(documents)
        if heading not in above and not any(title.endswith(value_key(heading)) for title in titles)
    ]
    if 1 < len(names) <= MOST:
        return tuple(GapReading(name, name) for name in names)
    pages = sorted({chunk.page for chunk in documents if chunk.page is not None})
    return tuple(GapReading(str(page)) for page in pages[:MOST])


def _speaking(topic: Sequence[str], documents: Sequence[Chunk]) -> list[str]:
    """Headings of the passages that name most of a topic; none where one alone is called so."""
    needed = needed_words(topic)
    words = [shared_stems(needed, stems(chunk.full_text)) for chunk in documents]
    most = max(map(len, words))
    near = [chunk for chunk, own in zip(documents, words, strict=True) if len(own) == most]
    names = _headings(near)
    is_known = len(frozenset().union(*words)) >= max(ENOUGH * len(needed), 1)
    is_one = sum(names_all(topic, name) for name in names) == 1
    return names if is_known and not is_one else []


def _headings(documents: Iterable[Chunk]) -> list[str]:
    """Headings of passages, innermost, in order, each once."""
    return list(dict.fromkeys(heading for chunk in documents if (heading := heading_of(chunk))))


def names_all(topic: Sequence[str], text: str) -> bool:
    """Whether a text has all words of a topic."""
    own = stems(text)
    return all(any(meets(stem(word), name) for name in own) for word in topic)
