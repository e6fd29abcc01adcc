"""The narrower question (shore): what a value makes of a question that left it out (S5.10)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from raglab.answering.extractive import passage_lines
from raglab.extensions.clarification.contents import contents_pages
from raglab.extensions.clarification.missing_fields import (
    SPOKEN_OF,
    ScopedQuestion,
    candidate_figures,
    changed_figures,
    document_date,
    kinds_of,
    reading_statements,
    scope_question,
    section_kind,
    speaks,
    version_passages,
)
from raglab.extensions.clarification.question_vocabulary import (
    READ,
    Failure,
    Figure,
    ParsedQuestion,
    figures,
    plain_terms,
    section,
    spans,
    topic_stems,
)
from raglab.extensions.clarification.quoted_replies import Quotation
from raglab.extensions.clarification.stated_values import Statement, heading_of
from raglab.extensions.clarification.task_answers import QUOTE, TASKS, TaskAnswers
from raglab.packs import GENERIC, Pack
from raglab.text import pieces
from raglab.values import Chunk, Generator

_TASKS = {
    "cite": ("Quote", "Citer"),
    "summarise": ("Summarise", "Résumer"),
    "extract_conditions": ("Extract the conditions of", "Extraire les conditions de"),
}
_BEGINNING = 60  # words of a text by which it is asked for
_OF_SCOPE = ("page", "cite", "summarise", "extract_conditions")  # tasks on the text of a scope


class NarrowedRequest(NamedTuple):
    """A request narrowed by a value: what the question became.

    question: with the words of the value where the value is no scope. documents: `path` or `path#page`, to which
    retrieval is restricted; () where the documents have nothing that the value names, which is as good as a field that
    comes back empty. field: key of the extractor's rule, None where no rule reads it. task: of
    `task_answers.TASKS`, '' for a question that is answered by its best sentence. topic: stems of what it is about
    beside its scope. rows: label and value of the rows that the value names, for the task `figures`. query: the whole
    question, by which it is retrieved and judged: with the title and heading of its scope; for a text, its beginning.
    asked: what is answered from the passages of the scope, without words that only name the scope. statement, passage:
    what the documents state under the value, and the id of its passage, where the readings of the question have it.
    quoted: lines that answer the task `quote`, each with the id of its passage, and sure: how sure it is that they do.
    """

    question: str
    documents: tuple[str, ...]
    field: str | None
    task: str = ""
    topic: tuple[str, ...] = ()
    rows: tuple[tuple[str, str], ...] = ()
    query: str = ""
    asked: str = ""
    statement: Statement | None = None
    passage: str = ""
    quoted: tuple[tuple[str, str], ...] = ()
    sure: float = 0.0

    def generator(self, base: Generator) -> Generator:
        """Generator that answers the narrower question by its task."""
        return TaskAnswers(
            self.task,
            self.asked or self.question,
            topic=self.topic,
            rows=self.rows,
            base=base,
            quoted=self.quoted,
            sure=self.sure,
        )


def narrow_request(
    failure: Failure,
    value: str,
    question: str,
    parsed: ParsedQuestion,
    chunks: Sequence[Chunk],
    *,
    pack: Pack = GENERIC,
) -> NarrowedRequest:
    """The request that a value of a failure makes of a question.

    Args:
      failure: what was missing. value: one of its candidates, or what the user named. question: as it was asked.
      parsed: as it was read. chunks: of the documents it was asked of. pack: by which it was read.

    Raises:
      ValueError: the value is empty, or the failure of no known kind.

    Example:
      >>> pages = [Chunk("a#1", "Ring 01632 960 999.", "a.md", 1), Chunk("a#2", "Prices", "a.md", 2)]
      >>> missing = Failure("page_scope", "phone", ("1", "toc", "document"), "", "")
      >>> narrow_request(missing, "1", "What is the phone number?", ParsedQuestion(), pages).documents
      ('a.md#1',)
    """
    if not value.strip() or failure.kind not in _BY_KIND:
        msg = (
            f"a value of a known failure must be given, got {value!r} for {failure.kind!r}; take one of its candidates."
        )
        raise ValueError(msg)
    scoped = scope_question(question, chunks, parsed.said("target_field"), pack)
    stated = reading_statements(failure, value.strip(), question, scoped)
    made = (
        _narrow_to_statement(value.strip(), stated[0], question, parsed, scoped)
        if stated
        else _BY_KIND[failure.kind](failure, value.strip(), question, parsed, scoped)
    )
    return _whole(made, parsed, scoped)


def page_kind_value(failure: Failure, value: str, chunks: Sequence[Chunk], pack: Pack) -> str:
    """The kind of section offered that stands alone on a page; the page's number where several do, or none.

    Args:
      failure: what was missing. value: what the user named. chunks: of the documents it was asked of.
    """
    if not value.isdecimal():
        return value
    kinds = {kind for chunk in chunks if chunk.page == int(value) and (kind := _kind_or_heading(chunk, failure, pack))}
    return kinds.pop() if len(kinds) == 1 else value


def _kind_or_heading(chunk: Chunk, failure: Failure, pack: Pack) -> str | None:
    """The offered value that a passage is of."""
    kind, heading = section_kind(chunk, pack), plain_terms(heading_of(chunk)).strip()
    named = (one for one in failure.candidates if plain_terms(one).strip() == heading)
    return kind if kind in failure.candidates else next(named, None)


def scope_request(
    scope: str, question: str, parsed: ParsedQuestion, chunks: Sequence[Chunk], *, pack: Pack = GENERIC
) -> NarrowedRequest | None:
    r"""The request of a question that names its scope and hardly more, `what does page 3 say?`; None for any other.

    Args:
      scope: a page's position or `document`, as the question names it.
      question, parsed, chunks, pack: as in `narrow_request`.

    Source: rule S5.10: a scope alone is answerable by its text.

    Example:
      >>> pages = [Chunk("a#1", "Bicycles > Charges\nA day costs £12.", "a.md", 1)]
      >>> scope_request("1", "What does page 1 say?", ParsedQuestion(), pages).query
      'Bicycles > Charges: A day costs £12.'
    """
    if parsed.said("target_field") is not None or not scope.isdecimal():
        return None
    scoped = scope_question(question, chunks, None, pack)
    documents = _chunk_pages([chunk for chunk in scoped.chunks if chunk.page == int(scope)])
    if not documents:
        return None
    asked = parsed.said("intent")
    task = asked if asked in TASKS else "page"
    return _whole(NarrowedRequest(question, documents, None, task, scoped.about), parsed, scoped)


def words_request(
    failure: Failure,
    words: str,
    question: str,
    parsed: ParsedQuestion,
    chunks: Sequence[Chunk],
    *,
    pack: Pack = GENERIC,
) -> NarrowedRequest:
    """The request of a question completed in the user's own words; arguments as in `narrow_request`.

    Where a heading, row or column is called so, its passages are the scope; of a question what a document says, those
    of the passages on its topic that have the words.
    """
    scoped = scope_question(question, chunks, parsed.said("target_field"), pack)
    if failure.kind == "intent":  # whatever is to be done with the section, its text is what it is done with
        made = _narrow_to_intent(failure, "page", question, parsed, scoped)
        return _whole(made._replace(question=_with_brackets(question, words)), parsed, scoped)
    told = failure.kind == "page_scope" and failure.target_field not in pack.readings
    said = set(topic_stems(words, filler=pack.filler))
    speaking = [chunk for chunk in scoped.chunks if told and speaks(chunk, scoped) >= SPOKEN_OF]
    named = _passages_of(words, scoped) or [one for one in speaking if said and said <= set(topic_stems(one.text))]
    task, topic = ("page", scoped.about) if told else ("", ())
    documents = _chunk_pages(named) or _chunk_files(scoped.chunks)
    return _whole(NarrowedRequest(_with_brackets(question, words), documents, None, task, topic), parsed, scoped)


def quoted_request(question: str, words: str, told: Quotation, chunks: Sequence[Chunk]) -> NarrowedRequest:
    """The request of a question that is answered by lines of its documents: it is asked for in their words.

    Args:
      question: as it was asked. words: of the reply. told: lines that both mean. chunks: of the documents.
    """
    passages = [chunks[at] for at in told.passages]
    best = passages[0]
    scope = " > ".join(dict.fromkeys(part for part in (document_title(best), section(best.text)) if part))
    lines = " ".join(" ".join(told.lines).split()[:_BEGINNING])
    asked = _with_brackets(question, words)
    quoted = tuple((chunk.chunk_id, line) for chunk, line in zip(passages, told.lines, strict=True))
    query = ": ".join(part for part in (scope, lines) if part)
    return NarrowedRequest(
        asked, _chunk_pages(passages), None, QUOTE, query=query, asked=asked, quoted=quoted, sure=told.confidence
    )


def _whole(made: NarrowedRequest, parsed: ParsedQuestion, scoped: ScopedQuestion) -> NarrowedRequest:
    """A narrowed request with the query that says the whole of it, and its task.

    A vague question is near to no passage. What it became names its document and section, as a user would who asked
    for the whole.
    """
    named = set(made.documents)
    inside = [chunk for chunk in scoped.chunks if chunk.shown in named or chunk.document in named]
    asked = parsed.said("intent")
    task = made.task or (asked if asked in {"compare", "procedure"} else "") or ""
    titles = dict.fromkeys(filter(None, map(document_title, inside)))
    title = next(iter(titles)) if len(titles) == 1 else ""
    # Of several sections the one that is about it, else the one that speaks of it most.
    best = max(inside, key=lambda one: (_headed(one, made.topic), speaks(one, scoped)), default=None)
    paged = best is not None and all("#" in one for one in made.documents)
    heading = section(best.text) if best is not None and paged else ""
    words = made.question if best is None else _asked_text(made, best)
    scope = " > ".join(part for part in (title, heading if heading != title else "") if part)
    query = ": ".join(part for part in (scope, words) if part) or made.question
    return made._replace(task=task, query=query, asked=made.asked or made.question)


def _asked_text(made: NarrowedRequest, passage: Chunk) -> str:
    """What a narrowed request asks for, in the words of its best passage where that is a text or a row of it.

    A scope is asked for by its own words: those on the topic, all where there is none or the heading is on it.
    """
    lines = passage_lines(passage.text)
    if made.task == "figures":
        rows = [one.text for one in lines if any(a in one.text and b in one.text for a, b in made.rows)]
        return " ".join(f"{made.question} {' '.join(rows)}".split()[:_BEGINNING])
    if made.task not in _OF_SCOPE:
        return made.question
    topic = set(made.topic)
    own = [one.text for one in lines if topic & (one.stems | one.heading)]
    return " ".join(" ".join(own or [one.text for one in lines]).split()[:_BEGINNING])


def document_title(chunk: Chunk) -> str:
    r"""Title of a passage's document: its tag, else the first of its heading path.

    Example:
      >>> document_title(Chunk("a#1", "Bicycles > Charges\nA day costs £12.", "a.md", 1))
      'Bicycles'
    """
    path = chunk.text.partition("\n")[0]
    return chunk.tags.get("title", "") or (path.partition(" > ")[0].strip() if " > " in path else "")


def _chunk_files(chunks: Sequence[Chunk]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chunk.document for chunk in chunks))


def _chunk_pages(chunks: Sequence[Chunk]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chunk.shown for chunk in chunks))


def _extraction_field(field: str | None, pack: Pack) -> str | None:
    return field if field in pack.readings else None


def _with_brackets(question: str, words: str) -> str:
    """A question with further words in brackets, before its mark."""
    bare = question.rstrip(" ?.!")
    return f"{bare} ({words}){question[len(bare) :]}"


def _spelled_value(value: str, parsed: ParsedQuestion, pack: Pack) -> str:
    wording = pack.wording[parsed.language]
    return wording.written.get(value) or wording.values.get(value) or value


def _narrow_to_pages(
    failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: ScopedQuestion
) -> NarrowedRequest:
    field = _extraction_field(failure.target_field, scoped.pack)
    asked = parsed.said("intent")
    task = "" if field else asked if asked in TASKS else "page"  # a field is read, any other scope is told
    if value == "document":
        speaking = [chunk for chunk in scoped.chunks if scoped.about and speaks(chunk, scoped) >= SPOKEN_OF]
        documents = _chunk_pages(speaking) if task and speaking else _chunk_files(scoped.chunks)
        return NarrowedRequest(question, documents, field, task, scoped.about if task else ())
    if value == "toc":
        documents = tuple(
            f"{file}#{page}"
            for file in _chunk_files(scoped.chunks)
            for page in contents_pages(
                failure.target_field,
                [c for c in scoped.chunks if c.document == file],
                " ".join(scoped.about),
                pack=scoped.pack,
            )
        )
        return NarrowedRequest(question, documents, field)
    if value == "last":
        value = str(max((chunk.page or 0 for chunk in scoped.chunks), default=0))
    if value.isdigit():
        on_page = [chunk for chunk in scoped.chunks if chunk.page == int(value)]
        return NarrowedRequest(question, _chunk_pages(on_page), field, task, scoped.about if task else ())
    of_kind = _passages_of(value, scoped)
    speaking = [chunk for chunk in of_kind if speaks(chunk, scoped) >= SPOKEN_OF]
    return NarrowedRequest(question, _chunk_pages(speaking or of_kind), field, task, scoped.about)


def _narrow_to_field(
    failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: ScopedQuestion
) -> NarrowedRequest:
    pack = scoped.pack
    family = pack.families.get(failure.target_field)
    reads = {} if family is None else family.reads
    field = value if value in pack.readings else reads.get(value, reads.get("*"))
    found = _figures_of(value, scoped)
    rows = tuple(dict.fromkeys((figure.label, figure.value) for figure in found))
    passages = [scoped.chunks[at] for at in dict.fromkeys(figure.at for figure in found)]
    documents = _chunk_pages(passages or _passages_of(value, scoped)) or _chunk_files(scoped.chunks)
    return NarrowedRequest(
        _with_brackets(question, _spelled_value(value, parsed, pack)),
        documents,
        _extraction_field(field, pack),
        "figures" if rows else "",
        rows=rows,
    )


def _figures_of(value: str, scoped: ScopedQuestion) -> list[Figure]:
    """Figures that a value names: by their kind, row, column or heading."""
    family, wanted = scoped.pack.families.get(scoped.family), plain_terms(value.replace("_", " ")).strip()
    return [
        figure
        for figure in candidate_figures(scoped)
        if figure.version != "old"
        and (
            (family is not None and value in kinds_of(figure, family))
            or wanted in {plain_terms(text).strip() for text in (figure.label, figure.head, figure.section)}
        )
    ]


def _passages_of(value: str, scoped: ScopedQuestion) -> list[Chunk]:
    """Passages of a kind of section, else those under a heading, with a row or under a column of that name."""
    wanted = plain_terms(value).strip()
    return (
        [chunk for chunk in scoped.chunks if section_kind(chunk, scoped.pack) == value]
        or [chunk for chunk in scoped.chunks if plain_terms(heading_of(chunk)).strip() == wanted]
        or [chunk for chunk in scoped.chunks if wanted in _printed_names(chunk.text)]
    )


@lru_cache(maxsize=READ)
def _printed_names(text: str) -> frozenset[str]:
    """Heading, first cells and heads of a passage, in plain letters."""
    rows = [piece for piece in pieces(text) if piece.kind == "row"]
    names = [section(text), *(piece.cells[0] for piece in rows), *(head for piece in rows for head in piece.heads)]
    return frozenset(plain_terms(name).strip() for name in names if name.strip())


def _narrow_to_date(
    failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: ScopedQuestion
) -> NarrowedRequest:
    del failure
    pack, older = scoped.pack, scoped.pack.versions.old.value
    old, new = version_passages(scoped)
    field, written = _extraction_field(parsed.said("target_field"), pack), _spelled_value(value, parsed, pack)
    if not old:  # one document states both
        version = "old" if value == older else "new"
        changed = [figure for figure in changed_figures(scoped) if figure.version == version]
        asked = _with_brackets(question, changed[0].head if changed else written)
        return _with_figures(NarrowedRequest(asked, _chunk_files(scoped.chunks), field), changed, scoped)
    stamped = {pack.versions.new.value: new, older: old}.get(value)
    if stamped is None:  # a date or year that the user named
        years = [
            c for c in (*old, *new) if c.tags.get("doc_type") in pack.documents.dated and value[:4] in document_date(c)
        ]
        stamped = tuple(years) or new
    made = NarrowedRequest(_with_brackets(question, written), _chunk_files(stamped), field, asked=question)
    found = [figure for figure in _meant_figures(scoped) if scoped.chunks[figure.at] in stamped]
    return _with_figures(made, [figure for figure in found if figure.version != "old"], scoped)


def _meant_figures(scoped: ScopedQuestion) -> Sequence[Figure]:
    """Figures of the family that is asked for; where none is, rows that have most of the question's words."""
    if scoped.family:
        return candidate_figures(scoped)
    rows = [figure for figure in figures(scoped.chunks, pack=scoped.pack) if figure.table]
    met = [sum(stem in topic_stems(figure.context) for stem in scoped.about) for figure in rows]
    best = max(met, default=0)
    return [figure for figure, n in zip(rows, met, strict=True) if n == best and 2 * best >= len(scoped.about) > 0]


def _narrow_to_statement(
    value: str, stated: Statement, question: str, parsed: ParsedQuestion, scoped: ScopedQuestion
) -> NarrowedRequest:
    """The request of a reading that was found in the documents: its passage and what it states are known."""
    versions = (scoped.pack.versions.old.value, scoped.pack.versions.new.value)
    words = (stated.head or stated.row or stated.value) if value in versions else value
    chunk, field = scoped.chunks[stated.at], _extraction_field(parsed.said("target_field"), scoped.pack)
    made = NarrowedRequest(_with_brackets(question, words), (chunk.shown,), field, asked=question)
    return made._replace(statement=stated, passage=chunk.chunk_id)


def _with_figures(made: NarrowedRequest, found: Sequence[Figure], scoped: ScopedQuestion) -> NarrowedRequest:
    """A narrowed request whose answer is the rows of these figures, where there are any that the question tells."""
    rows = tuple(dict.fromkeys((figure.label, figure.value) for figure in found if figure.table))
    if not rows or not (scoped.about or len(rows) == 1):
        return made
    pages = _chunk_pages([scoped.chunks[at] for at in dict.fromkeys(figure.at for figure in found if figure.table)])
    return made._replace(documents=pages, task="figures", rows=rows)


def _narrow_to_entity(
    failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: ScopedQuestion
) -> NarrowedRequest:
    pack = scoped.pack
    if failure.target_field.endswith(":role"):
        field = pack.roles[value].field if value in pack.roles else None
        return NarrowedRequest(
            _with_brackets(question, _spelled_value(value, parsed, pack)),
            _chunk_files(scoped.chunks),
            _extraction_field(field, pack),
        )
    own = [chunk for chunk in scoped.chunks if chunk.tags.get("product", "") == value] or _passages_of(value, scoped)
    field = _extraction_field(parsed.said("target_field"), pack)
    made = NarrowedRequest(_with_brackets(question, value), _chunk_files(own), field, asked=question)
    return _with_figures(made, [one for one in _meant_figures(scoped) if scoped.chunks[one.at] in own], scoped)


def _narrow_to_intent(
    failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: ScopedQuestion
) -> NarrowedRequest:
    del failure
    words = _TASKS.get(value, (value, value))[parsed.language == "fr"]
    # `The article on cancellation` is about cancellation: what it calls a part says nothing of its subject.
    parts = topic_stems(" ".join(spans((scoped.pack.part,), question)))
    topic = tuple(stem for stem in scoped.about if stem not in parts)
    documents = _chunk_pages(_section_passages(topic, scoped)) or _chunk_files(scoped.chunks)
    return NarrowedRequest(f"{words} {question}", documents, None, value if value in TASKS else "page", topic)


def _section_passages(topic: Sequence[str], scoped: ScopedQuestion) -> list[Chunk]:
    """Passages whose headings have most of the topic, at least one word of it."""
    met = [_headed(chunk, topic) for chunk in scoped.chunks]
    best = max(met, default=0)
    return [chunk for chunk, n in zip(scoped.chunks, met, strict=True) if n == best] if best else []


def _headed(chunk: Chunk, topic: Sequence[str]) -> int:
    """How many words of a topic the heading of a passage has."""
    return len(set(topic) & set(topic_stems(section(chunk.text))))


_BY_KIND = {
    "field_type": _narrow_to_field,
    "implicit_entity": _narrow_to_entity,
    "date_scope": _narrow_to_date,
    "intent": _narrow_to_intent,
    "page_scope": _narrow_to_pages,
}
